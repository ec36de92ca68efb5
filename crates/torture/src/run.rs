//! A run: starts the workers, gives them their rounds, kills what is to be killed, and has the
//! judge look at each round. A round ends when all workers have answered, so between rounds nothing
//! is under way, and histories stay short.
//!
//! This process never touches the mounts itself: one that hangs holds up a worker, not the verdict.

use crate::crew::{Crew, End, Link};
use crate::history::Operation;
use crate::judge::Judge;
use crate::kill::{Killer, Kills};
use crate::plan::{Abilities, Clock, Limit, Options, Order, Plan};
use crate::random::Random;
use crate::report::Report;

/// Most violations that are told: one is bad enough, and a run ends with the first round that has.
const VIOLATIONS: usize = 3;

/// The services that a run needs from outside.
pub struct Outside<'a> {
    /// Stamps of all processes.
    pub clock: Clock,
    /// Starts a worker that does `work`.
    pub launch: &'a mut dyn FnMut(&Plan) -> std::io::Result<Link>,
    /// Crashes.
    pub kills: Kills,
    /// Told after each round; says whether to go on.
    pub progress: &'a mut dyn FnMut(&Progress) -> bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since it began.
    pub elapsed_ns: u64,
    /// Rounds that were judged.
    pub rounds: u64,
    /// Operations in them.
    pub operations: u64,
    /// Crashes so far.
    pub kills: u64,
}

/// Runs. An error says why it could not be run.
pub fn run(options: &Options, outside: Outside<'_>) -> Result<Report, String> {
    let dir = format!(".torture-{}-{}", options.seed, std::process::id());
    let mut report = Report::new(options, (outside.clock)());
    let kills = outside.kills.any();
    let mut crew = Crew::start(options, (&dir, kills), outside.launch)?;
    let all: Vec<usize> = (0..crew.plans.len()).collect();
    let can = match set_up(&mut crew, &all) {
        Ok(can) => can,
        Err(end) => return Err(told(&crew, end)),
    };
    report.not_tried = can.missing();
    let (mounts, clock) = (&options.mounts, outside.clock);
    let killer = kills.then(|| Killer::start(outside.kills, mounts, options.seed, clock));
    let mut rounds = Rounds {
        options,
        can,
        clock: outside.clock,
        killer,
        judge: Judge::new(options.atomic),
        random: Random::of(options.seed, 0),
    };
    let ended = rounds.run(&mut crew, &mut report, outside.progress);
    report.took_ns = (outside.clock)().saturating_sub(report.began_ns);
    report.count(&rounds.judge);
    if let Some(killer) = rounds.killer {
        report.kills = killer.end()?;
    }
    match ended {
        Ok(()) => {}
        Err(End::Hanging(workers)) => {
            let hangs = |worker: &usize| {
                let name = crew.name(*worker);
                format!("{name} does not end its operation")
            };
            report.faults.extend(workers.iter().map(hangs));
            return Ok(report);
        }
        Err(end) => return Err(told(&crew, end)),
    }
    // Files that cannot be removed are no reason to withhold the verdict.
    let _ = crew.order(&[0], Order::Clean);
    Ok(report)
}

fn told(crew: &Crew, end: End) -> String {
    match end {
        End::Failed(error) => error,
        End::Hanging(workers) => {
            let names: Vec<String> = workers.iter().map(|worker| crew.name(*worker)).collect();
            format!("no answer while preparing from {}", names.join(", "))
        }
    }
}

fn set_up(crew: &mut Crew, all: &[usize]) -> Result<Abilities, End> {
    let replies = crew.order(&all[..1], Order::Setup)?;
    let can = replies.first().map(|reply| reply.can).unwrap_or_default();
    crew.order(&all[1..], Order::Find)
        .map_err(|end| match end {
            End::Failed(error) => {
                End::Failed(format!("{error}: do all mounts show the same tree?"))
            }
            end => end,
        })?;
    Ok(can)
}

/// The rounds of a run.
struct Rounds<'a> {
    options: &'a Options,
    can: Abilities,
    clock: Clock,
    killer: Option<Killer>,
    judge: Judge,
    random: Random,
}

impl Rounds<'_> {
    fn run(
        &mut self,
        crew: &mut Crew,
        report: &mut Report,
        progress: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<(), End> {
        loop {
            let elapsed_ns = (self.clock)().saturating_sub(report.began_ns);
            let goes_on = progress(&Progress {
                elapsed_ns,
                rounds: report.rounds,
                operations: self.judge.operations(),
                kills: self.killer.as_ref().map_or(0, Killer::count),
            });
            let over = match self.options.limit {
                Limit::Time(ns) => elapsed_ns >= ns,
                Limit::Operations(count) => self.judge.operations() >= count,
            };
            let failed = self.killer.as_ref().is_some_and(Killer::has_failed);
            if !goes_on || over || failed || !report.violations.is_empty() {
                return Ok(());
            }
            let mut seen = self.round(crew, report.rounds)?;
            if let Some(killer) = &self.killer {
                seen.retain(|one| !killer.may_show_the_dead(one));
            }
            report.rounds += 1;
            report.violations = self.judge.round(seen);
            report.violations.sort_by_key(|one| one.operations.len());
            report.violations.truncate(VIOLATIONS);
        }
    }

    /// One round: what all workers have seen in it.
    fn round(&mut self, crew: &mut Crew, round: u64) -> Result<Vec<Operation>, End> {
        let all: Vec<usize> = (0..crew.plans.len()).collect();
        let of = |salt: u64| [((round + salt) % all.len() as u64) as usize];
        crew.order(&of(0), Order::Begin { round })?;
        let work = Order::Work {
            round,
            operations: 20 + self.random.below(180) as u32,
            can: self.can,
        };
        let mut replies = crew.order(&all, work)?;
        replies.extend(crew.order(&of(1), Order::End { round })?);
        Ok(replies.into_iter().flat_map(|one| one.operations).collect())
    }
}
