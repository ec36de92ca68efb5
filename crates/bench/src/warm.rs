//! Repeated questions: a kernel may cache the answers by itself.

use crate::place::At;
use crate::tree::{CHUNK_BYTES, SMALL_BYTES};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Reads in one pass of random ones.
const READS: u64 = 20_000;
/// Questions for attributes.
const QUESTIONS: usize = 20_000;

pub(crate) fn stat(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.small_files()?;
    let pass = || {
        files
            .iter()
            .try_for_each(|file| fs::symlink_metadata(file).map(drop))
    };
    Ok(vec![at.warm_rate(files.len() as u64, pass)?])
}

pub(crate) fn absent(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.small_files()?;
    let absent = |file: &PathBuf| file.with_extension("absent");
    let absent: Vec<PathBuf> = files.iter().map(absent).collect();
    let pass = || {
        absent
            .iter()
            .try_for_each(|file| match fs::symlink_metadata(file) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(io::Error::other("a name that was never made is there")),
            })
    };
    Ok(vec![at.warm_rate(files.len() as u64, pass)?])
}

/// Opens, reads and closes a small file.
pub(crate) fn read_small(file: &PathBuf, buffer: &mut [u8; SMALL_BYTES]) -> io::Result<()> {
    File::open(file)?.read_exact(buffer)
}

pub(crate) fn open_read_close(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.small_files()?;
    let mut buffer = [0; SMALL_BYTES];
    let pass = || {
        files
            .iter()
            .try_for_each(|file| read_small(file, &mut buffer))
    };
    Ok(vec![at.warm_rate(files.len() as u64, pass)?])
}

pub(crate) fn random_read(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let (path, bytes) = at.large_file(8)?;
    read_through(&path)?;
    let file = File::open(path)?;
    let (mut buffer, mut state) = ([0; SMALL_BYTES], 1_u64);
    let pass = || {
        (0..READS).try_for_each(|_| {
            // Knuth's multiplier: any order will do that no read-ahead guesses.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let block = (state >> 33) % (bytes / SMALL_BYTES as u64);
            file.read_exact_at(&mut buffer, block * SMALL_BYTES as u64)
        })
    };
    Ok(vec![at.warm_rate(READS, pass)?])
}

/// Reads a file to its end; its length.
pub(crate) fn read_through(path: &PathBuf) -> io::Result<u64> {
    let (mut file, mut buffer) = (File::open(path)?, vec![0; CHUNK_BYTES]);
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

pub(crate) fn sequential_read(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let (path, bytes) = at.large_file(8)?;
    let rate = at.warm_rate(bytes, || read_through(&path).map(drop))?;
    Ok(vec![rate / 1e6])
}

pub(crate) fn list(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let dir = at.flat_directory()?;
    let mut met = 0;
    let pass = || {
        met = 0;
        for entry in fs::read_dir(&dir)? {
            fs::symlink_metadata(entry?.path())?;
            met += 1;
        }
        Ok(())
    };
    let rate = at.warm_rate(u64::from(at.sizes.files), pass)?;
    match met == at.sizes.files {
        true => Ok(vec![rate]),
        false => Err(io::Error::other(format!(
            "{met} of {} entries are listed",
            at.sizes.files
        ))),
    }
}

/// The kernel must ask the file system, whatever it has cached.
pub(crate) fn getattr(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let file = at.small_files()?.swap_remove(0);
    let mut took = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let one = at.seconds(|| {
            let flags = AtFlags::STATX_FORCE_SYNC;
            statx(CWD, &file, flags, StatxFlags::BASIC_STATS)?;
            Ok(())
        })?;
        took.push(one * 1e6);
    }
    took.sort_by(f64::total_cmp);
    Ok(vec![took[QUESTIONS / 2], took[QUESTIONS / 100 * 99]])
}
