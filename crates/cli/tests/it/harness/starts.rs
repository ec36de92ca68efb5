//! Starting processes from many threads at once. Until a child runs its own program it has a copy
//! of every descriptor of this process, also of those that another test closes meanwhile: that one
//! would find its mount in use, or its program open for writing.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A start takes longer only if the child waits for its directory, on a mount without a server.
const LIMIT: Duration = Duration::from_secs(10);

/// Starts under way, numbered.
struct Starts {
    under_way: BTreeSet<u64>,
    last: u64,
}

static STARTS: Mutex<Starts> = Mutex::new(Starts {
    under_way: BTreeSet::new(),
    last: 0,
});
static ENDED: Condvar = Condvar::new();

fn starts() -> MutexGuard<'static, Starts> {
    STARTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process; it runs its own program afterwards.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let number = {
        let mut starts = starts();
        starts.last += 1;
        let number = starts.last;
        starts.under_way.insert(number);
        number
    };
    let child = command.spawn();
    starts().under_way.remove(&number);
    ENDED.notify_all();
    child
}

/// Descriptors that this thread has closed are closed: no child that others have begun to start has
/// them.
pub fn closed_is_closed() {
    let starts = starts();
    let last = starts.last;
    let begun = |starts: &mut Starts| starts.under_way.first().is_some_and(|first| *first <= last);
    drop(ENDED.wait_timeout_while(starts, LIMIT, begun));
}
