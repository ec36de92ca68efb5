//! Names in directories: looking up, making, linking, removing.

use super::links::{self, Spot};
use super::{Applied, mounts, xattrs};
use crate::key;
use crate::permission::{Want, may_be_member};
use crate::txn::{LINKS_MAX, Txn};
use crate::value::{Named, Object};
use wire::{Attr, Entry, Fid, Kind, Make, Name, Op, Outcome, Refusal};

/// Mode bits that have a meaning.
pub(super) const MODE_BITS: u16 = 0o7777;
pub(super) const SET_UID: u16 = 0o4000;
pub(super) const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
pub(super) const GROUP_EXECUTE: u16 = 0o010;

/// In the place of the position of an object's name: it never had one.
pub(crate) const NEVER_NAMED: u64 = u64::MAX;

pub(super) fn lookup(txn: &mut Txn<'_>, dir: Fid, name: &Name) -> Applied {
    let object = txn.dir(dir)?;
    txn.allowed(dir, &object, Want::EXECUTE)?;
    let Some(entry) = txn.entry(dir, name)? else {
        return Ok(Outcome::Absent { dir: object.attr });
    };
    Ok(Outcome::Entry(Entry {
        fid: entry.fid,
        attr: txn.object(entry.fid)?.attr,
        dir: object.attr,
    }))
}

/// A directory in which an absent name may be made.
pub(super) fn may_make(txn: &Txn<'_>, dir: Fid, name: &Name) -> Result<Object, Refusal> {
    let object = txn.dir(dir)?;
    txn.allowed(dir, &object, Want::EXECUTE)?;
    if txn.entry(dir, name)?.is_some() {
        return Err(Refusal::Exists);
    }
    if object.attr.nlink == 0 {
        return Err(Refusal::NotFound);
    }
    txn.allowed(dir, &object, Want::INSERT)?;
    Ok(object)
}

/// May the caller remove the name of this object?
pub(super) fn may_remove(
    txn: &Txn<'_>,
    (dir, parent): (Fid, &Object),
    victim: &Object,
) -> Result<(), Refusal> {
    txn.allowed(dir, parent, Want::DELETE)?;
    let uid = txn.context.caller.uid;
    let owner = uid == 0 || uid == parent.attr.uid || uid == victim.attr.uid;
    if parent.attr.mode & STICKY != 0 && !owner {
        return Err(Refusal::NotPermitted);
    }
    Ok(())
}

/// A name has this position from now on.
pub(super) fn take_position(dir: &mut Object, position: u64) {
    dir.next_position = dir.next_position.max(position + 1);
}

pub(super) fn make(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::Make {
        dir,
        name,
        make,
        mode,
        open,
    } = op
    else {
        return Err(Refusal::Invalid);
    };
    let parent = may_make(txn, *dir, name)?;
    let caller = txn.context.caller;
    let (kind, rdev) = match make {
        Make::File => (Kind::File, 0),
        Make::Directory => (Kind::Directory, 0),
        Make::Symlink(target) if target.is_empty() || target.contains(&0) => {
            return Err(Refusal::Invalid);
        }
        Make::Symlink(_) => (Kind::Symlink, 0),
        Make::Node { kind, rdev } => match kind {
            Kind::Fifo | Kind::Socket => (*kind, 0),
            Kind::Character if *rdev == 0 => (*kind, 0), // a whiteout gives access to nothing
            Kind::Character | Kind::Block if caller.uid == 0 => (*kind, *rdev),
            Kind::Character | Kind::Block => return Err(Refusal::NotPermitted),
            _ => return Err(Refusal::Invalid),
        },
        Make::Mount(volume) => (Kind::Mount, mounts::leads_to(txn, &parent, volume)?),
        Make::MountElsewhere(volume) => (Kind::Mount, mounts::leads_elsewhere(txn, *volume)?),
    };
    if open.is_some() && kind != Kind::File {
        return Err(Refusal::Invalid);
    }
    if kind.looks_like_directory() && parent.attr.nlink >= LINKS_MAX {
        return Err(Refusal::TooManyLinks);
    }
    let fid = Fid {
        volume: dir.volume,
        vnode: txn.number(dir.volume)?,
        uniq: 1,
    };
    let mut object = new_object(
        txn,
        &parent.attr,
        kind,
        (*mode & u32::from(MODE_BITS)) as u16,
    );
    if !matches!(kind, Kind::Symlink | Kind::Mount) {
        xattrs::inherit(txn, (*dir, &parent), (fid, &mut object), *mode)?;
    }
    object.attr.rdev = rdev;
    if let Make::Symlink(target) = make {
        object.attr.size = target.len() as u64;
        object.attr.used_bytes = object.attr.size;
        txn.changes.bytes_more += target.len() as i64;
        txn.put(key::target(fid), target.clone());
    }
    object.parent = dir.vnode;
    txn.changes.objects_more += 1;
    let attr = object.attr.clone();
    let dir_attr = add_entry(txn, *dir, name, (fid, object))?;
    Ok(Outcome::Entry(Entry {
        fid,
        attr,
        dir: dir_attr,
    }))
}

