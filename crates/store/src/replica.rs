//! Replicas: read-only copies of a volume, which releases alone change.
//!
//! Guarantees: what a fid of a file names in a replica never changes. A file that a release changes
//! is another object for those who look it up from then on: its fid has the number of the release
//! that changed it last, in the place of the volume's. A program that has the older one open goes
//! on with that, as long as a release is kept that has it; then it is stale. Directories keep their
//! fids, so that programs stay where they are.
//!
//! The release that changed an object last is noted with the object, where a directory has the
//! position of its next name, plus 1. A stream from another replica brings that along, so a fid
//! means the same at all replicas, whichever releases each of them has received.

use crate::error::StoreError;
use crate::index::Index;
use crate::key;
use crate::options::Mutant;
use crate::state::Core;
use crate::store::Store;
use crate::txn::trouble;
use crate::value::{self, Object, Placed};
use crate::volumes::{Lineage, State, Volume, Volumes};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::{ACCESS_LIST, Fid, Identity, Kind, Refusal, is_replica_name, volume_numbers};

/// The birth of a release: between two of them the replica itself has one.
pub(crate) fn birth(release: u32) -> Option<u32> {
    release.checked_mul(2)?.checked_sub(1)
}

/// The note of an object that a stream brings in a release: the number of the release that changed
/// it last, plus 1. The source of the volume has told 1 of each.
pub(crate) fn note(told: u64, release: u32) -> u64 {
    let this = u64::from(release) + 1;
    if (2..this).contains(&told) {
        told
    } else {
        this
    }
}

/// The replica of a store.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    volume: u32,
    /// The numbers of the oldest and the newest release that are kept.
    oldest: u32,
    newest: u32,
    /// The sight of what is left of releases that are not kept: that of the oldest one.
    dropped: Lineage,
}

impl Replica {
    /// Of a release that is not kept its number.
    fn dropped(&self, id: u32) -> Option<u32> {
        (self.volume + 1..self.oldest)
            .contains(&id)
            .then(|| id - self.volume)
    }
}

fn is_replica(id: u32, of: &Volume) -> bool {
    let named = volume_numbers::is_replica(id) && is_replica_name(of.name.as_bytes());
    named && of.snapshot_of.is_none() && of.copied.of.is_some()
}

impl Volumes {
    /// The replica that is there, as the records of the volumes say it.
    pub(crate) fn find_replica(&self) -> Option<Replica> {
        let mut all = self.iter();
        let (volume, _) = all.find(|(id, of)| is_replica(*id, of) && of.is_present())?;
        let kept = |(_, of): &(u32, &Volume)| of.snapshot_of == Some(volume) && of.is_present();
        let mut releases = self.iter().filter(kept);
        let (oldest, first) = releases.next()?;
        let newest = releases.last().map_or(oldest, |(id, _)| id);
        Some(Replica {
            volume,
            oldest,
            newest,
            dropped: first.origin.into_iter().collect(),
        })
    }

    /// Is it a store for a replica, be it half received?
    pub(crate) fn is_for_replica(&self) -> bool {
        let mut all = self.iter();
        all.any(|(id, of)| {
            let begun = of.state == State::Receiving && is_replica_name(of.name.as_bytes());
            is_replica(id, of) || (begun && volume_numbers::is_replica(id))
        })
    }

    /// The release that this snapshot will be, if it is received for a replica.
    pub(crate) fn release_received(&self, snapshot: &Volume) -> Option<u32> {
        let of = snapshot
            .snapshot_of
            .filter(|of| volume_numbers::is_replica(*of))?;
        let named = is_replica_name(self.get(of)?.name.as_bytes());
        let (_, birth) = snapshot.origin.filter(|_| named)?;
        Some(birth.div_ceil(2))
    }

    /// Is this volume one?
    pub(crate) fn is_replica(&self, id: u32) -> bool {
        self.replica
            .as_ref()
            .is_some_and(|replica| replica.volume == id)
    }

    /// From where an object of a release that is not kept is seen.
    pub(crate) fn lineage_of_dropped(&self, id: u32) -> Option<&Lineage> {
        let replica = self.replica.as_ref()?;
        replica.dropped(id).map(|_| &replica.dropped)
    }

    /// Is the object that is seen so the one which a fid means?
    pub(crate) fn is_meant(&self, fid: Fid, object: &Object) -> bool {
        let dropped = self.replica.as_ref().and_then(|of| of.dropped(fid.volume));
        dropped.is_none_or(|release| {
            object.attr.kind != Kind::Directory && object.next_position == u64::from(release) + 1
        })
    }

    /// The volume in which the directories of an object are: of a release it is the replica.
    pub(crate) fn live(&self, id: u32) -> u32 {
        let replica = self.replica.as_ref();
        let of = replica.filter(|of| (of.volume..=of.newest).contains(&id));
        of.map_or(id, |of| of.volume)
    }

    /// The release that a replica shows; 0: the volume is none.
    pub(crate) fn shown_release(&self, id: u32) -> u32 {
        let replica = self.replica.as_ref().filter(|of| of.volume == id);
        replica.map_or(0, |of| of.newest - of.volume)
    }
}

