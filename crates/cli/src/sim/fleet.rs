//! Many worlds at once: threads that take one seed after the other.
//!
//! Guarantees: each seed of the range is run once, whatever the number of threads; a seed that
//! failed, or was traced, is handed over at once; a caller that asks for the end waits for the
//! seeds under way and for no others. A seed's outcome does not depend on the thread that runs it:
//! a world shares nothing with another.

use sim::{Failure, RunOptions, Summary, run_traced};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Seeds that a thread runs before it tells, unless it has something to show.
const BATCH: u64 = 16;

/// A thread's report.
#[derive(Default)]
pub(super) struct News {
    /// Of the seeds since it told last.
    pub(super) summary: Summary,
    /// The trace of the last of them, if it was asked for.
    pub(super) trace: Vec<String>,
    /// The last of them failed.
    pub(super) failure: Option<Failure>,
}

/// The threads' shared state.
struct Work {
    next: AtomicU64,
    end: u64,
    stop: Arc<AtomicBool>,
    options: RunOptions,
}

/// Starts the threads. The channel ends when the range does, or some time after `stop` is set.
pub(super) fn start(
    seeds: Range<u64>,
    jobs: u16,
    options: RunOptions,
    stop: Arc<AtomicBool>,
) -> std::io::Result<Receiver<News>> {
    let work = Arc::new(Work {
        next: AtomicU64::new(seeds.start),
        end: seeds.end,
        stop,
        options,
    });
    let (tell, news) = channel();
    for number in 0..jobs {
        let (work, tell) = (Arc::clone(&work), tell.clone());
        thread::Builder::new()
            .name(format!("worlds {number}"))
            .spawn(move || run(&work, &tell))?;
    }
    Ok(news)
}

fn run(work: &Work, tell: &Sender<News>) {
    let mut news = News::default();
    while !work.stop.load(Ordering::Relaxed) {
        let seed = work.next.fetch_add(1, Ordering::Relaxed);
        if seed >= work.end {
            break;
        }
        let (outcome, trace) = run_traced(seed, &work.options);
        news.summary.add(&outcome);
        news.trace = trace;
        news.failure = outcome.err();
        let shows = news.failure.is_some() || !news.trace.is_empty();
        if (shows || news.summary.seeds >= BATCH) && tell.send(std::mem::take(&mut news)).is_err() {
            return; // nobody listens any more
        }
    }
    if news.summary.seeds > 0 {
        // As above.
        let _ = tell.send(news);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_is_run_once_and_its_outcome_does_not_depend_on_the_jobs() {
        let all = |jobs| {
            let stop = Arc::default();
            let news = start(1..40, jobs, RunOptions::default(), stop).expect("threads");
            let mut all = Summary::default();
            news.iter().for_each(|news| all.merge(&news.summary));
            all
        };
        let (alone, many) = (all(1), all(5));
        assert_eq!(alone.seeds, 39);
        assert_eq!(alone, many);
    }

    #[test]
    fn who_is_asked_to_stop_stops() {
        let stop = Arc::new(AtomicBool::new(false));
        let seeds = 1..u64::MAX;
        let news = start(seeds, 2, RunOptions::default(), Arc::clone(&stop)).expect("threads");
        let first = news.recv().expect("something was run");
        assert!(first.summary.seeds > 0);
        stop.store(true, Ordering::Relaxed);
        assert!(news.iter().count() < 1_000); // and the channel ends
    }
}
