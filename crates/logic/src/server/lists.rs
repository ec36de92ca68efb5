//! Access lists of directories: the clients that must give up what they cache before one changes.
//!
//! Kernels judge what a list governs by a mode and a POSIX list that stand for it, from their own
//! caches. So before a list changes, every client, the one that asks included, gives up the files
//! of the directory; when the change is answered, it is in force everywhere. The same of a file
//! that goes to another directory, where another list governs it.

use super::requests::plan::Plan;
use super::requests::rounds::of_volume;
use super::table::Waiting;
use crate::server::Server;
use crate::server::api::Disk;
use alloc::vec::Vec;
use wire::{Fid, Kind, Op, Refusal, Right};

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
