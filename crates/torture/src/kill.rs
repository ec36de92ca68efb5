//! Crashes on purpose: a thread that kills something from time to time, until it is told to stop.
//!
//! A dead mount is no witness. Linux answers some calls through descriptors of a dead mount from
//! what it has cached (names, attributes, pages), without asking anybody, and the machine that has
//! died is no longer asked before others change that. So the killer keeps when which mount was
//! dead, and the judge is not given what was merely seen through it.

use crate::history::{Action, Operation};
use crate::plan::Clock;
use crate::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Kills something and brings it back; the path is that of the mount whose turn it is.
pub type Hook = Box<dyn FnMut(&Path) -> Result<(), String> + Send>;

/// The processes to kill, and how often.
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

/// The time between a client's death and the moment when its mount point leads to a new mount.
#[derive(Clone, Copy, Debug)]
struct Death {
    mount: u32,
    begin_ns: u64,
    /// The greatest number while the new mount is not there.
    end_ns: u64,
}

impl Death {
    /// Did this operation use descriptors of the dead mount, and end after its death?
    fn concerns(&self, one: &Operation) -> bool {
        one.mount == self.mount && one.opened_ns <= self.end_ns && one.end_ns >= self.begin_ns
    }
}

/// All deaths of clients so far.
#[derive(Clone, Default)]
struct Deaths(Arc<Mutex<Vec<Death>>>);

impl Deaths {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Death>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A client is about to be killed.
    fn begin(&self, mount: u32, begin_ns: u64) {
        self.with(|all| {
            all.push(Death {
                mount,
                begin_ns,
                end_ns: u64::MAX,
            });
        });
    }

    /// The new mount of the client that was killed last is in its place.
    fn end(&self, end_ns: u64) {
        self.with(|all| {
            if let Some(last) = all.last_mut() {
                last.end_ns = end_ns;
            }
        });
    }

    /// Was this merely seen, perhaps by what the kernel had cached of a dead mount? A wrong answer
    /// (an error that nothing explains) is wrong through a dead mount as well.
    fn may_show(&self, one: &Operation) -> bool {
        one.action.observes()
            && !matches!(one.action, Action::Wrong(_))
            && self.with(|all| all.iter().any(|death| death.concerns(one)))
    }
}

/// The thread that kills.
pub(crate) struct Killer {
    stop: Sender<()>,
    count: Arc<AtomicU64>,
    deaths: Deaths,
    thread: JoinHandle<Result<(), String>>,
}

impl Killer {
    pub(crate) fn start(kills: Kills, mounts: &[PathBuf], seed: u64, clock: Clock) -> Killer {
        let (stop, stopped) = channel();
        let mounts = mounts.to_vec();
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let deaths = Deaths::default();
        let noted = deaths.clone();
        let thread = std::thread::spawn(move || {
            let mut random = Random::of(seed, u64::MAX);
            let client = kills.client.map(|hook| (true, hook));
            let server = kills.server.map(|hook| (false, hook));
            let mut hooks: Vec<(bool, Hook)> = client.into_iter().chain(server).collect();
            loop {
                // From half to one and a half of the interval.
                let every_ns = kills.every_ns / 2 + random.below(kills.every_ns.max(1));
                match stopped.recv_timeout(Duration::from_nanos(every_ns)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(()),
                }
                let mount = random.below(mounts.len() as u64) as usize;
                let hook = random.below(hooks.len() as u64) as usize;
                let (of_client, kill) = &mut hooks[hook];
                if *of_client {
                    noted.begin(mount as u32, clock());
                }
                kill(&mounts[mount])?;
                if *of_client {
                    noted.end(clock());
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Killer {
            stop,
            count,
            deaths,
            thread,
        }
    }

    /// May this show what the kernel had cached of a mount that was dead?
    pub(crate) fn may_show_the_dead(&self, one: &Operation) -> bool {
        self.deaths.may_show(one)
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
    use crate::history::Object;
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
        let killer = Killer::start(kills, &[PathBuf::from("/")], 1, || 0);
        begun.recv().unwrap();
        assert_eq!(killer.count(), 0, "it has not ended");
        killer.stop.send(()).unwrap();
        ends.send(()).unwrap();
        assert_eq!(killer.end(), Ok(1));
    }

    fn operation(action: Action, opened_ns: u64, end_ns: u64) -> Operation {
        Operation {
            object: Object::Names { group: 0 },
            mount: 1,
            process: 0,
            opened_ns,
            begin_ns: end_ns - 1,
            end_ns,
            known: true,
            action,
        }
    }

    fn absent(opened_ns: u64, end_ns: u64) -> Operation {
        let action = Action::Remove {
            name: 0,
            done: false,
        };
        operation(action, opened_ns, end_ns)
    }

    #[test]
    fn only_what_is_seen_through_a_dead_mount_is_no_evidence() {
        let deaths = Deaths::default();
        deaths.begin(1, 100);
        let late = absent(50, 1000);
        assert!(deaths.may_show(&late), "the new mount is not there yet");
        deaths.end(200);
        assert!(
            deaths.may_show(&late),
            "its descriptors are of the dead mount"
        );
        assert!(deaths.may_show(&absent(150, 160)), "found meanwhile");
        assert!(!deaths.may_show(&absent(50, 99)), "before the death");
        assert!(!deaths.may_show(&absent(201, 300)), "through the new mount");
        let other = Operation { mount: 0, ..late };
        assert!(!deaths.may_show(&other), "through a mount that lives");
        let removed = Action::Remove {
            name: 0,
            done: true,
        };
        assert!(!deaths.may_show(&operation(removed, 50, 150)), "a change");
        let wrong = Action::Wrong("EBADF".to_owned());
        assert!(!deaths.may_show(&operation(wrong, 50, 150)), "an error");
    }
}
