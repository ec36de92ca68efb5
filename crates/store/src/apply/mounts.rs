//! Making and removing mount points.

use super::Applied;
use super::attrs::is_owner;
use super::entries::{find, remove};
use super::volumes;
use crate::txn::Txn;
use crate::value::Object;
use wire::{Fid, Kind, Name, Refusal, volume_numbers};

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

/// The number of a volume that another store of the cell has, for a new mount point. Only a
/// superuser may make it: nobody here knows who owns the volume's root.
pub(super) fn leads_elsewhere(txn: &Txn<'_>, volume: u32) -> Result<u32, Refusal> {
    let own = volume_numbers::store(txn.index.counters.volume);
    if txn.context.caller.uid != 0 {
        return Err(Refusal::NotPermitted);
    }
    match volume_numbers::store(volume) == own {
        true => Err(Refusal::NotFound),
        false => Ok(volume),
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
