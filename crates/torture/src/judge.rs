//! The judge: takes what was seen round by round, goes on with each object's history, and tells
//! violations.
//!
//! Torn reads: Linux's own file systems do not make a read of a page atomic against a write of it.
//! Unless atomic reads are demanded, a record that was read torn is judged piece by piece, each
//! piece as a record of its own; at the end of the round all pieces must agree again.

use crate::checker::{Checker, Stop};
use crate::history::{Action, Object, Operation, Run};
use crate::kind::{Kind, kind};
use crate::model::{State, oracle};
use crate::shrink::{Shrunk, shrink, whole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Changes of one object that are remembered, to say where a value comes from.
const REMEMBERED: usize = 1024;
/// Most of them that are told with a violation, and most of them about its names.
const TOLD: usize = 4;
const NAMES_TOLD: usize = 2;

/// A history that no single machine could have had.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Whose.
    pub object: Object,
    /// The fault.
    pub kind: Kind,
    /// The words of the record, where it was judged piece by piece.
    pub words: Option<(u32, u32)>,
    /// How the object could be before.
    pub before: Vec<String>,
    /// The smallest part of the history that shows it.
    pub operations: Vec<Operation>,
    /// Changes meanwhile that were left out: it makes no difference whether they happened.
    pub left_out: u64,
    /// The one among them whose outcome nothing explains.
    pub index: usize,
    /// How the object could be then.
    pub possible: Vec<String>,
    /// Earlier operations that brought the values in question.
    pub origins: Vec<Operation>,
}

#[derive(Debug)]
struct Track {
    checker: Checker,
    changes: VecDeque<Operation>,
}

/// The judge of one run.
#[derive(Debug, Default)]
pub struct Judge {
    atomic: bool,
    tracks: BTreeMap<Object, Track>,
    given_up: BTreeSet<Object>,
    objects: BTreeSet<Object>,
    operations: u64,
    unknown: u64,
    torn: u64,
}

enum Fault {
    Violation(Box<Violation>),
    Undecided,
}

impl Judge {
    /// A judge; `atomic`: a torn read is a violation by itself.
    pub fn new(atomic: bool) -> Judge {
        Judge {
            atomic,
            ..Judge::default()
        }
    }

