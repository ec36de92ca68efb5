//! Numbers of received objects: of a replica those of the source, else the receiver's own; and the
//! release of a replica that has changed an object last.

use super::Restore;
use crate::value::Object;
use crate::{provenance, replica};
use wire::{Attr, Kind, Refusal, SNAPSHOTS_VNODE};

impl Restore<'_, '_> {
    /// The number here of an object of the sender's.
    pub(super) fn number(&mut self, vnode: u64) -> Result<u64, Refusal> {
        match self.release {
            None => provenance::number(&mut self.ranges, vnode),
            Some(_) if vnode < SNAPSHOTS_VNODE => Ok(vnode),
            Some(_) => Err(Refusal::TooLarge),
        }
    }

    /// The position of the next name in a directory; in its place, of another object of a replica,
    /// the note of its release.
    pub(super) fn next_position(&self, attr: &Attr, told: u64) -> u64 {
        match (attr.kind, self.release) {
            (Kind::Directory, _) => told,
            (_, Some(release)) => replica::note(told, release),
            (_, None) => Object::new(attr.clone()).next_position,
        }
    }
}
