//! Random trees of forks, with writes, reads, discards and deletions, jobs that end late and in any
//! order, against a model that copies everything at once.
#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::string::String;
use std::vec;

const PAGES: u32 = 24;
const MOST_SEGMENTS: usize = 7;
/// Content of a frame that is being filled, and of a place in a file that is being written.
const TORN: u64 = u64::MAX;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Access {
    segment: SegmentId,
    page: PageNo,
    write: Option<u64>,
    waits: bool,
}

struct Job {
    id: JobId,
    segment: SegmentId,
    run: Run,
    file: FileId,
    store: bool,
    begun: Vec<u64>,
}

/// The room of the tests: frames, files and mappings as numbers.
struct World {
    pages: Pages,
    random: Random,
    now: u64,
    next: SegmentId,
    frames: BTreeMap<(SegmentId, PageNo), u64>,
    files: BTreeMap<(FileId, PageNo), u64>,
    closed: BTreeSet<FileId>,
    mapped: BTreeMap<(SegmentId, PageNo), bool>,
    unmaps: Vec<(SegmentId, Run)>,
    jobs: Vec<Job>,
    accesses: Vec<Access>,
    model: BTreeMap<SegmentId, Vec<u64>>,
    /// A fork or a discard that is not answered yet.
    pending: BTreeSet<SegmentId>,
    ended: BTreeSet<SegmentId>,
    value: u64,
    /// Pages that were protected.
    protected: u64,
}

impl World {
    fn new(seed: u64, options: Options) -> Self {
        Self {
            pages: Pages::new(options),
            random: Random(seed),
            now: 0,
            next: 1,
            frames: BTreeMap::new(),
            files: BTreeMap::new(),
            closed: BTreeSet::new(),
            mapped: BTreeMap::new(),
            unmaps: Vec::new(),
            jobs: Vec::new(),
            accesses: Vec::new(),
            model: BTreeMap::new(),
            pending: BTreeSet::new(),
            ended: BTreeSet::new(),
            value: 0,
            protected: 0,
        }
    }

    fn tell(&mut self, input: Input) {
        self.now += 1;
        let mut outputs = Vec::new();
        self.pages.handle(self.now, input, &mut outputs);
        for output in outputs {
            self.carry(output);
        }
        self.pages.check();
    }

    fn carry(&mut self, output: Output) {
        match output {
            Output::Zero { segment, run } => {
                for page in run.page..run.end() {
                    assert!(self.frames.insert((segment, page), 0).is_none());
                }
            }
            Output::Copy { from, to, run } => {
                for page in run.page..run.end() {
                    let content = self.frames[&(from, page)];
                    assert_ne!(content, TORN);
                    assert!(self.frames.insert((to, page), content).is_none());
                }
            }
            Output::Map {
                segment,
                run,
                writable,
            } => self.map(segment, run, writable),
            Output::Protect { segment, run } => {
                self.protected += u64::from(run.count);
                for page in run.page..run.end() {
                    self.mapped
                        .entry((segment, page))
                        .and_modify(|w| *w = false);
                }
            }
            Output::Unprotect { segment, run } => {
                for page in run.page..run.end() {
                    let entry = self.mapped.entry((segment, page));
                    entry.and_modify(|writable| *writable = true);
                    self.wake(segment, page);
                }
            }
            Output::Unmap { segment, run } => self.unmaps.push((segment, run)),
            Output::Drop { segment, run } => {
                for page in run.page..run.end() {
                    assert!(self.frames.remove(&(segment, page)).is_some());
                    self.mapped.remove(&(segment, page));
                }
            }
            Output::Fetch {
                job,
                segment,
                run,
                file,
                ..
            } => self.begin(job, segment, run, file, false),
            Output::Store {
                job,
                segment,
                run,
                file,
            } => self.begin(job, segment, run, file, true),
            Output::Forked { segment } | Output::Discarded { segment, .. } => {
                assert!(self.pending.remove(&segment));
            }
            Output::Close { file } => {
                assert!(self.closed.insert(file));
                assert!(self.jobs.iter().all(|job| job.file != file));
                self.files.retain(|(of, _), _| *of != file);
            }
            Output::End { segment } => {
                self.ended.insert(segment);
            }
        }
    }

