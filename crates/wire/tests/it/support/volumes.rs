//! Samples about volumes.

use super::name;
use super::stream::{provenance, stream_head};
use wire::*;

/// Operations on volumes.
pub(super) fn volume_ops() -> Vec<Op> {
    let (of, name) = (name("home@monday"), name("tuesday"));
    let ops = [
        VolumeOp::Create {
            name: name.clone(),
            mode: 0o755,
        },
        VolumeOp::Snapshot {
            of: of.clone(),
            name: name.clone(),
        },
        VolumeOp::Clone {
            of: of.clone(),
            name: name.clone(),
        },
        VolumeOp::Rename {
            of: of.clone(),
            name,
        },
        VolumeOp::Delete { of: of.clone() },
        VolumeOp::Schedule {
            of: of.clone(),
            rules: rules(),
        },
        VolumeOp::Undelete { of: of.clone() },
        VolumeOp::Purge { volume: u32::MAX },
        VolumeOp::Limit {
            of,
            limits: limits(),
        },
        VolumeOp::Receive {
            name: Name::new(b"copy").unwrap(),
            head: Box::new(stream_head()),
            rollback: true,
        },
        VolumeOp::Undo {
            volume: 9,
            things: u32::MAX,
        },
        VolumeOp::Publish { volume: 9 },
        VolumeOp::Discard { volume: 9 },
    ];
    ops.into_iter().map(Op::Volume).collect()
}

/// The operations that version 21 of the protocol has added.
pub(super) fn release_ops() -> Vec<Op> {
    let ops = [
        VolumeOp::ReceiveRelease {
            name: Name::new(b"home.readonly").unwrap(),
            head: Box::new(stream_head()),
            release: u32::MAX,
        },
        VolumeOp::DropReleases {
            volume: 9,
            below: u32::MAX,
        },
    ];
    ops.into_iter().map(Op::Volume).collect()
}

/// Operations on mount points.
pub(super) fn mount_ops() -> Vec<Op> {
    let (dir, name) = (super::fid(1), name("home"));
    let mount = super::make(Make::Mount(Name::new(b"home@monday").unwrap()), None);
    let elsewhere = super::make(Make::MountElsewhere(0x0100_0007), None);
    vec![mount, elsewhere, Op::Unmount { dir, name }]
}

fn rules() -> Vec<ScheduleRule> {
    let rule = |every_s, keep| ScheduleRule { every_s, keep };
    vec![rule(3600, 24), rule(u32::MAX, u16::MAX)]
}

pub(super) fn volume_info() -> VolumeInfo {
    VolumeInfo {
        id: 9,
        name: name("home@monday"),
        snapshot_of: Some(7),
        cloned_from: None,
        state: VolumeState::Deleted(1 << 60),
        made: 1 << 59,
        objects: 1 << 40,
        bytes: 1 << 50,
        schedule: rules(),
        limits: limits(),
        provenance: provenance(),
    }
}

fn limits() -> Limits {
    Limits {
        bytes: 10 << 30,
        objects: u64::MAX,
    }
}

/// Room in a volume.
pub(super) fn room(bytes: u64, objects: u64) -> Room {
    Room { bytes, objects }
}
