//! The n-th failure: in a fixed set of worlds without other faults, one thing goes wrong at the
//! first message, then at the second, and so on: the message is lost, or arrives twice, or its link
//! breaks with it, or the server's process dies with it, or the client's machine. So each step of
//! these worlds that can fail fails once, whatever seeds would have drawn.
//!
//! (`crates/store/tests` does the same to each verb of the disk.)
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{Only, RunOptions, Size, Strike, run_seed};
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

/// Runs a world once for each message; how often, and what failed.
fn strike(seed: u64, strike: Strike) -> (u64, Vec<String>) {
    let mut failures = Vec::new();
    for message in 1..=MOST {
        let only = Only::strike(strike, message as u32);
        let again = format!("ariel sim --seed {seed} --size small --only {only}");
        match run_seed(seed, &with(only)) {
            // There was no such message: nothing went wrong.
            Ok(report) if report.exposed < message => return (message - 1, failures),
            Ok(_) => {}
            Err(failure) => failures.push(format!("{again}: {}", failure.what)),
        }
    }
    panic!("seed {seed} does not end to send messages");
}

#[test]
fn whichever_message_meets_a_fault_nothing_is_wrong() {
    let jobs: Vec<(u64, Strike)> = (1..=WORLDS)
        .flat_map(|seed| Strike::ALL.map(|strike| (seed, strike)))
        .collect();
    let next = AtomicU64::new(0);
    let work = || {
        let (mut runs, mut failures) = (0, Vec::new());
        while let Some(&(seed, kind)) = jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let (messages, failed) = strike(seed, kind);
            assert!(messages > 20, "seed {seed}: {messages} messages");
            runs += messages;
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
    assert!(runs > 2_000, "only {runs} worlds");
}

/// The test would notice: what is planted is shown by a message that comes twice.
#[test]
fn a_strike_shows_what_nothing_else_does() {
    let options = |only| RunOptions {
        mutant: Some(ariel_sim::Mutant::ALL[12]),
        ..with(only)
    };
    assert_eq!(
        options(Only::default()).mutant.unwrap().to_string(),
        "server AppliesTwice"
    );
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
