//! Many programs that lock at once, each against a referee outside of the file system: a page of
//! memory in which everybody notes what he has.

use super::pair;
use crate::harness::has_program;
use crate::harness::process::{Proc, system_python};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROGRAMS: usize = 8;
/// Of each.
const OPERATIONS: usize = 1_250;
const LIMIT: Duration = Duration::from_secs(200);

fn long() -> usize {
    if std::env::var_os("ARIEL_LONG").is_some() {
        10
    } else {
        1
    }
}

/// Runs a Python script so often at once, each in the directory of its mount, and expects all of
/// them to succeed.
pub(super) fn run_all(test: &super::Pair, script: &str, count: usize, args: &[&str]) {
    let start = |number: usize| {
        let mount = test.sides(number).0;
        let log = test.cell.scratch().join(&format!("program-{number}.log"));
        let mut command = Command::new(system_python());
        command.args(["-c", script, &number.to_string()]).args(args);
        command.current_dir(mount).stdin(Stdio::null());
        command.stdout(fs::File::create(&log).unwrap());
        command.stderr(fs::File::create(log.with_extension("err.log")).unwrap());
        Proc::spawn(&mut command, Some(test.cell.watch())).unwrap()
    };
    let mut programs: Vec<Proc> = (0..count).map(start).collect();
    for (number, program) in programs.iter_mut().enumerate() {
        let status = program.wait(LIMIT);
        let status = status.unwrap_or_else(|| panic!("program {number} hangs"));
        assert!(status.success(), "program {number}: {status}; see its log");
    }
}

pub(super) fn said(test: &super::Pair, number: usize) -> String {
    let log = test.cell.scratch().join(&format!("program-{number}.log"));
    fs::read_to_string(log).unwrap()
}

/// Eight processes on two mounts lock, change and give up ranges that overlap, waiting and not;
/// whenever one has a lock, nobody else has one that excludes it.
#[test]
fn overlapping_ranges_agree_with_a_referee() {
    let Some(test) = pair("locks-referee") else {
        return;
    };
    let board = test.cell.scratch().join("board");
    fs::write(&board, vec![0; 1 << 16]).unwrap();
    let operations = (OPERATIONS * long()).to_string();
    let args = [board.to_str().unwrap(), &operations, &PROGRAMS.to_string()];
    run_all(&test, include_str!("referee.py"), PROGRAMS, &args);
    let mut given = 0;
    for number in 0..PROGRAMS {
        let said = said(&test, number);
        let count: usize = said.trim().parse().unwrap();
        given += count;
    }
    // Most requests get what they ask for, in one way or another.
    assert!(
        given * 4 > PROGRAMS * OPERATIONS,
        "only {given} locks were given"
    );
}

#[test]
fn sqlite_is_written_from_both_mounts_at_once() {
    if !has_program("locks-sqlite", "sqlite3") {
        return;
    }
    let Some(test) = pair("locks-sqlite") else {
        return;
    };
    let transactions = 500 * long();
    let make = "import sqlite3; c = sqlite3.connect('db.sqlite'); \
                c.execute('create table t (program int, n int, filler text)'); \
                c.execute('create table total (n int)'); \
                c.execute('insert into total values (0)'); c.commit()";
    python(test.a.path(), make);
    let count = transactions.to_string();
    run_all(&test, include_str!("sqlite.py"), 4, &[&count]);
    let check = "import sqlite3; c = sqlite3.connect('db.sqlite'); \
                 print(*c.execute('pragma integrity_check').fetchone(), \
                 *c.execute('select n from total').fetchone(), \
                 *c.execute('select count(*), count(distinct program * 1000000 + n) from t') \
                 .fetchone())";
    let all = 4 * transactions;
    for mount in [&test.a, &test.b] {
        let found = python(mount.path(), check);
        assert_eq!(found.trim(), format!("ok {all} {all} {all}"));
    }
}

fn python(dir: &Path, script: &str) -> String {
    let mut command = Command::new(system_python());
    command.args(["-c", script]).current_dir(dir);
    let output = crate::harness::run(&mut command);
    assert!(output.status.success(), "{}", crate::harness::text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