    /// Operations seen.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Operations of which nobody knows whether they happened.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Reads that saw parts of several writes.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Objects seen.
    pub fn objects(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Objects that had too many possibilities; they are not judged any further.
    pub fn undecided(&self) -> u64 {
        self.given_up.len() as u64
    }

    /// Judges what was seen since the last time. All of it must have ended.
    pub fn round(&mut self, operations: Vec<Operation>) -> Vec<Violation> {
        let mut histories: BTreeMap<Object, Vec<Operation>> = BTreeMap::new();
        for operation in operations {
            self.operations += 1;
            self.unknown += u64::from(!operation.known);
            let torn = matches!(&operation.action, Action::Read(runs) if runs.len() > 1);
            self.torn += u64::from(torn);
            histories
                .entry(operation.object)
                .or_default()
                .push(operation);
        }
        let mut violations = Vec::new();
        for (object, mut history) in histories {
            self.objects.insert(object);
            if self.given_up.contains(&object) {
                continue;
            }
            drop_unsure(&mut history);
            history.sort_by_key(|operation| (operation.begin_ns, operation.end_ns));
            match self.history(object, &history) {
                Ok(()) => {}
                Err(Fault::Violation(violation)) => violations.push(*violation),
                Err(Fault::Undecided) => {
                    self.given_up.insert(object);
                }
            }
            if whole(object) {
                self.tracks.remove(&object);
            }
        }
        violations
    }

    fn history(&mut self, object: Object, history: &[Operation]) -> Result<(), Fault> {
        let track = self.tracks.entry(object).or_insert_with(|| Track {
            checker: Checker::new(object),
            changes: VecDeque::new(),
        });
        let changes = history.iter().filter(|one| !one.action.observes());
        track.changes.extend(changes.cloned());
        let surplus = track.changes.len().saturating_sub(REMEMBERED);
        track.changes.drain(..surplus);

        let pieces = pieces(history);
        if self.atomic || pieces.len() < 2 {
            track.checker = part(track, object, history, None)?;
            return Ok(());
        }
        let mut all: Option<Checker> = None;
        for piece in pieces {
            let projected: Vec<Operation> = history.iter().map(|one| project(one, piece)).collect();
            let mut after = part(track, object, &projected, Some(piece))
                .map_err(|fault| name_torn(fault, history))?;
            if let Some(all) = &all
                && !after.keep(&all.states())
            {
                let before = shown(&all.states(), &[]);
                return Err(Fault::Violation(Box::new(Violation {
                    object,
                    kind: Kind::TornRecord,
                    words: Some(piece),
                    possible: before.clone(),
                    before,
                    operations: history.iter().filter(|one| is_torn(one)).cloned().collect(),
                    left_out: 0,
                    index: 0,
                    origins: Vec::new(),
                })));
            }
            all = Some(after);
        }
        track.checker = all.unwrap_or_else(|| Checker::new(object));
        Ok(())
    }
}

fn is_torn(operation: &Operation) -> bool {
    matches!(&operation.action, Action::Read(runs) if runs.len() > 1)
}

/// A piece that nothing explains, of a record that was read torn, is no stale read.
fn name_torn(fault: Fault, history: &[Operation]) -> Fault {
    let Fault::Violation(mut violation) = fault else {
        return fault;
    };
    let failed = &violation.operations[violation.index];
    let same = |one: &&Operation| one.process == failed.process && one.begin_ns == failed.begin_ns;
    if history.iter().find(same).is_some_and(is_torn) {
        violation.kind = Kind::TornRecord;
    }
    Fault::Violation(violation)
}

/// Leaves out what was only looked at through a mount while a change through the same mount was
/// under way that failed in a crash: it may have shown what died with the mount.
fn drop_unsure(history: &mut Vec<Operation>) {
    let lost: Vec<(u32, u64, u64)> = history
        .iter()
        .filter(|one| !one.known)
        .map(|one| (one.mount, one.begin_ns, one.end_ns))
        .collect();
    history.retain(|one| {
        let unsure = lost.iter().any(|(mount, begin_ns, end_ns)| {
            one.mount == *mount && one.begin_ns <= *end_ns && one.end_ns >= *begin_ns
        });
        !(unsure && one.action.observes())
    });
}

/// The pieces of a record, such that every read saw each with one value.
fn pieces(history: &[Operation]) -> Vec<(u32, u32)> {
    let mut cuts = BTreeSet::new();
    for operation in history {
        if let Action::Read(runs) = &operation.action {
            let mut at = 0;
            for run in runs {
                cuts.insert(at);
                at += run.words;
            }
            cuts.insert(at);
        }
    }
    let cuts: Vec<u32> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// An operation as it is for one piece.
fn project(operation: &Operation, piece: (u32, u32)) -> Operation {
    let mut projected = operation.clone();
    if let Action::Read(runs) = &mut projected.action {
        let mut at = 0;
        let of = runs.iter().find(|run| {
            at += run.words;
            at > piece.0
        });
        let value = of.map_or(0, |run| run.value);
        let words = piece.1 - piece.0;
        *runs = vec![Run { words, value }];
    }
    projected
}

/// Goes on with a history; the checker after it, or the violation with its smallest part.
fn part(
    track: &Track,
    object: Object,
    history: &[Operation],
    words: Option<(u32, u32)>,
) -> Result<Checker, Fault> {
    let oracle = oracle(history);
    let mut hasty = track.checker.clone();
    if hasty.go_on(history, &oracle, &mut |_, _| ()).is_ok() {
        return Ok(hasty);
    }
    let mut checker = track.checker.clone().thorough();
    let mut quiet = (checker.clone(), 0);
    let result = checker.go_on(history, &oracle, &mut |checker, time_ns| {
        if !whole(object) {
            quiet = (checker.clone(), time_ns + 1);
        }
    });
    match result {
        Ok(()) => return Ok(checker.hasty()),
        Err(Stop::Undecided) => return Err(Fault::Undecided),
        Err(Stop::Violation { .. }) => {}
    }
    let (start, since_ns) = quiet;
    let rest = history.iter().filter(|one| one.begin_ns >= since_ns);
    let Some(shrunk) = shrink(&start, rest.cloned().collect()) else {
        return Err(Fault::Undecided);
    };
    let violation = tell(track, object, words, &start, shrunk);
    Err(Fault::Violation(Box::new(violation)))
}

fn tell(
    track: &Track,
    object: Object,
    words: Option<(u32, u32)>,
    start: &Checker,
    shrunk: Shrunk,
) -> Violation {
    let mut names: Vec<u8> = shrunk
        .operations
        .iter()
        .flat_map(|one| one.action.names())
        .collect();
    names.sort_unstable();
    names.dedup();
    Violation {
        object,
        kind: kind(start, &shrunk, track.changes.iter()),
        words,
        before: shown(&start.states(), &names),
        left_out: shrunk.hidden.len() as u64,
        index: shrunk.index,
        possible: shown(&shrunk.possible, &names),
        origins: origins(track, start, &shrunk),
        operations: shrunk.operations,
    }
}

/// The last changes that brought what was seen, or what should have been seen.
fn origins(track: &Track, start: &Checker, shrunk: &Shrunk) -> Vec<Operation> {
    let failed = &shrunk.operations[shrunk.index];
    let mut values = failed.action.values();
    if matches!(failed.action, Action::ReadLog(_)) {
        values.clear();
    }
    for state in start.states().iter().chain(&shrunk.possible) {
        if let State::Value(value) | State::Size(value) = state {
            values.push(*value);
        }
    }
    let names = failed.action.names();
    let before = track
        .changes
        .iter()
        .filter(|one| one.begin_ns < failed.end_ns && !shrunk.operations.contains(one));
    let mut before: Vec<&Operation> = before.collect();
    before.sort_by_key(|one| one.begin_ns);
    let (mut told, mut of_names) = (Vec::new(), 0);
    for one in before.into_iter().rev() {
        let of_value = one.action.values();
        let brings = of_value.iter().any(|value| values.contains(value));
        let renames = one.action.names().iter().any(|name| names.contains(name));
        if brings {
            values.retain(|value| !of_value.contains(value));
        } else if !renames || of_names >= NAMES_TOLD {
            continue;
        }
        of_names += usize::from(renames);
        told.push(one.clone());
        if told.len() == TOLD {
            break;
        }
    }
    told.reverse();
    told
}

fn shown(states: &[State], names: &[u8]) -> Vec<String> {
    let mut shown: Vec<String> = states.iter().map(|state| state.told(names)).collect();
    shown.sort();
    shown.dedup();
    shown
}
