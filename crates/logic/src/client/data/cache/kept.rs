//! Blocks that are kept for other machines: last copies that left another client's cache.
//!
//! Guarantees: such a block is named by its version, too, and is found under that version alone;
//! it lies in a slot of its own, which is on no list of the machine's own blocks. Which block makes
//! room is decided by age: the age of a copy counts more than that of a block that nobody else has
//! (`logic::peers::fleet`), and a block of others never drives out an own one that is worth more.

use super::{BlockState, Cache, NONE, Slot, There};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Fid, Time};

/// So many of the blocks that go next are said to leave before they go, as a part of all...
const AHEAD_PART: u32 = 8;
/// ...and at most.
const AHEAD_MOST: u32 = 2048;
/// Fewer are not worth a message.
const WORTH_SAYING: u32 = 32;
/// Weights are in these parts.
const WHOLE: u64 = 16;

/// A block that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    version: u64,
    slot: Slot,
    chances: u8,
}

/// How the ages of copies count, 16ths: of those that make room for an own block, and for one of
/// others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    own: u32,
    others: u32,
}

impl Weights {
    /// For own blocks, and for those of others.
    pub(crate) fn new(own: u32, others: u32) -> Self {
        Self { own, others }
    }
}

/// A block that is about to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goes {
    pub(crate) fid: Fid,
    pub(crate) block: u64,
    pub(crate) used: Time,
    /// Of a block that is kept for others.
    pub(crate) kept: Option<(u64, u8)>,
}

/// All blocks that are kept, and which blocks were said to leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeping {
    /// Blocks may be kept.
    weights: Option<Weights>,
    index: BTreeMap<(Fid, u64), Kept>,
    /// By their last use.
    order: BTreeSet<(Time, Slot)>,
    /// The own block that is said to leave next: the older ones were.
    next: Option<Slot>,
    /// How many of the own ones were said to leave, and are still here.
    said: u32,
    /// Own blocks for which others went since some were last said to leave.
    driven: u32,
}

impl Cache {
    /// Blocks are kept for others, with these weights, or no more: then they go.
    pub(crate) fn set_weights(&mut self, weights: Option<Weights>) {
        self.keeping.weights = weights;
        for entry in &mut self.entries {
            entry.said = false;
        }
        (self.keeping.next, self.keeping.said, self.keeping.driven) = (None, 0, 0);
        self.keeping.next = (self.oldest != NONE).then_some(self.oldest);
    }

    pub(crate) fn kept(&self) -> u64 {
        self.keeping.index.len() as u64
    }

    pub(super) fn kept_slots(&self) -> usize {
        self.keeping.index.len()
    }

    /// Are there blocks that must go, since none may be kept any more?
    pub(super) fn keeps_too_much(&self) -> bool {
        self.keeping.weights.is_none() && !self.keeping.index.is_empty()
    }

    /// The slot of a kept block of this version.
    pub(crate) fn find_kept(&self, fid: Fid, block: u64, version: u64) -> Option<Slot> {
        let kept = self.keeping.index.get(&(fid, block))?;
        (kept.version == version).then_some(kept.slot)
    }

    /// The version of a kept block.
    pub(crate) fn version_kept(&self, fid: Fid, block: u64) -> Option<u64> {
        let kept = self.keeping.index.get(&(fid, block))?;
        Some(kept.version)
    }

    /// A kept block becomes an own one, if it has this version. True: it is here now.
    pub(crate) fn adopt(&mut self, fid: Fid, block: u64, version: u64) -> bool {
        if self.index.contains_key(&(fid, block)) {
            return false;
        }
        let Some(slot) = self.find_kept(fid, block, version) else {
            return false;
        };
        self.unkeep((fid, block));
        self.index.insert((fid, block), slot);
        let entry = &mut self.entries[slot as usize];
        (entry.state, entry.there, entry.copied) = (BlockState::Clean, There::Unknown, false);
        self.enter(slot, BlockState::Clean);
        self.check();
        true
    }

