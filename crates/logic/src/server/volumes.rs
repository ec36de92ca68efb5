//! Operations on volumes: what clients give up before one is done, and what follows from it.
//!
//! Guarantees. A snapshot or a clone has every change that any client was answered before it was
//! asked for, also those that only the client's cache had: before it is made, every client that
//! holds Exclusive in the volume writes back and steps down, and nobody is granted Exclusive there
//! meanwhile; it is one change of the store, so it is of one moment. Each change that it has was
//! confirmed before: no machine, not even the one that asks, shows afterwards that the change has
//! not happened. Further changes in the volume wait while nothing but confirmations is missing.
//! Before a volume is deleted,
//! all clients give up all that they hold of it and of its snapshots; likewise before a volume
//! becomes what was received for it, but of a replica only what a release changes: the fids of its
//! files name what never changes (`store/src/replica.rs`). Before a volume begins to receive, what
//! is changed in it comes to the store, so that it counts. Of a snapshot, and of a replica, nothing
//! is ever granted Exclusive: every change there is asked for, and refused. Nor is anything of a
//! directory of snapshots; and before one comes, goes or is called otherwise, all give up that
//! directory.

use super::api::Disk;
use super::mutant::Mutant;
use super::requests::awaited::Awaited;
use super::requests::conflicts::{Need, Only};
use super::requests::plan::{Plan, View};
use super::requests::rounds::of_volume;
use super::table::{Seq, Waiting};
use super::{Server, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use wire::{
    FIRST_VOLUME, Fid, Name, Op, Outcome, Right, SessionId, VolumeInfo, VolumeOp, VolumeState, What,
};

/// The machine's state about the volumes of its store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    snapshots: BTreeSet<u32>,
    /// The replica that the store is for: all of the store is frozen.
    replica: Option<u32>,
    /// Volumes in which nobody is granted Exclusive, for these requests.
    freezing: BTreeMap<Seq, u32>,
    /// One of these requests is over: requests that it put off can go on.
    thawed: bool,
}

impl Volumes {
    /// Does no client ever change anything there?
    fn is_fixed(&self, volume: u32) -> bool {
        self.is_of_replica(volume) || self.snapshots.contains(&volume)
    }

    /// Is it a replica, or a release of one?
    fn is_of_replica(&self, volume: u32) -> bool {
        self.replica.is_some_and(|replica| volume >= replica)
    }

    /// A request is over.
    pub(crate) fn forget(&mut self, seq: Seq) {
        self.thawed |= self.freezing.remove(&seq).is_some();
    }

    /// Do requests wait for a tick to go on?
    pub(crate) fn has_thawed(&self) -> bool {
        self.thawed
    }
}

/// The volume, or the snapshot, of this name.
fn named<'a>(all: &'a [VolumeInfo], name: &Name) -> Option<&'a VolumeInfo> {
    let mut there = all.iter().filter(|info| info.state == VolumeState::Present);
    there.find(|info| info.name == *name)
}

/// The volume that a snapshot is being received for.
fn received_for(all: &[VolumeInfo], snapshot: u32) -> Option<u32> {
    let mut halves = all
        .iter()
        .filter(|info| info.provenance.receiving.is_some());
    halves.find(|info| info.id == snapshot)?.snapshot_of
}

/// The volumes in whose directory of snapshots a name comes, goes or is changed; perhaps others.
fn list_another(all: &[VolumeInfo], op: &VolumeOp) -> Vec<u32> {
    let one = match op {
        VolumeOp::Snapshot { of, .. } => named(all, of).map(|info| info.id),
        VolumeOp::Delete { of } | VolumeOp::Rename { of, .. } => {
            named(all, of).and_then(|info| info.snapshot_of)
        }
        VolumeOp::Undelete { of } => {
            let called = all.iter().filter(|info| info.name == *of);
            return called.filter_map(|info| info.snapshot_of).collect();
        }
        VolumeOp::Publish { volume } => received_for(all, *volume),
        VolumeOp::Create { .. }
        | VolumeOp::Clone { .. }
        | VolumeOp::Purge { .. }
        | VolumeOp::Schedule { .. }
        | VolumeOp::Limit { .. }
        | VolumeOp::Receive { .. }
        | VolumeOp::Undo { .. }
        | VolumeOp::Discard { .. }
        | VolumeOp::ReceiveRelease { .. } => None,
        VolumeOp::DropReleases { volume, .. } => Some(*volume),
    };
    one.into_iter().collect()
}

impl Server {
    /// The root for a client that asks for this volume, and whether nothing changes there.
    pub(crate) fn root_of(&mut self, disk: &dyn Disk, volume: &[u8]) -> Option<(Fid, bool)> {
        let all = disk.volumes();
        self.learn(&all);
        if volume.is_empty() || volume == FIRST_VOLUME {
            return Some((self.root, false));
        }
        let info = named(&all, &Name::new(volume).ok()?)?;
        Some((info.root(), self.volumes.is_fixed(info.id)))
    }

