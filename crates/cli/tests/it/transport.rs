//! Requests come from /dev/fuse or over io_uring: mounts are exact both ways, also side by side,
//! and say which it is.

use crate::harness::cell::CellOptions;
use crate::harness::process::{Proc, shell_ok, system_python};
use crate::harness::rerun::{EXACT, Rerun};
use crate::harness::status::status;
use crate::harness::{
    Cell, Mount, Pair, ariel, has_uring, local, long, real_system, run, switch, text,
};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WAYS: [&str; 2] = ["dev", "uring"];
/// The tests that run over io_uring each time.
const ALWAYS: [&str; 3] = ["exact::", "exact_names::", "append::"];

/// Each program's changes are seen by the other at once: through names, new descriptors and old
/// ones.
fn see_each_other(writer: &Path, reader: &Path) {
    let (at, seen) = (writer.join("file"), reader.join("file"));
    assert!(!seen.exists());
    fs::write(&at, b"first").unwrap();
    let mut held = File::open(&seen).unwrap();
    let mut bytes = String::new();
    held.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "first");
    let mut appending = File::options().append(true).open(&at).unwrap();
    for round in 0..200u64 {
        appending.write_all(b"x").unwrap();
        assert_eq!(fs::metadata(&seen).unwrap().size(), 6 + round);
        let mut byte = [0];
        assert_eq!(held.read_at(&mut byte, 5 + round).unwrap(), 1);
        assert_eq!(byte, *b"x");
    }
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n / 11) as u8).collect();
    fs::write(&at, &large).unwrap();
    assert!(fs::read(&seen).unwrap() == large, "other bytes were read");
    fs::rename(&at, writer.join("renamed")).unwrap();
    assert!(!seen.exists() && reader.join("renamed").exists());
    fs::remove_file(writer.join("renamed")).unwrap();
    assert_eq!(fs::read_dir(reader).unwrap().count(), 0);
}

/// Many programs at once in both mounts.
fn work_at_once(a: &Path, b: &Path) {
    std::thread::scope(|scope| {
        for (number, dir) in [a, b, a, b, a, b].into_iter().enumerate() {
            scope.spawn(move || {
                for round in 0..40 {
                    let path = dir.join(format!("{number}-{round}"));
                    fs::write(&path, vec![number as u8; 3000 + round]).unwrap();
                    assert_eq!(fs::read(&path).unwrap().len(), 3000 + round);
                }
            });
        }
    });
    for dir in [a, b] {
        assert_eq!(shell_ok(dir, "cat * | wc -c").trim(), "724680");
    }
}

#[test]
fn mounts_are_exact_whichever_way_requests_come() {
    if !real_system("transport") || !has_uring("transport") {
        return;
    }
    for ways in [[WAYS[1]; 2], WAYS, [WAYS[0]; 2]] {
        let Some(cell) = Cell::start_with("transport", CellOptions::default()) else {
            return;
        };
        let mounts = ways.map(|way| cell.mount_with(&["--transport", way]));
        for (mount, way) in mounts.iter().zip(ways) {
            assert_eq!(status(mount.path())["fuse"]["transport"], way);
        }
        let [a, b] = &mounts;
        see_each_other(a.path(), b.path());
        see_each_other(b.path(), a.path());
        work_at_once(a.path(), b.path());
        drop(mounts);
        drop(cell);
    }
}

/// The tests of exactness once more, on mounts that are all over io_uring, and in the long form on
/// mounts that all read /dev/fuse: which way the others use, the kernel decides.
#[test]
fn what_is_exact_is_so_over_each() {
    if local() || !real_system("transports") || !has_uring("transports") {
        return;
    }
    let tests: &[&str] = if long() { &EXACT } else { &ALWAYS };
    for way in WAYS.iter().rev().take(if long() { 2 } else { 1 }) {
        let rerun = Rerun {
            variable: "ARIEL_IT_TRANSPORT",
            value: way,
            tests,
            but: &[],
        };
        rerun.assert_passes(if long() { 60 } else { 18 });
    }
}

