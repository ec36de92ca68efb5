//! A rename of one name of an object to another name of the same object succeeds and does nothing.
//! The kernel decides that by itself, from two look-ups; it is right only if both names named the
//! object at one moment of the call. Names are judged one at a time elsewhere, which would let pass
//! what was true of each name at a moment of its own.

use super::Case;
use super::names::{Done, Records};
use crate::disk::{Applied, Restored};
use crate::history::{Effect, Fate, Seen};
use crate::wrong::{Wrong, wrong};
use std::collections::BTreeMap;
use std::iter::Peekable;
use wire::{Fid, Name, Op, Outcome};

type Names = BTreeMap<(Fid, Name), Fid>;

/// Judges all; of the disk's records of changes that were told late, these calls made them.
pub(super) fn judge(case: &Case<'_>, records: &Records<'_>) -> Result<(), Wrong> {
    for sight in case.history.sights.borrow().iter() {
        let Seen::Twins { names, fid } = &sight.seen else {
            continue;
        };
        let lost = names.iter().any(|name| records.is_hurt(sight.host, name));
        let when = (sight.begin, sight.end);
        // A change that was told late counts for the machine that made it from a moment of its call
        // on.
        let twins = || {
            [false, true].into_iter().any(|at_end| {
                let changes = records.as_done(sight.host, at_end);
                were_twins(case, &changes, (names, *fid), when)
            })
        };
        if !lost && !twins() && !has_abandoned(case, sight.host, names, sight.end) {
            return Err(wrong!(
                "h{} renamed {names:?} to each other at {} .. {}: never both named {fid}",
                sight.host,
                sight.begin,
                sight.end
            ));
        }
    }
    Ok(())
}

/// Was there a moment of this time at which both names named the object?
fn were_twins(
    case: &Case<'_>,
    changes: &[(u64, Done<'_>)],
    (names, fid): (&[(Fid, Name); 2], Fid),
    (begin, end): (u64, u64),
) -> bool {
    let mut known = Names::new();
    let mut restored = case.restored.iter().peekable();
    let both = |known: &Names| names.iter().all(|name| known.get(name) == Some(&fid));
    for &(moment, ref done) in changes {
        if moment > end {
            break;
        }
        restore(&mut known, &mut restored, moment);
        if moment > begin && both(&known) {
            return true;
        }
        match done {
            Done::Told(change) => follow(&mut known, change),
            Done::Untold(effect) => follow_untold(&mut known, effect),
        }
    }
    restore(&mut known, &mut restored, end);
    both(&known)
}

/// Puts back the names that were there after the last power failure before this moment: it may have
/// undone changes that had been seen.
fn restore<'a>(
    known: &mut Names,
    restored: &mut Peekable<impl Iterator<Item = &'a Restored>>,
    moment: u64,
) {
    while let Some(after) = restored.next_if(|restored| restored.when.0 < moment) {
        known.clone_from(&after.names);
    }
}

/// Follows the names over a change.
fn follow(known: &mut Names, change: &Applied) {
    match (&change.op, &change.outcome) {
        (Op::Make { dir, name, .. } | Op::Link { dir, name, .. }, Outcome::Entry(entry)) => {
            known.insert((*dir, name.clone()), entry.fid);
        }
        (Op::Unlink { dir, name } | Op::Rmdir { dir, name }, Outcome::Removed { .. }) => {
            known.remove(&(*dir, name.clone()));
        }
        (
            Op::Rename {
                from,
                name,
                to,
                new,
                exchange,
                ..
            },
            Outcome::Renamed { fid, victim, .. },
        ) if change.before.0 != change.before.1 => {
            known.remove(&(*from, name.clone()));
            known.insert((*to, new.clone()), *fid);
            let back = victim.iter().filter(|_| *exchange);
            known.extend(back.map(|(other, _)| ((*from, name.clone()), *other)));
        }
        _ => {}
    }
}

/// The same of one that has no record.
fn follow_untold(known: &mut Names, effect: &Effect) {
    match effect {
        Effect::Make { dir, name, fid, .. } => {
            known.extend(fid.map(|fid| ((*dir, name.clone()), fid)));
        }
        Effect::Link { dir, name, fid } => {
            known.insert((*dir, name.clone()), *fid);
        }
        Effect::Remove { dir, name, .. } => {
            known.remove(&(*dir, name.clone()));
        }
        Effect::Rename { from, to, fid } => {
            known.remove(from);
            known.extend(fid.map(|fid| (to.clone(), fid)));
        }
        _ => {}
    }
}

/// Was a rename of one of these names under way whose caller had been killed? The kernel had the
/// directory locked no more, so it may have been done between the two look-ups.
fn has_abandoned(case: &Case<'_>, host: u32, names: &[(Fid, Name)], end: u64) -> bool {
    let changes = case.history.changes.borrow();
    changes.iter().any(|change| {
        let moves = match &change.effect {
            Effect::Rename { from, to, .. } => names.contains(from) || names.contains(to),
            Effect::Exchange { names: both } => both.iter().any(|name| names.contains(name)),
            _ => false,
        };
        moves && change.host == host && change.fate == Fate::Open && change.begin < end
    })
}
