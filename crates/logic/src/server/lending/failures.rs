//! How often a lender has failed readers, and for how long it is not named for that.
//!
//! Guarantees: a machine that others cannot reach delays them ever more seldom, up to once in 1024
//! times the first rest; one that fails nobody any more is named again as before.

use wire::Time;

/// A lender that has failed nobody for so long since it was named again, and for as long as it was
/// not named, begins anew.
const FORGIVEN_NS: Time = 60_000_000_000;
/// The time for which it is not named is doubled so often at most.
const DOUBLED: u32 = 10;

/// The failures of a lender in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// It is not named before this time.
    rests: Time,
    count: u32,
}

impl Failures {
    /// May it be named?
    pub(super) fn are_over(&self, now: Time) -> bool {
        self.rests <= now
    }

    /// It has failed a reader: it is not named for a while, after the first time for `rest_ns`.
    pub(super) fn rest(&mut self, now: Time, rest_ns: Time) {
        let rest = |count: u32| rest_ns << count.min(DOUBLED);
        let last = rest(self.count.saturating_sub(1));
        if now > self.rests + FORGIVEN_NS.max(last) {
            self.count = 0;
        }
        self.rests = now + rest(self.count);
        self.count = self.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const S: Time = 1_000_000_000;

    /// How long it rests after one more failure, as soon as it may be named again.
    fn next(failures: &mut Failures, now: &mut Time) -> Time {
        failures.rest(*now, 2 * S);
        assert!(!failures.are_over(*now));
        let rests = failures.rests - *now;
        *now = failures.rests;
        assert!(failures.are_over(*now));
        rests / S
    }

    #[test]
    fn a_lender_that_fails_again_and_again_is_named_ever_more_seldom() {
        let (mut failures, mut now) = (Failures::default(), 100 * S);
        let rests: Vec<Time> = (0..12).map(|_| next(&mut failures, &mut now)).collect();
        assert_eq!(
            rests,
            [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 2048]
        );
    }

    #[test]
    fn failures_are_forgiven_after_as_long_as_the_lender_was_not_named() {
        let (mut failures, mut now) = (Failures::default(), 100 * S);
        for _ in 0..9 {
            next(&mut failures, &mut now);
        }
        now += 512 * S;
        assert_eq!(next(&mut failures, &mut now), 1024, "not yet");
        now += 1025 * S;
        assert_eq!(next(&mut failures, &mut now), 2);
        now += 61 * S;
        assert_eq!(next(&mut failures, &mut now), 2, "a minute at least");
    }
}
