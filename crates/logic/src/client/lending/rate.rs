//! The rate at which a client lends.
//!
//! Guarantees: over any time no more is lent than the rate allows, but for a quarter of a second's
//! worth and one answer. A reader that is turned away asks the server, as of a lender that has
//! given its blocks up.

use wire::Time;

const NS_PER_S: u64 = 1_000_000_000;
/// So far ahead of the rate a client lends.
const AHEAD_NS: Time = 250_000_000;

/// The bytes that were lent, as the time until which the rate allows no more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    until: Time,
}

impl Rate {
    /// Was so much lent that nothing is for now?
    pub(super) fn is_spent(&self, now: Time) -> bool {
        self.until > now + AHEAD_NS
    }

    /// Bytes are lent, of which there may be so many in a second.
    pub(super) fn spend(&mut self, now: Time, bytes: u64, per_second: u64) {
        let takes = bytes.saturating_mul(NS_PER_S) / per_second.max(1);
        self.until = self.until.max(now).saturating_add(takes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn over_ten_seconds_no_more_is_lent_than_the_rate_and_a_little() {
        let (mut rate, mut lent) = (Rate::default(), 0);
        for ms in 0..10_000 {
            let now = ms * 1_000_000;
            if !rate.is_spent(now) {
                rate.spend(now, MIB / 4, 2 * MIB);
                lent += MIB / 4;
            }
        }
        assert!(
            (20 * MIB..=20 * MIB + 3 * MIB / 4).contains(&lent),
            "{lent}"
        );
    }

    #[test]
    fn what_was_not_lent_is_not_saved_up() {
        let mut rate = Rate::default();
        let now = 3600 * NS_PER_S;
        rate.spend(now, MIB, MIB);
        assert!(rate.is_spent(now));
        assert!(!rate.is_spent(now + NS_PER_S));
    }
}
