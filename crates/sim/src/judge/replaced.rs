//! Bytes before the name that depends on them: when the disk makes a rename that replaces
//! something, it has, or has had, all that the same machine had written to the file before it
//! called rename(2). So a machine that is lost leaves under such a name the old file or the whole
//! new one, at whatever moment. (What was made there after the call was none: its machine
//! had told nobody of it.)

use super::Case;
use crate::disk::{Applied, UNIT};
use crate::history::{Change, Effect, Fate};
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use wire::{Fid, Name, Op, Outcome, Refusal};

/// Where a rename goes from and to.
type Way<'a> = (u32, (Fid, &'a Name), (Fid, &'a Name));

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    let changes = case.history.changes.borrow();
    let mut asked: BTreeMap<Way<'_>, VecDeque<u64>> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.fate != Fate::Failed) {
        let way = match &change.effect {
            Effect::Rename { from, to, .. } => ((from.0, &from.1), (to.0, &to.1)),
            _ => continue,
        };
        let begun = asked.entry((change.host, way.0, way.1)).or_default();
        begun.push_back(change.begin);
    }
    let mut of: BTreeMap<Fid, Vec<&Applied>> = BTreeMap::new();
    let mut made: BTreeMap<Fid, u64> = BTreeMap::new();
    for applied in case.applied {
        if let Some(fid) = file_of(&applied.op) {
            of.entry(fid).or_default().push(applied);
        }
        if let (Op::Make { .. }, Outcome::Entry(entry)) = (&applied.op, &applied.outcome) {
            made.insert(entry.fid, applied.moment);
        }
        let Some((way, fid, victim)) = renamed(case, applied) else {
            continue;
        };
        // A call whose machine was lost may never have come to the disk: then this is an earlier
        // moment than the rename's own, at which less is asked for.
        let Some(begin) = asked.get_mut(&way).and_then(VecDeque::pop_front) else {
            continue;
        };
        let there = of.get(&fid).map_or(&[][..], Vec::as_slice);
        let known = |victim: &Fid| made.get(victim).is_none_or(|at| *at < begin);
        if victim.filter(known).is_none() {
            continue;
        }
        let own = changes.iter().filter(|change| change.host == way.0);
        for change in own.filter(|change| change.end < begin) {
            if let Some(at) = lacks(case, (applied.moment, fid, 0..u64::MAX), (change, there)) {
                return Err(wrong!(
                    "h{} had written unit {at} of {fid} at {} .. {} and then renamed it over \
                     another: the disk had the name at {} without it",
                    change.host,
                    change.begin,
                    change.end,
                    applied.moment
                ));
            }
        }
    }
    Ok(())
}

/// A rename that the disk has made, what it moved, and what was in its place.
fn renamed<'a>(case: &Case<'_>, applied: &'a Applied) -> Option<(Way<'a>, Fid, Option<Fid>)> {
    let Op::Rename {
        from,
        name,
        to,
        new,
        exchange: false,
        ..
    } = &applied.op
    else {
        return None;
    };
    let Outcome::Renamed { fid, victim, .. } = &applied.outcome else {
        return None;
    };
    let host = case.host_of(applied)?;
    let other = victim.as_ref().map(|(victim, _)| *victim);
    let way = (host, (*from, name), (*to, new));
    Some((
        way,
        *fid,
        other.filter(|_| applied.before.0 != applied.before.1),
    ))
}

/// The file whose bytes an operation changes.
pub(super) fn file_of(op: &Op) -> Option<Fid> {
    match op {
        Op::Write { fid, .. } => Some(*fid),
        Op::SetAttr { fid, set } => set.size.map(|_| *fid),
        _ => op.edits(),
    }
}

/// The first of these units of a file that the disk has not had of a write before a moment.
pub(super) fn lacks(
    case: &Case<'_>,
    (moment, fid, units): (u64, Fid, Range<u64>),
    (change, there): (&Change, &[&Applied]),
) -> Option<u64> {
    let Effect::Write {
        fid: of,
        unit,
        values,
    } = &change.effect
    else {
        return None;
    };
    if *of != fid || change.fate != Fate::Done {
        return None;
    }
    let since = |at: u64| at > change.begin && at < moment;
    let lost = case.history.losses.borrow();
    let mut lost = lost.iter().map(|(_, moment)| *moment);
    let mut failed = case.restored.iter().map(|restored| restored.when.1);
    if lost.any(since) || failed.any(since) {
        return None;
    }
    let later = || there.iter().filter(|applied| since(applied.moment));
    let excused = |applied: &&&Applied| match (&applied.op, &applied.outcome) {
        (_, Outcome::Refused(refusal)) => {
            matches!(refusal, Refusal::NoSpace | Refusal::Quota | Refusal::Disk)
        }
        (op, _) => !matches!(op, Op::Write { .. }),
    };
    if later().any(|applied| excused(&applied)) {
        return None;
    }
    let covers = |applied: &&&Applied, at: u64| match (&applied.op, &applied.outcome) {
        (Op::Write { len, .. }, Outcome::Written { offset, .. }) => {
            (offset / UNIT..(offset + u64::from(*len)) / UNIT).contains(&at)
        }
        _ => false,
    };
    let mut written = *unit..unit + values.len() as u64;
    written.find(|at| units.contains(at) && !later().any(|applied| covers(&applied, *at)))
}
