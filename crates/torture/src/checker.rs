//! The search for an order: a history is linearizable when its operations can be put into one
//! order that agrees with real time (who ended before another began, comes first) and in which a
//! single machine would have given the same answers (Herlihy and Wing; Wing and Gong's search).
//!
//! The search goes along time and keeps *all* configurations that are still possible: a state, and
//! which of the open operations have already taken effect in it. Equal ones are one (Lowe's
//! just-in-time linearization with memoization). So nothing is ever tried twice, what is kept is
//! bounded by what is open at one time, and at a moment when nothing is open it is just the set of
//! possible states: the history before can be forgotten.
//!
//! An operation takes effect only when the end of one demands it; one that only looks takes effect
//! as soon as it fits, which never excludes anything.
//!
//! Most writes are never read. One that is open when another write takes effect can just as well
//! have happened right before it: nobody sees the difference, unless it is the one whose value is
//! left at the end. So of the unread writes only one at a time is held back, for that end; the
//! number of configurations grows with the number of open writes, not with that of their subsets.

use crate::history::{Action, Object, Operation};
use crate::model::{State, step};
use std::collections::HashSet;

/// Configurations of one step after which the search gives up.
const MOST: usize = 100_000;
/// The same while a history is made smaller, where giving up only leaves it larger.
const MOST_SHRINKING: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Config {
    state: State,
    /// Open operations that have taken effect, a bit for each slot.
    done: u128,
}

#[derive(Clone, Debug)]
struct Open {
    slot: u32,
    action: Action,
    /// It will end. The others may happen at any time, or never.
    ends: bool,
    unread: Unread,
}

/// Is an operation a write whose value no read of the history shows?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    No,
    /// And another write begins after its end: its value is not the last one.
    Covered,
    /// But its value may be the last one.
    Last,
}

/// What each write is to the history.
fn unread(operations: &[Operation]) -> Vec<Unread> {
    let mut read = HashSet::new();
    let mut last_begin_ns = 0;
    for operation in operations {
        match &operation.action {
            Action::Read(runs) => read.extend(runs.iter().map(|run| run.value)),
            Action::Write(_) if operation.known => {
                last_begin_ns = last_begin_ns.max(operation.begin_ns);
            }
            _ => {}
        }
    }
    let of = |operation: &Operation| match &operation.action {
        Action::Write(value) if operation.known && !read.contains(value) => {
            if operation.end_ns < last_begin_ns {
                Unread::Covered
            } else {
                Unread::Last
            }
        }
        _ => Unread::No,
    };
    operations.iter().map(of).collect()
}

/// Why a history was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// No order explains the end of this operation; the states that were possible then.
    Violation { index: usize, possible: Vec<State> },
    /// Too many possibilities.
    Undecided,
}

/// All that may be true of an object after what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Checker {
    configs: HashSet<Config>,
    open: Vec<Open>,
    most: usize,
}

impl Checker {
    pub(crate) fn new(object: Object) -> Checker {
        let config = Config {
            state: State::initial(object),
            done: 0,
        };
        Checker {
            configs: HashSet::from([config]),
            open: Vec::new(),
            most: MOST,
        }
    }

    /// Is nothing open that will end?
    pub(crate) fn is_quiet(&self) -> bool {
        self.open.iter().all(|open| !open.ends)
    }

    /// The states that are possible.
    pub(crate) fn states(&self) -> Vec<State> {
        let states: HashSet<&State> = self.configs.iter().map(|config| &config.state).collect();
        let mut states: Vec<State> = states.into_iter().cloned().collect();
        states.sort();
        states
    }

    /// Leaves only these states; false when none is left.
    pub(crate) fn keep(&mut self, states: &[State]) -> bool {
        self.configs
            .retain(|config| states.binary_search(&config.state).is_ok());
        !self.configs.is_empty()
    }

    fn call(&mut self, operation: &Operation, unread: Unread, oracle: &[u64]) -> Result<u32, Stop> {
        let (action, ends) = (&operation.action, operation.known);
        let taken = self
            .open
            .iter()
            .fold(0_u128, |taken, open| taken | 1 << open.slot);
        let slot = taken.trailing_ones();
        if slot >= u128::BITS {
            return Err(Stop::Undecided);
        }
        self.open.push(Open {
            slot,
            action: action.clone(),
            ends,
            unread,
        });
        if action.observes() {
            let configs = std::mem::take(&mut self.configs);
            self.configs = configs
                .into_iter()
                .map(|mut config| {
                    if step(&config.state, action, oracle).is_some() {
                        config.done |= 1 << slot;
                    }
                    config
                })
                .collect();
        }
        Ok(slot)
    }

