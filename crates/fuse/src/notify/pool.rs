//! Threads that may block. A task is begun at once if a thread is free or another may be started:
//! the pool has as many threads as tasks are blocked, plus the few it keeps. Threads that have
//! had nothing to do for a while end. Tasks begin in the order they were given.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::realtime;
use crate::idle_policy;
use parking_lot::{Condvar, Mutex};
use tracing::{error, warn};

/// Threads kept when there is nothing to do.
const KEPT: usize = 2;
/// Idle time after which a thread beyond those ends.
const IDLE_END: Duration = Duration::from_secs(10);

/// Something to do that may block.
pub(super) type Task = Box<dyn FnOnce() + Send>;

/// A handle that closes the pool when dropped.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: &'static str,
    threads_max: usize,
    /// Its threads wait for locks that others may take away from them: they begin as
    /// [`realtime::be_eager`] says, and are to be calm when they have what they wait for.
    eager: bool,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Threads waiting for a task; each takes one when woken.
    idle: usize,
    threads: usize,
    closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("queued", &self.queue.len())
            .field("idle", &self.idle)
            .field("threads", &self.threads)
            .finish()
    }
}

impl Pool {
    pub(super) fn new(name: &'static str, threads_max: usize, eager: bool) -> Self {
        let shared = Shared {
            name,
            threads_max,
            eager,
            state: Mutex::default(),
            wake: Condvar::new(),
        };
        Pool {
            shared: Arc::new(shared),
        }
    }

    /// Starts the threads that are kept; without them nothing would ever run.
    pub(super) fn start(&self) -> std::io::Result<()> {
        for _ in 0..KEPT {
            self.shared.state.lock().threads += 1;
            if let Err(error) = spawn(&self.shared) {
                self.shared.state.lock().threads -= 1;
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn run(&self, task: Task) {
        let mut state = self.shared.state.lock();
        state.queue.push_back(task);
        let grow = state.queue.len() > state.idle && state.threads < self.shared.threads_max;
        if grow {
            state.threads += 1;
        }
        drop(state);
        self.shared.wake.notify_one();
        if grow && let Err(error) = spawn(&self.shared) {
            self.shared.state.lock().threads -= 1;
            warn!(%error, "no further thread for notifications; some will wait");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

fn spawn(shared: &Arc<Shared>) -> std::io::Result<()> {
    let work = Arc::clone(shared);
    let thread = std::thread::Builder::new().name(shared.name.to_owned());
    let run = move || {
        // A lane may have started it.
        idle_policy::be_ordinary();
        if work.eager {
            client::priority::go_before_others();
        }
        work.run();
    };
    thread.spawn(run).map(drop)
}

impl Shared {
    fn run(&self) {
        loop {
            if self.eager {
                realtime::be_eager();
            }
            let Some(task) = self.next() else {
                return;
            };
            // The thread is counted; a panicking task must not take it along uncounted.
            if catch_unwind(AssertUnwindSafe(task)).is_err() {
                error!("a notification's completion panicked");
            }
        }
    }

    /// The next task, or `None` when this thread is to end.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                return Some(task);
            }
            if state.closed {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let timed_out = self.wake.wait_for(&mut state, IDLE_END).timed_out();
            state.idle -= 1;
            if timed_out && state.queue.is_empty() && state.threads > KEPT {
                state.threads -= 1;
                return None;
            }
        }
    }
}
