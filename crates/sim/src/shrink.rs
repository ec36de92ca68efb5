//! Makes a world that fails small: leaves out faults, machines, programs and calls as long as what
//! is left fails in the same way.
//!
//! Guarantees: the returned world fails with the same kind of violation as the whole world; the
//! number of runs is bounded; the result depends on the seed, the options and the bound alone, not
//! on how many worlds are run at once. When the bound was not met, no single thing that is left can
//! be left out (the algorithm is ddmin's: Zeller and Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input", without its tries of the parts themselves).
//!
//! First everything is drawn as in the whole world. When nothing more can be left out that way,
//! what is left is tried with other random numbers too, since a race may need two calls that meet,
//! and not those that once made them meet.

use crate::only::{CallId, Extra, Only, ProgramId};
use crate::plan::Plan;
use crate::run::{Failure, Played, RunOptions, play, run_traced};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Mutex;

/// Candidates that are thought of at once.
const WIDTH: usize = 8;
/// Other random numbers that are tried for each candidate.
const SALTS: u32 = 12;

/// Says which is the first of these candidates that passes the test.
pub type First<'a> = &'a dyn Fn(&[Only], &(dyn Fn(&Only) -> bool + Sync)) -> Option<usize>;

/// How a small world is searched.
pub struct Search<'a> {
    /// Runs at most, but for a few at the end.
    pub runs: u64,
    /// How candidates are run: one after the other, or many at once.
    pub first: First<'a>,
    /// Is told whenever a smaller world was found.
    pub tell: &'a mut dyn FnMut(&Step),
    /// Has somebody seen enough?
    pub stop: &'a dyn Fn() -> bool,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Worlds run so far.
    pub runs: u64,
    /// The size of the remaining world.
    pub left: Extent,
}

/// How large a run was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Machines, those included that took the place of others.
    pub machines: usize,
    /// Programs that made calls.
    pub programs: usize,
    /// Calls of programs.
    pub calls: usize,
    /// Faults that were scheduled.
    pub faults: usize,
    /// Messages lost.
    pub lost: usize,
    /// Messages that arrived twice.
    pub twice: usize,
    /// Messages sent.
    pub messages: u64,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = |count: usize, what: &str| {
            let end = if count == 1 { "" } else { "s" };
            format!("{count} {what}{end}")
        };
        write!(
            f,
            "{}, {}, {}, {}, {} messages ({} lost, {} twice)",
            many(self.machines, "machine"),
            many(self.programs, "program"),
            many(self.calls, "call"),
            many(self.faults, "fault"),
            self.messages,
            self.lost,
            self.twice,
        )
    }
}

/// A small world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The remaining part of the seed's world.
    pub only: Only,
    /// How that fails, with its trace if it was asked for.
    pub failure: Failure,
    /// The whole world.
    pub whole: Extent,
    /// The small one.
    pub left: Extent,
    /// Worlds run.
    pub runs: u64,
    /// Nothing more can be left out; otherwise the search was ended before that was known.
    pub done: bool,
}

/// The world of this seed shows nothing wrong, so there is nothing to make small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFailing;

/// Searches for the smallest part of a seed's world that fails as the whole world does.
///
/// # Errors
/// If the world does not fail.
pub fn shrink(seed: u64, options: &RunOptions, search: Search<'_>) -> Result<Shrunk, NotFailing> {
    let quiet = RunOptions {
        trace: false,
        ..options.clone()
    };
    let run = play(seed, &quiet);
    let Err(wrong) = run.outcome else {
        return Err(NotFailing);
    };
    let plan = Plan::draw(seed, options.size);
    let whole = extent(&quiet.only, &run.played);
    let mut shrinker = Shrinker {
        seed,
        options: quiet,
        class: wrong.class,
        best: explicit(&options.only, &plan, &run.played),
        played: run.played,
        plan,
        salts: 0,
        runs: 1,
        search,
    };
    let done = shrinker.search();
    let Shrinker {
        best, played, runs, ..
    } = shrinker;
    let replayed = RunOptions {
        only: best.clone(),
        ..options.clone()
    };
    let failure = run_traced(seed, &replayed).0;
    Ok(Shrunk {
        left: extent(&best, &played),
        only: best,
        failure: failure.expect_err("it failed before, and the same happens again"),
        whole,
        runs,
        done,
    })
}

/// Something that may be left out.
#[derive(Clone, Copy, Debug)]
enum Part {
    Fault(u32),
    AllLost,
    AllTwice,
    Extra(Extra),
    Machine(u32),
    Program(ProgramId),
    Call(CallId),
    Lost(u32),
    Twice(u32),
}

impl Only {
    /// The same without these. Their sort must be named in it.
    fn less(&self, parts: &[Part]) -> Self {
        let mut only = self.clone();
        for part in parts {
            only.leave_out(*part);
        }
        only
    }

