//! The volumes of a partition, and which versions of things each of them sees.
//!
//! Each change of a volume carries the volume's *birth*. A snapshot or a clone of it ends a birth:
//! what the volume has then is never changed under its key any more, later changes go beside it
//! under the next birth. So making either costs the same however large the volume is, and copies
//! nothing.
//!
//! A volume sees its *lineage*: its own keys up to its birth, then those of the volume that
//! it was cloned from, up to the birth at which it was, and so on. The first that knows a thing
//! decides, also when it knows that the thing is gone. A snapshot has no keys of its own.
//!
//! The first volume of a partition that was never cloned has only keys of birth 1: nothing is
//! different then from what it would be without volumes.

use crate::provenance::Copied;
use crate::replica::Replica;
use crate::value;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::{
    FIRST_VOLUME, Limits, Name, Refusal, Room, ScheduleRule, Time, VolumeInfo, VolumeState,
    snapshot_name, split_volume_name, volume_numbers,
};

/// The birth of all that a volume without an origin begins with.
pub(crate) const FIRST_BIRTH: u32 = 1;
/// The first birth of a clone: its keys are told from those of volumes without versions.
const CLONE_BIRTH: u32 = FIRST_BIRTH + 1;
/// Most volumes that a lineage goes through: each read may look into all of them.
const LINEAGE_MAX: usize = 64;

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Present,
    /// It was deleted then; nobody sees it, and all of it is kept.
    Deleted(Time),
    /// Its keys are kept only as far as clones see them.
    Purged,
    /// It is being received: nobody sees it.
    Receiving,
}

/// The record of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Volume {
    /// Of a snapshot: the part behind the name of its volume.
    pub(crate) name: Name,
    /// The volume that this is a snapshot of.
    pub(crate) snapshot_of: Option<u32>,
    /// The volume, and the birth in it, that it sees below its own keys.
    pub(crate) origin: Option<(u32, u32)>,
    /// The birth of what is changed now.
    pub(crate) birth: u32,
    pub(crate) state: State,
    pub(crate) made: Time,
    pub(crate) objects: u64,
    /// Bytes of files and symbolic links.
    pub(crate) bytes: u64,
    /// Some of its keys may be seen by nobody.
    pub(crate) sweep: bool,
    /// By which rules the server makes snapshots of it.
    pub(crate) schedule: Vec<ScheduleRule>,
    /// How much it may have.
    pub(crate) limits: Limits,
    /// Its origin, if it is a copy, and the births of its changes.
    pub(crate) copied: Copied,
}

impl Volume {
    /// A volume that has nothing yet.
    pub(crate) fn new(name: Name, made: Time) -> Self {
        Self {
            name,
            snapshot_of: None,
            origin: None,
            birth: FIRST_BIRTH,
            state: State::Present,
            made,
            objects: 0,
            bytes: 0,
            sweep: false,
            schedule: Vec::new(),
            limits: Limits::default(),
            copied: Copied::default(),
        }
    }

    /// One that sees what another volume has at a birth.
    pub(crate) fn branch(&self, (id, birth): (u32, u32), name: Name, made: Time) -> Self {
        Self {
            name,
            snapshot_of: None,
            origin: Some((id, birth)),
            birth: CLONE_BIRTH,
            state: State::Present,
            made,
            objects: self.objects,
            bytes: self.bytes,
            sweep: false,
            schedule: Vec::new(),
            limits: Limits::default(),
            copied: Copied::default(),
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.state == State::Present
    }

    /// As it lies on the disk.
    pub(crate) fn encode(&self) -> Vec<u8> {
        value::encode(self)
    }

    /// The same back; `None`: not a volume. Older programs wrote nothing behind the schedule, and
    /// no schedule where there was none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        const NO_RULES: u8 = 0;
        if let Some(volume) = value::decode(bytes) {
            return Some(volume);
        }
        let nothing = value::encode(&(Limits::default(), Copied::default()));
        let behind = [&nothing[..], &[&[NO_RULES], &nothing[..]].concat()];
        let mut older = behind.into_iter().filter_map(|behind| {
            let whole: Option<Self> = value::decode(&[bytes, behind].concat());
            whole
        });
        older.next().map(Self::of_older_program)
    }

    /// The changes of an older program are not listed by births.
    fn of_older_program(mut self) -> Self {
        self.copied.listed_from = self.birth + 1;
        self
    }

    /// All that it has.
    pub(crate) fn used(&self) -> Room {
        Room {
            bytes: self.bytes,
            objects: self.objects,
        }
    }

