//! The only file that reads the operating system's clock.
//!
//! Guarantees: [`now_ns`] never goes back, nobody who sets the time of day moves it, and it goes on
//! while the machine sleeps: a lease cannot end early or late because of either. [`wall_ns`] is the
//! time of day, right or wrong, and may jump. Only a server asks for it: the times of files are
//! those of one clock, whatever the clocks of the machines that change them show.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds since some moment in the past. By the clock of the time since the machine was
/// started (`CLOCK_BOOTTIME`): `CLOCK_MONOTONIC` stands still while a machine is suspended, and a
/// client that woke up would go on with leases that were over long ago.
#[must_use]
pub fn now_ns() -> u64 {
    read_ns(ClockId::Boottime)
}

/// Nanoseconds since 1970, as the machine's clock is set. A clock before that reads as 1970.
#[must_use]
pub fn wall_ns() -> u64 {
    read_ns(ClockId::Realtime)
}

fn read_ns(id: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let rest_ns = u64::try_from(tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(rest_ns)
}
