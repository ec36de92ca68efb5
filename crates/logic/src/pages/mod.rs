//! The pages of segments: where the content of each page is, which frame is replaced, what a fork
//! shares. A segment is a region of memory of one program; its pages are in frames of local memory
//! or in backing files.
//!
//! Guarantees: a program reads what it or the parent of its segment wrote last, and zeros before
//! that; a page that was never written costs neither frame nor file space beyond its first read;
//! a page that is in its file and was not changed is not stored again; no more frames are used
//! than the limits allow, but for pages that a write or a deletion hands to a relative, which are
//! taken back at the next opportunity.
//!
//! The machine moves numbers, never bytes. The room (crate `segment`) carries the outputs out in
//! their order, under the lock of the machine, except for [`Output::Fetch`], [`Output::Store`] and
//! [`Output::Unmap`], which may take their time. A page that may be written without a fault is
//! always dirty here ([`table::WRITABLE`]), so a clean frame cannot change while it is decided
//! about.
//!
//! Forks follow Nelson, section 7.4: related segments are in one list (a *family*); the *master* of
//! a page has it copy-on-write, its *slaves* name the master in their page tables. There are no
//! chains: a master's content is its own.

mod api;
mod check;
mod clock;
mod faults;
mod files;
mod forks;
mod jobs;
mod runs;
mod table;
#[cfg(test)]
mod tests;

pub use api::{
    Counters, Figures, FileId, Input, JobId, Kind, Options, Output, PageNo, Run, SegmentId,
};

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use table::{Segment, Table};

enum Waiter {
    Fault {
        segment: SegmentId,
        page: PageNo,
        write: bool,
    },
    Discard {
        segment: SegmentId,
        run: Run,
    },
    Copy {
        segment: SegmentId,
        next: PageNo,
    },
}

/// The machine.
pub struct Pages {
    options: Options,
    table: Table,
    jobs: BTreeMap<JobId, jobs::Job>,
    files: BTreeMap<FileId, files::FileState>,
    waiting: Vec<Waiter>,
    next_job: JobId,
    next_file: FileId,
    counters: Counters,
}

impl Pages {
    /// A machine without segments.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            table: Table::default(),
            jobs: BTreeMap::new(),
            files: BTreeMap::new(),
            waiting: Vec::new(),
            next_job: 1,
            next_file: 1,
            counters: Counters::default(),
        }
    }

    /// Takes an input, and appends what follows from it to `outputs`. `now`: any clock that does
    /// not go back; pages of different segments are compared by it.
    ///
    /// # Panics
    /// The room named a segment twice, or one that there is not (but in a fault, which may come
    /// late), or pages beyond the end: a bug of the room.
    pub fn handle(&mut self, now: u64, input: Input, outputs: &mut Vec<Output>) {
        self.table.now = now;
        let before = outputs.len();
        match input {
            Input::Make {
                segment,
                pages,
                frames,
            } => {
                let file = self.new_file();
                let made = Segment::new(pages, frames, file, segment);
                self.table.insert(segment, made);
            }
            Input::Fork {
                from,
                to,
                kind,
                frames,
                unmapped,
            } => {
                let child = (to, kind, frames);
                self.on_fork(from, child, unmapped, outputs);
            }
            Input::Unmapping { segment } => self.table.of_mut(segment).begin_unmapping(),
            Input::Delete { segment } => {
                self.on_delete(segment, outputs);
                self.judge_again(outputs);
            }
            Input::Discard { segment, run } => {
                assert!(run.end() <= self.table.of(segment).pages);
                self.on_discard(segment, run, outputs);
                self.judge_again(outputs);
            }
            Input::Fault {
                segment,
                page,
                write,
            } => {
                self.counters.faults += 1;
                self.on_fault(segment, page, write, outputs);
            }
            Input::Done { job } => self.on_done(job, outputs),
            Input::Failed { job } => self.on_failed(job, outputs),
            Input::LimitOf { segment, frames } => self.table.of_mut(segment).limit = frames,
            Input::Limit { frames } => self.options.frames = frames,
        }
        self.trim(outputs);
        self.note_mapped(&outputs[before..]);
    }

    /// The counts of the machine's work so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How a segment is; `None`: there is no such segment.
    #[must_use]
    pub fn figures(&self, segment: SegmentId) -> Option<Figures> {
        self.table.get(segment).map(Segment::figures)
    }

    /// The pages of a segment; `None`: there is no such segment.
    #[must_use]
    pub fn size(&self, segment: SegmentId) -> Option<u32> {
        self.table.get(segment).map(|segment| segment.pages)
    }

    /// Frames in use.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.table.frames
    }

    /// The numbers of the segments.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.table.ids()
    }

    /// Is a fetch or a store under way?
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Inputs that wait are judged again, in the order of arrival.
    fn judge_again(&mut self, outputs: &mut Vec<Output>) {
        for waiter in core::mem::take(&mut self.waiting) {
            match waiter {
                Waiter::Fault {
                    segment,
                    page,
                    write,
                } => self.on_fault(segment, page, write, outputs),
                Waiter::Discard { segment, run } => {
                    if self.table.get(segment).is_some() {
                        self.on_discard(segment, run, outputs);
                    }
                }
                Waiter::Copy { segment, next } => {
                    if self.table.get(segment).is_some() {
                        self.copy_on(segment, next, outputs);
                    }
                }
            }
        }
    }
}