    fn leave_out(&mut self, part: Part) {
        let calls = self.calls.get_or_insert_default();
        match part {
            Part::Fault(number) => {
                self.faults.get_or_insert_default().remove(&number);
            }
            Part::AllLost => self.lost = Some(BTreeSet::new()),
            Part::AllTwice => self.twice = Some(BTreeSet::new()),
            Part::Extra(extra) => {
                self.without.insert(extra);
            }
            Part::Machine(machine) => {
                self.machines.get_or_insert_default().remove(&machine);
                calls.retain(|id, _| id.0 != machine);
            }
            Part::Program(id) => {
                calls.remove(&id);
            }
            Part::Call((machine, program, call)) => {
                let id = (machine, program);
                if let Some(of) = calls.get_mut(&id) {
                    of.remove(&call);
                    if of.is_empty() {
                        calls.remove(&id);
                    }
                }
            }
            Part::Lost(number) => {
                self.lost.get_or_insert_default().remove(&number);
            }
            Part::Twice(number) => {
                self.twice.get_or_insert_default().remove(&number);
            }
        }
    }
}

/// The same world, with everything named that took part, but for lost and repeated messages.
fn explicit(only: &Only, plan: &Plan, played: &Played) -> Only {
    let machines = played.machines.iter().copied();
    Only {
        machines: Some(
            machines
                .filter(|&machine| machine <= plan.clients)
                .collect(),
        ),
        calls: Some(by_program(&played.calls)),
        faults: Some(played.faults.iter().copied().collect()),
        ..only.clone()
    }
}

fn by_program(calls: &[CallId]) -> BTreeMap<ProgramId, BTreeSet<u32>> {
    let mut all: BTreeMap<ProgramId, BTreeSet<u32>> = BTreeMap::new();
    for &(machine, program, call) in calls {
        all.entry((machine, program)).or_default().insert(call);
    }
    all
}

fn extent(only: &Only, played: &Played) -> Extent {
    let of = |most: u32, happens: &dyn Fn(u32) -> bool| (1..=most).filter(|&n| happens(n)).count();
    Extent {
        machines: played.machines.len(),
        programs: by_program(&played.calls).len(),
        calls: played.calls.len(),
        faults: played.faults.len(),
        lost: of(played.losses, &|number| only.is_lost(number)),
        twice: of(played.repetitions, &|number| only.is_twice(number)),
        messages: played.messages,
    }
}

struct Shrinker<'a> {
    seed: u64,
    options: RunOptions,
    plan: Plan,
    class: String,
    /// The smallest world so far, and what took part in it.
    best: Only,
    played: Played,
    /// How many other salts each candidate is tried with.
    salts: u32,
    runs: u64,
    search: Search<'a>,
}

