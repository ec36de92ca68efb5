//! Forks, deletions and discards: who is master of a page, and who gets it (Nelson, section 7.4).

use super::runs::{Runs, join};
use super::table::{
    ALONE, ASIDE, BUSY, COMING, COW, DIRTY, Entry, MAPPED, ON_WRITE, QUEUED, RESIDENT, STORED,
    Segment, TOUCHED, WRITABLE,
};
use super::{Kind, Output, PageNo, Pages, Run, SegmentId, Waiter};
use alloc::vec::Vec;

/// Runs that are noted while a program unmaps a segment.
const MOST_SINCE: usize = 4096;

impl Pages {
    pub(super) fn on_fork(
        &mut self,
        from: SegmentId,
        (to, kind, frames): (SegmentId, Kind, u32),
        unmapped: bool,
        outputs: &mut Vec<Output>,
    ) {
        let file = self.new_file();
        let flags = match kind {
            Kind::OnWrite => ON_WRITE,
            Kind::OnReference => ALONE,
            Kind::Copy | Kind::CowCor => 0,
        };
        let parent = self.table.of_mut(from);
        let since = parent.mapped_since.take().filter(|_| unmapped);
        let revoked = match since {
            Some(_) => WRITABLE | MAPPED,
            None => WRITABLE,
        };
        let mut child = Segment::new(parent.pages, frames, file, parent.family);
        let (mut protected, mut masters, mut slaves) = (Runs::default(), 0, 0);
        parent.for_child(&mut child, |page, entry| {
            let master = if entry.is_slave() {
                entry.master
            } else if entry.is(TOUCHED) {
                if entry.is(WRITABLE) {
                    protected.add(page);
                }
                if since.is_some() && entry.is(MAPPED) {
                    entry.set(ASIDE);
                }
                entry.clear(revoked);
                entry.set(COW);
                masters += 1;
                from
            } else {
                return None;
            };
            slaves += 1;
            Some(Entry {
                flags,
                master,
                store: 0,
            })
        });
        self.counters.cow_marked += masters;
        self.counters.cor_marked += slaves;
        self.table.insert(to, child);
        for run in since.iter().flatten() {
            self.set_mapped(from, *run);
        }
        let protected = since.unwrap_or_else(|| protected.into_vec());
        for run in protected {
            outputs.push(Output::Protect { segment: from, run });
        }
        match kind {
            Kind::Copy => self.copy_on(to, 0, outputs),
            _ => outputs.push(Output::Forked { segment: to }),
        }
    }

    fn set_mapped(&mut self, segment: SegmentId, run: Run) {
        for page in run.page..run.end() {
            let mut entry = self.table.entry(segment, page);
            if entry.is(RESIDENT) {
                entry.set(MAPPED);
                entry.clear(ASIDE);
                self.table.set(segment, page, entry);
            }
        }
    }

    /// Keeps account of what is mapped while a program unmaps a segment: it may be mapped before
    /// the program comes to it, or afterwards.
    pub(super) fn note_mapped(&mut self, outputs: &[Output]) {
        for output in outputs {
            let (Output::Map { segment, run, .. } | Output::Unprotect { segment, run }) = output
            else {
                continue;
            };
            let Some(segment) = self.table.get_mut(*segment) else {
                continue;
            };
            if let Some(since) = &mut segment.mapped_since {
                since.push(*run);
                // A program that maps so much meanwhile gains nothing by it any more.
                if since.len() > MOST_SINCE {
                    segment.mapped_since = None;
                }
            }
        }
    }

