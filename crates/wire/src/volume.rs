//! Volumes: subtrees with their own root, clones and snapshots, and the operations on them.
//!
//! A volume is named by people; a snapshot of it by `VOLUME@SNAPSHOT`. Fids hold its number, which
//! is never used again.

use crate::ids::{Fid, Time, volume_numbers};
use crate::name::Name;
use crate::refusal::Refusal;
use crate::stream::{Provenance, StreamHead};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Between the name of a volume and that of a snapshot of it.
pub const SNAPSHOT_MARK: u8 = b'@';

/// The name of the volume that a partition begins with.
pub const FIRST_VOLUME: &[u8] = b"root";

/// The name in a volume's root that leads to its snapshots, unless somebody has made it.
pub const SNAPSHOTS_NAME: &[u8] = b".snapshots";

/// A change of the volumes of a partition. All are a superuser's.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeOp {
    /// Makes an empty volume; its root has the caller as its owner, and these 12 bits of mode.
    Create { name: Name, mode: u16 },
    /// Freezes what a volume is now, under a name of its own.
    Snapshot { of: Name, name: Name },
    /// Makes a volume that has everything that another one, or a snapshot, has now. Both share it
    /// until one of them changes it.
    Clone { of: Name, name: Name },
    /// Gives a volume or a snapshot another name; a snapshot stays one of the same volume.
    Rename { of: Name, name: Name },
    /// Takes a volume, with its snapshots, or one snapshot away. It can be undone until it is
    /// purged. Clones stay.
    Delete { of: Name },
    /// Undoes the latest deletion of this name.
    Undelete { of: Name },
    /// Ends the time in which the deletion of a volume can be undone.
    Purge { volume: u32 },
    /// The server is to make snapshots of a volume by itself, by these rules and no others.
    Schedule { of: Name, rules: Vec<ScheduleRule> },
    /// How much a volume may have, from now on.
    Limit { of: Name, limits: Limits },
    /// Begins to receive a snapshot of this volume, which is made with it if only that is sent, or
    /// goes on. Nobody sees any of it. `rollback`: what was changed in the volume since the
    /// snapshot that the sender counts on will be gone.
    Receive {
        name: Name,
        head: Box<StreamHead>,
        rollback: bool,
    },
    /// Undoes a part, of so many things, of what was changed in the volume of a snapshot that is
    /// received with `rollback`.
    Undo { volume: u32, things: u32 },
    /// A snapshot has come whole: it is there from now on, and its volume is the same.
    Publish { volume: u32 },
    /// A snapshot that is being received is not wanted any more.
    Discard { volume: u32 },
    /// Begins to receive this release of a volume into its replica, or goes on, as with `Receive`.
    /// The replica is made with the first one, in a store that has nothing else; each further one
    /// has what changed since the one before it.
    ReceiveRelease {
        name: Name,
        head: Box<StreamHead>,
        release: u32,
    },
    /// The releases below this one are not kept any more: what nobody has open of them goes.
    DropReleases { volume: u32, below: u32 },
}

/// How much a volume may have: what its live tree refers to counts, not what snapshots keep
/// besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of files and symbolic links; 0: as many as the disk has room for.
    pub bytes: u64,
    /// Objects; 0: likewise.
    pub objects: u64,
}

impl Limits {
    /// Is there none?
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Room that is left to a volume that has so much.
    pub fn left(&self, used: Room) -> Room {
        let left = |limit: u64, used: u64| match limit {
            0 => u64::MAX,
            limit => limit.saturating_sub(used),
        };
        Room {
            bytes: left(self.bytes, used.bytes),
            objects: left(self.objects, used.objects),
        }
    }
}

/// Room for bytes and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes of files and symbolic links.
    pub bytes: u64,
    /// Objects.
    pub objects: u64,
}

