//! How a snapshot that is received begins and ends: see [`crate::provenance`].

use super::Applied;
use super::volumes::{find, plain};
use crate::provenance::{AHEAD, Copied, Half, Undo};
use crate::replica;
use crate::txn::{Txn, trouble};
use crate::volumes::{FIRST_BIRTH, State, Volume};
use wire::{
    Blob, Fid, Identity, Kind, Name, Outcome, Receiving, Refusal, StreamHead, VOLUMES_MAX,
    is_replica_name, snapshot_name, volume_numbers,
};

/// The snapshot that is received for a volume of this name.
fn half_named(txn: &Txn<'_>, name: &Name) -> Option<(u32, Half)> {
    let volumes = &txn.index.volumes;
    let mut halves = volumes.iter().filter_map(|(id, of)| {
        let half = of.copied.half.clone()?;
        let whole = volumes.get(of.snapshot_of?)?;
        (whole.name == *name).then_some((id, half))
    });
    halves.next()
}

/// Begins to receive a snapshot, or goes on.
pub(super) fn receive(
    txn: &mut Txn<'_>,
    name: &Name,
    head: &StreamHead,
    rollback: bool,
) -> Result<u32, Refusal> {
    plain(name)?;
    plain(&head.name)?;
    if let Some((id, half)) = half_named(txn, name) {
        return match half.receiving.head == *head {
            true => Ok(id),
            // Another one comes first, or is given up.
            false => Err(Refusal::Locked),
        };
    }
    if txn.index.volumes.len() + 2 > VOLUMES_MAX {
        return Err(Refusal::NoSpace);
    }
    let half = nothing_yet(head);
    match txn.index.volumes.find(name) {
        None if head.since.is_some() => Err(Refusal::NotFound),
        None => {
            let volumes = &txn.index.volumes;
            let numbers = (volumes.number(0)?, volumes.number(1)?);
            begin_whole(txn, name, numbers, (FIRST_BIRTH, half))
        }
        Some(_) if head.since.is_none() => Err(Refusal::Exists),
        Some(_) => begin_changes(txn, name, half, rollback),
    }
}

/// A snapshot of which nothing has been received.
fn nothing_yet(head: &StreamHead) -> Half {
    Half {
        receiving: Receiving {
            head: head.clone(),
            chunks: 0,
            after: Blob::default(),
            undoing: false,
        },
        unchanged: 0,
        undo: None,
    }
}

/// Begins to receive a release of a replica, or goes on: see [`crate::replica`].
pub(super) fn receive_release(
    txn: &mut Txn<'_>,
    name: &Name,
    head: &StreamHead,
    release: u32,
) -> Result<u32, Refusal> {
    plain(name)?;
    plain(&head.name)?;
    let volumes = &txn.index.volumes;
    let of = volume_numbers::replica(txn.index.counters.volume);
    if !is_replica_name(name.as_bytes()) || !volume_numbers::is_replica(of) {
        return Err(Refusal::NotSupported);
    }
    if let Some((id, half)) = half_named(txn, name) {
        return match half.receiving.head == *head {
            true => Ok(id),
            false => Err(Refusal::Locked),
        };
    }
    let id = volume_numbers::release(of, release).filter(|_| release > 0);
    let id = id.ok_or(Refusal::NoSpace)?;
    let birth = replica::birth(release).ok_or(Refusal::NoSpace)?;
    let half = nothing_yet(head);
    match (volumes.get(of), head.since) {
        (None, Some(_)) => Err(Refusal::NotFound),
        // Other volumes of the store would have numbers that releases are to get.
        (None, None) if volumes.iter().any(|(other, _)| other > of) => Err(Refusal::Exists),
        (None, None) => begin_whole(txn, name, (of, id), (birth, half)),
        // The remains of a release that was given up are being removed.
        (Some(volume), _) if volume.state == State::Purged => Err(Refusal::Busy),
        (Some(volume), _) if volume.sweep && volume.copied.ahead > volume.birth => {
            Err(Refusal::Busy)
        }
        (Some(_), None) => Err(Refusal::Exists),
        (Some(volume), Some(since)) => {
            let volume = volume.clone();
            let next = (id, birth);
            change_release(txn, (of, volume), next, (since, half))
        }
    }
}

