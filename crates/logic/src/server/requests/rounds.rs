//! Gathering: an operation on a whole volume, or on all that a list governs, waits until clients
//! have given up very many objects. It asks for them in rounds.
//!
//! Guarantees: a round asks for a bounded number of objects, and begins behind those of the last
//! one; so all rounds together look at each object once. An operation is done only when a walk over
//! all objects has found none that is to be given up.

use super::plan::Plan;
use core::ops::Bound;
use wire::{Fid, Right};

impl Plan {
    /// Has this object asked for. False: these are enough for one round.
    pub(crate) fn gather(&mut self, (fid, keep): (Fid, Right), most: usize) -> bool {
        self.gathers.entry(fid).or_insert(keep);
        let full = self.gathers.len() >= most;
        if full {
            self.more_behind = Some(fid);
        }
        !full
    }

    /// Plans the next round: a walk over the objects behind this one, and over all if that finds
    /// none to ask for.
    pub(crate) fn next_round(
        &mut self,
        behind: Option<Fid>,
        mut walk: impl FnMut(&mut Plan, Option<Fid>),
    ) {
        let before = self.gathers.len();
        walk(self, behind);
        if behind.is_some() && self.gathers.len() == before {
            walk(self, None);
        }
    }
}

/// The objects of a volume, or those of them that come behind another object.
pub(crate) fn of_volume(volume: u32, behind: Option<Fid>) -> (Bound<Fid>, Bound<Fid>) {
    let first = Fid {
        volume,
        vnode: 0,
        uniq: 0,
    };
    let last = Fid {
        volume,
        vnode: u64::MAX,
        uniq: u32::MAX,
    };
    let from = match behind {
        // Nothing is left of the volume.
        Some(behind) if behind >= last => Bound::Excluded(last),
        Some(behind) if behind >= first => Bound::Excluded(behind),
        _ => Bound::Included(first),
    };
    (from, Bound::Included(last))
}
