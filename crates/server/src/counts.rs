//! Counters of messages by kind.

use std::collections::BTreeMap;

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
