//! The table of planted faults: in how many worlds, and in how much time, each is found.
//!
//! One hunt says little: how many worlds it takes is a matter of luck. So each fault is hunted
//! several times from seeds far apart, and the table has the mean and the worst.

use super::Lines;
use crate::failure::{FAILED, Failure};
use rustix::time::{ClockId, clock_gettime};
use sim::{Caught, Mutant, RunOptions, hunt};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Hunts for each fault, and how far apart they begin; no hunt goes on for longer.
const HUNTS: u64 = 8;
const APART: u64 = 100_000;
const LIMIT: u64 = 20_000;

/// The outcome of the hunts for one fault.
struct Row {
    mutant: Mutant,
    /// The first hunt's.
    first: Option<Caught>,
    missed: u64,
    seeds: u64,
    worst: u64,
    cpu_ns: u64,
}

pub(super) fn table(
    first: u64,
    jobs: u16,
    options: &RunOptions,
    out: &mut Lines,
) -> Result<ExitCode, Failure> {
    out.line(&format!(
        "{:<34} {:>6} {:>6} {:>8}  first seed, and what it showed",
        "planted fault", "seeds", "worst", "seconds"
    ));
    let rows = rows(first, jobs, options);
    for row in &rows {
        out.line(&line(row));
    }
    let missed = rows.iter().filter(|row| row.missed > 0).count();
    let mean = |of: &dyn Fn(&Row) -> u64| {
        let sum: u64 = rows.iter().map(of).sum();
        sum as f64 / HUNTS as f64 / rows.len() as f64
    };
    out.line(&format!(
        "{} faults, {missed} missed; on the average {:.0} seeds and {:.3} seconds of a core",
        rows.len(),
        mean(&|row| row.seeds),
        mean(&|row| row.cpu_ns) / 1e9,
    ));
    if missed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let what = format_args!("sim: {missed} planted faults were not found each time").to_string();
    Err(Failure::new(FAILED, what))
}

/// Rows in the order of the faults, whichever thread was done first.
fn rows(first: u64, jobs: u16, options: &RunOptions) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            match Mutant::ALL.get(at) {
                Some(&mutant) => done.push((at, row(mutant, first, options))),
                None => return done,
            }
        }
    };
    let mut rows: Vec<(usize, Row)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let done = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or_default();
        threads.into_iter().flat_map(done).collect()
    });
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(mutant: Mutant, first: u64, options: &RunOptions) -> Row {
    let start = cpu_ns();
    let hunts = (0..HUNTS).map(|hunt_no| hunt(mutant, first + hunt_no * APART, LIMIT, options));
    let hunts: Vec<Option<Caught>> = hunts.collect();
    let seeds = |caught: &Option<Caught>| caught.as_ref().map_or(LIMIT, |caught| caught.seeds);
    Row {
        mutant,
        missed: hunts.iter().filter(|caught| caught.is_none()).count() as u64,
        seeds: hunts.iter().map(seeds).sum(),
        worst: hunts.iter().map(seeds).max().unwrap_or_default(),
        cpu_ns: cpu_ns() - start,
        first: hunts.into_iter().flatten().next(),
    }
}

fn line(row: &Row) -> String {
    let shown = row.first.as_ref().map_or("NOT FOUND".into(), |caught| {
        let what = caught.what.lines().next().unwrap_or_default();
        format!("{}: {what}", caught.seed)
    });
    format!(
        "{:<34} {:>6} {:>6} {:>8.3}  {shown:.110}",
        row.mutant.to_string(),
        row.seeds / HUNTS,
        row.worst,
        row.cpu_ns as f64 / 1e9 / HUNTS as f64,
    )
}

/// Time that this thread has been computing.
fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
