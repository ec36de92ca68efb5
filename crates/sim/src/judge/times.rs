//! Times of objects: that of the last modification and that of the last change, as programs are
//! shown them, do not go back, and are those of the server's clock, however wrong the clocks of the
//! machines are; a changed object has another time of change; the time of birth stays. (Programs of
//! these worlds set no times.)

use super::Case;
use crate::disk::Applied;
use crate::history::{Change, Effect, Seen, Sight};
use crate::wrong::{Wrong, wrong};
use std::collections::BTreeMap;
use wire::{Fid, Op, Time};

/// Times are this near the server's clock: far more than machines can part in the time of a lease,
/// and far less than their clocks are wrong.
const NEAR_NS: Time = 60_000_000_000;

/// A sight, its times, and its size and mode.
type Shown<'a> = (&'a Sight, [Time; 2], (u64, u16));

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    let all = case.history.sights.borrow();
    let mut sights: BTreeMap<Fid, Vec<Shown<'_>>> = BTreeMap::new();
    for sight in all.iter() {
        if let Seen::Attr {
            fid,
            units,
            mode,
            times,
            ..
        } = sight.seen
        {
            near_the_servers(case, sight, times)?;
            let shown = (sight, times, (units, mode));
            sights.entry(fid).or_default().push(shown);
        }
    }
    for (fid, of_one) in sights {
        let lost = may_be_lost(case, fid);
        // A sight from before a loss may show a state that never was on the disk.
        let losses = |moment: u64| lost.iter().filter(|loss| **loss <= moment).count();
        let mut between: BTreeMap<usize, Vec<Shown<'_>>> = BTreeMap::new();
        for shown in of_one {
            let (before, after) = (losses(shown.0.begin), losses(shown.0.end));
            if before == after {
                between.entry(before).or_default().push(shown);
            }
        }
        for sights in between.into_values() {
            never_back(case, fid, &sights)?;
            never_alike(fid, &calm(case, fid, &sights))?;
            born_once(fid, &sights)?;
        }
    }
    Ok(())
}

/// No time is one that the server's clock has not nearly shown.
fn near_the_servers(case: &Case<'_>, sight: &Sight, times: [Time; 2]) -> Result<(), Wrong> {
    let [first, last] = case.walls;
    let near = first.saturating_sub(NEAR_NS)..=last + NEAR_NS;
    // The root was there before.
    let is_right = |time: &Time| *time == 0 || near.contains(time);
    match times.iter().all(is_right) {
        true => Ok(()),
        false => Err(wrong!(
            "h{} was shown times that the server's clock never showed: {:?}",
            sight.host,
            sight.seen
        )),
    }
}

/// Was a name of it, or in it, changed by a call of the same machine that went on then? Until the
/// call has taken its answer in, its kernel may have the times of before, although somebody was
/// shown the others. (It throws away what it knows of an object that is moved or set.)
fn beside_own_change(case: &Case<'_>, fid: Fid, sight: &Sight) -> bool {
    let changes = case.history.changes.borrow();
    let names = |effect: &Effect| match effect {
        Effect::Make { dir, .. } => *dir == fid,
        Effect::Link { fid: of, dir, .. } => [*of, *dir].contains(&fid),
        Effect::Remove { fid: of, dir, .. } => *of == Some(fid) || *dir == fid,
        Effect::Rename { from, to, .. } => [from.0, to.0].contains(&fid),
        Effect::Exchange { names } => names.iter().any(|(dir, _)| *dir == fid),
        _ => false,
    };
    let meets = |c: &Change| c.host == sight.host && c.begin < sight.end && sight.begin < c.end;
    changes.iter().any(|c| names(&c.effect) && meets(c))
}

fn never_back(case: &Case<'_>, fid: Fid, sights: &[Shown<'_>]) -> Result<(), Wrong> {
    let (mut begun, mut ended): (Vec<_>, Vec<_>) = (sights.to_vec(), sights.to_vec());
    begun.sort_by_key(|(sight, ..)| sight.begin);
    ended.sort_by_key(|(sight, ..)| sight.end);
    let (mut latest, mut ended) = ([0; 2], ended.into_iter().peekable());
    for (sight, times, _) in begun {
        while let Some((_, shown, _)) = ended.next_if(|(other, ..)| other.end < sight.begin) {
            latest = [latest[0].max(shown[0]), latest[1].max(shown[1])];
        }
        let back = times[0] < latest[0] || times[1] < latest[1];
        if back && !beside_own_change(case, fid, sight) {
            return Err(wrong!(
                "the times of {fid} go back: h{} was shown {times:?} after {latest:?}",
                sight.host
            ));
        }
    }
    Ok(())
}

