//! Names: what a program did with one, and the disk's record of it.
//!
//! A change in a delegated directory is recorded when the server hears of it, after its caller was
//! answered. It may never be: if its machine is lost before, or if what was made has gone again.
//! Then it counts with what its machine's kernel knew of it; of a machine that is lost everything
//! from one moment on is, and nothing that came after a change that is lost is left ([`no_hole`]).
//!
//! [`no_hole`]: Records::no_hole

use super::linear::Act;
use super::{Case, Value, Values};
use crate::disk::Applied;
use crate::history::{Change, Effect, Fate};
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::{Fid, Name, Op, Outcome};

/// The disk's record of changes, by what they did and when.
pub(super) struct Records<'a> {
    pub(super) case: &'a Case<'a>,
    used: Vec<bool>,
    /// Objects made according to a program, and never on the disk; and the machine.
    unmade: BTreeMap<Fid, u32>,
    /// Objects made according to a program that were removed so too, or lost their name to another
    /// one.
    removed: BTreeSet<Fid>,
    /// Changes that were told later: which records, whose, and when their calls began and ended.
    late: BTreeMap<usize, (u32, u64, u64)>,
    /// Changes that nobody was ever told of: whose, when their calls began and ended, and what they
    /// did.
    untold: Vec<(u32, u64, u64, Effect)>,
    /// Changes that are lost: whose, when they were answered, and when that machine was lost.
    lost: Vec<(u32, u64, u64)>,
    /// Names that such a change was about; how many of them were made after all, since the machine
    /// had only been silent.
    hurt: BTreeMap<(u32, u64, Fid, Name), usize>,
}

