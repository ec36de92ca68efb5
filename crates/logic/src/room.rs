//! How much operations take of the room of a volume: the same numbers at the client, which spends
//! room that it was given ahead, and at the server, which counts it as spent.

use wire::limits::BLOCK_BYTES;
use wire::{Make, Op, Room, WriteMode};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// So many bytes, as whole blocks.
pub(crate) fn in_blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

/// The volume, and what an operation that was answered ahead takes there at most. `None`: it is not
/// of those that take any.
pub(crate) fn cost(op: &Op) -> Option<(u32, Room)> {
    let (volume, bytes, objects) = match op {
        Op::Write {
            fid,
            len,
            mode: WriteMode::Back { .. },
            ..
        } => (fid.volume, u64::from(*len), 0),
        Op::Make {
            dir,
            make: Make::Symlink(target),
            ..
        } => (dir.volume, target.len() as u64, 1),
        // A name takes room in the log, though it is no object.
        Op::Make { dir, .. } | Op::Link { dir, .. } => (dir.volume, 0, 1),
        Op::SetXattr {
            fid, name, value, ..
        } => (fid.volume, (name.len() + value.len()) as u64, 0),
        _ => return None,
    };
    let bytes = in_blocks(bytes);
    Some((volume, Room { bytes, objects }))
}

/// The volume, and what an operation that its caller waits for may take there at most; `None`: it
/// takes nothing, or waits for nobody.
pub(crate) fn growth(op: &Op) -> Option<(u32, Room)> {
    let of = |volume, bytes, objects| Some((volume, Room { bytes, objects }));
    match op {
        Op::Write {
            mode: WriteMode::Back { .. } | WriteMode::Lazy,
            ..
        } => None,
        // Bytes before it in its first block may be made zeros.
        Op::Write { fid, len, .. } => of(fid.volume, in_blocks(u64::from(*len)) + BLOCK, 0),
        Op::Copy { to, len, .. } => of(to.volume, in_blocks(u64::from(*len)) + BLOCK, 0),
        Op::MakeNameless { dir, .. } => of(dir.volume, 0, 1),
        // It counts for the volume when all parts have come, and takes room in the log at once.
        Op::Restore { volume, chunk, .. } => {
            let bytes = in_blocks(chunk.bytes.0.len() as u64) + BLOCK;
            of(*volume, bytes, chunk.pieces.len() as u64)
        }
        Op::Rename { from, .. } if op.leaves_whiteout() => of(from.volume, 0, 1),
        _ => cost(op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Fid;

    #[test]
    fn bytes_count_as_blocks_and_what_nobody_waits_for_grows_nothing() {
        let write = |len, mode| Op::Write {
            fid: Fid::root(7),
            offset: 0,
            len,
            mode,
        };
        let back = WriteMode::Back {
            size: 1,
            mtime: 0,
            ctime: 0,
        };
        let block = |count| Room {
            bytes: count * u64::from(BLOCK_BYTES),
            objects: 0,
        };
        assert_eq!(cost(&write(1, back)), Some((7, block(1))));
        assert_eq!(cost(&write(BLOCK_BYTES + 1, back)), Some((7, block(2))));
        assert_eq!(cost(&write(1, WriteMode::At)), None);
        assert_eq!(growth(&write(1, back)), None);
        assert_eq!(growth(&write(1, WriteMode::Lazy)), None);
        assert!(growth(&write(1, WriteMode::Append)).is_some());
        assert_eq!(growth(&Op::StatFs), None);
    }
}
