//! `ariel sim`: simulated worlds from seeds, on all cores.

mod fleet;
mod mutants;
mod progress;
mod shrink;

use crate::args::{SimArgs, SimSize};
use crate::failure::{FAILED, Failure, NOT_RUN};
use crate::signals;
use fleet::{News, Worlds};
use progress::Progress;
use sim::{Only, Rare, RunOptions, Size, Summary};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;

/// Worlds, where neither a seed nor a count is given.
const DEFAULT_COUNT: u64 = 100;
/// Random first seeds are below this, so that people can type them.
const RANDOM_SEEDS: u64 = 1_000_000_000_000;
/// In so many seeds every rare thing must have happened: the number of a night.
const NIGHTLY: u64 = 200_000;
/// Failures that are told in full; the others in one line.
const TOLD_IN_FULL: u64 = 10;

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    let options = options(args);
    let mut out = Lines::default();
    if let (Some(seed), Some(_)) = (args.seed, &args.only) {
        sim::check(seed, &options)
            .map_err(|error| Failure::new(NOT_RUN, format_args!("sim: --only: {error}")))?;
    }
    if let (Some(seed), true) = (args.seed, args.shrink) {
        let jobs = args.jobs.unwrap_or(cores());
        return shrink::smallest(seed, jobs, options, &mut out);
    }
    if args.mutants {
        let first = args.seed.unwrap_or(1);
        let jobs = args.jobs.unwrap_or(cores());
        return mutants::table(first, jobs, &options, &mut out);
    }
    worlds(args, options, &mut out)
}

fn options(args: &SimArgs) -> RunOptions {
    RunOptions {
        trace: args.trace,
        size: match args.size {
            SimSize::Mixed => Size::Mixed,
            SimSize::Small => Size::Small,
            SimSize::Large => Size::Large,
        },
        only: args.only.clone().unwrap_or_default(),
        ..RunOptions::default()
    }
}

/// The command that runs a world again.
fn again(seed: u64, options: &RunOptions) -> String {
    let size = match options.size {
        Size::Mixed => "",
        Size::Small => " --size small",
        Size::Large => " --size large",
    };
    let only = match &options.only {
        all if *all == Only::default() => String::new(),
        some => format!(" --only {some}"),
    };
    format!("ariel sim --seed {seed}{size}{only}")
}

fn worlds(args: &SimArgs, options: RunOptions, out: &mut Lines) -> Result<ExitCode, Failure> {
    let worlds = range(args);
    let jobs = args.jobs.unwrap_or(if args.trace { 1 } else { cores() });
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    signals::on_end(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::of("sim: signals", error))?;
    if args.forever {
        out.line(&format!(
            "seeds from {} on, on {jobs} threads",
            worlds.first()
        ));
    }
    let mut progress = Progress::new();
    let news = fleet::start(worlds.clone(), jobs, options.clone(), stop)
        .map_err(|error| Failure::of("sim: threads", error))?;
    let mut all = Summary::default();
    loop {
        match news.recv_timeout(progress.patience()) {
            Ok(news) => {
                all.merge(&news.summary);
                if !news.trace.is_empty() || news.failure.is_some() {
                    progress.clear();
                    show(&news, all.failures, &options, out);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.tell(&all);
    }
    progress.conclude(&all);
    if args.coverage {
        for (rare, count) in all.rarities() {
            out.line(&format!("{count:>10}  {}", rare.text()));
        }
    }
    conclude(&worlds, &all, out)
}

/// The worlds that are asked for.
fn range(args: &SimArgs) -> Worlds {
    if args.forever {
        let first = args
            .seed
            .unwrap_or_else(|| net::entropy::seed() % RANDOM_SEEDS);
        return Worlds::From(first, u64::MAX);
    }
    if !args.like.is_empty() {
        return Worlds::Like(args.like.clone(), args.count.unwrap_or(DEFAULT_COUNT));
    }
    let first = args.seed.unwrap_or(1);
    let one = args.seed.is_some();
    let count = args.count.unwrap_or(if one { 1 } else { DEFAULT_COUNT });
    Worlds::From(first, count)
}

fn cores() -> u16 {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    u16::try_from(cores).unwrap_or(u16::MAX)
}

fn show(news: &News, failures: u64, options: &RunOptions, out: &mut Lines) {
    for line in &news.trace {
        out.line(line);
    }
    let Some((failure, only)) = &news.failure else {
        return;
    };
    let (seed, what) = (failure.seed, failure.what.as_str());
    let first = what.lines().next().unwrap_or_default();
    let told = if failures <= TOLD_IN_FULL {
        what
    } else {
        first
    };
    out.line(&format!("seed {seed} FAILED: {told}"));
    let part = RunOptions {
        only: only.clone(),
        ..options.clone()
    };
    let again = again(seed, &part);
    out.line(&format!("  again, with all that happened: {again} --trace"));
    out.line(&format!(
        "  what is needed for it to fail: {again} --shrink"
    ));
}

/// The same seeds give the same lines: lines that depend on the machine are on standard error.
fn conclude(worlds: &Worlds, all: &Summary, out: &mut Lines) -> Result<ExitCode, Failure> {
    let Summary {
        seeds, failures, ..
    } = *all;
    let sum = &all.all;
    out.line(&match worlds {
        Worlds::From(first, _) => format!("{seeds} seeds from {first} on, {failures} failed"),
        Worlds::Like(like, _) => format!(
            "{seeds} worlds like those of {} seeds, {failures} failed",
            like.len()
        ),
    });
    out.line(&format!(
        "{} calls, {} messages, {} values judged, {} not (too many calls open at once); longest \
         call {} ms of virtual time",
        sum.calls,
        sum.messages,
        sum.values,
        sum.unknown,
        sum.longest_ns / 1_000_000
    ));
    let never = |(rare, count): (Rare, u64)| (count == 0).then(|| rare.text());
    let missed: Vec<&str> = all.rarities().filter_map(never).collect();
    // Worlds like some others do not have all that worlds may have.
    let nightly = matches!(worlds, Worlds::From(..)) && seeds >= NIGHTLY;
    if failures == 0 && nightly && !missed.is_empty() {
        let what = format_args!("sim: never in {seeds} seeds: {}", missed.join("; ")).to_string();
        return Err(Failure::new(FAILED, what));
    }
    if failures == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        FAILED,
        format_args!(
            "sim: {failures} of {seeds} seeds failed: see above, and replay one with \
             `ariel sim --seed N --trace`"
        ),
    ))
}

/// Lines on standard output. A reader that closes the pipe has seen enough; the exit code still
/// tells.
#[derive(Default)]
struct Lines {
    lost: bool,
}

impl Lines {
    fn line(&mut self, line: &str) {
        self.lost = self.lost || writeln!(std::io::stdout(), "{line}").is_err();
    }
}
