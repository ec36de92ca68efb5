//! The judge: looks at what programs did and were shown, and at nothing inside the machines.
//!
//! Each unit of a file, each file's size and mode, and each name is a value of its own, and the
//! calls on it must have an order that fits both their times and what they showed ([`linear`]).
//! Files that are only appended to are judged by their records ([`logs`]). Which object a rename
//! moved is taken from the disk's record of changes, since a program is not told; so is whether two
//! names named one object at one moment, as a rename says that had nothing to do ([`twins`]). Times
//! of objects must not go back ([`times`]), names keep their positions ([`positions`]), and files
//! occupy what has been written to them ([`used`]). Bytes come before a name that replaces another
//! ([`replaced`]), and before the size that has them in a file ([`grown`]). A machine that was only
//! silent loses nothing without a word ([`kept`]).

mod explain;
mod grown;
mod kept;
mod linear;
mod logs;
mod losses;
mod names;
mod positions;
mod replaced;
mod times;
mod twins;
mod used;
mod watches;

use crate::disk::{Applied, Restored, UNIT, Units};
use crate::history::{Change, Effect, Fate, History, Seen};
use crate::program::LOG;
use crate::watcher::Watcher;
use crate::wrong::{Wrong, wrong};
use linear::{Act, Turn, Verdict};
use names::Records;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Name, Op, Outcome, SessionId, Time};

/// One value that is judged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Unit(Fid, u64),
    Size(Fid),
    Mode(Fid),
    Label(Fid),
    Name(Fid, Name),
}

/// The content of a tree: files and directories, each with its mode and content (of directories
/// nothing), and names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    pub(crate) files: BTreeMap<Fid, (u16, Units)>,
    pub(crate) names: BTreeMap<(Fid, Name), Fid>,
}

/// The judge's evidence.
pub(crate) struct Case<'a> {
    pub(crate) history: &'a History,
    pub(crate) applied: &'a [Applied],
    /// Changes that a power failure has undone, and nobody has made again: they were shown before.
    pub(crate) undone: &'a [Applied],
    /// The volume's state after each power failure.
    pub(crate) restored: &'a [Restored],
    /// The server's machine has lost its power alone, and the undone changes have been made again.
    pub(crate) powerless: bool,
    /// The machine of each session.
    pub(crate) sessions: &'a BTreeMap<SessionId, u32>,
    /// The tree when all is quiet.
    pub(crate) left: &'a Left,
    /// Snapshots: between which moments each was made, and what it has.
    pub(crate) snapshots: &'a [((u64, u64), Left)],
    /// The watching programs, and the changes sent to them.
    pub(crate) watchers: &'a [Watcher],
    /// On which machines all was told that was done before this moment.
    pub(crate) told: Option<&'a (BTreeSet<u32>, u64)>,
    /// A moment after everything.
    pub(crate) moment: u64,
    /// The earliest and the latest time that the wall clock of the server's machine has shown.
    pub(crate) walls: [Time; 2],
}

impl Case<'_> {
    /// The machine that asked for a change.
    fn host_of(&self, applied: &Applied) -> Option<u32> {
        self.sessions.get(&applied.origin?.session).copied()
    }
}

/// No file has more units.
const UNITS_MAX: u64 = 64;

#[derive(Default)]
struct Values {
    turns: BTreeMap<Value, Vec<Turn>>,
    starts: BTreeMap<Value, u64>,
    logs: BTreeSet<Fid>,
    directories: BTreeSet<Fid>,
}

impl Values {
    fn add(&mut self, value: Value, (begin, end, host): (u64, u64, u32), act: Act) {
        self.turns.entry(value).or_default().push(Turn {
            begin,
            end,
            act,
            host,
        });
    }

    /// An object begins as it was made; the first letter of its first name says how it is judged.
    fn begin(&mut self, fid: Fid, name: &Name, mode: u32) {
        self.starts.insert(Value::Mode(fid), u64::from(mode));
        match name.as_bytes()[0] {
            // A file kept beside a log is no log: others' records are in the log itself.
            _ if kept::is_beside(name) => false,
            LOG => self.logs.insert(fid),
            b'd' => self.directories.insert(fid),
            _ => false,
        };
    }
}

/// Values that were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// An order was found for these.
    pub(crate) values: u64,
    /// Too many calls were open at once on these.
    pub(crate) unknown: u64,
}

