//! The rights of a machine: the bounds within which it is believed about its users, and of a
//! machine that is not believed, the users who have logged in there.

use crate::attr::Attr;
use crate::ids::SessionId;
use crate::name::Name;
use crate::op::Caller;
use crate::volume::origin_name;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Names a machine of the cell; 0: a process of the server's own machine, without a certificate.
pub type MachineId = u64;

/// The user and group who stand for those that a machine may not speak for.
pub const NOBODY: u32 = 65_534;

/// So many losses of a client's session are followed.
const LOSSES_MAX: usize = 1024;

/// The session that a client has after the loss of this one: it is the same mount, and what was
/// said of its users goes on.
#[must_use]
pub fn next_session(session: SessionId) -> SessionId {
    let mut state = session;
    crate::splitmix64(&mut state).max(1)
}

/// Is it the same client, perhaps after losses of its session?
fn leads_to(first: SessionId, now: SessionId) -> bool {
    let all = core::iter::successors(Some(first), |it| Some(next_session(*it)));
    all.take(LOSSES_MAX).any(|session| session == now)
}

/// A user who has proved himself on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proven {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups, as the cell knows them.
    pub groups: Vec<u32>,
    /// In this session alone, where it counts in place of what counts in all sessions of the
    /// machine.
    pub session: Option<SessionId>,
    /// He may change the tree here.
    pub write: bool,
    /// He may come to what is at or below this path alone, and along the way to it.
    pub under: Option<Vec<Name>>,
    /// His proof has expired: he is known, and has no right.
    pub expired: bool,
}

impl Proven {
    /// The user and groups that he asks as.
    pub fn caller(&self) -> Caller {
        Caller {
            uid: self.uid,
            gid: self.gid,
            groups: Some(self.groups.clone()),
        }
    }
}

/// A part of the tree: what is at a path of a volume, and below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The volume's name.
    pub volume: Name,
    /// The names from its root on.
    pub path: Vec<Name>,
}

const fn yes() -> bool {
    true
}

/// The rights of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// It is believed about who its users are. On any other machine a user is nobody until he has
    /// proved himself.
    #[serde(default = "yes")]
    pub trusted: bool,
    /// Its root is root of the tree, too.
    pub root: bool,
    /// It may change the tree.
    pub write: bool,
    /// The users whom it may speak for, from the first to the last of each; none: all of them. (Who
    /// may prove himself there, if it is not trusted.)
    pub uids: Vec<(u32, u32)>,
    /// The parts of the tree that its users may come to, with what leads there; none: all of it.
    /// Clients are not told of them.
    #[serde(skip)]
    pub parts: Vec<Part>,
    /// Of a machine that is not trusted: the users who have proved themselves.
    #[serde(default)]
    pub users: Vec<Proven>,
    /// Those who had, and have left or were removed since: what they were answered before may come
    /// late, and counts. Clients are not told of them.
    #[serde(skip)]
    pub ended: Vec<Proven>,
}

impl Default for Rights {
    /// Those of a machine of which nothing else was said.
    fn default() -> Self {
        Self {
            trusted: true,
            root: false,
            write: true,
            uids: Vec::new(),
            parts: Vec::new(),
            users: Vec::new(),
            ended: Vec::new(),
        }
    }
}

