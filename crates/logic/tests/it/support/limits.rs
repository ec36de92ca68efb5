//! The limits of the scenarios' store, and its use.

use super::MemoryDisk;
use wire::{Op, Outcome, Refusal, Room, RoomOfDisk};

impl MemoryDisk {
    /// All that it has.
    pub fn used(&self) -> Room {
        let bytes = self
            .objects
            .values()
            .map(|object| object.bytes.len() as u64);
        Room {
            bytes: bytes.sum(),
            objects: self.objects.len() as u64,
        }
    }

    /// Is there room for a change, beside what is promised to others?
    pub(super) fn fits(&self, op: &Op, promised: Option<RoomOfDisk>) -> bool {
        let grows = match *op {
            Op::Write {
                fid, offset, len, ..
            } => {
                let size = self.get(fid).map_or(0, |object| object.bytes.len() as u64);
                let bytes = (offset + u64::from(len)).saturating_sub(size);
                Room { bytes, objects: 0 }
            }
            Op::Make { .. } => Room {
                bytes: 0,
                objects: 1,
            },
            _ => Room::NONE,
        };
        let left = self.limits.left(self.used());
        let Some(promised) = promised.filter(|_| grows != Room::NONE) else {
            return true;
        };
        let bytes = grows.bytes == 0 || grows.bytes + promised.volume.bytes <= left.bytes;
        bytes && (grows.objects == 0 || grows.objects + promised.volume.objects <= left.objects)
    }
}

/// Was a change refused for want of room? Then nothing is kept of it, and its bytes stay.
pub(super) fn lacks_room(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(Refusal::NoSpace | Refusal::Quota))
}