impl Room {
    /// None at all.
    pub const NONE: Self = Self {
        bytes: 0,
        objects: 0,
    };
    /// More than there ever is.
    pub const ALL: Self = Self {
        bytes: u64::MAX,
        objects: u64::MAX,
    };

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            objects: self.objects.saturating_add(other.objects),
        }
    }

    /// The rest of it without the other.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            objects: self.objects.saturating_sub(other.objects),
        }
    }

    /// The smaller of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.min(other.bytes),
            objects: self.objects.min(other.objects),
        }
    }

    /// Bytes of the server's log that all of it takes at most: bytes come in blocks, perhaps each
    /// with a record of its own, and each object has a name.
    pub fn log_bytes(self) -> u64 {
        const OBJECT_LOG_BYTES: u64 = 1024;
        let objects = self.objects.saturating_mul(OBJECT_LOG_BYTES);
        let bytes = self.bytes.saturating_add(self.bytes / 8);
        bytes.saturating_add(objects)
    }

    /// Is there as much of each as in the other?
    pub fn covers(self, other: Self) -> bool {
        self.bytes >= other.bytes && self.objects >= other.objects
    }
}

/// Of which a snapshot is made in each period, and how many are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRule {
    /// Length of the period, seconds.
    pub every_s: u32,
    /// How many of its snapshots are kept.
    pub keep: u16,
}

/// The end of the names of replicas, as Andrew calls them: no other volume is given such a name.
pub const REPLICA_SUFFIX: &[u8] = b".readonly";

/// The name of the replica of a volume.
pub fn replica_name(volume: &[u8]) -> Result<Name, Refusal> {
    let name = Name::new(&[volume, REPLICA_SUFFIX].concat())?;
    match is_volume_name(name.as_bytes()) {
        true => Ok(name),
        false => Err(Refusal::NameTooLong),
    }
}

/// Is it the name of a replica, or of a release of one?
pub fn is_replica_name(name: &[u8]) -> bool {
    let volume = name.split(|byte| *byte == SNAPSHOT_MARK).next();
    volume.is_some_and(|volume| volume.ends_with(REPLICA_SUFFIX))
}

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeState {
    /// It is there.
    Present,
    /// It was deleted then, and can be brought back.
    Deleted(Time),
    /// It is being received, and nobody sees it.
    Receiving,
}

/// The description of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its number.
    pub id: u32,
    /// Its name; of a snapshot, that of its volume before it.
    pub name: Name,
    /// The volume that it is a snapshot of. Snapshots never change.
    pub snapshot_of: Option<u32>,
    /// The volume that it was cloned from.
    pub cloned_from: Option<u32>,
    /// Is it there?
    pub state: VolumeState,
    /// When it was made, by the clock of the partition.
    pub made: Time,
    /// Objects in it.
    pub objects: u64,
    /// Bytes of its files and symbolic links.
    pub bytes: u64,
    /// By which rules the server makes snapshots of it.
    pub schedule: Vec<ScheduleRule>,
    /// How much it may have.
    pub limits: Limits,
    /// Its identity, and the volume or snapshot that it is a copy of.
    pub provenance: Provenance,
}

/// Room in a volume, and on the disk that it shares with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomOfDisk {
    /// In the volume.
    pub volume: Room,
    /// Bytes of the server's log.
    pub log_bytes: u64,
}

impl RoomOfDisk {
    /// More than there ever is.
    pub const ALL: Self = Self {
        volume: Room::ALL,
        log_bytes: u64::MAX,
    };
}

impl VolumeInfo {
    /// Its root directory.
    pub fn root(&self) -> Fid {
        Fid::root(self.id)
    }

    /// Is it the replica of a volume: read-only, and changed by releases alone?
    pub fn is_replica(&self) -> bool {
        let named = is_replica_name(self.name.as_bytes()) && self.snapshot_of.is_none();
        named && volume_numbers::is_replica(self.id) && self.provenance.copy_of.is_some()
    }
}

/// Most volumes of a partition, with snapshots and deleted ones: so that a list of them fits into
/// one reply.
pub const VOLUMES_MAX: usize = 2048;
/// Most rules of a volume's schedule.
pub const SCHEDULE_RULES: usize = 8;
/// Most bytes of a name of a volume, or of a snapshot: so that both together are a [`Name`].
pub const VOLUME_NAME_BYTES: usize = 120;

/// The store that a connection is for, where its greeting names that instead of a volume: the
/// session's tree is the store's first volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOf<'a> {
    /// The store that has the volume of this name, be it deleted or half received.
    Volume(&'a [u8]),
    /// The store whose first volume has this number.
    Number(u32),
}