/// One birth, not later than any change.
fn born_once(fid: Fid, sights: &[Shown<'_>]) -> Result<(), Wrong> {
    let born = |sight: &Sight| match sight.seen {
        Seen::Attr { born, times, .. } => (born, times[1]),
        _ => (0, 0),
    };
    for pair in sights.windows(2) {
        let [(one, ..), (other, ..)] = pair else {
            continue;
        };
        let ((first, _), (second, changed)) = (born(one), born(other));
        if first != second || second > changed {
            return Err(wrong!(
                "{fid} was born at {first} for h{}, at {second} for h{}, and changed at {changed}",
                one.host,
                other.host
            ));
        }
    }
    Ok(())
}

/// The sights during which nobody changed the size or the mode: during such a change a sight may
/// show a part of it already.
fn calm<'a>(case: &Case<'_>, fid: Fid, sights: &[Shown<'a>]) -> Vec<Shown<'a>> {
    let changes = case.history.changes.borrow();
    let of_this = |effect: &Effect| match effect {
        Effect::Write { fid: of, .. }
        | Effect::Store { fid: of, .. }
        | Effect::Append { fid: of, .. }
        | Effect::Size { fid: of, .. }
        | Effect::Mode { fid: of, .. }
        | Effect::Zero { fid: of, .. }
        | Effect::Copy { to: (of, _), .. } => *of == fid,
        _ => false,
    };
    let changes: Vec<_> = changes.iter().filter(|c| of_this(&c.effect)).collect();
    let calm = |(sight, ..): &&Shown<'_>| {
        let meets = |c: &&Change| c.begin <= sight.end && sight.begin <= c.end;
        !changes.iter().any(meets)
    };
    sights.iter().filter(calm).copied().collect()
}

/// Sights with different sizes or modes have different times of change.
fn never_alike(fid: Fid, sights: &[Shown<'_>]) -> Result<(), Wrong> {
    let mut by_time: BTreeMap<Time, &Shown<'_>> = BTreeMap::new();
    for shown in sights {
        let other = *by_time.entry(shown.1[1]).or_insert(shown);
        if other.2 != shown.2 {
            return Err(wrong!(
                "{fid} was changed, and its time of change was not: h{} was shown {:?}, h{} {:?}",
                other.0.host,
                other.0.seen,
                shown.0.host,
                shown.0.seen
            ));
        }
    }
    Ok(())
}

/// Is it about this object, and may it be told to the server later?
fn kept_back(effect: &Effect, of: Fid) -> bool {
    match effect {
        Effect::Write { fid, .. }
        | Effect::Store { fid, .. }
        | Effect::Append { fid, .. }
        | Effect::Mode { fid, .. }
        | Effect::Label { fid, .. } => *fid == of,
        Effect::Make { dir, fid, .. } | Effect::Remove { dir, fid, .. } => {
            *dir == of || *fid == Some(of)
        }
        Effect::Link { dir, fid, .. } => *dir == of || *fid == of,
        Effect::Rename { from, to, fid } => from.0 == of || to.0 == of || *fid == Some(of),
        _ => false,
    }
}

/// When what a machine had written to it, and not written back, may have been lost, or what the
/// disk had.
fn may_be_lost(case: &Case<'_>, fid: Fid) -> Vec<u64> {
    let changes = case.history.changes.borrow();
    let writes = |host: u32, before: u64| {
        changes.iter().any(|change| {
            change.host == host && change.begin < before && kept_back(&change.effect, fid)
        })
    };
    let losses = case.history.losses.borrow();
    let hurt = losses
        .iter()
        .filter(|(host, moment)| writes(*host, *moment));
    let mut lost: Vec<u64> = hurt.map(|(_, moment)| *moment).collect();
    lost.extend(case.restored.iter().map(|restored| restored.when.0));
    lost.extend(come_late(case, fid));
    lost
}

/// When something came to the disk that a machine had done to it before it was silent.
fn come_late(case: &Case<'_>, fid: Fid) -> impl Iterator<Item = u64> {
    let absences = case.history.absences.borrow();
    let late = |applied: &&Applied| {
        let host = case.host_of(applied);
        let mut own = absences.iter().filter(|(of, _)| Some(*of) == host);
        own.any(|(_, moment)| *moment < applied.moment) && touches(&applied.op, fid)
    };
    let late: Vec<u64> = case.applied.iter().filter(late).map(|a| a.moment).collect();
    late.into_iter()
}

fn touches(op: &Op, of: Fid) -> bool {
    match op {
        Op::SetAttr { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }
        | Op::Write { fid, .. } => *fid == of,
        Op::Make { dir, .. } | Op::Unlink { dir, .. } | Op::Rmdir { dir, .. } => *dir == of,
        Op::Link { fid, dir, .. } => *fid == of || *dir == of,
        Op::Rename { from, to, .. } => *from == of || *to == of,
        _ => false,
    }
}
