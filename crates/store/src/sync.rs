//! Group commit: one sync of the log serves all callers that asked for one before it began.
//!
//! A caller that asks while a sync runs waits for the next one, since the running one may have
//! begun before its bytes were written; the first waiting caller then syncs for all. A sync that
//! failed is never repeated: the kernel may have dropped the pages and would report success the
//! second time.

use crate::disk::{Disk, Files};
use crate::error::StoreError;
use crate::options::Mutant;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Puts the log on stable storage, without the store. Clones share their work.
#[derive(Clone, Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    files: Arc<dyn Files>,
    /// A planted fault.
    mutant: Option<Mutant>,
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Segments written since they were last synced.
    dirty: BTreeMap<u32, Arc<dyn Disk>>,
    /// A segment was made since the names were last synced.
    names: bool,
    /// The last record that was handed to the operating system.
    written: u64,
    /// The last record that is on stable storage.
    stable: u64,
    running: bool,
    failed: bool,
    syncs: u64,
}

impl Syncer {
    pub(crate) fn new(files: Arc<dyn Files>, mutant: Option<Mutant>) -> Self {
        Self {
            shared: Arc::new(Shared {
                files,
                mutant,
                state: Mutex::default(),
                done: Condvar::new(),
            }),
        }
    }

    /// Returns when everything that was written out before this call is on stable storage.
    pub fn sync(&self) -> Result<(), StoreError> {
        let mut state = self.shared.state.lock();
        let wanted = state.written;
        loop {
            if state.failed {
                return Err(StoreError::SyncFailed);
            }
            if state.stable >= wanted && !state.names {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.shared.done.wait(&mut state);
        }
        state.running = true;
        let upto = state.written;
        let names = std::mem::take(&mut state.names);
        let dirty = std::mem::take(&mut state.dirty);
        drop(state);
        let result = self.sync_now(&dirty, names);
        let mut state = self.shared.state.lock();
        state.running = false;
        state.syncs += 1;
        match result {
            Ok(()) => state.stable = state.stable.max(upto),
            Err(_) => state.failed = self.shared.mutant != Some(Mutant::SyncsAgain),
        }
        self.shared.done.notify_all();
        result
    }

    fn sync_now(
        &self,
        dirty: &BTreeMap<u32, Arc<dyn Disk>>,
        names: bool,
    ) -> Result<(), StoreError> {
        if self.shared.mutant == Some(Mutant::SyncsNothing) {
            return Ok(());
        }
        let result = dirty.values().try_for_each(|disk| disk.sync());
        let result = match names {
            true => result.and_then(|()| self.shared.files.sync()),
            false => result,
        };
        result.map_err(|e| StoreError::io("sync the log", e))
    }

    /// A segment was made.
    pub(crate) fn made(&self) {
        self.shared.state.lock().names = self.shared.mutant != Some(Mutant::ForgetsNames);
    }

    /// Records up to this number were handed to the operating system.
    pub(crate) fn wrote(&self, segment: u32, disk: &Arc<dyn Disk>, written: u64) {
        let mut state = self.shared.state.lock();
        state.dirty.insert(segment, disk.clone());
        state.written = state.written.max(written);
    }

    /// The last record that is on stable storage.
    pub(crate) fn stable(&self) -> u64 {
        self.shared.state.lock().stable
    }

    /// Did a sync fail?
    pub(crate) fn failed(&self) -> bool {
        self.shared.state.lock().failed
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> u64 {
        self.shared.state.lock().syncs
    }
}