    /// Gives a block of others a slot, if its room is worth more than that of the block which goes
    /// for it.
    pub(crate) fn keep(
        &mut self,
        (fid, block, version): (Fid, u64, u64),
        used: Time,
        chances: u8,
    ) -> Option<Slot> {
        let weights = self.keeping.weights?;
        if let Some(known) = self.keeping.index.get(&(fid, block)) {
            if known.version == version {
                return None;
            }
            self.drop_kept((fid, block));
        }
        let slot = match self.vacant() {
            Some(slot) => slot,
            None => self.evict(weights.others, Some(used))?,
        };
        let kept = Kept {
            version,
            slot,
            chances,
        };
        self.keeping.index.insert((fid, block), kept);
        let entry = &mut self.entries[slot as usize];
        (entry.key, entry.state, entry.used) = ((fid, block), BlockState::Clean, used);
        entry.said = false;
        self.keeping.order.insert((used, slot));
        self.check();
        Some(slot)
    }

    /// A slot, of the block that is worth least; `than`: only if it lay unused since before that.
    pub(super) fn evict(&mut self, weight: u32, than: Option<Time>) -> Option<Slot> {
        let age = |used: Time, weight: u64| self.now.saturating_sub(used).saturating_mul(weight);
        let own = (self.oldest != NONE).then(|| {
            let entry = &self.entries[self.oldest as usize];
            let weight = if entry.copied {
                u64::from(weight)
            } else {
                WHOLE
            };
            (age(entry.used, weight), self.oldest)
        });
        let kept = self.keeping.order.first();
        let kept = kept.map(|(used, slot)| (age(*used, WHOLE), *slot));
        let least = than.map_or(0, |used| age(used, WHOLE));
        let older = |found: &(u64, Slot)| than.is_none() || found.0 > least;
        match (own.filter(older), kept.filter(older)) {
            (own, Some(kept)) if own.is_none_or(|own| kept.0 >= own.0) => {
                self.unkeep(self.entries[kept.1 as usize].key);
                Some(kept.1)
            }
            (Some((_, slot)), _) => {
                self.unlist(slot);
                self.index.remove(&self.entries[slot as usize].key);
                Some(slot)
            }
            (None, _) => None,
        }
    }

    /// Makes room for an own block.
    pub(super) fn evict_for_own(&mut self) -> Option<Slot> {
        let weight = self.keeping.weights.map_or(16, |weights| weights.own);
        self.keeping.driven += u32::from(self.keeping.weights.is_some());
        self.evict(weight, None)
    }

    fn unkeep(&mut self, key: (Fid, u64)) -> Option<Slot> {
        let kept = self.keeping.index.remove(&key)?;
        let used = self.entries[kept.slot as usize].used;
        let was = self.keeping.order.remove(&(used, kept.slot));
        assert!(was, "a kept block is in the order of kept blocks");
        self.entries[kept.slot as usize].said = false;
        Some(kept.slot)
    }

    fn drop_kept(&mut self, key: (Fid, u64)) {
        if let Some(slot) = self.unkeep(key) {
            self.free.push(slot);
        }
    }

    /// Gives up kept blocks, the oldest first.
    pub(super) fn drop_oldest_kept(&mut self, most: u32) -> u32 {
        let mut dropped = 0;
        while dropped < most
            && let Some((_, slot)) = self.keeping.order.first().copied()
        {
            self.drop_kept(self.entries[slot as usize].key);
            dropped += 1;
        }
        dropped
    }

    /// Another client has a copy of a block: one that is kept here goes before all others.
    pub(crate) fn set_copied(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        entry.copied = true;
        if self.keeping.order.remove(&(entry.used, slot)) {
            entry.used = 0;
            self.keeping.order.insert((0, slot));
        }
    }

    /// How many blocks fit that drive out nothing, and since when the block lies unused that goes
    /// for one of others.
    pub(crate) fn spare(&self) -> (u32, Option<Time>) {
        let Some(weights) = self.keeping.weights else {
            return (0, None);
        };
        let here = (self.index.len() + self.keeping.index.len()) as u32;
        let free = self.bearable().saturating_sub(here);
        let own = (self.oldest != NONE).then(|| {
            let entry = &self.entries[self.oldest as usize];
            let weight = if entry.copied {
                weights.others.into()
            } else {
                WHOLE
            };
            let age = self.now.saturating_sub(entry.used).saturating_mul(weight) / WHOLE;
            self.now.saturating_sub(age)
        });
        let kept = self.keeping.order.first().map(|(used, _)| *used);
        (free, own.into_iter().chain(kept).min())
    }

