//! `ariel torture` on real mounts is clean, and tells what cannot be run.

use crate::harness::cell::CellOptions;
use crate::harness::process::{Proc, run_within};
use crate::harness::{
    Cell, Pair, Scratch, ariel, eventually, hold_uring, real_system, run, say, text,
};
use std::fs;
use std::time::{Duration, Instant};

/// A bounded run takes its time, and the rest of its last round.
const LIMIT: Duration = Duration::from_secs(150);

/// A second minute, with kills, is part of `make soak`, not of `make test`.
fn is_soak(test: &str) -> bool {
    let soak = std::env::var_os("ARIEL_LONG").is_some();
    if !soak {
        say(&format!(
            "NOT RUN: {test} is for `make soak` (ARIEL_LONG=1)"
        ));
    }
    soak && real_system(test)
}

fn directories(cell: &Cell) -> usize {
    let entries = fs::read_dir(cell.scratch().path()).unwrap();
    let is_dir = |entry: &std::io::Result<fs::DirEntry>| entry.as_ref().unwrap().path().is_dir();
    entries.filter(is_dir).count()
}

/// Runs `ariel torture` on a cell of its own, which must be found clean; its report.
fn clean_cell(cell: &Cell, args: &[&str]) -> serde_json::Value {
    let mut words = vec!["torture", "--json"];
    words.extend(args);
    let mut command = ariel(&words);
    let output = run_within(command.env("TMPDIR", cell.scratch().path()), LIMIT);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["linearizable"], true, "{report}");
    assert_eq!(report["undecided"], 0, "{report}");
    assert_eq!(
        directories(cell),
        1,
        "only the data of the test's own server stays"
    );
    report
}

#[test]
fn three_mounts_are_linearizable_for_a_minute() {
    if !real_system("torture-three") {
        return;
    }
    let Some(cell) = Cell::start("torture-three") else {
        return;
    };
    let report = clean_cell(&cell, &["--cell", "3", "--seconds", "60", "--seed", "7"]);
    assert!(report["operations"].as_u64() > Some(10_000), "{report}");
    assert_eq!(report["mounts"].as_array().unwrap().len(), 3);
}

#[test]
fn mounts_and_servers_killed_for_a_minute_are_linearizable() {
    if !is_soak("torture-killed") {
        return;
    }
    let Some(cell) = Cell::start("torture-killed") else {
        return;
    };
    let kills = ["--kill", "server,client", "--every", "5"];
    let args = [&["--cell", "2", "--seconds", "60"], &kills[..]].concat();
    let report = clean_cell(&cell, &args);
    assert!(report["operations"].as_u64() > Some(1000), "{report}");
    assert!(report["kills"].as_u64() >= Some(6), "{report}");
    assert_eq!(report["notes"][0], "the server's store is whole");
}

/// Daemons killed while programs of their mounts ask them: the answers of a dead mount are known
/// for each transport, and nothing that was answered before is lost.
fn killed_are_linearizable(test: &str, transport: &str) {
    if !real_system(test) {
        return;
    }
    let Some(cell) = Cell::start(test) else {
        return;
    };
    for whom in ["client", "server,client"] {
        let kills = ["--kill", whom, "--every", "0.5", "--seconds", "10"];
        let args = ["--cell", "3", "--transport", transport, "--seed", "11"];
        let report = clean_cell(&cell, &[args, kills].concat());
        assert!(report["kills"].as_u64() >= Some(3), "{whom}: {report}");
        assert_eq!(report["notes"][0], "the server's store is whole");
    }
}

#[test]
fn killed_mounts_are_linearizable_over_the_device() {
    killed_are_linearizable("torture-killed-dev", "dev");
}

#[test]
fn killed_mounts_are_linearizable_over_io_uring() {
    let switch = hold_uring("torture-killed-uring");
    if switch.is_some() {
        killed_are_linearizable("torture-killed-uring", "uring");
    }
}

