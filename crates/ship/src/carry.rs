//! One file in a round: what differs of it is carried, and read back.

use crate::ask::{Ask, Bytes, FileLine, PIECE_BYTES, PIECES, STRETCH_BYTES, STRETCH_PIECES};
use crate::ask::{Sum, Told};
use crate::error::ShipError;
use crate::sums::{Known, State, pieces};
use crate::target::{Round, Source};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The purpose of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The source is in use: the copy gets nearer to it.
    Nearer,
    /// The source is at rest: the copy becomes equal, or it is an error.
    Exact,
}

/// A round on its way through the files.
pub(crate) struct Pass<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) purpose: Purpose,
    pub(crate) to: &'a Path,
    pub(crate) known: &'a mut Known,
    pub(crate) on: &'a mut dyn FnMut(Round),
    pub(crate) round: Round,
}

/// A file that is open at the target.
struct Open<'a> {
    line: &'a FileLine,
    path: PathBuf,
    file: File,
}

/// Was the end of a file reached where the source had shown it?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    All,
    /// It has become longer or shorter, or is gone.
    Other,
}

impl Open<'_> {
    fn state(&self) -> Result<State, ShipError> {
        let found = self.file.metadata().map_err(self.io("look at"))?;
        Ok(State::of(&found))
    }

    fn io(&self, doing: &'static str) -> impl Fn(std::io::Error) -> ShipError {
        ShipError::of(doing, &self.path)
    }

    fn pieces(&self, from: u64) -> std::io::Result<Vec<Sum>> {
        let until = self.line.len.min(from.saturating_add(STRETCH_BYTES));
        Ok(pieces(&self.file, from, until)?.0)
    }

    /// The kernel forgets that a sync failed, and takes the bytes for synced next time.
    fn sync(&self) -> Result<(), ShipError> {
        self.file.sync_all().map_err(|error| {
            // If that fails, too, then the disk is one from which nobody reads this copy.
            let _ = fs::remove_file(&self.path);
            self.io("sync")(error)
        })
    }
}

fn changed(open: &Open<'_>) -> ShipError {
    ShipError::Changed(open.line.name.clone())
}

