//! Moves bytes as the machine's outputs say: between messages, slots, and the programs' own bytes.
//!
//! Guarantees: every move is done at its output's turn, under the client's lock, so a piece names
//! the bytes as they are at that moment. Slots are shared, not copied; bytes of a write are copied
//! at most once on their way to the network, however often they are sent, and once on their way to
//! their slots.

use crate::arena::Arena;
use logic::Ticket;
use logic::client::{Output, Piece, Slot};
use net::Bulk;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use wire::RequestId;

/// The call that is being made, and the bytes that it writes: still where the front has them.
pub(crate) type Given<'a> = (Ticket, &'a [u8]);

/// No call has this number.
pub(crate) const NOTHING_GIVEN: Given<'static> = (0, &[]);

/// A write's bytes, held until its answer.
pub(crate) enum Data {
    /// As the front gave them.
    Given(Vec<u8>),
    /// The same, shared with messages on their way.
    Shared(Arc<[u8]>),
}

impl Data {
    fn get(&self) -> &[u8] {
        match self {
            Data::Given(bytes) => bytes,
            Data::Shared(bytes) => bytes,
        }
    }

    fn share(&mut self) -> Arc<[u8]> {
        if let Data::Given(bytes) = self {
            *self = Data::Shared(std::mem::take(bytes).into());
        }
        match self {
            Data::Shared(bytes) => Arc::clone(bytes),
            Data::Given(_) => unreachable!("it has just been shared"),
        }
    }
}

/// Where bytes are while one input is handled.
pub(crate) struct Bytes<'a> {
    pub(crate) arena: &'a mut Arena,
    pub(crate) data: &'a mut BTreeMap<Ticket, Data>,
    /// Those kept for requests that may have to be sent again.
    pub(crate) kept: &'a mut HashMap<RequestId, Bulk>,
    pub(crate) given: Given<'a>,
    /// Those beside the message.
    pub(crate) beside: &'a mut Vec<u8>,
}

impl Bytes<'_> {
    /// Does what an output says about slots; false: it says nothing about them.
    pub(crate) fn apply(&mut self, output: &Output) -> bool {
        match *output {
            Output::Fill { slot, from, len } => {
                let bytes = range(self.beside, from, len);
                self.arena.fill(slot, bytes);
            }
            Output::CopyIn {
                ticket,
                from,
                slot,
                at,
                len,
                but_zeros,
            } => {
                let data = range(written(self.data, self.given, ticket), from, len);
                match but_zeros {
                    false => self.arena.put(slot, at, data),
                    true => put_but_zeros(self.arena, (slot, at), data),
                }
            }
            Output::Zero { slot, at, len } => self.arena.zero(slot, at, len),
            Output::Keep { request, ref bulk } => {
                let bulk = self.bulk(bulk);
                self.kept.insert(request, bulk);
            }
            Output::Forget { request } => drop(self.kept.remove(&request)),
            _ => return false,
        }
        true
    }

    /// The bytes of an answer. `last`: no later output needs the bytes beside the message.
    pub(crate) fn gather(&mut self, pieces: &[Piece], last: bool) -> Bulk {
        if let [Piece::Bulk { from: 0, len }] = *pieces
            && last
            && len as usize == self.beside.len()
        {
            // The common answer of a read that missed: moved, not copied.
            return Bulk::from(std::mem::take(self.beside));
        }
        let mut bulk = Bulk::empty();
        for piece in pieces {
            self.append(piece, &mut bulk);
        }
        bulk
    }

    /// The bytes beside a message to be sent.
    pub(crate) fn bulk(&mut self, pieces: &[Piece]) -> Bulk {
        if let [Piece::Kept { request }] = pieces {
            return self.kept.get(request).cloned().unwrap_or_default();
        }
        if let [Piece::Call { ticket }] = pieces {
            let (current, bytes) = self.given;
            if *ticket == current {
                let kept = || Data::Shared(bytes.into());
                return Bulk::from(self.data.entry(current).or_insert_with(kept).share());
            }
            let data = self.data.get_mut(ticket);
            return data.map(Data::share).map_or_else(Bulk::empty, Bulk::from);
        }
        self.gather(pieces, false)
    }

    fn append(&self, piece: &Piece, bulk: &mut Bulk) {
        match *piece {
            Piece::Slot { slot, at, len } => {
                let (block, range) = self.arena.share(slot, at, len);
                bulk.push_held(block, range);
            }
            Piece::Zero { len } => bulk.push(vec![0; len as usize]),
            Piece::Bulk { from, len } => bulk.push(kept(range(self.beside, from, len))),
            Piece::Call { ticket } => bulk.push(kept(written(self.data, self.given, ticket))),
            Piece::Kept { request } => {
                let parts = self.kept.get(&request).into_iter().flat_map(Bulk::slices);
                parts.for_each(|part| bulk.push(kept(part)));
            }
        }
    }
}

