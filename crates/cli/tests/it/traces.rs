//! `ariel trace` and `ariel reproduce`: a trace is made, described and replayed, and more memory
//! that is shared makes reads faster; the results that can be reproduced are listed. `ariel trace
//! record` writes down the accesses of programs on real mounts.

use crate::harness::cell::first_line;
use crate::harness::process::Proc;
use crate::harness::status::status;
use crate::harness::{Cell, Mount, Scratch, ariel, real_system, run, text};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

fn said(args: &[&str], file: &Path) -> String {
    let mut command = ariel(args);
    let output = run(command.arg(file));
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_trace_is_made_described_and_replayed_under_each_policy() {
    let scratch = Scratch::new("traces");
    let file = scratch.join("build.trace");
    said(&["trace", "generate", "build", "--out"], &file);
    let shown = said(&["trace", "info"], &file);
    let line = |name: &str| {
        let found = shown.lines().find_map(|line| line.strip_prefix(name));
        found.expect(name).trim().to_owned()
    };
    assert_eq!(line("clients"), "24");
    let count = |name: &str| line(name).parse::<u64>().unwrap();
    assert_eq!(count("read") + count("write"), 1_000_000);

    let replayed = said(&["trace", "replay", "--json"], &file);
    let replayed: serde_json::Value = serde_json::from_str(&replayed).unwrap();
    let of = |policy: &str, field: &str| {
        let all = replayed.as_array().unwrap();
        let found = all.iter().find(|one| one["policy"] == policy);
        found.expect(policy)[field].as_f64().unwrap()
    };
    let response = |policy: &str| of(policy, "response_us");
    assert!(response("greedy") < response("off"));
    assert!(response("n-chance") < response("greedy"));
    assert!(response("fleet") < response("n-chance"));
    assert!(of("fleet", "messages") < of("n-chance", "messages"));
    // The same file and the same seed are the same replay.
    let again = said(&["trace", "replay", "--json"], &file);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again[0]["reads"], replayed[0]["reads"]);
}

#[test]
fn what_is_no_trace_is_refused_with_its_formats() {
    let scratch = Scratch::new("no-trace");
    let file = scratch.join("notes.txt");
    std::fs::write(&file, "no trace at all\n").unwrap();
    let mut command = ariel(&["trace", "info"]);
    let output = run(command.arg(&file));
    assert!(!output.status.success());
    assert!(text(&output).contains("--format"), "{}", text(&output));
}

#[test]
fn memory_against_files_is_reproduced_as_a_page_with_its_plots() {
    let scratch = Scratch::new("reproduce-memory");
    said(&["reproduce", "memory", "--out"], scratch.path());
    let read = |name: &str| std::fs::read_to_string(scratch.join(name)).unwrap();
    let page = read("memory.md");
    for plot in ["figure-6-3", "figure-6-4", "figure-6-5", "table-6-3"] {
        assert!(page.contains(&format!("(memory/{plot}.svg)")), "{plot}");
        assert!(read(&format!("memory/{plot}.svg")).starts_with("<svg"));
    }
    let json: serde_json::Value = serde_json::from_str(&read("memory.json")).unwrap();
    let figures = json["figures"].as_array().unwrap();
    let rows = figures
        .iter()
        .map(|figure| figure["rows"].as_array().unwrap().len());
    assert_eq!(rows.collect::<Vec<_>>(), [4, 4, 16, 4, 8, 8]);
}

#[test]
fn each_table_of_the_papers_is_listed_with_what_makes_it() {
    let output = run(&mut ariel(&["reproduce", "--list"]));
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    for line in ["figure 14", "table 7-1", "reproduce memory", "not yet"] {
        assert!(said.contains(line), "{line} in:\n{said}");
    }
}

/// A recorder of a mount, which has begun.
fn recorder(mount: &Mount, out: &Path, more: &[&str]) -> Proc {
    let mut command = ariel(&["trace", "record"]);
    command.args(more).arg(mount.path()).arg("--out").arg(out);
    let mut recorder = Proc::spawn(command.stdout(Stdio::piped()), None).unwrap();
    let first = first_line(&mut recorder, LIMIT).unwrap();
    assert!(first.starts_with("recording to"), "{first}");
    recorder
}

fn end(mut recorder: Proc) {
    recorder.signal(Signal::INT);
    let ended = recorder.wait(LIMIT).expect("Ctrl-C ends it");
    assert!(ended.success(), "{ended}");
}

