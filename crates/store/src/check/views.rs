//! The views of a partition (its volumes, clones and snapshots that are there) in an order in which
//! those that see the same version of a thing lie together.
//!
//! Guarantee: a version is seen by views of one range of ranks, but for ranges within it, in which
//! clones have a version of their own. The order is that of births: behind a birth of a volume come
//! the clones that see the volume at that birth, then the next birth. So the versions of a thing
//! divide the views into no more parts than there are twice as many versions, however many views
//! there are.

use crate::versions::Version;
use crate::volumes::{FIRST_BIRTH, Volumes};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Views by their ranks.
pub(super) type Ranks = Range<usize>;

/// The ranks of the views that see keys of a volume, at its births or through clones.
#[derive(Debug, Default)]
struct Line {
    /// A clone comes behind the volume that it was made of.
    order: usize,
    /// Births at which the volume is seen, ascending, and the first rank of each.
    births: Vec<(u32, usize)>,
    ranks: Ranks,
}

/// The views.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// The volume or snapshot of each rank.
    ids: Vec<u32>,
    lines: BTreeMap<u32, Line>,
    /// For each rank: the one behind all views that have anything in common with this one.
    ends: Vec<usize>,
    /// Of these not all could be read.
    dark: BTreeSet<usize>,
}

/// A version of a thing as it lies there.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) volume: u32,
    pub(super) birth: u32,
    /// `None`: it does not read.
    pub(super) version: Option<Version>,
}

/// The users of a volume at a birth.
#[derive(Debug, Default)]
struct Slot {
    views: Vec<u32>,
    clones: Vec<u32>,
}

/// A step on the way through all volumes.
enum Step {
    Enter(u32),
    Birth(u32, u32),
    Leave(u32),
}

impl Views {
    pub(super) fn new(volumes: &Volumes) -> Self {
        let mut slots: BTreeMap<(u32, u32), Slot> = BTreeMap::new();
        let mut lines: BTreeSet<u32> = volumes.with_keys().collect();
        let mut blind = Vec::new();
        for (id, _) in volumes.iter().filter(|(_, volume)| volume.is_present()) {
            let lineage = volumes.lineage(id).map_or(&[][..], Vec::as_slice);
            match lineage.first() {
                Some(head) => slots.entry(*head).or_default().views.push(id),
                None => blind.push(id),
            }
            lines.extend(lineage.iter().map(|(volume, _)| *volume));
        }
        let origin = |id: u32| volumes.get(id).and_then(|volume| volume.origin);
        for id in &lines {
            if let Some(at) = origin(*id) {
                slots.entry(at).or_default().clones.push(*id);
            }
        }
        let mut views = Self::default();
        for id in lines.iter().filter(|id| origin(**id).is_none()) {
            views.enter_tree(*id, &slots);
        }
        for id in blind {
            views.ids.push(id);
            views.ends.push(views.ids.len());
        }
        views
    }

