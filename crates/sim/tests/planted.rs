//! A test of the judge: each planted fault is found within 20,000 worlds, in a world that shows
//! nothing wrong without it. `ariel sim --mutants` prints the table. And failing worlds are made
//! small: what is left of that world fails in the same way, is much smaller, is replayed byte for
//! byte, and can be written down and read back. `ariel sim --seed N --shrink` does it for people.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{Mutant, NotFailing, Only, RunOptions, Search, Shrunk, check, hunt};
use ariel_sim::{run_seed, run_traced, shrink};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const SEEDS: u64 = 20_000;
/// Runs for each planted fault.
const RUNS: u64 = 1_500;
/// Those that take longest are begun first, so that no processor is idle while one goes on.
const LONGEST: [&str; 3] = [
    "client ForgetsLookups",
    "client ReturnsRoomUnwritten",
    "server SkipsConfirmation",
];
/// A world with so few calls is small, even if it had less than twice as many before.
const SMALL_CALLS: usize = 8;

/// Candidates one after the other.
fn one_by_one(all: &[Only], test: &(dyn Fn(&Only) -> bool + Sync)) -> Option<usize> {
    all.iter().position(test)
}

/// All candidates, and the first of those that pass: as threads would do it.
fn all_at_once(all: &[Only], test: &(dyn Fn(&Only) -> bool + Sync)) -> Option<usize> {
    let passed: Vec<bool> = all.iter().map(test).collect();
    passed.iter().position(|&passed| passed)
}

fn small(seed: u64, options: &RunOptions, runs: u64) -> Result<Shrunk, NotFailing> {
    let search = Search {
        runs,
        first: &one_by_one,
        tell: &mut |_| (),
        stop: &|| false,
    };
    shrink(seed, options, search)
}

fn planted(mutant: Mutant) -> RunOptions {
    RunOptions {
        mutant: Some(mutant),
        trace: true,
        ..RunOptions::default()
    }
}

/// The first seed from this one on that shows a planted fault.
fn first(mutant: Mutant, from: u64) -> u64 {
    let caught = hunt(mutant, from, SEEDS, &RunOptions::default());
    let missed = || panic!("{mutant} was not found in {SEEDS} seeds");
    caught.unwrap_or_else(missed).seed
}

/// Has it much fewer calls than the whole world?
fn is_small(small: &Shrunk) -> bool {
    small.left.calls <= SMALL_CALLS.max(small.whole.calls / 2)
}

/// Finds a seed that shows a planted fault, and makes it small. A world in which many calls must
/// meet for the fault to show may stay large: then the next one that shows it must not.
fn shrunk(mutant: Mutant) -> (u64, Shrunk) {
    let (seed, small) = shrunk_from(mutant, 1);
    match is_small(&small) {
        true => (seed, small),
        false => shrunk_from(mutant, seed + 1),
    }
}

fn shrunk_from(mutant: Mutant, from: u64) -> (u64, Shrunk) {
    let seed = first(mutant, from);
    let options = planted(mutant);
    let class = run_seed(seed, &options).unwrap_err().class;
    let small = small(seed, &options, RUNS).unwrap();
    assert_eq!(small.failure.class, class, "{mutant}");

    let text = small.only.to_string();
    let read: Only = text.parse().unwrap();
    assert_eq!(read, small.only, "{text}");
    let again = RunOptions {
        only: read,
        ..options.clone()
    };
    assert_eq!(check(seed, &again), Ok(()), "{mutant} {text}");
    let (outcome, trace) = run_traced(seed, &again);
    assert!(outcome.unwrap_err() == small.failure, "{mutant} {text}");
    assert!(trace == small.failure.trace, "{mutant} {text}");
    (seed, small)
}

