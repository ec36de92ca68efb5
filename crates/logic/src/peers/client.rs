//! The decisions of one client: what it finds in its memory, what makes room for a block, and what
//! becomes of a block that has to go.
//!
//! Guarantees: a block that another client parked here never pushes anything further on, so a
//! block that moves makes at most one other one go. A decision that needs the server is a
//! [`Step`] whose answer comes back later; until then the block is nowhere but in the room's hands.

use super::server::Fate;
use super::shelf::Shelf;
use super::weighted::{CANDIDATES, Oldest};
use super::{Name, Offer, Options, Peer, Policy, direct, fleet, greedy, hash, nchance, weighted};
use alloc::collections::VecDeque;

/// Lists of a client's memory: blocks that others may have, too; blocks that nobody else has;
/// from [`PARKED`] on, blocks of others, by the chances that they have left.
pub(super) const COPIES: u8 = 0;
pub(super) const LAST: u8 = 1;
pub(super) const PARKED: u8 = 2;
pub(super) const ALL: core::ops::RangeInclusive<u8> = COPIES..=super::shelf::LISTS as u8 - 1;

/// Where a client finds a block by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In its own memory.
    Here,
    /// In the memory that another machine lends it.
    Away,
    /// Others have to be asked.
    Nowhere,
}

/// How a block came that a client has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// No other client has it.
    pub last: bool,
    /// It was new to the fleet, and this is its second use (`Fleet`).
    pub again: bool,
}

/// An action that a client wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Done,
    /// The block is gone; the server learns it with the next message.
    Drop(Name),
    /// Ask the server whether this is the last copy, and come back to [`Client::answered`].
    Ask(Name),
    /// Ask the server who has less use for its room, and come back to [`Client::placed`].
    Place {
        /// What.
        name: Name,
        /// How long it lay unused.
        age: u32,
    },
    /// Send the block to this client.
    Park {
        /// What.
        name: Name,
        /// The receiver.
        to: Peer,
        /// How many chances it has left.
        chances: u8,
        /// Of the receiver's own blocks, some that it alone has, as the server knows.
        last: [Option<Name>; CANDIDATES],
        /// It was not used since it came (`Fleet`).
        fresh: bool,
    },
    /// Send the block to the machine that lends its memory.
    Away {
        /// The block that made room for it there, and is gone.
        gone: Option<Name>,
    },
}

/// A client.
pub struct Client {
    pub(super) options: Options,
    pub(super) me: Peer,
    /// The blocks that it manages itself.
    pub(super) own: Shelf,
    /// The blocks that it keeps for all under its part of the names.
    managed: Shelf,
    /// The blocks that it keeps in another's memory.
    pub(super) away: Shelf,
    /// Parked blocks that wait for room, with their chances.
    pub(super) arriving: VecDeque<(Name, u8)>,
    pub(super) lots: u64,
    /// How old the blocks are of the client that took a block from here last.
    pub(super) heard: Option<(Peer, Oldest)>,
    /// The block that the server was offered last (`Fleet`).
    pub(super) offered: Option<Name>,
}

impl Client {
    /// A client with empty memory.
    pub fn new(options: &Options, me: Peer) -> Self {
        let used =
            |policy: Policy, blocks: usize| if options.policy == policy { blocks } else { 0 };
        Self {
            own: Shelf::new(options.own_blocks.max(1)),
            managed: Shelf::new(used(Policy::Hash, options.managed_blocks)),
            away: Shelf::new(used(Policy::Direct, options.away_blocks)),
            arriving: VecDeque::new(),
            heard: None,
            offered: None,
            lots: options.seed ^ wire::mix64(u64::from(me) + 1),
            options: options.clone(),
            me,
        }
    }

    /// A program reads a block, or writes it whole.
    pub fn read(&mut self, now: u32, name: Name) -> Found {
        if let Some(slot) = self.own.find(name) {
            let list = match self.options.policy {
                Policy::Weighted => self.own.entry(slot).list,
                Policy::Fleet => fleet::used(self.own.entry(slot).list),
                _ => {
                    // The chances of a parked block count anew from its next eviction on.
                    let entry = self.own.entry_mut(slot);
                    entry.last |= entry.list >= PARKED;
                    COPIES
                }
            };
            self.own.touch(now, slot, list);
            return Found::Here;
        }
        match self.options.policy {
            Policy::Direct if self.away.find(name).is_some() => Found::Away,
            _ => Found::Nowhere,
        }
    }

    /// Its offer to the server when it asks for a block: the one that it would give up for it.
    pub fn offer(&mut self, now: u32) -> Option<Offer> {
        match self.options.policy {
            Policy::Fleet => fleet::offer(self, now),
            Policy::Weighted => weighted::offer(self),
            _ => None,
        }
    }

    /// A block that it asked for has come. `fate`: what the server has decided about the one that
    /// it offered.
    pub fn filled(&mut self, now: u32, name: Name, arrival: Arrival, fate: Fate) -> Step {
        if let Some(slot) = self.own.find(name) {
            self.own.touch(now, slot, COPIES);
            return Step::Done;
        }
        if let Some(slot) = self.away.find(name) {
            self.away.remove(slot);
        }
        let list = match self.options.policy {
            Policy::Fleet => fleet::list(self, arrival),
            Policy::Weighted if arrival.last => LAST,
            _ => COPIES,
        };
        let step = if self.own.is_full() {
            match self.options.policy {
                Policy::Direct => direct::evict(self, now),
                Policy::NChance => nchance::evict(self),
                Policy::Weighted => weighted::evict(self, now),
                Policy::Fleet => fleet::evict(self, now, fate),
                Policy::Off | Policy::Greedy | Policy::Central | Policy::Hash => {
                    greedy::evict(self)
                }
            }
        } else {
            Step::Done
        };
        let slot = self.own.insert(now, name, list);
        if self.options.policy == Policy::Fleet {
            self.own.entry_mut(slot).last = arrival.last;
        }
        step
    }

