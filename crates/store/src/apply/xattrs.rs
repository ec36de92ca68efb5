//! Extended attributes. Their values mean nothing here, but that an access list is used in checks
//! of permission, and capabilities end when the content of a file changes.

use super::Applied;
use super::attrs::is_owner;
use crate::key;
use crate::permission::{self, Want};
use crate::txn::Txn;
use crate::value::Object;
use wire::limits::XATTR_LIST_BYTES;
use wire::{Fid, Kind, Op, Outcome, Refusal, XattrMode};

const CAPABILITY: &[u8] = b"security.capability";

/// May the caller see (or change) this attribute?
fn check(
    txn: &Txn<'_>,
    (fid, object): (Fid, &Object),
    name: &[u8],
    change: bool,
) -> Result<(), Refusal> {
    if name.is_empty() || name.contains(&0) {
        return Err(Refusal::Invalid);
    }
    let root = txn.context.caller.uid == 0;
    let allow = |right: bool, refusal| if right { Ok(()) } else { Err(refusal) };
    if name.starts_with(b"user.") {
        let holds = matches!(object.attr.kind, Kind::File | Kind::Directory);
        let hidden = if change {
            Refusal::NotPermitted
        } else {
            Refusal::NoAttribute
        };
        allow(holds, hidden)?;
        let sticky = object.attr.kind == Kind::Directory && object.attr.mode & 0o1000 != 0;
        if change && sticky && !is_owner(txn, object) {
            return Err(Refusal::NotPermitted);
        }
        let want = if change { Want::WRITE } else { Want::READ };
        txn.allowed(fid, object, want)
    } else if name.starts_with(b"trusted.") {
        let hidden = if change {
            Refusal::NotPermitted
        } else {
            Refusal::NoAttribute
        };
        allow(root, hidden)
    } else if name.starts_with(b"security.") {
        allow(!change || root, Refusal::NotPermitted)
    } else if name.starts_with(b"system.posix_acl_") {
        allow(!change || is_owner(txn, object), Refusal::NotPermitted)
    } else {
        Err(Refusal::NotSupported)
    }
}

pub(super) fn get(txn: &Txn<'_>, fid: Fid, name: &[u8]) -> Applied {
    let object = txn.object(fid)?;
    check(txn, (fid, &object), name, false)?;
    if object.xattrs == 0 {
        return Err(Refusal::NoAttribute);
    }
    let value = txn.get(&key::xattr(fid, name))?;
    value.map(Outcome::Value).ok_or(Refusal::NoAttribute)
}

pub(super) fn set(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::SetXattr {
        fid,
        name,
        value,
        mode,
    } = op
    else {
        return Err(Refusal::Invalid);
    };
    let mut object = txn.object(*fid)?;
    check(txn, (*fid, &object), name, true)?;
    let there = txn.get(&key::xattr(*fid, name))?.is_some();
    match mode {
        XattrMode::Create if there => return Err(Refusal::Exists),
        XattrMode::Replace if !there => return Err(Refusal::NoAttribute),
        _ => {}
    }
    if !there {
        let listed: usize = names(txn, *fid)?.iter().map(|name| name.len() + 1).sum();
        if listed + name.len() + 1 > XATTR_LIST_BYTES {
            return Err(Refusal::NoSpace);
        }
        object.xattrs += 1;
        object.acl |= name == permission::ACL;
    }
    object.attr.ctime = txn.now();
    txn.put(key::xattr(*fid, name), value.clone());
    txn.put_object(*fid, object);
    Ok(Outcome::Done)
}

fn names(txn: &Txn<'_>, fid: Fid) -> Result<Vec<Vec<u8>>, Refusal> {
    let (from, to) = key::range(fid, key::XATTR);
    let all = txn.all(from, &to)?;
    let names = all.iter().filter_map(|(key, _)| key::parts(key));
    Ok(names.map(|parts| parts.detail.to_vec()).collect())
}

pub(super) fn list(txn: &Txn<'_>, fid: Fid) -> Applied {
    let object = txn.object(fid)?;
    let mut list = Vec::new();
    if object.xattrs > 0 {
        let root = txn.context.caller.uid == 0;
        for name in names(txn, fid)? {
            if root || !name.starts_with(b"trusted.") {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
    }
    Ok(Outcome::Value(list))
}

pub(super) fn remove(txn: &mut Txn<'_>, fid: Fid, name: &[u8]) -> Applied {
    let mut object = txn.object(fid)?;
    check(txn, (fid, &object), name, true)?;
    if txn.get(&key::xattr(fid, name))?.is_none() {
        return Err(Refusal::NoAttribute);
    }
    forget(txn, fid, &mut object, name);
    object.attr.ctime = txn.now();
    txn.put_object(fid, object);
    Ok(Outcome::Done)
}

fn forget(txn: &mut Txn<'_>, fid: Fid, object: &mut Object, name: &[u8]) {
    txn.remove(key::xattr(fid, name));
    object.xattrs = object.xattrs.saturating_sub(1);
    object.acl &= name != permission::ACL;
}

/// Takes the capabilities from a program whose content or owner changes.
pub(super) fn drop_capability(
    txn: &mut Txn<'_>,
    fid: Fid,
    object: &mut Object,
) -> Result<(), Refusal> {
    if object.xattrs > 0 && txn.get(&key::xattr(fid, CAPABILITY))?.is_some() {
        forget(txn, fid, object, CAPABILITY);
    }
    Ok(())
}
