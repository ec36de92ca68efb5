//! The rights of callers: the owner's, group's and others' bits, and access lists in the form in
//! which Linux stores them.
//!
//! Where the caller's groups are not known, a right of any group counts as the caller's. Nobody is
//! served so any more: the server takes groups that it is not told of for none. But the log of a
//! store may hold changes that were made so, and they are made again as they were.

use crate::acl;
use crate::key;
use crate::state::Core;
use crate::txn::trouble;
use access::{List, Rights};
use wire::posix_acl::{GROUP, GROUP_OBJ, MASK, OTHER, USER};
use wire::{Attr, Caller, Fid, Kind, Refusal};

/// The rights that a caller wants on an object: the bits of one class, and what they mean where a
/// list of a directory decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want(u16, Rights);

impl Want {
    pub(crate) const READ: Self = Self(4, Rights::NONE);
    pub(crate) const WRITE: Self = Self(2, Rights::NONE);
    /// Execute a file, look up in a directory.
    pub(crate) const EXECUTE: Self = Self(1, Rights::NONE);
    /// Make names in a directory.
    pub(crate) const INSERT: Self = Self(3, Rights::INSERT);
    /// Take names away.
    pub(crate) const DELETE: Self = Self(3, Rights::DELETE);

    fn within(self, bits: u16) -> bool {
        self.0 & !bits == 0
    }

    /// Does a list that governs an object allow a caller this?
    pub(crate) fn by(self, list: &List, caller: &Caller, attr: &Attr) -> bool {
        if caller.uid == 0 {
            return allowed(caller, attr, self, None);
        }
        self.within(list.bits(caller, attr)) && list.rights(caller, attr).has(self.1)
    }
}

/// Is it known that the caller is in this group?
fn member(caller: &Caller, gid: u32) -> Option<bool> {
    if caller.gid == gid {
        return Some(true);
    }
    caller.groups.as_ref().map(|groups| groups.contains(&gid))
}

/// May the caller give an object to this group?
pub(crate) fn may_be_member(caller: &Caller, gid: u32) -> bool {
    member(caller, gid).unwrap_or(true)
}

/// May the caller use an object so (4: read, 2: write, 1: execute or search)? Not one that is gone.
pub(crate) fn of(core: &Core, caller: &Caller, (fid, bit): (Fid, u16)) -> Result<bool, Refusal> {
    let object = match core.object(fid) {
        Err(Refusal::Stale) => return Ok(false),
        other => other?,
    };
    let want = Want(bit & 7, Rights::NONE);
    if let Some(list) = core.index.governing(fid, &object)? {
        return Ok(want.by(&list, caller, &object.attr));
    }
    let list = match object.acl {
        true => core
            .index
            .get(&key::xattr(fid, acl::ACCESS))
            .map_err(trouble)?,
        false => None,
    };
    Ok(allowed(caller, &object.attr, want, list.as_deref()))
}

/// May the caller do this?
pub(crate) fn allowed(caller: &Caller, attr: &Attr, want: Want, acl: Option<&[u8]>) -> bool {
    if caller.uid == 0 {
        // Root may do everything, but not execute what nobody may execute.
        let executes = want == Want::EXECUTE && attr.kind != Kind::Directory;
        return !executes || attr.mode & 0o111 != 0;
    }
    if caller.uid == attr.uid {
        return want.within(attr.mode >> 6);
    }
    if let Some(allowed) = acl.and_then(|acl| by_list(caller, attr, want, acl)) {
        return allowed;
    }
    match member(caller, attr.gid) {
        Some(true) => want.within(attr.mode >> 3),
        Some(false) => want.within(attr.mode),
        None => want.within(attr.mode >> 3) || want.within(attr.mode),
    }
}

/// The answer of an access list to a caller that is not the owner; `None`: it is not a list.
fn by_list(caller: &Caller, attr: &Attr, want: Want, acl: &[u8]) -> Option<bool> {
    let list = acl::List::parse(acl)?;
    let entries = list.entries().map(|e| (e.tag, e.bits, e.id));
    let of = |wanted: u16| {
        let mut entries = entries.clone();
        entries
            .find(|(tag, ..)| *tag == wanted)
            .map(|(_, bits, _)| bits)
    };
    let mask = of(MASK).unwrap_or(7);
    let mut named = entries.clone();
    if let Some((_, bits, _)) = named.find(|(tag, _, id)| *tag == USER && *id == caller.uid) {
        return Some(want.within(bits & mask));
    }
    let mut in_a_group = false;
    let mut perhaps = false;
    for (tag, bits, id) in entries.clone() {
        let gid = match tag {
            GROUP_OBJ => attr.gid,
            GROUP => id,
            _ => continue,
        };
        match member(caller, gid) {
            Some(true) if want.within(bits & mask) => return Some(true),
            Some(true) => in_a_group = true,
            Some(false) => {}
            None => perhaps |= want.within(bits & mask),
        }
    }
    let others = want.within(of(OTHER).unwrap_or(0));
    Some(perhaps || (!in_a_group && others))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn attr(mode: u16) -> Attr {
        Attr {
            uid: 1,
            gid: 10,
            ..Attr::new(Kind::File, mode, 0)
        }
    }

    fn caller(uid: u32, gid: u32, groups: Option<Vec<u32>>) -> Caller {
        Caller { uid, gid, groups }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let read = |c: &Caller, mode| allowed(c, &attr(mode), Want::READ, None);
        assert!(!read(&caller(1, 10, None), 0o077));
        assert!(!read(&caller(2, 10, None), 0o707));
        assert!(!read(&caller(2, 9, Some(vec![10])), 0o707));
        assert!(read(&caller(2, 9, Some(vec![])), 0o704));
        assert!(read(&caller(2, 9, None), 0o740), "a group may be unknown");
        assert!(read(&caller(0, 0, None), 0));
        let root = caller(0, 0, None);
        assert!(!allowed(&root, &attr(0o666), Want::EXECUTE, None));
    }

    #[test]
    fn a_list_names_users_within_the_mask() {
        let mut acl = 2u32.to_le_bytes().to_vec();
        let classes = [
            (1, 7u16, 0u32),
            (USER, 6, 5),
            (GROUP_OBJ, 0, 0),
            (MASK, 4, 0),
            (OTHER, 0, 0),
        ];
        for (tag, bits, id) in classes {
            acl.extend_from_slice(&tag.to_le_bytes());
            acl.extend_from_slice(&bits.to_le_bytes());
            acl.extend_from_slice(&id.to_le_bytes());
        }
        let five = caller(5, 5, Some(vec![]));
        assert!(allowed(&five, &attr(0o640), Want::READ, Some(&acl)));
        assert!(!allowed(&five, &attr(0o640), Want::WRITE, Some(&acl)));
        let six = caller(6, 6, Some(vec![]));
        assert!(!allowed(&six, &attr(0o604), Want::READ, Some(&acl)));
    }
}
