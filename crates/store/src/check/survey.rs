//! Finds out which views anything is wrong in, without going through each of them: one way through
//! all keys, however many views see a key.
//!
//! Guarantee: each damage that going through some view by itself ([`super::view`]) would tell is
//! told by going through the views that are chosen here, and none is chosen if nothing is wrong. So
//! a check costs as much as there are keys, and damage some views besides.
//!
//! The versions of a thing divide the views into ranges ([`super::views`]). The rules are of three
//! kinds:
//!
//! - of one object: sums over its keys, for all views at once ([`super::subject`]);
//! - of objects and their names, and of objects without a name and their list: in each view the sum
//!   of fingerprints of the names is that of the objects. Where the difference of several views is
//!   the same, the same objects have other names than they say;
//! - of things elsewhere: a directory reaches the root, and a name is where an object notes it.
//!   Each is looked at in the first view that sees one of the versions it depends on. A view in
//!   which none of these versions begins has them from the view before, where they were looked at.

use super::merge::{Merge, Thing};
use super::names::Good;
use super::subject::{Subject, Sums};
use super::views::Ranks;
use super::{Stopped, Walk};
use crate::key::{self, Parts};
use crate::value::{self, Extent, Named, Object, Placed};
use crate::versions::Version;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use wire::{Fid, Kind};

/// A number that differs for different things.
fn fingerprint(of: impl Hash) -> u128 {
    let half = |which: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(which);
        of.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// The name of an object that is no directory.
fn of_named((vnode, uniq, kind): (u64, u32, Kind)) -> u128 {
    fingerprint((b'n', vnode, uniq, kind))
}

/// The name of a directory, which knows its place.
fn of_dir((vnode, uniq): (u64, u32), home: (u64, u64)) -> u128 {
    fingerprint((b'd', vnode, uniq, home))
}

fn of_orphan(vnode: u64) -> u128 {
    fingerprint((b'o', vnode))
}

/// An entry of a directory: the same by name and by position.
fn of_entry(name: &[u8], (vnode, uniq, kind): (u64, u32, Kind), position: u64) -> u128 {
    fingerprint((b'e', name, vnode, uniq, kind, position))
}

/// Sums over all keys that a view sees.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    objects: u64,
    bytes: u64,
    /// The fingerprints of names and lists, less those of the objects.
    names: u128,
}

impl Total {
    fn plus(self, more: Self) -> Self {
        Self {
            objects: self.objects.wrapping_add(more.objects),
            bytes: self.bytes.wrapping_add(more.bytes),
            names: self.names.wrapping_add(more.names),
        }
    }

    fn less(self) -> Self {
        Self {
            objects: self.objects.wrapping_neg(),
            bytes: self.bytes.wrapping_neg(),
            names: self.names.wrapping_neg(),
        }
    }

    fn of_names(names: u128) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    /// An object adds this.
    fn of(vnode: u64, object: &Object) -> Self {
        let attr = &object.attr;
        let is_root = vnode == Fid::root(0).vnode;
        let names = match (attr.kind, attr.nlink) {
            (Kind::Directory, 0) => 0,
            (Kind::Directory, _) if is_root => 0,
            (Kind::Directory, _) => of_dir((vnode, object.uniq), (object.parent, object.home)),
            (kind, names) => of_named((vnode, object.uniq, kind)).wrapping_mul(u128::from(names)),
        };
        let listed = match attr.nlink {
            0 => of_orphan(vnode),
            _ => 0,
        };
        Self {
            objects: 1,
            bytes: match attr.kind {
                Kind::Directory => 0,
                _ => attr.used_bytes,
            },
            names: names.wrapping_add(listed).wrapping_neg(),
        }
    }
}

/// The damage of a key that nobody should see.
pub(super) const BEYOND: &str = "its volume has not come to its birth";

/// The way through all keys.
pub(super) struct Survey {
    /// From a rank on there is so much more.
    totals: Vec<Total>,
    /// The object whose keys are being met.
    subject: Subject,
    good: Good,
}

impl Survey {
    fn add(&mut self, ranks: &Ranks, more: Total) {
        for (at, more) in [(ranks.start, more), (ranks.end, more.less())] {
            self.totals[at] = self.totals[at].plus(more);
        }
    }
}

