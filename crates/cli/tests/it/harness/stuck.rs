//! No request outlives its test: a task in state D on a mount of the harness for more than 2 s is
//! stuck, and its test fails, with the stacks of the kernel. While the test has its server away,
//! only a killed task must not wait.
//!
//! Waits are judged one by one: a task that was woken meanwhile gets on. Time counts only as far as
//! the cell's daemons and its server sleep, and nobody waits for a disk: a process that works, or
//! would if it was given a processor, may yet answer, but not for ever.

use super::process::stacks;
use super::say;
use super::scratch::mounts;
use super::tasks::{Wait, command_line, processes, waits, within};
use super::watchdog::{WatchId, tests, waited};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How long a wait may take.
const LIMIT: Duration = Duration::from_secs(2);
/// And how long where somebody always works.
const LIMIT_BUSY: Duration = Duration::from_secs(30);
/// How often the tasks are looked at.
const TICK: Duration = Duration::from_millis(500);

/// A test with its mounts.
struct Test {
    id: WatchId,
    points: Vec<PathBuf>,
    /// Waiting tasks are to be answered.
    answers: bool,
    /// Ticks since which its mounts have always had requests under way.
    asked: u32,
    /// How busy its daemons and its server have been, and how much of it in this tick.
    busy: Duration,
    worked: Duration,
}

/// A wait that was there in the last tick.
struct Seen {
    ticks: u32,
    /// For so long nobody did anything to answer it.
    idle: Duration,
    /// Its task was killed, or ends: time counts from then on.
    ending: bool,
    /// The tests on whose mounts it is.
    owners: Vec<WatchId>,
    /// Nothing names the mount: it is one that was asked something in all this time.
    guessed: bool,
    /// It is for something else than a mount.
    disk: bool,
}

/// Looks at all tasks from time to time, as long as the tests run.
pub fn patrol() {
    let mut watcher = Watcher::default();
    loop {
        thread::sleep(TICK);
        watcher.look();
    }
}

#[derive(Default)]
struct Watcher {
    tests: Vec<Test>,
    seen: HashMap<Wait, Seen>,
    fresh: Vec<Wait>,
    connections: Option<OwnedFd>,
}

impl Watcher {
    fn look(&mut self) {
        self.refresh();
        if self.tests.iter().all(|test| test.points.is_empty()) {
            self.seen.clear();
            return;
        }
        // The kernel shows nothing of a thread that executes a program until that is done.
        let Some(now) = within(LIMIT_BUSY, waits) else {
            say("STUCK: for 30 s /proc cannot be read: does a program that is executed wait?");
            return;
        };
        self.seen.retain(|wait, _| now.contains(wait));
        // The waits that were there a tick ago and still are.
        for wait in now.iter().filter(|wait| self.fresh.contains(wait)) {
            if !self.seen.contains_key(wait) {
                self.seen.insert(*wait, self.place(wait));
            }
        }
        self.fresh = now;
        let disk = self.seen.values().any(|seen| seen.disk);
        for (wait, seen) in &mut self.seen {
            if wait.is_ending() && !std::mem::replace(&mut seen.ending, true) {
                (seen.ticks, seen.idle) = (0, Duration::ZERO);
            }
            seen.ticks += 1;
            let worked = self
                .tests
                .iter()
                .filter(|test| seen.is_of(test))
                .map(|test| test.worked);
            let idle = TICK.saturating_sub(worked.sum());
            seen.idle += if disk { Duration::ZERO } else { idle };
            let is_long = seen.idle > LIMIT || TICK * seen.ticks > LIMIT_BUSY;
            for owner in self.tests.iter().filter(|test| seen.is_of(test)) {
                let stuck = is_long && (owner.answers || seen.ending);
                let verdict = stuck.then(|| tell(wait, seen, owner));
                waited(owner.id, seen.idle, verdict);
            }
        }
    }

    /// The tests as they are now.
    fn refresh(&mut self) {
        if self.connections.is_none() {
            self.connections = connections();
        }
        let before = std::mem::take(&mut self.tests);
        let table = mounts();
        for (id, points, answers) in tests() {
            let of_test = table.iter().filter(|line| points.contains(&line.point));
            let is_asked = of_test.into_iter().any(|line| self.is_asked(&line.minor));
            let before = before.iter().find(|test| test.id == id);
            // Nobody needs to know it while nobody is in state D.
            let busy = match self.fresh.is_empty() {
                true => Duration::ZERO,
                false => busy(&workers(&points)),
            };
            self.tests.push(Test {
                id,
                points,
                answers,
                asked: before.filter(|_| is_asked).map_or(0, |test| test.asked + 1),
                busy,
                worked: before.map_or(busy, |test| busy.saturating_sub(test.busy)),
            });
        }
    }

