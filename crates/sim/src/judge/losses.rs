//! Changes that a machine which was fenced, or only silent, had not brought to the disk: the values
//! that it changed may be what they were before, for good or until it comes back.

use super::linear::Act;
use super::replaced::file_of;
use super::{Case, UNITS_MAX, Value, Values};
use crate::disk::{Applied, UNIT};
use crate::history::{Change, Effect};
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::{Fid, Op, Outcome};

/// Was this change written back by an fsync before the host was lost?
pub(super) fn stable(case: &Case<'_>, change: &Change, fid: Fid, lost: u64) -> bool {
    let syncs = case.history.syncs.borrow();
    syncs.iter().any(|(host, file, (begin, end))| {
        (*host, *file) == (change.host, fid) && change.end < *begin && *end < lost
    })
}

/// Changes that a lost host had not written back may be gone: the values that it changed may become
/// what they were at any time before.
pub(super) fn losses(case: &Case<'_>, values: &mut Values) {
    let changes = case.history.changes.borrow();
    let absences = case.history.absences.borrow();
    let losses = case.history.losses.borrow();
    for &(host, moment) in losses.iter() {
        let lost = losses.iter().filter(|(_, at)| *at <= moment);
        let lost: BTreeSet<u32> = lost.map(|(host, _)| *host).collect();
        let mut hurt = undone(case, host);
        for change in changes
            .iter()
            .filter(|c| c.host == host && c.begin < moment)
        {
            if let Some(value) = attribute_of(&change.effect)
                && (absences.contains(&(host, moment)) || !set_by(case, change, moment))
            {
                hurt.insert(value);
            }
            if let Effect::Store { fid, unit, .. } = change.effect
                && !stable(case, change, fid, moment)
            {
                hurt.insert(Value::Unit(fid, unit));
            }
            let Effect::Write {
                fid,
                unit,
                values: new,
            } = &change.effect
            else {
                continue;
            };
            if !stable(case, change, *fid, moment) {
                hurt.insert(Value::Size(*fid));
                hurt.extend((*unit..).zip(new).map(|(unit, _)| Value::Unit(*fid, unit)));
            }
        }
        for value in hurt {
            let turns = values.turns.get(&value).map_or(&[][..], |turns| turns);
            let mut before: Vec<u64> = vec![0];
            before.extend(values.starts.get(&value));
            before.extend(turns.iter().filter_map(|turn| match turn.act {
                Act::Put(value) | Act::Raise(value) => Some(value),
                _ => None,
            }));
            before.extend(brought(case, &value, &lost));
            before.sort_unstable();
            before.dedup();
            let before = Rc::new(before);
            // The writes of a machine that was only silent come later.
            let again = absences.contains(&(host, moment));
            for _ in 0..1 + usize::from(again) {
                let when = (moment, u64::MAX, host);
                values.add(value.clone(), when, Act::Maybe(Rc::clone(&before)));
            }
        }
    }
}

/// Sizes and bytes that this host had set at the server, and that a power failure of that undid.
fn undone(case: &Case<'_>, host: u32) -> BTreeSet<Value> {
    let own = |applied: &&Applied| case.host_of(applied) == Some(host);
    let own = case.undone.iter().filter(own);
    let files = own.filter_map(|applied| file_of(&applied.op));
    let of = |fid| {
        let units = (0..UNITS_MAX).map(move |unit| Value::Unit(fid, unit));
        units.chain([Value::Size(fid)])
    };
    files.flat_map(of).collect()
}

/// The sizes that the disk has had by what lost machines brought to it: of a write of several
/// blocks that was under way, the first ones may be there, and the others are lost. A size that one
/// of them has left is one to which the next one may fall back.
fn brought<'a>(
    case: &'a Case<'_>,
    value: &Value,
    lost: &'a BTreeSet<u32>,
) -> impl Iterator<Item = u64> + 'a {
    let of = match value {
        Value::Size(fid) => Some(*fid),
        _ => None,
    };
    let own = move |applied: &&Applied| {
        let host = case.host_of(applied);
        host.is_some_and(|host| lost.contains(&host))
    };
    let own = case.applied.iter().filter(own);
    own.filter_map(move |applied| match (&applied.op, &applied.outcome) {
        (Op::Write { fid, .. }, Outcome::Written { attr, .. }) if Some(*fid) == of => {
            Some(attr.size / UNIT)
        }
        _ => None,
    })
}

/// A value beside those of content and names that this sets.
fn attribute_of(effect: &Effect) -> Option<Value> {
    match effect {
        Effect::Mode { fid, .. } => Some(Value::Mode(*fid)),
        Effect::Label { fid, .. } => Some(Value::Label(*fid)),
        _ => None,
    }
}

/// Has the disk been told of this change of such a value, and not only of the same change, made
/// again behind the loss?
fn set_by(case: &Case<'_>, change: &Change, lost: u64) -> bool {
    let host = change.host;
    let changes = case.history.changes.borrow();
    let again = changes.iter().filter(|c| c.host == host && c.begin > lost);
    let again = again.filter(|c| is_same(&c.effect, &change.effect));
    let end = again.map(|c| c.begin).min().unwrap_or(u64::MAX);
    let within = change.begin + 1..end;
    let mut told = (case.applied.iter()).filter(|a| within.contains(&a.moment));
    told.any(|applied| {
        let own = case.host_of(applied) == Some(host);
        own && matches!(applied.outcome, Outcome::Attr(_)) && sets(&applied.op, &change.effect)
    })
}

/// Do two changes make the same of the same value?
fn is_same(one: &Effect, other: &Effect) -> bool {
    match (one, other) {
        (Effect::Mode { fid, mode }, Effect::Mode { fid: of, mode: new }) => {
            (fid, mode) == (of, new)
        }
        (
            Effect::Label { fid, label },
            Effect::Label {
                fid: of,
                label: new,
            },
        ) => (fid, label) == (of, new),
        _ => false,
    }
}

fn sets(op: &Op, effect: &Effect) -> bool {
    match (op, effect) {
        (Op::SetAttr { fid, set }, Effect::Mode { fid: of, mode }) => {
            (*fid, set.mode) == (*of, Some(*mode))
        }
        (Op::SetXattr { fid, value, .. }, Effect::Label { fid: of, label }) => {
            fid == of && *value == label.to_le_bytes()
        }
        (Op::RemoveXattr { fid, .. }, Effect::Label { fid: of, label: 0 }) => fid == of,
        _ => false,
    }
}
