//! Refusals as error numbers of Linux: the table that all fronts go by.

use rustix::io::Errno;
use wire::Refusal;

/// The number by which programs know a refusal.
#[must_use]
pub const fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NotFound => Errno::NOENT,
        Refusal::Stale => Errno::STALE,
        Refusal::Exists => Errno::EXIST,
        Refusal::NotDirectory => Errno::NOTDIR,
        Refusal::IsDirectory => Errno::ISDIR,
        Refusal::NotEmpty => Errno::NOTEMPTY,
        Refusal::Denied => Errno::ACCESS,
        Refusal::NotPermitted => Errno::PERM,
        Refusal::Invalid => Errno::INVAL,
        Refusal::NameTooLong => Errno::NAMETOOLONG,
        Refusal::TooLarge => Errno::FBIG,
        Refusal::TooManyLinks => Errno::MLINK,
        // Of watches: as inotify_add_watch(2) says.
        Refusal::NoSpace | Refusal::TooManyWatches => Errno::NOSPC,
        Refusal::NoAttribute => Errno::NODATA,
        Refusal::OutOfRange => Errno::RANGE,
        Refusal::NotSupported | Refusal::OlderServer => Errno::OPNOTSUPP,
        Refusal::CrossVolume => Errno::XDEV,
        Refusal::Damaged | Refusal::Disk | Refusal::SessionLost | Refusal::NoAnswer => Errno::IO,
        Refusal::Interrupted => Errno::INTR,
        Refusal::Locked | Refusal::Later | Refusal::Again => Errno::AGAIN,
        Refusal::Deadlock => Errno::DEADLK,
        Refusal::TooManyLocks => Errno::NOLCK,
        Refusal::NothingBehind => Errno::NXIO,
        Refusal::ReadOnly => Errno::ROFS,
        Refusal::Expired => Errno::KEYEXPIRED,
        Refusal::Quota => Errno::DQUOT,
        Refusal::Busy | Refusal::MountPoint => Errno::BUSY,
    }
}
