//! Refusals as error numbers, for the whole front: no other file of it chooses one.

use rustix::io::Errno;
use wire::{NameError, Refusal};

/// "Not implemented": the kernel does the thing itself, or does without, and does not ask again.
pub(super) const NOT_IMPLEMENTED: Errno = Errno::NOSYS;
/// What a file system says to an ioctl that it does not know. (The kernel hands "not implemented"
/// through to programs in some versions.)
pub(super) const NO_SUCH_IOCTL: Errno = Errno::NOTTY;
/// Makes the kernel walk the whole path once more, asking for each name.
pub(super) const WALK_AGAIN: Errno = Errno::STALE;
/// A value larger than any that can be stored.
pub(super) const VALUE_TOO_BIG: Errno = Errno::TOOBIG;
/// The client answered what was not asked: a bug, never the caller's fault.
pub(super) const NONSENSE: Errno = Errno::IO;

/// A refusal as programs see it.
pub(super) const fn of(refusal: Refusal) -> Errno {
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
        Refusal::NoSpace => Errno::NOSPC,
        Refusal::NoAttribute => Errno::NODATA,
        Refusal::OutOfRange => Errno::RANGE,
        Refusal::NotSupported => Errno::OPNOTSUPP,
        Refusal::CrossVolume => Errno::XDEV,
        Refusal::Damaged | Refusal::Disk | Refusal::SessionLost | Refusal::NoAnswer => Errno::IO,
        Refusal::Interrupted => Errno::INTR,
        Refusal::Locked | Refusal::Later => Errno::AGAIN,
        Refusal::Deadlock => Errno::DEADLK,
        Refusal::TooManyLocks => Errno::NOLCK,
        // As inotify_add_watch(2) says.
        Refusal::TooManyWatches => Errno::NOSPC,
        Refusal::NothingBehind => Errno::NXIO,
        Refusal::Again => WALK_AGAIN,
    }
}

/// Why bytes are not a name, as programs see it.
pub(super) const fn of_name(error: NameError) -> Refusal {
    match error {
        NameError::Invalid => Refusal::Invalid,
        NameError::TooLong => Refusal::NameTooLong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_see_the_usual_numbers() {
        for (refusal, number) in [
            (Refusal::NotFound, 2),
            (Refusal::Interrupted, 4),
            (Refusal::Damaged, 5),
            (Refusal::Locked, 11),
            (Refusal::Deadlock, 35),
            (Refusal::TooManyLocks, 37),
            (Refusal::NothingBehind, 6),
            (Refusal::SessionLost, 5),
            (Refusal::Exists, 17),
            (Refusal::CrossVolume, 18),
            (Refusal::NoSpace, 28),
            (Refusal::TooManyLinks, 31),
            (Refusal::OutOfRange, 34),
            (Refusal::NoAttribute, 61),
            (Refusal::NotSupported, 95),
            (Refusal::Stale, 116),
        ] {
            assert_eq!(of(refusal).raw_os_error(), number, "{refusal:?}");
        }
        assert_eq!(of(of_name(NameError::TooLong)).raw_os_error(), 36);
    }
}