/// The fid of an object that a name in a replica names.
fn released(replica: u32, fid: Fid, object: &Object) -> Fid {
    let release = u32::try_from(object.next_position.saturating_sub(1)).ok();
    let number = release.and_then(|release| volume_numbers::release(replica, release));
    Fid {
        volume: number.unwrap_or(fid.volume),
        ..fid
    }
}

impl Index {
    /// The object that an entry of a directory names, as it is seen there.
    pub(crate) fn named_in(&self, dir: Fid, child: Fid, kind: Kind) -> Result<Fid, StoreError> {
        let child = Fid {
            volume: dir.volume,
            ..child
        };
        let live = self.volumes.live(dir.volume);
        let keeps = matches!(kind, Kind::Directory | Kind::Mount)
            || self.mutant == Some(Mutant::ReleasesInPlace);
        if keeps || !self.volumes.is_replica(live) {
            return Ok(child);
        }
        let object = self.object(child)?;
        Ok(object.map_or(child, |object| released(live, child, &object)))
    }
}

impl Store {
    /// The objects that clients must not keep when a release that is being received is published:
    /// directories that change, or have names of files that change; and files whose rights change
    /// with the access list of their directory. `None`: it is no release, or the volume was not
    /// there before.
    pub fn changed_by_release(&self, half: u32) -> Option<Arc<BTreeSet<Fid>>> {
        let volumes = &self.core.index.volumes;
        let release = volumes.get(half)?;
        let receiving = &release.copied.half.as_ref()?.receiving;
        let replica = release.snapshot_of.filter(|of| volumes.is_replica(*of))?;
        let known = (half, receiving.head.snapshot, receiving.chunks);
        let mut cached = self.released.lock();
        if let Some((_, all)) = cached.as_ref().filter(|(of, _)| *of == known) {
            return Some(Arc::clone(all));
        }
        let (_, birth) = release.origin?;
        let mut changed = Changed {
            core: &self.core,
            replica,
            last: 0,
            all: BTreeSet::new(),
        };
        changed
            .of_birth(birth)
            .inspect_err(|refusal| tracing::error!("all of {replica} is taken back: {refusal:?}"))
            .ok()?;
        let all = Arc::new(changed.all);
        *cached = Some((known, Arc::clone(&all)));
        Some(all)
    }
}

/// Things that are looked at in one go.
const BORN_AT_ONCE: usize = 1024;

/// The release that was asked about last, with how many of its parts were there, and what it
/// changes: a server asks again and again while clients give that up.
pub(crate) type Asked = Mutex<Option<((u32, Identity, u64), Arc<BTreeSet<Fid>>)>>;

/// Collects what a release changes.
struct Changed<'a> {
    core: &'a Core,
    replica: u32,
    /// The object that was looked at last.
    last: u64,
    all: BTreeSet<Fid>,
}

impl Changed<'_> {
    fn of_birth(&mut self, birth: u32) -> Result<(), Refusal> {
        let mut from = Vec::new();
        loop {
            let index = &self.core.index;
            let born = index.born(self.replica, (birth, birth), &from, BORN_AT_ONCE);
            let born = born.map_err(trouble)?;
            let Some(last) = born.last() else {
                return Ok(());
            };
            from = key::behind(last);
            for thing in &born {
                self.thing(thing)?;
            }
        }
    }

    fn thing(&mut self, thing: &[u8]) -> Result<(), Refusal> {
        let key = key::plain(self.replica, thing);
        let parts = key::parts(&key).ok_or(Refusal::Damaged)?;
        let is_list = parts.kind == key::XATTR && parts.detail == ACCESS_LIST;
        if parts.vnode == std::mem::replace(&mut self.last, parts.vnode) && !is_list {
            return Ok(());
        }
        let fid = Fid {
            vnode: parts.vnode,
            ..Fid::root(self.replica)
        };
        // Nobody holds what was not there before.
        let Some(before) = self.core.index.object(fid).map_err(trouble)? else {
            return Ok(());
        };
        if before.attr.kind == Kind::Directory {
            self.all.insert(fid);
        } else if self.core.index.mutant != Some(Mutant::KeepsNamesOfChanged) {
            self.all.extend(self.core.dirs(fid)?);
        }
        match is_list {
            true => self.files_in(fid),
            false => Ok(()),
        }
    }

    fn files_in(&mut self, dir: Fid) -> Result<(), Refusal> {
        let index = &self.core.index;
        let (mut from, to) = key::range(dir, key::POSITION);
        loop {
            let part = index.scan(&from, &to, BORN_AT_ONCE).map_err(trouble)?;
            let Some((last, _)) = part.last() else {
                return Ok(());
            };
            from = key::after(last);
            for (_, placed) in &part {
                let placed: Placed = value::decode(placed).ok_or(Refusal::Damaged)?;
                let named = index.named_in(dir, placed.fid, placed.kind);
                self.all.insert(named.map_err(trouble)?);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_release_has_a_birth_that_no_replica_has() {
        let births: Vec<u32> = (1..4).map(|release| birth(release).unwrap()).collect();
        assert_eq!(births, [1, 3, 5]);
        assert_eq!((birth(0), birth(u32::MAX)), (None, None));
    }

    #[test]
    fn what_a_source_sends_is_of_this_release_and_what_a_replica_sends_of_its_own() {
        let told = [1, 2, 7, 8, 9, u64::MAX];
        assert_eq!(told.map(|told| note(told, 7)), [8, 2, 7, 8, 8, 8]);
    }
}
