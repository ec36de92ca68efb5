//! Records of the log: a header, the file bytes that belong to it, and what happened.
//!
//! The crc32c in the header covers the partition's identity, the header and what happened; the file
//! bytes are covered by the checksums, one for each 4 KiB, that are part of what happened. The
//! identity keeps what looks like a record within a file from being taken for one. Decoding never
//! panics, whatever the bytes.

use crate::value::PIECE_BYTES;
use serde::{Deserialize, Serialize};
use wire::{Caller, Fid, Op, Origin, SessionId, Time, limits};

/// The format that this program writes.
pub(crate) const FORMAT: u32 = 9;
/// The oldest format that it reads. Format 5 adds volumes and their versions: a partition of format
/// 4 is one volume without any. Format 6 adds the origins of copies, and lists of the things born;
/// format 7 mount points; format 8 notes of all names of an object; format 9 replicas. Older
/// partitions get segments of this format from their first opening on.
const OLDEST_FORMAT: u32 = 4;

/// Does this program read a format?
pub(crate) fn reads_format(format: u32) -> bool {
    (OLDEST_FORMAT..=FORMAT).contains(&format)
}
/// Bytes of a record's header: file bytes begin here.
pub(crate) const HEADER_BYTES: usize = 40;
/// Bytes of a segment's header: records begin here.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
/// Records begin at multiples of this.
pub(crate) const ALIGN_BYTES: usize = 8;

const RECORD_MAGIC: [u8; 4] = *b"ArlR";
const SEGMENT_MAGIC: [u8; 8] = *b"ArielSeg";
const META_BYTES_MAX: usize = limits::BODY_BYTES;

/// An event. Written with borrowed parts, read with owned ones: see [`Happened`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry<O, C, V> {
    /// The partition was made: the first record of every log.
    Format {
        format: u32,
        volume: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        now: Time,
    },
    /// An operation was applied.
    Apply {
        op: O,
        caller: C,
        now: Time,
        origin: Option<Origin>,
        /// The vnode number that a new object gets: replay must come to the same.
        vnode: u64,
        /// The position that was chosen for the name that is made; 0: none was.
        position: u64,
        /// The checksums of the file bytes.
        checks: V,
    },
    /// The cleaner moved these bytes of a file here.
    Move { fid: Fid, offset: u64, checks: V },
    /// A session began, or its client is away or has come back: a
    /// [`Mark`](crate::sessions::Mark).
    OpenSession { session: SessionId, mark: u64 },
    /// A session ended.
    CloseSession { session: SessionId },
    /// The partition was opened, for this time.
    Boot { count: u64 },
    /// New objects get numbers from this one on.
    Numbers { vnode: u64 },
    /// The volume's clock has shown this time.
    Shown { now: Time },
    /// The cleaner moved these bytes, which versions of a file share, here: they lay at this place
    /// of a segment, and all that is made of them lies in this part of the file.
    Relocate {
        fid: Fid,
        from: u64,
        to: u64,
        segment: u32,
        position: u32,
        checks: V,
    },
    /// So many keys of a volume, from this one on, were looked at: versions that nobody sees any
    /// more were removed.
    Sweep {
        volume: u32,
        from: Vec<u8>,
        keys: u32,
    },
}

/// An event, as read.
pub(crate) type Happened = Entry<Op, Caller, Vec<u32>>;
/// An event, as written.
pub(crate) type Happening<'a> = Entry<&'a Op, &'a Caller, &'a [u32]>;

impl Happened {
    /// The checksums of the record's file bytes.
    pub(crate) fn checks(&self) -> &[u32] {
        match self {
            Self::Apply { checks, .. }
            | Self::Move { checks, .. }
            | Self::Relocate { checks, .. } => checks,
            _ => &[],
        }
    }

    /// The file whose bytes the record carries.
    pub(crate) fn fid(&self) -> Option<Fid> {
        match self {
            Self::Apply {
                op: Op::Write { fid, .. } | Op::Copy { to: fid, .. },
                ..
            }
            | Self::Move { fid, .. }
            | Self::Relocate { fid, .. } => Some(*fid),
            _ => None,
        }
    }
}

/// Most records' descriptions are no longer than this, bytes.
const USUAL_BYTES: usize = 256;

/// Encodes what happened.
pub(crate) fn encode(happening: &Happening<'_>) -> Vec<u8> {
    wire::encode_about(happening, USUAL_BYTES)
}

/// Bytes of a whole record.
pub(crate) fn record_bytes(data: usize, meta: usize) -> usize {
    (HEADER_BYTES + data + meta).next_multiple_of(ALIGN_BYTES)
}

/// A segment of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentId {
    pub(crate) number: u32,
    /// Of the partition, chosen at random when it was made.
    pub(crate) identity: u64,
}

