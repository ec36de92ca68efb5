//! One of each kind of operation that a client may ask for.

use wire::{
    Access, Blob, Fid, Lock, LockMode, LockOwner, LockWait, Make, Name, Op, Room, Set, StreamChunk,
    VolumeOp, WriteMode, XattrMode,
};

/// How many kinds there are.
pub const KINDS: usize = 38;

/// The number of an operation's kind. A new kind does not compile until it has one, and
/// [`every`] has it.
pub fn kind(op: &Op) -> usize {
    match op {
        Op::Lookup { .. } => 0,
        Op::GetAttr { .. } => 1,
        Op::SetAttr { .. } => 2,
        Op::ReadLink { .. } => 3,
        Op::Make { .. } => 4,
        Op::Link { .. } => 5,
        Op::Unlink { .. } => 6,
        Op::Rmdir { .. } => 7,
        Op::Rename { .. } => 8,
        Op::Open { .. } => 9,
        Op::Read { .. } => 10,
        Op::Write { .. } => 11,
        Op::ReadDir { .. } => 12,
        Op::Sync { .. } => 13,
        Op::StatFs => 14,
        Op::GetXattr { .. } => 15,
        Op::SetXattr { .. } => 16,
        Op::ListXattr { .. } => 17,
        Op::RemoveXattr { .. } => 18,
        Op::Lock { .. } => 19,
        Op::Unlock { .. } => 20,
        Op::TestLock { .. } => 21,
        Op::StopWaiting { .. } => 22,
        Op::Allocate { .. } => 23,
        Op::Copy { .. } => 24,
        Op::Find { .. } => 25,
        Op::MakeNameless { .. } => 26,
        Op::Prefetch { .. } => 27,
        Op::Reserve { .. } => 28,
        Op::GiveLocks { .. } => 29,
        Op::Claim { .. } => 30,
        Op::Volume(_) => 31,
        Op::Volumes => 32,
        Op::StatVolume { .. } => 33,
        Op::Room { .. } => 34,
        Op::Dump { .. } => 35,
        Op::Restore { .. } => 36,
        Op::Unmount { .. } => 37,
        Op::Reap { .. } => unreachable!("no client may ask for it: the connection ends"),
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// One of each, about this file and this directory. None of them needs what another one does.
pub fn every(fid: Fid, dir: Fid) -> Vec<Op> {
    [of_names(fid, dir), of_files(fid), of_locks(fid), others()].concat()
}

fn of_names(fid: Fid, dir: Fid) -> Vec<Op> {
    let (none, mode) = (|| name("none"), 0o600);
    let (after, max) = (0, 100);
    let access = Access {
        read: true,
        write: true,
    };
    vec![
        Op::Lookup { dir, name: none() },
        Op::Make {
            dir,
            name: name("made"),
            make: Make::File,
            mode,
            open: None,
        },
        Op::MakeNameless {
            dir,
            mode,
            open: access,
        },
        Op::Link {
            fid,
            dir,
            name: name("linked"),
        },
        Op::Unlink { dir, name: none() },
        Op::Rmdir { dir, name: none() },
        Op::Unmount { dir, name: none() },
        Op::Rename {
            from: dir,
            name: none(),
            to: dir,
            new: name("other"),
            no_replace: false,
            exchange: false,
        },
        Op::ReadDir { dir, after, max },
        Op::Prefetch { dir, after, max },
    ]
}

fn of_files(fid: Fid) -> Vec<Op> {
    let (offset, len) = (0, 0);
    let user = || b"user.a".to_vec();
    let access = Access {
        read: true,
        write: false,
    };
    let set = Set {
        mode: Some(0o666),
        ..Set::default()
    };
    vec![
        Op::GetAttr { fid },
        Op::ReadLink { fid },
        Op::Open { fid, access },
        Op::Read { fid, offset, len },
        Op::Write {
            fid,
            offset,
            len,
            mode: WriteMode::At,
        },
        Op::Sync { fid },
        Op::GetXattr { fid, name: user() },
        Op::SetXattr {
            fid,
            name: user(),
            value: vec![],
            mode: XattrMode::Any,
        },
        Op::ListXattr { fid },
        Op::RemoveXattr { fid, name: user() },
        Op::Allocate {
            fid,
            offset,
            len: 1,
            zero: false,
            keep_size: false,
        },
        Op::Copy {
            from: fid,
            at: 0,
            to: fid,
            offset,
            len: 1,
        },
        Op::Find {
            fid,
            offset,
            hole: false,
        },
        Op::Claim { fid },
        Op::SetAttr { fid, set },
    ]
}

fn of_locks(fid: Fid) -> Vec<Op> {
    let owner = LockOwner::Bytes(1);
    let (first, last) = (0, 9);
    let lock = Lock {
        owner,
        mode: LockMode::Shared,
        first,
        last,
        pid: 1,
    };
    vec![
        Op::Lock {
            fid,
            lock,
            wait: LockWait::Never,
        },
        Op::TestLock { fid, lock },
        Op::Unlock {
            fid,
            owner,
            first,
            last,
        },
        Op::GiveLocks {
            fid,
            upto: 1,
            decided: 0,
            held: None,
        },
    ]
}

fn others() -> Vec<Op> {
    vec![
        Op::StatFs,
        Op::Reserve { count: 1 },
        Op::StopWaiting { request: 1 },
        Op::Volume(VolumeOp::Create {
            name: name("made"),
            mode: 0o700,
        }),
        Op::Volumes,
        Op::StatVolume { volume: 1 },
        Op::Room {
            volume: 1,
            held: Room::NONE,
            want: Room::NONE,
        },
        Op::Dump {
            of: name("none"),
            since: None,
            after: None,
            plan: false,
        },
        Op::Restore {
            volume: 9,
            number: 0,
            after: Blob::default(),
            chunk: StreamChunk::default(),
        },
    ]
}
