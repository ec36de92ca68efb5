//! How often something happened, how many bytes it moved, and how long it took.
//!
//! Guarantees: an observation takes no lock and some ten nanoseconds, so everything is measured all
//! the time. Durations fall into ranges of a quarter of an octave: a quantile is told as the end of
//! its range, too high by less than a quarter. Readings of a meter in use may be off by what is
//! being noted at that moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ranges of an octave.
const PARTS: u64 = 4;
/// All ranges: the last one begins at two minutes.
const RANGES: usize = 144;

/// Notes observations of one kind.
#[derive(Debug)]
pub struct Meter {
    bytes: AtomicU64,
    total_ns: AtomicU64,
    most_ns: AtomicU64,
    ranges: [AtomicU64; RANGES],
}

impl Default for Meter {
    fn default() -> Self {
        Meter {
            bytes: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            most_ns: AtomicU64::new(0),
            ranges: [const { AtomicU64::new(0) }; RANGES],
        }
    }
}

/// The reading of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Observations.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Their durations together.
    pub total_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// All but a tenth of them took no longer.
    pub p90_ns: u64,
    /// All but a hundredth of them took no longer.
    pub p99_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl Meter {
    /// Notes one observation.
    pub fn note(&self, took_ns: u64, bytes: u64) {
        let add = |counter: &AtomicU64, more| counter.fetch_add(more, Ordering::Relaxed);
        add(&self.ranges[range(took_ns)], 1);
        add(&self.total_ns, took_ns);
        if bytes > 0 {
            add(&self.bytes, bytes);
        }
        if took_ns > self.most_ns.load(Ordering::Relaxed) {
            self.most_ns.fetch_max(took_ns, Ordering::Relaxed);
        }
    }

    /// Its reading so far.
    #[must_use]
    pub fn read(&self) -> Reading {
        let counts: Vec<u64> = self
            .ranges
            .iter()
            .map(|range| range.load(Ordering::Relaxed))
            .collect();
        let count = counts.iter().sum();
        let most_ns = self.most_ns.load(Ordering::Relaxed);
        let quantile = |percent: u64| quantile(&counts, count, percent).min(most_ns);
        Reading {
            count,
            bytes: self.bytes.load(Ordering::Relaxed),
            total_ns: self.total_ns.load(Ordering::Relaxed),
            p50_ns: quantile(50),
            p90_ns: quantile(90),
            p99_ns: quantile(99),
            most_ns,
        }
    }
}

/// A meter for each kind of things, made when the first one is noted.
#[derive(Debug, Default)]
pub struct Meters(BTreeMap<&'static str, Meter>);

impl Meters {
    /// Notes one observation of this kind.
    pub fn note(&mut self, kind: &'static str, took_ns: u64, bytes: u64) {
        self.0.entry(kind).or_default().note(took_ns, bytes);
    }

    /// The readings of all so far.
    #[must_use]
    pub fn read(&self) -> Vec<(&'static str, Reading)> {
        let read = |(kind, meter): (&&'static str, &Meter)| (*kind, meter.read());
        self.0.iter().map(read).collect()
    }
}

/// Which range a duration falls into.
fn range(ns: u64) -> usize {
    if ns < PARTS {
        return ns as usize;
    }
    let octave = u64::from(ns.ilog2());
    let part = (ns >> (octave - 2)) % PARTS;
    (((octave - 1) * PARTS + part) as usize).min(RANGES - 1)
}

/// Where a range ends: no duration in it is longer. Of the last one nothing can be said.
fn end(range: usize) -> u64 {
    let (octave, part) = (range as u64 / PARTS, range as u64 % PARTS);
    match octave {
        _ if range == RANGES - 1 => u64::MAX,
        0 => part,
        _ => ((PARTS + part + 1) << (octave - 1)) - 1,
    }
}

fn quantile(counts: &[u64], count: u64, percent: u64) -> u64 {
    let wanted = (count * percent).div_ceil(100);
    let mut seen = 0;
    for (range, count) in counts.iter().enumerate() {
        seen += count;
        if seen >= wanted && wanted > 0 {
            return end(range);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_its_range_and_ranges_are_narrow() {
        let mut durations: Vec<u64> = (0..2000).collect();
        durations.extend((4..37).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for ns in durations {
            let range = range(ns);
            assert!(ns <= end(range), "{ns}");
            assert!(range == 0 || ns > end(range - 1), "{ns}");
            assert!(end(range) - ns <= ns / 4, "{ns}: {}", end(range));
        }
        assert_eq!(range(u64::MAX), RANGES - 1);
    }

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let meter = Meter::default();
        assert_eq!(meter.read(), Reading::default());
        for us in 1..=1000 {
            meter.note(us * 1000, 3);
        }
        let said = meter.read();
        assert_eq!((said.count, said.bytes), (1000, 3000));
        assert_eq!((said.total_ns, said.most_ns), (500_500_000, 1_000_000));
        let near = |said: u64, us: u64| (us * 1000..us * 1250).contains(&said);
        assert!(near(said.p50_ns, 500) && near(said.p90_ns, 900), "{said:?}");
        assert_eq!(said.p99_ns, 1_000_000, "no more than the longest");
    }
}
