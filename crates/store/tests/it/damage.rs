//! Planted damage: each is found, none is passed on as data.

use crate::world::*;
use ariel_store::{Damage, Keep, MemoryDisk, Report, Store, StoreError, fsck_memory};
use wire::*;

/// A partition with a large file, a small one and some names, closed.
fn closed() -> (MemoryDisk, Fid, Vec<u8>) {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let dir = mkdir(&mut store, root(), "dir");
    let small = make(&mut store, dir, "small");
    written(write(&mut store, small, 0, b"a few bytes"));
    let large = make(&mut store, dir, "large");
    let data = bytes(5, 20_000);
    written(write(&mut store, large, 0, &data));
    for i in 0..20 {
        make(&mut store, dir, &format!("f{i}"));
    }
    store.close().unwrap();
    disk.crash(Keep::Synced);
    (disk, large, data)
}

fn find(disk: &MemoryDisk, what: &[u8]) -> (String, u64) {
    for (file, _) in disk.files() {
        let all = disk.contents(&file).unwrap();
        if let Some(at) = all.windows(what.len()).position(|part| part == what) {
            return (file, at as u64);
        }
    }
    panic!("not on the disk");
}

fn texts(report: &Report) -> Vec<String> {
    report.damages.iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_partition_has_no_damage_and_its_orphans_are_none() {
    let (disk, large, _) = closed();
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    let dir = store.lookup(root(), &name("dir")).unwrap().unwrap();
    let unlink = Op::Unlink {
        dir,
        name: name("large"),
    };
    run(&mut store, &unlink);
    store.close().unwrap();
    let report = fsck_memory(&disk).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.orphans, [large]);
    assert_eq!((report.objects, report.bytes), (24, 20_011));
}

#[test]
fn a_flipped_byte_of_a_file_is_refused_and_found() {
    let (disk, large, data) = closed();
    let (file, at) = find(&disk, &data[..64]);
    assert!(disk.flip(&file, at + 9_000));
    let report = fsck_memory(&disk).unwrap();
    assert_eq!(report.damages.len(), 1, "{report}");
    assert!(matches!(
        report.damages[0],
        Damage::Bytes {
            from: 0,
            to: 20_000,
            ..
        }
    ));
    assert!(texts(&report)[0].contains("/dir/large"), "{report}");
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    let mut got = vec![1];
    let damaged = store.read(large, 8_192, 4_096, &mut got);
    assert_eq!(damaged, Outcome::Refused(Refusal::Damaged));
    assert!(got.is_empty());
    // The rest of the file is as good as ever, also in the same record.
    store.read(large, 0, 8_192, &mut got);
    assert_eq!(got, data[..8_192]);
    store.read(large, 12_288, 8_192, &mut got);
    assert_eq!(got, data[12_288..]);
    // Written again, it is sound again.
    written(write(&mut store, large, 8_192, &data[8_192..12_288]));
    assert_eq!(read_all(&mut store, large), data);
    assert!(store.check().is_clean());
}

#[test]
fn a_flipped_byte_of_a_record_is_found() {
    let (disk, ..) = closed();
    let (file, at) = find(&disk, b"f7");
    assert!(disk.flip(&file, at));
    let report = fsck_memory(&disk).unwrap();
    assert!(
        matches!(report.damages[..], [Damage::Log { .. }]),
        "{report}"
    );
    // The index has what the record said: nothing is lost yet.
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert_eq!(picture(&mut store).len(), 24);
}

/// A partition of which the log was synced in the middle, and not checkpointed.
fn not_checkpointed() -> (MemoryDisk, Fid, Vec<u8>) {
    let disk = MemoryDisk::new();
    let options = ariel_store::Options {
        checkpoint_bytes: 1 << 20,
        ..small()
    };
    let mut store = Store::create_in_memory(&disk, &options).unwrap();
    let fid = make(&mut store, root(), "early");
    let data = bytes(8, 6_000);
    written(write(&mut store, fid, 0, &data));
    store.write_out().unwrap();
    store.sync_handle().sync().unwrap();
    make(&mut store, root(), "late");
    store.write_out().unwrap();
    store.sync_handle().sync().unwrap();
    drop(store);
    disk.crash(Keep::Synced);
    (disk, fid, data)
}

#[test]
fn damage_in_the_middle_of_the_log_is_not_taken_for_its_end() {
    let (disk, ..) = not_checkpointed();
    let (file, at) = find(&disk, b"early");
    disk.flip(&file, at);
    let error = Store::open_in_memory(&disk, &small()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error}");
    assert!(error.to_string().contains("fsck"), "{error}");
    assert!(!fsck_memory(&disk).unwrap().is_clean());
}

#[test]
fn damaged_bytes_in_the_middle_of_the_log_cost_only_themselves() {
    let (disk, fid, data) = not_checkpointed();
    let (file, at) = find(&disk, &data[..64]);
    disk.flip(&file, at + 10);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    assert!(store.lookup(root(), &name("late")).unwrap().is_some());
    let mut got = Vec::new();
    let outcome = store.read(fid, 0, 100, &mut got);
    assert_eq!(outcome, Outcome::Refused(Refusal::Damaged));
    store.read(fid, 4_096, 1_000, &mut got);
    assert_eq!(got, data[4_096..5_096]);
}

#[test]
fn a_missing_segment_is_found() {
    let (disk, large, data) = closed();
    let (file, _) = find(&disk, &data[..64]);
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    // Into the next segment, so that recovery does not need the one that goes.
    for i in 0..12 {
        let fid = make(&mut store, root(), &format!("more{i}"));
        written(write(&mut store, fid, 0, &bytes(i, 9_000)));
    }
    store.close().unwrap();
    assert!(disk.lose(&file));
    let report = fsck_memory(&disk).unwrap();
    let named = |text: &String| text.contains("/dir/large") && text.contains("missing");
    assert!(texts(&report).iter().any(named), "{report}");
    let mut store = Store::open_in_memory(&disk, &small()).unwrap();
    let outcome = store.read(large, 0, 10, &mut Vec::new());
    assert_eq!(outcome, Outcome::Refused(Refusal::Damaged));
}

#[test]
fn a_missing_segment_that_recovery_needs_is_an_error() {
    let (disk, ..) = closed();
    let (last, _) = disk.files().pop().unwrap();
    disk.lose(&last);
    let error = Store::open_in_memory(&disk, &small()).unwrap_err();
    assert!(
        matches!(error, StoreError::Damaged(_) | StoreError::Io { .. }),
        "{error}"
    );
}

#[test]
fn a_flipped_byte_of_every_kind_of_index_entry_is_found() {
    // The kind is the thirteenth byte of a key.
    for kind in [0, 1, 2, 3, 4] {
        let (disk, ..) = closed();
        assert!(disk.flip_index(12, kind), "no entry of kind {kind}");
        let report = fsck_memory(&disk).unwrap();
        assert!(!report.is_clean(), "kind {kind}");
        let mut store = Store::open_in_memory(&disk, &small()).unwrap();
        // It may refuse; it must not say what is not so.
        let dir = store.lookup(root(), &name("dir"));
        if let Ok(Some(dir)) = dir {
            run(
                &mut store,
                &Op::ReadDir {
                    dir,
                    after: 0,
                    max: 100,
                },
            );
        }
        assert!(!store.check().is_clean());
    }
}
