//! Files that are only appended to: no record is lost, none is overlaid, none is torn, and whoever
//! looks sees them in the order in which they were appended.

use super::{Case, stable};
use crate::disk::Units;
use crate::history::{Change, Effect, Fate, Seen, Sight};
use crate::wrong::{Wrong, wrong};
use std::collections::BTreeMap;
use wire::Fid;

struct Log<'a> {
    fid: Fid,
    /// All records there are, one after the other.
    units: Units,
    /// Changes, and where their records are.
    records: Vec<(&'a Change, Option<u64>)>,
}

/// Judges one file.
pub(super) fn judge(case: &Case<'_>, fid: Fid) -> Result<(), Wrong> {
    let changes = case.history.changes.borrow();
    let sights = case.history.sights.borrow();
    let seen: Vec<&Sight> = sights
        .iter()
        .filter(|sight| of(sight) == Some(fid))
        .collect();
    let units = longest(case, fid, &seen);
    let mut log = Log {
        fid,
        units,
        records: Vec::new(),
    };
    let losses = case.history.losses.borrow();
    let hurt = |change: &Change| {
        losses.iter().any(|&(host, moment)| {
            host == change.host && change.begin < moment && !stable(case, change, fid, moment)
        })
    };
    let mut doubtful = false;
    for change in changes.iter() {
        let Effect::Append { fid: file, values } = &change.effect else {
            continue;
        };
        if *file != fid {
            continue;
        }
        if hurt(change) {
            doubtful = true;
            continue;
        }
        let at = log.place(values)?;
        match (at, change.fate) {
            (Some(_), Fate::Failed) => {
                return Err(wrong!("{fid}: refused, and there: {change:?}"));
            }
            (None, Fate::Done) if case.left.contains_key(&fid) => {
                return Err(wrong!(
                    "{fid}: a record is lost: {change:?}\n{:x?}",
                    log.units
                ));
            }
            _ => {}
        }
        log.records.push((change, at));
    }
    log.order()?;
    if doubtful {
        return Ok(()); // what a lost machine had appended may be there or not
    }
    log.only_records()?;
    log.sights(&seen)
}

fn of(sight: &Sight) -> Option<Fid> {
    match &sight.seen {
        Seen::Units { fid, .. } | Seen::Attr { fid, .. } => Some(*fid),
        _ => None,
    }
}

/// What is left of the file, or the most that was ever seen of it.
fn longest(case: &Case<'_>, fid: Fid, seen: &[&Sight]) -> Units {
    if let Some((_, units)) = case.left.get(&fid) {
        return units.clone();
    }
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for sight in seen {
        if let Seen::Units { unit, values, .. } = &sight.seen {
            all.extend((*unit..).zip(values.iter().copied()));
        }
    }
    // Only what is known from the beginning on says where records are.
    (0..).map_while(|unit| all.get(&unit).copied()).collect()
}

impl Log<'_> {
    fn place(&self, values: &Units) -> Result<Option<u64>, Wrong> {
        let fid = self.fid;
        let Some(at) = self.units.iter().position(|unit| *unit == values[0]) else {
            return Ok(None);
        };
        let there = &self.units[at..self.units.len().min(at + values.len())];
        if *there != values[..there.len()] {
            return Err(wrong!("{fid}: a record is torn: {values:x?} is {there:x?}"));
        }
        if self.units[at + 1..].contains(&values[0]) {
            return Err(wrong!("{fid}: a record is there twice: {values:x?}"));
        }
        Ok(Some(at as u64))
    }

    /// A record that ended before another began is in front of it.
    fn order(&self) -> Result<(), Wrong> {
        for (first, at) in &self.records {
            for (second, later) in &self.records {
                let (Some(at), Some(later)) = (at, later) else {
                    continue;
                };
                if first.end < second.begin && at > later {
                    return Err(wrong!("{}: {first:?} comes after {second:?}", self.fid));
                }
            }
        }
        Ok(())
    }

    /// Nothing is there but records.
    fn only_records(&self) -> Result<(), Wrong> {
        let known: usize = self
            .records
            .iter()
            .filter_map(|(change, at)| match (&change.effect, at) {
                (Effect::Append { values, .. }, Some(_)) => Some(values.len()),
                _ => None,
            })
            .sum();
        if known < self.units.len() {
            return Err(wrong!(
                "{}: something is there that nobody appended",
                self.fid
            ));
        }
        Ok(())
    }

    /// Where the records end that had been appended, or seen, before this moment.
    fn least(&self, moment: u64) -> u64 {
        let ends = self
            .records
            .iter()
            .filter_map(|(change, at)| match &change.effect {
                Effect::Append { values, .. }
                    if change.end < moment && change.fate == Fate::Done =>
                {
                    at.map(|at| at + values.len() as u64)
                }
                _ => None,
            });
        ends.max().unwrap_or(0)
    }

    /// Where the records begin that had not been asked for by this moment.
    fn most(&self, moment: u64) -> u64 {
        let begins = self
            .records
            .iter()
            .filter(|(change, _)| change.begin > moment);
        begins.filter_map(|(_, at)| *at).min().unwrap_or(u64::MAX)
    }

    fn sights(&self, seen: &[&Sight]) -> Result<(), Wrong> {
        let mut ordered: Vec<&Sight> = seen.to_vec();
        ordered.sort_by_key(|sight| sight.end);
        for (index, sight) in ordered.iter().enumerate() {
            let (extent, ended) = self.extent(sight)?;
            if extent > self.most(sight.end) {
                return Err(wrong!(
                    "{}: shown before it was appended: {sight:?}",
                    self.fid
                ));
            }
            if !ended {
                continue;
            }
            if extent < self.least(sight.begin) {
                return Err(wrong!(
                    "{}: shown {extent} of at least {} units: {sight:?}",
                    self.fid,
                    self.least(sight.begin)
                ));
            }
            for earlier in ordered[..index].iter().filter(|e| e.end < sight.begin) {
                if self.extent(earlier)?.0 > extent {
                    return Err(wrong!(
                        "{}: {sight:?} goes back before {earlier:?}",
                        self.fid
                    ));
                }
            }
        }
        Ok(())
    }

    /// How far a sight shows that the file goes, and whether it ends there.
    fn extent(&self, sight: &Sight) -> Result<(u64, bool), Wrong> {
        match &sight.seen {
            Seen::Units {
                unit,
                values,
                ended,
                ..
            } => {
                let end = unit + values.len() as u64;
                let known = self.units.iter().skip(*unit as usize);
                if let Some((_, value)) = known.zip(values).find(|(known, value)| known != value) {
                    return Err(wrong!("{}: {value:x} was never there: {sight:?}", self.fid));
                }
                // An empty read says that the file ends there or before.
                Ok(if values.is_empty() {
                    (0, false)
                } else {
                    (end, *ended)
                })
            }
            Seen::Attr { units, .. } => Ok((*units, true)),
            _ => Ok((0, false)),
        }
    }
}
