//! The clean blocks of the cache in a list, the one not used for longest first.
//!
//! Guarantee: each clean block is in the list once, and nothing else is; but while blocks are kept
//! for other machines, own ones are in the orders of [`super::worth`] instead.

use super::{BlockState, Cache, Entry, NONE, Slot};

impl Cache {
    /// The kernel has all of it: it is given up first (Nelson, section 6.2: infinite age).
    pub(crate) fn age(&mut self, slot: Slot) {
        if self.entries[slot as usize].state != BlockState::Clean {
            return;
        }
        self.unlist(slot);
        self.entries[slot as usize].used = 0;
        if !self.order(slot) {
            self.link(slot, (NONE, self.oldest));
        }
    }

    /// It has been used just now.
    pub(super) fn list(&mut self, slot: Slot) {
        self.entries[slot as usize].used = self.now;
        if !self.order(slot) {
            self.link(slot, (self.newest, NONE));
        }
    }

    /// Puts a block between two others, or an end.
    pub(super) fn link(&mut self, slot: Slot, (older, newer): (Slot, Slot)) {
        self.listed += 1;
        let entry = &mut self.entries[slot as usize];
        (entry.older, entry.newer) = (older, newer);
        self.join((older, slot));
        self.join((slot, newer));
    }

    pub(super) fn unlist(&mut self, slot: Slot) {
        self.forget_saying(slot);
        if self.leave_order(slot) {
            return;
        }
        assert!(self.listed > 0, "a clean block is in the list");
        self.listed -= 1;
        let Entry { older, newer, .. } = self.entries[slot as usize];
        self.join((older, newer));
    }

    /// Two blocks are neighbours from now on, or one of them is at an end.
    fn join(&mut self, (older, newer): (Slot, Slot)) {
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
