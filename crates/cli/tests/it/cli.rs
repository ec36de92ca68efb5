//! The command line: help, exit codes, and messages that name the cure.

use crate::harness::starts::start;
use crate::harness::{Cell, Scratch, ariel, real_system, run, say, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

/// 0 fine, 1 found or failed, 2 could not be tried.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) -> Output {
    let output = run(&mut ariel(args));
    let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(
        !output.status.success(),
        "{args:?} succeeds: {}",
        text(&output)
    );
    assert!(
        output.status.code().is_some(),
        "{args:?} crashes: {}",
        text(&output)
    );
    assert!(!told.contains("panicked"), "{args:?} panics: {told}");
    for word in words {
        assert!(
            told.contains(word),
            "{args:?} does not say {word:?}: {told}"
        );
    }
    output
}

fn program_only(test: &str) -> bool {
    if crate::harness::local() {
        say(&format!(
            "SKIPPED: {test}: nothing of the program to test with ARIEL_IT_LOCAL"
        ));
    }
    !crate::harness::local()
}

#[test]
fn help_tells_every_command() {
    if !program_only("help") {
        return;
    }
    let commands = [
        "up", "down", "serve", "mount", "umount", "status", "tokens", "fsck", "sim",
    ];
    let output = run(&mut ariel(&["--help"]));
    assert!(output.status.success(), "{}", text(&output));
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    for command in commands {
        assert!(
            help.contains(&format!("  {command} ")),
            "--help does not list {command}: {help}"
        );
        let output = run(&mut ariel(&[command, "--help"]));
        assert!(
            output.status.success(),
            "{command} --help: {}",
            text(&output)
        );
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            help.contains("Usage: ariel"),
            "{command} --help shows no usage: {help}"
        );
    }
    let version = run(&mut ariel(&["--version"]));
    assert!(
        String::from_utf8_lossy(&version.stdout).starts_with("ariel "),
        "{}",
        text(&version)
    );
}

#[test]
fn help_names_the_options() {
    if !program_only("help-options") {
        return;
    }
    let options: [(&str, &[&str]); 6] = [
        ("up", &["--data", "--mount"]),
        (
            "serve",
            &["--data", "--listen", "--daemon", "--pid-file", "--grace"],
        ),
        (
            "mount",
            &["-f", "--threads", "--opens", "--cache-mib", "--write-delay"],
        ),
        ("status", &["--json"]),
        ("fsck", &["--json", "--repair", "--dry-run"]),
        (
            "sim",
            &[
                "--seed",
                "--count",
                "--forever",
                "--jobs",
                "--trace",
                "--mutants",
                "--size",
                "--coverage",
                "--shrink",
                "--only",
            ],
        ),
    ];
    for (command, names) in options {
        let output = run(&mut ariel(&[command, "--help"]));
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        for name in names {
            assert!(
                help.contains(name),
                "{command} --help does not tell {name}: {help}"
            );
        }
    }
}

#[test]
fn wrong_words_name_the_cure() {
    if !program_only("wrong-words") {
        return;
    }
    let scratch = Scratch::new("wrong-words");
    let dir = scratch.path().to_str().unwrap();
    assert_eq!(
        refused(&["serve", "--dta", dir], &["--help"]).status.code(),
        Some(2)
    );
    assert_eq!(refused(&["nonsense"], &["--help"]).status.code(), Some(2));
    assert_eq!(refused(&["serve"], &["--data"]).status.code(), Some(2));
    refused(
        &["mount", "127.0.0.1:1", dir, "--opens", "loud"],
        &["announced", "silent"],
    );
    refused(
        &["mount", "127.0.0.1:1", dir, "--threads", "0"],
        &["threads"],
    );
    refused(&["mount", "no address", dir], &["address"]);
    refused(
        &["serve", "--data", dir, "--listen", "nowhere"],
        &["listen"],
    );
}

#[test]
fn plain_connections_are_refused_off_loopback() {
    if !program_only("loopback") {
        return;
    }
    let scratch = Scratch::new("loopback");
    let data = scratch.join("data");
    let data = data.to_str().unwrap();
    for listen in ["0.0.0.0:0", "192.0.2.1:7000", "[::]:0"] {
        refused(
            &[
                "serve",
                "--data",
                data,
                "--insecure-loopback",
                "--listen",
                listen,
            ],
            &["loopback", "leave that option out"],
        );
    }
    let point = scratch.dir("point");
    refused(
        &[
            "mount",
            "--insecure-loopback",
            "192.0.2.1:7000",
            point.to_str().unwrap(),
        ],
        &["loopback"],
    );
}

#[test]
fn a_mount_that_cannot_be_made_says_why() {
    if !real_system("bad-mounts") {
        return;
    }
    let Some(cell) = Cell::start("bad-mounts") else {
        return;
    };
    let scratch = cell.scratch();
    let none = scratch.join("none");
    refused(
        &["mount", cell.addr(), none.to_str().unwrap()],
        &["none", "mkdir"],
    );
    std::fs::write(scratch.join("file"), b"").unwrap();
    let file = scratch.join("file");
    refused(
        &["mount", cell.addr(), file.to_str().unwrap()],
        &["directory"],
    );
    // A port where nobody listens any more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap().to_string();
    drop(listener);
    let point = scratch.dir("point");
    refused(
        &["mount", &dead, point.to_str().unwrap()],
        &[&dead, "ariel join"],
    );
    refused(
        &[
            "mount",
            "--insecure-loopback",
            &dead,
            point.to_str().unwrap(),
        ],
        &[&dead, "ariel serve"],
    );
    refused(&["umount", point.to_str().unwrap()], &["point"]);
    refused(&["status", point.to_str().unwrap()], &["point"]);
    refused(&["status", &dead], &[&dead]);
}

