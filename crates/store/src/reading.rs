//! Reading the bytes of a file, and finding out that they are not the ones that were written.

use crate::apply::extents_of;
use crate::error::StoreError;
use crate::key;
use crate::log::{Log, Place};
use crate::segments::Bytes;
use crate::state::Core;
use crate::txn::trouble;
use crate::value::{Extent, PIECE_BYTES};
use wire::{Fid, Kind, Refusal, limits};

/// Fills `into` with the bytes of an extent from `from` on.
pub(crate) fn read_extent(
    log: &(impl Bytes + ?Sized),
    extent: &Extent,
    from: usize,
    into: &mut [u8],
) -> Result<(), StoreError> {
    if extent.is_lost() {
        return Err(StoreError::Damaged(LOST.to_owned()));
    }
    let begin = extent.skip as usize + from;
    let end = begin + into.len();
    let first = begin / PIECE_BYTES;
    let stored = extent.stored as usize;
    let whole = first * PIECE_BYTES..end.next_multiple_of(PIECE_BYTES).min(stored);
    let place = Place {
        segment: extent.segment,
        offset: u64::from(extent.position) + whole.start as u64,
    };
    let checks = &extent.checks[first..];
    if whole == (begin..end) {
        log.read(place, into)?;
        return verify(log, extent, into, checks);
    }
    let mut pieces = vec![0; whole.len()];
    log.read(place, &mut pieces)?;
    verify(log, extent, &pieces, checks)?;
    into.copy_from_slice(&pieces[begin - whole.start..end - whole.start]);
    Ok(())
}

/// The error of bytes that were lost.
const LOST: &str = "these bytes were lost to a damage of the disk, as a repair has noted";

fn verify(
    log: &(impl Bytes + ?Sized),
    extent: &Extent,
    bytes: &[u8],
    checks: &[u32],
) -> Result<(), StoreError> {
    if !log.verifies() {
        return Ok(());
    }
    for (piece, check) in bytes.chunks(PIECE_BYTES).zip(checks) {
        if crc32c::crc32c(piece) != *check {
            let text = format!(
                "bytes in the segment {} have a wrong checksum",
                crate::log::segment_name(extent.segment)
            );
            return Err(StoreError::Damaged(text));
        }
    }
    Ok(())
}

/// Fills `into`, which is empty, with what the file has from `offset` on; returns its size.
pub(crate) fn read(
    (core, log): (&Core, &Log),
    fid: Fid,
    (offset, len): (u64, u32),
    into: &mut Vec<u8>,
) -> Result<u64, Refusal> {
    let object = core.object(fid)?;
    match object.attr.kind {
        Kind::File => {}
        Kind::Directory => return Err(Refusal::IsDirectory),
        _ => return Err(Refusal::Invalid),
    }
    if len > limits::BULK_BYTES {
        return Err(Refusal::TooLarge);
    }
    let size = object.attr.size;
    let end = size.min(offset.saturating_add(u64::from(len)));
    if offset >= end {
        return Ok(size);
    }
    into.resize((end - offset) as usize, 0);
    if offset < u64::from(object.inline) {
        let bytes = core.index.get(&key::inline(fid)).map_err(trouble)?;
        let bytes = bytes.ok_or(Refusal::Damaged)?;
        let bytes = bytes.get(offset as usize..).unwrap_or_default();
        let n = bytes.len().min(into.len());
        into[..n].copy_from_slice(&bytes[..n]);
    }
    if object.extents > 0 {
        for (begin, extent) in extents_of(&core.index, fid, offset, end)? {
            let from = begin.max(offset);
            let to = (begin + u64::from(extent.len)).min(end);
            let piece = &mut into[(from - offset) as usize..(to - offset) as usize];
            read_extent(log, &extent, (from - begin) as usize, piece).map_err(|error| {
                let file = core.describe(fid);
                tracing::error!("cannot read bytes {from} to {to} of {file}: {error}");
                error.refusal()
            })?;
        }
    }
    Ok(size)
}
