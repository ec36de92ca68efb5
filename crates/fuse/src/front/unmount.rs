//! Unmounting that leaves a mount alone while programs use it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount::{MountError, MountId};

/// A mount that is in use is tried again so often, with this pause: for half a second.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(20);

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Our mount is not in the tree any more.
    Gone,
    /// Programs use it; nothing has changed.
    Busy,
}

/// Removes our mount unless it is in use.
pub(super) fn attempt(mount_point: &Path, id: MountId) -> Result<Attempt, MountError> {
    if !id.is_at(mount_point) {
        return Ok(Attempt::Gone);
    }
    match rustix::mount::unmount(mount_point, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Attempt::Gone),
        Err(Errno::BUSY) => Ok(Attempt::Busy),
        Err(Errno::PERM) => by_helper(mount_point, id),
        // Somebody else was faster.
        Err(_) if !id.is_at(mount_point) => Ok(Attempt::Gone),
        Err(errno) => Err(MountError::Refused {
            what: "unmount",
            dir: mount_point.to_owned(),
            errno,
        }),
    }
}

/// The same, and once more for a moment while it is in use: the kernel lets go of a mount a little
/// after the last program has ended, and nothing tells when.
pub(super) fn attempt_for_a_moment(mount_point: &Path, id: MountId) -> Result<Attempt, MountError> {
    for _ in 0..TRIES {
        match attempt(mount_point, id)? {
            Attempt::Gone => return Ok(Attempt::Gone),
            Attempt::Busy => std::thread::sleep(PAUSE),
        }
    }
    attempt(mount_point, id)
}

/// An ordinary user's way.
fn by_helper(mount_point: &Path, id: MountId) -> Result<Attempt, MountError> {
    let output = Command::new("fusermount3")
        .arg("-u")
        .arg("--")
        .arg(mount_point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| MountError::NoHelper)?;
    if output.status.success() || !id.is_at(mount_point) {
        return Ok(Attempt::Gone);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        Ok(Attempt::Busy)
    } else {
        Err(MountError::Helper { message })
    }
}
