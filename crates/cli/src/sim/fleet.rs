//! Many worlds at once: threads that take one seed after the other.
//!
//! Guarantees: each world is run once, whatever the number of threads; one that failed, or was
//! traced, is handed over at once; a caller that asks for the end waits for the worlds under way
//! and for no others. An outcome does not depend on the thread that runs its world: a world shares
//! nothing with another.

use sim::{Failure, Only, RunOptions, Summary, run_traced};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Seeds that a thread runs before it tells, unless it has something to show.
const BATCH: u64 = 16;

/// The worlds to be run, numbered from 0 on.
#[derive(Clone, Debug)]
pub(super) enum Worlds {
    /// Those of this seed and of as many behind it, less one.
    From(u64, u64),
    /// Of each of these seeds so many, each with another salt.
    Like(Vec<u64>, u64),
}

impl Worlds {
    /// The seed of the first one.
    pub(super) fn first(&self) -> u64 {
        match self {
            Self::From(first, _) => *first,
            Self::Like(seeds, _) => seeds.first().copied().unwrap_or_default(),
        }
    }

    /// The seed of a world, and its salt if it is not as its seed draws it. None: there is no such.
    fn world(&self, number: u64) -> Option<(u64, Option<u32>)> {
        match self {
            Self::From(first, count) => {
                let seed = first.checked_add(number)?;
                (number < *count).then_some((seed, None))
            }
            Self::Like(seeds, count) => {
                let of_each = number.checked_div(seeds.len() as u64)?;
                let seed = seeds.get((number % seeds.len() as u64) as usize)?;
                let salt = u32::try_from(of_each + 1).ok()?;
                (of_each < *count).then_some((*seed, Some(salt)))
            }
        }
    }
}

/// A thread's report.
#[derive(Default)]
pub(super) struct News {
    /// Of the seeds since it told last.
    pub(super) summary: Summary,
    /// The trace of the last of them, if it was asked for.
    pub(super) trace: Vec<String>,
    /// The last of them failed, which was this part of its seed's world.
    pub(super) failure: Option<(Failure, Only)>,
}

/// The threads' shared state.
struct Work {
    next: AtomicU64,
    worlds: Worlds,
    stop: Arc<AtomicBool>,
    options: RunOptions,
}

/// Starts the threads. The channel ends when the worlds do, or some time after `stop` is set.
pub(super) fn start(
    worlds: Worlds,
    jobs: u16,
    options: RunOptions,
    stop: Arc<AtomicBool>,
) -> std::io::Result<Receiver<News>> {
    let work = Arc::new(Work {
        next: AtomicU64::new(0),
        worlds,
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
    let mut options = work.options.clone();
    while !work.stop.load(Ordering::Relaxed) {
        let number = work.next.fetch_add(1, Ordering::Relaxed);
        let Some((seed, salt)) = work.worlds.world(number) else {
            break;
        };
        if let Some(salt) = salt {
            options.only = Only::salt(salt);
        }
        let (outcome, trace) = run_traced(seed, &options);
        news.summary.add(&outcome);
        news.trace = trace;
        news.failure = outcome.err().map(|failure| (failure, options.only.clone()));
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
            let news =
                start(Worlds::From(1, 39), jobs, RunOptions::default(), stop).expect("threads");
            let mut all = Summary::default();
            news.iter().for_each(|news| all.merge(&news.summary));
            all
        };
        let (alone, many) = (all(1), all(5));
        assert_eq!(alone.seeds, 39);
        assert_eq!(alone, many);
    }

    #[test]
    fn each_seed_has_as_many_worlds_like_its_own() {
        let worlds = Worlds::Like(vec![7, 9], 2);
        let all: Vec<_> = (0..5).map(|number| worlds.world(number)).collect();
        let of = |seed, salt| Some((seed, Some(salt)));
        assert_eq!(all, [of(7, 1), of(9, 1), of(7, 2), of(9, 2), None]);
    }

    #[test]
    fn who_is_asked_to_stop_stops() {
        let stop = Arc::new(AtomicBool::new(false));
        let worlds = Worlds::From(1, u64::MAX);
        let news = start(worlds, 2, RunOptions::default(), Arc::clone(&stop)).expect("threads");
        let first = news.recv().expect("something was run");
        assert!(first.summary.seeds > 0);
        stop.store(true, Ordering::Relaxed);
        assert!(news.iter().count() < 1_000); // and the channel ends
    }
}
