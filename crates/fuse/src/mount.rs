//! Makes and removes mounts: by mount(2) as root, by the set-uid helper `fusermount3` otherwise.
//! Never touches a mount point in a way that asks the daemon behind it (which may be dead, or be
//! this very process): mounts and their places are read from `/proc/self/mountinfo`, and which
//! mount it is the kernel knows by itself.

mod attach;
mod connection;
mod flags;
mod fusermount;
mod identity;
mod table;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::device;
use attach::Detached;

pub use attach::detach;
pub use connection::{Control, set_read_ahead};
pub(crate) use connection::{abort_in_place, forget_unused};
pub use flags::Flags;
pub use identity::MountId;
pub use table::{FSTYPE, MountEntry, await_gone, await_taken_away, find, mounts};

/// How long a mount in the way may take to answer before it counts as alive.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The device that `mount` and `df` show.
    pub source: String,
    /// Other users may use the mount, under their permissions.
    pub allow_other: bool,
    /// The rights of programs; set-id bits and device nodes count only if root asks for it.
    pub flags: Flags,
    /// Go by `fusermount3` even as root.
    pub by_helper: bool,
    /// Mount only where this dead mount still is.
    pub replaces: Option<MountId>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            source: "ariel".to_owned(),
            allow_other: true,
            flags: Flags::default(),
            by_helper: false,
            replaces: None,
        }
    }
}

/// A mount just made. Dropping the descriptor ends the connection, not the mount.
#[derive(Debug)]
pub struct Mounted {
    /// The device, for `Session::new`. The kernel's `INIT` waits there.
    pub fd: OwnedFd,
    /// The mount point, absolute and free of symbolic links.
    pub mount_point: PathBuf,
    /// Number of the connection, for `abort` and `guard`.
    pub connection: u32,
    /// Names the mount itself.
    pub id: MountId,
}

/// A mount that programs do not see yet.
#[derive(Debug)]
pub struct Prepared {
    /// The mount as it will be.
    pub mounted: Mounted,
    /// The hidden part, which can show it. `None`: the helper has shown it already.
    pub hidden: Option<Hidden>,
}

/// The part of a mount that is not shown.
#[derive(Debug)]
pub struct Hidden(Detached);

impl Hidden {
    /// From now on it is the mount of a directory in the tree, which must be served already.
    /// Returns its name then.
    pub fn narrow(&mut self, part: &Path) -> Result<MountId, MountError> {
        self.0.narrow(part)?;
        let numbers = self.0.numbers();
        let (id, _) = numbers.map_err(|error| io_error(part, error))?;
        Ok(id)
    }

    /// Shows the mount; where it takes a dead one's place, that is gone then.
    pub fn show(self) -> Result<(), MountError> {
        self.0.attach()
    }
}

/// How an unmount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// Nothing used it: it is gone.
    Clean,
    /// Something used it: it is gone from the tree, and ends when nothing uses it any more.
    Detached,
}

