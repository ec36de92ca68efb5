//! Threads that wait for locks of the kernel, and are to get them before those who have just let go
//! of them. Nothing but the waiting is done at a real-time policy.

use std::cell::Cell;

use tracing::debug;

use crate::idle_policy::{take_policy, take_policy_with};

/// The calling thread, but none that it starts, is of a real-time policy from now on: it runs as
/// soon as it is woken, and when it waits for a lock of the kernel, that is handed over to it. (To
/// others only after 4 ms: until then the first to come takes it, mostly the thread that has just
/// let go of it. See `rwsem_try_write_lock`.) A thread that may not have that policy takes its
/// chance.
pub(super) fn be_eager() {
    const LEAST: libc::c_int = 1;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    match take_policy_with(None, (policy, LEAST)) {
        Ok(()) => EAGER.set(true),
        Err(error) => debug!(%error, "a thread that drops names is none of real time"),
    }
}

/// An eager thread's next work may take long: it is an ordinary one until it is eager again, but
/// goes before others ([`client::priority`]), as what it has to tell is waited for.
pub(super) fn be_calm() {
    if !EAGER.take() {
        return;
    }
    let policy = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
    if let Err(error) = take_policy(None, policy) {
        tracing::warn!(%error, "a thread keeps the policy SCHED_FIFO");
    }
}

thread_local! {
    static EAGER: Cell<bool> = const { Cell::new(false) };
}
