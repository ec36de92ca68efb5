//! Calls to the disk that fail, and full disks: nothing is half applied, and work goes on.

use crate::world::*;
use ariel_store::{Apply, Failure, Fault, Keep, MemoryDisk, Options, Store, StoreError, Verb};
use std::sync::{Arc, Barrier};
use wire::*;

fn ops() -> Vec<(Op, Vec<u8>)> {
    let mut ops = Vec::new();
    for i in 0..40u64 {
        let fid = Fid {
            volume: 1,
            vnode: 2 + i % 7,
            uniq: 1,
        };
        ops.push((
            make_op(root(), &format!("f{}", i % 11), Make::File, 0o644),
            vec![],
        ));
        let data = bytes(i, 1_800);
        ops.push((write_op(fid, i * 100, &data, WriteMode::At), data));
        let unlink = Op::Unlink {
            dir: root(),
            name: name(&format!("f{}", i % 5)),
        };
        if i % 4 == 3 {
            ops.push((unlink, vec![]));
        }
    }
    ops
}

/// Runs all operations while one call fails; a second store gets only what the first accepted.
/// Returns false when the call was never reached.
fn one_failure(call: u64, fault: Fault) -> bool {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let mut twin = Store::in_memory(&small()).unwrap();
    let before = disk.calls();
    disk.fail_at(call, fault);
    for (i, (op, data)) in ops().iter().enumerate() {
        let outcome = run_as(&mut store, &superuser(), op, data);
        if outcome != Outcome::Refused(Refusal::Disk) {
            assert_eq!(
                outcome,
                run_as(&mut twin, &superuser(), op, data),
                "call {call}"
            );
        } else {
            assert!(
                disk.calls() >= before + call,
                "refused before anything failed"
            );
        }
        // A failed call is done again by the next one.
        let _ = store.write_out();
        if i % 10 == 9 {
            let _ = store.sync_handle().sync();
        }
    }
    assert_eq!(picture(&mut store), picture(&mut twin), "call {call}");
    let report = store.check();
    assert!(report.is_clean(), "call {call}: {report}");
    let reached = disk.calls() >= before + call;
    let written = store.write_out();
    let sync_failed = matches!(store.sync_handle().sync(), Err(StoreError::SyncFailed));
    assert!(written.is_ok() || sync_failed);
    drop(store);
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(
        picture(&mut store),
        picture(&mut twin),
        "call {call}, opened again"
    );
    reached
}

#[test]
fn any_call_may_fail_and_nothing_is_half_applied() {
    for fault in [Fault::Fail, Fault::Half] {
        let mut call = 1;
        while one_failure(call, fault) {
            call += 1;
        }
        assert!(call > 40, "the history must use the disk: {call}");
    }
}

#[test]
fn any_call_of_the_engine_may_fail_too() {
    let mut call = 1;
    loop {
        let disk = MemoryDisk::new();
        let mut store = Store::on_memory_with_engine(&disk, &small()).unwrap();
        let before = disk.calls();
        disk.fail_at(call, Fault::Fail);
        let mut twin = Store::in_memory(&small()).unwrap();
        for (i, (op, data)) in ops().into_iter().enumerate() {
            if i % 8 == 7 {
                // A failed call is done again by the next one.
                let _ = store.checkpoint();
            }
            let outcome = run_as(&mut store, &superuser(), &op, &data);
            if outcome != Outcome::Refused(Refusal::Disk) {
                assert_eq!(outcome, run_as(&mut twin, &superuser(), &op, &data));
            }
        }
        assert_eq!(picture(&mut store), picture(&mut twin), "call {call}");
        if disk.calls() < before + call {
            assert!(call > 40, "the history must use the disk: {call}");
            return;
        }
        // Every call, and later every third: failing in the engine looks the same each time.
        call += if call < 40 { 1 } else { 3 };
    }
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let disk = MemoryDisk::new();
    disk.set_capacity(200 << 10);
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    let mut content = Vec::new();
    let refused = loop {
        let data = bytes(content.len() as u64, 5_000);
        match write(&mut store, fid, content.len() as u64, &data) {
            Outcome::Written { .. } => content.extend_from_slice(&data),
            other => break other,
        }
        assert!(content.len() < 1 << 20, "never full");
    };
    assert_eq!(refused, Outcome::Refused(Refusal::NoSpace));
    assert_eq!(read_all(&mut store, fid), content);
    assert_eq!(store.attr(fid).unwrap().unwrap().size, content.len() as u64);
    disk.set_capacity(1 << 30);
    let data = bytes(1, 5_000);
    written(write(&mut store, fid, content.len() as u64, &data));
    content.extend_from_slice(&data);
    store.write_out().unwrap();
    drop(store);
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(read_all(&mut store, fid), content);
    assert!(store.check().is_clean());
}

