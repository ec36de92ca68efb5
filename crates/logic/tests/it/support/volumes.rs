//! Volumes of the scenarios' store: a snapshot or a clone is a copy of everything, which is as
//! simple as it can be. Objects of another volume than the first are called VOLUME:PATH.

use super::MemoryDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::{
    Fid, Kind, Make, Name, Outcome, Refusal, Time, VolumeInfo, VolumeOp, VolumeState,
    snapshot_name, volume_numbers,
};

/// The objects that a release changes.
type Changed = Arc<BTreeSet<Fid>>;

/// All volumes, the first one first; of releases that are received, the changes; and the release
/// that the first volume shows as a replica does.
#[derive(Clone)]
pub struct Volumes(BTreeMap<u32, VolumeInfo>, BTreeMap<u32, Changed>, u64);

impl Default for Volumes {
    fn default() -> Self {
        let first = info(1, Name::new(wire::FIRST_VOLUME).expect("a name"), 0);
        Self(BTreeMap::from([(1, first)]), BTreeMap::new(), 0)
    }
}

impl Volumes {
    pub fn all(&self) -> Vec<VolumeInfo> {
        self.0.values().cloned().collect()
    }

    pub fn changed(&self, half: u32) -> Option<Changed> {
        self.1.get(&half).cloned()
    }

    pub fn is_frozen(&self, volume: u32) -> bool {
        let known = self.0.get(&volume);
        known.is_some_and(|info| info.snapshot_of.is_some())
    }

    fn find(&self, name: &Name) -> Option<VolumeInfo> {
        let mut all = self.all().into_iter();
        all.find(|info| info.name == *name && info.state == VolumeState::Present)
    }
}

fn info(id: u32, name: Name, made: Time) -> VolumeInfo {
    VolumeInfo {
        id,
        name,
        snapshot_of: None,
        cloned_from: None,
        state: VolumeState::Present,
        made,
        objects: 0,
        bytes: 0,
        schedule: Vec::new(),
        limits: wire::Limits::default(),
        provenance: wire::Provenance::default(),
    }
}

/// The operation that begins to receive a snapshot.
pub fn receive(name: Name) -> VolumeOp {
    let identity = wire::Identity::default();
    VolumeOp::Receive {
        name,
        head: Box::new(wire::StreamHead {
            volume: identity,
            snapshot: identity,
            name: Name::new(b"received").expect("a name"),
            since: Some(identity),
            objects: 0,
            bytes: 0,
        }),
        rollback: false,
    }
}

/// A snapshot of a volume that is being received.
fn half(info: VolumeInfo, (of, head): (u32, &wire::StreamHead)) -> VolumeInfo {
    VolumeInfo {
        snapshot_of: Some(of),
        state: VolumeState::Receiving,
        provenance: wire::Provenance {
            receiving: Some(wire::Receiving {
                head: head.clone(),
                chunks: 0,
                after: wire::Blob::default(),
                undoing: false,
            }),
            ..wire::Provenance::default()
        },
        ..info
    }
}

impl MemoryDisk {
    /// The received snapshot is there; this store leaves the volume as it is.
    fn publish(&mut self, volume: u32) -> Result<Outcome, Refusal> {
        let info = self.volumes.0.get_mut(&volume).ok_or(Refusal::NotFound)?;
        info.state = VolumeState::Present;
        info.provenance = wire::Provenance::default();
        Ok(Outcome::Volume(info.clone()))
    }

    /// The snapshot that is received is a release, which changes these.
    pub fn release(&mut self, half: u32, changed: BTreeSet<Fid>) {
        self.volumes.1.insert(half, Arc::new(changed));
    }

    /// The store has a replica as well: its number.
    pub fn add_replica(&mut self) -> u32 {
        let first = volume_numbers::first_of_further(1, 1).expect("a number");
        let id = volume_numbers::replica(first);
        let mut replica = info(id, wire::replica_name(b"home").expect("a name"), 0);
        replica.provenance.copy_of = Some(wire::Identity::default());
        self.volumes.0.insert(id, replica);
        id
    }

    /// The first volume shows this release.
    pub fn show_release(&mut self, release: u64) {
        self.volumes.2 = release;
    }

