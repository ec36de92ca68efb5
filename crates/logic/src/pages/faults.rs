//! Faults: where a page comes from, and what a first write changes.

use super::runs::join;
use super::table::{
    AHEAD, ALONE, ASIDE, BUSY, COMING, COW, DIRTY, Entry, FRESH, LEAVING, MAPPED, ON_WRITE,
    REFERENCED, RESIDENT, STORED, TOUCHED, WRITABLE,
};
use super::{FileId, Output, PageNo, Pages, Run, SegmentId, Waiter};
use alloc::vec::Vec;

/// Pages that are mapped at one fault when a fork has unmapped them.
const MOST_ABOUT: u32 = 16;
/// Runs that are read ahead of a program.
const AHEAD_RUNS: u32 = 3;

/// Where the content of a page without a frame is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Zeros,
    /// In a frame of its master.
    Frame(SegmentId),
    /// In a file.
    File(FileId),
    /// Its master waits for it, too.
    Coming,
}

impl Pages {
    pub(super) fn on_fault(
        &mut self,
        segment: SegmentId,
        page: PageNo,
        write: bool,
        outputs: &mut Vec<Output>,
    ) {
        // A fault may be told when its segment is gone.
        let Some(table) = self.table.get(segment) else {
            return;
        };
        assert!(page < table.pages, "a fault beyond the end");
        let entry = table.entry(page);
        if entry.is(COMING) {
            self.wait(segment, page, write);
        } else if entry.is(RESIDENT) {
            self.on_resident(segment, page, write, outputs);
        } else {
            self.on_absent(segment, page, write, outputs);
        }
    }

    pub(super) fn wait(&mut self, segment: SegmentId, page: PageNo, write: bool) {
        self.counters.waits += 1;
        self.waiting.push(Waiter::Fault {
            segment,
            page,
            write,
        });
    }

    /// The page has a frame: it is only not mapped, or it is protected.
    fn on_resident(
        &mut self,
        segment: SegmentId,
        page: PageNo,
        write: bool,
        outputs: &mut Vec<Output>,
    ) {
        let entry = self.table.entry(segment, page);
        if !entry.is(MAPPED) {
            self.counters.soft += 1;
        }
        if !write {
            self.map_read(segment, page, outputs);
            return;
        }
        if entry.is(COW) {
            let slaves = self.table.slaves(segment, page);
            let coming = |slave: &SegmentId| self.table.entry(*slave, page).is(COMING);
            // Its copy is on the way from this page's place in the file, which has to stay.
            if slaves.iter().any(coming) {
                self.wait(segment, page, write);
                return;
            }
            self.counters.cow_faults += 1;
            self.give_away(segment, page, false, outputs);
        } else if entry.is_slave() {
            self.own_twin(segment, page, outputs);
        }
        let mut entry = self.table.entry(segment, page);
        self.written(&mut entry, outputs);
        entry.clear(AHEAD | ASIDE);
        entry.set(WRITABLE | MAPPED | REFERENCED);
        self.table.set(segment, page, entry);
        outputs.push(Output::Map {
            segment,
            run: Run::one(page),
            writable: true,
        });
    }

    /// The content of a frame changes.
    fn written(&mut self, entry: &mut Entry, outputs: &mut Vec<Output>) {
        self.unstore(entry, outputs);
        if entry.is(FRESH) {
            self.counters.cor_written += 1;
        }
        entry.clear(FRESH);
        entry.set(TOUCHED | DIRTY);
    }

    fn map_read(&mut self, segment: SegmentId, page: PageNo, outputs: &mut Vec<Output>) {
        let ahead = self.ahead_run(segment, page);
        let aside = self.aside_run(segment, page);
        let run = ahead.or(aside).unwrap_or(Run::one(page));
        let mut entry = self.table.entry(segment, page);
        let fresh = entry.is(FRESH) && self.options.count_writes;
        let writable = run.count == 1 && ahead.is_none();
        let writable = writable && entry.is(DIRTY) && !entry.is(COW) && !fresh;
        for at in run.page..run.end() {
            entry = self.table.entry(segment, at);
            // A page that is mapped with others is as used as it was.
            let used = at == page || !entry.is(ASIDE);
            entry.clear(AHEAD | ASIDE);
            entry.set(MAPPED | if used { REFERENCED } else { 0 });
            entry.set(if writable { WRITABLE } else { 0 });
            self.table.set(segment, at, entry);
        }
        outputs.push(Output::Map {
            segment,
            run,
            writable,
        });
        if ahead.is_some() {
            self.on_ahead_used(segment, run, outputs);
        }
    }

