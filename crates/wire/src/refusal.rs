//! Why an operation was refused: the caller's failures, a closed set. The text is made at the edge.

use serde::{Deserialize, Serialize};

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// No such name.
    NotFound,
    /// The object that the fid names is gone.
    Stale,
    /// The name exists.
    Exists,
    /// Not a directory.
    NotDirectory,
    /// Is a directory.
    IsDirectory,
    /// The directory is not empty.
    NotEmpty,
    /// The permission bits do not allow it.
    Denied,
    /// Only the owner (or root) may do it.
    NotPermitted,
    /// An argument makes no sense.
    Invalid,
    /// The name is longer than 255 bytes.
    NameTooLong,
    /// The file would be larger than allowed.
    TooLarge,
    /// The object has the most names that it may have.
    TooManyLinks,
    /// No space is left at the server.
    NoSpace,
    /// No such extended attribute.
    NoAttribute,
    /// The extended attribute's value or list does not fit.
    OutOfRange,
    /// The operation does not exist for this kind of object.
    NotSupported,
    /// The two names lie in different volumes.
    CrossVolume,
    /// Stored bytes are damaged: their checksum is wrong.
    Damaged,
    /// The server's disk failed.
    Disk,
    /// The session has ended: the client was silent for longer than its lease.
    SessionLost,
    /// The caller was interrupted.
    Interrupted,
    /// Another lock is in the way.
    Locked,
    /// To wait for that lock would be to wait for ever.
    Deadlock,
    /// The client holds the most locks that it may hold.
    TooManyLocks,
    /// Nothing of the kind is behind that place of the file.
    NothingBehind,
    /// The client watches as much as it may.
    TooManyWatches,
    /// It has been put back, and not done: its caller begins again.
    Again,
    /// It cannot be done yet: the client asks again in a while, and its caller is not told.
    Later,
    /// The server was silent for longer than the mount's programs are to wait. No server says so.
    NoAnswer,
    /// The machine may only read.
    ReadOnly,
    /// The proof by which the user came in has expired.
    Expired,
    /// The volume has as much as it may have.
    Quota,
    /// The remains of an earlier operation are still being removed: the caller asks again.
    Busy,
    /// A mount point is in the way, which goes by `Unmount` alone.
    MountPoint,
    /// The server runs an older program, which does not know the operation. No server says so.
    OlderServer,
}
