//! Sources that change between rounds and in the middle of them.

use crate::world::{World, content, noticed};
use ariel_ship::{Answerer, Ask, PIECE_BYTES};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::FileExt;

/// Bytes, by their seed and their number.
type Seeded = (u8, usize);

/// A change of the source's directory.
#[derive(Clone, Debug)]
enum Change {
    /// A log that is appended to.
    Append(u8, Seeded),
    /// Another log, of the same length perhaps.
    Replace(u8, Seeded),
    /// The end of a log.
    Remove(u8),
    /// A write into the middle of another file, or behind its end.
    Write(u8, u64, Seeded),
    /// Another length of another file.
    Resize(u8, u64),
    /// Its end.
    Drop(u8),
}

impl Change {
    fn make(&self, world: &World) {
        let log = |number: &u8| format!("log-0000000{number}");
        let other = |number: &u8| ["index.redb", "held", "runs"][usize::from(*number)];
        let gone = |name: &str| {
            let _ = fs::remove_file(world.from().join(name));
        };
        let bytes = |(seed, len): &Seeded| content(*seed, *len);
        match self {
            Self::Append(number, new) => world.append(&log(number), &bytes(new)),
            Self::Replace(number, new) => world.replace(&log(number), &bytes(new)),
            Self::Remove(number) => gone(&log(number)),
            Self::Write(number, at, new) => {
                world
                    .open(other(number))
                    .write_all_at(&bytes(new), *at)
                    .unwrap();
            }
            Self::Resize(number, len) => world.open(other(number)).set_len(*len).unwrap(),
            Self::Drop(number) => gone(other(number)),
        }
    }
}

/// A round, and what happens in it.
#[derive(Clone, Debug)]
struct Step {
    before: Vec<Change>,
    /// Before so many questions of the round were asked.
    meanwhile: Vec<(u64, Change)>,
    fails_after: Option<u64>,
    /// Another process at the target goes on.
    anew: bool,
}

