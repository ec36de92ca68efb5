//! The groups of a cell: users and other groups, under one name and one number.
//!
//! Guarantees: no group contains itself, through however many others; a number is never given
//! twice, so that a list which names a group that is gone names nobody; what a group contains is
//! changed by its owner or an administrator alone. A change is in force at the server before it is
//! noted: a command that has returned is both, and one that has failed is repeated.

use crate::database::{Changes, Database};
use crate::machine::{Machine, Role};
use crate::members::{CELL, Cell, CellError, State, decode, encode, place, refused};
use crate::revision::Revision;
use crate::users;
use crate::words::group_name;
use access::{GROUPS, Members};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const TABLE: &str = "groups";
/// The number that the next group gets.
const NEXT: &str = "next-group";
/// Groups of a cell, and members and owned groups of one, at most.
const GROUPS_MAX: usize = 16_384;
const MEMBERS_MAX: usize = 4096;
const OWNED_MAX: usize = 64;
/// Groups that a user is in at most, others within them included.
const MEMBERSHIPS_MAX: usize = 256;

/// Something that a group contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Member {
    /// A user, by his number.
    User(u32),
    /// Another group, by its number.
    Group(u32),
}

/// A group as it is kept and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name: with its owner's before a colon, or, of an administrator's, without one.
    pub name: String,
    /// Its number in lists.
    pub gid: u32,
    /// The user who owns it; 0: the administrators.
    pub owner: u32,
    /// The users and groups in it.
    pub members: BTreeSet<Member>,
}

/// Something to be done with groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupDeed {
    /// Tell all of them.
    List,
    /// Make one.
    Create {
        /// Its name.
        name: String,
    },
    /// Remove one.
    Delete {
        /// Its name.
        name: String,
    },
    /// Put a user or a group into one, or take it out.
    Change {
        /// The name of the one.
        name: String,
        /// The other, by name or number.
        member: String,
        /// The number of the user of that name on the machine that asks.
        uid: Option<u32>,
        /// In, or out.
        add: bool,
    },
    /// Give it another name.
    Rename {
        /// Its name.
        name: String,
        /// The other one.
        to: String,
    },
    /// Give it another owner.
    Chown {
        /// Its name.
        name: String,
        /// The owner, by name or number.
        to: String,
        /// His number on the machine that asks.
        uid: Option<u32>,
    },
}

/// The groups by their numbers, and the number that the next one gets.
#[derive(Clone, Default)]
struct Table {
    groups: BTreeMap<u32, Group>,
    next: u32,
}

/// Has the server know who is in which group, and returns when no mount judges by anything else.
pub type OnGroups = dyn Fn(Members) -> Result<(), String> + Send + Sync;

/// The groups, and what the server was told last of who is in them.
pub(crate) struct Groups(Mutex<(Table, Members)>);

/// Somebody who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Administrator,
    User(u32),
}

impl Table {
    fn named(&self, name: &str) -> Result<&Group, CellError> {
        let found = self.groups.values().find(|group| group.name == name);
        found.ok_or_else(|| {
            refused(format!(
                "the cell has no group {name}: `ariel group list` shows all"
            ))
        })
    }

