//! The groups of a cell as one table: who is in which, what was given up, and how it is kept.
//!
//! Guarantees: what a table says of members follows from itself alone; a change of the database
//! names each record once.

use crate::database::{Changes, Database};
use crate::given_up::GivenUp;
use crate::groups::{Group, Member};
use crate::members::{CELL, CellError, decode, encode, place, refused};
use access::{GROUPS, Members};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = "groups";
/// The table of what users have given up.
const GIVEN_UP: &str = "given-up";
/// The number that the next group gets.
const NEXT: &str = "next-group";
/// Groups that a user is in at most, others within them included.
const MEMBERSHIPS_MAX: usize = 256;

/// The groups by their numbers, and the number that the next one gets.
#[derive(Clone, Default)]
pub(crate) struct Table {
    pub(crate) groups: BTreeMap<u32, Group>,
    pub(crate) next: u32,
    /// By their keys.
    pub(crate) given_up: BTreeMap<String, GivenUp>,
}

impl Table {
    pub(crate) fn named(&self, name: &str) -> Result<&Group, CellError> {
        let found = self.groups.values().find(|group| group.name == name);
        found.ok_or_else(|| {
            refused(format!(
                "the cell has no group {name}: `ariel group list` shows all"
            ))
        })
    }

    /// The users in a group, through all groups within it.
    pub(crate) fn users_of(&self, gid: u32) -> BTreeSet<u32> {
        let (mut users, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![gid]);
        while let Some(gid) = open.pop() {
            if !seen.insert(gid) {
                continue;
            }
            for member in self.groups.get(&gid).into_iter().flat_map(|it| &it.members) {
                match *member {
                    Member::User(uid) => drop(users.insert(uid)),
                    Member::Group(gid) => open.push(gid),
                }
            }
        }
        users
    }

    /// Is the second group the first one, or within it?
    pub(crate) fn contains(&self, gid: u32, other: u32) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![gid]);
        while let Some(gid) = open.pop() {
            if gid == other {
                return true;
            }
            if seen.insert(gid) {
                let members = self.groups.get(&gid).into_iter().flat_map(|it| &it.members);
                open.extend(members.filter_map(|member| match member {
                    Member::Group(gid) => Some(*gid),
                    Member::User(_) => None,
                }));
            }
        }
        false
    }

    pub(crate) fn members(&self) -> Members {
        let users = |gid: &u32| (*gid, self.users_of(*gid).into_iter().collect());
        let all = Members::new(self.groups.keys().map(users));
        self.given_up.values().fold(all, |all, one| {
            let mount = (one.machine, one.mount.clone().into_bytes());
            all.with_left(mount, one.uid, self.left_of(one))
        })
    }

    /// A group is gone: nobody has it to give up.
    pub(crate) fn remove(&mut self, gid: u32) {
        self.groups.remove(&gid);
        for group in self.groups.values_mut() {
            group.members.remove(&Member::Group(gid));
        }
        for one in self.given_up.values_mut() {
            one.groups.remove(&gid);
        }
        self.given_up.retain(|_, one| !one.groups.is_empty());
    }

    /// The difference from another table, for the database.
    pub(crate) fn changes_from(&self, old: &Self) -> Result<Changes, CellError> {
        let mut changes = Changes::default();
        // A change names each record once.
        let gids: BTreeSet<&u32> = old.groups.keys().chain(self.groups.keys()).collect();
        for gid in gids {
            let (old, new) = (old.groups.get(gid), self.groups.get(gid));
            if old != new {
                let value = new.map(encode).transpose()?;
                changes.then.push((place(TABLE, gid), value));
            }
        }
        let keys: BTreeSet<&String> = old.given_up.keys().chain(self.given_up.keys()).collect();
        for key in keys {
            let (old, new) = (old.given_up.get(key), self.given_up.get(key));
            if old != new {
                let value = new.map(encode).transpose()?;
                changes.then.push((place(GIVEN_UP, key), value));
            }
        }
        changes
            .then
            .push((place(CELL, NEXT), Some(encode(&self.next)?)));
        Ok(changes)
    }

    /// Refused: somebody is in more groups than a request can name.
    pub(crate) fn is_bounded(&self) -> Result<(), CellError> {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for gid in self.groups.keys() {
            for uid in self.users_of(*gid) {
                *counts.entry(uid).or_default() += 1;
            }
        }
        match counts.values().all(|count| *count <= MEMBERSHIPS_MAX) {
            true => Ok(()),
            false => Err(refused(format!(
                "somebody would be in more than {MEMBERSHIPS_MAX} groups, with those around his"
            ))),
        }
    }
}

impl Table {
    pub(crate) fn load(database: &dyn Database) -> Result<Table, CellError> {
        let mut table = Table {
            next: *GROUPS.start(),
            ..Table::default()
        };
        for (_, bytes) in database.list(TABLE)? {
            let group: Group = decode(&bytes)?;
            table.groups.insert(group.gid, group);
        }
        for (key, bytes) in database.list(GIVEN_UP)? {
            table.given_up.insert(key, decode(&bytes)?);
        }
        if let Some(bytes) = database.get(&place(CELL, NEXT))? {
            table.next = decode(&bytes)?;
        }
        Ok(table)
    }
}

/// Has the server judge by a table, if it judges by another one.
pub(crate) fn put_in_force(
    table: &Table,
    told: &mut Members,
    in_force: &dyn Fn(Members) -> Result<(), String>,
) -> Result<(), CellError> {
    let members = table.members();
    if members != *told {
        in_force(members.clone()).map_err(refused)?;
        *told = members;
    }
    Ok(())
}
