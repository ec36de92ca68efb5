//! The directory of a volume's snapshots: each is there under its name, as its root.
//!
//! Nothing of it is kept: its content follows from the volumes, so it changes with the same
//! operations as they do, and by nothing else. A name has the number of its snapshot as its
//! position. A volume that is a snapshot itself has none.

use crate::error::StoreError;
use crate::index::Index;
use crate::key;
use crate::value::{Named, Object, Placed, root_object};
use crate::volumes::{State, Volume, Volumes};
use wire::{Fid, Kind, Name, Op};

/// Everybody may look, nobody may change anything.
const MODE: u16 = 0o555;
/// An entry's share of a directory's size, besides its name.
const ENTRY_BYTES: u64 = 24;

/// Would this change names in a directory of snapshots?
pub(crate) fn are_changed(op: &Op) -> bool {
    match op {
        Op::Make { dir, .. }
        | Op::MakeNameless { dir, .. }
        | Op::Link { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Unmount { dir, .. } => dir.is_snapshots(),
        Op::Rename { from, to, .. } => from.is_snapshots() || to.is_snapshots(),
        _ => false,
    }
}

impl Volumes {
    /// All snapshots of a volume that are kept, in the order of their numbers.
    fn branches(&self, id: u32) -> impl Iterator<Item = (u32, &Volume)> {
        self.iter()
            .filter(move |(_, volume)| volume.snapshot_of == Some(id))
            .filter(|(_, volume)| volume.state != State::Receiving)
    }

    /// Those that are there.
    fn shown(&self, id: u32) -> impl Iterator<Item = (u32, &Volume)> {
        self.branches(id).filter(|(_, volume)| volume.is_present())
    }

    /// The directory itself, as an object.
    pub(crate) fn snapshots_dir(&self, id: u32) -> Option<Object> {
        let volume = self.get(id)?;
        if !volume.is_present() || volume.snapshot_of.is_some() {
            return None;
        }
        let times = self.branches(id).map(|(_, of)| match of.state {
            State::Deleted(at) => at,
            State::Present | State::Purged | State::Receiving => of.made,
        });
        let newest = times.fold(volume.made, u64::max);
        let mut dir = root_object((0, 0), MODE, newest);
        for (_, of) in self.shown(id) {
            dir.entries += 1;
            dir.attr.nlink += 1;
            dir.attr.size += ENTRY_BYTES + of.name.as_bytes().len() as u64;
        }
        dir.attr.btime = volume.made;
        dir.next_position = u64::from(self.next());
        Some(dir)
    }

    /// The snapshots behind a position, each with its own.
    pub(crate) fn placed_snapshots(
        &self,
        id: u32,
        after: u64,
    ) -> impl Iterator<Item = (u64, Placed)> {
        let behind = move |(of, _): &(u32, &Volume)| u64::from(*of) > after;
        let placed = |(of, volume): (u32, &Volume)| Placed {
            name: volume.name.clone(),
            fid: Fid::root(of),
            kind: Kind::Directory,
        };
        let shown = self.shown(id).filter(behind);
        shown.map(move |entry| (u64::from(entry.0), placed(entry)))
    }
}

impl Index {
    /// The object that a name names in a directory.
    pub(crate) fn named(&self, dir: Fid, name: &Name) -> Result<Option<Named>, StoreError> {
        if dir.is_snapshots() {
            let mut shown = self.volumes.shown(dir.volume);
            let found = shown.find(|(_, volume)| volume.name == *name);
            return Ok(found.map(|(id, _)| Named {
                fid: Fid::root(id),
                kind: Kind::Directory,
                position: u64::from(id),
            }));
        }
        let entry: Option<Named> = self.get_as(&key::name(dir, name.as_bytes()))?;
        let Some(mut entry) = entry else {
            return Ok(None);
        };
        entry.fid = self.named_in(dir, entry.fid, entry.kind)?;
        Ok(Some(entry))
    }
}