    /// The blocks that go next and were not said to leave, if they are worth a message.
    pub(crate) fn leaving(&mut self, most: usize) -> Vec<Goes> {
        let ahead = (self.limit / AHEAD_PART).clamp(2, AHEAD_MOST);
        let due = ahead.saturating_sub(self.keeping.said);
        let due = due.min(self.keeping.driven).min(most as u32);
        let mut goes = Vec::new();
        if self.keeping.weights.is_none() || due < WORTH_SAYING.min(ahead).max(1) {
            return goes;
        }
        self.keeping.driven = 0;
        self.kept_that_go(due, &mut goes);
        while let Some(slot) = self.keeping.next
            && goes.len() < due as usize
        {
            let entry = &mut self.entries[slot as usize];
            entry.said = true;
            let (fid, block) = entry.key;
            let used = entry.used;
            self.keeping.next = (entry.newer != NONE).then_some(entry.newer);
            self.keeping.said += 1;
            goes.push(Goes {
                fid,
                block,
                used,
                kept: None,
            });
        }
        goes
    }

    /// Kept blocks that are older than the own ones go with these.
    fn kept_that_go(&mut self, due: u32, goes: &mut Vec<Goes>) {
        let own = (self.oldest != NONE).then(|| self.entries[self.oldest as usize].used);
        let older = self.keeping.order.iter().take(2 * due as usize);
        let older = older.take_while(|(used, _)| own.is_none_or(|own| *used <= own));
        let older: Vec<(Time, Slot)> = older.copied().collect();
        for (used, slot) in older {
            let entry = &mut self.entries[slot as usize];
            let (fid, block) = entry.key;
            let Some(kept) = self.keeping.index.get(&entry.key) else {
                continue;
            };
            if goes.len() == due as usize {
                return;
            }
            if kept.chances > 0 && !core::mem::replace(&mut entry.said, true) {
                let kept = Some((kept.version, kept.chances));
                goes.push(Goes {
                    fid,
                    block,
                    used,
                    kept,
                });
            }
        }
    }

    /// A block leaves the list of clean blocks.
    pub(super) fn forget_saying(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        if core::mem::take(&mut entry.said) {
            self.keeping.said -= 1;
        }
        if self.keeping.next == Some(slot) {
            self.keeping.next = (entry.newer != NONE).then_some(entry.newer);
        }
    }