    /// A volume that sees no other one, and all that see it.
    fn enter_tree(&mut self, root: u32, slots: &BTreeMap<(u32, u32), Slot>) {
        let mut steps = vec![Step::Enter(root)];
        while let Some(step) = steps.pop() {
            let at = self.ids.len();
            match step {
                Step::Enter(volume) => {
                    let line = Line {
                        order: self.lines.len(),
                        births: Vec::new(),
                        ranks: at..at,
                    };
                    self.lines.insert(volume, line);
                    steps.push(Step::Leave(volume));
                    let births = slots.range((volume, 0)..=(volume, u32::MAX)).rev();
                    steps.extend(births.map(|((_, birth), _)| Step::Birth(volume, *birth)));
                }
                Step::Birth(volume, birth) => {
                    if let Some(line) = self.lines.get_mut(&volume) {
                        line.births.push((birth, at));
                    }
                    if let Some(slot) = slots.get(&(volume, birth)) {
                        self.ids.extend(&slot.views);
                        steps.extend(slot.clones.iter().rev().map(|id| Step::Enter(*id)));
                    }
                }
                Step::Leave(volume) => {
                    if let Some(line) = self.lines.get_mut(&volume) {
                        line.ranks.end = at;
                    }
                }
            }
        }
        self.ends.resize(self.ids.len(), self.ids.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The volume or snapshot of a rank.
    pub(super) fn id(&self, rank: usize) -> u32 {
        self.ids.get(rank).copied().unwrap_or_default()
    }

    /// Do two views have any key in common? The first one has the lower rank.
    pub(super) fn share(&self, first: usize, second: usize) -> bool {
        self.ends.get(first).is_some_and(|end| second < *end)
    }

    /// The volumes that have keys, seen or not.
    pub(super) fn with_keys(&self) -> impl Iterator<Item = u32> {
        self.lines.keys().copied()
    }

    /// Not all keys of a volume could be read.
    pub(super) fn darken(&mut self, volume: u32) {
        let ranks = self.lines.get(&volume).map(|line| line.ranks.clone());
        self.dark.extend(ranks.unwrap_or_default());
    }

    /// Was all read that a view sees?
    pub(super) fn is_light(&self, rank: usize) -> bool {
        rank < self.ids.len() && !self.dark.contains(&rank)
    }

    /// The views that see a version of a volume of a birth, if there is no later one.
    fn seers(&self, volume: u32, birth: u32) -> (Ranks, usize) {
        let Some(line) = self.lines.get(&volume) else {
            return (0..0, 0);
        };
        let at = line.births.partition_point(|(of, _)| *of < birth);
        let start = line
            .births
            .get(at)
            .map_or(line.ranks.end, |(_, rank)| *rank);
        (start..line.ranks.end, line.order)
    }

    /// The view of a volume without versions sees whatever lies there, so none may be of a later
    /// birth.
    pub(super) fn beyond(&self, raw: &Raw) -> Option<Ranks> {
        let line = self.lines.get(&raw.volume)?;
        let [(FIRST_BIRTH, rank)] = line.births[..] else {
            return None;
        };
        let beyond = raw.birth != FIRST_BIRTH && self.id(rank) == raw.volume;
        beyond.then_some(rank..rank + 1)
    }

    /// Which views see which of the versions of a thing, in order. Those of a volume lie together,
    /// the newest first.
    pub(super) fn seen(&self, raws: &[Raw]) -> Vec<(Ranks, usize)> {
        let mut all = Vec::with_capacity(raws.len());
        let mut newer: Option<(u32, usize)> = None;
        for (at, raw) in raws.iter().enumerate() {
            let (mut ranks, order) = self.seers(raw.volume, raw.birth);
            if let Some((volume, end)) = newer
                && volume == raw.volume
            {
                ranks.end = end;
            }
            newer = Some((raw.volume, ranks.start));
            if !ranks.is_empty() {
                all.push((ranks, order, at));
            }
        }
        if let [(ranks, _, at)] = &all[..] {
            return vec![(ranks.clone(), *at)];
        }
        // Ranges lie within one another, or apart.
        all.sort_by_key(|(ranks, order, _)| (ranks.start, Reverse(ranks.end), *order));
        divide(&all)
    }
}

/// Of ranges that lie within one another the inner ones count.
fn divide(all: &[(Ranks, usize, usize)]) -> Vec<(Ranks, usize)> {
    let mut parts = Vec::with_capacity(2 * all.len());
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    let mut go_on = |at: &mut usize, to: usize, of: usize| {
        if *at < to {
            parts.push((*at..to, of));
            *at = to;
        }
    };
    for (ranks, _, of) in all {
        while let Some((end, outer)) = open.last().copied() {
            go_on(&mut at, end.min(ranks.start), outer);
            if end > ranks.start {
                break;
            }
            open.pop();
        }
        at = ranks.start;
        open.push((ranks.end, *of));
    }
    while let Some((end, of)) = open.pop() {
        go_on(&mut at, end, of);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ranges_within_one_another_the_inner_ones_count() {
        let all = [
            (0..10, 0, 0),
            (2..8, 1, 1),
            (2..8, 2, 2),
            (3..4, 3, 3),
            (7..8, 3, 4),
            (12..13, 0, 5),
        ];
        let parts = divide(&all);
        let expected = [
            (0..2, 0),
            (2..3, 2),
            (3..4, 3),
            (4..7, 2),
            (7..8, 4),
            (8..10, 0),
            (12..13, 5),
        ];
        assert_eq!(parts, expected);
    }
}
