//! Bytes of files: which extents they have after a write, a truncation or a removal.
//!
//! A file's bytes are zeros, over these the bytes in the index (of small files, and the first bytes
//! of files that were small), over these its extents, which do not overlap. Nothing lies beyond the
//! end of the file.

use super::{Applied, xattrs};
use crate::index::Index;
use crate::key;
use crate::log::Place;
use crate::options::Mutant;
use crate::txn::{Txn, trouble};
use crate::value::{Extent, Object};
use wire::limits::FILE_BYTES;
use wire::{Fid, Outcome, Refusal, WriteMode};

/// The extents of a file that overlap `from..to`, with the offsets at which they begin.
pub(crate) fn extents_of(
    index: &Index,
    fid: Fid,
    from: u64,
    to: u64,
) -> Result<Vec<(u64, Extent)>, Refusal> {
    first_extents_of(index, fid, (from, to), usize::MAX)
}

/// The same, and only as many as that of the first.
pub(super) fn first_extents_of(
    index: &Index,
    fid: Fid,
    (from, to): (u64, u64),
    most: usize,
) -> Result<Vec<(u64, Extent)>, Refusal> {
    let mut all = Vec::new();
    // Most ranges are covered by one extent.
    let mut limit = 1;
    let (mut start, end) = key::range_from(fid, key::EXTENT, &from.saturating_add(1).to_be_bytes());
    loop {
        let part = index.scan(&start, &end, limit).map_err(trouble)?;
        for (key, value) in &part {
            let end = key::parts(key).and_then(|parts| parts.number());
            let decoded = Extent::decode(value);
            let (Some(end), Some(extent)) = (end, decoded) else {
                return Err(Refusal::Damaged);
            };
            let begin = end.saturating_sub(u64::from(extent.len));
            if begin >= to {
                return Ok(all);
            }
            all.push((begin, extent));
            // Extents do not overlap: this one reaches the end of the range.
            if end >= to || all.len() >= most {
                return Ok(all);
            }
        }
        let Some((last, _)) = part.last() else {
            return Ok(all);
        };
        start = key::after(last);
        limit = (limit * 4).min(1024);
    }
}

/// The first extent of a file that ends behind `at`, and where it begins.
pub(super) fn next_extent(
    index: &Index,
    fid: Fid,
    at: u64,
) -> Result<Option<(u64, Extent)>, Refusal> {
    let (start, end) = key::range_from(fid, key::EXTENT, &at.saturating_add(1).to_be_bytes());
    let found = index.scan(&start, &end, 1).map_err(trouble)?;
    let Some((key, value)) = found.first() else {
        return Ok(None);
    };
    let end = key::parts(key).and_then(|parts| parts.number());
    let (Some(end), Some(extent)) = (end, Extent::decode(value)) else {
        return Err(Refusal::Damaged);
    };
    Ok(Some((end.saturating_sub(u64::from(extent.len)), extent)))
}

/// Takes `from..to` out of the extents of a file.
pub(super) fn punch(
    txn: &mut Txn<'_>,
    (fid, object): (Fid, &mut Object),
    from: u64,
    to: u64,
) -> Result<(), Refusal> {
    if object.extents == 0 {
        return Ok(());
    }
    for (begin, extent) in extents_of(txn.index, fid, from, to)? {
        let end = begin + u64::from(extent.len);
        txn.drop_extent(fid, object, end, &extent)?;
        if begin < from {
            let head = extent.first((from - begin) as u32);
            txn.put_extent(fid, object, begin, &head);
        }
        if end > to {
            let tail = extent.without_front((to - begin) as u32);
            txn.put_extent(fid, object, to, &tail);
        }
    }
    Ok(())
}

/// Sets the bytes of a file that lie in the index.
pub(super) fn put_inline(txn: &mut Txn<'_>, fid: Fid, object: &mut Object, bytes: Vec<u8>) {
    let (old, new) = (u64::from(object.inline), bytes.len() as u64);
    object.attr.used_bytes = (object.attr.used_bytes + new).saturating_sub(old);
    txn.changes.bytes_more += new as i64 - old as i64;
    object.inline = bytes.len() as u32;
    if bytes.is_empty() {
        txn.remove(key::inline(fid));
    } else {
        txn.put(key::inline(fid), bytes);
    }
}

pub(super) fn inline(txn: &Txn<'_>, fid: Fid, object: &Object) -> Result<Vec<u8>, Refusal> {
    if object.inline == 0 {
        return Ok(Vec::new());
    }
    let bytes = txn.get(&key::inline(fid))?.ok_or(Refusal::Damaged)?;
    Ok(bytes)
}

/// Removes what lies at or beyond `size`.
pub(super) fn cut(
    txn: &mut Txn<'_>,
    fid: Fid,
    object: &mut Object,
    size: u64,
) -> Result<(), Refusal> {
    if size >= object.attr.size {
        return Ok(());
    }
    if txn.index.mutant != Some(Mutant::KeepsCutBytes) {
        punch(txn, (fid, object), size, u64::MAX)?;
    }
    if u64::from(object.inline) > size {
        let mut bytes = inline(txn, fid, object)?;
        bytes.truncate(size as usize);
        put_inline(txn, fid, object, bytes);
    }
    Ok(())
}

