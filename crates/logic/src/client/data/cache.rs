//! The block cache: which slot holds which block, in which state, and which is given up next.
//!
//! Guarantees: a slot is in exactly one place: free, or holding one block. Only clean blocks are on
//! the list of blocks that may be given up, which is ordered exactly by last use (Nelson, section
//! 3.2). A block that is being filled or sent stays where it is. Bytes of a slot beyond the end of
//! its file are zeros. How much of a file is dirty, and from where on, is known without looking
//! through its blocks: a large file is written back in many batches. A table for slots that were
//! never used takes no memory.
//!
//! How many slots may be in use varies ([`Cache::set_limit`]). Blocks that are changed, or on their
//! way, stay beyond that; reads then still find a few slots, so that they do not wait for blocks
//! that cannot leave.

mod arrival;
mod block_order;
mod kept;
mod leaving;
mod worth;

pub(crate) use leaving::Goes;
pub(crate) use worth::Weights;

use super::changes::{ByVolume, Changed};
use crate::client::api::Slot;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use wire::{Fid, Time};

const NONE: Slot = Slot::MAX;

/// The state of a slot's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Waits for the bytes of this fill.
    Filling(u64),
    /// As at the server.
    Clean,
    /// Changed; since when.
    Dirty(Time),
    /// On its way to the server; changed again since, if a time is given.
    Sending(Option<Time>),
}

/// Does the server have bytes of a block, or is it a hole there?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum There {
    /// It has.
    Yes,
    /// It has none.
    No,
    /// The client cannot tell: the block lies in a file with holes that others have written.
    Unknown,
}

#[derive(Clone, Debug)]
struct Entry {
    key: (Fid, u64),
    state: BlockState,
    there: There,
    older: Slot,
    newer: Slot,
    /// When it was used last; 0: the kernel has all of it.
    used: Time,
    /// Another client has a copy, as far as is known here.
    copied: bool,
    /// It is in one of the orders of [`worth`], and not on the list.
    by_worth: bool,
    /// It was said to leave.
    said: bool,
}

/// The cache's table.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Of the slots that were ever used.
    entries: Vec<Entry>,
    /// Those of them that hold nothing.
    free: Vec<Slot>,
    /// Most slots ever, and now; and how many there are for reads, whatever is changed.
    most: u32,
    limit: u32,
    least: u32,
    /// Most that may hold changed blocks.
    dirty_most: u32,
    now: Time,
    index: BTreeMap<(Fid, u64), Slot>,
    oldest: Slot,
    newest: Slot,
    /// How many are between these.
    listed: u32,
    dirty: u32,
    /// How many fills were begun.
    fills: u64,
    changed: BTreeMap<Fid, Changed>,
    by_volume: ByVolume,
    /// Blocks that are kept for other machines.
    keeping: kept::Keeping,
    /// Own clean blocks by their worth, while blocks are kept.
    worth: worth::Worth,
    /// Which blocks were said to leave.
    leaving: leaving::Said,
}

