//! The limits and delays of a client, and which of them are usual.

use alloc::vec::Vec;
use wire::Time;

/// When a client lends blocks of its cache to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lends {
    /// Never; nor does it borrow.
    #[default]
    Never,
    /// When its machine has nothing better to do. It borrows at all times.
    Idle,
    /// Always.
    Always,
}

/// How much a client does for others at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LendLimits {
    /// Blocks that are kept for others.
    pub kept_blocks: u32,
    /// Bytes that are lent in a second; `None`: as many as others ask for.
    pub lent_bytes_per_s: Option<u64>,
}

impl Default for LendLimits {
    fn default() -> Self {
        Self {
            kept_blocks: u32::MAX,
            lent_bytes_per_s: None,
        }
    }
}

/// The limits and delays of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of slots of the cache, or the most that it may ever have; at least 16.
    pub slots: u32,
    /// The fewest that it may ever have: as many as the largest call needs, or more.
    pub least_slots: u32,
    /// Most slots with changed blocks: writers wait beyond that. With half of it write-back begins,
    /// whatever the age, so that most of a large cache can be given up at any time.
    pub dirty_slots: u32,
    /// Age at which a change in a directory that is this client's own is told to the server, ns;
    /// `None`: each at once, before it is answered.
    pub keep_ns: Option<Time>,
    /// The kernel announces what it opens and closes.
    pub announced: bool,
    /// Age at which a dirty block is written back, ns (Nelson, section 3.5: 30 s).
    pub write_delay_ns: Time,
    /// Time between two looks at the ages of dirty blocks, ns (Nelson: 5 s).
    pub scan_ns: Time,
    /// Of how many objects the kernel may know without using them: of more it is asked to let go.
    pub objects: usize,
    /// Time after which the server is asked again for what it could not do yet, ns.
    pub later_ns: Time,
    /// Most blocks of one write-back request.
    pub batch_blocks: u32,
    /// A look-up, or a listing, may bring the bytes of files that are no longer than this.
    pub ahead_bytes: u32,
    /// Of so many entries at a time it is asked ahead in a directory that somebody walks through;
    /// 0: of none.
    pub walk_entries: u32,
    /// So many objects of a directory must have been asked for one by one before that.
    pub walk_misses: u32,
    /// After so long without a step a walk is over; and for so long it is not asked ahead where
    /// others change the directory, ns.
    pub walk_pause_ns: Time,
    /// A directory is not used of which the kernel was told nothing for so long, ns; it must have
    /// taken in by then whatever it was told.
    pub still_ns: Time,
    /// A read for the kernel's pages that is at least so long is given to it alone.
    pub passing_bytes: u32,
    /// Of a file that is no longer than this the kernel is given all bytes when it is opened.
    pub open_bytes: u32,
    /// A client that decides about the locks of a file gives that back when nothing of it is locked
    /// and none was asked for, for so long, ns.
    pub lock_idle_ns: Time,
    /// For so long a call waits while the server says nothing, ns; `None`: for ever.
    pub timeout_ns: Option<Time>,
    /// Most holdings, and most changes, of one part of what a restarted server is told.
    pub part: usize,
    /// The volume, or the snapshot, whose root is that of the tree; empty: the first volume.
    pub volume: Vec<u8>,
    /// Changes that are answered before the server has heard of them are answered against room that
    /// the server has given ahead. `false`: without that, so that they may be refused later.
    pub room_ahead: bool,
    /// When it lends blocks of its cache to other clients, if the server says that clients do so.
    pub lends: Lends,
    /// How much it lends, and keeps for others.
    pub lend_limits: LendLimits,
    /// Rules to be broken on purpose; for tests of the checkers only.
    pub mutant: Option<super::Mutant>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 65_536,
            least_slots: 512,
            dirty_slots: u32::MAX,
            keep_ns: Some(5_000_000_000),
            announced: true,
            write_delay_ns: 30_000_000_000,
            scan_ns: 5_000_000_000,
            objects: 524_288,
            later_ns: 10_000_000_000,
            batch_blocks: 256,
            ahead_bytes: wire::limits::AHEAD_BYTES,
            walk_entries: 64,
            walk_misses: 3,
            walk_pause_ns: 1_000_000_000,
            still_ns: 1_000_000_000,
            passing_bytes: 256 << 10,
            open_bytes: 32 << 10,
            lock_idle_ns: 30_000_000_000,
            timeout_ns: None,
            part: 1000,
            volume: Vec::new(),
            room_ahead: true,
            lends: Lends::Never,
            lend_limits: LendLimits::default(),
            mutant: None,
        }
    }
}
