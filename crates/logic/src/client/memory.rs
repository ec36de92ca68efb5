//! The memory that the cache may use varies: the room says how much ([`crate::memory`] decides),
//! and the blocks not used for longest go.
//!
//! Guarantees: a step gives up a bounded number of blocks, so that no call waits for thousands of
//! them; a changed block is written back before it goes; a call that waits for a slot is begun
//! again when there are more. Blocks that are kept for other machines are the first to go.

use super::{Client, Mutant, Step};
use wire::Time;

/// Most blocks that a step gives up: some tenths of a millisecond.
const AT_ONCE: u32 = 4096;

/// Time between two looks for changed files while much is changed.
const PAUSE_NS: Time = 100_000_000;

impl Client {
    /// The cache may use so many slots from now on, and so many objects may be known.
    pub(crate) fn on_memory(&mut self, step: &mut Step<'_>, slots: u32, objects: usize) {
        let before = self.cache.slots();
        self.options.objects = objects;
        self.cache.set_limit(slots);
        let now = self.cache.slots();
        if now > before {
            self.feed_starved(step);
            self.next_cleaner(step);
        }
        if now < before {
            // Less may be kept that the server has not made stable.
            self.press(step);
        }
        if now < before && self.cache.is_crowded() {
            self.clean_all(step);
        }
        if self.options.mutant == Some(Mutant::ShrinksDirty) && now < before {
            let fid = self.cache.changed_files().next();
            let found = fid.and_then(|fid| Some((fid, self.cache.changed_blocks(fid).next()?.0)));
            if let Some((fid, block)) = found {
                self.cache.drop_block(fid, block);
            }
        }
    }

    /// After each step: blocks beyond the limit go, those that have become clean just now, too.
    /// Where much is changed, write-back begins, so that it could go.
    pub(crate) fn keep_size(&mut self, step: &mut Step<'_>) {
        if self.cache.is_full_of_changes() && step.now >= self.writeback.cleaned_at + PAUSE_NS {
            self.writeback.cleaned_at = step.now;
            self.clean_all(step);
        }
        if self.options.mutant != Some(Mutant::KeepsTooMuch) {
            self.cache.shrink(AT_ONCE);
        }
        self.say_leaving(step);
    }

    /// When the block was used that is given up next; 0: its kernel has all of it.
    pub fn oldest_use(&self) -> Option<Time> {
        self.cache.oldest()
    }

    /// Are there blocks that have to go, and can?
    pub fn is_over(&self) -> bool {
        self.cache.is_over()
    }
}
