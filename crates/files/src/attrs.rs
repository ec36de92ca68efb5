//! Attributes of objects, and changes of them.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::Done;
use rustix::io::Errno;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::{Attr, Fid, Kind, Op, Set, SetTime, Time, file_time};

/// Unit of [`Metadata::blocks`], as in `st_blocks`.
const SECTOR_BYTES: u64 = 512;
const MODE_BITS: u32 = 0o7777;

/// The attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(crate) fid: Fid,
    pub(crate) attr: Attr,
}

/// The numbers of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Objects that exist.
    pub files: u64,
    /// Objects that may still be made.
    pub free_files: u64,
}

/// A change of attributes; attributes that are `None` stay as they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits, set-id bits and the sticky bit.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a file, bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub accessed: Option<SystemTime>,
    /// Time of the last change of the content.
    pub modified: Option<SystemTime>,
}

impl Metadata {
    /// The kind of the object.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.attr.kind
    }

    /// Is it a directory?
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.attr.kind == Kind::Directory
    }

    /// Bytes of a file, or of a symbolic link's target.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.attr.size
    }

    /// Is there nothing in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.attr.size == 0
    }

    /// Units of 512 bytes that it occupies.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.attr.used_bytes.div_ceil(SECTOR_BYTES)
    }

    /// Permission bits, set-id bits and the sticky bit.
    #[must_use]
    pub fn mode(&self) -> u32 {
        u32::from(self.attr.mode)
    }

    /// Owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.attr.uid
    }

    /// Group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.attr.gid
    }

    /// Number of names.
    #[must_use]
    pub fn nlink(&self) -> u32 {
        self.attr.nlink
    }

    /// Device number of a device.
    #[must_use]
    pub fn rdev(&self) -> u32 {
        self.attr.rdev
    }

    /// The number of the object, as in `st_ino`.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.fid.vnode
    }

    /// Last access: seconds since 1970, and nanoseconds.
    #[must_use]
    pub fn atime(&self) -> (i64, u32) {
        file_time::parts(self.attr.atime)
    }

    /// Last change of the content: seconds since 1970, and nanoseconds.
    #[must_use]
    pub fn mtime(&self) -> (i64, u32) {
        file_time::parts(self.attr.mtime)
    }

    /// Last change of the content or of an attribute: seconds since 1970, and nanoseconds.
    #[must_use]
    pub fn ctime(&self) -> (i64, u32) {
        file_time::parts(self.attr.ctime)
    }

    /// When it was made: seconds since 1970, and nanoseconds.
    #[must_use]
    pub fn btime(&self) -> (i64, u32) {
        file_time::parts(self.attr.btime)
    }

    /// Last access.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.atime())
    }

    /// Last change of the content.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.mtime())
    }
}

impl Tree {
    /// The attributes of the object at a path; symbolic links are followed.
    ///
    /// # Errors
    /// As stat(2).
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look_at(path.as_ref(), true)
    }

    /// The attributes of the object at a path; a symbolic link in the last place is not followed.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.look_at(path.as_ref(), false)
    }

    fn look_at(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let found = self.find(path, follow)?;
        // The attributes of a look-up may be those of a moment before.
        let fid = found.object.fid();
        let attr = self.attr(path, fid)?;
        Ok(Metadata { fid, attr })
    }

    /// Changes attributes; symbolic links are followed.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2) and utimensat(2).
    pub fn set_attributes(&self, path: impl AsRef<Path>, set: &SetAttributes) -> Result<()> {
        let found = self.find(path.as_ref(), true)?;
        self.set(path.as_ref(), found.object.fid(), set)
    }

    /// Changes attributes; a symbolic link in the last place is changed itself.
    ///
    /// # Errors
    /// As lchown(2) and utimensat(2).
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        set: &SetAttributes,
    ) -> Result<()> {
        let found = self.find(path.as_ref(), false)?;
        self.set(path.as_ref(), found.object.fid(), set)
    }

    pub(crate) fn set(&self, path: &Path, fid: Fid, change: &SetAttributes) -> Result<()> {
        if change.mode.is_some_and(|mode| mode & !MODE_BITS != 0) {
            return Err(Error::errno(path, Errno::INVAL));
        }
        let set = Set {
            mode: change.mode.map(|mode| mode as u16),
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.accessed.map(set_time),
            mtime: change.modified.map(set_time),
            // As the kernel does it for a caller that changes bytes or owners.
            kill_set_id: change.mode.is_none()
                && (change.size.is_some() || change.uid.is_some() || change.gid.is_some()),
        };
        match self.operate(path, Op::SetAttr { fid, set })? {
            Done::Attr { .. } => Ok(()),
            _ => Err(nonsense(path)),
        }
    }

    /// The numbers of the volume that a path leads into.
    ///
    /// # Errors
    /// As statfs(2).
    pub fn statistics(&self, path: impl AsRef<Path>) -> Result<Statistics> {
        let path = path.as_ref();
        let volume = self.find(path, true)?.object.fid().volume;
        match self.operate(path, Op::StatVolume { volume })? {
            Done::Filesystem(numbers) => Ok(Statistics {
                total_bytes: numbers.total_bytes,
                free_bytes: numbers.free_bytes,
                files: numbers.files,
                free_files: numbers.free_files,
            }),
            _ => Err(nonsense(path)),
        }
    }
}

fn set_time(time: SystemTime) -> SetTime {
    SetTime::To(file_time_of(time))
}

/// A time of day as a time of a file.
fn file_time_of(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            file_time::of(seconds, since.subsec_nanos())
        }
        Err(error) => {
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX - 1);
            match before.subsec_nanos() {
                0 => file_time::of(-seconds, 0),
                part => file_time::of(-seconds - 1, 1_000_000_000 - part),
            }
        }
    }
}

fn system_time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let part = Duration::from_nanos(u64::from(nanoseconds));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        UNIX_EPOCH - whole + part
    } else {
        UNIX_EPOCH + whole + part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_come_back_as_they_were() {
        for parts in [(0, 0), (5, 7), (-1, 999_999_999), (-86_400, 0), (-1, 1)] {
            let time = system_time(parts);
            assert_eq!(file_time::parts(file_time_of(time)), parts);
        }
    }
}
