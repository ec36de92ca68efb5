//! The judge finds the faults that file systems have, in histories written by hand, and accepts
//! what one machine may do.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_torture::{Action, Judge, Kind, Moved, Object, Operation, Run, Violation};

const RECORD: Object = Object::Register { file: 0, slot: 0 };
const SIZE: Object = Object::Size { file: 0 };
const LOG: Object = Object::Log { round: 0, file: 0 };
const NAMES: Object = Object::Names { group: 0 };

/// Process, begin, end, action; each process has a mount of its own.
fn op(object: Object, process: u32, time: (u64, u64), action: Action) -> Operation {
    Operation {
        object,
        mount: process,
        process,
        opened_ns: 0,
        begin_ns: time.0,
        end_ns: time.1,
        known: true,
        action,
    }
}

fn lost(operation: Operation) -> Operation {
    Operation {
        known: false,
        ..operation
    }
}

fn read(value: u64) -> Action {
    Action::Read(vec![Run { words: 64, value }])
}

fn torn(one: u64, two: u64) -> Action {
    let run = |value| Run { words: 32, value };
    Action::Read(vec![run(one), run(two)])
}

fn create(name: u8, id: u64, done: bool) -> Action {
    Action::Create { name, id, done }
}

fn look(name: u8, found: Option<u64>) -> Action {
    Action::Look { name, found }
}

#[track_caller]
fn clean(operations: Vec<Operation>) {
    let violations = Judge::new(false).round(operations);
    assert!(violations.is_empty(), "{violations:#?}");
}

#[track_caller]
fn violation(operations: Vec<Operation>) -> Violation {
    let mut violations = Judge::new(false).round(operations);
    assert_eq!(violations.len(), 1, "{violations:#?}");
    violations.remove(0)
}

#[test]
fn concurrent_writes_may_be_seen_in_either_order_but_in_one() {
    let writes = |a: u64, b: u64| {
        vec![
            op(RECORD, 0, (1, 10), Action::Write(100)),
            op(RECORD, 1, (1, 10), Action::Write(200)),
            op(RECORD, 2, (2, 3), read(0)),
            op(RECORD, 2, (4, 5), read(a)),
            op(RECORD, 2, (6, 7), read(b)),
        ]
    };
    clean(writes(100, 200));
    clean(writes(200, 100));
    let mut back = writes(100, 200);
    back.push(op(RECORD, 3, (8, 9), read(100)));
    assert_eq!(violation(back).object, RECORD);
}

#[test]
fn a_stale_read_is_found_with_what_brought_its_value() {
    let found = violation(vec![
        op(RECORD, 0, (1, 2), Action::Write(100)),
        op(RECORD, 1, (3, 4), read(100)),
        op(RECORD, 0, (5, 6), Action::Write(200)),
        op(RECORD, 0, (7, 8), read(200)),
        op(RECORD, 1, (9, 10), read(100)),
        op(RECORD, 1, (11, 12), read(200)),
    ]);
    assert_eq!(found.operations, [op(RECORD, 1, (9, 10), read(100))]);
    assert_eq!(found.kind, Kind::StaleRead);
    let actions: Vec<_> = found.origins.iter().map(|one| one.action.clone()).collect();
    assert_eq!(actions, [Action::Write(100), Action::Write(200)]);
}

#[test]
fn a_stale_read_among_concurrent_ones_leaves_only_what_shows_it() {
    let mut operations = vec![
        // Open all the time, so that no moment is quiet.
        op(RECORD, 9, (1, 100), read(100)),
        op(RECORD, 0, (2, 4), Action::Write(100)),
        op(RECORD, 0, (5, 8), Action::Write(200)),
        op(RECORD, 1, (9, 12), read(100)),
    ];
    for n in 0..20 {
        let at = 20 + 2 * n;
        operations.push(op(RECORD, 3, (at, at + 1), read(200)));
    }
    let found = violation(operations);
    let actions: Vec<_> = found.operations.iter().map(|one| &one.action).collect();
    let expected = [Action::Write(100), Action::Write(200), read(100)];
    assert_eq!(actions, expected.iter().collect::<Vec<_>>());
    assert_eq!(found.index, 2);
}

