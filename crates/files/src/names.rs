//! Names: made, removed, moved, linked.

use crate::attrs::Metadata;
use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::Done;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use wire::{Kind, Make, Op, limits};

/// The fate of an object that has the new name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// It loses the name.
    #[default]
    Replace,
    /// The renaming is refused (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two change names (`RENAME_EXCHANGE`).
    Exchange,
}

/// A FIFO, a socket's name or a device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Which of them.
    pub kind: Kind,
    /// Device number, as in `st_rdev`; 0 for all but devices.
    pub rdev: u32,
}

impl Tree {
    /// Makes a directory.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir(&self, path: impl AsRef<Path>, mode: u32) -> Result<Metadata> {
        self.make(path.as_ref(), Make::Directory, mode)
    }

    /// Makes a directory, and those above it that are missing.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create_dir_all(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = path.as_ref();
        let made = self.create_dir(path, mode);
        match made {
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                let there = self.metadata(path).is_ok_and(|found| found.is_dir());
                return if there { Ok(()) } else { Err(error) };
            }
            Ok(_) => return Ok(()),
        }
        match path.parent() {
            Some(above) if above != path => self.create_dir_all(above, mode)?,
            _ => {}
        }
        match self.create_dir(path, mode) {
            Err(_) if self.metadata(path).is_ok_and(|found| found.is_dir()) => Ok(()),
            made => made.map(|_| ()),
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let (target, path) = (target.as_ref().as_os_str().as_bytes(), path.as_ref());
        if target.is_empty() {
            return Err(Error::errno(path, Errno::NOENT));
        }
        if target.len() > limits::TARGET_BYTES {
            return Err(Error::errno(path, Errno::NAMETOOLONG));
        }
        self.make(path, Make::Symlink(target.to_vec()), 0o777)?;
        Ok(())
    }

    /// Makes a FIFO, a socket's name or a device's.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn create_device(
        &self,
        path: impl AsRef<Path>,
        Device { kind, rdev }: Device,
        mode: u32,
    ) -> Result<()> {
        self.make(path.as_ref(), Make::Node { kind, rdev }, mode)?;
        Ok(())
    }

    fn make(&self, path: &Path, make: Make, mode: u32) -> Result<Metadata> {
        let place = self.place(path, Errno::EXIST)?;
        if place.slash && make != Make::Directory {
            return Err(Error::errno(path, Errno::NOENT));
        }
        let op = Op::Make {
            dir: place.dir.fid(),
            name: place.name,
            make,
            mode: self.new_mode(mode),
            open: None,
        };
        let found = self.operate_on(path, op)?;
        let (fid, attr) = (found.object.fid(), found.attr);
        Ok(Metadata { fid, attr })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As readlink(2).
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let found = self.find(path, false)?;
        if found.attr.kind != Kind::Symlink {
            return Err(Error::errno(path, Errno::INVAL));
        }
        let fid = found.object.fid();
        match self.operate(path, Op::ReadLink { fid })? {
            Done::Bytes(target) => Ok(PathBuf::from(std::ffi::OsString::from_vec(target))),
            _ => Err(nonsense(path)),
        }
    }

    /// Gives an object another name.
    ///
    /// # Errors
    /// As link(2).
    pub fn hard_link(&self, path: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        let (path, new) = (path.as_ref(), new.as_ref());
        let found = self.find(path, false)?;
        if found.attr.kind == Kind::Directory {
            return Err(Error::errno(path, Errno::PERM));
        }
        let place = self.place(new, Errno::EXIST)?;
        let op = Op::Link {
            fid: found.object.fid(),
            dir: place.dir.fid(),
            name: place.name,
        };
        self.operate_on(new, op)?;
        Ok(())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let place = self.place(path, Errno::ISDIR)?;
        if place.slash {
            let found = self.look_up(path, &place)?;
            let is_dir = found.attr.kind == Kind::Directory;
            let errno = if is_dir { Errno::ISDIR } else { Errno::NOTDIR };
            return Err(Error::errno(path, errno));
        }
        let (dir, name) = (place.dir.fid(), place.name);
        self.operate(path, Op::Unlink { dir, name })?;
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let refusal = match path.as_os_str().as_bytes().ends_with(b".") {
            true => Errno::INVAL,
            false => Errno::BUSY,
        };
        let place = self.place(path, refusal)?;
        let (dir, name) = (place.dir.fid(), place.name);
        self.operate(path, Op::Rmdir { dir, name })?;
        Ok(())
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(
        &self,
        path: impl AsRef<Path>,
        new: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (path, new) = (path.as_ref(), new.as_ref());
        let from = self.place(path, Errno::BUSY)?;
        let to = self.place(new, Errno::BUSY)?;
        if (from.slash || to.slash) && self.look_up(path, &from)?.attr.kind != Kind::Directory {
            return Err(Error::errno(path, Errno::NOTDIR));
        }
        let op = Op::Rename {
            from: from.dir.fid(),
            name: from.name,
            to: to.dir.fid(),
            new: to.name,
            no_replace: mode == RenameMode::NoReplace,
            exchange: mode == RenameMode::Exchange,
        };
        self.operate(path, op)?;
        Ok(())
    }

    /// Do two paths lead to one object? Symbolic links in the last place are not followed.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn is_same(&self, one: impl AsRef<Path>, other: impl AsRef<Path>) -> Result<bool> {
        let one = self.symlink_metadata(one)?;
        let other = self.symlink_metadata(other)?;
        Ok(one.fid == other.fid)
    }
}

/// A name of a listing as a path.
pub(crate) fn os_name(name: &wire::Name) -> std::ffi::OsString {
    OsStr::from_bytes(name.as_bytes()).to_owned()
}
