//! A file grows at the disk with its bytes: a write makes it as long as its bytes reach, and no
//! longer; and when a change of the size makes it longer, the disk has, or has had, all that the
//! same machine had written there before it was called. So a machine that is lost, at whatever
//! moment, leaves no zeros in the place of bytes that others know nothing of: the file ends before
//! them. (Zeros that programs make by a change of the size are what they asked for.)

use super::Case;
use super::replaced::{file_of, lacks};
use crate::disk::{Applied, UNIT};
use crate::history::{Change, Effect, Fate};
use crate::wrong::{Wrong, wrong};
use std::collections::{BTreeMap, VecDeque};
use wire::{Fid, Op, Outcome};

/// A machine that sets a file's size, and how many units that is.
type Cut = (u32, Fid, u64);

/// How long a file is at the disk: after all changes of it, and after those alone that no failure
/// of the power takes back. Which of both counts depends on when that failure is.
#[derive(Clone, Copy, Default)]
struct Sizes {
    all: u64,
    kept: u64,
}

impl Sizes {
    /// A change makes it so long; the most that it may have been before.
    fn next(&mut self, applied: &Applied, size: u64) -> u64 {
        let before = self.all.max(self.kept);
        self.all = size;
        if !applied.lost && !applied.undone {
            self.kept = size;
        }
        before
    }
}

pub(super) fn judge(case: &Case<'_>) -> Result<(), Wrong> {
    let changes = case.history.changes.borrow();
    let mut asked: BTreeMap<Cut, VecDeque<u64>> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.fate != Fate::Failed) {
        if let Effect::Size { fid, units } = change.effect {
            let begun = asked.entry((change.host, fid, units)).or_default();
            begun.push_back(change.begin);
        }
    }
    let mut of: BTreeMap<Fid, Vec<&Applied>> = BTreeMap::new();
    let mut sizes: BTreeMap<Fid, Sizes> = BTreeMap::new();
    for applied in case.applied {
        if let (Op::Make { .. } | Op::MakeNameless { .. }, Outcome::Entry(entry)) =
            (&applied.op, &applied.outcome)
        {
            sizes.insert(entry.fid, Sizes::default());
        }
        let Some(fid) = file_of(&applied.op) else {
            continue;
        };
        let there = of.entry(fid).or_default();
        there.push(applied);
        let Some(size) = size_of(&applied.outcome) else {
            continue;
        };
        let Some(before) = sizes.get_mut(&fid).map(|sizes| sizes.next(applied, size)) else {
            continue;
        };
        match &applied.op {
            Op::Write { len, .. } => reaches(applied, (fid, before), *len)?,
            Op::SetAttr { .. } if size > before => {
                let Some(host) = case.host_of(applied) else {
                    continue;
                };
                // As with renames, an earlier moment than the call's own asks for less.
                let cut = (host, fid, size / UNIT);
                if let Some(begin) = asked.get_mut(&cut).and_then(VecDeque::pop_front) {
                    let own = changes.iter().filter(|change| change.host == host);
                    let own = own.filter(|change| change.end < begin);
                    resized(case, (applied, fid), (before, size), (own, there))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The size of the file after a change of it.
fn size_of(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Outcome::Written { attr, .. } | Outcome::Copied { attr, .. } | Outcome::Attr(attr) => {
            Some(attr.size)
        }
        _ => None,
    }
}

/// Does a write make the file no longer than its bytes reach?
fn reaches(applied: &Applied, (fid, before): (Fid, u64), len: u32) -> Result<(), Wrong> {
    let Outcome::Written { offset, attr } = &applied.outcome else {
        return Ok(());
    };
    let end = offset + u64::from(len);
    if attr.size > end.max(before) && !applied.lost {
        return Err(wrong!(
            "{fid} is {} bytes long at {} by a write that ends at {end}: it was {before} long, and \
             nobody has written the rest",
            attr.size,
            applied.moment
        ));
    }
    Ok(())
}

/// Has the disk all that was written where a change of the size makes a file longer?
fn resized<'a>(
    case: &Case<'_>,
    (applied, fid): (&Applied, Fid),
    (before, size): (u64, u64),
    (own, there): (impl Iterator<Item = &'a Change>, &[&Applied]),
) -> Result<(), Wrong> {
    let grown = before / UNIT..size / UNIT;
    for change in own {
        if let Some(at) = lacks(case, (applied.moment, fid, grown.clone()), (change, there)) {
            return Err(wrong!(
                "h{} had written unit {at} of {fid} at {} .. {} and then made it {size} bytes \
                 long: the disk had the size at {} without it",
                change.host,
                change.begin,
                change.end,
                applied.moment
            ));
        }
    }
    Ok(())
}
