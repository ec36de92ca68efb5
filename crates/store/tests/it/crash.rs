//! Crashes at every write to the disk: each leaves the state after some prefix of all operations,
//! with nothing missing that was promised.

use crate::world::*;
use ariel_store::{
    Apply, Failure, Fault, Keep, MemoryDisk, Options, Store, StoreError, Verb, fsck_memory,
};
use std::collections::BTreeMap;
use wire::*;

type Picture = BTreeMap<String, Seen>;
/// Which engine keeps the index.
#[derive(Clone, Copy, PartialEq)]
enum Engine {
    /// A map in memory.
    Map,
    /// redb on the same disk as the log.
    Redb,
}

fn open(engine: Engine, disk: &MemoryDisk) -> Result<Store, StoreError> {
    match engine {
        Engine::Map => Store::open_in_memory(disk, &options()),
        Engine::Redb => Store::on_memory_with_engine(disk, &options()),
    }
}

/// A history in which every kind of change occurs, larger than some segments and checkpoints.
fn history() -> Vec<(Op, Vec<u8>)> {
    let mut ops = Vec::new();
    let file = |vnode: u64| Fid {
        volume: 1,
        vnode,
        uniq: 1,
    };
    let dir = file(2);
    ops.push((make_op(root(), "dir", Make::Directory, 0o755), vec![]));
    for i in 0..6u64 {
        let made = file(3 + i);
        ops.push((make_op(dir, &format!("f{i}"), Make::File, 0o644), vec![]));
        for round in 0..3 {
            let data = bytes(i * 10 + round, 60 + 2_000 * i as usize);
            let at = round * 1_500;
            ops.push((write_op(made, at, &data, WriteMode::At), data));
        }
    }
    // One that shares, and then both go their own ways.
    let copied = Op::Copy {
        from: file(8),
        at: 1_000,
        to: file(5),
        offset: 500,
        len: 5_000,
    };
    ops.push((copied, vec![]));
    for (of, at) in [(8, 2_000), (5, 3_500)] {
        let data = bytes(of, 700);
        ops.push((write_op(file(of), at, &data, WriteMode::At), data));
    }
    let rename = |from: Fid, old: &str, to: Fid, new: &str, exchange| Op::Rename {
        from,
        name: name(old),
        to,
        new: name(new),
        no_replace: false,
        exchange,
    };
    ops.push((rename(dir, "f1", root(), "g", false), vec![]));
    ops.push((rename(dir, "f2", dir, "f3", false), vec![]));
    ops.push((rename(dir, "f4", root(), "g", true), vec![]));
    ops.push((Op::Reap { fid: file(6) }, vec![]));
    let link = Op::Link {
        fid: file(8),
        dir: root(),
        name: name("link"),
    };
    ops.push((link, vec![]));
    for size in [3_000, 10, 5_000] {
        let set = Set {
            size: Some(size),
            ..Set::default()
        };
        ops.push((Op::SetAttr { fid: file(8), set }, vec![]));
    }
    let unlink = Op::Unlink {
        dir,
        name: name("f0"),
    };
    ops.push((unlink, vec![]));
    ops.push((Op::Reap { fid: file(3) }, vec![]));
    ops.extend(history_of_volumes());
    ops
}