/// Makes a file that has no name.
pub(super) fn make_nameless(txn: &mut Txn<'_>, dir: Fid, mode: u32) -> Applied {
    let parent = txn.dir(dir)?;
    if parent.attr.nlink == 0 {
        return Err(Refusal::NotFound);
    }
    txn.allowed(dir, &parent, Want::INSERT)?;
    let fid = Fid {
        volume: dir.volume,
        vnode: txn.number(dir.volume)?,
        uniq: 1,
    };
    let bits = (mode & u32::from(MODE_BITS)) as u16;
    let mut object = new_object(txn, &parent.attr, Kind::File, bits);
    xattrs::inherit(txn, (dir, &parent), (fid, &mut object), mode)?;
    object.attr.nlink = 0;
    object.home = NEVER_NAMED;
    txn.changes.objects_more += 1;
    txn.put(key::orphan(fid), fid.uniq.to_be_bytes().to_vec());
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Ok(Outcome::Entry(Entry {
        fid,
        attr,
        dir: parent.attr,
    }))
}

/// Gives numbers away, from the next one on.
pub(super) fn reserve(txn: &mut Txn<'_>, count: u32) -> Applied {
    let first = txn.index.counters.next_vnode;
    txn.changes.made += u64::from(count);
    Ok(Outcome::Numbers { first, count })
}

/// A new whiteout for this directory.
pub(super) fn whiteout(txn: &Txn<'_>, parent: &Attr) -> Object {
    new_object(txn, parent, Kind::Character, 0)
}

fn new_object(txn: &Txn<'_>, parent: &Attr, kind: Kind, mode: u16) -> Object {
    let caller = txn.context.caller;
    let inherits = parent.mode & SET_GID != 0;
    let gid = if inherits { parent.gid } else { caller.gid };
    let mut mode = mode & MODE_BITS;
    let directory = kind == Kind::Directory;
    if kind == Kind::Symlink {
        mode = 0o777;
    } else if directory && inherits {
        mode |= SET_GID;
    } else if inherits && mode & SET_GID != 0 && mode & GROUP_EXECUTE != 0 {
        // Nobody makes a program that runs with the rights of a group that he is not in.
        if caller.uid != 0 && !may_be_member(caller, gid) {
            mode &= !SET_GID;
        }
    }
    Object::new(Attr {
        uid: caller.uid,
        gid,
        ..Attr::new(kind, mode, txn.now())
    })
}

/// Gives an object its name, in a directory where it is absent.
pub(super) fn add_entry(
    txn: &mut Txn<'_>,
    dir: Fid,
    name: &Name,
    (fid, mut object): (Fid, Object),
) -> Result<Attr, Refusal> {
    let position = txn.new_position(dir, &txn.dir(dir)?)?;
    let kind = object.attr.kind;
    let attr = txn.touch_dir(dir, |dir| {
        take_position(dir, position);
        dir.entries += 1;
        dir.attr.size += name.entry_bytes();
        if kind.looks_like_directory() {
            dir.attr.nlink += 1;
        }
    })?;
    links::add(txn, (fid, &mut object), (dir, position));
    txn.put_object(fid, object);
    let entry = Named {
        fid,
        kind,
        position,
    };
    txn.put_entry(dir, name, &entry);
    Ok(attr)
}

