//! A daemon that is killed leaves a mount that says so, and nobody waits: not when it was idle, and
//! not when one of its threads is blocked in a notification and cannot die, however it was killed.
//! The daemon and its guard are this very program, started with other environments.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ariel_fuse::abi::ROOT_ID;
use ariel_fuse::mount::{Control, MountId};
use ariel_fuse::{Errno, Transport, guard, mount};
use rustix::process::{Pid, Signal, kill_process};
use support::{Mount, can_mount, eventually, is_mounted};

/// Of the mounts here.
#[allow(dead_code)]
const TRANSPORT: Transport = Transport::Device;

const ROLE: &str = "ARIEL_FUSE_TEST_ROLE";
const MOUNT_POINT: &str = "ARIEL_FUSE_TEST_MOUNT_POINT";

/// This program again, as one of the children below.
fn this_program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // These tests may be part of another program.
    let name = match module_path!().split_once("::") {
        Some((_, module)) => format!("{module}::{role}"),
        None => role.to_owned(),
    };
    command
        .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
        .env(ROLE, role);
    command
}

fn is_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|wanted| wanted == role)
}

/// Mounts, starts its guard, says so, and serves until it is killed.
#[test]
#[allow(clippy::zombie_processes)] // The guard outlives this process, by its nature.
fn child_daemon() {
    if !is_role("child_daemon") {
        return;
    }
    let mount = Mount::new(2);
    let mut guard = this_program("child_guard");
    guard.env(MOUNT_POINT, &mount.path).stdout(Stdio::null());
    let mut guard = guard::start(guard).unwrap();
    let told = [
        std::process::id().to_string(),
        guard::canary().unwrap().to_string(),
        mount.connection.to_string(),
        mount.id.0.to_string(),
    ];
    writeln!(guard.stdin.as_mut().unwrap(), "{}", told.join(" ")).unwrap();
    mount.memory.put("file", b"content");
    println!(
        "\nREADY {} {} {}",
        guard.id(),
        mount.connection,
        mount.path.display()
    );
    let notifier = mount.session.notifier();
    let memory = mount.memory.clone();
    std::thread::spawn(move || {
        memory.await_held();
        println!("\nBLOCKING");
        // Does not return while the request is held, which is until the end.
        let _ = notifier.inval_entry(ROOT_ID, b"file");
    });
    mount.session.wait();
}

#[test]
fn child_guard() {
    if !is_role("child_guard") {
        return;
    }
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let told: Vec<u64> = line
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let mount_point = PathBuf::from(std::env::var_os(MOUNT_POINT).unwrap());
    let id = MountId(told[3]);
    let control = Control::of_mount((id, &mount_point), told[2] as u32).unwrap();
    // None: it was killed before it was looked at.
    let daemon = guard::Daemon::parent(told[0] as i32, told[1] as i32).ok();
    if let Some(daemon) = &daemon {
        daemon.await_death().unwrap();
    }
    let left = guard::cut(control.as_ref(), (id, &mount_point));
    assert_eq!(left, guard::Left::DeadMount);
    let ended = daemon.is_none_or(|daemon| daemon.await_end(support::PATIENCE).unwrap());
    assert!(ended, "it cannot end");
}

struct Daemon {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    guard: u32,
    path: PathBuf,
}

impl Daemon {
    fn start() -> Self {
        let mut child = this_program("child_daemon")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.find_map(|line| Some(line.ok()?.strip_prefix("READY ")?.to_owned()));
        let ready = ready.expect("the daemon ended before it was ready");
        let mut fields = ready.splitn(3, ' ');
        let guard = fields.next().unwrap().parse().unwrap();
        let path = PathBuf::from(fields.nth(1).unwrap());
        Daemon {
            child,
            lines,
            guard,
            path,
        }
    }

    fn await_line(&mut self, wanted: &str) {
        assert!(
            self.lines.any(|line| line.unwrap() == wanted),
            "{wanted} was never said"
        );
    }

    /// Ends it by a signal; afterwards no guard and no daemon are left, and the mount says so.
    fn kill(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        eventually("the guard has ended", || !is_running(self.guard));
        let dead = fs::write(self.path.join("new"), b"x").unwrap_err();
        assert_eq!(Errno::from_io_error(&dead), Some(Errno::NOTCONN), "{dead}");
        mount::unmount(&self.path).unwrap();
        let content = fs::read_dir(&self.path).unwrap().count();
        assert_eq!(content, 0, "the place is as before");
        fs::remove_dir(&self.path).unwrap();
    }
}

impl Drop for Daemon {
    /// Leaves nothing behind when a test fails: an aborted connection lets everybody end.
    fn drop(&mut self) {
        if is_mounted(&self.path) {
            let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
            let _ = rustix::mount::unmount(&self.path, flags);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a process runs: one that has ended and waits for its parent does not.
fn is_running(pid: u32) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// Whether a thread of a process waits in the kernel and no signal ends that (proc_pid_stat(5)).
fn is_blocked(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().any(|task| {
        // One that cannot be read has ended.
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().unwrap_or("").starts_with(" D")
    })
}

#[test]
fn a_killed_daemon_leaves_a_mount_that_says_so() {
    if !can_mount() {
        return;
    }
    let daemon = Daemon::start();
    assert_eq!(fs::read(daemon.path.join("file")).unwrap(), b"content");
    assert!(is_running(daemon.guard));
    daemon.kill(Signal::KILL);
}

/// A thread of it waits for the kernel, which waits for it. SIGABRT ends it as an assertion does:
/// before its threads end, all of them wait for their memory to be written into a file.
#[test]
fn so_does_one_that_cannot_die() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::KILL, Signal::ABORT] {
        let mut daemon = Daemon::start();
        assert_eq!(fs::read(daemon.path.join("file")).unwrap(), b"content");
        let path = daemon.path.join("held");
        let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
        daemon.await_line("BLOCKING");
        eventually("a thread cannot die", || is_blocked(daemon.child.id()));
        daemon.kill(signal);
        assert!(creating.join().unwrap().is_err());
    }
}

/// A mount that is gone, and mounts at other places of which the last one has its number.
struct Again {
    id: MountId,
    control: Control,
    others: Vec<Mount>,
}

/// As a rule the next mount has the number of the one that went last; a few more are made if
/// another program was faster. None: that one keeps it.
fn number_given_again() -> Option<Again> {
    let first = Mount::new(1);
    let (connection, id) = (first.connection, first.id);
    let control = Control::of_mount((id, &first.path), connection).unwrap();
    let control = control.expect("it is there");
    drop(first);
    let mut others = Vec::new();
    while others.len() < 50 {
        let other = Mount::new(1);
        let same = other.connection == connection;
        others.push(other);
        if same {
            return Some(Again {
                id,
                control,
                others,
            });
        }
    }
    None
}

/// The kernel gives the number of a connection again, and another mount may be at the same place.
#[test]
fn a_guard_leaves_the_mounts_of_others_alone() {
    if !can_mount() {
        return;
    }
    // Other tests mount at the same time, and may have the number for as long as they run.
    let again = (0..10).find_map(|_| number_given_again());
    let Some(Again {
        id,
        control,
        others,
    }) = again
    else {
        panic!("the number was not given again: nothing is shown");
    };
    for other in &others {
        let left = guard::cut(Some(&control), (id, &other.path));
        assert_eq!(left, guard::Left::Nothing);
        let none = Control::of_mount((id, &other.path), other.connection);
        assert!(none.unwrap().is_none());
        assert_eq!(guard::cut(None, (id, &other.path)), guard::Left::Nothing);
        assert!(is_mounted(&other.path));
        support::ordinary_operations(other);
    }
}
