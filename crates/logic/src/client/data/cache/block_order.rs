//! The clean blocks of the cache in a list, the one not used for longest first.
//!
//! Guarantee: each clean block is in the list once, and nothing else is.

use super::{BlockState, Cache, Entry, NONE, Slot};

impl Cache {
    /// The kernel has all of it: it is given up first (Nelson, section 6.2: infinite age).
    pub(crate) fn age(&mut self, slot: Slot) {
        if self.entries[slot as usize].state != BlockState::Clean {
            return;
        }
        self.unlist(slot);
        self.listed += 1;
        self.entries[slot as usize].used = 0;
        let oldest = self.oldest;
        self.entries[slot as usize].newer = oldest;
        self.entries[slot as usize].older = NONE;
        match oldest {
            NONE => self.newest = slot,
            oldest => self.entries[oldest as usize].older = slot,
        }
        self.oldest = slot;
    }

    pub(super) fn list(&mut self, slot: Slot) {
        self.listed += 1;
        self.entries[slot as usize].used = self.now;
        let newest = self.newest;
        self.entries[slot as usize].older = newest;
        self.entries[slot as usize].newer = NONE;
        match newest {
            NONE => self.oldest = slot,
            newest => self.entries[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    pub(super) fn unlist(&mut self, slot: Slot) {
        assert!(self.listed > 0, "a clean block is in the list");
        self.listed -= 1;
        let Entry { older, newer, .. } = self.entries[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }
}