/// The numbers in a record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Number of the record: one more than the record before.
    pub(crate) sequence: u64,
    /// All records up to this number were on stable storage when this one was made. A damaged one
    /// among them was lost, and was not torn.
    pub(crate) stable: u64,
    /// The segment that the record lies in.
    pub(crate) segment: SegmentId,
}

fn checksum(identity: u64, header: &[u8], meta: &[u8]) -> u32 {
    let check = crc32c::crc32c(&identity.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(check, header), meta)
}

fn header(stamp: Stamp, data: usize, meta: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&RECORD_MAGIC);
    header[8..16].copy_from_slice(&stamp.sequence.to_le_bytes());
    header[16..24].copy_from_slice(&stamp.stable.to_le_bytes());
    header[24..28].copy_from_slice(&stamp.segment.number.to_le_bytes());
    header[28..32].copy_from_slice(&(data as u32).to_le_bytes());
    header[32..36].copy_from_slice(&(meta.len() as u32).to_le_bytes());
    let check = checksum(stamp.segment.identity, &header[8..], meta);
    header[4..8].copy_from_slice(&check.to_le_bytes());
    header
}

/// The parts of a record before and behind its file bytes.
pub(crate) fn around(stamp: Stamp, data: usize, meta: &[u8]) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let behind = record_bytes(data, meta.len()) - HEADER_BYTES - data;
    let mut end = Vec::with_capacity(behind);
    end.extend_from_slice(meta);
    end.resize(behind, 0);
    (header(stamp, data, meta), end)
}

/// Appends a record to a buffer.
pub(crate) fn append(buffer: &mut Vec<u8>, stamp: Stamp, data: &[u8], meta: &[u8]) {
    let end = buffer.len() + record_bytes(data.len(), meta.len());
    buffer.extend_from_slice(&header(stamp, data.len(), meta));
    buffer.extend_from_slice(data);
    buffer.extend_from_slice(meta);
    buffer.resize(end, 0);
}

/// A record that was read.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) stamp: Stamp,
    /// Where it begins in the segment.
    pub(crate) at: usize,
    /// Where the next one begins.
    pub(crate) next: usize,
    pub(crate) data: &'a [u8],
    pub(crate) happened: Happened,
}

impl Record<'_> {
    /// Are the file bytes those that were written?
    pub(crate) fn data_is_sound(&self) -> bool {
        let checks = self.happened.checks();
        let pieces = self.data.chunks(PIECE_BYTES);
        pieces.len() == checks.len()
            && pieces
                .zip(checks)
                .all(|(piece, check)| crc32c::crc32c(piece) == *check)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Lengths of a record's file bytes and of what happened, from its header; `None`: not a header.
pub(crate) fn lengths(header: &[u8]) -> Option<(usize, usize)> {
    if header.get(..4)? != RECORD_MAGIC {
        return None;
    }
    let data = u32::from_le_bytes(number(header, 28)?) as usize;
    let meta = u32::from_le_bytes(number(header, 32)?) as usize;
    (data <= limits::BULK_BYTES as usize && meta <= META_BYTES_MAX).then_some((data, meta))
}

/// Does anything in the first segment, whose own header does not read, say that the partition was
/// finished? Its identity is not known then, so nothing can be verified; but no record that
/// creation writes says that something was stable before it.
pub(crate) fn was_finished(bytes: &[u8]) -> bool {
    let places = (0..bytes.len()).step_by(ALIGN_BYTES);
    let mut headers = places.filter_map(|at| bytes.get(at..at + HEADER_BYTES));
    headers.any(|header| lengths(header).is_some() && header[16..24] != [0; 8])
}

/// The event, from a header and the bytes after the file bytes; `None`: damaged.
pub(crate) fn happened(
    segment: SegmentId,
    header: &[u8],
    meta: &[u8],
) -> Option<(Stamp, Happened)> {
    let check = checksum(segment.identity, header.get(8..HEADER_BYTES)?, meta);
    let stamp = Stamp {
        sequence: u64::from_le_bytes(number(header, 8)?),
        stable: u64::from_le_bytes(number(header, 16)?),
        segment,
    };
    let lies_in = u32::from_le_bytes(number(header, 24)?);
    if check != u32::from_le_bytes(number(header, 4)?) || lies_in != segment.number {
        return None;
    }
    let (happened, rest) = postcard::take_from_bytes(meta).ok()?;
    rest.is_empty().then_some((stamp, happened))
}

/// Reads the record that begins at `at`; `None`: there is none, or it is damaged. The file bytes
/// are not checked.
pub(crate) fn parse(segment: SegmentId, bytes: &[u8], at: usize) -> Option<Record<'_>> {
    let header = bytes.get(at..at.checked_add(HEADER_BYTES)?)?;
    let (data_len, meta_len) = lengths(header)?;
    let data_at = at + HEADER_BYTES;
    let meta_at = data_at + data_len;
    let meta = bytes.get(meta_at..meta_at + meta_len)?;
    let next = at + record_bytes(data_len, meta_len);
    if next > bytes.len() {
        return None; // torn in the zeros after it: the next one would not begin where it must
    }
    let (stamp, happened) = happened(segment, header, meta)?;
    Some(Record {
        stamp,
        at,
        next,
        data: &bytes[data_at..meta_at],
        happened,
    })
}

