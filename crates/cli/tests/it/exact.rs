//! Each mount sees the other's changes, always: contents and attributes of files, 500 rounds
//! each. The two mounts change places in every round.

use crate::harness::Pair;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Rounds of each promise.
pub const ROUNDS: usize = 500;

/// A content that no other round has, of a length that no other neighbour has.
pub fn content(round: usize) -> Vec<u8> {
    let len = [0, 1, 100, 4095, 4096, 4097, 9000, 70_001][round % 8];
    let mut bytes = format!("round {round}:").into_bytes();
    bytes.extend((0..len).map(|i| (i * 31 + round * 7) as u8));
    bytes
}

fn handle(path: &Path, write: bool) -> File {
    File::options().read(true).write(write).open(path).unwrap()
}

/// All bytes through an open file, without moving its position.
pub fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 256 * 1024];
    let mut len = 0;
    loop {
        match file.read_at(&mut bytes[len..], len as u64).unwrap() {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    bytes
}

#[track_caller]
pub fn same_bytes(seen: &[u8], expected: &[u8], round: usize) {
    if seen == expected {
        return;
    }
    let at = seen
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    let (s, e) = (seen.len(), expected.len());
    panic!("round {round}: {s} bytes seen, {e} expected, the first difference at {at}");
}

#[test]
fn close_then_open_sees_the_write() {
    let Some(pair) = Pair::start("close-open") else {
        return;
    };
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let name = format!("file-{}", round % 3);
        fs::write(one.join(&name), content(round)).unwrap();
        same_bytes(
            &fs::read(other.join(&name)).unwrap(),
            &content(round),
            round,
        );
    }
}

#[test]
fn a_reader_that_holds_the_file_open_sees_the_write() {
    let Some(pair) = Pair::start("held-reader") else {
        return;
    };
    let name = "held";
    fs::write(pair.a.join(name), b"first").unwrap();
    let reader = handle(&pair.b.join(name), false);
    same_bytes(&read_all(&reader), b"first", 0);
    for round in 0..ROUNDS {
        let expected = content(round);
        if round.is_multiple_of(2) {
            fs::write(pair.a.join(name), &expected).unwrap();
        } else {
            // In place, the length changed afterwards: the name is not opened with O_TRUNC.
            let writer = handle(&pair.a.join(name), true);
            writer.write_all_at(&expected, 0).unwrap();
            writer.set_len(expected.len() as u64).unwrap();
        }
        same_bytes(&read_all(&reader), &expected, round);
    }
}

#[test]
fn both_hold_the_file_open_and_write_in_turn() {
    let Some(pair) = Pair::start("held-both") else {
        return;
    };
    fs::write(pair.a.join("both"), vec![0; 16 * 1024]).unwrap();
    let files = [
        handle(&pair.a.join("both"), true),
        handle(&pair.b.join("both"), true),
    ];
    let mut expected = vec![0_u8; 16 * 1024];
    for round in 0..ROUNDS {
        let (one, other) = (&files[round % 2], &files[(round + 1) % 2]);
        let at = round * 1237 % (15 * 1024);
        let piece = vec![round as u8 | 1; 700];
        one.write_all_at(&piece, at as u64).unwrap();
        expected[at..at + 700].copy_from_slice(&piece);
        same_bytes(&read_all(other), &expected, round);
        same_bytes(&read_all(one), &expected, round);
    }
}

#[test]
fn a_writer_that_holds_the_file_open_is_seen_by_new_readers() {
    let Some(pair) = Pair::start("held-writer") else {
        return;
    };
    let writer = File::create(pair.a.join("log")).unwrap();
    let mut expected = Vec::new();
    for round in 0..ROUNDS {
        let line = format!("line {round}\n");
        writer
            .write_all_at(line.as_bytes(), expected.len() as u64)
            .unwrap();
        expected.extend_from_slice(line.as_bytes());
        same_bytes(&fs::read(pair.b.join("log")).unwrap(), &expected, round);
    }
}

#[test]
fn append_is_seen_by_stat_and_fstat() {
    let Some(pair) = Pair::start("append-stat") else {
        return;
    };
    fs::write(pair.a.join("grows"), b"").unwrap();
    let held = [
        handle(&pair.a.join("grows"), false),
        handle(&pair.b.join("grows"), false),
    ];
    let (mut len, mut mtime) = (0, (0, 0));
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let mut file = File::options()
            .append(true)
            .open(one.join("grows"))
            .unwrap();
        let piece = vec![b'x'; 1 + round % 97];
        file.write_all(&piece).unwrap();
        if round % 3 == 0 {
            drop(file); // Otherwise it is still open when the other asks.
        }
        len += piece.len() as u64;
        let by_name = fs::metadata(other.join("grows")).unwrap();
        let by_handle = held[(round + 1) % 2].metadata().unwrap();
        assert_eq!(
            (by_name.len(), by_handle.len()),
            (len, len),
            "round {round}: stat, fstat"
        );
        let now = (by_name.mtime(), by_name.mtime_nsec());
        assert!(
            now >= mtime,
            "round {round}: mtime ran backwards from {mtime:?} to {now:?}"
        );
        mtime = now;
    }
}