/// Planted faults as long as there are any; a line for each, and the calls before and after.
fn work(all: &[Mutant], next: &AtomicUsize) -> (usize, usize) {
    let (mut whole, mut left) = (0, 0);
    while let Some(&mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
        let (seed, small) = shrunk(mutant);
        println!(
            "{mutant}: seed {seed}, {} runs: {}\n  {}\n  {}\n  {}",
            small.runs, small.failure.class, small.whole, small.left, small.only
        );
        let (before, after) = (small.whole.calls, small.left.calls);
        assert!(is_small(&small), "{mutant}: {after} of {before} calls");
        assert!(small.left.machines <= small.whole.machines, "{mutant}");
        assert!(small.left.messages < small.whole.messages, "{mutant}");
        (whole, left) = (whole + before, left + after);
    }
    (whole, left)
}

#[test]
fn every_planted_fault_is_found_and_shown_by_a_small_world() {
    let mut all = Mutant::ALL.to_vec();
    all.sort_by_key(|mutant| !LONGEST.contains(&mutant.to_string().as_str()));
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let calls: Vec<(usize, usize)> = thread::scope(|scope| {
        let one = || scope.spawn(|| work(&all, &next));
        let threads: Vec<_> = (0..threads).map(|_| one()).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let sum = |of: &dyn Fn(&(usize, usize)) -> usize| calls.iter().map(of).sum::<usize>();
    let (whole, left) = (sum(&|both| both.0), sum(&|both| both.1));
    println!("{left} of {whole} calls are left");
    assert!(left * 8 <= whole, "{left} of {whole} calls are left");
}

#[test]
fn a_world_that_does_not_fail_is_not_made_small() {
    let search = Search {
        runs: 100,
        first: &|_, _| panic!("there is nothing to try"),
        tell: &mut |_| panic!("nothing is smaller"),
        stop: &|| false,
    };
    assert_eq!(
        shrink(1, &RunOptions::default(), search),
        Err(NotFailing),
        "seed 1 fails"
    );
}

#[test]
fn the_small_world_does_not_depend_on_how_candidates_are_run() {
    let mutant = Mutant::ALL[1];
    let seed = first(mutant, 1);
    let options = planted(mutant);
    let mut runs = Vec::new();
    let search = Search {
        runs: 300,
        first: &all_at_once,
        tell: &mut |step| runs.push(step.runs),
        stop: &|| false,
    };
    let at_once = shrink(seed, &options, search).unwrap();
    assert!(at_once == small(seed, &options, 300).unwrap());
    assert!(runs.is_sorted() && runs.len() > 3, "{runs:?}");
    assert!(at_once.runs <= 302, "{}", at_once.runs);
}

#[test]
fn a_search_ends_when_it_is_told_to_and_shows_what_it_has() {
    let mutant = Mutant::ALL[1];
    let seed = first(mutant, 1);
    let options = planted(mutant);
    let search = Search {
        runs: u64::MAX,
        first: &one_by_one,
        tell: &mut |_| (),
        stop: &|| true,
    };
    let shrunk = shrink(seed, &options, search).unwrap();
    assert!(!shrunk.done && shrunk.runs < 50, "{} runs", shrunk.runs);
    assert_eq!(
        shrunk.failure.class,
        run_seed(seed, &options).unwrap_err().class
    );
}

#[test]
fn what_is_not_there_cannot_be_left() {
    let of = |text: &str| RunOptions {
        only: text.parse().unwrap(),
        ..RunOptions::default()
    };
    assert_eq!(check(1, &of("all")), Ok(()));
    for text in ["machines=1,9", "calls=1.9:1", "calls=1.1:1000", "faults=99"] {
        let error = check(1, &of(text)).unwrap_err().to_string();
        assert!(error.contains("is not there"), "{text}: {error}");
    }
}

/// Leaving out everything that programs do leaves nothing wrong, whatever is planted.
#[test]
fn what_is_left_out_does_not_happen() {
    for seed in 1..100 {
        let options = RunOptions {
            only: "machines=1/faults=none/lost=none/twice=none/calls=none"
                .parse()
                .unwrap(),
            trace: true,
            ..RunOptions::default()
        };
        let (outcome, trace) = run_traced(seed, &options);
        outcome.unwrap();
        let happened = |what: &str| trace.iter().any(|line| line.contains(what));
        for what in [" does ", "h2 ", "is lost", "arrives twice", " fault "] {
            assert!(!happened(what), "seed {seed}: {what}");
        }
    }
}
