//! Full disks: removed files make room, by whatever it takes, and room that is said to be free is.

use crate::world::*;
use ariel_store::{Failure, Fault, Keep, MemoryDisk, Options, Store};
use wire::*;

/// Bytes of a small file.
const LEN: usize = 1_500;
/// Half a segment.
const HALF: u64 = 16 << 10;
const SECOND_NS: u64 = 1_000_000_000;

fn disk_of(bytes: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.set_capacity(bytes);
    disk
}

fn on(disk: &MemoryDisk, engine: bool) -> Store {
    match engine {
        true => Store::on_memory_with_engine(disk, &small()).unwrap(),
        false => Store::create_in_memory(disk, &small()).unwrap(),
    }
}

fn free(store: &mut Store) -> u64 {
    match run(store, &Op::StatFs) {
        Outcome::Filesystem(seen) => seen.free_bytes,
        other => panic!("{other:?}"),
    }
}

fn refused(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Refused(Refusal::NoSpace) => true,
        Outcome::Refused(other) => panic!("{other:?}"),
        _ => false,
    }
}

/// Makes a small file; `None`: there is no room.
fn small_file(store: &mut Store, text: &str) -> Option<Fid> {
    let made = run(store, &make_op(root(), text, Make::File, 0o644));
    if refused(&made) {
        return None;
    }
    let fid = entry(made).fid;
    match write(store, fid, 0, &bytes(fid.vnode, LEN)) {
        Outcome::Written { .. } => Some(fid),
        other => {
            assert!(refused(&other));
            remove(store, text, fid);
            None
        }
    }
}

/// As many as there is room for.
fn small_files(store: &mut Store, prefix: &str) -> Vec<Fid> {
    (0..10_000)
        .map_while(|n| small_file(store, &format!("{prefix}{n}")))
        .collect()
}

fn remove(store: &mut Store, text: &str, fid: Fid) {
    let op = Op::Unlink {
        dir: root(),
        name: name(text),
    };
    let removed = run(store, &op);
    assert!(matches!(removed, Outcome::Removed { .. }), "{removed:?}");
    assert_eq!(run(store, &Op::Reap { fid }), Outcome::Done);
}

/// Removes all of these but each `nth`; returns what is left, and how many went.
fn thin_out(store: &mut Store, fids: &[Fid], nth: usize) -> (Vec<Fid>, usize) {
    let mut left = Vec::new();
    for (n, fid) in fids.iter().enumerate() {
        if n % nth == 0 {
            remove(store, &format!("a{n}"), *fid);
        } else {
            left.push(*fid);
        }
    }
    let went = fids.len() - left.len();
    (left, went)
}

#[test]
fn small_files_removed_here_and_there_make_room_at_once() {
    for (engine, nth) in [(false, 2), (false, 3), (true, 2)] {
        let disk = disk_of(if engine { 6 << 20 } else { 2 << 20 });
        let mut store = on(&disk, engine);
        let fids = small_files(&mut store, "a");
        assert!(store.stats().segments > 20, "{:?}", store.stats());
        let (left, went) = thin_out(&mut store, &fids, nth);
        let more = small_files(&mut store, "b");
        assert!(
            more.len() > went * 3 / 4,
            "{went} of {} files were removed, and {} have room",
            fids.len(),
            more.len(),
        );
        store.write_out().unwrap();
        for fid in left.iter().chain(&more) {
            assert_eq!(read_all(&mut store, *fid), bytes(fid.vnode, LEN));
        }
        let report = store.check();
        assert!(report.is_clean(), "{report}");
    }
}

#[test]
fn who_is_refused_costs_no_checkpoint() {
    let disk = disk_of(1 << 20);
    let mut store = on(&disk, false);
    let fids = small_files(&mut store, "a");
    let data = bytes(1, 8_000);
    let first = (0..10).find(|_| refused(&write(&mut store, fids[0], 0, &data)));
    assert!(first.is_some(), "never full");
    let (before, calls) = (store.stats(), disk.calls());
    for _ in 0..100 {
        assert!(refused(&write(&mut store, fids[0], 0, &data)));
    }
    assert_eq!(store.stats(), before);
    assert_eq!(disk.calls(), calls);
}

