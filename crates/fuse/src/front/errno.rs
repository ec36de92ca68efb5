//! Refusals as error numbers, for the whole front: no other file of it chooses one.

use rustix::io::Errno;
use wire::Refusal;

/// "Not implemented": the kernel does the thing itself, or does without, and does not ask again.
pub(super) const NOT_IMPLEMENTED: Errno = Errno::NOSYS;
/// The answer of a file system to an ioctl that it does not know. (The kernel hands "not
/// implemented" through to programs in some versions.)
pub(super) const NO_SUCH_IOCTL: Errno = Errno::NOTTY;
/// Makes the kernel walk the whole path once more, asking for each name.
pub(super) const WALK_AGAIN: Errno = Errno::STALE;
/// A mount point leads back to the root of what is mounted, which the kernel has in one place only.
pub(super) const LOOP: Errno = Errno::LOOP;
/// The server that has what is behind a mount point cannot be reached.
pub(super) const UNREACHABLE: Errno = Errno::HOSTUNREACH;
/// A value larger than any that can be stored.
pub(super) const VALUE_TOO_BIG: Errno = Errno::TOOBIG;
/// The client answered what was not asked: a bug, never the caller's fault.
pub(super) const NONSENSE: Errno = Errno::IO;

/// A refusal as programs see it.
pub(super) const fn of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Again => WALK_AGAIN,
        other => client::errno(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::NameError;

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
        assert_eq!(of(NameError::TooLong.into()).raw_os_error(), 36);
    }
}
