//! Takes back what the kernel caches. Writing a notification can wait for a request to be
//! answered (dropping a name needs the directory's lock, which the kernel holds during CREATE;
//! dropping a page waits for a READ or WRITE of it), so:
//!
//! - a notification is never written by a thread that serves requests (refused with EDEADLK),
//!   and must not be written under a lock that answering a request needs;
//! - jobs are done by pools that grow while their threads are blocked, one for each kind of lock:
//!   one blocked notification never delays another;
//! - raising the epoch of all names takes no lock and is never behind a job that does. Afterwards
//!   each name is looked up again at its next use, at the price of one look-up each.
//!
//! A job is reported done exactly once, after its last effect. Before anything is written, every
//! answer given so far has reached the kernel: it would take in what is taken back here after all.

mod pool;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::error;
use zerocopy::IntoBytes;

use crate::abi::{self, InvalEntryOut, InvalInodeOut, OutHeader, PruneOut, StoreOut};
use crate::device::{self, Device};
use crate::init::Negotiated;
use crate::uring::MaybeLanes;

use pool::Pool;

/// Most threads blocked in notifications at once.
const THREADS_MAX: usize = 64;
/// Most threads raising the epoch.
const FINISHERS_MAX: usize = 4;
/// How long an inode whose first reply may still be on its way is waited for...
const YOUNG_WAIT: Duration = Duration::from_millis(10);
/// ...and how often it is tried meanwhile.
const YOUNG_PAUSE: Duration = Duration::from_micros(200);

/// What is to be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages and attributes of a file.
    Inode {
        /// The file.
        nodeid: u64,
        /// (offset, length) of each range: offset -1 is the attributes alone, length 0 all to
        /// the end. Attributes go with every range.
        ranges: Vec<(i64, i64)>,
        /// The reply that makes the kernel know this node may still be on its way.
        young: bool,
    },
    /// One name in a directory, present or absent. Done when the directory's lock was got.
    Entry {
        /// The directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
        /// The directory's attributes and cached listing are to go as well, after the name.
        attr: bool,
    },
    /// Attributes of a file, and the answers about them that are on their way, with a turn at the
    /// file's lock before and one after.
    Sizes {
        /// The file.
        nodeid: u64,
    },
    /// Nothing. Done when the lock of the file or directory was got.
    Turn {
        /// The file or directory.
        nodeid: u64,
    },
    /// All names of the mount.
    Epoch,
    /// What nobody uses of these inodes, with their names. Nothing where the kernel cannot be told
    /// so (before Linux 6.18).
    Unused {
        /// The inodes.
        nodeids: Vec<u64>,
    },
    /// The kernel is not to believe that a file ends before this. It sets its size, and from then
    /// on throws away the answers to all questions about the file that it has asked before.
    Grown {
        /// The file.
        nodeid: u64,
        /// Its size, at least 1.
        size: u64,
    },
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel no longer has it (or never had).
    Done,
    /// The same, but by raising the epoch of all names.
    Epoch,
    /// The kernel may still have it.
    Failed(Errno),
}

