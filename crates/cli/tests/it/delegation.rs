//! Directories that are a machine's own: its work there goes on without the server, and costs
//! others no more than it should. The promises about names that hold in any case are judged
//! elsewhere (`exact_names`, `posix`, `suites`...); that they hold too where nothing is delegated,
//! here.

use crate::harness::rerun::{EXACT, Rerun};
use crate::harness::status::{Counts, counts, since, status};
use crate::harness::{Cell, Mount, eventually, local, long, real_system, say};
use rustix::fs::{FallocateFlags, Mode, OFlags, XattrFlags};
use rustix::fs::{getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Tests of names and of what other machines see.
const ALWAYS: [&str; 2] = ["exact_names::", "excl::"];
const SOON: Duration = Duration::from_secs(60);

#[test]
fn mounts_that_are_delegated_nothing_are_right() {
    if local() || !real_system("no delegation") {
        return;
    }
    let tests: &[&str] = if long() { &EXACT } else { &ALWAYS };
    let rerun = Rerun {
        variable: "ARIEL_IT_NAME_DELAY",
        value: "0",
        tests,
        but: &[],
    };
    rerun.assert_passes(if long() { 60 } else { 10 });
}

/// The messages that a mount has sent so far, but for those that depend on time alone.
fn said(mount: &Mount) -> Counts {
    let mut sent = counts(&status(mount.path()), &["sent"]);
    sent.remove("KeepAlive");
    sent
}

fn said_since(mount: &Mount, before: &Counts) -> Counts {
    since(before, &said(mount))
}

/// The messages that a program may have waited for, but these. Delegated changes are told, and
/// tokens given back, later; numbers and room for more are asked for ahead, nobody waiting.
fn asked_besides(told: &Counts, these: &[&str]) -> Vec<String> {
    const AHEAD: [&str; 4] = ["Requests", "Release", "Reserve", "Room"];
    let kinds = told.keys();
    let asked = kinds.filter(|kind| !AHEAD.contains(&kind.as_str()));
    asked
        .filter(|kind| !these.contains(&kind.as_str()))
        .cloned()
        .collect()
}

#[test]
fn a_temporary_file_that_is_gone_is_cut_and_read_through_a_descriptor() {
    if !real_system("a removed temporary file") {
        return;
    }
    let Some(cell) = Cell::start("removed") else {
        return;
    };
    let mount = cell.mount_with(&["--name-delay", "600"]);
    let dir = mount.join("own");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("tmp");
    let make = || fs::write(&path, b"0123456789").unwrap();
    // Numbers and room for files have to be asked for once.
    let mut is_own = || {
        let before = said(&mount);
        make();
        fs::remove_file(&path).unwrap();
        said_since(&mount, &before).is_empty()
    };
    assert!(eventually(SOON, &mut is_own), "the directory is delegated");
    let before = said(&mount);
    make();
    let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_file(&path).unwrap();
    let again = format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd());
    // Its bytes are never written back: a program that waited for that would wait for ever.
    let resize = |bytes: &str| {
        let mut truncate = Command::new("timeout");
        truncate.args(["-s", "KILL", "20", "truncate", "-s", bytes, &again]);
        assert!(truncate.status().unwrap().success(), "truncate -s {bytes}");
    };
    resize("4");
    assert_eq!(fs::read(&again).unwrap(), b"0123");
    resize("5000");
    let mut all = b"0123".to_vec();
    all.resize(5000, 0);
    assert_eq!(fs::read(&again).unwrap(), all);
    let file = File::options().write(true).open(&again).unwrap();
    file.write_all_at(b"late", 4998).unwrap();
    all.truncate(4998);
    all.extend(b"late");
    assert_eq!(fs::read(&again).unwrap(), all);
    let told = said_since(&mount, &before);
    assert!(told.is_empty(), "the server was told {told:?}");
    let kept = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8192);
    assert_eq!(kept, Err(Errno::OPNOTSUPP));
}

#[test]
fn of_temporary_files_the_server_is_told_nothing() {
    if !real_system("temporary files") {
        return;
    }
    let Some(cell) = Cell::start("temporary") else {
        return;
    };
    // Nothing is reported because of its age: objects that are there at such a moment would be. The
    // size of the cache is fixed, or it would shrink when other tests want memory.
    let mount = cell.mount_with(&["--name-delay", "600", "--cache-mib", "64"]);
    let dir = mount.join("own");
    fs::create_dir(&dir).unwrap();
    let temporary = |n: u32| {
        let path = dir.join(format!("temporary-{}", n % 7));
        // One in two lies in a directory that is as short-lived.
        let scratch = n.is_multiple_of(2).then_some(&path);
        let inner = path.join("inner");
        if let Some(scratch) = scratch {
            fs::create_dir(scratch).unwrap();
        }
        let path = if scratch.is_some() { &inner } else { &path };
        let mut file = File::create_new(path).unwrap();
        file.write_all(&[7; 1024]).unwrap();
        drop(file);
        assert_eq!(fs::read(path).unwrap().len(), 1024);
        fs::remove_file(path).unwrap();
        if let Some(scratch) = scratch {
            fs::remove_dir(scratch).unwrap();
        }
    };
    // Numbers for more have been asked for.
    (0..3_000).for_each(temporary);
    let before = said(&mount);
    (0..10_000).for_each(temporary);
    let told = said_since(&mount, &before);
    assert!(told.is_empty(), "the server was told {told:?}");
}

