//! The rule of each operation: what the users of a session must be able to do with the objects that
//! it is about.
//!
//! Two things are looked at for every operation. The store compares its caller with the modes and
//! the lists of what it names, as a local file system does (`caller`). And since a client may ask
//! for any number that it guesses, the session must be able to get at each object (`objects`):
//! somebody for whom its machine speaks could have come to it from the root, and could have opened
//! it as it is used here. Descriptors are opened under tokens, without a word to the server, so
//! reads and writes are judged by what all users of the session may do, and not by one of them.
//!
//! An operation without a rule does not compile; docs/security.md has the same table, and a test
//! compares them.

use wire::{Fid, Op, WriteMode};

/// The access that somebody must have to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Come to it: every directory on the way to it may be searched.
    Reach,
    /// Come to it, and open it in some way.
    Open,
    /// Come to it, and open it for reading.
    Read,
    /// Come to it, and open it for writing.
    Write,
}

impl Want {
    /// Any of these rights is enough: 4 reads, 2 writes; 0: none is needed.
    pub(crate) const fn bits(self) -> u16 {
        match self {
            Self::Reach => 0,
            Self::Open => 6,
            Self::Read => 4,
            Self::Write => 2,
        }
    }
}

/// The rule of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The store compares the caller with modes and lists.
    pub caller: bool,
    /// The objects that the session must be able to get at.
    pub objects: [Option<(Fid, Want)>; 2],
}

/// The store alone decides, about objects that the session can come to.
const fn caller(one: Fid, other: Option<Fid>) -> Rule {
    let other = match other {
        Some(fid) => Some((fid, Want::Reach)),
        None => None,
    };
    Rule {
        caller: true,
        objects: [Some((one, Want::Reach)), other],
    }
}

/// The session alone counts.
const fn session(fid: Fid, want: Want) -> Rule {
    Rule {
        caller: false,
        objects: [Some((fid, want)), None],
    }
}

const fn both(from: Fid, to: Fid) -> Rule {
    Rule {
        caller: false,
        objects: [Some((from, Want::Read)), Some((to, Want::Write))],
    }
}

/// The store alone decides: it asks for root.
const ROOT: Rule = Rule {
    caller: true,
    objects: [None, None],
};

/// It is about no object of the tree, or about what the session holds in any case.
const FREE: Rule = Rule {
    caller: false,
    objects: [None, None],
};

/// The rule of an operation.
pub const fn rule(op: &Op) -> Rule {
    match *op {
        Op::Lookup { dir, .. }
        | Op::Make { dir, .. }
        | Op::MakeNameless { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Unmount { dir, .. }
        | Op::ReadDir { dir, .. }
        | Op::Prefetch { dir, .. } => caller(dir, None),
        Op::Link { fid, dir, .. } => caller(dir, Some(fid)),
        Op::Rename { from, to, .. } => caller(from, Some(to)),
        Op::SetAttr { fid, .. }
        | Op::Open { fid, .. }
        | Op::GetXattr { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => caller(fid, None),
        Op::GetAttr { fid }
        | Op::ReadLink { fid }
        | Op::ListXattr { fid }
        | Op::Sync { fid }
        // The session has the locks that it gives up here, and so has the file open.
        | Op::Unlock { fid, .. }
        | Op::GiveLocks { fid, .. } => session(fid, Want::Reach),
        Op::Lock { fid, .. } | Op::TestLock { fid, .. } => session(fid, Want::Open),
        Op::Read { fid, .. } | Op::Find { fid, .. } => session(fid, Want::Read),
        // It is taken under Exclusive alone, which was granted to somebody who may write; and a
        // write that was answered then is never thrown away because of a right that ended since.
        Op::Write {
            mode: WriteMode::Back { .. },
            ..
        } => FREE,
        Op::Write { fid, .. } | Op::Allocate { fid, .. } => session(fid, Want::Write),
        Op::Claim { fid } => both(fid, fid),
        Op::Copy { from, to, .. } => both(from, to),
        // Numbers of the whole, numbers for what is to be made, and a request of its own.
        Op::StatFs
        | Op::StatVolume { .. }
        | Op::Reserve { .. }
        | Op::Room { .. }
        | Op::StopWaiting { .. }
        | Op::Volumes => FREE,
        // All that somebody keeps: no user of a machine but its root, if he is believed.
        Op::Volume(_) | Op::Dump { .. } | Op::Restore { .. } => ROOT,
        // No client may ask for it.
        Op::Reap { .. } => FREE,
    }
}