impl Pass<'_> {
    /// Brings one file nearer, or makes it equal.
    pub(crate) fn file(&mut self, line: &FileLine) -> Result<(), ShipError> {
        let path = self.to.join(&line.name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(ShipError::of("open", &path))?;
        let open = Open { line, path, file };
        if self.is_equal(&open)? {
            self.looked(line.len);
            return Ok(());
        }
        // A write within the same tick of the kernel's clock leaves the state as it was.
        self.known.forget(&line.name);
        if open.state()?.len > line.len {
            open.file.set_len(line.len).map_err(open.io("cut"))?;
        }
        let (mut sums, mut from) = (Vec::new(), 0);
        while from < line.len {
            let (sum, reached) = self.stretch(&open, from)?;
            sums.push((from, sum));
            self.looked(STRETCH_BYTES.min(line.len - from));
            if reached == Reached::Other {
                break;
            }
            from += STRETCH_BYTES;
        }
        self.keep(&open, sums)
    }

    /// Is the file the source's, by the sums of all of it?
    fn is_equal(&mut self, open: &Open<'_>) -> Result<bool, ShipError> {
        let (line, state) = (open.line, open.state()?);
        if line.sum.is_none() || state.len != line.len {
            return Ok(false);
        }
        if let Some(known) = self.known.file(&line.name, &state) {
            return Ok(Some(known) == line.sum);
        }
        let mut sums = Vec::new();
        for from in (0..line.len).step_by(STRETCH_BYTES as usize) {
            let stretch = open.pieces(from).map_err(open.io("read"))?;
            sums.push((from, Sum::over(&stretch)));
        }
        self.keep(open, sums)?;
        Ok(self.known.file(&line.name, &state) == line.sum)
    }

    /// Syncs the file, and remembers these sums of its bytes.
    fn keep(&mut self, open: &Open<'_>, sums: Vec<(u64, Sum)>) -> Result<(), ShipError> {
        open.sync()?;
        let state = open.state()?;
        if self.purpose == Purpose::Exact && state.len != open.line.len {
            return Err(changed(open));
        }
        for (from, sum) in sums {
            self.known.note(&open.line.name, state, from, sum);
        }
        Ok(())
    }

    fn looked(&mut self, bytes: u64) {
        self.round.looked_bytes += bytes;
        (self.on)(self.round);
    }

    /// Compares a stretch and carries those of its pieces that differ. Returns the sum of what is
    /// here then.
    fn stretch(&mut self, open: &Open<'_>, from: u64) -> Result<(Sum, Reached), ShipError> {
        let (mut ours, theirs) = self.sums(open, from)?;
        let wanted = (open.line.len - from).div_ceil(PIECE_BYTES);
        let wanted = wanted.min(STRETCH_PIECES) as usize;
        let mut reached = self.reached(theirs.len() == wanted, open)?;
        let theirs = &theirs[..wanted.min(theirs.len())];
        let differ = |at: &usize| ours.get(*at) != Some(&theirs[*at]);
        let differing: Vec<usize> = (0..theirs.len()).filter(differ).collect();
        for some in differing.chunks(PIECES) {
            let first = from / PIECE_BYTES;
            let carried = self.carry(open, some.iter().map(|at| first + *at as u64).collect())?;
            let all = carried.len() == some.len();
            for (at, sum) in some.iter().zip(carried) {
                if self.purpose == Purpose::Exact && sum != theirs[*at] {
                    return Err(changed(open));
                }
                // The pieces that were not here are the last ones, and come in their order.
                match ours.get_mut(*at) {
                    Some(ours) => *ours = sum,
                    None => ours.push(sum),
                }
            }
            if !all {
                reached = self.reached(false, open)?;
                break;
            }
        }
        Ok((Sum::over(&ours), reached))
    }

    /// A source at rest has all of a file, and no more.
    fn reached(&self, all: bool, open: &Open<'_>) -> Result<Reached, ShipError> {
        match (all, self.purpose) {
            (true, _) => Ok(Reached::All),
            (false, Purpose::Nearer) => Ok(Reached::Other),
            (false, Purpose::Exact) => Err(changed(open)),
        }
    }

    /// The sums of a stretch's pieces, here and there: both sides read at the same time.
    fn sums(&self, open: &Open<'_>, from: u64) -> Result<(Vec<Sum>, Vec<Sum>), ShipError> {
        let file = open.line.name.clone();
        let (ours, told) = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().name("ship".into());
            let reader = reader.spawn_scoped(scope, || open.pieces(from));
            let told = self.source.ask(&Ask::Sums { file, from });
            let joined = |reader: std::thread::ScopedJoinHandle<'_, _>| {
                reader
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (reader.and_then(joined), told)
        });
        let theirs = match told.map_err(ShipError::Source)? {
            Told::Sums(sums) if sums.len() as u64 <= STRETCH_PIECES => sums,
            Told::Gone => Vec::new(),
            _ => return Err(ShipError::Strange("with no sums, or too many")),
        };
        Ok((ours.map_err(open.io("read"))?, theirs))
    }

    /// Carries these pieces, or as many of them as the source still has. Returns the sums of the
    /// bytes that are here in their places then.
    fn carry(&mut self, open: &Open<'_>, pieces: Vec<u64>) -> Result<Vec<Sum>, ShipError> {
        let file = open.line.name.clone();
        let ask = Ask::Bytes {
            file,
            pieces: pieces.clone(),
        };
        let most = pieces.len() * PIECE_BYTES as usize;
        let bytes = match self.source.ask(&ask).map_err(ShipError::Source)? {
            Told::Bytes(Bytes(bytes)) if bytes.len() <= most => bytes,
            Told::Gone => Vec::new(),
            _ => return Err(ShipError::Strange("with no bytes, or too many")),
        };
        let mut sums = Vec::new();
        for (piece, bytes) in pieces.iter().zip(bytes.chunks(PIECE_BYTES as usize)) {
            let offset = piece * PIECE_BYTES;
            // A file that has grown is copied as it was shown.
            let bytes = &bytes[..bytes.len().min((open.line.len - offset) as usize)];
            let written = open.file.write_all_at(bytes, offset);
            written.map_err(open.io("write"))?;
            self.round.carried_bytes += bytes.len() as u64;
            let until = open.line.len.min(offset + PIECE_BYTES);
            let read = crate::sums::pieces(&open.file, offset, until);
            sums.extend(read.map_err(open.io("read"))?.0);
        }
        Ok(sums)
    }
}