#[test]
fn stale_across_rounds_is_found() {
    let mut judge = Judge::new(false);
    let first = op(RECORD, 0, (1, 2), Action::Write(100));
    assert!(judge.round(vec![first]).is_empty());
    assert_eq!(judge.round(vec![op(RECORD, 1, (3, 4), read(0))]).len(), 1);
}

#[test]
fn a_torn_record_is_judged_piece_by_piece_unless_atomicity_is_demanded() {
    let during = vec![
        op(RECORD, 0, (1, 2), Action::Write(100)),
        op(RECORD, 0, (3, 10), Action::Write(200)),
        op(RECORD, 1, (4, 5), torn(200, 100)),
        op(RECORD, 1, (6, 7), torn(200, 100)),
        op(RECORD, 1, (11, 12), read(200)),
    ];
    clean(during.clone());
    assert_eq!(Judge::new(true).round(during).len(), 1);
    // Torn for good: after the write nothing may be left of the old record.
    let after = violation(vec![
        op(RECORD, 0, (1, 2), Action::Write(100)),
        op(RECORD, 0, (3, 4), Action::Write(200)),
        op(RECORD, 1, (5, 6), torn(200, 100)),
    ]);
    assert_eq!(after.words, Some((32, 64)));
    assert_eq!(after.kind, Kind::TornRecord);
    // Two concurrent writes that left half of each.
    violation(vec![
        op(RECORD, 0, (1, 9), Action::Write(100)),
        op(RECORD, 1, (1, 9), Action::Write(200)),
        op(RECORD, 2, (10, 11), torn(100, 200)),
    ]);
    let wrong = Action::Wrong("read bytes that nobody wrote".to_owned());
    let found = violation(vec![op(RECORD, 0, (1, 2), wrong)]);
    assert_eq!(found.kind, Kind::WrongAnswer);
}

#[test]
fn a_lost_append_is_found() {
    let history = |last: &[u64]| {
        vec![
            op(LOG, 0, (1, 6), Action::Append(100)),
            op(LOG, 1, (2, 5), Action::Append(200)),
            op(LOG, 2, (7, 8), Action::LogLength(last.len() as u64)),
            op(LOG, 2, (9, 10), Action::ReadLog(last.to_vec())),
        ]
    };
    clean(history(&[100, 200]));
    clean(history(&[200, 100]));
    // By the length alone, both appends are needed to see it; by what was read, one is enough.
    assert_eq!(violation(history(&[200])).operations.len(), 3);
    let mut read = history(&[200]);
    read.remove(2);
    let found = violation(read);
    assert_eq!(found.operations.len(), 2, "{found:#?}");
    let appended = |one: &Operation| one.action == Action::Append(100);
    assert!(found.operations.iter().any(appended), "{found:#?}");
    assert_eq!(found.kind, Kind::StaleLog);
    violation(history(&[100, 200, 200]));
    violation(history(&[100, 200, 300]));
}

#[test]
fn appends_that_change_places_are_found() {
    let found = violation(vec![
        op(LOG, 0, (1, 2), Action::Append(100)),
        op(LOG, 1, (3, 4), Action::Append(200)),
        op(LOG, 2, (5, 6), Action::ReadLog(vec![200, 100])),
    ]);
    assert_eq!(found.kind, Kind::NoOrder);
}

#[test]
fn two_exclusive_creators_are_found() {
    clean(vec![
        op(NAMES, 0, (1, 4), create(0, 100, true)),
        op(NAMES, 1, (1, 4), create(0, 200, false)),
    ]);
    let found = violation(vec![
        op(NAMES, 0, (1, 4), create(0, 100, true)),
        op(NAMES, 1, (1, 4), create(0, 200, true)),
        op(NAMES, 1, (1, 4), create(1, 300, true)),
    ]);
    assert_eq!(found.operations.len(), 2, "{found:#?}");
    assert_eq!(found.kind, Kind::WrongSuccess);
}

