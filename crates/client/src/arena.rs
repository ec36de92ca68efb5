//! The memory that holds cached blocks: numbered slots of one block each.
//!
//! Guarantees: a slot reads as what was last put there; a slot never used costs no memory. Shared
//! bytes stay as they were: a thread that sends or answers them need not copy them, and one that
//! puts something there meanwhile puts it into a copy. The machine alone decides what a slot holds;
//! a number or range outside of a slot would be its bug and ends the process.

use blocks::{Block, Pool};
use logic::client::Slot;
use std::ops::Range;
use std::sync::Arc;
use wire::limits::BLOCK_BYTES;

/// Bytes of a slot.
const SLOT_BYTES: usize = BLOCK_BYTES as usize;

/// All slots.
pub(crate) struct Arena {
    /// Slots that were never used, or were given up, have no block.
    slots: Vec<Option<Arc<Block>>>,
    /// The bytes that such a slot reads as.
    zeros: Arc<Block>,
    /// Where blocks come from, and go.
    pool: Pool,
    /// How many slots take memory.
    taken: u32,
}

impl Arena {
    /// Slots that are all zero.
    pub(crate) fn new() -> Arena {
        let pool = Pool::default();
        Arena {
            slots: Vec::new(),
            zeros: Arc::new(zeros(&pool)),
            pool,
            taken: 0,
        }
    }

    /// Where the memory comes from.
    pub(crate) fn pool(&self) -> Pool {
        self.pool.clone()
    }

    fn place(&mut self, slot: Slot) -> &mut Option<Arc<Block>> {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, None);
        }
        &mut self.slots[slot]
    }

    fn block(&self, slot: Slot) -> &Arc<Block> {
        let block = self.slots.get(slot as usize).and_then(Option::as_ref);
        block.unwrap_or(&self.zeros)
    }

    /// How many slots take memory.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Gives up the blocks of so many of these slots, of which nobody needs what they hold.
    pub(crate) fn release<'a>(&mut self, free: impl Iterator<Item = &'a Slot>, count: u32) {
        let mut left = count;
        for slot in free {
            if left == 0 {
                return;
            }
            let block = self.slots.get_mut(*slot as usize);
            if block.and_then(Option::take).is_some() {
                (left, self.taken) = (left - 1, self.taken - 1);
            }
        }
    }

    /// Bytes of a slot.
    #[cfg(test)]
    pub(crate) fn get(&self, slot: Slot, at: u32, len: u32) -> &[u8] {
        &self.block(slot)[range(at, len)]
    }

    /// The same, to be kept.
    pub(crate) fn share(&self, slot: Slot, at: u32, len: u32) -> (Arc<Block>, Range<usize>) {
        (Arc::clone(self.block(slot)), range(at, len))
    }

    /// Puts bytes into a slot.
    pub(crate) fn put(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let range = range(at, bytes.len() as u32);
        let pool = self.pool.clone();
        let all = range.len() == SLOT_BYTES;
        let place = self.place(slot);
        // Of a block that is written whole nothing is needed: it is not copied where others hold
        // it.
        if let Some(block) = place
            && (!all || Arc::get_mut(block).is_some())
        {
            Arc::make_mut(block)[range].copy_from_slice(bytes);
            return;
        }
        let mut block = if all { pool.take() } else { zeros(&pool) };
        block[range].copy_from_slice(bytes);
        let first = place.replace(Arc::new(block)).is_none();
        self.taken += u32::from(first);
    }

    /// Makes bytes of a slot zero.
    pub(crate) fn zero(&mut self, slot: Slot, at: u32, len: u32) {
        let range = range(at, len);
        if let Some(block) = self.place(slot)
            && !range.is_empty()
        {
            Arc::make_mut(block)[range].fill(0);
        }
    }

    /// Puts bytes at the beginning of a slot and makes the rest zero.
    pub(crate) fn fill(&mut self, slot: Slot, bytes: &[u8]) {
        let len = bytes.len() as u32;
        self.put(slot, 0, bytes);
        self.zero(slot, len, BLOCK_BYTES - len);
    }
}

fn zeros(pool: &Pool) -> Block {
    let mut block = pool.take();
    block.fill(0);
    block
}

fn range(at: u32, len: u32) -> Range<usize> {
    let inside = at.checked_add(len).is_some_and(|end| end <= BLOCK_BYTES);
    assert!(inside, "bytes {at}+{len} are outside of a slot");
    at as usize..(at + len) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_slot_ends_in_zeros_and_its_neighbours_stay() {
        let mut arena = Arena::new();
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
    fn what_was_shared_stays_as_it_was() {
        let mut arena = Arena::new();
        let (never, _) = arena.share(1, 0, 1);
        arena.put(0, 0, &[1; SLOT_BYTES]);
        arena.put(1, 5, &[2]);
        let (first, range) = arena.share(0, 4, 3);
        assert_eq!(first[range.clone()], [1; 3]);
        arena.put(0, 4, &[3]);
        let (second, _) = arena.share(0, 0, 1);
        arena.zero(0, 5, 1);
        let (third, _) = arena.share(0, 0, 1);
        arena.put(0, 0, &[4; SLOT_BYTES]);
        arena.fill(1, &[5]);
        assert_eq!(first[range.clone()], [1; 3]);
        assert_eq!(second[range.clone()], [3, 1, 1]);
        assert_eq!(third[range.clone()], [3, 0, 1]);
        assert_eq!(arena.get(0, 4, 3), [4; 3]);
        assert!(never.iter().all(|&byte| byte == 0));
        assert_eq!(
            (arena.get(1, 0, 1), arena.get(1, 5, 1)),
            (&[5][..], &[0][..])
        );
        // Nobody else has it any more: it is changed where it lies.
        let place = arena.get(0, 0, 1).as_ptr();
        arena.put(0, 0, &[6; SLOT_BYTES]);
        assert_eq!(
            (arena.get(0, 0, 1).as_ptr(), arena.get(0, 0, 1)[0]),
            (place, 6)
        );
    }

    #[test]
    #[should_panic(expected = "outside of a slot")]
    fn no_range_reaches_into_the_next_slot() {
        Arena::new().put(0, BLOCK_BYTES - 1, &[1, 2]);
    }
}