    /// Has a connection requests under way?
    fn is_asked(&self, minor: &str) -> bool {
        let Some(connections) = &self.connections else {
            return false;
        };
        let path = format!("{minor}/waiting");
        let file = openat(connections, path, OFlags::RDONLY, Mode::empty());
        let mut count = String::new();
        let read = file.map(|file| File::from(file).read_to_string(&mut count));
        read.is_ok() && !["", "0"].contains(&count.trim())
    }

    /// The tests on whose mounts a task waits. A call that closes a file names none any more: a
    /// task in the kernel's FUSE then has to do with what its process serves or has open, or at its
    /// end with any mount.
    fn place(&self, wait: &Wait) -> Seen {
        let stack = wait.stack();
        let of = |is_of: &dyn Fn(&Test) -> bool| -> Vec<WatchId> {
            let tests = self.tests.iter().filter(|test| is_of(test));
            tests.map(|test| test.id).collect()
        };
        let files = wait.files(&stack);
        let mut owners = of(&|test| test.has(&files));
        let guessed = owners.is_empty();
        let in_fuse = stack.contains("fuse_");
        if guessed && in_fuse {
            let held = wait.held();
            owners =
                of(&|test| held.is_empty() || test.has(&held) || works(wait.process, &test.points));
        }
        Seen {
            ticks: 0,
            idle: Duration::ZERO,
            ending: false,
            disk: owners.is_empty() && !in_fuse,
            owners,
            guessed,
        }
    }
}

impl Test {
    fn has(&self, files: &[PathBuf]) -> bool {
        let is_on = |file: &PathBuf| self.points.iter().any(|point| file.starts_with(point));
        files.iter().any(is_on)
    }
}

impl Seen {
    fn is_of(&self, test: &Test) -> bool {
        self.owners.contains(&test.id) && (!self.guessed || test.asked > self.ticks)
    }
}

/// The report on a task that is stuck.
fn tell(wait: &Wait, seen: &Seen, owner: &Test) -> String {
    let (process, thread, waits) = (wait.process, wait.thread, TICK * seen.ticks);
    let rule = match owner.answers {
        true => "while its server answers",
        false => "and cannot be killed while its server is away",
    };
    let mut said =
        format!("STUCK: task {thread} of process {process} is in state D for {waits:?} ");
    let _ = write!(said, "(idle {:?}), {rule}: ", seen.idle);
    let _ = writeln!(said, "{}\n{}", command_line(process), stacks(process));
    for worker in workers(&owner.points) {
        let _ = write!(said, "process {worker}: {}", command_line(worker));
        let _ = writeln!(said, "\n{}", stacks(worker));
    }
    said
}

/// Is this process a daemon of one of these mounts, or its server? It has to do with the directory
/// of the test.
fn works(process: u32, points: &[PathBuf]) -> bool {
    let program = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
    program == Path::new(env!("CARGO_BIN_EXE_ariel")) && {
        let line = command_line(process);
        let mut dirs = points.iter().filter_map(|point| point.parent());
        dirs.any(|dir| line.split(' ').any(|word| Path::new(word).starts_with(dir)))
    }
}

fn workers(points: &[PathBuf]) -> Vec<u32> {
    let all = processes().filter(|process| works(*process, points));
    all.collect()
}

/// Where the kernel shows its FUSE connections, wherever that is mounted.
fn connections() -> Option<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&context).ok()?;
    let close = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, close, MountAttrFlags::empty()).ok()
}

/// How long the threads of these processes have run or waited for a processor, since their starts.
fn busy(processes: &[u32]) -> Duration {
    let of_thread = |thread: PathBuf| {
        let times = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        let times = times.split_whitespace().take(2);
        times.map(|ns| ns.parse().unwrap_or(0)).sum::<u64>()
    };
    let threads = |process: &u32| std::fs::read_dir(format!("/proc/{process}/task")).ok();
    let threads = processes.iter().filter_map(threads).flatten().flatten();
    Duration::from_nanos(threads.map(|thread| of_thread(thread.path())).sum())
}