/// So many changes in all.
const CHANGES: u32 = 360;

/// Changes of names in one directory by two mounts in turn, so many at a time, after which the
/// other one looks at them: the messages of both to the server for each change.
fn cost_in_turn(cell: &Cell, options: &[&str], turn: u32) -> f64 {
    let mounts = [cell.mount_with(options), cell.mount_with(options)];
    let name = format!("in-turn{}-{turn}", options.concat());
    fs::create_dir(mounts[0].join(&name)).unwrap();
    let before = mounts.each_ref().map(said);
    for first in (0..CHANGES).step_by(turn as usize) {
        let of = |side: u32| mounts[(first / turn + side) as usize % 2].join(&name);
        let (one, other) = (of(0), of(1));
        (first..first + turn).for_each(|n| change(n, &one));
        (first..first + turn).for_each(|n| assert_seen(n, first + turn, &other));
    }
    for mount in &mounts {
        File::open(mount.join(&name)).unwrap().sync_all().unwrap();
    }
    let said = mounts.iter().zip(&before);
    let sum = |counts: Counts| counts.values().sum::<u64>();
    let all: u64 = said
        .map(|(mount, before)| sum(said_since(mount, before)))
        .sum();
    all as f64 / f64::from(CHANGES)
}

fn numbered(dir: &Path, n: u32) -> PathBuf {
    dir.join(format!("file-{n}"))
}

/// Two files are made, the first gets another name, and the second goes.
fn change(n: u32, dir: &Path) {
    match n % 4 {
        0 | 1 => fs::write(numbered(dir, n), format!("written {n}")).unwrap(),
        2 => fs::rename(numbered(dir, n - 2), numbered(dir, n)).unwrap(),
        _ => fs::remove_file(numbered(dir, n - 2)).unwrap(),
    }
}

/// The effect of this change is seen, when all before `done` have been made.
fn assert_seen(n: u32, done: u32, dir: &Path) {
    let read = |n: u32| fs::read_to_string(numbered(dir, n)).ok();
    let expected = match n % 4 {
        0 | 1 => (done <= n + 2).then(|| format!("written {n}")),
        2 => Some(format!("written {}", n - 2)),
        _ => None,
    };
    assert_eq!(read(n), expected, "change {n}");
    if n % 4 >= 2 {
        assert_eq!(read(n - 2), None, "change {n}");
    }
}

#[test]
fn two_in_turn_pay_at_most_a_round_trip_more_for_each_change() {
    if !real_system("in turn") {
        return;
    }
    let Some(cell) = Cell::start("in-turn") else {
        return;
    };
    for turn in [1, 2, 3, 6] {
        let with = cost_in_turn(&cell, &[], turn);
        let without = cost_in_turn(&cell, &["--name-delay", "0"], turn);
        say(&format!(
            "messages for a change, {turn} in turn: {with:.2}; {without:.2} where nothing is \
             delegated"
        ));
        // A round trip: a question to the holder of the directory, and the answer, which is
        // counted.
        assert!(
            with <= without + 1.0,
            "{turn} in turn: {with}, not {without}"
        );
    }
}

/// Everything below a directory: paths, and how many names each object has.
fn tree(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&path));
        }
        let nlink = fs::symlink_metadata(&path).unwrap().nlink();
        all.push((path, nlink));
    }
    all.sort();
    all
}

/// Names and values of all extended attributes.
fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let len = listxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|byte| *byte == 0);
    let one = |name: &[u8]| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut value = vec![0; 4096];
        let len = getxattr(path, name.as_str(), &mut value[..]).unwrap();
        value.truncate(len);
        (name, value)
    };
    names.filter(|name| !name.is_empty()).map(one).collect()
}

#[test]
fn extended_attributes_are_set_in_own_directories_without_the_server() {
    if !real_system("extended attributes in own directories") {
        return;
    }
    let Some(cell) = Cell::start("own-xattrs") else {
        return;
    };
    let (mount, other) = (cell.mount(), cell.mount());
    let own = mount.join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("first"), "").unwrap(); // there are numbers for more from now on
    let before = said(&mount);
    let value = |n: usize| format!("{n}").repeat(1 + n).into_bytes();
    for n in 0..50 {
        let path = own.join(format!("file-{n}"));
        fs::write(&path, "").unwrap();
        for (name, flags) in [
            ("user.kept", XattrFlags::CREATE),
            ("user.gone", XattrFlags::empty()),
            ("user.kept", XattrFlags::REPLACE),
            ("trusted.root", XattrFlags::empty()),
        ] {
            setxattr(&path, name, &value(n), flags).unwrap();
        }
        removexattr(&path, "user.gone").unwrap();
        assert_eq!(xattrs(&path).len(), 2);
        setxattr(&own, format!("user.{n}"), b"", XattrFlags::CREATE).unwrap();
    }
    assert_eq!(xattrs(&own).len(), 50);
    let told = said_since(&mount, &before);
    assert_eq!(asked_besides(&told, &[]), [""; 0]);
    // The server is told then what was seen here.
    let there = other.join("own");
    assert_eq!(xattrs(&there), xattrs(&own));
    for n in 0..50 {
        let expected = ["trusted.root", "user.kept"].map(|name| (name.to_owned(), value(n)));
        assert_eq!(xattrs(&there.join(format!("file-{n}"))), expected);
    }
    setxattr(
        there.join("file-7"),
        "user.kept",
        b"new",
        XattrFlags::REPLACE,
    )
    .unwrap();
    assert_eq!(xattrs(&own.join("file-7"))[1].1, b"new");
}

