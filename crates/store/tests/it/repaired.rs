//! Repairs: whatever file is damaged or lost, the partition is clean afterwards, what was lost is
//! listed and refused, and the plan says so beforehand and changes nothing.

use crate::lost::{churn, filled, judge, open, options, tended};
use crate::world::*;
use ariel_store::{
    Keep, MemoryDisk, Options, Repaired, Store, StoreError, fsck_memory_with_engine,
    repair_memory_with_engine,
};
use std::collections::BTreeMap;
use wire::*;

fn repair(disk: &MemoryDisk, dry_run: bool) -> Result<Repaired, StoreError> {
    repair_memory_with_engine(disk, &options(), dry_run)
}

/// All files but the index's, which its engine may put in order whenever it is opened.
fn contents(disk: &MemoryDisk) -> BTreeMap<String, Vec<u8>> {
    let files = disk.files().into_iter().map(|(name, _)| name);
    let others = files.filter(|name| name != "index.redb");
    others
        .map(|name| (name.clone(), disk.contents(&name).unwrap()))
        .collect()
}

/// A store as a server may leave it: most of its log was cleaned, all of it is in the index.
fn worn() -> (MemoryDisk, BTreeMap<String, Seen>) {
    let (disk, _) = filled();
    let (expected, _) = churn(&disk);
    (disk, expected)
}

/// Plans and repairs, and judges what is left. Returns how much of it is lost.
fn mended(disk: &MemoryDisk, expected: &BTreeMap<String, Seen>, what: &str) -> u64 {
    let before = contents(disk);
    let plan = repair(disk, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        contents(disk) == before,
        "{what}: the plan changed something"
    );
    let done = repair(disk, false).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(plan.steps, done.steps, "{what}");
    assert!(done.after.is_clean(), "{what}: {}", done.after);
    let report = fsck_memory_with_engine(disk).unwrap();
    assert!(report.is_clean(), "{what}: {report}");
    let mut store = open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let refused = judge(&mut store, expected, what);
    assert_eq!(refused > 0, !report.losses.is_empty(), "{what}: {report:?}");
    assert!(store.stats().rebuildable, "{what}");
    tended(&mut store);
    assert_eq!(judge(&mut store, expected, what), refused, "{what}");
    store.close().unwrap();
    let again = repair(disk, false).unwrap();
    assert_eq!(again.steps, Vec::<String>::new(), "{what}: once more");
    refused
}

#[test]
fn each_file_may_be_lost() {
    let (disk, expected) = worn();
    let names: Vec<String> = disk.files().into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|name| name.starts_with("image-")));
    let mut lost = 0;
    for name in names {
        let what = format!("{name} lost");
        let disk = disk.copy();
        assert!(disk.lose(&name));
        // A server that starts all the same shows nothing that is wrong.
        let copy = disk.copy();
        match open(&copy) {
            Ok(mut store) => {
                judge(&mut store, &expected, &what);
                tended(&mut store);
                judge(&mut store, &expected, &what);
            }
            Err(error) => assert!(error.to_string().contains("ariel fsck"), "{error}"),
        }
        let refused = mended(&disk, &expected, &what);
        assert!(refused == 0 || name.starts_with("log-"), "{what}");
        lost += u64::from(refused > 0);
    }
    assert!(lost > 2, "{lost}");
}

#[test]
fn each_file_may_be_damaged() {
    let (disk, expected) = worn();
    let files = disk.files();
    let total: u64 = files.iter().map(|(_, len)| len).sum();
    let count = 120;
    let (mut lost, mut steps) = (0, 0);
    for nth in 0..count {
        let mut at = nth * total / count;
        let mut files = files.iter();
        let (name, len) = loop {
            let (name, len) = files.next().unwrap();
            if at < *len {
                break (name, *len);
            }
            at -= len;
        };
        let size = [1, 40, 700, 4096][(nth % 4) as usize].min(len - at);
        let what = format!("damage {nth}: {size} bytes at {at} of {name}");
        let disk = disk.copy();
        assert!(disk.damage(name, at, &bytes(nth + 9, size as usize)));
        if let Ok(mut store) = open(&disk.copy()) {
            judge(&mut store, &expected, &what);
        }
        steps += u64::from(!repair(&disk, true).unwrap().steps.is_empty());
        lost += u64::from(mended(&disk, &expected, &what) > 0);
    }
    println!("{count} damages: {steps} were repaired, {lost} cost bytes");
    assert!(steps > count / 3 && lost > 10, "{steps} {lost}");
}

