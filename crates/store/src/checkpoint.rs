//! Checkpoints: bringing the index on the disk up to a place in the log, so that recovery begins
//! there, and segments of which nothing is in use can be removed.
//!
//! The order is what makes it safe: the log is synced up to that place first, then the index
//! commits, which is durable when it returns, then segments go that were not in use *then*. A
//! checkpoint that failed is repeated with the same changes; meanwhile new changes gather beside
//! it. In a directory it runs on its own thread, so that nobody waits for the index.

use crate::error::StoreError;
use crate::log::Log;
use crate::options::Mutant;
use crate::store::Store;
use std::collections::BTreeSet;
use std::thread::JoinHandle;
use wire::{Refusal, Time};

/// File bytes in the log make recovery longer too, but less than changes of the index do.
const LOG_SHARE: u64 = 32;
/// Changes may gather to this many times `checkpoint_bytes` before a request waits.
const GATHER: u64 = 8;
pub(crate) const NS_PER_MS: u64 = 1_000_000;

/// The state of checkpoints.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    running: Option<JoinHandle<Result<(), StoreError>>>,
    /// Why the last attempt failed.
    failed: Option<StoreError>,
    /// Segments on the disk.
    existing: BTreeSet<u32>,
    /// Segments of which nothing is in use when the checkpoint under way has succeeded.
    dead: Vec<u32>,
    /// Bytes appended to the log when the last attempt began.
    mark: u64,
    /// When that was.
    at: Option<Time>,
    /// The first record that the engine does not have.
    committed: u64,
    /// The same when the checkpoint under way has succeeded.
    pending: u64,
    pub(crate) done: u64,
    /// How many segments have been removed.
    removed: u64,
}

impl Checkpoints {
    pub(crate) fn new(existing: impl IntoIterator<Item = u32>, committed: u64) -> Self {
        Self {
            existing: existing.into_iter().collect(),
            committed,
            ..Self::default()
        }
    }

    /// Segments on the disk, those that were begun since the last checkpoint included.
    pub(crate) fn segments(&self, log: &Log) -> u64 {
        let newest = self.existing.last().copied().unwrap_or(0);
        let begun = log.end().segment.saturating_sub(newest);
        self.existing.len() as u64 + u64::from(begun)
    }

    /// The first record that the engine does not have.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// A segment was removed.
    pub(crate) fn note_removed(&mut self, segment: u32) {
        self.existing.remove(&segment);
        self.removed += 1;
    }

    /// How many have been removed since the store was opened.
    pub(crate) fn removed(&self) -> u64 {
        self.removed
    }

    /// Segments on the disk that are not written to any more.
    pub(crate) fn sealed(&self, log: &Log) -> impl Iterator<Item = u32> {
        let last = log.end().segment;
        self.existing.range(..last).copied()
    }

