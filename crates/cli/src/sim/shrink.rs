//! `ariel sim --seed N --shrink`: the smallest part of a failing world that fails in the same way.

use super::{Lines, again};
use crate::failure::{FAILED, Failure};
use crate::signals;
use sim::{Only, RunOptions, Search, Step};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Worlds that are run at most.
const RUNS: u64 = 30_000;

/// Prints it, and what happens in it. The exit code is that of a world that is wrong.
pub(super) fn smallest(
    seed: u64,
    jobs: u16,
    options: RunOptions,
    out: &mut Lines,
) -> Result<ExitCode, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    signals::on_end(move || asked.store(true, Ordering::Relaxed))
        .map_err(|error| Failure::of("sim: signals", error))?;
    // A world may fail by a panic, hundreds of times; it is reported once, as the world's failure.
    std::panic::set_hook(Box::new(|_| ()));
    let search = Search {
        runs: RUNS,
        first: &|candidates, test| first(jobs, candidates, test),
        tell: &mut tell,
        stop: &|| stop.load(Ordering::Relaxed),
    };
    let options = RunOptions {
        trace: true,
        ..options
    };
    let shrunk = sim::shrink(seed, &options, search).map_err(|sim::NotFailing| {
        let again = again(seed, &options);
        let what =
            format_args!("sim: `{again}` shows nothing wrong: there is nothing to leave out")
                .to_string();
        Failure::new(FAILED, what)
    })?;
    for line in &shrunk.failure.trace {
        out.line(line);
    }
    out.line(&format!("seed {seed} FAILED: {}", shrunk.failure.what));
    out.line(&format!("  all:    {}", shrunk.whole));
    out.line(&format!("  needed: {}", shrunk.left));
    let left = RunOptions {
        only: shrunk.only,
        ..options
    };
    out.line(&format!("  again:  {} --trace", again(seed, &left)));
    let more = if shrunk.done {
        "none of it can be left out"
    } else {
        "the search was ended: more might be left out"
    };
    let what = format_args!("sim: seed {seed} fails, see above; {more}").to_string();
    Err(Failure::new(FAILED, what))
}

fn tell(step: &Step) {
    // Where standard error is gone, nobody wants to know.
    let _ = writeln!(
        std::io::stderr(),
        "{:>6} worlds run; left: {}",
        step.runs,
        step.left
    );
}

/// The first candidate that passes the test, whichever is tried first.
fn first(jobs: u16, candidates: &[Only], test: &(dyn Fn(&Only) -> bool + Sync)) -> Option<usize> {
    let (next, found) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Those before the first that was found are still to be tried, and are under way.
            if at >= candidates.len() || at > found.load(Ordering::Relaxed) {
                return;
            }
            if test(&candidates[at]) {
                found.fetch_min(at, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..usize::from(jobs).min(candidates.len()) {
            scope.spawn(work);
        }
    });
    let found = found.into_inner();
    (found < candidates.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_found_on_any_number_of_threads() {
        let candidate = |salt: usize| format!("salt={}", salt + 1).parse().expect("a salt");
        let candidates: Vec<Only> = (0..40).map(candidate).collect();
        for jobs in [1, 3, 16] {
            for at in 0..40 {
                let late = |only: &Only| candidates[at..].contains(only);
                assert_eq!(first(jobs, &candidates, &late), Some(at));
            }
            assert_eq!(first(jobs, &candidates, &|_| false), None);
            assert_eq!(first(jobs, &[], &|_| true), None);
        }
    }
}