/// A second recorder would take accesses away from the first.
fn refuses_a_second(mount: &Mount, out: &Path) {
    let mut second = ariel(&["trace", "record", "--out"]);
    let refused = run(second.arg(out).arg(mount.path()));
    assert!(!refused.status.success());
    let told = text(&refused);
    assert!(told.contains("end it first"), "{told}");
}

/// The accesses of a kind that a trace has, as `ariel trace info` says.
fn counted(trace: &Path, kind: &str) -> u64 {
    let shown = said(&["trace", "info"], trace);
    let found = shown.lines().find_map(|line| line.strip_prefix(kind));
    found
        .expect(kind)
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// Two files are removed, and one is replaced.
fn remove_three(mount: &Mount) {
    for name in ["removed", "shared"] {
        fs::remove_file(mount.join(name)).unwrap();
    }
    fs::write(mount.join("new"), b"").unwrap();
    fs::rename(mount.join("new"), mount.join("kept")).unwrap();
}

#[test]
fn the_accesses_of_programs_on_a_mount_are_recorded_without_names() {
    const NAME: &str = "a-name-that-nobody-is-to-read";
    let Some(cell) = Cell::start("record") else {
        return;
    };
    if !real_system("record") {
        return;
    }
    let (mount, other) = (cell.mount(), cell.mount());
    let file = mount.join(NAME);
    fs::write(&file, vec![7; 40_960]).unwrap();
    for name in ["removed", "shared", "kept"] {
        fs::write(mount.join(name), vec![8; 4_096]).unwrap();
    }
    // The server knows these two by then, and another client has read them.
    fs::read(other.join("shared")).unwrap();
    fs::read(other.join("kept")).unwrap();
    fs::read(&file).unwrap();
    let trace = cell.scratch().join("one.trace");
    let recording = recorder(&mount, &trace, &["--key", "of the test"]);
    refuses_a_second(&mount, &cell.scratch().join("second"));
    // The kernel has the pages, and asks for them all the same: once for each open.
    for _ in 0..3 {
        assert_eq!(fs::read(&file).unwrap().len(), 40_960);
    }
    let mut appended = File::options().append(true).open(&file).unwrap();
    appended.write_all(&[9; 8_192]).unwrap();
    drop(appended);
    remove_three(&mount);
    let from_other = cell.scratch().join("two.trace");
    let of_other = recorder(
        &other,
        &from_other,
        &["--key", "of the test", "--client", "1"],
    );
    assert_eq!(fs::read(other.join(NAME)).unwrap().len(), 49_152);
    end(of_other);
    end(recording);
    assert_eq!(counted(&trace, "read"), 30);
    assert_eq!(counted(&trace, "write"), 2);
    assert_eq!(counted(&trace, "open"), 5);
    assert_eq!(counted(&trace, "delete"), 3);
    assert_eq!(counted(&from_other, "read"), 12);
    let bytes = fs::read(&trace).unwrap();
    let has_name = bytes
        .windows(NAME.len())
        .any(|part| part == NAME.as_bytes());
    assert!(!has_name, "a name is in the trace");
    // Both machines have read the one file, which has one number: no block of it counts twice.
    let both = run(ariel(&["trace", "info"]).arg(&trace).arg(&from_other));
    let both = text(&both);
    let line = |name: &str| {
        both.lines()
            .find(|line| line.trim_start().starts_with(name))
    };
    let clients = line("clients").expect("clients").to_owned();
    assert!(clients.ends_with(" 2"), "{both}");
    assert!(
        line("blocks").unwrap().contains(" 12 of 4096 bytes"),
        "{both}"
    );
    // Without a recorder the kernel answers of its own again.
    let requests = || status(mount.path())["fuse"]["requests"]["READ"].as_u64();
    fs::read(&file).unwrap();
    let before = requests();
    fs::read(&file).unwrap();
    assert_eq!(requests(), before);
}

#[test]
fn a_place_without_a_mount_is_not_recorded() {
    let scratch = Scratch::new("record-nothing");
    let mut record = ariel(&["trace", "record", "--out", "/dev/null"]);
    let output = run(record.arg(scratch.path()));
    assert!(!output.status.success());
    assert!(text(&output).contains("findmnt"), "{}", text(&output));
}
