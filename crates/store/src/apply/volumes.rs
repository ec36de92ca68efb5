//! Operations on volumes. None of them looks at what a volume has: each costs the same, however
//! large the volume is.

use super::entries::MODE_BITS;
use super::{Applied, receive, undo};
use crate::options::Mutant;
use crate::txn::Txn;
use crate::value::root_object;
use crate::volumes::{FIRST_BIRTH, State, Volume};
use wire::{
    Fid, Limits, Name, Outcome, Refusal, ScheduleRule, VOLUMES_MAX, VolumeOp, is_volume_name,
    snapshot_name, split_volume_name,
};

/// Applies an operation on volumes.
pub(super) fn apply(txn: &mut Txn<'_>, op: &VolumeOp) -> Applied {
    if txn.context.caller.uid != 0 {
        return Err(Refusal::NotPermitted);
    }
    let of_replicas = matches!(
        op,
        VolumeOp::ReceiveRelease { .. }
            | VolumeOp::DropReleases { .. }
            | VolumeOp::Publish { .. }
            | VolumeOp::Discard { .. }
    );
    if !of_replicas && txn.index.volumes.is_for_replica() {
        return Err(Refusal::ReadOnly);
    }
    let id = match op {
        VolumeOp::Create { name, mode } => create(txn, name, *mode)?,
        VolumeOp::Snapshot { of, name } => snapshot(txn, of, name)?,
        VolumeOp::Clone { of, name } => clone(txn, of, name)?,
        VolumeOp::Rename { of, name } => rename(txn, of, name)?,
        VolumeOp::Delete { of } => delete(txn, of)?,
        VolumeOp::Undelete { of } => undelete(txn, of)?,
        VolumeOp::Purge { volume } => return purge(txn, *volume),
        VolumeOp::Schedule { of, rules } => schedule(txn, of, rules)?,
        VolumeOp::Limit { of, limits } => limit(txn, of, *limits)?,
        VolumeOp::Receive {
            name,
            head,
            rollback,
        } => receive::receive(txn, name, head, *rollback)?,
        VolumeOp::Undo { volume, things } => undo::undo(txn, *volume, *things)?,
        VolumeOp::Publish { volume } => receive::publish(txn, *volume)?,
        VolumeOp::Discard { volume } => return receive::discard(txn, *volume),
        VolumeOp::ReceiveRelease {
            name,
            head,
            release,
        } => receive::receive_release(txn, name, head, *release)?,
        VolumeOp::DropReleases { volume, below } => {
            return receive::drop_releases(txn, *volume, *below);
        }
    };
    let mut after = txn.index.volumes.clone();
    for (id, volume) in &txn.changes.volumes {
        after.put(*id, volume.clone());
    }
    after.info(id).map(Outcome::Volume).ok_or(Refusal::NotFound)
}

/// All volumes that are not purged.
pub(super) fn list(txn: &Txn<'_>) -> Outcome {
    let volumes = &txn.index.volumes;
    Outcome::Volumes(
        volumes
            .iter()
            .filter_map(|(id, _)| volumes.info(id))
            .collect(),
    )
}

pub(super) fn find(txn: &Txn<'_>, name: &Name) -> Result<(u32, Volume), Refusal> {
    let volumes = &txn.index.volumes;
    let found = volumes
        .find(name)
        .and_then(|id| Some((id, volumes.get(id)?)));
    found
        .map(|(id, volume)| (id, volume.clone()))
        .ok_or(Refusal::NotFound)
}

/// A number for one more volume, whose name is free.
fn next(txn: &Txn<'_>, name: &Name) -> Result<u32, Refusal> {
    let volumes = &txn.index.volumes;
    volumes.is_free(name)?;
    match volumes.len() < VOLUMES_MAX {
        true => volumes.number(0),
        false => Err(Refusal::NoSpace),
    }
}

pub(super) fn plain(name: &Name) -> Result<(), Refusal> {
    match is_volume_name(name.as_bytes()) {
        true => Ok(()),
        false => Err(Refusal::Invalid),
    }
}

