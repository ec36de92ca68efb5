//! Pieces of a log with right checksums that no store has written: for tests of what reads them.
//! Only code that knows the identity of a partition can make them.

use crate::record::{self, SegmentId, Stamp};

/// A record with these file bytes and this said of what happened, sound but for what it says.
pub fn forge_record(
    identity: u64,
    segment: u32,
    sequence: u64,
    data: &[u8],
    meta: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let stamp = Stamp {
        sequence,
        stable: sequence - 1,
        segment: SegmentId {
            number: segment,
            identity,
        },
    };
    record::append(&mut bytes, stamp, data, meta);
    bytes
}

/// A segment that begins with this record.
pub fn forge_segment(identity: u64, segment: u32, first: u64) -> Vec<u8> {
    let id = SegmentId {
        number: segment,
        identity,
    };
    record::segment_header(id, first).to_vec()
}
