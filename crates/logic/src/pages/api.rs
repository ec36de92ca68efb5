//! The vocabulary of the machine: its inputs, its outputs, and what it counts.

/// Names a segment; chosen by the room, never reused, never 0.
pub type SegmentId = u32;
/// Names a backing file. The machine chooses it; the room makes the file at its first store.
pub type FileId = u32;
/// A page of a segment, from 0.
pub type PageNo = u32;
/// Names a fetch or a store.
pub type JobId = u64;

/// Pages of a segment, in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The first.
    pub page: PageNo,
    /// How many.
    pub count: u32,
}

impl Run {
    /// One page.
    #[must_use]
    pub const fn one(page: PageNo) -> Self {
        Self { page, count: 1 }
    }

    /// The page behind the last.
    #[must_use]
    pub const fn end(self) -> PageNo {
        self.page + self.count
    }
}

/// How a fork copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Every page at once; the fork is answered when all are copied.
    Copy,
    /// A page becomes the child's own when the child or the parent writes it. A page that the
    /// child only reads is a copy that costs no store and goes when frames are short.
    OnWrite,
    /// A page becomes the child's own when the child refers to it or the parent writes it; each
    /// child gets its own copy at the write.
    OnReference,
    /// Sprite's: like `OnReference`, but a write of the parent gives the page to one child, and
    /// that child becomes the master of the page for the others.
    CowCor,
}

/// Limits and habits.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most frames of all segments together.
    pub frames: u32,
    /// Most pages of one fetch or store.
    pub most_run: u32,
    /// Most stores at once.
    pub most_stores: u32,
    /// Pages copied on reference are mapped so that the first write is seen and counted. Costs a
    /// fault for each such page; for experiments.
    pub count_writes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frames: u32::MAX,
            most_run: 256,
            most_stores: 8,
            count_writes: false,
        }
    }
}

/// An input of the machine.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A new segment of zeros. `frames`: the most that it may use.
    Make {
        /// Its number.
        segment: SegmentId,
        /// Its size.
        pages: u32,
        /// Its limit.
        frames: u32,
    },
    /// A new segment with the content of another one. [`Output::Forked`] answers.
    Fork {
        /// The parent.
        from: SegmentId,
        /// The child's number.
        to: SegmentId,
        /// How it copies.
        kind: Kind,
        /// The child's limit.
        frames: u32,
        /// The parent's program has unmapped all of its pages, each at some time since
        /// [`Input::Unmapping`]: so they need not be protected one by one.
        unmapped: bool,
    },
    /// The program begins to unmap all pages of a segment, for a fork.
    Unmapping {
        /// Which.
        segment: SegmentId,
    },
    /// The segment and its program's mapping are gone.
    Delete {
        /// Which.
        segment: SegmentId,
    },
    /// These pages are zeros again. [`Output::Discarded`] answers.
    Discard {
        /// Of which segment.
        segment: SegmentId,
        /// Which.
        run: Run,
    },
    /// A program waits for a page.
    Fault {
        /// Of which segment.
        segment: SegmentId,
        /// Which.
        page: PageNo,
        /// Does the program write?
        write: bool,
    },
    /// A fetch or a store is done.
    Done {
        /// Which.
        job: JobId,
    },
    /// A fetch or a store was refused; its segment ends.
    Failed {
        /// Which.
        job: JobId,
    },
    /// Another limit of a segment.
    LimitOf {
        /// Of which.
        segment: SegmentId,
        /// Most frames.
        frames: u32,
    },
    /// Another limit of all together.
    Limit {
        /// Most frames.
        frames: u32,
    },
}

/// An output: work of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Frames of zeros for pages that have none.
    Zero {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// Frames are filled from the same pages of a relative.
    Copy {
        /// From which segment.
        from: SegmentId,
        /// To which segment.
        to: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// The program may use these frames, and the faults that wait for them go on.
    Map {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
        /// May it write without a fault?
        writable: bool,
    },
    /// From now on a write of these pages is a fault.
    Protect {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// A write of these pages is no fault any more, if they are mapped.
    Unprotect {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// From some time soon on a use of these pages is a fault. Protection stays as it is.
    Unmap {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// These frames are given up.
    Drop {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// Frames are made and filled from a file.
    Fetch {
        /// To be answered by [`Input::Done`] or [`Input::Failed`].
        job: JobId,
        /// Of which segment.
        segment: SegmentId,
        /// Which pages; they have the same numbers in the file.
        run: Run,
        /// From which file.
        file: FileId,
        /// No program waits for it yet.
        ahead: bool,
    },
    /// Frames are written to a file.
    Store {
        /// To be answered by [`Input::Done`] or [`Input::Failed`].
        job: JobId,
        /// Of which segment.
        segment: SegmentId,
        /// Which pages; they have the same numbers in the file.
        run: Run,
        /// To which file.
        file: FileId,
    },
    /// A child is there.
    Forked {
        /// Its number.
        segment: SegmentId,
    },
    /// The pages are zeros.
    Discarded {
        /// Of which segment.
        segment: SegmentId,
        /// Which pages.
        run: Run,
    },
    /// No page of a file is needed any more.
    Close {
        /// Which.
        file: FileId,
    },
    /// A page of this segment cannot be had or kept: its program must end.
    End {
        /// Which.
        segment: SegmentId,
    },
}

/// The counts of the machine's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Faults told by the room.
    pub faults: u64,
    /// Of these: the page was in a frame, only not mapped: the clock asked.
    pub soft: u64,
    /// Of these: a wait for a job or for a frame.
    pub waits: u64,
    /// Frames of zeros.
    pub zeroed: u64,
    /// Pages from files, and those of them that no program had asked for.
    pub fetched: u64,
    /// Of these: read ahead.
    pub ahead: u64,
    /// Pages to files.
    pub stored: u64,
    /// Frames given up for other pages.
    pub dropped: u64,
    /// Pages marked copy-on-write by forks.
    pub cow_marked: u64,
    /// Pages marked copy-on-reference (or as a child's copy-on-write pages) by forks.
    pub cor_marked: u64,
    /// Faults of masters that gave a page away.
    pub cow_faults: u64,
    /// Pages that became a slave's own because the slave referred to them.
    pub cor_faults: u64,
    /// Pages copied on reference that were written later (with [`Options::count_writes`]) or at
    /// once.
    pub cor_written: u64,
    /// Copies of pages from frame to frame.
    pub copies: u64,
    /// Pages handed on by deletions and discards.
    pub handed: u64,
}

/// How a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Its size, pages.
    pub pages: u32,
    /// Frames in use, and the most it may use.
    pub frames: u32,
    /// Its limit.
    pub limit: u32,
    /// Frames that differ from the file.
    pub dirty: u32,
    /// Pages whose content is in a file.
    pub stored: u32,
    /// Pages whose content is a relative's.
    pub shared: u32,
}