impl<'a> StoreOf<'a> {
    /// The text in a greeting.
    pub fn text(&self) -> Vec<u8> {
        match self {
            Self::Volume(name) => [&[SNAPSHOT_MARK][..], name].concat(),
            Self::Number(number) => alloc::format!("@:{number}").into_bytes(),
        }
    }

    /// The store that a greeting names; `None`: it names a volume.
    pub fn parse(volume: &'a [u8]) -> Option<Self> {
        let rest = volume.strip_prefix(&[SNAPSHOT_MARK])?;
        let number = rest.strip_prefix(b":");
        let number = number.and_then(|digits| core::str::from_utf8(digits).ok()?.parse().ok());
        Some(number.map_or(Self::Volume(rest), Self::Number))
    }
}

/// Splits a name into that of a volume and that of its snapshot, if there is one.
pub fn split_volume_name(name: &Name) -> (&[u8], Option<&[u8]>) {
    let bytes = name.as_bytes();
    match bytes.iter().position(|byte| *byte == SNAPSHOT_MARK) {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    }
}

/// The name of the volume that has this name, or that this is a snapshot or a replica of.
pub fn origin_name(name: &Name) -> &[u8] {
    let (volume, _) = split_volume_name(name);
    volume.strip_suffix(REPLICA_SUFFIX).unwrap_or(volume)
}

/// The name of a snapshot of a volume.
pub fn snapshot_name(volume: &[u8], snapshot: &[u8]) -> Result<Name, Refusal> {
    let mut full = Vec::with_capacity(volume.len() + snapshot.len() + 1);
    full.extend_from_slice(volume);
    full.push(SNAPSHOT_MARK);
    full.extend_from_slice(snapshot);
    Ok(Name::new(&full)?)
}

/// May a volume, or a snapshot, be called this? Letters, digits, `.`, `-` and `_`, no `.` or `-` at
/// the beginning, so that it is the same word for shells, paths and people.
pub fn is_volume_name(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let first = name.first();
    first.is_some_and(|byte| !b".-".contains(byte))
        && name.iter().all(plain)
        && name.len() <= VOLUME_NAME_BYTES
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_snapshots_come_apart() {
        let full = snapshot_name(b"home", b"monday").unwrap();
        assert_eq!(
            split_volume_name(&full),
            (&b"home"[..], Some(&b"monday"[..]))
        );
        let plain = Name::new(b"home").unwrap();
        assert_eq!(split_volume_name(&plain), (&b"home"[..], None));
    }

    #[test]
    fn a_greeting_names_a_volume_or_the_store_of_one() {
        for of in [StoreOf::Volume(b"home@monday"), StoreOf::Number(65_537)] {
            assert_eq!(StoreOf::parse(&of.text()), Some(of));
        }
        for volume in [&b""[..], b"home", b"home@monday", b":7"] {
            assert_eq!(StoreOf::parse(volume), None);
        }
        assert_eq!(StoreOf::parse(b"@:x"), Some(StoreOf::Volume(b":x")));
    }

    #[test]
    fn a_replica_is_named_after_its_volume() {
        let replica = replica_name(b"home").unwrap();
        assert_eq!(replica.as_bytes(), b"home.readonly");
        assert!(is_replica_name(b"home.readonly") && is_replica_name(b"home.readonly@release-3"));
        assert!(!is_replica_name(b"home") && !is_replica_name(b"home@x.readonly"));
        let long = [b'a'; VOLUME_NAME_BYTES];
        assert_eq!(replica_name(&long), Err(Refusal::NameTooLong));
    }

    #[test]
    fn a_name_of_a_volume_is_a_plain_word() {
        let good: [&[u8]; 3] = [b"home", b"a.b-c_1", b"9"];
        assert!(good.iter().all(|name| is_volume_name(name)));
        let long = [b'a'; VOLUME_NAME_BYTES + 1];
        let bad: [&[u8]; 7] = [b"", b".a", b"-a", b"a@b", b"a b", b"a/b", &long];
        assert!(!bad.iter().any(|name| is_volume_name(name)));
    }
}
