//! The run of one seed, and what many of them came to.

use crate::coverage::Rare;
use crate::mutant::Mutant;
use crate::only::{CallId, Only, OnlyError};
use crate::plan::{Plan, Size};
use crate::world::World;
use crate::wrong::Wrong;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run is made.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// A planted fault.
    pub mutant: Option<Mutant>,
    /// How large the worlds are.
    pub size: Size,
    /// The part of the seed's world that takes part.
    pub only: Only,
    /// Keep a line for everything that happens.
    pub trace: bool,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// System calls made.
    pub calls: u64,
    /// Messages sent.
    pub messages: u64,
    /// Those of them at which something else could go wrong, where something does: see `Strike`; or
    /// of the calls of the disk, see `DiskStrike`: all up to the one that does.
    pub exposed: u64,
    /// Values judged: units, sizes and modes of files, and names.
    pub values: u64,
    /// Values of which too many calls were open at once to judge them.
    pub unknown: u64,
    /// Things that happened.
    pub steps: u64,
    /// The longest call, virtual ns.
    pub longest_ns: u64,
    /// Virtual time in all, ns.
    pub virtual_ns: u64,
    /// Rare things that happened, a bit for each of [`Rare::ALL`].
    pub met: u128,
}

/// The result of many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Those that failed.
    pub failures: u64,
    /// The reports of the others, added up; of the longest call, the longest.
    pub all: Report,
    /// In how many seeds each of [`Rare::ALL`] happened.
    met: Vec<u64>,
}

impl Summary {
    /// Takes up the outcome of a seed.
    pub fn add(&mut self, outcome: &Result<Report, Failure>) {
        self.seeds += 1;
        match outcome {
            Ok(report) => {
                self.all.add(report);
                self.met.resize(Rare::ALL.len(), 0);
                for (at, count) in self.met.iter_mut().enumerate() {
                    *count += (report.met >> at & 1) as u64;
                }
            }
            Err(_) => self.failures += 1,
        }
    }

    /// Takes up what another one knows.
    pub fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.failures += other.failures;
        self.all.add(&other.all);
        self.met.resize(Rare::ALL.len(), 0);
        for (count, more) in self.met.iter_mut().zip(&other.met) {
            *count += more;
        }
    }

    /// In how many seeds each rare thing happened.
    pub fn rarities(&self) -> impl Iterator<Item = (Rare, u64)> + '_ {
        let counts = self.met.iter().copied().chain(std::iter::repeat(0));
        Rare::ALL.iter().copied().zip(counts)
    }
}

impl Report {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.messages += other.messages;
        self.exposed += other.exposed;
        self.values += other.values;
        self.unknown += other.unknown;
        self.steps += other.steps;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.virtual_ns += other.virtual_ns;
        self.met |= other.met;
    }
}

/// A run that showed something wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed, which shows it again.
    pub seed: u64,
    /// The kind of violation: the same for all runs that fail in the same way.
    pub class: String,
    /// The failure, for people.
    pub what: String,
    /// The trace, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs one seed.
///
/// # Errors
/// The judge, or a rule watched during the run, found something wrong.
pub fn run_seed(seed: u64, options: &RunOptions) -> Result<Report, Failure> {
    run_traced(seed, options).0
}

/// Runs one seed; also returns the trace, which is empty unless it was asked for.
pub fn run_traced(seed: u64, options: &RunOptions) -> (Result<Report, Failure>, Vec<String>) {
    let Run { outcome, trace, .. } = play(seed, options);
    let failure = |wrong: Wrong| Failure {
        seed,
        class: wrong.class,
        what: wrong.what,
        trace: trace.clone(),
    };
    (outcome.map_err(failure), trace)
}

/// Is everything there that these options name?
///
/// # Errors
/// If the world of the seed does not have it.
pub fn check(seed: u64, options: &RunOptions) -> Result<(), OnlyError> {
    options.only.check(&Plan::draw(seed, options.size))
}

/// Does the store of this seed's world move between servers?
pub fn has_moves(seed: u64, options: &RunOptions) -> bool {
    Plan::draw(seed, options.size).servers > 1
}

/// Is the planted fault a part of this seed's world? A store's is only where the real store is, one
/// of moves only where the store moves: any other world is the same with it and without.
pub(crate) fn is_planted(seed: u64, options: &RunOptions) -> bool {
    match options.mutant {
        Some(Mutant::Store(_)) => World::new(seed, options).has_real_store(),
        Some(Mutant::Moving(_)) => has_moves(seed, options),
        _ => true,
    }
}

/// A run and what took part.
pub(crate) struct Run {
    pub(crate) outcome: Result<Report, Wrong>,
    pub(crate) played: Played,
    trace: Vec<String>,
}

/// The parts played in a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Played {
    pub(crate) machines: Vec<u32>,
    /// Calls, in the order in which they began.
    pub(crate) calls: Vec<CallId>,
    pub(crate) faults: Vec<u32>,
    /// Messages that were or would have been lost, and those that arrive twice.
    pub(crate) losses: u32,
    pub(crate) repetitions: u32,
    pub(crate) messages: u64,
}

/// Runs one seed.
pub(crate) fn play(seed: u64, options: &RunOptions) -> Run {
    let world = World::new(seed, options);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let outcome = outcome.unwrap_or_else(|panic| {
        world.sched.clear();
        let what = message(&*panic);
        Err(Wrong::new(panic_class(&what), format!("panic: {what}")))
    });
    Run {
        outcome,
        played: world.played(),
        trace: world.lines(),
    }
}

/// The kind of a panic: its first line without the numbers.
fn panic_class(what: &str) -> String {
    let first = what.lines().next().unwrap_or_default();
    let letters = first.chars().filter(|letter| !letter.is_ascii_digit());
    format!("panic: {}", letters.collect::<String>())
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("?")
        .to_owned()
}