#[test]
fn fsck_refuses_what_it_cannot_check() {
    if !real_system("fsck") {
        return;
    }
    let Some(mut cell) = Cell::start("fsck") else {
        return;
    };
    let data = cell.data();
    let data = data.to_str().unwrap();
    // The server that has it checks it, and is named.
    let beside = format!("`ariel fsck {}` checks it while it serves", cell.addr());
    let output = refused(&["fsck", data], &[data, &beside]);
    refused(&["fsck", "--repair", data], &["in use"]);
    let checked = run(&mut ariel(&["fsck", cell.addr()]));
    assert!(checked.status.success(), "{}", text(&checked));
    assert_eq!(
        output.status.code(),
        Some(2),
        "a store in use: {}",
        text(&output)
    );
    let none = cell.scratch().join("none");
    let output = refused(&["fsck", none.to_str().unwrap()], &["none"]);
    assert_eq!(output.status.code(), Some(2), "no store: {}", text(&output));
    assert!(!none.exists(), "fsck makes what it should check");
    let second = refused(
        &["serve", "--data", data, "--listen", "127.0.0.1:0"],
        &["in use"],
    );
    assert!(!second.status.success());

    std::fs::write(cell.mount().join("file"), b"x").unwrap();
    cell.stop_server();
    let output = run(&mut ariel(&["fsck", data, "--json"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found.is_object(), "{found}");
}

#[test]
fn status_and_tokens_tell_what_is_held() {
    if !real_system("status") {
        return;
    }
    let Some(cell) = Cell::start("status") else {
        return;
    };
    let mount = cell.mount();
    std::fs::write(mount.join("file"), vec![1; 100_000]).unwrap();
    std::fs::read(mount.join("file")).unwrap();

    let of_mount = crate::harness::status::status(mount.path());
    assert_eq!(of_mount["kind"], "mount");
    assert_eq!(of_mount["server"], cell.addr());
    assert_eq!(of_mount["connected"], true);
    assert!(
        of_mount["fuse"]["requests"]["CREATE"].as_u64() >= Some(1),
        "{of_mount:#}"
    );
    assert!(
        of_mount["cache"]["used"].as_u64() >= Some(1),
        "{of_mount:#}"
    );
    let held = |kind: &str| of_mount["tokens"][kind].as_u64().unwrap();
    assert!(held("shared") + held("exclusive") >= 1, "{of_mount:#}");

    let of_server = crate::harness::status::status(cell.addr());
    assert_eq!(of_server["kind"], "server");
    assert_eq!(of_server["clients"], 1);
    assert!(
        of_server["received"]["Hello"].as_u64() >= Some(1),
        "{of_server:#}"
    );

    for target in [mount.path().to_str().unwrap(), cell.addr()] {
        for command in ["status", "tokens"] {
            let output = run(&mut ariel(&[command, target]));
            assert!(
                output.status.success(),
                "{command} {target}: {}",
                text(&output)
            );
            assert!(!output.stdout.is_empty(), "{command} {target} says nothing");
        }
    }
}

#[test]
fn the_simulator_repeats_a_seed_exactly() {
    if !program_only("sim") {
        return;
    }
    let once = || {
        let output = run(&mut ariel(&["sim", "--seed", "7", "--trace"]));
        assert!(output.status.success(), "{}", text(&output));
        output.stdout
    };
    let (first, second) = (once(), once());
    assert!(!first.is_empty(), "a trace of nothing");
    assert!(first == second, "two runs of one seed differ");
    let output = run(&mut ariel(&["sim", "--seed", "1", "--count", "20"]));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn the_simulator_runs_a_part_of_a_world_and_names_what_is_no_part() {
    if !program_only("sim-only") {
        return;
    }
    let only = |part: &str, more: &str| {
        let output = run(&mut ariel(&["sim", "--seed", "7", "--only", part, more]));
        (output.status.code(), text(&output))
    };
    let (code, told) = only("lost=none/calls=1.1:1-3", "--trace");
    assert_eq!(code, Some(0), "{told}");
    let does = |call: &str| told.contains(&format!(" (call {call})"));
    assert!(does("1.1:3") && !does("1.1:4") && !does("2.1:1"), "{told}");
    for (part, what) in [
        (
            "calls=x",
            "`x` does not name calls: MACHINE.PROGRAM:NUMBERS",
        ),
        ("fault=1", "`fault=1` is no part: parts are machines="),
        ("machines=1,77", "machine 77 is not there"),
    ] {
        let (code, told) = only(part, "--trace");
        assert_eq!(code, Some(2), "{told}");
        assert!(told.contains(what), "{told}");
    }
    let (code, told) = only("all", "--shrink");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("`ariel sim --seed 7` shows nothing wrong"),
        "{told}"
    );
}

#[test]
fn the_simulator_runs_until_it_is_told_to_end() {
    if !program_only("sim-forever") {
        return;
    }
    let mut forever = ariel(&["sim", "--forever", "--seed", "1", "--jobs", "2"]);
    forever.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start(&mut forever).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Said when the signals are waited for; the first seed is there to be repeated.
    let first = lines.next().unwrap().unwrap();
    assert!(first.starts_with("seeds from 1 on"), "{first}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let rest: Vec<String> = lines.map(|line| line.unwrap()).collect();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{rest:?} {told}");
    assert!(rest[0].contains("0 failed"), "{rest:?}");
    assert!(told.contains("seeds/s"), "{told}");
}
