//! From a history that no order explains, what is needed to see it.
//!
//! Guarantees: the remaining history is still not linearizable, and nothing was removed without
//! which even a right file system could not have given the rest: an operation that only looked; a
//! write whose value nobody is left to have read; a record together with every sight of it; names
//! that nothing connects with the others; a change of names or of a size when there is no order
//! whether or not it happened. (Removing a write and leaving its reader would "find" a violation.)

use crate::checker::{Checker, Stop};
use crate::history::{Action, Object, Operation};
use crate::model::{State, oracle};

/// A violation.
pub(crate) struct Shrunk {
    /// The operations that are needed to see it.
    pub(crate) operations: Vec<Operation>,
    /// Changes that may or may not have happened without making a difference.
    pub(crate) hidden: Vec<Operation>,
    /// The operation whose end nothing explains.
    pub(crate) index: usize,
    /// The states that were possible then.
    pub(crate) possible: Vec<State>,
}

impl Shrunk {
    /// The history with its failure, if it is one.
    fn of(start: &Checker, operations: Vec<Operation>, hidden: Vec<Operation>) -> Option<Shrunk> {
        match start.check(&operations, &hidden, &oracle(&operations)) {
            Err(Stop::Violation { index, possible }) => Some(Shrunk {
                operations,
                hidden,
                index,
                possible,
            }),
            _ => None,
        }
    }
}

/// Shrinks a history that fails from `start` on; `None` when it does not fail.
pub(crate) fn shrink(start: &Checker, operations: Vec<Operation>) -> Option<Shrunk> {
    let mut shrunk = Shrunk::of(start, operations, Vec::new())?;
    for smaller in [prefix, connected] {
        let smaller = smaller(&shrunk.operations, shrunk.index);
        shrunk = Shrunk::of(start, smaller, Vec::new()).unwrap_or(shrunk);
    }
    let mut again = true;
    while again {
        again = false;
        let mut at = shrunk.operations.len();
        while at > 0 {
            at -= 1;
            let smaller = without(&shrunk, at);
            if let Some((operations, hidden)) = smaller
                && let Some(smaller) = Shrunk::of(start, operations, hidden)
            {
                shrunk = smaller;
                again = true;
            }
        }
    }
    Some(shrunk)
}

/// The operations that had begun when this one ended; those that had not ended may or may not have
/// happened.
fn prefix(operations: &[Operation], index: usize) -> Vec<Operation> {
    let end_ns = operations[index].end_ns;
    let begun = operations.iter().filter(|one| one.begin_ns <= end_ns);
    let cut = begun.map(|one| Operation {
        known: one.known && one.end_ns <= end_ns,
        ..one.clone()
    });
    cut.filter(|one| one.known || !one.action.observes())
        .collect()
}

/// Without names that no renaming connects with those of the operation.
fn connected(operations: &[Operation], index: usize) -> Vec<Operation> {
    let mut names = operations[index].action.names();
    if names.is_empty() {
        return operations.to_vec();
    }
    loop {
        let before = names.len();
        for operation in operations {
            let of = operation.action.names();
            let touches = of.iter().any(|name| names.contains(name));
            let new: Vec<u8> = of
                .into_iter()
                .filter(|name| !names.contains(name))
                .collect();
            if touches && !operation.action.observes() {
                names.extend(new);
            }
        }
        if names.len() == before {
            break;
        }
    }
    let about = |one: &&Operation| one.action.names().iter().any(|name| names.contains(name));
    operations.iter().filter(about).cloned().collect()
}

/// The history without one operation, and what is hidden of it then, where that is fair.
fn without(shrunk: &Shrunk, at: usize) -> Option<(Vec<Operation>, Vec<Operation>)> {
    let (mut left, mut hidden) = (shrunk.operations.clone(), shrunk.hidden.clone());
    let gone = left.remove(at);
    match &gone.action {
        action if action.observes() => {}
        Action::Write(value) => {
            if left.iter().any(|one| one.action.values().contains(value)) {
                return None;
            }
        }
        Action::Append(value) => {
            let counted = |one: &Operation| matches!(one.action, Action::LogLength(_));
            if left.iter().any(counted) {
                return None;
            }
            for one in &mut left {
                if let Action::ReadLog(list) = &mut one.action {
                    list.retain(|record| record != value);
                }
            }
        }
        // A change of a size or of names shows in all that comes later.
        _ => hidden.push(gone),
    }
    Some((left, hidden))
}

/// Is this object's history judged as a whole? A log's is: a record that a later sight lacks
/// convicts an early append, and both are needed to see it.
pub(crate) fn whole(object: Object) -> bool {
    matches!(object, Object::Log { .. })
}
