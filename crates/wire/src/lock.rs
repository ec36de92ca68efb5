//! Advisory locks: who has locked which bytes of a file, and how.

use crate::ids::Fid;
use serde::{Deserialize, Serialize};

/// How something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockMode {
    /// With others (`LOCK_SH`, `F_RDLCK`).
    Shared,
    /// Alone (`LOCK_EX`, `F_WRLCK`).
    Exclusive,
}

/// The owner of locks, among the owners of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LockOwner {
    /// An open file that was locked as a whole by flock(2); these locks and those of bytes do not
    /// meet. The number is the kernel's.
    Whole(u64),
    /// A process, or an open file, that has locked bytes by fcntl(2).
    Bytes(u64),
}

/// A lock, held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The owner.
    pub owner: LockOwner,
    /// How.
    pub mode: LockMode,
    /// The first byte.
    pub first: u64,
    /// The last byte; of a whole file the last number there is.
    pub last: u64,
    /// The process, as its own machine numbers it; 0: not known there.
    pub pid: u32,
}

/// The way to treat a request for a lock that another one is in the way of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockWait {
    /// It is refused.
    Never,
    /// It waits, unless that would be for ever, since others wait for its owner.
    UnlessDeadlocked,
    /// It waits.
    Always,
}

/// A lock that a client holds, told to a restarted server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLock {
    /// Of what.
    pub fid: Fid,
    /// The lock.
    pub lock: Lock,
}

/// The outcome of a request for a lock, or to give one up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locked {
    /// Done.
    Done,
    /// It waits: the end of that will be told by `Waited`.
    Waits,
    /// Another lock is in the way.
    Conflict,
}

impl LockOwner {
    /// Does it lock whole files?
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }
}
