//! Crashes on purpose: a thread that kills something from time to time, until it is told to stop.

use crate::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kills something and brings it back; the path is that of the mount whose turn it is.
pub type Hook = Box<dyn FnMut(&Path) -> Result<(), String> + Send>;

/// Who is killed, and how often.
#[derive(Default)]
pub struct Kills {
    /// Kills a client and mounts again.
    pub client: Option<Hook>,
    /// Kills the server and starts it again.
    pub server: Option<Hook>,
    /// Nanoseconds between two.
    pub every_ns: u64,
}

impl Kills {
    /// Is anybody killed at all?
    pub fn any(&self) -> bool {
        self.client.is_some() || self.server.is_some()
    }
}

/// A hook that runs a command by `/bin/sh`; the path is in `TORTURE_MOUNT`.
pub fn command(command: String) -> Hook {
    Box::new(move |mount| {
        let status = Command::new("/bin/sh")
            .args(["-c", &command])
            .env("TORTURE_MOUNT", mount)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{command}`: {status}: it must end with 0")),
            Err(error) => Err(format!("`{command}`: {error}")),
        }
    })
}

/// The thread that kills.
pub(crate) struct Killer {
    stop: Sender<()>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<Result<(), String>>,
}

impl Killer {
    pub(crate) fn start(mut kills: Kills, mounts: &[PathBuf], seed: u64) -> Killer {
        let (stop, stopped) = channel();
        let mounts = mounts.to_vec();
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let thread = std::thread::spawn(move || {
            let mut random = Random::of(seed, u64::MAX);
            let mut hooks: Vec<Hook> = [kills.client.take(), kills.server.take()]
                .into_iter()
                .flatten()
                .collect();
            loop {
                // From half to one and a half of the interval.
                let every_ns = kills.every_ns / 2 + random.below(kills.every_ns.max(1));
                match stopped.recv_timeout(Duration::from_nanos(every_ns)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(()),
                }
                let mount = &mounts[random.below(mounts.len() as u64) as usize];
                let hook = random.below(hooks.len() as u64) as usize;
                hooks[hook](mount)?;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Killer {
            stop,
            count,
            thread,
        }
    }

    /// Kills so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for a kill that is under way; how many there were. An error: one failed.
    pub(crate) fn end(self) -> Result<u64, String> {
        let _ = self.stop.send(());
        let ended = self.thread.join();
        ended.map_err(|_| "the thread that kills has panicked".to_owned())??;
        Ok(self.count.load(Ordering::Relaxed))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.thread.is_finished()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::mpsc::{Receiver, Sender};

    /// A kill that tells when it begins, and ends when it is told to.
    fn gated() -> (Hook, Receiver<()>, Sender<()>) {
        let (begins, begun) = channel();
        let (ends, may_end) = channel();
        let hook = move |_: &Path| {
            begins.send(()).unwrap();
            may_end.recv().map_err(|error| error.to_string())
        };
        (Box::new(hook), begun, ends)
    }

    #[test]
    fn a_kill_under_way_at_the_end_is_waited_for_and_counted() {
        let (hook, begun, ends) = gated();
        let kills = Kills {
            client: Some(hook),
            server: None,
            every_ns: 1,
        };
        let killer = Killer::start(kills, &[PathBuf::from("/")], 1);
        begun.recv().unwrap();
        assert_eq!(killer.count(), 0, "it has not ended");
        killer.stop.send(()).unwrap();
        ends.send(()).unwrap();
        assert_eq!(killer.end(), Ok(1));
    }
}
