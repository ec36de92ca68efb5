//! The names of links.
//!
//! Guarantees: no two links of the process ever have the same, whoever made them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a link within the process: no two links ever have the same, whoever made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {}", self.0)
    }
}

/// The last id given. One for the process, since links of several dialers meet in one `Events`.
static LAST_ID: AtomicU64 = AtomicU64::new(0);

impl LinkId {
    pub(crate) fn next() -> LinkId {
        LinkId(LAST_ID.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
