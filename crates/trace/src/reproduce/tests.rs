//! The short form of the reproduction: order and size of the paper's effects, and ours beside
//! N-chance forwarding.

use super::lab::{Lab, Subject, ms, speed_up};
use super::*;
use crate::count::{Counts, Level, Prices};
use crate::workloads::Workload;
use logic::peers::Policy;

fn run(lab: &Lab, policy: Policy) -> Counts {
    lab.subject(Subject::Policy(policy))
}

/// The paper's speed-ups, within a tenth, for a seed that the parameters were not chosen with.
#[test]
fn the_papers_speed_ups_come_out() {
    let lab = Lab::new(2);
    let off = run(&lab, Policy::Off);
    for policy in Policy::ALL {
        let Some(expected) = paper::sprite(policy).and_then(|result| result.speed_up) else {
            continue;
        };
        let measured = speed_up(&off, &run(&lab, policy), &Prices::PAPER);
        let off_by = (measured / expected - 1.0).abs();
        assert!(
            off_by < 0.1,
            "{}: {measured:.2}, paper {expected}",
            policy.word()
        );
    }
}

#[test]
fn the_papers_hit_rates_come_out() {
    let lab = Lab::new(1);
    let near = |measured: f64, expected: f64, of: &str| {
        assert!(
            (measured / expected - 1.0).abs() < 0.1,
            "{of}: {measured:.3}, paper {expected}"
        );
    };
    for policy in [Policy::Off, Policy::Central, Policy::NChance] {
        let counts = run(&lab, policy);
        let paper = paper::sprite(policy).unwrap();
        near(counts.share(Level::Disk), paper.disk.unwrap(), "disk");
        near(
            counts.local_misses(),
            paper.local_misses.unwrap(),
            "local misses",
        );
    }
}

/// On each trace our algorithm is at least as good as N-chance forwarding by all that is counted,
/// and clearly better by load and messages.
#[test]
fn ours_is_at_least_as_good_as_n_chance() {
    for workload in [Workload::Sprite, Workload::Build, Workload::Train] {
        let lab = Lab::of(workload, 3);
        let (theirs, ours) = (run(&lab, Policy::NChance), run(&lab, Policy::Fleet));
        let word = workload.word();
        assert!(
            ms(&ours) <= ms(&theirs) * 1.005,
            "{word}: {} {}",
            ms(&ours),
            ms(&theirs)
        );
        let disk = |counts: &Counts| counts.share(Level::Disk);
        assert!(disk(&ours) <= disk(&theirs), "{word}: disk");
        let load = |counts: &Counts| counts.load.total() as f64;
        assert!(load(&ours) < load(&theirs) * 0.9, "{word}: server load");
        assert!(
            (ours.messages as f64) < theirs.messages as f64 * 0.9,
            "{word}: messages"
        );
    }
}

#[test]
fn all_items_have_a_state() {
    let ours = |item: &&Item| item.by == Some("ariel reproduce cooperative");
    assert_eq!(ITEMS.iter().filter(ours).count(), 11, "figures 4 to 14");
}