    /// The pages about this one that a fork has unmapped, as this one; `None`: it has not.
    fn aside_run(&self, segment: SegmentId, page: PageNo) -> Option<Run> {
        let table = self.table.of(segment);
        let is_aside = |page: &PageNo| table.entry(*page).is(ASIDE);
        if !is_aside(&page) {
            return None;
        }
        let first = page - page % MOST_ABOUT;
        let end = table.pages.min(first + MOST_ABOUT);
        let before = (first..page).rev().take_while(is_aside).count() as u32;
        let behind = (page + 1..end).take_while(is_aside).count() as u32;
        Some(Run {
            page: page - before,
            count: before + 1 + behind,
        })
    }

    fn source(&self, segment: SegmentId, page: PageNo) -> Source {
        let entry = self.table.entry(segment, page);
        if !entry.is_slave() {
            return match entry.is(STORED) {
                true => Source::File(entry.store),
                false => Source::Zeros,
            };
        }
        let master = self.table.entry(entry.master, page);
        if master.is(RESIDENT) {
            Source::Frame(entry.master)
        } else if master.is(COMING) {
            Source::Coming
        } else {
            Source::File(master.store)
        }
    }

    /// The pages from here on that come from the same place, at most `most`.
    fn same_source(&self, segment: SegmentId, page: PageNo, most: u32) -> Run {
        let source = self.source(segment, page);
        let master = self.table.entry(segment, page).master;
        let end = self.table.of(segment).pages.min(page.saturating_add(most));
        let same = |page: &PageNo| {
            let entry = self.table.entry(segment, *page);
            let free = !entry.is(RESIDENT) && !entry.is(BUSY);
            free && entry.master == master && self.source(segment, *page) == source
        };
        let more = (page + 1..end).take_while(same).count() as u32;
        Run {
            page,
            count: 1 + more,
        }
    }

    fn on_absent(
        &mut self,
        segment: SegmentId,
        page: PageNo,
        write: bool,
        outputs: &mut Vec<Output>,
    ) {
        let now = self.table.now;
        let most = self.most_window(segment);
        let wanted = match self.source(segment, page) {
            // Zeros made ahead would cost frames for pages that are never touched.
            Source::Zeros => 1,
            _ => self.table.of_mut(segment).streams.window(page, now, most),
        };
        // Making room may move the content, so where it is is looked at again below.
        let room = self.make_room(segment, wanted, outputs);
        if room == 0 {
            self.wait(segment, page, write);
            return;
        }
        let run = match self.source(segment, page) {
            Source::Zeros => {
                let run = Run::one(page);
                self.zero(segment, page, write, outputs);
                run
            }
            Source::Frame(master) => {
                let run = self.same_source(segment, page, wanted.min(room));
                self.copy_in(segment, master, run, write, outputs);
                run
            }
            Source::File(file) => {
                let run = self.same_source(segment, page, wanted.min(room));
                let wanted_by = super::jobs::For::Program { write };
                self.fetch(segment, run, file, wanted_by, outputs);
                run
            }
            Source::Coming => {
                self.wait(segment, page, write);
                return;
            }
        };
        let streams = &mut self.table.of_mut(segment).streams;
        streams.advance(page, run.end());
        if wanted > 1 {
            self.fetch_ahead(segment, run.end(), wanted, outputs);
        }
    }

    /// Begins to fetch what a sequential program will want next, if that costs nobody a wait. Some
    /// runs are ahead, so that others come while one is used.
    pub(super) fn fetch_ahead(
        &mut self,
        segment: SegmentId,
        from: PageNo,
        wanted: u32,
        outputs: &mut Vec<Output>,
    ) {
        let most = (wanted * AHEAD_RUNS).min(self.most_ahead(segment));
        let end = self.table.of(segment).pages.min(from.saturating_add(most));
        let mut page = from;
        while page < end {
            let entry = self.table.entry(segment, page);
            if entry.is(RESIDENT | BUSY) {
                page += 1;
                continue;
            }
            if !matches!(self.source(segment, page), Source::File(_)) {
                return;
            }
            let room = self.free_room(segment, wanted, outputs);
            // Making room may have moved the content.
            let Source::File(file) = self.source(segment, page) else {
                return;
            };
            if room == 0 {
                return;
            }
            let run = self.same_source(segment, page, wanted.min(room));
            self.fetch(segment, run, file, super::jobs::For::Later, outputs);
            page = run.end();
        }
    }

    /// A first use: a frame of zeros.
    fn zero(&mut self, segment: SegmentId, page: PageNo, write: bool, outputs: &mut Vec<Output>) {
        let mut entry = self.table.entry(segment, page);
        self.table.take_frame(segment, page, &mut entry);
        entry.set(RESIDENT | MAPPED | REFERENCED);
        if write {
            entry.set(TOUCHED | DIRTY | WRITABLE);
        }
        self.table.set(segment, page, entry);
        self.counters.zeroed += 1;
        let run = Run::one(page);
        outputs.push(Output::Zero { segment, run });
        outputs.push(Output::Map {
            segment,
            run,
            writable: write,
        });
    }

