//! Copies that share: the bytes stay where they are in the log, and both files refer to them.
//!
//! The record of such a copy carries only those of the first bytes that may lie in the index. The
//! rest is shared; replaying it does the same again, since the content of the first file follows
//! from the records before it. A record in the log names the file whose bytes it carries, and now
//! another one has extents in it: that is noted under its segment ([`crate::key::shared`]), so that
//! the cleaner and `fsck` find the borrower.

use super::bytes::{first_extents_of, put_bytes_of_record, put_data};
use super::ranges::make_zeros;
use super::{Applied, xattrs};
use crate::txn::Txn;
use crate::value::Extent;
use wire::limits::FILE_BYTES;
use wire::{Fid, Op, Outcome, Refusal};

/// Most extents that one copy takes over: with more, it ends before.
const EXTENTS_MAX: usize = 1024;

/// A copy: of the bytes of its record, and by sharing for what follows them.
pub(super) fn copy(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::Copy {
        from,
        at,
        to,
        offset,
        len,
    } = *op
    else {
        return Err(Refusal::Invalid);
    };
    let source = txn.file(from)?;
    let end = source.attr.size.min(at.saturating_add(u64::from(len)));
    let head = txn.context.data.len() as u64;
    if at + head >= end {
        return put_bytes_of_record(txn, to, offset);
    }
    let mut object = txn.file(to)?;
    if at + head < u64::from(source.inline) {
        // Nobody has planned this: bytes in the index are copied with the record.
        return Err(Refusal::Damaged);
    }
    let (pieces, end) = taken(txn, from, (at + head, end), offset + head)?;
    let until = offset
        .checked_add(end - at)
        .filter(|until| *until <= FILE_BYTES)
        .ok_or(Refusal::TooLarge)?;
    let overlaid = until.min(object.attr.size);
    make_zeros(txn, (to, &mut object), offset, overlaid)?;
    if head > 0 {
        put_data(txn, (to, &mut object), offset);
    }
    for (start, extent) in pieces {
        txn.put_extent(to, &mut object, start, &extent);
        if !extent.is_lost() {
            txn.note_borrower(extent.segment, to, start, u64::from(extent.len))?;
        }
    }
    xattrs::drop_capability(txn, to, &mut object)?;
    object.attr.size = object.attr.size.max(until);
    object.attr.mtime = txn.now();
    object.attr.ctime = object.attr.ctime.max(txn.now());
    object.attr.version += 1;
    let attr = object.attr.clone();
    txn.put_object(to, object);
    let len = (end - at) as u32;
    Ok(Outcome::Copied { len, attr })
}

/// The extents of a file's range, as they will lie in the other file from `offset` on; and where
/// they end.
fn taken(
    txn: &Txn<'_>,
    from: Fid,
    (at, end): (u64, u64),
    offset: u64,
) -> Result<(Vec<(u64, Extent)>, u64), Refusal> {
    let mut extents = first_extents_of(txn.index, from, (at, end), EXTENTS_MAX + 1)?;
    let end = extents.get(EXTENTS_MAX).map_or(end, |(begin, _)| *begin);
    extents.truncate(EXTENTS_MAX);
    let place = |(begin, extent): (u64, Extent)| {
        let first = begin.max(at);
        let last = (begin + u64::from(extent.len)).min(end);
        let part = extent.without_front((first - begin) as u32);
        (offset + (first - at), part.first((last - first) as u32))
    };
    Ok((extents.into_iter().map(place).collect(), end))
}
