//! The decisions of the server: who answers a miss, what stays in its memory, and what a client is
//! to do with a block that has to go.
//!
//! Guarantees: its own memory is looked at first, then the clients', the disk last; a client is
//! asked only for what it has said that it has.

use super::shelf::Shelf;
use super::weighted::{self, CANDIDATES, Places};
use super::{Hints, Name, Offer, Options, Peer, Policy, central, greedy, hash};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Lists of the server's memory: blocks that clients have, too, and blocks that no client has.
const COPIED: u8 = 0;
const SOLE: u8 = 1;

/// Ages of blocks that clients have count so many times: to lose one costs a message, no disk.
const COPIED_WEIGHS: u64 = 16;

/// Where the bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The server's memory.
    Memory,
    /// A client, which sends them to the asker.
    Peer(Peer),
    /// The server's disk.
    Disk,
}

/// The fate of the block that the asker offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The asker sees to it.
    Own,
    /// It goes.
    Drop,
    /// A client takes it.
    Park {
        /// The client.
        to: Peer,
        /// Of the blocks that it would give up next, those that it alone has.
        last: [Option<Name>; CANDIDATES],
    },
}

/// The answer to a miss.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Where the bytes come from.
    pub source: Source,
    /// No other client has the block.
    pub last: bool,
    /// The fate of the block that was offered.
    pub fate: Fate,
    /// Somebody is to learn whether it is the only one.
    pub told: Option<Told>,
    /// News for the asker, on the way, of blocks that it has (`Fleet`).
    pub notices: [Option<(Name, bool)>; NOTICES],
}

/// How many notices travel with an answer.
pub const NOTICES: usize = 4;

/// So many wait for a client that asks for nothing; the oldest are forgotten.
const WAITING: usize = 256;

/// A client is told whether it alone has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The client.
    pub peer: Peer,
    /// What.
    pub name: Name,
    /// It alone.
    pub last: bool,
}

/// The server's memory gave up a block, which this client is to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spill {
    /// What.
    pub name: Name,
    /// The client.
    pub to: Peer,
}

/// A server.
pub struct Server {
    options: Options,
    memory: Shelf,
    /// The shares of the clients' memories that it manages.
    managed: Shelf,
    hints: Hints,
    places: Places,
    /// For each client: blocks that it alone has now, and blocks that it has no longer alone.
    notices: Vec<VecDeque<(Name, bool)>>,
}

impl Server {
    /// A server with empty memory.
    pub fn new(options: &Options) -> Self {
        let managed = match options.policy {
            Policy::Central => options.managed_blocks * usize::from(options.clients),
            _ => 0,
        };
        let of_copies = match options.policy {
            Policy::Fleet => u64::from(options.parts.others_weigh),
            _ => weighted::weight_of_copies(options.costs),
        };
        Self {
            memory: Shelf::new(options.server_blocks),
            managed: Shelf::new(managed),
            hints: Hints::new(options.hints),
            places: Places::new(options.clients, of_copies),
            notices: vec![VecDeque::new(); usize::from(options.clients)],
            options: options.clone(),
        }
    }

    /// A client has missed a block.
    pub fn miss(&mut self, now: u32, client: Peer, name: Name, offer: Option<Offer>) -> Answer {
        let fate = match offer {
            Some(offer) => self.judge(now, client, offer),
            None => Fate::Own,
        };
        let source = self.source(now, client, name);
        let others = self.hints.count(name);
        let told = match (source, self.hints.named(name)) {
            // The one that is asked learns it by being asked.
            (Source::Memory | Source::Disk, &[peer]) if others == 1 => self.tell(Told {
                peer,
                name,
                last: false,
            }),
            _ => None,
        };
        self.hints.add(name, client);
        Answer {
            source,
            last: others == 0,
            fate,
            told,
            notices: self.take_notices(client),
        }
    }

    /// A client learns whether it alone has a block: at once (`Weighted`), or with its next answer.
    fn tell(&mut self, told: Told) -> Option<Told> {
        match self.options.policy {
            Policy::Weighted => return Some(told),
            Policy::Fleet => {
                let waiting = &mut self.notices[usize::from(told.peer)];
                if waiting.len() == WAITING {
                    waiting.pop_front();
                }
                waiting.push_back((told.name, told.last));
            }
            _ => {}
        }
        None
    }

    fn take_notices(&mut self, client: Peer) -> [Option<(Name, bool)>; NOTICES] {
        let waiting = &mut self.notices[usize::from(client)];
        [(); NOTICES].map(|()| waiting.pop_front())
    }

    fn source(&mut self, now: u32, client: Peer, name: Name) -> Source {
        if let Some(slot) = self.memory.find(name) {
            self.memory.touch(now, slot, COPIED);
            return Source::Memory;
        }
        let peer = match self.options.policy {
            policy if policy.forwards() => greedy::lender(&self.hints, name, client),
            Policy::Central => {
                central::find(&mut self.managed, now, name, self.options.managed_blocks)
            }
            _ => None,
        };
        peer.map_or(Source::Disk, Source::Peer)
    }

