//! The names of an object that is no directory: the one that is noted with it, and under keys of
//! their own the further ones. So the ways to an object are known, whichever of its names go.

use crate::key::{self, Key};
use crate::txn::{Txn, trouble};
use crate::value::Object;
use wire::{Fid, Kind, Refusal};

/// Where a name is: its directory, and its position there.
pub(crate) type Spot = (Fid, u64);

/// Is this the name that is noted with the object?
pub(super) fn is_noted(object: &Object, (dir, position): Spot) -> bool {
    object.parent == dir.vnode && object.home == position
}

fn note(object: &mut Object, (dir, position): Spot) {
    (object.parent, object.home) = (dir.vnode, position);
}

/// It has got a name.
pub(super) fn add(txn: &mut Txn<'_>, (fid, object): (Fid, &mut Object), at: Spot) {
    if object.parent == at.0.vnode && object.home == 0 {
        note(object, at);
    } else if object.attr.kind != Kind::Directory {
        txn.put(key::link(fid, at), Vec::new());
    }
}

/// It has lost a name; its links are counted already. The name that is noted is another one of its
/// names, as long as it has any, and then the last.
pub(super) fn drop(
    txn: &mut Txn<'_>,
    (fid, object): (Fid, &mut Object),
    at: Spot,
) -> Result<(), Refusal> {
    let noted = is_noted(object, at);
    if !noted {
        txn.remove(key::link(fid, at));
    }
    if object.attr.nlink == 0 {
        note(object, at);
        return Ok(());
    }
    if noted && let Some(other) = another(txn, fid, at.0)? {
        txn.remove(key::link(fid, other));
        note(object, other);
    }
    Ok(())
}

/// One of its names goes from one place to another one.
pub(super) fn shift(
    txn: &mut Txn<'_>,
    (fid, object): (Fid, &mut Object),
    (old, new): (Spot, Spot),
) {
    if object.attr.kind == Kind::Directory || is_noted(object, old) {
        return note(object, new);
    }
    txn.remove(key::link(fid, old));
    txn.put(key::link(fid, new), Vec::new());
}

/// A further name as it was before this operation: one in this directory, if there is any.
fn another(txn: &Txn<'_>, fid: Fid, dir: Fid) -> Result<Option<Spot>, Refusal> {
    let (all, end) = key::range(fid, key::LINK);
    let (here, _) = key::range_from(fid, key::LINK, &dir.vnode.to_be_bytes());
    let first = |from: &Key| {
        let found = txn.index.scan(from, &end, 1).map_err(trouble)?;
        let spot = found.first().and_then(|(key, _)| key::parts(key)?.spot());
        Ok::<_, Refusal>(spot)
    };
    match first(&here)? {
        Some(spot) if spot.0 == dir => Ok(Some(spot)),
        _ => first(&all),
    }
}
