//! The kernel's connections. A number is a connection's own only as long as its mount is there, or
//! detached and in use; then the kernel may give it to another mount.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsmount, fsopen, fspick,
};

use super::MountId;

/// Where the kernel shows its FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The end of one connection in hand: opened while the connection is there, it is of no other one,
/// whichever gets the number later.
pub struct Control(OwnedFd);

impl Control {
    /// Opens the control of the connection that has this number now. NotFound: there is none.
    ///
    /// # Errors
    /// The connection is gone, or is another user's.
    pub fn open(connection: u32) -> io::Result<Control> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let name = format!("{connection}/abort");
        let shown = format!("{CONNECTIONS}/{name}");
        match rustix::fs::open(shown, flags, Mode::empty()) {
            Ok(file) => Ok(Control(file)),
            Err(Errno::NOENT) => Ok(Control(openat(connections()?, name, flags, Mode::empty())?)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the control of the mount on top at a path; `None`: that is not this mount.
    ///
    /// # Errors
    /// As [`Control::open`].
    pub fn of_mount((id, point): (MountId, &Path), connection: u32) -> io::Result<Option<Control>> {
        let control = Self::open(connection)?;
        // A mount that is still there was there when the control was opened.
        Ok(id.is_at(point).then_some(control))
    }

    /// Ends the connection at once: every request waiting, and every one to come, fails with
    /// ENOTCONN. The mount stays, dead, until it is unmounted. Where the connection is gone
    /// already, nothing happens.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn abort(&self) -> io::Result<()> {
        loop {
            match rustix::io::write(&self.0, b"1") {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// The file system that shows connections, also where it is mounted nowhere, as in most containers:
/// root can look at it all the same.
fn connections() -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let close = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(fsmount(&context, close, MountAttrFlags::empty())?)
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

/// Makes the kernel forget the names, attributes and pages of the mount on top at a path, but for
/// those of objects that a program has open or works in. A kernel keeps them after a connection has
/// ended, and would go on showing them. Needs root.
pub(crate) fn forget_unused(mount_point: &Path) -> rustix::io::Result<()> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_SYMLINK_NOFOLLOW;
    let context = fspick(CWD, mount_point, flags)?;
    // Before any change of a file system Linux drops its unused names; here nothing else is
    // changed.
    fsconfig_reconfigure(&context)
}

/// Lets the kernel read ahead up to `len` bytes for this mount, beyond its default of 128 KiB.
/// (`INIT` can only lower that.) Needs root; without it nothing is lost but speed.
pub fn set_read_ahead(connection: u32, len: u32) -> io::Result<()> {
    let path = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    std::fs::write(path, (len >> 10).to_string())
}
