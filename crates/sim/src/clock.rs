//! The clock of one machine: set differently from the world's, and running at a rate of its own;
//! and the wall clock of the server's machine, which somebody sets now and then.

use crate::rng::{Branch, Rng};
use wire::Time;

const MILLION: i128 = 1_000_000;

/// A machine's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Time,
    /// The time that it showed at the world's start, beyond the world's time.
    ahead_ns: Time,
    /// How much faster than the world's it runs, millionths.
    ppm: i64,
}

impl Clock {
    pub(crate) fn new(start: Time, ahead_ns: Time, ppm: i64) -> Self {
        Self {
            start,
            ahead_ns,
            ppm,
        }
    }

    /// The time that it shows at a time of the world.
    pub(crate) fn shows(&self, at: Time) -> Time {
        let passed = i128::from(at.saturating_sub(self.start));
        let gained = passed * i128::from(self.ppm) / MILLION;
        (i128::from(at + self.ahead_ns) + gained) as Time
    }

    /// The time of the world by which it shows this at least.
    pub(crate) fn reaches(&self, shown: Time) -> Time {
        let passed = i128::from(shown.saturating_sub(self.start + self.ahead_ns));
        let rate = MILLION + i128::from(self.ppm);
        let exact = (passed * MILLION + rate - 1) / rate;
        self.start + exact as Time
    }
}

/// How long the wall clock stays as it was set.
const SET_NS: Time = 150_000_000;
const HOUR_NS: Time = 3_600_000_000_000;

/// The wall clock of the server's machine. It is set back or ahead now and then, above all when the
/// server is started again, and put right again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wall {
    key: u64,
    /// How often the machine, or what runs on it, has been started again.
    starts: u64,
}

impl Wall {
    /// That of a world: in three of five nobody sets it.
    pub(crate) fn new(key: u64) -> Self {
        Self { key, starts: 0 }
    }

    /// Something is started again: that may set clocks, too.
    pub(crate) fn start(&mut self) {
        self.starts += 1;
    }

    /// The time that it shows at a time of the world.
    pub(crate) fn shows(&self, at: Time) -> Time {
        let mut world = Rng::of(Branch::Wall, &[self.key]);
        let mut rng = Rng::of(Branch::Wall, &[self.key, at / SET_NS, self.starts]);
        let is_set = world.chance(400) && rng.chance(400);
        let ahead_ns = if is_set {
            rng.below(2 * HOUR_NS)
        } else {
            HOUR_NS
        };
        EPOCH_NS + at + ahead_ns
    }
}

/// When worlds begin.
const EPOCH_NS: Time = 1_700_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_reaches_it_shows() {
        for ppm in [-50_000, -7, 0, 3, 50_000] {
            let clock = Clock::new(1_000, 77, ppm);
            for shown in [1_077, 1_078, 5_000_000_007, 123_456_789_123] {
                let at = clock.reaches(shown);
                assert!(clock.shows(at) >= shown, "{ppm} {shown}");
                assert!(clock.shows(at) <= shown + 2, "{ppm} {shown}");
            }
        }
    }
}
