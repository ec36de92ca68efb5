//! The volumes of a server, changes of them, and what they are sent as.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::{Call, Done};
use std::path::Path;
use wire::{Blob, Dump, Name, Op, Refusal, StreamChunk, VolumeInfo, VolumeOp};

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
