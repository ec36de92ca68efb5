//! The groups of a cell, as far as deciding goes: numbers, and the users in each.
//!
//! A user may give up memberships on one mount: there he is in fewer groups than elsewhere, for the
//! server and for the mount's kernel.
//!
//! A group of the cell has a number that no group of a machine has, so that lists name both in the
//! same way. The server adds the numbers of a caller's groups to those that his machine asserts,
//! before anything is decided: so a replay of its log decides as it did then, whoever is in which
//! group by now.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use wire::{Caller, MachineId};

/// The numbers that groups of a cell have. No machine uses them for its own: they lie above the
/// ids of containers and below the half that programs take for negative.
pub const GROUPS: RangeInclusive<u32> = 0x7000_0000..=0x77ff_ffff;

/// Is it the number of a group of the cell?
#[must_use]
pub fn is_group(gid: u32) -> bool {
    GROUPS.contains(&gid)
}

/// Groups by user; those of one user ascend.
type ByUser = BTreeMap<u32, Vec<u32>>;

/// A mount, by its machine and its name there.
pub type Mount = (MachineId, Vec<u8>);

/// The users of each group, groups within groups included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    users: BTreeMap<u32, BTreeSet<u32>>,
    /// The same the other way round, as each request asks it.
    groups: ByUser,
    /// The groups that are left to those who have given up some on a mount.
    left: BTreeMap<Mount, ByUser>,
}

/// The groups as they count on one mount.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    members: &'a Members,
    left: Option<&'a ByUser>,
}

impl Members {
    /// From the users that each group has.
    pub fn new(groups: impl IntoIterator<Item = (u32, Vec<u32>)>) -> Self {
        let own = groups.into_iter().filter(|(gid, _)| is_group(*gid));
        let sets = own.map(|(gid, uids)| (gid, uids.into_iter().collect()));
        let users: BTreeMap<u32, BTreeSet<u32>> = sets.collect();
        let mut groups = ByUser::new();
        for (gid, uids) in &users {
            for uid in uids {
                groups.entry(*uid).or_default().push(*gid);
            }
        }
        let left = BTreeMap::new();
        Self {
            users,
            groups,
            left,
        }
    }

    /// The same, but for a user who is in no other groups than these on one mount.
    #[must_use]
    pub fn with_left(mut self, mount: Mount, uid: u32, left: Vec<u32>) -> Self {
        let kept = |gid: &u32| left.contains(gid);
        let own = self.groups_of(uid).iter().copied().filter(kept).collect();
        self.left.entry(mount).or_default().insert(uid, own);
        self
    }

    /// The groups as they count where nobody has given any up.
    #[must_use]
    pub fn everywhere(&self) -> Here<'_> {
        let (members, left) = (self, None);
        Here { members, left }
    }

    /// The groups as they count on a mount of this name of a machine.
    #[must_use]
    pub fn on(&self, machine: MachineId, name: &[u8]) -> Here<'_> {
        // As a rule nobody has given anything up anywhere.
        let left = match self.left.is_empty() {
            true => None,
            false => self.left.get(&(machine, name.to_vec())),
        };
        Here {
            members: self,
            left,
        }
    }

    /// The users of a group.
    pub fn of(&self, gid: u32) -> impl Iterator<Item = u32> {
        self.users.get(&gid).into_iter().flatten().copied()
    }

    /// The groups of a user, ascending.
    #[must_use]
    pub fn groups_of(&self, uid: u32) -> &[u32] {
        self.groups.get(&uid).map_or(&[], Vec::as_slice)
    }

    /// The mounts on which groups count otherwise than in the other table; `None`: on all, perhaps.
    #[must_use]
    pub fn changed_on(&self, other: &Self) -> Option<Vec<Mount>> {
        let mounts: BTreeSet<&Mount> = self.left.keys().chain(other.left.keys()).collect();
        let differs = |mount: &&Mount| self.left.get(*mount) != other.left.get(*mount);
        let changed = mounts.into_iter().filter(differs).cloned().collect();
        (self.users == other.users).then_some(changed)
    }

    /// The groups whose users are not the same in the other table.
    #[must_use]
    pub fn changed(&self, other: &Self) -> BTreeSet<u32> {
        let gids = self.users.keys().chain(other.users.keys());
        let differs = |gid: &&u32| !self.of(**gid).eq(other.of(**gid));
        gids.filter(differs).copied().collect()
    }
}

impl<'a> Here<'a> {
    /// The users of a group, without those who have given it up here.
    pub fn of(self, gid: u32) -> impl Iterator<Item = u32> + 'a {
        let users = self.members.of(gid);
        users.filter(move |uid| self.groups_of(*uid).contains(&gid))
    }

    /// The groups of a user here, ascending.
    #[must_use]
    pub fn groups_of(self, uid: u32) -> &'a [u32] {
        match self.left.and_then(|left| left.get(&uid)) {
            Some(left) => left,
            None => self.members.groups_of(uid),
        }
    }

    /// Gives a caller the groups of the cell that he is in, and no others, whatever was asserted.
    pub fn join(self, caller: &mut Caller) {
        if is_group(caller.gid) {
            caller.gid = wire::NOBODY;
        }
        let groups = caller.groups.get_or_insert_default();
        groups.retain(|gid| !is_group(*gid));
        groups.extend(self.groups_of(caller.uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn groups_of_machines_are_none_and_changes_are_found() {
        let one = *GROUPS.start();
        let members = Members::new([(one, vec![5, 6]), (100, vec![7])]);
        assert_eq!(members.groups_of(5), [one]);
        assert!(members.groups_of(7).is_empty());
        let other = Members::new([(one, vec![6]), (one + 1, vec![])]);
        assert_eq!(members.changed(&other), BTreeSet::from([one]));
        assert!(members.changed(&members).is_empty());
    }

    #[test]
    fn memberships_are_given_up_on_one_mount_by_one_user() {
        let (one, two) = (*GROUPS.start(), GROUPS.start() + 1);
        let members = Members::new([(one, vec![5, 6]), (two, vec![5])]);
        let members = members.with_left((1, b"a".to_vec()), 5, vec![two, two + 1]);
        assert_eq!(
            members.on(1, b"a").groups_of(5),
            [two],
            "and no group that he was not in"
        );
        assert_eq!(members.on(1, b"a").groups_of(6), [one]);
        for other in [
            members.on(1, b"b"),
            members.on(2, b"a"),
            members.everywhere(),
        ] {
            assert_eq!(other.groups_of(5), [one, two]);
        }
        let before = Members::new([(one, vec![5, 6]), (two, vec![5])]);
        assert_eq!(members.changed_on(&before), Some(vec![(1, b"a".to_vec())]));
        assert_eq!(members.changed_on(&members), Some(vec![]));
        assert_eq!(members.changed_on(&Members::default()), None);
        let mut caller = Caller {
            uid: 5,
            gid: 5,
            groups: Some(vec![9, one]),
        };
        members.on(1, b"a").join(&mut caller);
        assert_eq!(caller.groups, Some(vec![9, two]), "whatever was asserted");
    }
}