    /// The content of a master's page goes to its slaves: a copy to each that never becomes a
    /// master, and the page with all other slaves to one heir. `leaving`: the master gives up the
    /// content, and with it the place in its file.
    pub(super) fn give_away(
        &mut self,
        from: SegmentId,
        page: PageNo,
        leaving: bool,
        outputs: &mut Vec<Output>,
    ) {
        let slaves = self.table.slaves(from, page);
        let is = |slave: SegmentId, flag| self.table.entry(slave, page).is(flag);
        let (alone, mut sharing): (Vec<_>, Vec<_>) =
            slaves.into_iter().partition(|slave| is(*slave, ALONE));
        // One that has a frame needs no copy.
        let at = sharing
            .iter()
            .position(|slave| is(*slave, RESIDENT) || is(*slave, COMING));
        let heir = (!sharing.is_empty()).then(|| sharing.remove(at.unwrap_or(0)));
        for slave in alone {
            self.give(from, page, slave, leaving, outputs);
        }
        if let Some(heir) = heir {
            self.give(from, page, heir, leaving, outputs);
            if !sharing.is_empty() {
                let mut entry = self.table.entry(heir, page);
                entry.set(COW);
                self.table.set(heir, page, entry);
            }
            for slave in sharing {
                let mut entry = self.table.entry(slave, page);
                entry.master = heir;
                self.table.set(slave, page, entry);
            }
        }
        let mut entry = self.table.entry(from, page);
        entry.clear(COW);
        self.table.set(from, page, entry);
    }

    /// A slave gets the content of its master's page, as its own.
    fn give(
        &mut self,
        from: SegmentId,
        page: PageNo,
        to: SegmentId,
        leaving: bool,
        outputs: &mut Vec<Output>,
    ) {
        let source = self.table.entry(from, page);
        let mut entry = self.table.entry(to, page);
        let has_frame = entry.is(RESIDENT) || entry.is(COMING);
        if !has_frame && source.is(RESIDENT) {
            self.table.take_frame(to, page, &mut entry);
            entry.set(RESIDENT);
            self.counters.copies += 1;
            let run = Run::one(page);
            join(outputs, Output::Copy { from, to, run });
        }
        entry.master = 0;
        entry.clear(ON_WRITE | ALONE);
        entry.set(TOUCHED);
        if leaving && source.is(STORED) {
            entry.set(STORED);
            entry.store = source.store;
            self.use_file(source.store);
        } else {
            assert!(
                entry.is(RESIDENT),
                "content that is in no file is in a frame"
            );
            entry.set(DIRTY);
        }
        self.table.set(to, page, entry);
        self.counters.handed += u64::from(leaving);
    }

    pub(super) fn on_delete(&mut self, segment: SegmentId, outputs: &mut Vec<Output>) {
        let used: Vec<(PageNo, Entry)> = self.table.of(segment).used().collect();
        for (page, entry) in &used {
            if entry.is(COW) {
                self.give_away(segment, *page, true, outputs);
            }
        }
        let removed = self.table.remove(segment);
        for (page, entry) in used {
            if entry.is(STORED) {
                self.leave_file(entry.store, outputs);
            }
            if entry.is_slave() {
                self.settle_master(entry.master, page, outputs);
            }
        }
        self.retire_file(removed.file, outputs);
    }

    pub(super) fn on_discard(&mut self, segment: SegmentId, run: Run, outputs: &mut Vec<Output>) {
        let table = self.table.of(segment);
        // A job works on the frame; the next store of the page must not overtake it.
        if (run.page..run.end()).any(|page| table.entry(page).is(BUSY)) {
            self.waiting.push(Waiter::Discard { segment, run });
            return;
        }
        let mut dropped = Runs::default();
        for page in run.page..run.end() {
            let mut entry = self.table.entry(segment, page);
            if entry == Entry::default() {
                continue;
            }
            if entry.is(COW) {
                self.give_away(segment, page, true, outputs);
                if entry.is(STORED) && entry.store == self.table.of(segment).file {
                    self.change_file(segment, outputs);
                }
                entry = self.table.entry(segment, page);
            }
            self.unstore(&mut entry, outputs);
            if entry.is(RESIDENT) {
                self.table.give_frame(segment, &mut entry);
                dropped.add(page);
            }
            let emptied = Entry {
                flags: entry.flags & QUEUED,
                ..Entry::default()
            };
            self.table.set(segment, page, emptied);
            if entry.is_slave() {
                self.settle_master(entry.master, page, outputs);
            }
        }
        for run in dropped.into_vec() {
            outputs.push(Output::Drop { segment, run });
        }
        outputs.push(Output::Discarded { segment, run });
    }
}