#[test]
fn a_full_disk_takes_removals_and_sessions() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fids = ["a", "b", "c"].map(|name| make(&mut store, root(), name));
    for fid in fids {
        written(write(&mut store, fid, 0, &bytes(fid.vnode, 30_000)));
    }
    store.write_out().unwrap();
    disk.leave_room(3_000);
    let full = |store: &mut Store| {
        let fid = make(store, root(), "more");
        let refused = (0..100).any(|i| {
            let outcome = write(store, fid, 0, &bytes(i, 1_500));
            outcome == Outcome::Refused(Refusal::NoSpace)
        });
        assert!(refused, "never full");
    };
    full(&mut store);
    // The client's next removals come behind changes that it has answered to its programs.
    let reserved = run(&mut store, &Op::Reserve { count: 1 });
    assert_eq!(reserved, Outcome::Refused(Refusal::NoSpace));
    let chmod = Op::SetAttr {
        fid: fids[0],
        set: Set {
            mode: Some(0o600),
            ..Set::default()
        },
    };
    let root_caller = Caller::default();
    let delegated = |delegated| Apply {
        op: &chmod,
        caller: &root_caller,
        now: 9,
        origin: None,
        data: &[],
        delegated,
    };
    let refused = Outcome::Refused(Refusal::NoSpace);
    let full = (0..1_000).any(|_| store.apply(delegated(None)) == refused);
    assert!(full, "never full for small changes");
    assert!(matches!(
        store.apply(delegated(Some(Chosen::default()))),
        Outcome::Attr(_)
    ));
    store.open_session(7, 1);
    for text in ["a", "b"] {
        let (dir, name) = (root(), name(text));
        let removed = run(&mut store, &Op::Unlink { dir, name });
        assert!(matches!(removed, Outcome::Removed { .. }), "{removed:?}");
    }
    for fid in &fids[..2] {
        assert_eq!(run(&mut store, &Op::Reap { fid: *fid }), Outcome::Done);
    }
    store.close_session(7);
    store.write_out().unwrap();
    // Removed files make room, once no checkpoint needs them any more.
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    written(write(&mut store, fids[2], 0, &bytes(9, 9_000)));
    store.write_out().unwrap();
    assert_eq!(read_all(&mut store, fids[2])[..9_000], bytes(9, 9_000)[..]);
    assert!(store.check().is_clean());
}

/// Simulated world 1822554: the log as the power left it had no room behind it, and only the next
/// change made sure of that.
#[test]
fn a_disk_that_is_full_since_the_start_takes_sessions() {
    let options = Options {
        segment_bytes: 4 << 10,
        checkpoint_bytes: 1 << 30,
        ..small()
    };
    for case in 0..800 {
        let (synced, more) = (case % 40, case / 40);
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &options).unwrap();
        let fid = make(&mut store, root(), "a");
        for part in 0..synced {
            written(write(&mut store, fid, part, &bytes(part, 90)));
        }
        store.write_out().unwrap();
        store.sync_handle().sync().unwrap();
        for part in 0..more {
            written(write(&mut store, fid, part, &bytes(part, 95)));
        }
        store.write_out().unwrap();
        drop(store);
        disk.crash(Keep::Torn(67));
        let mut store = Store::open_in_memory(&disk, &options).unwrap();
        disk.leave_room(0);
        for session in 1..=10 {
            store.open_session(session, 1);
        }
        let written = store.write_out();
        assert!(written.is_ok(), "{synced} synced, {more} more: {written:?}");
    }
}

#[test]
fn when_a_sync_of_a_checkpoint_failed_whoever_writes_out_is_told() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    make(&mut store, root(), "a");
    disk.fail(Failure {
        verb: Some(Verb::Sync),
        at: 1,
        fault: Fault::Drop,
        lasting: false,
    });
    assert!(store.checkpoint().is_err());
    // Nothing can be made stable any more: a server that went on would refuse all changes, and
    // nobody would start it again.
    assert!(matches!(store.write_out(), Err(StoreError::SyncFailed)));
}

#[test]
fn a_failed_sync_is_never_reported_as_done_later() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    make(&mut store, root(), "a");
    store.write_out().unwrap();
    disk.fail_at(1, Fault::Fail);
    let syncer = store.sync_handle();
    assert!(syncer.sync().is_err());
    assert!(matches!(syncer.sync(), Err(StoreError::SyncFailed)));
    let op = make_op(root(), "b", Make::File, 0o644);
    assert_eq!(run(&mut store, &op), Outcome::Refused(Refusal::Disk));
}

#[test]
fn concurrent_syncs_share_one() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    make(&mut store, root(), "a");
    store.write_out().unwrap();
    let before = disk.syncs();
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (syncer, barrier) = (store.sync_handle(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                syncer.sync().unwrap();
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(disk.syncs(), before + 1);
    assert_eq!(store.stats().stable_records, store.stats().records);
}
