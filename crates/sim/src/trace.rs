//! The trace of a world: a line for everything that happened, when somebody wants to read it.

use std::cell::{Cell, RefCell};
use wire::Time;

/// The lines of one run.
pub(crate) struct Trace {
    on: bool,
    lines: RefCell<Vec<String>>,
    steps: Cell<u64>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Self {
        Self {
            on,
            lines: RefCell::default(),
            steps: Cell::new(0),
        }
    }

    pub(crate) fn line(&self, now: Time, text: impl FnOnce() -> String) {
        self.steps.set(self.steps.get() + 1);
        if self.on {
            let (ms, ns) = (now / 1_000_000, now % 1_000_000);
            self.lines
                .borrow_mut()
                .push(format!("{ms:>6}.{ns:06} {}", text()));
        }
    }

    /// Things that happened.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.borrow_mut())
    }
}
