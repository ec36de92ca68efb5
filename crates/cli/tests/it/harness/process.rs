//! Processes that are always waited for, within a limit, and never outlive their test.

use super::child::wait_within;
use super::starts::start;
use super::watchdog::WatchId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// The longest that an ordinary command may take.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A process that is killed is gone by then, or is shown.
const KILLED_LIMIT: Duration = Duration::from_secs(2);

/// How long a process may take to stop.
const STOPS: Duration = Duration::from_secs(30);

/// Where the threads of a process are in the kernel.
pub fn stacks(process: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let mut all = String::new();
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name));
        let state = read("stat").unwrap_or_default();
        let state = state
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().next());
        let (name, stack) = (
            read("comm").unwrap_or_default(),
            read("stack").unwrap_or_default(),
        );
        let thread = task.file_name();
        let state = state.unwrap_or("?");
        all += &format!(
            "thread {} {} in state {state}:\n{stack}",
            thread.display(),
            name.trim()
        );
    }
    all
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

/// Ends a process group at once.
pub fn kill_group(group: u32) {
    let _ = kill_process_group(pid(group), Signal::KILL);
}

/// Stops a process; when this returns all its threads stand.
pub fn stop(process: u32) {
    kill_process(pid(process), Signal::STOP).unwrap();
    let tasks = format!("/proc/{process}/task");
    let stands = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
        // A thread that has ended meanwhile stands, too.
        stat.map_or(true, |stat| {
            stat.rsplit_once(')').is_some_and(|s| s.1.starts_with(" T"))
        })
    };
    let all = || std::fs::read_dir(&tasks).unwrap().all(stands);
    assert!(super::eventually(STOPS, all), "a stopped process goes on");
}

/// A child in a process group of its own; dropping it kills the group.
pub struct Proc {
    child: Child,
    watch: Option<WatchId>,
    ended: Option<ExitStatus>,
}

impl Proc {
    pub fn spawn(command: &mut Command, watch: Option<WatchId>) -> std::io::Result<Self> {
        let child = start(command.process_group(0))?;
        if let Some(watch) = watch {
            watch.add_group(child.id());
        }
        Ok(Self {
            child,
            watch,
            ended: None,
        })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to the process itself; its helpers in the group stay.
    pub fn signal(&mut self, signal: Signal) {
        if self.poll().is_none() {
            if let Some(watch) = self.watch {
                watch.disturbed();
            }
            kill_process(pid(self.child.id()), signal).unwrap();
        }
    }

    /// Has it ended?
    pub fn poll(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().unwrap();
            if let (Some(_), Some(watch)) = (self.ended, self.watch) {
                watch.remove_group(self.child.id());
            }
        }
        self.ended
    }

    /// Waits for the end, within the limit.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        if self.ended.is_none() {
            wait_within(&mut self.child, limit).unwrap();
        }
        self.poll()
    }

    /// Ends it at once, without a chance to clean up.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        if self.wait(KILLED_LIMIT).is_some() {
            return;
        }
        // The machine may only be slow; the stacks show what waits in the kernel in either case.
        let stacks = stacks(self.child.id());
        super::say(&format!(
            "killed, and still there after {KILLED_LIMIT:?}:\n{stacks}"
        ));
        let ended = self.wait(Duration::from_secs(20));
        assert!(
            ended.is_some(),
            "process {} survives SIGKILL:\n{stacks}",
            self.child.id()
        );
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        if self.poll().is_none() {
            kill_group(self.child.id());
            self.wait(Duration::from_secs(10));
        }
    }
}

/// The system's own Python where there is one: the first one in the path may be a script that takes
/// seconds to find another.
pub fn system_python() -> &'static str {
    let own = "/usr/bin/python3";
    if Path::new(own).exists() {
        own
    } else {
        "python3"
    }
}

/// The program under test.
pub fn ariel<S: AsRef<OsStr>>(args: &[S]) -> Command {
    program(env!("CARGO_BIN_EXE_ariel").as_ref(), args)
}

/// The program that a variable of the environment names, of another version perhaps; else the one
/// under test.
pub fn ariel_named_by<S: AsRef<OsStr>>(variable: &str, args: &[S]) -> Command {
    match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(other) => program(&other, args),
        None => ariel(args),
    }
}

fn program<S: AsRef<OsStr>>(path: &OsStr, args: &[S]) -> Command {
    let mut command = Command::new(path);
    command.args(args).stdin(Stdio::null());
    // Options that are set on this machine do not count in tests.
    command.env("ARIEL_CONFIG", "");
    command
}

/// Runs a command to its end. Its output goes to nameless files, not pipes: a daemon that a command
/// leaves behind may keep its output open, and must not make the test wait for it.
pub fn run_within(command: &mut Command, limit: Duration) -> Output {
    let (mut out, mut err) = (nameless(), nameless());
    command
        .stdout(out.try_clone().unwrap())
        .stderr(err.try_clone().unwrap());
    command.stdin(Stdio::null());
    let shown = format!("{command:?}");
    let started = Proc::spawn(command, None);
    let mut child = started.unwrap_or_else(|e| panic!("cannot start {shown}: {e}"));
    let status = child.wait(limit);
    drop(child);
    let output = Output {
        status: status.unwrap_or_default(),
        stdout: content(&mut out),
        stderr: content(&mut err),
    };
    assert!(
        status.is_some(),
        "not done within {limit:?}: {shown}\n{}",
        text(&output)
    );
    output
}

/// Runs a command to its end, within the usual limit.
pub fn run(command: &mut Command) -> Output {
    run_within(command, COMMAND_LIMIT)
}

/// Runs a line of shell in a directory, with an environment that does not change what is printed.
pub fn shell(dir: &Path, line: &str) -> Output {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", line])
        .current_dir(dir)
        .envs([("LC_ALL", "C"), ("TZ", "UTC")]);
    run_within(&mut command, Duration::from_secs(180))
}

/// Runs a line of shell that must succeed; gives what it printed.
pub fn shell_ok(dir: &Path, line: &str) -> String {
    let output = shell(dir, line);
    assert!(
        output.status.success(),
        "in {}: {line}\n{}",
        dir.display(),
        text(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All that a command said and how it ended, to be shown when it should have been otherwise.
pub fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{}\nstdout: {out}\nstderr: {err}", output.status)
}

fn nameless() -> File {
    let name = format!(
        "ariel-it-out-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

fn content(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}