/// A snapshot, a clone of it, changes in both, and the end of the snapshot and of another volume.
fn history_of_volumes() -> Vec<(Op, Vec<u8>)> {
    let text = name;
    let of_volume = |op| (Op::Volume(op), vec![]);
    let of = |volume: u32, vnode: u64| Fid {
        volume,
        vnode,
        uniq: 1,
    };
    let write = |fid: Fid, at: u64, len: usize| {
        let data = bytes(at, len);
        (write_op(fid, at, &data, WriteMode::At), data)
    };
    let create = VolumeOp::Create {
        name: text("other"),
        mode: 0o755,
    };
    let snapshot = VolumeOp::Snapshot {
        of: text("root"),
        name: text("s"),
    };
    let clone = VolumeOp::Clone {
        of: text("root@s"),
        name: text("copy"),
    };
    let removed = Op::Unlink {
        dir: root(),
        name: text("link"),
    };
    vec![
        of_volume(create),
        write(of(1, 8), 1_000, 6_000),
        of_volume(snapshot),
        write(of(1, 8), 2_000, 3_000),
        of_volume(clone),
        write(of(4, 8), 500, 2_500),
        (removed, vec![]),
        write(of(4, 5), 0, 9_000),
        of_volume(VolumeOp::Delete { of: text("root@s") }),
        of_volume(VolumeOp::Delete { of: text("other") }),
        of_volume(VolumeOp::Purge { volume: 3 }),
        of_volume(VolumeOp::Purge { volume: 2 }),
        write(of(1, 8), 0, 9_000),
        of_volume(VolumeOp::Delete { of: text("copy") }),
        of_volume(VolumeOp::Purge { volume: 4 }),
        write(of(1, 5), 0, 3_000),
        write(of(1, 7), 0, 3_000),
    ]
}

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        checkpoint_bytes: 4 << 10,
        ..small()
    }
}

/// The promises to a run when the disk stopped.
#[derive(Default)]
struct Promised {
    written: usize,
    synced: usize,
}

/// Runs the history until the disk fails for good.
fn run_until_crash(engine: Engine, disk: &MemoryDisk, history: &[(Op, Vec<u8>)]) -> Promised {
    let mut promised = Promised::default();
    let Ok(mut store) = open(engine, disk) else {
        return promised;
    };
    for (i, (op, data)) in history.iter().enumerate() {
        if let Outcome::Refused(refusal) = run_as(&mut store, &superuser(), op, data) {
            assert_eq!(refusal, Refusal::Disk);
            return promised;
        }
        if store.write_out().is_err() {
            return promised;
        }
        promised.written = i + 1;
        if i % 4 == 3 {
            if store.sync_handle().sync().is_err() {
                return promised;
            }
            promised.synced = i + 1;
        }
        if i % 16 == 15 && store.checkpoint().is_err() {
            return promised;
        }
    }
    promised
}

/// The picture after each prefix of the history.
fn prefixes(history: &[(Op, Vec<u8>)]) -> Vec<Picture> {
    let mut store = Store::in_memory(&options()).unwrap();
    let mut all = vec![picture_of_all(&mut store)];
    for (op, data) in history {
        let outcome = run_as(&mut store, &superuser(), op, data);
        assert!(
            !matches!(outcome, Outcome::Refused(_)),
            "{op:?}: {outcome:?}"
        );
        all.push(picture_of_all(&mut store));
    }
    all
}

fn try_crash(engine: Engine, call: u64, keep: Keep, prefixes: &[Picture]) -> bool {
    let history = history();
    let disk = MemoryDisk::new();
    if call > 0 {
        disk.fail_at(call, Fault::Die);
    }
    // A partition that is not created cannot be opened.
    if engine == Engine::Map && Store::create_in_memory(&disk, &options()).is_err() {
        return true;
    }
    let promised = run_until_crash(engine, &disk, &history);
    let survived = disk.calls() < call;
    disk.crash(keep);
    if engine == Engine::Map {
        let report = fsck_memory(&disk).unwrap();
        assert!(report.is_clean(), "call {call}, {keep:?}: {report}");
    }
    let mut store = open(engine, &disk).unwrap_or_else(|e| panic!("call {call}: {e}"));
    let now = picture_of_all(&mut store);
    let least = match keep {
        Keep::Written => promised.written,
        _ => promised.synced,
    };
    let reached = prefixes[least..].iter().position(|picture| *picture == now);
    assert!(
        reached.is_some(),
        "call {call}, {keep:?}: not a prefix of at least {least}"
    );
    let report = store.check();
    assert!(report.is_clean(), "call {call}, {keep:?}: {report}");
    !survived
}

