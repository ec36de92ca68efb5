//! A test of these tests: each fault planted into the store is noticed by one of them.

use super::judge::{Point, attempt, rot, uses};
use super::run::{Engine, Wrong};
use super::scenario::{self, Scenario};
use super::truth::Truth;
use super::{ROT_STEP, crashes, failures};
use ariel_store::{Mutant, Options};

/// Bytes of each scenario that rot here, at most.
const ROTTEN: usize = 64;
/// Every so many of all tries come first, then those beside them: a little of each comes early.
const STRIDE: usize = 61;

enum Try {
    Point(Point),
    Rot(u64),
}

impl Try {
    fn go(&self, truth: &Truth<'_>, options: &Options) -> Result<bool, Wrong> {
        match self {
            Self::Point(point) => attempt(truth, *point, options),
            Self::Rot(at) => rot(truth, *at, options),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Point(Point { failure, keep, .. }) => match failure.verb {
                Some(verb) => format!("{:?} of {verb:?} {}", failure.fault, failure.at),
                None => format!("end at call {}, {keep:?}", failure.at),
            },
            Self::Rot(at) => format!("rot of byte {at}"),
        }
    }
}

/// Everything that is tried in memory.
fn tries<'a>(truths: &'a [Truth<'a>]) -> Vec<(&'a Truth<'a>, Try)> {
    let mut all = Vec::new();
    for truth in truths {
        for (verb, calls) in uses(truth, Engine::Map).unwrap() {
            let points = match verb {
                Some(verb) => failures(Engine::Map, verb, calls),
                None => crashes(Engine::Map, calls),
            };
            all.extend(points.into_iter().map(|point| (truth, Try::Point(point))));
        }
        let rotten = (0..).step_by(ROT_STEP).take(ROTTEN);
        all.extend(rotten.map(|at| (truth, Try::Rot(at))));
    }
    let mut numbered: Vec<_> = all.into_iter().enumerate().collect();
    numbered.sort_by_key(|(number, _)| number % STRIDE);
    numbered.into_iter().map(|(_, tried)| tried).collect()
}

#[test]
fn every_fault_planted_into_the_store_is_found() {
    let scenarios: Vec<Scenario> = scenario::all();
    let opened = scenarios.iter().filter(|s| s.before.is_some());
    let truths: Vec<_> = opened.map(Truth::new).collect();
    let tries = tries(&truths);
    println!("{:<20} {:>6}  caught by", "mutant", "points");
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let caught = tries
            .iter()
            .enumerate()
            .find_map(|(number, (truth, tried))| {
                let options = Options {
                    mutant: Some(mutant),
                    ..truth.scenario.options.clone()
                };
                let what = tried.go(truth, &options).err()?;
                let first = what.lines().next().unwrap_or_default().to_owned();
                let name = format!("{}, {}", truth.scenario.name, tried.name());
                Some((number + 1, name, first))
            });
        match caught {
            Some((points, name, what)) => {
                let mutant = format!("{mutant:?}");
                println!("{mutant:<20} {points:>6}  {name}: {what:.120}");
            }
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
