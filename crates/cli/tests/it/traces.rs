//! `ariel trace` and `ariel reproduce`: a trace is made, described and replayed, and more memory
//! that is shared makes reads faster; the results that can be reproduced are listed.

use crate::harness::{Scratch, ariel, run, text};
use std::path::Path;

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
