//! Suites of others whose sources the caller gives: xfstests, and the tests that come with GNU tar,
//! git and CPython. `make conformance XFSTESTS=DIR GNU_TAR=DIR GIT_SRC=DIR CPYTHON=DIR` runs those
//! that are named; the others are reported as not run.
//!
//! Guarantees: each suite is judged against the local disk of the same machine. A case may fail on
//! a mount only if it also fails there, or if `docs/semantics.md` lists it with the reason. Sources
//! are copied to a scratch directory first; the given directory is not changed.

mod cpython;
mod git;
mod tar;
mod xfstests;

use crate::harness::process::run_within;
use crate::harness::{Cell, Scratch, cell::CellOptions, real_system, say, text};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// One suite may take this long; builds of the sources are included.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// The directory that an environment variable names; `None`, and a line, where none is given.
fn given(variable: &str, suite: &str) -> Option<PathBuf> {
    let Some(dir) = std::env::var_os(variable).filter(|dir| !dir.is_empty()) else {
        say(&format!(
            "not run: {suite}: give its sources with {variable}=DIR"
        ));
        return None;
    };
    let dir = PathBuf::from(dir);
    assert!(
        dir.is_dir(),
        "{variable}={} is not a directory",
        dir.display()
    );
    real_system(suite).then_some(dir)
}

/// A cell whose test may take hours.
fn patient_cell(name: &str) -> Option<Cell> {
    let limit = LIMIT;
    let options = CellOptions {
        limit,
        ..CellOptions::default()
    };
    Cell::start_with(name, options)
}

/// Copies sources into a scratch directory and builds them there with a line of shell.
fn build(sources: &Path, scratch: &Scratch, line: &str) -> PathBuf {
    let dir = scratch.join("sources");
    let copy = format!(
        "cp -a '{}' sources && cd sources && {line}",
        sources.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &copy]).current_dir(scratch.path());
    let output = run_within(&mut command, LIMIT);
    assert!(output.status.success(), "{line}\n{}", text(&output));
    dir
}

/// The results of one run of a suite.
#[derive(Default)]
struct Found {
    passed: BTreeSet<String>,
    failed: BTreeSet<String>,
}

/// Judges a mount's run by the run on the local disk: every case that fails must fail there, too,
/// or be listed in `docs/semantics.md` below the suite's name.
fn judge(suite: &str, on_mount: &Found, on_disk: &Found) {
    let listed = listed(suite);
    let new: Vec<&String> = on_mount
        .failed
        .difference(&on_disk.failed)
        .filter(|case| !listed.contains(*case))
        .collect();
    say(&format!(
        "{suite}: mount: {} passed, {} failed; local disk: {} passed, {} failed",
        on_mount.passed.len(),
        on_mount.failed.len(),
        on_disk.passed.len(),
        on_disk.failed.len()
    ));
    assert!(!on_disk.passed.is_empty(), "{suite}: no case ran");
    let lost = on_disk.passed.difference(&on_mount.passed);
    let lost: Vec<&String> = lost
        .filter(|case| !on_mount.failed.contains(*case))
        .collect();
    assert!(
        lost.is_empty(),
        "{suite}: cases that did not run on the mount: {lost:?}"
    );
    assert!(
        new.is_empty(),
        "{suite}: cases that fail on the mount only: {new:?}"
    );
}

/// The cases that `docs/semantics.md` expects to fail: the first cells of the table rows below the
/// heading that names the suite.
fn listed(suite: &str) -> BTreeSet<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/semantics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let heading = format!("### {suite}");
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with('#'));
    let cells = section.filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let cases = cells.flat_map(|cell| cell.split(", "));
    let cases = cases.map(|case| case.trim_matches('`').to_owned());
    cases.filter(|case| case != "case").collect()
}

#[test]
fn expected_failures_are_read_from_the_documentation() {
    let cases = listed("xfstests");
    assert!(cases.contains("generic/003"), "{cases:?}");
    assert!(listed("no such suite").is_empty());
}