impl Rights {
    /// Those of a process that need not prove anything.
    pub const fn all() -> Self {
        Self {
            trusted: true,
            root: true,
            write: true,
            uids: Vec::new(),
            parts: Vec::new(),
            users: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// May its users come to some parts of the tree alone?
    pub const fn is_limited(&self) -> bool {
        !self.parts.is_empty()
    }

    /// May its users come to something of the volume of this name, or of its snapshots?
    pub fn has_part_of(&self, volume: &Name) -> bool {
        let origin = origin_name(volume);
        let mut parts = self.parts.iter();
        !self.is_limited() || parts.any(|part| part.volume.as_bytes() == origin)
    }

    /// Is something that was allowed by `old` not allowed by these? Where it is not plain, yes.
    pub fn take_from(&self, old: &Self) -> bool {
        let gives = |now: bool, then: bool| now || !then;
        let all_of = |part: &Part| self.parts.contains(part);
        let keeps_parts = !self.is_limited() || (old.is_limited() && old.parts.iter().all(all_of));
        let keeps = self.trusted == old.trusted
            && gives(self.root, old.root)
            && gives(self.write, old.write)
            && (self.uids.is_empty() || self.uids == old.uids)
            && keeps_parts
            && old.users.iter().all(|user| self.users.contains(user));
        !keeps
    }

    /// Is it believed when it speaks for this user?
    pub fn believes(&self, uid: u32) -> bool {
        match uid {
            0 => self.root,
            NOBODY => true,
            _ => self.bounds(uid),
        }
    }

    /// May this user be spoken for, or prove himself there?
    pub fn bounds(&self, uid: u32) -> bool {
        let named = |(first, last): &(u32, u32)| (*first..=*last).contains(&uid);
        self.uids.is_empty() || self.uids.iter().any(named)
    }

    /// The rights that count in a session.
    #[must_use]
    pub fn within(mut self, session: SessionId) -> Self {
        let own = |user: &Proven| user.session.is_some_and(|it| leads_to(it, session));
        let narrowed: Vec<u32> = self
            .users
            .iter()
            .filter(|u| own(u))
            .map(|u| u.uid)
            .collect();
        self.users
            .retain(|user| own(user) || (user.session.is_none() && !narrowed.contains(&user.uid)));
        self
    }

    /// The user of this number who has proved himself, perhaps too long ago.
    pub fn proven(&self, uid: u32) -> Option<&Proven> {
        self.users.iter().find(|user| user.uid == uid)
    }

    /// The user of this number in whose name the machine answers for earlier changes.
    pub fn answerable(&self, uid: u32) -> Option<&Proven> {
        let ended = || self.ended.iter().find(|user| user.uid == uid);
        self.proven(uid).or_else(ended)
    }

    /// The caller as whom the machine tells a change that it has answered before.
    pub fn squash_answered(&self, caller: Caller) -> Caller {
        match self.answerable(caller.uid).filter(|_| !self.trusted) {
            Some(user) => user.caller(),
            None => self.squash(caller),
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

    /// The caller as whom the machine speaks when it speaks for this one.
    pub fn squash(&self, mut caller: Caller) -> Caller {
        if !self.trusted {
            return self
                .proven(caller.uid)
                .map_or_else(Caller::nobody, Proven::caller);
        }
        if !self.believes(caller.uid) {
            return Caller::nobody();
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

    #[test]
    fn a_narrow_proof_counts_after_a_loss_of_the_session_too() {
        let narrow = Proven {
            write: false,
            ..proven(5, Some(77))
        };
        let rights = Rights {
            trusted: false,
            users: vec![proven(5, None), narrow.clone()],
            ..Rights::default()
        };
        let mut session = 77;
        for _ in 0..3 {
            assert_eq!(rights.clone().within(session).users, vec![narrow.clone()]);
            session = next_session(session);
        }
        assert_eq!(rights.clone().within(78).users, [proven(5, None)]);
    }

    #[test]
    fn who_has_left_is_nobody_but_for_what_he_was_answered() {
        let rights = Rights {
            trusted: false,
            ended: vec![proven(5, None)],
            ..Rights::default()
        };
        assert_eq!(rights.squash(caller(5, 0)), Caller::nobody());
        assert_eq!(
            rights.squash_answered(caller(5, 0)),
            proven(5, None).caller()
        );
        assert_eq!(rights.squash_answered(caller(6, 0)), Caller::nobody());
    }

    fn proven(uid: u32, session: Option<SessionId>) -> Proven {
        Proven {
            uid,
            gid: 7,
            groups: vec![8],
            session,
            write: true,
            under: None,
            expired: false,
        }
    }

    #[test]
    fn where_users_prove_themselves_nobody_else_is_believed() {
        let rights = Rights {
            trusted: false,
            root: true,
            users: vec![proven(5, None)],
            ..Rights::default()
        };
        assert_eq!(rights.squash(caller(5, 0)), proven(5, None).caller());
        for uid in [0, 6, NOBODY] {
            assert_eq!(rights.squash(caller(uid, 0)), Caller::nobody(), "{uid}");
        }
    }

    #[test]
    fn what_counts_in_one_session_stands_there_in_place_of_the_rest() {
        let users = vec![proven(5, None), proven(6, None), proven(5, Some(1))];
        let rights = Rights {
            trusted: false,
            users,
            ..Rights::default()
        };
        let within = |session| rights.clone().within(session).users;
        assert_eq!(within(1), [proven(6, None), proven(5, Some(1))]);
        assert_eq!(within(2), [proven(5, None), proven(6, None)]);
    }

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
    fn whatever_is_allowed_no_more_is_taken() {
        let part = |text: &str| Part {
            volume: Name::new(text.as_bytes()).unwrap(),
            path: vec![],
        };
        let within = |parts: &[&str]| Rights {
            parts: parts.iter().map(|text| part(text)).collect(),
            ..Rights::all()
        };
        let of = |uids| Rights {
            uids,
            ..Rights::all()
        };
        let with = |users| Rights {
            trusted: false,
            users,
            ..Rights::all()
        };
        for (old, new, takes) in [
            (Rights::all(), Rights::all(), false),
            (Rights::default(), Rights::all(), false),
            (Rights::all(), Rights::default(), true),
            (Rights::all(), within(&["a"]), true),
            (within(&["a"]), Rights::all(), false),
            (within(&["a"]), within(&["b", "a"]), false),
            (within(&["a", "b"]), within(&["b"]), true),
            (Rights::all(), of(vec![(5, 9)]), true),
            (of(vec![(5, 9)]), of(vec![(5, 8)]), true),
            (of(vec![(5, 9)]), Rights::all(), false),
            (with(vec![]), with(vec![proven(5, None)]), false),
            (with(vec![proven(5, None)]), with(vec![]), true),
            (Rights::all(), with(vec![]), true),
        ] {
            assert_eq!(new.take_from(&old), takes, "{old:?} {new:?}");
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
