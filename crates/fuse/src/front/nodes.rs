//! Which object a node id of the kernel means, and the other way round.
//!
//! An object of the volume that is mounted has its vnode number as its node id: the root is 1 in
//! both, and a vnode number is never used again within its partition. An object of another volume
//! has a *slot* in the bits above. A slot follows from the volume's number, so that inode numbers
//! are the same at each mount; it is a volume's for as long as the mount lives, since the kernel
//! may know a node id for so long. So one mount shows at most one of two volumes that share a slot,
//! which are 65,535 numbers apart.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use wire::Fid;

/// Bits of a node id below the slot.
const VNODE_BITS: u32 = wire::SNAPSHOTS_VNODE.count_ones();
const SLOTS: u32 = 1 << (u64::BITS - VNODE_BITS);

/// No volume has this number.
const NO_VOLUME: u32 = 0;

/// The meaning of a mount's node ids.
#[derive(Debug)]
pub(super) struct Nodes {
    /// The volume that is mounted.
    mounted: u32,
    /// The volumes that have a slot.
    others: RwLock<BTreeMap<u64, u32>>,
}

impl Nodes {
    pub(super) fn of(root: Fid) -> Self {
        Self {
            mounted: root.volume,
            others: RwLock::default(),
        }
    }

    fn slot(&self, volume: u32) -> u64 {
        match volume == self.mounted {
            true => 0,
            false => u64::from(1 + volume % (SLOTS - 1)),
        }
    }

    /// The node id of an object.
    pub(super) fn node(&self, fid: Fid) -> u64 {
        self.slot(fid.volume) << VNODE_BITS | fid.vnode
    }

    /// The object behind a node id. One that was never given is nothing that exists.
    pub(super) fn fid(&self, nodeid: u64) -> Fid {
        let volume = match nodeid >> VNODE_BITS {
            0 => self.mounted,
            slot => self.others.read().get(&slot).copied().unwrap_or(NO_VOLUME),
        };
        Fid {
            volume,
            vnode: nodeid & wire::SNAPSHOTS_VNODE,
            uniq: 1,
        }
    }

    /// The kernel is about to be told of objects of this volume: false if it cannot be.
    pub(super) fn admit(&self, volume: u32) -> bool {
        match self.slot(volume) {
            0 => true,
            slot => *self.others.write().entry(slot).or_insert(volume) == volume,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ROOT_ID;

    #[test]
    fn the_mounted_volume_has_its_vnode_numbers() {
        let nodes = Nodes::of(Fid::root(4));
        assert_eq!(nodes.fid(ROOT_ID), Fid::root(4));
        let fid = Fid {
            vnode: 99,
            ..Fid::root(4)
        };
        assert_eq!((nodes.node(fid), nodes.fid(99)), (99, fid));
        let snapshots = Fid::snapshots(4);
        assert_eq!(nodes.fid(nodes.node(snapshots)), snapshots);
    }

    #[test]
    fn other_volumes_have_node_ids_of_their_own() {
        let nodes = Nodes::of(Fid::root(4));
        let unknown = nodes.fid(nodes.node(Fid::root(5)));
        assert_eq!(unknown.volume, NO_VOLUME);
        for volume in [1, 5, 65_533, 65_534, u32::MAX] {
            assert!(nodes.admit(volume) && nodes.admit(volume));
            for fid in [Fid::root(volume), Fid::snapshots(volume)] {
                assert_ne!(nodes.node(fid), fid.vnode);
                assert_eq!(nodes.fid(nodes.node(fid)), fid);
            }
        }
        // These two share the slot of another one.
        assert!(!nodes.admit(5 + 65_535) && !nodes.admit(1 + 65_535));
        assert_eq!(nodes.fid(nodes.node(Fid::root(5))), Fid::root(5));
    }
}
