//! Attributes: changing them, opening, links' targets.

use super::entries::{GROUP_EXECUTE, MODE_BITS, SET_GID, SET_UID};
use super::{Applied, bytes, xattrs};
use crate::key;
use crate::permission::{Want, may_be_member};
use crate::txn::Txn;
use crate::value::Object;
use wire::{Access, Fid, Kind, Outcome, Refusal, Set, SetTime, Time};

pub(super) fn open(txn: &Txn<'_>, fid: Fid, access: Access) -> Applied {
    let object = txn.object(fid)?;
    match object.attr.kind {
        Kind::Directory if access.write => return Err(Refusal::IsDirectory),
        Kind::Symlink | Kind::Mount => return Err(Refusal::Invalid),
        _ => {}
    }
    if access.read {
        txn.allowed(fid, &object, Want::READ)?;
    }
    if access.write {
        txn.allowed(fid, &object, Want::WRITE)?;
    }
    Ok(Outcome::Opened(object.attr))
}

pub(super) fn read_link(txn: &Txn<'_>, fid: Fid) -> Applied {
    if txn.object(fid)?.attr.kind != Kind::Symlink {
        return Err(Refusal::Invalid);
    }
    let target = txn.get(&key::target(fid))?;
    target.map(Outcome::Target).ok_or(Refusal::Damaged)
}

/// Does the caller have the rights of the object's owner?
pub(super) fn is_owner(txn: &Txn<'_>, object: &Object) -> bool {
    let uid = txn.context.caller.uid;
    uid == 0 || uid == object.attr.uid
}

fn check(txn: &Txn<'_>, fid: Fid, object: &Object, set: &Set) -> Result<(), Refusal> {
    let root = txn.context.caller.uid == 0;
    let owner = is_owner(txn, object);
    let given_away = set.uid.is_some_and(|uid| uid != object.attr.uid);
    let foreign = set
        .gid
        .is_some_and(|gid| gid != object.attr.gid && !may_be_member(txn.context.caller, gid));
    let exact = [set.atime, set.mtime]
        .iter()
        .any(|time| matches!(time, Some(SetTime::To(_))));
    if (given_away || foreign) && !root {
        return Err(Refusal::NotPermitted);
    }
    let owners = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || exact;
    if owners && !owner {
        return Err(Refusal::NotPermitted);
    }
    let touched = set.atime.is_some() || set.mtime.is_some() || set.size.is_some();
    let judged = set.size.is_some() && txn.governing(fid, object)?.is_some();
    if (touched && !owner) || judged {
        txn.allowed(fid, object, Want::WRITE)?;
    }
    match object.attr.kind {
        Kind::File => Ok(()),
        Kind::Directory if set.size.is_some() => Err(Refusal::IsDirectory),
        Kind::Symlink if set.mode.is_some() => Err(Refusal::NotSupported),
        _ if set.size.is_some() => Err(Refusal::Invalid),
        _ => Ok(()),
    }
}

/// The set-id bits of a program end when its owner or content changes. On a file that the group may
/// not execute the set-group-id bit meant mandatory locking: such a bit stays, unless a user who is
/// not in the group changes the content.
fn kill_set_id(object: &mut Object, by_other: bool) {
    object.attr.mode &= !SET_UID;
    if object.attr.mode & GROUP_EXECUTE != 0 || by_other {
        object.attr.mode &= !SET_GID;
    }
}

/// The owner's bits that a list keeps from the owner who changes the mode: he is shown the mode
/// without them, and leaves them as they are for others.
fn hidden_bits(txn: &Txn<'_>, fid: Fid, object: &Object) -> Result<u16, Refusal> {
    let (caller, attr) = (txn.context.caller, &object.attr);
    if caller.uid != attr.uid || caller.uid == 0 || attr.kind == Kind::Directory {
        return Ok(0);
    }
    let list = txn.governing(fid, object)?;
    let hidden = list.map(|list| !list.rights(caller, attr).of_file() & 7);
    Ok(hidden.map_or(0, |bits| attr.mode & bits << 6))
}

fn time(set: Option<SetTime>, old: Time, now: Time) -> Time {
    match set {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::To(time)) => time,
    }
}

pub(super) fn set(txn: &mut Txn<'_>, fid: Fid, set: &Set) -> Applied {
    let mut object = txn.object(fid)?;
    check(txn, fid, &object, set)?;
    if *set == Set::default() {
        return Ok(Outcome::Attr(object.attr));
    }
    let now = txn.now();
    let owner_changes = set.uid.is_some() || set.gid.is_some();
    if owner_changes || set.size.is_some() || set.kill_set_id {
        xattrs::drop_capability(txn, fid, &mut object)?;
    }
    if (owner_changes || set.kill_set_id) && object.attr.kind != Kind::Directory {
        let caller = txn.context.caller;
        let foreign = caller.uid != 0 && !may_be_member(caller, object.attr.gid);
        let by_other = set.kill_set_id && foreign;
        kill_set_id(&mut object, by_other);
    }
    object.attr.uid = set.uid.unwrap_or(object.attr.uid);
    object.attr.gid = set.gid.unwrap_or(object.attr.gid);
    if let Some(mode) = set.mode {
        let caller = txn.context.caller;
        let foreign = caller.uid != 0 && !may_be_member(caller, object.attr.gid);
        let kept = if foreign { !SET_GID } else { !0 };
        let hidden = hidden_bits(txn, fid, &object)?;
        object.attr.mode = (mode & MODE_BITS & kept) | hidden;
        xattrs::follow_mode(txn, fid, &object, mode)?;
    }
    if let Some(size) = set.size {
        bytes::cut(txn, fid, &mut object, size)?;
        object.attr.size = size;
        object.attr.mtime = now;
        object.attr.version += 1;
    }
    object.attr.atime = time(set.atime, object.attr.atime, now);
    object.attr.mtime = time(set.mtime, object.attr.mtime, now);
    object.attr.ctime = object.attr.ctime.max(now);
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Ok(Outcome::Attr(attr))
}