/// The first sound record at or after `at`.
pub(crate) fn find(segment: SegmentId, bytes: &[u8], at: usize) -> Option<Record<'_>> {
    let mut at = at.next_multiple_of(ALIGN_BYTES);
    while at + HEADER_BYTES <= bytes.len() {
        if let Some(record) = parse(segment, bytes, at) {
            return Some(record);
        }
        at += ALIGN_BYTES;
    }
    None
}

/// The header of a segment, whose first record has this number.
pub(crate) fn segment_header(segment: SegmentId, first: u64) -> [u8; SEGMENT_HEADER_BYTES] {
    let mut header = [0; SEGMENT_HEADER_BYTES];
    header[..8].copy_from_slice(&SEGMENT_MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&segment.number.to_le_bytes());
    header[16..24].copy_from_slice(&first.to_le_bytes());
    header[24..32].copy_from_slice(&segment.identity.to_le_bytes());
    let check = crc32c::crc32c(&header[..32]);
    header[32..36].copy_from_slice(&check.to_le_bytes());
    header
}

/// Was this segment, whose header reads, begun with an older format than the one written now?
pub(crate) fn is_of_older_format(header: &[u8]) -> bool {
    number(header, 8).is_some_and(|bytes| u32::from_le_bytes(bytes) < FORMAT)
}

/// The content of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentHead {
    /// The segment, and the number of its first record.
    First(SegmentId, u64),
    /// Sound, and of another format.
    Format(u32),
    /// Not the header of this segment.
    Bad,
}

/// Reads a segment's header.
pub(crate) fn parse_segment_header(segment: u32, bytes: &[u8]) -> SegmentHead {
    let read = || {
        let header = bytes.get(..SEGMENT_HEADER_BYTES)?;
        let check = u32::from_le_bytes(number(header, 32)?);
        if header[..8] != SEGMENT_MAGIC || check != crc32c::crc32c(&header[..32]) {
            return None;
        }
        let format = u32::from_le_bytes(number(header, 8)?);
        if !reads_format(format) {
            return Some(SegmentHead::Format(format));
        }
        let id = SegmentId {
            number: u32::from_le_bytes(number(header, 12)?),
            identity: u64::from_le_bytes(number(header, 24)?),
        };
        let first = u64::from_le_bytes(number(header, 16)?);
        (id.number == segment).then_some(SegmentHead::First(id, first))
    };
    read().unwrap_or(SegmentHead::Bad)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ID: SegmentId = SegmentId {
        number: 1,
        identity: 77,
    };

    #[test]
    fn a_record_comes_back_and_every_flipped_byte_of_it_is_seen() {
        let op = Op::Write {
            fid: Fid::root(1),
            offset: 0,
            len: 5,
            mode: wire::WriteMode::At,
        };
        let checks = crate::value::checks(b"hello");
        let meta = encode(&Entry::Apply {
            op: &op,
            caller: &Caller::default(),
            now: 9,
            origin: None,
            vnode: 2,
            position: 0,
            checks: &checks,
        });
        let stamp = Stamp {
            sequence: 3,
            stable: 1,
            segment: ID,
        };
        let mut bytes = vec![0; 8];
        append(&mut bytes, stamp, b"hello", &meta);
        let used = 8 + HEADER_BYTES + 5 + meta.len();
        let record = parse(ID, &bytes, 8).unwrap();
        assert_eq!((record.stamp, record.data), (stamp, &b"hello"[..]));
        assert!(record.data_is_sound() && record.next == bytes.len());
        let others = [
            SegmentId { number: 2, ..ID },
            SegmentId { identity: 1, ..ID },
        ];
        assert!(others.iter().all(|id| parse(*id, &bytes, 8).is_none()));
        assert_eq!(find(ID, &bytes, 0).unwrap().at, 8);
        for i in 8..used {
            bytes[i] ^= 1;
            let sound = parse(ID, &bytes, 8).is_some_and(|record| record.data_is_sound());
            assert!(!sound, "byte {i}");
            bytes[i] ^= 1;
        }
    }
}
