//! Borrowing: other clients are asked for blocks, and their bytes are looked at.
//!
//! Only the thread that holds its lock changes `State`. A question is there from when it is to be
//! asked until it is answered, given up, or its connection has ended; an answer to any other is
//! thrown away. Connections are made when they are needed, kept while they are used, and given up
//! with the first failure.

use super::{aside, nothing, speaks};
use crate::core::Core;
use logic::client::{Input, PeerInput};
use net::{Addresses, Bulk, CloseReason, Dialer, Events, KeyPrint, Link, LinkId, Passage};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use wire::limits::BLOCK_BYTES;
use wire::{Capability, Digest, Elsewhere, Secret, ToLender, ToReader};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Connections to so many lenders are kept.
const LENDERS: usize = 32;

/// Where a lender is, and which one.
type Place = (SocketAddr, Secret);

/// Blocks that were asked for.
struct Question {
    place: Place,
    capability: Capability,
    digests: Vec<Option<Digest>>,
}

struct Connection {
    dialer: Dialer,
    /// Once it is open.
    link: Option<Arc<Link>>,
    /// The number of the last question to it, of all questions: the connection used longest ago
    /// goes first.
    used: u64,
}

#[derive(Default)]
struct State {
    connections: HashMap<Place, Connection>,
    questions: HashMap<u64, Question>,
}

/// The borrowing half.
pub(super) struct Reader {
    core: Weak<Core>,
    passage: Passage,
    own: Weak<Reader>,
    state: Mutex<State>,
}

/// The receiver of a connection's events.
struct Told {
    reader: Weak<Reader>,
    place: Place,
}

impl Reader {
    pub(super) fn new(core: Weak<Core>, passage: Passage) -> Arc<Reader> {
        Arc::new_cyclic(|own| Reader {
            core,
            passage,
            own: own.clone(),
            state: Mutex::new(State::default()),
        })
    }

    /// Asks a lender. False: it cannot be asked.
    pub(super) fn borrow(&self, id: u64, elsewhere: Elsewhere) -> bool {
        let addr = str::from_utf8(&elsewhere.addr).ok();
        let Some(addr) = addr.and_then(|addr| addr.parse::<SocketAddr>().ok()) else {
            return false;
        };
        let place = (addr, elsewhere.key);
        let mut state = self.state.lock();
        let link = match self.connection(&mut state, place) {
            Some(connection) => {
                connection.used = id;
                connection.link.clone()
            }
            None => return false,
        };
        let question = Question {
            place,
            capability: elsewhere.capability,
            digests: elsewhere.digests,
        };
        let message = message(id, &question);
        state.questions.insert(id, question);
        drop(state);
        if let Some(link) = link {
            link.send(message, Bulk::empty());
            link.flush();
        }
        true
    }

    /// The connection to a lender, which is made if there is none.
    fn connection<'a>(&self, state: &'a mut State, place: Place) -> Option<&'a mut Connection> {
        if !state.connections.contains_key(&place) {
            if state.connections.len() >= LENDERS {
                let oldest = state.connections.iter().min_by_key(|(_, one)| one.used);
                let oldest = oldest.map(|(place, _)| *place)?;
                bury(state.connections.remove(&oldest));
            }
            let (addr, key) = place;
            let passage = match &self.passage {
                Passage::InsecureLoopback => Passage::InsecureLoopback,
                Passage::Tls(own) | Passage::ToMachine(own, _) => {
                    Passage::ToMachine(Arc::clone(own), KeyPrint(key))
                }
            };
            let told = Told {
                reader: self.own.clone(),
                place,
            };
            let how = (passage, speaks());
            let dialer = Dialer::new(Addresses::from(addr), how, Arc::new(told));
            let dialer = dialer.inspect_err(|error| tracing::warn!(%error, "no lender is asked"));
            let connection = Connection {
                dialer: dialer.ok()?,
                link: None,
                used: 0,
            };
            state.connections.insert(place, connection);
        }
        state.connections.get_mut(&place)
    }

    /// A lender has not answered in time: the connection to it is given up.
    pub(super) fn give_up(&self, id: u64) {
        let place = self.state.lock().questions.remove(&id);
        if let Some(Question { place, .. }) = place {
            self.drop_connection(place, None);
        }
    }

    /// The connection is of no use; all that was asked on it will not be answered. `link`: only if
    /// it is this one.
    fn drop_connection(&self, place: Place, link: Option<LinkId>) {
        let (connection, lost) = {
            let mut state = self.state.lock();
            let current = state.connections.get(&place);
            let current = current.and_then(|one| one.link.as_ref().map(|link| link.id()));
            if link.is_some() && current != link {
                return;
            }
            let of_place = |(id, one): (&u64, &Question)| (one.place == place).then_some(*id);
            let lost: Vec<u64> = state.questions.iter().filter_map(of_place).collect();
            state
                .questions
                .retain(|_, question| question.place != place);
            (state.connections.remove(&place), lost)
        };
        bury(connection);
        lost.into_iter()
            .for_each(|id| self.tell(nothing(id), Vec::new()));
    }

    pub(super) fn close(&self) {
        let state = std::mem::take(&mut *self.state.lock());
        for id in state.questions.into_keys() {
            self.tell(nothing(id), Vec::new());
        }
        state
            .connections
            .into_values()
            .for_each(|one| bury(Some(one)));
    }

    fn tell(&self, input: PeerInput, beside: Vec<u8>) {
        if let Some(core) = self.core.upgrade() {
            core.tell_with(Input::Peer(input), beside);
        }
    }

    fn opened(&self, place: Place, link: &Arc<Link>) {
        let waiting: Vec<Vec<u8>> = {
            let mut state = self.state.lock();
            let Some(connection) = state.connections.get_mut(&place) else {
                return link.close(CloseReason::Stopped);
            };
            connection.link = Some(Arc::clone(link));
            let of_place = state.questions.iter().filter(|(_, one)| one.place == place);
            of_place
                .map(|(id, question)| message(*id, question))
                .collect()
        };
        for message in waiting {
            link.send(message, Bulk::empty());
        }
        link.flush();
    }

    fn heard(&self, place: Place, body: &[u8], bulk: Vec<u8>) -> Result<(), String> {
        match wire::decode(body).map_err(|error| error.to_string())? {
            ToReader::Soon { ask } => {
                let known = self.state.lock().questions.get(&ask).map(|one| one.place);
                if known == Some(place) {
                    self.tell(PeerInput::Soon { id: ask }, Vec::new());
                }
            }
            ToReader::Lent { ask, have } => {
                if bulk.len() != have.len() * BLOCK {
                    return Err("not as many bytes as blocks".into());
                }
                let question = {
                    let mut state = self.state.lock();
                    let known = state.questions.get(&ask).map(|one| one.place);
                    (known == Some(place))
                        .then(|| state.questions.remove(&ask))
                        .flatten()
                };
                if let Some(question) = question {
                    let (have, bulk, failing) = vouched_for((have, bulk), &question.digests);
                    let id = ask;
                    self.tell(PeerInput::Borrowed { id, have, failing }, bulk);
                }
            }
        }
        Ok(())
    }
}

