//! The block cache: which slot holds which block, in which state, and which is given up next.
//!
//! Guarantees: a slot is in exactly one place: free, or holding one block. Only clean blocks are on
//! the list of blocks that may be given up, which is ordered exactly by last use (Nelson, section
//! 3.2). A block that is being filled or sent stays where it is. Bytes of a slot beyond the end of
//! its file are zeros.

use super::api::Slot;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use wire::{Fid, Time};

const NONE: Slot = Slot::MAX;

/// What a slot holds, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for its bytes.
    Filling,
    /// As at the server.
    Clean,
    /// Changed; since when.
    Dirty(Time),
    /// On its way to the server; changed again since, if a time is given.
    Sending(Option<Time>),
}

#[derive(Clone, Debug)]
struct Entry {
    key: (Fid, u64),
    state: State,
    older: Slot,
    newer: Slot,
}

/// The cache's table.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    entries: Vec<Entry>,
    free: Vec<Slot>,
    index: BTreeMap<(Fid, u64), Slot>,
    oldest: Slot,
    newest: Slot,
    dirty: u32,
}

impl Cache {
    pub(super) fn new(slots: u32) -> Self {
        let entry = Entry {
            key: (Fid::root(0), 0),
            state: State::Clean,
            older: NONE,
            newer: NONE,
        };
        Self {
            entries: vec![entry; slots as usize],
            free: (0..slots).rev().collect(),
            index: BTreeMap::new(),
            oldest: NONE,
            newest: NONE,
            dirty: 0,
        }
    }

