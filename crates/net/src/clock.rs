//! The only file that reads the operating system's clock.
//!
//! Guarantees: [`now_ns`] never goes back within a process, and reads as wall time since the epoch
//! as it was set when the process first asked. A later step of the wall clock (by hand or by NTP)
//! does not move it, so a lease cannot end early or late because somebody set the time.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::sync::OnceLock;

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Wall time minus monotonic time, taken once.
static OFFSET_NS: OnceLock<u64> = OnceLock::new();

/// Nanoseconds since the epoch, advancing with the monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    let offset_ns = *OFFSET_NS.get_or_init(|| {
        // A wall clock before 1970 reads as the epoch: only the differences matter then.
        read_ns(ClockId::Realtime).saturating_sub(read_ns(ClockId::Monotonic))
    });
    offset_ns.saturating_add(read_ns(ClockId::Monotonic))
}

fn read_ns(id: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(id);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let rest_ns = u64::try_from(tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(rest_ns)
}