/// A log that was synced in the middle, and not checkpointed.
fn not_checkpointed() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let options = Options {
        checkpoint_bytes: 1 << 30,
        ..options()
    };
    let mut store = Store::on_memory_with_engine(&disk, &options).unwrap();
    for n in 0..6 {
        let fid = make(&mut store, root(), &format!("file{n}"));
        written(write(&mut store, fid, 0, &bytes(n, 9_000)));
        store.write_out().unwrap();
        store.sync_handle().sync().unwrap();
    }
    drop(store);
    disk.crash(Keep::Synced);
    disk
}

#[test]
fn changes_that_cannot_be_applied_are_listed_and_those_before_them_are_kept() {
    let disk = not_checkpointed();
    let files = disk.files().into_iter().map(|(name, _)| name);
    let logs: Vec<String> = files.filter(|name| name.starts_with("log-")).collect();
    let holds = |name: &&String| {
        let all = disk.contents(name).unwrap();
        all.windows(5).any(|part| part == b"file3")
    };
    let log = logs.iter().find(holds).unwrap();
    let all = disk.contents(log).unwrap();
    let at = all.windows(5).position(|part| part == b"file3").unwrap();
    assert!(disk.flip(log, at as u64));
    let error = open(&disk.copy()).unwrap_err();
    assert!(error.to_string().contains("ariel fsck"), "{error}");
    let plan = repair(&disk, true).unwrap();
    let done = repair(&disk, false).unwrap();
    assert_eq!(plan.lost_changes, done.lost_changes);
    let told = done.lost_changes.join("\n");
    assert!(told.contains("file4") && told.contains("file5"), "{told}");
    assert!(!told.contains("file2"), "{told}");
    assert!(done.after.is_clean(), "{}", done.after);
    let mut store = open(&disk).unwrap();
    let names: Vec<String> = picture(&mut store).into_keys().collect();
    assert_eq!(names, ["", "/file0", "/file1", "/file2"]);
    for n in 0..3 {
        let fid = store.lookup(root(), &name(&format!("file{n}"))).unwrap();
        assert_eq!(read_all(&mut store, fid.unwrap()), bytes(n, 9_000));
    }
    // The cut end is kept.
    let aside = disk.files().into_iter().map(|(name, _)| name);
    assert!(aside.into_iter().any(|name| name.ends_with(".damaged")));
    // And the store goes on.
    let fid = make(&mut store, root(), "file3");
    written(write(&mut store, fid, 0, b"again"));
    store.close().unwrap();
    assert!(fsck_memory_with_engine(&disk).unwrap().is_clean());
}

#[test]
fn lost_bytes_are_refused_until_they_are_written_again() {
    let (disk, expected) = worn();
    let large = &expected["/large"];
    let piece = &large.bytes[20_000..20_100];
    let files = disk.files().into_iter().map(|(name, _)| name);
    let (log, at) = files
        .filter(|name| name.starts_with("log-"))
        .find_map(|name| {
            let all = disk.contents(&name).unwrap();
            let at = all.windows(100).position(|part| part == piece)?;
            Some((name, at))
        })
        .unwrap();
    assert!(disk.flip(&log, at as u64));
    let done = repair(&disk, false).unwrap();
    assert_eq!(done.after.losses.len(), 1, "{:?}", done.after.losses);
    let loss = &done.after.losses[0];
    assert!(loss.file.contains("/large") && loss.to - loss.from <= 4096);
    let mut store = open(&disk).unwrap();
    let mut into = Vec::new();
    let refused = Outcome::Refused(Refusal::Damaged);
    assert_eq!(store.read(large.fid, loss.from, 10, &mut into), refused);
    store.read(large.fid, loss.to, 1_000, &mut into);
    assert_eq!(into, large.bytes[loss.to as usize..][..1_000]);
    // A copy of lost bytes is lost, too.
    let copy = make(&mut store, root(), "copy");
    let op = Op::Copy {
        from: large.fid,
        at: 0,
        to: copy,
        offset: 0,
        len: large.bytes.len() as u32,
    };
    assert!(matches!(run(&mut store, &op), Outcome::Copied { .. }));
    assert_eq!(store.read(copy, loss.from, 10, &mut into), refused);
    let fresh = bytes(1, (loss.to - loss.from) as usize);
    written(write(&mut store, large.fid, loss.from, &fresh));
    let now = read_all(&mut store, large.fid);
    assert!(now[loss.from as usize..loss.to as usize] == fresh);
    let report = store.check();
    assert!(report.is_clean() && report.losses.len() == 1, "{report}");
    assert!(report.losses[0].file.contains("/copy"));
}
