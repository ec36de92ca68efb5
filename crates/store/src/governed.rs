//! Objects that an access list of a directory governs: the directory itself, and what is in it and
//! is no directory. Of a file with names in several directories the one counts that is noted with
//! it, which is the first as a rule; since a directory has a list no file gets a name in it and in
//! another one.
//!
//! Guarantees: what a list governs is judged by it in each operation, and again in a replay of the
//! log, from the log and the index alone. The mode that clients are shown
//! of such an object ([`Store::show`]) depends on who is in which group now, and is never kept.

use crate::acl;
use crate::index::Index;
use crate::key;
use crate::permission::Want;
use crate::store::Store;
use crate::txn::{Txn, trouble};
use crate::value::Object;
use access::{Here, List, Members, Rights, Shown, shown};
use wire::{ACCESS_LIST, Attr, Caller, Fid, Kind, Op, Outcome, Refusal};

impl Index {
    /// The list that governs an object, if there is one. One that cannot be read allows nothing.
    pub(crate) fn governing(&self, fid: Fid, object: &Object) -> Result<Option<List>, Refusal> {
        let dir = match object.attr.kind {
            Kind::Directory if object.xattrs == 0 => return Ok(None),
            Kind::Directory => fid,
            _ if object.parent == 0 => return Ok(None),
            _ => Fid {
                volume: self.volumes.live(fid.volume),
                vnode: object.parent,
                uniq: 1,
            },
        };
        if dir != fid {
            let parent = self.object(dir).map_err(trouble)?;
            if parent.is_none_or(|parent| parent.xattrs == 0) {
                return Ok(None);
            }
        }
        self.list_of(dir)
    }

    /// The list of a directory that has extended attributes.
    fn list_of(&self, dir: Fid) -> Result<Option<List>, Refusal> {
        let value = self.get(&key::xattr(dir, ACCESS_LIST)).map_err(trouble)?;
        Ok(value.map(|value| List::decode(&value).unwrap_or_default()))
    }
}

impl Txn<'_> {
    /// The list that governs an object, as it was before this operation.
    pub(crate) fn governing(&self, fid: Fid, object: &Object) -> Result<Option<List>, Refusal> {
        self.index.governing(fid, object)
    }

    /// Has the caller this right where the list says so? Nothing is said where there is none.
    pub(crate) fn has_right(
        &self,
        fid: Fid,
        object: &Object,
        right: Rights,
    ) -> Result<Option<bool>, Refusal> {
        let list = self.governing(fid, object)?;
        Ok(list.map(|list| list.rights(self.context.caller, &object.attr).has(right)))
    }

    /// May an object that is no directory have a name in another directory than now? Its rights
    /// change with that: so nobody may do it who has not all of them now.
    pub(crate) fn may_leave(
        &self,
        (from, to): (Fid, Fid),
        (fid, object): (Fid, &Object),
    ) -> Result<(), Refusal> {
        if from == to || object.attr.kind == Kind::Directory {
            return Ok(());
        }
        let left = self.governing(from, &self.dir(from)?)?;
        let entered = self.governing(to, &self.dir(to)?)?;
        if left.is_none() && entered.is_none() {
            return Ok(());
        }
        if object.attr.nlink > 1 {
            return Err(Refusal::CrossVolume);
        }
        let uid = self.context.caller.uid;
        if left.is_none() && uid == object.attr.uid {
            return Ok(());
        }
        self.allowed(fid, object, Want::READ)?;
        self.allowed(fid, object, Want::WRITE)
    }

    /// May an object have another name in this directory, beside the one that it has?
    pub(crate) fn may_share(&self, object: &Object, dir: Fid) -> Result<(), Refusal> {
        if object.parent == 0 || object.parent == dir.vnode {
            return Ok(());
        }
        let old = Fid {
            vnode: object.parent,
            uniq: 1,
            ..dir
        };
        let old = match self.object(old) {
            Ok(parent) => self.governing(old, &parent)?,
            Err(Refusal::Stale) => None,
            Err(refusal) => return Err(refusal),
        };
        let new = self.governing(dir, &self.dir(dir)?)?;
        match old.is_none() && new.is_none() {
            true => Ok(()),
            false => Err(Refusal::CrossVolume),
        }
    }
}

impl Store {
    /// The users of the cell's groups, from now on.
    pub fn set_members(&mut self, members: Members) {
        self.members = members;
    }

    /// The users of the cell's groups.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Does an access list of a directory govern this object?
    pub fn is_governed(&self, fid: Fid) -> bool {
        let object = self.core.object(fid);
        object.is_ok_and(|object| {
            let list = self.core.index.governing(fid, &object);
            !matches!(list, Ok(None))
        })
    }

