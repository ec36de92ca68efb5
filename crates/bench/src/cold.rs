//! Files that this machine has not seen since it was mounted, and that the server has in memory.

use crate::place::At;
use crate::tree::SMALL_BYTES;
use crate::warm::{read_small, read_through};
use std::io;

pub(crate) fn first_touch(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let files = at.small_files()?;
    let mut buffer = [0; SMALL_BYTES];
    // Once for the server.
    files
        .iter()
        .try_for_each(|file| read_small(file, &mut buffer))?;
    (at.fresh)()?;
    let seconds = at.seconds(|| {
        files
            .iter()
            .try_for_each(|file| read_small(file, &mut buffer))
    })?;
    Ok(vec![files.len() as f64 / seconds])
}

pub(crate) fn sequential_read(at: &mut At<'_>) -> io::Result<Vec<f64>> {
    let (path, bytes) = at.large_file(1)?;
    read_through(&path)?;
    (at.fresh)()?;
    let mut read = 0;
    let seconds = at.seconds(|| {
        read = read_through(&path)?;
        Ok(())
    })?;
    match read == bytes {
        true => Ok(vec![bytes as f64 / seconds / 1e6]),
        false => Err(io::Error::other(format!(
            "{read} of {bytes} bytes are read"
        ))),
    }
}
