//! The blocks that lie in one memory, in a few lists, each from the block used last to the one used
//! longest ago.
//!
//! Guarantees: a name lies in at most one slot; a list is in the order of the stamps of its blocks,
//! the oldest at its end; there are never more blocks than the capacity, since the caller takes one
//! out before it puts another one in. Slots are the numbers under which a room keeps the bytes.

use super::Name;
use super::table::Table;
use alloc::vec::Vec;

/// How many lists a shelf has.
pub(super) const LISTS: usize = 10;

const NONE: u32 = u32::MAX;

/// A block.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: Name,
    newer: u32,
    older: u32,
    /// When it was used last.
    pub(super) stamp: u32,
    /// Which list it is in.
    pub(super) list: u8,
    /// Known to be the only copy in the memory of a client.
    pub(super) last: bool,
}

#[derive(Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    length: u32,
}

/// Blocks in lists.
pub(super) struct Shelf {
    table: Table,
    entries: Vec<Entry>,
    free: Vec<u32>,
    lists: [Ends; LISTS],
    capacity: usize,
}

impl Shelf {
    pub(super) fn new(capacity: usize) -> Self {
        let empty = Ends {
            newest: NONE,
            oldest: NONE,
            length: 0,
        };
        Self {
            table: Table::new(capacity.min(1 << 20)),
            entries: Vec::with_capacity(capacity.min(1 << 20)),
            free: Vec::new(),
            lists: [empty; LISTS],
            capacity,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(super) fn find(&self, name: Name) -> Option<u32> {
        let is = |slot: u32| self.entries[slot as usize].name == name;
        self.table.find(name, is)
    }

    pub(super) fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// The block of a list that was used longest ago.
    pub(super) fn oldest(&self, list: u8) -> Option<u32> {
        let oldest = self.lists[usize::from(list)].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// The blocks of a list, from the one used longest ago.
    pub(super) fn oldest_first(&self, list: u8) -> impl Iterator<Item = u32> + '_ {
        let newer = |slot: &u32| {
            let newer = self.entries[*slot as usize].newer;
            (newer != NONE).then_some(newer)
        };
        core::iter::successors(self.oldest(list), newer)
    }

    /// The same of several lists.
    pub(super) fn oldest_of(&self, lists: core::ops::RangeInclusive<u8>) -> Option<u32> {
        let oldest = lists.filter_map(|list| self.oldest(list));
        oldest.min_by_key(|slot| self.entry(*slot).stamp)
    }

    pub(super) fn length(&self, list: u8) -> usize {
        self.lists[usize::from(list)].length as usize
    }

    /// Puts a block that is not here to the front of a list.
    pub(super) fn insert(&mut self, now: u32, name: Name, list: u8) -> u32 {
        let entry = Entry {
            name,
            newer: NONE,
            older: NONE,
            stamp: now,
            list,
            last: false,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                slot
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.table.insert(name, slot);
        self.link_newest(slot, list);
        slot
    }

    /// A block was used: it goes to the front of a list.
    pub(super) fn touch(&mut self, now: u32, slot: u32, list: u8) {
        let entry = &mut self.entries[slot as usize];
        entry.stamp = now;
        if entry.list == list && entry.newer == NONE {
            return;
        }
        self.unlink(slot);
        self.link_newest(slot, list);
    }

    /// Moves a block to another list, where its stamp says. Blocks that move so are among the
    /// oldest or the newest there: the search goes from both ends.
    pub(super) fn shift(&mut self, slot: u32, list: u8) {
        self.unlink(slot);
        let stamp = self.entries[slot as usize].stamp;
        let ends = self.lists[usize::from(list)];
        let (mut from_old, mut from_new) = (ends.oldest, ends.newest);
        loop {
            // The first block from the old end that is younger, or from the new end that is not.
            if from_old == NONE || self.entries[from_old as usize].stamp >= stamp {
                let older = match from_old {
                    NONE => ends.newest,
                    newer => self.entries[newer as usize].older,
                };
                return self.link(slot, list, from_old, older);
            }
            if self.entries[from_new as usize].stamp < stamp {
                let newer = self.entries[from_new as usize].newer;
                return self.link(slot, list, newer, from_new);
            }
            from_old = self.entries[from_old as usize].newer;
            from_new = self.entries[from_new as usize].older;
        }
    }

    pub(super) fn remove(&mut self, slot: u32) -> Name {
        let name = self.entries[slot as usize].name;
        let entries = &self.entries;
        let is = |slot: u32| entries[slot as usize].name == name;
        self.table.remove(name, is);
        self.unlink(slot);
        self.free.push(slot);
        name
    }

    fn link_newest(&mut self, slot: u32, list: u8) {
        let older = self.lists[usize::from(list)].newest;
        self.link(slot, list, NONE, older);
    }

    fn link(&mut self, slot: u32, list: u8, newer: u32, older: u32) {
        let entry = &mut self.entries[slot as usize];
        (entry.newer, entry.older, entry.list) = (newer, older, list);
        let ends = &mut self.lists[usize::from(list)];
        ends.length += 1;
        match newer {
            NONE => ends.newest = slot,
            newer => self.entries[newer as usize].older = slot,
        }
        match older {
            NONE => self.lists[usize::from(list)].oldest = slot,
            older => self.entries[older as usize].newer = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Entry {
            newer, older, list, ..
        } = self.entries[slot as usize];
        let ends = &mut self.lists[usize::from(list)];
        ends.length -= 1;
        match newer {
            NONE => ends.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.lists[usize::from(list)].oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::vec::Vec;
    use wire::splitmix64;

    /// Lists of names with stamps, newest first: slow, and plainly right.
    #[derive(Default)]
    struct Model {
        lists: HashMap<u8, Vec<(u64, u32)>>,
    }

    impl Model {
        fn take(&mut self, name: u64) -> Option<(u8, u32)> {
            for (list, names) in &mut self.lists {
                if let Some(at) = names.iter().position(|(n, _)| *n == name) {
                    return Some((*list, names.remove(at).1));
                }
            }
            None
        }
    }

    #[test]
    fn a_shelf_is_what_lists_of_names_would_be() {
        let (mut seed, mut model, mut shelf) = (1, Model::default(), Shelf::new(64));
        for now in 0..50_000_u32 {
            let name = splitmix64(&mut seed) % 100;
            let list = (splitmix64(&mut seed) % 3) as u8;
            let slot = shelf.find(Name(name));
            let known = model.take(name);
            assert_eq!(slot.is_some(), known.is_some());
            match (slot, known, splitmix64(&mut seed) % 4) {
                (Some(slot), _, 0) => drop(shelf.remove(slot)),
                (Some(slot), Some((_, stamp)), 1) => {
                    shelf.shift(slot, list);
                    let names = model.lists.entry(list).or_default();
                    let newer = |(_, other): &&(u64, u32)| *other >= stamp;
                    names.insert(names.iter().take_while(newer).count(), (name, stamp));
                }
                (Some(slot), ..) => {
                    shelf.touch(now, slot, list);
                    model.lists.entry(list).or_default().insert(0, (name, now));
                }
                (None, ..) => {
                    if shelf.is_full() {
                        let oldest = shelf.oldest_of(0..=2).expect("it is full");
                        model.take(shelf.remove(oldest).0);
                    }
                    shelf.insert(now, Name(name), list);
                    model.lists.entry(list).or_default().insert(0, (name, now));
                }
            }
            for list in 0..3 {
                let names = model.lists.entry(list).or_default();
                assert_eq!(shelf.length(list), names.len());
                let oldest = shelf.oldest(list).map(|slot| shelf.entry(slot).name.0);
                assert_eq!(oldest, names.last().map(|(name, _)| *name));
            }
        }
    }
}