    /// A block is now the one used last.
    pub(super) fn await_saying(&mut self, slot: Slot) {
        if self.keeping.next.is_none() {
            self.keeping.next = Some(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 32;
    const OTHERS: u32 = 1024;

    /// A cache of so many slots that keeps blocks for others, with this many own blocks, used at
    /// times 100, 101 and so on.
    fn cache(slots: u32, own: u64) -> (Cache, Fid) {
        let (mut cache, fid) = (Cache::new(slots, 2), Fid::root(1));
        cache.set_weights(Some(Weights::new(OWN, OTHERS)));
        for block in 0..own {
            cache.set_now(100 + block);
            cache.take(fid, block, BlockState::Clean).expect("a slot");
        }
        (cache, fid)
    }

    #[test]
    fn a_kept_block_is_found_under_its_version_alone_and_becomes_an_own_one_once() {
        let (mut cache, fid) = cache(8, 0);
        let slot = cache.keep((fid, 5, 7), 1, 1).expect("there is room");
        assert_eq!(
            (cache.find(fid, 5), cache.kept(), cache.used()),
            (None, 1, 1)
        );
        assert_eq!(cache.find_kept(fid, 5, 8), None);
        assert_eq!(cache.find_kept(fid, 5, 7), Some(slot));
        assert!(!cache.adopt(fid, 5, 8) && cache.adopt(fid, 5, 7) && !cache.adopt(fid, 5, 7));
        assert_eq!(cache.find(fid, 5), Some((slot, BlockState::Clean)));
        assert_eq!((cache.kept(), cache.used()), (0, 1));
        cache.keep((fid, 6, 7), 1, 1).expect("there is room");
        assert!(cache.keep((fid, 6, 7), 1, 1).is_none(), "it is here");
        cache.keep((fid, 6, 9), 1, 1).expect("another version");
        assert_eq!((cache.find_kept(fid, 6, 7), cache.kept()), (None, 1));
    }

    #[test]
    fn a_block_of_others_drives_out_none_that_is_worth_more() {
        let (mut cache, fid) = cache(4, 4);
        let other = Fid::root(2);
        cache.set_now(1_000);
        assert_eq!(cache.spare(), (0, Some(100)));
        assert!(cache.keep((other, 0, 1), 50, 1).is_none(), "older than all");
        let slot = cache.keep((other, 0, 1), 500, 1).expect("younger than one");
        assert_eq!((cache.find(fid, 0), cache.kept()), (None, 1));
        // A copy makes room for any last copy.
        let (copy, _) = cache.find(fid, 1).expect("it is here");
        cache.set_copied(copy);
        assert_eq!(cache.spare(), (0, Some(0)));
        assert_eq!(cache.keep((other, 1, 1), 90, 1), Some(copy));
        // The program's own blocks drive out the oldest, whoever it is for.
        assert_eq!(cache.take(fid, 10, BlockState::Clean), Some(copy));
        cache.take(fid, 11, BlockState::Clean).expect("a slot");
        cache.take(fid, 12, BlockState::Clean).expect("a slot");
        assert_eq!(cache.find_kept(other, 0, 1), Some(slot));
        assert_eq!(cache.take(fid, 13, BlockState::Clean), Some(slot));
        assert_eq!((cache.kept(), cache.used()), (0, 4));
    }

    #[test]
    fn a_kept_block_that_another_client_has_now_goes_first() {
        let (mut cache, fid) = cache(3, 1);
        let first = cache.keep((fid, 8, 1), 101, 1).expect("there is room");
        let second = cache.keep((fid, 9, 1), 102, 1).expect("there is room");
        cache.set_copied(second);
        assert_eq!(cache.take(fid, 1, BlockState::Clean), Some(second));
        assert_eq!(cache.find_kept(fid, 8, 1), Some(first));
    }

    #[test]
    fn blocks_are_said_to_leave_once_in_their_order_and_as_many_as_others_drive_out() {
        let (mut cache, fid) = cache(1024, 1024);
        assert!(cache.leaving(256).is_empty(), "nothing was driven out");
        let mut said = Vec::new();
        for block in 0..600 {
            cache.set_now(2_000 + block);
            cache
                .take(fid, 2_000 + block, BlockState::Clean)
                .expect("a slot");
            let goes = cache.leaving(256);
            said.extend(goes.iter().map(|goes| goes.block));
        }
        let first = said[0];
        let expected: Vec<u64> = (first..first + said.len() as u64).collect();
        assert_eq!(said, expected, "in their order");
        // Those that have gone since were said to leave, and at most an eighth more.
        assert!(first <= 64 && (600 - 64..=600 + 128).contains(&(first + said.len() as u64)));
    }

    #[test]
    fn what_is_kept_goes_first_when_memory_shrinks_and_all_of_it_when_nothing_may_be_kept() {
        let (mut cache, fid) = cache(16, 4);
        for block in 0..8 {
            cache
                .keep((Fid::root(2), block, 1), 1_000, 1)
                .expect("room");
        }
        cache.set_limit(6);
        cache.shrink(100);
        assert_eq!((cache.kept(), cache.used()), (2, 6));
        assert!(cache.find(fid, 0).is_some(), "the machine's own stay");
        cache.set_weights(None);
        assert!(cache.is_over());
        cache.shrink(100);
        assert_eq!((cache.kept(), cache.used()), (0, 4));
        assert!(!cache.is_over() && cache.keep((fid, 9, 1), 5_000, 1).is_none());
    }
}
