//! The parts of the tree that a session's users may come to: all that its machine was granted, and
//! of a user who has proved himself the part that his proof is limited to.
//!
//! A part is what is at a path of a volume, and below it, by any of its names. On the way to it a
//! kernel may look up the next name, and learn the attributes of the directory that it comes
//! through; nothing else there is shown or changed. Names change, and some changes come late: so
//! the way is looked for at each request. A volume that is mounted in a part is none of it, and has
//! a grant of its own. Snapshots and replicas of a volume go with it.

use crate::server::Server;
use crate::server::api::Disk;
use crate::server::lists::is_below;
use crate::server::rules::rule;
use alloc::vec::Vec;
use wire::{Fid, Name, Op, Part, Proven, Refusal, Rights, SessionId};

/// One part.
pub(super) struct Limit<'a> {
    /// The objects from the root on, as far as they are known now.
    way: Vec<Fid>,
    /// The names that lead from each of them to the next one.
    names: &'a [Name],
}

impl Limit<'_> {
    /// The object at the top of the part, if it is there.
    fn top(&self) -> Option<Fid> {
        let whole = self.way.len() == self.names.len() + 1;
        self.way.last().copied().filter(|_| whole)
    }

    /// On the way: is this about the next step alone, or what a kernel asks for to come there?
    fn leads_on(&self, at: usize, op: &Op) -> bool {
        match op {
            Op::Lookup { name, .. } => self.names.get(at) == Some(name),
            Op::GetXattr { .. } => true,
            _ => false,
        }
    }

    /// Is an operation on this object one on the part, or on the way to it?
    fn takes(&self, disk: &dyn Disk, (fid, op): (Fid, &Op)) -> Result<bool, Refusal> {
        let top = self.top();
        let step = self.way.iter().position(|at| *at == fid);
        match step.filter(|_| top != Some(fid)) {
            Some(at) => Ok(self.leads_on(at, op)),
            None => is_below(disk, fid, top),
        }
    }
}

/// Whether an object is known to be in a part of each kind.
#[derive(Clone, Copy)]
pub(super) struct Inside {
    proof: bool,
    parts: bool,
}

impl Inside {
    pub(super) const NOTHING: Self = Self {
        proof: false,
        parts: false,
    };

    pub(super) fn is_whole(self) -> bool {
        self.proof && self.parts
    }
}

/// All limits of somebody for whom a session asks.
#[derive(Default)]
pub(super) struct Limits<'a> {
    /// That of his proof.
    proof: Option<Limit<'a>>,
    /// Those of his machine, each of which is enough.
    parts: Option<Vec<Limit<'a>>>,
}

