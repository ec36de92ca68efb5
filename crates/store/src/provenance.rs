//! The origins of copies: snapshots that are received, and how they come to be there.
//!
//! A snapshot that is received is from the beginning a snapshot of its volume, at a birth that the
//! volume has not come to yet. The received things go under that birth, so nobody sees them:
//! neither the volume, whose birth is below, nor a request for the snapshot, which is not there
//! before it is complete. Then the volume comes to the birth behind it, in one step.
//!
//! Objects have other numbers than at the sender. Its numbers are divided into ranges; each range
//! that is met gets the next range of the numbers that are kept for this, so the numbers of later
//! streams fit those of earlier ones, and no number that a client has reserved is among them.

use crate::volumes::{Lineage, Volume, Volumes};
use serde::{Deserialize, Serialize};
use wire::{Fid, Identity, Op, Provenance, Receiving, Refusal, SNAPSHOTS_VNODE, VolumeOp};

/// Numbers of received objects begin here; no other object gets one of them.
const RECEIVED: u64 = 1 << 40;
/// Numbers of one range, as a power of two.
const RANGE_BITS: u32 = 32;
/// How far above the birth of its volume a snapshot is received: so many snapshots and clones can
/// be made of it meanwhile.
pub(crate) const AHEAD: u32 = 1024;

/// The record that a volume or a snapshot keeps about copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    /// The birth of the last change.
    pub(crate) changed: u32,
    /// The index lists the things born from this birth on.
    pub(crate) listed_from: u32,
    /// The volume or the snapshot that it is a copy of.
    pub(crate) of: Option<Identity>,
    /// The sender's ranges of numbers, in the order of the ranges that they have here.
    pub(crate) ranges: Vec<u64>,
    /// The last birth that anything was received at.
    pub(crate) ahead: u32,
    /// Of a snapshot that is not complete.
    pub(crate) half: Option<Half>,
}

/// A snapshot that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Half {
    pub(crate) receiving: Receiving,
    /// The volume must not have been changed at a later birth when the snapshot is complete.
    pub(crate) unchanged: u32,
    /// Earlier changes of the volume that are still to be undone here.
    pub(crate) undo: Option<Undo>,
}

/// Changes of a volume, of births from one to another one, from a thing on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undo {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) from: Vec<u8>,
}

/// The number of an object that was made here; of a received one, 0.
pub(crate) fn made_here(vnode: u64) -> u64 {
    if vnode < RECEIVED { vnode } else { 0 }
}

/// The number here of an object of the sender's.
pub(crate) fn number(ranges: &mut Vec<u64>, vnode: u64) -> Result<u64, Refusal> {
    if vnode <= Fid::root(0).vnode {
        return Ok(vnode);
    }
    let range = vnode >> RANGE_BITS;
    let at = match ranges.iter().position(|known| *known == range) {
        Some(at) => at,
        None => {
            ranges.push(range);
            ranges.len() - 1
        }
    };
    let within = vnode & ((1 << RANGE_BITS) - 1);
    let number = RECEIVED + ((at as u64) << RANGE_BITS) + within;
    match number < SNAPSHOTS_VNODE {
        true => Ok(number),
        false => Err(Refusal::TooLarge),
    }
}

impl Volumes {
    /// The snapshot that this operation is about can be seen and changed until [`Self::leave`].
    pub(crate) fn enter(&mut self, op: &Op) {
        let id = match op {
            Op::Restore { volume, .. }
            | Op::Volume(VolumeOp::Publish { volume } | VolumeOp::Undo { volume, .. }) => *volume,
            _ => return,
        };
        let half = self.get(id).is_some_and(|of| of.copied.half.is_some());
        self.entered = half.then(|| (id, self.trace(id)));
    }

    /// Nobody sees what is received.
    pub(crate) fn leave(&mut self) {
        self.entered = None;
    }

    /// Is this the snapshot that is being received at the moment?
    pub(crate) fn is_entered(&self, id: u32) -> bool {
        self.entered
            .as_ref()
            .is_some_and(|(entered, _)| *entered == id)
    }

    /// The snapshot that is being received for this volume.
    pub(crate) fn half_of(&self, id: u32) -> Option<u32> {
        let mut halves = self.iter().filter(|(_, of)| of.copied.half.is_some());
        halves
            .find(|(_, of)| of.snapshot_of == Some(id))
            .map(|(half, _)| half)
    }

    /// Something of it was changed, at its birth.
    pub(crate) fn note_changed(&mut self, id: u32) {
        let stale = |of: &Volume| of.copied.changed != of.birth;
        if self.get(id).is_some_and(stale)
            && let Some(mut volume) = self.get(id).cloned()
        {
            volume.copied.changed = volume.birth;
            self.amend(id, volume);
        }
    }

    /// The identity that tells a volume from all others.
    fn identity(&self, id: u32, volume: &Volume) -> Identity {
        Identity {
            partition: self.partition,
            number: id,
            made: volume.made,
        }
    }

    pub(crate) fn provenance(&self, id: u32, volume: &Volume) -> Provenance {
        Provenance {
            identity: self.identity(id, volume),
            copy_of: volume.copied.of,
            receiving: volume
                .copied
                .half
                .as_ref()
                .map(|half| half.receiving.clone()),
        }
    }

    /// Of two snapshots of one volume: what the first one sees at its birth, and at that of the
    /// second one, which is not older.
    pub(crate) fn between(&self, base: u32, id: u32) -> Option<(Lineage, Lineage)> {
        let (old, new) = (self.get(base)?, self.get(id)?);
        let (from, to) = (self.trace(base), self.trace(id));
        let same = old.snapshot_of.is_some() && old.snapshot_of == new.snapshot_of;
        let (first, last) = (from.first()?.1, to.first()?.1);
        (same && first <= last).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_of_the_sender_get_numbers_of_their_own() {
        let mut ranges = Vec::new();
        assert_eq!(number(&mut ranges, 0), Ok(0));
        assert_eq!(number(&mut ranges, 1), Ok(1));
        assert_eq!(number(&mut ranges, 7), Ok(RECEIVED + 7));
        let far = RECEIVED + 7;
        let there = number(&mut ranges, far).unwrap();
        assert_eq!(there, RECEIVED + (1 << 32) + 7);
        assert_eq!(number(&mut ranges, 8), Ok(RECEIVED + 8));
        assert_eq!(ranges, [0, 256]);
    }

    #[test]
    fn more_ranges_than_there_are_numbers_for_are_refused() {
        let mut ranges = Vec::new();
        let all = (0..1 << 16).map(|range: u64| number(&mut ranges, (range << RANGE_BITS) + 2));
        let refused = all.filter(Result::is_err).count();
        assert!(refused > 0 && refused < 300, "{refused}");
    }
}
