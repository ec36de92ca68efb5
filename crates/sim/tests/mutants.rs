//! A test of the judge: each planted fault is found within 20,000 worlds, in a world that shows
//! nothing wrong without it. `ariel sim --mutants` prints the table.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{Mutant, RunOptions, hunt};
use std::thread;

const SEEDS: u64 = 20_000;
const THREADS: usize = 2;

/// Hunts one fault after the other; returns those that were missed.
fn part(part: usize) -> Vec<String> {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL.into_iter().skip(part).step_by(THREADS) {
        match hunt(mutant, 1, SEEDS, &RunOptions::default()) {
            Some(caught) => {
                let first = caught.what.lines().next().unwrap_or_default();
                println!("{mutant}: {} seeds: {first}", caught.seeds);
            }
            None => missed.push(format!("{mutant} was not found in {SEEDS} seeds")),
        }
    }
    missed
}

#[test]
fn every_planted_fault_is_found() {
    let missed: Vec<String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || part(n))).collect();
        let parts = threads.into_iter().map(|thread| thread.join().unwrap());
        parts.flatten().collect()
    });
    assert!(missed.is_empty(), "{missed:?}");
}