/// A change: by its record, or, if there is none, by what its call did.
pub(super) enum Done<'a> {
    Told(&'a Applied),
    Untold(&'a Effect),
}

impl<'a> Records<'a> {
    pub(super) fn of(case: &'a Case<'a>) -> Self {
        let made = |applied: &Applied| match &applied.outcome {
            Outcome::Entry(entry) => Some(entry.fid),
            _ => None,
        };
        let made: BTreeSet<Fid> = case.applied.iter().filter_map(made).collect();
        let changes = case.history.changes.borrow();
        let done = || changes.iter().filter(|change| change.fate == Fate::Done);
        let unmade = done().filter_map(|change| match change.effect {
            Effect::Make { fid: Some(fid), .. } if !made.contains(&fid) => Some((fid, change.host)),
            _ => None,
        });
        let removed = done().filter_map(|change| match change.effect {
            Effect::Remove { fid, .. } => fid,
            _ => None,
        });
        Self {
            case,
            used: vec![false; case.applied.len()],
            unmade: unmade.collect(),
            removed: removed.chain(replaced(&changes)).collect(),
            late: BTreeMap::new(),
            untold: Vec::new(),
            lost: Vec::new(),
            hurt: BTreeMap::new(),
        }
    }

    /// Is this a change of an object that was never on the disk? Then no record of another one is
    /// the change's. (But if the machine lost the object while the call went on, the server was
    /// asked for the change of whatever had the name by then.)
    fn is_unmade(&self, change: &Change) -> bool {
        let unmade = |(fid, _)| self.unmade.get(&fid) == Some(&change.host);
        let lost_meanwhile = || self.lost_at(change).is_some_and(|lost| lost < change.end);
        known(change).is_some_and(unmade) && !lost_meanwhile()
    }

    /// The record of a change made while its call went on.
    pub(super) fn find(
        &mut self,
        change: &Change,
        fits: impl Fn(&Applied) -> bool,
    ) -> Option<usize> {
        self.find_when(change, |applied| {
            applied.moment > change.begin && applied.moment < change.end && fits(applied)
        })
    }

    fn find_when(&mut self, change: &Change, fits: impl Fn(&Applied) -> bool) -> Option<usize> {
        let host = |applied: &Applied| self.case.host_of(applied) == Some(change.host);
        let mut all = self.case.applied.iter().enumerate();
        let found = all.find(|(index, applied)| {
            let refused = matches!(applied.outcome, Outcome::Refused(_));
            !self.used[*index] && !refused && host(applied) && fits(applied)
        });
        let index = found?.0;
        self.used[index] = true;
        Some(index)
    }

    /// The same of one in a delegated directory: it is told of later, and is about the object that
    /// the kernel knew.
    fn find_late(&mut self, change: &Change) -> Option<usize> {
        let lost = self.lost_at(change);
        let changes = self.case.history.changes.borrow();
        // A program may have done the same again when the machine had lost the change.
        let done_again = |applied: &Applied| {
            let mut own = changes.iter().filter(|other| other.host == change.host);
            lost.is_some_and(|lost| {
                own.any(|other| {
                    let since = lost < other.begin && other.begin < applied.moment;
                    since && other.fate == Fate::Done && is_record(other, applied, true)
                })
            })
        };
        let found = self.find_when(change, |applied| {
            let told = applied.delegated && applied.moment > change.begin;
            told && is_record(change, applied, true) && !done_again(applied)
        })?;
        let call = (change.host, change.begin, change.end);
        self.late.insert(found, call);
        Some(found)
    }

    /// The record of a change, told late or not.
    fn find_any(&mut self, change: &Change, exact: bool) -> Option<usize> {
        let found = self.find(change, |applied| is_record(change, applied, exact));
        let found = match (found, change.fate) {
            (None, Fate::Done) => self.find_late(change),
            (found, _) => found,
        }?;
        self.note_absence(change, found);
        Some(found)
    }

    /// The record of a change that a power failure undid, and that its machine did not ask for
    /// again, as it was lost as well.
    pub(super) fn find_undone(
        &self,
        change: &Change,
        fits: impl Fn(&Applied) -> bool,
    ) -> Option<&'a Applied> {
        self.lost_at(change)?;
        let case = self.case;
        case.undone.iter().find(|applied| {
            let own = case.host_of(applied) == Some(change.host);
            own && applied.moment > change.begin && fits(applied)
        })
    }

    /// The names of such a change became what they had been.
    fn note_undone(&mut self, change: &Change) {
        for (dir, name) in change.effect.names() {
            if let Some(lost) = self.lost_at(change) {
                self.hurt.entry((change.host, lost, dir, name)).or_default();
            }
        }
    }

    /// When its machine was lost next, if it was.
    fn lost_at(&self, change: &Change) -> Option<u64> {
        let losses = self.case.history.losses.borrow();
        let own = losses.iter().filter(|(host, _)| *host == change.host);
        own.map(|(_, moment)| *moment)
            .filter(|moment| *moment > change.begin)
            .min()
    }

    /// Nothing that a machine did after a change that is lost is left of what was delegated to it.
    pub(super) fn no_hole(&self) -> Result<(), Wrong> {
        let lost = self.lost.iter();
        // A machine that was only silent loses single changes, and none that can be done.
        let lost = lost.filter(|(host, _, moment)| !self.is_absence(*host, *moment));
        for (host, answered, moment) in lost {
            let behind = |(other, begin, _): &&(u32, u64, u64)| {
                other == host && (*answered..*moment).contains(begin)
            };
            if let Some((_, begin, _)) = self.late.values().find(behind) {
                return Err(wrong!(
                    "h{host}: what it did at {begin} is left, and not what was answered at \
                     {answered}: it was lost at {moment}"
                ));
            }
        }
        Ok(())
    }

    /// Was this change made only after its machine had been silent, and others may have been shown
    /// how things were before? Then its names are as those of changes that are lost.
    fn note_absence(&mut self, change: &Change, found: usize) {
        let Some((_, acts)) = known(change) else {
            return;
        };
        let made = self.case.applied[found].moment;
        let absences = self.case.history.absences.borrow();
        let within = absences.iter().filter(|(host, moment)| {
            *host == change.host && change.begin < *moment && *moment < made
        });
        for (host, moment) in within {
            for (dir, name, _) in &acts {
                let name = (*host, *moment, *dir, name.clone());
                *self.hurt.entry(name).or_default() += 1;
            }
        }
    }

    /// Was this machine only silent then?
    fn is_absence(&self, host: u32, moment: u64) -> bool {
        let absences = self.case.history.absences.borrow();
        absences.contains(&(host, moment))
    }

    /// Was a change of this name by this machine lost?
    pub(super) fn is_hurt(&self, host: u32, name: &(Fid, Name)) -> bool {
        let mut hurt = self.hurt.keys();
        hurt.any(|(of, _, dir, known)| *of == host && (*dir, known) == (name.0, &name.1))
    }

    /// All changes as this machine saw them: of its own those that were told late when it made
    /// them, at the beginning or the end of the call, and those that never were.
    pub(super) fn as_done(&self, host: u32, at_end: bool) -> Vec<(u64, Done<'_>)> {
        let seen = |begin: u64, end: u64| if at_end { end } else { begin };
        let when = |(index, applied)| match self.late.get(&index) {
            Some((of, begin, end)) if *of == host => (seen(*begin, *end), Done::Told(applied)),
            _ => (applied.moment, Done::Told(applied)),
        };
        let untold = self.untold.iter().filter(|(of, ..)| *of == host);
        let untold = untold.map(|(_, begin, end, did)| (seen(*begin, *end), Done::Untold(did)));
        let told = self.case.applied.iter().enumerate().map(when);
        let mut all: Vec<_> = told.chain(untold).collect();
        all.sort_by_key(|(moment, _)| *moment);
        all
    }

    /// Names of lost changes may be what they were at any time before. Those that a machine makes
    /// when it is back, it makes one by one.
    pub(super) fn lost_names(&self, values: &mut Values) {
        for ((host, moment, dir, name), again) in &self.hurt {
            let value = Value::Name(*dir, name.clone());
            let turns = values.turns.get(&value).map_or(&[][..], |turns| turns);
            let mut before: Vec<u64> = vec![0];
            before.extend(turns.iter().filter_map(|turn| match turn.act {
                Act::Put(value) | Act::Make(value) => Some(value),
                _ => None,
            }));
            before.sort_unstable();
            before.dedup();
            let before = Rc::new(before);
            for _ in 0..1 + again {
                let when = (*moment, u64::MAX, *host);
                values.add(value.clone(), when, Act::Maybe(Rc::clone(&before)));
            }
        }
    }

    /// A change that the disk has never heard of, although its caller was answered.
    fn unrecorded(&mut self, change: &Change, values: &mut Values) -> Result<(), Wrong> {
        let never = || {
            Err(wrong!(
                "answered, and never applied: h{} {change:?}",
                change.host
            ))
        };
        let Some((fid, acts)) = known(change) else {
            return never();
        };
        let struck = self.unmade.get(&fid) == Some(&change.host) && self.removed.contains(&fid);
        let lost = self.lost_at(change);
        if !struck && lost.is_none() {
            return never();
        }
        let when = (change.begin, change.end, change.host);
        let did = (change.host, change.begin, change.end, change.effect.clone());
        self.untold.push(did);
        if let Effect::Make { name, mode, .. } = &change.effect {
            values.begin(fid, name, u32::from(*mode));
        }
        for (dir, name, act) in acts {
            if let Some(moment) = lost {
                let name = (change.host, moment, dir, name.clone());
                let made_after_all = usize::from(self.is_absence(change.host, moment));
                *self.hurt.entry(name).or_default() += made_after_all;
            }
            values.add(Value::Name(dir, name), when, act);
        }
        if let Some(moment) = lost.filter(|_| !struck) {
            self.lost.push((change.host, change.end, moment));
        }
        Ok(())
    }
}