#[test]
fn a_name_back_from_the_dead_is_found() {
    let remove = Action::Remove {
        name: 0,
        done: true,
    };
    let mut history = vec![
        op(NAMES, 0, (1, 2), create(0, 100, true)),
        op(NAMES, 1, (3, 4), look(0, Some(100))),
        op(NAMES, 0, (5, 6), remove),
    ];
    clean(history.clone());
    history.push(op(NAMES, 1, (7, 8), look(0, Some(100))));
    // A later operation, open at the same time as another, shows nothing more.
    history.push(op(NAMES, 2, (7, 20), create(1, 300, true)));
    history.push(op(NAMES, 0, (9, 10), create(0, 200, true)));
    let found = violation(history);
    assert_eq!(found.operations.len(), 1);
    assert_eq!(found.possible, ["no such name"]);
    assert_eq!(found.kind, Kind::StaleName);
    assert_eq!(found.origins.len(), 2);
}

#[test]
fn names_change_places_in_one_step_and_are_not_replaced() {
    let exchange = |done| Action::Exchange {
        from: 0,
        to: 1,
        done,
    };
    let history = |seen: [Option<u64>; 2], refused: bool| {
        let moved = if refused { Moved::Taken } else { Moved::Done };
        vec![
            op(NAMES, 0, (1, 2), exchange(false)),
            op(NAMES, 0, (3, 4), create(0, 100, true)),
            op(NAMES, 0, (5, 6), create(1, 200, true)),
            op(NAMES, 0, (7, 20), exchange(true)),
            op(NAMES, 1, (8, 9), look(0, seen[0])),
            op(NAMES, 1, (10, 11), look(1, seen[1])),
            op(
                NAMES,
                1,
                (21, 22),
                Action::Move {
                    from: 0,
                    to: 1,
                    moved,
                },
            ),
        ]
    };
    clean(history([Some(100), Some(200)], true));
    clean(history([Some(200), Some(100)], true));
    clean(history([Some(100), Some(100)], true));
    violation(history([Some(200), Some(200)], true));
    let found = violation(history([Some(100), Some(200)], false));
    assert_eq!(found.kind, Kind::WrongSuccess);
}

#[test]
fn changes_that_make_no_difference_are_left_out() {
    let mut history = vec![op(NAMES, 9, (1, 200), create(3, 900, true))];
    // The name comes and goes, all the time with something under way.
    for n in 0..8 {
        let at = 10 + 10 * n;
        let remove = Action::Remove {
            name: 0,
            done: true,
        };
        history.push(op(NAMES, 0, (at, at + 4), create(0, 100 + n, true)));
        history.push(op(NAMES, 1, (at + 5, at + 9), remove));
    }
    clean(history.clone());
    let rename = Action::Rename {
        from: 0,
        to: 1,
        done: true,
    };
    history.push(op(NAMES, 0, (90, 92), create(0, 300, true)));
    history.push(op(NAMES, 1, (94, 99), rename.clone()));
    history.push(op(NAMES, 2, (94, 98), rename));
    let found = violation(history);
    assert_eq!(found.kind, Kind::WrongSuccess);
    let shown: Vec<u64> = found.operations.iter().map(|one| one.begin_ns).collect();
    assert_eq!((shown, found.left_out), (vec![94, 94], 17));
}

#[test]
fn a_rename_is_one_step() {
    let rename = Action::Rename {
        from: 0,
        to: 1,
        done: true,
    };
    let history = |new, old| {
        vec![
            op(NAMES, 0, (1, 2), create(0, 100, true)),
            op(NAMES, 0, (3, 20), rename.clone()),
            op(NAMES, 1, (4, 5), look(1, new)),
            op(NAMES, 1, (6, 7), look(0, old)),
        ]
    };
    clean(history(Some(100), None));
    clean(history(None, None));
    clean(history(None, Some(100)));
    violation(history(Some(100), Some(100)));
}

