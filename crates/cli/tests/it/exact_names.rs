//! Each mount sees the other's changes of names, always: created after it was seen absent,
//! removed, renamed over, listed. 500 rounds each, the mounts changing places in every round.

use crate::exact::{ROUNDS, read_all, same_bytes};
use crate::harness::Pair;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn kind_of(path: &Path) -> Result<fs::FileType, ErrorKind> {
    fs::symlink_metadata(path)
        .map(|m| m.file_type())
        .map_err(|e| e.kind())
}

fn names(dir: &Path) -> BTreeSet<String> {
    let list: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let set: BTreeSet<String> = list.iter().cloned().collect();
    assert_eq!(list.len(), set.len(), "a name is listed twice: {list:?}");
    set
}

#[test]
fn a_name_made_after_it_was_seen_absent_is_seen() {
    let Some(pair) = Pair::start("absent") else {
        return;
    };
    fs::write(pair.a.join("source"), b"source").unwrap();
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let name = format!("name-{round}");
        let (here, there) = (one.join(&name), other.join(&name));
        for path in [&there, &here, &there] {
            assert_eq!(
                kind_of(path),
                Err(ErrorKind::NotFound),
                "round {round}: before"
            );
        }
        match round % 5 {
            0 => fs::write(&here, b"new").unwrap(),
            1 => fs::create_dir(&here).unwrap(),
            2 => std::os::unix::fs::symlink("source", &here).unwrap(),
            3 => fs::hard_link(one.join("source"), &here).unwrap(),
            _ => {
                fs::write(one.join("passing"), b"new").unwrap();
                fs::rename(one.join("passing"), &here).unwrap();
            }
        }
        let seen = kind_of(&there);
        assert_eq!(seen, kind_of(&here), "round {round}");
        let seen = seen.unwrap();
        assert_eq!(seen.is_dir(), round % 5 == 1, "round {round}");
        assert_eq!(seen.is_symlink(), round % 5 == 2, "round {round}");
        if !seen.is_dir() {
            let expected: &[u8] = if matches!(round % 5, 2 | 3) {
                b"source"
            } else {
                b"new"
            };
            same_bytes(&fs::read(&there).unwrap(), expected, round);
        }
    }
}

#[test]
fn unlink_is_seen_at_once_and_open_files_live_on() {
    let Some(pair) = Pair::start("unlink") else {
        return;
    };
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let name = format!("file-{}", round % 4);
        let content = format!("content of {round}").into_bytes();
        fs::write(one.join(&name), &content).unwrap();
        let held = File::open(other.join(&name)).unwrap();
        same_bytes(&read_all(&held), &content, round);
        // The mount that holds it open removes it, or the other does.
        let by = if round % 4 < 2 { one } else { other };
        fs::remove_file(by.join(&name)).unwrap();
        for side in [one, other] {
            assert_eq!(
                kind_of(&side.join(&name)),
                Err(ErrorKind::NotFound),
                "round {round}"
            );
            let open = File::open(side.join(&name)).map_err(|e| e.kind());
            assert_eq!(open.err(), Some(ErrorKind::NotFound), "round {round}: open");
        }
        same_bytes(&read_all(&held), &content, round);
        assert_eq!(
            held.metadata().unwrap().nlink(),
            0,
            "round {round}: links of the open file"
        );
    }
}

#[test]
fn rmdir_is_seen_at_once() {
    let Some(pair) = Pair::start("rmdir") else {
        return;
    };
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        fs::create_dir(one.join("dir")).unwrap();
        assert!(names(&other.join("dir")).is_empty(), "round {round}");
        fs::write(other.join("dir/file"), b"x").unwrap();
        let full = fs::remove_dir(one.join("dir")).map_err(|e| e.kind());
        assert_eq!(full, Err(ErrorKind::DirectoryNotEmpty), "round {round}");
        fs::remove_file(one.join("dir/file")).unwrap();
        fs::remove_dir(other.join("dir")).unwrap();
        assert_eq!(
            kind_of(&one.join("dir")),
            Err(ErrorKind::NotFound),
            "round {round}"
        );
    }
}

