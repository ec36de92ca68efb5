//! GNU tar's own tests: the tar that is built from the given sources, in a directory of a mount and
//! in one of the local disk.

use super::{Found, LIMIT, build, given, judge, patient_cell};
use crate::harness::process::run_within;
use std::path::Path;
use std::process::Command;

const BUILD: &str = "FORCE_UNSAFE_CONFIGURE=1 ./configure -q && make -s -j2 && \
    make -s -C tests testsuite genfile checkseekhole atlocal";

/// Runs all tests with their files in `dir`. Each prints a line: its number, its name, the result.
fn run(sources: &Path, dir: &Path) -> Found {
    std::fs::create_dir_all(dir).unwrap();
    let tests = sources.join("tests");
    let mut command = Command::new("sh");
    command.arg(tests.join("testsuite")).current_dir(dir);
    command.arg(format!(
        "AUTOTEST_PATH={}:{}",
        sources.join("src").display(),
        tests.display()
    ));
    command.env("LC_ALL", "C");
    for file in ["atconfig", "atlocal"] {
        std::fs::copy(tests.join(file), dir.join(file)).unwrap();
    }
    let output = run_within(&mut command, LIMIT);
    let told = String::from_utf8_lossy(&output.stdout);
    let mut found = Found::default();
    for line in told.lines() {
        let Some((number, rest)) = line.trim_start().split_once(": ") else {
            continue;
        };
        if number.parse::<u32>().is_err() {
            continue;
        }
        let case = number.to_owned();
        if rest.ends_with(" ok") {
            found.passed.insert(case);
        } else if rest.contains("FAILED") {
            found.failed.insert(case);
        }
    }
    found
}

#[test]
fn gnu_tar_passes_its_own_tests_as_on_the_local_disk() {
    let Some(dir) = given("GNU_TAR", "GNU tar") else {
        return;
    };
    let Some(cell) = patient_cell("gnu-tar") else {
        return;
    };
    let mount = cell.mount_with(&["--trusted"]);
    let sources = build(&dir, cell.scratch(), BUILD);
    let on_disk = run(&sources, &cell.scratch().join("tar-on-disk"));
    let on_mount = run(&sources, &mount.join("tar"));
    judge("GNU tar", &on_mount, &on_disk);
}