    fn learn(&mut self, all: &[VolumeInfo]) {
        let snapshots = all.iter().filter(|info| info.snapshot_of.is_some());
        self.volumes.snapshots = snapshots.map(|info| info.id).collect();
        let replica = all.iter().find(|info| info.is_replica());
        self.volumes.replica = replica.map(|info| info.id);
    }

    /// Does a request of a session on a replica look at that alone? Clients only share what is in a
    /// replica, and have changed nothing there that could be lost.
    pub(crate) fn reads_replica(&self, (session, op): (SessionId, &Op), plan: &Plan) -> bool {
        let in_replica = |fid: Fid| self.volumes.is_of_replica(fid.volume);
        let root = self.sessions.get(&session).and_then(|of| of.root);
        root.is_some_and(|(root, _)| in_replica(root))
            && !op.changes()
            && plan.fids().into_iter().all(in_replica)
    }

    /// Is the store that of a replica?
    pub(crate) fn has_replica(&self) -> bool {
        self.volumes.replica.is_some()
    }

    /// May something there be anybody's alone?
    pub(crate) fn may_change(&self, fid: Fid) -> bool {
        let mut freezing = self.volumes.freezing.iter();
        let frozen =
            freezing.any(|(seq, volume)| *volume == fid.volume && self.waiting.contains_key(seq));
        !frozen && !fid.is_snapshots() && !self.volumes.is_fixed(fid.volume)
    }

    /// Adds to the plan the tokens that stand in the way of an operation on volumes.
    pub(crate) fn plan_volume(
        &self,
        disk: &dyn Disk,
        op: &VolumeOp,
        (waiting, plan): (&Waiting, &mut Plan),
    ) {
        let behind = waiting.plan.more_behind;
        let partly = self.options.mutant == Some(Mutant::FreezesPartly) && behind.is_some();
        if partly || self.options.mutant == Some(Mutant::FreezesAtOnce) {
            return;
        }
        let all = disk.volumes();
        for volume in list_another(&all, op) {
            plan.gathers.insert(Fid::snapshots(volume), Right::None);
        }
        let named = |of| named(&all, of).map(|info| info.id);
        let (of, keep) = match op {
            VolumeOp::Snapshot { of, .. }
            | VolumeOp::Clone { of, .. }
            | VolumeOp::Receive { name: of, .. } => (named(of), Right::Shared),
            VolumeOp::Delete { of } => (named(of), Right::None),
            VolumeOp::Publish { volume } => (received_for(&all, *volume), Right::None),
            VolumeOp::Create { .. }
            | VolumeOp::Rename { .. }
            | VolumeOp::Undelete { .. }
            | VolumeOp::Purge { .. }
            | VolumeOp::Schedule { .. }
            | VolumeOp::Limit { .. }
            | VolumeOp::Undo { .. }
            | VolumeOp::Discard { .. }
            | VolumeOp::ReceiveRelease { .. }
            | VolumeOp::DropReleases { .. } => return,
        };
        let Some(of) = of else {
            return;
        };
        if let VolumeOp::Publish { volume } = op
            && let Some(changed) = disk.changed_by_release(*volume)
        {
            // Else two clients that ask again and again would keep the release from being seen.
            plan.withdraws = true;
            let walk = |plan: &mut Plan, behind| self.walk_release(&changed, behind, plan);
            return plan.next_round(behind, walk);
        }
        plan.freezes = (keep == Right::Shared).then_some(of);
        let mut ids: Vec<u32> = alloc::vec![of];
        if matches!(op, VolumeOp::Delete { .. }) {
            let snapshots = all.iter().filter(|other| other.snapshot_of == Some(of));
            ids.extend(snapshots.map(|other| other.id));
        }
        ids.sort_unstable();
        let walk = |plan: &mut Plan, behind| self.walk_volumes((&ids, keep), behind, plan);
        plan.next_round(behind, walk);
        if plan.freezes.is_some() && plan.more_behind.is_none() {
            self.view_unconfirmed(of, plan);
        }
    }

    /// Adds the changes of a volume whose callers may not have seen the answers.
    fn view_unconfirmed(&self, volume: u32, plan: &mut Plan) {
        let sessions = self.sessions.values();
        let changed = sessions.flat_map(|session| session.unconfirmed.values().flatten());
        let changed = changed.filter(|fid| fid.volume == volume).copied();
        let changed: BTreeSet<Fid> = changed.collect();
        let views = changed.into_iter().map(|fid| (fid, View::Whole));
        plan.views.extend(views);
    }

