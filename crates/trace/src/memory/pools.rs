//! The memory of a machine in two pools, as Sprite divides it (Nelson, sections 6.2 to 6.5): pages
//! of programs, and pages of cached files. A fault takes a free page, then the page that the rule
//! of ages names; which that is decides `logic::memory`.

use logic::memory::may_take;
use std::collections::{BTreeMap, HashMap};
use wire::Time;

/// A page of a program, or of a file: of which, and its number.
pub(super) type Key = (u32, u32);

/// Pages by last use.
#[derive(Default)]
struct Pool {
    by_use: BTreeMap<(Time, u64), Key>,
    pages: HashMap<Key, Page>,
    uses: u64,
}

#[derive(Clone, Copy)]
struct Page {
    used: (Time, u64),
    /// Since when it differs from what the server has.
    dirty: Option<Time>,
}

impl Pool {
    fn oldest(&self) -> Option<Time> {
        self.by_use.keys().next().map(|(time, _)| *time)
    }

    /// Takes note of a use; false: the page is not here.
    fn touch(&mut self, now: Time, key: Key, write: bool) -> bool {
        self.uses += 1;
        let Some(page) = self.pages.get_mut(&key) else {
            return false;
        };
        self.by_use.remove(&page.used);
        page.used = (now, self.uses);
        page.dirty = page.dirty.or(write.then_some(now));
        self.by_use.insert(page.used, key);
        true
    }

    fn insert(&mut self, now: Time, key: Key, write: bool) {
        self.uses += 1;
        let used = (now, self.uses);
        let dirty = write.then_some(now);
        self.pages.insert(key, Page { used, dirty });
        self.by_use.insert(used, key);
    }

    fn remove(&mut self, key: Key) -> Option<Page> {
        let page = self.pages.remove(&key)?;
        self.by_use.remove(&page.used);
        Some(page)
    }

    fn evict(&mut self) -> Option<(Key, bool)> {
        let key = *self.by_use.values().next()?;
        self.remove(key).map(|page| (key, page.dirty.is_some()))
    }
}

/// How the memory is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Division {
    /// So many pages are for files, even if programs need them.
    Fixed(usize),
    /// By ages, with this penalty for files.
    Varies(Time),
}

/// The cost of a use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// A page had to come from the server.
    pub(super) fetched: bool,
    /// A page of a program was written out for it.
    pub(super) page_out: bool,
    /// Changed bytes of a file were written back for it.
    pub(super) write_back: bool,
}

/// The events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Faults of programs that were served by the server; of these, from swap files.
    pub(super) page_ins: u64,
    pub(super) swap_ins: u64,
    pub(super) page_outs: u64,
    /// Pages of files.
    pub(super) reads: u64,
    pub(super) write_backs: u64,
    /// Pages that the files wanted of the programs, and got; and the other way round.
    pub(super) files_asked: u64,
    pub(super) files_got: u64,
    pub(super) programs_asked: u64,
    pub(super) programs_got: u64,
    /// Fewest and most pages of files.
    pub(super) least: usize,
    pub(super) most: usize,
}

pub(super) struct Pools {
    frames: usize,
    division: Division,
    /// The files never have fewer pages.
    least: usize,
    programs: Pool,
    files: Pool,
    /// Pages of programs that were written out: their content is in a swap file.
    swapped: HashMap<Key, ()>,
    pub(super) counts: Counts,
}

impl Pools {
    pub(super) fn new(frames: usize, least: usize, division: Division) -> Self {
        let counts = Counts {
            least: usize::MAX,
            ..Counts::default()
        };
        Self {
            frames,
            division,
            least,
            programs: Pool::default(),
            files: Pool::default(),
            swapped: HashMap::new(),
            counts,
        }
    }

    fn note_size(&mut self) {
        let size = self.files.pages.len();
        self.counts.least = self.counts.least.min(size.max(self.least));
        self.counts.most = self.counts.most.max(size);
    }

    /// Begins to count anew; pages in memory stay.
    pub(super) fn begin(&mut self) {
        self.counts = Counts {
            least: usize::MAX,
            ..Counts::default()
        };
        self.note_size();
    }

    /// A program uses a page. `load`: where it is used for the first time, its content comes from
    /// the program's file; else it is zeros.
    pub(super) fn use_page(&mut self, now: Time, key: Key, write: bool, load: bool) -> Cost {
        let mut cost = Cost::default();
        if self.programs.touch(now, key, write) {
            return cost;
        }
        let room = match self.division {
            Division::Fixed(files) => self.programs.pages.len() + files < self.frames,
            Division::Varies(_) => self.free(),
        };
        if !room {
            self.make_room_for_program(&mut cost);
        }
        let swapped = self.swapped.contains_key(&key);
        cost.fetched = swapped || load;
        self.counts.page_ins += u64::from(cost.fetched);
        self.counts.swap_ins += u64::from(swapped);
        self.programs.insert(now, key, write);
        self.note_size();
        cost
    }