    /// May it get so much besides?
    pub(crate) fn fits(&self, more: Room) -> bool {
        self.limits.left(self.used()).covers(more)
    }
}

/// The first volume, as it is when nothing is kept of it.
pub(crate) fn first(made: Time, objects: u64, bytes: u64) -> Volume {
    let name = Name::new(FIRST_VOLUME).expect("the first volume's name is one");
    Volume {
        objects,
        bytes,
        ..Volume::new(name, made)
    }
}

/// From where a volume sees things: volumes, each with the last birth that counts. Never empty.
pub(crate) type Lineage = Vec<(u32, u32)>;

/// The volumes of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Volumes {
    all: BTreeMap<u32, Volume>,
    /// Of those that are there.
    lineages: BTreeMap<u32, Lineage>,
    /// A number that no volume has had.
    next: u32,
    /// The number that tells the partition from others.
    pub(crate) partition: u64,
    /// Those of which that changed which is kept on the disk.
    touched: BTreeSet<u32>,
    /// The snapshot that is being received, while a part of it is applied.
    pub(crate) entered: Option<(u32, Lineage)>,
    /// The replica, in a store that has one.
    pub(crate) replica: Option<Replica>,
}

impl Volumes {
    pub(crate) fn get(&self, id: u32) -> Option<&Volume> {
        self.all.get(&id)
    }

    /// All, with those that are purged.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Volume)> {
        self.all.iter().map(|(id, volume)| (*id, volume))
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of the next volume.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// The number of the volume that is made so many others after the next one: a refusal when the
    /// store has given all of its numbers.
    pub(crate) fn number(&self, others: u32) -> Result<u32, Refusal> {
        let number = self.next.checked_add(others).ok_or(Refusal::NoSpace)?;
        let store = volume_numbers::store;
        match store(number) == store(self.next.saturating_sub(1)) {
            true => Ok(number),
            false => Err(Refusal::NoSpace),
        }
    }

    /// Volumes that are there and may change, ascending.
    pub(crate) fn writable(&self) -> impl Iterator<Item = u32> {
        let writable = self
            .iter()
            .filter(|(_, volume)| volume.is_present() && volume.snapshot_of.is_none());
        writable.map(|(id, _)| id)
    }

    /// Volumes that have keys of their own.
    pub(crate) fn with_keys(&self) -> impl Iterator<Item = u32> {
        let own = self.iter().filter(|(_, of)| of.snapshot_of.is_none());
        own.map(|(id, _)| id)
    }

    /// Has no volume but the first one ever been made? Then nothing is kept of it by itself.
    pub(crate) fn is_plain(&self) -> bool {
        let first = self.all.first_key_value();
        first.is_none_or(|(id, of)| of.birth == FIRST_BIRTH && self.next == id + 1)
    }

    /// From where a volume that is there sees things.
    pub(crate) fn lineage(&self, id: u32) -> Option<&Lineage> {
        match &self.entered {
            Some((entered, lineage)) if *entered == id => Some(lineage),
            _ => {
                let there = self.lineages.get(&id);
                there.or_else(|| self.lineage_of_dropped(id))
            }
        }
    }

    /// May nothing of it be changed?
    pub(crate) fn is_frozen(&self, id: u32) -> bool {
        let frozen = self.get(id).is_none_or(|of| of.snapshot_of.is_some());
        !self.is_entered(id) && (frozen || self.is_replica(id))
    }

    pub(crate) fn trace(&self, id: u32) -> Lineage {
        let mut lineage = Lineage::new();
        let mut at = self.get(id);
        if let Some(own) = at.filter(|of| of.snapshot_of.is_none()) {
            lineage.push((id, own.birth));
        }
        while let Some(origin) = at.and_then(|of| of.origin) {
            lineage.push(origin);
            at = self.get(origin.0);
        }
        lineage
    }

    fn trace_all(&mut self) {
        let seen = self.iter().filter(|(_, of)| of.is_present());
        self.lineages = seen.map(|(id, _)| (id, self.trace(id))).collect();
        self.replica = self.find_replica();
    }

    /// Puts a volume, or takes it out.
    pub(crate) fn put(&mut self, id: u32, volume: Option<Volume>) {
        match volume {
            Some(volume) => self.all.insert(id, volume),
            None => self.all.remove(&id),
        };
        self.next = self.next.max(id.saturating_add(1));
        self.touched.insert(id);
        self.trace_all();
    }

