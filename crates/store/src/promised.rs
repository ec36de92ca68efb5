//! Room that is promised: what changes that come later will find, so that others may not take it.
//!
//! Guarantees: a change is refused rather than that it take what is promised to others, of the
//! limits of its volume or of the disk; and none is refused that finds room beside that. Promises
//! are not kept here: whoever applies a change says how much they are.

use crate::index::Changes;
use crate::log::Use;
use crate::store::{Apply, Store};
use crate::txn::trouble;
use std::cell::Cell;
use wire::{Filesystem, Op, Outcome, Refusal, Room, RoomOfDisk};

/// Beyond so much, room is not measured for each change...
const AMPLE_BYTES: u64 = 4 << 30;
/// ...but only after so many bytes of log: others may use the disk too.
const MEASURED_BYTES: u64 = 64 << 20;

/// How much room there was when it was measured, at how many bytes of log.
#[derive(Debug, Default)]
pub(crate) struct Measured(Cell<(u64, u64)>);

/// Free objects are not counted: this many are said to be free at least as long as there is room.
const OBJECT_BYTES: u64 = 512;

impl Store {
    /// Room in a volume, and on the disk, for changes.
    pub fn room(&self, volume: u32) -> RoomOfDisk {
        let volumes = &self.core.index.volumes;
        let known = volumes.get(volume).filter(|_| !volumes.is_frozen(volume));
        RoomOfDisk {
            volume: known.map_or(Room::NONE, |of| of.limits.left(of.used())),
            log_bytes: self.log_room(),
        }
    }

    /// Bytes of log that changes have room for, or fewer.
    fn log_room(&self) -> u64 {
        let (room, at) = self.measured.0.get();
        let since = self.log.appended().saturating_sub(at);
        let left = room.saturating_sub(since);
        if left > AMPLE_BYTES && since < MEASURED_BYTES {
            return left;
        }
        let room = self.log.available().unwrap_or(0);
        self.measured.0.set((room, self.log.appended()));
        room
    }

    /// Is there room for a record of a change beside what is promised? It is made first, if it is
    /// to be had.
    pub(crate) fn room_beside(&mut self, bytes: u64, promised: u64) -> Result<(), Refusal> {
        if promised == 0 {
            return Ok(());
        }
        let wanted = promised.saturating_add(bytes);
        let mut budget = self.most_moved();
        while self.log_room() < wanted {
            if !self.gain_room(&mut budget) {
                self.tell_full();
                return Err(trouble(crate::error::StoreError::NoSpace));
            }
        }
        // The work for it may have filled the segment at hand.
        self.room_for(bytes, Use::Change).map_err(trouble)
    }

    /// Does a change stay within the limits of its volume, beside what is promised there?
    pub(crate) fn within_limits(&self, changes: &Changes, promised: Room) -> Result<(), Refusal> {
        let more = |more: i64| u64::try_from(more).unwrap_or(0);
        let grows = Room {
            bytes: more(changes.bytes_more),
            objects: more(changes.objects_more),
        };
        let Some((fid, _)) = changes.objects.first().filter(|_| grows != Room::NONE) else {
            return Ok(());
        };
        let volume = self.core.index.volumes.get(fid.volume);
        let beside = |grows: u64, promised: u64| match grows {
            0 => 0,
            grows => grows.saturating_add(promised),
        };
        let wanted = Room {
            bytes: beside(grows.bytes, promised.bytes),
            objects: beside(grows.objects, promised.objects),
        };
        match volume.is_none_or(|volume| volume.fits(wanted)) {
            true => Ok(()),
            false => Err(Refusal::Quota),
        }
    }

    /// The numbers of the whole partition.
    pub(crate) fn filesystem(&mut self) -> Result<Outcome, Refusal> {
        let (total_bytes, _) = self.log.space().map_err(trouble)?;
        let free_bytes = self.available().map_err(trouble)?.min(total_bytes);
        Ok(Outcome::Filesystem(Filesystem {
            total_bytes,
            free_bytes,
            files: self.core.index.counters.objects,
            free_files: free_bytes / OBJECT_BYTES,
        }))
    }

    /// The numbers of a volume: a limited one is as large as it may be, or as there is room.
    pub(crate) fn filesystem_of(&mut self, id: u32) -> Result<Outcome, Refusal> {
        let volumes = &self.core.index.volumes;
        let volume = volumes.get(volumes.live(id)).ok_or(Refusal::NotFound)?;
        let (limits, used) = (volume.limits, volume.used());
        let Outcome::Filesystem(whole) = self.filesystem()? else {
            return Err(Refusal::Disk);
        };
        let left = limits.left(used);
        let free_bytes = whole.free_bytes.min(left.bytes);
        let limited = limits.objects > 0;
        Ok(Outcome::Filesystem(Filesystem {
            total_bytes: match limits.bytes {
                0 => whole.total_bytes,
                _ => used.bytes.saturating_add(free_bytes),
            },
            free_bytes,
            files: if limited { used.objects } else { whole.files },
            free_files: whole.free_files.min(left.objects),
        }))
    }
}

/// Does this make room, or not?
pub(crate) fn purpose(apply: &Apply<'_>) -> Use {
    match apply.op {
        _ if apply.delegated.is_some() => Use::Removal,
        Op::Unlink { .. }
        | Op::Rmdir { .. }
        | Op::Unmount { .. }
        | Op::Reap { .. }
        | Op::RemoveXattr { .. } => Use::Removal,
        Op::SetAttr { set, .. } if set.size.is_some() => Use::Removal,
        Op::Allocate { zero: true, .. } => Use::Removal,
        _ => Use::Change,
    }
}
