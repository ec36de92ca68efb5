//! The notes of what clients may hold, for the next run of the server's process.
//!
//! Guarantee: that a client holds less than before is noted only when what the step changed on the
//! disk is written, as it may follow from that; that it holds more is noted before.

use std::collections::BTreeMap;
use wire::{Fid, Right, SessionId};

#[derive(Clone, Default)]
pub(crate) struct HolderNotes {
    held: BTreeMap<(SessionId, Fid), Right>,
    lowered: Vec<((SessionId, Fid), Right)>,
}

impl HolderNotes {
    pub(super) fn note(&mut self, at: (SessionId, Fid), most: Right, less: bool) {
        if less {
            self.lowered.push((at, most));
        } else {
            self.held.insert(at, most);
        }
    }

    /// The step's changes were written, or could not be.
    pub(super) fn end_step(&mut self, written: bool) {
        let lowered = self.lowered.drain(..);
        self.held.extend(lowered.filter(|_| written));
    }

    pub(super) fn all(&self) -> Vec<(SessionId, Fid, Right)> {
        let held = self.held.iter();
        held.map(|(&(session, fid), &right)| (session, fid, right))
            .collect()
    }

    /// The machine has lost its power.
    pub(super) fn lose(&mut self) {
        *self = Self::default();
    }
}
