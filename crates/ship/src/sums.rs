//! Sums of files, and which of them are known without reading.

use crate::ask::{PIECE_BYTES, STRETCH_BYTES, Sum};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Fills as much as the file has from there on. Returns how much that is.
pub(crate) fn fill(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The sums of the pieces from `from`, where one begins, up to `until` or the end of the file; and
/// how many bytes these pieces have.
pub(crate) fn pieces(file: &File, from: u64, until: u64) -> io::Result<(Vec<Sum>, u64)> {
    let (mut sums, mut at) = (Vec::new(), from);
    let mut buffer = vec![0; READ_BYTES];
    while at < until {
        let wanted = (until - at).min(READ_BYTES as u64) as usize;
        let read = fill(file, at, &mut buffer[..wanted])?;
        let pieces = buffer[..read].chunks(PIECE_BYTES as usize);
        sums.extend(pieces.map(Sum::of));
        at += read as u64;
        if read < wanted {
            break;
        }
    }
    Ok((sums, at - from))
}

/// One state of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) len: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl State {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self {
            len: file.len(),
            inode: file.ino(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// As it is told.
    pub(crate) fn sum(&self) -> Sum {
        let (modified, changed) = (self.modified, self.changed);
        let times = [modified.0, modified.1, changed.0, changed.1].map(i64::cast_unsigned);
        let numbers = [self.len, self.inode].into_iter().chain(times);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        Sum::of(&bytes)
    }
}

/// The sums of files' stretches, each for one state of its file.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<String, (State, BTreeMap<u64, Sum>)>);

impl Known {
    /// The stretch that begins there has this sum, as long as the file is in this state.
    pub(crate) fn note(&mut self, name: &str, state: State, from: u64, sum: Sum) {
        let new = || (state, BTreeMap::new());
        let known = self.0.entry(name.to_owned()).or_insert_with(new);
        if known.0 != state {
            *known = new();
        }
        known.1.insert(from, sum);
    }

    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Forgets all other files than these.
    pub(crate) fn keep(&mut self, names: &HashSet<&str>) {
        self.0.retain(|name, _| names.contains(name.as_str()));
    }

    /// The sum of a file in this state, if all of it is known.
    pub(crate) fn file(&self, name: &str, state: &State) -> Option<Sum> {
        let (of, stretches) = self.0.get(name)?;
        let all = state.len.div_ceil(STRETCH_BYTES) == stretches.len() as u64;
        (of == state && all).then(|| Sum::over(stretches.values()))
    }
}
