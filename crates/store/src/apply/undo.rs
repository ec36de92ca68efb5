//! Undoing what was changed in a volume since a snapshot of it, where another snapshot is received
//! that follows that one.
//!
//! The index lists the changed things by births; under the birth of the received snapshot each of
//! them gets its value in the older snapshot. A portion at a time, so that nobody waits for long.

use crate::key;
use crate::provenance::Undo;
use crate::txn::{Txn, trouble};
use crate::value::{self, Extent, Object, Placed};
use crate::versions::Version;
use crate::volumes::Lineage;
use wire::{Fid, Refusal};

/// Most things that are looked at in one portion.
const PORTION: u32 = 4096;

/// Does a portion.
pub(super) fn undo(txn: &mut Txn<'_>, volume: u32, things: u32) -> Result<u32, Refusal> {
    let portion = things.clamp(1, PORTION) as usize;
    let volumes = &txn.index.volumes;
    let mut snapshot = volumes.get(volume).cloned().ok_or(Refusal::NotFound)?;
    let Some(half) = snapshot.copied.half.as_mut() else {
        return Err(Refusal::NotFound);
    };
    let Some(Undo { first, last, from }) = half.undo.clone() else {
        return Err(Refusal::Invalid);
    };
    let mut lineage = volumes.trace(volume);
    let own = lineage.first_mut().ok_or(Refusal::NotFound)?;
    let of = own.0;
    own.1 = first - 1;
    let born = txn
        .index
        .born(of, (first, last), &from, portion)
        .map_err(trouble)?;
    half.undo = match born.len() < portion {
        true => None,
        false => born.last().map(|last_thing| Undo {
            first,
            last,
            from: key::behind(last_thing),
        }),
    };
    half.receiving.undoing = half.undo.is_some();
    for thing in born {
        put_back(txn, volume, &lineage, &thing)?;
    }
    txn.changes.volumes.push((volume, Some(snapshot)));
    Ok(volume)
}

fn before(txn: &Txn<'_>, lineage: &Lineage, thing: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
    match txn.index.newest(lineage, thing).map_err(trouble)? {
        Some(Version::Present(value)) => Ok(Some(value)),
        _ => Ok(None),
    }
}

/// A thing becomes what it was.
fn put_back(
    txn: &mut Txn<'_>,
    volume: u32,
    lineage: &Lineage,
    thing: &[u8],
) -> Result<(), Refusal> {
    let key = key::plain(volume, thing);
    let old = before(txn, lineage, thing)?;
    let parts = key::parts(&key).ok_or(Refusal::Damaged)?;
    let (kind, vnode) = (parts.kind, parts.vnode);
    let fid = Fid {
        vnode,
        ..Fid::root(volume)
    };
    match kind {
        key::OBJECT => {
            let now = txn.index.object(fid).map_err(trouble)?;
            let old: Option<Object> = match old {
                Some(bytes) => Some(value::decode(&bytes).ok_or(Refusal::Damaged)?),
                None => None,
            };
            let old = old.map(|mut old| {
                let newer = now.map_or(0, |now| now.attr.version + 1);
                old.attr.version = old.attr.version.max(newer);
                old
            });
            // Whether it had a name follows from itself, and is listed by itself.
            let orphan = key::orphan(fid);
            let listed = before(txn, lineage, key::thing(&orphan))?;
            txn.changes.puts.insert(orphan, listed);
            txn.changes.objects.push((fid, old));
            return Ok(());
        }
        key::POSITION => {
            // Names have what their positions say: that of now, and that of then.
            let now = txn.get(&key)?;
            for placed in [&now, &old].into_iter().flatten() {
                let placed: Placed = value::decode(placed).ok_or(Refusal::Damaged)?;
                let name = key::name(fid, placed.name.as_bytes());
                let value = before(txn, lineage, key::thing(&name))?;
                txn.changes.puts.insert(name, value);
            }
        }
        key::EXTENT => {
            let extent = old.as_deref().map(Extent::decode);
            if let Some(extent) = extent {
                let extent = extent.ok_or(Refusal::Damaged)?;
                txn.count_live(&extent, 1);
            }
        }
        _ => {}
    }
    txn.changes.puts.insert(key, old);
    Ok(())
}