    /// The configurations after an open operation that changes something, when it fits.
    fn after(&self, config: &Config, open: &Open, oracle: &[u64]) -> Vec<Config> {
        let Some(state) = step(&config.state, &open.action, oracle) else {
            return Vec::new();
        };
        let mut done = config.done | 1 << open.slot;
        let writes = matches!(open.action, Action::Write(_));
        let mut held = vec![0_u128];
        for other in &self.open {
            let bit = 1_u128 << other.slot;
            if done & bit != 0 {
                continue;
            }
            let fits = other.action.observes() && step(&state, &other.action, oracle).is_some();
            if fits || (writes && other.unread != Unread::No) {
                done |= bit;
            }
            if writes && other.unread == Unread::Last {
                held.push(bit);
            }
        }
        let with = |bit: u128| Config {
            state: state.clone(),
            done: done & !bit,
        };
        held.into_iter().map(with).collect()
    }

    /// An operation has ended: only configurations in which it has taken effect remain; where it is
    /// optional, those in which it has not as well. On failure, the states that were possible.
    fn end(&mut self, slot: u32, optional: bool, oracle: &[u64]) -> Result<(), Option<Vec<State>>> {
        let bit = 1_u128 << slot;
        let (mut kept, mut seen) = (HashSet::new(), HashSet::new());
        let mut stack: Vec<Config> = self.configs.iter().cloned().collect();
        if optional {
            kept.extend(stack.iter().filter(|one| one.done & bit == 0).cloned());
        }
        while let Some(config) = stack.pop() {
            if config.done & bit != 0 {
                kept.insert(Config {
                    done: config.done & !bit,
                    ..config
                });
                continue;
            }
            if !seen.insert(config.clone()) {
                continue;
            }
            if seen.len() + kept.len() > self.most {
                return Err(None);
            }
            for open in &self.open {
                if config.done & (1 << open.slot) == 0 && !open.action.observes() {
                    stack.extend(self.after(&config, open, oracle));
                }
            }
        }
        if kept.is_empty() {
            let states: HashSet<State> = seen.into_iter().map(|config| config.state).collect();
            let mut states: Vec<State> = states.into_iter().collect();
            states.sort();
            return Err(Some(states));
        }
        self.configs = kept;
        self.open.retain(|open| open.slot != slot);
        self.forget();
        Ok(())
    }

    /// Forgets what cannot matter any more of operations that may or may not happen: those that
    /// have happened everywhere, and configurations that only have fewer of them still to come.
    fn forget(&mut self) {
        let maybe = self.open.iter().filter(|open| !open.ends);
        let maybe = maybe.fold(0_u128, |bits, open| bits | 1 << open.slot);
        if maybe == 0 {
            return;
        }
        let everywhere = self
            .configs
            .iter()
            .fold(maybe, |bits, config| bits & config.done);
        self.open.retain(|open| everywhere & (1 << open.slot) == 0);
        let all: Vec<Config> = std::mem::take(&mut self.configs)
            .into_iter()
            .map(|config| Config {
                done: config.done & !everywhere,
                ..config
            })
            .collect();
        let better = |one: &Config, other: &Config| {
            one.state == other.state
                && one.done != other.done
                && one.done & !maybe == other.done & !maybe
                && one.done & other.done == one.done
        };
        let kept = all
            .iter()
            .filter(|config| !all.iter().any(|one| better(one, config)));
        self.configs = kept.cloned().collect();
    }

    /// Goes on with operations of one object, in any order; `quiet` is told whenever nothing is
    /// open, with the time.
    pub(crate) fn go_on(
        &mut self,
        operations: &[Operation],
        oracle: &[u64],
        quiet: &mut dyn FnMut(&Checker, u64),
    ) -> Result<(), Stop> {
        self.walk(operations, operations.len(), oracle, quiet)
    }

    /// The same; from index `optional` on they may or may not have happened between their begin and
    /// their end.
    fn walk(
        &mut self,
        operations: &[Operation],
        optional: usize,
        oracle: &[u64],
        quiet: &mut dyn FnMut(&Checker, u64),
    ) -> Result<(), Stop> {
        // Where a begin and an end have one stamp, the two overlap.
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            if operation.known || !operation.action.observes() {
                events.push((operation.begin_ns, false, index));
            }
            if operation.known {
                events.push((operation.end_ns, true, index));
            }
        }
        events.sort_unstable();
        let unread = unread(operations);
        let mut slots = vec![0; operations.len()];
        for (time_ns, ends, index) in events {
            let operation = &operations[index];
            if !ends {
                slots[index] = self.call(operation, unread[index], oracle)?;
                continue;
            }
            self.end(slots[index], index >= optional, oracle).map_err(
                |possible| match possible {
                    Some(possible) => Stop::Violation { index, possible },
                    None => Stop::Undecided,
                },
            )?;
            if self.is_quiet() {
                quiet(self, time_ns);
            }
        }
        Ok(())
    }

    /// Is there an order for these operations, if each of the `hidden` ones may be left out? For
    /// histories that are being made smaller.
    pub(crate) fn check(
        &self,
        operations: &[Operation],
        hidden: &[Operation],
        oracle: &[u64],
    ) -> Result<(), Stop> {
        let mut checker = self.clone();
        checker.most = MOST_SHRINKING;
        let all = [operations, hidden].concat();
        checker.walk(&all, operations.len(), oracle, &mut |_, _| ())
    }
}