    /// Decides about a block that a client would give up.
    fn judge(&mut self, now: u32, client: Peer, offer: Offer) -> Fate {
        self.places.hear(client, offer.oldest);
        if let Some((peer, oldest)) = offer.heard {
            self.places.hear(peer, oldest);
        }
        let Some(block) = offer.block else {
            return Fate::Own;
        };
        if self.hints.count(block.name) > 1 {
            return Fate::Drop;
        }
        if let Some(slot) = self.memory.find(block.name) {
            if self.options.parts.exclusive {
                self.memory.shift(slot, SOLE);
            }
            return Fate::Drop;
        }
        let age = now.saturating_sub(block.stamp);
        let to = match block.fresh {
            true if self.options.parts.spread => self.places.for_new(client, block.stamp),
            // It is worth free room alone.
            true => self.place(now, client, now),
            false => self.place(now, client, age),
        };
        match to {
            Some(to) if self.options.parts.placed => {
                let last = self.last_of(to);
                Fate::Park { to, last }
            }
            _ => Fate::Drop,
        }
    }

    /// Which of the blocks that a client would give up next it alone has. Clients that ask for
    /// nothing learn it no other way.
    fn last_of(&self, peer: Peer) -> [Option<Name>; CANDIDATES] {
        let next = self.places.next(peer);
        next.map(|name| name.filter(|name| self.hints.count(*name) == 1))
    }

    /// A client with a block that is worth less than a last copy that lay unused for so long.
    pub fn place(&self, now: u32, client: Peer, age: u32) -> Option<Peer> {
        self.places.cheapest(now, client, age)
    }

    /// A block has come from the disk, or from a client that has written it.
    pub fn loaded(&mut self, now: u32, name: Name) -> Option<Spill> {
        if let Some(slot) = self.memory.find(name) {
            self.memory.touch(now, slot, COPIED);
            return None;
        }
        if self.memory.capacity() == 0 {
            return self.spill(now, name);
        }
        let spill = if self.memory.is_full() {
            let exclusive = self.options.policy == Policy::Fleet && self.options.parts.exclusive;
            let oldest = match exclusive {
                true if self.options.parts.apart => {
                    self.memory.oldest(COPIED).or(self.memory.oldest(SOLE))
                }
                true => self.least_valuable(now),
                false => self.memory.oldest_of(COPIED..=SOLE),
            };
            let oldest = oldest?;
            let entry = *self.memory.entry(oldest);
            self.memory.remove(oldest);
            match (exclusive, entry.list) {
                (true, SOLE) => self.move_out(now, entry.name, entry.stamp),
                (true, _) => None,
                (false, _) => self.spill(now, entry.name),
            }
        } else {
            None
        };
        self.memory.insert(now, name, COPIED);
        spill
    }

    /// A block that clients have goes first, unless it was used much later than the oldest one that
    /// only the server has.
    fn least_valuable(&self, now: u32) -> Option<u32> {
        let oldest = |list| self.memory.oldest(list);
        let age = |slot: u32| u64::from(now.saturating_sub(self.memory.entry(slot).stamp));
        match (oldest(COPIED), oldest(SOLE)) {
            (Some(copied), Some(sole)) if age(copied) * COPIED_WEIGHS < age(sole) => Some(sole),
            (copied, sole) => copied.or(sole),
        }
    }

    /// A block that only the server has goes where an older one lies.
    fn move_out(&mut self, now: u32, name: Name, stamp: u32) -> Option<Spill> {
        let age = now.saturating_sub(stamp);
        let to = self.places.cheapest(now, Peer::MAX, age)?;
        self.hints.add(name, to);
        Some(Spill { name, to })
    }

    /// A client has written a block: nobody else has it, and the server has it in memory.
    pub fn wrote(
        &mut self,
        now: u32,
        client: Peer,
        name: Name,
        offer: Option<Offer>,
    ) -> (Fate, Option<Spill>) {
        let fate = match offer {
            Some(offer) => self.judge(now, client, offer),
            None => Fate::Own,
        };
        self.invalidate(name);
        self.hints.add(name, client);
        (fate, self.loaded(now, name))
    }

    fn spill(&mut self, now: u32, name: Name) -> Option<Spill> {
        let to = match self.options.policy {
            Policy::Central => {
                central::keep(&mut self.managed, now, name, self.options.managed_blocks)
            }
            Policy::Hash => Some(hash::keeper(name, self.options.clients)),
            _ => None,
        };
        to.map(|to| Spill { name, to })
    }

    /// A client has got a block without the server (`Hash`, `Direct`), and says so later.
    pub fn on_got(&mut self, client: Peer, name: Name) {
        self.hints.add(name, client);
    }

    /// A client has a block no longer. Who is to learn that it alone has it now?
    pub fn on_dropped(&mut self, client: Peer, name: Name) -> Option<Told> {
        self.hints.remove(name, client);
        match self.hints.named(name) {
            &[peer] if self.is_last(name) => self.tell(Told {
                peer,
                name,
                last: true,
            }),
            _ => None,
        }
    }

    /// A client has sent a block on to another one.
    pub fn on_moved(&mut self, name: Name, from: Peer, to: Peer) {
        self.hints.remove(name, from);
        self.hints.add(name, to);
    }

    /// Does at most one client have it?
    pub fn is_last(&self, name: Name) -> bool {
        self.hints.count(name) <= 1
    }

    /// The block is changed by a client, or is no more: clients that had it lose it.
    pub fn invalidate(&mut self, name: Name) {
        self.hints.clear(name);
        for shelf in [&mut self.memory, &mut self.managed] {
            if shelf.len() > 0
                && let Some(slot) = shelf.find(name)
            {
                shelf.remove(slot);
            }
        }
    }

    /// The directory of which client has which block.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }
}