    /// Puts what changes nothing about who sees what.
    pub(crate) fn amend(&mut self, id: u32, volume: Volume) {
        self.all.insert(id, volume);
        self.touched.insert(id);
    }

    /// Takes a volume as the disk has it.
    pub(crate) fn load(&mut self, id: u32, volume: Volume) {
        self.all.insert(id, volume);
        self.next = self.next.max(id.saturating_add(1));
        self.trace_all();
    }

    pub(crate) fn load_next(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// Counts objects and bytes of a volume.
    pub(crate) fn count(&mut self, id: u32, objects: i64, bytes: i64) {
        if objects == 0 && bytes == 0 {
            return;
        }
        if let Some(volume) = self.all.get_mut(&id) {
            volume.objects = volume.objects.saturating_add_signed(objects);
            volume.bytes = volume.bytes.saturating_add_signed(bytes);
            self.touched.insert(id);
        }
    }

    /// Those of which something is to be kept that changed since the last time.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<u32> {
        match self.is_plain() {
            true => BTreeSet::new(),
            false => std::mem::take(&mut self.touched),
        }
    }

    /// The births at which somebody sees keys of a volume, ascending. Deleted volumes count: they
    /// may come back.
    pub(crate) fn readers(&self, id: u32) -> BTreeSet<u32> {
        let mut readers = BTreeSet::new();
        for (reader, of) in self.iter() {
            if of.state != State::Purged {
                let lineage = self.trace(reader);
                readers.extend(lineage.iter().filter(|(at, _)| *at == id).map(|(_, b)| *b));
            }
        }
        readers
    }

    /// The volumes whose keys somebody saw through this one: itself first.
    pub(crate) fn seen_through(&self, id: u32) -> Vec<u32> {
        let mut all: Vec<u32> = self.trace(id).iter().map(|(at, _)| *at).collect();
        all.dedup();
        all
    }

    /// Is a lineage through this one too long to be cloned once more?
    pub(crate) fn is_too_deep(&self, id: u32) -> bool {
        self.trace(id).len() >= LINEAGE_MAX
    }

    /// The name of a volume, for people.
    pub(crate) fn full_name(&self, volume: &Volume) -> Name {
        let of = volume.snapshot_of.and_then(|of| self.get(of));
        let full = of.and_then(|of| snapshot_name(of.name.as_bytes(), volume.name.as_bytes()).ok());
        full.unwrap_or_else(|| volume.name.clone())
    }

    /// The volume that is there, or the snapshot of one, with this name.
    pub(crate) fn find(&self, name: &Name) -> Option<u32> {
        let (volume, snapshot) = split_volume_name(name);
        let named = |bytes: &[u8], of: Option<u32>| {
            let mut there = self.iter().filter(|(_, volume)| volume.is_present());
            let found = there
                .find(|(_, volume)| volume.snapshot_of == of && volume.name.as_bytes() == bytes);
            found.map(|(id, _)| id)
        };
        let id = named(volume, None)?;
        match snapshot {
            None => Some(id),
            Some(snapshot) => named(snapshot, Some(id)),
        }
    }

    /// The deleted volume or snapshot of this name that was deleted last.
    pub(crate) fn find_deleted(&self, name: &Name) -> Option<(u32, Time)> {
        let (_, snapshot) = split_volume_name(name);
        let of_kind = |of: &Volume| of.snapshot_of.is_some() == snapshot.is_some();
        let deleted = self.iter().filter_map(|(id, of)| match of.state {
            State::Deleted(at) if of_kind(of) && self.full_name(of) == *name => Some((id, at)),
            _ => None,
        });
        deleted.max_by_key(|(id, at)| (*at, *id))
    }

    /// The snapshots of a volume that are not purged.
    pub(crate) fn snapshots_of(&self, id: u32) -> Vec<u32> {
        let snapshots = self.iter().filter(|(_, of)| of.snapshot_of == Some(id));
        snapshots.map(|(id, _)| id).collect()
    }

    /// The description of a volume for others.
    pub(crate) fn info(&self, id: u32) -> Option<VolumeInfo> {
        let volume = self.get(id)?;
        let state = match volume.state {
            State::Present => VolumeState::Present,
            State::Deleted(at) => VolumeState::Deleted(at),
            State::Receiving => VolumeState::Receiving,
            State::Purged => return None,
        };
        let cloned = volume.origin.filter(|_| volume.snapshot_of.is_none());
        Some(VolumeInfo {
            id,
            name: self.full_name(volume),
            snapshot_of: volume.snapshot_of,
            cloned_from: cloned.map(|(origin, _)| origin),
            state,
            made: volume.made,
            objects: volume.objects,
            bytes: volume.bytes,
            schedule: volume.schedule.clone(),
            limits: volume.limits,
            provenance: self.provenance(id, volume),
        })
    }