    /// May this caller lock a file? Where no list says so, whoever has it open may.
    pub fn may_lock(&self, caller: &Caller, fid: Fid) -> bool {
        let Ok(object) = self.core.object(fid) else {
            return true;
        };
        match self.core.index.governing(fid, &object) {
            Ok(Some(list)) => list.rights(caller, &object.attr).has(Rights::LOCK),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Makes of an outcome what clients are shown: attributes and lists by which kernels judge, on
    /// a mount where the groups count so.
    pub fn show(&self, here: Here<'_>, op: &Op, outcome: &mut Outcome) {
        let (dir, second) = dirs_of(op);
        match outcome {
            Outcome::Entry(entry) => {
                self.show_one(here, Some(entry.fid), &mut entry.attr);
                self.show_one(here, dir, &mut entry.dir);
            }
            Outcome::Absent { dir: attr } => self.show_one(here, dir, attr),
            Outcome::Attr(attr)
            | Outcome::Opened(attr)
            | Outcome::Written { attr, .. }
            | Outcome::Copied { attr, .. } => self.show_one(here, object_of(op), attr),
            Outcome::Removed {
                fid,
                attr,
                dir: parent,
            } => {
                self.show_one(here, Some(*fid), attr);
                self.show_one(here, dir, parent);
            }
            Outcome::Renamed {
                fid,
                attr,
                victim,
                from,
                to,
            } => {
                self.show_one(here, Some(*fid), attr);
                if let Some((fid, attr)) = victim {
                    self.show_one(here, Some(*fid), attr);
                }
                self.show_one(here, dir, from);
                self.show_one(here, second, to);
            }
            Outcome::Dir {
                entries, dir: own, ..
            } => {
                for entry in entries {
                    if let Some(attr) = &mut entry.attr {
                        entry.bare &= !self.shows(here, entry.fid, attr);
                    }
                }
                self.show_one(here, dir, own);
            }
            Outcome::Value(_) | Outcome::Refused(Refusal::NoAttribute) => {
                self.show_list(here, op, outcome);
            }
            _ => {}
        }
    }

    /// The attributes of an object as clients are shown them, where nobody has given up groups.
    pub fn show_attr(&self, fid: Fid, attr: &mut Attr) {
        self.shows(self.members.everywhere(), fid, attr);
    }

    fn show_one(&self, here: Here<'_>, fid: Option<Fid>, attr: &mut Attr) {
        if let Some(fid) = fid {
            self.shows(here, fid, attr);
        }
    }

    /// True if a list governs it.
    fn shows(&self, here: Here<'_>, fid: Fid, attr: &mut Attr) -> bool {
        match self.shown_of(here, fid, attr) {
            Some(shown) => {
                attr.mode = shown.mode;
                true
            }
            None => false,
        }
    }

    fn shown_of(&self, here: Here<'_>, fid: Fid, attr: &Attr) -> Option<Shown> {
        let object = self.core.object(fid).ok()?;
        let list = match self.core.index.governing(fid, &object) {
            Ok(list) => list?,
            // A disk that fails allows nothing.
            Err(_) => List::default(),
        };
        Some(shown(&list, here, attr))
    }

    /// The POSIX list of what a list of a directory governs is the one that stands for it.
    fn show_list(&self, here: Here<'_>, op: &Op, outcome: &mut Outcome) {
        let Op::GetXattr { fid, name } = op else {
            return;
        };
        let lists = [acl::ACCESS, acl::DEFAULT];
        if !lists.contains(&name.as_slice()) {
            return;
        }
        let Some(attr) = self.core.object(*fid).ok().map(|object| object.attr) else {
            return;
        };
        if let Some(shown) = self.shown_of(here, *fid, &attr) {
            let value = shown.list.filter(|_| name == acl::ACCESS);
            *outcome = value.map_or(Outcome::Refused(Refusal::NoAttribute), Outcome::Value);
        }
    }
}

/// The directories whose attributes an answer has.
fn dirs_of(op: &Op) -> (Option<Fid>, Option<Fid>) {
    match op {
        Op::Lookup { dir, .. }
        | Op::Make { dir, .. }
        | Op::MakeNameless { dir, .. }
        | Op::Link { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Unmount { dir, .. }
        | Op::ReadDir { dir, .. }
        | Op::Prefetch { dir, .. } => (Some(*dir), None),
        Op::Rename { from, to, .. } => (Some(*from), Some(*to)),
        _ => (None, None),
    }
}

/// The object whose attributes are the answer.
fn object_of(op: &Op) -> Option<Fid> {
    match op {
        Op::GetAttr { fid }
        | Op::Claim { fid }
        | Op::SetAttr { fid, .. }
        | Op::Open { fid, .. }
        | Op::Write { fid, .. }
        | Op::Allocate { fid, .. }
        | Op::Copy { to: fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => Some(*fid),
        _ => None,
    }
}
