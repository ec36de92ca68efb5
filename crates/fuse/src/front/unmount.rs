//! Unmounting that leaves a mount alone while programs use it.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount::{self, MountError};

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Our mount is not in the tree any more.
    Gone,
    /// Programs use it; nothing has changed.
    Busy,
}

/// Removes our mount unless it is in use.
pub(super) fn attempt(mount_point: &Path, connection: u32) -> Result<Attempt, MountError> {
    if !is_ours(mount_point, connection)? {
        return Ok(Attempt::Gone);
    }
    match rustix::mount::unmount(mount_point, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Attempt::Gone),
        Err(Errno::BUSY) => Ok(Attempt::Busy),
        Err(Errno::PERM) => by_helper(mount_point, connection),
        // Somebody else was faster.
        Err(_) if !is_ours(mount_point, connection)? => Ok(Attempt::Gone),
        Err(errno) => Err(MountError::Refused {
            what: "unmount",
            dir: mount_point.to_owned(),
            errno,
        }),
    }
}

/// Is what is mounted there this connection's?
pub(super) fn is_ours(mount_point: &Path, connection: u32) -> Result<bool, MountError> {
    let entry = mount::find(mount_point).map_err(|error| MountError::Io {
        dir: mount_point.to_owned(),
        error,
    })?;
    Ok(entry.is_some_and(|entry| entry.connection == connection))
}

/// An ordinary user's way.
fn by_helper(mount_point: &Path, connection: u32) -> Result<Attempt, MountError> {
    let output = Command::new("fusermount3")
        .arg("-u")
        .arg("--")
        .arg(mount_point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| MountError::NoHelper)?;
    if output.status.success() || !is_ours(mount_point, connection)? {
        return Ok(Attempt::Gone);
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        Ok(Attempt::Busy)
    } else {
        Err(MountError::Helper { message })
    }
}