fn crash_everywhere(engine: Engine, keeps: &[Keep]) {
    let prefixes = prefixes(&history());
    for keep in keeps {
        let mut call = 1;
        while try_crash(engine, call, *keep, &prefixes) {
            call += 1;
        }
        assert!(call > 60, "the history must write often enough: {call}");
    }
}

const KEEPS: [Keep; 5] = [
    Keep::Synced,
    Keep::Written,
    Keep::Torn(30),
    Keep::Torn(75),
    Keep::Torn(99),
];

#[test]
fn a_crash_at_any_write_leaves_a_prefix() {
    crash_everywhere(Engine::Map, &KEEPS);
}

#[test]
fn a_crash_at_any_write_of_the_engine_too_leaves_a_prefix() {
    crash_everywhere(Engine::Redb, &[Keep::Synced, Keep::Written]);
}

#[test]
fn what_was_not_written_out_is_lost_and_what_was_is_not() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    make(&mut store, root(), "a");
    store.write_out().unwrap();
    make(&mut store, root(), "b");
    drop(store);
    disk.crash(Keep::Written);
    let store = Store::open_in_memory(&disk, &small()).unwrap();
    assert!(store.lookup(root(), &name("a")).unwrap().is_some());
    assert_eq!(store.lookup(root(), &name("b")), Ok(None));
}

#[test]
fn a_store_that_is_opened_many_times_stays_the_same() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    assert_eq!(store.boot(), 1);
    for i in 0..30u64 {
        let data = bytes(i, 3_000);
        write(&mut store, fid, i * 1_000, &data);
        let before = picture_of_all(&mut store);
        store.write_out().unwrap();
        if i % 3 == 0 {
            store.close().unwrap();
        }
        disk.crash(Keep::Written);
        store = Store::open_in_memory(&disk, &small()).unwrap();
        assert_eq!(store.boot(), i + 2);
        assert_eq!(picture_of_all(&mut store), before);
    }
}

/// The store tells the segments of its log and their bytes; the last one has some reserved.
fn tells_its_log(store: &mut Store, disk: &MemoryDisk) -> u64 {
    let of_log = |(name, len): (String, u64)| name.starts_with("log-").then_some(len);
    let files: Vec<u64> = disk.files().into_iter().filter_map(of_log).collect();
    let (log, told): (u64, u64) = (files.iter().sum(), store.log_bytes());
    assert_eq!(store.stats().segments, files.len() as u64);
    let reserved = log.checked_sub(told).expect("no more than there is");
    assert!(reserved < small().segment_bytes, "{told} bytes of {log}");
    told
}

#[test]
fn the_log_is_told_whole_before_a_checkpoint_too() {
    let disk = MemoryDisk::new();
    let options = Options {
        checkpoint_bytes: 1 << 30,
        ..small()
    };
    let mut store = Store::create_in_memory(&disk, &options).unwrap();
    let file = make(&mut store, root(), "file");
    for i in 0..100 {
        written(write(&mut store, file, i * 4_000, &bytes(i, 4_000)));
    }
    store.write_out().unwrap();
    assert!(store.stats().segments > 10, "{:?}", store.stats());
    assert!(tells_its_log(&mut store, &disk) > 400_000);
}

#[test]
fn segments_that_nothing_uses_are_removed_and_mostly_dead_ones_are_cleaned() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let kept = make(&mut store, root(), "kept");
    let other = make(&mut store, root(), "other");
    let mut content = Vec::new();
    for i in 0..200u64 {
        let data = bytes(i, 700);
        written(write(&mut store, kept, i * 700, &data));
        content.extend_from_slice(&data);
        let noise = bytes(i + 1_000, 4_000);
        written(write(&mut store, other, 0, &noise));
    }
    // Cleaning goes on as the partition is used.
    for i in 0..300u64 {
        written(write(&mut store, other, 0, &bytes(i, 4_000)));
        store.write_out().unwrap();
    }
    let stats = store.stats();
    assert!(stats.cleaned_bytes > 0, "{stats:?}");
    let on_disk: u64 = disk.files().iter().map(|(_, len)| len).sum();
    assert!(
        on_disk < 4 * stats.live_bytes,
        "{on_disk} bytes for {stats:?}"
    );
    assert!(tells_its_log(&mut store, &disk) < stats.appended_bytes / 4);
    assert_eq!(read_all(&mut store, kept), content);
    store.close().unwrap();
    disk.crash(Keep::Synced);
    let report = fsck_memory(&disk).unwrap();
    assert!(report.is_clean(), "{report}");
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(read_all(&mut store, kept), content);
}