    fn map(&mut self, segment: SegmentId, run: Run, writable: bool) {
        for page in run.page..run.end() {
            let content = self.frames[&(segment, page)];
            assert_ne!(content, TORN, "a frame is mapped before it is filled");
            let old = self.mapped.insert((segment, page), writable);
            assert!(old != Some(true) || writable, "mapping takes no right away");
            self.wake(segment, page);
        }
    }

    fn wake(&mut self, segment: SegmentId, page: PageNo) {
        let woken = self.accesses.iter_mut();
        let woken = woken.filter(|a| (a.segment, a.page) == (segment, page));
        woken.for_each(|access| access.waits = false);
    }

    fn unmap(&mut self, segment: SegmentId, run: Run) {
        for page in run.page..run.end() {
            self.mapped.remove(&(segment, page));
        }
    }

    fn begin(&mut self, id: JobId, segment: SegmentId, run: Run, file: FileId, store: bool) {
        assert!(!self.closed.contains(&file), "a closed file is used");
        let mut begun = Vec::new();
        for page in run.page..run.end() {
            if store {
                assert_ne!(self.mapped.get(&(segment, page)), Some(&true));
                begun.push(self.frames[&(segment, page)]);
                self.files.insert((file, page), TORN);
            } else {
                begun.push(self.files[&(file, page)]);
                assert!(self.frames.insert((segment, page), TORN).is_none());
            }
        }
        self.jobs.push(Job {
            id,
            segment,
            run,
            file,
            store,
            begun,
        });
    }

    fn end_job(&mut self, fail: bool) {
        let at = self.random.below(self.jobs.len() as u64) as usize;
        let job = self.jobs.swap_remove(at);
        if fail {
            self.tell(Input::Failed { job: job.id });
            return;
        }
        for (page, begun) in (job.run.page..).zip(&job.begun) {
            let frame = (job.segment, page);
            if job.store {
                // The program may have written it meanwhile.
                let now = self.frames.get(&frame).copied().unwrap_or(*begun);
                let content = if self.random.one_in(2) { *begun } else { now };
                self.files.insert((job.file, page), content);
            } else if self.model.contains_key(&job.segment) {
                // (What is read for a segment that is deleted may be anything.)
                let content = self.files[&(job.file, page)];
                assert_eq!(content, *begun, "a file changed while it was read");
                assert_ne!(content, TORN, "a file is read while it is written");
                self.frames.insert(frame, content);
            }
        }
        self.tell(Input::Done { job: job.id });
    }

    fn some_segment(&mut self) -> Option<SegmentId> {
        let usable: Vec<_> = self.model.keys().copied().collect();
        let usable: Vec<_> = usable
            .into_iter()
            .filter(|id| !self.pending.contains(id))
            .collect();
        let at = self.random.below(usable.len().max(1) as u64) as usize;
        usable.get(at).copied()
    }

    /// Goes on with the accesses that may.
    fn advance(&mut self) {
        for at in (0..self.accesses.len()).rev() {
            let access = &self.accesses[at];
            if access.waits {
                continue;
            }
            let key = (access.segment, access.page);
            let (segment, page, write) = (access.segment, access.page, access.write);
            match (self.mapped.get(&key), write) {
                (Some(true), Some(value)) => {
                    self.frames.insert(key, value);
                    self.model.get_mut(&segment).unwrap()[page as usize] = value;
                    self.accesses.swap_remove(at);
                }
                (Some(_), None) => {
                    let expected = self.model[&segment][page as usize];
                    assert_eq!(
                        self.frames[&key], expected,
                        "segment {segment}, page {page}"
                    );
                    self.accesses.swap_remove(at);
                }
                (_, write) => {
                    self.accesses[at].waits = true;
                    let write = write.is_some();
                    self.tell(Input::Fault {
                        segment,
                        page,
                        write,
                    });
                }
            }
        }
    }

