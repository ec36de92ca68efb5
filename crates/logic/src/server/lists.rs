//! Access lists of directories: the clients that must give up what they cache before one changes.
//!
//! Kernels judge what a list governs by a mode and a POSIX list that stand for it, from their own
//! caches. So before a list changes, every client, the one that asks included, gives up the files
//! of the directory; when the change is answered, it is in force everywhere. The same of a file
//! that goes to another directory, where another list governs it.

use super::api::{Event, On, Output};
use super::requests::plan::Plan;
use super::requests::rounds::of_volume;
use super::schedules::OWN;
use super::table::{Seq, Waiting};
use crate::Ticket;
use crate::server::api::Disk;
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use wire::{Fid, Kind, MachineId, Op, Refusal, Request, Right, SessionId};

/// The requests of the server to itself that wait until all that lists govern was given up.
pub(crate) type Regroupings = BTreeMap<Seq, Regrouping>;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Regrouping {
    ticket: Ticket,
    /// The mounts on which groups count otherwise than before; none: on all.
    on: Option<Vec<(MachineId, Vec<u8>)>>,
}

impl Server {
    /// The list of a directory changes: what it governs besides the directory is given up by all.
    pub(crate) fn plan_list(
        &self,
        disk: &dyn Disk,
        dir: Fid,
        (waiting, plan): (&Waiting, &mut Plan),
    ) -> Result<(), Refusal> {
        let most = self.options.gathered_at_once;
        plan.withdraws = true;
        let mut read = Ok(());
        plan.next_round(waiting.plan.more_behind, |plan, behind| {
            for (&fid, file) in self.files.range(of_volume(dir.volume, behind)) {
                let mut holders = file.holders.iter();
                if !holders.any(|(_, holder)| holder.right > Right::None) {
                    continue;
                }
                match is_in(disk, fid, dir) {
                    Ok(false) => {}
                    Ok(true) if plan.gather((fid, Right::None), most) => {}
                    Ok(true) => break,
                    Err(refusal) => {
                        read = Err(refusal);
                        break;
                    }
                }
            }
        });
        read
    }

    /// The cell's groups are others now: kernels that were shown who is in them forget that.
    pub(crate) fn on_regroup(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        on: Option<Vec<(MachineId, Vec<u8>)>>,
    ) {
        if self.locks_in_doubt().is_some() {
            let done = false;
            let event = Event::Regrouped { ticket, done };
            return step.out.push(Output::Event(event));
        }
        self.last_seq += 1;
        let seq = self.last_seq;
        // It looks at nothing: its plan says what it waits for.
        let request = Request::new(ticket, Op::GetAttr { fid: self.root });
        let plan = self.plan_regroup(step.disk, on.as_deref(), None);
        self.regroupings.insert(seq, Regrouping { ticket, on });
        let waiting = Waiting::new((seq, self.epoch), OWN, (request, 0));
        let needs = self.needs(&waiting, &plan);
        if needs.0.is_empty() {
            return self.execute(step, waiting, &plan);
        }
        self.wait_for(step, (seq, waiting), plan, needs);
    }

    /// All that lists govern, and that these mounts have, is given up by all.
    fn plan_regroup(
        &self,
        disk: &dyn Disk,
        on: Option<&[(MachineId, Vec<u8>)]>,
        behind: Option<Fid>,
    ) -> Plan {
        let of_mount = |session: &SessionId| {
            let On { machine, name } = self.mount_of(*session);
            let is =
                |mount: &(MachineId, Vec<u8>)| (mount.0, mount.1.as_slice()) == (machine, name);
            on.is_none_or(|mounts| mounts.iter().any(is))
        };
        let mut plan = Plan {
            withdraws: true,
            ..Plan::default()
        };
        let walk = |plan: &mut Plan, behind: Option<Fid>| {
            let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
            for (fid, file) in self.files.range((from, Bound::Unbounded)) {
                let mut holders = file.holders.iter();
                let held = holders.any(|(id, holder)| holder.right > Right::None && of_mount(id));
                if held
                    && disk.governed(*fid)
                    && !plan.gather((*fid, Right::None), self.options.gathered_at_once)
                {
                    break;
                }
            }
        };
        plan.next_round(behind, walk);
        plan
    }

