//! A mount with `--cache ttl=...` is as inexact as it says, for as long as it says, and alone.

use crate::harness::{Cell, Mount, ariel, eventually, real_system, run};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Longer than any test takes.
const LONG: &str = "ttl=1000s";
const SHORT: &str = "ttl=300ms";
/// Far beyond the short time.
const LIMIT: Duration = Duration::from_secs(20);

/// A program's view of a tree: bytes through an open descriptor and through a new one, the size,
/// a name that was there, one that was not.
#[derive(Debug, PartialEq)]
struct Sight {
    held: Vec<u8>,
    opened: Vec<u8>,
    len: u64,
    gone: bool,
    made: bool,
}

fn look(dir: &Path, held: &File) -> Sight {
    let mut bytes = vec![0; 64];
    let count = held.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    Sight {
        held: bytes,
        opened: fs::read(dir.join("file")).unwrap(),
        len: fs::metadata(dir.join("file")).unwrap().len(),
        gone: !dir.join("old").exists(),
        made: dir.join("new").exists(),
    }
}

fn sight(bytes: &[u8], changed: bool) -> Sight {
    Sight {
        held: bytes.to_vec(),
        opened: bytes.to_vec(),
        len: bytes.len() as u64,
        gone: changed,
        made: changed,
    }
}

/// Has a reader look, a writer change everything, and gives what is needed to look again.
fn change_under(reader: &Mount, writer: &Path) -> File {
    fs::write(writer.join("file"), b"old").unwrap();
    fs::write(writer.join("old"), b"").unwrap();
    let held = File::open(reader.join("file")).unwrap();
    assert_eq!(look(reader.path(), &held), sight(b"old", false));
    fs::write(writer.join("file"), b"changed").unwrap();
    fs::remove_file(writer.join("old")).unwrap();
    fs::write(writer.join("new"), b"").unwrap();
    held
}

#[test]
fn what_others_change_is_seen_when_its_time_is_over() {
    if !real_system("timed-over") {
        return;
    }
    let Some(cell) = Cell::start("timed-over") else {
        return;
    };
    let (reader, writer) = (cell.mount_with(&["--cache", SHORT]), cell.mount());
    let held = change_under(&reader, writer.path());
    let seen = eventually(LIMIT, || {
        look(reader.path(), &held) == sight(b"changed", true)
    });
    assert!(seen, "{:?}", look(reader.path(), &held));
    assert_eq!(fs::read_dir(reader.path()).unwrap().count(), 2);
}

#[test]
fn until_then_it_is_not_seen_and_others_stay_exact() {
    if !real_system("timed-until") {
        return;
    }
    let Some(cell) = Cell::start("timed-until") else {
        return;
    };
    let (reader, writer, exact) = (
        cell.mount_with(&["--cache", LONG]),
        cell.mount(),
        cell.mount(),
    );
    let held = change_under(&reader, writer.path());
    assert_eq!(look(reader.path(), &held), sight(b"old", false));
    // Its own writes are seen by all mounts, itself included.
    fs::write(reader.join("own"), b"1").unwrap();
    for mount in [&reader, &writer, &exact] {
        assert_eq!(fs::read(mount.join("own")).unwrap(), b"1");
    }
    fs::write(reader.join("own"), b"second").unwrap();
    for mount in [&reader, &writer, &exact] {
        assert_eq!(fs::read(mount.join("own")).unwrap(), b"second");
    }
    let held = File::open(exact.join("file")).unwrap();
    assert_eq!(look(exact.path(), &held).opened, b"changed");
    let status = run(&mut ariel(&[Path::new("status"), reader.path()]));
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("ttl=1000s"), "{status}");
}
