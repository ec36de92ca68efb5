//! The clock of commands that measure or judge from outside: one for all processes of the machine.

use rustix::time::{ClockId, clock_gettime};

pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
