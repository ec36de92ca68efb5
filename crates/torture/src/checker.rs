//! The search for an order: a history is linearizable when its operations can be put into one
//! order that agrees with real time (an operation that ended before another began comes first) and
//! in which a single machine would have given the same answers (Herlihy and Wing; Wing and Gong's
//! search).
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
//!
//! A lost operation stays open for ever. It takes effect only where the end of another
//! operation cannot be explained with less of it, see [`crate::configs`]; only if it has to do with
//! that one, be it by way of others (others commute, and can wait); and of lost ones that
//! do the same, in the order of their slots. With many lost operations there are too many orders
//! all the same, and one is enough: a step that is explained ends when [`ENOUGH`] configurations
//! were made, those first that use the least of the lost. If none of them explains what comes
//! later, that is no violation, and the search is repeated with up to [`MOST`]; with 128 open
//! operations the oldest lost one is given up in the same way.

use crate::configs::{Config, Configs, Queue};
use crate::history::{Action, Object, Operation};
use crate::model::{State, step};
use std::collections::HashSet;

/// Configurations made in one step after which the search gives up.
pub(crate) const MOST: usize = 1_000_000;
/// The same where the step is explained already: others would only use more of what was lost.
const ENOUGH: usize = 1000;
/// The same while a history is made smaller, where giving up only leaves it larger.
const MOST_SHRINKING: usize = 200_000;

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

/// The role of each write in the history.
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
    enough: usize,
    /// No configuration was left out: that there is none left means something.
    is_complete: bool,
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
            enough: ENOUGH,
            is_complete: true,
        }
    }

    /// Leaves nothing out, as far as [`MOST`] allows.
    pub(crate) fn thorough(mut self) -> Checker {
        self.enough = MOST;
        self
    }

    /// The next steps are hasty again.
    pub(crate) fn hasty(mut self) -> Checker {
        self.enough = ENOUGH;
        self
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
        let slot = match taken.trailing_ones() {
            u128::BITS => self.give_up_oldest().ok_or(Stop::Undecided)?,
            slot => slot,
        };
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

    /// The lost operation that has been open for longest will not happen any more; its slot.
    fn give_up_oldest(&mut self) -> Option<u32> {
        let oldest = self.open.iter().position(|open| !open.ends)?;
        let slot = self.open.remove(oldest).slot;
        self.is_complete = false;
        let configs = std::mem::take(&mut self.configs).into_iter();
        let without = |config: Config| Config {
            done: config.done & !(1 << slot),
            ..config
        };
        self.configs = configs.map(without).collect();
        Some(slot)
    }

    /// The slots of operations that may happen at any time, or never.
    fn lost(&self) -> u128 {
        let lost = self.open.iter().filter(|open| !open.ends);
        lost.fold(0, |bits, open| bits | 1 << open.slot)
    }

    /// The slots of open operations that have to do with one of them, be it by way of others.
    fn related(&self, slot: u32) -> u128 {
        let names_of = |open: &Open| {
            let names = open.action.names();
            names.iter().fold(0_u32, |bits, name| bits | 1 << name)
        };
        let all: Vec<(u128, u32)> = self
            .open
            .iter()
            .map(|open| (1 << open.slot, names_of(open)))
            .collect();
        let ending = self.open.iter().find(|open| open.slot == slot);
        let mut names = ending.map_or(0, names_of);
        let relates = |names: u32, of: u32| of == 0 || of & names != 0;
        loop {
            let related = all.iter().filter(|(_, of)| relates(names, *of));
            let (bits, more) = related.fold((0, names), |all, one| (all.0 | one.0, all.1 | one.1));
            if more == names {
                return bits;
            }
            names = more;
        }
    }

    /// The lost operations that do the same as an open lost one, and are to come first.
    fn elders(&self, open: &Open, oracle: &[u64]) -> u128 {
        let unread = |action: &Action| matches!(action, Action::Append(v) if !oracle.contains(v));
        let is_elder = |elder: &&Open| {
            let same = elder.action == open.action || unread(&elder.action) && unread(&open.action);
            !open.ends && !elder.ends && elder.slot < open.slot && same
        };
        let elders = self.open.iter().filter(is_elder);
        elders.fold(0, |bits, elder| bits | 1 << elder.slot)
    }

    /// An operation has ended: only configurations in which it has taken effect remain; where it is
    /// optional, those in which it has not as well. On failure, the states that were possible.
    fn end(&mut self, slot: u32, optional: bool, oracle: &[u64]) -> Result<(), Option<Vec<State>>> {
        let bit = 1_u128 << slot;
        let (lost, related) = (self.lost(), self.related(slot));
        let changes = self.open.iter().filter(|open| !open.action.observes());
        let changes: Vec<(&Open, u128)> = changes
            .filter(|open| related & (1 << open.slot) != 0)
            .map(|open| (open, self.elders(open, oracle)))
            .collect();
        let (mut made, mut is_complete) = (0, self.is_complete);
        let (mut kept, mut seen) = (Configs::new(lost), Configs::new(lost));
        let mut queue = Queue::new(lost, self.configs.iter().cloned());
        if optional {
            for config in self.configs.iter().filter(|one| one.done & bit == 0) {
                kept.insert(config.clone());
            }
        }
        while let Some(config) = queue.pop() {
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
            if made > self.enough && lost != 0 && kept.len() > 0 {
                is_complete = false;
                break;
            }
            if made > self.most {
                return Err(None);
            }
            for (open, elders) in &changes {
                if config.done & (1 << open.slot) == 0 && elders & !config.done == 0 {
                    let after = self.after(&config, open, oracle);
                    made += after.len();
                    after.into_iter().for_each(|config| queue.push(config));
                }
            }
        }
        if kept.len() == 0 {
            let states: HashSet<State> = seen.into_iter().map(|config| config.state).collect();
            let mut states: Vec<State> = states.into_iter().collect();
            states.sort();
            return Err(Some(states));
        }
        self.configs = kept.into_iter().collect();
        self.is_complete = is_complete;
        self.open.retain(|open| open.slot != slot);
        self.forget();
        Ok(())
    }

    /// Forgets lost operations that have happened everywhere.
    fn forget(&mut self) {
        let lost = self.lost();
        let done = self.configs.iter().map(|config| config.done);
        let everywhere = done.fold(lost, |bits, done| bits & done);
        if everywhere == 0 {
            return;
        }
        self.open.retain(|open| everywhere & (1 << open.slot) == 0);
        let all = std::mem::take(&mut self.configs).into_iter();
        let without = |config: Config| Config {
            done: config.done & !everywhere,
            ..config
        };
        self.configs = all.map(without).collect();
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
            self.end(slots[index], index >= optional, oracle)
                .map_err(|possible| match possible.filter(|_| self.is_complete) {
                    Some(possible) => Stop::Violation { index, possible },
                    None => Stop::Undecided,
                })?;
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
        let mut checker = self.clone().thorough();
        checker.most = MOST_SHRINKING;
        let all = [operations, hidden].concat();
        checker.walk(&all, operations.len(), oracle, &mut |_, _| ())
    }
}

#[cfg(test)]
#[path = "checker/tests.rs"]
mod tests;
