//! Dropping one name, within milliseconds whatever the kernel is doing in the directory.
//!
//! A thread of the pool writes the notification; a watch thread looks at each such job a
//! millisecond later. Whoever is first (the written notification or the watch) *claims* the
//! job's end, and only the claimant goes on: the directory's attributes if they are to go too,
//! then the report. A watch that claims raises the epoch first, which has the same effect as
//! dropping the name and needs no lock; the blocked write is left to end by itself. Where the
//! kernel cannot raise the epoch nothing is watched, and the job takes as long as the write.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::{Inner, Outcome, count};

/// How long the write of an entry notification may take.
const WRITE_LATE: Duration = Duration::from_millis(1);
/// How long a job may wait for its thread: longer, as a loaded machine is no locked directory.
const START_LATE: Duration = Duration::from_millis(5);

type Done = Box<dyn FnOnce(Outcome) + Send>;

/// One name to drop.
pub(super) struct EntryJob {
    parent: u64,
    name: Vec<u8>,
    attr: bool,
    submitted: Instant,
    state: Mutex<EntryState>,
}

struct EntryState {
    /// When the write began.
    started: Option<Instant>,
    /// There until somebody claims the end of the job.
    done: Option<Done>,
}

impl EntryJob {
    pub(super) fn new(parent: u64, name: Vec<u8>, attr: bool, done: Done) -> Self {
        let state = Mutex::new(EntryState {
            started: None,
            done: Some(done),
        });
        EntryJob {
            parent,
            name,
            attr,
            submitted: Instant::now(),
            state,
        }
    }

    fn claim(&self) -> Option<Done> {
        self.state.lock().done.take()
    }

    /// Whether the write is still wanted; if so, it begins now.
    fn begin(&self) -> bool {
        let mut state = self.state.lock();
        state.started = Some(Instant::now());
        state.done.is_some()
    }

    /// When the job is late; `None` when it has ended.
    fn late_at(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.done.as_ref()?;
        Some(match state.started {
            Some(started) => started + WRITE_LATE,
            None => self.submitted + START_LATE,
        })
    }
}

impl Inner {
    pub(super) fn submit_entry(self: &Arc<Self>, job: Arc<EntryJob>, busy: bool) {
        if self.has_epoch && busy {
            let inner = Arc::clone(self);
            self.finishers.run(Box::new(move || {
                inner.end_by_epoch(&job);
            }));
            return;
        }
        if self.has_epoch {
            self.entries.watch(Arc::clone(&job));
        }
        let inner = Arc::clone(self);
        self.writers.run(Box::new(move || inner.write_entry(&job)));
    }

    fn write_entry(&self, job: &EntryJob) {
        if !job.begin() {
            return;
        }
        let written = self.inval_entry(job.parent, &job.name);
        let outcome = match written {
            // A name the kernel does not know is not cached.
            Ok(()) | Err(Errno::NOENT) => Outcome::Done,
            Err(_) if self.inc_epoch().is_ok() => Outcome::Epoch,
            Err(errno) => Outcome::Failed(errno),
        };
        if let Some(done) = job.claim() {
            self.end(job, done, outcome);
        }
    }

    /// Ends a job without touching the directory's lock. False if it had ended before.
    fn end_by_epoch(&self, job: &EntryJob) -> bool {
        let Some(done) = job.claim() else {
            return false;
        };
        let outcome = match self.inc_epoch() {
            Ok(()) => Outcome::Epoch,
            Err(errno) => Outcome::Failed(errno),
        };
        self.end(job, done, outcome);
        true
    }

    fn end(&self, job: &EntryJob, done: Done, outcome: Outcome) {
        let mut outcome = outcome;
        if job.attr {
            match self.inval_inode(job.parent, 0, 0) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => outcome = Outcome::Failed(errno),
            }
        }
        self.finish(done, outcome);
    }
}

/// The jobs watched, and the thread that watches them.
pub(super) struct Entries {
    inner: Weak<Inner>,
    watch: Arc<Watch>,
}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entries")
            .field("watched", &self.watch.state.lock().heap.len())
            .finish()
    }
}

#[derive(Default)]
struct Watch {
    state: Mutex<WatchState>,
    wake: Condvar,
}

#[derive(Default)]
struct WatchState {
    heap: BinaryHeap<Reverse<Watched>>,
    closed: bool,
}

/// A job, ordered by when to look at it.
struct Watched {
    at: Instant,
    job: Arc<EntryJob>,
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Watched {}
impl PartialOrd for Watched {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Watched {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Entries {
    pub(super) fn new(inner: Weak<Inner>) -> Self {
        Entries {
            inner,
            watch: Arc::new(Watch::default()),
        }
    }

    pub(super) fn start(&self) -> std::io::Result<()> {
        let (watch, inner) = (Arc::clone(&self.watch), self.inner.clone());
        let thread = std::thread::Builder::new().name("ariel-watch".to_owned());
        thread.spawn(move || watch.run(&inner)).map(drop)
    }

    fn watch(&self, job: Arc<EntryJob>) {
        let at = job.submitted + WRITE_LATE;
        let mut state = self.watch.state.lock();
        let wake = state.heap.peek().is_none_or(|first| at < first.0.at);
        state.heap.push(Reverse(Watched { at, job }));
        drop(state);
        if wake {
            self.watch.wake.notify_one();
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.watch.state.lock().closed = true;
        self.watch.wake.notify_one();
    }
}

impl Watch {
    fn run(&self, inner: &Weak<Inner>) {
        while let Some(job) = self.next() {
            // A job in the heap is also in the pool, whose tasks keep `Inner` alive, or has ended.
            let Some(inner) = inner.upgrade() else {
                continue;
            };
            let finish = Arc::clone(&inner);
            inner.finishers.run(Box::new(move || {
                if finish.end_by_epoch(&job) {
                    count(&finish.counters.entry_late);
                }
            }));
        }
    }

    /// The next job that is late, or `None` when the thread is to end.
    fn next(&self) -> Option<Arc<EntryJob>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            let Some(at) = state.heap.peek().map(|first| first.0.at) else {
                self.wake.wait(&mut state);
                continue;
            };
            if Instant::now() < at {
                self.wake.wait_until(&mut state, at);
                continue;
            }
            let Some(Reverse(Watched { job, .. })) = state.heap.pop() else {
                continue;
            };
            match job.late_at() {
                None => {}
                Some(late) if late <= Instant::now() => return Some(job),
                // Look again when it would be late, or when its thread may have begun.
                Some(late) => {
                    let at = late.min(Instant::now() + WRITE_LATE);
                    state.heap.push(Reverse(Watched { at, job }));
                }
            }
        }
    }
}
