//! Calls back when a deadline comes.
//!
//! Guarantees: the callback runs on one thread, never earlier than the earliest deadline that was
//! set, and soon after it. A deadline that is not earlier than the pending one costs one atomic
//! load: the callback, which runs at the pending one, returns what is then next.
//!
//! Why that load is enough: the thread clears `next_ns` before it calls back. Whoever still reads
//! the old value changed the machine (under its lock) before a callback that is yet to take that
//! lock, so the callback sees the change and its result covers it.

use crate::clock;
use crate::worker::Worker;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No deadline.
const NEVER_NS: u64 = u64::MAX;

struct Shared {
    /// The pending deadline. Lowered only under the lock, or waiting would miss it.
    next_ns: AtomicU64,
    stopping: Mutex<bool>,
    changed: Condvar,
}

/// A thread that waits for the earliest deadline.
pub struct Timer {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Timer {
    /// Starts without a deadline. `on_deadline` returns the next one in nanoseconds of
    /// [`clock::now_ns`], if there is any.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(on_deadline: Box<dyn Fn() -> Option<u64> + Send>) -> io::Result<Timer> {
        let shared = Arc::new(Shared {
            next_ns: AtomicU64::new(NEVER_NS),
            stopping: Mutex::new(false),
            changed: Condvar::new(),
        });
        let worker = {
            let shared = Arc::clone(&shared);
            Worker::start("net-timer", move || run(&shared, &*on_deadline))?
        };
        Ok(Timer { shared, worker })
    }

    /// The callback is wanted at `deadline_ns`, or earlier if that was set before.
    pub fn set(&self, deadline_ns: u64) {
        self.shared.set(deadline_ns);
    }

    /// Ends the thread and waits for it. Called from the callback, it does not wait.
    pub fn stop(&self) {
        *self.shared.stopping.lock() = true;
        self.shared.changed.notify_all();
        self.worker.join();
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn set(&self, deadline_ns: u64) {
        if deadline_ns >= self.next_ns.load(Ordering::Acquire) {
            return;
        }
        // Under the lock, so that the thread is not between reading the deadline and waiting.
        let _stopping = self.stopping.lock();
        if self.next_ns.fetch_min(deadline_ns, Ordering::AcqRel) > deadline_ns {
            self.changed.notify_all();
        }
    }
}

fn run(shared: &Shared, on_deadline: &(dyn Fn() -> Option<u64> + Send)) {
    loop {
        {
            let mut stopping = shared.stopping.lock();
            loop {
                if *stopping {
                    return;
                }
                let next_ns = shared.next_ns.load(Ordering::Acquire);
                let now_ns = clock::now_ns();
                if next_ns <= now_ns {
                    break;
                }
                if next_ns == NEVER_NS {
                    shared.changed.wait(&mut stopping);
                } else {
                    let left = Duration::from_nanos(next_ns - now_ns);
                    shared.changed.wait_for(&mut stopping, left);
                }
            }
            shared.next_ns.store(NEVER_NS, Ordering::Release);
        }
        if let Some(deadline_ns) = on_deadline() {
            shared.set(deadline_ns);
        }
    }
}
