//! The files that the measures use: made once on each side, and then on the disk of both.

use crate::place::At;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Directories that the small files are spread over.
const SPREAD: u32 = 10;
/// Bytes of a small file.
pub(crate) const SMALL_BYTES: usize = 4096;
/// How much is written at once.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

impl At<'_> {
    /// Makes something unless it is there; a mark says that it is complete.
    pub(crate) fn made(
        &mut self,
        name: &str,
        make: impl FnOnce(&PathBuf) -> io::Result<()>,
    ) -> io::Result<PathBuf> {
        let (path, mark) = (self.dir.join(name), self.dir.join(format!("{name}.made")));
        if !mark.exists() {
            make(&path)?;
            File::create(mark)?;
            (self.fresh)()?;
        }
        Ok(path)
    }

    /// The same on the local disk, for both sides.
    pub(crate) fn made_locally(
        &self,
        name: &str,
        make: impl FnOnce(&PathBuf) -> io::Result<()>,
    ) -> io::Result<PathBuf> {
        let (path, mark) = (
            self.local.join(name),
            self.local.join(format!("{name}.made")),
        );
        if !mark.exists() {
            make(&path)?;
            File::create(mark)?;
        }
        Ok(path)
    }

    /// Small files in some directories.
    pub(crate) fn small_files(&mut self) -> io::Result<Vec<PathBuf>> {
        let count = self.sizes.files;
        let name = |dir: &PathBuf, n: u32| dir.join(format!("d{}/f{n}", n % SPREAD));
        let dir = self.made("small", |dir| {
            for n in 0..SPREAD {
                fs::create_dir_all(dir.join(format!("d{n}")))?;
            }
            (0..count).try_for_each(|n| fs::write(name(dir, n), vec![n as u8 | 1; SMALL_BYTES]))
        })?;
        Ok((0..count).map(|n| name(&dir, n)).collect())
    }

    /// One directory with many empty files.
    pub(crate) fn flat_directory(&mut self) -> io::Result<PathBuf> {
        let count = self.sizes.files;
        self.made("flat", |dir| {
            fs::create_dir_all(dir)?;
            (0..count).try_for_each(|n| File::create(dir.join(format!("entry-{n}"))).map(drop))
        })
    }

    /// A large file; an eighth of it is what fits into every cache.
    pub(crate) fn large_file(&mut self, part: u64) -> io::Result<(PathBuf, u64)> {
        let bytes = self.sizes.large_bytes / part / CHUNK_BYTES as u64 * CHUNK_BYTES as u64;
        let path = self.made(&format!("large-{part}"), |path| {
            let mut file = File::create(path)?;
            fill(&mut file, bytes, CHUNK_BYTES)
        })?;
        Ok((path, bytes))
    }
}

/// Puts the changes of names in a directory on the disk.
pub(crate) fn stable(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes so many bytes, so many at once.
pub(crate) fn fill(file: &mut File, bytes: u64, chunk: usize) -> io::Result<()> {
    let block: Vec<u8> = (0..chunk).map(|n| (n % 251) as u8 | 1).collect();
    (0..bytes / chunk as u64).try_for_each(|_| file.write_all(&block))
}
