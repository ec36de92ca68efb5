//! The kind of a violation, as far as that can be said for certain.

use crate::checker::Checker;
use crate::history::{Action, Moved, Operation};
use crate::model::oracle;
use crate::shrink::Shrunk;
use std::fmt;

/// The fault of the answer that nothing explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes that had been right, and were overwritten before.
    StaleRead,
    /// A size that had been right before.
    StaleSize,
    /// Records of a log without one that had been appended before.
    StaleLog,
    /// A name that had been there, or had not been there, before; or its object.
    StaleName,
    /// A change that can be done once, done a second time: two creators, two removers.
    WrongSuccess,
    /// Parts of several records where one write must have come last.
    TornRecord,
    /// An answer that is wrong whatever went before: a strange error, bytes that nobody wrote.
    WrongAnswer,
    /// None of these: answers that contradict each other.
    NoOrder,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::StaleRead => "stale read",
            Kind::StaleSize => "stale size",
            Kind::StaleLog => "stale log",
            Kind::StaleName => "stale name",
            Kind::WrongSuccess => "wrong success",
            Kind::TornRecord => "torn record",
            Kind::WrongAnswer => "wrong answer",
            Kind::NoOrder => "no order",
        })
    }
}

/// The kind of a violation; `earlier`: changes before and during it.
pub(crate) fn kind<'a>(
    start: &Checker,
    shrunk: &Shrunk,
    earlier: impl Iterator<Item = &'a Operation>,
) -> Kind {
    let failed = &shrunk.operations[shrunk.index];
    let stale = match &failed.action {
        Action::Wrong(_) => return Kind::WrongAnswer,
        Action::Create { done: true, .. }
        | Action::Remove { done: true, .. }
        | Action::Rename { done: true, .. }
        | Action::Exchange { done: true, .. }
        | Action::Move {
            moved: Moved::Done, ..
        } => return Kind::WrongSuccess,
        Action::Read(runs) if runs.len() > 1 => return Kind::TornRecord,
        Action::Read(_) => Kind::StaleRead,
        Action::Size(_) => Kind::StaleSize,
        Action::ReadLog(_) | Action::LogLength(_) => Kind::StaleLog,
        action if action.observes() => Kind::StaleName,
        _ => return Kind::NoOrder,
    };
    let mut earlier = earlier.filter(|one| one.begin_ns < failed.begin_ns);
    let was_right = right_at_first(&failed.action)
        || right_if_earlier(start, shrunk)
        || earlier.any(|one| made(one, &failed.action));
    if was_right { stale } else { Kind::NoOrder }
}

/// Is it what everything begins with?
fn right_at_first(seen: &Action) -> bool {
    match seen {
        Action::Read(runs) => runs.iter().all(|run| run.value == 0),
        Action::Size(size) => *size == 0,
        Action::Look { found, .. } => found.is_none(),
        Action::Listed { present, .. } => !present,
        Action::Remove { done, .. }
        | Action::Rename { done, .. }
        | Action::Exchange { done, .. } => !done,
        Action::Move { moved, .. } => *moved == Moved::Missing,
        _ => false,
    }
}

/// Would all be well if the operation had begun at the beginning of this history?
fn right_if_earlier(start: &Checker, shrunk: &Shrunk) -> bool {
    let mut operations = shrunk.operations.clone();
    operations[shrunk.index].begin_ns = 0;
    let checked = start.check(&operations, &shrunk.hidden, &oracle(&operations));
    checked.is_ok()
}

/// Did this change make right what another operation saw?
fn made(change: &Operation, seen: &Action) -> bool {
    match (&change.action, seen) {
        (Action::Write(value), Action::Read(runs)) => runs.iter().all(|run| run.value == *value),
        (Action::SetSize(size) | Action::GrowTo(size), Action::Size(seen)) => size == seen,
        (made, seen) => {
            let Some((name, there)) = sight(seen) else {
                return false;
            };
            match *made {
                Action::Create { name: of, id, .. } => {
                    of == name && there.is_none_or(|it| it == id)
                }
                Action::Rename { from, to, .. }
                | Action::Move { from, to, .. }
                | Action::Exchange { from, to, .. } => [from, to].contains(&name),
                _ => false,
            }
        }
    }
}

/// The name that an operation saw, and its object if it says which.
fn sight(seen: &Action) -> Option<(u8, Option<u64>)> {
    match *seen {
        Action::Look { name, found } => Some((name, found)),
        Action::Listed { name, .. }
        | Action::Create { name, .. }
        | Action::Remove { name, .. }
        | Action::Rename { from: name, .. } => Some((name, None)),
        Action::Move { to, .. } => Some((to, None)),
        _ => None,
    }
}
