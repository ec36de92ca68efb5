//! Any one file of a store is damaged or lost: nothing wrong is shown, no name is missing in
//! silence, and the index comes back from the log, also after most of the log was cleaned.

use crate::world::*;
use ariel_store::{Fault, Keep, MemoryDisk, Options, Store, StoreError};
use std::collections::BTreeMap;
use wire::*;

const INDEX: &str = "index.redb";
pub type Picture = BTreeMap<String, Seen>;

pub fn options() -> Options {
    Options {
        checkpoint_ms: 0,
        index_cache_bytes: 0,
        ..small()
    }
}

pub fn open(disk: &MemoryDisk) -> Result<Store, StoreError> {
    Store::on_memory_with_engine(disk, &options())
}

/// A store in which everything occurs that an index can hold, closed.
pub fn filled() -> (MemoryDisk, Picture) {
    let disk = MemoryDisk::new();
    let mut store = open(&disk).unwrap();
    store.open_session(77, 5);
    for d in 0..6 {
        let dir = mkdir(&mut store, root(), &format!("dir{d}"));
        for f in 0..40 {
            let fid = make(&mut store, dir, &format!("file-with-a-name-{d}-{f}"));
            written(write(&mut store, fid, 0, &bytes(f, 20 + 30 * f as usize)));
        }
        let target = Make::Symlink(b"../somewhere".to_vec());
        run(&mut store, &make_op(dir, "link", target, 0));
        let xattr = Op::SetXattr {
            fid: dir,
            name: b"user.color".to_vec(),
            value: bytes(d, 300),
            mode: XattrMode::Any,
        };
        run(&mut store, &xattr);
    }
    let large = make(&mut store, root(), "large");
    for at in 0..12_u64 {
        written(write(&mut store, large, at * 9_000, &bytes(at, 9_000)));
    }
    let expected = picture(&mut store);
    store.close().unwrap();
    disk.crash(Keep::Synced);
    (disk, expected)
}

/// Overwrites until most of the log has been cleaned and removed; returns how many segments there
/// were.
pub fn churn(disk: &MemoryDisk) -> (Picture, u64) {
    let mut store = open(disk).unwrap();
    for round in 0..120_u64 {
        let text = format!("churn{}", round % 7);
        let there = store.lookup(root(), &name(&text)).unwrap();
        let fid = there.unwrap_or_else(|| make(&mut store, root(), &text));
        written(write(&mut store, fid, 0, &bytes(round, 30_000)));
        store.checkpoint().unwrap();
    }
    let mut now = 0;
    while let Some(next) = store.tend(now) {
        now = next;
    }
    let expected = picture(&mut store);
    let stats = store.stats();
    let made = stats.appended_bytes / options().segment_bytes;
    println!(
        "{} bytes of images beside {} of log",
        stats.image_bytes, stats.appended_bytes
    );
    assert!((1..stats.appended_bytes).contains(&stats.image_bytes));
    store.close().unwrap();
    disk.crash(Keep::Synced);
    (expected, made)
}

fn segments(disk: &MemoryDisk) -> Vec<String> {
    let names = disk.files().into_iter().map(|(name, _)| name);
    names.filter(|name| name.starts_with("log-")).collect()
}

/// Everything that is not refused as damaged is as expected. Returns how much was refused.
pub fn judge(store: &mut Store, expected: &Picture, what: &str) -> u64 {
    let mut refused = 0;
    for (path, seen) in expected {
        let (parent, text) = path.rsplit_once('/').unwrap_or(("", ""));
        let found = match expected.get(parent).filter(|_| !text.is_empty()) {
            Some(dir) => store.lookup(dir.fid, &name(text)),
            None => Ok(Some(seen.fid)),
        };
        match found {
            Ok(found) => assert_eq!(found, Some(seen.fid), "{what}: {path}"),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Damaged, "{what}: {path}");
                refused += 1;
            }
        }
        match store.attr(seen.fid) {
            Ok(attr) => assert_eq!(attr.as_ref(), Some(&seen.attr), "{what}: {path}"),
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Damaged, "{what}: {path}");
                refused += 1;
                continue;
            }
        }
        refused += match seen.attr.kind {
            Kind::Directory => judge_list(store, (path, seen.fid), expected, what),
            Kind::File => judge_bytes(store, seen, &format!("{what}: {path}")),
            _ => 0,
        };
    }
    refused
}

fn judge_list(
    store: &mut Store,
    (path, dir): (&String, Fid),
    expected: &Picture,
    what: &str,
) -> u64 {
    let read = Op::ReadDir {
        dir,
        after: 0,
        max: 1_000,
    };
    let prefix = format!("{path}/");
    let below = expected.keys().filter_map(|of| of.strip_prefix(&prefix));
    let mut names: Vec<String> = below.filter(|n| !n.contains('/')).map(Into::into).collect();
    match run(store, &read) {
        Outcome::Dir { entries, end, .. } => {
            assert!(end);
            let mut found: Vec<String> = entries.iter().map(|e| e.name.to_string()).collect();
            names.sort();
            found.sort();
            assert_eq!(found, names, "{what}: {path}");
            0
        }
        other => {
            assert_eq!(other, Outcome::Refused(Refusal::Damaged), "{what}: {path}");
            1
        }
    }
}