fn create(txn: &mut Txn<'_>, name: &Name, mode: u16) -> Result<u32, Refusal> {
    plain(name)?;
    let id = next(txn, name)?;
    let caller = txn.context.caller;
    let owner = (caller.uid, caller.gid);
    let root = root_object(owner, mode & MODE_BITS, txn.now());
    let volume = Volume {
        objects: 1,
        ..Volume::new(name.clone(), txn.now())
    };
    txn.changes.volumes.push((id, Some(volume)));
    txn.put_object(Fid::root(id), root);
    txn.count_all(1, 0);
    Ok(id)
}

/// Ends the birth of a volume; a snapshot or clone that branches off sees everything up to it.
fn end_birth(txn: &mut Txn<'_>, (id, mut volume): (u32, Volume)) -> Result<(u32, u32), Refusal> {
    let ended = (id, volume.birth);
    let ahead = volume.copied.ahead;
    let lies = volume.sweep || txn.index.volumes.half_of(id).is_some();
    if volume.birth + 1 == ahead && lies {
        // Nobody may see the keys of a snapshot that is being received, or was given up.
        return Err(Refusal::Busy);
    }
    if txn.index.mutant != Some(Mutant::SnapshotsMelt) {
        volume.birth = volume.birth.checked_add(1).ok_or(Refusal::NoSpace)?;
    }
    txn.changes.volumes.push((id, Some(volume)));
    Ok(ended)
}

fn snapshot(txn: &mut Txn<'_>, of: &Name, name: &Name) -> Result<u32, Refusal> {
    plain(name)?;
    let (id, volume) = find(txn, of)?;
    if volume.snapshot_of.is_some() {
        return Err(Refusal::ReadOnly);
    }
    let full = snapshot_name(volume.name.as_bytes(), name.as_bytes())?;
    let new = next(txn, &full)?;
    let origin = end_birth(txn, (id, volume.clone()))?;
    let snapshot = Volume {
        snapshot_of: Some(id),
        ..volume.branch(origin, name.clone(), txn.now())
    };
    txn.changes.volumes.push((new, Some(snapshot)));
    Ok(new)
}

fn clone(txn: &mut Txn<'_>, of: &Name, name: &Name) -> Result<u32, Refusal> {
    plain(name)?;
    let (id, volume) = find(txn, of)?;
    let new = next(txn, name)?;
    if txn.index.volumes.is_too_deep(id) {
        return Err(Refusal::TooManyLinks);
    }
    let origin = match (volume.snapshot_of, volume.origin) {
        (Some(_), Some(origin)) => origin,
        _ => end_birth(txn, (id, volume.clone()))?,
    };
    let clone = volume.branch(origin, name.clone(), txn.now());
    let (objects, bytes) = (clone.objects as i64, clone.bytes as i64);
    txn.changes.volumes.push((new, Some(clone)));
    txn.count_all(objects, bytes);
    Ok(new)
}

fn rename(txn: &mut Txn<'_>, of: &Name, name: &Name) -> Result<u32, Refusal> {
    let (id, mut volume) = find(txn, of)?;
    let (front, short) = match (split_volume_name(name), volume.snapshot_of) {
        ((front, Some(short)), Some(_)) => (Some(front), Name::new(short)?),
        ((_, None), None) => (None, name.clone()),
        _ => return Err(Refusal::Invalid),
    };
    plain(&short)?;
    let volumes = &txn.index.volumes;
    let whole = volume.snapshot_of.and_then(|whole| volumes.get(whole));
    if front.is_some_and(|front| whole.is_none_or(|whole| whole.name.as_bytes() != front)) {
        return Err(Refusal::CrossVolume);
    }
    if id == txn.index.counters.volume {
        return Err(Refusal::NotPermitted);
    }
    volumes.is_free(name)?;
    volume.name = short;
    txn.changes.volumes.push((id, Some(volume)));
    Ok(id)
}

