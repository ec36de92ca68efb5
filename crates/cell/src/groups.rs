//! The groups of a cell: users and other groups, under one name and one number.
//!
//! Guarantees: no group contains itself, through however many others; a number is never given
//! twice, so that a list which names a group that is gone names nobody; what a group contains is
//! changed by its owner or an administrator alone; and a user is on a mount in no group that he has
//! given up there, nor in one that he is in by that group alone. A change is in force at the server
//! before it is noted: a command that has returned is both, and one that has failed is repeated.

use crate::database::Database;
use crate::given_up::At;
use crate::group_table::{Table, put_in_force};
use crate::machine::{Machine, Role};
use crate::members::{Cell, CellError, State, refused};
use crate::revision::Revision;
use crate::users;
use crate::words::group_name;
use access::{GROUPS, Members};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Groups of a cell, and members and owned groups of one, at most.
const GROUPS_MAX: usize = 16_384;
const MEMBERS_MAX: usize = 4096;
const OWNED_MAX: usize = 64;

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
    /// The user who sees it has given up his membership on the mount through which he asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
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
    /// Give up the asker's membership on the mount through which he asks, or take it back.
    Hold {
        /// Its name.
        name: String,
        /// Back.
        held: bool,
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

/// Has the server know who is in which group, and returns when no mount judges by anything else.
pub type OnGroups = dyn Fn(Members) -> Result<(), String> + Send + Sync;

/// The groups, and what the server was told last of who is in them.
pub(crate) struct Groups(pub(crate) Mutex<(Table, Members)>);

/// Somebody who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Administrator,
    User(u32),
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
    pub(crate) fn do_with_groups(
        &self,
        at: At<'_>,
        deed: &GroupDeed,
        in_force: &dyn Fn(Members) -> Result<(), String>,
    ) -> Result<Vec<Group>, CellError> {
        let asker = self.group_asker(at.machine, at.uid)?;
        if *deed == GroupDeed::List {
            return Ok(self.groups_seen(at));
        }
        // Held until all of it is done: two changes are in force one after the other.
        let mut held = self.groups.0.lock();
        let (table, told) = &mut *held;
        let mut next = table.clone();
        match deed {
            GroupDeed::Hold { name, held } => next.hold(at, (name, *held))?,
            deed => self.change_groups(&mut next, asker, deed)?,
        }
        next.is_bounded()?;
        put_in_force(&next, told, in_force)?;
        self.commit(&mut self.changing.lock(), next.changes_from(table)?)?;
        *table = next;
        Ok(Vec::new())
    }

    /// Reads everything again as other servers have left it; the revision that it is.
    pub(crate) fn reload(&self) -> Result<u64, CellError> {
        let mut held = self.groups.0.lock();
        let mut changing = self.changing.lock();
        // Read first: what is changed after it is seen as a change.
        let revision = Revision::load(&*self.database)?;
        let users = users::tables(&*self.database)?;
        let machines = State::load(&*self.database)?;
        held.0 = Table::load(&*self.database)?;
        self.users.replace(users);
        *self.state.lock() = machines;
        *changing = revision;
        Ok(revision.0)
    }

    /// Has the server judge by the groups as they are now.
    pub(crate) fn put_groups_in_force(
        &self,
        in_force: &dyn Fn(Members) -> Result<(), String>,
    ) -> Result<(), CellError> {
        let mut held = self.groups.0.lock();
        let (table, told) = &mut *held;
        put_in_force(table, told, in_force)
    }

    /// The numbers of the users by their names, as somebody on a machine sees them.
    pub(crate) fn names(
        &self,
        machine: &Machine,
        uid: u32,
    ) -> Result<BTreeMap<String, u32>, CellError> {
        self.group_asker(machine, uid)?;
        let users = self.users().into_iter();
        Ok(users.map(|user| (user.name, user.uid)).collect())
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
            GroupDeed::List | GroupDeed::Hold { .. } => Ok(()),
            GroupDeed::Create { name } => self.create_group(table, asker, name),
            GroupDeed::Delete { name } => {
                let gid = own(table, asker, name)?.gid;
                table.remove(gid);
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
            disabled: false,
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
        let (users, is_number) = (self.users(), |word: &str| word.parse::<u32>().is_ok());
        let is_somebody = |word: &str| is_number(word) || users.iter().any(|it| it.name == word);
        let before = name.split_once(':').map(|(before, _)| before);
        match (asker, before) {
            (Asker::Administrator, None) => Ok(()),
            (_, Some(before)) if before == prefix => Ok(()),
            (Asker::Administrator, Some(before)) if owner == 0 => match is_somebody(before) {
                true => Ok(()),
                false => Err(refused(format!(
                    "the cell has no user {before}: `ariel user list` shows those there are; \
                     groups of a user whom it does not have begin with his number, those of the \
                     administrators have no colon"
                ))),
            },
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
                "the cell has neither a user nor a group {word}: `ariel user list --mount DIR` and \
                 `ariel group list` show those there are, and a user may be named by his number"
            ))
        })
    }
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