fn judge_bytes(store: &mut Store, seen: &Seen, what: &str) -> u64 {
    let mut into = Vec::new();
    match store.read(seen.fid, 0, limits::BULK_BYTES, &mut into) {
        Outcome::Read { .. } => {
            assert!(into == seen.bytes, "{what}: other bytes");
            0
        }
        other => {
            assert_eq!(other, Outcome::Refused(Refusal::Damaged), "{what}");
            1
        }
    }
}

/// Looks after the store until it wants nothing more.
pub fn tended(store: &mut Store) {
    let mut now = 0;
    while let Some(next) = store.tend(now) {
        now = next;
    }
}

/// Damages of 1 to 4096 bytes all over the index: zeros, other bytes, and pages of itself.
#[test]
fn damage_of_the_index_is_refused_or_cured_and_never_believed() {
    let (disk, expected) = filled();
    let index = disk.contents(INDEX).unwrap();
    let count = 2_000;
    let (mut refusals, mut healed, mut at_once) = (0, 0, 0);
    for nth in 0..count {
        let random = u64::from_le_bytes(bytes(nth, 8).try_into().unwrap());
        let at = (nth * index.len() as u64 / count + random % 600) as usize;
        let at = at.min(index.len() - 1);
        let len = [1, 8, 100, 512, 4096][(nth % 5) as usize].min(index.len() - at);
        let from = (random >> 20) as usize % (index.len() - len);
        let with = match nth / 5 % 3 {
            0 => vec![0; len],
            1 => bytes(nth + 1, len),
            _ => index[from..from + len].to_vec(),
        };
        let disk = disk.copy();
        let what = format!("damage {nth}: {len} bytes at {at}");
        let opened = |disk| open(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        // Half of them while a server works on it, of which the engine keeps nothing in memory.
        let mut store = if nth % 2 == 0 {
            assert!(disk.damage(INDEX, at as u64, &with));
            opened(&disk)
        } else {
            let store = opened(&disk);
            assert!(disk.damage(INDEX, at as u64, &with));
            store
        };
        let refused = judge(&mut store, &expected, &what);
        refusals += u64::from(refused > 0);
        at_once += u64::from(disk.contents("index.damaged").is_some());
        assert_eq!(store.ails(), refused > 0, "{what}");
        tended(&mut store);
        healed += store.stats().index_rebuilds;
        assert_eq!(judge(&mut store, &expected, &what), 0, "{what}: cured");
    }
    println!("{count} damages: {refusals} refused something, {at_once} cured at opening");
    // Damage that no request has met is found by the next checkpoint.
    assert!(refusals > 100 && healed >= refusals, "{refusals} {healed}");
}

#[test]
fn a_lost_index_comes_back_also_after_most_of_the_log_was_cleaned() {
    let (disk, _) = filled();
    let (expected, made) = churn(&disk);
    let left = segments(&disk);
    assert!(left.len() as u64 * 5 <= made, "{left:?} of {made} are left");
    let all = (1..=left.len()).map(|nth| format!("log-{nth:08}"));
    assert!(!all.eq(left.iter().cloned()), "none was removed: {left:?}");
    for cut in [0, 1, 3] {
        let disk = disk.copy();
        let len = disk.contents(INDEX).unwrap().len();
        match cut {
            0 => assert!(disk.lose(INDEX)),
            _ => assert!(disk.cut(INDEX, (len * cut / 4) as u64)),
        }
        let mut store = open(&disk).unwrap();
        assert_eq!(picture(&mut store), expected);
        assert_eq!(store.sessions(), [77]);
        let report = store.check();
        assert!(report.is_clean(), "{report}");
    }
}

/// An index that somebody put back from an older copy.
#[test]
fn an_index_that_is_too_old_is_made_again() {
    let (disk, _) = filled();
    let old = disk.contents(INDEX).unwrap();
    let (expected, _) = churn(&disk);
    assert!(disk.lose(INDEX));
    disk.add(INDEX, &old);
    let mut store = open(&disk).unwrap();
    assert_eq!(picture(&mut store), expected);
    assert!(disk.contents("index.damaged").is_some());
}

#[test]
fn without_index_and_image_the_message_names_what_can_be_done() {
    let (disk, _) = filled();
    churn(&disk);
    let images: Vec<String> = disk.files().into_iter().map(|(name, _)| name).collect();
    for image in images.iter().filter(|name| name.starts_with("image-")) {
        assert!(disk.lose(image));
    }
    // The image alone is made again.
    let copy = disk.copy();
    let mut store = open(&copy).unwrap();
    assert!(!store.stats().rebuildable);
    tended(&mut store);
    assert!(store.stats().rebuildable);
    drop(store);
    assert!(disk.lose(INDEX));
    let error = open(&disk).unwrap_err();
    assert!(matches!(error, StoreError::IndexLost { .. }), "{error}");
    assert!(error.to_string().contains("put back"), "{error}");
}

/// The machine ends at each call that making the index again makes to the disk.
#[test]
fn making_the_index_again_may_be_interrupted_anywhere() {
    let (disk, _) = filled();
    let (expected, _) = churn(&disk);
    for call in 1.. {
        let disk = disk.copy();
        assert!(disk.lose(INDEX));
        disk.fail_at(call, Fault::Die);
        let first = open(&disk);
        let died = first.is_err();
        drop(first);
        disk.crash(Keep::Any(call));
        let mut store = open(&disk).unwrap_or_else(|error| panic!("call {call}: {error}"));
        assert_eq!(picture(&mut store), expected, "call {call}");
        if !died {
            assert!(call > 20, "{call}");
            return;
        }
    }
}