/// Torture of two mounts whose kernels keep things for a second: exit code 1, and what it said.
fn convicted(pair: &Pair, seed: u64, more: &[&str]) -> String {
    let (a, b) = (pair.a.path(), pair.b.path());
    let seed = seed.to_string();
    let mut args = vec!["torture", "--seconds", "60", "--seed", &seed];
    args.extend(["--mount", a.to_str().unwrap()]);
    args.extend(["--mount", b.to_str().unwrap()]);
    args.extend(more);
    let output = run_within(&mut ariel(&args), LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The fault that other network file systems have, and whether the judge finds it and names it. A
/// run ends with its first violations, within the first second as a rule; most have a stale read.
#[test]
fn mounts_with_lifetimes_are_convicted() {
    if !real_system("torture-timed") {
        return;
    }
    let timed = ["--cache", "ttl=1s"];
    let Some(pair) = Pair::start_with("torture-timed", CellOptions::default(), &timed) else {
        return;
    };
    let end = Instant::now() + Duration::from_secs(60);
    for seed in 1.. {
        let said = convicted(&pair, seed, &["--json"]);
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(report["linearizable"], false, "{report}");
        let violations = report["violations"].as_array().unwrap();
        let smallest = violations[0]["operations"].as_array().unwrap();
        assert!((1..=4).contains(&smallest.len()), "{report}");
        if violations.iter().any(|one| one["kind"] == "stale read") {
            break;
        }
        assert!(Instant::now() < end, "no stale read for a minute: {report}");
    }
    // The output for a person: the violation's name, few lines, one of them marked.
    let said = convicted(&pair, 0, &[]);
    let lines = said
        .lines()
        .skip_while(|line| !line.starts_with("VIOLATION, "));
    let first: Vec<&str> = lines
        .take_while(|line| !line.contains("No order") && !line.contains("No file system"))
        .collect();
    // A wrong answer takes two lines, as nothing before it explains it.
    assert!((2..=7).contains(&first.len()), "{said}");
    let marked = first.iter().filter(|line| line.starts_with("  > "));
    assert_eq!(marked.count(), 1, "{said}");
    assert!(said.ends_with("NOT linearizable\n"), "{said}");
}

#[test]
fn a_local_directory_is_linearizable_and_its_report_is_json() {
    let scratch = Scratch::new("torture-local");
    let dir = scratch.path().to_str().unwrap();
    let args = ["torture", "--local", dir, "--operations", "5000", "--json"];
    let output = run_within(&mut ariel(&args), LIMIT);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["linearizable"], true, "{report}");
    assert!(report["operations"].as_u64() >= Some(5000), "{report}");
}

/// Commands that only note that it was their turn; one that fails ends the run as not run.
#[test]
fn commands_that_kill_are_run_in_turn_with_the_mount() {
    let scratch = Scratch::new("torture-hooks");
    let (dir, notes) = (scratch.dir("tree"), scratch.join("notes"));
    let note = |what: &str| format!("echo {what} $TORTURE_MOUNT >> {}", notes.display());
    let torture = |client: &str, seconds: &str| {
        let mut command = ariel(&["torture", "--json", "--every", "0.1", "--seconds", seconds]);
        command.arg("--local").arg(&dir);
        command.args(["--kill-client", client, "--kill-server", &note("server")]);
        run_within(&mut command, LIMIT)
    };
    let output = torture(&note("client"), "3");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = fs::read_to_string(&notes).unwrap();
    assert_eq!(report["kills"], said.lines().count(), "{report}");
    for whom in ["client", "server"] {
        let line = format!("{whom} {}", dir.display());
        assert!(said.lines().any(|said| said == line), "{whom}: {said}");
    }
    let output = torture("exit 3", "20");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("exit 3") && said.contains("must end with 0"),
        "{said}"
    );
}

/// Ctrl-C at a terminal: the run ends with its round, says what it found, and leaves nothing.
#[test]
fn a_run_that_is_interrupted_ends_in_order() {
    let Some(cell) = Cell::start("torture-interrupted") else {
        return;
    };
    if !real_system("torture-interrupted") {
        return;
    }
    let scratch = cell.scratch();
    let out = scratch.join("out.json");
    let mut command = ariel(&["torture", "--json", "--seconds", "100", "--cell", "1"]);
    command
        .args(["--processes", "1"])
        .env("TMPDIR", scratch.path());
    command.stdout(fs::File::create(&out).unwrap());
    let mut torture = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
    let works = |dir: fs::DirEntry| {
        let tree = fs::read_dir(dir.path().join("mount-1"));
        tree.is_ok_and(|mut tree| tree.next().is_some())
    };
    let runs = eventually(Duration::from_secs(60), || {
        let mut dirs = fs::read_dir(scratch.path()).unwrap();
        dirs.any(|dir| works(dir.unwrap()))
    });
    assert!(runs, "nothing runs");
    torture.signal(rustix::process::Signal::INT);
    let status = torture.wait(LIMIT).unwrap();
    let said = fs::read_to_string(&out).unwrap();
    assert!(status.success(), "{status}: {said}");
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["notes"][0], "the server's store is whole");
    assert_eq!(
        directories(&cell),
        1,
        "only the data of the test's own server stays"
    );
}

#[test]
fn what_cannot_be_run_is_told_with_code_2() {
    let scratch = Scratch::new("torture-refused");
    let (a, b) = (scratch.join("a"), scratch.join("b"));
    for dir in [&a, &b] {
        fs::create_dir(dir).unwrap();
    }
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    for (args, told) in [
        (vec!["torture"], "--mount"),
        (vec!["torture", "--mount", "/nowhere/at/all"], "/nowhere"),
        (vec!["torture", "--mount", a, "--mount", b], "same tree"),
    ] {
        let output = run(&mut ariel(&args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(said.contains(told), "{args:?}: {said}");
    }
}
