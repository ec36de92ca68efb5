//! The model check: the very machines of `logic`, a few clients, one file or one name, and every
//! order in which messages, calls, kernels and deadlines can follow each other, with a bounded
//! number of losses, repetitions and delays. In each state no two rights conflict, the server
//! believes what is held, and kernels keep only what a right covers; each answer is one that a
//! single machine could have given; from the end of each way everybody gets an answer.
//! `docs/model.md` says what was explored, and what that does not show.
//!
//!     cargo test -p ariel-sim --test model -- --nocapture     with the numbers of states
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod disk;
mod host;
mod hub;
mod judge;
mod link;
mod memo;
mod search;
mod steps;
mod world;

use judge::Do::{self, *};
use logic::{client, server};
use search::{Explored, explore};
use world::Scenario;

const PLAIN: Scenario = Scenario {
    file: true,
    before: &[(0, Lookup), (1, Lookup)],
    programs: &[],
    lose: 0,
    repeat: 0,
    delay: 0,
    ticks: 0,
    depth: usize::MAX,
    client_mutant: None,
    server_mutant: None,
};

/// One writes, one reads through the page cache.
const SHARED: Scenario = Scenario {
    programs: &[
        &[OpenWrite, Write(1), Close],
        &[OpenRead, Read, Read, Close],
    ],
    ..PLAIN
};
/// Both write.
const WRITERS: Scenario = Scenario {
    programs: &[
        &[OpenWrite, Write(1), Read, Close],
        &[OpenWrite, Write(2), Read, Close],
    ],
    ..PLAIN
};
/// Both append, and look at the size.
const APPENDS: Scenario = Scenario {
    programs: &[
        &[OpenWrite, Append, Close],
        &[Stat, OpenWrite, Append, Stat],
    ],
    ..PLAIN
};
/// A file with changes that are nowhere else is wanted by another machine.
const DIRTY: Scenario = Scenario {
    before: &[(0, Lookup), (1, Lookup), (0, OpenWrite), (0, Write(1))],
    programs: &[&[Write(2), Close], &[OpenRead, Read, Close, Stat]],
    ..PLAIN
};
/// A name comes and goes.
const NAMES: Scenario = Scenario {
    file: false,
    programs: &[&[Create, Unlink], &[Lookup, Create, Lookup]],
    ..PLAIN
};
/// The same, but short enough to be explored whole.
const NAME: Scenario = Scenario {
    programs: &[&[Create], &[Lookup, Create]],
    ..NAMES
};
/// The first calls of sessions in which nothing was heard.
const FIRST: Scenario = Scenario {
    file: false,
    before: &[],
    programs: &[&[Create], &[Lookup, Create]],
    ..PLAIN
};
const ALL_THREE: &[(usize, Do)] = &[(0, Lookup), (1, Lookup), (2, Lookup)];
const THREE: Scenario = Scenario {
    before: ALL_THREE,
    programs: &[&[OpenWrite, Write(1)], &[OpenRead, Read], &[OpenRead, Read]],
    ..PLAIN
};
const THREE_NAMES: Scenario = Scenario {
    file: false,
    before: ALL_THREE,
    programs: &[&[Create], &[Unlink, Lookup], &[Lookup, Lookup]],
    ..PLAIN
};

#[track_caller]
fn sound(what: &str, scenario: &Scenario) -> Explored {
    let explored = explore(scenario);
    let (states, depth) = (explored.states, explored.depth);
    let how = if explored.whole { "whole" } else { "cut" };
    println!(
        "{what}: {states} states, depth {depth} ({how}), {} ends",
        explored.finished
    );
    if let Some((wrong, way)) = &explored.wrong {
        panic!("{what}: {wrong}\n  {}", way.join("\n  "));
    }
    explored
}

/// Everything that can happen with one message repeated.
#[track_caller]
fn sound_with_one_repeated(what: &str, scenario: &Scenario) {
    let repeated = Scenario {
        repeat: 1,
        ..scenario.clone()
    };
    assert!(sound(&format!("{what}, one repeated"), &repeated).whole);
}

/// Everything that can happen with at most one message delayed; what begins within `depth` steps
/// with one lost or with two deadlines.
#[track_caller]
fn sound_with_faults(what: &str, scenario: &Scenario, depth: usize) {
    assert!(sound_within(what, scenario, (usize::MAX, depth)).whole);
}

