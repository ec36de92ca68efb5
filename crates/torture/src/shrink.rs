//! From a history that no order explains, what is needed to see it.
//!
//! Guarantees: what is left is still not linearizable, and nothing was removed without which even a
//! right file system could not have given the rest: an operation that only looked; a write whose
//! value nobody is left to have read; a record together with every sight of it; names that nothing
//! connects with the others. (Removing a write and leaving its reader would "find" a violation.)

use crate::checker::{Checker, Stop};
use crate::history::{Action, Object, Operation};
use crate::model::{State, oracle};

/// A violation: the operations, the index of the one whose end nothing explains, the states that
/// were possible then.
pub(crate) struct Shrunk {
    pub(crate) operations: Vec<Operation>,
    pub(crate) index: usize,
    pub(crate) possible: Vec<State>,
}

fn fails(start: &Checker, operations: &[Operation]) -> Option<(usize, Vec<State>)> {
    match start.clone().check(operations, &oracle(operations)) {
        Err(Stop::Violation { index, possible }) => Some((index, possible)),
        _ => None,
    }
}

/// Shrinks a history that fails from `start` on; `None` when it does not fail.
pub(crate) fn shrink(start: &Checker, operations: Vec<Operation>) -> Option<Shrunk> {
    let (mut index, mut possible) = fails(start, &operations)?;
    let mut left = operations;
    for smaller in [prefix, connected] {
        let smaller = smaller(&left, index);
        if let Some(failure) = fails(start, &smaller) {
            (left, (index, possible)) = (smaller, failure);
        }
    }
    let mut again = true;
    while again {
        again = false;
        let mut at = left.len();
        while at > 0 {
            at -= 1;
            let Some(smaller) = without(&left, at) else {
                continue;
            };
            if let Some(failure) = fails(start, &smaller) {
                (left, (index, possible)) = (smaller, failure);
                again = true;
            }
        }
    }
    Some(Shrunk {
        operations: left,
        index,
        possible,
    })
}

/// What had begun when the operation ended; what had not ended may or may not have happened.
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

/// The history without one operation, where that is fair.
fn without(operations: &[Operation], at: usize) -> Option<Vec<Operation>> {
    let mut left = operations.to_vec();
    let gone = left.remove(at);
    let any = |is: fn(&Action) -> bool| left.iter().any(|one| is(&one.action));
    match &gone.action {
        action if action.observes() => Some(left),
        Action::Write(value) => {
            let read = left.iter().any(|one| one.action.values().contains(value));
            (!read).then_some(left)
        }
        Action::SetSize(value) => {
            let seen = left.iter().any(|one| one.action == Action::Size(*value));
            let grown = any(|action| matches!(action, Action::GrowTo(_)));
            (!seen && !grown).then_some(left)
        }
        Action::Append(value) => {
            if any(|action| matches!(action, Action::LogLength(_))) {
                return None;
            }
            for one in &mut left {
                if let Action::ReadLog(list) = &mut one.action {
                    list.retain(|record| record != value);
                }
            }
            Some(left)
        }
        // A change of names shows in all that comes later.
        _ => None,
    }
}

/// Is this object's history judged as a whole? A log's is: what a later sight lacks, convicts an
/// early append, and both are needed to see it.
pub(crate) fn whole(object: Object) -> bool {
    matches!(object, Object::Log { .. })
}