    pub(super) fn slots(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn used(&self) -> u64 {
        self.index.len() as u64
    }

    pub(super) fn dirty(&self) -> u64 {
        u64::from(self.dirty)
    }

    /// The slot of a block and its state.
    pub(super) fn find(&self, fid: Fid, block: u64) -> Option<(Slot, State)> {
        let slot = *self.index.get(&(fid, block))?;
        Some((slot, self.entries[slot as usize].state))
    }

    /// Gives a block a slot, if need be that of the block not used for longest.
    pub(super) fn take(&mut self, fid: Fid, block: u64, state: State) -> Option<Slot> {
        debug_assert!(!self.index.contains_key(&(fid, block)));
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = (self.oldest != NONE).then_some(self.oldest)?;
                self.unlist(slot);
                self.index.remove(&self.entries[slot as usize].key);
                slot
            }
        };
        self.index.insert((fid, block), slot);
        self.entries[slot as usize].key = (fid, block);
        self.entries[slot as usize].state = state;
        self.enter(slot, state);
        Some(slot)
    }

    /// How many slots could be taken now?
    pub(super) fn available(&self, wanted: usize) -> bool {
        let mut count = self.free.len();
        let mut slot = self.oldest;
        while count < wanted && slot != NONE {
            count += 1;
            slot = self.entries[slot as usize].newer;
        }
        count >= wanted
    }

    /// Can all these blocks of a file be here at once? Those that are here and clean are among what
    /// could be given up for the others.
    pub(super) fn fits(&self, fid: Fid, blocks: Range<u64>) -> bool {
        let stays = |block: &u64| {
            let found = self.find(fid, *block);
            found.is_some_and(|(_, state)| state != State::Clean)
        };
        self.available(blocks.filter(|block| !stays(block)).count())
    }

    pub(super) fn set(&mut self, slot: Slot, state: State) {
        self.leave(slot);
        self.entries[slot as usize].state = state;
        self.enter(slot, state);
    }

    /// It has been used just now.
    pub(super) fn touch(&mut self, slot: Slot) {
        let state = self.entries[slot as usize].state;
        self.set(slot, state);
    }

    /// The kernel has all of it: it is given up first (Nelson, section 6.2: infinite age).
    pub(super) fn age(&mut self, slot: Slot) {
        if self.entries[slot as usize].state != State::Clean {
            return;
        }
        self.unlist(slot);
        let oldest = self.oldest;
        self.entries[slot as usize].newer = oldest;
        self.entries[slot as usize].older = NONE;
        match oldest {
            NONE => self.newest = slot,
            oldest => self.entries[oldest as usize].older = slot,
        }
        self.oldest = slot;
    }

    /// Gives up a block, whatever its state.
    pub(super) fn drop_block(&mut self, fid: Fid, block: u64) {
        if let Some(slot) = self.index.remove(&(fid, block)) {
            self.leave(slot);
            self.free.push(slot);
        }
    }

    /// The blocks of a file from one on, with their slots and states.
    pub(super) fn blocks(
        &self,
        fid: Fid,
        from: u64,
    ) -> impl Iterator<Item = (u64, Slot, State)> + '_ {
        let range = self.index.range((fid, from)..=(fid, u64::MAX));
        range.map(|(key, slot)| (key.1, *slot, self.entries[*slot as usize].state))
    }

    /// Gives up the clean blocks of a file from one on.
    pub(super) fn drop_clean(&mut self, fid: Fid, from: u64) {
        let clean = |(block, _, state)| (state == State::Clean).then_some(block);
        let blocks: Vec<u64> = self.blocks(fid, from).filter_map(clean).collect();
        for block in blocks {
            self.drop_block(fid, block);
        }
    }

    /// Gives up the blocks of a file that wait for their bytes.
    pub(super) fn drop_filling(&mut self, fid: Fid) {
        let filling = |(block, _, state)| (state == State::Filling).then_some(block);
        let blocks: Vec<u64> = self.blocks(fid, 0).filter_map(filling).collect();
        for block in blocks {
            self.drop_block(fid, block);
        }
    }

    /// Files with dirty blocks, and since when the oldest of them is.
    pub(super) fn dirty_files(&self) -> BTreeMap<Fid, Time> {
        let mut files = BTreeMap::new();
        for (key, slot) in &self.index {
            if let State::Dirty(since) | State::Sending(Some(since)) =
                self.entries[*slot as usize].state
            {
                let oldest = files.entry(key.0).or_insert(since);
                *oldest = since.min(*oldest);
            }
        }
        files
    }

    fn enter(&mut self, slot: Slot, state: State) {
        match state {
            State::Clean => self.list(slot),
            State::Dirty(_) | State::Sending(_) => self.dirty += 1,
            State::Filling => {}
        }
    }

    fn leave(&mut self, slot: Slot) {
        match self.entries[slot as usize].state {
            State::Clean => self.unlist(slot),
            State::Dirty(_) | State::Sending(_) => self.dirty -= 1,
            State::Filling => {}
        }
    }

    fn list(&mut self, slot: Slot) {
        let newest = self.newest;
        self.entries[slot as usize].older = newest;
        self.entries[slot as usize].newer = NONE;
        match newest {
            NONE => self.oldest = slot,
            newest => self.entries[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlist(&mut self, slot: Slot) {
        let Entry { older, newer, .. } = self.entries[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_not_used_for_longest_is_given_up_first() {
        let fid = Fid::root(1);
        let mut cache = Cache::new(3);
        let slots: Vec<Slot> = (0..3)
            .map(|b| cache.take(fid, b, State::Clean).expect("three slots"))
            .collect();
        cache.touch(slots[0]);
        cache.age(slots[2]);
        assert_eq!(cache.take(fid, 10, State::Clean), Some(slots[2]));
        assert_eq!(cache.take(fid, 11, State::Clean), Some(slots[1]));
        assert_eq!(cache.take(fid, 12, State::Dirty(1)), Some(slots[0]));
        cache.set(slots[1], State::Dirty(2));
        assert_eq!(cache.take(fid, 13, State::Clean), Some(slots[2]));
        cache.set(slots[2], State::Filling);
        assert_eq!(cache.take(fid, 14, State::Clean), None);
        assert_eq!((cache.dirty(), cache.used()), (2, 3));
    }
}
