//! Making a mount without showing it, and showing it where it belongs.
//!
//! Guarantees: where a dead mount is replaced, there is no moment in which its path leads to the
//! directory below. The new mount is put beneath the dead one, which is taken away then (Linux
//! 6.5). Before that it is put on top, and the dead one stays below until both are unmounted.

use std::fmt::Display;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::{MountError, MountId, MountOptions, Unmounted, fusermount, identity};
use super::{io_error, refused};

/// A mount that is in no tree. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Detached {
    tree: OwnedFd,
    mount_point: PathBuf,
    /// The dead mount whose place it takes.
    replaces: Option<MountId>,
}

impl Detached {
    /// Makes a mount of the device's connection.
    pub(super) fn make(
        device: &OwnedFd,
        (mount_point, replaces): (&Path, Option<MountId>),
        options: &MountOptions,
    ) -> Result<Detached, MountError> {
        let made = configure(device, options).map_err(|errno| refused("mount", mount_point, errno));
        Ok(Detached {
            tree: made?,
            mount_point: mount_point.to_owned(),
            replaces,
        })
    }

    /// Its number, and that of its connection.
    pub(super) fn numbers(&self) -> std::io::Result<(MountId, u32)> {
        let stat = identity::status(&self.tree)?;
        Ok((MountId::of(&self.tree)?, stat.stx_dev_minor))
    }

    /// Makes it a mount of the directory that is at a path of it. The mount must be served already,
    /// since the kernel walks there. Linux before 6.15 clones only what is in a tree, so the mount
    /// is for a moment in a directory that is root's alone.
    pub(super) fn narrow(&mut self, part: &Path) -> Result<(), MountError> {
        let aside = Aside::make().map_err(|error| io_error(&self.mount_point, error))?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        let moved = move_mount(&self.tree, "", CWD, &aside.0, flags);
        moved.map_err(|errno| refused("mount", &self.mount_point, errno))?;
        let clone = clone_of(&self.tree, part);
        self.tree = clone.map_err(|errno| MountError::Part {
            part: part.to_owned(),
            errno,
        })?;
        Ok(())
    }

    /// Shows it at its place.
    pub(super) fn attach(self) -> Result<(), MountError> {
        let failed = |errno| refused("mount", &self.mount_point, errno);
        let Some(dead) = self.replaces else {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            return move_mount(&self.tree, "", CWD, &self.mount_point, flags).map_err(failed);
        };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = rustix::fs::open(&self.mount_point, flags, Mode::empty()).map_err(failed)?;
        // From here on the descriptor is meant, whatever has the path.
        let on_top = MountId::of(&top).map_err(|error| io_error(&self.mount_point, error))?;
        if on_top != dead {
            return Err(MountError::Gone(self.mount_point));
        }
        match self.put(&top, MoveMountFlags::MOVE_MOUNT_BENEATH) {
            Ok(()) => take_away(&top, &self.mount_point),
            Err(Errno::INVAL) => self.put(&top, MoveMountFlags::empty()).map_err(failed),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn put(&self, there: &OwnedFd, how: MoveMountFlags) -> Result<(), Errno> {
        let by_descriptors =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&self.tree, "", there, "", by_descriptors | how)
    }
}

/// A directory of its own, root's alone. Dropped, it is gone, with the mount in it.
struct Aside(PathBuf);

/// Where nobody but root makes anything.
const RUN: &str = "/run";
/// Names that are tried for such a directory: others have the same number in their containers.
const NAMES: u32 = 64;
/// The kernel wants a walk within a tree done again when something was renamed meanwhile.
const WALKS: u32 = 64;

impl Aside {
    fn make() -> std::io::Result<Aside> {
        let mut number = 0;
        loop {
            let name = format!("ariel-part-{}-{number}", std::process::id());
            let dir = Path::new(RUN).join(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Aside(dir)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < NAMES => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        // Nothing need be mounted there yet.
        let _ = rustix::mount::unmount(&self.0, flags);
        if let Err(error) = std::fs::remove_dir(&self.0) {
            tracing::warn!(%error, dir = %self.0.display(), "a directory stays behind");
        }
    }
}

/// A mount of a directory in a mounted tree. No symbolic link leads out of the tree.
fn clone_of(tree: &OwnedFd, part: &Path) -> Result<OwnedFd, Errno> {
    let part = part.strip_prefix("/").unwrap_or(part);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut walks = 0;
    let dir = loop {
        match openat2(tree, part, flags, Mode::empty(), inside) {
            Err(Errno::AGAIN) if walks < WALKS => walks += 1,
            other => break other?,
        }
    };
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&dir, "", how)
}

fn configure(device: &OwnedFd, options: &MountOptions) -> Result<OwnedFd, Errno> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &dyn Display| {
        fsconfig_set_string(context.as_fd(), key, value.to_string())
    };
    set("source", &options.source)?;
    set("subtype", &"ariel")?;
    set("fd", &device.as_raw_fd())?;
    set("rootmode", &"40000")?;
    set("user_id", &rustix::process::getuid().as_raw())?;
    set("group_id", &rustix::process::getgid().as_raw())?;
    fsconfig_set_flag(context.as_fd(), "default_permissions")?;
    if options.allow_other {
        fsconfig_set_flag(context.as_fd(), "allow_other")?;
    }
    if options.flags.is_read_only() {
        fsconfig_set_flag(context.as_fd(), "ro")?;
    }
    fsconfig_create(context.as_fd())?;
    let close = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(context.as_fd(), close, options.flags.attributes())
}

/// Takes the mount away whose root a descriptor is: gone from the tree at once, and ended when
/// nothing uses it any more.
fn take_away(root: &OwnedFd, mount_point: &Path) -> Result<(), MountError> {
    // The link in /proc leads to this very mount, whatever has its path by now.
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    match rustix::mount::unmount(path, UnmountFlags::DETACH) {
        // Gone meanwhile, as wanted.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(errno) => Err(refused("unmount", mount_point, errno)),
    }
}

/// Takes this mount away, if it is what is on top at its mount point; even while it is used.
pub fn detach(mount_point: &Path, id: MountId) -> Result<Unmounted, MountError> {
    let gone = || MountError::NotMounted(mount_point.to_owned());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(mount_point, flags, Mode::empty()).map_err(|_| gone())?;
    if !MountId::of(&root).is_ok_and(|on_top| on_top == id) {
        return Err(gone());
    }
    match take_away(&root, mount_point) {
        // An ordinary user's way.
        Err(MountError::Refused { errno, .. }) if errno == Errno::PERM && id.is_at(mount_point) => {
            drop(root);
            fusermount::unmount(mount_point)
        }
        other => other.map(|()| Unmounted::Detached),
    }
}
