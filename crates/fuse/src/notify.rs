//! Takes back what the kernel caches. Writing a notification can wait for a request to be
//! answered (dropping a name needs the directory's lock, which the kernel holds during CREATE;
//! dropping a page waits for a READ or WRITE of it), so:
//!
//! - a notification is never written by a thread that serves requests (refused with EDEADLK),
//!   and must not be written under a lock that answering a request needs;
//! - jobs are done by pools that grow while their threads are blocked, one for each kind of lock:
//!   one blocked notification never delays another;
//! - raising the epoch of all names takes no lock and is never behind a job that does. Afterwards
//!   each name is dropped at its next use, and looked up anew. A mount on it is unmounted, and a
//!   program that works in it is nowhere for a moment: so it is the last resort.
//!
//! A job is reported done exactly once, after its last effect. Before anything is written, every
//! answer given so far has reached the kernel: it would take in what is taken back here after all.

mod jobs;
mod pool;
mod realtime;

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The objects to take back.
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
    /// That these names in a directory are right, which they are: the kernel asks again at their
    /// next use. With the directory's attributes and cached listing. Done when its lock was got for
    /// each.
    Expire {
        /// The directory.
        parent: u64,
        /// The names.
        names: Vec<Vec<u8>>,
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
    /// The unused ones of these inodes, with their names. Nothing where the kernel cannot be told
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

/// Something to take back, and the function to call afterwards.
pub struct Job {
    /// What.
    pub kind: Kind,
    /// Of a young inode: does the kernel know it, as far as is known? It may have forgotten it.
    pub known: Box<dyn Fn() -> bool + Send>,
    /// Told exactly once, on a thread of the pool.
    pub done: Box<dyn FnOnce(Outcome) + Send>,
}

impl Job {
    /// A job about what the kernel knows, unless it says otherwise.
    pub fn new(kind: Kind, done: impl FnOnce(Outcome) + Send + 'static) -> Job {
        Job {
            kind,
            known: Box::new(|| true),
            done: Box::new(done),
        }
    }
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
    /// Those of them that took a range of pages. The listing that goes with a directory's names is
    /// none.
    pub pages: AtomicU64,
    /// Entry notifications written.
    pub entry: AtomicU64,
    /// Epoch notifications written.
    pub epoch: AtomicU64,
    /// Inodes that the kernel was asked to let go of if nobody uses them.
    pub unused: AtomicU64,
    /// Times that attributes on their way were thrown away.
    pub thrown: AtomicU64,
    /// Sizes told.
    pub grown: AtomicU64,
    /// Files of which all bytes were given.
    pub given: AtomicU64,
    /// Notifications about what the kernel did not know.
    pub not_known: AtomicU64,
    /// Repetitions for young inodes.
    pub young_retries: AtomicU64,
    /// Notifications the kernel refused.
    pub failed: AtomicU64,
}

impl NotifyCounters {
    /// How many there were, by what the kernel was told to drop or was given.
    #[must_use]
    pub fn told(&self) -> [(&'static str, u64); 7] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pages = count(&self.pages);
        [
            ("pages", pages),
            ("attributes", count(&self.inode).saturating_sub(pages)),
            ("name", count(&self.entry)),
            ("all_names", count(&self.epoch)),
            ("unused", count(&self.unused)),
            ("size", count(&self.grown)),
            ("given", count(&self.given)),
        ]
    }
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
            writers: Pool::new("ariel-notify", THREADS_MAX, false),
            entries: Pool::new("ariel-entry", THREADS_MAX, true),
            finishers: Pool::new("ariel-epoch", FINISHERS_MAX, false),
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

    /// Has the kernel throw away the attributes of a file or directory, and the answers about them
    /// that are on their way. Of the notifications the only one that a thread may send that serves
    /// requests: it drops no pages and takes no lock that is held while a request is waited for.
    /// But the kernel must have the file or directory in use: else it may be letting go of it, wait
    /// for its pages to be written meanwhile, and have this wait for that.
    pub fn throw_away(&self, nodeid: u64) {
        self.inner.throw_away(nodeid);
    }

    /// Gives the kernel pages of a file, from its first byte to its last one. A thread that serves
    /// requests may do so while the kernel opens the file and nobody else has it open: else a page
    /// may be locked until a request is answered, and the kernel may be letting go of the file.
    /// A failure does no harm: the kernel asks for pages that it does not have.
    pub fn give(&self, nodeid: u64, bytes: &[&[u8]]) {
        self.inner.give(nodeid, bytes);
    }

    /// Drops a name. ENOENT: the kernel does not know the name. May block; EDEADLK on a thread
    /// that serves requests.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> std::io::Result<()> {
        Ok(self.inner.inval_entry(parent, name, 0)?)
    }

    /// Has every name looked up again. Never blocks. EINVAL where the kernel lacks it.
    pub fn inc_epoch(&self) -> std::io::Result<()> {
        Ok(self.inner.inc_epoch()?)
    }

    /// Has a job done by a pool. Never blocks, and may be called anywhere.
    pub fn submit(&self, job: Job) {
        let inner = &self.inner;
        count(&inner.counters.submitted);
        let pool = match job.kind {
            Kind::Entry { .. } | Kind::Expire { .. } | Kind::Sizes { .. } | Kind::Turn { .. } => {
                &inner.entries
            }
            Kind::Inode { .. } | Kind::Grown { .. } | Kind::Unused { .. } => &inner.writers,
            Kind::Epoch => &inner.finishers,
        };
        let task = Arc::clone(inner);
        pool.run(Box::new(move || {
            if !matches!(job.kind, Kind::Entry { .. }) {
                realtime::be_calm();
            }
            let outcome = task.carry_out(job.kind, &*job.known);
            realtime::be_calm();
            count(&task.counters.completed);
            (job.done)(outcome);
        }));
    }
}

impl Inner {
    fn settle(&self) {
        if let Some(lanes) = self.lanes.get() {
            lanes.settle();
        }
    }

    fn write(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
        self.settle();
        self.write_now(code, parts)
    }

    /// The same beside answers that have not reached the kernel yet.
    fn write_now(&self, code: i32, parts: &[&[u8]]) -> Result<(), Errno> {
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

    fn throw_away(&self, nodeid: u64) {
        count(&self.counters.thrown);
        // Of an inode that it does not know it has nothing; other failures have been counted, and
        // logged.
        let _ = self.write_inode(nodeid, -1, 0);
    }

    fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> Result<(), Errno> {
        refuse_serving_thread()?;
        count(&self.counters.inode);
        self.write_inode(nodeid, offset, len)
    }

    fn write_inode(&self, nodeid: u64, offset: i64, len: i64) -> Result<(), Errno> {
        let body = InvalInodeOut {
            nodeid,
            offset,
            len,
        };
        self.write(abi::notify::INVAL_INODE, &[body.as_bytes()])
    }

    fn inval_entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<(), Errno> {
        refuse_serving_thread()?;
        if name.is_empty() || name.len() > abi::NAME_LEN_MAX {
            return Err(Errno::INVAL);
        }
        count(&self.counters.entry);
        let body = InvalEntryOut {
            parent,
            namelen: name.len() as u32,
            flags,
        };
        self.write(abi::notify::INVAL_ENTRY, &[body.as_bytes(), name, &[0]])
    }

    /// Stores the last byte of the file, and withholds it: the kernel first sets the size, which is
    /// all that is wanted; the byte's value may have changed by now.
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

    fn give(&self, nodeid: u64, bytes: &[&[u8]]) {
        count(&self.counters.given);
        let size: usize = bytes.iter().map(|part| part.len()).sum();
        let body = StoreOut {
            nodeid,
            offset: 0,
            size: size as u32,
            padding: 0,
        };
        let mut parts = vec![body.as_bytes()];
        parts.extend(bytes);
        // No answer before this is about these pages, or it would not be given them.
        let _ = self.write_now(abi::notify::STORE, &parts);
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
}

fn refuse_serving_thread() -> Result<(), Errno> {
    if device::is_serving_thread() {
        Err(Errno::DEADLK)
    } else {
        Ok(())
    }
}
