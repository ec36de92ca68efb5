//! Fetches and stores: what they mean when they end, and how far ahead a sequential program is read
//! for.

use super::clock::Queue;
use super::table::{
    AHEAD, BUSY, COMING, DIRTY, LEAVING, MAPPED, QUEUED, REFERENCED, RESIDENT, STORED, WRITABLE,
};
use super::{FileId, JobId, Output, PageNo, Pages, Run, SegmentId};
use alloc::vec::Vec;

/// The first run of a stream that was recognised.
const FIRST_WINDOW: u32 = 4;
const STREAMS: usize = 4;

/// Why pages are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// A program waits for the first.
    Program {
        /// To write it.
        write: bool,
    },
    /// They will be wanted soon.
    Later,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Fetch(For),
    Store,
}

pub(super) struct Job {
    pub(super) segment: SegmentId,
    pub(super) run: Run,
    pub(super) file: FileId,
    pub(super) work: Work,
}

/// A place that a program seems to read on from.
#[derive(Clone, Copy, Default)]
struct Stream {
    next: PageNo,
    window: u32,
    used: u64,
}

/// The latest streams of a segment. A run doubles as long as the faults continue where the last
/// run ended; any other fault begins a stream of single pages.
#[derive(Default)]
pub(super) struct Streams([Stream; STREAMS]);

impl Streams {
    /// How many pages from this fault on are worth having.
    pub(super) fn window(&mut self, page: PageNo, now: u64, most: u32) -> u32 {
        let known = self.0.iter().position(|s| s.window > 0 && s.next == page);
        match known {
            Some(at) => {
                let stream = &mut self.0[at];
                stream.used = now;
                stream.window = (stream.window * 2).max(FIRST_WINDOW).min(most);
                stream.window
            }
            None => {
                let oldest = self.0.iter_mut().min_by_key(|stream| stream.used);
                *oldest.expect("there are streams") = Stream {
                    next: page,
                    window: 1,
                    used: now,
                };
                1
            }
        }
    }

    /// A fault was served up to here.
    pub(super) fn advance(&mut self, page: PageNo, end: PageNo) {
        let known = self.0.iter_mut().find(|s| s.window > 0 && s.next == page);
        if let Some(stream) = known {
            stream.next = end;
        }
    }
}

impl Pages {
    pub(super) fn fetch(
        &mut self,
        segment: SegmentId,
        run: Run,
        file: FileId,
        wanted: For,
        outputs: &mut Vec<Output>,
    ) {
        let ahead = wanted == For::Later;
        for page in run.page..run.end() {
            let mut entry = self.table.entry(segment, page);
            self.table.take_frame(segment, page, &mut entry);
            entry.set(COMING | if ahead { AHEAD } else { 0 });
            self.table.set(segment, page, entry);
        }
        self.counters.fetched += u64::from(run.count);
        self.counters.ahead += u64::from(run.count) - u64::from(!ahead);
        let job = self.start(segment, run, file, Work::Fetch(wanted));
        outputs.push(Output::Fetch {
            job,
            segment,
            run,
            file,
            ahead,
        });
    }

    /// Stores dirty pages. A write from now on makes a page dirty again.
    pub(super) fn store(&mut self, segment: SegmentId, run: Run, outputs: &mut Vec<Output>) {
        let mut protect = false;
        for page in run.page..run.end() {
            let mut entry = self.table.entry(segment, page);
            assert!(
                entry.is(DIRTY) && !entry.is(BUSY),
                "only dirty pages are stored"
            );
            protect |= entry.is(WRITABLE);
            entry.clear(DIRTY | WRITABLE);
            entry.set(LEAVING);
            self.table.set(segment, page, entry);
        }
        if protect {
            outputs.push(Output::Protect { segment, run });
        }
        self.counters.stored += u64::from(run.count);
        let file = self.table.of(segment).file;
        let state = self.files.get_mut(&file);
        state.expect("a current file is known").made = true;
        let job = self.start(segment, run, file, Work::Store);
        outputs.push(Output::Store {
            job,
            segment,
            run,
            file,
        });
    }

    fn start(&mut self, segment: SegmentId, run: Run, file: FileId, work: Work) -> JobId {
        let id = self.next_job;
        self.next_job += 1;
        self.use_file(file);
        let job = Job {
            segment,
            run,
            file,
            work,
        };
        self.jobs.insert(id, job);
        id
    }

