//! Extended attributes. Their values mean nothing here, but that access lists, POSIX ones and those
//! of directories as in Andrew, are used in checks of permission, and capabilities end when the
//! content of a file changes.

use super::Applied;
use super::attrs::is_owner;
use super::entries::SET_GID;
use crate::acl::{self, List};
use crate::key;
use crate::permission::Want;
use crate::txn::Txn;
use crate::value::{self, Object, Placed};
use access::Rights;
use wire::limits::XATTR_LIST_BYTES;
use wire::{ACCESS_LIST, Fid, Kind, Op, Outcome, Refusal, UMASK_SHIFT, XattrMode};

/// The bits of a mode that an access list speaks of.
const PERMISSIONS: u16 = 0o777;
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
        allow(!change || is_owner(txn, object), Refusal::NotPermitted)?;
        // It would say something, and nobody would be judged by it.
        let sleeps = change && txn.governing(fid, object)?.is_some();
        allow(!sleeps, Refusal::NotSupported)
    } else if name == ACCESS_LIST {
        check_list(txn, (fid, object), change)
    } else {
        Err(Refusal::NotSupported)
    }
}

/// May the caller see (or change) the access list of a directory?
fn check_list(txn: &Txn<'_>, (fid, object): (Fid, &Object), change: bool) -> Result<(), Refusal> {
    if object.attr.kind != Kind::Directory {
        let refusal = [Refusal::NoAttribute, Refusal::NotDirectory];
        return Err(refusal[usize::from(change)]);
    }
    if is_owner(txn, object) && (!change || txn.governing(fid, object)?.is_some()) {
        return Ok(());
    }
    match txn.has_right(fid, object, Rights::ADMINISTER)? {
        Some(true) => Ok(()),
        Some(false) if change => Err(Refusal::NotPermitted),
        Some(false) => txn.allowed(fid, object, Want::EXECUTE),
        None if !change => Err(Refusal::NoAttribute),
        None => may_have_list(txn, fid, object),
    }
}

/// The first list of a directory decides about the files in it from then on: so its owner gives it
/// one only if these are his own.
fn may_have_list(txn: &Txn<'_>, dir: Fid, object: &Object) -> Result<(), Refusal> {
    if !is_owner(txn, object) {
        return Err(Refusal::NotPermitted);
    }
    if txn.context.caller.uid == 0 {
        return Ok(());
    }
    let (from, to) = key::range(dir, key::POSITION);
    for (_, placed) in txn.all(from, &to)? {
        let placed: Option<Placed> = value::decode(&placed);
        let placed = placed.map(|placed| placed.within(dir.volume));
        let placed = placed.ok_or(Refusal::Damaged)?;
        let named = txn.object(placed.fid)?;
        if placed.kind != Kind::Directory && !is_owner(txn, &named) {
            return Err(Refusal::NotPermitted);
        }
    }
    Ok(())
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
    let value = match meaning(name, &object, value)? {
        Meaning::None => value.clone(),
        // A list that says no more than a mode is kept by the mode alone.
        Meaning::Mode(bits) => {
            object.attr.mode = (object.attr.mode & !PERMISSIONS) | bits;
            end_set_gid(&mut object, *mode);
            if there {
                forget(txn, *fid, &mut object, name);
            }
            return Ok(changed(txn, *fid, object));
        }
        Meaning::List(list) => {
            if name == acl::ACCESS {
                object.attr.mode = (object.attr.mode & !PERMISSIONS) | list.mode();
                end_set_gid(&mut object, *mode);
            }
            list.encode()
        }
    };
    if !there {
        has_place(txn, *fid, name)?;
        object.xattrs += 1;
        object.acl |= name == acl::ACCESS;
    }
    txn.put(key::xattr(*fid, name), value);
    Ok(changed(txn, *fid, object))
}

/// The object has changed: its attributes.
fn changed(txn: &mut Txn<'_>, fid: Fid, mut object: Object) -> Outcome {
    object.attr.ctime = object.attr.ctime.max(txn.now());
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Outcome::Attr(attr)
}

fn end_set_gid(object: &mut Object, mode: XattrMode) {
    if mode == XattrMode::EndsSetGid {
        object.attr.mode &= !SET_GID;
    }
}

/// Is there room for one more name?
fn has_place(txn: &Txn<'_>, fid: Fid, name: &[u8]) -> Result<(), Refusal> {
    let listed: usize = names(txn, fid)?.iter().map(|name| name.len() + 1).sum();
    match listed + name.len() < XATTR_LIST_BYTES {
        true => Ok(()),
        false => Err(Refusal::NoSpace),
    }
}

