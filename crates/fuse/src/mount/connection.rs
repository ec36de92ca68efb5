//! The kernel's connections by their numbers. A number is a connection's own only as long as its
//! mount is there, or detached and in use.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::MountId;

/// Where the kernel shows its FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Ends a connection at once: every request waiting, and every one to come, fails with ENOTCONN.
/// The mount stays, dead, until it is unmounted. NotFound: there is no such connection.
pub fn abort(connection: u32) -> io::Result<()> {
    match std::fs::write(format!("{CONNECTIONS}/{connection}/abort"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => abort_unseen(connection),
        other => other,
    }
}

/// The same where what shows connections is mounted nowhere, as in most containers: root can look
/// at it all the same.
fn abort_unseen(connection: u32) -> io::Result<()> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let close = FsMountFlags::FSMOUNT_CLOEXEC;
    let shown = fsmount(&context, close, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(shown, format!("{connection}/abort"), flags, Mode::empty())?;
    loop {
        match rustix::io::write(&file, b"1") {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Ends the connection of the mount on top at a path, if that is this one, without its number; the
/// mount stays. Needs root.
pub(crate) fn abort_in_place(mount_point: &Path, id: MountId) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Keeps the mount in use, so that the forced unmount aborts and does not unmount.
    let root = rustix::fs::open(mount_point, flags, Mode::empty())?;
    if !MountId::of(&root).is_ok_and(|on_top| on_top == id) {
        return Err(Errno::INVAL);
    }
    match super::abort_by_unmount(mount_point) {
        Err(Errno::BUSY) => Ok(()),
        other => other,
    }
}

/// Lets the kernel read ahead up to `len` bytes for this mount, beyond its default of 128 KiB.
/// (`INIT` can only lower that.) Needs root; without it nothing is lost but speed.
pub fn set_read_ahead(connection: u32, len: u32) -> io::Result<()> {
    let path = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    std::fs::write(path, (len >> 10).to_string())
}
