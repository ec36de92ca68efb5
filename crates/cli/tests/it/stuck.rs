//! The judge of hangs finds programs that are stuck on a mount, whatever they do there, and only
//! those. See [`crate::harness::stuck`].

use crate::harness::process::{Proc, stop, system_python};
use crate::harness::status::{counts, status};
use crate::harness::tasks::{Wait, waits};
use crate::harness::{Cell, Mount, eventually, real_system};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The judge's own limit on a machine that is never idle is half of it.
const LIMIT: Duration = Duration::from_secs(60);

/// A program of the shell; it does its second half when it is told to.
fn program(dir: &Path, before: &str, then: &str) -> Proc {
    let mut command = Command::new("/bin/sh");
    let line = format!("{before}; echo ready; read go; {then}");
    command.args(["-c", &line]).current_dir(dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Proc::spawn(&mut command, None).unwrap();
    let mut ready = String::new();
    let out = program.child().stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    program
}

fn go(program: &mut Proc) {
    let stdin = program.child().stdin.as_mut().unwrap();
    stdin.write_all(b"\n").unwrap();
}

/// Stops the daemon without a word to the judge, which goes on expecting answers.
fn stop_daemon(mount: &mut Mount) {
    stop(mount.daemon().child().id());
}

/// A cell with a mount that has not read `file`, and one whose server is stopped or not.
fn cell(name: &str) -> Option<(Cell, Mount)> {
    if !real_system(name) {
        return None;
    }
    let cell = Cell::start(name)?;
    let other = cell.mount();
    fs::write(other.join("file"), vec![b'f'; 16 << 20]).unwrap();
    drop(other);
    let mount = cell.mount();
    Some((cell, mount))
}

/// The verdict on a test, whose mounts are then ended.
fn verdict(cell: &mut Cell, mount: Mount) -> String {
    let mut said = None;
    let is_said = eventually(LIMIT, || {
        said = cell.watch().take_verdict();
        said.is_some()
    });
    assert!(is_said, "nobody is stuck");
    mount.forget();
    cell.kill9();
    said.unwrap()
}

fn assert_told(said: &str, words: &[&str]) {
    let missing: Vec<&&str> = words.iter().filter(|word| !said.contains(**word)).collect();
    assert!(missing.is_empty(), "it lacks {missing:?}:\n{said}");
}

/// The report when this program runs on a mount whose daemon is stopped.
fn said_of(name: &str, before: &str, then: &str, words: &[&str]) {
    let Some((mut cell, mut mount)) = cell(name) else {
        return;
    };
    let mut program = program(mount.path(), before, then);
    stop_daemon(&mut mount);
    go(&mut program);
    let said = verdict(&mut cell, mount);
    assert_told(&said, words);
    let always = ["STUCK", "its server answers", "ariel-fuse-0", "serve"];
    assert_told(&said, &always);
}

#[test]
fn who_waits_for_bytes_is_stuck() {
    said_of(
        "stuck-bytes",
        "exec 4<file",
        "tail -c 9 <&4",
        &["tail", "folio"],
    );
}

/// Nothing of the task in state D is in FUSE: it waits for the other, which is.
#[test]
fn who_waits_for_somebody_who_waits_is_stuck() {
    let both = "mkdir one & mkdir two; wait";
    said_of("stuck-lock", "true", both, &["mkdir", "filename_create"]);
}

#[test]
fn who_waits_for_a_page_of_a_mapping_is_stuck() {
    let map = "import mmap,sys; m = mmap.mmap(4, 0, prot=mmap.PROT_READ)";
    let line = format!("cd /; {} -c '{map}; m[16 << 19]'", system_python());
    said_of("stuck-page", "exec 4<file", &line, &["python", "_fault"]);
}

/// A request that is under way can be given up by the daemon only, which is stopped.
#[test]
fn who_cannot_be_killed_is_stuck_while_the_server_is_away() {
    let Some((mut cell, mut mount)) = cell("stuck-killed") else {
        return;
    };
    let mut program = program(mount.path(), "true", "exec stat -f .");
    let asked = |mount: &Mount| {
        counts(&status(mount.path()), &["fuse", "requests"])
            .get("STATFS")
            .copied()
    };
    let before = asked(&mount);
    cell.stand();
    go(&mut program);
    assert!(eventually(LIMIT, || asked(&mount) > before));
    stop_daemon(&mut mount);
    program.signal(Signal::KILL);
    let said = verdict(&mut cell, mount);
    assert_told(
        &said,
        &[
            "STUCK",
            "stat -f",
            "cannot be killed",
            "request_wait_answer",
        ],
    );
}

/// A test that does not ask for the verdict, as all others, fails with it.
#[test]
fn who_is_stuck_fails_his_test() {
    let Some((mut cell, mut mount)) = cell("stuck-fails") else {
        return;
    };
    let mut program = program(mount.path(), "exec 4<file", "exec tail -c 9 <&4");
    stop_daemon(&mut mount);
    go(&mut program);
    assert!(program.wait(LIMIT).is_some(), "nothing ends it");
    mount.forget();
    cell.kill9();
    let ends = std::panic::AssertUnwindSafe(|| drop(cell));
    let why = std::panic::catch_unwind(ends).expect_err("the test passes");
    let why = why.downcast_ref::<String>().unwrap();
    assert_told(why, &["STUCK", "tail -c 9"]);
}

/// While the test has taken the server away programs may wait, and those that are killed go.
#[test]
fn nobody_is_stuck_who_waits_for_a_server_that_is_away() {
    let Some((mut cell, mount)) = cell("stuck-away") else {
        return;
    };
    let mut program = program(mount.path(), "exec 4<file", "exec tail -c 9 <&4");
    cell.stand();
    go(&mut program);
    let watch = cell.watch();
    let enough = Duration::from_secs(5);
    assert!(
        eventually(2 * LIMIT, || watch.longest_wait() > enough),
        "it does not wait"
    );
    program.signal(Signal::KILL);
    assert!(
        program.wait(Duration::from_secs(2)).is_some(),
        "it survives"
    );
    cell.go_on();
    assert_eq!(watch.take_verdict(), None);
}

/// Waits are judged one by one: a task that is woken between them gets on.
#[test]
fn who_waits_again_waits_anew() {
    let mut sleeper = program(Path::new("/"), "true", "while :; do /bin/true; done");
    go(&mut sleeper);
    // The shell is in state D until each child runs its own program.
    let process = sleeper.child().id();
    let of_sleeper = |wait: &Wait| wait.process == process;
    let mut seen = std::collections::HashSet::new();
    let often = eventually(LIMIT, || {
        seen.extend(waits().into_iter().filter(of_sleeper));
        seen.len() > 2
    });
    assert!(often, "{seen:?}");
}
