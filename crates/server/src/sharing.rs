//! Stores of one server that have room on one disk: the others leave alone what one of them has
//! promised to its clients.
//!
//! Guarantees: no store grants, or takes, room that another one of the server has promised. As long
//! as there is plenty they do not wait for each other; where it gets scarce, one step at a time is
//! made. Room of a disk that other programs fill is not guarded.

use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use wire::RoomOfDisk;

/// With less room than this for logs, steps that could take some are made one at a time.
const SCARCE_BYTES: u64 = 8 << 30;

/// The promises of the stores of a server.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    stores: AtomicUsize,
    /// Bytes of the log, by share: one store may have two for a moment, when it is opened again.
    promised: Mutex<BTreeMap<u64, u64>>,
    last: AtomicU64,
    /// Held during a step where room is scarce.
    step: Mutex<()>,
}

/// The part of one store.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Sharing>,
    own: u64,
    noted: Cell<u64>,
}

impl Sharing {
    pub(crate) fn join(self: &Arc<Self>) -> Share {
        let own = self.last.fetch_add(1, Ordering::SeqCst);
        let mut promised = self.promised.lock();
        promised.insert(own, 0);
        self.stores.store(promised.len(), Ordering::SeqCst);
        Share {
            of: Arc::clone(self),
            own,
            noted: Cell::new(0),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut promised = self.of.promised.lock();
        promised.remove(&self.own);
        self.of.stores.store(promised.len(), Ordering::SeqCst);
    }
}

impl Share {
    /// Has the server other stores?
    pub(crate) fn is_shared(&self) -> bool {
        self.of.stores.load(Ordering::SeqCst) > 1
    }

    /// A step begins, with so much room on the disk.
    pub(crate) fn begin(&self, room: RoomOfDisk) -> Option<MutexGuard<'_, ()>> {
        (room.log_bytes < SCARCE_BYTES).then(|| self.of.step.lock())
    }

    /// Bytes of logs that the other stores have promised.
    pub(crate) fn of_others(&self) -> u64 {
        let promised = self.of.promised.lock();
        let others = promised.iter().filter(|(store, _)| **store != self.own);
        others.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// The store has promised so much by now.
    pub(crate) fn note(&self, bytes: u64) {
        if self.noted.replace(bytes) != bytes {
            self.of.promised.lock().insert(self.own, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_leave_alone_what_one_store_has_promised() {
        let sharing = Arc::new(Sharing::default());
        let one = sharing.join();
        assert!(!one.is_shared());
        let other = sharing.join();
        one.note(7);
        assert!(one.is_shared() && other.is_shared());
        assert_eq!((one.of_others(), other.of_others()), (0, 7));
        drop(one);
        assert!(!other.is_shared());
        assert_eq!(other.of_others(), 0);
        let room = |log_bytes| RoomOfDisk {
            log_bytes,
            ..RoomOfDisk::ALL
        };
        assert!(other.begin(room(SCARCE_BYTES)).is_none());
        assert!(other.begin(room(SCARCE_BYTES - 1)).is_some());
    }
}
