//! Beliefs of the kernel about one object: the kernel's share of a node.

use super::dentries::Dentries;
use super::page_sizes::{Reading, Sizes};
use super::stale_replies::ToldAttr;
use crate::Ticket;
use crate::client::node::{Node, Range};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Fid, Time};

/// The beliefs that the kernel may have about one object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Belief {
    /// References that it has.
    pub(super) lookups: u64,
    /// When it was last told of it.
    told: Time,
    /// It may know it in another directory than the one that is known here.
    moved: bool,
    /// Which attributes it was told, and when last.
    pub(super) attr: ToldAttr,
    attr_at: Time,
    /// It may have pages of it.
    pub(super) pages: bool,
    /// It has all of them, unless it was short of memory since.
    pub(super) given: bool,
    /// How often it was given some, and when last while the file was open for writing.
    paged: u64,
    mapped: Time,
    /// Reads for its pages that are not answered.
    pub(super) reading: BTreeMap<Ticket, Reading>,
    pub(super) sizes: Sizes,
    /// The names of a directory that it may know.
    pub(super) dentries: Dentries,
}

impl Belief {
    /// A reply tells it of the object, which it then holds until it forgets it.
    pub(crate) fn is_told(&mut self, now: Time) {
        self.lookups += 1;
        self.told = now;
    }

    /// A call that is under way with nobody waiting counts as a reference.
    pub(crate) fn refers(&mut self) {
        self.lookups += 1;
    }

    /// It forgets so many references.
    pub(crate) fn forgets(&mut self, count: u64) {
        self.lookups = self.lookups.saturating_sub(count);
        self.moved &= self.lookups > 0;
    }

    /// Does it know the object?
    pub(crate) fn is_known(&self) -> bool {
        self.lookups > 0
    }

    /// When it was last told of it.
    pub(crate) fn told_at(&self) -> Time {
        self.told
    }

    /// When it was last told anything of it, or of a name in it.
    pub(crate) fn anything_told_at(&self) -> Time {
        self.told.max(self.attr_at).max(self.dentries.told())
    }

    /// It is told the object's attributes.
    pub(crate) fn is_told_attr(&mut self, now: Time) {
        self.attr_at = now;
    }

    pub(crate) fn attr_told_at(&self) -> Time {
        self.attr_at
    }

    /// The object has a name in another directory than was known.
    pub(crate) fn moves(&mut self) {
        self.moved |= self.lookups > 0;
    }

    /// May it know it in another directory?
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.moved
    }

    /// May it have pages?
    pub(crate) fn has_pages(&self) -> bool {
        self.pages
    }

    /// It is given pages, of a file that is open for writing or not.
    pub(crate) fn is_given_pages(&mut self, now: Time, writable: bool) {
        self.pages = true;
        self.paged += 1;
        if writable {
            self.mapped = now;
        }
    }

    /// It has got all of them.
    pub(crate) fn has_all(&mut self) {
        self.given = true;
    }

    /// It has none.
    pub(crate) fn has_no_pages(&mut self) {
        (self.pages, self.given) = (false, false);
    }

    /// How often it was given pages.
    pub(crate) fn paged(&self) -> u64 {
        self.paged
    }

    /// When it was last given some while the file was open for writing; 0: never.
    pub(crate) fn mapped_at(&self) -> Time {
        self.mapped
    }

    /// A read for its pages is not under way any more.
    pub(crate) fn ends_read(&mut self, ticket: Ticket) -> Option<Reading> {
        self.reading.remove(&ticket)
    }

    pub(crate) fn reads(&self, ticket: Ticket) -> bool {
        self.reading.contains_key(&ticket)
    }

    /// The reads that are under way.
    pub(crate) fn all_reads(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.reading.keys().copied()
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.reading.is_empty()
    }

    /// It was told something of the file that is no size.
    pub(crate) fn size_moved(&mut self, now: Time) {
        self.sizes.moved(now);
    }

    /// The token has gone, and with it all that it covered.
    pub(crate) fn is_void(&mut self) {
        self.has_no_pages();
        self.attr.dropped();
        self.sizes.dropped(0);
    }

    /// Which names it may know.
    pub(crate) fn dentries(&self) -> &Dentries {
        &self.dentries
    }

    /// There is no room to note names: it may know any.
    pub(crate) fn overflow_dentries(&mut self) {
        self.dentries.overflow();
    }

    /// It has dropped all names.
    pub(crate) fn forgets_dentries(&mut self) {
        self.dentries = Dentries::default();
    }
}

impl Node {
    /// It has a name in this directory, as is now known.
    pub(crate) fn is_in(&mut self, dir: Fid) {
        if self.parent != Some(dir) {
            self.kernel.moves();
        }
        self.parent = Some(dir);
    }

    /// The ranges without those of reads that are not answered: the kernel holds their pages
    /// locked, with nothing in them yet, and would wait. Not so where a read may have been a direct
    /// one: its range may hold old pages, so that waiting is the lesser evil.
    pub(crate) fn without_reads(&self, ranges: &[Range], freed: &BTreeSet<Ticket>) -> Vec<Range> {
        if self.opens.direct {
            return ranges.to_vec();
        }
        let mut left: Vec<Range> = ranges.to_vec();
        let reading = self.kernel.reading.iter();
        for (_, reading) in reading.filter(|(ticket, _)| !freed.contains(ticket)) {
            left = left
                .into_iter()
                .flat_map(|range| subtract(range, reading.range))
                .collect();
        }
        left
    }
}

/// A range without another: at most two.
fn subtract(range: Range, hole: Range) -> impl Iterator<Item = Range> {
    let before = (range.0, range.1.min(hole.0));
    let after = (range.0.max(hole.1), range.1);
    [before, after].into_iter().filter(|part| part.0 < part.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn unanswered_reads_are_left_out_of_what_is_dropped() {
        let mut node = Node::new(&crate::client::node::Forgotten::default());
        node.reads_pages(0, 1, (10, 20));
        node.reads_pages(0, 2, (30, 40));
        let none = BTreeSet::new();
        let left = node.without_reads(&[(0, 35)], &none);
        assert_eq!(left, vec![(0, 10), (20, 30)]);
        let left = node.without_reads(&[(0, 35)], &BTreeSet::from([1]));
        assert_eq!(left, vec![(0, 30)]);
    }
}
