//! Which object a node id of the kernel means, and the other way round; and which session shows it.
//!
//! An object of the volume that is mounted has its vnode number as its node id: the root is 1 in
//! both, and a vnode number is never used again within its partition. An object of another volume
//! has a *slot* in the bits above. A slot follows from the volume's number, so that inode numbers
//! are the same at each mount; it is a volume's for as long as the mount lives, since the kernel
//! may know a node id for so long. So one mount shows at most one of two volumes that share a slot,
//! which are 65,535 numbers apart, if one store has made both.
//!
//! A volume is shown by one session for as long as the mount lives: that of the mount, or one that
//! was begun for a volume of another store, and is named by that volume's number.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use wire::{Fid, volume_numbers};

/// Bits of a node id below the slot.
const VNODE_BITS: u32 = wire::SNAPSHOTS_VNODE.count_ones();
const SLOTS: u32 = 1 << (u64::BITS - VNODE_BITS);
/// The slots of the first volumes of two stores with neighbouring numbers are so far apart. Those
/// of the first thirty stores of a server do not meet before one has made more than 800 volumes.
const STRIDE: u64 = 40_503;

/// No volume has this number.
const NO_VOLUME: u32 = 0;

/// A volume in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown {
    volume: u32,
    session: u32,
}

/// The volumes of a mount that have a slot.
#[derive(Debug)]
pub(super) struct Slots {
    /// The volume that is mounted; its session is called so, too.
    mounted: u32,
    others: RwLock<BTreeMap<u64, Shown>>,
}

impl Slots {
    pub(super) fn new(mounted: u32) -> Arc<Slots> {
        let others = RwLock::default();
        Arc::new(Slots { mounted, others })
    }

    fn slot(&self, volume: u32) -> u64 {
        if volume == self.mounted {
            return 0;
        }
        let store = volume_numbers::store(volume);
        let spread = u64::from(volume_numbers::count(volume)) + u64::from(store) * STRIDE;
        1 + spread % u64::from(SLOTS - 1)
    }

    /// The node id of an object.
    pub(super) fn node(&self, fid: Fid) -> u64 {
        self.slot(fid.volume) << VNODE_BITS | fid.vnode
    }

    fn shown(&self, nodeid: u64) -> Option<Shown> {
        match nodeid >> VNODE_BITS {
            0 => Some(Shown {
                volume: self.mounted,
                session: self.mounted,
            }),
            slot => self.others.read().get(&slot).copied(),
        }
    }

    /// The object behind a node id. One that was never given is nothing that exists.
    pub(super) fn fid(&self, nodeid: u64) -> Fid {
        Fid {
            volume: self.shown(nodeid).map_or(NO_VOLUME, |shown| shown.volume),
            vnode: nodeid & wire::SNAPSHOTS_VNODE,
            uniq: 1,
        }
    }

    /// Is this the mount's own session?
    pub(super) fn is_own(&self, session: u32) -> bool {
        session == self.mounted
    }

    /// The session of another volume's object; `None`: it is the mount's own, or there is none.
    pub(super) fn other_session(&self, nodeid: u64) -> Option<u32> {
        let shown = self.shown(nodeid)?;
        (shown.session != self.mounted).then_some(shown.session)
    }

    /// Do two node ids belong to one session?
    pub(super) fn in_one_session(&self, one: u64, other: u64) -> bool {
        self.other_session(one) == self.other_session(other)
    }

    /// The session that shows a volume, from now on if none did before: then it is `session`.
    /// `None`: another volume has the slot.
    pub(super) fn admit(&self, volume: u32, session: u32) -> Option<u32> {
        match self.slot(volume) {
            0 => Some(self.mounted),
            slot => {
                let known = self.others.read().get(&slot).copied();
                if let Some(shown) = known {
                    return (shown.volume == volume).then_some(shown.session);
                }
                let mut others = self.others.write();
                let shown = others.entry(slot).or_insert(Shown { volume, session });
                (shown.volume == volume).then_some(shown.session)
            }
        }
    }
}

/// The meaning of node ids for one session of a mount.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    slots: Arc<Slots>,
    session: u32,
}

impl Nodes {
    /// Those of the mount's own session.
    pub(super) fn of(root: Fid) -> Self {
        Self {
            slots: Slots::new(root.volume),
            session: root.volume,
        }
    }

    /// Those of another session of the same mount.
    pub(super) fn of_other(slots: &Arc<Slots>, session: u32) -> Self {
        let slots = Arc::clone(slots);
        Self { slots, session }
    }

    pub(super) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// The node id of an object.
    pub(super) fn node(&self, fid: Fid) -> u64 {
        self.slots.node(fid)
    }

    /// The object behind a node id. One that was never given is nothing that exists.
    pub(super) fn fid(&self, nodeid: u64) -> Fid {
        self.slots.fid(nodeid)
    }

    /// The kernel is about to be told of objects of this volume by this session: false if it cannot
    /// be.
    pub(super) fn admit(&self, volume: u32) -> bool {
        self.slots.admit(volume, self.session) == Some(self.session)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        // No two sessions show one volume.
        let slots = nodes.slots();
        let far = volume_numbers::first(3).unwrap();
        assert_eq!(slots.admit(5, far), Some(4));
        assert_eq!(slots.admit(far, far), Some(far));
        assert!(!nodes.admit(far));
        let root = nodes.node(Fid::root(far));
        assert_eq!(slots.other_session(root), Some(far));
        assert_eq!(slots.other_session(ROOT_ID), None);
        assert!(!slots.in_one_session(root, ROOT_ID) && slots.in_one_session(root, root + 1));
        let further = Nodes::of_other(slots, far);
        assert!(further.admit(far + 1) && !further.admit(5) && !further.admit(4));
        assert_eq!(further.fid(root), Fid::root(far));
        // These two share the slot of another one.
        assert!(!nodes.admit(5 + 65_535) && !nodes.admit(1 + 65_535));
        assert_eq!(nodes.fid(nodes.node(Fid::root(5))), Fid::root(5));
    }
}