    /// A name for a new volume must be free.
    pub(crate) fn is_free(&self, name: &Name) -> Result<(), Refusal> {
        match self.find(name) {
            Some(_) => Err(Refusal::Exists),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Volume;
    use crate::provenance::Copied;
    use crate::{MemoryDisk, Options, Store, fsck_memory, key, value};
    use wire::{Caller, Fid, Make, Name, Op, Outcome, VolumeOp};

    fn run(store: &mut Store, op: &Op) -> Outcome {
        store.apply(crate::Apply {
            op,
            caller: &Caller::default(),
            now: 7,
            origin: None,
            data: &[],
            delegated: None,
        })
    }

    /// A partition as the program before this one left it: nothing is kept of its volume, and its
    /// segments say format 4.
    fn of_format_4() -> MemoryDisk {
        let disk = MemoryDisk::new();
        let mut store = Store::create_in_memory(&disk, &Options::default()).unwrap();
        let op = Op::Make {
            dir: Fid::root(1),
            name: Name::new(b"old").unwrap(),
            make: Make::File,
            mode: 0o644,
            open: None,
        };
        assert!(matches!(run(&mut store, &op), Outcome::Entry(_)));
        store.checkpoint().unwrap();
        for id in [0, 1] {
            store.core.index.raw_put(key::volume_of(id), None);
        }
        let batch = store.core.index.freeze().unwrap();
        store.core.index.engine().commit(&batch).unwrap();
        store.core.index.thaw();
        drop(store);
        for (file, _) in disk.files() {
            let mut header = disk.contents(&file).unwrap();
            header[8..12].copy_from_slice(&4_u32.to_le_bytes());
            let check = crc32c::crc32c(&header[..32]);
            header[32..36].copy_from_slice(&check.to_le_bytes());
            disk.damage(&file, 0, &header[..40]);
        }
        disk
    }

    #[test]
    fn volumes_of_older_programs_are_read_and_their_births_are_not_listed() {
        let name = Name::new(b"old").unwrap();
        let mut volume = Volume::new(name, 7);
        volume.birth = 9;
        let nothing = value::encode(&(wire::Limits::default(), Copied::default())).len();
        let rule = wire::ScheduleRule {
            every_s: 60,
            keep: 3,
        };
        for schedule in [Vec::new(), vec![rule]] {
            volume.schedule = schedule;
            let whole = volume.encode();
            assert_eq!(Volume::decode(&whole), Some(volume.clone()));
            let rules = usize::from(volume.schedule.is_empty());
            let older = &whole[..whole.len() - nothing - rules];
            let read = Volume::decode(older).unwrap();
            assert_eq!((read.birth, &read.schedule), (9, &volume.schedule));
            assert_eq!(read.copied.listed_from, 10);
        }
        assert_eq!(Volume::decode(b"none"), None);
    }

    #[test]
    fn a_partition_of_format_4_goes_on_as_one_volume() {
        let disk = of_format_4();
        assert!(fsck_memory(&disk).unwrap().is_clean());
        let mut store = Store::open_in_memory(&disk, &Options::default()).unwrap();
        let segments = disk.files();
        assert_eq!(segments.len(), 2, "it goes on in a segment of its own");
        let last = disk.contents(&segments[1].0).unwrap();
        assert_eq!(last[8..12], crate::record::FORMAT.to_le_bytes());
        let snapshot = VolumeOp::Snapshot {
            of: Name::new(b"root").unwrap(),
            name: Name::new(b"s").unwrap(),
        };
        let Outcome::Volume(info) = run(&mut store, &Op::Volume(snapshot)) else {
            panic!("no snapshot");
        };
        assert_eq!((info.objects, info.snapshot_of), (2, Some(1)));
        store.close().unwrap();
        let store = Store::open_in_memory(&disk, &Options::default()).unwrap();
        let old = Name::new(b"old").unwrap();
        for volume in [1, info.id] {
            let found = store.lookup(Fid::root(volume), &old).unwrap();
            assert_eq!(found.map(|fid| fid.volume), Some(volume));
        }
        drop(store);
        assert!(fsck_memory(&disk).unwrap().is_clean());
    }
}
