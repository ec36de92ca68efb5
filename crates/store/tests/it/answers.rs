//! Exactly once, sessions, and what is forgotten.

use crate::world::*;
use ariel_store::{Apply, Keep, MemoryDisk, Store};
use wire::*;

fn origin(request: RequestId) -> Origin {
    Origin {
        session: 77,
        request,
    }
}

fn append(store: &mut Store, fid: Fid, request: RequestId) -> Outcome {
    let op = write_op(fid, 0, b"line\n", WriteMode::Append);
    store.apply(Apply {
        op: &op,
        caller: &superuser(),
        now: 20 + request,
        origin: Some(origin(request)),
        data: b"line\n",
        delegated: None,
    })
}

fn crash(store: Store, disk: &MemoryDisk) -> Store {
    drop(store);
    disk.crash(Keep::Written);
    Store::open_in_memory(disk, &small()).unwrap()
}

#[test]
fn a_repeated_request_is_applied_once_over_crashes_and_checkpoints() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    store.open_session(77, 1);
    let first = append(&mut store, fid, 1);
    assert_eq!(append(&mut store, fid, 1), first);
    assert_eq!(store.answer(origin(1)), Some(first.clone()));
    assert_eq!(store.answer(origin(2)), None);
    store.write_out().unwrap();
    // From the log, then from the index, then from the log behind the index.
    let mut store = crash(store, &disk);
    assert_eq!(append(&mut store, fid, 1), first);
    store.checkpoint().unwrap();
    let second = append(&mut store, fid, 2);
    store.write_out().unwrap();
    let mut store = crash(store, &disk);
    assert_eq!(append(&mut store, fid, 1), first);
    assert_eq!(append(&mut store, fid, 2), second);
    assert_eq!(read_all(&mut store, fid), b"line\nline\n");
}

#[test]
fn refusals_are_not_kept() {
    let mut store = Store::in_memory(&small()).unwrap();
    let fid = make(&mut store, root(), "a");
    let unlink = Op::Unlink {
        dir: root(),
        name: name("b"),
    };
    let outcome = store.apply(Apply {
        op: &unlink,
        caller: &superuser(),
        now: 1,
        origin: Some(origin(1)),
        data: &[],
        delegated: None,
    });
    assert_eq!(outcome, Outcome::Refused(Refusal::NotFound));
    assert_eq!(store.answer(origin(1)), None);
    assert!(store.attr(fid).unwrap().is_some());
}

#[test]
fn forgotten_answers_are_gone_and_do_not_gather() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    store.open_session(77, 1);
    for request in 1..3_000 {
        append(&mut store, fid, request);
        if request % 7 == 0 {
            store.forget_answers(77, request);
        }
        assert!(store.stats().answers < 9);
    }
    store.forget_answers(77, 2_999);
    assert_eq!(store.answer(origin(2_998)), None);
    assert!(store.answer(origin(2_999)).is_some());
    store.checkpoint().unwrap();
    let store = crash(store, &disk);
    assert_eq!(store.stats().answers, 1);
}

#[test]
fn the_latest_time_outlives_a_restart() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    store.note_time(7_000);
    store.write_out().unwrap();
    let mut store = crash(store, &disk);
    assert_eq!(store.newest(), 7_000);
    store.note_time(6_000);
    store.checkpoint().unwrap();
    let store = crash(store, &disk);
    assert_eq!(store.newest(), 7_000);
}

#[test]
fn sessions_outlive_a_restart_and_take_their_answers_with_them() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    for (session, machine) in [(5, 1), (77, 2), (9, 0)] {
        store.open_session(session, machine);
    }
    append(&mut store, fid, 1);
    store.write_out().unwrap();
    let mut store = crash(store, &disk);
    assert_eq!(store.sessions(), [5, 9, 77]);
    assert_eq!(store.machines(), [(5, 1), (77, 2)]);
    store.note_away(5, true);
    store.checkpoint().unwrap();
    store.close_session(77);
    assert_eq!(store.answer(origin(1)), None);
    store.write_out().unwrap();
    let mut store = crash(store, &disk);
    assert_eq!(store.sessions(), [5, 9]);
    assert_eq!((store.machines(), store.away()), (vec![(5, 1)], vec![5]));
    assert_eq!(store.answer(origin(1)), None);
    store.note_away(5, false);
    store.checkpoint().unwrap();
    let store = crash(store, &disk);
    assert_eq!((store.sessions(), store.stats().answers), (vec![5, 9], 0));
    assert_eq!((store.machines(), store.away()), (vec![(5, 1)], vec![]));
}
