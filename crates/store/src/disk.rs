//! The disk as the store sees it: a flat set of named files, each with the verbs of [`Disk`].
//!
//! There are two of them: a directory of the operating system ([`Directory`]) and memory that can
//! crash and fail on demand ([`crate::MemoryDisk`]). A store relies on no more than this:
//! after `sync` of a file returned, its bytes and its length survive a power failure; after `sync`
//! of the set returned, so do the files' names; a write that did not return may have happened in
//! part or not at all.

use crate::error::StoreError;
use crate::log;
use rustix::fs::{AtFlags, Dir, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::fs::{fallocate, flock, fstatvfs, openat, renameat, unlinkat};
use rustix::io::{Errno, pwritev};
use std::fmt::Debug;
use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::Arc;

/// One file.
pub(crate) trait Disk: Debug + Send + Sync {
    /// Its length, bytes.
    fn len(&self) -> io::Result<u64>;
    /// Fills all of `into`, or fails.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes`, or fails and may have written some of them.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// The same of parts, one behind the other.
    fn write_parts_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.write_at(offset, &parts.concat())
    }
    /// Cuts off or adds zeros, and gives back what was reserved beyond.
    fn resize(&self, len: u64) -> io::Result<()>;
    /// Reserves room: a later write within it does not fail for lack of space.
    fn reserve(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Puts everything written before on stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// A flat set of named files.
pub(crate) trait Files: Debug + Send + Sync {
    /// Opens a file, and makes it if `create`.
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn Disk>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives a file another name, in place of the file that has it.
    fn rename(&self, name: &str, new: &str) -> io::Result<()>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Puts the names on stable storage.
    fn sync(&self) -> io::Result<()>;
    /// Bytes in all and bytes free.
    fn space(&self) -> io::Result<(u64, u64)>;
}

/// The file that a process locks while it has the partition open.
const LOCK: &str = "lock";

/// A directory of the operating system, locked for as long as the value lives. It is this very one
/// until then: if it is moved or removed, nothing is done to what has its path then.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: File,
    /// Held for its lock.
    _lock: File,
}

impl Directory {
    /// Makes the directory, which must be absent or empty, and locks it.
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let io = |e| StoreError::io(format!("create the partition {}", path.display()), e);
        make(path).map_err(io)?;
        let handle = File::open(path).map_err(io)?;
        let names = names(&handle).map_err(io)?;
        if names
            .iter()
            .any(|name| name != LOCK && name != "lost+found")
        {
            return Err(StoreError::NotEmpty(path.to_owned()));
        }
        Self::lock(path, handle, true)
    }

    /// Opens and locks the directory.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let handle = File::open(path).map_err(|e| not_opened(path, e))?;
        Self::lock(path, handle, false)
    }

    /// The lock file is made if `create`, or if only it is missing of a partition.
    fn lock(path: &Path, handle: File, create: bool) -> Result<Self, StoreError> {
        let io = |e| not_opened(path, e);
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        // The directory is locked as well, so that a lock file that was removed under a server, and
        // made again, does not let in a second one. Not every file system has locks of directories.
        let held = match flock(&handle, exclusive) {
            Err(Errno::WOULDBLOCK) => return Err(in_use(path, open_at(&handle, LOCK, false).ok())),
            other => other.is_ok(),
        };
        let is_partition =
            || names(&handle).is_ok_and(|names| names.iter().any(|name| is_segment(name)));
        let lock = match open_at(&handle, LOCK, create) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_partition() => {
                if !held {
                    return Err(StoreError::NoLock(path.to_owned()));
                }
                open_at(&handle, LOCK, true)
            }
            other => other,
        };
        let mut lock = lock.map_err(io)?;
        if flock(&lock, exclusive).is_err() {
            return Err(in_use(path, Some(lock)));
        }
        lock.set_len(0).map_err(io)?;
        lock.write_all(format!("{}\n", std::process::id()).as_bytes())
            .map_err(io)?;
        Ok(Self {
            handle,
            _lock: lock,
        })
    }
}

/// Makes a directory for its owner alone. One that is there keeps the rights it has.
fn make(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn is_segment(name: &str) -> bool {
    log::segment_number(name).is_some()
}

/// The lock file, if it is there, names the process that has the partition.
fn in_use(path: &Path, lock: Option<File>) -> StoreError {
    let mut text = String::new();
    if let Some(mut lock) = lock {
        // Without the number the message still says what matters.
        let _ = lock.read_to_string(&mut text);
    }
    StoreError::InUse {
        dir: path.to_owned(),
        pid: text.trim().parse().ok(),
    }
}

fn not_opened(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::NotFound => StoreError::NotAPartition(path.to_owned()),
        _ => StoreError::io(format!("open the partition {}", path.display()), error),
    }
}

fn open_at(dir: &File, name: &str, create: bool) -> io::Result<File> {
    let create = if create {
        OFlags::CREATE
    } else {
        OFlags::empty()
    };
    let file = openat(
        dir,
        name,
        OFlags::RDWR | OFlags::CLOEXEC | create,
        Mode::from_raw_mode(0o600),
    )?;
    Ok(file.into())
}

/// The names of all files, the lock's too, in order.
fn names(dir: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl Files for Directory {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(OsFile(open_at(&self.handle, name, create)?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn rename(&self, name: &str, new: &str) -> io::Result<()> {
        Ok(renameat(&self.handle, name, &self.handle, new)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = names(&self.handle)?;
        names.retain(|name| name != LOCK);
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn space(&self) -> io::Result<(u64, u64)> {
        let stat = fstatvfs(&self.handle)?;
        Ok((
            stat.f_blocks.saturating_mul(stat.f_frsize),
            stat.f_bavail.saturating_mul(stat.f_frsize),
        ))
    }
}

#[derive(Debug)]
struct OsFile(File);

impl Disk for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn write_parts_at(&self, mut offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = slices.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0); // those without bytes
        while !left.is_empty() {
            match pwritev(&self.0, left, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len) {
            // A file system that cannot reserve reports a full disk when it is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_one_behind_the_other() {
        let path = tempfile::tempdir().expect("a directory");
        let directory = Directory::create(path.path()).expect("a partition");
        let disk = directory.open("log", true).expect("a file");
        disk.write_at(0, &[9; 12]).expect("written");
        let large = vec![7; 1 << 20];
        let parts: [&[u8]; 4] = [&[1, 2], &[], &large, &[3]];
        disk.write_parts_at(4, &parts).expect("written");
        let mut found = vec![0; 4 + large.len() + 3];
        disk.read_at(0, &mut found).expect("read");
        assert_eq!(found, [&[9; 4][..], &[1, 2], &large, &[3]].concat());
    }

    #[test]
    fn a_directory_that_took_its_path_is_left_alone() {
        let scratch = tempfile::tempdir().expect("a directory");
        let [path, away] = ["data", "away"].map(|name| scratch.path().join(name));
        let first = Directory::create(&path).expect("a partition");
        first.open("log", true).expect("a file");
        std::fs::rename(&path, &away).expect("moved");
        let second = Directory::create(&path).expect("another partition");
        first.open("more", true).expect("a file");
        second.open("other", true).expect("a file");
        first.remove("log").expect("removed");
        assert_eq!(first.list().expect("names"), ["more"]);
        assert_eq!(second.list().expect("names"), ["other"]);
        std::fs::remove_dir_all(&path).expect("removed");
        let third = Directory::create(&path).expect("a third");
        let error = second.open("more", true).expect_err("it has gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(third.list().expect("names"), Vec::<String>::new());
    }
}
