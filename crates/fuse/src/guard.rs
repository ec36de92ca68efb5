//! No dead mount is left behind, even by SIGKILL: a second process (the guard) waits until the
//! daemon is dead, then aborts its connection and unmounts.
//!
//! The guard does not wait for the daemon's process, but for one of its threads, the *canary*,
//! which does nothing and so dies at once with the process. A thread blocked in writing a
//! notification cannot be killed until the connection is aborted, and neither the process nor,
//! to those who watch it, its main thread has ended before that thread has. Before Linux 6.9
//! there is no waiting for a thread, and such a daemon's mount stays until `ariel umount`.
//!
//! The canary's descriptor is made by the daemon and inherited by the guard, as its
//! standard input: a process number could have been given to somebody else before the guard
//! looks, and no other child of the daemon inherits it this way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use tracing::{info, warn};

use crate::mount;

/// `PIDFD_THREAD`: the descriptor is of one thread (Linux 6.9). Its value is that of `O_EXCL`.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);

/// What became of the mount that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The daemon had unmounted, or somebody else had.
    WasGone,
    /// The mount was dead, and has been removed.
    Removed,
}

/// Starts a thread of the calling process that ends only with the process, and returns a
/// descriptor that becomes readable then: of the thread, or of the process where the kernel has
/// none of threads.
pub fn canary() -> io::Result<OwnedFd> {
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
    match pidfd_open(canary, PIDFD_THREAD) {
        Err(Errno::INVAL) => Ok(pidfd_open(getpid(), PidfdFlags::empty())?),
        other => Ok(other?),
    }
}

/// Starts the guard of the calling process: `command` is a program that calls `watch_stdin`, with
/// whatever arguments it needs. It gets a process group of its own, so that what ends the daemon
/// does not end it, and the root as working directory, so that it is in no mount's way. To be
/// called by the process that serves: after it has gone to the background.
pub fn start(mut command: Command) -> io::Result<Child> {
    command
        .stdin(Stdio::from(canary()?))
        .current_dir("/")
        .process_group(0)
        .spawn()
}

/// The guard's part: `watch` on what `start` passed.
pub fn watch_stdin(connection: u32, mount_point: &Path) -> io::Result<Ending> {
    watch(io::stdin(), connection, mount_point)
}

/// Waits until `daemon` (a process descriptor, or what `canary` gave) is dead, then aborts the
/// connection and removes the mount, if that connection is still what is mounted there. Until
/// then nothing is touched. The guard must not hold the FUSE device open.
pub fn watch(daemon: impl AsFd, connection: u32, mount_point: &Path) -> io::Result<Ending> {
    wait_for_end(&daemon)?;
    clean_up(connection, mount_point)
}

fn wait_for_end(daemon: &impl AsFd) -> io::Result<()> {
    loop {
        let mut descriptors = [PollFd::new(daemon, PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Removes what a dead daemon left.
fn clean_up(connection: u32, mount_point: &Path) -> io::Result<Ending> {
    // Aborted whether or not it is still in the tree: a thread of the daemon may be waiting.
    let aborted = mount::abort(connection);
    let mut ending = Ending::WasGone;
    // More than one mount of the same connection can lie on one another; each is removed.
    while is_ours(connection, mount_point)? {
        if aborted.is_err()
            && let Err(errno) = mount::abort_by_unmount(mount_point)
            && errno != Errno::BUSY
        {
            warn!(%errno, connection, "the dead daemon's connection could not be aborted");
        }
        if is_ours(connection, mount_point)?
            && let Err(error) = mount::unmount(mount_point)
            && is_ours(connection, mount_point)?
        {
            return Err(io::Error::other(error));
        }
        ending = Ending::Removed;
    }
    info!(?ending, connection, mount_point = %mount_point.display(), "the daemon has ended");
    Ok(ending)
}

fn is_ours(connection: u32, mount_point: &Path) -> io::Result<bool> {
    let entry = mount::find(mount_point)?;
    Ok(entry.is_some_and(|entry| entry.is_ariel() && entry.connection == connection))
}