    fn delete(&mut self, segment: SegmentId) {
        self.accesses.retain(|access| access.segment != segment);
        self.model.remove(&segment);
        self.tell(Input::Delete { segment });
        self.frames.retain(|(of, _), _| *of != segment);
        self.mapped.retain(|(of, _), _| *of != segment);
    }

    fn fork(&mut self, from: SegmentId) {
        let to = self.next;
        self.next += 1;
        let kinds = [
            Kind::Copy,
            Kind::OnWrite,
            Kind::OnReference,
            Kind::CowCor,
            Kind::CowCor,
        ];
        let kind = kinds[self.random.below(5) as usize];
        let frames = if self.random.one_in(2) { u32::MAX } else { 5 };
        let unmapped = self.random.one_in(2);
        if unmapped {
            self.unmap_for_fork(from);
        }
        self.model.insert(to, self.model[&from].clone());
        self.pending.insert(to);
        self.tell(Input::Fork {
            from,
            to,
            kind,
            frames,
            unmapped,
        });
    }

    /// The program unmaps all at some time between its two calls, and its threads go on meanwhile.
    fn unmap_for_fork(&mut self, segment: SegmentId) {
        self.tell(Input::Unmapping { segment });
        if self.random.one_in(8) {
            // Another thread, too.
            self.unmap_for_fork(segment);
        }
        self.go_on(segment);
        self.mapped.retain(|(of, _), _| *of != segment);
        self.go_on(segment);
    }

    fn go_on(&mut self, segment: SegmentId) {
        for _ in 0..self.random.below(4) {
            self.access(segment);
            self.advance();
            if !self.jobs.is_empty() && self.random.one_in(2) {
                self.end_job(false);
            }
        }
    }

    fn discard(&mut self, segment: SegmentId) {
        if self.accesses.iter().any(|access| access.segment == segment) {
            return;
        }
        let page = self.random.below(u64::from(PAGES)) as u32;
        let count = 1 + self.random.below(u64::from(PAGES - page)) as u32;
        let run = Run { page, count };
        for page in run.page..run.end() {
            self.model.get_mut(&segment).unwrap()[page as usize] = 0;
        }
        self.pending.insert(segment);
        self.tell(Input::Discard { segment, run });
    }

    fn access(&mut self, segment: SegmentId) {
        let page = match self.random.one_in(3) {
            // Some programs go on from where they were.
            true => (self.value % u64::from(PAGES)) as u32,
            false => self.random.below(u64::from(PAGES)) as u32,
        };
        self.value += 1;
        let write = self.random.one_in(2).then_some(self.value);
        self.accesses.push(Access {
            segment,
            page,
            write,
            waits: false,
        });
    }

    fn step(&mut self) {
        if self.model.is_empty() {
            let segment = self.next;
            self.next += 1;
            self.model.insert(segment, vec![0; PAGES as usize]);
            self.tell(Input::Make {
                segment,
                pages: PAGES,
                frames: u32::MAX,
            });
        }
        if !self.jobs.is_empty() && self.random.one_in(3) {
            self.end_job(false);
        }
        if !self.unmaps.is_empty() && self.random.one_in(2) {
            let (segment, run) = self.unmaps.swap_remove(0);
            self.unmap(segment, run);
        }
        if let Some(segment) = self.some_segment() {
            match self.random.below(100) {
                0..=2 if self.model.len() < MOST_SEGMENTS => self.fork(segment),
                3..=4 if self.model.len() > 1 || self.random.one_in(50) => self.delete(segment),
                5 => self.discard(segment),
                6 if self.random.one_in(10) => {
                    let frames = 6 + self.random.below(60) as u32;
                    self.tell(Input::Limit { frames });
                }
                _ if self.accesses.len() < 6 => self.access(segment),
                _ => {}
            }
        }
        self.advance();
    }

