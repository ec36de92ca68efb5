//! The commands that leave daemons behind: `up` and `down`, `serve --daemon`, `mount` without `-f`.

use crate::harness::permits;
use crate::harness::scratch::{force_unmount, is_mounted};
use crate::harness::starts::start;
use crate::harness::watchdog::Watch;
use crate::harness::{Cell, Scratch, ariel, eventually, real_system, run, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

fn command(args: &[&str]) -> Output {
    let output = run(&mut ariel(args));
    assert!(output.status.success(), "ariel {args:?}: {}", text(&output));
    output
}

/// Ends what `up` or `--daemon` has left, also when the test fails.
struct CleanUp {
    data: PathBuf,
    point: PathBuf,
}

impl Drop for CleanUp {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut down = ariel(&[Path::new("down"), Path::new("--data"), &self.data]);
            let _ = start(&mut down).and_then(|mut down| down.wait());
        }
        force_unmount(&self.point);
    }
}

/// Processes of the program whose command line names this path.
fn processes_of(path: &Path) -> Vec<String> {
    let wanted = path.to_str().unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let id = entry.file_name().into_string().unwrap_or_default();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if id.parse::<u32>().is_ok() && line.contains(wanted) {
            found.push(format!("{id}: {line}"));
        }
    }
    found
}

/// Kills the server of a store, and waits until it is gone.
fn kill_server_of(data: &Path) {
    let serves = |line: &&String| line.contains(" serve ");
    let all = processes_of(data);
    let server = all.iter().find(serves).expect("a server");
    let id = server.split(':').next().and_then(|id| id.parse().ok());
    let id = rustix::process::Pid::from_raw(id.unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    let gone = || !processes_of(data).iter().any(|line| serves(&line));
    assert!(eventually(Duration::from_secs(20), gone));
}

fn assert_none_left(scratch: &Scratch) {
    let none = eventually(Duration::from_secs(20), || {
        processes_of(scratch.path()).is_empty()
    });
    assert!(none, "left behind: {:?}", processes_of(scratch.path()));
}

#[test]
fn up_gives_a_working_mount_and_down_takes_it_away() {
    if !real_system("up") {
        return;
    }
    let _permit = permits::take(1);
    let scratch = Scratch::new("up");
    let watch = Watch::new("up", Duration::from_secs(240));
    let (data, point) = (scratch.join("data"), scratch.join("mount"));
    watch.id().add_mount(&point);
    let clean_up = CleanUp {
        data: data.clone(),
        point: point.clone(),
    };
    let (d, m) = (data.to_str().unwrap(), point.to_str().unwrap());

    let told = command(&["up", "--data", d, "--mount", m]);
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(
        told.contains(m),
        "up does not say where the mount is: {told}"
    );
    assert!(is_mounted(&point), "up ended well and there is no mount");
    fs::write(point.join("file"), b"kept").unwrap();
    assert_eq!(fs::read(point.join("file")).unwrap(), b"kept");
    // Up again is no harm, and starts what is missing.
    let again = command(&["up", "--data", d, "--mount", m]);
    assert!(text(&again).contains("is up already"), "{}", text(&again));
    kill_server_of(&data);
    let again = command(&["up", "--data", d, "--mount", m]);
    assert!(text(&again).contains("Ariel is up:"), "{}", text(&again));
    assert_eq!(fs::read(point.join("file")).unwrap(), b"kept");

    command(&["down", "--data", d]);
    assert!(!is_mounted(&point), "the mount is still there after down");
    assert_none_left(&scratch);
    command(&["fsck", d]);

    command(&["up", "--data", d, "--mount", m]);
    assert_eq!(fs::read(point.join("file")).unwrap(), b"kept");
    command(&["down", "--data", d]);
    assert_none_left(&scratch);
    command(&["fsck", d]);
    drop(clean_up);
}

#[test]
fn a_mount_in_the_background_works_when_the_command_returns() {
    if !real_system("mount-daemon") {
        return;
    }
    let Some(cell) = Cell::start("mount-daemon") else {
        return;
    };
    let point = cell.scratch().dir("background");
    cell.watch().add_mount(&point);
    let clean_up = CleanUp {
        data: cell.data(),
        point: point.clone(),
    };
    let m = point.to_str().unwrap();
    command(&["mount", cell.addr(), m]);
    assert!(
        is_mounted(&point),
        "the command has returned and there is no mount"
    );
    fs::write(point.join("file"), b"through a daemon").unwrap();
    assert_eq!(
        fs::read(cell.mount().join("file")).unwrap(),
        b"through a daemon"
    );
    command(&["umount", m]);
    assert!(!is_mounted(&point), "the mount is still there after umount");
    let gone = eventually(Duration::from_secs(20), || processes_of(&point).is_empty());
    assert!(gone, "left behind: {:?}", processes_of(&point));
    drop(clean_up);
}

#[test]
fn a_server_in_the_background_writes_its_pid_and_ends_on_sigterm() {
    if !real_system("serve-daemon") {
        return;
    }
    let _permit = permits::take(1);
    let scratch = Scratch::new("serve-daemon");
    let _watch = Watch::new("serve-daemon", Duration::from_secs(120));
    // The daemon's port must be known: one that is free now.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    drop(listener);
    let (data, pid_file) = (scratch.join("data"), scratch.join("pid"));
    let (d, p) = (data.to_str().unwrap(), pid_file.to_str().unwrap());
    command(&["cell", "init", "--data", d]);
    command(&[
        "serve",
        "--data",
        d,
        "--listen",
        &addr,
        "--daemon",
        "--pid-file",
        p,
    ]);
    let pid: i32 = fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let answered = run(&mut ariel(&["status", "--json", &addr]));
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let killed = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    assert!(
        answered.status.success(),
        "it returned before it served: {}",
        text(&answered)
    );
    assert!(
        killed.is_ok(),
        "the pid file names no process of ours: {killed:?}"
    );
    assert_none_left(&scratch);
    command(&["fsck", d]);
}
