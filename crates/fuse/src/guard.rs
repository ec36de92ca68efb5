//! A daemon's death does not uncover the directory below its mount, even by SIGKILL: a second
//! process (the guard) waits until the daemon is dead and ends its connection, so that nothing
//! hangs; the mount stays and answers ENOTCONN. The guard's program decides what happens to it
//! then.
//!
//! A thread blocked in writing a notification cannot be killed until the connection is aborted, and
//! neither the process nor, to those who watch it, its main thread has ended before that thread
//! has. So the guard watches one of the daemon's threads, the *canary*, which does nothing and dies
//! at once with the process. There are ends in which even that one hangs, as while a core is
//! dumped: these are looked for in `/proc`. (Before Linux 6.9, where there is no waiting for a
//! thread, all of them are.)
//!
//! The guard learns what it needs from its standard input, so that none of it is seen in a list of
//! processes. It is the daemon's child: as long as it is, the daemon's numbers are its own.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
use tracing::{debug, warn};

use crate::mount::{self, Control, MountId};

/// `PIDFD_THREAD`: the descriptor is of one thread (Linux 6.9). Its value is that of `O_EXCL`.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// How often ends that are told by no descriptor are looked for.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// Starts a thread of the calling process that ends only with the process; its number.
pub fn canary() -> io::Result<i32> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("ariel-canary".to_owned())
        .stack_size(64 << 10);
    thread.spawn(move || {
        // The receiver waits below.
        let _ = sender.send(rustix::thread::gettid());
        loop {
            std::thread::park();
        }
    })?;
    let canary = receiver.recv().map_err(io::Error::other)?;
    Ok(canary.as_raw_nonzero().get())
}

/// Starts the guard of the calling process: `command` is a program that reads its standard input,
/// makes a [`Daemon`] and waits for its end. It gets a process group of its own, so that what ends
/// the daemon does not end it, and the root as working directory, so that it is in no mount's way.
/// To be called by the process that serves: after it has gone to the background.
pub fn start(mut command: Command) -> io::Result<Child> {
    command
        .stdin(Stdio::piped())
        .current_dir("/")
        .process_group(0)
        .spawn()
}

/// The daemon, as its guard sees it.
#[derive(Debug)]
pub struct Daemon {
    pid: i32,
    process: OwnedFd,
    canary: Option<OwnedFd>,
}

impl Daemon {
    /// The process that has started this one, and its canary.
    ///
    /// # Errors
    /// It has ended already, or cannot be watched.
    pub fn parent(pid: i32, canary: i32) -> io::Result<Daemon> {
        let number = |number| Pid::from_raw(number).ok_or(Errno::SRCH);
        let process = pidfd_open(number(pid)?, PidfdFlags::empty())?;
        let canary = match pidfd_open(number(canary)?, PIDFD_THREAD) {
            // It watches the process alone.
            Err(Errno::INVAL) => None,
            other => Some(other?),
        };
        // A number could have been given to somebody else before it was looked at.
        if getppid() != Pid::from_raw(pid) {
            return Err(Errno::SRCH.into());
        }
        Ok(Daemon {
            pid,
            process,
            canary,
        })
    }

    /// Waits until it serves no more: it is dead, or will be as soon as its threads can end.
    pub fn await_death(&self) -> io::Result<()> {
        let watched = self.canary.as_ref().unwrap_or(&self.process);
        while !is_over(watched, LOOK_TIME)? && !is_dying(self.pid) {}
        Ok(())
    }

    /// Waits until nothing of the process is left, no longer than this; whether that came true.
    pub fn await_end(&self, timeout: Duration) -> io::Result<bool> {
        is_over(&self.process, timeout)
    }
}

/// Waits for the end of what a process descriptor names; false when nothing was heard in time.
fn is_over(watched: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).ok();
    let mut descriptors = [PollFd::new(watched, PollFlags::IN)];
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(told) => Ok(told > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Has the process stopped working, though it has not ended? Its first thread has, and waits for
/// the others; or all that it was is being written into a file.
fn is_dying(pid: i32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
        // A process that cannot be read has ended, as a rule, and then the descriptor says so too.
        return false;
    };
    let value = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    };
    let state = value("State:").unwrap_or_default();
    state.starts_with(['Z', 'X']) || value("CoreDumping:").is_some_and(|dumps| dumps == "1")
}

/// The remains of a dead daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it had unmounted, or somebody else has.
    Nothing,
    /// A mount that answers ENOTCONN.
    DeadMount,
}

/// Ends the connection of a daemon that is dead or dying, so that nothing waits for it any more.
/// The mount is left where it is, and its kernel forgets what no program uses: others may change
/// that as soon as the server knows of the death. `None`: the control could not be opened.
pub fn cut(control: Option<&Control>, (id, mount_point): (MountId, &Path)) -> Left {
    // A dead process has closed the device, which ends the connection; but one of its threads may
    // be waiting for just that.
    let aborted = control.is_some_and(|control| match control.abort() {
        Ok(()) => true,
        Err(error) => {
            debug!(%error, "the connection cannot be aborted by its control");
            false
        }
    });
    if !aborted
        && id.is_at(mount_point)
        && let Err(errno) = mount::abort_in_place(mount_point, id)
    {
        warn!(%errno, "the dead daemon's connection could not be aborted");
    }
    if !id.is_at(mount_point) {
        return Left::Nothing;
    }
    if let Err(errno) = mount::forget_unused(mount_point) {
        debug!(%errno, "the kernel keeps what it has cached of the dead mount");
    }
    Left::DeadMount
}