#[test]
fn an_operation_of_which_the_record_is_torn_did_not_happen() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let fid = make(&mut store, root(), "a");
    store.write_out().unwrap();
    store.sync_handle().sync().unwrap();
    let data = bytes(1, 9_000);
    let caller = superuser();
    let op = write_op(fid, 0, &data, WriteMode::At);
    store.apply(Apply {
        op: &op,
        caller: &caller,
        now: 9,
        origin: None,
        data: &data,
        delegated: None,
    });
    store.write_out().unwrap();
    drop(store);
    disk.crash(Keep::Torn(50));
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(read_all(&mut store, fid), b"");
    written(write(&mut store, fid, 0, b"again"));
    store.write_out().unwrap();
    drop(store);
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(read_all(&mut store, fid), b"again");
}

#[test]
fn a_record_torn_in_its_padding_did_not_happen() {
    for (percent, letters) in (80..100).flat_map(|p| (1..=8).map(move |n| (p, n))) {
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &small()).unwrap();
        store.sync_handle().sync().unwrap();
        make(&mut store, root(), &"x".repeat(letters));
        store.write_out().unwrap();
        drop(store);
        disk.crash(Keep::Torn(percent));
        let mut store = Store::open_in_memory(&disk, &small()).unwrap();
        let next = make(&mut store, root(), "next");
        store.write_out().unwrap();
        drop(store);
        disk.crash(Keep::Written);
        let mut store = Store::open_in_memory(&disk, &small()).unwrap();
        assert_eq!(read_all(&mut store, next), b"", "{percent} {letters}");
    }
}

/// A log of several segments, written out and never synced by the process that wrote it.
fn written_and_not_synced(disk: &MemoryDisk) -> Store {
    let mut store = Store::create_in_memory(disk, &options()).unwrap();
    let fid = make(&mut store, root(), "a");
    for i in 0..12 {
        written(write(&mut store, fid, i * 3_000, &bytes(i, 3_000)));
        store.write_out().unwrap();
    }
    assert!(store.stats().segments > 0 && disk.files().len() > 2);
    store
}

#[test]
fn what_an_opening_recovered_of_another_process_survives_the_machine() {
    let disk = MemoryDisk::new();
    let options = Options {
        checkpoint_bytes: 1 << 20,
        ..options()
    };
    let before = picture_of_all(&mut written_and_not_synced(&disk));
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &options).unwrap();
    assert_eq!(picture_of_all(&mut store), before);
    drop(store);
    disk.crash(Keep::Synced);
    let mut store = Store::open_in_memory(&disk, &options).unwrap();
    assert_eq!(picture_of_all(&mut store), before);
}

#[test]
fn what_an_opening_found_after_a_failed_sync_is_on_the_disk_then() {
    let disk = MemoryDisk::new();
    let mut store = written_and_not_synced(&disk);
    let before = picture_of_all(&mut store);
    // As Linux does it: the bytes are read as before, and no later sync writes them.
    disk.fail(Failure {
        verb: Some(Verb::Sync),
        at: 1,
        fault: Fault::Drop,
        lasting: true,
    });
    let error = store.sync_handle().sync().unwrap_err();
    assert!(error.to_string().contains("sync the log"), "{error}");
    drop(store);
    disk.crash(Keep::Written);
    let mut store = Store::open_in_memory(&disk, &options()).unwrap();
    assert_eq!(picture_of_all(&mut store), before);
    drop(store);
    disk.crash(Keep::Synced);
    let mut store = Store::open_in_memory(&disk, &options()).unwrap();
    assert_eq!(picture_of_all(&mut store), before);
}