pub(super) fn link(txn: &mut Txn<'_>, fid: Fid, dir: Fid, name: &Name) -> Applied {
    if fid.volume != dir.volume {
        // The files of a replica have the numbers of releases.
        return Err(match txn.index.volumes.is_frozen(dir.volume) {
            true => Refusal::ReadOnly,
            false => Refusal::CrossVolume,
        });
    }
    let mut object = txn.object(fid)?;
    may_make(txn, dir, name)?;
    if object.attr.kind.looks_like_directory() {
        return Err(Refusal::NotPermitted);
    }
    if object.attr.nlink == 0 {
        // An object that has lost its last name gets no other; one that never had any may get its
        // first.
        if object.home != NEVER_NAMED {
            return Err(Refusal::NotFound);
        }
        txn.remove(key::orphan(fid));
        (object.parent, object.home) = (dir.vnode, 0);
    }
    txn.may_share(&object, dir)?;
    if object.attr.nlink >= LINKS_MAX {
        return Err(Refusal::TooManyLinks);
    }
    object.attr.nlink += 1;
    object.attr.ctime = object.attr.ctime.max(txn.now());
    let attr = object.attr.clone();
    let dir_attr = add_entry(txn, dir, name, (fid, object))?;
    Ok(Outcome::Entry(Entry {
        fid,
        attr,
        dir: dir_attr,
    }))
}

/// Takes a name from an object; without any it becomes an orphan. A directory has only one.
pub(super) fn drop_link(txn: &mut Txn<'_>, fid: Fid, at: Spot) -> Result<Attr, Refusal> {
    let mut object = txn.object(fid)?;
    object.attr.nlink = match object.attr.kind {
        Kind::Directory => 0,
        _ => object.attr.nlink.saturating_sub(1),
    };
    object.attr.ctime = object.attr.ctime.max(txn.now());
    let attr = object.attr.clone();
    if attr.nlink == 0 {
        txn.put(key::orphan(fid), fid.uniq.to_be_bytes().to_vec());
    }
    links::drop(txn, (fid, &mut object), at)?;
    txn.put_object(fid, object);
    Ok(attr)
}

/// A name that the caller may remove: its directory, itself, and what it names.
pub(super) fn find(
    txn: &Txn<'_>,
    dir: Fid,
    name: &Name,
) -> Result<(Object, Named, Object), Refusal> {
    let parent = txn.dir(dir)?;
    txn.allowed(dir, &parent, Want::EXECUTE)?;
    let entry = txn.entry(dir, name)?.ok_or(Refusal::NotFound)?;
    let victim = txn.object(entry.fid)?;
    may_remove(txn, (dir, &parent), &victim)?;
    Ok((parent, entry, victim))
}

pub(super) fn unlink(txn: &mut Txn<'_>, dir: Fid, name: &Name) -> Applied {
    let (_, entry, _) = find(txn, dir, name)?;
    if entry.kind.looks_like_directory() {
        return Err(Refusal::IsDirectory);
    }
    remove(txn, dir, name, &entry)
}

pub(super) fn rmdir(txn: &mut Txn<'_>, dir: Fid, name: &Name) -> Applied {
    let (_, entry, victim) = find(txn, dir, name)?;
    match entry.kind {
        Kind::Directory => {}
        Kind::Mount => return Err(Refusal::MountPoint),
        _ => return Err(Refusal::NotDirectory),
    }
    if victim.entries != 0 {
        return Err(Refusal::NotEmpty);
    }
    remove(txn, dir, name, &entry)
}

pub(super) fn remove(txn: &mut Txn<'_>, dir: Fid, name: &Name, entry: &Named) -> Applied {
    txn.remove_entry(dir, name, entry);
    let attr = drop_link(txn, entry.fid, (dir, entry.position))?;
    let dir = txn.touch_dir(dir, |dir| forget_entry(dir, name, entry.kind))?;
    Ok(Outcome::Removed {
        fid: entry.fid,
        attr,
        dir,
    })
}

/// Counts a name less.
pub(super) fn forget_entry(dir: &mut Object, name: &Name, kind: Kind) {
    dir.entries = dir.entries.saturating_sub(1);
    dir.attr.size = dir.attr.size.saturating_sub(name.entry_bytes());
    if kind.looks_like_directory() {
        dir.attr.nlink = dir.attr.nlink.saturating_sub(1);
    }
}
