//! The server's hints: which clients have which block, as far as they have said.
//!
//! Guarantees: hints are never trusted to be right, only to be worth a try; of a block that many
//! clients have, only some are named, but all are counted; memory is bounded, and a block that
//! finds no room is one that nobody is asked for.

use super::table::Table;
use super::{Name, Peer};
use alloc::vec::Vec;

/// How many clients are named for a block.
pub const NAMED: usize = 9;

/// The knowledge about one block.
#[derive(Clone, Copy)]
struct Hint {
    name: Name,
    /// How many clients have it, named or not.
    count: u16,
    named: u8,
    /// Those that are named, the latest last.
    peers: [Peer; NAMED],
}

/// All hints.
pub struct Hints {
    table: Table,
    hints: Vec<Hint>,
    free: Vec<u32>,
    limit: usize,
    /// Where the search for the next hint to give up begins.
    hand: u32,
}

impl Hints {
    /// Hints of so many blocks at most.
    pub fn new(limit: usize) -> Self {
        Self {
            table: Table::new(limit.min(1 << 16)),
            hints: Vec::new(),
            free: Vec::new(),
            limit: limit.max(1),
            hand: 0,
        }
    }

    fn find(&self, name: Name) -> Option<u32> {
        let is = |slot: u32| self.hints[slot as usize].name == name;
        self.table.find(name, is)
    }

    /// How many clients have the block.
    pub fn count(&self, name: Name) -> u16 {
        self.find(name)
            .map_or(0, |slot| self.hints[slot as usize].count)
    }

    /// The clients that are named for the block, the latest last.
    pub fn named(&self, name: Name) -> &[Peer] {
        match self.find(name) {
            Some(slot) => {
                let hint = &self.hints[slot as usize];
                &hint.peers[..usize::from(hint.named)]
            }
            None => &[],
        }
    }

    /// The client has the block now; it had it not.
    pub fn add(&mut self, name: Name, peer: Peer) {
        let slot = match self.find(name) {
            Some(slot) => slot,
            None => self.make(name),
        };
        let hint = &mut self.hints[slot as usize];
        hint.count += 1;
        if usize::from(hint.named) == NAMED {
            // The newest copies live longest.
            hint.peers.copy_within(1.., 0);
            hint.named -= 1;
        }
        hint.peers[usize::from(hint.named)] = peer;
        hint.named += 1;
    }

    /// The client has the block no longer.
    pub fn remove(&mut self, name: Name, peer: Peer) {
        let Some(slot) = self.find(name) else {
            return;
        };
        let hint = &mut self.hints[slot as usize];
        hint.count -= 1;
        let named = usize::from(hint.named);
        if let Some(at) = hint.peers[..named].iter().position(|p| *p == peer) {
            hint.peers.copy_within(at + 1..named, at);
            hint.named -= 1;
        }
        if hint.count == 0 {
            self.forget(slot);
        }
    }

    /// Nobody has the block any longer.
    pub fn clear(&mut self, name: Name) {
        if let Some(slot) = self.find(name) {
            self.forget(slot);
        }
    }

    fn make(&mut self, name: Name) -> u32 {
        if self.hints.len() - self.free.len() >= self.limit {
            self.give_one_up();
        }
        let hint = Hint {
            name,
            count: 0,
            named: 0,
            peers: [0; NAMED],
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.hints[slot as usize] = hint;
                slot
            }
            None => {
                self.hints.push(hint);
                self.hints.len() as u32 - 1
            }
        };
        self.table.insert(name, slot);
        slot
    }

    /// At the limit the hints go in a circle: the order of their coming is near enough to the
    /// order of their use, and costs nothing.
    fn give_one_up(&mut self) {
        let slot = self.hand % self.hints.len() as u32;
        self.hand = slot + 1;
        self.forget(slot);
    }

    fn forget(&mut self, slot: u32) {
        let name = self.hints[slot as usize].name;
        let hints = &self.hints;
        let is = |slot: u32| hints[slot as usize].name == name;
        self.table.remove(name, is);
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_latest_are_named() {
        let mut hints = Hints::new(10);
        let all = NAMED as Peer + 3;
        for peer in 0..all {
            hints.add(Name(1), peer);
        }
        assert_eq!(hints.count(Name(1)), all);
        assert_eq!(hints.named(Name(1)).first(), Some(&3));
        for peer in 0..all {
            hints.remove(Name(1), peer);
        }
        assert_eq!(hints.count(Name(1)), 0);
        assert!(hints.named(Name(1)).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut hints = Hints::new(10);
        for name in 0..1000 {
            hints.add(Name(name), 1);
        }
        assert_eq!(hints.hints.len(), 10);
        let known = (0..1000).filter(|name| hints.count(Name(*name)) > 0);
        assert_eq!(known.count(), 10);
        // A hint that was given up can be withdrawn, and another one comes.
        hints.remove(Name(0), 1);
        hints.add(Name(0), 2);
        assert_eq!(hints.named(Name(0)), [2]);
    }
}
