//! Making and removing mount points.

use super::Applied;
use super::attrs::is_owner;
use super::entries::{find, remove};
use super::volumes;
use crate::txn::Txn;
use crate::value::Object;
use wire::{Fid, Kind, Name, Refusal};

/// The number of the volume that a new mount point in this directory leads to. The caller is a
/// superuser, or owns both: the name in the tree, and what is to be seen under it.
pub(super) fn leads_to(txn: &Txn<'_>, parent: &Object, volume: &Name) -> Result<u32, Refusal> {
    let (id, _) = volumes::find(txn, volume)?;
    let root = txn.object(Fid::root(id))?;
    match is_owner(txn, parent) && is_owner(txn, &root) {
        true => Ok(id),
        false => Err(Refusal::NotPermitted),
    }
}

/// Removes one, whatever has become of its volume.
pub(super) fn unmount(txn: &mut Txn<'_>, dir: Fid, name: &Name) -> Applied {
    let (parent, entry, mount) = find(txn, dir, name)?;
    if entry.kind != Kind::Mount {
        return Err(Refusal::Invalid);
    }
    if !is_owner(txn, &parent) && !is_owner(txn, &mount) {
        return Err(Refusal::NotPermitted);
    }
    remove(txn, dir, name, &entry)
}