fn changes() -> impl Strategy<Value = Change> {
    let (number, len) = (0..3_u8, 0..4 * PIECE_BYTES);
    let bytes = |most: u64| {
        let len = prop_oneof![Just(1), Just(PIECE_BYTES), 0..most];
        (0..255_u8, len.prop_map(|len| len as usize))
    };
    prop_oneof![
        3 => (number.clone(), bytes(2 * PIECE_BYTES)).prop_map(|(n, b)| Change::Append(n, b)),
        1 => (number.clone(), bytes(2 * PIECE_BYTES)).prop_map(|(n, b)| Change::Replace(n, b)),
        1 => number.clone().prop_map(Change::Remove),
        4 => (number.clone(), len.clone(), bytes(PIECE_BYTES))
            .prop_map(|(n, at, b)| Change::Write(n, at, b)),
        1 => (number.clone(), len).prop_map(|(n, len)| Change::Resize(n, len)),
        1 => number.prop_map(Change::Drop),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let before = prop::collection::vec(changes(), 0..8);
    let meanwhile = prop::collection::vec((0..16_u64, changes()), 0..6);
    let fails_after = prop::option::weighted(0.3, 0..12_u64);
    let all = (before, meanwhile, fails_after, prop::bool::weighted(0.2));
    all.prop_map(|(before, mut meanwhile, fails_after, anew)| {
        meanwhile.sort_by_key(|(at, _)| *at);
        Step {
            before,
            meanwhile,
            fails_after,
            anew,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_last_round_makes_equal_whatever_happened_before(
        steps in prop::collection::vec(steps(), 0..6),
        at_rest in prop::collection::vec(changes(), 0..4),
        cut in prop::option::of(0..12_u64),
    ) {
        let world = World::new();
        let answerer = Answerer::new(&world.from());
        let mut target = world.target();
        for step in steps {
            step.before.iter().for_each(|change| change.make(&world));
            if step.anew {
                target = world.target();
            }
            let mut left = VecDeque::from(step.meanwhile);
            let source = world.through(&answerer).fail_after(step.fails_after);
            let source = source.meanwhile(|number, _| {
                while let Some((_, change)) = left.pop_front_if(|(at, _)| *at <= number) {
                    change.make(&world);
                }
                None
            });
            let round = target.round(&source, &mut |_| {});
            // A source in use is never an error.
            prop_assert!(round.is_ok() || step.fails_after.is_some(), "{:?}", round);
        }
        at_rest.iter().for_each(|change| change.make(&world));
        let source = world.through(&answerer).fail_after(cut);
        let last = target.last_round(&source, &mut |_| {});
        prop_assert!(last.is_ok() || cut.is_some(), "{:?}", last);
        if last.is_err() {
            target.last_round(&world.through(&answerer), &mut |_| {}).unwrap();
        }
        world.assert_equal();
        let again = target.last_round(&world.through(&answerer), &mut |_| {}).unwrap();
        prop_assert_eq!(again.carried_bytes, 0);
    }
}

fn is_sums(ask: &Ask, of: &str) -> bool {
    matches!(ask, Ask::Sums { file, .. } if file == of)
}

fn is_bytes(ask: &Ask, of: &str) -> bool {
    matches!(ask, Ask::Bytes { file, .. } if file == of)
}

/// A source of two files, of which the first one changes once before such a question. Returns what
/// a round, then a last round, and then another last round make of it.
fn changed(when: fn(&Ask, &str) -> bool, change: fn(&World)) {
    let world = World::new();
    world.put("index.redb", &content(1, 3 * PIECE_BYTES as usize));
    world.put("log-00000001", &content(2, 100));
    let answerer = Answerer::new(&world.from());
    for is_last in [false, true] {
        world.put("index.redb", &content(5, 3 * PIECE_BYTES as usize));
        let mut target = world.target();
        let mut due = true;
        let source = world.through(&answerer).meanwhile(|_, ask| {
            if due && when(ask, "index.redb") {
                due = false;
                change(&world);
            }
            None
        });
        match is_last {
            false => drop(target.round(&source, &mut |_| {}).unwrap()),
            true => {
                let error = target.last_round(&source, &mut |_| {}).unwrap_err();
                noticed(&error, "`index.redb` changed at the source");
            }
        }
        drop(source);
        assert!(!due, "it was never asked for that");
        target
            .last_round(&world.through(&answerer), &mut |_| {})
            .unwrap();
        world.assert_equal();
        fs::remove_dir_all(world.to()).unwrap();
    }
}

#[test]
fn a_file_that_vanishes_is_no_error_but_in_a_last_round() {
    changed(is_sums, |world| world.remove("index.redb"));
    changed(is_bytes, |world| world.remove("index.redb"));
}

#[test]
fn a_file_that_changes_is_no_error_but_in_a_last_round() {
    let cut = |world: &World| world.open("index.redb").set_len(PIECE_BYTES + 1).unwrap();
    changed(is_sums, cut);
    changed(is_bytes, cut);
    let grown = |world: &World| world.append("index.redb", &[1; 70_000]);
    changed(is_sums, grown);
    changed(is_bytes, grown);
    let other = |world: &World| {
        world
            .open("index.redb")
            .write_all_at(&[99], 70_000)
            .unwrap()
    };
    changed(is_bytes, other);
}

#[test]
fn a_last_round_notices_files_that_come_go_and_change_behind_it() {
    type Change = fn(&World);
    let changes: [(&str, Change); 3] = [
        ("log-00000002", |world| world.put("log-00000002", b"new")),
        ("log-00000001", |world| world.remove("log-00000001")),
        ("index.redb", |world| {
            world.replace("index.redb", &content(6, 3 * PIECE_BYTES as usize));
        }),
    ];
    for (name, change) in changes {
        let world = World::new();
        world.put("index.redb", &content(1, 3 * PIECE_BYTES as usize));
        world.put("log-00000001", &content(2, 100));
        let (mut lists, mut due) = (0, true);
        let source = world.source().meanwhile(|_, ask| {
            lists += u64::from(matches!(ask, Ask::Files { after } if after.is_empty()));
            if lists == 2 && due {
                due = false;
                change(&world);
            }
            None
        });
        let error = world.target().last_round(&source, &mut |_| {}).unwrap_err();
        noticed(&error, &format!("`{name}` changed at the source"));
    }
}
