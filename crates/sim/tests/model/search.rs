//! Breadth first through all states: the first failure found is reached by a shortest way.

use super::memo::Wrong;
use super::world::{Act, Scenario, World};
use std::collections::HashMap;

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps of the longest shortest way.
    pub depth: usize,
    /// Is every state explored that can be reached at all?
    pub whole: bool,
    /// States that were finished in one fair order.
    pub finished: usize,
    /// The failure, and the way to it.
    pub wrong: Option<(Wrong, Vec<String>)>,
}

/// From each state but the first: the one before it, and the step.
type Ways = HashMap<u64, (u64, Act)>;

/// Explores all states within the scenario's depth.
pub fn explore(scenario: &Scenario) -> Explored {
    let mut world = World::new(scenario);
    let mut ways = Ways::new();
    let mut explored = Explored {
        states: 1,
        depth: 0,
        whole: true,
        finished: 0,
        wrong: None,
    };
    let first = match world.first() {
        Ok(first) => first,
        Err(wrong) => {
            explored.wrong = Some((wrong, vec!["before the first step".into()]));
            return explored;
        }
    };
    let start = first.identity();
    let mut level = vec![(start, first)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (id, mut state) in level {
            let acts = state.acts(scenario.programs);
            let cut = explored.depth == scenario.depth;
            explored.whole &= acts.is_empty() || !cut;
            if cut || acts.is_empty() {
                explored.finished += 1;
                if let Err(wrong) = world.finish(&mut state) {
                    let way = retrace(scenario, &ways, (start, id), None);
                    explored.wrong = Some((wrong, way));
                    return explored;
                }
                continue;
            }
            for act in acts {
                let mut after = state.clone();
                if let Err(wrong) = world.step(&mut after, act) {
                    let way = retrace(scenario, &ways, (start, id), Some(act));
                    explored.wrong = Some((wrong, way));
                    return explored;
                }
                let reached = after.identity();
                if reached != start && !ways.contains_key(&reached) {
                    ways.insert(reached, (id, act));
                    explored.states += 1;
                    next.push((reached, after));
                }
            }
        }
        explored.depth += usize::from(!next.is_empty());
        level = next;
    }
    explored
}

/// The steps to a state, and one more, told one a line.
fn retrace(
    scenario: &Scenario,
    ways: &Ways,
    (start, mut id): (u64, u64),
    last: Option<Act>,
) -> Vec<String> {
    let mut acts: Vec<Act> = last.into_iter().collect();
    while id != start {
        let (before, act) = ways[&id];
        acts.push(act);
        id = before;
    }
    acts.reverse();
    let mut world = World::new(scenario);
    let mut state = world.first().expect("it was made before");
    let mut told = Vec::new();
    let mut right = Ok(());
    for act in acts {
        told.push(state.describe(scenario, act));
        right = world.step(&mut state, act);
    }
    if right.is_ok() {
        told.push("the rest in one fair order".into());
        world.told = Some(told);
        // The failure is known already; this is for the way to it.
        let _ = world.finish(&mut state);
        told = world.told.unwrap_or_default();
    }
    told
}