impl Shrinker<'_> {
    /// True if nothing more can be left out.
    fn search(&mut self) -> bool {
        for salts in [0, SALTS] {
            self.salts = salts;
            while self.round() {}
        }
        let done = !self.spent();
        // Where the seed's own numbers do, no others need be named.
        self.salts = 0;
        let plain = Only {
            salt: self.options.only.salt,
            ..self.best.clone()
        };
        if plain != self.best {
            self.try_first(&[plain]);
        }
        done
    }

    fn spent(&self) -> bool {
        self.runs >= self.search.runs || (self.search.stop)()
    }

    /// Tries everything once; was something left out?
    fn round(&mut self) -> bool {
        let before = self.best.clone();
        self.minimize(self.faults());
        self.minimize(self.programs());
        while self.prefix() {}
        let calls = self.played.calls.iter().copied().map(Part::Call);
        self.minimize(calls.collect());
        let messages = self.messages();
        self.minimize(messages);
        let after = Only {
            salt: before.salt,
            ..self.best.clone()
        };
        after != before && !self.spent()
    }

    fn faults(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        let lost = |numbers: &Option<BTreeSet<u32>>| numbers.as_ref().is_none_or(|n| !n.is_empty());
        if lost(&self.best.lost) {
            parts.push(Part::AllLost);
        }
        if lost(&self.best.twice) {
            parts.push(Part::AllTwice);
        }
        let there = |extra: &Extra| match extra {
            Extra::Drift => self.plan.drift_ppm.iter().any(|&ppm| ppm != 0),
            Extra::Overtaking => self.plan.weather.overtakes,
            Extra::Pressure => true,
            Extra::Locks => self.plan.lockers > 0,
            Extra::Watches => self.plan.watches > 0,
            Extra::Snapshots => self.plan.snapshots > 0,
        };
        let extras = Extra::ALL.into_iter().filter(there);
        let extras = extras.filter(|extra| self.best.has(*extra));
        parts.extend(extras.map(Part::Extra));
        parts.extend(self.best.faults.iter().flatten().copied().map(Part::Fault));
        parts
    }

    /// Machines, but for the first, which makes the tree; and programs.
    fn programs(&self) -> Vec<Part> {
        let machines = self.best.machines.iter().flatten().copied();
        let machines = machines.filter(|&machine| machine > 1).map(Part::Machine);
        let programs = self.best.calls.iter().flatten();
        machines
            .chain(programs.map(|(id, _)| Part::Program(*id)))
            .collect()
    }

    /// Single messages that are lost or repeated, if there still are such.
    fn messages(&mut self) -> Vec<Part> {
        let name = |numbers: &mut Option<BTreeSet<u32>>, most: u32| {
            let numbers = numbers.get_or_insert_with(|| (1..=most).collect());
            numbers.retain(|&number| number <= most);
            numbers.clone()
        };
        let lost = name(&mut self.best.lost, self.played.losses);
        let twice = name(&mut self.best.twice, self.played.repetitions);
        let lost = lost.into_iter().map(Part::Lost);
        lost.chain(twice.into_iter().map(Part::Twice)).collect()
    }

    /// Leaves out the calls that began last; was that possible?
    fn prefix(&mut self) -> bool {
        let calls = self.played.calls.len();
        let lengths = [
            calls / 8,
            calls / 4,
            calls / 2,
            calls / 4 * 3,
            calls / 8 * 7,
        ];
        let calls = &self.played.calls;
        let cut = |&length: &usize| Only {
            calls: Some(by_program(&calls[..length])),
            ..self.best.clone()
        };
        let shorter = lengths.iter().filter(|&&length| length < calls.len());
        let candidates: Vec<Only> = shorter.map(cut).collect();
        self.try_first(&candidates).is_some()
    }

    /// Leaves out as many of these as possible: halves, quarters, ..., single ones.
    fn minimize(&mut self, mut parts: Vec<Part>) {
        let mut size = parts.len();
        while size > 0 {
            let mut found = false;
            let mut at = 0;
            while at < parts.len() {
                if self.spent() {
                    return;
                }
                let starts: Vec<usize> = (at..parts.len()).step_by(size).take(WIDTH).collect();
                let end = |start: usize| parts.len().min(start + size);
                let less = |&start: &usize| self.best.less(&parts[start..end(start)]);
                let candidates: Vec<Only> = starts.iter().map(less).collect();
                let next = starts.last().map_or(parts.len(), |&start| end(start));
                match self.try_first(&candidates) {
                    Some(index) => {
                        at = starts[index];
                        parts.drain(at..end(at));
                        found = true;
                    }
                    None => at = next,
                }
            }
            // A part that had to stay may be left out now that others are gone.
            if size > 1 || !found {
                size /= 2;
            }
        }
    }

    /// Takes the first of these that fails in the same way; which one?
    fn try_first(&mut self, candidates: &[Only]) -> Option<usize> {
        if self.spent() {
            return None;
        }
        let own = self.best.salt;
        let others = (1..=self.salts).filter(|&salt| salt != own);
        let salts: Vec<u32> = std::iter::once(own).chain(others).collect();
        let salted = |only: &Only| {
            let of = |&salt: &u32| {
                let salt = if self.salts == 0 { only.salt } else { salt };
                Only {
                    salt,
                    ..only.clone()
                }
            };
            salts.iter().map(of).collect::<Vec<Only>>()
        };
        let mut all: Vec<Only> = candidates.iter().flat_map(salted).collect();
        all.truncate(self.search.runs.saturating_sub(self.runs) as usize);
        let (seed, options, class) = (self.seed, &self.options, &self.class);
        let failed: Mutex<Vec<(Only, Played)>> = Mutex::default();
        let fails = |only: &Only| {
            let run = play(seed, &with(options, only));
            let fails = run.outcome.is_err_and(|wrong| wrong.class == *class);
            if fails {
                let mut failed = failed.lock().expect("nobody panics while it is held");
                failed.push((only.clone(), run.played));
            }
            fails
        };
        let found = (self.search.first)(&all, &fails);
        self.runs += found.map_or(all.len(), |index| index + 1) as u64;
        let index = found?;
        let failed = failed.into_inner().expect("nobody panicked");
        let mut failed = failed.into_iter();
        let is_found = |(only, _): &(Only, Played)| *only == all[index];
        (self.best, self.played) = failed.find(is_found).expect("it was run, and failed");
        (self.search.tell)(&Step {
            runs: self.runs,
            left: extent(&self.best, &self.played),
        });
        Some(index / salts.len())
    }
}

fn with(options: &RunOptions, only: &Only) -> RunOptions {
    RunOptions {
        only: only.clone(),
        ..options.clone()
    }
}
