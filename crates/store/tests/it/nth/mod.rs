//! The n-th failure: every call that a scenario makes to its disk goes wrong in turn, alone and
//! with all that follow, and is the last one in turn. In every case each answer is right or
//! names a failure, the store goes on (or, after a failed sync, refuses until it is opened again),
//! what was promised is there, and a check finds nothing.

mod judge;
mod mutants;
mod run;
mod scenario;
mod truth;

use ariel_store::{Failure, Fault, Keep, Verb};
use judge::{Point, attempt, uses};
use run::Engine;
use std::collections::BTreeMap;
use truth::Truth;

/// All of these in memory and in long runs. The engine's calls are many and much alike: each gets
/// one of these in turn.
fn turns<T: Copy>(engine: Engine, ways: &[T], at: u64) -> Vec<T> {
    if engine == Engine::Map || std::env::var_os("ARIEL_LONG").is_some() {
        return ways.to_vec();
    }
    vec![ways[at as usize % ways.len()]]
}

/// Each call of this verb that a scenario makes, in each way that it can go wrong.
fn failures(engine: Engine, verb: Verb, calls: u64) -> Vec<Point> {
    let mut ways = vec![(Fault::Fail, false), (Fault::Fail, true)];
    if matches!(verb, Verb::Read | Verb::Write) {
        ways.push((Fault::Half, false));
    }
    if verb.needs_room() {
        ways.extend([(Fault::Full, false), (Fault::Full, true)]);
    }
    if verb == Verb::Sync {
        ways.push((Fault::Drop, false));
    }
    let mut points = Vec::new();
    for at in 1..=calls {
        for (fault, lasting) in turns(engine, &ways, at) {
            let failure = Failure {
                verb: Some(verb),
                at,
                fault,
                lasting,
            };
            let keep = match at % 3 {
                0 => Keep::Synced,
                1 => Keep::Any(at),
                _ => Keep::Torn(60),
            };
            points.push(Point {
                engine,
                failure,
                keep,
            });
        }
    }
    points
}

/// The machine ends at each call that changes something.
fn crashes(engine: Engine, calls: u64) -> Vec<Point> {
    let point = |at, keep| Point {
        engine,
        failure: Failure {
            verb: None,
            at,
            fault: Fault::Die,
            lasting: true,
        },
        keep,
    };
    let keeps = |at| {
        [
            Keep::Synced,
            Keep::Written,
            Keep::Torn(50),
            Keep::Any(at),
            Keep::Any(at + 1_000),
        ]
    };
    let all = |at| turns(engine, &keeps(at), at);
    (1..=calls)
        .flat_map(|at| all(at).into_iter().map(move |keep| point(at, keep)))
        .collect()
}

/// How many points were tried, and what was wrong.
#[derive(Default)]
struct Tally {
    tried: BTreeMap<(&'static str, Option<Verb>), u64>,
    /// Where, and what.
    wrong: Vec<(String, String)>,
}

fn try_all(engine: Engine, choose: fn(Engine, Option<Verb>, u64) -> Vec<Point>) -> Tally {
    let mut tally = Tally::default();
    for scenario in &scenario::all() {
        // In memory, nothing is created on a disk that was not new.
        if engine == Engine::Map && scenario.before.is_none() {
            continue;
        }
        let truth = Truth::new(scenario);
        let uses = uses(&truth, engine).unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
        for (verb, calls) in uses {
            for point in choose(engine, verb, calls) {
                let tried = attempt(&truth, point, &scenario.options);
                let name = || format!("{}: {point:?}", scenario.name);
                match tried {
                    Ok(true) => *tally.tried.entry((scenario.name, verb)).or_default() += 1,
                    Ok(false) => tally.wrong.push((name(), "never came".to_owned())),
                    Err(what) => tally.wrong.push((name(), what)),
                }
            }
        }
    }
    tally
}

fn report(what: &str, tally: &Tally, least: u64) {
    let mut scenarios = BTreeMap::<_, BTreeMap<String, u64>>::new();
    for ((scenario, verb), tried) in &tally.tried {
        let verb = verb.map_or("end".to_owned(), |verb| format!("{verb:?}"));
        scenarios.entry(scenario).or_default().insert(verb, *tried);
    }
    for (scenario, verbs) in &scenarios {
        let verbs: Vec<_> = verbs
            .iter()
            .map(|(verb, n)| format!("{verb} {n}"))
            .collect();
        println!("{what}: {scenario}: {}", verbs.join(", "));
    }
    let all: u64 = tally.tried.values().sum();
    println!("{what}: {all} points");
    let wrong = &tally.wrong;
    // One of each kind says enough.
    let mut kinds = BTreeMap::new();
    for (point, what) in wrong {
        let kind = what.replace(|c: char| c.is_ascii_digit(), "");
        kinds.entry(kind).or_insert(format!("{point}: {what}"));
    }
    let first: Vec<_> = kinds.into_values().take(20).collect();
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        first.join("\n")
    );
    assert!(all >= least, "only {all} points were tried");
}

fn choose_failures(engine: Engine, verb: Option<Verb>, calls: u64) -> Vec<Point> {
    verb.map_or(Vec::new(), |verb| failures(engine, verb, calls))
}

fn choose_crashes(engine: Engine, verb: Option<Verb>, calls: u64) -> Vec<Point> {
    match verb {
        None => crashes(engine, calls),
        Some(_) => Vec::new(),
    }
}

fn every_verb(tally: &Tally, used: fn(Verb) -> bool) {
    for verb in Verb::ALL.into_iter().filter(|verb| used(*verb)) {
        let tried = tally.tried.keys().any(|(_, of)| *of == Some(verb));
        assert!(tried, "no scenario uses {verb:?}");
    }
}

#[test]
fn any_call_may_fail() {
    let tally = try_all(Engine::Map, choose_failures);
    every_verb(&tally, |verb| verb != Verb::Rename);
    report("a failure", &tally, 1_900);
}

#[test]
fn any_call_may_fail_of_the_engine_too() {
    let tally = try_all(Engine::Redb, choose_failures);
    // An index takes the place of another one only where that is damaged.
    every_verb(&tally, |verb| {
        !matches!(verb, Verb::Look | Verb::Commit | Verb::Rename)
    });
    report("a failure, redb", &tally, 1_000);
}

#[test]
fn any_call_may_be_the_last() {
    let tally = try_all(Engine::Map, choose_crashes);
    report("a crash", &tally, 800);
}

#[test]
fn any_call_may_be_the_last_of_the_engine_too() {
    let tally = try_all(Engine::Redb, choose_crashes);
    report("a crash, redb", &tally, 400);
}

/// Every so many bytes of a log, one that rots.
const ROT_STEP: usize = 97;

#[test]
fn any_byte_may_rot() {
    let mut tally = Tally::default();
    for scenario in scenario::all().iter().filter(|s| s.before.is_some()) {
        let truth = Truth::new(scenario);
        for at in (0..).step_by(ROT_STEP) {
            match judge::rot(&truth, at, &scenario.options) {
                Ok(true) => *tally.tried.entry((scenario.name, None)).or_default() += 1,
                Ok(false) => break,
                Err(what) => tally
                    .wrong
                    .push((format!("{}: byte {at}", scenario.name), what)),
            }
        }
    }
    report("rot", &tally, 1_000);
}
