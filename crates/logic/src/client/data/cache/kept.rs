//! Blocks that are kept for other machines: last copies that left another client's cache.
//!
//! Guarantees: such a block is named by its version, too, and is found under that version alone;
//! it lies in a slot of its own, in no order of the machine's own blocks. Age decides which
//! block makes room ([`super::worth`]); a block of others never drives out an own one that is worth
//! more.

use super::worth::WHOLE;
use super::{BlockState, Cache, Slot, There};
use alloc::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Time};

/// A block that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    version: u64,
    slot: Slot,
    chances: u8,
}

/// All blocks that are kept.
#[derive(Clone, Debug)]
pub(super) struct Keeping {
    /// How many they may be.
    most: u32,
    index: BTreeMap<(Fid, u64), Kept>,
    /// By their last use.
    order: BTreeSet<(Time, Slot)>,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            most: u32::MAX,
            index: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl Cache {
    /// So many blocks may be kept for other machines.
    pub(crate) fn set_kept_most(&mut self, blocks: u32) {
        self.keeping.most = blocks;
    }

    /// How many more they may be.
    fn kept_room(&self) -> u32 {
        self.keeping
            .most
            .saturating_sub(self.keeping.index.len() as u32)
    }

    pub(crate) fn kept(&self) -> u64 {
        self.keeping.index.len() as u64
    }

    pub(super) fn kept_slots(&self) -> usize {
        self.keeping.index.len()
    }

    /// Are there blocks that must go, since none may be kept any more?
    pub(super) fn keeps_too_much(&self) -> bool {
        self.worth.weights.is_none() && !self.keeping.index.is_empty()
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
        let weights = self.worth.weights?;
        if let Some(known) = self.keeping.index.get(&(fid, block)) {
            if known.version == version {
                return None;
            }
            self.drop_kept((fid, block));
        }
        let slot = self.slot_to_keep(weights.others, used)?;
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

    /// A slot for a block of others that was used then: a free one, or that of a block which is
    /// worth less; where no more may be kept, that of an older one of others.
    fn slot_to_keep(&mut self, weight: u32, used: Time) -> Option<Slot> {
        let may = self.kept_room() > 0;
        if let Some(slot) = may.then(|| self.vacant()).flatten() {
            return Some(slot);
        }
        let slot = match may {
            true => self.evict(weight, Some(used))?,
            false => {
                let (oldest, slot) = self.keeping.order.first().copied()?;
                (oldest < used).then_some(slot)?;
                self.give_up_kept(slot);
                slot
            }
        };
        self.drives_out(true);
        Some(slot)
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
            self.give_up_kept(slot);
            self.free.push(slot);
            dropped += 1;
        }
        dropped
    }

    /// A kept block goes.
    pub(super) fn give_up_kept(&mut self, slot: Slot) {
        self.goes_now(slot);
        self.unkeep(self.entries[slot as usize].key);
    }

    pub(super) fn kept_by_use(&self) -> &BTreeSet<(Time, Slot)> {
        &self.keeping.order
    }

    pub(super) fn oldest_kept(&self) -> Option<Slot> {
        self.keeping.order.first().map(|(_, slot)| *slot)
    }

    /// The version of the kept block in a slot, and how often it may be handed on.
    pub(super) fn kept_at(&self, slot: Slot) -> Option<(u64, u8)> {
        let kept = self.keeping.index.get(&self.entries[slot as usize].key)?;
        (kept.slot == slot).then_some((kept.version, kept.chances))
    }

    /// A kept block that another client has now goes before all others; false: it is none.
    pub(super) fn keep_no_longer(&mut self, slot: Slot) -> bool {
        let entry = &mut self.entries[slot as usize];
        let is_kept = self.keeping.order.remove(&(entry.used, slot));
        if is_kept {
            entry.used = 0;
            self.keeping.order.insert((0, slot));
        }
        is_kept
    }

    /// How many blocks fit that drive out nothing, and since when the block lies unused that goes
    /// for one of others.
    pub(crate) fn spare(&self) -> (u32, Option<Time>) {
        let Some(weights) = self.worth.weights else {
            return (0, None);
        };
        let here = (self.index.len() + self.keeping.index.len()) as u32;
        let room = self.kept_room();
        let free = self.bearable().saturating_sub(here).min(room);
        // Where no more may be kept, one of others goes for one of others.
        let own = self.own_that_goes(weights.others).filter(|_| room > 0);
        let own = own.map(|(age, _)| self.now.saturating_sub(age / WHOLE));
        let kept = self.keeping.order.first().map(|(used, _)| *used);
        (free, own.into_iter().chain(kept).min())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Weights;
    use super::*;
    use alloc::vec::Vec;

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
    fn no_more_blocks_are_kept_than_may_be() {
        let (mut cache, fid) = cache(32, 4);
        cache.set_kept_most(2);
        assert_eq!(cache.spare().0, 2);
        assert!(cache.keep((fid, 100, 7), 50, 1).is_some());
        assert!(cache.keep((fid, 101, 7), 60, 1).is_some());
        assert_eq!(cache.spare(), (0, Some(50)));
        assert!(cache.keep((fid, 102, 7), 50, 1).is_none(), "no younger");
        assert!(cache.keep((fid, 103, 7), 55, 1).is_some());
        let kept = |block| cache.find_kept(fid, block, 7).is_some();
        assert_eq!([100, 101, 102, 103].map(kept), [false, true, false, true]);
        assert_eq!(cache.kept(), 2);
        cache.set_kept_most(0);
        assert!(cache.keep((fid, 104, 7), 40, 1).is_none());
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
    fn copies_make_room_before_last_copies_that_are_older_whoever_these_are_for() {
        let (mut cache, fid) = cache(6, 4);
        let other = Fid::root(2);
        cache.keep((other, 0, 1), 90, 1).expect("there is room");
        cache.keep((other, 1, 1), 91, 1).expect("there is room");
        // The youngest but one of the own blocks is a copy; all others are last copies.
        let (copy, _) = cache.find(fid, 2).expect("it is here");
        cache.set_copied(copy);
        cache.set_now(120);
        assert_eq!(cache.take(fid, 10, BlockState::Clean), Some(copy));
        cache.take(fid, 11, BlockState::Clean).expect("a slot");
        assert_eq!(cache.find_kept(other, 0, 1), None, "no copy is left");
        // A copy that was used lately is worth more than a last copy that lies there for long.
        let (copy, _) = cache.find(fid, 3).expect("it is here");
        cache.touch(copy);
        cache.set_copied(copy);
        cache.take(fid, 12, BlockState::Clean).expect("a slot");
        assert_eq!(
            (cache.kept(), cache.find(fid, 3)),
            (0, Some((copy, BlockState::Clean)))
        );
        // Without policy all own blocks are given up in the order of their last use.
        cache.set_weights(None);
        let mut last_use = Vec::new();
        for block in 20..26 {
            let oldest = cache.oldest();
            last_use.extend(oldest);
            cache.set_now(200 + block);
            cache.take(fid, block, BlockState::Clean).expect("a slot");
        }
        assert_eq!(last_use, [100, 101, 120, 120, 120, 120]);
    }

    #[test]
    fn a_copy_is_worth_as_much_as_a_last_copy_when_no_other_client_has_it_any_more() {
        let (mut cache, fid) = cache(3, 3);
        for block in [1, 2] {
            let (slot, _) = cache.find(fid, block).expect("it is here");
            cache.set_copied(slot);
        }
        cache.is_last(fid, 1);
        cache.set_now(1_000);
        cache.take(fid, 10, BlockState::Clean).expect("a slot");
        assert_eq!(cache.find(fid, 2), None, "the copy goes");
        assert!(cache.find(fid, 0).is_some() && cache.find(fid, 1).is_some());
    }

    #[test]
    fn blocks_are_said_ahead_also_where_many_go_at_once() {
        let (mut cache, fid) = cache(1024, 1024);
        let (mut ahead, mut behind) = (0, 0);
        for round in 1..8 {
            cache.set_now(10_000 * round);
            for block in 0..256 {
                cache
                    .take(fid, 10_000 * round + block, BlockState::Clean)
                    .expect("a slot");
            }
            let said: Vec<_> = core::iter::repeat_with(|| cache.leaving(256))
                .take_while(|goes| !goes.is_empty())
                .flatten()
                .collect();
            let gone = said.iter().filter(|goes| goes.gone).count();
            (ahead, behind) = (ahead + said.len() - gone, behind + gone);
        }
        // Each time the eighth that is said ahead has gone before the rest.
        assert_eq!((ahead, behind), (7 * 128, 256 + 6 * 128));
    }

    #[test]
    fn each_block_that_goes_is_said_once() {
        let (mut cache, fid) = cache(1024, 1024);
        let (mut said, mut now) = (Vec::new(), 5_000);
        // Copies, which were used last and were not said, make room for blocks of others first.
        for block in 512..1024 {
            let (slot, _) = cache.find(fid, block).expect("it is here");
            cache.set_copied(slot);
        }
        for block in 0..1024 {
            now += 10;
            cache.set_now(now);
            cache.keep((Fid::root(2), block, 1), now - 1, 1);
            said.extend(cache.leaving(256).iter().map(|goes| (goes.fid, goes.block)));
        }
        let here = |key: &(Fid, u64)| cache.find(key.0, key.1).is_some();
        let gone = (0..1024).filter(|block| !here(&(fid, *block))).count();
        let told = said.iter().filter(|key| !here(key)).count();
        assert!(
            gone >= 256 && told + 32 >= gone,
            "{gone} went, {told} were said"
        );
        let all = said.len();
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), all, "none is said twice");
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
            let ahead = goes.iter().filter(|goes| !goes.gone);
            said.extend(ahead.map(|goes| goes.block));
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
