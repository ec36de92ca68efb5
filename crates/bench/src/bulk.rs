//! Large writes, until the last one returns.

use crate::place::At;
use crate::tree::{CHUNK_BYTES, fill};
use std::fs::{self, File};
use std::io;

pub(crate) fn write_large(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let bytes = at.sizes.large_bytes;
    write(at, bytes, CHUNK_BYTES)
}

pub(crate) fn write_small(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let bytes = at.sizes.large_bytes / 8;
    write(at, bytes, 4096)
}

fn write(at: &mut At<'_>, bytes: u64, chunk: usize) -> io::Result<Vec<f64>> {
    // Nothing of what was written before is still on its way to the disk.
    (at.fresh)()?;
    let path = at.dir.join("written");
    let mut file = File::create(&path)?;
    let bytes = bytes / chunk as u64 * chunk as u64;
    let seconds = at.seconds(|| fill(&mut file, bytes, chunk))?;
    drop(file);
    let size = fs::metadata(&path)?.len();
    fs::remove_file(path)?;
    match size == bytes {
        true => Ok(vec![bytes as f64 / seconds / 1e6]),
        false => Err(io::Error::other(format!(
            "{size} of {bytes} bytes are there"
        ))),
    }
}
