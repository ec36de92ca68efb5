//! Files that are only appended to: no record is lost, none is overlaid, none is torn, and every
//! program that looks sees them in the order in which they were appended.

use super::Case;
use super::losses::stable;
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
    let losses = case.history.losses.borrow();
    let hurt = |change: &Change| {
        losses.iter().any(|&(host, moment)| {
            host == change.host && change.begin < moment && !stable(case, change, fid, moment)
        })
    };
    let of_file =
        |change: &&Change| matches!(change.effect, Effect::Append { fid: file, .. } if file == fid);
    let doubtful = changes.iter().filter(of_file).any(hurt);
    let mut log = Log {
        fid,
        units: longest(case, fid, &seen, if doubtful { &losses } else { &[] }),
        records: Vec::new(),
    };
    for change in changes
        .iter()
        .filter(of_file)
        .filter(|change| !hurt(change))
    {
        let Effect::Append { values, .. } = &change.effect else {
            continue;
        };
        let at = log.place(values)?;
        match (at, change.fate) {
            (Some(_), Fate::Failed) => {
                return Err(wrong!("{fid}: refused, and there: {change:?}"));
            }
            (None, Fate::Done) if case.left.files.contains_key(&fid) => {
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

/// The rest of the file, or the most that was ever seen of it: but not what a machine saw before
/// one of these losses. It may have been lost, and other records may have come to its place since.
fn longest(case: &Case<'_>, fid: Fid, seen: &[&Sight], losses: &[(u32, u64)]) -> Units {
    if let Some((_, units)) = case.left.files.get(&fid) {
        return units.clone();
    }
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    let lost = |sight: &Sight| {
        let mut of_host = losses.iter().filter(|loss| loss.0 == sight.host);
        of_host.any(|loss| sight.begin < loss.1)
    };
    for sight in seen.iter().filter(|sight| !lost(sight)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::judge::Left;

    const FILE: Fid = Fid {
        volume: 1,
        vnode: 7,
        uniq: 1,
    };

    fn append(history: &History, host: u32, (begin, end): (u64, u64), values: &[u64]) {
        let values = values.to_vec();
        let change = history.begin(host, begin, Effect::Append { fid: FILE, values });
        history.end(change, end, Fate::Done);
    }

    fn saw(history: &History, host: u32, time: (u64, u64), values: &[u64]) {
        let seen = Seen::Units {
            fid: FILE,
            unit: 0,
            values: values.to_vec(),
            ended: true,
            doubtful: false,
        };
        history.saw(host, time, seen);
    }

    /// The file is gone at the end: only what was seen of it says where its records were.
    fn verdict(history: &History) -> Result<(), String> {
        let (sessions, left) = (BTreeMap::new(), Left::default());
        let case = Case {
            history,
            applied: &[],
            undone: &[],
            restored: &[],
            powerless: false,
            sessions: &sessions,
            left: &left,
            snapshots: &[],
            watchers: &[],
            told: None,
            moment: 100,
            walls: [0, 0],
        };
        judge(&case, FILE).map_err(|wrong| wrong.what)
    }

    #[test]
    fn a_record_in_the_place_of_one_that_was_lost_is_not_torn() {
        let history = History::default();
        append(&history, 1, (1, 2), &[11, 12]);
        saw(&history, 1, (3, 4), &[11, 12]);
        history.lost(1, 10);
        append(&history, 2, (20, 21), &[21, 22]);
        saw(&history, 2, (22, 23), &[21]);
        assert_eq!(verdict(&history), Ok(()));
    }

    #[test]
    fn a_torn_record_is_found_whatever_was_lost_elsewhere() {
        let history = History::default();
        append(&history, 1, (1, 2), &[11, 12]);
        append(&history, 2, (3, 4), &[21, 22]);
        history.lost(1, 10);
        saw(&history, 2, (20, 21), &[21, 12]);
        assert!(verdict(&history).is_err_and(|why| why.contains("torn")));
    }

    #[test]
    fn a_record_that_was_shown_and_is_gone_is_missed() {
        let history = History::default();
        append(&history, 1, (1, 2), &[11]);
        saw(&history, 1, (3, 4), &[11]);
        history.lost(2, 5);
        append(&history, 2, (6, 7), &[21]);
        saw(&history, 2, (8, 9), &[21]);
        assert!(verdict(&history).is_err());
    }
}
