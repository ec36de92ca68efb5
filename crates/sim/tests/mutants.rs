//! A test of the judge: each planted fault is found within 2,000 worlds, in a world that shows
//! nothing wrong without it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{RunOptions, run_seed};
use logic::{client, server};

const SEEDS: u64 = 2_000;

/// The first seed that shows the fault, and shows nothing without it; and how it shows.
fn caught(options: &RunOptions) -> Option<(u64, String)> {
    let innocent = |seed: &u64| run_seed(*seed, &RunOptions::default()).is_ok();
    let shown = |seed| {
        run_seed(seed, options)
            .err()
            .map(|failure| (seed, failure.what))
    };
    (1..=SEEDS)
        .filter_map(shown)
        .find(|(seed, _)| innocent(seed))
}

fn all_caught<M: std::fmt::Debug + Copy + Send + 'static>(
    mutants: &[M],
    plant: fn(M) -> RunOptions,
) -> Vec<String> {
    let mut missed = Vec::new();
    for &mutant in mutants {
        match caught(&plant(mutant)) {
            Some((seed, what)) => {
                let first = what.lines().next().unwrap_or_default();
                println!("{mutant:?}: seed {seed}: {first}");
            }
            None => missed.push(format!("{mutant:?} was not found in {SEEDS} seeds")),
        }
    }
    missed
}

#[test]
fn every_fault_planted_into_the_client_is_found() {
    use client::Mutant::*;
    let mutants = [
        IgnoresEpochs,
        ReturnsBeforeInvalidating,
        ReturnsBeforeWritingBack,
        KeepsNames,
        NamesWithoutToken,
        AttributesWithoutToken,
        IgnoresVersions,
        CachesSharedOpens,
    ];
    let plant = |mutant| RunOptions {
        mutant_client: Some(mutant),
        ..RunOptions::default()
    };
    let missed = all_caught(&mutants, plant);
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn every_fault_planted_into_the_server_is_found() {
    use server::Mutant::*;
    let mutants = [
        IgnoresExclusive,
        ForgetsNames,
        ForgetsTransients,
        SkipsConfirmation,
        AppliesTwice,
    ];
    let plant = |mutant| RunOptions {
        mutant_server: Some(mutant),
        ..RunOptions::default()
    };
    let missed = all_caught(&mutants, plant);
    assert!(missed.is_empty(), "{missed:?}");
}

/// Those that the end of the server's process is enough to show; the store's own tests find all.
#[test]
fn faults_planted_into_the_store_are_found() {
    use store::Mutant::*;
    let mutants = [
        StopsEarly,
        KeepsCutBytes,
        ForgetsAnswers,
        ReplaysTwice,
        LosesTail,
    ];
    let plant = |mutant| RunOptions {
        mutant_store: Some(mutant),
        ..RunOptions::default()
    };
    let missed = all_caught(&mutants, plant);
    assert!(missed.is_empty(), "{missed:?}");
}
