//! The operations on names. Half of the groups have their names in two directories, so that a
//! rename goes from the one to the other.

use crate::files::{Files, Trouble, Way, happened};
use crate::history::{Action, Moved};
use crate::plan::{Abilities, NAMES};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::fs::{fsync, linkat, mkdirat, openat, readlinkat, renameat, renameat_with, statat};
use rustix::fs::{symlinkat, unlinkat};
use rustix::io::{Errno, read, write};
use std::os::fd::OwnedFd;

/// The kind of a group's names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They say what they stand for, and are made with it in one step.
    Symlink,
    /// Made exclusively by `open`; one is like the other.
    File,
    /// One is like the other.
    Dir,
    /// Files that say what they are; made under a name of one's own, and linked to the name.
    Linked,
}

impl Kind {
    fn of(group: u32, can: Abilities) -> Kind {
        match group % 4 {
            0 if can.symlinks => Kind::Symlink,
            2 => Kind::Dir,
            3 if can.links => Kind::Linked,
            _ => Kind::File,
        }
    }

    /// Can one be told from another?
    fn has_identity(self) -> bool {
        matches!(self, Kind::Symlink | Kind::Linked)
    }
}

/// The number that stands for an object made in a group: an id, or that there is one.
pub(crate) fn identity(group: u32, can: Abilities, id: u64) -> u64 {
    if Kind::of(group, can).has_identity() {
        id
    } else {
        1
    }
}

/// The directories of a group.
pub(crate) fn directories(group: u32) -> Vec<String> {
    let mut all = vec![format!("d{group}")];
    if !group.is_multiple_of(2) {
        all.push(format!("e{group}"));
    }
    all
}

fn path(group: u32, name: u8) -> String {
    let all = directories(group);
    format!("{}/n{name}", all[usize::from(name) % all.len()])
}

impl Files {
    pub(crate) fn name(
        &mut self,
        group: u32,
        action: &Action,
        way: Way,
    ) -> Result<Action, Trouble> {
        let kind = Kind::of(group, way.can);
        let path = |name: u8| path(group, name);
        let outcome = match *action {
            Action::Create { name, id, .. } => {
                let done = happened(self.create(&path(name), id, kind), Errno::EXIST)?;
                let id = identity(group, way.can, id);
                Action::Create { name, id, done }
            }
            Action::Remove { name, .. } => {
                let flags = match kind {
                    Kind::Dir => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                let done = happened(unlinkat(&self.base, path(name), flags), Errno::NOENT)?;
                Action::Remove { name, done }
            }
            Action::Rename { from, to, .. } => {
                let renamed = renameat(&self.base, path(from), &self.base, path(to));
                let done = happened(renamed, Errno::NOENT)?;
                Action::Rename { from, to, done }
            }
            Action::Move { from, to, .. } => {
                let moved = self.rename_with(&path(from), &path(to), RenameFlags::NOREPLACE);
                let moved = match moved {
                    Ok(()) => Moved::Done,
                    Err(Errno::NOENT) => Moved::Missing,
                    Err(Errno::EXIST) => Moved::Taken,
                    Err(error) => return Err(error.into()),
                };
                Action::Move { from, to, moved }
            }
            Action::Exchange { from, to, .. } => {
                let done = self.rename_with(&path(from), &path(to), RenameFlags::EXCHANGE);
                let done = happened(done, Errno::NOENT)?;
                Action::Exchange { from, to, done }
            }
            Action::Look { name, .. } => {
                let found = self.look(&path(name), kind, way)?;
                Action::Look { name, found }
            }
            _ => return Err(Trouble::Wrong(format!("{action}: not for a directory"))),
        };
        if self.sync && !outcome.observes() {
            for dir in directories(group) {
                fsync(self.directory(&dir)?)?;
            }
        }
        Ok(outcome)
    }

    fn rename_with(&self, from: &str, to: &str, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(&self.base, from, &self.base, to, flags)
    }

    fn create(&self, path: &str, id: u64, kind: Kind) -> Result<(), Errno> {
        match kind {
            Kind::Symlink => symlinkat(id.to_string(), &self.base, path),
            Kind::File => self.make(path).map(drop),
            Kind::Dir => mkdirat(&self.base, path, Mode::from_raw_mode(0o755)),
            Kind::Linked => {
                let own = self.own.as_str();
                // One may be left of an attempt that failed.
                happened(unlinkat(&self.base, own, AtFlags::empty()), Errno::NOENT)?;
                let file = self.make(own)?;
                write(&file, id.to_string().as_bytes())?;
                self.durable(&file)?;
                linkat(&self.base, own, &self.base, path, AtFlags::empty())
            }
        }
    }

    fn look(&self, path: &str, kind: Kind, way: Way) -> Result<Option<u64>, Trouble> {
        let said = match kind {
            Kind::Symlink => readlinkat(&self.base, path, Vec::new()).map(|to| to.into_bytes()),
            Kind::Linked => self.content(path),
            Kind::File | Kind::Dir => {
                let looked = if way.choice.is_multiple_of(2) {
                    statat(&self.base, path, AtFlags::SYMLINK_NOFOLLOW).map(drop)
                } else {
                    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                    openat(&self.base, path, flags, Mode::empty()).map(drop)
                };
                return Ok(happened(looked, Errno::NOENT)?.then_some(1));
            }
        };
        match said {
            Ok(said) => match String::from_utf8_lossy(&said).parse() {
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(Trouble::Wrong(format!("{path} says {said:?}"))),
            },
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The content of a file, which was written before it got its name.
    fn content(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.base, path, flags, Mode::empty())?;
        let mut bytes = vec![0; 32];
        let length = read(&file, &mut bytes[..])?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn directory(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&self.base, name, flags, Mode::empty())
    }

    /// One action for each name: whether it is listed.
    pub(crate) fn list(&self, group: u32) -> Result<Vec<Action>, Errno> {
        let mut present = [false; NAMES as usize];
        for dir in directories(group) {
            for entry in Dir::new(self.directory(&dir)?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                for (n, present) in present.iter_mut().enumerate() {
                    *present |= name == format!("n{n}").as_bytes();
                }
            }
        }
        let listed = |(name, present)| Action::Listed { name, present };
        Ok((0..NAMES).zip(present).map(listed).collect())
    }
}
