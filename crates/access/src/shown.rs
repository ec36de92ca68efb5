//! The mode and the POSIX list by which a kernel judges an object that a list governs, from its own
//! caches, as the list does.
//!
//! Guarantee: for no caller does the kernel's rule, applied to what is shown, allow more than the
//! list. It allows the same, but for these: it has one bit for making names and taking them away;
//! of two groups of machines it wants one that gives all at once; and of more than [`PEOPLE_MAX`]
//! people that a list names it knows no more.
//!
//! Users are named by numbers, each with what he has in the end, since a kernel neither knows the
//! groups of a cell nor takes rights away.

use crate::list::{List, Who, bits_of, cap};
use crate::members::{Here, is_group};
use crate::rights::Rights;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::posix_acl::{GROUP, GROUP_OBJ, MASK, NO_ID, OTHER, USER, USER_OBJ, VERSION};
use wire::{Attr, Caller, Kind};

/// People whom a kernel can be told of: Linux reads a list of one page over FUSE.
pub const PEOPLE_MAX: usize = 400;

/// The mode and the list that a kernel is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The value of `system.posix_acl_access`; `None`: the mode says all.
    pub list: Option<Vec<u8>>,
}

/// The mode and list that a kernel is shown of an object that this list governs.
#[must_use]
pub fn shown(list: &List, members: Here<'_>, object: &Attr) -> Shown {
    if object.kind == Kind::Symlink {
        return Shown {
            mode: object.mode,
            list: None,
        };
    }
    let bits = |rights| bits_of(rights, object);
    let people = people(list, members);
    let all = list.sum(false, |who| who == Who::Anyone);
    let taken = list.sum(true, |who| who == Who::Anyone);
    let mut anyone = bits(all & !taken);
    let of_user = |uid: u32| list.bits(&as_user(uid, members), object);
    let mut users: Vec<(u32, u16)> = people.iter().map(|uid| (*uid, of_user(*uid))).collect();
    // The kernel judges the owner by his own bits, and never looks for him in the list.
    users.retain(|(uid, _)| *uid != object.uid && *uid != 0);
    let mut groups = groups_of_machines(list, (all, taken), bits);
    if users.len() + groups.len() > PEOPLE_MAX {
        // A user who is left out must not count as a member of such a group.
        groups.clear();
    }
    if groups.is_empty() {
        users.retain(|(_, has)| *has != anyone);
    }
    if users.len() > PEOPLE_MAX {
        // Those who have less than everybody come first; if not even they have room, nobody has
        // anything by default.
        let less = |has: u16| has & anyone != anyone;
        users.sort_by_key(|(uid, has)| (!less(*has), *uid));
        if users.iter().filter(|(_, has)| less(*has)).count() > PEOPLE_MAX {
            anyone = 0;
            users.retain(|(_, has)| *has != 0);
            users.sort_unstable();
        }
        users.truncate(PEOPLE_MAX);
        users.sort_unstable();
    }
    let (owner, most) = (of_user(object.uid), cap(object));
    let named = !users.is_empty() || !groups.is_empty();
    let group_bits = if named { most } else { anyone };
    let mode = (object.mode & 0o7000) | owner << 6 | group_bits << 3 | anyone;
    if !named {
        return Shown { mode, list: None };
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    let mut put = |tag: u16, has: u16, id: u32| {
        value.extend(tag.to_le_bytes());
        value.extend(has.to_le_bytes());
        value.extend(id.to_le_bytes());
    };
    put(USER_OBJ, owner, NO_ID);
    users.iter().for_each(|(uid, has)| put(USER, *has, *uid));
    put(GROUP_OBJ, anyone, NO_ID);
    groups.iter().for_each(|(gid, has)| put(GROUP, *has, *gid));
    put(MASK, most, NO_ID);
    put(OTHER, anyone, NO_ID);
    Shown {
        mode,
        list: Some(value),
    }
}

/// Everybody whom the list names, by his number or by a group of the cell.
fn people(list: &List, members: Here<'_>) -> BTreeSet<u32> {
    let mut people = BTreeSet::new();
    for entry in list.entries() {
        match entry.who {
            Who::User(uid) => {
                people.insert(uid);
            }
            Who::Group(gid) if is_group(gid) => people.extend(members.of(gid)),
            Who::Group(_) | Who::Anyone => {}
        }
    }
    people
}

/// The groups of machines, and the bits that each has.
fn groups_of_machines(
    list: &List,
    (all, taken): (Rights, Rights),
    bits: impl Fn(Rights) -> u16,
) -> Vec<(u32, u16)> {
    let machines = list.entries().filter_map(|entry| match entry.who {
        Who::Group(gid) if !is_group(gid) => Some((gid, bits((entry.rights | all) & !taken))),
        _ => None,
    });
    machines.collect()
}

/// A user as the server sees him, but for the groups of his machine.
fn as_user(uid: u32, members: Here<'_>) -> Caller {
    Caller {
        uid,
        gid: NO_ID,
        groups: Some(members.groups_of(uid).to_vec()),
    }
}
