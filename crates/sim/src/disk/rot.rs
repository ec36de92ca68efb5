//! Bytes that rot on the server's disk, and are put back from a copy that somebody had.
//!
//! Guarantees: a byte that rots was on stable storage, and a later record or checkpoint that is
//! there too says so. Of anything else no store can tell whether it rotted or never arrived, since
//! a disk that tears the last writes looks the same.

use super::DiskRoom;
use crate::coverage::Rare;
use store::MemoryDisk;

/// Files and how many bytes of each.
type Lengths = Vec<(String, u64)>;

/// The bytes that rotted, and those that may.
#[derive(Default)]
pub(super) struct Rot {
    /// Which bytes, and what they were.
    bytes: Vec<(String, u64, u8)>,
    /// The stable lengths when the last sync ended, and the place of the latest record then.
    synced: (Lengths, u64),
    /// The lengths that stable records call stable.
    vouched: Lengths,
}

impl Rot {
    /// A sync ended well; the latest record is at this place.
    pub(super) fn synced(&mut self, disk: &MemoryDisk, position: u64) {
        // Records that were made since the sync before say what that one made stable.
        if position > self.synced.1 {
            let lengths = (disk.stable(), position);
            self.vouched = std::mem::replace(&mut self.synced, lengths).0;
        }
    }

    /// A store was opened. It syncs what it found, and its first record does not say so yet.
    pub(super) fn opened(&mut self, disk: &MemoryDisk, position: u64) {
        self.synced = (disk.stable(), position);
    }

    /// A checkpoint was made: the index, which is stable, says what else is.
    pub(super) fn checkpointed(&mut self, disk: &MemoryDisk) {
        self.vouched = disk.stable();
    }

    /// A byte rots: that which is so far (parts of a million) into what may rot. Did one?
    pub(super) fn rot(&mut self, disk: &MemoryDisk, at_ppm: u32) -> bool {
        let all: u64 = self.vouched.iter().map(|(_, len)| len).sum();
        let mut at = all * u64::from(at_ppm) / 1_000_000;
        for (name, len) in &self.vouched {
            if at < *len {
                let was = disk.rot(name, at);
                self.bytes.extend(was.map(|byte| (name.clone(), at, byte)));
                return was.is_some();
            }
            at -= len;
        }
        false
    }

    /// Is anything rotten?
    pub(super) fn any(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Looks at the disk as it would be if nothing had rotted.
    pub(super) fn overlook<T>(&self, disk: &MemoryDisk, look: impl FnOnce() -> T) -> T {
        for (name, at, byte) in self.bytes.iter().rev() {
            disk.mend(name, *at, *byte);
        }
        let seen = look();
        for (name, at, _) in &self.bytes {
            disk.rot(name, *at);
        }
        seen
    }

    /// Everything is as it was.
    pub(super) fn mend(&mut self, disk: &MemoryDisk) {
        // Backwards: a byte may have rotted twice.
        for (name, at, byte) in self.bytes.drain(..).rev() {
            disk.mend(&name, at, byte);
        }
    }
}

impl DiskRoom {
    /// A byte rots.
    pub(crate) fn rot(&mut self, at_ppm: u32) {
        if self.volume.rot(at_ppm) {
            self.meet(Rare::Rotten);
        }
    }

    /// Puts rotten bytes back. If the check calls the volume sound before that, all of it must
    /// read.
    pub(crate) fn mend(&mut self) -> Result<(), String> {
        if !self.volume.is_rotten() {
            return Ok(());
        }
        if self.volume.check().is_ok() {
            for (fid, attr) in self.volume.files() {
                let wants = attr.kind == wire::Kind::File && attr.size > 0;
                let read = wants.then(|| self.volume.read(fid, 0, attr.size as u32).0);
                if let Some(wire::Outcome::Refused(refusal)) = read {
                    return Err(format!(
                        "the check finds no damage, and {fid} reads as {refusal:?}"
                    ));
                }
            }
        } else {
            self.meet(Rare::RotFound);
        }
        self.volume.mend();
        Ok(())
    }
}
