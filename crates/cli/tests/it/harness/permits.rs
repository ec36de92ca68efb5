//! How many tests work at once. On two cores more than three cells only measure each other; a test
//! that measures time takes all permits. First come, first served, so that nobody starves.

use std::sync::{Condvar, Mutex};

/// All permits there are.
pub const ALL: usize = 3;

struct Queue {
    free: usize,
    next_ticket: u64,
    now_serving: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    free: ALL,
    next_ticket: 0,
    now_serving: 0,
});
static CHANGED: Condvar = Condvar::new();

/// Permits held; given back when dropped.
pub struct Permits(usize);

/// Waits for its turn, unless it wants none. The time limit of a test begins afterwards.
pub fn take(count: usize) -> Permits {
    if count == 0 {
        return Permits(0);
    }
    let mut queue = QUEUE.lock().unwrap();
    let ticket = queue.next_ticket;
    queue.next_ticket += 1;
    while queue.now_serving != ticket || queue.free < count {
        queue = CHANGED.wait(queue).unwrap();
    }
    queue.now_serving += 1;
    queue.free -= count;
    CHANGED.notify_all();
    Permits(count)
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Ok(mut queue) = QUEUE.lock() {
            queue.free += self.0;
        }
        CHANGED.notify_all();
    }
}