    pub(super) fn on_done(&mut self, id: JobId, outputs: &mut Vec<Output>) {
        let job = self.jobs.remove(&id).expect("a job ends once");
        // A segment may be deleted while a job works for it.
        if self.table.get(job.segment).is_some() {
            match job.work {
                Work::Fetch(wanted) => self.fetched(&job, wanted, outputs),
                Work::Store => self.stored(&job),
            }
        }
        self.leave_file(job.file, outputs);
        self.judge_again(outputs);
    }

    fn fetched(&mut self, job: &Job, wanted: For, outputs: &mut Vec<Output>) {
        let segment = job.segment;
        for page in job.run.page..job.run.end() {
            let mut entry = self.table.entry(segment, page);
            entry.clear(COMING);
            entry.set(RESIDENT);
            if wanted != For::Later {
                entry.set(MAPPED | REFERENCED);
            }
            self.table.set(segment, page, entry);
            if entry.is_slave() {
                let write = wanted == For::Program { write: true } && page == job.run.page;
                self.arrived(segment, page, write, outputs);
            }
        }
        if let For::Program { write } = wanted {
            let run = job.run;
            if write {
                // One fault does for both: the page is had, and written.
                self.on_fault(segment, run.page, true, outputs);
            }
            let skipped = u32::from(write);
            let rest = Run {
                page: run.page + skipped,
                count: run.count - skipped,
            };
            if rest.count > 0 {
                outputs.push(Output::Map {
                    segment,
                    run: rest,
                    writable: false,
                });
            }
        }
    }

    fn stored(&mut self, job: &Job) {
        let segment = job.segment;
        for page in job.run.page..job.run.end() {
            let mut entry = self.table.entry(segment, page);
            entry.clear(LEAVING);
            let clean = !entry.is(DIRTY);
            if clean {
                entry.set(STORED);
                entry.store = job.file;
                self.use_file(job.file);
            }
            self.table.set(segment, page, entry);
            if !entry.is(QUEUED) {
                let used = entry.is(REFERENCED) || !clean;
                let queue = if used { Queue::Active } else { Queue::Clean };
                self.enqueue(segment, page, queue);
            }
        }
    }

    pub(super) fn on_failed(&mut self, id: JobId, outputs: &mut Vec<Output>) {
        let job = self.jobs.remove(&id).expect("a job ends once");
        let segment = job.segment;
        if self.table.get(segment).is_some() {
            for page in job.run.page..job.run.end() {
                let mut entry = self.table.entry(segment, page);
                match job.work {
                    Work::Fetch(_) => {
                        entry.clear(COMING);
                        self.table.give_frame(segment, &mut entry);
                    }
                    Work::Store => {
                        entry.clear(LEAVING);
                        entry.set(DIRTY);
                    }
                }
                self.table.set(segment, page, entry);
                if entry.is(RESIDENT) && !entry.is(QUEUED) {
                    self.enqueue(segment, page, Queue::Active);
                }
            }
            if matches!(job.work, Work::Fetch(_)) {
                outputs.push(Output::Drop {
                    segment,
                    run: job.run,
                });
            }
            outputs.push(Output::End { segment });
        }
        self.leave_file(job.file, outputs);
        // The program of this segment ends: nothing of it may go on with a page that is not there,
        // and the pages that it waits for go when the room deletes it.
        self.waiting.retain(|waiter| waiter.segment() != segment);
        self.judge_again(outputs);
    }

    /// The pages from here on that were read ahead and not used yet; `None`: this one was not.
    pub(super) fn ahead_run(&self, segment: SegmentId, page: PageNo) -> Option<Run> {
        let table = self.table.of(segment);
        let end = table.pages.min(page.saturating_add(self.options.most_run));
        let ready = |page: &PageNo| {
            let entry = table.entry(*page);
            entry.is(AHEAD) && entry.is(RESIDENT)
        };
        let count = (page..end).take_while(ready).count() as u32;
        (count > 0).then_some(Run { page, count })
    }

    /// A program has come to what was read ahead for it: the next part is begun.
    pub(super) fn on_ahead_used(
        &mut self,
        segment: SegmentId,
        run: Run,
        outputs: &mut Vec<Output>,
    ) {
        let now = self.table.now;
        let most = self.most_window(segment);
        let streams = &mut self.table.of_mut(segment).streams;
        let wanted = streams.window(run.page, now, most);
        streams.advance(run.page, run.end());
        if wanted > 1 {
            self.fetch_ahead(segment, run.end(), wanted, outputs);
        }
    }
}

impl super::Waiter {
    fn segment(&self) -> SegmentId {
        match self {
            Self::Fault { segment, .. }
            | Self::Discard { segment, .. }
            | Self::Copy { segment, .. } => *segment,
        }
    }
}