    /// The last position in a listing of a directory that has given so many.
    pub(super) fn last(&self, dir: Fid, last: u64) -> u64 {
        let release = if dir.volume == 1 { self.volumes.2 } else { 0 };
        last | release << wire::limits::LAST_BITS
    }

    /// The kind of what is made, and its device number, or that of the volume behind it.
    pub(super) fn kind_of(&self, make: &Make) -> Result<(Kind, u32), Refusal> {
        Ok(match make {
            Make::File => (Kind::File, 0),
            Make::Directory => (Kind::Directory, 0),
            Make::Symlink(_) => (Kind::Symlink, 0),
            Make::Node { kind, rdev } => (*kind, *rdev),
            Make::Mount(volume) => {
                let found = self.volumes.find(volume).ok_or(Refusal::NotFound)?;
                (Kind::Mount, found.id)
            }
            Make::MountElsewhere(volume) => (Kind::Mount, *volume),
        })
    }

    pub(super) fn change_volume(&mut self, now: Time, op: &VolumeOp) -> Result<Outcome, Refusal> {
        let of = match op {
            VolumeOp::Snapshot { of, .. } | VolumeOp::Clone { of, .. } => of,
            VolumeOp::Delete { of } | VolumeOp::Schedule { of, .. } => of,
            VolumeOp::Receive { name, .. } => name,
            VolumeOp::Publish { volume } => return self.publish(*volume),
            VolumeOp::Purge { volume } => {
                self.volumes.0.remove(volume);
                return Ok(Outcome::Done);
            }
            _ => return Err(Refusal::NotSupported),
        };
        let mut found = self.volumes.find(of).ok_or(Refusal::NotFound)?;
        let last = self.volumes.0.keys().max();
        let (id, next) = (found.id, 1 + last.copied().unwrap_or(1));
        let made = match op {
            VolumeOp::Snapshot { name, .. } => {
                let name = snapshot_name(found.name.as_bytes(), name.as_bytes())?;
                VolumeInfo {
                    snapshot_of: Some(id),
                    ..info(next, name, now)
                }
            }
            VolumeOp::Clone { name, .. } => VolumeInfo {
                cloned_from: Some(id),
                ..info(next, name.clone(), now)
            },
            VolumeOp::Receive { head, .. } => {
                let half = half(info(next, head.name.clone(), now), (id, head));
                self.volumes.0.insert(next, half.clone());
                return Ok(Outcome::Volume(half));
            }
            VolumeOp::Schedule { rules, .. } => {
                found.schedule.clone_from(rules);
                self.volumes.0.insert(id, found.clone());
                return Ok(Outcome::Volume(found));
            }
            _ => {
                found.state = VolumeState::Deleted(now);
                for object in self.objects.values_mut() {
                    object.names.retain(|_, (fid, _)| *fid != found.root());
                }
                self.objects.retain(|fid, _| fid.volume != id);
                self.volumes.0.insert(id, found.clone());
                return Ok(Outcome::Volume(found));
            }
        };
        self.copy_volume(id, &made);
        if let (VolumeOp::Snapshot { name, .. }, Some(all)) =
            (op, self.objects.get_mut(&Fid::snapshots(id)))
        {
            let place = (made.root(), u64::from(made.id));
            all.names.insert(name.clone(), place);
        }
        self.volumes.0.insert(next, made.clone());
        Ok(Outcome::Volume(made))
    }

    fn copy_volume(&mut self, from: u32, made: &VolumeInfo) {
        let volume = made.id;
        let there = |fid: Fid| Fid { volume, ..fid };
        let kept = |fid: &Fid| fid.volume == from && !fid.is_snapshots();
        let old = self.objects.iter().filter(|(fid, _)| kept(fid));
        let mut new = Vec::new();
        for (fid, object) in old {
            let mut object = object.clone();
            for (named, _) in object.names.values_mut() {
                *named = there(*named);
            }
            new.push((there(*fid), object));
            let label = self.labels.get(fid).cloned().unwrap_or_default();
            let label = label.rsplit(':').next().unwrap_or_default();
            let label = format!("{}:{label}", made.name);
            self.labels.insert(there(*fid), label);
        }
        self.objects.extend(new);
    }
}