impl Walk<'_> {
    /// Chooses the views in which something is wrong, and compares what is counted of each.
    pub(super) fn survey(&mut self) -> Result<(), Stopped> {
        let mut survey = Survey {
            totals: vec![Total::default(); self.views.len() + 1],
            subject: Subject::new(0),
            good: Good::default(),
        };
        let mut merge = Merge::new(self)?;
        while let Some(thing) = merge.next(self)? {
            self.thing(&mut survey, &thing)?;
        }
        self.finish_subject(&mut survey);
        self.compare_totals(&survey);
        let orphans = &mut self.report.orphans;
        orphans.sort_by_key(|fid| (fid.volume, fid.vnode));
        Ok(())
    }

    /// Among these views is one to be gone through. One that is chosen already is enough.
    fn choose(&mut self, ranks: &Ranks) {
        self.choose_among(std::slice::from_ref(ranks));
    }

    fn choose_among(&mut self, all: &[Ranks]) {
        let is_chosen = |ranks: &Ranks| self.chosen.range(ranks.clone()).next().is_some();
        if !all.iter().any(is_chosen) {
            let mut newest = all.iter().cloned().flatten().rev();
            let newest = newest.find(|rank| self.views.is_light(*rank));
            self.chosen.extend(newest);
        }
    }

    /// All versions of one thing.
    fn thing(&mut self, survey: &mut Survey, thing: &Thing) -> Result<(), Stopped> {
        let key = key::plain(0, &thing.thing);
        let Some(parts) = key::parts(&key) else {
            return Ok(());
        };
        for raw in &thing.raws {
            self.volume = raw.volume;
            let bytes = self.version(parts, raw.version.as_ref());
            self.went_on(bytes)?;
            if let Some(ranks) = self.views.beyond(raw) {
                self.entry_damage(parts, BEYOND);
                self.choose(&ranks);
            }
        }
        let seen = self.views.seen(&thing.raws);
        if parts.vnode != survey.subject.vnode && !seen.is_empty() {
            self.finish_subject(survey);
            survey.subject = Subject::new(parts.vnode);
        }
        let mut placed: Vec<(Ranks, Option<u64>)> = Vec::new();
        let mut linked = 0..0;
        for (ranks, at) in seen {
            let sound = match &thing.raws[at].version {
                Some(Version::Absent) => continue,
                Some(Version::Present(value)) => match parts.kind {
                    key::POSITION => {
                        let vnode = position(survey, parts, (&ranks, value));
                        placed.push((ranks.clone(), vnode));
                        vnode.map(|_| ())
                    }
                    key::LINK => {
                        let goes_on = linked.end == ranks.start && !linked.is_empty();
                        linked = ranks.clone();
                        self.noted_name(survey, parts, (&ranks, goes_on))
                    }
                    _ => self.key_of_views(survey, parts, (&ranks, value)),
                },
                None => None,
            };
            if sound.is_none() {
                self.choose(&ranks);
            }
        }
        self.changed_positions(parts, &placed);
        Ok(())
    }

    /// These views see a key. `None`: it cannot be decoded, or says what it cannot say.
    fn key_of_views(
        &mut self,
        survey: &mut Survey,
        parts: Parts<'_>,
        (ranks, value): (&Ranks, &[u8]),
    ) -> Option<()> {
        match parts.kind {
            key::OBJECT => {
                let object: Object = value::decode(value)?;
                survey.add(ranks, Total::of(parts.vnode, &object));
                survey.subject.objects.push((ranks.clone(), object));
                self.volume = self.views.id(ranks.start);
                self.note_number(parts.vnode);
                Some(())
            }
            key::NAME => name(survey, parts, (ranks, value)),
            key::EXTENT => {
                let extent = Extent::decode(value)?;
                let end = parts.number()?;
                let begin = end.checked_sub(u64::from(extent.len))?;
                let sums = Sums {
                    extents: 1,
                    used: u64::from(extent.len),
                    ..Sums::KEY
                };
                survey.subject.add(ranks, &sums);
                let overlaps = |ranks: Ranks| self.choose(&ranks);
                survey.subject.extent(ranks, (begin, end), overlaps);
                Some(())
            }
            key::ORPHAN => {
                let vnode = parts.number()?;
                survey.add(ranks, Total::of_names(of_orphan(vnode)));
                for rank in ranks.clone() {
                    let volume = self.views.id(rank);
                    if !self.index().volumes.is_frozen(volume) {
                        let root = Fid::root(volume);
                        self.report.orphans.push(Fid { vnode, ..root });
                    }
                }
                Some(())
            }
            key::BORN => key::told_born(parts.detail).map(|_| ()),
            _ => small(survey, parts, (ranks, value)),
        }
    }

    /// These views see that an object has a further name. Is it there in the first one? Where the
    /// views before see it as well (`goes_on`), it is looked at when what is there changes.
    fn noted_name(
        &mut self,
        survey: &mut Survey,
        parts: Parts<'_>,
        (ranks, goes_on): (&Ranks, bool),
    ) -> Option<()> {
        let (dir, position) = parts.spot()?;
        survey.subject.add(ranks, &Sums::KEY);
        if goes_on || !self.views.is_light(ranks.start) {
            return Some(());
        }
        let dir = Fid {
            volume: self.views.id(ranks.start),
            ..dir
        };
        let placed = self.index().get_as(&key::position(dir, position));
        let placed: Option<Option<Placed>> = self.known(placed);
        let is_it = |placed: Placed| placed.fid.vnode == parts.vnode;
        if placed.is_some_and(|placed| !placed.is_some_and(is_it)) {
            self.choose(&(ranks.start..ranks.start + 1));
        }
        Some(())
    }

    /// These views see these objects at a position. Where the next view sees another one there, the
    /// object must not note that it has this name.
    fn changed_positions(&mut self, parts: Parts<'_>, placed: &[(Ranks, Option<u64>)]) {
        for (at, (ranks, vnode)) in placed.iter().enumerate() {
            let (end, Some(vnode)) = (ranks.end, *vnode) else {
                continue;
            };
            let next = placed.get(at + 1).filter(|(next, _)| next.start == end);
            let same = next.is_some_and(|(_, next)| *next == Some(vnode));
            let first = self.views.share(ranks.start, end) && self.views.is_light(end);
            if same || !first {
                continue;
            }
            let Some(position) = parts.number() else {
                continue;
            };
            let root = Fid::root(self.views.id(end));
            let dir = Fid {
                vnode: parts.vnode,
                ..root
            };
            let link = key::link(Fid { vnode, ..root }, (dir, position));
            let noted = self.index().get(&link);
            // One that cannot be read is met where it lies.
            if matches!(self.known(noted), Some(Some(_))) {
                self.choose(&(end..end + 1));
            }
        }
    }

    /// All keys of an object have been met.
    fn finish_subject(&mut self, survey: &mut Survey) {
        let subject = std::mem::take(&mut survey.subject);
        for ranks in subject.judge() {
            self.choose_among(&ranks);
        }
        let mut before: Option<(usize, u64)> = None;
        for (ranks, object) in &subject.objects {
            let is_dir = object.attr.kind == Kind::Directory && object.attr.nlink > 0;
            let as_before = before == Some((ranks.start, object.parent));
            before = is_dir.then_some((ranks.end, object.parent));
            let first = ranks.start;
            let goes = is_dir && !as_before && self.views.is_light(first);
            if !goes || self.chosen.contains(&first) {
                continue;
            }
            self.volume = self.views.id(first);
            if !self.reaches((subject.vnode, object.parent), &mut survey.good) {
                self.choose(&(first..first + 1));
            }
        }
    }

    /// In each view: is there as much as is counted of it, and are there as many names as objects
    /// say?
    fn compare_totals(&mut self, survey: &Survey) {
        let mut total = Total::default();
        for rank in 0..self.views.len() {
            total = total.plus(survey.totals[rank]);
            self.unmatched.push(total.names);
            let id = self.views.id(rank);
            let found = (total.objects, total.bytes);
            if self.views.is_light(rank) {
                self.compare_counts(id, found);
            }
            let volume = self.index().volumes.get(id);
            if volume.is_some_and(|of| of.snapshot_of.is_none()) {
                self.report.objects += found.0;
                self.report.bytes += found.1;
            }
        }
        let names = self.unmatched.clone();
        self.choose_each(&names);
    }

    /// Of the views in which names and objects differ, one is chosen for each value of this.
    fn choose_each<T: Copy + Eq + Hash>(&mut self, what: &[T]) {
        let chosen = self.chosen.iter().chain(&self.done);
        let mut met: HashSet<T> = chosen.map(|rank| what[*rank]).collect();
        for rank in (0..what.len()).rev() {
            let differs = self.unmatched[rank] != 0 && self.views.is_light(rank);
            if differs && met.insert(what[rank]) {
                self.chosen.insert(rank);
            }
        }
    }

    /// Where several views have the same suspects, and one of them was gone through: chooses
    /// others, in which the suspects have other names than there, or say something else.
    pub(super) fn survey_suspects(&mut self) -> Result<(), Stopped> {
        let suspects = std::mem::take(&mut self.suspects);
        if suspects.is_empty() {
            return Ok(());
        }
        let mut states = vec![0u128; self.views.len() + 1];
        let mut merge = Merge::new(self)?;
        while let Some(Thing { thing, raws }) = merge.next(self)? {
            let key = key::plain(0, &thing);
            let Some(parts) = key::parts(&key) else {
                continue;
            };
            for (ranks, at) in self.views.seen(&raws) {
                let state = match &raws[at].version {
                    Some(Version::Present(value)) => state(parts, value, &suspects),
                    _ => None,
                };
                let state = state.unwrap_or_default();
                states[ranks.start] = states[ranks.start].wrapping_add(state);
                states[ranks.end] = states[ranks.end].wrapping_sub(state);
            }
        }
        let mut sum = 0u128;
        let each: Vec<(u128, u128)> = (self.unmatched.iter().zip(&states))
            .map(|(names, more)| {
                sum = sum.wrapping_add(*more);
                (*names, sum)
            })
            .collect();
        self.choose_each(&each);
        Ok(())
    }
}

