//! The volumes of a server, changes of them, and what they are sent as.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::{Call, Done};
use rustix::io::Errno;
use std::path::Path;
use wire::{Blob, Dump, Make, Name, Op, Refusal, StreamChunk, VolumeInfo, VolumeOp};

/// Why a mount point was not made or removed.
#[derive(Debug)]
pub enum MountError {
    /// There is no way to the directory.
    Path(Error),
    /// The server refuses it.
    Refused(Refusal),
}

impl MountError {
    /// The reason in words, for a path.
    #[must_use]
    pub fn reason(&self, path: &Path) -> String {
        match self {
            Self::Path(error) => error.reason(),
            Self::Refused(refusal) => Error::refused(path, *refusal).reason(),
        }
    }
}

impl Tree {
    /// All volumes, with snapshots and with those whose deletion can be undone.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn volumes(&self) -> Result<Vec<VolumeInfo>> {
        let path = Path::new("/");
        match self.operate(path, Op::Volumes)? {
            Done::Volumes(volumes) => Ok(volumes),
            _ => Err(nonsense(path)),
        }
    }

    /// Changes a volume, and returns what it is then; nothing of one that is purged. `name` is said
    /// in errors.
    ///
    /// # Errors
    /// The server refuses it: the caller is not root, or there is no such volume, or one of that
    /// name is there already.
    pub fn change_volume(&self, name: &str, op: VolumeOp) -> Result<Option<VolumeInfo>> {
        let path = Path::new(name);
        match self.ask(Call::Op(Op::Volume(op)), &[]).done {
            Done::Volumes(mut volumes) => Ok(volumes.pop()),
            Done::Nothing => Ok(None),
            Done::Refused(refusal) => Err(Error::refused(path, refusal)),
            _ => Err(nonsense(path)),
        }
    }

    /// The same, with the reason why it was refused.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn try_volume(&self, op: VolumeOp) -> std::result::Result<Option<VolumeInfo>, Refusal> {
        match self.ask(Call::Op(Op::Volume(op)), &[]).done {
            Done::Volumes(mut volumes) => Ok(volumes.pop()),
            Done::Nothing => Ok(None),
            Done::Refused(refusal) => Err(refusal),
            _ => Err(Refusal::Invalid),
        }
    }

    /// Makes a mount point: programs that come to this path find the root of the volume, or the
    /// snapshot, of that name.
    ///
    /// # Errors
    /// The server refuses it: there is no such volume, something has the path, or the caller is
    /// neither root nor the owner of both the directory and the volume's root.
    pub fn mount_volume(&self, volume: &Name, path: &Path) -> std::result::Result<(), MountError> {
        self.make_mount(Make::Mount(volume.clone()), path)
    }

    /// Makes a mount point of a volume that another server of the cell has, by its number.
    ///
    /// # Errors
    /// The server refuses it: it has the numbers of that volume itself, something has the path, or
    /// the caller is not root.
    pub fn mount_elsewhere(&self, volume: u32, path: &Path) -> std::result::Result<(), MountError> {
        self.make_mount(Make::MountElsewhere(volume), path)
    }

    fn make_mount(&self, make: Make, path: &Path) -> std::result::Result<(), MountError> {
        const MODE: u32 = 0o755;
        let place = self.place(path, Errno::EXIST).map_err(MountError::Path)?;
        let (dir, name) = (place.dir.fid(), place.name);
        let op = Op::Make {
            dir,
            name,
            make,
            mode: MODE,
            open: None,
        };
        match self.ask(Call::Op(op), &[]).done {
            Done::Entry { fid, .. } => {
                self.client().forget(fid, 1);
                Ok(())
            }
            Done::Refused(refusal) => Err(MountError::Refused(refusal)),
            _ => Err(MountError::Path(nonsense(path))),
        }
    }

    /// Removes a mount point, and nothing of the volume behind it.
    ///
    /// # Errors
    /// The server refuses it: the path names no mount point, or the caller is neither root nor the
    /// owner of the directory, nor has made the mount point.
    pub fn unmount_volume(&self, path: &Path) -> std::result::Result<(), MountError> {
        let place = self.place(path, Errno::BUSY).map_err(MountError::Path)?;
        let (dir, name) = (place.dir.fid(), place.name);
        match self.ask(Call::Op(Op::Unmount { dir, name }), &[]).done {
            Done::Nothing => Ok(()),
            Done::Refused(refusal) => Err(MountError::Refused(refusal)),
            _ => Err(MountError::Path(nonsense(path))),
        }
    }

    /// A part of what a snapshot has, or of what changed since another one, from where an earlier
    /// part says on. `plan`: without the bytes of files.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn dump(
        &self,
        (of, since): (&Name, Option<&Name>),
        after: Option<Blob>,
        plan: bool,
    ) -> std::result::Result<Dump, Refusal> {
        let (of, since) = (of.clone(), since.cloned());
        let op = Op::Dump {
            of,
            since,
            after,
            plan,
        };
        match self.ask(Call::Op(op), &[]).done {
            Done::Dump(dump) => Ok(*dump),
            Done::Refused(refusal) => Err(refusal),
            _ => Err(Refusal::Invalid),
        }
    }

    /// The next part of a snapshot that is received, and what its sender needs to go on behind it.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn restore(
        &self,
        (volume, number): (u32, u64),
        after: Blob,
        chunk: StreamChunk,
    ) -> std::result::Result<(), Refusal> {
        let op = Op::Restore {
            volume,
            number,
            after,
            chunk,
        };
        match self.ask(Call::Op(op), &[]).done {
            Done::Nothing => Ok(()),
            Done::Refused(refusal) => Err(refusal),
            _ => Err(Refusal::Invalid),
        }
    }
}