    /// A page of a file is used. `whole`: all of it is written, so nothing has to come.
    pub(super) fn use_file(&mut self, now: Time, key: Key, write: bool, whole: bool) -> Cost {
        let mut cost = Cost::default();
        if self.files.touch(now, key, write) {
            return cost;
        }
        let room = match self.division {
            Division::Fixed(files) => self.files.pages.len() < files,
            Division::Varies(_) => self.free(),
        };
        if !room {
            self.make_room_for_file(&mut cost);
        }
        cost.fetched = !whole;
        self.counts.reads += u64::from(cost.fetched);
        self.files.insert(now, key, write);
        self.note_size();
        cost
    }

    fn free(&self) -> bool {
        self.programs.pages.len() + self.files.pages.len() < self.frames
    }

    fn make_room_for_program(&mut self, cost: &mut Cost) {
        if let (Division::Varies(penalty), Some(block)) = (self.division, self.files.oldest()) {
            self.counts.programs_asked += 1;
            let program = self.programs.oldest().unwrap_or(Time::MAX);
            let spare = self.files.pages.len() > self.least;
            if spare && !may_take(program, block, penalty) {
                self.counts.programs_got += 1;
                return self.drop_file_page(cost);
            }
        }
        self.drop_program_page(cost);
    }

    fn make_room_for_file(&mut self, cost: &mut Cost) {
        if let (Division::Varies(penalty), Some(program)) = (self.division, self.programs.oldest())
        {
            self.counts.files_asked += 1;
            let block = self.files.oldest().unwrap_or(Time::MAX);
            let few = self.files.pages.len() < self.least;
            if few || may_take(program, block, penalty) {
                self.counts.files_got += 1;
                return self.drop_program_page(cost);
            }
        }
        self.drop_file_page(cost);
    }

    fn drop_program_page(&mut self, cost: &mut Cost) {
        if let Some((key, dirty)) = self.programs.evict()
            && (dirty || self.swapped.contains_key(&key))
        {
            cost.page_out |= dirty;
            self.counts.page_outs += u64::from(dirty);
            self.swapped.insert(key, ());
        }
    }

    fn drop_file_page(&mut self, cost: &mut Cost) {
        if let Some((_, dirty)) = self.files.evict() {
            cost.write_back |= dirty;
            self.counts.write_backs += u64::from(dirty);
        }
    }

    /// Writes back what was changed before this time; says how many pages.
    pub(super) fn write_back(&mut self, before: Time) -> u64 {
        let mut count = 0;
        for page in self.files.pages.values_mut() {
            if page.dirty.is_some_and(|since| since < before) {
                page.dirty = None;
                count += 1;
            }
        }
        self.counts.write_backs += count;
        count
    }

    /// A file is gone, with what was not written back of it.
    pub(super) fn remove_file(&mut self, file: u32) {
        let keys: Vec<Key> = self.files.pages.keys().copied().collect();
        for key in keys.into_iter().filter(|(of, _)| *of == file) {
            self.files.remove(key);
        }
    }

    /// A program has ended.
    pub(super) fn end_program(&mut self, program: u32) {
        let keys: Vec<Key> = self.programs.pages.keys().copied().collect();
        for key in keys.into_iter().filter(|(of, _)| *of == program) {
            self.programs.remove(key);
        }
        self.swapped.retain(|(of, _), ()| *of != program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_the_older_page_gives_it_up_and_the_penalty_favours_programs() {
        let fill = |division| {
            let mut pools = Pools::new(10, 2, division);
            (0..6).for_each(|page| {
                pools.use_page(10, (0, page), true, false);
            });
            (0..4).for_each(|page| {
                pools.use_file(20, (0, page), false, false);
            });
            pools
        };
        let mut equal = fill(Division::Varies(0));
        let cost = equal.use_file(21, (0, 9), false, false);
        assert!(cost.page_out, "the oldest page is a program's");
        assert_eq!((equal.counts.files_asked, equal.counts.files_got), (1, 1));
        let cost = equal.use_page(22, (0, 0), false, false);
        assert!(
            cost.fetched && cost.page_out,
            "it was swapped out, for another one"
        );

        let mut favoured = fill(Division::Varies(100));
        let cost = favoured.use_file(21, (0, 9), false, false);
        assert_eq!(
            cost,
            Cost {
                fetched: true,
                ..Cost::default()
            }
        );
        (10..13).for_each(|page| {
            favoured.use_page(23, (0, page), false, false);
        });
        assert_eq!(favoured.files.pages.len(), 2, "never fewer than the least");
        assert_eq!(favoured.counts.page_outs, 1);

        let mut fixed = fill(Division::Fixed(4));
        fixed.use_file(21, (0, 9), true, true);
        assert_eq!(fixed.counts.page_outs + fixed.counts.reads, 4);
        assert_eq!((fixed.write_back(21), fixed.write_back(22)), (0, 1));
        fixed.remove_file(0);
        assert!(fixed.files.pages.is_empty() && fixed.files.by_use.is_empty());
    }
}
