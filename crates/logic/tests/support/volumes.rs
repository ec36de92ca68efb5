//! Volumes of the scenarios' store: a snapshot or a clone is a copy of everything, which is as
//! simple as it can be. Objects of another volume than the first are called VOLUME:PATH.

use super::MemoryDisk;
use std::collections::BTreeMap;
use wire::{Fid, Name, Outcome, Refusal, VolumeInfo, VolumeOp, VolumeState, snapshot_name};

/// The volumes besides the first one.
#[derive(Clone, Default)]
pub struct Volumes(BTreeMap<u32, VolumeInfo>);

impl Volumes {
    pub fn all(&self) -> Vec<VolumeInfo> {
        let first = info(1, Name::new(wire::FIRST_VOLUME).expect("a name"));
        let others = self.0.values().cloned();
        std::iter::once(first).chain(others).collect()
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

fn info(id: u32, name: Name) -> VolumeInfo {
    VolumeInfo {
        id,
        name,
        snapshot_of: None,
        cloned_from: None,
        state: VolumeState::Present,
        made: 0,
        objects: 0,
        bytes: 0,
    }
}

impl MemoryDisk {
    pub(super) fn change_volume(&mut self, op: &VolumeOp) -> Result<Outcome, Refusal> {
        let of = match op {
            VolumeOp::Snapshot { of, .. } | VolumeOp::Clone { of, .. } => of,
            VolumeOp::Delete { of } => of,
            _ => return Err(Refusal::NotSupported),
        };
        let mut found = self.volumes.find(of).ok_or(Refusal::NotFound)?;
        let (id, next) = (found.id, 2 + self.volumes.0.len() as u32);
        let made = match op {
            VolumeOp::Snapshot { name, .. } => {
                let name = snapshot_name(found.name.as_bytes(), name.as_bytes())?;
                VolumeInfo {
                    snapshot_of: Some(id),
                    ..info(next, name)
                }
            }
            VolumeOp::Clone { name, .. } => VolumeInfo {
                cloned_from: Some(id),
                ..info(next, name.clone())
            },
            _ => {
                found.state = VolumeState::Deleted(0);
                self.objects.retain(|fid, _| fid.volume != id);
                self.volumes.0.insert(id, found.clone());
                return Ok(Outcome::Volume(found));
            }
        };
        self.copy_volume(id, &made);
        self.volumes.0.insert(next, made.clone());
        Ok(Outcome::Volume(made))
    }

    fn copy_volume(&mut self, from: u32, made: &VolumeInfo) {
        let volume = made.id;
        let there = |fid: Fid| Fid { volume, ..fid };
        let old = self.objects.iter().filter(|(fid, _)| fid.volume == from);
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
