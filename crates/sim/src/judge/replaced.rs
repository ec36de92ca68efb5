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
            complete(case, (applied, fid), (change, there))?;
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
    let session = applied.origin.map_or(0, |origin| origin.session);
    let host = *case.sessions.get(&session)?;
    let other = victim.as_ref().map(|(victim, _)| *victim);
    let way = (host, (*from, name), (*to, new));
    Some((
        way,
        *fid,
        other.filter(|_| applied.before.0 != applied.before.1),
    ))
}

/// The file whose bytes an operation changes.
fn file_of(op: &Op) -> Option<Fid> {
    match op {
        Op::Write { fid, .. } => Some(*fid),
        Op::SetAttr { fid, set } => set.size.map(|_| *fid),
        _ => op.edits(),
    }
}

/// Has the disk had all of this write before the rename?
fn complete(
    case: &Case<'_>,
    (rename, fid): (&Applied, Fid),
    (change, there): (&Change, &[&Applied]),
) -> Result<(), Wrong> {
    let Effect::Write {
        fid: of,
        unit,
        values,
    } = &change.effect
    else {
        return Ok(());
    };
    if *of != fid || change.fate != Fate::Done {
        return Ok(());
    }
    let since = |moment: u64| moment > change.begin && moment < rename.moment;
    let lost = case.history.losses.borrow();
    let mut lost = lost.iter().map(|(_, moment)| *moment);
    let mut failed = case.restored.iter().map(|restored| restored.when.1);
    if lost.any(since) || failed.any(since) {
        return Ok(());
    }
    let later = || there.iter().filter(|applied| since(applied.moment));
    let excused = |applied: &&&Applied| match (&applied.op, &applied.outcome) {
        (_, Outcome::Refused(refusal)) => {
            matches!(refusal, Refusal::NoSpace | Refusal::Quota | Refusal::Disk)
        }
        (op, _) => !matches!(op, Op::Write { .. }),
    };
    if later().any(|applied| excused(&applied)) {
        return Ok(());
    }
    let covers = |applied: &&&Applied, at: u64| match (&applied.op, &applied.outcome) {
        (Op::Write { len, .. }, Outcome::Written { offset, .. }) => {
            (offset / UNIT..(offset + u64::from(*len)) / UNIT).contains(&at)
        }
        _ => false,
    };
    for at in *unit..unit + values.len() as u64 {
        if !later().any(|applied| covers(&applied, at)) {
            return Err(wrong!(
                "h{} had written unit {at} of {fid} at {} .. {} and then renamed it over another: \
                 the disk had the name at {} without it",
                change.host,
                change.begin,
                change.end,
                rename.moment
            ));
        }
    }
    Ok(())
}
