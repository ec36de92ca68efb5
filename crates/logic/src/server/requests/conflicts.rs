//! Conflicts: the clients that must give up, report or confirm something before a request is done.
//!
//! A request's [`Plan`] says what it looks at and what it changes; it is made from the store as it
//! is now, each time, since names may have changed while the request waited.

use crate::server::Server;
use crate::server::api::Disk;
use crate::server::lists::plan_left_list;
use crate::server::mutant::Mutant;
use crate::server::table::{File, Holder, Unconfirmed, Waiting};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    ACCESS_LIST, Fid, Kind, Name, Op, Refusal, RequestId, Right, SessionId, What, WriteMode,
};

/// Something that a client must be asked for.
pub(crate) struct Need {
    pub(crate) session: SessionId,
    pub(crate) fid: Fid,
    pub(crate) what: What,
}

/// A change that must be confirmed.
pub(crate) struct Confirm {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    /// For a request that looks at all of the object, not at one name in it.
    pub(crate) whole: bool,
}

/// One holder of one object, if not all are looked at.
pub(crate) type Only = Option<(SessionId, Fid)>;

/// Recalls and questions that must be answered, and changes that must be confirmed.
pub(crate) type Needs = (Vec<Need>, Vec<Confirm>);

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
        if let Some(plan) = self.regrouping(disk, waiting) {
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

    /// The questions to clients, and the changes to confirm, before the request is done.
    pub(crate) fn needs(&self, waiting: &Waiting, plan: &Plan) -> Needs {
        self.cost.judge();
        let mut needs = Vec::new();
        self.find_needs(waiting, plan, None, &mut needs);
        (needs, self.unconfirmed(waiting.session, plan))
    }

    /// The questions to one client about one object.
    pub(crate) fn needs_of(
        &self,
        waiting: &Waiting,
        plan: &Plan,
        only: (SessionId, Fid),
    ) -> Vec<Need> {
        let mut needs = Vec::new();
        self.find_needs(waiting, plan, Some(only), &mut needs);
        needs
    }

    fn find_needs(&self, waiting: &Waiting, plan: &Plan, only: Only, needs: &mut Vec<Need>) {
        for dir in &plan.looks {
            self.need_right(waiting, (*dir, Right::Shared), false, (only, needs));
        }
        for (dir, names) in &plan.names {
            self.need_names(waiting, (*dir, names), (only, needs));
        }
        for (fid, keep) in &plan.changes {
            self.need_right(waiting, (*fid, *keep), false, (only, needs));
            if *keep == Right::Shared && !plan.names_in(*fid) {
                self.need_names(waiting, (*fid, &[]), (only, needs));
            }
        }
        if let Some(fid) = plan.resizes {
            self.need_shown(waiting, fid, (only, needs));
        }
        for fid in &plan.shows {
            self.need_attr(waiting, *fid, (only, needs));
        }
        if let Some(used) = plan.uses {
            self.need_right(waiting, used, plan.own_pages, (only, needs));
        }
        if let Some(fid) = plan.reads {
            self.need_right(waiting, (fid, Right::Shared), false, (only, needs));
        }
        self.need_gathered(plan, (only, needs));
    }

    /// The holders of an object, or one of them.
    pub(crate) fn holders(
        &self,
        fid: Fid,
        only: Only,
    ) -> impl Iterator<Item = (SessionId, &Holder)> {
        let file = self.files.get(&fid);
        let file = file.filter(|_| only.is_none_or(|(_, of)| of == fid));
        let one = only.and_then(|(session, _)| Some((session, file?.holders.get(&session)?)));
        let all = file.filter(|_| only.is_none()).into_iter();
        let all = all.flat_map(|file| file.holders.iter().map(|(id, holder)| (*id, holder)));
        one.into_iter().chain(all)
    }

    /// Others are to drop these names, and the attributes of the directory.
    fn need_names(
        &self,
        waiting: &Waiting,
        (dir, names): (Fid, &[Name]),
        (only, needs): (Only, &mut Vec<Need>),
    ) {
        if self.options.mutant == Some(Mutant::ForgetsNames) {
            return;
        }
        for (session, holder) in self.holders(dir, only) {
            self.cost.look();
            let at = (session, dir);
            let missing = |name: &&Name| !waiting.has_dropped(at, name);
            let attributes = names.is_empty()
                && holder.right == Right::Shared
                && !waiting.stripped.contains(&at);
            // Transient too: names told without a token may be in the kernel's hand (see `told`).
            // The client to which the directory is delegated is asked when it has given that up:
            // till then it may make the names again.
            let holds = session != waiting.session
                && holder.right > Right::None
                && holder.right < Right::Exclusive;
            if !holds || !(attributes || names.iter().any(|name| missing(&name))) {
                continue;
            }
            let names = names.iter().filter(missing).cloned().collect();
            needs.push(Need {
                session,
                fid: dir,
                what: What::Names(names),
            });
        }
    }

    /// Others may keep at most this right.
    fn need_right(
        &self,
        waiting: &Waiting,
        (fid, keep): (Fid, Right),
        own_pages: bool,
        (only, needs): (Only, &mut Vec<Need>),
    ) {
        for (session, holder) in self.holders(fid, only) {
            self.cost.look();
            let own = session == waiting.session;
            let spared = match self.options.mutant {
                Some(Mutant::IgnoresExclusive) => keep == Right::Shared,
                Some(Mutant::ForgetsTransients) => holder.right == Right::Transient,
                _ => false,
            };
            let in_the_way = if own {
                own_pages && holder.right == Right::Transient
            } else {
                holder.right > keep && !self.goes_on_reading((session, holder), fid)
            };
            if in_the_way && !spared {
                needs.push(Need {
                    session,
                    fid,
                    what: What::Keep(keep),
                });
            }
        }
    }

    /// Was it given pages of an object that it has changed, and has it not confirmed that? It is
    /// waited for anyway, and asked for the pages when it has: its call may not end before a read
    /// of the same machine does, which asks again whenever pages are taken back before they come.
    fn goes_on_reading(&self, (session, holder): (SessionId, &Holder), fid: Fid) -> bool {
        let asks_early = self.options.mutant == Some(Mutant::SkipsConfirmation);
        holder.right == Right::Transient && !asks_early && self.changed_by(session, fid)
    }

    fn need_attr(&self, waiting: &Waiting, fid: Fid, (only, needs): (Only, &mut Vec<Need>)) {
        let ignored = self.options.mutant == Some(Mutant::IgnoresExclusive);
        if ignored || waiting.attrs.contains_key(&fid) {
            return;
        }
        for (session, holder) in self.holders(fid, only) {
            if session != waiting.session && holder.right == Right::Exclusive {
                needs.push(Need {
                    session,
                    fid,
                    what: What::Attr,
                });
            }
        }
    }

    pub(crate) fn unconfirmed(&self, session: SessionId, plan: &Plan) -> Vec<Confirm> {
        if self.options.mutant == Some(Mutant::SkipsConfirmation) {
            return vec![];
        }
        let mut confirms = Vec::new();
        for (fid, view) in &plan.views {
            let Some(file) = self.files.get(fid) else {
                continue;
            };
            let waits = |change: &&Unconfirmed| change.session != session || plan.freezes.is_some();
            for change in file.unconfirmed.iter().filter(waits) {
                if view.shows(change.name.as_ref()) {
                    confirms.push(Confirm {
                        session: change.session,
                        request: change.request,
                        whole: matches!(view, View::Whole),
                    });
                }
            }
        }
        confirms
    }

    /// Has this client changed this object without having confirmed it?
    pub(crate) fn changed_by(&self, session: SessionId, fid: Fid) -> bool {
        let file: Option<&File> = self.files.get(&fid);
        file.is_some_and(|file| {
            file.unconfirmed
                .iter()
                .any(|change| change.session == session)
        })
    }

    /// Have others changed this object without having confirmed it?
    pub(crate) fn changed_by_others(&self, session: SessionId, fid: Fid) -> bool {
        let file: Option<&File> = self.files.get(&fid);
        file.is_some_and(|file| {
            file.unconfirmed
                .iter()
                .any(|change| change.session != session)
        })
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
