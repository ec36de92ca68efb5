//! The agreement with the kernel before the first request: a pure function from its offer and the
//! options to the answer. Exact caching decides most of it: pages are dropped on notification only
//! (`EXPLICIT_INVAL_DATA`), writes are sent as they happen (no `WRITEBACK_CACHE`), truncation by
//! open is sent as `SETATTR` (no `ATOMIC_O_TRUNC`, which with unannounced opens is never sent at
//! all). The kernel checks rights, by access lists too (`POSIX_ACL`); whether the umask counts, the
//! directory's list decides (`DONT_MASK`).

use std::path::PathBuf;

use crate::abi::{self, InitIn, InitOut, init};
use crate::feature::{Feature, Without};
use crate::request::Dialect;

/// Flags asked for where the kernel offers them.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::DO_READDIRPLUS
    | init::NO_OPEN_SUPPORT
    | init::PARALLEL_DIROPS
    | init::DONT_MASK
    | init::POSIX_ACL
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// Flags without which nothing can be exact.
const NEEDED: u64 = init::EXPLICIT_INVAL_DATA | init::BIG_WRITES | init::MAX_PAGES;

/// The options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that read requests; at least 1.
    pub threads: usize,
    /// Bytes the kernel may read ahead of a program.
    pub max_readahead: u32,
    /// Bytes of the largest read or write, a whole number of pages; the kernel's own limit is
    /// 256 pages unless `/proc/sys/fs/fuse/max_pages_limit` says otherwise.
    pub max_write: u32,
    /// Requests nobody waits for (read-ahead, asynchronous I/O) under way at once.
    pub max_background: u16,
    /// Background requests from which the kernel holds back.
    pub congestion_threshold: u16,
    /// Let the kernel choose between `READDIR` and `READDIRPLUS`; else always the latter.
    pub readdirplus_auto: bool,
    /// Let the kernel drop pages when new attributes show another time of change (the inexact way
    /// of others); else it drops them when it is told to.
    pub auto_inval: bool,
    /// Locks are sent here; else the kernel keeps them to itself.
    pub locks: bool,
    /// How requests are to come. (The kernel offers io_uring only where it is switched on.)
    pub transport: Transport,
    /// Features that the kernel has and that are not to be used.
    pub without: Without,
    /// Where the tree is mounted: over io_uring, it is asked from there whether requests wait that
    /// found no room.
    pub root: Option<PathBuf>,
}

/// How requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// As is best here.
    #[default]
    Auto,
    /// Over io_uring, or not at all.
    Uring,
    /// By reading the device.
    Device,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 2,
            max_readahead: 1 << 20,
            max_write: 1 << 20,
            max_background: 64,
            congestion_threshold: 48,
            readdirplus_auto: false,
            auto_inval: false,
            locks: true,
            transport: Transport::Auto,
            without: Without::default(),
            root: None,
        }
    }
}

/// The agreement with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the kernel's interface.
    pub kernel_minor: u32,
    /// Minor version spoken: the smaller of the two.
    pub minor: u32,
    /// `abi::init` flags in force.
    pub flags: u64,
    /// Bytes of the largest `WRITE`, and of the largest `READ`.
    pub max_write: u32,
    /// Bytes the kernel may read ahead.
    pub max_readahead: u32,
    /// The time of birth is asked for (`STATX`).
    pub birth: bool,
    /// All names can be expired at once, without a lock (`Notifier::inc_epoch`).
    pub inc_epoch: bool,
    /// Inodes that nobody uses can be forgotten when we ask for it (`notify::Kind::Unused`).
    pub prune: bool,
    /// Pages can be given without being asked for, and end in zeros (`Notifier::give`).
    pub give: bool,
    /// A close need not be announced before it.
    pub no_flush: bool,
    /// A thread that answers a program may hand its processor over to it.
    pub hands_over: bool,
}

impl Negotiated {
    /// Whether all of these `abi::init` flags are in force.
    #[must_use]
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Is this one used?
    #[must_use]
    pub fn uses(&self, feature: Feature) -> bool {
        match feature {
            Feature::Birth => self.birth,
            Feature::Epoch => self.inc_epoch,
            Feature::Prune => self.prune,
            Feature::Give => self.give,
            Feature::NoFlush => self.no_flush,
            Feature::Handover => self.hands_over,
            other => self.has(other.flags()),
        }
    }