impl Events for Told {
    fn opened(&self, link: &Arc<Link>) {
        if let Some(reader) = self.reader.upgrade() {
            reader.opened(self.place, link);
        }
    }

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let Some(reader) = self.reader.upgrade() else {
            return;
        };
        if let Err(reason) = reader.heard(self.place, body, bulk) {
            tracing::warn!(peer = %link.peer(), reason, "a lender is not asked any more");
            link.close(CloseReason::Refused(reason));
        }
    }

    fn closed(&self, id: LinkId, _: &CloseReason) {
        if let Some(reader) = self.reader.upgrade() {
            reader.drop_connection(self.place, Some(id));
        }
    }
}

fn message(ask: u64, question: &Question) -> Vec<u8> {
    let capability = question.capability.clone();
    wire::encode(&ToLender::Borrow { ask, capability })
}

/// The blocks of an answer that are what the server's digests say, with their bytes; and whether
/// some were not.
fn vouched_for(
    (have, bulk): (Vec<u16>, Vec<u8>),
    digests: &[Option<Digest>],
) -> (Vec<u16>, Vec<u8>, bool) {
    let is_right = |(at, block): (&u16, &[u8])| {
        let digest = digests.get(usize::from(*at)).copied().flatten();
        digest == Some(Digest(net::digest_of(block)))
    };
    let blocks = || have.iter().zip(bulk.chunks_exact(BLOCK));
    let right: Vec<bool> = blocks().map(is_right).collect();
    if right.iter().all(|right| *right) {
        return (have, bulk, false);
    }
    let kept = || blocks().zip(&right).filter(|(_, right)| **right);
    let bytes: Vec<u8> = kept().flat_map(|((_, block), _)| block).copied().collect();
    (kept().map(|((at, _), _)| *at).collect(), bytes, true)
}

/// Ends a connection on a thread of its own: that may take as long as an attempt to connect.
fn bury(connection: Option<Connection>) {
    if let Some(Connection { dialer, link, .. }) = connection {
        if let Some(link) = link {
            link.close(CloseReason::Stopped);
        }
        aside("peers-end", move || drop(dialer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_the_digests_vouch_for_are_taken() {
        let block = |byte: u8| vec![byte; BLOCK];
        let digest = |byte: u8| Some(Digest(net::digest_of(&block(byte))));
        let digests = [digest(1), digest(2), None, digest(4)];
        let all = (vec![0, 1, 3], [block(1), block(2), block(4)].concat());
        assert_eq!(vouched_for(all.clone(), &digests), (all.0, all.1, false));
        let mut changed = block(2);
        changed[4095] ^= 1;
        let lies = [block(1), changed, block(3), block(4), block(5)].concat();
        let (have, bytes, failing) = vouched_for((vec![0, 1, 2, 3, 9], lies), &digests);
        assert_eq!((have, failing), (vec![0, 3], true));
        assert_eq!(bytes, [block(1), block(4)].concat());
    }
}