/// A copy.
pub(crate) fn kept(bytes: &[u8]) -> Vec<u8> {
    let mut kept = net::spare::take(bytes.len());
    kept.extend_from_slice(bytes);
    kept
}

/// The bytes of a write.
fn written<'a>(
    data: &'a BTreeMap<Ticket, Data>,
    (current, bytes): Given<'a>,
    ticket: Ticket,
) -> &'a [u8] {
    if ticket == current {
        return bytes;
    }
    data.get(&ticket).map_or(&[][..], Data::get)
}

/// Does an output need the bytes beside the message?
pub(crate) fn needs_beside(output: &Output) -> bool {
    let beside = |pieces: &[Piece]| pieces.iter().any(|p| matches!(p, Piece::Bulk { .. }));
    match output {
        Output::Fill { .. } => true,
        Output::Send { bulk, .. } | Output::Keep { bulk, .. } => beside(bulk),
        Output::Done {
            done: logic::client::Done::Read { pieces },
            ..
        } => beside(pieces),
        _ => false,
    }
}

/// The machine was told how many bytes there are: it names no others.
fn range(bytes: &[u8], from: u32, len: u32) -> &[u8] {
    let (from, len) = (from as usize, len as usize);
    let found = from.checked_add(len).and_then(|end| bytes.get(from..end));
    found.expect("the machine names only bytes that it was told of")
}

/// Where zeros come, the slot keeps what it has.
fn put_but_zeros(arena: &mut Arena, (slot, mut at): (Slot, u32), data: &[u8]) {
    for run in data.chunk_by(|one, next| (*one == 0) == (*next == 0)) {
        if run[0] != 0 {
            arena.put(slot, at, run);
        }
        at += run.len() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_gathered_in_their_order() {
        let mut arena = Arena::new();
        arena.put(0, 10, &[1, 2, 3]);
        let mut data = BTreeMap::from([(5, Data::Given(vec![9, 9]))]);
        let mut beside = vec![6, 7, 8];
        let mut bytes = Bytes {
            arena: &mut arena,
            data: &mut data,
            kept: &mut HashMap::new(),
            given: (6, &[4, 4, 4]),
            beside: &mut beside,
        };
        let slot = Piece::Slot {
            slot: 0,
            at: 11,
            len: 2,
        };
        let pieces = [
            Piece::Bulk { from: 1, len: 2 },
            slot,
            Piece::Zero { len: 1 },
            Piece::Call { ticket: 5 },
            Piece::Call { ticket: 6 },
        ];
        let gathered = bytes.gather(&pieces, true);
        let gathered: Vec<&[u8]> = gathered.slices().collect();
        assert_eq!(gathered.concat(), [7, 8, 2, 3, 0, 9, 9, 4, 4, 4]);
        assert_eq!(bytes.bulk(&[Piece::Call { ticket: 6 }]).len(), 3);
        assert!(bytes.data.contains_key(&6), "it may have to be sent again");
        assert_eq!(bytes.bulk(&[Piece::Call { ticket: 5 }]).len(), 2);
        assert_eq!(
            bytes.bulk(&[Piece::Call { ticket: 5 }]).len(),
            2,
            "sent again"
        );
    }

    #[test]
    fn bytes_beside_a_message_are_moved_only_when_nobody_needs_them_later() {
        let (mut arena, mut data) = (Arena::new(), BTreeMap::new());
        let mut beside = vec![1; 100];
        let mut bytes = Bytes {
            arena: &mut arena,
            data: &mut data,
            kept: &mut HashMap::new(),
            given: NOTHING_GIVEN,
            beside: &mut beside,
        };
        let whole = [Piece::Bulk { from: 0, len: 100 }];
        assert_eq!(bytes.gather(&whole, false).len(), 100);
        assert_eq!(bytes.gather(&whole, true).len(), 100);
        assert!(beside.is_empty());
    }
}