    /// Another client parks a block here, which may be new to the fleet.
    pub fn park(&mut self, now: u32, name: Name, chances: u8, fresh: bool) -> Step {
        if self.own.find(name).is_some() {
            // It was no last copy after all: one is enough.
            return Step::Drop(name);
        }
        match self.options.policy {
            Policy::Weighted => weighted::park(self, now, name),
            Policy::Fleet => fleet::park(self, now, name, fresh),
            _ => {
                self.arriving.push_back((name, chances));
                if self.arriving.len() > 1 {
                    return Step::Done;
                }
                nchance::make_room(self, now)
            }
        }
    }

    /// The server's answer to [`Step::Ask`].
    pub fn answered(&mut self, now: u32, name: Name, last: bool) -> Step {
        match self.own.find(name) {
            Some(slot) => nchance::looked_at(self, now, slot, last),
            None => nchance::fate(self, name, last),
        }
    }

    /// The server's answer to [`Step::Place`].
    pub fn placed(&mut self, name: Name, to: Option<Peer>) -> Step {
        match to {
            Some(to) => Step::Park {
                name,
                to,
                chances: 1,
                last: [None; CANDIDATES],
                fresh: false,
            },
            None => Step::Drop(name),
        }
    }

    /// Another client asks for a block here. Whether it is there; a parked block moves on to its
    /// reader, which has it in mind again.
    pub fn lend(&mut self, name: Name) -> Lent {
        let Some(slot) = self.own.find(name) else {
            return Lent::Missing;
        };
        match self.options.policy {
            Policy::NChance if self.own.entry(slot).list >= PARKED => {
                self.own.remove(slot);
                Lent::Gone
            }
            Policy::NChance => {
                let entry = self.own.entry_mut(slot);
                entry.last = false;
                if entry.list == LAST {
                    self.own.shift(slot, COPIES);
                }
                Lent::Copied { again: false }
            }
            Policy::Weighted | Policy::Fleet => weighted::lend(self, slot),
            _ => Lent::Copied { again: false },
        }
    }

    /// The server says whether others have the block, too (`Weighted`, `Fleet`).
    pub fn on_told(&mut self, name: Name, last: bool) {
        if let Some(slot) = self.own.find(name) {
            if self.options.policy == Policy::Fleet && self.own.entry(slot).list == fleet::FRESH {
                return fleet::on_told(self, slot, last);
            }
            let list = if last { LAST } else { COPIES };
            let known = self.own.entry(slot).list;
            if known <= LAST && known != list {
                self.own.shift(slot, list);
            }
        }
    }

    /// Another client asks whether a block of this one's part of the names is here.
    pub fn managed(&mut self, now: u32, name: Name) -> bool {
        hash::find(&mut self.managed, now, name)
    }

    /// The server hands a block over that belongs to this one's part of the names.
    pub fn manage(&mut self, now: u32, name: Name) {
        hash::keep(&mut self.managed, now, name);
    }

    /// A block of its part of the names was changed, or is no more.
    pub fn unmanage(&mut self, name: Name) {
        if let Some(slot) = self.managed.find(name) {
            self.managed.remove(slot);
        }
    }

    /// The block was changed by another client, or is no more. Was it here?
    pub fn invalidate(&mut self, name: Name) -> bool {
        let mut was = false;
        for shelf in [&mut self.own, &mut self.away] {
            if shelf.len() > 0
                && let Some(slot) = shelf.find(name)
            {
                shelf.remove(slot);
                was = true;
            }
        }
        was
    }

    /// Is it in the memory that it manages itself?
    pub fn has(&self, name: Name) -> bool {
        self.own.find(name).is_some()
    }

    /// Programs use the block without asking for it (they have it mapped, or look at the file's
    /// attributes before they take it from a cache of their own).
    pub fn touch(&mut self, now: u32, name: Name) {
        if let Some(slot) = self.own.find(name) {
            let list = self.own.entry(slot).list;
            self.own.touch(now, slot, list);
        }
    }

    /// How old its blocks are: the answer to a client that has parked one here.
    pub fn oldest(&self) -> Oldest {
        weighted::oldest(self)
    }

    /// The client that it has sent a block to answers so.
    pub fn on_taken(&mut self, by: Peer, oldest: Oldest) {
        self.heard = Some((by, oldest));
    }

    /// Blocks in the memory that it manages itself, and of these, those parked by others.
    pub fn blocks(&self) -> (usize, usize) {
        let parked = (PARKED..=*ALL.end()).map(|list| self.own.length(list));
        (self.own.len(), parked.sum())
    }
}

/// The outcome of a peer's question for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lent {
    /// It is not here: the hint was wrong.
    Missing,
    /// It was sent and stays here.
    Copied {
        /// It was not used since it came (`Fleet`).
        again: bool,
    },
    /// It was sent and is here no longer.
    Gone,
}
