//! xfstests' generic tests, one at a time, on two cells: one is the suite's test file system, the
//! other its scratch file system.
//!
//! A test that does not end within its limit counts as hung: the stacks of the processes that wait
//! in the kernel are printed, both mounts are aborted, and the next test goes on with new ones.

use super::{LIMIT, given, listed, patient_cell};
use crate::harness::process::{Proc, run_within};
use crate::harness::{Cell, Scratch, say, scratch};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How mount(8) finds the mount helper: the only place where it looks.
const HELPER: &str = "/sbin/mount.fuse.ariel";

/// The helper, for as long as the tests run; one that is installed is left alone.
struct Helper(bool);

impl Helper {
    fn install() -> Self {
        let ours = env!("CARGO_BIN_EXE_ariel");
        match fs::read_link(HELPER) {
            Ok(to) => {
                let same = to == Path::new(ours);
                assert!(same, "{HELPER} is another program's: {}", to.display());
                Self(false)
            }
            Err(_) => {
                std::os::unix::fs::symlink(ours, HELPER).unwrap();
                Self(true)
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.0 {
            let _ = fs::remove_file(HELPER);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    NotRun,
    Hung,
}

struct Suite {
    dir: PathBuf,
    points: [PathBuf; 2],
    config: PathBuf,
    results: PathBuf,
    limit: Duration,
}

impl Suite {
    fn new(dir: PathBuf, scratch: &Scratch, cells: [&Cell; 2]) -> Self {
        let points = [scratch.dir("xfs-test"), scratch.dir("xfs-scratch")];
        let results = scratch.dir("xfs-results");
        let config = scratch.join("local.config");
        // The suite knows FUSE file systems of any kind as `fuse`, also in what df(1) says.
        let df = scratch.join("df");
        fs::write(
            &df,
            "#!/bin/sh\ndf -T -P \"$@\" | sed 's/fuse\\.ariel/fuse/'\n",
        )
        .unwrap();
        fs::set_permissions(&df, PermissionsExt::from_mode(0o755)).unwrap();
        let [test, other] = cells.map(Cell::addr);
        let text = format!(
            "export FSTYP=fuse FUSE_SUBTYP=.ariel\nexport TEST_DEV={test} TEST_DIR={}\n\
             export SCRATCH_DEV={other} SCRATCH_MNT={}\nexport RESULT_BASE={} DF_PROG={}\n\
             export MOUNT_OPTIONS='-o trusted' TEST_FS_MOUNT_OPTS='-o trusted'\n",
            points[0].display(),
            points[1].display(),
            results.display(),
            df.display()
        );
        fs::write(&config, text).unwrap();
        let seconds = std::env::var("XFSTESTS_LIMIT").ok();
        let seconds = seconds.map_or(300, |seconds| seconds.parse().expect("seconds"));
        let limit = Duration::from_secs(seconds);
        Self {
            dir,
            points,
            config,
            results,
            limit,
        }
    }

    /// The tests of a group, in order, by the suite's own lists.
    fn tests(&self, group: &str) -> Vec<String> {
        let list = self.dir.join("tests/generic/group.list");
        let list = fs::read_to_string(&list)
            .unwrap_or_else(|e| panic!("{}: {e}; run make in it first", list.display()));
        let lines = list.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let number = words.next().filter(|n| n.parse::<u32>().is_ok())?;
            words
                .any(|word| word == group)
                .then(|| format!("generic/{number}"))
        });
        lines.collect()
    }

    fn run(&self, test: &str) -> (Verdict, String) {
        let out = self.results.join("check.out");
        let file = File::create(&out).unwrap();
        let mut command = Command::new("./check");
        command.args(["-fuse", test]).current_dir(&self.dir);
        command.env("HOST_OPTIONS", &self.config).env("LC_ALL", "C");
        command.stdout(file.try_clone().unwrap()).stderr(file);
        command.stdin(std::process::Stdio::null());
        let mut check = Proc::spawn(&mut command, None).unwrap();
        let ended = check.wait(self.limit).is_some();
        let told = fs::read(&out).unwrap_or_default();
        let told = String::from_utf8_lossy(&told).into_owned();
        if !ended {
            say(&format!("{test} hangs:\n{}", blocked_stacks()));
            self.points
                .iter()
                .for_each(|point| scratch::force_unmount(point));
            drop(check);
            return (Verdict::Hung, told);
        }
        (verdict(&told, test), told)
    }
}

/// The verdict of the suite's driver on a test.
fn verdict(told: &str, test: &str) -> Verdict {
    let said = told
        .lines()
        .find(|line| line.split_whitespace().next() == Some(test));
    match said {
        Some(line) if line.contains("[not run]") => Verdict::NotRun,
        Some(line) if line.contains("[failed") || line.contains("output mismatch") => {
            Verdict::Failed
        }
        Some(_) if told.contains("Passed all") => Verdict::Passed,
        _ => Verdict::Failed,
    }
}

/// The kernel stacks of all processes that wait without being interruptible.
fn blocked_stacks() -> String {
    let mut all = String::new();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let tasks = processes.filter_map(|process| fs::read_dir(process.path().join("task")).ok());
    for task in tasks.flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let waits = stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('D'));
        if waits {
            let _ = writeln!(all, "{}{}", stat.split(") ").next().unwrap(), read("stack"));
        }
    }
    all
}

#[test]
fn xfstests_finds_only_what_is_listed() {
    let Some(dir) = given("XFSTESTS", "xfstests") else {
        return;
    };
    let Some(test_cell) = patient_cell("xfstests") else {
        return;
    };
    let scratch_cell = patient_cell("xfstests-scratch").unwrap();
    let _helper = Helper::install();
    let suite = Suite::new(dir, test_cell.scratch(), [&test_cell, &scratch_cell]);
    let group = std::env::var("XFSTESTS_GROUP").unwrap_or_else(|_| "quick".to_owned());
    let named = std::env::var("XFSTESTS_TESTS").ok();
    let tests = match &named {
        Some(named) => named.split_whitespace().map(str::to_owned).collect(),
        None => suite.tests(&group),
    };
    assert!(
        !tests.is_empty(),
        "no test of generic is in the group {group}"
    );
    let expected = listed("xfstests");
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut bad = Vec::new();
    for test in tests {
        let (verdict, told) = suite.run(&test);
        let kind = match verdict {
            Verdict::Passed => "passed",
            Verdict::NotRun => "not run",
            Verdict::Failed if expected.contains(&test) => "failed as listed",
            Verdict::Failed => "failed",
            Verdict::Hung => "hung",
        };
        *counts.entry(kind).or_default() += 1;
        if matches!(kind, "failed" | "hung") {
            say(&format!("{test} {kind}\n{told}"));
            bad.push(test);
        }
    }
    for point in &suite.points {
        let _ = run_within(Command::new("umount").arg(point), LIMIT);
        scratch::force_unmount(point);
    }
    say(&format!("xfstests generic/ -g {group}: {counts:?}"));
    assert!(bad.is_empty(), "not listed in docs/semantics.md: {bad:?}");
}

#[test]
fn verdicts_of_the_driver_are_understood() {
    let said = |line: &str| verdict(line, "generic/001");
    assert_eq!(said("generic/001  4s\nPassed all 1 tests"), Verdict::Passed);
    assert_eq!(said("generic/001  [not run] no dump"), Verdict::NotRun);
    assert_eq!(
        said("generic/001  - output mismatch (see x)"),
        Verdict::Failed
    );
    assert_eq!(said("mount failed"), Verdict::Failed);
}
