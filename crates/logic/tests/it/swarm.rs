//! Many clients that cache one directory: the cost of a change of a name in it for the server,
//! counted in requests judged and holders looked at, not in time. The cost of one change grows with
//! the number of the holders, and that of many at once with the number of questions asked.
//!
//!     cargo test -p ariel-logic --test it -- --nocapture swarm     with the figures
//!     ARIEL_LONG=1 cargo test --release -p ariel-logic --test it -- --nocapture swarm
//!                                                                  the same with milliseconds

use crate::support::swarm::{Cost, Swarm};

const SIZES: [u64; 6] = [25, 50, 100, 200, 400, 1000];

fn told(what: &str, (holders, writers): (u64, u64), cost: Cost) {
    let Cost {
        judged,
        looked,
        recalls,
        took_us,
    } = cost;
    println!(
        "{what}: {holders} holders, {writers} writers: {judged} requests judged, {looked} holders \
         looked at, {recalls} recalls, {took_us} us in the machine"
    );
}

#[test]
fn one_create_costs_each_holder_a_question() {
    for holders in SIZES {
        let mut swarm = Swarm::new(holders);
        let cost = swarm.creates(1);
        told("one create", (holders, 1), cost);
        assert!(cost.recalls <= holders, "{cost:?}");
        assert!(cost.judged <= 4, "{cost:?}");
        assert!(cost.looked <= 12 * holders + 100, "{cost:?}");
    }
}

#[test]
fn creates_at_once_cost_no_more_than_their_questions() {
    for (holders, writers) in [(100, 1), (100, 10), (100, 50), (100, 100), (200, 200)] {
        let mut swarm = Swarm::new(holders);
        let cost = swarm.creates(writers);
        told("at once", (holders, writers), cost);
        assert!(cost.recalls <= 8 * holders + 4 * writers, "{cost:?}");
        assert!(cost.judged <= 8 * writers + 8, "{cost:?}");
        assert!(cost.looked <= 24 * holders * writers + 1000, "{cost:?}");
    }
}

/// The same name at once: one makes it, the others are told that it is there.
#[test]
fn who_wants_the_same_name_waits_for_one() {
    for clients in [25, 50, 100, 200] {
        let mut swarm = Swarm::new(clients);
        let cost = swarm.creates_one_name(clients);
        told("one name", (clients, clients), cost);
        assert!(cost.judged <= 12 * clients, "{cost:?}");
        assert!(cost.looked <= 40 * clients * clients, "{cost:?}");
    }
}

/// A file that all have read is changed.
#[test]
fn a_file_that_all_cache_is_taken_from_each_once() {
    for holders in SIZES {
        let mut swarm = Swarm::new(holders);
        let cost = swarm.chmod();
        told("a chmod", (holders, 1), cost);
        assert!(cost.recalls <= holders, "{cost:?}");
        assert!(cost.looked <= 12 * holders + 100, "{cost:?}");
    }
}

/// A volume of which one client has many files for itself is frozen: in rounds, if they are very
/// many.
#[test]
fn a_snapshot_costs_each_file_that_somebody_has_alone_a_question() {
    for files in [50, 400, 1500, 20_000] {
        let mut swarm = Swarm::new(2);
        let cost = swarm.snapshot(files);
        told("a snapshot", (files, 1), cost);
        assert!(cost.recalls <= files + 4, "{cost:?}");
        assert!(cost.looked <= 12 * files + 100, "{cost:?}");
        // The client still shares all of them: that costs the next snapshot nothing.
        let cost = swarm.makes_snapshot("later");
        told("the next snapshot", (files, 1), cost);
        assert!(cost.looked <= 20 && cost.recalls == 0, "{cost:?}");
    }
}

/// A client that may have nameless files open comes to its end: those of others cost nothing.
#[test]
fn nameless_files_of_others_cost_nothing_when_one_that_was_away_ends() {
    for (own, others) in [(10, 10), (10, 400), (40, 10)] {
        let mut swarm = Swarm::new(2);
        let cost = swarm.leaves_nameless(own, others);
        told("an end", (own, 1), cost);
        assert!(
            cost.looked <= 4 * own + 20,
            "{cost:?} for {own} of {others}"
        );
    }
}