    /// Everything that waits ends when the jobs do.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.advance();
            if self.accesses.is_empty() && self.pending.is_empty() && self.jobs.is_empty() {
                return;
            }
            if !self.jobs.is_empty() {
                self.end_job(false);
            }
        }
        let waits = self.accesses.len();
        panic!("{waits} accesses wait for ever, and {:?}", self.pending);
    }

    fn compare_all(&mut self) {
        for (segment, page) in self.all_pages() {
            self.accesses.push(Access {
                segment,
                page,
                write: None,
                waits: false,
            });
            self.settle();
        }
    }

    fn all_pages(&self) -> Vec<(SegmentId, PageNo)> {
        let segments = self.model.keys();
        segments
            .flat_map(|id| (0..PAGES).map(move |page| (*id, page)))
            .collect()
    }

    fn end(&mut self) {
        self.settle();
        for segment in self.model.keys().copied().collect::<Vec<_>>() {
            self.delete(segment);
        }
        self.settle();
        assert!(self.frames.is_empty() && self.files.is_empty());
        assert_eq!(self.pages.frames(), 0);
    }
}

fn options(seed: u64) -> Options {
    Options {
        frames: [12, 30, 70, u32::MAX][(seed % 4) as usize],
        most_run: [1, 4, 16][(seed % 3) as usize],
        most_stores: [1, 3][(seed % 2) as usize],
        count_writes: seed.is_multiple_of(5),
    }
}

fn run(seed: u64, steps: u64) -> Counters {
    let mut world = World::new(seed, options(seed));
    for step in 0..steps {
        world.step();
        if step % 5_000 == 4_999 {
            world.settle();
            world.compare_all();
        }
    }
    world.settle();
    world.compare_all();
    let counters = world.pages.counters();
    world.end();
    counters
}

/// Tells the seed of a run that fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::println!("seed {}", self.0);
        }
    }
}

#[test]
fn random_trees_of_forks_read_what_was_written() {
    // ARIEL_LONG: a million operations.
    let long = std::env::var_os("ARIEL_LONG").is_some();
    let (seeds, steps) = if long { (100, 10_000) } else { (40, 1_500) };
    let mut all = Counters::default();
    for seed in 0..seeds {
        let _seed = Seed(seed);
        let seen = run(seed, steps);
        for (sum, part) in [
            (&mut all.cow_faults, seen.cow_faults),
            (&mut all.cor_faults, seen.cor_faults),
            (&mut all.handed, seen.handed),
            (&mut all.ahead, seen.ahead),
            (&mut all.soft, seen.soft),
            (&mut all.stored, seen.stored),
        ] {
            *sum += part;
        }
    }
    // A run in which one of these never happens proves nothing about it.
    let seen = [
        all.cow_faults,
        all.cor_faults,
        all.handed,
        all.ahead,
        all.soft,
        all.stored,
    ];
    assert!(seen.iter().all(|count| *count > 100), "{all:?}");
}

/// One segment, or a parent with children, of which every page was written.
fn family(kinds: &[Kind], frames: u32) -> World {
    let options = Options {
        frames,
        ..Options::default()
    };
    let mut world = World::new(1, options);
    world.next = 2 + kinds.len() as u32;
    world.model.insert(1, vec![0; PAGES as usize]);
    world.tell(Input::Make {
        segment: 1,
        pages: PAGES,
        frames: u32::MAX,
    });
    for page in 0..PAGES {
        access(&mut world, 1, page, Some(u64::from(page) + 1000));
    }
    for (to, kind) in (2..).zip(kinds) {
        fork(&mut world, to, *kind, false);
    }
    world
}

