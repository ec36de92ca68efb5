//! A request's plan: what it looks at and what it changes.
//!
//! It is made from the store as it is now, each time, since names may have changed while the
//! request waited.

use crate::server::Server;
use crate::server::api::Disk;
use crate::server::lists::plan_left_list;
use crate::server::rights_changes::Holders;
use crate::server::table::{Holder, Waiting};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{ACCESS_LIST, Fid, Kind, Name, Op, Refusal, Right, SessionId, WriteMode};

/// The part of an object that a request looks at.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// One name in it.
    Name(Name),
    /// All of it.
    Whole,
}

impl View {
    /// Does it show a change of this name, or of the object itself?
    pub(crate) fn shows(&self, changed: Option<&Name>) -> bool {
        match self {
            View::Whole => true,
            View::Name(name) => changed == Some(name),
        }
    }
}

/// The objects and names that a request looks at, and those that it changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Shown by the request: changes of others here must have been confirmed.
    pub(crate) views: Vec<(Fid, View)>,
    /// Names that it changes: others drop them first.
    pub(crate) names: Vec<(Fid, Vec<Name>)>,
    /// Objects whose attributes it changes, and the right that others may keep: they drop them
    /// first. Of a directory they keep Shared, and with it its names.
    pub(crate) changes: Vec<(Fid, Right)>,
    /// Objects whose attributes it shows: an Exclusive holder is asked for them.
    pub(crate) shows: Vec<Fid>,
    /// A file whose bytes it uses, and the right that others may keep meanwhile.
    pub(crate) uses: Option<(Fid, Right)>,
    /// A file whose bytes it only looks at: others may keep Shared.
    pub(crate) reads: Option<Fid>,
    /// Directories that it looks at: a client to which one is delegated tells all, and gives it up.
    pub(crate) looks: Vec<Fid>,
    /// Of all that a volume has: what others, and the caller, may keep of these objects.
    pub(crate) gathers: BTreeMap<Fid, Right>,
    /// The holders that give up what is gathered; none: all.
    pub(crate) gathers_of: Option<Holders>,
    /// The last object that this round of gathering asks for: there may be more behind it.
    pub(crate) more_behind: Option<Fid>,
    /// It changes who may use what it gathers: nobody gets any of that meanwhile, and it waits for
    /// all who may hold some.
    pub(crate) withdraws: bool,
    /// The volume whose state it keeps: the caller's own changes must be confirmed as well.
    pub(crate) freezes: Option<u32>,
    /// A file whose size it sets: clients that were told the old one drop it.
    pub(crate) resizes: Option<Fid>,
    /// The caller's own machine must drop its kernel's pages too.
    pub(crate) own_pages: bool,
}

impl Plan {
    /// All that it is about, in order, each once.
    pub(crate) fn fids(&self) -> Vec<Fid> {
        let mut fids: Vec<Fid> = self.views.iter().map(|(fid, _)| *fid).collect();
        fids.extend(self.names.iter().map(|(fid, _)| *fid));
        fids.extend(self.changes.iter().map(|(fid, _)| *fid));
        fids.extend(&self.shows);
        fids.extend(&self.looks);
        fids.extend(self.gathers.keys());
        fids.extend(self.uses.map(|(fid, _)| fid));
        fids.extend(self.reads);
        fids.sort_unstable();
        fids.dedup();
        fids
    }

    /// The names that it looks at in this directory.
    pub(crate) fn names_viewed(&self, dir: Fid) -> impl Iterator<Item = &Name> {
        self.views.iter().filter_map(move |(fid, view)| match view {
            View::Name(name) if *fid == dir => Some(name),
            _ => None,
        })
    }

    /// Does it look at all of this object?
    pub(crate) fn views_all_of(&self, fid: Fid) -> bool {
        let whole = |(viewed, view): &(Fid, View)| *viewed == fid && matches!(view, View::Whole);
        self.views.iter().any(whole)
    }

    /// Does it change names in this directory?
    pub(crate) fn names_in(&self, dir: Fid) -> bool {
        self.names.iter().any(|(changed, _)| *changed == dir)
    }

    /// Does it change this object, or want it for itself?
    pub(crate) fn disturbs(&self, fid: Fid) -> bool {
        self.names_in(fid)
            || ((self.withdraws || fid.is_room()) && self.gathers.contains_key(&fid))
            || self.changes.iter().any(|(of, _)| *of == fid)
            || self
                .uses
                .is_some_and(|(used, right)| used == fid && right == Right::None)
    }
}