/// The part of a key that the findings about the names of a suspect depend on.
fn state(parts: Parts<'_>, value: &[u8], suspects: &BTreeSet<u64>) -> Option<u128> {
    let of = |vnode: u64| suspects.contains(&vnode).then_some(vnode);
    match parts.kind {
        key::OBJECT => {
            let vnode = of(parts.vnode)?;
            let object: Object = value::decode(value)?;
            let (kind, names) = (object.attr.kind, object.attr.nlink);
            let says = (object.uniq, kind, names, object.parent, object.home);
            Some(fingerprint((key::OBJECT, vnode, says)))
        }
        key::NAME => {
            let named: Named = value::decode(value)?;
            let vnode = of(named.fid.vnode)?;
            let at = (parts.vnode, parts.detail, named.position);
            Some(fingerprint((
                key::NAME,
                vnode,
                named.fid.uniq,
                named.kind,
                at,
            )))
        }
        key::ORPHAN => Some(fingerprint((key::ORPHAN, of(parts.number()?)?))),
        _ => None,
    }
}

fn name(survey: &mut Survey, parts: Parts<'_>, (ranks, value): (&Ranks, &[u8])) -> Option<()> {
    let Named {
        fid,
        kind,
        position,
    } = value::decode(value)?;
    let names = match kind {
        Kind::Directory => of_dir((fid.vnode, fid.uniq), (parts.vnode, position)),
        _ => of_named((fid.vnode, fid.uniq, kind)),
    };
    survey.add(ranks, Total::of_names(names));
    let sums = Sums {
        entries: 1,
        entry_bytes: parts.detail.len() as u64 + 24,
        subdirs: u64::from(kind.looks_like_directory()),
        listed: of_entry(parts.detail, (fid.vnode, fid.uniq, kind), position),
        ..Sums::KEY
    };
    survey.subject.add(ranks, &sums);
    Some(())
}

/// The object that is at a position.
fn position(survey: &mut Survey, parts: Parts<'_>, (ranks, value): (&Ranks, &[u8])) -> Option<u64> {
    let Placed { name, fid, kind } = value::decode(value)?;
    let position = parts.number()?;
    let listed = of_entry(name.as_bytes(), (fid.vnode, fid.uniq, kind), position);
    let sums = Sums {
        positions: 1,
        listed: listed.wrapping_neg(),
        ..Sums::KEY
    };
    survey.subject.add(ranks, &sums);
    survey.subject.position(ranks, position);
    (position > 0).then_some(fid.vnode)
}

fn small(survey: &mut Survey, parts: Parts<'_>, (ranks, value): (&Ranks, &[u8])) -> Option<()> {
    let len = value.len() as u64;
    let mut sums = Sums::KEY;
    match parts.kind {
        key::INLINE => (sums.inline, sums.used) = (len, len),
        key::TARGET => sums.target = len + 1,
        key::XATTR => {
            sums.xattrs = 1;
            sums.lists = u64::from(parts.detail == crate::acl::ACCESS);
        }
        _ => {
            survey.subject.add(ranks, &sums);
            return None;
        }
    }
    survey.subject.add(ranks, &sums);
    Some(())
}
