//! The groups of a cell, as far as deciding goes: numbers, and the users in each.
//!
//! A group of the cell has a number that no group of a machine has, so that lists name both in the
//! same way. The server adds the numbers of a caller's groups to those that his machine asserts,
//! before anything is decided: so a replay of its log decides as it did then, whoever is in which
//! group by now.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use wire::Caller;

/// The numbers that groups of a cell have. No machine uses them for its own: they lie above the
/// ids of containers and below the half that programs take for negative.
pub const GROUPS: RangeInclusive<u32> = 0x7000_0000..=0x77ff_ffff;

/// Is it the number of a group of the cell?
#[must_use]
pub fn is_group(gid: u32) -> bool {
    GROUPS.contains(&gid)
}

/// The users of each group, groups within groups included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    users: BTreeMap<u32, BTreeSet<u32>>,
    /// The same the other way round, as each request asks it; the groups ascend.
    groups: BTreeMap<u32, Vec<u32>>,
}

impl Members {
    /// From the users that each group has.
    pub fn new(groups: impl IntoIterator<Item = (u32, Vec<u32>)>) -> Self {
        let own = groups.into_iter().filter(|(gid, _)| is_group(*gid));
        let sets = own.map(|(gid, uids)| (gid, uids.into_iter().collect()));
        let users: BTreeMap<u32, BTreeSet<u32>> = sets.collect();
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (gid, uids) in &users {
            for uid in uids {
                groups.entry(*uid).or_default().push(*gid);
            }
        }
        Self { users, groups }
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

    /// Gives a caller the groups of the cell that he is in, and no others, whatever was asserted.
    pub fn join(&self, caller: &mut Caller) {
        if is_group(caller.gid) {
            caller.gid = wire::NOBODY;
        }
        let groups = caller.groups.get_or_insert_default();
        groups.retain(|gid| !is_group(*gid));
        groups.extend(self.groups_of(caller.uid));
    }

    /// The groups whose users are not the same in the other table.
    #[must_use]
    pub fn changed(&self, other: &Self) -> BTreeSet<u32> {
        let gids = self.users.keys().chain(other.users.keys());
        let differs = |gid: &&u32| !self.of(**gid).eq(other.of(**gid));
        gids.filter(differs).copied().collect()
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
}
