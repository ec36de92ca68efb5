//! Which pages of the arena are whose: runs, first fit.

use std::collections::BTreeMap;

/// Pages in use and free, by their first page.
pub(crate) struct Runs {
    free: BTreeMap<usize, usize>,
    used: BTreeMap<usize, usize>,
}

impl Runs {
    pub(crate) const fn new() -> Self {
        Self {
            free: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, page: usize, count: usize) {
        self.free.insert(page, count);
    }

    /// A run of so many pages whose first page is a multiple of `align`.
    pub(crate) fn take(&mut self, count: usize, align: usize) -> Option<usize> {
        let fits = |(page, free): (&usize, &usize)| {
            let first = page.next_multiple_of(align);
            (first - page + count <= *free).then_some((*page, *free, first))
        };
        let (page, free, first) = self.free.iter().find_map(fits)?;
        self.free.remove(&page);
        if first > page {
            self.free.insert(page, first - page);
        }
        let rest = page + free - first - count;
        if rest > 0 {
            self.free.insert(first + count, rest);
        }
        self.used.insert(first, count);
        Some(first)
    }

    /// The run that a page is in: its first page and how many it has.
    pub(crate) fn of(&self, page: usize) -> Option<(usize, usize)> {
        let (first, count) = self.used.range(..=page).next_back()?;
        (page < first + count).then_some((*first, *count))
    }

    /// Makes a run longer in its place, if what follows is free.
    pub(crate) fn extend(&mut self, first: usize, count: usize) -> bool {
        let Some(now) = self.used.get(&first).copied() else {
            return false;
        };
        let more = count - now;
        match self.free.get(&(first + now)).copied() {
            Some(free) if free >= more => {
                self.free.remove(&(first + now));
                if free > more {
                    self.free.insert(first + count, free - more);
                }
                self.used.insert(first, count);
                true
            }
            _ => false,
        }
    }

    /// Pages in a row are used no more; they may be part of runs. They are not free yet.
    pub(crate) fn leave(&mut self, page: usize, count: usize) {
        let end = page + count;
        while let Some((first, length)) = self.overlapping(page, end) {
            self.used.remove(&first);
            if first < page {
                self.used.insert(first, page - first);
            }
            if first + length > end {
                self.used.insert(end, first + length - end);
            }
        }
    }

    fn overlapping(&self, page: usize, end: usize) -> Option<(usize, usize)> {
        let (first, count) = self.used.range(..end).next_back()?;
        (first + count > page).then_some((*first, *count))
    }

    /// They are free, and zeros.
    pub(crate) fn give(&mut self, page: usize, count: usize) {
        let (mut first, mut total) = (page, count);
        if let Some((before, length)) = self.free.range(..page).next_back()
            && before + length == page
        {
            (first, total) = (*before, total + *length);
        }
        if let Some(behind) = self.free.remove(&(page + count)) {
            total += behind;
        }
        self.free.insert(first, total);
    }
}