/// A child of the first segment.
fn fork(world: &mut World, to: SegmentId, kind: Kind, unmapped: bool) {
    world.model.insert(to, world.model[&1].clone());
    world.pending.insert(to);
    world.tell(Input::Fork {
        from: 1,
        to,
        kind,
        frames: u32::MAX,
        unmapped,
    });
}

fn access(world: &mut World, segment: SegmentId, page: PageNo, write: Option<u64>) {
    world.accesses.push(Access {
        segment,
        page,
        write,
        waits: false,
    });
    world.settle();
}

#[test]
fn a_write_gives_the_page_to_one_child_which_becomes_master() {
    // Nelson, figure 7-2.
    let mut world = family(&[Kind::CowCor, Kind::CowCor], u32::MAX);
    let before = world.pages.counters();
    assert_eq!((before.cow_marked, before.cor_marked), (48, 48));
    access(&mut world, 3, 1, None);
    access(&mut world, 1, 0, Some(7));
    assert_eq!(world.pages.table.entry(2, 0).master, 0);
    assert_eq!(world.pages.table.entry(3, 0).master, 2);
    assert_eq!(world.pages.table.entry(3, 1).master, 0);
    assert!(world.mapped[&(1, 0)]);
    let after = world.pages.counters();
    assert_eq!(
        (after.cow_faults, after.cor_faults, after.copies),
        (1, 1, 2)
    );
    world.compare_all();
    world.end();
}

#[test]
fn a_parent_is_as_before_when_its_child_is_deleted() {
    // Nelson, figure 7-3: no fault is left over.
    let mut world = family(&[Kind::CowCor], u32::MAX);
    access(&mut world, 1, 0, Some(7));
    world.delete(2);
    let before = world.pages.counters().faults;
    for page in 0..PAGES {
        assert!(
            world.mapped[&(1, page)],
            "page {page} is not writable again"
        );
        access(&mut world, 1, page, Some(9));
    }
    assert_eq!(world.pages.counters().faults, before);
    world.end();
}

#[test]
fn a_fork_of_an_unmapped_segment_protects_only_what_was_mapped_meanwhile() {
    let mut world = family(&[], u32::MAX);
    world.tell(Input::Unmapping { segment: 1 });
    world.mapped.clear();
    access(&mut world, 1, 3, Some(7));
    fork(&mut world, 2, Kind::CowCor, true);
    assert_eq!(world.protected, 1);
    // Pages that are only read are mapped with others.
    let before = world.pages.counters().faults;
    for page in 0..PAGES {
        access(&mut world, 1, page, None);
    }
    let faults = world.pages.counters().faults - before;
    assert!(faults <= 4, "{faults}");
    access(&mut world, 1, 3, Some(8));
    access(&mut world, 1, 4, Some(9));
    assert_eq!(world.pages.counters().cow_faults, 2);
    world.compare_all();
    // Only a fork that follows on it may be told so.
    world.delete(2);
    fork(&mut world, 3, Kind::CowCor, true);
    access(&mut world, 1, 4, Some(10));
    world.compare_all();
    world.end();
}

#[test]
fn each_kind_copies_when_it_says() {
    for (kind, at_fork, read, write) in [
        (Kind::Copy, 24, 0, 0),
        (Kind::OnWrite, 0, 1, 1),
        (Kind::OnReference, 0, 1, 2),
        (Kind::CowCor, 0, 1, 1),
    ] {
        let mut world = family(&[kind, kind], u32::MAX);
        let copies = |world: &World| world.pages.counters().copies;
        assert_eq!(copies(&world), 2 * at_fork, "{kind:?} at the fork");
        let before = copies(&world);
        access(&mut world, 2, 3, None);
        assert_eq!(copies(&world) - before, read, "{kind:?}: a child reads");
        let before = copies(&world);
        access(&mut world, 1, 5, Some(1));
        assert_eq!(
            copies(&world) - before,
            write,
            "{kind:?}: the parent writes"
        );
        world.compare_all();
        world.end();
    }
}