pub(super) fn write(txn: &mut Txn<'_>, fid: Fid, offset: u64, mode: WriteMode) -> Applied {
    let mut object = txn.file(fid)?;
    let len = txn.context.data.len() as u64;
    let offset = match mode {
        WriteMode::Append => object.attr.size,
        _ => offset,
    };
    let end = offset
        .checked_add(len)
        .filter(|end| *end <= FILE_BYTES)
        .ok_or(Refusal::TooLarge)?;
    let back = match mode {
        WriteMode::Back { size, .. } if size > FILE_BYTES => return Err(Refusal::TooLarge),
        WriteMode::Back { size, mtime, ctime } => Some((size, mtime, ctime)),
        _ => None,
    };
    if len == 0 && back.is_none() {
        return Ok(Outcome::Written {
            offset,
            attr: object.attr,
        });
    }
    if len > 0 {
        put_bytes(txn, (fid, &mut object), offset, end)?;
        object.attr.size = object.attr.size.max(end);
    }
    // A write to a client's cache, or a store to a mapping, ended them before, or does not end
    // them.
    if matches!(mode, WriteMode::At | WriteMode::Append) {
        xattrs::drop_capability(txn, fid, &mut object)?;
    }
    match back {
        Some((size, mtime, ctime)) => {
            // The holder's program wrote at that time, by the volume's clock as it is known there:
            // this only brings the news. A time beyond now can only be one that was set.
            let set = mtime == object.attr.mtime;
            object.attr.size = object.attr.size.max(size);
            object.attr.mtime = if set { mtime } else { mtime.min(txn.now()) };
            object.attr.ctime = object.attr.ctime.max(ctime.min(txn.now()));
        }
        None => {
            object.attr.mtime = txn.now();
            object.attr.ctime = object.attr.ctime.max(txn.now());
        }
    }
    object.attr.version += 1;
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Ok(Outcome::Written { offset, attr })
}

/// Makes the bytes of the operation, which were read from another place, those of a file.
pub(super) fn put_bytes_of_record(txn: &mut Txn<'_>, fid: Fid, offset: u64) -> Applied {
    let len = txn.context.data.len() as u32;
    match write(txn, fid, offset, WriteMode::At)? {
        Outcome::Written { attr, .. } => Ok(Outcome::Copied { len, attr }),
        other => Ok(other),
    }
}

/// Makes the bytes of the operation the file's `offset..end`.
fn put_bytes(
    txn: &mut Txn<'_>,
    (fid, object): (Fid, &mut Object),
    offset: u64,
    end: u64,
) -> Result<(), Refusal> {
    let small = object.attr.size.max(end) <= u64::from(txn.context.inline_bytes);
    if small && object.extents == 0 {
        let mut bytes = inline(txn, fid, object)?;
        if bytes.len() < end as usize {
            bytes.resize(end as usize, 0);
        }
        bytes[offset as usize..end as usize].copy_from_slice(txn.context.data);
        put_inline(txn, fid, object, bytes);
        return Ok(());
    }
    punch(txn, (fid, object), offset, end)?;
    if offset < u64::from(object.inline) && u64::from(object.inline) <= end {
        let mut bytes = inline(txn, fid, object)?;
        bytes.truncate(offset as usize);
        put_inline(txn, fid, object, bytes);
    }
    put_data(txn, (fid, object), offset);
    Ok(())
}

/// The bytes of the operation, where they are in the log, as one extent from `offset` on.
pub(super) fn put_data(txn: &mut Txn<'_>, (fid, object): (Fid, &mut Object), offset: u64) {
    let Place {
        segment,
        offset: at,
    } = txn.context.place;
    let len = txn.context.data.len() as u32;
    let extent = Extent::whole(segment, at as u32, len, txn.context.checks.to_vec());
    txn.put_extent(fid, object, offset, &extent);
}

/// Makes the bytes at hand, which are the file's own, those of `offset` on. For the cleaner.
pub(crate) fn move_extents(txn: &mut Txn<'_>, fid: Fid, offset: u64) -> Result<(), Refusal> {
    let mut object = txn.file(fid)?;
    let end = offset + txn.context.data.len() as u64;
    punch(txn, (fid, &mut object), offset, end)?;
    put_data(txn, (fid, &mut object), offset);
    txn.put_object(fid, object);
    Ok(())
}

/// Removes everything of an object that has no name.
pub(super) fn reap(txn: &mut Txn<'_>, fid: Fid) -> Applied {
    let mut object = txn.object(fid)?;
    if object.attr.nlink != 0 {
        return Err(Refusal::Invalid);
    }
    punch(txn, (fid, &mut object), 0, u64::MAX)?;
    put_inline(txn, fid, &mut object, Vec::new());
    if object.attr.kind == wire::Kind::Symlink {
        txn.changes.bytes_more -= object.attr.size as i64;
        txn.remove(key::target(fid));
    }
    if object.xattrs > 0 {
        let (from, to) = key::range(fid, key::XATTR);
        for (key, _) in txn.all(from, &to)? {
            txn.remove(key);
        }
    }
    txn.remove(key::orphan(fid));
    txn.remove_object(fid);
    txn.changes.objects_more -= 1;
    Ok(Outcome::Done)
}
