//! git's own tests: the scripts of `t/`, with their repositories on a mount and on the local disk.

use super::{Found, LIMIT, build, given, judge, patient_cell};
use crate::harness::process::run_within;
use std::path::Path;
use std::process::Command;

/// The groups of scripts that work on files: basics, the index, packs, transport, porcelain.
const SCRIPTS: &str = "t[01237]*.sh t5[0-3]*.sh";

/// Runs the scripts. Each ends with the lines of the TAP protocol, of which the last says how many
/// of its cases failed.
fn run(sources: &Path, dir: &Path) -> Found {
    std::fs::create_dir_all(dir).unwrap();
    let line = format!(
        "for script in {SCRIPTS}; do if sh $script --root='{}' > '{}' 2>&1; then \
         echo \"ok $script\"; else echo \"failed $script\"; fi; done",
        dir.display(),
        sources.join("out").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(sources.join("t"));
    command.env("LC_ALL", "C").env("GIT_TEST_OPTS", "");
    let output = run_within(&mut command, LIMIT);
    let told = String::from_utf8_lossy(&output.stdout);
    let named = |word: &str| {
        let lines = told.lines().filter_map(|line| line.strip_prefix(word));
        lines.map(|name| name.trim().to_owned()).collect()
    };
    Found {
        passed: named("ok "),
        failed: named("failed "),
    }
}

#[test]
fn git_passes_its_own_tests_as_on_the_local_disk() {
    let Some(dir) = given("GIT_SRC", "git") else {
        return;
    };
    let Some(cell) = patient_cell("git-suite") else {
        return;
    };
    let mount = cell.mount_with(&["--trusted"]);
    let sources = build(
        &dir,
        cell.scratch(),
        "make -s -j2 NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 all",
    );
    let on_disk = run(&sources, &cell.scratch().join("git-on-disk"));
    let on_mount = run(&sources, &mount.join("git"));
    judge("git", &on_mount, &on_disk);
}
