//! The memory that holds cached blocks: numbered slots of one block each.
//!
//! Guarantees: a slot reads as what was last put there; a slot never used costs no memory, since
//! fresh pages of the operating system are zero already. The machine alone decides what a slot
//! holds; a number or range outside of a slot would be its bug and ends the process.

use logic::client::Slot;
use wire::limits::BLOCK_BYTES;

/// Bytes of a slot.
const SLOT_BYTES: usize = BLOCK_BYTES as usize;

/// All slots.
pub(crate) struct Arena(Vec<u8>);

impl Arena {
    /// So many slots, all zero.
    pub(crate) fn new(slots: u32) -> Arena {
        // Allocated as zero pages: nothing is touched yet.
        Arena(vec![0; slots as usize * SLOT_BYTES])
    }

    /// Bytes of a slot.
    pub(crate) fn get(&self, slot: Slot, at: u32, len: u32) -> &[u8] {
        let from = start(slot, at, len);
        &self.0[from..from + len as usize]
    }

    /// Puts bytes into a slot.
    pub(crate) fn put(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let from = start(slot, at, bytes.len() as u32);
        self.0[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// Makes bytes of a slot zero.
    pub(crate) fn zero(&mut self, slot: Slot, at: u32, len: u32) {
        let from = start(slot, at, len);
        self.0[from..from + len as usize].fill(0);
    }

    /// Puts bytes at the beginning of a slot and makes the rest zero.
    pub(crate) fn fill(&mut self, slot: Slot, bytes: &[u8]) {
        let len = bytes.len() as u32;
        self.put(slot, 0, bytes);
        self.zero(slot, len, BLOCK_BYTES - len);
    }
}

fn start(slot: Slot, at: u32, len: u32) -> usize {
    let inside = at.checked_add(len).is_some_and(|end| end <= BLOCK_BYTES);
    assert!(inside, "bytes {at}+{len} are outside of a slot");
    slot as usize * SLOT_BYTES + at as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_slot_ends_in_zeros_and_its_neighbours_stay() {
        let mut arena = Arena::new(3);
        arena.put(0, BLOCK_BYTES - 1, &[7]);
        arena.put(1, 0, &[9; SLOT_BYTES]);
        arena.put(2, 0, &[8]);
        arena.fill(1, &[1, 2, 3]);
        assert_eq!(arena.get(1, 0, 4), [1, 2, 3, 0]);
        assert!(
            arena
                .get(1, 3, BLOCK_BYTES - 3)
                .iter()
                .all(|&byte| byte == 0)
        );
        assert_eq!(arena.get(0, BLOCK_BYTES - 1, 1), [7]);
        assert_eq!(arena.get(2, 0, 1), [8]);
        arena.zero(2, 0, 1);
        assert_eq!(arena.get(2, 0, 1), [0]);
    }

    #[test]
    #[should_panic(expected = "outside of a slot")]
    fn no_range_reaches_into_the_next_slot() {
        Arena::new(2).put(0, BLOCK_BYTES - 1, &[1, 2]);
    }
}