#[test]
fn sizes_are_exact() {
    let history = |seen| {
        vec![
            op(SIZE, 0, (1, 2), Action::SetSize(10)),
            op(SIZE, 0, (3, 6), Action::GrowTo(30)),
            op(SIZE, 1, (3, 6), Action::SetSize(20)),
            op(SIZE, 2, (7, 8), Action::Size(seen)),
        ]
    };
    clean(history(20));
    clean(history(30));
    assert_eq!(violation(history(10)).kind, Kind::StaleSize);
    assert_eq!(violation(history(40)).kind, Kind::NoOrder);
}

#[test]
fn what_got_lost_in_a_crash_may_have_happened_late_or_never() {
    let history = |seen: [u64; 3]| {
        let mut all = vec![
            op(RECORD, 0, (1, 2), Action::Write(100)),
            lost(op(RECORD, 0, (3, 4), Action::Write(200))),
        ];
        for (at, value) in (5..).step_by(2).zip(seen) {
            all.push(op(RECORD, 1, (at, at + 1), read(value)));
        }
        all
    };
    clean(history([100, 100, 100]));
    clean(history([100, 200, 200]));
    violation(history([200, 100, 200]));
    // In a later round, too.
    let mut judge = Judge::new(false);
    assert!(judge.round(history([100, 100, 100])).is_empty());
    assert!(
        judge
            .round(vec![op(RECORD, 2, (20, 21), read(200))])
            .is_empty()
    );
    assert_eq!(
        judge.round(vec![op(RECORD, 2, (22, 23), read(100))]).len(),
        1
    );
    assert_eq!((judge.unknown(), judge.undecided()), (1, 0));
}

#[test]
fn many_open_operations_are_decided_fast() {
    let mut all = Vec::new();
    for process in 0..12 {
        for n in 0..40 {
            let time = (1 + 10 * n + u64::from(process % 3), 15 + 10 * n);
            let value = 1000 * u64::from(process + 1) + n;
            all.push(op(RECORD, process, time, Action::Write(value)));
        }
    }
    let mut judge = Judge::new(false);
    assert!(judge.round(all).is_empty());
    assert_eq!(judge.undecided(), 0);
}

/// More than there are orders to try: the sights show the effect of each lost one, or nothing does.
#[test]
fn many_lost_operations_are_decided_fast() {
    let (mut records, mut names) = (Vec::new(), Vec::new());
    let rename = |from, to| Action::Rename {
        from,
        to,
        done: true,
    };
    let remove = |name| Action::Remove { name, done: true };
    for n in 0..160 {
        let (at, name) = (1 + 10 * n, (n % 4) as u8);
        records.push(lost(op(RECORD, 0, (at, at + 1), Action::Write(100 + n))));
        let change = match n % 3 {
            0 => create(name, 100 + n, true),
            1 => rename(name, (name + 1) % 4),
            _ => remove(name),
        };
        names.push(lost(op(NAMES, 0, (at, at + 1), change)));
        // Every fifth did happen, a little later.
        if n % 5 == 0 {
            records.push(op(RECORD, 1, (at + 5, at + 6), read(100 + n)));
        }
        if n % 15 == 0 {
            names.push(op(NAMES, 1, (at + 5, at + 6), look(name, Some(100 + n))));
            names.push(op(NAMES, 1, (at + 7, at + 8), remove(name)));
        }
    }
    let mut judge = Judge::new(false);
    let begin = std::time::Instant::now();
    assert!(judge.round([records.clone(), names].concat()).is_empty());
    assert_eq!(judge.undecided(), 0);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    // Nobody has written that.
    records.push(op(RECORD, 1, (3000, 3001), read(7)));
    let found = judge.round(records).len();
    assert_eq!(
        (found, judge.undecided()),
        (0, 1),
        "it has given some up: not a violation"
    );
}
