//! Counters of messages by kind, and of bytes.

use std::collections::BTreeMap;

/// Bytes that went over connections, without what frames add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From clients.
    pub received: u64,
    /// To clients.
    pub sent: u64,
}

/// How many messages of each kind.
#[derive(Debug, Default)]
pub(crate) struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    /// One more of this kind.
    pub(crate) fn add(&mut self, kind: &'static str) {
        *self.0.entry(kind).or_default() += 1;
    }

    /// All, by kind.
    pub(crate) fn list(&self) -> Vec<(&'static str, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count)).collect()
    }
}
