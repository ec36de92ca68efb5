//! POSIX access lists, as far as a user's right to an object depends on them (acl(5)).

use wire::posix_acl::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, VERSION};
use wire::{Attr, Caller};

const ENTRY_BYTES: usize = 8;

struct Entry {
    tag: u16,
    rights: u16,
    id: u32,
}

/// The entries of a list, as `system.posix_acl_access` has them; `None`: it is no such list.
fn entries(value: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = value.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || rest.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let entry = |bytes: &[u8]| Entry {
        tag: u16::from_le_bytes([bytes[0], bytes[1]]),
        rights: u16::from_le_bytes([bytes[2], bytes[3]]),
        id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    Some(rest.chunks_exact(ENTRY_BYTES).map(entry).collect())
}

/// Has the caller all of these rights (4: read, 2: write, 1: execute or search) by the list, in the
/// order of acl(5)? `None`: the list cannot be read.
pub(crate) fn allows(value: &[u8], attr: &Attr, caller: &Caller, wanted: u16) -> Option<bool> {
    let entries = entries(value)?;
    let of = |tag: u16| entries.iter().find(|entry| entry.tag == tag);
    let mask = of(MASK).map_or(0o7, |entry| entry.rights);
    let has = |rights: u16| rights & wanted == wanted;
    if caller.uid == attr.uid {
        return Some(has(of(USER_OBJ)?.rights));
    }
    let named = |entry: &&Entry| entry.tag == USER && entry.id == caller.uid;
    if let Some(entry) = entries.iter().find(named) {
        return Some(has(entry.rights & mask));
    }
    let mine = |entry: &&Entry| match entry.tag {
        GROUP_OBJ => is_member(caller, attr.gid),
        GROUP => is_member(caller, entry.id),
        _ => false,
    };
    let mut groups = entries.iter().filter(mine).peekable();
    if groups.peek().is_some() {
        return Some(groups.any(|entry| has(entry.rights & mask)));
    }
    Some(has(of(OTHER)?.rights))
}

/// Is the caller in this group?
pub(crate) fn is_member(caller: &Caller, group: u32) -> bool {
    let more = caller.groups.as_ref();
    caller.gid == group || more.is_some_and(|groups| groups.contains(&group))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use wire::Kind;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(rights.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    fn attr() -> Attr {
        Attr {
            uid: 10,
            gid: 20,
            ..Attr::new(Kind::File, 0o640, 0)
        }
    }

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller {
            uid,
            gid,
            groups: Some(Vec::new()),
        }
    }

    #[test]
    fn a_named_user_has_what_the_list_says_within_the_mask() {
        let none = u32::MAX;
        let value = list(&[
            (USER_OBJ, 6, none),
            (USER, 6, 11),
            (GROUP_OBJ, 4, none),
            (GROUP, 7, 21),
            (MASK, 4, none),
            (OTHER, 0, none),
        ]);
        let may = |uid, gid, wanted| allows(&value, &attr(), &caller(uid, gid), wanted).unwrap();
        assert!(may(10, 99, 6));
        assert!(may(11, 99, 4));
        assert!(!may(11, 99, 2), "the mask takes it");
        assert!(may(12, 20, 4) && !may(12, 20, 2));
        assert!(may(12, 21, 4) && !may(12, 21, 1));
        assert!(!may(12, 99, 4));
    }

    #[test]
    fn rubbish_is_no_list() {
        assert!(allows(b"\x02\0\0\0\x01", &attr(), &caller(1, 1), 4).is_none());
        assert!(allows(b"", &attr(), &caller(1, 1), 4).is_none());
    }
}
