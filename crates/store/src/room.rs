//! Room on a disk that is full, and what is done about it: before a change is refused, and while
//! nobody changes anything.
//!
//! Guarantees: a change is refused for want of room only when removing what is dead gives none, nor
//! copying what is in use out of segments that are partly dead. Neither is tried again before
//! something has changed, so refusing costs next to nothing. [`Store::tend`] comes to an end when
//! nothing is left to be done.

use crate::checkpoint::NS_PER_MS;
use crate::clean::Step;
use crate::error::StoreError;
use crate::log::Use;
use crate::store::Store;
use crate::sweep::KEYS_ALONE;
use wire::{Op, Refusal};

/// The store is tended when nothing was changed for this long.
const REST_NS: u64 = 2_000 * NS_PER_MS;
/// Between two portions of that: other callers of the store wait for one at most.
const PAUSE_NS: u64 = 20 * NS_PER_MS;
/// Bytes that are moved in one portion.
const PORTION_BYTES: u64 = 1 << 20;
/// A checkpoint that failed is tried again after this long.
const RETRY_NS: u64 = 5_000 * NS_PER_MS;
/// Most bytes that a change that finds no room has moved for it, in segments.
const MOST_SEGMENTS: u64 = 4;

/// The store's knowledge of room, and of rest.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Bytes of log, and MiB of room on the disk, that there were when nothing gave any room.
    barren: Option<(u64, u64)>,
    /// Somebody was refused room since there last was more.
    told: bool,
    /// Bytes of log there were when somebody last looked after the store...
    seen: u64,
    /// ...and since when there have been no more.
    since: u64,
    /// The tending of the store begins no checkpoint before that.
    retry_at: u64,
}

/// Room that there must be for each number that is reserved.
const RESERVED_BYTES: u64 = 1024;

impl Store {
    /// Makes sure that a record can be appended. On a full disk room is made first.
    pub(crate) fn room_for(&mut self, bytes: u64, purpose: Use) -> Result<(), StoreError> {
        let mut budget = self.most_moved();
        loop {
            match self.log.make_room(bytes, purpose) {
                Err(StoreError::NoSpace) => {}
                other => return other,
            }
            if !self.gain_room(&mut budget) {
                self.tell_full();
                return Err(StoreError::NoSpace);
            }
        }
    }

    /// Bytes that are moved at most for a change that finds no room.
    pub(crate) fn most_moved(&self) -> u64 {
        MOST_SEGMENTS * self.log.segment_bytes()
    }

    /// Makes room on a full disk, if it is to be had. Is there more than before?
    pub(crate) fn gain_room(&mut self, budget: &mut u64) -> bool {
        if self.room.barren == Some(self.standing()) {
            return false;
        }
        let before = self.checkpoints.removed();
        // The outcome of one under way shows in the segments that it has removed.
        let _ = self.join_checkpoint();
        while self.checkpoints.removed() == before {
            if self.has_dead() && self.is_behind() && self.checkpoint().is_ok() {
                continue;
            }
            if self.release_waiting() {
                continue;
            }
            if *budget > 0 && (self.clean_segment(budget) || self.end_dead_segment()) {
                continue;
            }
            self.room.barren = Some(self.standing());
            return false;
        }
        self.room.told = false;
        true
    }

    /// As long as this stays the same, so does what there is to be gained.
    fn standing(&self) -> (u64, u64) {
        let free = self.log.space().map_or(0, |(_, free)| free);
        (self.log.appended(), free >> 20)
    }

    /// Cleans the segment at hand, or the next one that is worth it, to its end.
    fn clean_segment(&mut self, budget: &mut u64) -> bool {
        loop {
            match self.clean_step() {
                Step::Moved(bytes) => *budget = budget.saturating_sub(bytes),
                Step::Finished => return true,
                Step::Nothing => return false,
            }
        }
    }

    /// Ends the segment that is written to, if so much of it is dead that it is worth cleaning: as
    /// long as it is written to, nothing is copied out of it.
    fn end_dead_segment(&mut self) -> bool {
        let end = self.log.end();
        let live = self.core.index.live().get(&end.segment).copied();
        let dead = end.offset.saturating_sub(live.unwrap_or(0));
        if dead < self.log.segment_bytes() / 8 {
            return false;
        }
        let ended = self.log.next_segment().is_ok();
        self.cleaner.look_again();
        ended
    }

    /// Tells people, once for as long as it lasts.
    pub(crate) fn tell_full(&mut self) {
        if std::mem::replace(&mut self.room.told, true) {
            return;
        }
        let free_mib = self.log.space().map_or(0, |(_, free)| free >> 20);
        let kept_mib = self.log.kept(Use::Change) >> 20;
        tracing::warn!(
            free_mib,
            kept_mib,
            "the disk is full: changes are refused. So much is free, and so much is kept for \
             removing things: remove files, or make room on the disk of the data directory"
        );
    }

    /// Room for what is to be written later is not kept, but there must be some.
    pub(crate) fn has_room(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Allocate {
                len, zero: false, ..
            } if self.available().map_err(crate::txn::trouble)? < *len => Err(Refusal::NoSpace),
            // Objects made with them are reported only after their maker has been answered.
            Op::Reserve { count }
                if self.available().map_err(crate::txn::trouble)?
                    < u64::from(*count) * RESERVED_BYTES =>
            {
                Err(Refusal::NoSpace)
            }
            _ => Ok(()),
        }
    }

    /// Bytes that changes have room for, with those of segments that nothing uses any more: the
    /// first caller that needs these gets them.
    pub(crate) fn available(&mut self) -> Result<u64, StoreError> {
        let mut bytes = self.log.available()?;
        for segment in self.dead() {
            // One that cannot be measured may be gone already.
            bytes = bytes.saturating_add(self.len_of(segment).unwrap_or(0));
        }
        Ok(bytes)
    }

    /// Does what wants doing though nobody changes anything: some seconds after the last change a
    /// checkpoint is made, so that what is dead goes, and then cleaning goes on, in small portions.
    /// `now` is of any clock that only goes forward. Returns when it wants to be called again;
    /// `None`: not before the next change.
    pub fn tend(&mut self, now: u64) -> Option<u64> {
        if self.log.syncer().failed() {
            return None;
        }
        let running = self.note_finished();
        if self.heal() {
            return Some(now + PAUSE_NS);
        }
        if self.room.seen != self.log.appended() {
            self.room.seen = self.log.appended();
            self.room.since = now;
        }
        let rested = self.room.since.saturating_add(REST_NS);
        if now < rested {
            return Some(rested);
        }
        if running {
            return Some(now + PAUSE_NS);
        }
        if self.is_sweeping() && !self.is_due_by_size() {
            self.sweep(KEYS_ALONE);
            self.room.seen = self.log.appended();
            return Some(now + PAUSE_NS);
        }
        if self.cleaner.is_busy() && !self.is_due_by_size() {
            self.clean(PORTION_BYTES);
            // The cleaner's own records are no changes.
            self.room.seen = self.log.appended();
            return Some(now + PAUSE_NS);
        }
        if !self.is_behind() && !self.checkpoint_failed() {
            self.image_if_due();
            return self.images.is_running().then_some(now + PAUSE_NS);
        }
        if self.checkpoint_failed() && now < self.room.retry_at {
            return Some(self.room.retry_at);
        }
        self.room.retry_at = now + RETRY_NS;
        // Its outcome is seen the next time.
        let _ = self.begin_checkpoint();
        Some(now + PAUSE_NS)
    }
}