/// The scenario with at most one message delayed, begun within so many steps; and with one message
/// lost or with two deadlines, begun within so many. The result is that of the first.
#[track_caller]
fn sound_within(what: &str, scenario: &Scenario, (delayed, others): (usize, usize)) -> Explored {
    let with = |lose, delay, ticks, depth| Scenario {
        lose,
        delay,
        ticks,
        depth,
        ..scenario.clone()
    };
    sound(
        &format!("{what}, one lost and a deadline"),
        &with(1, 0, 1, others),
    );
    sound(&format!("{what}, two deadlines"), &with(0, 0, 2, others));
    sound(&format!("{what}, one delayed"), &with(0, 1, 0, delayed))
}

#[test]
fn a_reader_and_a_writer() {
    sound_with_faults("reader and writer", &SHARED, 18);
}

#[test]
fn a_reader_and_a_writer_with_one_message_repeated() {
    sound_with_one_repeated("reader and writer", &SHARED);
}

#[test]
fn a_pair_of_writers() {
    sound_with_faults("two writers", &WRITERS, 16);
}

/// The longest of all: its name has it begin early, so that it does not run alone at the end.
#[test]
fn a_pair_of_writers_with_one_message_repeated() {
    sound_with_one_repeated("two writers", &WRITERS);
}

#[test]
fn appends_and_sizes() {
    sound_with_faults("appends and sizes", &APPENDS, 16);
}

#[test]
fn appends_and_sizes_with_one_message_repeated() {
    sound_with_one_repeated("appends and sizes", &APPENDS);
}

#[test]
fn changes_that_are_nowhere_else() {
    sound_with_faults("changes nowhere else", &DIRTY, 18);
}

#[test]
fn changes_that_are_nowhere_else_with_one_message_repeated() {
    sound_with_one_repeated("changes nowhere else", &DIRTY);
}

#[test]
fn a_name_that_comes_and_goes() {
    // Each recall of a name may end in two ways, and a change that is put back begins again: too
    // many states to see all with a fault.
    let repeated = Scenario {
        repeat: 1,
        depth: 18,
        ..NAMES
    };
    let whole = Scenario { delay: 1, ..NAME };
    assert!(sound("a name made twice, one delayed", &whole).whole);
    assert!(sound("a name", &NAMES).whole);
    sound("a name, one repeated", &repeated);
    sound_within("a name", &NAMES, (24, 14));
}

#[test]
fn first_calls_of_sessions() {
    let lost = Scenario { lose: 1, ..FIRST };
    assert!(sound("first calls, one lost", &lost).whole);
}

#[test]
fn three_machines() {
    let some = |scenario: &Scenario| Scenario {
        delay: 1,
        depth: 16,
        ..scenario.clone()
    };
    sound("three machines, a file, one delayed", &some(&THREE));
    sound("three machines, a name, one delayed", &some(&THREE_NAMES));
}

/// One planted fault, in the scenario that shows it soonest.
struct Planted {
    what: &'static str,
    scenario: Scenario,
}

fn in_client(mutant: client::Mutant, (what, scenario): (&'static str, Scenario)) -> Planted {
    let scenario = Scenario {
        client_mutant: Some(mutant),
        ..scenario
    };
    Planted { what, scenario }
}

fn in_server(mutant: server::Mutant, (what, scenario): (&'static str, Scenario)) -> Planted {
    let scenario = Scenario {
        server_mutant: Some(mutant),
        ..scenario
    };
    Planted { what, scenario }
}

#[test]
fn planted_faults_are_found() {
    use client::Mutant as C;
    use server::Mutant as S;
    let shared = || ("reader and writer", SHARED);
    let names = || ("a name", NAMES);
    let all = [
        in_client(C::IgnoresEpochs, shared()),
        in_client(C::ReturnsBeforeInvalidating, shared()),
        in_client(C::ReturnsBeforeWritingBack, shared()),
        in_client(C::AttributesWithoutToken, shared()),
        in_client(C::IgnoresVersions, shared()),
        in_client(C::KeepsNames, names()),
        in_client(C::NamesWithoutToken, names()),
        in_client(C::PutsBackTwice, names()),
        in_server(S::IgnoresExclusive, shared()),
        in_server(S::ForgetsNames, names()),
        in_server(S::DoesWhatIsPutBack, names()),
    ];
    let missed: Vec<String> = all.into_iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The fault, if no way with one delayed message shows it.
fn missed(Planted { what, scenario }: Planted) -> Option<String> {
    let (client, server) = (scenario.client_mutant, scenario.server_mutant);
    let client = client.map(|mutant| format!("{mutant:?}"));
    let mutant = client.or_else(|| server.map(|mutant| format!("{mutant:?}")));
    let explored = explore(&Scenario {
        delay: 1,
        ..scenario
    });
    let (states, depth) = (explored.states, explored.depth);
    if explored.wrong.is_none() {
        return mutant;
    }
    println!("{mutant:?}: in \"{what}\", after {states} states, depth {depth}");
    None
}
