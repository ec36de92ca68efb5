//! The answers of one machine: for each kind of object its states, and the state that an operation
//! makes of another.

use crate::history::{Action, Moved, Object, Operation, shown};
use crate::plan::NAMES;

/// How an object is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// A record's value.
    Value(u64),
    /// A file's length.
    Size(u64),
    /// The records of a log; which ones, its oracle says.
    Records(u64),
    /// The object of each name.
    Names(Vec<Option<u64>>),
}

impl State {
    /// How an object begins.
    pub(crate) fn initial(object: Object) -> State {
        match object {
            Object::Register { .. } | Object::Time { .. } | Object::Xattr { .. } => State::Value(0),
            Object::Size { .. } => State::Size(0),
            Object::Log { .. } => State::Records(0),
            Object::Names { .. } => State::Names(vec![None; usize::from(NAMES)]),
        }
    }
}

impl State {
    /// For people; of names only these.
    pub(crate) fn told(&self, about: &[u8]) -> String {
        let names = match self {
            State::Value(value) => return shown(*value),
            State::Size(n) => return format!("size {n}"),
            State::Records(1) => return "1 record".to_owned(),
            State::Records(n) => return format!("{n} records"),
            State::Names(names) => names,
        };
        let tell = |(n, id): (u8, &Option<u64>)| {
            let id = (*id).filter(|_| about.contains(&n))?;
            Some(match id {
                1 => format!("n{n}"),
                id => format!("n{n}={}", shown(id)),
            })
        };
        let there: Vec<String> = (0..).zip(names).filter_map(tell).collect();
        if there.is_empty() {
            "no such name".to_owned()
        } else {
            there.join(", ")
        }
    }
}

/// The longest list of records that anybody read of a log. A log never loses a record, so whatever
/// order explains the history appends in this order; without it, every order of concurrent appends
/// would have to be tried.
pub(crate) fn oracle(operations: &[Operation]) -> Vec<u64> {
    let lists = operations
        .iter()
        .filter_map(|operation| match &operation.action {
            Action::ReadLog(list) => Some(list),
            _ => None,
        });
    lists
        .max_by_key(|list| list.len())
        .cloned()
        .unwrap_or_default()
}

/// The state after an action, or `None` when the action cannot have this outcome there.
pub(crate) fn step(state: &State, action: &Action, oracle: &[u64]) -> Option<State> {
    match state {
        State::Value(now) => value(*now, action).map(State::Value),
        State::Size(now) => size(*now, action).map(State::Size),
        State::Records(count) => records(*count, action, oracle).map(State::Records),
        State::Names(now) => names(now, action).map(State::Names),
    }
}

fn value(now: u64, action: &Action) -> Option<u64> {
    match action {
        Action::Write(value) => Some(*value),
        Action::Read(runs) => {
            let whole = runs.len() == 1 && runs[0].value == now;
            whole.then_some(now)
        }
        _ => None,
    }
}

fn size(now: u64, action: &Action) -> Option<u64> {
    match action {
        Action::SetSize(size) => Some(*size),
        Action::GrowTo(size) => Some(now.max(*size)),
        Action::Size(size) => (*size == now).then_some(now),
        _ => None,
    }
}

fn records(count: u64, action: &Action, oracle: &[u64]) -> Option<u64> {
    let at = count as usize;
    match action {
        Action::Append(value) => {
            let fits = match oracle.get(at) {
                Some(next) => next == value,
                None => !oracle.contains(value),
            };
            fits.then_some(count + 1)
        }
        Action::ReadLog(list) => {
            let same = list.len() == at && oracle.get(..at) == Some(list.as_slice());
            same.then_some(count)
        }
        Action::LogLength(length) => (*length == count).then_some(count),
        _ => None,
    }
}

fn names(now: &[Option<u64>], action: &Action) -> Option<Vec<Option<u64>>> {
    let at = |name: u8| now.get(usize::from(name)).copied();
    let with = |changes: &[(u8, Option<u64>)]| {
        let mut after = now.to_vec();
        for (name, id) in changes {
            after[usize::from(*name)] = *id;
        }
        after
    };
    let same = |is: bool| is.then(|| now.to_vec());
    match *action {
        Action::Create { name, id, done } => match (at(name)?, done) {
            (None, true) => Some(with(&[(name, Some(id))])),
            (there, false) => same(there.is_some()),
            (Some(_), true) => None,
        },
        Action::Remove { name, done } => match (at(name)?, done) {
            (Some(_), true) => Some(with(&[(name, None)])),
            (there, false) => same(there.is_none()),
            (None, true) => None,
        },
        Action::Rename { from, to, done } => {
            at(to)?;
            match (at(from)?, done) {
                (Some(id), true) => Some(with(&[(from, None), (to, Some(id))])),
                (there, false) => same(there.is_none()),
                (None, true) => None,
            }
        }
        Action::Move { from, to, moved } => match (at(from)?, at(to)?, moved) {
            (Some(id), None, Moved::Done) => Some(with(&[(from, None), (to, Some(id))])),
            (_, _, Moved::Done) => None,
            (there, _, Moved::Missing) => same(there.is_none()),
            (_, there, Moved::Taken) => same(there.is_some()),
        },
        Action::Exchange { from, to, done } => match (at(from)?, at(to)?, done) {
            (Some(one), Some(other), true) => Some(with(&[(from, Some(other)), (to, Some(one))])),
            (one, other, false) => same(one.is_none() || other.is_none()),
            _ => None,
        },
        Action::Look { name, found } => same(at(name)? == found),
        Action::Listed { name, present } => same(at(name)?.is_some() == present),
        _ => None,
    }
}
