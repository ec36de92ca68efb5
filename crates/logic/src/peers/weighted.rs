//! Weighted LRU (section 2.5 of the paper): the block of the least value for its room goes. Its
//! value is the cost of fetching it again: from another client if there is a copy, else from the
//! disk. The room it takes is worth as long as it is likely to lie unused, which is how long it has
//! lain unused so far. The server tells each holder whether it is the only one.
//!
//! Where the block that has to go is a last copy, it takes the room of the least valuable block of
//! all clients, as far as the server has heard of these.

use super::client::{COPIES, Client, LAST, Lent, Step};
use super::fleet;
use super::{Costs, Name, Offer, Peer};
use alloc::vec;
use alloc::vec::Vec;

/// How many of its oldest copies a client names.
pub const CANDIDATES: usize = 4;

/// Since when the oldest blocks of a memory lie unused: the oldest copy, the oldest last copy, the
/// oldest of its share of new blocks; and which copies would go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    pub(super) copy: u32,
    pub(super) last: u32,
    pub(super) fresh: u32,
    pub(super) next: [Option<Name>; CANDIDATES],
}

impl Oldest {
    /// Free room is older than everything.
    const EMPTY: Oldest = Oldest {
        copy: 0,
        last: 0,
        fresh: 0,
        next: [None; CANDIDATES],
    };
}

/// There is free room, or no block of this kind.
pub(super) const NEVER: u32 = u32::MAX;

/// How worthless the room of a block is that lies unused since `stamp`.
fn worth(now: u32, stamp: u32, weight: u64) -> u64 {
    match stamp {
        NEVER => 0,
        stamp => u64::from(now.saturating_sub(stamp)) * weight,
    }
}

/// A copy's room is worth the less, the cheaper a peer is beside the disk: ages of copies count so
/// many times, in 16ths.
pub(super) fn weight_of_copies(costs: Costs) -> u64 {
    u64::from(costs.disk) * 16 / u64::from(costs.peer.max(1))
}

/// Ages of last copies count in the same unit.
pub(super) const WEIGHT_OF_LAST: u64 = 16;

/// The stamps of a client's oldest blocks.
pub(super) fn oldest(client: &Client) -> Oldest {
    let own = &client.own;
    if !own.is_full() {
        return Oldest::EMPTY;
    }
    let stamp = |list| own.oldest(list).map(|slot| own.entry(slot).stamp);
    let mut copies = own.oldest_first(COPIES);
    Oldest {
        copy: stamp(COPIES).unwrap_or(NEVER),
        last: stamp(LAST).unwrap_or(NEVER),
        fresh: fleet::oldest_new(client),
        next: [(); CANDIDATES].map(|()| copies.next().map(|slot| own.entry(slot).name)),
    }
}

/// The least valuable block of a client, and its list.
pub(super) fn victim(client: &Client, now: u32, of_copies: u64) -> Option<u32> {
    let age = |slot: u32, weight| worth(now, client.own.entry(slot).stamp, weight);
    let (copy, last) = (client.own.oldest(COPIES), client.own.oldest(LAST));
    match (copy, last) {
        (Some(copy), Some(last)) if age(copy, of_copies) < age(last, WEIGHT_OF_LAST) => Some(last),
        (Some(copy), _) => Some(copy),
        (None, last) => last,
    }
}

/// The offer that it sends the server with a request: how old its blocks are.
pub(super) fn offer(client: &mut Client) -> Option<Offer> {
    Some(Offer {
        block: None,
        oldest: oldest(client),
        heard: client.heard.take(),
    })
}

/// Makes room for a block that a program here asked for.
pub(super) fn evict(client: &mut Client, now: u32) -> Step {
    let of_copies = weight_of_copies(client.options.costs);
    let Some(slot) = victim(client, now, of_copies) else {
        return Step::Done;
    };
    let entry = *client.own.entry(slot);
    let name = client.own.remove(slot);
    match entry.list {
        COPIES => Step::Drop(name),
        _ => Step::Place {
            name,
            age: now.saturating_sub(entry.stamp),
        },
    }
}

/// A last copy of another client comes: the least valuable block makes room.
pub(super) fn park(client: &mut Client, now: u32, name: Name) -> Step {
    let of_copies = weight_of_copies(client.options.costs);
    let step = match victim(client, now, of_copies) {
        Some(slot) if client.own.is_full() => Step::Drop(client.own.remove(slot)),
        _ => Step::Done,
    };
    client.own.insert(now, name, LAST);
    step
}

/// Another client gets a copy: this one is no longer the only one.
pub(super) fn lend(client: &mut Client, slot: u32) -> Lent {
    let list = client.own.entry(slot).list;
    client.own.entry_mut(slot).last = false;
    if list == LAST {
        client.own.shift(slot, COPIES);
    }
    Lent::Copied {
        again: list == fleet::FRESH,
    }
}

/// The server's knowledge of the clients' memories.
pub(super) struct Places {
    oldest: Vec<Oldest>,
    of_copies: u64,
}

impl Places {
    pub(super) fn new(clients: Peer, of_copies: u64) -> Self {
        // A client that has said nothing yet has room.
        Self {
            oldest: vec![Oldest::EMPTY; usize::from(clients)],
            of_copies,
        }
    }

    pub(super) fn hear(&mut self, peer: Peer, oldest: Oldest) {
        if let Some(known) = self.oldest.get_mut(usize::from(peer)) {
            *known = oldest;
        }
    }

    /// The copies that a client would give up next.
    pub(super) fn next(&self, peer: Peer) -> [Option<Name>; CANDIDATES] {
        let known = self.oldest.get(usize::from(peer));
        known.map_or([None; CANDIDATES], |oldest| oldest.next)
    }

    /// The client that has room for a block that was new at this time: free room, or that of its
    /// new blocks, or else one of these which is older.
    pub(super) fn for_new(&self, asker: Peer, stamp: u32) -> Option<Peer> {
        let all = self.oldest.iter().enumerate();
        let others = all.filter(|(peer, _)| *peer != usize::from(asker));
        let (peer, oldest) = others.min_by_key(|(_, oldest)| oldest.fresh)?;
        (oldest.fresh < stamp).then_some(peer as Peer)
    }

    /// The client with the least valuable block, if its room is worth less than that of a last copy
    /// that lay unused for so long.
    pub(super) fn cheapest(&self, now: u32, asker: Peer, age: u32) -> Option<Peer> {
        let age_of = |oldest: &Oldest| {
            let copy = worth(now, oldest.copy, self.of_copies);
            copy.max(worth(now, oldest.last, WEIGHT_OF_LAST))
        };
        let all = self.oldest.iter().enumerate();
        let others = all.filter(|(peer, _)| *peer != usize::from(asker));
        let ages = others.map(|(peer, oldest)| (peer as Peer, age_of(oldest)));
        cheapest(ages, u64::from(age) * WEIGHT_OF_LAST)
    }
}

/// The client whose room is worth least, by the age of the block that would make room there, if
/// that is older than the one that looks for room.
pub fn cheapest<K>(ages: impl Iterator<Item = (K, u64)>, age: u64) -> Option<K> {
    let mut best = (age, None);
    for (client, age) in ages {
        if age > best.0 {
            best = (age, Some(client));
        }
    }
    best.1
}
