//! Checks of the store beside its work: all of it is read over and over, slowly, so that what rots
//! is found while there is still a copy to put it right from; and at once, when somebody asks.
//!
//! Guarantees: the server's lock is held only to begin and to note what was found; the thread does
//! not run any more when `stop` has returned.

use crate::core::Core;
use crate::state::{After, State};
use net::Worker;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use store::Report;
use wire::Time;

/// The first check begins so long after the start.
const FIRST: Duration = Duration::from_secs(10 * 60);
/// From the end of a check to the next one.
const PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// No more is read in a second; of a store that changes so fast that a check had to give way, four
/// times as much in the next attempt.
const BYTES_PER_SECOND: u64 = 8 << 20;
const FASTER: u64 = 4;
/// So much is read at a time, and then waited for.
const PORTION_BYTES: u64 = 256 << 10;
/// Most damages of one check that are told one by one.
const TOLD_MAX: usize = 50;

/// The findings of checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// One is under way.
    pub running: bool,
    /// How many have ended.
    pub done: u64,
    /// Bytes that they have looked at.
    pub bytes: u64,
    /// When the last one ended.
    pub ended: Time,
    /// Damages that it found.
    pub damages: u64,
    /// Pieces of files that a repair has noted as lost.
    pub losses: u64,
}

/// The thread that checks again and again.
pub(crate) struct Scrub {
    worker: Worker,
    ending: Arc<Ending>,
}

/// Says that it is time to end.
#[derive(Default)]
struct Ending {
    now: Mutex<bool>,
    changed: Condvar,
}

impl Ending {
    /// Waits this long. Is it time to end?
    fn wait(&self, time: Duration) -> bool {
        let mut now = self.now.lock();
        if !*now {
            self.changed.wait_for(&mut now, time);
        }
        *now
    }
}

impl Scrub {
    pub(crate) fn start(core: &Arc<Core>) -> io::Result<Scrub> {
        let ending = Arc::new(Ending::default());
        let worker = {
            let (core, ending) = (Arc::downgrade(core), Arc::clone(&ending));
            Worker::start("scrub", move || scrub(&core, &ending))?
        };
        Ok(Scrub { worker, ending })
    }

    pub(crate) fn stop(&self) {
        *self.ending.now.lock() = true;
        self.ending.changed.notify_all();
        self.worker.join();
    }
}

fn scrub(core: &Weak<Core>, ending: &Ending) {
    let (mut pause, mut rate) = (FIRST, BYTES_PER_SECOND);
    // A spurious waking only makes a check earlier.
    while !ending.wait(pause) {
        let Some(core) = core.upgrade() else {
            return;
        };
        let mut portion = 0;
        let checked = core.check(&mut |bytes| {
            portion += bytes;
            let due = portion >= PORTION_BYTES;
            let time = Duration::from_millis(portion * 1000 / rate);
            portion = if due { 0 } else { portion };
            !(due && ending.wait(time))
        });
        (pause, rate) = match checked {
            Ok(_) => (PAUSE, BYTES_PER_SECOND),
            Err(error) => {
                tracing::info!("the store was not checked to the end: {error}");
                (FIRST, rate.saturating_mul(FASTER))
            }
        };
    }
}

impl Core {
    /// Checks the store as its last checkpoint left it, and has done what can be done about what is
    /// found. `pace`: called with how many bytes were looked at; says whether to go on.
    pub(crate) fn check(&self, pace: &mut dyn FnMut(u64) -> bool) -> Result<Report, String> {
        let checker = self.enter(|state, _| state.begin_check())?;
        let mut bytes = 0;
        let report = checker.run(&mut |more| {
            bytes += more;
            pace(more)
        });
        // The checker lets go of the store before anything is done about its findings.
        drop(checker);
        self.enter(|state, after| state.end_check(report.as_ref(), bytes, after));
        report.ok_or_else(|| {
            "it ended early: the server ends, the disk is full, or too much changes; try again"
                .to_owned()
        })
    }
}

impl State {
    fn begin_check(&mut self) -> Result<store::Checker, String> {
        let Some(store) = &self.store else {
            return Err("the server has stopped serving".to_owned());
        };
        if self.checks.running {
            return Err("another check is under way, see `ariel status`".to_owned());
        }
        let checker = store.checker().map_err(|error| error.to_string())?;
        self.checks.running = true;
        Ok(checker)
    }

    fn end_check(&mut self, report: Option<&Report>, bytes: u64, after: &mut After) {
        self.checks.running = false;
        self.checks.bytes += bytes;
        let Some(report) = report else {
            return;
        };
        self.checks.done += 1;
        self.checks.ended = net::clock::wall_ns();
        self.checks.damages = report.damages.len() as u64 + report.more;
        self.checks.losses = report.losses.len() as u64 + report.more_losses;
        let damages = self.checks.damages;
        for damage in report.damages.iter().take(TOLD_MAX) {
            tracing::error!("a check found: {damage}");
        }
        match damages {
            0 => tracing::info!(bytes, objects = report.objects, "a check found no damage"),
            _ => tracing::error!(damages, "a check found damage"),
        }
        if let Some(store) = &mut self.store {
            store.mend(report);
        }
        self.care(after);
    }
}
