//! A store that is served: its machine, its lock, and the threads that work for it.
//!
//! Guarantees: a partition that was stopped has left nothing in memory: its store is closed, so
//! that another server can open it elsewhere. Partitions share the listener, and know what each has
//! promised of the disk: none waits for the lock of another one, unless the disk is nearly full.

use crate::core::Core;
use crate::held::HeldLog;
use crate::scrub::Scrub;
use crate::sharing::Sharing;
use crate::state::State;
use crate::sync::SyncThread;
use crate::{EPOCHS_OF_A_BOOT, Gate, MachineOptions, Policy, StartError, StopError, runs};
use net::Timer;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Store;
use wire::{Epoch, Place};

/// The things that all partitions of a server have in common.
pub(crate) struct Common {
    pub(crate) gate: Gate,
    pub(crate) machine: MachineOptions,
    pub(crate) sharing: Arc<Sharing>,
    /// How clients lend blocks of their caches to each other.
    pub(crate) policy: Mutex<Policy>,
}

/// A store that is served.
pub(crate) struct Partition {
    pub(crate) core: Arc<Core>,
    syncs: SyncThread,
    scrub: Scrub,
    pub(crate) data: PathBuf,
    /// The number of its first volume.
    pub(crate) first_volume: u32,
    /// The first thread that stops it does it all; others wait.
    stopped: Mutex<bool>,
}

impl Partition {
    /// Serves a store that has just been opened.
    pub(crate) fn start(
        data: &Path,
        mut store: Store,
        common: &Common,
        on_failure: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Partition, StartError> {
        let boot = store.boot() << EPOCHS_OF_A_BOOT;
        let left = left_of_runs(data, boot, &store)?;
        if store.boot() > 1 {
            store.pass_over_numbers()?;
        }
        if let Gate::Cell(machines) = &common.gate {
            store.set_members(machines.members());
        }
        let (known, away) = (store.sessions(), store.away());
        let (held_log, held) = HeldLog::open(data, &known);
        tell_who_is_waited_for(known.len(), held.as_ref().map(Vec::len));
        let syncer = store.sync_handle();
        let now = net::clock::now_ns();
        let (root, newest) = (store.root(), store.newest());
        warn_if_set_back(newest);
        let (place, known) = ((boot, root), (known, newest));
        let machine = logic::server::Server::new(common.machine.clone(), now, place, known);
        let machine = machine.of_machines(store.machines());
        let machine = machine.knowing(held).after(left).without(&away);
        let share = common.sharing.join();
        let state = State::new((machine, common.gate.clone()), store, held_log, share);
        let core = Arc::new(Core::new(state, on_failure));
        let syncs = SyncThread::start(&core, syncer).map_err(StartError::Thread)?;
        let timer = {
            let core = Arc::downgrade(&core);
            let on_deadline = move || core.upgrade().and_then(|core| core.on_deadline());
            Timer::new(Box::new(on_deadline)).map_err(StartError::Thread)?
        };
        core.begin(timer);
        let scrub = Scrub::start(&core).map_err(StartError::Thread)?;
        Ok(Partition {
            core,
            syncs,
            scrub,
            data: data.to_owned(),
            first_volume: root.volume,
            stopped: Mutex::new(false),
        })
    }

    /// Ends in order: connections are closed, the store is checkpointed and closed. A second call
    /// does nothing, and says false.
    pub(crate) fn stop(&self) -> Result<bool, StopError> {
        let mut stopped = self.stopped.lock();
        if std::mem::replace(&mut *stopped, true) {
            return Ok(false);
        }
        self.scrub.stop();
        self.syncs.stop(&self.core);
        self.core.end_timer();
        match self.core.end() {
            Ok(Some(store)) => store.close()?,
            Ok(None) => {}
            Err(reason) => return Err(StopError::Failed(reason)),
        }
        Ok(true)
    }

    /// Checks the store as its last checkpoint left it.
    pub(crate) fn check(&self) -> Result<store::Report, String> {
        let goes_on = || self.stopped.try_lock().is_some_and(|stopped| !*stopped);
        self.core.check(&mut |_| goes_on())
    }
}

/// The ends at which the logs of the latest runs were left; this run is noted with them.
fn left_of_runs(data: &Path, boot: Epoch, store: &Store) -> Result<Vec<Place>, StartError> {
    let left = runs::begin(data, boot, store.left_record());
    left.map_err(|error| StartError::Runs(data.join("runs"), error))
}

/// `may_hold`: how many rights they may hold, if that is known.
fn tell_who_is_waited_for(sessions: usize, may_hold: Option<usize>) {
    if sessions > 0 {
        tracing::info!(
            sessions,
            may_hold,
            "waiting for the clients of the last run"
        );
    }
}

/// The clock was set back since the last run, or was wrong then.
fn warn_if_set_back(newest: u64) {
    let behind_ns = newest.saturating_sub(net::clock::wall_ns());
    if behind_ns > 1_000_000_000 {
        let seconds = behind_ns / 1_000_000_000;
        tracing::warn!(
            seconds,
            "the clock of this machine is behind the latest time in the store: the times of files \
             go on from that one, more slowly until the clock has caught up. If the clock is \
             wrong, set it and start again"
        );
    }
}
