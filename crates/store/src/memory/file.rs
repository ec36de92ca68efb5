//! A file of a disk in memory, as the operating system has it: what is read (its cache), what is
//! on stable storage, and what is on its way from one to the other.
//!
//! A sync that failed may have dropped what was on its way: it is read as if nothing had happened,
//! the next sync knows nothing of it, and the end of the machine shows that it is not there.

use super::{Keep, random::Random};

/// Writes are torn at multiples of this, where they are torn anywhere.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct MemoryFile {
    /// The bytes that readers see.
    pub(super) bytes: Vec<u8>,
    /// The bytes that the end of the machine leaves.
    stable: Vec<u8>,
    /// The changes since the last sync, oldest first.
    pending: Vec<Pending>,
    /// Up to here room is reserved.
    reserved: u64,
}

#[derive(Clone, Debug)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Resize { len: usize },
}

impl Pending {
    fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Resize { .. } => 0,
        }
    }

    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(to, *offset, bytes),
            Self::Resize { len } => to.resize(*len, 0),
        }
    }

    /// Applies the first bytes only.
    fn tear(&self, to: &mut Vec<u8>, keep: usize) {
        if let Self::Write { offset, bytes } = self {
            put(to, *offset, &bytes[..keep]);
        }
    }

    /// Applies some of the sectors.
    fn scatter(&self, to: &mut Vec<u8>, random: &mut Random) {
        if let Self::Write { offset, bytes } = self {
            for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if random.below(2) == 0 {
                    put(to, offset + i * SECTOR_BYTES, sector);
                }
            }
        }
    }
}

fn put(to: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset..end].copy_from_slice(bytes);
}

impl MemoryFile {
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.bytes, offset, bytes);
        let bytes = bytes.to_vec();
        self.pending.push(Pending::Write { offset, bytes });
    }

    /// Bytes that it takes of the disk.
    pub(super) fn room(&self) -> u64 {
        self.reserved.max(self.bytes.len() as u64)
    }

    pub(super) fn reserve(&mut self, to: u64) {
        self.reserved = self.reserved.max(to);
    }

    pub(super) fn resize(&mut self, len: usize) {
        self.reserved = 0;
        if len != self.bytes.len() {
            self.bytes.resize(len, 0);
            self.pending.push(Pending::Resize { len });
        }
    }

    pub(super) fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            pending.apply(&mut self.stable);
        }
    }

    /// Bytes that were on their way will never arrive, and nobody knows.
    pub(super) fn drop_pending(&mut self) {
        self.pending
            .retain(|pending| matches!(pending, Pending::Resize { .. }));
    }

    /// Changes a byte behind everybody's back. Is there one?
    pub(super) fn flip(&mut self, at: usize) -> bool {
        for bytes in [&mut self.bytes, &mut self.stable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 0x40;
            }
        }
        at < self.bytes.len()
    }

    /// Overwrites bytes behind everybody's back. Are there so many?
    pub(super) fn overwrite(&mut self, at: usize, with: &[u8]) -> bool {
        for bytes in [&mut self.bytes, &mut self.stable] {
            if let Some(bytes) = bytes.get_mut(at..at + with.len()) {
                bytes.copy_from_slice(with);
            }
        }
        at + with.len() <= self.bytes.len()
    }

    /// How many bytes the end of the machine would leave.
    pub(super) fn stable_len(&self) -> usize {
        self.stable.len()
    }

    /// Changes a byte that is on stable storage, and gives what it was.
    pub(super) fn rot(&mut self, at: usize) -> Option<u8> {
        let byte = *self.stable.get(at)?;
        let was = self.bytes.get(at) == Some(&byte);
        was.then(|| self.flip(at)).map(|_| byte)
    }

    /// Puts a byte back.
    pub(super) fn mend(&mut self, at: usize, byte: u8) {
        for bytes in [&mut self.bytes, &mut self.stable] {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
    }

    pub(super) fn crash(&mut self, keep: Keep, random: &mut Random) {
        match keep {
            Keep::Written => return,
            Keep::Synced => {}
            Keep::Torn(percent) => {
                let all: usize = self.pending.iter().map(Pending::len).sum();
                self.keep_first(all * usize::from(percent.min(100)) / 100);
            }
            Keep::Any(_) => {
                for pending in &self.pending {
                    match random.below(4) {
                        0 => {}
                        1 => pending.scatter(&mut self.stable, random),
                        _ => pending.apply(&mut self.stable),
                    }
                }
            }
        }
        self.pending.clear();
        self.bytes.clone_from(&self.stable);
    }

    /// The first bytes that were written arrive.
    fn keep_first(&mut self, mut keep: usize) {
        for pending in &self.pending {
            if keep < pending.len() || keep == 0 {
                return pending.tear(&mut self.stable, keep);
            }
            pending.apply(&mut self.stable);
            keep -= pending.len();
        }
    }
}