/// Judges a run: how many values were looked at, or what is wrong.
pub(crate) fn judge(case: &Case<'_>) -> Result<Judged, Wrong> {
    applied_once(case.applied)?;
    watches::judge(case)?;
    times::judge(case)?;
    positions::judge(case)?;
    used::judge(case)?;
    replaced::judge(case)?;
    grown::judge(case)?;
    kept::judge(case)?;
    let mut values = Values::default();
    made(case, &mut values);
    changes(case, &mut values)?;
    sights(case, &mut values);
    losses::losses(case, &mut values);
    restored(case, &mut values);
    // A program would be shown the tree as it is when all is quiet; and a snapshot, at some moment
    // of its making.
    for (when, left) in case.snapshots {
        shown(&mut values, *when, left);
    }
    shown(&mut values, (case.moment, case.moment + 1), case.left);
    let mut judged = Judged::default();
    for (value, turns) in &values.turns {
        let start = values.starts.get(value).copied().unwrap_or(0);
        match linear::judge(start, turns) {
            Verdict::Fine => judged.values += 1,
            Verdict::Unknown => judged.unknown += 1,
            Verdict::Impossible(index) => return Err(explain::explain(value, turns, index)),
        }
    }
    for &fid in &values.logs {
        logs::judge(case, fid)?;
        judged.values += 1;
    }
    Ok(judged)
}

/// A request's change is made once, however often it came.
fn applied_once(applied: &[Applied]) -> Result<(), Wrong> {
    let mut met = BTreeSet::new();
    for change in applied
        .iter()
        .filter(|a| !matches!(a.outcome, Outcome::Refused(_)))
    {
        let Some(origin) = change.origin else {
            continue;
        };
        if !met.insert(origin) {
            return Err(wrong!("{origin:?} was applied twice: {:?}", change.op));
        }
    }
    Ok(())
}

/// Files begin as they were made.
fn made(case: &Case<'_>, values: &mut Values) {
    for applied in case.undone.iter().chain(case.applied) {
        if let (Op::MakeNameless { mode, .. }, Outcome::Entry(entry)) =
            (&applied.op, &applied.outcome)
        {
            let mode = u64::from(*mode);
            values.starts.insert(Value::Mode(entry.fid), mode);
        }
        if let (Op::Make { name, mode, .. }, Outcome::Entry(entry)) =
            (&applied.op, &applied.outcome)
        {
            values.begin(entry.fid, name, *mode);
        }
    }
}

fn changes(case: &Case<'_>, values: &mut Values) -> Result<(), Wrong> {
    let mut records = Records::of(case);
    let all = case.history.changes.borrow();
    let mut ordered: Vec<&Change> = all.iter().filter(|c| c.fate != Fate::Failed).collect();
    // Those that ended first have the first choice of records; those that never ended, the last.
    ordered.sort_by_key(|change| change.end);
    for change in ordered {
        let when = (change.begin, change.end, change.host);
        match &change.effect {
            Effect::Write {
                fid,
                unit,
                values: new,
            } => {
                for (index, &value) in (0..).zip(new) {
                    values.add(Value::Unit(*fid, unit + index), when, Act::Put(value));
                }
                let end = unit + new.len() as u64;
                values.add(Value::Size(*fid), when, Act::Raise(end));
            }
            Effect::Store { fid, unit, value } => {
                values.add(Value::Unit(*fid, *unit), when, Act::Put(*value));
            }
            Effect::Append { .. } => {}
            Effect::Size { fid, units } => {
                for unit in *units..UNITS_MAX {
                    values.add(Value::Unit(*fid, unit), when, Act::Put(0));
                }
                values.add(Value::Size(*fid), when, Act::Put(*units));
            }
            Effect::Mode { fid, mode } => {
                values.add(Value::Mode(*fid), when, Act::Put(u64::from(*mode)));
            }
            Effect::Label { fid, label } => {
                values.add(Value::Label(*fid), when, Act::Put(*label));
            }
            Effect::Zero { fid, units, end } => {
                for unit in units.0..units.1 {
                    values.add(Value::Unit(*fid, unit), when, Act::Put(0));
                }
                if *end > 0 {
                    values.add(Value::Size(*fid), when, Act::Raise(*end));
                }
            }
            Effect::Copy { from, to, count } => {
                copied(&mut records, change, (*from, *to, *count), values)?;
            }
            _ => names::change(&mut records, change, values)?,
        }
    }
    records.no_hole()?;
    twins::judge(case, &records)?;
    records.lost_names(values);
    Ok(())
}

