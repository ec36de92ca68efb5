//! A program stores through a shared mapping and then makes a call about the same file: each of
//! those during which the kernel holds something of it, with pages that are dirty, on a machine
//! that is alone or with another one at work on the file, over both transports. Each call returns.
//! And programs on two machines that store into one file see each other's stores as on one.
//! (Mappings are held by Python programs, since mapping memory is not safe Rust.)

use crate::harness::cell::CellOptions;
use crate::harness::process::{Proc, system_python};
use crate::harness::{Pair, has_program, has_uring, local, long, run, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The other machine's work meanwhile.
const OTHERS: [&str; 5] = [
    "reads",
    "writes",
    "stores",
    "truncates",
    "stores-and-truncates",
];
/// A hang is one of milliseconds made for ever: all of a table's row takes a second or two.
const ROW: Duration = Duration::from_secs(60);

fn rounds() -> &'static str {
    if long() { "100" } else { "4" }
}

/// The calls, one after the other, by a program of the first mount.
fn make_calls(pair: &Pair, other: Option<&str>) {
    let path = pair.a.join("file");
    fs::write(&path, b"").unwrap();
    let other = other.map(|how| {
        let mut command = Command::new(system_python());
        command.args(["-c", include_str!("mapped/other.py")]);
        command.arg(pair.b.join("file")).arg(how);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        (
            how,
            Proc::spawn(&mut command, Some(pair.cell.watch())).unwrap(),
        )
    });
    let how = other.as_ref().map_or("alone", |(how, _)| how);
    let log = pair.cell.scratch().join(&format!("calls-{how}.log"));
    let mut command = Command::new(system_python());
    command.args(["-c", include_str!("mapped/calls.py")]);
    command.arg(pair.a.path()).arg(rounds());
    command.arg(if other.is_some() { "shared" } else { "alone" });
    command.stdin(Stdio::null());
    let output = fs::File::create(&log).unwrap();
    command.stderr(output.try_clone().unwrap()).stdout(output);
    let mut calls = Proc::spawn(&mut command, Some(pair.cell.watch())).unwrap();
    let limit = if long() { 10 * ROW } else { ROW };
    let status = calls.wait(limit);
    let said = fs::read_to_string(&log).unwrap();
    assert!(
        status.is_some_and(|status| status.success()),
        "{how}: {status:?} at {said}"
    );
    assert!(said.ends_with("done\n"), "{how}: {said}");
    if let Some((how, mut other)) = other {
        drop(other.child().stdin.take());
        let status = other.wait(limit);
        assert!(
            status.is_some_and(|status| status.success()),
            "the one that {how}: {status:?}"
        );
    }
}

fn every_call_returns(name: &str, transport: &str) {
    if !has_program(name, "python3") || (transport == "uring" && !local() && !has_uring(name)) {
        return;
    }
    let options = CellOptions {
        limit: Duration::from_secs(if long() { 3000 } else { 240 }),
        ..CellOptions::default()
    };
    let Some(pair) = Pair::start_with(name, options, &["--transport", transport]) else {
        return;
    };
    make_calls(&pair, None);
    for other in OTHERS {
        make_calls(&pair, Some(other));
    }
}

#[test]
fn calls_return_whatever_is_stored_and_whoever_else_works_with_the_file() {
    every_call_returns("mapped-dev", "dev");
}

#[test]
fn calls_return_over_io_uring_too() {
    every_call_returns("mapped-uring", "uring");
}

/// Runs programs at once, every other one on the other mount, and expects all of them to succeed.
fn run_all(pair: &Pair, script: &str, args: &[Vec<String>]) {
    let start = |number: usize| {
        let log = pair.cell.scratch().join(&format!("program-{number}.log"));
        let mut command = Command::new(system_python());
        command.args(["-c", script]).args(&args[number]);
        command.current_dir(pair.sides(number).0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(fs::File::create(log).unwrap());
        Proc::spawn(&mut command, Some(pair.cell.watch())).unwrap()
    };
    let mut programs: Vec<Proc> = (0..args.len()).map(start).collect();
    for (number, program) in programs.iter_mut().enumerate() {
        let status = program.wait(if long() { 30 * ROW } else { 3 * ROW });
        let log = pair.cell.scratch().join(&format!("program-{number}.log"));
        let said = fs::read_to_string(log).unwrap_or_default();
        assert!(
            status.is_some_and(|status| status.success()),
            "program {number}: {status:?}\n{said}"
        );
    }
}

fn of_stores(name: &str) -> Option<Pair> {
    if !has_program(name, "python3") {
        return None;
    }
    let options = CellOptions {
        limit: Duration::from_secs(if long() { 3000 } else { 240 }),
        ..CellOptions::default()
    };
    Pair::start_with(name, options, &[])
}

#[test]
fn of_increments_in_a_shared_mapping_none_is_lost() {
    let Some(pair) = of_stores("mapped-increments") else {
        return;
    };
    let times: u64 = if long() { 50_000 } else { 500 };
    for more in [&[][..], &["msync"]] {
        fs::write(pair.a.join("number"), [0; 4096]).unwrap();
        let mut args = vec!["number".to_owned(), times.to_string()];
        args.extend(more.iter().map(|word| (*word).to_owned()));
        run_all(
            &pair,
            include_str!("mapped/increments.py"),
            &[args.clone(), args],
        );
        for mount in [&pair.a, &pair.b] {
            let bytes = fs::read(mount.join("number")).unwrap();
            let number = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(number, 2 * times, "{more:?}");
        }
    }
}

/// sqlite keeps an index of its write-ahead log in a file that all its programs map and store into.
#[test]
fn sqlite_with_a_write_ahead_log_is_written_from_both_mounts() {
    let Some(pair) = of_stores("mapped-sqlite") else {
        return;
    };
    let (runs, transactions): (usize, usize) = if long() { (20, 200) } else { (1, 60) };
    for run in 0..runs {
        let dir = format!("run-{run}");
        fs::create_dir(pair.a.join(&dir)).unwrap();
        let make = "import sqlite3; c = sqlite3.connect('db.sqlite'); \
                    assert c.execute('pragma journal_mode=wal').fetchone() == ('wal',); \
                    c.execute('create table t (program int, n int, filler text)'); \
                    c.execute('create table total (n int)'); \
                    c.execute('insert into total values (0)'); c.commit()";
        python(&pair.a.join(&dir), make);
        let script =
            include_str!("locks/sqlite.py").replace("db.sqlite", &format!("{dir}/db.sqlite"));
        let args = |program: usize| vec![program.to_string(), transactions.to_string()];
        let args: Vec<Vec<String>> = (0..4).map(args).collect();
        run_all(&pair, &script, &args);
        let check = "import sqlite3; c = sqlite3.connect('db.sqlite'); \
                     print(*c.execute('pragma integrity_check').fetchone(), \
                     *c.execute('select n from total').fetchone(), \
                     *c.execute('select count(*), count(distinct program * 1000000 + n) from t') \
                     .fetchone())";
        let all = 4 * transactions;
        for mount in [&pair.a, &pair.b] {
            let found = python(&mount.join(&dir), check);
            assert_eq!(found.trim(), format!("ok {all} {all} {all}"), "run {run}");
        }
    }
}

fn python(dir: &Path, script: &str) -> String {
    let mut command = Command::new(system_python());
    command.args(["-c", script]).current_dir(dir);
    let output = run(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
