//! A control group with little memory, of version 1 or 2.

use super::cell::Cell;
use super::mount::Mount;
use super::{eventually, skipped};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often it is looked at how much the processes of a group need.
const LOOK: Duration = Duration::from_millis(20);

/// The room for files is kept.
pub struct RoomForFiles {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RoomForFiles {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The memory of a group that is not for files.
fn own_bytes(dir: &Path) -> u64 {
    let number = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
    let used: Option<u64> = number("memory.usage_in_bytes").or_else(|| number("memory.current"));
    let told = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let of_files = |line: &str| {
        let words = ["cache ", "file "];
        words
            .iter()
            .find_map(|word| line.strip_prefix(word)?.trim().parse::<u64>().ok())
    };
    let files = told.lines().find_map(of_files).unwrap_or(0);
    used.unwrap_or(0).saturating_sub(files)
}

/// A control group of version 1 or 2 with so much memory; gone when it is dropped.
pub struct Group {
    dir: PathBuf,
    limit: &'static str,
}

impl Group {
    pub fn new(test: &str, mib: u64) -> Option<Self> {
        let name = format!("ariel-{test}-{}", std::process::id());
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (root, limit) in places {
            let dir = Path::new(root).join(&name);
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = Self { dir, limit };
            if fs::write(group.dir.join(limit), (mib << 20).to_string()).is_ok() {
                // No test is about swap.
                let _ = fs::write(group.dir.join("memory.swap.max"), "0");
                return Some(group);
            }
        }
        skipped(test, "no control group with a limit of memory can be made");
        None
    }

    /// The words that make a program start in it.
    pub fn words(&self) -> [String; 4] {
        let procs = self.dir.join("cgroup.procs");
        let line = format!("echo $$ > {} && exec \"$@\"", procs.display());
        ["sh".into(), "-c".into(), line, "sh".into()]
    }

    pub fn command(&self, program: &str) -> Command {
        let [shell, words @ ..] = self.words();
        let mut command = Command::new(shell);
        command.args(words).arg(program);
        command
    }

    pub fn mount(&self, cell: &Cell) -> Mount {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Mount::start_by(cell, &words)
    }

    /// The directory by which processes come into it.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// As long as the returned value lives, its processes have as much memory as they need for
    /// themselves, and so much for files.
    pub fn keep_room_for_files(&self, bytes: u64) -> RoomForFiles {
        // Where the kernel knows it (version 1), who needs more waits until there is more.
        let _ = fs::write(self.dir.join("memory.oom_control"), "1");
        // In version 2 who is above this waits, and nobody is killed.
        let limit = match self.limit {
            "memory.max" => "memory.high",
            other => other,
        };
        let dir = self.dir.clone();
        let (end, ends) = mpsc::channel();
        let keep = move || {
            // The kernel tells nobody that a group needs more for itself.
            while ends.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let limit_bytes = own_bytes(&dir) + bytes;
                // Files may have more now; their pages go then.
                let _ = fs::write(dir.join(limit), limit_bytes.to_string());
            }
        };
        RoomForFiles {
            end: Some(end),
            thread: Some(thread::spawn(keep)),
        }
    }

    /// How many of its processes were killed for want of memory.
    pub fn killed(&self) -> u64 {
        let file = match self.limit {
            "memory.max" => "memory.events",
            _ => "memory.oom_control",
        };
        let told = fs::read_to_string(self.dir.join(file)).unwrap();
        let line = told.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may need a moment to notice.
        eventually(Duration::from_secs(10), || {
            fs::remove_dir(&self.dir).is_ok()
        });
    }
}
