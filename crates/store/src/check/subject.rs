//! One object in all views at once: sums over its keys, which differ only from where to where views
//! see other versions of them.
//!
//! Memory: in the number of views, not of keys.

use super::compare::{compare, compare_dir};
use super::view::Seen;
use super::views::Ranks;
use crate::value::Object;
use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};
use wire::Kind;

/// Sums over the keys of an object that a view sees. They wrap, so that they can be taken off again
/// whatever a damaged key has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// All but the object's own.
    pub(super) keys: u64,
    pub(super) entries: u64,
    pub(super) entry_bytes: u64,
    pub(super) subdirs: u64,
    pub(super) positions: u64,
    pub(super) extents: u64,
    pub(super) used: u64,
    pub(super) inline: u64,
    /// The length of the target, plus 1.
    pub(super) target: u64,
    pub(super) xattrs: u64,
    /// Access lists.
    pub(super) lists: u64,
    /// The fingerprints of the entries by name, less those by position: 0 if these are the same.
    pub(super) listed: u128,
}

impl Sums {
    /// Of a key about which there is nothing else.
    pub(super) const KEY: Self = Self {
        keys: 1,
        entries: 0,
        entry_bytes: 0,
        subdirs: 0,
        positions: 0,
        extents: 0,
        used: 0,
        inline: 0,
        target: 0,
        xattrs: 0,
        lists: 0,
        listed: 0,
    };

    fn each(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let pairs = [
            (&mut self.keys, other.keys),
            (&mut self.entries, other.entries),
            (&mut self.entry_bytes, other.entry_bytes),
            (&mut self.subdirs, other.subdirs),
            (&mut self.positions, other.positions),
            (&mut self.extents, other.extents),
            (&mut self.used, other.used),
            (&mut self.inline, other.inline),
            (&mut self.target, other.target),
            (&mut self.xattrs, other.xattrs),
            (&mut self.lists, other.lists),
        ];
        for (sum, more) in pairs {
            *sum = with(*sum, more);
        }
    }
}

impl AddAssign<&Sums> for Sums {
    fn add_assign(&mut self, more: &Self) {
        self.each(more, u64::wrapping_add);
        self.listed = self.listed.wrapping_add(more.listed);
    }
}

impl SubAssign<&Sums> for Sums {
    fn sub_assign(&mut self, less: &Self) {
        self.each(less, u64::wrapping_sub);
        self.listed = self.listed.wrapping_sub(less.listed);
    }
}

/// The latest number that each view has come to; 0 at the beginning.
#[derive(Debug, Default)]
pub(super) struct Latest(BTreeMap<usize, u64>);

impl Latest {
    fn at(&self, rank: usize) -> u64 {
        let before = self.0.range(..=rank).next_back();
        before.map_or(0, |(_, number)| *number)
    }

    /// These views have come to a number. Calls with the views that had one before, and that one.
    fn come(&mut self, ranks: &Ranks, number: u64, mut had: impl FnMut(Ranks, u64)) {
        let (mut from, mut was) = (ranks.start, self.at(ranks.start));
        let behind = self.at(ranks.end);
        let within: Vec<(usize, u64)> = self
            .0
            .range(ranks.start + 1..ranks.end)
            .map(|(rank, number)| (*rank, *number))
            .collect();
        for (rank, next) in within {
            had(from..rank, was);
            (from, was) = (rank, next);
            self.0.remove(&rank);
        }
        had(from..ranks.end, was);
        self.0.insert(ranks.start, number);
        self.0.insert(ranks.end, behind);
    }
}

/// An object as all views see it.
#[derive(Debug, Default)]
pub(super) struct Subject {
    pub(super) vnode: u64,
    /// Its own record, in order.
    pub(super) objects: Vec<(Ranks, Object)>,
    /// From a rank on there is so much more.
    more: BTreeMap<usize, Sums>,
    /// Where the last extent ends.
    ends: Latest,
    /// The last position.
    positions: Latest,
}

impl Subject {
    pub(super) fn new(vnode: u64) -> Self {
        Self {
            vnode,
            ..Self::default()
        }
    }

