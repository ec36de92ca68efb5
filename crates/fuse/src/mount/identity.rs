//! Which mount is it? A path and the number of a connection do not tell: once a mount is gone, the
//! kernel gives its connection's number to the next one, at the same path perhaps. Since Linux 6.8
//! each mount has a number of its own that is never given again.
//!
//! Guarantees: nothing here asks the daemon behind a mount, which may be dead.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, open, statx};
use rustix::io::Errno;

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8).
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The kernel's own knowledge is enough: no file system is asked.
const ASKS_NOBODY: AtFlags = AtFlags::STATX_DONT_SYNC.union(AtFlags::NO_AUTOMOUNT);

/// Names one mount. Before Linux 6.8 the number is given again after the mount is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountId(pub u64);

impl MountId {
    /// The mount on top at a path.
    pub fn at(path: &Path) -> io::Result<MountId> {
        let stat = statx(
            CWD,
            path,
            ASKS_NOBODY | AtFlags::SYMLINK_NOFOLLOW,
            MNT_ID_UNIQUE,
        )?;
        match unique(&stat) {
            Some(id) => Ok(id),
            None => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                MountId::told_of(open(path, flags, Mode::empty())?)
            }
        }
    }

    /// The mount that a descriptor is on.
    pub fn of(descriptor: impl AsFd) -> io::Result<MountId> {
        let stat = status(&descriptor)?;
        match unique(&stat) {
            Some(id) => Ok(id),
            None => MountId::told_of(descriptor),
        }
    }

    /// Is it what is on top at this path?
    #[must_use]
    pub fn is_at(self, path: &Path) -> bool {
        MountId::at(path).is_ok_and(|id| id == self)
    }

    /// The older number, which `/proc` tells.
    fn told_of(descriptor: impl AsFd) -> io::Result<MountId> {
        let number = descriptor.as_fd().as_raw_fd();
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
        let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        let id = id.and_then(|id| id.trim().parse().ok());
        id.map(MountId).ok_or_else(|| Errno::NOTSUP.into())
    }
}

/// The kernel's own knowledge of a descriptor's file.
pub(super) fn status(descriptor: impl AsFd) -> io::Result<Statx> {
    let flags = ASKS_NOBODY | AtFlags::EMPTY_PATH;
    Ok(statx(descriptor, "", flags, MNT_ID_UNIQUE)?)
}

fn unique(stat: &Statx) -> Option<MountId> {
    let told = stat.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    told.then_some(MountId(stat.stx_mnt_id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;

    #[test]
    fn a_mount_is_the_same_by_path_and_by_descriptor() {
        let root = MountId::at(Path::new("/")).unwrap();
        assert_eq!(MountId::of(File::open("/").unwrap()).unwrap(), root);
        assert!(root.is_at(Path::new("/")));
        assert!(!root.is_at(Path::new("/proc")));
        assert!(!root.is_at(Path::new("/no such place")));
        let told = MountId::told_of(File::open("/").unwrap()).unwrap();
        let of_proc = MountId::told_of(File::open("/proc").unwrap()).unwrap();
        assert_ne!(told, of_proc);
    }
}
