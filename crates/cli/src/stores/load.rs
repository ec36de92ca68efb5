//! The load of a server, for `ariel volume balance`.

use super::{Stores, record_of};
use cell::{Load, StoreLoad};
use rustix::fs::statvfs;
use wire::{VolumeInfo, VolumeState, volume_numbers};

impl Stores {
    /// The work of each store, and the room on the disk.
    pub(super) fn load(&self) -> Result<Load, String> {
        let server = self.server()?;
        let room = statvfs(self.places.data()).map_err(|error| error.to_string())?;
        let volumes = server.volumes();
        let line = |load: server::StoreLoad| StoreLoad {
            first_volume: load.first_volume,
            volume: self.own.as_ref().and(moves(&volumes, load.first_volume)),
            store_bytes: load.store_bytes,
            messages: load.messages,
            moved_bytes: load.moved_bytes,
        };
        Ok(Load {
            // As df(1) counts: without what only root may use.
            disk_bytes: (room.f_blocks - room.f_bfree + room.f_bavail) * room.f_frsize,
            free_bytes: room.f_bavail * room.f_frsize,
            stores: server.loads().into_iter().map(line).collect(),
        })
    }
}

/// The volume for which a store was made, if it is there, and the store can move.
fn moves(volumes: &[VolumeInfo], first_volume: u32) -> Option<String> {
    if !volume_numbers::is_further(first_volume) {
        return None;
    }
    let here = volumes
        .iter()
        .filter(|info| record_of(info.id) == record_of(first_volume));
    let mut there = here.filter(|info| info.state == VolumeState::Present);
    let first = there.find(|info| info.snapshot_of.is_none())?;
    (!first.is_replica()).then(|| first.name.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::releases::tests::{F, volume};
    use wire::Name;

    #[test]
    fn stores_with_one_volume_of_their_own_move_and_no_others() {
        let named = |id, name: &[u8]| VolumeInfo {
            name: Name::new(name).unwrap(),
            ..volume(id, VolumeState::Present, None)
        };
        let own = named(F + 1, b"data");
        let one = std::slice::from_ref(&own);
        assert_eq!(moves(one, F), Some("data".to_owned()));
        assert_eq!(moves(one, F + (1 << 16)), None);
        assert_eq!(moves(&[named(1, b"root")], 1), None);
        let deleted = VolumeInfo {
            state: VolumeState::Deleted(7),
            ..own.clone()
        };
        assert_eq!(moves(&[deleted], F), None);
        let mut replica = named(F + 1, b"data.readonly");
        replica.provenance.copy_of = Some(wire::Identity::default());
        assert_eq!(moves(&[replica], F), None);
    }
}
