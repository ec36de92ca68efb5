//! The side of the source: answers about a directory, from the directory alone.
//!
//! Guarantees: nothing is written. No file is opened but a plain one of the directory itself. An
//! answer reads no more than a stretch. Threads may ask at once: the lock is held for the table of
//! known sums only, never while a file is read.

use crate::ask::{Ask, Bytes, EXCLUDED, FILES, FileLine, Told};
use crate::ask::{PIECE_BYTES, PIECES, STRETCH_BYTES, Sum, is_plain};
use crate::sums::{Known, State, fill, pieces};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files whose names begin so only grow, or are replaced: the segments of a store's log, and the
/// images of its index.
pub const GROWING: [&str; 2] = ["log-", "image-"];

/// Answers the questions of targets about one directory.
#[derive(Debug)]
pub struct Answerer {
    dir: PathBuf,
    /// Of files that only grow.
    known: Mutex<Known>,
    /// Bytes of files read for sums.
    summed_bytes: AtomicU64,
}

fn refused(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

fn about(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// `None`: there is none, or no more.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

impl Answerer {
    /// Of this directory, which may be in use.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            known: Mutex::default(),
            summed_bytes: AtomicU64::new(0),
        }
    }

    /// The bytes of files that were read for sums so far.
    pub fn summed_bytes(&self) -> u64 {
        self.summed_bytes.load(Ordering::Relaxed)
    }

    /// The answer.
    ///
    /// # Errors
    /// The question names no file of the directory or asks for too much, or something there cannot
    /// be read.
    pub fn answer(&self, ask: &Ask) -> io::Result<Told> {
        match ask {
            Ask::Files { after } => self.files(after),
            Ask::Sums { file, from } => self.of(file, |open| self.sums(open, file, *from)),
            Ask::Bytes { file, pieces } => self.of(file, |open| bytes(open, pieces)),
        }
    }

    fn of(&self, name: &str, told: impl Fn(&File) -> io::Result<Told>) -> io::Result<Told> {
        match self.open(name)? {
            Some(file) => told(&file).map_err(about(&self.dir.join(name))),
            None => Ok(Told::Gone),
        }
    }

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        if !is_plain(name) {
            return Err(refused(format!("{name:?} is no name of a file to copy")));
        }
        let path = self.dir.join(name);
        // Neither is a link followed nor a pipe waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&path);
        let Some(file) = found(opened).map_err(about(&path))? else {
            return Ok(None);
        };
        if !file.metadata()?.is_file() {
            return Err(refused(format!("{} is no plain file", path.display())));
        }
        Ok(Some(file))
    }

    fn files(&self, after: &str) -> io::Result<Told> {
        let mut files = self.list().map_err(about(&self.dir))?;
        files.sort_by(|one, other| one.0.cmp(&other.0));
        // A directory that changes while it is read may show a file twice.
        files.dedup_by(|one, other| one.0 == other.0);
        let mut known = self.known.lock();
        let names: HashSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        known.keep(&names);
        let behind = files.iter().filter(|(name, _)| name.as_str() > after);
        let line = |(name, state): &(String, State)| FileLine {
            name: name.clone(),
            len: state.len,
            state: state.sum(),
            sum: known.file(name, state),
        };
        Ok(Told::Files(behind.take(FILES).map(line).collect()))
    }

    /// All files that are to be copied. Directories are not, such as the `lost+found` of a disk;
    /// without anything else a copy would not be whole.
    fn list(&self) -> io::Result<Vec<(String, State)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let Some(file) = found(entry.metadata())? else {
                continue;
            };
            let name = entry.file_name();
            if file.is_dir() || EXCLUDED.iter().any(|excluded| name == *excluded) {
                continue;
            }
            let named = name.to_str().filter(|name| is_plain(name));
            match named {
                Some(name) if file.is_file() => files.push((name.to_owned(), State::of(&file))),
                _ => {
                    let what = "cannot be copied: put a plain file in its place, or remove it";
                    return Err(refused(format!("{name:?} {what}")));
                }
            }
        }
        Ok(files)
    }

    fn sums(&self, file: &File, name: &str, from: u64) -> io::Result<Told> {
        let until = from.checked_add(STRETCH_BYTES);
        let Some(until) = until.filter(|_| from.is_multiple_of(STRETCH_BYTES)) else {
            return Err(refused(format!("no stretch begins at {from}")));
        };
        let before = State::of(&file.metadata()?);
        let (sums, read) = pieces(file, from, until)?;
        self.summed_bytes.fetch_add(read, Ordering::Relaxed);
        let grows = GROWING.iter().any(|start| name.starts_with(start));
        if grows && read > 0 && before == State::of(&file.metadata()?) {
            self.known.lock().note(name, before, from, Sum::over(&sums));
        }
        Ok(Told::Sums(sums))
    }
}

fn bytes(file: &File, pieces: &[u64]) -> io::Result<Told> {
    if pieces.len() > PIECES || !pieces.is_sorted_by(|one, next| one < next) {
        return Err(refused("too many pieces, or not in their order".into()));
    }
    let mut bytes = vec![0; pieces.len() * PIECE_BYTES as usize];
    let mut filled = 0;
    for (piece, into) in pieces.iter().zip(bytes.chunks_mut(PIECE_BYTES as usize)) {
        let offset = piece.checked_mul(PIECE_BYTES);
        let offset = offset.ok_or_else(|| refused(format!("no file has a piece {piece}")))?;
        let read = fill(file, offset, into)?;
        filled += read;
        if read < into.len() {
            break;
        }
    }
    bytes.truncate(filled);
    Ok(Told::Bytes(Bytes(bytes)))
}