    /// Views see a key.
    pub(super) fn add(&mut self, ranks: &Ranks, sums: &Sums) {
        *self.more.entry(ranks.start).or_default() += sums;
        *self.more.entry(ranks.end).or_default() -= sums;
    }

    /// Views see an extent. Calls with those for which another one ends behind its begin.
    pub(super) fn extent(
        &mut self,
        ranks: &Ranks,
        (begin, end): (u64, u64),
        mut overlaps: impl FnMut(Ranks),
    ) {
        self.ends.come(ranks, end, |ranks, last| {
            if begin < last {
                overlaps(ranks);
            }
        });
    }

    pub(super) fn position(&mut self, ranks: &Ranks, position: u64) {
        self.positions.come(ranks, position, |_, _| ());
    }

    /// All keys have been met: the views in which they contradict each other, for each way in which
    /// they do.
    pub(super) fn judge(&self) -> impl Iterator<Item = Vec<Ranks>> {
        let mut ranks: Vec<usize> = self.more.keys().copied().collect();
        ranks.extend(self.objects.iter().flat_map(|(of, _)| [of.start, of.end]));
        let numbers = [&self.ends, &self.positions];
        ranks.extend(numbers.iter().flat_map(|of| of.0.keys()));
        ranks.sort_unstable();
        ranks.dedup();
        let mut objects = self.objects.iter().peekable();
        let mut sums = Sums::default();
        let mut wrong: BTreeMap<Wrong, Vec<Ranks>> = BTreeMap::new();
        for pair in ranks.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if let Some(more) = self.more.get(&from) {
                sums += more;
            }
            while objects.next_if(|(of, _)| of.end <= from).is_some() {}
            let object = objects.peek().filter(|(of, _)| of.contains(&from));
            let object = object.map(|(_, object)| object);
            let found = self.look(object, &sums, from);
            if found != Wrong::default() {
                wrong.entry(found).or_default().push(from..to);
            }
        }
        wrong.into_values()
    }

    /// Compares what an object says of itself with what a view sees of it.
    fn look(&self, object: Option<&Object>, sums: &Sums, rank: usize) -> Wrong {
        let mut wrong = Wrong {
            listed: sums.listed,
            ..Wrong::default()
        };
        let Some(object) = object else {
            wrong.without_object = sums.keys > 0;
            return wrong;
        };
        let seen = Seen {
            vnode: self.vnode,
            object: None,
            entries: sums.entries,
            entry_bytes: sums.entry_bytes,
            subdirs: sums.subdirs as u32,
            positions: sums.positions,
            extents: sums.extents,
            end: self.ends.at(rank),
            used: sums.used,
            inline: Some(sums.inline),
            target: sums.target.checked_sub(1),
            xattrs: sums.xattrs as u32,
            acl: sums.lists > 0,
            // Objects without a name are compared with their list for all objects together.
            orphan: object.attr.nlink == 0,
        };
        compare(object, &seen, &mut wrong.rules);
        if object.attr.kind == Kind::Directory {
            compare_dir(object, &seen, &mut wrong.rules);
        }
        let last = self.positions.at(rank);
        wrong.never_given = last > 0 && last >= object.next_position;
        wrong
    }
}

/// The ways in which the keys of an object contradict each other; by default there are none.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wrong {
    rules: Vec<&'static str>,
    without_object: bool,
    never_given: bool,
    listed: u128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_view_has_the_latest_of_its_own_numbers() {
        let mut latest = Latest::default();
        let mut come = |ranks: Ranks, number| {
            let mut had = Vec::new();
            latest.come(&ranks, number, |ranks, was| had.push((ranks, was)));
            had
        };
        assert_eq!(come(0..10, 5), [(0..10, 0)]);
        assert_eq!(come(2..4, 6), [(2..4, 5)]);
        assert_eq!(come(3..7, 8), [(3..4, 6), (4..7, 5)]);
        assert_eq!(
            come(0..12, 9),
            [(0..2, 5), (2..3, 6), (3..7, 8), (7..10, 5), (10..12, 0)]
        );
        assert_eq!((latest.at(11), latest.at(12)), (9, 0));
    }
}