    /// The plan of such a request of the server to itself, as things are now.
    pub(crate) fn regrouping(&self, disk: &dyn Disk, waiting: &Waiting) -> Option<Plan> {
        let Regrouping { on, .. } = self.regroupings.get(&waiting.seq)?;
        Some(self.plan_regroup(disk, on.as_deref(), waiting.plan.more_behind))
    }

    /// Is it a request of the server to itself, about groups? It is done.
    pub(crate) fn ends_regrouping(&mut self, step: &mut Step<'_>, waiting: &Waiting) -> bool {
        let Some(Regrouping { ticket, .. }) = self.regroupings.remove(&waiting.seq) else {
            return false;
        };
        let done = true;
        step.out
            .push(Output::Event(Event::Regrouped { ticket, done }));
        self.recheck_all(step, waiting);
        true
    }

    /// The names and objects of a rename, and the lists that it is about.
    pub(crate) fn plan_rename(
        &self,
        disk: &dyn Disk,
        op: &Op,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let Op::Rename {
            from,
            name,
            to,
            new,
            ..
        } = op
        else {
            return Ok(());
        };
        plan.name(*from, name);
        plan.name(*to, new);
        let moved = disk.lookup(*from, name)?;
        let victim = disk.lookup(*to, new)?;
        if let Some(moved) = moved {
            plan.change(disk, moved)?;
        }
        if from != to {
            self.plan_other_list(disk, ((*from, moved), (*to, victim)), plan);
        }
        // Two names of one object: nothing happens to either.
        if let Some(victim) = victim.filter(|_| victim != moved) {
            plan.change(disk, victim)?;
            plan_left_list(disk, victim, plan)?;
        }
        Ok(())
    }

    /// Files that come to another directory, where another list decides.
    pub(crate) fn plan_other_list(
        &self,
        disk: &dyn Disk,
        moves: ((Fid, Option<Fid>), (Fid, Option<Fid>)),
        plan: &mut Plan,
    ) {
        let ((from, moved), (to, victim)) = moves;
        if !disk.governed(from) && !disk.governed(to) {
            return;
        }
        let both = [moved, victim].into_iter().flatten();
        plan.gathers.extend(both.map(|fid| (fid, Right::None)));
    }
}

/// A file that loses a name, and has names in other directories: another list may decide then.
pub(crate) fn plan_left_list(disk: &dyn Disk, fid: Fid, plan: &mut Plan) -> Result<(), Refusal> {
    let linked = disk
        .attr(fid)?
        .is_some_and(|attr| attr.nlink > 1 && attr.kind != Kind::Directory);
    let dirs = if linked { disk.dirs(fid)? } else { Vec::new() };
    if dirs.len() > 1 && dirs.iter().any(|dir| disk.governed(*dir)) {
        plan.gathers.insert(fid, Right::None);
    }
    Ok(())
}

/// Is it in this directory, and no directory itself?
fn is_in(disk: &dyn Disk, fid: Fid, dir: Fid) -> Result<bool, Refusal> {
    let Some((parent, _)) = disk.place(fid)? else {
        return Ok(false);
    };
    let is_file = |kind| kind != Kind::Directory;
    Ok(parent == dir && disk.attr(fid)?.is_some_and(|attr| is_file(attr.kind)))
}

/// The directories in which an object has names. That of a volume's snapshots is in its root.
pub(crate) fn dirs_of(disk: &dyn Disk, fid: Fid) -> Result<Vec<Fid>, Refusal> {
    match fid.is_snapshots() {
        true => Ok(Vec::from([Fid::root(fid.volume)])),
        false => disk.dirs(fid),
    }
}

/// Is an object at or below another one?
pub(crate) fn is_below(disk: &dyn Disk, fid: Fid, top: Option<Fid>) -> Result<bool, Refusal> {
    let Some(top) = top else {
        return Ok(false);
    };
    if fid == top {
        return Ok(true);
    }
    for mut at in dirs_of(disk, fid)? {
        while at != top {
            match disk.place(at)? {
                Some((dir, _)) => at = dir,
                None => break,
            }
        }
        if at == top {
            return Ok(true);
        }
    }
    Ok(false)
}