#[test]
fn what_is_only_read_through_copy_on_write_is_never_stored() {
    for (kind, stores) in [(Kind::OnWrite, false), (Kind::CowCor, true)] {
        let mut world = family(&[kind], 16);
        world.settle();
        let before = world.pages.counters().stored;
        for page in 0..PAGES {
            access(&mut world, 2, page, None);
        }
        // The parent's own pages are stored once at most.
        let stored = world.pages.counters().stored - before;
        assert_eq!(stored > u64::from(PAGES), stores, "{kind:?}: {stored}");
        world.end();
    }
}

#[test]
fn clean_pages_are_not_stored_again_and_untouched_ones_never() {
    let mut world = family(&[], 12);
    for round in 0..3 {
        for page in 0..PAGES {
            access(&mut world, 1, page, None);
        }
        let counters = world.pages.counters();
        assert!(
            counters.stored <= u64::from(PAGES),
            "round {round}: {counters:?}"
        );
    }
    world.end();
    let mut world = World::new(
        1,
        Options {
            frames: 12,
            ..Options::default()
        },
    );
    world.model.insert(1, vec![0; PAGES as usize]);
    world.tell(Input::Make {
        segment: 1,
        pages: PAGES,
        frames: u32::MAX,
    });
    for _ in 0..3 {
        (0..PAGES).for_each(|page| access(&mut world, 1, page, None));
    }
    assert_eq!(world.pages.counters().stored, 0);
    assert_eq!(world.pages.figures(1).unwrap().stored, 0);
    world.end();
}

#[test]
fn a_page_that_is_used_outlives_a_scan() {
    let mut world = family(&[], 16);
    let mut lost = 0;
    for round in 0..40 {
        for page in 4..PAGES {
            access(&mut world, 1, page, None);
            while let Some((segment, run)) = world.unmaps.pop() {
                world.unmap(segment, run);
            }
            access(&mut world, 1, page % 2, None);
            if round > 0 && !world.frames.contains_key(&(1, page % 2)) {
                lost += 1;
            }
        }
    }
    let fetched = world.pages.counters().fetched;
    assert_eq!(lost, 0);
    assert!(
        fetched > 500,
        "the scan did not go through the frames: {fetched}"
    );
    world.end();
}

#[test]
fn sequential_reads_come_in_runs_that_double() {
    let mut world = family(&[], 64);
    world.tell(Input::Limit { frames: 0 });
    world.settle();
    world.tell(Input::Limit { frames: 64 });
    let mut seen = String::new();
    for page in 0..PAGES {
        world.accesses.push(Access {
            segment: 1,
            page,
            write: None,
            waits: false,
        });
        world.advance();
        for job in world.jobs.iter().filter(|job| !job.store) {
            seen.push_str(&std::format!("{} ", job.run.count));
        }
        world.settle();
    }
    let counters = world.pages.counters();
    assert!(
        counters.ahead > u64::from(PAGES) / 2,
        "{seen}: {counters:?}"
    );
    world.end();
}

#[test]
fn a_refused_job_ends_its_segment_and_nothing_else() {
    let mut failed = 0;
    for seed in 0..60 {
        let _seed = Seed(seed);
        let mut world = World::new(seed, options(seed & !3));
        for _ in 0..400 {
            world.step();
            if !world.jobs.is_empty() && world.random.one_in(40) {
                failed += 1;
                world.fail_one();
            }
        }
        world.settle();
        world.compare_all();
        world.end();
    }
    assert!(failed > 100, "{failed}");
}

impl World {
    /// One job is refused; its segment's program ends.
    fn fail_one(&mut self) {
        self.end_job(true);
        for segment in core::mem::take(&mut self.ended) {
            self.pending.remove(&segment);
            if self.model.contains_key(&segment) {
                self.delete(segment);
            }
        }
    }
}
