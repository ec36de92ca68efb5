//! Renaming: over nothing, over a file, over an empty directory, exchanging two names, and leaving
//! a whiteout behind.

use super::Applied;
use super::entries::{
    add_entry, drop_link, forget_entry, may_make, may_remove, take_position, whiteout,
};
use super::links::{self, Spot};
use crate::permission::Want;
use crate::txn::{LINKS_MAX, Txn};
use crate::value::{Named, Object};
use wire::{Attr, Fid, Kind, Name, Op, Outcome, Refusal};

/// Both names, and what they name.
struct Move<'a> {
    from: Fid,
    name: &'a Name,
    source: Named,
    to: Fid,
    new: &'a Name,
    target: Option<Named>,
}

pub(super) fn rename(txn: &mut Txn<'_>, op: &Op) -> Applied {
    let Op::Rename {
        from,
        name,
        to,
        new,
        no_replace,
        exchange,
    } = op
    else {
        return Err(Refusal::Invalid);
    };
    if from.volume != to.volume {
        return Err(Refusal::CrossVolume);
    }
    let whiteout = op.leaves_whiteout();
    let (no_replace, exchange) = (*no_replace && !whiteout, *exchange && !whiteout);
    for dir in [*from, *to] {
        let object = txn.dir(dir)?;
        txn.allowed(dir, &object, Want::EXECUTE)?;
    }
    let source = txn.entry(*from, name)?.ok_or(Refusal::NotFound)?;
    let target = txn.entry(*to, new)?;
    match &target {
        Some(_) if no_replace => return Err(Refusal::Exists),
        None if exchange => return Err(Refusal::NotFound),
        _ => {}
    }
    let it = Move {
        from: *from,
        name,
        source,
        to: *to,
        new,
        target,
    };
    check_loops(txn, &it, exchange)?;
    match it.target.clone() {
        Some(target) if target.fid == it.source.fid => nothing(txn, &it),
        Some(target) if exchange => {
            check(txn, &it, true)?;
            swap(txn, &it, &target)
        }
        _ => {
            check(txn, &it, false)?;
            let moved = shift(txn, &it)?;
            match whiteout {
                true => leave_whiteout(txn, &it, moved),
                false => Ok(moved),
            }
        }
    }
}

/// Two names of one object: nothing happens.
fn nothing(txn: &Txn<'_>, it: &Move<'_>) -> Applied {
    Ok(Outcome::Renamed {
        fid: it.source.fid,
        attr: txn.object(it.source.fid)?.attr,
        victim: None,
        from: txn.object(it.from)?.attr,
        to: txn.object(it.to)?.attr,
    })
}

/// Is `dir` this directory, or below it?
fn is_within(txn: &Txn<'_>, dir: Fid, above: Fid) -> Result<bool, Refusal> {
    let mut at = dir;
    loop {
        if at == above {
            return Ok(true);
        }
        let parent = txn.object(at)?.parent;
        if parent == 0 || at.vnode == parent {
            return Ok(false);
        }
        at.vnode = parent;
        at.uniq = 1;
    }
}

/// No directory becomes its own descendant.
fn check_loops(txn: &Txn<'_>, it: &Move<'_>, exchange: bool) -> Result<(), Refusal> {
    if it.from == it.to {
        return Ok(());
    }
    if it.source.kind == Kind::Directory && is_within(txn, it.to, it.source.fid)? {
        return Err(Refusal::Invalid);
    }
    if let Some(target) = &it.target
        && target.kind == Kind::Directory
        && is_within(txn, it.from, target.fid)?
    {
        let refusal = [Refusal::NotEmpty, Refusal::Invalid];
        return Err(refusal[usize::from(exchange)]);
    }
    Ok(())
}

fn check(txn: &Txn<'_>, it: &Move<'_>, exchange: bool) -> Result<(), Refusal> {
    let from = txn.object(it.from)?;
    let to = txn.object(it.to)?;
    let source = txn.object(it.source.fid)?;
    may_remove(txn, (it.from, &from), &source)?;
    txn.may_leave((it.from, it.to), (it.source.fid, &source))?;
    let moves_dir = source.attr.kind.looks_like_directory();
    // A mount point has no `..` that would change.
    let rehomes_dir = source.attr.kind == Kind::Directory;
    match &it.target {
        None => {
            may_make(txn, it.to, it.new)?;
        }
        Some(entry) => {
            let target = txn.object(entry.fid)?;
            may_remove(txn, (it.to, &to), &target)?;
            if exchange {
                txn.may_leave((it.to, it.from), (entry.fid, &target))?;
                txn.allowed(it.from, &from, Want::INSERT)?;
            }
            txn.allowed(it.to, &to, Want::INSERT)?;
            let over_dir = entry.kind.looks_like_directory();
            if !exchange {
                match (moves_dir, over_dir) {
                    (true, false) => return Err(Refusal::NotDirectory),
                    (false, true) => return Err(Refusal::IsDirectory),
                    _ if entry.kind == Kind::Mount => return Err(Refusal::MountPoint),
                    _ => {}
                }
            } else if entry.kind == Kind::Directory && it.from != it.to {
                txn.allowed(entry.fid, &target, Want::WRITE)?;
            }
            check_counts(it, (&from, &to), (moves_dir, over_dir), exchange)?;
            if rehomes_dir && it.from != it.to {
                txn.allowed(it.source.fid, &source, Want::WRITE)?;
            }
            let full = over_dir && !exchange && target.entries != 0;
            return if full { Err(Refusal::NotEmpty) } else { Ok(()) };
        }
    }
    if rehomes_dir && it.from != it.to {
        txn.allowed(it.source.fid, &source, Want::WRITE)?;
    }
    check_counts(it, (&from, &to), (moves_dir, false), exchange)
}

