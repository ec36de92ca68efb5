//! Ranges of files without bytes of their own: making them read as zeros, finding them.
//!
//! A hole is what neither the index nor an extent has bytes of. Room is not kept for anybody: a
//! file has as much as there is when it is written.

use super::bytes::{inline, next_extent, punch, put_inline};
use super::{Applied, xattrs};
use crate::txn::Txn;
use crate::value::Object;
use wire::{Fid, Op, Outcome, Refusal};

pub(super) fn allocate(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::Allocate {
        fid,
        offset,
        len,
        zero,
        keep_size,
    } = *op
    else {
        return Err(Refusal::Invalid);
    };
    if len == 0 {
        return Err(Refusal::Invalid);
    }
    let mut object = txn.file(fid)?;
    let (end, now) = (offset + len, txn.now());
    if zero {
        let to = end.min(object.attr.size);
        make_zeros(txn, (fid, &mut object), offset, to)?;
    }
    let grows = !keep_size && end > object.attr.size;
    if grows {
        object.attr.size = end;
    }
    if zero || grows {
        xattrs::drop_capability(txn, fid, &mut object)?;
        object.attr.mtime = now;
        object.attr.version += 1;
    }
    object.attr.ctime = object.attr.ctime.max(now);
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Ok(Outcome::Written { offset, attr })
}

/// Makes `from..to`, which lies within the file, read as zeros.
pub(super) fn make_zeros(
    txn: &mut Txn<'_>,
    (fid, object): (Fid, &mut Object),
    from: u64,
    to: u64,
) -> Result<(), Refusal> {
    if from >= to {
        return Ok(());
    }
    punch(txn, (fid, object), from, to)?;
    let there = u64::from(object.inline);
    if from < there {
        let mut bytes = inline(txn, fid, object)?;
        if to >= there {
            bytes.truncate(from as usize);
        } else {
            bytes[from as usize..to as usize].fill(0);
        }
        put_inline(txn, fid, object, bytes);
    }
    Ok(())
}

/// Most extents that are looked through for a hole: behind so many, a file counts as having none,
/// which is never wrong.
const EXTENTS_MAX: usize = 4096;

pub(super) fn find(txn: &Txn<'_>, fid: Fid, offset: u64, hole: bool) -> Applied {
    let object = txn.file(fid)?;
    let size = object.attr.size;
    if offset >= size {
        return Err(Refusal::NothingBehind);
    }
    let mut at = offset;
    // First the bytes in the index, then the extents: `at` is where neither has been seen to end.
    let inline = u64::from(object.inline);
    if at < inline {
        if !hole {
            return Ok(Outcome::Position(at));
        }
        at = inline;
    }
    for _ in 0..EXTENTS_MAX {
        let next = match object.extents {
            0 => None,
            _ => next_extent(txn.index, fid, at)?,
        };
        match next {
            Some((begin, _)) if begin <= at && !hole => return Ok(Outcome::Position(at)),
            Some((begin, extent)) if begin <= at => at = begin + u64::from(extent.len),
            Some((begin, _)) if !hole => return Ok(Outcome::Position(begin)),
            None if !hole => return Err(Refusal::NothingBehind),
            _ => return Ok(Outcome::Position(at.min(size))),
        }
    }
    Ok(Outcome::Position(size))
}