/// A change of a directory's name.
type NameAct = (Fid, Name, Act);

/// Objects that had a name when their own machine gave it to another one, or may have had it: they
/// were not moved away from there before.
pub(super) fn replaced(changes: &[Change]) -> Vec<Fid> {
    let done = || changes.iter().filter(|change| change.fate == Fate::Done);
    let named = |change: &Change| match &change.effect {
        Effect::Make { dir, name, fid, .. } => Some(((*dir, name.clone()), *fid)),
        Effect::Rename { to, fid, .. } => Some((to.clone(), *fid)),
        _ => None,
    };
    let renames = done().filter(|change| matches!(change.effect, Effect::Rename { .. }));
    let replaced_by = |rename: &Change| {
        let (place, mover) = named(rename)?;
        let before = done().filter(|change| {
            change.host == rename.host && change.begin < rename.end && change.begin != rename.begin
        });
        // For sure: an object whose move overlaps may have been moved away first.
        let moved_away = |end: u64, fid: Option<Fid>| {
            done().any(|change| match &change.effect {
                Effect::Rename { from, fid: of, .. } => {
                    let here = *of == fid && *from == place && change.host == rename.host;
                    here && change.begin > end && change.end < rename.begin
                }
                _ => false,
            })
        };
        let had = before.filter_map(|change| {
            let (at, fid) = named(change)?;
            (at == place && !moved_away(change.end, fid)).then_some((at, fid))
        });
        let others = had
            .filter_map(|(_, fid)| fid)
            .filter(|fid| Some(*fid) != mover);
        Some(others.collect::<Vec<Fid>>())
    };
    renames.filter_map(replaced_by).flatten().collect()
}

/// The effect of a change, and its object, as its machine's kernel knew it.
fn known(change: &Change) -> Option<(Fid, Vec<NameAct>)> {
    Some(match &change.effect {
        Effect::Make { dir, name, fid, .. } => {
            let fid = (*fid)?;
            (fid, vec![(*dir, name.clone(), Act::Make(fid.vnode))])
        }
        Effect::Link { dir, name, fid } => (*fid, vec![(*dir, name.clone(), Act::Put(fid.vnode))]),
        Effect::Remove { dir, name, fid } => {
            let fid = (*fid)?;
            (fid, vec![(*dir, name.clone(), Act::TakeThis(fid.vnode))])
        }
        Effect::Rename { from, to, fid } => {
            let fid = (*fid)?;
            let taken = (from.0, from.1.clone(), Act::TakeThis(fid.vnode));
            (fid, vec![taken, (to.0, to.1.clone(), Act::Put(fid.vnode))])
        }
        _ => return None,
    })
}

