//! Memberships that users give up on a mount, and take back.
//!
//! Guarantees: on the mount its user is in no group that he has given up there, nor in one that he
//! is in by that group alone, whoever changes the groups meanwhile; on other mounts, and for other
//! users, nothing changes. It lasts over restarts of the server and of the mount, until he takes it
//! back or the mount has ended for good.

use crate::group_table::{Table, put_in_force};
use crate::groups::{Group, Member};
use crate::machine::Machine;
use crate::members::{Cell, CellError, refused};
use access::Members;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Mounts of a machine on which a user has given up something, each user for himself.
const GIVEN_UP_MAX: usize = 4096;

/// Groups that a user has given up on a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenUp {
    pub(crate) machine: u64,
    pub(crate) mount: String,
    pub(crate) uid: u32,
    pub(crate) groups: BTreeSet<u32>,
}

/// A user on a mount of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// The machine.
    pub(crate) machine: &'a Machine,
    /// The user.
    pub(crate) uid: u32,
    /// The mount, by its name; none: he asks through none.
    pub(crate) mount: Option<&'a str>,
}

impl At<'_> {
    /// Names the user and the mount in the database.
    fn key(&self) -> Option<String> {
        let (machine, uid) = (self.machine.id, self.uid);
        self.mount.map(|mount| format!("{machine}/{uid}/{mount}"))
    }
}

impl Table {
    /// The groups that a user is in without those that he has given up, and without what he is in
    /// by these alone.
    pub(crate) fn left_of(&self, given_up: &GivenUp) -> Vec<u32> {
        let (mut left, mut open) = (BTreeSet::new(), vec![Member::User(given_up.uid)]);
        while let Some(member) = open.pop() {
            let around = self
                .groups
                .values()
                .filter(|it| it.members.contains(&member));
            for gid in around.map(|group| group.gid) {
                if !given_up.groups.contains(&gid) && left.insert(gid) {
                    open.push(Member::Group(gid));
                }
            }
        }
        left.into_iter().collect()
    }

    /// A user gives up a group on a mount, or takes it back.
    pub(crate) fn hold(&mut self, at: At<'_>, (name, held): (&str, bool)) -> Result<(), CellError> {
        let gid = self.named(name)?.gid;
        let (Some(key), Some(mount)) = (at.key(), at.mount) else {
            return Err(refused(
                "a membership is given up on a mount: ask through one, with `--mount DIR`",
            ));
        };
        if at.uid == 0 {
            return Err(refused("root has all rights, whatever groups it is in"));
        }
        let of_machine = self
            .given_up
            .values()
            .filter(|it| it.machine == at.machine.id);
        if !held && of_machine.count() >= GIVEN_UP_MAX {
            return Err(refused(format!(
                "the users of a machine give up groups on {GIVEN_UP_MAX} mounts at most: take some \
                 back with `ariel group enable`"
            )));
        }
        let is_in = self.users_of(gid).contains(&at.uid);
        let one = self.given_up.entry(key.clone()).or_insert(GivenUp {
            machine: at.machine.id,
            mount: mount.to_owned(),
            uid: at.uid,
            groups: BTreeSet::new(),
        });
        let done = match held {
            true => one.groups.remove(&gid),
            false => is_in && one.groups.insert(gid),
        };
        if one.groups.is_empty() {
            self.given_up.remove(&key);
        }
        match (done, held, is_in) {
            (true, ..) => Ok(()),
            (_, true, _) => Err(refused(format!(
                "you have not given up {name} on this mount: `ariel group list` marks what you have"
            ))),
            (_, false, true) => Err(refused(format!("you have given up {name} here already"))),
            (_, false, false) => Err(refused(format!("you are not in {name}"))),
        }
    }
}

impl Cell {
    /// All groups, as somebody on a mount sees them.
    pub(crate) fn groups_seen(&self, at: At<'_>) -> Vec<Group> {
        let held = self.groups.0.lock();
        let table = &held.0;
        let given_up = at.key().and_then(|key| table.given_up.get(&key));
        let seen = |group: &Group| Group {
            disabled: given_up.is_some_and(|one| one.groups.contains(&group.gid)),
            ..group.clone()
        };
        table.groups.values().map(seen).collect()
    }

    /// A mount has ended for good: nothing is given up there any more.
    ///
    /// # Errors
    /// It cannot be put in force, or the database fails.
    pub(crate) fn forget_mount(
        &self,
        (machine, mount): (&Machine, &str),
        in_force: &dyn Fn(Members) -> Result<(), String>,
    ) -> Result<(), CellError> {
        let mut held = self.groups.0.lock();
        let (table, told) = &mut *held;
        let mut next = table.clone();
        let of_mount = |one: &GivenUp| one.machine == machine.id && one.mount == mount;
        next.given_up.retain(|_, one| !of_mount(one));
        if next.given_up.len() != table.given_up.len() {
            put_in_force(&next, told, in_force)?;
            self.commit(&mut self.changing.lock(), next.changes_from(table)?)?;
            *table = next;
        }
        Ok(())
    }
}