/// Begins to receive what changed since the release before.
fn change_release(
    txn: &mut Txn<'_>,
    (of, volume): (u32, Volume),
    (id, birth): (u32, u32),
    (since, mut half): (Identity, Half),
) -> Result<u32, Refusal> {
    if volume.copied.of != Some(half.receiving.head.volume) {
        return Err(Refusal::CrossVolume);
    }
    let volumes = &txn.index.volumes;
    if volumes.get(id).is_some() || birth <= volume.birth {
        return Err(Refusal::Exists);
    }
    let before = volumes.get(id - 1).filter(|base| base.is_present());
    let base = before.filter(|base| base.copied.of == Some(since));
    let base = base.ok_or(Refusal::Stale)?.clone();
    half.unchanged = volume.copied.changed;
    begin_changes_at(txn, (of, volume), (base, id), (birth, half));
    Ok(id)
}

/// The releases below this one are not kept any more; the newest is.
pub(super) fn drop_releases(txn: &mut Txn<'_>, of: u32, below: u32) -> Applied {
    let volumes = &txn.index.volumes;
    if !volumes.is_replica(of) {
        return Err(Refusal::NotFound);
    }
    let first = volume_numbers::release(of, below).ok_or(Refusal::NotFound)?;
    let kept = volumes.iter().filter(|(_, volume)| volume.is_present());
    let newest = kept.map(|(id, _)| id).last();
    let gone = |id: &u32| *id < first && Some(*id) != newest;
    let gone: Vec<u32> = volumes.snapshots_of(of).into_iter().filter(gone).collect();
    let mut volume = volumes.get(of).cloned().ok_or(Refusal::NotFound)?;
    volume.sweep |= !gone.is_empty();
    txn.changes.volumes.push((of, Some(volume)));
    // A snapshot has no keys: nothing is left of it.
    txn.changes
        .volumes
        .extend(gone.into_iter().map(|id| (id, None)));
    txn.changes.forgets = true;
    Ok(Outcome::Done)
}

/// A snapshot of a volume, at a birth of it, that nobody sees.
fn hidden(txn: &Txn<'_>, (of, birth): (u32, u32), half: Half) -> Volume {
    let name = half.receiving.head.name.clone();
    Volume {
        snapshot_of: Some(of),
        origin: Some((of, birth)),
        state: State::Receiving,
        copied: Copied {
            half: Some(half),
            ..Copied::default()
        },
        ..Volume::new(name, txn.now())
    }
}

fn begin_whole(
    txn: &mut Txn<'_>,
    name: &Name,
    (of, id): (u32, u32),
    (birth, half): (u32, Half),
) -> Result<u32, Refusal> {
    let volume = Volume {
        state: State::Receiving,
        ..Volume::new(name.clone(), txn.now())
    };
    let snapshot = hidden(txn, (of, birth), half);
    txn.changes.volumes.push((of, Some(volume)));
    txn.changes.volumes.push((id, Some(snapshot)));
    Ok(id)
}

fn begin_changes(
    txn: &mut Txn<'_>,
    name: &Name,
    mut half: Half,
    rollback: bool,
) -> Result<u32, Refusal> {
    let (of, mut volume) = find(txn, name)?;
    let volumes = &txn.index.volumes;
    let head = &half.receiving.head;
    if volume.snapshot_of.is_some() || volume.copied.of != Some(head.volume) {
        return Err(Refusal::CrossVolume);
    }
    let mut bases = volumes.iter().filter(|(_, base)| {
        let same = base.snapshot_of == Some(of) && base.is_present();
        same && base.copied.of.is_some() && base.copied.of == head.since
    });
    let (_, base) = bases.next().ok_or(Refusal::Stale)?;
    let (_, born) = base.origin.ok_or(Refusal::Stale)?;
    volumes.is_free(&snapshot_name(name.as_bytes(), head.name.as_bytes())?)?;
    if volume.sweep && volume.copied.ahead > volume.birth {
        // The remains of a snapshot that was given up are being removed.
        return Err(Refusal::Busy);
    }
    half.unchanged = born;
    if volume.copied.changed > born {
        if !rollback {
            return Err(Refusal::NotEmpty);
        }
        if volume.copied.listed_from > born + 1 {
            return Err(Refusal::NotSupported);
        }
        half.unchanged = volume.birth;
        half.receiving.undoing = true;
        half.undo = Some(Undo {
            first: born + 1,
            last: volume.birth,
            from: Vec::new(),
        });
        volume.birth += 1;
    }
    let highest = volume.birth.max(volume.copied.ahead);
    let birth = highest.checked_add(AHEAD).ok_or(Refusal::NoSpace)?;
    let (base, id) = (base.clone(), volumes.number(0)?);
    begin_changes_at(txn, (of, volume), (base, id), (birth, half));
    Ok(id)
}

