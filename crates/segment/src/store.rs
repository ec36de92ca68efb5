//! Where pages go that have no frame.
//!
//! Guarantees: written bytes are read back as long as the file is there; a file
//! vanishes with the process that made it, however that ends.

use crate::error::{Error, Result};
use files::{File, OpenOptions, Tree};
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a local file that are read at once.
const PART: usize = 64 << 10;

/// Makes backing files.
pub trait Store: Send + Sync {
    /// A new, empty file.
    ///
    /// # Errors
    /// It cannot be made.
    fn make(&self) -> Result<Box<dyn Backing>>;
}

/// Takes bytes where they are, so that nobody copies them in between.
pub type Give<'a> = &'a mut dyn FnMut(&mut [IoSlice<'_>]) -> Result<()>;

/// A backing file. Any number of threads may use it.
pub trait Backing: Send + Sync {
    /// Reads bytes that were written before, and gives them away in parts, in their order.
    ///
    /// # Errors
    /// They cannot be had, or `give` refuses them.
    fn read(&self, offset: u64, len: usize, give: Give<'_>) -> Result<()>;

    /// Writes bytes.
    ///
    /// # Errors
    /// They cannot be kept.
    fn write(&self, bytes: &[u8], offset: u64) -> Result<()>;
}

/// Files of a cell. A server that is away is waited for.
pub struct CellStore {
    tree: Arc<Tree>,
    dir: PathBuf,
    next: AtomicU64,
}

impl CellStore {
    /// Files without names, made in a directory of the tree, which must be there.
    #[must_use]
    pub fn new(tree: Arc<Tree>, dir: impl Into<PathBuf>) -> Self {
        Self {
            tree,
            dir: dir.into(),
            next: AtomicU64::new(0),
        }
    }
}

impl Store for CellStore {
    fn make(&self) -> Result<Box<dyn Backing>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let options = OpenOptions::new().read(true).write(true).create_new(true);
        // Two machines may have the same process number.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let process = std::process::id();
        let name = format!(".segment-{}-{process}-{number}", host.trim());
        let path = self.dir.join(name);
        let file = self.tree.open_with(&path, options.mode(0o600))?;
        // Without a name it lives as long as it is open: the server removes it when this session
        // ends, also by a crash. The server has to know that by then.
        self.tree.remove_file(&path)?;
        self.tree.sync(&self.dir)?;
        Ok(Box::new(file))
    }
}

impl Backing for File {
    fn read(&self, offset: u64, len: usize, give: Give<'_>) -> Result<()> {
        let mut done = 0;
        while done < len {
            let given = self.read_parts_at(len - done, offset + done as u64, |parts| {
                let count: usize = parts.iter().map(|part| part.len()).sum();
                give(parts).map(|()| count)
            })?;
            match given? {
                0 => {
                    let text = "a backing file is shorter than what was stored";
                    return Err(Error::Refused(text));
                }
                count => done += count,
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }
}

/// Files of a local directory: a swap file of one's own, also to compare with.
pub struct LocalStore {
    dir: PathBuf,
}

impl LocalStore {
    /// Files without names, made in a directory, which must be there.
    #[must_use]
    pub fn new(dir: impl AsRef<Path>) -> Self {
        Self {
            dir: dir.as_ref().to_owned(),
        }
    }
}

impl Store for LocalStore {
    fn make(&self) -> Result<Box<dyn Backing>> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&self.dir, flags, Mode::from_raw_mode(0o600));
        let fd = fd.map_err(std::io::Error::from)?;
        Ok(Box::new(std::fs::File::from(fd)))
    }
}

impl Backing for std::fs::File {
    fn read(&self, offset: u64, len: usize, give: Give<'_>) -> Result<()> {
        let mut buffer = vec![0; len.min(PART)];
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let part = PART.min((end - at) as usize);
            self.read_exact_at(&mut buffer[..part], at)?;
            give(&mut [IoSlice::new(&buffer[..part])])?;
            at += part as u64;
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }
}
