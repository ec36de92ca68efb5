//! The right answers of a store: the same operations on a healthy store of its own, with nothing
//! planted.

use super::scenario::{Scenario, Step};
use crate::world::*;
use ariel_store::{Apply, Store};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use wire::*;

/// All that can be seen of a partition.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    pub objects: BTreeMap<String, Seen>,
    pub sessions: Vec<SessionId>,
    /// The answers kept, of all requests that a scenario makes.
    pub answers: Vec<Option<Outcome>>,
}

impl State {
    pub fn of(store: &mut Store, scenario: &Scenario) -> Self {
        let origins = scenario.steps.iter().filter_map(|step| match step {
            Step::Do(_, _, origin) => *origin,
            _ => None,
        });
        Self {
            answers: origins.map(|origin| store.answer(origin)).collect(),
            objects: picture(store),
            sessions: store.sessions(),
        }
    }
}

/// Does a step that changes the store; an operation has an outcome.
pub fn apply(store: &mut Store, step: &Step) -> Option<Outcome> {
    match step {
        Step::Do(op, data, origin) => {
            let caller = superuser();
            let apply = Apply {
                op,
                caller: &caller,
                now: 7,
                origin: *origin,
                data,
                delegated: None,
            };
            return Some(store.apply(apply));
        }
        Step::OpenSession(session) => store.open_session(*session, 7),
        Step::CloseSession(session) => store.close_session(*session),
        _ => {}
    }
    None
}

/// Knows the state after every list of steps that were accepted.
pub struct Truth<'a> {
    pub scenario: &'a Scenario,
    known: RefCell<HashMap<Vec<usize>, Rc<State>>>,
}

impl<'a> Truth<'a> {
    pub fn new(scenario: &'a Scenario) -> Self {
        let known = RefCell::default();
        Self { scenario, known }
    }

    /// A step, counted over those before and those of the scenario.
    pub fn step(&self, number: usize) -> &'a Step {
        let before = self.scenario.before.as_deref().unwrap_or_default();
        match before.get(number) {
            Some(step) => step,
            None => &self.scenario.steps[number - before.len()],
        }
    }

    /// A healthy store to which these steps were applied.
    pub fn twin(&self, accepted: &[usize]) -> Store {
        let mut twin = Store::in_memory(&self.scenario.options).unwrap();
        for number in accepted {
            apply(&mut twin, self.step(*number));
        }
        twin
    }

    pub fn state(&self, accepted: &[usize]) -> Rc<State> {
        if let Some(state) = self.known.borrow().get(accepted) {
            return state.clone();
        }
        let state = State::of(&mut self.twin(accepted), self.scenario);
        let state = Rc::new(state);
        let mut known = self.known.borrow_mut();
        known.insert(accepted.to_vec(), state.clone());
        state
    }

    /// How many of the accepted steps, at least `least`, make this state; the most, if several do.
    pub fn prefix(&self, state: &State, accepted: &[usize], least: usize) -> Option<usize> {
        let mut lengths = (least..=accepted.len()).rev();
        lengths.find(|len| *self.state(&accepted[..*len]) == *state)
    }
}