#[test]
fn rename_over_is_seen_at_once() {
    let Some(pair) = Pair::start("rename-over") else {
        return;
    };
    fs::write(pair.a.join("target"), b"before the first").unwrap();
    let mut before = b"before the first".to_vec();
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let held = File::open(other.join("target")).unwrap();
        same_bytes(&read_all(&held), &before, round);
        let content = format!("content of {round}").into_bytes();
        fs::write(one.join("new"), &content).unwrap();
        assert!(
            kind_of(&other.join("new")).is_ok(),
            "round {round}: the new name"
        );
        fs::rename(one.join("new"), one.join("target")).unwrap();
        assert_eq!(
            kind_of(&other.join("new")),
            Err(ErrorKind::NotFound),
            "round {round}"
        );
        same_bytes(&fs::read(other.join("target")).unwrap(), &content, round);
        same_bytes(&read_all(&held), &before, round);
        assert_eq!(
            held.metadata().unwrap().nlink(),
            0,
            "round {round}: the replaced file"
        );
        let (here, there) = (one.join("target"), other.join("target"));
        let inodes = [here, there].map(|path| fs::metadata(path).unwrap().ino());
        assert_eq!(
            inodes[0], inodes[1],
            "round {round}: one file, two inode numbers"
        );
        before = content;
    }
}

#[test]
fn a_directory_moved_is_seen_at_once() {
    let Some(pair) = Pair::start("move-dir") else {
        return;
    };
    for dir in ["left", "right", "left/moving"] {
        fs::create_dir(pair.a.join(dir)).unwrap();
    }
    fs::write(pair.a.join("left/moving/file"), b"inside").unwrap();
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let (from, to) = if round % 2 == 0 {
            ("left", "right")
        } else {
            ("right", "left")
        };
        same_bytes(
            &fs::read(other.join(from).join("moving/file")).unwrap(),
            b"inside",
            round,
        );
        fs::rename(one.join(from).join("moving"), one.join(to).join("moving")).unwrap();
        let gone = kind_of(&other.join(from).join("moving/file"));
        assert_eq!(gone, Err(ErrorKind::NotFound), "round {round}");
        same_bytes(
            &fs::read(other.join(to).join("moving/file")).unwrap(),
            b"inside",
            round,
        );
        assert!(
            names(&other.join(from)).is_empty(),
            "round {round}: what was left behind"
        );
    }
}

#[test]
fn a_listing_is_what_is_there() {
    let Some(pair) = Pair::start("listing") else {
        return;
    };
    fs::create_dir(pair.a.join("dir")).unwrap();
    let mut expected = BTreeSet::new();
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let dir = one.join("dir");
        assert_eq!(names(&other.join("dir")), expected, "round {round}: before");
        let name = format!("name-{round:03}");
        let oldest = expected.iter().next().cloned();
        match (oldest, round % 4) {
            (Some(old), 1) => {
                fs::remove_file(dir.join(&old)).unwrap();
                expected.remove(&old);
            }
            (Some(old), 2) => {
                fs::rename(dir.join(&old), dir.join(&name)).unwrap();
                expected.remove(&old);
                expected.insert(name);
            }
            _ => {
                fs::write(dir.join(&name), b"").unwrap();
                expected.insert(name);
            }
        }
        assert_eq!(
            names(&other.join("dir")),
            expected,
            "round {round}: the other side"
        );
        assert_eq!(names(&dir), expected, "round {round}: the same side");
    }
}

#[test]
fn a_symlink_replaced_points_elsewhere_at_once() {
    let Some(pair) = Pair::start("symlink") else {
        return;
    };
    for round in 0..ROUNDS {
        let (one, other) = pair.sides(round);
        let _ = fs::remove_file(one.join("link"));
        let target = format!("target-{round}");
        std::os::unix::fs::symlink(&target, one.join("link")).unwrap();
        let seen = fs::read_link(other.join("link")).unwrap();
        assert_eq!(seen.to_str(), Some(target.as_str()), "round {round}");
    }
}
