//! A partition in a directory of the operating system.

use crate::world::*;
use ariel_store::{Apply, Options, Store, StoreError, fsck};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wire::*;

fn fill(store: &mut Store) -> Vec<(Fid, Vec<u8>)> {
    let mut files = Vec::new();
    for i in 0..30u64 {
        let fid = make(store, root(), &format!("file{i}"));
        let data = bytes(i, 300 * i as usize);
        written(write(store, fid, 0, &data));
        files.push((fid, data));
    }
    files
}

#[test]
fn a_partition_comes_back_after_an_orderly_end_and_after_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("partition");
    let mut store = Store::create(&path, &small()).unwrap();
    let mut files = fill(&mut store);
    store.close().unwrap();
    for round in 0..4 {
        let mut store = Store::open_or_create(&path, &small()).unwrap();
        for (fid, data) in &files {
            assert_eq!(read_all(&mut store, *fid), *data);
        }
        let fid = make(&mut store, root(), &format!("round{round}"));
        written(write(&mut store, fid, 10, &bytes(round, 5_000)));
        files.push((fid, [vec![0; 10], bytes(round, 5_000)].concat()));
        store.write_out().unwrap();
        if round % 2 == 0 {
            store.sync_handle().sync().unwrap();
        }
        assert_eq!(store.boot(), round + 2);
    }
    let report = fsck(&path).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.objects, 1 + files.len() as u64);
}

#[test]
fn checkpoints_beside_the_work_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::create(&dir.path().join("p"), &small()).unwrap();
    let mut twin = Store::in_memory(&small()).unwrap();
    for i in 0..400u64 {
        for store in [&mut store, &mut twin] {
            let fid = make(store, root(), &format!("f{i}"));
            written(write(store, fid, 0, &bytes(i, 900)));
            if i % 3 == 0 {
                let unlink = Op::Unlink {
                    dir: root(),
                    name: name(&format!("f{}", i / 2)),
                };
                run(store, &unlink);
            }
        }
    }
    assert!(store.stats().checkpoints > 2, "{:?}", store.stats());
    assert_eq!(picture(&mut store), picture(&mut twin));
    let report = store.check();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let store = Store::create(&path, &small()).unwrap();
    let error = Store::open(&path, &small()).unwrap_err();
    let me = std::process::id();
    assert!(
        matches!(error, StoreError::InUse { pid: Some(pid), .. } if pid == me),
        "{error}"
    );
    assert!(matches!(fsck(&path), Err(StoreError::InUse { .. })));
    drop(store);
    Store::open(&path, &small()).unwrap();
}

#[test]
fn what_is_no_partition_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let open = |path: &Path| Store::open(path, &Options::default()).unwrap_err();
    assert!(matches!(open(&nowhere), StoreError::NotAPartition(_)));
    assert!(!nowhere.exists());
    assert!(matches!(fsck(&nowhere), Err(StoreError::NotAPartition(_))));
    fs::write(dir.path().join("letter"), "dear").unwrap();
    assert!(matches!(open(dir.path()), StoreError::NotAPartition(_)));
    let error = Store::create(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty(_)));
    let error = Store::open_or_create(dir.path(), &Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::NotEmpty(_)), "{error}");
    Store::open_or_create(&nowhere, &small()).unwrap();
}

#[test]
fn a_creation_that_was_interrupted_is_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    drop(Store::create(&path, &small()).unwrap());
    let log = fs::OpenOptions::new()
        .write(true)
        .open(path.join("log-00000001"));
    log.unwrap().set_len(20).unwrap();
    let mut store = Store::open_or_create(&path, &small()).unwrap();
    assert_eq!(store.boot(), 1);
}

#[test]
fn damage_to_the_engines_file_ends_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let mut store = Store::create(&path, &small()).unwrap();
    fill(&mut store);
    store.close().unwrap();
    let index = path.join("index.redb");
    let whole = fs::read(&index).unwrap();
    let mut found = 0;
    let step = whole.len() / 40;
    for at in (0..whole.len()).step_by(step) {
        let file = fs::OpenOptions::new().write(true).open(&index).unwrap();
        file.write_all_at(&whole, 0).unwrap();
        file.set_len(whole.len() as u64).unwrap();
        file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap();
        found += usize::from(fsck(&path).is_ok_and(|report| !report.is_clean()));
    }
    // A flip in a page that is not in use is no damage.
    assert!(found > 0);
    // One in a value that is in use is: the name lies in an entry by position.
    let at = whole.windows(6).position(|part| part == b"file17").unwrap();
    fs::write(&index, &whole).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&index).unwrap();
    file.write_all_at(b"F", at as u64).unwrap();
    assert!(!fsck(&path).unwrap().is_clean());
    fs::write(&index, &whole).unwrap();
    let report = fsck(&path).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn the_same_operations_make_the_same_outcomes_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let mut on_disk = Store::create(&dir.path().join("p"), &small()).unwrap();
    let mut in_memory = Store::in_memory(&small()).unwrap();
    for i in 0..200u64 {
        let op = match i % 4 {
            0 => make_op(root(), &format!("f{}", i % 60), Make::File, 0o666),
            1 => make_op(root(), &format!("d{}", i % 70), Make::Directory, 0o777),
            2 => Op::ReadDir {
                dir: root(),
                after: i / 3,
                max: 7,
            },
            _ => Op::Unlink {
                dir: root(),
                name: name(&format!("f{}", i % 90)),
            },
        };
        let caller = user((i % 2) as u32);
        let outcomes = [&mut on_disk, &mut in_memory].map(|store| {
            store.apply(Apply {
                op: &op,
                caller: &caller,
                now: i,
                origin: Some(Origin {
                    session: 3,
                    request: i,
                }),
                data: &[],
                delegated: None,
            })
        });
        assert_eq!(outcomes[0], outcomes[1]);
    }
}
