//! Listings of a partition: its volumes, its objects without a name; and the end of deleted
//! volumes.

use crate::key;
use crate::store::{Apply, Store};
use wire::{Caller, Fid, Name, Op, Refusal, Time, VolumeInfo, VolumeOp, VolumeState};

impl Store {
    /// The directories in which an object has names, each once; of one that has lost its last name,
    /// the one that had it. Refused if the disk cannot say.
    pub fn dirs(&self, fid: Fid) -> Result<Vec<Fid>, Refusal> {
        match self.core.dirs(fid) {
            Err(Refusal::Stale) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Purges the volumes that were deleted so long ago. It is an operation like others: it must be
    /// written out. Was there any?
    pub fn purge_deleted(&mut self, now: Time, grace_ns: u64) -> bool {
        let due = |info: &VolumeInfo| match info.state {
            VolumeState::Present | VolumeState::Receiving => false,
            VolumeState::Deleted(at) => at.saturating_add(grace_ns) <= now,
        };
        let all = self.volumes();
        let gone: Vec<u32> = all
            .iter()
            .filter(|info| due(info))
            .map(|info| info.id)
            .collect();
        for volume in &gone {
            // A snapshot may have gone with its volume.
            self.apply(Apply {
                op: &Op::Volume(VolumeOp::Purge { volume: *volume }),
                caller: &Caller::default(),
                now,
                origin: None,
                data: &[],
                delegated: None,
            });
        }
        !gone.is_empty()
    }

    /// The volumes, with snapshots and with those whose deletion can be undone, by their numbers.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let volumes = &self.core.index.volumes;
        let all = volumes.iter().filter_map(|(id, _)| volumes.info(id));
        all.collect()
    }

    /// The name of a volume; of a snapshot or a replica, that of its volume.
    pub fn volume_name(&self, id: u32) -> Option<Name> {
        let volumes = &self.core.index.volumes;
        let volume = volumes.get(id)?;
        let of = volume.snapshot_of.and_then(|of| volumes.get(of));
        Name::new(wire::origin_name(&of.unwrap_or(volume).name)).ok()
    }

    /// Objects that have no name any more and have not been reaped.
    pub fn orphans(&self) -> Vec<Fid> {
        let volumes = self.core.index.volumes.writable();
        volumes.flat_map(|volume| self.orphans_of(volume)).collect()
    }

    /// The same of one volume.
    pub fn orphans_of(&self, volume: u32) -> Vec<Fid> {
        let top = Fid {
            vnode: 0,
            ..Fid::root(volume)
        };
        let (mut from, to) = key::range(top, key::ORPHAN);
        let mut orphans = Vec::new();
        loop {
            let part = match self.core.index.scan(&from, &to, 1024) {
                Ok(part) => part,
                Err(error) => {
                    tracing::error!("cannot list all objects without a name: {error}");
                    return orphans;
                }
            };
            let Some((last, _)) = part.last() else {
                return orphans;
            };
            from = key::after(last);
            orphans.extend(part.iter().filter_map(|(key, uniq)| {
                Some(Fid {
                    vnode: key::parts(key)?.number()?,
                    uniq: u32::from_be_bytes(uniq.as_slice().try_into().ok()?),
                    ..top
                })
            }));
        }
    }
}