    /// Waits for a checkpoint that is under way, whatever comes of it.
    pub(crate) fn abandon(&mut self) {
        if let Some(thread) = self.running.take() {
            // Its unfinished work is replayed from the log.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Begins a checkpoint when one is due, and notes what became of the last one. Called before
    /// each change.
    pub(crate) fn pace(&mut self, now: Time) -> Result<(), Refusal> {
        let running = self.note_finished() || self.heal();
        let limit = self.options.checkpoint_bytes.max(1);
        let changed = self.core.index.active_bytes() as u64;
        if !running && self.is_due(now) {
            self.checkpoints.at = Some(now);
            let _ = self.begin_checkpoint();
        }
        if changed > GATHER * limit {
            self.join_healing();
            let _ = self.join_checkpoint();
            if let Some(error) = &self.checkpoints.failed {
                return Err(crate::txn::trouble(error.clone()));
            }
        }
        Ok(())
    }

    /// Notes what became of the last checkpoint. Is one under way?
    pub(crate) fn note_finished(&mut self) -> bool {
        let running = self.checkpoints.running.as_ref();
        if running.is_some_and(JoinHandle::is_finished) {
            // Its outcome is noted; it is repeated when it is due.
            let _ = self.join_checkpoint();
        }
        self.note_image();
        self.checkpoints.running.is_some()
    }

    /// Was anything appended since the last checkpoint began?
    pub(crate) fn is_behind(&self) -> bool {
        self.log.appended() > self.checkpoints.mark
    }

    /// Did the last one fail?
    pub(crate) fn checkpoint_failed(&self) -> bool {
        self.checkpoints.failed.is_some()
    }

    /// Is so much behind that one is due, however old the last one is?
    pub(crate) fn is_due_by_size(&self) -> bool {
        let limit = self.options.checkpoint_bytes.max(1);
        let changed = self.core.index.active_bytes() as u64;
        let since = self.log.appended() - self.checkpoints.mark;
        // The second condition paces repetitions of one that fails.
        (changed >= limit && since >= limit / 8) || since >= limit.saturating_mul(LOG_SHARE)
    }

    fn is_due(&mut self, now: Time) -> bool {
        let since = self.log.appended() - self.checkpoints.mark;
        let begun = *self.checkpoints.at.get_or_insert(now);
        let age_ns = now.saturating_sub(begun);
        let old = self.options.checkpoint_ms > 0
            && age_ns >= self.options.checkpoint_ms.saturating_mul(NS_PER_MS);
        self.is_due_by_size() || (old && (since > 0 || self.checkpoint_failed()))
    }

    /// Begins a checkpoint of everything applied so far, or goes on with the one that failed.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<(), StoreError> {
        if self.healing.is_at_work() {
            // The index that is being made is that of the last checkpoint.
            return Ok(());
        }
        self.checkpoints.mark = self.log.appended();
        let result = self.log.write_out();
        if let Err(error) = result {
            self.checkpoints.failed = Some(error.clone());
            return Err(error);
        }
        if self.core.index.frozen().is_none() {
            self.put_state();
        }
        let Some(batch) = self.core.index.freeze() else {
            return Ok(());
        };
        let syncer = self.log.syncer().clone();
        let engine = self.core.index.engine().clone();
        let mutant = self.options.mutant;
        if mutant == Some(Mutant::RemovesEarly) {
            let dead = self.checkpoints.dead.iter();
            dead.for_each(|segment| drop(self.log.remove(*segment)));
        }
        let work = move || {
            if mutant != Some(Mutant::CheckpointsUnsynced) {
                syncer.sync()?;
            }
            engine.commit(&batch)
        };
        if self.memory.is_some() {
            let result = work();
            self.end_checkpoint(result)
        } else {
            let thread = std::thread::Builder::new().name("checkpoint".to_owned());
            let spawned = thread.spawn(work);
            let spawned = spawned.map_err(|e| StoreError::io("start a thread", e));
            match spawned {
                Ok(running) => {
                    self.checkpoints.running = Some(running);
                    Ok(())
                }
                Err(error) => self.end_checkpoint(Err(error)),
            }
        }
    }

    /// The segments of which nothing is in use.
    pub(crate) fn dead(&mut self) -> Vec<u32> {
        self.note_segments();
        let live = self.core.index.live();
        let sealed = self.checkpoints.sealed(&self.log);
        sealed
            .filter(|segment| live.get(segment).is_none_or(|live| *live == 0))
            .collect()
    }

    /// Is there any of these that no checkpoint has found so?
    pub(crate) fn has_dead(&mut self) -> bool {
        self.note_segments();
        let live = self.core.index.live();
        let mut sealed = self.checkpoints.sealed(&self.log);
        sealed.any(|segment| {
            !self.images.is_waiting(segment) && live.get(&segment).is_none_or(|live| *live == 0)
        })
    }

    /// Every segment up to the last one exists or has been removed as dead.
    pub(crate) fn note_segments(&mut self) {
        let last = self.log.end().segment;
        let existing = &mut self.checkpoints.existing;
        let newest = existing.last().copied().unwrap_or(0);
        existing.extend(newest + 1..=last);
    }

    /// Puts what is kept beside the index into it.
    fn put_state(&mut self) {
        let end = self.log.end();
        let mut dead = self.dead();
        dead.retain(|segment| !self.images.is_waiting(*segment));
        self.checkpoints.dead = dead;
        self.checkpoints.pending = self.log.sequence();
        let core = &mut self.core;
        for segment in &self.checkpoints.dead {
            core.index.forget_borrowers(*segment);
        }
        core.note_end(end, self.log.sequence());
    }

    fn end_checkpoint(&mut self, result: Result<(), StoreError>) -> Result<(), StoreError> {
        if let Err(error) = &result {
            tracing::error!("a checkpoint failed and will be repeated: {error}");
            self.checkpoints.failed = Some(error.clone());
            return result;
        }
        self.core.index.thaw();
        self.checkpoints.failed = None;
        self.checkpoints.done += 1;
        self.checkpoints.committed = self.checkpoints.pending;
        self.cleaner.look_again();
        let dead = std::mem::take(&mut self.checkpoints.dead);
        self.keep_for_image();
        self.retire(dead);
        self.image_if_due();
        Ok(())
    }

    /// Waits for the checkpoint that is under way.
    pub(crate) fn join_checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(thread) = self.checkpoints.running.take() else {
            return Ok(());
        };
        let result = thread.join().unwrap_or_else(|_| {
            let died = std::io::Error::other("its thread ended early");
            Err(StoreError::io("make a checkpoint", died))
        });
        self.end_checkpoint(result)
    }

    /// Brings the index on the disk up to date with everything applied so far.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.join_healing();
        // A failure of the one under way is repeated here, and counts then.
        let _ = self.join_checkpoint();
        if self.core.index.frozen().is_some() {
            self.begin_checkpoint()?;
            self.join_checkpoint()?;
        }
        self.begin_checkpoint()?;
        self.join_checkpoint()
    }
}