fn schedule(txn: &mut Txn<'_>, of: &Name, rules: &[ScheduleRule]) -> Result<u32, Refusal> {
    let (id, mut volume) = find(txn, of)?;
    if volume.snapshot_of.is_some() {
        return Err(Refusal::ReadOnly);
    }
    volume.schedule = rules.to_vec();
    // From now on something is kept of it by itself, as of one that has been cloned.
    end_birth(txn, (id, volume))?;
    Ok(id)
}

fn limit(txn: &mut Txn<'_>, of: &Name, limits: Limits) -> Result<u32, Refusal> {
    let (id, mut volume) = find(txn, of)?;
    if volume.snapshot_of.is_some() {
        return Err(Refusal::ReadOnly);
    }
    volume.limits = limits;
    if volume.birth == FIRST_BIRTH {
        // From now on something is kept of it by itself, as of one that has been cloned.
        end_birth(txn, (id, volume))?;
    } else {
        txn.changes.volumes.push((id, Some(volume)));
    }
    Ok(id)
}

fn delete(txn: &mut Txn<'_>, of: &Name) -> Result<u32, Refusal> {
    let (id, _) = find(txn, of)?;
    if id == txn.index.counters.volume {
        return Err(Refusal::NotPermitted);
    }
    let now = txn.now();
    change_state(txn, id, State::Present, State::Deleted(now));
    Ok(id)
}

fn undelete(txn: &mut Txn<'_>, of: &Name) -> Result<u32, Refusal> {
    let volumes = &txn.index.volumes;
    let (id, at) = volumes.find_deleted(of).ok_or(Refusal::NotFound)?;
    volumes.is_free(of)?;
    let whole = volumes.get(id).and_then(|volume| volume.snapshot_of);
    if whole
        .and_then(|whole| volumes.get(whole))
        .is_some_and(|whole| !whole.is_present())
    {
        // The snapshots of a deleted volume come back with it.
        return Err(Refusal::NotFound);
    }
    change_state(txn, id, State::Deleted(at), State::Present);
    Ok(id)
}

/// The volume, and its snapshots, come from one state into another one.
fn change_state(txn: &mut Txn<'_>, id: u32, from: State, to: State) {
    let volumes = &txn.index.volumes;
    let mut all = volumes.snapshots_of(id);
    all.push(id);
    let (mut objects, mut bytes) = (0, 0);
    for id in all {
        let volume = volumes.get(id).filter(|volume| volume.state == from);
        let Some(mut volume) = volume.cloned() else {
            continue;
        };
        volume.state = to;
        if volume.snapshot_of.is_none() {
            let sign = if to == State::Present { 1 } else { -1 };
            objects += sign * volume.objects as i64;
            bytes += sign * volume.bytes as i64;
        }
        txn.changes.volumes.push((id, Some(volume)));
    }
    txn.count_all(objects, bytes);
}

fn purge(txn: &mut Txn<'_>, id: u32) -> Applied {
    let volumes = &txn.index.volumes;
    let volume = volumes.get(id).ok_or(Refusal::NotFound)?;
    if !matches!(volume.state, State::Deleted(_)) {
        return Err(Refusal::Invalid);
    }
    let mut gone = volumes.snapshots_of(id);
    gone.push(id);
    let mut after = volumes.clone();
    after.take_touched();
    for id in &gone {
        for at in volumes.seen_through(*id) {
            if let Some(mut of) = after.get(at).cloned() {
                of.sweep = true;
                after.put(at, Some(of));
            }
        }
        let purged = after.get(*id).cloned().map(|of| Volume {
            state: State::Purged,
            ..of
        });
        // A snapshot has no keys: nothing is left of it.
        after.put(*id, purged.filter(|of| of.snapshot_of.is_none()));
    }
    for id in after.take_touched() {
        let volume = after.get(id).cloned();
        txn.changes.volumes.push((id, volume));
    }
    Ok(Outcome::Done)
}