    /// Copy-on-reference from frames of the master.
    fn copy_in(
        &mut self,
        segment: SegmentId,
        master: SegmentId,
        run: Run,
        write: bool,
        outputs: &mut Vec<Output>,
    ) {
        let flags = RESIDENT | MAPPED | REFERENCED;
        self.copy_frames((master, segment), run, flags, outputs);
        let mut writable = true;
        for page in run.page..run.end() {
            let written = write && page == run.page;
            writable &= self.arrived(segment, page, written, outputs);
        }
        if writable {
            for page in run.page..run.end() {
                let mut entry = self.table.entry(segment, page);
                entry.set(WRITABLE);
                self.table.set(segment, page, entry);
            }
        }
        outputs.push(Output::Map {
            segment,
            run,
            writable,
        });
    }

    fn copy_frames(
        &mut self,
        (from, to): (SegmentId, SegmentId),
        run: Run,
        flags: u16,
        outputs: &mut Vec<Output>,
    ) {
        for page in run.page..run.end() {
            let mut entry = self.table.entry(to, page);
            self.table.take_frame(to, page, &mut entry);
            entry.set(flags);
            self.table.set(to, page, entry);
        }
        self.counters.copies += u64::from(run.count);
        join(outputs, Output::Copy { from, to, run });
    }

    /// The content of a slave's page is in its frame. Is the page the slave's own now, to be
    /// written without a fault?
    pub(super) fn arrived(
        &mut self,
        segment: SegmentId,
        page: PageNo,
        written: bool,
        outputs: &mut Vec<Output>,
    ) -> bool {
        let mut entry = self.table.entry(segment, page);
        if entry.is(ON_WRITE) && !written {
            return false;
        }
        let master = entry.master;
        entry.master = 0;
        entry.clear(ON_WRITE | ALONE);
        entry.set(TOUCHED | DIRTY);
        self.counters.cor_faults += 1;
        if written {
            self.counters.cor_written += 1;
        } else {
            entry.set(FRESH);
        }
        self.table.set(segment, page, entry);
        self.settle_master(master, page, outputs);
        written || !self.options.count_writes
    }

    /// A slave writes a page that it has only read so far.
    fn own_twin(&mut self, segment: SegmentId, page: PageNo, outputs: &mut Vec<Output>) {
        let mut entry = self.table.entry(segment, page);
        let master = entry.master;
        entry.master = 0;
        entry.clear(ON_WRITE | ALONE);
        entry.set(TOUCHED | DIRTY);
        self.table.set(segment, page, entry);
        self.counters.cor_faults += 1;
        self.counters.cor_written += 1;
        self.settle_master(master, page, outputs);
    }

    /// A master that has lost a slave: without any the page is its own alone, and may be written.
    pub(super) fn settle_master(
        &mut self,
        master: SegmentId,
        page: PageNo,
        outputs: &mut Vec<Output>,
    ) {
        let Some(segment) = self.table.get(master) else {
            return;
        };
        let mut entry = segment.entry(page);
        if !entry.is(COW) || !self.table.slaves(master, page).is_empty() {
            return;
        }
        entry.clear(COW);
        if entry.is(DIRTY) && entry.is(MAPPED) && !entry.is(LEAVING) {
            entry.set(WRITABLE);
            let run = Run::one(page);
            let segment = master;
            join(outputs, Output::Unprotect { segment, run });
        }
        self.table.set(master, page, entry);
    }

    /// The next pages of a child that copies at once, until one has to be waited for.
    pub(super) fn copy_on(&mut self, segment: SegmentId, next: PageNo, outputs: &mut Vec<Output>) {
        let pages = self.table.of(segment).pages;
        for page in next..pages {
            let entry = self.table.entry(segment, page);
            let mut wait = entry.is(COMING);
            if !wait && entry.is_slave() {
                wait = self.copy_now(segment, page, outputs);
            }
            if wait {
                let next = page;
                self.waiting.push(Waiter::Copy { segment, next });
                return;
            }
        }
        outputs.push(Output::Forked { segment });
    }

    /// Does this page have to be waited for?
    fn copy_now(&mut self, segment: SegmentId, page: PageNo, outputs: &mut Vec<Output>) -> bool {
        let most = self.options.most_run;
        let room = self.make_room(segment, most, outputs);
        if room == 0 {
            return true;
        }
        match self.source(segment, page) {
            Source::Frame(master) => {
                let run = self.same_source(segment, page, room.min(most));
                self.copy_frames((master, segment), run, RESIDENT, outputs);
                for page in run.page..run.end() {
                    self.arrived(segment, page, false, outputs);
                }
                false
            }
            Source::File(file) => {
                let run = self.same_source(segment, page, room.min(most));
                self.fetch(segment, run, file, super::jobs::For::Later, outputs);
                true
            }
            Source::Coming => true,
            Source::Zeros => unreachable!("a slave's master has content"),
        }
    }
}