/// The meaning of a value beyond itself.
enum Meaning {
    None,
    /// An access list that says what these permission bits say.
    Mode(u16),
    /// Another one, or one that is inherited.
    List(List),
}

fn meaning(name: &[u8], object: &Object, value: &[u8]) -> Result<Meaning, Refusal> {
    if name == ACCESS_LIST {
        let list = access::List::decode(value);
        return list.map(|_| Meaning::None).ok_or(Refusal::Invalid);
    }
    let inherited = name == acl::DEFAULT;
    if name != acl::ACCESS && !inherited {
        return Ok(Meaning::None);
    }
    match object.attr.kind {
        Kind::Symlink | Kind::Mount => return Err(Refusal::NotSupported),
        Kind::Directory => {}
        _ if inherited => return Err(Refusal::Denied),
        _ => {}
    }
    let list = List::parse(value).ok_or(Refusal::Invalid)?;
    if list.is_mode() && !inherited {
        return Ok(Meaning::Mode(list.mode()));
    }
    Ok(Meaning::List(list))
}

/// The access list follows a mode that is set.
pub(super) fn follow_mode(
    txn: &mut Txn<'_>,
    fid: Fid,
    object: &Object,
    mode: u16,
) -> Result<(), Refusal> {
    if !object.acl {
        return Ok(());
    }
    let key = key::xattr(fid, acl::ACCESS);
    if let Some(mut list) = txn.get(&key)?.as_deref().and_then(List::parse) {
        list.set_mode(mode);
        txn.put(key, list.encode());
    }
    Ok(())
}

/// Gives an object made in a directory the permission bits of a mode, which has the umask above it;
/// it gets the directory's lists if there are any, in which case the umask does not count.
pub(super) fn inherit(
    txn: &mut Txn<'_>,
    (dir, parent): (Fid, &Object),
    (fid, object): (Fid, &mut Object),
    mode: u32,
) -> Result<(), Refusal> {
    if let Some(list) = txn.governing(dir, parent)? {
        object.attr.mode &= !((mode >> UMASK_SHIFT) as u16 & PERMISSIONS);
        if object.attr.kind == Kind::Directory {
            txn.put(key::xattr(fid, ACCESS_LIST), list.encode());
            object.xattrs += 1;
        }
        return Ok(());
    }
    let value = match parent.xattrs {
        0 => None,
        _ => txn.get(&key::xattr(dir, acl::DEFAULT))?,
    };
    let of_mode = (mode & u32::from(PERMISSIONS)) as u16;
    let Some(mut list) = value.as_deref().and_then(List::parse) else {
        object.attr.mode &= !((mode >> UMASK_SHIFT) as u16 & PERMISSIONS);
        return Ok(());
    };
    if object.attr.kind == Kind::Directory {
        txn.put(key::xattr(fid, acl::DEFAULT), list.encode());
        object.xattrs += 1;
    }
    let bits = list.inherit(of_mode);
    object.attr.mode = (object.attr.mode & !PERMISSIONS) | bits;
    if !list.is_mode() {
        txn.put(key::xattr(fid, acl::ACCESS), list.encode());
        object.xattrs += 1;
        object.acl = true;
    }
    Ok(())
}

fn names(txn: &Txn<'_>, fid: Fid) -> Result<Vec<Vec<u8>>, Refusal> {
    let (from, to) = key::range(fid, key::XATTR);
    let all = txn.all(from, &to)?;
    let names = all.iter().filter_map(|(key, _)| key::parts(key));
    Ok(names.map(|parts| parts.detail.to_vec()).collect())
}

pub(super) fn list_names(txn: &Txn<'_>, fid: Fid) -> Applied {
    let object = txn.object(fid)?;
    let mut list = Vec::new();
    if object.xattrs > 0 {
        let root = txn.context.caller.uid == 0;
        let governed = txn.governing(fid, &object)?.is_some();
        for name in names(txn, fid)? {
            // Programs that copy all attributes would copy the list, too, or fail.
            let hidden = name == ACCESS_LIST || (governed && name.starts_with(b"system."));
            if !hidden && (root || !name.starts_with(b"trusted.")) {
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
    Ok(changed(txn, fid, object))
}

fn forget(txn: &mut Txn<'_>, fid: Fid, object: &mut Object, name: &[u8]) {
    txn.remove(key::xattr(fid, name));
    object.xattrs = object.xattrs.saturating_sub(1);
    object.acl &= name != acl::ACCESS;
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
