//! A hash table from the names of blocks to numbers of slots. Open addressing in one array, so that
//! a look-up costs a cache line or two; nothing is left behind by a removal.
//!
//! Guarantees: the names in it are distinct (the caller looks before it inserts); it is at most
//! half full; the same calls give the same table. The names have to be well mixed or few enough: a
//! caller that takes names from outside mixes a secret of its own into them first.

use super::Name;
use alloc::vec;
use alloc::vec::Vec;

/// Spreads neighbouring names over the table (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where each name's slot is.
pub(super) struct Table {
    /// The upper half of the name's hash, then the slot's number plus one; 0: free.
    cells: Vec<u64>,
    /// Cells are found by so many upper bits of the hash.
    bits: u32,
    used: usize,
}

fn hash(name: Name) -> u32 {
    (name.0.wrapping_mul(SPREAD) >> 32) as u32
}

impl Table {
    /// Room for so many names; it grows when there are more.
    pub(super) fn new(names: usize) -> Self {
        let bits = (names.max(4) * 2).next_power_of_two().trailing_zeros();
        Self {
            cells: vec![0; 1 << bits],
            bits,
            used: 0,
        }
    }

    fn home(&self, hash: u32) -> usize {
        (hash >> (32 - self.bits)) as usize
    }

    fn cell_of(&self, name: Name, is: impl Fn(u32) -> bool) -> Option<usize> {
        let wanted = hash(name);
        let mask = self.cells.len() - 1;
        let mut at = self.home(wanted);
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return None;
            }
            if (cell >> 32) as u32 == wanted && is(cell as u32 - 1) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// The slot of this name; `is` says whether a slot holds it.
    pub(super) fn find(&self, name: Name, is: impl Fn(u32) -> bool) -> Option<u32> {
        let at = self.cell_of(name, is)?;
        Some(self.cells[at] as u32 - 1)
    }

    /// Remembers the slot of a name that is not in the table.
    pub(super) fn insert(&mut self, name: Name, slot: u32) {
        if (self.used + 1) * 2 > self.cells.len() {
            self.grow();
        }
        self.put((u64::from(hash(name)) << 32) | (u64::from(slot) + 1));
        self.used += 1;
    }

    fn put(&mut self, cell: u64) {
        let mask = self.cells.len() - 1;
        let mut at = self.home((cell >> 32) as u32);
        while self.cells[at] != 0 {
            at = (at + 1) & mask;
        }
        self.cells[at] = cell;
    }

    fn grow(&mut self) {
        self.bits += 1;
        let old = core::mem::replace(&mut self.cells, vec![0; 1 << self.bits]);
        for cell in old {
            if cell != 0 {
                self.put(cell);
            }
        }
    }

    /// Forgets a name; those behind it move up.
    pub(super) fn remove(&mut self, name: Name, is: impl Fn(u32) -> bool) {
        let Some(mut hole) = self.cell_of(name, is) else {
            return;
        };
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let cell = self.cells[at];
            if cell == 0 {
                break;
            }
            let home = self.home((cell >> 32) as u32);
            // It may move up unless its home lies between the hole and here.
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = 0;
        self.used -= 1;
    }
}