/// The snapshot that is received begins as the one that the sender counts on.
fn begin_changes_at(
    txn: &mut Txn<'_>,
    (of, mut volume): (u32, Volume),
    (base, id): (Volume, u32),
    (birth, half): (u32, Half),
) {
    let mut snapshot = hidden(txn, (of, birth), half);
    snapshot.objects = base.objects;
    snapshot.bytes = base.bytes;
    snapshot.copied.ranges = volume.copied.ranges.clone();
    volume.copied.ahead = birth;
    txn.changes.volumes.push((of, Some(volume)));
    txn.changes.volumes.push((id, Some(snapshot)));
}

/// The snapshot that is received under this number, and its volume.
fn half(txn: &Txn<'_>, id: u32) -> Result<(Volume, Half, u32, Volume), Refusal> {
    let volumes = &txn.index.volumes;
    let snapshot = volumes.get(id).cloned().ok_or(Refusal::NotFound)?;
    let half = snapshot.copied.half.clone().ok_or(Refusal::NotFound)?;
    let of = snapshot.snapshot_of.ok_or(Refusal::NotFound)?;
    let volume = volumes.get(of).cloned().ok_or(Refusal::NotFound)?;
    Ok((snapshot, half, of, volume))
}

/// The received snapshot is there from now on.
pub(super) fn publish(txn: &mut Txn<'_>, id: u32) -> Result<u32, Refusal> {
    let (mut snapshot, half, of, mut volume) = half(txn, id)?;
    let root = txn.index.object(Fid::root(id)).map_err(trouble)?;
    let rooted = root.is_some_and(|root| root.attr.kind == Kind::Directory);
    if half.undo.is_some() || !rooted {
        return Err(Refusal::Invalid);
    }
    let head = half.receiving.head;
    let volumes = &txn.index.volumes;
    let before = match volume.state {
        State::Receiving => {
            volumes.is_free(&volume.name)?;
            (0, 0)
        }
        State::Present if volume.copied.changed > half.unchanged => return Err(Refusal::NotEmpty),
        State::Present => {
            volumes.is_free(&snapshot_name(
                volume.name.as_bytes(),
                head.name.as_bytes(),
            )?)?;
            (volume.objects, volume.bytes)
        }
        State::Deleted(_) | State::Purged => return Err(Refusal::NotFound),
    };
    let (_, birth) = snapshot.origin.ok_or(Refusal::NotFound)?;
    volume.birth = birth.checked_add(1).ok_or(Refusal::NoSpace)?;
    volume.state = State::Present;
    (volume.objects, volume.bytes) = (snapshot.objects, snapshot.bytes);
    volume.copied.of = Some(head.volume);
    volume.copied.changed = birth;
    volume.copied.ahead = birth;
    volume.copied.ranges = snapshot.copied.ranges.clone();
    snapshot.state = State::Present;
    snapshot.made = txn.now();
    snapshot.copied = Copied {
        of: Some(head.snapshot),
        ..Copied::default()
    };
    txn.count_all(
        volume.objects as i64 - before.0 as i64,
        volume.bytes as i64 - before.1 as i64,
    );
    txn.changes.volumes.push((of, Some(volume)));
    txn.changes.volumes.push((id, Some(snapshot)));
    txn.changes.forgets = true;
    Ok(id)
}

/// Gives up the parts received so far.
pub(super) fn discard(txn: &mut Txn<'_>, id: u32) -> Applied {
    let (_, _, of, mut volume) = half(txn, id)?;
    if volume.state == State::Receiving {
        volume.state = State::Purged;
    }
    volume.sweep = true;
    txn.changes.volumes.push((of, Some(volume)));
    txn.changes.volumes.push((id, None));
    txn.changes.forgets = true;
    Ok(Outcome::Done)
}