    /// Adds the tokens of volumes, in the order of their numbers, which somebody has beyond what he
    /// may keep. Where only Exclusive is too much, it costs nothing for each other object: a
    /// snapshot of a volume that is at rest takes as long as that of an empty one.
    fn walk_volumes(&self, (ids, keep): (&[u32], Right), behind: Option<Fid>, plan: &mut Plan) {
        let gather = |plan: &mut Plan, fid: Fid| {
            self.cost.look();
            let mut holders = self.holders(fid, None);
            let held = holders.any(|(_, holder)| holder.right > keep);
            !held || plan.gather((fid, keep), self.options.gathered_at_once)
        };
        for &volume in ids {
            let bounds = of_volume(volume, behind);
            let goes_on = if keep == Right::Shared {
                let mut held = self.exclusive.range(bounds);
                held.all(|fid| gather(plan, *fid))
            } else {
                let mut known = self.files.range(bounds);
                known.all(|(fid, _)| gather(plan, *fid))
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Adds the tokens of what a release changes.
    fn walk_release(&self, changed: &BTreeSet<Fid>, behind: Option<Fid>, plan: &mut Plan) {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for fid in changed.range((from, Bound::Unbounded)) {
            let held = self.files.get(fid).is_some_and(|file| {
                let mut holders = file.holders.iter();
                holders.any(|(_, holder)| holder.right > Right::None)
            });
            if held && !plan.gather((*fid, Right::None), self.options.gathered_at_once) {
                return;
            }
        }
    }

    /// Clients are to give up so much of what a volume has: the one that asks, too.
    pub(crate) fn need_gathered(&self, plan: &Plan, (only, needs): (Only, &mut Vec<Need>)) {
        let one = only.and_then(|(_, fid)| plan.gathers.get_key_value(&fid));
        let all = only.is_none().then(|| plan.gathers.iter());
        for (fid, keep) in one.into_iter().chain(all.into_iter().flatten()) {
            self.cost.look();
            for (session, holder) in self.holders(*fid, only) {
                let of = plan.gathers_of;
                let gives = of.is_none_or(|of| self.is_one_of(of, (session, holder)));
                if gives && holder.right > *keep {
                    let (fid, what) = (*fid, What::Keep(*keep));
                    needs.push(Need { session, fid, what });
                }
            }
        }
    }

    /// Is it a change in a volume of which a snapshot or a clone waits for confirmations alone? It
    /// would have to be confirmed, too, and under load the snapshot would never be made.
    pub(crate) fn waits_for_snapshot(&self, waiting: &Waiting, plan: &Plan) -> bool {
        if self.volumes.freezing.is_empty() || !waiting.request.op.changes() {
            return false;
        }
        let confirmed = |debt: &Awaited| matches!(debt, Awaited::Confirmed(..));
        let freezing = self.volumes.freezing.iter();
        let mut nearly = freezing.filter(|(seq, _)| {
            let frozen = self.waiting.get(seq).filter(|w| w.plan.freezes.is_some());
            **seq != waiting.seq
                && frozen.is_some_and(|w| !w.owed.is_empty() && w.owed.iter().all(confirmed))
        });
        nearly.any(|(_, volume)| plan.fids().iter().any(|fid| fid.volume == *volume))
    }

    /// Requests that a snapshot put off are judged when it is over.
    pub(crate) fn tick_thawed(&mut self, step: &mut Step<'_>) {
        if core::mem::take(&mut self.volumes.thawed) {
            let put_off: Vec<Seq> = self.patient.iter().map(|(_, seq)| *seq).collect();
            for seq in put_off {
                self.judge_if_free(step, seq);
            }
        }
    }

    /// A request waits for what clients give up: nobody gets more of that meanwhile.
    pub(crate) fn note_freezing(&mut self, disk: &dyn Disk, seq: Seq) {
        let Some(Waiting { request, .. }) = self.waiting.get(&seq) else {
            return;
        };
        let of = match &request.op {
            Op::Volume(
                VolumeOp::Snapshot { of, .. }
                | VolumeOp::Clone { of, .. }
                | VolumeOp::Receive { name: of, .. }
                | VolumeOp::Delete { of },
            ) => named(&disk.volumes(), of).map(|info| info.id),
            Op::Volume(VolumeOp::Publish { volume }) => received_for(&disk.volumes(), *volume),
            _ => return,
        };
        if let Some(of) = of {
            self.volumes.freezing.insert(seq, of);
        }
    }

    /// An operation on volumes has been done: files that had no name in what was cloned are open
    /// nowhere in the clone.
    pub(crate) fn after_volume(&mut self, step: &mut Step<'_>, (op, outcome): (&Op, &Outcome)) {
        let Op::Volume(op) = op else {
            return;
        };
        if matches!(op, VolumeOp::Publish { .. }) {
            // Readers who have seen a release must not see an older one after a loss of power.
            step.disk.make_firm();
        }
        let all = step.disk.volumes();
        self.learn(&all);
        self.look_at_schedules(step.now);
        if let (VolumeOp::Clone { .. }, Outcome::Volume(info)) = (op, outcome) {
            let orphans = step.disk.orphans().into_iter();
            for fid in orphans.filter(|fid| fid.volume == info.id) {
                self.files.entry(fid).or_default().orphan = Some(step.now);
                self.reap_if_unused(step, fid);
                self.forget_quiet(fid);
            }
        }
    }
}
