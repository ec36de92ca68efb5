//! Listing a directory in the order of its positions.

use super::Applied;
use super::attrs::is_owner;
use crate::key;
use crate::permission::Want;
use crate::txn::{Txn, trouble};
use crate::value::{self, Object, Placed};
use wire::limits::{BODY_BYTES, DIR_ENTRIES, LAST_BITS};
use wire::{DirEntry, Fid, Outcome, Refusal, VOLUME_NAME_BYTES, VOLUMES_MAX};

/// A listing stops here, so that its reply stays below the bound of a message.
const REPLY_BYTES: usize = BODY_BYTES / 4 * 3;
/// Most bytes of an entry besides its name: numbers are encoded in up to ten bytes each.
const ENTRY_BYTES: usize = 160;

pub(super) fn read_dir(txn: &Txn<'_>, dir: Fid, after: u64, max: u32) -> Applied {
    let object = txn.dir(dir)?;
    // The owner may have opened it before he took the right from himself.
    if !is_owner(txn, &object) || txn.governing(dir, &object)?.is_some() {
        txn.allowed(dir, &object, Want::READ)?;
    }
    let max = (max as usize).clamp(1, DIR_ENTRIES);
    if dir.is_snapshots() {
        return list_snapshots(txn, (dir, object), after, max);
    }
    let detail = after.saturating_add(1).to_be_bytes();
    let (mut from, to) = key::range_from(dir, key::POSITION, &detail);
    let mut entries = Vec::new();
    let mut bytes = 0;
    let mut end = false;
    'parts: loop {
        // One more than wanted shows whether anything follows.
        let limit = max - entries.len() + 1;
        let part = txn.index.scan(&from, &to, limit).map_err(trouble)?;
        let Some((last, _)) = part.last() else {
            end = true;
            break;
        };
        from = key::after(last);
        for (key, placed) in part {
            let position = key::parts(&key).and_then(|parts| parts.number());
            let (Some(position), Some(mut placed)) = (position, value::decode::<Placed>(&placed))
            else {
                return Err(Refusal::Damaged);
            };
            let named = txn.index.named_in(dir, placed.fid, placed.kind);
            placed.fid = named.map_err(trouble)?;
            bytes += placed.name.as_bytes().len() + ENTRY_BYTES;
            if entries.len() == max || bytes > REPLY_BYTES {
                break 'parts;
            }
            entries.push(shown(txn, position, placed)?);
        }
    }
    let release = u64::from(txn.index.volumes.shown_release(dir.volume));
    Ok(Outcome::Dir {
        entries,
        end,
        last: (object.next_position - 1) | release << LAST_BITS,
        dir: object.attr,
    })
}

/// An entry of a listing.
fn shown(txn: &Txn<'_>, position: u64, placed: Placed) -> Result<DirEntry, Refusal> {
    let named = txn.object(placed.fid)?;
    Ok(DirEntry {
        bare: named.xattrs == 0,
        kind: named.attr.kind,
        attr: Some(named.attr),
        ahead: 0,
        name: placed.name,
        fid: placed.fid,
        position,
    })
}

/// The same of the snapshots of a volume. There are never so many that a reply had no room.
fn list_snapshots(txn: &Txn<'_>, (dir, object): (Fid, Object), after: u64, max: usize) -> Applied {
    let placed = txn.index.volumes.placed_snapshots(dir.volume, after);
    let mut placed: Vec<(u64, Placed)> = placed.take(max + 1).collect();
    let end = placed.len() <= max;
    placed.truncate(max);
    let mut entries = Vec::with_capacity(placed.len());
    for (position, placed) in placed {
        entries.push(shown(txn, position, placed)?);
    }
    Ok(Outcome::Dir {
        entries,
        end,
        last: object.next_position - 1,
        dir: object.attr,
    })
}

const _: () = assert!(VOLUMES_MAX * (VOLUME_NAME_BYTES + ENTRY_BYTES) <= REPLY_BYTES);