/// A copy is a read of what the disk says was copied, and a write of it.
fn copied(
    records: &mut Records<'_>,
    change: &Change,
    (from, to, count): ((Fid, u64), (Fid, u64), u64),
    values: &mut Values,
) -> Result<(), Wrong> {
    let when = (change.begin, change.end, change.host);
    let is_record = |applied: &Applied| {
        matches!(applied.op, Op::Copy { from: f, at, to: t, offset, len }
            if (f, at / UNIT) == from && (t, offset / UNIT) == to
                && u64::from(len) == count * UNIT)
    };
    let case = records.case;
    let found = records.find(change, is_record);
    let found = found.map(|found| &case.applied[found]);
    let Some(found) = found.or_else(|| records.find_undone(change, is_record)) else {
        return match change.fate {
            Fate::Done => Err(wrong!("never copied: h{} {change:?}", change.host)),
            _ => Ok(()),
        };
    };
    let units = &found.copied;
    for (index, &value) in (0..).zip(units) {
        values.add(Value::Unit(from.0, from.1 + index), when, Act::See(value));
        values.add(Value::Unit(to.0, to.1 + index), when, Act::Put(value));
    }
    let len = units.len() as u64;
    if len > 0 {
        values.add(Value::Size(to.0), when, Act::Raise(to.1 + len));
        values.add(Value::Size(from.0), when, Act::AtLeast(from.1 + len));
    }
    if len < count {
        values.add(Value::Size(from.0), when, Act::AtMost(from.1 + len));
    }
    Ok(())
}

fn sights(case: &Case<'_>, values: &mut Values) {
    for sight in case.history.sights.borrow().iter() {
        let when = (sight.begin, sight.end, sight.host);
        match &sight.seen {
            Seen::Units { fid, .. } if values.logs.contains(fid) => {}
            Seen::Units {
                fid,
                unit,
                values: units,
                ended,
                doubtful,
            } => {
                for (index, &value) in (0..).zip(units) {
                    values.add(Value::Unit(*fid, unit + index), when, Act::See(value));
                }
                let end = unit + units.len() as u64;
                // If an answer that was asked for before the read was taken in during it, the end
                // may be that of then.
                if *ended && !*doubtful {
                    values.add(Value::Size(*fid), when, Act::AtMost(end));
                    if !units.is_empty() {
                        values.add(Value::Size(*fid), when, Act::AtLeast(end));
                    }
                }
            }
            Seen::Attr {
                fid, units, mode, ..
            } => {
                values.add(Value::Mode(*fid), when, Act::See(u64::from(*mode)));
                if !values.logs.contains(fid) && !values.directories.contains(fid) {
                    values.add(Value::Size(*fid), when, Act::See(*units));
                }
            }
            Seen::Label { fid, label } => {
                values.add(Value::Label(*fid), when, Act::See(*label));
            }
            Seen::Name { dir, name, fid } => {
                let act = Act::See(fid.map_or(0, |fid| fid.vnode));
                values.add(Value::Name(*dir, name.clone()), when, act);
            }
            Seen::Present { dir, name } => {
                values.add(Value::Name(*dir, name.clone()), when, Act::SeeAny);
            }
            Seen::Twins { .. } => {}
        }
    }
}

/// A power failure makes everything what the disk had then. That this is no less than what was
/// fsynced, and what the changes up to some moment made, has been looked at when it happened.
fn restored(case: &Case<'_>, values: &mut Values) {
    for restored in case.restored {
        let names: Vec<Value> = values.turns.keys().cloned().collect();
        for value in names {
            let there = match &value {
                Value::Name(dir, name) => {
                    let named = restored.names.get(&(*dir, name.clone()));
                    Some(named.map_or(0, |fid| fid.vnode))
                }
                Value::Unit(fid, unit) => restored
                    .files
                    .get(fid)
                    .map(|(_, units)| units.get(*unit as usize).copied().unwrap_or(0)),
                Value::Size(fid) => {
                    let file = restored.files.get(fid);
                    file.map(|(_, units)| units.len() as u64)
                }
                Value::Mode(fid) => restored.files.get(fid).map(|(mode, _)| u64::from(*mode)),
                Value::Label(fid) => restored.labels.get(fid).copied(),
            };
            if let Some(there) = there {
                let (begin, end) = restored.when;
                values.add(value, (begin, end, 0), Act::Put(there));
            }
        }
    }
}

/// All of a tree is shown at one moment between these.
fn shown(values: &mut Values, (begin, end): (u64, u64), tree: &Left) {
    let when = (begin, end, 0);
    let names: Vec<Value> = values.turns.keys().cloned().collect();
    for value in names {
        match &value {
            Value::Name(dir, name) => {
                let left = tree.names.get(&(*dir, name.clone()));
                let act = Act::See(left.map_or(0, |fid| fid.vnode));
                values.add(value, when, act);
            }
            Value::Unit(fid, unit) => {
                if let Some((_, units)) = tree.files.get(fid) {
                    let left = units.get(*unit as usize).copied().unwrap_or(0);
                    values.add(value, when, Act::See(left));
                }
            }
            Value::Size(fid) => {
                if let Some((_, units)) = tree.files.get(fid) {
                    let size = units.len() as u64;
                    values.add(value, when, Act::See(size));
                }
            }
            // The last programs have looked at it.
            Value::Label(_) => {}
            Value::Mode(fid) => {
                if let Some((mode, _)) = tree.files.get(fid) {
                    let mode = u64::from(*mode);
                    values.add(value, when, Act::See(mode));
                }
            }
        }
    }
}