/// Why something could not be mounted or unmounted, and the cure.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The device is missing.
    #[error(
        "there is no /dev/fuse: load the module (modprobe fuse), or give the container \
             the device (--device /dev/fuse)"
    )]
    NoDevice,
    /// The device may not be opened.
    #[error("/dev/fuse cannot be opened ({0}): {cure}", cure = device_cure(*.0))]
    DeviceRefused(Errno),
    /// Neither root nor the helper.
    #[error(
        "mounting needs root, or the program fusermount3: install the package fuse3, or \
             run as root"
    )]
    NoHelper,
    /// The helper refused.
    #[error("fusermount3 refused: {message}{}", fusermount::cure(.message))]
    Helper {
        /// Its message.
        message: String,
    },
    /// mount(2) or umount2(2) refused.
    #[error("the kernel refused to {what} {}: {errno} (in a container, the capability \
             SYS_ADMIN is needed)", .dir.display())]
    Refused {
        /// Mount or unmount.
        what: &'static str,
        /// Where.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The tree has no such directory.
    #[error(
        "{part} cannot be mounted: {errno}; name a directory of the tree to which this machine may \
         come, as `ariel ls` shows it", part = .part.display()
    )]
    Part {
        /// Its path.
        part: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The helper mounts whole trees alone.
    #[error("only root mounts a part of a tree: mount all of it, without the path")]
    PartNeedsRoot,
    /// The mount point does not exist.
    #[error("{} does not exist: mkdir -p {}", .0.display(), .0.display())]
    Missing(PathBuf),
    /// The mount point is no directory.
    #[error("{} is not a directory: name one to mount on", .0.display())]
    NotDirectory(PathBuf),
    /// The mount point has content, which a mount would hide.
    #[error("{} is not empty: mount on an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// The dead mount that was to be replaced is not there any more.
    #[error("the dead mount at {} was taken away", .0.display())]
    Gone(PathBuf),
    /// A mount whose daemon is gone is in the way.
    #[error("{dir} is a mount whose daemon is gone (\"Transport endpoint is not connected\"): \
             ariel umount {dir} (or fusermount3 -uz {dir})", dir = .0.display())]
    Stale(PathBuf),
    /// Ariel is mounted there.
    #[error("something is mounted at {dir} already: ariel umount {dir}", dir = .0.display())]
    Already(PathBuf),
    /// Nothing is mounted there.
    #[error("nothing is mounted at {} by Ariel: see its mounts with `findmnt -t fuse.ariel`",
            .0.display())]
    NotMounted(PathBuf),
    /// The mount point cannot be looked at.
    #[error("{}: {error}", .dir.display())]
    Io {
        /// Where.
        dir: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Mounts on `dir`: an empty directory, or a dead mount of Ariel.
pub fn mount(dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let Prepared { mounted, hidden } = prepare(dir, options)?;
    match hidden {
        Some(hidden) => hidden.show().map(|()| mounted),
        None => Ok(mounted),
    }
}

/// Makes a mount for `dir` that can be served before programs see it. (The helper shows it at
/// once.)
pub fn prepare(dir: &Path, options: &MountOptions) -> Result<Prepared, MountError> {
    if !rustix::process::geteuid().is_root() || options.by_helper {
        let mounted = by_helper(dir, options)?;
        return Ok(Prepared {
            mounted,
            hidden: None,
        });
    }
    let (mount_point, replaces) = check(dir)?;
    if options.replaces.is_some() && options.replaces != replaces {
        return Err(MountError::Gone(mount_point));
    }
    let fd = open_device()?;
    let detached = Detached::make(&fd, (&mount_point, replaces), options)?;
    let numbers = detached.numbers();
    let (id, connection) = numbers.map_err(|error| io_error(&mount_point, error))?;
    let mounted = Mounted {
        fd,
        mount_point,
        connection,
        id,
    };
    Ok(Prepared {
        mounted,
        hidden: Some(Hidden(detached)),
    })
}

fn by_helper(dir: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let mount_point = match check(dir)? {
        (mount_point, None) => mount_point,
        // The helper puts nothing in the place of a dead mount.
        (mount_point, Some(_)) => return Err(MountError::Stale(mount_point)),
    };
    let fd = fusermount::mount(&mount_point, options)?;
    let failed = |error| io_error(&mount_point, error);
    let entry = find(&mount_point).map_err(failed)?;
    let Some(MountEntry { connection, .. }) = entry else {
        return Err(MountError::NotMounted(mount_point));
    };
    let id = MountId::at(&mount_point).map_err(failed)?;
    Ok(Mounted {
        fd,
        mount_point,
        connection,
        id,
    })
}

/// Removes the mount at `dir`; while something uses it, it is detached: gone from the tree, and
/// ended when the last user is done.
pub fn unmount(dir: &Path) -> Result<Unmounted, MountError> {
    let mount_point = resolve(dir).map_err(|error| not_mounted(dir, error))?;
    let entry = find(&mount_point).map_err(|error| io_error(&mount_point, error))?;
    if entry.is_none() {
        return Err(MountError::NotMounted(mount_point));
    }
    match unmount_directly(&mount_point) {
        Err(MountError::Refused {
            errno: Errno::PERM, ..
        }) => fusermount::unmount(&mount_point),
        other => other,
    }
}

/// Changes what the mount of Ariel at `dir` lets programs do, by words of `mount(8)`. Flags that
/// they do not name stay. Asks no daemon.
///
/// # Errors
/// No mount of Ariel is there, or the kernel refuses.
pub fn remount(dir: &Path, words: &[String]) -> Result<(), MountError> {
    let mount_point = resolve(dir).map_err(|error| not_mounted(dir, error))?;
    let entry = find(&mount_point).map_err(|error| io_error(&mount_point, error))?;
    let Some(entry) = entry.filter(MountEntry::is_ariel) else {
        return Err(MountError::NotMounted(mount_point));
    };
    let mut flags = entry.flags;
    for word in words {
        flags.apply(word);
    }
    let done = rustix::mount::mount_remount(&mount_point, flags.for_remount(), "");
    done.map_err(|errno| refused("remount", &mount_point, errno))
}

/// The connection behind the mount at `dir`, if one of FUSE is there. Asks no daemon.
pub fn connection_id(dir: &Path) -> io::Result<Option<u32>> {
    Ok(find(&resolve(dir)?)?.map(|entry| entry.connection))
}

/// Opens the device.
fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open(device::PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => MountError::NoDevice,
            other => MountError::DeviceRefused(other),
        }
    })
}

/// The cure for a device that is there and may not be opened.
fn device_cure(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM => {
            "this container or service may not use the device: allow it (--device /dev/fuse of a \
             container, DeviceAllow=/dev/fuse of a unit); its mode is not at fault"
        }
        Errno::ACCESS => {
            "its mode (`chmod 666 /dev/fuse` as root), or the option nodev of what is mounted at \
             /dev forbids it"
        }
        _ => "load the module anew (modprobe fuse), and see the kernel's log (dmesg)",
    }
}

