//! Callers that wait for an answer: is one being killed, or about to handle a signal?
//!
//! The kernel says that a caller has got a signal, not which, and says it once; a fatal one that
//! comes later it does not say, nor that a thread ends which closes its descriptors. A request that
//! the daemon has taken keeps its caller in an uninterruptible wait until it is answered. So
//! callers that wait are looked up in `/proc`: a signal that ends the process is pending for each
//! of its threads as SIGKILL, or, if it leaves a core, is pending and neither blocked, ignored nor
//! handled; a thread that ends has no memory any more when it closes its files. All of that is in
//! `/proc/<thread>/status`. (Its flags are in `stat`, which waits for a thread that executes a
//! program; and that may wait for the daemon.)
//!
//! Where a caller cannot be seen (it is in a pid namespace that is not below the daemon's, or
//! `/proc` is another one's) any signal counts as fatal after a second: a call that is interrupted
//! for less is better than a process that nobody can kill.

use std::fs;
use std::sync::Weak;
use std::sync::mpsc::{self, Sender};
use std::thread;

use client::Client;
use client::front::Waiting;
use parking_lot::Mutex;
use tracing::warn;

/// How long a caller that cannot be seen waits after a signal.
const UNSEEN_NS: u64 = 1_000_000_000;
const SIGKILL: u32 = 9;
/// Signals that do nothing, or stop the process, if they are not handled: SIGCHLD, SIGCONT,
/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG and SIGWINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The state of a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It goes on waiting.
    Waits,
    /// It would handle a signal.
    Handles,
    /// It would end.
    Ends,
    /// It cannot be seen.
    Unseen,
}

/// Looks at callers, on a thread of its own.
pub(super) struct Callers {
    /// `None`: no thread could be started.
    work: Option<Mutex<Sender<Vec<Waiting>>>>,
    looker: Looker,
}

#[derive(Clone)]
struct Looker {
    client: Weak<Client>,
    /// Callers that handle a signal are answered, where that is allowed.
    interruptible: bool,
    /// `/proc` shows the processes that the kernel tells of.
    sees: bool,
}

impl Callers {
    pub(super) fn new(client: Weak<Client>, interruptible: bool) -> Callers {
        let sees = shows_own();
        if !sees {
            warn!("/proc does not show this process: any signal ends a wait that is long");
        }
        let looker = Looker {
            client,
            interruptible,
            sees,
        };
        let (work, todo) = mpsc::channel::<Vec<Waiting>>();
        let own = looker.clone();
        let run = move || todo.into_iter().for_each(|callers| own.look(&callers));
        let started = thread::Builder::new().name("callers".into()).spawn(run);
        if let Err(error) = &started {
            warn!(%error, "no thread to look at callers: others do it");
        }
        Callers {
            work: started.is_ok().then(|| Mutex::new(work)),
            looker,
        }
    }

    /// Has these looked at, soon.
    pub(super) fn look(&self, callers: Vec<Waiting>) {
        match &self.work {
            // It ends with the sender.
            Some(work) => drop(work.lock().send(callers)),
            None => self.looker.look(&callers),
        }
    }
}

impl Looker {
    fn look(&self, callers: &[Waiting]) {
        let Some(client) = self.client.upgrade() else {
            return;
        };
        for caller in callers {
            let state = match caller.thread {
                0 => State::Unseen,
                _ if !self.sees => State::Unseen,
                thread => state(thread),
            };
            match state {
                State::Ends => client.abandon(caller.ticket),
                State::Handles if caller.signalled && self.interruptible => {
                    client.interrupt(caller.ticket);
                }
                State::Unseen if caller.signalled && caller.waited_ns >= UNSEEN_NS => {
                    client.abandon(caller.ticket);
                }
                _ => {}
            }
        }
    }
}

/// Does `/proc` show the processes of the namespace that this one is in?
fn shows_own() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.as_os_str() == std::process::id().to_string().as_str())
}

fn state(thread: u32) -> State {
    let status = fs::read_to_string(format!("/proc/{thread}/status"));
    match status {
        Ok(status) if is_exiting(&status) => State::Ends,
        Ok(status) => signals(&status),
        Err(_) => State::Unseen,
    }
}

/// Is the thread ending? It has given up its memory then, and so has no size.
fn is_exiting(status: &str) -> bool {
    !status.lines().any(|line| line.starts_with("VmSize:"))
}

/// The state of a thread with these signals.
fn signals(status: &str) -> State {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.unwrap_or("0").trim(), 16).unwrap_or_default()
    };
    let pending = set("SigPnd:") | set("ShdPnd:");
    if pending & bit(SIGKILL) != 0 {
        return State::Ends;
    }
    let (ignored, handled) = (set("SigIgn:"), set("SigCgt:"));
    let coming = pending & !set("SigBlk:") & !ignored;
    if coming & !handled & !HARMLESS != 0 {
        State::Ends
    } else if coming & handled != 0 {
        State::Handles
    } else {
        State::Waits
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn status(of_thread: u64, of_process: u64, [blocked, ignored, handled]: [u64; 3]) -> String {
        format!(
            "Name:\tx\nSigQ:\t0/1\nSigPnd:\t{of_thread:016x}\nShdPnd:\t{of_process:016x}\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{handled:016x}\n"
        )
    }

    #[test]
    fn what_signals_make_of_a_thread() {
        const TERM: u64 = bit(15);
        const QUIT: u64 = bit(3);
        const ALARM: u64 = bit(14);
        const STOP: u64 = bit(20);
        let cases = [
            ((0, 0, [0, 0, 0]), State::Waits),
            ((bit(9), 0, [0, 0, 0]), State::Ends),
            ((0, TERM, [0, 0, 0]), State::Ends),
            ((0, TERM, [TERM, 0, 0]), State::Waits),
            ((0, TERM, [0, TERM, 0]), State::Waits),
            ((0, TERM, [0, 0, TERM]), State::Handles),
            ((QUIT, 0, [0, 0, ALARM]), State::Ends),
            ((ALARM, 0, [0, 0, ALARM]), State::Handles),
            ((QUIT | ALARM, 0, [0, 0, ALARM]), State::Ends),
            ((0, STOP, [0, 0, 0]), State::Waits),
            ((0, bit(17), [0, 0, 0]), State::Waits),
            ((bit(64), 0, [0, 0, 0]), State::Ends),
        ];
        for ((thread, process, sets), expected) in cases {
            let status = status(thread, process, sets);
            assert_eq!(signals(&status), expected, "{status}");
        }
    }

    #[test]
    fn a_thread_that_ends_has_no_memory() {
        assert!(is_exiting("Name:\ta\nState:\tD\nThreads:\t1\n"));
        assert!(!is_exiting("Name:\ta\nVmPeak:\t9 kB\nVmSize:\t8 kB\n"));
    }

    #[test]
    fn this_thread_waits_and_one_that_is_not_there_is_not_seen() {
        let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(shows_own());
        assert_eq!(state(own), State::Waits);
        assert_eq!(state(u32::MAX >> 1), State::Unseen);
    }
}