/// Something to take back, and whom to tell.
pub struct Job {
    /// What.
    pub kind: Kind,
    /// Told exactly once, on a thread of the pool.
    pub done: Box<dyn FnOnce(Outcome) + Send>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Notifications so far.
#[derive(Debug, Default)]
pub struct NotifyCounters {
    /// Jobs submitted.
    pub submitted: AtomicU64,
    /// Jobs reported done.
    pub completed: AtomicU64,
    /// Inode notifications written.
    pub inode: AtomicU64,
    /// Entry notifications written.
    pub entry: AtomicU64,
    /// Epoch notifications written.
    pub epoch: AtomicU64,
    /// Inodes that the kernel was asked to let go of if nobody uses them.
    pub unused: AtomicU64,
    /// Sizes told.
    pub grown: AtomicU64,
    /// Notifications about what the kernel did not know.
    pub not_known: AtomicU64,
    /// Repetitions for young inodes.
    pub young_retries: AtomicU64,
    /// Notifications the kernel refused.
    pub failed: AtomicU64,
}

/// Writes notifications. Clones share everything.
#[derive(Clone, Debug)]
pub struct Notifier {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Arc<Device>,
    lanes: MaybeLanes,
    has_epoch: bool,
    has_prune: bool,
    counters: NotifyCounters,
    /// Threads that may wait for pages.
    writers: Pool,
    /// Threads that may wait for directories.
    entries: Pool,
    /// Threads that wait for nothing but the pages of a listing.
    finishers: Pool,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Notifier {
    pub(crate) fn new(
        device: Arc<Device>,
        lanes: MaybeLanes,
        negotiated: &Negotiated,
    ) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            device,
            lanes,
            has_epoch: negotiated.inc_epoch,
            has_prune: negotiated.prune,
            counters: NotifyCounters::default(),
            writers: Pool::new("ariel-notify", THREADS_MAX),
            entries: Pool::new("ariel-entry", THREADS_MAX),
            finishers: Pool::new("ariel-epoch", FINISHERS_MAX),
        });
        inner.writers.start()?;
        inner.entries.start()?;
        inner.finishers.start()?;
        Ok(Notifier { inner })
    }

    /// Returns when every answer given so far has reached the kernel. Waits for threads that serve
    /// requests, and those wait for nobody.
    pub fn settle(&self) {
        self.inner.settle();
    }

    /// Notifications so far.
    #[must_use]
    pub fn counters(&self) -> &NotifyCounters {
        &self.inner.counters
    }

    /// Whether the kernel has `NOTIFY_INC_EPOCH`.
    #[must_use]
    pub fn has_epoch(&self) -> bool {
        self.inner.has_epoch
    }

    /// Drops a file's attributes and a range of its pages (offset -1: attributes only; length 0:
    /// to the end). ENOENT: the kernel does not know the file. May block; EDEADLK on a thread
    /// that serves requests.
    pub fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> std::io::Result<()> {
        Ok(self.inner.inval_inode(nodeid, offset, len)?)
    }

    /// Drops a name. ENOENT: the kernel does not know the name. May block; EDEADLK on a thread
    /// that serves requests.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> std::io::Result<()> {
        Ok(self.inner.inval_entry(parent, name)?)
    }

    /// Has every name looked up again. Never blocks. EINVAL where the kernel lacks it.
    pub fn inc_epoch(&self) -> std::io::Result<()> {
        Ok(self.inner.inc_epoch()?)
    }

    /// Has a job done by the pool. Never blocks, and may be called anywhere.
    pub fn submit(&self, job: Job) {
        let inner = &self.inner;
        count(&inner.counters.submitted);
        match job.kind {
            Kind::Entry { parent, name, attr } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.entries.run(Box::new(move || {
                    let outcome = task.take_back_entry(parent, &name, attr);
                    task.finish(done, outcome);
                }));
            }
            Kind::Sizes { nodeid } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.entries.run(Box::new(move || {
                    let outcome = task.take_back_sizes(nodeid);
                    task.finish(done, outcome);
                }));
            }
            Kind::Turn { nodeid } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.entries.run(Box::new(move || {
                    let outcome = task.take_turn(nodeid);
                    task.finish(done, outcome);
                }));
            }
            Kind::Inode {
                nodeid,
                ranges,
                young,
            } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.writers.run(Box::new(move || {
                    let outcome = task.take_back_inode(nodeid, &ranges, young);
                    task.finish(done, outcome);
                }));
            }
            Kind::Grown { nodeid, size } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.writers.run(Box::new(move || {
                    let outcome = match task.grown(nodeid, size) {
                        Ok(()) | Err(Errno::NOENT) => Outcome::Done,
                        Err(errno) => Outcome::Failed(errno),
                    };
                    task.finish(done, outcome);
                }));
            }
            Kind::Unused { nodeids } => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.writers.run(Box::new(move || {
                    let outcome = task.let_go(&nodeids);
                    task.finish(done, outcome);
                }));
            }
            Kind::Epoch => {
                let (task, done) = (Arc::clone(inner), job.done);
                inner.finishers.run(Box::new(move || {
                    let outcome = match task.inc_epoch() {
                        Ok(()) => Outcome::Epoch,
                        Err(errno) => Outcome::Failed(errno),
                    };
                    task.finish(done, outcome);
                }));
            }
        }
    }
}

impl Inner {
    fn finish(&self, done: Box<dyn FnOnce(Outcome) + Send>, outcome: Outcome) {
        count(&self.counters.completed);
        done(outcome);
    }

    fn settle(&self) {
        if let Some(lanes) = self.lanes.get() {
            lanes.settle();
        }
    }

    fn write(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        self.settle();
        let len = size_of::<OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let head = OutHeader {
            len: len as u32,
            error: code,
            unique: 0,
        };
        let mut message = Vec::with_capacity(1 + parts.len());
        message.push(IoSlice::new(head.as_bytes()));
        message.extend(parts.iter().map(|part| IoSlice::new(part)));
        let result = self.device.write(&message);
        match result {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => count(&self.counters.not_known),
            Err(errno) => {
                count(&self.counters.failed);
                error!(code, %errno, "the kernel refused a notification");
            }
        }
        result
    }

    fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> Result<(), Errno> {
        refuse_serving_thread()?;
        count(&self.counters.inode);
        let body = InvalInodeOut {
            nodeid,
            offset,
            len,
        };
        self.write(abi::notify::INVAL_INODE, &[body.as_bytes()])
    }

    fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        refuse_serving_thread()?;
        if name.is_empty() || name.len() > abi::NAME_LEN_MAX {
            return Err(Errno::INVAL);
        }
        count(&self.counters.entry);
        let body = InvalEntryOut {
            parent,
            namelen: name.len() as u32,
            flags: 0,
        };
        self.write(abi::notify::INVAL_ENTRY, &[body.as_bytes(), name, &[0]])
    }

    /// Stores the last byte of the file, and withholds it: the kernel first sets the size, which is
    /// all that is wanted; what the byte is may have changed by now.
    fn grown(&self, nodeid: u64, size: u64) -> Result<(), Errno> {
        refuse_serving_thread()?;
        count(&self.counters.grown);
        let body = StoreOut {
            nodeid,
            offset: size.checked_sub(1).ok_or(Errno::INVAL)?,
            size: 1,
            padding: 0,
        };
        let head = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<StoreOut>() + 1) as u32,
            error: abi::notify::STORE,
            unique: 0,
        };
        self.settle();
        self.device.write_but_last(head.as_bytes(), body.as_bytes())
    }

    fn let_go(&self, nodeids: &[u64]) -> Outcome {
        if !self.has_prune {
            return Outcome::Done;
        }
        let count = nodeids.len() as u32;
        self.counters
            .unused
            .fetch_add(count.into(), Ordering::Relaxed);
        let body = PruneOut {
            count,
            ..PruneOut::default()
        };
        match self.write(abi::notify::PRUNE, &[body.as_bytes(), nodeids.as_bytes()]) {
            Ok(()) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    fn inc_epoch(&self) -> Result<(), Errno> {
        if !self.has_epoch {
            return Err(Errno::INVAL);
        }
        count(&self.counters.epoch);
        self.write(abi::notify::INC_EPOCH, &[])
    }

    /// The name, then what depends on it.
    fn take_back_entry(&self, parent: u64, name: &[u8], attr: bool) -> Outcome {
        let outcome = match self.inval_entry(parent, name) {
            // A name the kernel does not know is not cached.
            Ok(()) | Err(Errno::NOENT) => Outcome::Done,
            Err(_) if self.inc_epoch().is_ok() => Outcome::Epoch,
            Err(errno) => Outcome::Failed(errno),
        };
        match attr.then(|| self.inval_inode(parent, 0, 0)) {
            None | Some(Ok(()) | Err(Errno::NOENT)) => outcome,
            Some(Err(errno)) => Outcome::Failed(errno),
        }
    }

    /// Drops a name that cannot be: all that the kernel does is to get the lock, also that of a
    /// file, in which it then looks for no name. (So Linux up to 6.18. Later ones look before they
    /// lock; there it is no proof.)
    fn take_turn(&self, nodeid: u64) -> Outcome {
        match self.inval_entry(nodeid, b"/") {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// In one go: who gets the lock after the first turn has little time to ask before the
    /// attributes are taken back.
    fn take_back_sizes(&self, nodeid: u64) -> Outcome {
        let before = self.take_turn(nodeid);
        match self.inval_inode(nodeid, -1, 0) {
            Ok(()) if before == Outcome::Done => self.take_turn(nodeid),
            Ok(()) => before,
            Err(Errno::NOENT) => Outcome::Done,
            Err(errno) => Outcome::Failed(errno),
        }
    }

    /// Each range in turn. A file the kernel does not know has nothing cached, unless the reply
    /// that tells of it has been written and not yet been digested: that takes microseconds, so
    /// it is waited for a little; after that, all names are looked up again, which brings fresh
    /// attributes with it.
    fn take_back_inode(&self, nodeid: u64, ranges: &[(i64, i64)], young: bool) -> Outcome {
        let give_up = Instant::now() + YOUNG_WAIT;
        for &(offset, len) in ranges {
            loop {
                match self.inval_inode(nodeid, offset, len) {
                    Ok(()) => break,
                    Err(Errno::NOENT) if !young => break,
                    Err(Errno::NOENT) if Instant::now() < give_up => {
                        count(&self.counters.young_retries);
                        std::thread::sleep(YOUNG_PAUSE);
                    }
                    Err(Errno::NOENT) => {
                        return if self.inc_epoch().is_ok() {
                            Outcome::Epoch
                        } else {
                            Outcome::Done
                        };
                    }
                    Err(errno) => return Outcome::Failed(errno),
                }
            }
        }
        Outcome::Done
    }
}

fn refuse_serving_thread() -> Result<(), Errno> {
    if device::is_serving_thread() {
        Err(Errno::DEADLK)
    } else {
        Ok(())
    }
}