/// Does this record say that this change was made? `exact`: of the very object that the kernel
/// knew.
fn is_record(change: &Change, applied: &Applied, exact: bool) -> bool {
    let same = |known: &Option<Fid>, fid: &Fid| known.is_none_or(|known| known == *fid);
    match (&change.effect, &applied.op, &applied.outcome) {
        (
            Effect::Make { dir, name, fid, .. },
            Op::Make {
                dir: d, name: n, ..
            },
            Outcome::Entry(entry),
        ) => d == dir && n == name && same(fid, &entry.fid),
        (
            Effect::Link { dir, name, fid },
            Op::Link {
                fid: f,
                dir: d,
                name: n,
            },
            _,
        ) => d == dir && n == name && f == fid,
        (
            Effect::Remove { dir, name, fid },
            Op::Unlink { dir: d, name: n } | Op::Rmdir { dir: d, name: n },
            Outcome::Removed { fid: removed, .. },
        ) => d == dir && n == name && (!exact || same(fid, removed)),
        (
            Effect::Rename { from, to, fid },
            Op::Rename {
                from: a,
                name: x,
                to: b,
                new: y,
                exchange: false,
                ..
            },
            Outcome::Renamed { fid: moved, .. },
        ) => {
            let names = (*a, x) == (from.0, &from.1) && (*b, y) == (to.0, &to.1);
            names && (!exact || same(fid, moved))
        }
        (
            Effect::Exchange {
                names: [one, other],
            },
            Op::Rename {
                from: a,
                name: x,
                to: b,
                new: y,
                exchange: true,
                ..
            },
            _,
        ) => (*a, x) == (one.0, &one.1) && (*b, y) == (other.0, &other.1),
        _ => false,
    }
}

/// A change of names has its turn while its call goes on.
pub(super) fn change(
    records: &mut Records<'_>,
    change: &Change,
    values: &mut Values,
) -> Result<(), Wrong> {
    let when = (change.begin, change.end, change.host);
    let exact = records.is_unmade(change);
    let found = records.find_any(change, exact);
    let record = match (found, change.fate) {
        (Some(found), _) => &records.case.applied[found],
        (None, Fate::Done) => return records.unrecorded(change, values),
        // Nobody was answered, and others may have seen it.
        (None, _) => match records.find_undone(change, |done| is_record(change, done, exact)) {
            Some(record) => {
                records.note_undone(change);
                record
            }
            None => return Ok(()),
        },
    };
    // Before another machine gave the object that it moves the other name.
    let told_late = found.is_some_and(|found| records.late.contains_key(&found));
    let mut add = |dir: Fid, name: &Name, act| {
        values.add(Value::Name(dir, name.clone()), when, act);
    };
    match (&change.effect, &record.outcome) {
        (Effect::Make { dir, name, .. }, Outcome::Entry(entry)) => {
            add(*dir, name, Act::Make(entry.fid.vnode));
        }
        (Effect::Link { dir, name, fid }, _) => add(*dir, name, Act::Make(fid.vnode)),
        (Effect::Remove { dir, name, .. }, Outcome::Removed { fid, .. }) => {
            add(*dir, name, Act::TakeThis(fid.vnode));
        }
        (
            Effect::Rename {
                from: one,
                to: other,
                ..
            }
            | Effect::Exchange {
                names: [one, other],
            },
            Outcome::Renamed { fid, .. },
        ) if record.before.0 == record.before.1 && !told_late => {
            add(one.0, &one.1, Act::See(fid.vnode));
            add(other.0, &other.1, Act::See(fid.vnode));
        }
        (Effect::Rename { from, to, .. }, Outcome::Renamed { fid, .. }) => {
            add(from.0, &from.1, Act::TakeThis(fid.vnode));
            add(to.0, &to.1, Act::Put(fid.vnode));
        }
        (
            Effect::Exchange {
                names: [one, other],
            },
            Outcome::Renamed {
                fid,
                victim: Some((back, _)),
                ..
            },
        ) => {
            add(one.0, &one.1, Act::Put(back.vnode));
            add(other.0, &other.1, Act::Put(fid.vnode));
        }
        _ => {}
    }
    Ok(())
}
