//! Suites that others wrote to judge any file system: pjdfstest (what POSIX says of each system
//! call) and fsx (random operations on one file, compared with memory).
//!
//! `tools/setup suites` installs them. Cases that they may skip are listed here and explained in
//! `docs/semantics.md`; anything else that is skipped is a failure.

use crate::harness::cell::CellOptions;
use crate::harness::process::run_within;
use crate::harness::status::server_received;
use crate::harness::{Cell, Pair, Scratch, local, long, real_system, suite, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Far longer than any of them takes.
const LIMIT: Duration = Duration::from_secs(150);

/// The C library tells programs how many links a file may have, by a list of file systems that it
/// knows: it does not know this one, so the suite does not try.
const UNKNOWN_TO_THE_LIBRARY: &str = "link::link_count_max";
/// Cases that remount the file system for reading only. They are run by themselves: when all cases
/// run, descriptors that earlier ones leave open make these fail on any file system.
const REMOUNTING: &str = "erofs";
const REMOUNTING_COUNT: usize = 13;

/// Runs pjdfstest in a directory; `remount`: the cases that remount, and only these.
fn pjdfstest(program: &Path, scratch: &Scratch, dir: &Path, remount: bool) -> Output {
    let config = scratch.join("pjdfstest.toml");
    let text = format!(
        "[features]\nposix_fallocate = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         rename_ctime = {{}}\n\
         [settings]\nnaptime = 0.02\nallow_remount = {remount}\n\
         [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(&config).arg("-p").arg(dir);
    command.args(["-s", "/dev/shm"]);
    if remount {
        command.arg(REMOUNTING).env("PATH", plain_mount(scratch));
    }
    run_within(&mut command, LIMIT)
}

/// A search path on which mount(8) asks no helper program: for a remount there is nothing to help,
/// and the one for FUSE would start a new daemon.
fn plain_mount(scratch: &Scratch) -> std::ffi::OsString {
    use std::os::unix::fs::PermissionsExt;
    let bin = scratch.dir("bin");
    let script = bin.join("mount");
    fs::write(
        &script,
        "#!/bin/sh\nPATH=${PATH#*:}\nexec mount -i \"$@\"\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = [bin].into_iter().chain(std::env::split_paths(&path));
    std::env::join_paths(dirs.collect::<Vec<PathBuf>>()).unwrap()
}

/// Judges a run: nothing failed, only these were skipped; how many passed.
fn judge(output: &Output, may_skip: impl Fn(&str) -> bool) -> usize {
    let told = String::from_utf8_lossy(&output.stdout);
    let named = |word: &str| -> BTreeSet<String> {
        let lines = told.lines().filter(|line| line.trim_end().ends_with(word));
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect()
    };
    let failed = named(" FAILED");
    assert!(
        output.status.success() && failed.is_empty(),
        "{failed:?}\n{}",
        text(output)
    );
    let skipped: Vec<String> = named(" skipped")
        .into_iter()
        .filter(|name| !may_skip(name))
        .collect();
    assert!(skipped.is_empty(), "skipped: {skipped:?}\n{}", text(output));
    named(" ok").len()
}

fn skips_usual(name: &str) -> bool {
    name == UNKNOWN_TO_THE_LIBRARY || name.contains(REMOUNTING)
}

#[test]
fn pjdfstest_finds_nothing_on_a_mount() {
    let Some(program) = suite("pjdfstest", "pjdfstest") else {
        return;
    };
    let Some(cell) = Cell::start("pjdfstest") else {
        return;
    };
    let mount = cell.mount();
    let output = pjdfstest(&program, cell.scratch(), mount.path(), false);
    let passed = judge(&output, skips_usual);
    assert!(passed > 380, "{passed} cases\n{}", text(&output));
}

#[test]
fn pjdfstest_finds_nothing_while_another_mount_looks_at_everything() {
    let Some(program) = suite("pjdfstest-two", "pjdfstest") else {
        return;
    };
    let Some(pair) = Pair::start("pjdfstest-two") else {
        return;
    };
    let over = AtomicBool::new(false);
    let (output, seen) = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut seen = 0;
            while !over.load(Ordering::Acquire) {
                seen += look_at(pair.b.path());
            }
            seen
        });
        let run = || pjdfstest(&program, pair.cell.scratch(), pair.a.path(), false);
        let output = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        over.store(true, Ordering::Release);
        (output, looker.join().unwrap())
    });
    let output = output.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let passed = judge(&output, skips_usual);
    assert!(passed > 380, "{passed} cases\n{}", text(&output));
    assert!(seen > 1000, "the other mount has seen {seen} objects only");
}

/// Looks at the attributes of everything below; files that go away meanwhile do not count.
fn look_at(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let mut seen = 0;
    for entry in entries.flatten() {
        let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
            continue;
        };
        seen += 1;
        if metadata.is_dir() {
            seen += look_at(&entry.path());
        }
    }
    seen
}

#[test]
fn pjdfstest_finds_a_mount_for_reading_only_when_it_is_made_one() {
    if !real_system("pjdfstest-remount") {
        return;
    }
    let Some(program) = suite("pjdfstest-remount", "pjdfstest") else {
        return;
    };
    let Some(cell) = Cell::start("pjdfstest-remount") else {
        return;
    };
    let mount = cell.mount();
    let output = pjdfstest(&program, cell.scratch(), mount.path(), true);
    assert_eq!(
        judge(&output, |_| false),
        REMOUNTING_COUNT,
        "{}",
        text(&output)
    );
}

/// All that fsx can do.
const FSX: &str = "flen = 262144\n[opsize]\nmax = 65536\n[weights]\nclose_open = 1\nread = 10\n\
    write = 10\nmapread = 10\nmapwrite = 10\ninvalidate = 1\ntruncate = 10\nfsync = 1\n\
    fdatasync = 1\nsendfile = 5\nposix_fadvise = 1\ncopy_file_range = 5\n\
    posix_fallocate = 5\npunch_hole = 5\n";

#[test]
fn fsx_finds_nothing_on_a_mount() {
    let Some(program) = suite("fsx", "fsx") else {
        return;
    };
    let (limit, options) = if long() {
        let limit = Duration::from_secs(3600);
        (
            limit,
            CellOptions {
                limit,
                ..CellOptions::default()
            },
        )
    } else {
        (LIMIT, CellOptions::default())
    };
    let Some(cell) = Cell::start_with("fsx", options) else {
        return;
    };
    let mount = cell.mount();
    let config = cell.scratch().join("fsx.toml");
    fs::write(&config, FSX).unwrap();
    let (seeds, operations) = if long() { (10, "20000") } else { (3, "3000") };
    for seed in 1..=seeds {
        let mut command = Command::new(&program);
        command.args(["-S", &seed.to_string(), "-N", operations, "-f"]);
        command.arg(&config).arg("-P").arg(cell.scratch().path());
        command.arg(mount.join(&format!("fsx-{seed}")));
        let output = run_within(&mut command, limit);
        assert!(output.status.success(), "seed {seed}: {}", text(&output));
    }
    if !local() {
        // The kernel has done nothing in another way because the mount could not do it.
        let received = server_received(cell.addr());
        for kind in ["Allocate", "Copy"] {
            assert!(received.contains_key(kind), "{kind} in {received:?}");
        }
    }
}
