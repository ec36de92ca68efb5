//! The volumes of a server, and changes of them.

use crate::error::{Error, Result};
use crate::tree::{Tree, nonsense};
use client::front::{Call, Done};
use std::path::Path;
use wire::{Op, VolumeInfo, VolumeOp};

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
}