impl Cache {
    /// At most so many slots, and for reads always so few.
    pub(crate) fn new(slots: u32, least: u32) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            most: slots,
            limit: slots,
            least: least.min(slots),
            dirty_most: u32::MAX,
            now: 0,
            index: BTreeMap::new(),
            oldest: NONE,
            newest: NONE,
            listed: 0,
            dirty: 0,
            fills: 0,
            changed: BTreeMap::new(),
            by_volume: ByVolume::default(),
            keeping: kept::Keeping::default(),
            worth: worth::Worth::default(),
            leaving: leaving::Said::default(),
        }
    }

    /// How many slots may be in use now.
    pub(crate) fn slots(&self) -> u64 {
        u64::from(self.limit)
    }

    /// How many may ever be.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// It is so late now.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// So many slots may be in use from now on.
    pub(crate) fn set_limit(&mut self, slots: u32) {
        self.limit = slots.clamp(self.least, self.most);
    }

    /// At most so many slots hold what is changed, but always as many as the largest call needs.
    pub(crate) fn set_dirty_most(&mut self, slots: u32) {
        self.dirty_most = slots.max(self.least);
    }

    /// Is so much changed that it is to be written back before its time?
    pub(crate) fn is_full_of_changes(&self) -> bool {
        self.dirty > self.dirty_most / 2
    }

    /// Is so much changed that few of the slots are left for anything else?
    pub(crate) fn is_crowded(&self) -> bool {
        self.dirty.saturating_add(self.least) > self.limit
    }

    /// How many slots may be in use, those included that reads find beside what is changed.
    fn bearable(&self) -> u32 {
        let beside = self.dirty.saturating_add(self.least).min(self.most);
        self.limit.max(beside)
    }

    /// How many slots hold something.
    fn here(&self) -> usize {
        self.index.len() + self.kept_slots()
    }

    /// Gives up blocks beyond the limit, at most so many; those that are kept for others first.
    pub(crate) fn shrink(&mut self, at_once: u32) {
        if self.keeps_too_much() {
            self.drop_oldest_kept(at_once);
            return self.check();
        }
        let over = (self.here() as u32).saturating_sub(self.bearable());
        let dropped = self.drop_oldest_kept(over.min(at_once));
        for _ in 0..over.min(at_once) - dropped {
            let Some(slot) = self.evict_own() else { break };
            self.free.push(slot);
        }
        self.check();
    }

    /// Each slot that was ever used holds a block or nothing, and each block counts where it does.
    fn check(&self) {
        let (here, free) = (self.here(), self.free.len());
        assert!(here + free == self.entries.len(), "a slot is lost");
        assert!(
            self.entries.len() <= self.most as usize,
            "more slots than there may be"
        );
        assert!(
            self.givable() + self.dirty as usize <= here,
            "a block counts as clean and as changed"
        );
        assert!(
            (self.listed == 0) == (self.oldest == NONE)
                && (self.oldest == NONE) == (self.newest == NONE),
            "clean blocks are in the list, and nothing else"
        );
        assert!(
            self.changed.is_empty() == (self.dirty == 0),
            "files with changes are those of changed blocks"
        );
    }

    /// Are there blocks to be given up beyond the limit?
    pub(crate) fn is_over(&self) -> bool {
        let some = self.givable() > 0 || self.kept_slots() > 0;
        self.keeps_too_much() || (some && self.here() as u32 > self.bearable())
    }

    /// A slot that holds nothing, if one more may be in use.
    fn vacant(&mut self) -> Option<Slot> {
        if self.here() as u32 >= self.bearable() {
            return None;
        }
        self.free.pop().or_else(|| {
            self.entries.push(Entry {
                key: (Fid::root(0), 0),
                state: BlockState::Clean,
                there: There::Unknown,
                older: NONE,
                newer: NONE,
                used: 0,
                copied: false,
                by_worth: false,
                said: false,
            });
            Some(self.entries.len() as Slot - 1)
        })
    }

    pub(crate) fn used(&self) -> u64 {
        self.here() as u64
    }

    pub(crate) fn free(&self) -> &[Slot] {
        &self.free
    }

    pub(crate) fn dirty(&self) -> u64 {
        u64::from(self.dirty)
    }

    /// The slot of a block and its state.
    pub(crate) fn find(&self, fid: Fid, block: u64) -> Option<(Slot, BlockState)> {
        let slot = *self.index.get(&(fid, block))?;
        Some((slot, self.entries[slot as usize].state))
    }

    /// Gives a block a slot, if need be that of the block not used for longest.
    pub(crate) fn take(&mut self, fid: Fid, block: u64, state: BlockState) -> Option<Slot> {
        let slot = match self.vacant() {
            Some(slot) => slot,
            None => self.evict_for_own()?,
        };
        let before = self.index.insert((fid, block), slot);
        assert!(before.is_none(), "a block has one slot");
        let entry = &mut self.entries[slot as usize];
        (entry.key, entry.state, entry.there) = ((fid, block), state, There::Unknown);
        entry.copied = false;
        self.enter(slot, state);
        self.check();
        Some(slot)
    }

    /// It is now known whether the server has bytes of a block.
    pub(crate) fn set_there(&mut self, slot: Slot, there: There) {
        let entry = &mut self.entries[slot as usize];
        let old = core::mem::replace(&mut entry.there, there);
        if let (BlockState::Dirty(_) | BlockState::Sending(_), (fid, _)) = (entry.state, entry.key)
            && let Some(changed) = self.changed.get_mut(&fid)
        {
            changed.count(old, false);
            changed.count(there, true);
        }
    }

    pub(crate) fn there(&self, slot: Slot) -> There {
        self.entries[slot as usize].there
    }

    /// Files of which something is dirty or on its way to the server.
    pub(crate) fn changed_files(&self) -> impl Iterator<Item = Fid> + '_ {
        self.changed.keys().copied()
    }

    /// How much of a file is dirty or on its way to the server.
    pub(crate) fn changed(&self, fid: Fid) -> Changed {
        self.changed.get(&fid).copied().unwrap_or_default()
    }

    /// Could so many slots be taken now?
    pub(crate) fn available(&self, wanted: usize) -> bool {
        self.could_take(wanted, self.limit)
    }

    fn could_take(&self, wanted: usize, limit: u32) -> bool {
        // Those that can be given up may be so many that they are beyond the limit themselves.
        let stay = self.index.len() - self.givable();
        stay + wanted <= limit as usize
    }

    /// Can all these blocks of a file be here at once? Those that are here and clean are among what
    /// could be given up for the others.
    pub(crate) fn fits_beside(&self, fid: Fid, blocks: Range<u64>) -> bool {
        self.fits_in(fid, blocks, self.bearable())
    }

    /// Can all of them be changed?
    pub(crate) fn fits(&self, fid: Fid, blocks: Range<u64>) -> bool {
        let all = (blocks.end - blocks.start) as u32;
        let changed =
            |state: BlockState| matches!(state, BlockState::Dirty(_) | BlockState::Sending(_));
        let bearable = self.dirty.saturating_add(all) <= self.dirty_most || {
            let here = self.span(fid, blocks.clone()).flatten();
            let here = here.filter(|(_, state)| changed(*state)).count() as u32;
            self.dirty + (all - here) <= self.dirty_most
        };
        bearable && self.fits_in(fid, blocks, self.limit)
    }

    /// Blocks that are here and stay need no slot, even where there are more than the limit.
    fn fits_in(&self, fid: Fid, blocks: Range<u64>, limit: u32) -> bool {
        let all = (blocks.end - blocks.start) as usize;
        let stays = |state: BlockState| state != BlockState::Clean;
        self.could_take(all, limit) || {
            let here = self.span(fid, blocks).flatten();
            let here = here.filter(|(_, state)| stays(*state)).count();
            here == all || self.could_take(all - here, limit)
        }
    }

    /// How many blocks of a volume are to be written back.
    pub(crate) fn changed_in(&self, volume: u32) -> u64 {
        self.by_volume.get(volume)
    }

    /// Each of these blocks of a file, as [`Cache::find`] finds it.
    pub(crate) fn span(
        &self,
        fid: Fid,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = Option<(Slot, BlockState)>> + '_ {
        let range = (fid, blocks.start)..(fid, blocks.end.max(blocks.start));
        let mut here = self.index.range(range).peekable();
        blocks.map(move |block| {
            let (_, slot) = here.next_if(|(key, _)| key.1 == block)?;
            Some((*slot, self.entries[*slot as usize].state))
        })
    }

    pub(crate) fn set(&mut self, slot: Slot, state: BlockState) {
        self.leave(slot);
        self.entries[slot as usize].state = state;
        self.enter(slot, state);
    }

    /// It has been used just now.
    pub(crate) fn touch(&mut self, slot: Slot) {
        let state = self.entries[slot as usize].state;
        self.set(slot, state);
    }

    /// Gives up a block, whatever its state.
    pub(crate) fn drop_block(&mut self, fid: Fid, block: u64) {
        if let Some(slot) = self.index.remove(&(fid, block)) {
            self.leave(slot);
            self.free.push(slot);
            self.check();
        }
    }

    /// The blocks of a file from one on, with their slots and states.
    pub(crate) fn blocks(
        &self,
        fid: Fid,
        from: u64,
    ) -> impl Iterator<Item = (u64, Slot, BlockState)> + '_ {
        let range = self.index.range((fid, from)..=(fid, u64::MAX));
        range.map(|(key, slot)| (key.1, *slot, self.entries[*slot as usize].state))
    }

    /// Blocks of a file become changed blocks of another one, which has none.
    pub(crate) fn move_blocks(&mut self, from: Fid, to: Fid, now: Time) {
        for (block, slot, state) in self.blocks(from, 0).collect::<Vec<_>>() {
            self.index.remove(&(from, block));
            self.leave(slot);
            if self.index.contains_key(&(to, block)) {
                self.free.push(slot);
                continue;
            }
            self.index.insert((to, block), slot);
            let dirty = match state {
                BlockState::Dirty(since) | BlockState::Sending(Some(since)) => since,
                _ => now,
            };
            let (entry, dirty) = (&mut self.entries[slot as usize], BlockState::Dirty(dirty));
            (entry.key, entry.there, entry.state) = ((to, block), There::Unknown, dirty);
            self.enter(slot, dirty);
        }
    }

    /// Gives up the clean blocks of a file from one on.
    pub(crate) fn drop_clean(&mut self, fid: Fid, from: u64) {
        let clean = |(block, _, state)| (state == BlockState::Clean).then_some(block);
        let blocks: Vec<u64> = self.blocks(fid, from).filter_map(clean).collect();
        for block in blocks {
            self.drop_block(fid, block);
        }
    }

    /// The blocks of a file from the first one on that is dirty or on its way to the server.
    pub(crate) fn changed_blocks(
        &self,
        fid: Fid,
    ) -> impl Iterator<Item = (u64, Slot, BlockState)> + '_ {
        let from = self.changed.get(&fid).map(|changed| changed.from);
        from.into_iter()
            .flat_map(move |from| self.blocks(fid, from))
    }

    /// No block of a file before this one is dirty or on its way to the server.
    pub(crate) fn changed_from(&mut self, fid: Fid, block: u64) {
        debug_assert!(
            self.changed_blocks(fid)
                .take_while(|(at, _, _)| *at < block)
                .all(|(_, _, state)| matches!(state, BlockState::Clean | BlockState::Filling(_)))
        );
        if let Some(changed) = self.changed.get_mut(&fid) {
            changed.from = changed.from.max(block);
        }
    }

    fn enter(&mut self, slot: Slot, state: BlockState) {
        match state {
            BlockState::Clean => self.list(slot),
            BlockState::Dirty(_) | BlockState::Sending(_) => {
                let Entry {
                    key: (fid, block),
                    there,
                    ..
                } = self.entries[slot as usize];
                let first = Changed {
                    from: block,
                    ..Changed::default()
                };
                let changed = self.changed.entry(fid).or_insert(first);
                changed.count(there, true);
                changed.from = changed.from.min(block);
                self.dirty += 1;
                self.by_volume.count(fid.volume, state, true);
            }
            BlockState::Filling(_) => {}
        }
    }

    fn leave(&mut self, slot: Slot) {
        match self.entries[slot as usize].state {
            BlockState::Clean => self.unlist(slot),
            BlockState::Dirty(_) | BlockState::Sending(_) => {
                let Entry { key, there, .. } = self.entries[slot as usize];
                let (fid, _) = key;
                let changed = self.changed.get_mut(&fid);
                let changed = changed.expect("a file with a changed block is among those");
                assert!(changed.count > 0, "a changed block of a file counts there");
                changed.count(there, false);
                if changed.count == 0 {
                    self.changed.remove(&fid);
                }
                assert!(self.dirty > 0, "a changed block counts");
                self.dirty -= 1;
                self.by_volume
                    .count(fid.volume, self.entries[slot as usize].state, false);
            }
            BlockState::Filling(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_not_used_for_longest_is_given_up_first() {
        let fid = Fid::root(1);
        let mut cache = Cache::new(3, 3);
        let slots: Vec<Slot> = (0..3)
            .map(|b| cache.take(fid, b, BlockState::Clean).expect("three slots"))
            .collect();
        cache.touch(slots[0]);
        cache.age(slots[2]);
        assert_eq!(cache.take(fid, 10, BlockState::Clean), Some(slots[2]));
        assert_eq!(cache.take(fid, 11, BlockState::Clean), Some(slots[1]));
        assert_eq!(cache.take(fid, 12, BlockState::Dirty(1)), Some(slots[0]));
        cache.set(slots[1], BlockState::Dirty(2));
        assert_eq!(cache.take(fid, 13, BlockState::Clean), Some(slots[2]));
        assert!(cache.available(1) && !cache.available(2));
        cache.set(slots[2], BlockState::Filling(1));
        assert_eq!(cache.take(fid, 14, BlockState::Clean), None);
        assert_eq!((cache.dirty(), cache.used()), (2, 3));
        assert!(cache.fits(fid, 11..14) && !cache.fits(fid, 10..12));
    }

    #[test]
    fn what_is_changed_may_be_changed_again_whatever_the_limit_is() {
        let fid = Fid::root(1);
        let mut cache = Cache::new(8, 2);
        for block in 0..4 {
            cache
                .take(fid, block, BlockState::Dirty(0))
                .expect("a slot");
        }
        cache.set_limit(0);
        assert!(cache.fits(fid, 1..3) && !cache.fits(fid, 3..5));
    }

    #[test]
    fn a_limit_is_kept_by_all_but_what_is_changed_and_reads_find_slots_beside_that() {
        let fid = Fid::root(1);
        let mut cache = Cache::new(100, 4);
        for block in 0..60 {
            cache.set_now(block);
            let state = if block < 20 {
                BlockState::Dirty(block)
            } else {
                BlockState::Clean
            };
            cache.take(fid, block, state).expect("a slot");
        }
        assert_eq!((cache.used(), cache.oldest()), (60, Some(20)));
        cache.set_limit(50);
        assert!(cache.is_over() && !cache.is_crowded());
        cache.shrink(3);
        assert_eq!((cache.used(), cache.oldest()), (57, Some(23)));
        cache.shrink(1000);
        assert_eq!((cache.used(), cache.oldest()), (50, Some(30)));
        cache.set_limit(0);
        cache.shrink(1000);
        // Changed blocks stay, and a few slots beside them.
        assert_eq!((cache.used(), cache.clean(), cache.slots()), (24, 4, 4));
        assert!(cache.is_crowded() && !cache.is_over());
        assert!(cache.fits_beside(fid, 70..74) && !cache.fits(fid, 70..75));
        for block in 70..80 {
            cache
                .take(fid, block, BlockState::Clean)
                .expect("another one goes");
        }
        assert_eq!(cache.used(), 24);
        for block in 0..20 {
            let (slot, _) = cache.find(fid, block).expect("it is changed");
            cache.set(slot, BlockState::Clean);
        }
        cache.shrink(1000);
        assert_eq!((cache.used(), cache.free().len()), (4, 56));
        cache.set_limit(1000);
        cache.set_dirty_most(8);
        for block in 0..4 {
            assert!(!cache.is_full_of_changes());
            assert!(cache.fits(fid, block..block + 1));
            let slot = cache.take(fid, block, BlockState::Dirty(1));
            assert!(slot.is_some());
        }
        assert!(cache.fits(fid, 0..8) && !cache.fits(fid, 1..9) && !cache.fits(fid, 90..95));
        cache.take(fid, 4, BlockState::Dirty(1)).expect("a slot");
        assert!(cache.is_full_of_changes());
        (0..5).for_each(|block| cache.drop_block(fid, block));
        assert_eq!(cache.slots(), 100);
        for block in 100..196 {
            cache.take(fid, block, BlockState::Clean).expect("a slot");
        }
        assert_eq!((cache.used(), cache.entries.len()), (100, 100));
    }

    #[test]
    fn what_is_changed_of_a_file_is_found_without_what_is_not() {
        let (fid, other) = (Fid::root(1), Fid::root(2));
        let mut cache = Cache::new(8, 8);
        for block in 0..4 {
            cache.take(fid, block, BlockState::Dirty(block));
        }
        let clean = cache.take(other, 0, BlockState::Clean).expect("a slot");
        assert_eq!(cache.files_to_clean(), [fid]);
        let slot = |cache: &Cache, block| cache.find(fid, block).expect("it is here").0;
        for block in 0..2 {
            cache.set(slot(&cache, block), BlockState::Sending(None));
            cache.set(slot(&cache, block), BlockState::Clean);
        }
        cache.changed_from(fid, 2);
        let changed = |cache: &Cache| cache.changed_blocks(fid).map(|(b, _, _)| b).next();
        assert_eq!(changed(&cache), Some(2));
        cache.set(slot(&cache, 1), BlockState::Dirty(9));
        assert_eq!(
            changed(&cache),
            Some(1),
            "it is looked for from there again"
        );
        cache.set(clean, BlockState::Sending(None));
        assert_eq!(cache.files_to_clean(), [fid], "on its way already");
        let span: Vec<_> = cache
            .span(fid, 3..6)
            .map(|found| found.map(|f| f.1))
            .collect();
        assert_eq!(span, [Some(BlockState::Dirty(3)), None, None]);
        (0..4).for_each(|block| cache.drop_block(fid, block));
        cache.set(clean, BlockState::Clean);
        assert!(cache.changed.is_empty() && cache.dirty() == 0);
    }
}
