//! The cost of deciding, counted in requests judged and holders looked at. Tests hold the machine
//! to these numbers, which are the same on every computer, and not to time.

use core::cell::Cell;
use core::fmt;

/// The counters. They are no part of the machine's state: two machines that differ in nothing else
/// are shown alike.
#[derive(Clone, Default)]
pub(crate) struct Cost {
    judged: Cell<u64>,
    looked: Cell<u64>,
}

impl Cost {
    /// A request is compared with all that is known where it is about something.
    pub(crate) fn judge(&self) {
        self.judged.set(self.judged.get() + 1);
    }

    /// A holder is looked at for a request.
    pub(crate) fn look(&self) {
        self.looked.set(self.looked.get() + 1);
    }

    /// Requests judged, holders looked at.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.judged.get(), self.looked.get())
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cost")
    }
}
