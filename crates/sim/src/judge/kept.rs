//! A machine that was only silent, however long, loses nothing in silence: each unit that its
//! programs had written is on the disk, in its file or in one beside it, or was written over or
//! removed with its file; or the machine has reported it lost, also to the next sync of the file.
//! Objects that it has made in directories of its own have been made, under whatever name.

use super::Case;
use crate::disk::Applied;
use crate::history::{Change, Effect, Fate};
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Name, Op, Outcome};

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    let history = case.history;
    let (absences, over) = (history.absences.borrow(), history.over.borrow());
    // The last time that something was taken from each.
    let mut silent: BTreeMap<u32, u64> = BTreeMap::new();
    for (host, moment) in absences.iter().filter(|(host, _)| !over.contains(host)) {
        silent.insert(*host, *moment);
    }
    if silent.is_empty() {
        return Ok(());
    }
    let changes = history.changes.borrow();
    let written = on_disk(case.applied);
    let told = history.told.borrow();
    for change in done_before(&changes, &silent) {
        let (fid, unit, values) = match &change.effect {
            Effect::Write { fid, unit, values } => (fid, unit, values),
            // Nothing covers these but a cut.
            Effect::Append { fid, values } => (fid, &0, values),
            _ => continue,
        };
        if !case.left.files.contains_key(fid) || told.contains(&(change.host, *fid)) {
            continue;
        }
        for (at, value) in (*unit..).zip(values) {
            let over = || changes.iter().any(|later| hides(later, change, (*fid, at)));
            if !written.contains_key(value) && !over() {
                return Err(wrong!(
                    "h{} was silent, and unit {at} of {fid} that it had written at {} .. {} is in \
                     no file, and nobody was told",
                    change.host,
                    change.begin,
                    change.end
                ));
            }
        }
    }
    apart(&changes, &written, &silent)?;
    made(case, &changes, &silent)
}

/// Is this the name of what a machine had changed of a file that others have changed, too?
pub(super) fn is_beside(name: &Name) -> bool {
    const MARK: &[u8] = b".conflict-";
    let mut parts = name.as_bytes().windows(MARK.len());
    parts.any(|part| part == MARK)
}

/// The changes that these machines' programs had been answered before something was taken.
fn done_before<'a>(
    changes: &'a [Change],
    silent: &'a BTreeMap<u32, u64>,
) -> impl Iterator<Item = &'a Change> {
    changes.iter().filter(|change| {
        let moment = silent.get(&change.host);
        change.fate == Fate::Done && moment.is_some_and(|moment| change.begin < *moment)
    })
}

/// When each value came to the disk first, and to which file. (Programs write each once.)
fn on_disk(applied: &[Applied]) -> BTreeMap<u64, (u64, Option<Fid>)> {
    let mut first = BTreeMap::new();
    for applied in applied {
        if matches!(applied.outcome, Outcome::Refused(_)) {
            continue;
        }
        for value in applied.written() {
            let place = (applied.moment, place_of(&applied.op));
            first.entry(value).or_insert(place);
        }
    }
    first
}

fn place_of(op: &Op) -> Option<Fid> {
    match op {
        Op::Write { fid, .. } => Some(*fid),
        _ => op.edits(),
    }
}

/// Units that a machine wrote before it was silent have not come over those that others wrote
/// meanwhile.
fn apart(
    changes: &[Change],
    written: &BTreeMap<u64, (u64, Option<Fid>)>,
    silent: &BTreeMap<u32, u64>,
) -> Result<(), Wrong> {
    let came = |change: &Change| {
        let Effect::Write { fid, values, .. } = &change.effect else {
            return None;
        };
        let (moment, of) = written.get(values.first()?)?;
        (change.fate == Fate::Done && *of == Some(*fid)).then_some((*fid, *moment))
    };
    for change in done_before(changes, silent) {
        let Some((fid, moment)) = came(change) else {
            continue;
        };
        let taken = silent[&change.host];
        if change.end > taken {
            continue; // it may have been made when the machine was back
        }
        let between = changes.iter().find(|other| {
            let other_came = came(other).filter(|(of, _)| *of == fid);
            let meanwhile = other.begin > taken && other.host != change.host;
            meanwhile && other_came.is_some_and(|(_, came)| came < moment)
        });
        if let Some(other) = between {
            return Err(wrong!(
                "h{} was silent, and what it had written to {fid} at {} .. {} has come over what \
                 h{} wrote at {} .. {}",
                change.host,
                change.begin,
                change.end,
                other.host,
                other.begin,
                other.end
            ));
        }
    }
    Ok(())
}

/// May this change have come after the other one, and have taken this unit out of sight? Others'
/// changes do not: their machine has the units written before, or these are set aside.
fn hides(later: &Change, change: &Change, unit: (Fid, u64)) -> bool {
    let own = later.host == change.host && later.begin != change.begin;
    own && later.fate != Fate::Failed && later.end > change.begin && covers(&later.effect, unit)
}

fn covers(effect: &Effect, (of, at): (Fid, u64)) -> bool {
    match effect {
        Effect::Write { fid, unit, values } => {
            *fid == of && (*unit..*unit + values.len() as u64).contains(&at)
        }
        Effect::Store { fid, unit, .. } => *fid == of && *unit == at,
        Effect::Size { fid, units } => *fid == of && *units <= at,
        Effect::Zero { fid, units, .. } => *fid == of && (units.0..units.1).contains(&at),
        Effect::Copy { to, count, .. } => to.0 == of && (to.1..to.1 + count).contains(&at),
        _ => false,
    }
}

/// Their new objects are there, or were there, or they have reported so many changes as lost.
fn made(case: &Case<'_>, changes: &[Change], silent: &BTreeMap<u32, u64>) -> Result<(), Wrong> {
    let entry = |applied: &Applied| match (&applied.op, &applied.outcome) {
        (Op::Make { .. }, Outcome::Entry(entry)) => Some(entry.fid),
        _ => None,
    };
    let made: BTreeSet<Fid> = case.applied.iter().filter_map(entry).collect();
    let removed = changes.iter().filter_map(|change| match &change.effect {
        Effect::Remove { fid, .. } => *fid,
        _ => None,
    });
    let removed: BTreeSet<Fid> = removed.chain(super::names::replaced(changes)).collect();
    let mut missing: BTreeMap<u32, u64> = BTreeMap::new();
    for change in done_before(changes, silent) {
        if let Effect::Make { fid: Some(fid), .. } = &change.effect
            && !made.contains(fid)
            && !removed.contains(fid)
        {
            *missing.entry(change.host).or_default() += 1;
        }
    }
    let lost = case.history.unmade.borrow();
    for (host, count) in missing {
        if count > lost.get(&host).copied().unwrap_or(0) {
            return Err(wrong!(
                "h{host} was silent, and {count} of the objects that it had made are nowhere, and \
                 nobody was told"
            ));
        }
    }
    Ok(())
}
