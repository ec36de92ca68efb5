//! Tasks of the kernel that are in uninterruptible sleep (state D), and what they wait for.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Flags of a task, as the kernel shows them: it ends; a signal has ended it.
const ENDING: u64 = 0x4 | 0x400;
/// SIGKILL among the pending signals.
const KILL: u64 = 1 << 8;
/// A path of a system call is no longer than this.
const PATH_MAX: usize = 4096;

/// One wait of one task: a task that was woken meanwhile is in another wait, were it at the same
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    pub process: u32,
    pub thread: u32,
    /// Numbers of tasks are used again.
    started: u64,
    /// How often it has gone to sleep.
    sleeps: u64,
}

/// The numbers in a directory of /proc.
fn numbers(dir: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Of all processes; a process whose first thread has ended may have others.
pub fn processes() -> impl Iterator<Item = u32> {
    numbers(Path::new("/proc"))
}

/// All waits in state D there are.
pub fn waits() -> Vec<Wait> {
    let threads = |process: u32| {
        let of = numbers(Path::new(&format!("/proc/{process}/task")));
        of.map(move |thread| (process, thread))
    };
    let all = processes().flat_map(threads);
    all.filter_map(|(process, thread)| wait(process, thread))
        .collect()
}

/// The fields of a task's `stat` behind its name, if it is in state D.
fn in_d(task: &Path) -> Option<Vec<u64>> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.trim_start().strip_prefix('D')?;
    Some(fields.split(' ').map(|n| n.parse().unwrap_or(0)).collect())
}

fn wait(process: u32, thread: u32) -> Option<Wait> {
    let task = PathBuf::from(format!("/proc/{process}/task/{thread}"));
    in_d(&task)?;
    let sleeps = status(&task, "voluntary_ctxt_switches:")?.parse().ok()?;
    // It is looked at again: whatever it waited for before, this is the same sleep or a later one.
    let started = *in_d(&task)?.get(19)?;
    Some(Wait {
        process,
        thread,
        started,
        sleeps,
    })
}

/// One value of a task's `status`.
fn status(task: &Path, key: &str) -> Option<String> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(key))?;
    Some(value.trim().to_owned())
}

/// The answer to a question that may wait for a lock that a task holds; `None`: it is not there in
/// time.
pub fn within<T: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(ask()));
    receive.recv_timeout(limit).ok()
}

fn within_a_second<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    within(Duration::from_secs(1), ask)
}

/// The words that a process was started with.
pub fn command_line(process: u32) -> String {
    let read = move || fs::read(format!("/proc/{process}/cmdline"));
    let line = within_a_second(read).and_then(Result::ok);
    String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ")
}

impl Wait {
    fn task(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/task/{}", self.process, self.thread))
    }

    /// Where it is in the kernel.
    pub fn stack(&self) -> String {
        let path = self.task().join("stack");
        let read = within_a_second(move || fs::read_to_string(path));
        read.and_then(Result::ok).unwrap_or_default()
    }

    /// Was it killed, or does it end?
    pub fn is_ending(&self) -> bool {
        let pending = |key: &str| {
            let set = status(&self.task(), key).unwrap_or_default();
            u64::from_str_radix(&set, 16).is_ok_and(|set| set & KILL != 0)
        };
        let flags = in_d(&self.task()).and_then(|fields| fields.get(6).copied());
        flags.is_some_and(|flags| flags & ENDING != 0) || pending("SigPnd:") || pending("ShdPnd:")
    }

    /// Paths of the files that its system call is about: of the descriptor that it names first, or
    /// else of its arguments; for a page fault, of all files that are mapped.
    pub fn files(&self, stack: &str) -> Vec<PathBuf> {
        let wait = *self;
        if stack.contains("_fault+") {
            return within_a_second(move || wait.mapped()).unwrap_or_default();
        }
        let call = fs::read_to_string(self.task().join("syscall")).unwrap_or_default();
        let words = call.split_whitespace().skip(1).take(4);
        let arguments: Vec<u64> = words
            .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
            .collect();
        let first = arguments.first().copied().unwrap_or_default();
        match fs::read_link(self.task().join(format!("fd/{first}"))) {
            Ok(file) => vec![file],
            Err(_) => within_a_second(move || wait.named(&arguments)).unwrap_or_default(),
        }
    }

    /// The files that its process has open, and where it stands.
    pub fn held(&self) -> Vec<PathBuf> {
        let open = fs::read_dir(self.task().join("fd")).into_iter().flatten();
        let open = open.flatten().map(|fd| fd.path());
        let links = open.chain([self.task().join("cwd")]);
        links.filter_map(|link| fs::read_link(link).ok()).collect()
    }

    fn mapped(&self) -> Vec<PathBuf> {
        let maps = fs::read_to_string(self.task().join("maps")).unwrap_or_default();
        let path = |line: &str| line.find('/').map(|at| PathBuf::from(&line[at..]));
        maps.lines().filter_map(path).collect()
    }

    /// The arguments that are addresses of paths.
    fn named(&self, arguments: &[u64]) -> Vec<PathBuf> {
        let Ok(memory) = fs::File::open(self.task().join("mem")) else {
            return Vec::new();
        };
        let stands = fs::read_link(self.task().join("cwd")).unwrap_or_default();
        let path = |address: &u64| {
            let mut bytes = [0; PATH_MAX];
            let read = memory.read_at(&mut bytes, *address).ok()?;
            let path = bytes[..read].split(|byte| *byte == 0).next()?;
            let path = std::str::from_utf8(path).ok()?;
            (!path.is_empty()).then(|| stands.join(path))
        };
        arguments.iter().filter_map(path).collect()
    }
}
