//! How many requests of each kind came, and how long it took to answer them: exact, never reset,
//! cheap enough to be always on. Tests that promise "no message" compare two snapshots.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use client::front::{Meter, Reading};

use crate::abi::Opcode;

const KNOWN: usize = 64;

/// Requests received, by opcode.
#[derive(Debug)]
pub struct Counters {
    by_opcode: [AtomicU64; KNOWN],
    unknown: AtomicU64,
    /// From when a request had come whole until its answer was given; with the bytes of both.
    answers: Box<[Meter]>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            by_opcode: [const { AtomicU64::new(0) }; KNOWN],
            unknown: AtomicU64::new(0),
            answers: (0..KNOWN).map(|_| Meter::default()).collect(),
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

    pub(crate) fn answered(&self, opcode: Opcode, took_ns: u64, bytes: u64) {
        if let Some(meter) = self.answers.get(opcode.0 as usize) {
            meter.note(took_ns, bytes);
        }
    }

    /// How long it took to answer, for each kind that was answered at least once.
    #[must_use]
    pub fn answers(&self) -> Vec<(&'static str, Reading)> {
        let read = |(number, meter): (usize, &Meter)| {
            let reading = meter.read();
            (reading.count > 0).then(|| (Opcode(number as u32).name(), reading))
        };
        self.answers.iter().enumerate().filter_map(read).collect()
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