fn refused(what: &'static str, mount_point: &Path, errno: Errno) -> MountError {
    MountError::Refused {
        what,
        dir: mount_point.to_owned(),
        errno,
    }
}

fn unmount_directly(mount_point: &Path) -> Result<Unmounted, MountError> {
    let attempt = |flags| rustix::mount::unmount(mount_point, flags | UnmountFlags::NOFOLLOW);
    let refused = |errno| refused("unmount", mount_point, errno);
    match attempt(UnmountFlags::empty()) {
        Ok(()) => Ok(Unmounted::Clean),
        Err(Errno::BUSY) => match attempt(UnmountFlags::DETACH) {
            Ok(()) => Ok(Unmounted::Detached),
            // Gone meanwhile, as wanted.
            Err(Errno::INVAL | Errno::NOENT) => Ok(Unmounted::Clean),
            Err(errno) => Err(refused(errno)),
        },
        Err(Errno::INVAL) => Err(MountError::NotMounted(mount_point.to_owned())),
        Err(errno) => Err(refused(errno)),
    }
}

/// Aborts by way of the mount, where fusectl is not mounted; needs root.
pub(crate) fn abort_by_unmount(mount_point: &Path) -> rustix::io::Result<()> {
    rustix::mount::unmount(mount_point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW)
}

/// Looks whether something can be mounted on this directory.
///
/// # Errors
/// It cannot, or there is no such directory yet.
pub fn check_mount_point(dir: &Path) -> Result<(), MountError> {
    check(dir).map(drop)
}

/// Makes sure that `dir` can be mounted on, and finds its real path, and the dead mount of Ariel
/// that is there.
fn check(dir: &Path) -> Result<(PathBuf, Option<MountId>), MountError> {
    if let Ok(path) = resolve(dir)
        && let Ok(Some(entry)) = find(&path)
    {
        return match (entry.is_dead(), entry.is_ariel()) {
            (true, true) => match MountId::at(&path) {
                Ok(id) => Ok((path, Some(id))),
                Err(error) => Err(io_error(&path, error)),
            },
            (true, false) => Err(MountError::Stale(path)),
            (false, _) => Err(MountError::Already(path)),
        };
    }
    let path = dir.canonicalize().map_err(|error| io_error(dir, error))?;
    let metadata = std::fs::metadata(&path).map_err(|error| io_error(&path, error))?;
    if !metadata.is_dir() {
        return Err(MountError::NotDirectory(path));
    }
    let mut content = std::fs::read_dir(&path).map_err(|error| io_error(&path, error))?;
    if content.next().is_some() {
        return Err(MountError::NotEmpty(path));
    }
    Ok((path, None))
}

fn io_error(dir: &Path, error: io::Error) -> MountError {
    let dir = dir.to_owned();
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => MountError::Missing(dir),
        Some(Errno::NOTDIR) => MountError::NotDirectory(dir),
        Some(Errno::NOTCONN | Errno::CONNABORTED) => MountError::Stale(dir),
        _ => MountError::Io { dir, error },
    }
}

/// An error of looking for a mount that should be there: in nothing, nothing is mounted, and a
/// directory that is made would not help.
fn not_mounted(dir: &Path, error: io::Error) -> MountError {
    match io_error(dir, error) {
        MountError::Missing(dir) | MountError::NotDirectory(dir) => MountError::NotMounted(dir),
        other => other,
    }
}

/// The real path of a mount point, without asking the file system mounted there: all but the last
/// component are resolved, and the last only if it is a symbolic link of the file system around.
fn resolve(dir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(dir)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return absolute.canonicalize();
    };
    let path = parent.canonicalize()?.join(name);
    if name == ".." || is_symlink(&path)? {
        path.canonicalize()
    } else {
        Ok(path)
    }
}

/// Whether `path` is a symbolic link. A mount point is none, and is not asked.
fn is_symlink(path: &Path) -> io::Result<bool> {
    if find(path)?.is_some() {
        return Ok(false);
    }
    Ok(std::fs::symlink_metadata(path)?.is_symlink())
}

/// Whether the program running is root's and the device there: what a real mount needs.
#[must_use]
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root() && File::open(device::PATH).is_ok()
}

impl MountEntry {
    /// Whether the daemon is gone: the kernel refuses a dead connection at once. A living daemon
    /// that does not answer is not waited for.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        let root = self.mount_point.clone();
        std::thread::spawn(move || {
            // Else the kernel would show cached attributes.
            let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
            let looked = statx(CWD, &root, flags, StatxFlags::BASIC_STATS);
            // Nobody listens any more when this took too long.
            let _ = sender.send(looked.map(drop));
        });
        // The last: of a request that was under way over io_uring when the daemon died.
        matches!(
            receiver.recv_timeout(ANSWER_TIME),
            Ok(Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
        )
    }
}