    /// How requests are to be read.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        Dialect {
            setxattr_ext: self.has(init::SETXATTR_EXT),
        }
    }
}

/// Why nothing can be agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitError {
    /// The kernel is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor}, Ariel needs 7.{least} or later: \
         use Linux 5.4 or newer",
        least = abi::MINOR_LEAST
    )]
    TooOld {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
    },
    /// The kernel lacks something indispensable.
    #[error(
        "the kernel does not offer the FUSE flags {missing:#x}, without which its cache cannot \
         be kept exact: use an unpatched Linux 5.4 or newer"
    )]
    Lacks {
        /// The flags it lacks.
        missing: u64,
    },
}

/// The step to take after an `INIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Answer this; requests follow.
    Agree(InitOut, Negotiated),
    /// Answer this (our major version); the kernel will ask again with it.
    AskAgain(InitOut),
}

/// The flags that the kernel offers.
pub(crate) fn offered(offer: &InitIn) -> u64 {
    let flags = u64::from(offer.flags);
    match flags & init::INIT_EXT {
        0 => flags,
        _ => flags | u64::from(offer.flags2) << 32,
    }
}

/// The answer to the kernel's `INIT`.
pub fn negotiate(offer: &InitIn, options: &Options) -> Result<Step, InitError> {
    if offer.major > abi::MAJOR {
        let answer = InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR,
            ..InitOut::default()
        };
        return Ok(Step::AskAgain(answer));
    }
    if offer.major < abi::MAJOR || offer.minor < abi::MINOR_LEAST {
        return Err(InitError::TooOld {
            major: offer.major,
            minor: offer.minor,
        });
    }
    let without = options.without;
    let offered = offered(offer) & !without.flags();
    let missing = NEEDED & !offered;
    if missing != 0 {
        return Err(InitError::Lacks { missing });
    }
    let auto = if options.readdirplus_auto {
        init::READDIRPLUS_AUTO
    } else {
        0
    };
    let locks = if options.locks {
        init::POSIX_LOCKS | init::FLOCK_LOCKS
    } else {
        0
    };
    let transport = match options.transport {
        Transport::Uring => init::OVER_IO_URING,
        // The kernel waits for the rings: it is asked for only if there are some.
        Transport::Auto | Transport::Device => 0,
    };
    let mut flags = (WANTED | auto | locks | transport) & offered;
    if options.auto_inval && offered & init::AUTO_INVAL_DATA != 0 {
        flags = flags & !init::EXPLICIT_INVAL_DATA | init::AUTO_INVAL_DATA;
    }
    let page = rustix::param::page_size() as u32;
    let max_pages = (options.max_write / page).clamp(1, u32::from(u16::MAX));
    let negotiated = Negotiated {
        kernel_minor: offer.minor,
        minor: offer.minor.min(abi::MINOR),
        flags,
        max_write: max_pages * page,
        max_readahead: options.max_readahead.min(offer.max_readahead),
        birth: offer.minor >= abi::MINOR_STATX && !without.has(Feature::Birth),
        inc_epoch: offer.minor >= abi::MINOR_INC_EPOCH && !without.has(Feature::Epoch),
        prune: offer.minor >= abi::MINOR_PRUNE && !without.has(Feature::Prune),
        give: offer.minor >= abi::MINOR_STORE_ZEROS && !without.has(Feature::Give),
        no_flush: offer.minor >= abi::MINOR_NO_FLUSH && !without.has(Feature::NoFlush),
        hands_over: !without.has(Feature::Handover),
    };
    let answer = InitOut {
        major: abi::MAJOR,
        minor: negotiated.minor,
        max_readahead: negotiated.max_readahead,
        flags: flags as u32,
        max_background: options.max_background,
        congestion_threshold: options.congestion_threshold,
        max_write: negotiated.max_write,
        time_gran: 1,
        max_pages: max_pages as u16,
        flags2: (flags >> 32) as u32,
        ..InitOut::default()
    };
    Ok(Step::Agree(answer, negotiated))
}
