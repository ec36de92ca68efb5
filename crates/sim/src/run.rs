//! Runs of seeds: one, or many with a line for each that fails.

use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A fault planted into the clients.
    pub mutant_client: Option<logic::client::Mutant>,
    /// A fault planted into the server.
    pub mutant_server: Option<logic::server::Mutant>,
    /// Keep a line for everything that happens.
    pub trace: bool,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// System calls made.
    pub calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Values judged: units, sizes and modes of files, and names.
    pub values: u64,
    /// Things that happened.
    pub steps: u64,
    /// The longest call, virtual ns.
    pub longest_ns: u64,
    /// Virtual time in all, ns.
    pub virtual_ns: u64,
}

/// A run that showed something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed, which shows it again.
    pub seed: u64,
    /// What is wrong.
    pub what: String,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// What the judge, or a rule watched during the run, found wrong.
pub fn run_seed(seed: u64, options: &RunOptions) -> Result<Report, Failure> {
    run_traced(seed, options).0
}

/// Runs one seed; also returns the trace, which is empty unless it was asked for.
pub fn run_traced(seed: u64, options: &RunOptions) -> (Result<Report, Failure>, Vec<String>) {
    let world = World::new(seed, options);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = outcome.unwrap_or_else(|panic| {
        world.sched.clear();
        Err(format!("panic: {}", message(&*panic)))
    });
    let lines = world.lines();
    let failure = |what| Failure {
        seed,
        what,
        trace: lines.clone(),
    };
    (outcome.map_err(failure), lines)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("?")
        .to_owned()
}

/// Runs `count` seeds from `first` on, and says what happened line by line; returns how many
/// failed.
pub fn run_seeds(first: u64, count: u64, trace: bool, out: &mut dyn FnMut(&str)) -> u64 {
    let options = RunOptions {
        trace,
        ..RunOptions::default()
    };
    let mut failures = 0;
    let mut all = Report::default();
    for seed in first..first.saturating_add(count) {
        let (outcome, lines) = run_traced(seed, &options);
        for line in &lines {
            out(line);
        }
        match outcome {
            Ok(report) => {
                all.calls += report.calls;
                all.messages += report.messages;
                all.values += report.values;
                all.longest_ns = all.longest_ns.max(report.longest_ns);
            }
            Err(failure) => {
                failures += 1;
                out(&format!("seed {seed} FAILED: {}", failure.what));
                out(&format!(
                    "  again, with all that happened: ariel sim --seed {seed} --trace"
                ));
            }
        }
    }
    out(&format!(
        "{count} seeds, {failures} failed; {} calls, {} messages, {} values judged, longest call \
         {} ms of virtual time",
        all.calls,
        all.messages,
        all.values,
        all.longest_ns / 1_000_000
    ));
    failures
}