impl Server {
    /// The plan of a request, as things are now; refused if the disk cannot say. An unknown object
    /// must not be taken for an absent one: somebody may cache it.
    pub(crate) fn plan(&self, disk: &dyn Disk, waiting: &Waiting) -> Result<Plan, Refusal> {
        if let Some(plan) = self.changing(disk, waiting) {
            return Ok(plan);
        }
        let mut plan = Plan::default();
        match &waiting.request.op {
            Op::Lookup { dir, name } => {
                plan.views.push((*dir, View::Name(name.clone())));
                plan.looks.push(*dir);
                if let Some(child) = disk.lookup(*dir, name)? {
                    plan.views.push((child, View::Whole));
                    plan.shows.push(child);
                }
            }
            Op::GetAttr { fid } => {
                plan.views.push((*fid, View::Whole));
                plan.shows.push(*fid);
            }
            Op::SetAttr { fid, set } if set.size.is_some() => {
                plan.change(disk, *fid)?;
                plan.resizes = Some(*fid);
            }
            Op::SetAttr { fid, .. } => plan.change(disk, *fid)?,
            Op::SetXattr { fid, name, .. } | Op::RemoveXattr { fid, name } => {
                plan.change(disk, *fid)?;
                if name == ACCESS_LIST {
                    self.plan_list(disk, *fid, (waiting, &mut plan))?;
                }
            }
            Op::ReadLink { fid } => plan.views.push((*fid, View::Whole)),
            // Its Exclusive holder may have set some, and tells of that with its attributes.
            Op::GetXattr { fid, .. } | Op::ListXattr { fid } => {
                plan.views.push((*fid, View::Whole));
                plan.shows.push(*fid);
            }
            Op::ReadDir { dir, .. } | Op::Prefetch { dir, .. } => {
                plan.views.push((*dir, View::Whole));
                plan.looks.push(*dir);
            }
            Op::MakeNameless { dir, .. } => plan.looks.push(*dir),
            Op::Make { dir, name, .. } => plan.name(*dir, name),
            Op::Link { fid, dir, name } => {
                plan.name(*dir, name);
                plan.change(disk, *fid)?;
            }
            Op::Unlink { dir, name } | Op::Rmdir { dir, name } | Op::Unmount { dir, name } => {
                plan.name(*dir, name);
                if let Some(child) = disk.lookup(*dir, name)? {
                    plan.change(disk, child)?;
                    plan_left_list(disk, child, &mut plan)?;
                }
            }
            Op::Rename { .. } => self.plan_rename(disk, &waiting.request.op, &mut plan)?,
            Op::Volume(op) => self.plan_volume(disk, op, (waiting, &mut plan)),
            op => self.plan_bytes(disk, (waiting.session, op), &mut plan)?,
        }
        self.plan_room(disk, waiting, &mut plan);
        Ok(plan)
    }

    /// The same of what is about the bytes of files.
    fn plan_bytes(
        &self,
        disk: &dyn Disk,
        (session, op): (SessionId, &Op),
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        match op {
            Op::Open { fid, access } => {
                plan.views.push((*fid, View::Whole));
                let keep = if access.write {
                    self.left_by_writer(disk, session, *fid)?
                } else {
                    Right::Shared
                };
                plan.uses = Some((*fid, keep));
            }
            Op::Read { fid, .. } => {
                plan.views.push((*fid, View::Whole));
                plan.uses = Some((*fid, Right::Shared));
            }
            Op::Claim { fid } => {
                plan.views.push((*fid, View::Whole));
                plan.uses = Some((*fid, self.left_by_writer(disk, session, *fid)?));
            }
            Op::Find { fid, .. } => {
                plan.views.push((*fid, View::Whole));
                plan.reads = Some(*fid);
            }
            Op::Write {
                fid,
                mode: WriteMode::At | WriteMode::Append,
                ..
            }
            | Op::Allocate { fid, .. }
            | Op::Copy { to: fid, .. } => {
                if let Op::Copy { from, .. } = *op {
                    plan.views.push((from, View::Whole));
                    plan.reads = Some(from);
                }
                plan.views.push((*fid, View::Whole));
                let keep = self.left_by_writer(disk, session, *fid)?;
                plan.uses = Some((*fid, keep));
                plan.own_pages = true;
            }
            // Others have nothing to do with these: nobody else can know of a file without a name;
            // and locks, see `locking`, never come here.
            _ => {}
        }
        Ok(())
    }

    /// The right that others keep while this is written. Of a directory, which is refused, the
    /// names: else they would say that their kernels have nothing in hand any more (see `told`).
    fn left_by_writer(
        &self,
        disk: &dyn Disk,
        session: SessionId,
        fid: Fid,
    ) -> Result<Right, Refusal> {
        let held = |(id, holder): (SessionId, &Holder)| id != session && holder.right > Right::None;
        if self.holders(fid, None).any(held) {
            kept_of(disk, fid)
        } else {
            Ok(Right::None)
        }
    }
}

impl Plan {
    pub(crate) fn name(&mut self, dir: Fid, name: &Name) {
        self.views.push((dir, View::Name(name.clone())));
        self.looks.push(dir);
        match self.names.iter_mut().find(|(known, _)| *known == dir) {
            Some((_, names)) => names.push(name.clone()),
            None => self.names.push((dir, vec![name.clone()])),
        }
    }

    /// Does it change this object's attributes, and none of its bytes?
    pub(super) fn leaves_pages(&self, fid: Fid) -> bool {
        self.resizes != Some(fid)
    }

    pub(crate) fn change(&mut self, disk: &dyn Disk, fid: Fid) -> Result<(), Refusal> {
        let keep = kept_of(disk, fid)?;
        self.views.push((fid, View::Whole));
        self.changes.push((fid, keep));
        Ok(())
    }
}

/// The right that others keep of an object that is changed: of a directory, all but its attributes.
pub(super) fn kept_of(disk: &dyn Disk, fid: Fid) -> Result<Right, Refusal> {
    let attr = disk.attr(fid)?;
    let directory = attr.is_some_and(|attr| attr.kind == Kind::Directory);
    Ok(if directory {
        Right::Shared
    } else {
        Right::None
    })
}