/// A directory's `..` counts as a name of its parent.
fn check_counts(
    it: &Move<'_>,
    (from, to): (&Object, &Object),
    (moves_dir, over_dir): (bool, bool),
    exchange: bool,
) -> Result<(), Refusal> {
    if it.from == it.to {
        return Ok(());
    }
    let into = moves_dir && !over_dir && to.attr.nlink >= LINKS_MAX;
    let back = exchange && over_dir && !moves_dir && from.attr.nlink >= LINKS_MAX;
    match into || back {
        true => Err(Refusal::TooManyLinks),
        false => Ok(()),
    }
}

/// Notes where the name of an object is now.
fn rehome(txn: &mut Txn<'_>, fid: Fid, old: Spot, new: Spot) -> Result<Attr, Refusal> {
    let mut object = txn.object(fid)?;
    links::shift(txn, (fid, &mut object), (old, new));
    object.attr.ctime = object.attr.ctime.max(txn.now());
    let attr = object.attr.clone();
    txn.put_object(fid, object);
    Ok(attr)
}

/// The new name comes to mean what the old one meant, and the old one is gone.
fn shift(txn: &mut Txn<'_>, it: &Move<'_>) -> Applied {
    let kind = it.source.kind;
    txn.remove_entry(it.from, it.name, &it.source);
    txn.touch_dir(it.from, |dir| forget_entry(dir, it.name, kind))?;
    let victim = match &it.target {
        Some(target) => Some((
            target.fid,
            drop_link(txn, target.fid, (it.to, target.position))?,
        )),
        None => None,
    };
    // A name that stays keeps its place.
    let position = match &it.target {
        Some(target) => target.position,
        None => txn.new_position(it.to, &txn.dir(it.to)?)?,
    };
    let to = txn.touch_dir(it.to, |dir| {
        match &it.target {
            Some(target) => forget_entry(dir, it.new, target.kind),
            None => take_position(dir, position),
        }
        dir.entries += 1;
        dir.attr.size += it.new.entry_bytes();
        if kind.looks_like_directory() {
            dir.attr.nlink += 1;
        }
    })?;
    let entry = Named {
        fid: it.source.fid,
        kind,
        position,
    };
    txn.put_entry(it.to, it.new, &entry);
    let old = (it.from, it.source.position);
    let attr = rehome(txn, it.source.fid, old, (it.to, position))?;
    Ok(Outcome::Renamed {
        fid: it.source.fid,
        attr,
        victim,
        from: txn.object(it.from)?.attr,
        to,
    })
}

/// The old name comes to mean a new character device of number 0.
fn leave_whiteout(txn: &mut Txn<'_>, it: &Move<'_>, mut moved: Outcome) -> Applied {
    let fid = Fid {
        volume: it.from.volume,
        vnode: txn.number(it.from.volume)?,
        uniq: 1,
    };
    let mut object = whiteout(txn, &txn.dir(it.from)?.attr);
    object.parent = it.from.vnode;
    txn.changes.objects_more += 1;
    let after = add_entry(txn, it.from, it.name, (fid, object))?;
    if let Outcome::Renamed { from, to, .. } = &mut moved {
        if it.from == it.to {
            to.clone_from(&after);
        }
        *from = after;
    }
    Ok(moved)
}

/// Each name comes to mean what the other one meant.
fn swap(txn: &mut Txn<'_>, it: &Move<'_>, target: &Named) -> Applied {
    let places = [(it.from, it.source.position), (it.to, target.position)];
    let moved = Named {
        position: target.position,
        ..it.source.clone()
    };
    let back = Named {
        position: it.source.position,
        ..target.clone()
    };
    txn.put_entry(it.to, it.new, &moved);
    txn.put_entry(it.from, it.name, &back);
    let attr = rehome(txn, moved.fid, places[0], places[1])?;
    let other = rehome(txn, back.fid, places[1], places[0])?;
    let count = |dir: &mut Object, gone: Kind, come: Kind| {
        let less = u32::from(gone.looks_like_directory());
        let more = u32::from(come.looks_like_directory());
        dir.attr.nlink = (dir.attr.nlink + more).saturating_sub(less);
    };
    txn.touch_dir(it.from, |dir| count(dir, moved.kind, back.kind))?;
    txn.touch_dir(it.to, |dir| count(dir, back.kind, moved.kind))?;
    Ok(Outcome::Renamed {
        fid: moved.fid,
        attr,
        victim: Some((back.fid, other)),
        from: txn.object(it.from)?.attr,
        to: txn.object(it.to)?.attr,
    })
}
