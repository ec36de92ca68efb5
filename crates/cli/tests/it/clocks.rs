//! Times of files are those of one clock, the server's, whatever the clocks of the machines show
//! that change them. Of the clocks that a mount looks at, one mount's here are wrong by more than a
//! day; that no mount asks for the time of day is seen in its code (`tidy`).

use crate::harness::{Cell, Mount, has_program, local};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const SECOND_NS: i128 = 1_000_000_000;
/// How far the other machine's clock is wrong, seconds.
const WRONG: u32 = 100_000;
/// Times may be off by this: a busy machine keeps a thread from running between a look at a clock
/// and the operation.
const NEAR_NS: i128 = 2 * SECOND_NS;

fn now_ns() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos() as i128
}

/// Modification and change.
fn times(path: &Path) -> [i128; 2] {
    let seen = fs::symlink_metadata(path).unwrap();
    let of = |seconds: i64, ns: i64| i128::from(seconds) * SECOND_NS + i128::from(ns);
    [
        of(seen.mtime(), seen.mtime_nsec()),
        of(seen.ctime(), seen.ctime_nsec()),
    ]
}

fn append(path: &Path) {
    let mut file = File::options().append(true).open(path).unwrap();
    file.write_all(b"more").unwrap();
}

/// A change of a file: its name, whether it modifies the file, and the function that makes it.
type Change = (&'static str, bool, fn(&Path));

const CHANGES: [Change; 6] = [
    ("write", true, |path| fs::write(path, b"anew").unwrap()),
    ("append", true, append),
    ("chmod", false, |path| {
        fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    }),
    ("truncate", true, |path| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(2).unwrap();
    }),
    ("append and sync", true, |path| {
        append(path);
        File::open(path).unwrap().sync_all().unwrap();
    }),
    ("link", false, |path| {
        let other = path.with_extension("link");
        fs::hard_link(path, &other).unwrap();
        fs::remove_file(other).unwrap();
    }),
];

#[test]
fn times_are_the_servers_however_wrong_a_machines_clock_is() {
    if !has_program("clocks", "unshare") {
        return;
    }
    let Some(cell) = Cell::start("clocks") else {
        return;
    };
    let (right, wrong) = (cell.mount(), Mount::with_wrong_clock(&cell, WRONG));
    let name = "file";
    fs::write(wrong.join(name), b"first").unwrap();
    let mut last = times(&wrong.join(name));
    for round in 0..120 {
        let (what, modifies, change) = CHANGES[round % CHANGES.len()];
        // Each of them from either mount, looked at from either, after either has changed it.
        let side = |bit: usize| {
            if bit.is_multiple_of(2) {
                &wrong
            } else {
                &right
            }
        };
        let (changer, looker) = (side(round / 6), side(round / 12));
        let before = now_ns();
        change(&changer.join(name));
        let after = now_ns();
        let shown = times(&looker.join(name));
        assert_eq!(shown, times(&side(round / 12 + 1).join(name)), "{round}");
        let expected = before - NEAR_NS..=after + NEAR_NS;
        assert!(
            expected.contains(&shown[1]) && (!modifies || expected.contains(&shown[0])),
            "round {round}, {what}: {shown:?} is not in {expected:?}"
        );
        // A local file system tells times no finer than it is woken: 4 ms.
        let moved = if local() {
            shown[1] >= last[1]
        } else {
            shown[1] > last[1]
        };
        assert!(
            moved && shown[0] >= last[0],
            "round {round}: {shown:?} after {last:?}"
        );
        assert!(
            modifies || shown[0] == last[0],
            "round {round}: {what} modifies"
        );
        last = shown;
    }
}

#[test]
fn what_one_machine_makes_after_another_is_not_older() {
    if !has_program("clocks-order", "unshare") {
        return;
    }
    let Some(cell) = Cell::start("clocks-order") else {
        return;
    };
    let (right, wrong) = (cell.mount(), Mount::with_wrong_clock(&cell, WRONG));
    for round in 0..200 {
        let (one, other) = if round & 1 == 0 {
            (&right, &wrong)
        } else {
            (&wrong, &right)
        };
        // A file is made of another one that was read, as compilers do.
        let (source, made) = (format!("source-{round}"), format!("made-{round}"));
        fs::write(one.join(&source), b"source").unwrap();
        let read = fs::read(other.join(&source)).unwrap();
        fs::write(other.join(&made), read).unwrap();
        let (source, made) = (times(&right.join(&source)), times(&right.join(&made)));
        assert!(source[0] <= made[0], "round {round}: {source:?}, {made:?}");
    }
}

/// When an object was made.
fn birth(path: &Path) -> SystemTime {
    fs::symlink_metadata(path).unwrap().created().unwrap()
}

#[test]
fn the_time_of_birth_is_the_same_everywhere_and_stays() {
    let Some(mut cell) = Cell::start("birth") else {
        return;
    };
    let (a, b) = (cell.mount(), cell.mount());
    let before = now_ns();
    fs::write(a.join("file"), b"bytes").unwrap();
    fs::create_dir(b.join("dir")).unwrap();
    std::os::unix::fs::symlink("file", a.join("dir/link")).unwrap();
    let all = ["file", "dir", "dir/link"];
    let births = all.map(|name| birth(&a.join(name)));
    let after = now_ns();
    for born in births {
        let born = born.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128;
        assert!((before - NEAR_NS..after + NEAR_NS).contains(&born));
    }
    for (number, (_, _, change)) in CHANGES.iter().enumerate() {
        let (one, other) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
        change(&one.join("file"));
        assert_eq!(birth(&other.join("file")), births[0]);
        assert_eq!(birth(&one.join("file")), births[0]);
    }
    fs::rename(b.join("file"), b.join("dir/file")).unwrap();
    let all = ["dir/file", "dir", "dir/link"];
    assert_eq!(all.map(|name| birth(&a.join(name))), births);
    drop((a, b));
    if !local() {
        cell.restart();
    }
    let again = cell.mount();
    assert_eq!(all.map(|name| birth(&again.join(name))), births);
}
