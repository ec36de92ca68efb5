//! Snapshots of the reference disk: copies of everything.

use super::{Object, Reference, Result};
use wire::{
    FIRST_VOLUME, Fid, Name, Op, Outcome, Provenance, Refusal, Time, VolumeInfo, VolumeOp,
    VolumeState, snapshot_name,
};

/// The number of the volume that programs use.
pub(super) const FIRST: u32 = 1;

fn first() -> VolumeInfo {
    VolumeInfo {
        id: FIRST,
        name: Name::new(FIRST_VOLUME).expect("a name"),
        snapshot_of: None,
        cloned_from: None,
        state: VolumeState::Present,
        made: 0,
        objects: 0,
        bytes: 0,
        schedule: Vec::new(),
        limits: wire::Limits::default(),
        provenance: Provenance::default(),
    }
}

/// Is it a change of something in a snapshot?
pub(super) fn is_frozen(op: &Op) -> bool {
    let fids = match *op {
        Op::SetAttr { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }
        | Op::Write { fid, .. }
        | Op::Allocate { fid, .. }
        | Op::Copy { to: fid, .. }
        | Op::Reap { fid }
        | Op::Make { dir: fid, .. }
        | Op::MakeNameless { dir: fid, .. }
        | Op::Unlink { dir: fid, .. }
        | Op::Rmdir { dir: fid, .. }
        | Op::Unmount { dir: fid, .. } => [fid, fid],
        Op::Link { fid, dir, .. } => [fid, dir],
        Op::Rename { from, to, .. } => [from, to],
        _ => return false,
    };
    fids.iter().any(|fid| fid.volume != FIRST)
}

impl Reference {
    pub(super) fn all_volumes(&self) -> Vec<VolumeInfo> {
        std::iter::once(first())
            .chain(self.snapshots.iter().cloned())
            .collect()
    }

    pub(super) fn volume(&mut self, now: Time, op: &VolumeOp) -> Result<Outcome> {
        let VolumeOp::Snapshot { name, .. } = op else {
            return Err(Refusal::NotSupported);
        };
        let name = snapshot_name(FIRST_VOLUME, name.as_bytes())?;
        if self.snapshots.iter().any(|info| info.name == name) {
            return Err(Refusal::Exists);
        }
        let volume = FIRST + 1 + self.snapshots.len() as u32;
        let there = |fid: &Fid| Fid { volume, ..*fid };
        let copy = |object: &Object| {
            let mut object = object.clone();
            for (fid, _) in object.entries.values_mut() {
                *fid = there(fid);
            }
            object
        };
        let own = self.objects.iter().filter(|(fid, _)| fid.volume == FIRST);
        let copied: Vec<(Fid, Object)> = own.map(|(fid, o)| (there(fid), copy(o))).collect();
        self.objects.extend(copied);
        let info = VolumeInfo {
            id: volume,
            name,
            snapshot_of: Some(FIRST),
            made: now,
            ..first()
        };
        self.snapshots.push(info.clone());
        Ok(Outcome::Volume(info))
    }
}