impl Limits<'_> {
    pub(super) fn are_none(&self) -> bool {
        self.proof.is_none() && self.parts.is_none()
    }

    fn each(&self, fits: impl Fn(&Limit<'_>) -> bool) -> Inside {
        Inside {
            proof: self.proof.as_ref().is_none_or(&fits),
            parts: self.parts.as_ref().is_none_or(|all| all.iter().any(fits)),
        }
    }

    /// An object, before its names are looked at. `passes`: nothing is to be opened, so one on the
    /// way will do. One without a name that is open to the session is the machine's still.
    pub(super) fn at(&self, fid: Fid, (passes, nameless): (bool, bool)) -> Inside {
        let fits =
            |limit: &Limit<'_>| limit.top() == Some(fid) || (passes && limit.way.contains(&fid));
        let inside = self.each(fits);
        Inside {
            parts: inside.parts || nameless,
            ..inside
        }
    }

    /// The same, with a directory above it.
    pub(super) fn with(&self, before: Inside, dir: Fid) -> Inside {
        let here = self.each(|limit| limit.top() == Some(dir));
        Inside {
            proof: before.proof || here.proof,
            parts: before.parts || here.parts,
        }
    }

    /// Is an object in all of them, of which this is known?
    pub(super) fn hold(&self, disk: &dyn Disk, fid: Fid, known: Inside) -> Result<bool, Refusal> {
        let kinds = [
            (known.proof, self.proof.as_ref().map(core::slice::from_ref)),
            (known.parts, self.parts.as_deref()),
        ];
        let unknown = kinds.into_iter().filter(|(known, _)| !known);
        for limits in unknown.filter_map(|(_, limits)| limits) {
            if !any(limits, |limit| is_below(disk, fid, limit.top()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn any(
    limits: &[Limit<'_>],
    mut fits: impl FnMut(&Limit<'_>) -> Result<bool, Refusal>,
) -> Result<bool, Refusal> {
    for limit in limits {
        if fits(limit)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The objects from the root to what is at a path, as far as there are any.
fn way_to(disk: &dyn Disk, root: Fid, path: &[Name]) -> Result<Vec<Fid>, Refusal> {
    let mut way = Vec::from([root]);
    let mut at = root;
    for name in path {
        let Some(next) = disk.lookup(at, name)? else {
            break;
        };
        way.push(next);
        at = next;
    }
    Ok(way)
}

/// The parts of a volume that a machine was granted.
fn limits_in<'a>(
    disk: &dyn Disk,
    parts: &'a [Part],
    volume: u32,
) -> Result<Vec<Limit<'a>>, Refusal> {
    let name = disk.volume_name(volume);
    let of_volume = |part: &&Part| Some(&part.volume) == name.as_ref();
    let limit = |part: &'a Part| {
        Ok(Limit {
            way: way_to(disk, Fid::root(volume), &part.path)?,
            names: &part.path,
        })
    };
    parts.iter().filter(of_volume).map(limit).collect()
}

impl Server {
    /// The limits that count in a volume for somebody of the session.
    pub(super) fn limits_of<'a>(
        &self,
        disk: &dyn Disk,
        (id, rights, user): (SessionId, &'a Rights, Option<&'a Proven>),
        volume: u32,
    ) -> Result<Limits<'a>, Refusal> {
        let proof = match user.and_then(|user| user.under.as_ref()) {
            Some(names) => Some(self.limit_of(disk, (id, names), volume)?),
            None => None,
        };
        let parts = match rights.is_limited() {
            true => Some(limits_in(disk, &rights.parts, volume)?),
            false => None,
        };
        Ok(Limits { proof, parts })
    }

    /// The limit of a user's proof: a path of the first volume, which leads nowhere in others.
    fn limit_of<'a>(
        &self,
        disk: &dyn Disk,
        (id, names): (SessionId, &'a [Name]),
        volume: u32,
    ) -> Result<Limit<'a>, Refusal> {
        let first = self.root_at(id) == self.root && volume == self.root.volume;
        let way = match first {
            true => way_to(disk, self.root, names)?,
            false => Vec::new(),
        };
        Ok(Limit { way, names })
    }

    /// Is it outside of what the user's proof is limited to?
    pub(super) fn leaves_proof(
        &self,
        disk: &dyn Disk,
        (id, user): (SessionId, &Proven),
        op: &Op,
    ) -> Result<(), Refusal> {
        let Some(names) = &user.under else {
            return Ok(());
        };
        for (fid, _) in rule(op).objects.into_iter().flatten() {
            let limit = self.limit_of(disk, (id, names), fid.volume)?;
            if !limit.takes(disk, (fid, op))? {
                return Err(Refusal::Denied);
            }
        }
        Ok(())
    }

    /// Is it outside of all that the machine was granted? A machine that was granted parts
    /// administers no volumes, and is given no room in others'.
    pub(super) fn leaves_parts(
        &self,
        disk: &dyn Disk,
        rights: &Rights,
        op: &Op,
    ) -> Result<(), Refusal> {
        if !rights.is_limited() {
            return Ok(());
        }
        let inside = match op {
            Op::Volume(_) | Op::Dump { .. } | Op::Restore { .. } => false,
            Op::StatVolume { volume } | Op::Room { volume, .. } => has_part(disk, rights, *volume),
            _ if rule(op).caller => {
                for (fid, _) in rule(op).objects.into_iter().flatten() {
                    let limits = limits_in(disk, &rights.parts, fid.volume)?;
                    if !any(&limits, |limit| limit.takes(disk, (fid, op)))? {
                        return Err(Refusal::Denied);
                    }
                }
                true
            }
            // The reach of the session's users is looked at for these.
            _ => true,
        };
        inside.then_some(()).ok_or(Refusal::Denied)
    }
}

/// Was the machine granted something of a volume?
pub(crate) fn has_part(disk: &dyn Disk, rights: &Rights, volume: u32) -> bool {
    let name = || disk.volume_name(volume);
    !rights.is_limited() || name().is_some_and(|name| rights.has_part_of(&name))
}
