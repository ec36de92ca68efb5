//! The ordinary run: 2,000 worlds, each with sizes, delays, faults and programs of its own, and
//! none in which a program is shown what it would not be shown on one machine.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_sim::{Report, RunOptions, run_seed, run_traced};

const SEEDS: u64 = 2_000;
const THREADS: u64 = 2;

fn part(part: u64) -> Vec<String> {
    let mut failures = Vec::new();
    let mut judged = 0;
    for seed in (1..=SEEDS).filter(|seed| seed % THREADS == part) {
        match run_seed(seed, &RunOptions::default()) {
            Ok(Report { values, .. }) => judged += values,
            Err(failure) => failures.push(format!("seed {seed}: {}", failure.what)),
        }
    }
    assert!(
        judged > 50 * SEEDS / THREADS,
        "only {judged} values were judged"
    );
    failures
}

#[test]
fn two_thousand_worlds_show_nothing_wrong() {
    let threads: Vec<_> = (0..THREADS)
        .map(|n| std::thread::spawn(move || part(n)))
        .collect();
    let failures: Vec<String> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert!(
        failures.is_empty(),
        "{} seeds failed; see one again with `ariel sim --seed N --trace`:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn a_seed_replays_exactly() {
    let options = RunOptions {
        trace: true,
        ..RunOptions::default()
    };
    for seed in [3, 77, 1001] {
        let (first, lines) = run_traced(seed, &options);
        let (second, again) = run_traced(seed, &options);
        assert!(lines.len() > 100, "seed {seed} did next to nothing");
        assert_eq!(first, second);
        assert!(
            lines == again,
            "seed {seed} was traced differently the second time"
        );
    }
}

#[test]
fn the_trace_changes_nothing() {
    for seed in 10..20 {
        let quiet = run_seed(seed, &RunOptions::default());
        let loud = run_seed(
            seed,
            &RunOptions {
                trace: true,
                ..RunOptions::default()
            },
        );
        assert_eq!(quiet.map_err(|f| f.what), loud.map_err(|f| f.what));
    }
}
