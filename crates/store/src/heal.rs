//! Making the index again while the store is open.
//!
//! The new index is made, on a thread of its own, as it was at the last checkpoint; later changes
//! lie in memory above either of them. So until the new one takes its place no checkpoint is made,
//! and nothing else is held up: only what needs a damaged part of the old one fails meanwhile.

use crate::embedded::Redb;
use crate::error::StoreError;
use crate::rebuild::{self, ASIDE, Until};
use crate::store::Store;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The state of it.
#[derive(Debug, Default)]
pub(crate) struct Healing {
    running: Option<JoinHandle<Result<(), StoreError>>>,
    /// It failed, and would fail again.
    given_up: bool,
    done: u64,
    /// How often engines that were replaced were found damaged.
    before: u64,
}

impl Healing {
    pub(crate) fn is_at_work(&self) -> bool {
        self.running.is_some()
    }

    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    pub(crate) fn before(&self) -> u64 {
        self.before
    }

    /// Waits for a thread at work, whatever comes of it.
    pub(crate) fn abandon(&mut self) {
        if let Some(thread) = self.running.take() {
            // Files that it leaves are removed when the partition is opened.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Has the index been found damaged, so that [`Store::tend`] should be called?
    pub fn ails(&self) -> bool {
        let engine = self.core.index.engine();
        engine.is_file() && engine.doubts() > 0 && !self.healing.given_up
    }

    /// Makes a damaged index again, or goes on with it. Is it at work?
    pub(crate) fn heal(&mut self) -> bool {
        if let Some(running) = &self.healing.running {
            if !running.is_finished() {
                return true;
            }
            self.join_healing();
        }
        if !self.ails() {
            return false;
        }
        // Both look at the engine that is to be replaced.
        let _ = self.join_checkpoint();
        self.join_images();
        tracing::error!("the index is damaged: it is made again from the log");
        let (files, options) = (self.log.files().clone(), self.options.clone());
        let until = Until::Record(self.checkpoints.committed());
        let work = move || rebuild::make(&files, &options, until);
        if self.memory.is_some() {
            let result = work();
            self.end_healing(result);
            return false;
        }
        let thread = std::thread::Builder::new().name("rebuild".to_owned());
        match thread.spawn(work) {
            Ok(running) => self.healing.running = Some(running),
            Err(e) => self.end_healing(Err(StoreError::io("start a thread", e))),
        }
        self.healing.is_at_work()
    }

    /// Waits for the index that is being made.
    pub(crate) fn join_healing(&mut self) {
        if let Some(thread) = self.healing.running.take() {
            let died = || {
                let died = std::io::Error::other("its thread ended early");
                Err(StoreError::io("make the index again", died))
            };
            let result = thread.join().unwrap_or_else(|_| died());
            self.end_healing(result);
        }
    }

    fn end_healing(&mut self, result: Result<(), StoreError>) {
        match result.and_then(|()| self.exchange_engine()) {
            Ok(()) => {
                self.healing.done += 1;
                tracing::warn!(
                    "the index has been made again; the damaged one is kept as `{ASIDE}`"
                );
            }
            Err(error) => {
                self.healing.given_up = true;
                tracing::error!(
                    "the index cannot be made again: {error}. Requests that need its damaged part \
                     fail; stop the server and run `ariel fsck --repair --dry-run` on its data"
                );
            }
        }
    }

    fn exchange_engine(&mut self) -> Result<(), StoreError> {
        let files = self.log.files().clone();
        rebuild::replace(&*files)?;
        let engine = Redb::new(files, self.options.index_cache_bytes)?;
        let old = self.core.index.exchange_engine(Arc::new(engine));
        self.healing.before += old.doubts();
        Ok(())
    }
}
