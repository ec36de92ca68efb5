//! Directories that are a machine's own: what it does there goes on without the server, and costs
//! others no more than it should. What must be right about names in any case is judged elsewhere
//! (`exact_names`, `posix`, `suites`...); that it is right too where nothing is delegated, here.

use crate::harness::rerun::Rerun;
use crate::harness::status::{Counts, counts, since, status};
use crate::harness::{Cell, Mount, local, long, real_system, say};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Tests of names and of what other machines see.
const ALWAYS: [&str; 2] = ["exact_names::", "excl::"];
/// What is run too in the long form.
const LONG: [&str; 10] = [
    "append::",
    "basics::",
    "basics_more::",
    "contention::",
    "exact::",
    "killed::",
    "local_disk::",
    "posix::",
    "restart::",
    "suites::",
];

#[test]
fn mounts_that_are_delegated_nothing_are_right() {
    if local() || !real_system("no delegation") {
        return;
    }
    let mut tests = ALWAYS.to_vec();
    if long() {
        tests.extend(LONG);
    }
    let rerun = Rerun {
        variable: "ARIEL_IT_NAME_DELAY",
        value: "0",
        tests: &tests,
        but: &[],
    };
    rerun.assert_passes(if long() { 60 } else { 10 });
}

/// What a mount has said so far, but for what depends on time alone.
fn said(mount: &Mount) -> Counts {
    let mut sent = counts(&status(mount.path()), &["sent"]);
    sent.remove("KeepAlive");
    sent
}

fn said_since(mount: &Mount, before: &Counts) -> Counts {
    since(before, &said(mount))
}

#[test]
fn of_temporary_files_the_server_is_told_nothing() {
    if !real_system("temporary files") {
        return;
    }
    let Some(cell) = Cell::start("temporary") else {
        return;
    };
    let mount = cell.mount();
    let dir = mount.join("own");
    fs::create_dir(&dir).unwrap();
    let temporary = |n: u32| {
        let path = dir.join(format!("temporary-{}", n % 7));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&[7; 1024]).unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap().len(), 1024);
        fs::remove_file(path).unwrap();
    };
    // The directory is told of, and so are the times of what has come and gone; numbers for more
    // have been asked for.
    (0..3_000).for_each(temporary);
    File::open(&dir).unwrap().sync_all().unwrap();
    let (before, begun) = (said(&mount), Instant::now());
    (0..10_000).for_each(temporary);
    let told = said_since(&mount, &before);
    // Every five seconds the directory's times are, and with them a file that is there just then.
    let rounds = begun.elapsed().as_secs() / 5;
    let sum: u64 = told.values().sum();
    assert!(
        sum <= 4 * rounds,
        "the server was told {told:?} in {rounds} times five seconds"
    );
}

/// So many changes in all.
const CHANGES: u32 = 360;

/// Changes of names in one directory by two mounts in turn, so many at a time, after which the
/// other one looks at them: what both say to the server for each change.
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

/// What this change did is seen, when all before `done` have been made.
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
        // A round trip: a question to who holds the directory, and the answer, which is counted.
        assert!(
            with <= without + 1.0,
            "{turn} in turn: {with}, not {without}"
        );
    }
}
