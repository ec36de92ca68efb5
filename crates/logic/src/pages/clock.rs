//! Which frame is given up: a clock with two hands, as queues.
//!
//! A page is behind the front hand when it comes. When the front hand passes it (`active` to
//! `inactive`) it is unmapped, so that a use is a fault and leaves `REFERENCED`. When the back hand
//! comes to it, a used page goes round again; a clean one is given up; a dirty one is stored, and
//! then waits at the head of all (`clean`). The hands are an eighth of the frames apart: with fewer
//! pages between them a use is seen too rarely, with more there are faults for nothing.

use super::runs::{Runs, join};
use super::table::{
    AHEAD, ASIDE, BUSY, COMING, DIRTY, Entry, LEAVING, MAPPED, QUEUED, Queued, REFERENCED,
    RESIDENT, Segment,
};
use super::{Output, PageNo, Pages, Run, SegmentId};
use alloc::vec::Vec;

/// The part of the frames that is between the hands; and the least, if that is not half of them.
const MOST_BETWEEN: u32 = 8;
const LEAST_BETWEEN: u32 = 16;
/// The part of the frames that is kept free, so that a fault rarely waits; and the most.
const FREE_PART: u32 = 32;
const MOST_FREE: u32 = 512;
/// The part of the frames that one run may take, and that all runs read ahead for a program may.
const RUN_PART: u32 = 8;
const AHEAD_PART: u32 = 4;
/// Dirty neighbours that are stored with a page.
const MOST_CLUSTER: u32 = 64;

pub(super) enum Queue {
    Active,
    Clean,
}

enum Reclaimed {
    /// A frame was given up.
    Frame,
    /// Stores are under way.
    Later,
    /// There is nothing that could be given up.
    Nothing,
}

fn reserve(limit: u32) -> u32 {
    if limit == u32::MAX {
        return 0;
    }
    (limit / FREE_PART).min(MOST_FREE)
}

impl Pages {
    pub(super) fn enqueue(&mut self, segment: SegmentId, page: PageNo, queue: Queue) {
        let now = self.table.now;
        let mut entry = self.table.entry(segment, page);
        entry.set(QUEUED);
        self.table.set(segment, page, entry);
        let segment = self.table.of_mut(segment);
        match queue {
            Queue::Active => segment.active.push_back((page, now)),
            Queue::Clean => segment.clean.push_back((page, now)),
        }
    }

    fn free(&self, segment: SegmentId) -> u32 {
        let table = self.table.of(segment);
        let own = table.limit.saturating_sub(table.frames);
        own.min(self.options.frames.saturating_sub(self.table.frames))
    }

    /// The longest run that is worth reading: reading ahead must not push out what it has read.
    pub(super) fn most_window(&self, segment: SegmentId) -> u32 {
        let part = self.limit_of(segment) / RUN_PART;
        self.options.most_run.min(part.max(1))
    }

    /// The most pages that are worth having ahead of a program.
    pub(super) fn most_ahead(&self, segment: SegmentId) -> u32 {
        self.limit_of(segment) / AHEAD_PART
    }

    fn limit_of(&self, segment: SegmentId) -> u32 {
        self.table.of(segment).limit.min(self.options.frames)
    }

    /// Frees frames for a fault: how many there are, at most `wanted`. 0: stores are under way, and
    /// the fault waits for one. Where nothing can be given up the limit gives way by one frame.
    pub(super) fn make_room(
        &mut self,
        segment: SegmentId,
        wanted: u32,
        outputs: &mut Vec<Output>,
    ) -> u32 {
        loop {
            let free = self.free(segment);
            if free >= wanted {
                return wanted;
            }
            match self.reclaim_for(segment, outputs) {
                Reclaimed::Frame => {}
                Reclaimed::Later => return free,
                Reclaimed::Nothing => return free.max(1),
            }
        }
    }

    /// The same for pages that nobody waits for.
    pub(super) fn free_room(
        &mut self,
        segment: SegmentId,
        wanted: u32,
        outputs: &mut Vec<Output>,
    ) -> u32 {
        while self.free(segment) < wanted {
            if !matches!(self.reclaim_for(segment, outputs), Reclaimed::Frame) {
                break;
            }
        }
        self.free(segment).min(wanted)
    }

    /// Keeps some frames free, and takes back what went beyond a limit.
    pub(super) fn trim(&mut self, outputs: &mut Vec<Output>) {
        let over = |segment: &Segment| {
            let most = segment.limit - reserve(segment.limit);
            segment.frames > most
        };
        let ids = self.table.all().filter(|(_, segment)| over(segment));
        let ids: Vec<SegmentId> = ids.map(|(id, _)| id).collect();
        for id in ids {
            while over(self.table.of(id)) {
                if !matches!(self.reclaim(id, outputs), Reclaimed::Frame) {
                    break;
                }
            }
        }
        let most = self.options.frames - reserve(self.options.frames);
        while self.table.frames > most {
            let Some(victim) = self.oldest() else { break };
            if !matches!(self.reclaim(victim, outputs), Reclaimed::Frame) {
                break;
            }
        }
    }