    /// The users in a group, through all groups within it.
    fn users_of(&self, gid: u32) -> BTreeSet<u32> {
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
    fn contains(&self, gid: u32, other: u32) -> bool {
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

    fn members(&self) -> Members {
        let users = |gid: &u32| (*gid, self.users_of(*gid).into_iter().collect());
        Members::new(self.groups.keys().map(users))
    }

    /// Is nobody in more groups than a request can name?
    fn is_bounded(&self) -> bool {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for gid in self.groups.keys() {
            for uid in self.users_of(*gid) {
                *counts.entry(uid).or_default() += 1;
            }
        }
        counts.values().all(|count| *count <= MEMBERSHIPS_MAX)
    }
}

impl Table {
    fn load(database: &dyn Database) -> Result<Table, CellError> {
        let mut table = Table {
            next: *GROUPS.start(),
            ..Table::default()
        };
        for (_, bytes) in database.list(TABLE)? {
            let group: Group = decode(&bytes)?;
            table.groups.insert(group.gid, group);
        }
        if let Some(bytes) = database.get(&place(CELL, NEXT))? {
            table.next = decode(&bytes)?;
        }
        Ok(table)
    }
}

impl Groups {
    pub(crate) fn load(database: &dyn Database) -> Result<Groups, CellError> {
        let table = Table::load(database)?;
        let members = table.members();
        Ok(Groups(Mutex::new((table, members))))
    }
}

impl Cell {
    /// The users of each group.
    #[must_use]
    pub fn group_members(&self) -> Members {
        self.groups.0.lock().0.members()
    }

    /// All groups, by number.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        self.groups.0.lock().0.groups.values().cloned().collect()
    }

    /// Somebody on a machine, or an administrator, does something with groups.
    ///
    /// # Errors
    /// He may not, or it cannot be done; what cures it is said.
    pub fn do_with_groups(
        &self,
        (machine, uid): (&Machine, u32),
        deed: &GroupDeed,
        in_force: &dyn Fn(Members) -> Result<(), String>,
    ) -> Result<Vec<Group>, CellError> {
        let asker = self.group_asker(machine, uid)?;
        if *deed == GroupDeed::List {
            return Ok(self.groups());
        }
        // Held until all of it is done: two changes are in force one after the other.
        let mut held = self.groups.0.lock();
        let (table, told) = &mut *held;
        let mut next = table.clone();
        self.change_groups(&mut next, asker, deed)?;
        if !next.is_bounded() {
            return Err(refused(format!(
                "somebody would be in more than {MEMBERSHIPS_MAX} groups, with those around his"
            )));
        }
        put_in_force(&next, told, in_force)?;
        let mut changes = Changes::default();
        let gids: BTreeSet<u32> = table
            .groups
            .keys()
            .chain(next.groups.keys())
            .copied()
            .collect();
        for gid in &gids {
            let (old, new) = (table.groups.get(gid), next.groups.get(gid));
            if old != new {
                let value = new.map(encode).transpose()?;
                changes.then.push((place(TABLE, gid), value));
            }
        }
        changes
            .then
            .push((place(CELL, NEXT), Some(encode(&next.next)?)));
        self.commit(&mut self.changing.lock(), changes)?;
        *table = next;
        Ok(Vec::new())
    }

    /// Reads everything again as other servers have left it, and has the server judge by that; the
    /// revision that it is.
    pub(crate) fn reload(
        &self,
        in_force: &dyn Fn(Members) -> Result<(), String>,
    ) -> Result<u64, CellError> {
        let mut held = self.groups.0.lock();
        let (table, told) = &mut *held;
        let revision = {
            let mut changing = self.changing.lock();
            // Read first: what is changed after it is seen as a change.
            let revision = Revision::load(&*self.database)?;
            let users = users::tables(&*self.database)?;
            let machines = State::load(&*self.database)?;
            *table = Table::load(&*self.database)?;
            self.users.replace(users);
            *self.state.lock() = machines;
            *changing = revision;
            revision
        };
        put_in_force(table, told, in_force)?;
        Ok(revision.0)
    }

    /// As whom somebody on a machine asks.
    fn group_asker(&self, machine: &Machine, uid: u32) -> Result<Asker, CellError> {
        if machine.role == Role::Administrator {
            return Ok(Asker::Administrator);
        }
        let believed = match machine.rights.trusted {
            true => machine.rights.believes(uid),
            false => {
                let users = self.proven(machine.id, &machine.rights);
                users.iter().any(|user| user.uid == uid && !user.expired)
            }
        };
        match (believed, uid) {
            (false, _) => Err(refused(
                "this machine does not speak for you in the cell: `ariel login` first, or ask an \
                 administrator",
            )),
            (true, 0) => Ok(Asker::Administrator),
            (true, uid) => Ok(Asker::User(uid)),
        }
    }

    fn change_groups(
        &self,
        table: &mut Table,
        asker: Asker,
        deed: &GroupDeed,
    ) -> Result<(), CellError> {
        match deed {
            GroupDeed::List => Ok(()),
            GroupDeed::Create { name } => self.create_group(table, asker, name),
            GroupDeed::Delete { name } => {
                let gid = own(table, asker, name)?.gid;
                table.groups.remove(&gid);
                for group in table.groups.values_mut() {
                    group.members.remove(&Member::Group(gid));
                }
                Ok(())
            }
            GroupDeed::Change {
                name,
                member,
                uid,
                add,
            } => self.change_member(table, (asker, name), (member, *uid), *add),
            GroupDeed::Rename { name, to } => {
                let (gid, owner) = own(table, asker, name).map(|group| (group.gid, group.owner))?;
                self.may_be_called(table, (asker, owner), to)?;
                if let Some(group) = table.groups.get_mut(&gid) {
                    group.name.clone_from(to);
                }
                Ok(())
            }
            GroupDeed::Chown { name, to, uid } => {
                let gid = own(table, asker, name)?.gid;
                let owner = self.user_called(to, *uid)?;
                // The name says whose it is.
                let plain = name.rsplit(':').next().unwrap_or(name);
                let renamed = match asker {
                    Asker::Administrator if !name.contains(':') => name.clone(),
                    _ => format!("{}:{plain}", self.prefix_of(owner)),
                };
                if renamed != *name && table.named(&renamed).is_ok() {
                    return Err(refused(format!("the cell has a group {renamed} already")));
                }
                if let Some(group) = table.groups.get_mut(&gid) {
                    (group.owner, group.name) = (owner, renamed);
                }
                Ok(())
            }
        }
    }

    fn create_group(&self, table: &mut Table, asker: Asker, name: &str) -> Result<(), CellError> {
        let owner = match asker {
            Asker::Administrator => 0,
            Asker::User(uid) => uid,
        };
        self.may_be_called(table, (asker, owner), name)?;
        let owned = table.groups.values().filter(|it| it.owner == owner).count();
        if table.groups.len() >= GROUPS_MAX || (owner != 0 && owned >= OWNED_MAX) {
            return Err(refused(format!(
                "a cell has {GROUPS_MAX} groups at most, and a user {OWNED_MAX} of them: \
                 `ariel group delete` makes room"
            )));
        }
        let gid = table.next;
        if !GROUPS.contains(&gid) {
            return Err(refused("the cell has given all numbers of groups"));
        }
        table.next += 1;
        let group = Group {
            name: name.to_owned(),
            gid,
            owner,
            members: BTreeSet::new(),
        };
        table.groups.insert(gid, group);
        Ok(())
    }

    fn change_member(
        &self,
        table: &mut Table,
        (asker, name): (Asker, &str),
        (member, uid): (&str, Option<u32>),
        add: bool,
    ) -> Result<(), CellError> {
        let gid = own(table, asker, name)?.gid;
        let member = match table.named(member) {
            Ok(group) => Member::Group(group.gid),
            Err(_) => Member::User(self.user_called(member, uid)?),
        };
        if let Member::Group(other) = member
            && add
            && table.contains(other, gid)
        {
            return Err(refused(format!("{name} would contain itself")));
        }
        let Some(group) = table.groups.get_mut(&gid) else {
            return Ok(());
        };
        let done = match add {
            true => group.members.insert(member),
            false => group.members.remove(&member),
        };
        if group.members.len() > MEMBERS_MAX {
            return Err(refused(format!(
                "a group has {MEMBERS_MAX} members at most"
            )));
        }
        match (done, add) {
            (true, _) => Ok(()),
            (false, true) => Err(refused(format!("{name} has that member already"))),
            (false, false) => Err(refused(format!("{name} has no such member"))),
        }
    }

    /// May somebody call a group so that this user owns?
    fn may_be_called(
        &self,
        table: &Table,
        (asker, owner): (Asker, u32),
        name: &str,
    ) -> Result<(), CellError> {
        group_name(name).map_err(refused)?;
        if table.named(name).is_ok() {
            return Err(refused(format!("the cell has a group {name} already")));
        }
        let prefix = self.prefix_of(owner);
        let before = name.split_once(':').map(|(before, _)| before);
        match (asker, before) {
            (Asker::Administrator, None) => Ok(()),
            (_, Some(before)) if before == prefix => Ok(()),
            (Asker::Administrator, Some(_)) if owner == 0 => Ok(()),
            _ => Err(refused(format!(
                "your groups are called {prefix}:NAME, with your name in the cell before a colon"
            ))),
        }
    }

    /// The word before the colon in the names of a user's groups.
    fn prefix_of(&self, uid: u32) -> String {
        let users = self.users();
        let known = users.into_iter().find(|user| user.uid == uid);
        known.map_or_else(|| uid.to_string(), |user| user.name)
    }

    /// The number of a user: of the cell's one of that name, of the number itself, or of the one
    /// whom the asking machine calls so.
    fn user_called(&self, word: &str, uid: Option<u32>) -> Result<u32, CellError> {
        let users = self.users();
        let known = users.iter().find(|user| user.name == word);
        let found = known.map(|user| user.uid).or_else(|| word.parse().ok());
        let found = found.or(uid).filter(|uid| *uid != 0 && *uid < wire::NOBODY);
        found.ok_or_else(|| {
            refused(format!(
                "neither a user nor a group is called {word}: name a user by his number, or see \
                 `ariel group list`"
            ))
        })
    }
}

/// Has the server judge by a table, if it judges by another one.
fn put_in_force(
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

/// A group that the asker may change.
fn own<'a>(table: &'a Table, asker: Asker, name: &str) -> Result<&'a Group, CellError> {
    let group = table.named(name)?;
    match asker {
        Asker::Administrator => Ok(group),
        Asker::User(uid) if uid == group.owner => Ok(group),
        Asker::User(_) => Err(refused(format!(
            "{name} is not yours: its owner and administrators change it"
        ))),
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
