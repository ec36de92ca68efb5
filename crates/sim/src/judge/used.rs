//! The reported room of a file: about the units that have been written to it and that nothing has
//! taken since at least, about its size at most, and never nothing if there is anything. A program
//! that copies sparsely believes it.

use super::Case;
use crate::disk::UNIT;
use crate::history::{Change, Effect, Fate, Seen, Sight};
use crate::wrong::{Wrong, wrong};
use std::collections::BTreeMap;
use wire::Fid;

/// The store counts bytes of its index also where later ones lie over them, and a client takes a
/// file for one without holes that only seems so for this reason.
const SLACK: u64 = 8192;

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    let changes = case.history.changes.borrow();
    let mut of: BTreeMap<Fid, Vec<&Change>> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.fate != Fate::Failed) {
        if let Some(fid) = file_of(&change.effect) {
            of.entry(fid).or_default().push(change);
        }
    }
    for sight in case.history.sights.borrow().iter() {
        let Seen::Attr {
            fid, units, used, ..
        } = sight.seen
        else {
            continue;
        };
        let changes = of.get(&fid).map_or(&[][..], Vec::as_slice);
        let least = written(case, changes, sight).min(units) * UNIT;
        let most = units * UNIT;
        let range = least.saturating_sub(SLACK).max(least.min(1))..=most + SLACK;
        if !changes.is_empty() && !range.contains(&used) {
            return Err(wrong!(
                "h{} was told that {fid} occupies {used} bytes at {} .. {}: {least} .. {most} do",
                sight.host,
                sight.begin,
                sight.end
            ));
        }
    }
    Ok(())
}

/// The file whose bytes are changed.
fn file_of(effect: &Effect) -> Option<Fid> {
    match effect {
        Effect::Write { fid, .. }
        | Effect::Append { fid, .. }
        | Effect::Size { fid, .. }
        | Effect::Zero { fid, .. }
        | Effect::Copy { to: (fid, _), .. } => Some(*fid),
        _ => None,
    }
}

/// How many units were there for as long as a program looked at them.
fn written(case: &Case<'_>, changes: &[&Change], sight: &Sight) -> u64 {
    let mut there: BTreeMap<u64, u64> = BTreeMap::new();
    for change in changes {
        if let Effect::Write { unit, values, .. } = &change.effect
            && change.fate == Fate::Done
            && change.end < sight.begin
        {
            for at in *unit..*unit + values.len() as u64 {
                let since = there.entry(at).or_default();
                *since = change.begin.max(*since);
            }
        }
    }
    let losses = case.history.losses.borrow();
    let lost = losses.iter().map(|(_, moment)| *moment);
    let fails = case.restored.iter().map(|restored| restored.when.1);
    let spoilt = lost.chain(fails).filter(|moment| *moment < sight.end).max();
    there.retain(|at, since| {
        let takes = |change: &&Change| takes(&change.effect, *at) && change.end > *since;
        let taken = changes
            .iter()
            .any(|change| takes(change) && change.begin < sight.end);
        !taken && spoilt.is_none_or(|moment| moment < *since)
    });
    there.len() as u64
}

/// May this unit be a hole after that?
fn takes(effect: &Effect, at: u64) -> bool {
    match effect {
        Effect::Size { units, .. } => at >= *units,
        Effect::Zero { units, .. } => (units.0..units.1).contains(&at),
        Effect::Copy { to, count, .. } => (to.1..to.1 + count).contains(&at),
        _ => false,
    }
}