#[test]
fn own_directories_are_listed_and_moved_and_files_linked_in_them_without_the_server() {
    if !real_system("listings of own directories") {
        return;
    }
    let Some(cell) = Cell::start("listed") else {
        return;
    };
    let (mount, other) = (cell.mount(), cell.mount());
    let own = mount.join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("first"), "").unwrap(); // there are numbers for more from now on
    let top = own.join("top");
    fs::create_dir(&top).unwrap();
    let before = said(&mount);
    for n in 0..20 {
        // Made elsewhere and moved to its place when all is there, as installers do.
        let dir = own.join(format!("stage/unpacked-{n}"));
        fs::create_dir_all(&dir).unwrap();
        // As git makes its objects: nobody sees half of one.
        for n in 0..10 {
            let unfinished = dir.join("unfinished");
            fs::write(&unfinished, format!("object {n}")).unwrap();
            fs::hard_link(&unfinished, dir.join(format!("object-{n}"))).unwrap();
            fs::remove_file(unfinished).unwrap();
        }
        fs::hard_link(dir.join("object-1"), dir.join("again")).unwrap();
        assert_eq!(tree(&dir).len(), 11);
        let place = top.join(format!("dir-{n}"));
        fs::rename(&dir, &place).unwrap();
        assert_eq!(tree(&place).len(), 11);
    }
    let below = fs::rename(&top, top.join("dir-3/top")).unwrap_err();
    assert_eq!(
        below.raw_os_error(),
        Some(rustix::io::Errno::INVAL.raw_os_error())
    );
    let links = |dir: &Path| fs::metadata(dir).unwrap().nlink();
    assert_eq!((links(&top), links(&own.join("stage"))), (22, 2));
    let all = tree(&top);
    assert_eq!(all.len(), 20 * 12);
    fs::remove_dir_all(top.join("dir-0")).unwrap();
    assert_eq!(tree(&top).len(), all.len() - 12);
    let told = said_since(&mount, &before);
    assert_eq!(asked_besides(&told, &["Write"]), [""; 0]);
    // The server is told then what was seen here.
    let there = tree(&other.join("own/top"));
    let plain = |dir: &Path, tree: Vec<(PathBuf, u64)>| -> Vec<(PathBuf, u64)> {
        let plain = |(path, n): (PathBuf, u64)| (path.strip_prefix(dir).unwrap().into(), n);
        tree.into_iter().map(plain).collect()
    };
    assert_eq!(
        plain(other.path(), there),
        plain(mount.path(), tree(&top)),
        "both mounts show the same tree"
    );
    let there = other.join("own");
    assert_eq!(
        (links(&there.join("top")), links(&there.join("stage"))),
        (21, 2)
    );
}

#[test]
fn a_directory_that_another_mount_has_looked_at_becomes_ones_own() {
    if !real_system("directories that others have looked at") {
        return;
    }
    let Some(cell) = Cell::start("looked-at") else {
        return;
    };
    let (mount, other) = (cell.mount(), cell.mount());
    let dir = mount.join("shared");
    fs::create_dir(&dir).unwrap();
    for n in 0..50 {
        fs::write(dir.join(format!("old-{n}")), "old").unwrap();
    }
    let there = other.join("shared");
    assert_eq!(tree(&there).len(), 50);
    assert!(!there.join("new-0").exists());
    // The other one is asked after a few changes, and gives it up a moment later.
    let make = |n: u32| fs::write(dir.join(format!("new-{n}")), "new").unwrap();
    let mut n = 0;
    let mut quiet = || {
        let before = said(&mount);
        (n..n + 20).for_each(make);
        n += 20;
        said_since(&mount, &before).values().sum::<u64>() < 20
    };
    assert!(eventually(SOON, &mut quiet), "the directory is delegated");
    // The other mount's knowledge from before is void.
    let all = tree(&dir).len();
    assert!(all >= 70);
    assert_eq!(tree(&there).len(), all);
    assert_eq!(fs::read_to_string(there.join("new-0")).unwrap(), "new");
    fs::rename(dir.join("old-1"), dir.join("moved")).unwrap();
    assert!(!there.join("old-1").exists() && there.join("moved").exists());
}