#[test]
fn what_is_said_to_be_free_can_be_written() {
    for chunk in [600, 4_096, 20_000] {
        let disk = disk_of(4 << 20);
        let mut store = on(&disk, false);
        let fid = make(&mut store, root(), "f");
        // Also when it is full, and a part of it has been removed.
        for round in 0..3_u64 {
            let said = free(&mut store);
            let mut len = 0;
            while !refused(&write(&mut store, fid, len, &bytes(len, chunk))) {
                len += chunk as u64;
                assert!(len < 8 << 20, "never full");
            }
            // The size of each record beside its bytes is not known before.
            let least = said / (chunk as u64 + 200) * chunk as u64 * 9 / 10;
            assert!(
                (least..=said).contains(&len),
                "round {round}: {said} bytes were said to be free, and {len} could be written"
            );
            assert!(free(&mut store) < 100 << 10, "{}", free(&mut store));
            set_size(&mut store, fid, 0);
        }
    }
}

/// A file is written until the disk is full, emptied and written again, many times. Its bytes may
/// all lie in the segment that is being written, or share those of others.
#[test]
fn what_is_emptied_can_be_written_again_and_again() {
    for eighths in [3, 6, 9, 20] {
        let disk = disk_of(4 << 20);
        let mut store = on(&disk, false);
        let (old, fid) = (
            make(&mut store, root(), "old"),
            make(&mut store, root(), "f"),
        );
        let (most, chunk) = (eighths * (32 << 10) / 8, 2_000);
        let mut len = 0;
        while free(&mut store) > most as u64 {
            written(write(&mut store, old, len, &bytes(len, chunk)));
            len += chunk as u64;
        }
        let mut first = None;
        for round in 0..200 {
            let mut len = 0;
            while !refused(&write(&mut store, fid, len, &bytes(len + round, chunk))) {
                len += chunk as u64;
            }
            let first = *first.get_or_insert(len);
            assert!(
                len >= first * 3 / 4,
                "{eighths} eighths of a segment, round {round}: {len} bytes, and {first} at first; \
                 {:?}",
                store.stats()
            );
            set_size(&mut store, fid, 0);
        }
        assert!(store.check().is_clean());
    }
}

/// Looks after the store until it has enough; returns for how long.
fn tend(store: &mut Store, from: u64) -> u64 {
    let mut now = from;
    for _ in 0..10_000 {
        let Some(next) = store.tend(now) else {
            return now - from;
        };
        assert!(next > now);
        now = next;
    }
    panic!("it never has enough: {:?}", store.stats());
}

#[test]
fn a_store_at_rest_is_brought_in_order_and_then_left_alone() {
    let disk = disk_of(1 << 30);
    let mut store = on(&disk, false);
    let fids: Vec<Fid> = (0..300)
        .map(|n| small_file(&mut store, &format!("a{n}")).unwrap())
        .collect();
    // Two of three go, here and there: all that is left is worth to be moved.
    for (n, fid) in fids.iter().enumerate() {
        if n % 3 != 0 {
            remove(&mut store, &format!("a{n}"), *fid);
        }
    }
    // As long as somebody changes something, he is not disturbed.
    let mut now = SECOND_NS;
    for n in 0..3 {
        let before = store.stats();
        let next = store.tend(now).expect("something was changed");
        assert!((now..=now + 5 * SECOND_NS).contains(&next));
        assert_eq!(store.stats(), before);
        now += SECOND_NS;
        set_size(&mut store, fids[0], LEN as u64 + n);
    }
    let before = store.stats();
    let took = tend(&mut store, now);
    assert!(took < 20 * SECOND_NS, "{took} ns");
    let after = store.stats();
    assert_eq!(after.changed_bytes, 0);
    assert!(before.live_bytes < before.segments * HALF, "{before:?}");
    assert!(after.live_bytes > after.segments * HALF, "{after:?}");
    // Nothing is left to be done.
    let calls = disk.calls();
    assert_eq!(store.tend(now + (1 << 40)), None);
    assert_eq!(disk.calls(), calls);
    for fid in fids.iter().step_by(3).skip(1) {
        assert_eq!(read_all(&mut store, *fid), bytes(fid.vnode, LEN));
    }
    assert!(store.check().is_clean());
}

