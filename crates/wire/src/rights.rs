//! What a machine may do: the bounds within which it is believed about its users.

use crate::attr::Attr;
use crate::op::Caller;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Names a machine of the cell; 0: a process of the server's own machine, without a certificate.
pub type MachineId = u64;

/// The user and group who stand for those that a machine may not speak for.
pub const NOBODY: u32 = 65_534;

/// What a machine may do. It is believed about who its users are, within these bounds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Its root is root of the tree, too.
    pub root: bool,
    /// It may change the tree.
    pub write: bool,
    /// The users whom it may speak for, from the first to the last of each; none: all of them.
    pub uids: Vec<(u32, u32)>,
}

impl Default for Rights {
    /// Those of a machine of which nothing else was said.
    fn default() -> Self {
        Self {
            root: false,
            write: true,
            uids: Vec::new(),
        }
    }
}

impl Rights {
    /// Those of a process that need not prove anything.
    pub const fn all() -> Self {
        Self {
            root: true,
            write: true,
            uids: Vec::new(),
        }
    }

    /// Is it believed when it speaks for this user?
    pub fn believes(&self, uid: u32) -> bool {
        let named = |(first, last): &(u32, u32)| (*first..=*last).contains(&uid);
        match uid {
            0 => self.root,
            NOBODY => true,
            _ => self.uids.is_empty() || self.uids.iter().any(named),
        }
    }

    /// Might anybody for whom the machine speaks be let at an object with these attributes, for
    /// this (4: reading, 2: writing)? `listed`: it may have an access list, whose mask stands where
    /// the group's bits would.
    pub fn may_reach(&self, attr: &Attr, bit: u16, listed: bool) -> bool {
        let group = listed || attr.gid != 0;
        // The owner may give himself what he has not.
        self.root
            || self.believes(attr.uid)
            || attr.mode & bit != 0
            || (group && attr.mode & (bit << 3) != 0)
    }

    /// For whom the machine speaks when it speaks for this caller.
    pub fn squash(&self, mut caller: Caller) -> Caller {
        if !self.believes(caller.uid) {
            return Caller {
                uid: NOBODY,
                gid: NOBODY,
                groups: Some(Vec::new()),
            };
        }
        if !self.root {
            if caller.gid == 0 {
                caller.gid = NOBODY;
            }
            if let Some(groups) = &mut caller.groups {
                groups.retain(|gid| *gid != 0);
            }
        }
        caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            groups: Some(vec![0, 7]),
        }
    }

    #[test]
    fn root_and_users_out_of_bounds_are_nobody() {
        let nobody = Caller {
            uid: NOBODY,
            gid: NOBODY,
            groups: Some(vec![]),
        };
        let bounded = Rights {
            uids: vec![(1000, 1999), (5, 5)],
            ..Rights::default()
        };
        for (rights, uid, is_believed) in [
            (Rights::default(), 0, false),
            (Rights::default(), 1, true),
            (Rights::all(), 0, true),
            (bounded.clone(), 0, false),
            (bounded.clone(), 4, false),
            (bounded.clone(), 5, true),
            (bounded.clone(), 1000, true),
            (bounded.clone(), 1999, true),
            (bounded, 2000, false),
        ] {
            let squashed = rights.squash(caller(uid, 9));
            assert_eq!(squashed.uid == uid, is_believed, "{rights:?} {uid}");
            assert_eq!(squashed == nobody, !is_believed);
        }
    }

    #[test]
    fn without_root_nobody_is_in_roots_group() {
        let squashed = Rights::default().squash(caller(3, 0));
        assert_eq!((squashed.uid, squashed.gid), (3, NOBODY));
        assert_eq!(squashed.groups, Some(vec![7]));
        assert_eq!(Rights::all().squash(caller(3, 0)), caller(3, 0));
    }
}