#[test]
fn a_mount_over_io_uring_ends_as_others_do() {
    if !real_system("transport ends") || !has_uring("transport ends") {
        return;
    }
    let args = ["--transport", "uring"];
    let Some(pair) = Pair::start_with("transport-ends", CellOptions::default(), &args) else {
        return;
    };
    let Pair { cell, a, b } = pair;
    fs::write(a.join("synced"), b"synced").unwrap();
    File::open(a.join("synced")).unwrap().sync_all().unwrap();
    let held = File::create(a.join("held")).unwrap();
    let point = a.path().to_owned();
    a.kill9();
    assert!(held.write_at(b"x", 0).is_err(), "a dead mount still writes");
    drop(held);
    assert_eq!(fs::read(b.join("synced")).unwrap(), b"synced");
    let mut again = Mount::start_at(&cell, point, &args);
    assert_eq!(fs::read(again.join("synced")).unwrap(), b"synced");
    fs::write(again.join("last"), b"last").unwrap();
    let kept = File::open(again.join("last")).unwrap();
    again.daemon().signal(rustix::process::Signal::TERM);
    let ended = again.daemon().wait(std::time::Duration::from_secs(30));
    assert!(
        ended.is_some_and(|status| status.success()),
        "in use, it must end all the same"
    );
    again.forget();
    drop(kept);
    assert_eq!(fs::read(b.join("last")).unwrap(), b"last");
}

/// The thread that answers programs hands its processor over to them, and runs when no other wants
/// to. When others do, programs are served all the same.
#[test]
fn a_mount_is_served_when_every_processor_is_wanted() {
    if !real_system("transport busy") || !has_uring("transport busy") {
        return;
    }
    let Some(cell) = Cell::start("transport-busy") else {
        return;
    };
    for way in WAYS {
        is_served_when_every_processor_is_wanted(&cell, way);
    }
}

fn is_served_when_every_processor_is_wanted(cell: &Cell, way: &str) {
    let mount = cell.mount_with(&["--transport", way]);
    let features = &status(mount.path())["fuse"]["features"];
    let hands_over = |word: &serde_json::Value| word == "handover";
    assert!(
        features.as_array().unwrap().iter().any(hands_over),
        "{features}"
    );
    let ask = |count: u32| {
        let began = Instant::now();
        for number in 0..count {
            let at = mount.join(&format!("absent-{number}"));
            fs::write(&at, b"some").unwrap();
            fs::remove_file(at).unwrap();
        }
        began.elapsed()
    };
    let calm = ask(1000);
    let over = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // The first of them find lanes that have handed over.
        let busy = ask(1000);
        over.store(true, Ordering::Relaxed);
        busy
    });
    println!("1,000 temporary files, {way}: {calm:?}, every processor wanted {busy:?}");
    assert!(busy < Duration::from_secs(60), "{busy:?}");
}

#[test]
fn forced_where_the_kernel_may_not_the_cure_is_named() {
    if !real_system("transport off") || !has_uring("transport off") {
        return;
    }
    let Some(cell) = Cell::start("transport-off") else {
        return;
    };
    let _off = switch::hold(false).unwrap();
    let point = cell.scratch().dir("mount-forced");
    let words = [
        "mount",
        cell.addr(),
        point.to_str().unwrap(),
        "--transport",
        "uring",
    ];
    let output = run(&mut ariel(&words));
    let said = text(&output);
    assert!(
        !output.status.success() && said.contains("echo Y >"),
        "{said}"
    );
    assert!(
        !fuse::mount::find(&point)
            .unwrap()
            .is_some_and(|mount| mount.is_ariel())
    );
    let mount = cell.mount_with(&["--transport", "auto"]);
    assert_eq!(status(mount.path())["fuse"]["transport"], "dev");
}

/// Asks much, so that the daemon looks where it runs, and executes a program while it has a file
/// open whose close is told to the daemon: again and again.
const EXECUTES: &str = "
import fcntl, os, sys
first = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(first, fcntl.LOCK_EX)
os.write(first, b'bytes')
file = os.open(sys.argv[1], os.O_RDWR)
for number in range(100):
    child = os.fork()
    if child == 0:
        for _ in range(200 + number):
            os.pread(file, 1, 0)
        os.execv('/bin/true', ['true'])
    assert os.waitpid(child, 0)[1] == 0
";

#[test]
fn a_program_is_executed_while_files_of_the_mount_are_open() {
    let test = "executes";
    if !real_system(test) {
        return;
    }
    let Some(cell) = Cell::start(test) else {
        return;
    };
    // From one reader to several: each of them may be the one that answers.
    for threads in ["1", "4"] {
        let mount = cell.mount_with(&["--transport", "dev", "--threads", threads]);
        let mut command = Command::new(system_python());
        command.args(["-c", EXECUTES]).arg(mount.join("file"));
        let mut program = Proc::spawn(&mut command, Some(cell.watch())).unwrap();
        let status = program.wait(Duration::from_secs(60));
        assert!(
            status.is_some_and(|status| status.success()),
            "{threads} readers: {status:?}"
        );
    }
}
