//! How many requests of each kind came: exact, never reset, cheap enough to be always on. Tests
//! that promise "no message" compare two snapshots.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::Opcode;

const KNOWN: usize = 64;

/// Requests received, by opcode.
#[derive(Debug)]
pub struct Counters {
    by_opcode: [AtomicU64; KNOWN],
    unknown: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            by_opcode: [const { AtomicU64::new(0) }; KNOWN],
            unknown: AtomicU64::new(0),
        }
    }
}

impl Counters {
    fn counter(&self, opcode: Opcode) -> &AtomicU64 {
        self.by_opcode
            .get(opcode.0 as usize)
            .unwrap_or(&self.unknown)
    }

    pub(crate) fn count(&self, opcode: Opcode) {
        self.counter(opcode).fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of this kind so far.
    #[must_use]
    pub fn of(&self, opcode: Opcode) -> u64 {
        self.counter(opcode).load(Ordering::Relaxed)
    }

    /// Name and number of every kind that came at least once.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (number, counter) in self.by_opcode.iter().enumerate() {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                *counts.entry(Opcode(number as u32).name()).or_insert(0) += count;
            }
        }
        let unknown = self.unknown.load(Ordering::Relaxed);
        if unknown > 0 {
            *counts.entry("UNKNOWN").or_insert(0) += unknown;
        }
        counts
    }

    /// Requests in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.snapshot().values().sum()
    }
}
