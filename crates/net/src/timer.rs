//! Calls back when a deadline comes.
//!
//! Guarantees: the callback runs on one thread, never earlier than the earliest deadline that was
//! set, and soon after it. A deadline that is not earlier than the pending one costs one atomic
//! load: the callback, which runs at the pending one, returns what is then next. A deadline that
//! passed while the machine slept has come when it wakes up: the kernel's timer is one of the
//! clock that does not stand still.
//!
//! Why that load is enough: the thread clears `next_ns` before it calls back. A thread that still
//! reads the old value changed the machine (under its lock) before a callback that is yet to take
//! that lock, so the callback sees the change and its result covers it.

use crate::clock;
use crate::worker::Worker;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No deadline.
const NEVER_NS: u64 = u64::MAX;
const SECOND_NS: u64 = 1_000_000_000;

struct Shared {
    /// The pending deadline. Lowered only under the lock, or the timer would be set to a later one.
    next_ns: AtomicU64,
    stopping: Mutex<bool>,
    /// Expires at the pending deadline.
    timer: OwnedFd,
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
    /// No thread can be started, or no descriptor is free.
    pub fn new(on_deadline: Box<dyn Fn() -> Option<u64> + Send>) -> io::Result<Timer> {
        let shared = Arc::new(Shared {
            next_ns: AtomicU64::new(NEVER_NS),
            stopping: Mutex::new(false),
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?,
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
        {
            let mut stopping = self.shared.stopping.lock();
            *stopping = true;
            self.shared.expire_at(1);
        }
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
        let stopping = self.stopping.lock();
        if self.next_ns.fetch_min(deadline_ns, Ordering::AcqRel) > deadline_ns && !*stopping {
            self.expire_at(deadline_ns);
        }
    }

    fn expire_at(&self, at_ns: u64) {
        // A time of zero would be none at all.
        let at_ns = at_ns.max(1);
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: (at_ns / SECOND_NS) as i64,
                tv_nsec: (at_ns % SECOND_NS) as i64,
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)
            .expect("any time is a time of this timer");
    }

    /// Waits until the pending deadline has come. False: the timer was stopped.
    fn wait(&self) -> bool {
        loop {
            let mut expirations = [0; 8];
            match rustix::io::read(&self.timer, &mut expirations) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("the timer cannot be waited for: {error}"),
            }
            let stopping = self.stopping.lock();
            if *stopping {
                return false;
            }
            // It may have expired for a deadline that has been met already.
            if self.next_ns.load(Ordering::Acquire) <= clock::now_ns() {
                self.next_ns.store(NEVER_NS, Ordering::Release);
                return true;
            }
        }
    }
}

fn run(shared: &Shared, on_deadline: &(dyn Fn() -> Option<u64> + Send)) {
    while shared.wait() {
        if let Some(deadline_ns) = on_deadline() {
            shared.set(deadline_ns);
        }
    }
}
