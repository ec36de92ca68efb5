//! The side of the target: its directory, which rounds make equal to the source's.

use crate::ask::{Ask, EXCLUDED, FILES, FileLine, Told, is_plain};
use crate::carry::{Pass, Purpose};
use crate::error::ShipError;
use crate::sums::Known;
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most files of a directory: a source that names more is not believed.
const FILES_IN_ALL: usize = 1 << 20;

/// The way to a source.
pub trait Source {
    /// Asks it. The error says why there is no answer.
    fn ask(&self, ask: &Ask) -> Result<Told, String>;
}

/// How far a round is, or was when it returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Bytes that were different, and were carried.
    pub carried_bytes: u64,
    /// Bytes of the source's files that the round has been through, carried or found equal,
    pub looked_bytes: u64,
    /// of so many that the files had when it began.
    pub of_bytes: u64,
}

/// A copy.
#[derive(Debug)]
pub struct Target {
    to: PathBuf,
    /// Of files that are synced.
    known: Known,
}

/// A source's directory, in the order of names.
type Lines = Vec<FileLine>;

impl Target {
    /// The copy in this directory, which is made if it is not there. All other files in it go with
    /// the first round.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(to: &Path) -> Result<Self, ShipError> {
        let io = ShipError::of("make the directory", to);
        fs::create_dir_all(parent(to)).map_err(&io)?;
        match DirBuilder::new().mode(0o700).create(to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(&io)?,
        }
        let (to, known) = (to.to_owned(), Known::default());
        Ok(Self { to, known })
    }

    /// Brings the copy nearer to a source that may be in use. `on` is told how far it is.
    ///
    /// # Errors
    /// The source does not answer, or not as it must; or the copy cannot be written.
    pub fn round(
        &mut self,
        source: &dyn Source,
        on: &mut dyn FnMut(Round),
    ) -> Result<Round, ShipError> {
        let lines = list(source)?;
        self.pass((source, Purpose::Nearer), &lines, on)
    }

    /// Makes the copy equal to a source that is at rest, and puts it on stable storage.
    ///
    /// # Errors
    /// As of a round; or the source has changed meanwhile.
    pub fn last_round(
        &mut self,
        source: &dyn Source,
        on: &mut dyn FnMut(Round),
    ) -> Result<Round, ShipError> {
        let lines = list(source)?;
        let round = self.pass((source, Purpose::Exact), &lines, on)?;
        for dir in [&self.to, parent(&self.to)] {
            let synced = File::open(dir).and_then(|dir| dir.sync_all());
            synced.map_err(ShipError::of("sync the directory", dir))?;
        }
        unchanged(&lines, &list(source)?)?;
        Ok(round)
    }

    fn pass(
        &mut self,
        (source, purpose): (&dyn Source, Purpose),
        lines: &[FileLine],
        on: &mut dyn FnMut(Round),
    ) -> Result<Round, ShipError> {
        let names: HashSet<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        self.known.keep(&names);
        self.clear(&names)?;
        self.check_room(lines)?;
        let of_bytes = lines.iter().map(|line| line.len).sum();
        let mut pass = Pass {
            source,
            purpose,
            to: &self.to,
            known: &mut self.known,
            on,
            round: Round {
                of_bytes,
                ..Round::default()
            },
        };
        for line in lines {
            pass.file(line)?;
        }
        Ok(pass.round)
    }

    /// Removes everything but these plain files and directories.
    fn clear(&self, names: &HashSet<&str>) -> Result<(), ShipError> {
        let io = ShipError::of("read the directory", &self.to);
        for entry in fs::read_dir(&self.to).map_err(&io)? {
            let entry = entry.map_err(&io)?;
            let (name, kind) = (entry.file_name(), entry.file_type().map_err(&io)?);
            let excluded = EXCLUDED.iter().any(|excluded| name == *excluded);
            let wanted = name.to_str().is_some_and(|name| names.contains(name)) && kind.is_file();
            if !excluded && !wanted && !kind.is_dir() {
                let path = entry.path();
                fs::remove_file(&path).map_err(ShipError::of("remove", &path))?;
            }
        }
        Ok(())
    }

    /// A disk that will be too full is found before it is: others may need the room there.
    fn check_room(&self, lines: &[FileLine]) -> Result<(), ShipError> {
        let mut needs = 0_u64;
        for line in lines {
            let path = self.to.join(&line.name);
            let has = match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                file => file.map_err(ShipError::of("look at", &path))?.len(),
            };
            needs = needs.saturating_add(line.len.saturating_sub(has));
        }
        let disk = rustix::fs::statvfs(&self.to).map_err(Into::into);
        let disk = disk.map_err(ShipError::of("ask for the free room of", &self.to))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if needs > free {
            let to = self.to.clone();
            return Err(ShipError::Room { to, needs, free });
        }
        Ok(())
    }
}

/// The directory that a path's last name is in.
fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// All of a source's files.
fn list(source: &dyn Source) -> Result<Lines, ShipError> {
    let (mut lines, mut bytes) = (Lines::new(), 0_u64);
    loop {
        let last: Option<&FileLine> = lines.last();
        let after = last.map_or_else(String::new, |line| line.name.clone());
        let ask = Ask::Files { after };
        let Told::Files(more) = source.ask(&ask).map_err(ShipError::Source)? else {
            return Err(ShipError::Strange("no list of files"));
        };
        if more.is_empty() {
            return Ok(lines);
        }
        if more.len() > FILES || lines.len() + more.len() > FILES_IN_ALL {
            return Err(ShipError::Strange("with too many files"));
        }
        for line in more {
            if !is_plain(&line.name) {
                return Err(ShipError::Strange("with a name that no file may have"));
            }
            if lines.last().is_some_and(|last| last.name >= line.name) {
                return Err(ShipError::Strange("with files out of their order"));
            }
            let sum = bytes.checked_add(line.len);
            bytes = sum.ok_or(ShipError::Strange("with files that no disk holds"))?;
            lines.push(line);
        }
    }
}

/// A source at rest shows the same files in the same states, before and after.
fn unchanged(before: &Lines, after: &Lines) -> Result<(), ShipError> {
    let states = |lines: &Lines| -> HashSet<(String, [u8; 16])> {
        let state = |line: &FileLine| (line.name.clone(), line.state.0);
        lines.iter().map(state).collect()
    };
    let (before, after) = (states(before), states(after));
    match before.symmetric_difference(&after).next() {
        Some((name, _)) => Err(ShipError::Changed(name.clone())),
        None => Ok(()),
    }
}
