//! The n-th failure: in a fixed set of worlds without other faults, one thing goes wrong at the
//! first message, then at the second, and so on: the message is lost, or arrives twice, or its link
//! breaks with it, or the server's process dies with it, or the client's machine, or its process.
//! The same for the calls of the server's disk: the first one fails, then the second, in each of
//! the ways in which it can. So each step of these worlds that can fail fails once, whatever seeds
//! would have drawn.
//!
//! (`crates/store/tests` does the same to the store alone.)
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{DiskStrike, Only, RunOptions, Size, Strike, run_seed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Small worlds: among them those with the real store, with one name for all, and with directories.
const WORLDS: u64 = 12;
/// More messages than any of them sends.
const MOST: u64 = 2_000;

fn with(only: Only) -> RunOptions {
    RunOptions {
        size: Size::Small,
        only,
        ..RunOptions::default()
    }
}

/// Where something goes wrong: at the so-manyth message, or call of the disk.
type Nth = Box<dyn Fn(u32) -> Only + Send + Sync>;

/// Runs a world once for each message or call; how often, and what failed.
fn strike(seed: u64, nth: &Nth) -> (u64, Vec<String>) {
    let mut failures = Vec::new();
    for number in 1..=MOST {
        let only = nth(number as u32);
        let again = format!("ariel sim --seed {seed} --size small --only {only}");
        match run_seed(seed, &with(only)) {
            // There was no such message: nothing went wrong.
            Ok(report) if report.exposed < number => return (number - 1, failures),
            Ok(_) => {}
            Err(failure) => failures.push(format!("{again}: {}", failure.what)),
        }
    }
    panic!("seed {seed} does not end");
}

/// Runs all of these in each world, on all processors; how many there were.
fn strike_all(worlds: u64, nths: &[Nth], least: u64) -> u64 {
    let jobs: Vec<(u64, &Nth)> = (1..=worlds)
        .flat_map(|seed| nths.iter().map(move |nth| (seed, nth)))
        .collect();
    let next = AtomicU64::new(0);
    let work = || {
        let (mut runs, mut failures) = (0, Vec::new());
        while let Some((seed, nth)) = jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let (times, failed) = strike(*seed, nth);
            assert!(times >= least, "seed {seed}, {}: {times}", nth(1));
            runs += times;
            failures.extend(failed);
        }
        (runs, failures)
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (mut runs, mut failures) = (0, Vec::new());
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (more, failed) = thread.join().unwrap();
            runs += more;
            failures.extend(failed);
        }
    });
    println!("{runs} worlds, each with one fault");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    runs
}

#[test]
fn whichever_message_meets_a_fault_nothing_is_wrong() {
    let nths = Strike::ALL.map(|kind| -> Nth { Box::new(move |at| Only::strike(kind, at)) });
    let runs = strike_all(WORLDS, &nths, 20);
    assert!(runs > 2_000, "only {runs} worlds");
}

#[test]
fn whichever_call_of_the_disk_fails_nothing_is_wrong() {
    let nths =
        DiskStrike::ALL.map(|kind| -> Nth { Box::new(move |at| Only::disk_strike(kind, at)) });
    let runs = strike_all(2 * WORLDS, &nths, 0);
    assert!(runs > 1_500, "only {runs} worlds");
}

/// The test would notice: a message that comes twice shows the planted fault.
#[test]
fn a_strike_shows_what_nothing_else_does() {
    let mut all = ariel_sim::Mutant::ALL.into_iter();
    let mutant = all.find(|mutant| mutant.to_string() == "server AppliesTwice");
    assert!(mutant.is_some());
    let options = |only| RunOptions {
        mutant,
        ..with(only)
    };
    let calm: Only = "faults=none/lost=none/twice=none".parse().unwrap();
    let found = (1..=WORLDS).any(|seed| {
        run_seed(seed, &options(calm.clone())).unwrap();
        (1..=200).any(|message| {
            let only = Only::strike(Strike::Repeat, message);
            let lost = Only::strike(Strike::Restart, message);
            run_seed(seed, &options(only)).is_err() || run_seed(seed, &options(lost)).is_err()
        })
    });
    assert!(found, "a change is applied twice, and nobody sees it");
}