    /// Takes a frame from where the limit is: from this segment, or from whichever has the oldest
    /// page.
    fn reclaim_for(&mut self, segment: SegmentId, outputs: &mut Vec<Output>) -> Reclaimed {
        let table = self.table.of(segment);
        if table.frames >= table.limit {
            return self.reclaim(segment, outputs);
        }
        let victim = self.oldest().unwrap_or(segment);
        match self.reclaim(victim, outputs) {
            Reclaimed::Nothing if victim != segment => self.reclaim(segment, outputs),
            reclaimed => reclaimed,
        }
    }

    /// The segment whose oldest page is the oldest of all.
    fn oldest(&self) -> Option<SegmentId> {
        let age = |segment: &Segment| {
            let queues = [&segment.clean, &segment.inactive, &segment.active];
            let heads = queues.into_iter().filter_map(|queue| queue.front());
            heads.map(|(_, since)| *since).min()
        };
        let ages = self.table.all().filter(|(_, segment)| segment.frames > 0);
        let ages = ages.filter_map(|(id, segment)| Some((age(segment)?, id)));
        ages.min().map(|(_, id)| id)
    }

    fn reclaim(&mut self, segment: SegmentId, outputs: &mut Vec<Output>) -> Reclaimed {
        let table = self.table.of(segment);
        let steps = table.clean.len() + table.inactive.len() + table.active.len();
        for _ in 0..=steps {
            let Some((page, since)) = self.next_victim(segment, outputs) else {
                break;
            };
            let mut entry = self.table.entry(segment, page);
            if entry.is(BUSY) {
                self.requeue(segment, (page, since), entry);
            } else if !entry.is(RESIDENT) {
                // It was discarded meanwhile.
                entry.clear(QUEUED);
                self.table.set(segment, page, entry);
            } else if entry.is(REFERENCED) {
                let now = self.table.now;
                self.requeue(segment, (page, now), entry);
            } else if !entry.is(DIRTY) {
                self.table.give_frame(segment, &mut entry);
                entry.clear(QUEUED);
                self.table.set(segment, page, entry);
                self.counters.dropped += 1;
                let run = Run::one(page);
                join(outputs, Output::Drop { segment, run });
                return Reclaimed::Frame;
            } else if self.stores() < self.options.most_stores {
                entry.clear(QUEUED);
                self.table.set(segment, page, entry);
                let run = self.cluster(segment, page);
                self.store(segment, run, outputs);
            } else {
                self.table
                    .of_mut(segment)
                    .inactive
                    .push_front((page, since));
                return Reclaimed::Later;
            }
        }
        match self.jobs.is_empty() {
            true => Reclaimed::Nothing,
            false => Reclaimed::Later,
        }
    }

    /// The page that the back hand points to, out of its queue.
    fn next_victim(&mut self, segment: SegmentId, outputs: &mut Vec<Output>) -> Option<Queued> {
        if let Some(queued) = self.table.of_mut(segment).clean.pop_front() {
            return Some(queued);
        }
        self.advance_front(segment, outputs);
        self.table.of_mut(segment).inactive.pop_front()
    }

    /// A page that was used, or is worked on, goes round again.
    fn requeue(&mut self, id: SegmentId, queued: Queued, entry: Entry) {
        let segment = self.table.of_mut(id);
        match entry.is(REFERENCED) {
            true => segment.active.push_back(queued),
            false => segment.inactive.push_back(queued),
        }
    }

    /// Moves the front hand, when the back hand has come near to it.
    fn advance_front(&mut self, id: SegmentId, outputs: &mut Vec<Output>) {
        let segment = self.table.of_mut(id);
        let wanted = (segment.frames / MOST_BETWEEN).max(LEAST_BETWEEN);
        let wanted = wanted.min(segment.frames / 2).max(1) as usize;
        if segment.inactive.len() > wanted / 2 {
            return;
        }
        let mut unmapped = Vec::new();
        while segment.inactive.len() < wanted {
            let Some((page, since)) = segment.active.pop_front() else {
                break;
            };
            let mut entry = segment.entry(page);
            if !entry.is(RESIDENT | COMING) {
                entry.clear(QUEUED);
            } else {
                if entry.is(MAPPED) {
                    unmapped.push(page);
                }
                entry.clear(REFERENCED | MAPPED | ASIDE);
                segment.inactive.push_back((page, since));
            }
            segment.set(page, entry);
        }
        unmapped.sort_unstable();
        let mut runs = Runs::default();
        unmapped.into_iter().for_each(|page| runs.add(page));
        for run in runs.into_vec() {
            outputs.push(Output::Unmap { segment: id, run });
        }
    }

    fn stores(&self) -> u32 {
        let is_store = |job: &&super::jobs::Job| matches!(job.work, super::jobs::Work::Store);
        self.jobs.values().filter(is_store).count() as u32
    }

    /// A dirty page with its dirty neighbours that were not used lately.
    fn cluster(&self, segment: SegmentId, page: PageNo) -> Run {
        let table = self.table.of(segment);
        let fits = |page: &PageNo| {
            let entry = table.entry(*page);
            let idle = !entry.is(REFERENCED | LEAVING | COMING | AHEAD);
            entry.is(DIRTY) && idle
        };
        let most = MOST_CLUSTER.min(self.options.most_run);
        let before = (page.saturating_sub(most - 1)..page).rev();
        let before = before.take_while(fits).count() as u32;
        let end = table.pages.min(page.saturating_add(most - before));
        let behind = (page + 1..end).take_while(fits).count() as u32;
        Run {
            page: page - before,
            count: before + 1 + behind,
        }
    }
}