/// Copies of very small pieces take more than the bytes: cleaning them again would never end.
#[test]
fn very_small_pieces_are_not_moved_for_ever() {
    let disk = disk_of(1 << 30);
    let mut store = on(&disk, false);
    let fid = make(&mut store, root(), "f");
    written(write(&mut store, fid, 4_000, b"x"));
    for at in 0..3_000 {
        // Not in order, so that no two pieces are one.
        written(write(&mut store, fid, 4_001 + at * 7 % 3_000 * 2, b"y"));
    }
    tend(&mut store, SECOND_NS);
    let moved = store.stats().cleaned_bytes;
    assert!(moved <= 2 * 3_001, "{moved} bytes were moved");
    assert!(store.check().is_clean());
}

#[test]
fn a_checkpoint_that_fails_is_tried_again_at_rest_and_not_too_often() {
    let disk = disk_of(1 << 30);
    let mut store = on(&disk, false);
    make(&mut store, root(), "f");
    disk.fail(Failure {
        verb: Some(ariel_store::Verb::Commit),
        at: 1,
        fault: Fault::Fail,
        lasting: true,
    });
    let mut now = SECOND_NS;
    let mut times = 0;
    while now < 101 * SECOND_NS {
        now = store.tend(now).expect("it failed");
        times += 1;
    }
    assert!((20..60).contains(&times), "{times} times in 100 s");
    disk.heal();
    tend(&mut store, now);
    assert_eq!(store.stats().changed_bytes, 0);
}

/// The power fails at any moment of making room: bytes that were on stable storage before are
/// there.
#[test]
fn the_end_of_the_machine_while_room_is_made_loses_nothing() {
    let options = Options {
        segment_bytes: 8 << 10,
        checkpoint_bytes: 2 << 10,
        ..small()
    };
    let full = disk_of(200 << 10);
    let mut store = Store::create_in_memory(&full, &options).unwrap();
    let fids = small_files(&mut store, "a");
    let (left, _) = thin_out(&mut store, &fids, 2);
    store.write_out().unwrap();
    store.sync_handle().sync().unwrap();
    drop(store);
    let mut calls = 0;
    loop {
        calls += 1;
        let disk = full.copy();
        let mut store = Store::open_in_memory(&disk, &options).unwrap();
        let begin = disk.calls();
        disk.fail(Failure {
            verb: None,
            at: calls,
            fault: Fault::Half,
            lasting: true,
        });
        for n in 0..20 {
            let op = make_op(root(), &format!("c{n}"), Make::File, 0o644);
            if let Outcome::Entry(made) = run(&mut store, &op) {
                write(&mut store, made.fid, 0, &bytes(made.fid.vnode, LEN));
            }
            let _ = store.write_out();
        }
        let ended = disk.calls() < begin + calls;
        drop(store);
        disk.crash(Keep::Any(calls));
        disk.set_capacity(1 << 30);
        let mut store = Store::open_in_memory(&disk, &options).unwrap();
        for fid in &left {
            assert_eq!(read_all(&mut store, *fid), bytes(fid.vnode, LEN), "{calls}");
        }
        let report = store.check();
        assert!(report.is_clean(), "call {calls}: {report}");
        if ended {
            break;
        }
    }
    assert!(calls > 30, "{calls} calls");
}