#[test]
fn chmod_is_seen_at_once() {
    let Some(pair) = Pair::start("chmod") else {
        return;
    };
    fs::write(pair.a.join("file"), b"x").unwrap();
    fs::create_dir(pair.a.join("dir")).unwrap();
    let held = [
        handle(&pair.a.join("file"), false),
        handle(&pair.b.join("file"), false),
    ];
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let mode = 0o400 + (round as u32 % 0o100);
        for name in ["file", "dir"] {
            fs::set_permissions(one.join(name), fs::Permissions::from_mode(mode)).unwrap();
            let seen = fs::metadata(other.join(name)).unwrap().mode() & 0o7777;
            assert_eq!(seen, mode, "round {round}: the mode of {name}");
        }
        let seen = held[(round + 1) % 2].metadata().unwrap().mode() & 0o7777;
        assert_eq!(seen, mode, "round {round}: the mode by fstat");
    }
}

#[test]
fn truncation_and_growth_are_seen_at_once() {
    let Some(pair) = Pair::start("truncate") else {
        return;
    };
    let mut expected = content(7);
    fs::write(pair.a.join("file"), &expected).unwrap();
    let held = [
        handle(&pair.a.join("file"), true),
        handle(&pair.b.join("file"), true),
    ];
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let len = round * 7919 % 50_000;
        if round % 3 == 0 {
            held[round % 2].set_len(len as u64).unwrap();
        } else {
            // By name: a change without an open.
            let path = one.join("file");
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(len as u64)
                .unwrap();
        }
        expected.resize(len, 0);
        assert_eq!(
            fs::metadata(other.join("file")).unwrap().len(),
            len as u64,
            "round {round}"
        );
        same_bytes(&read_all(&held[(round + 1) % 2]), &expected, round);
        same_bytes(&fs::read(other.join("file")).unwrap(), &expected, round);
    }
}

#[test]
fn times_set_are_seen_at_once() {
    let Some(pair) = Pair::start("utimens") else {
        return;
    };
    fs::write(pair.a.join("file"), b"x").unwrap();
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let at = std::time::UNIX_EPOCH
            + std::time::Duration::new(1_000_000 + round as u64, 123_456_789 + round as u32);
        let file = File::options().write(true).open(one.join("file")).unwrap();
        file.set_modified(at).unwrap();
        let seen = fs::metadata(other.join("file"))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(seen, at, "round {round}");
    }
}

#[test]
fn an_extended_attribute_is_seen_at_once() {
    use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
    let Some(pair) = Pair::start("xattr") else {
        return;
    };
    fs::write(pair.a.join("file"), b"x").unwrap();
    let get = |path: &Path| {
        let mut value = [0; 64];
        getxattr(path, "user.round", &mut value[..]).map(|n| value[..n].to_vec())
    };
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let (one, other) = (one.join("file"), other.join("file"));
        if round % 5 == 4 {
            removexattr(&one, "user.round").unwrap();
            assert_eq!(get(&other), Err(rustix::io::Errno::NODATA), "round {round}");
        } else {
            let value = format!("value {round}").into_bytes();
            setxattr(&one, "user.round", &value, XattrFlags::empty()).unwrap();
            assert_eq!(get(&other), Ok(value), "round {round}");
        }
    }
}

#[test]
fn times_before_1970_are_kept_everywhere() {
    let Some(pair) = Pair::start("before-1970") else {
        return;
    };
    for (round, seconds) in [1, 315_593_940, 2_000_000_000].into_iter().enumerate() {
        let (one, other) = pair.sides(round);
        let at = std::time::UNIX_EPOCH - std::time::Duration::new(seconds, 7_000);
        let path = one.join(format!("f{round}"));
        // Bytes that are written back later do not change it.
        let mut file = File::create(&path).unwrap();
        file.write_all(b"old").unwrap();
        file.set_modified(at).unwrap();
        let seen = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(seen(&path), at);
        file.sync_all().unwrap();
        assert_eq!(seen(&path), at);
        assert_eq!(seen(&other.join(format!("f{round}"))), at);
        file.write_all(b"new").unwrap();
        assert!(seen(&other.join(format!("f{round}"))) > std::time::UNIX_EPOCH);
    }
}
