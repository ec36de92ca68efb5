//! Threads that go before others: programs, or other machines, wait for what they do.

/// The nice value of such a thread.
pub const NICE: i32 = -20;

/// The calling thread goes before others. Where it may not, it takes its turn.
pub fn go_before_others() {
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a thread");
        tracing::debug!(%error, name, "a thread that goes before others has the usual priority");
    }
}
