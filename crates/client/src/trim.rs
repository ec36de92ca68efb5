//! When memory that the cache has used goes back to the system.
//!
//! Guarantees: memory that the cache has not needed for two periods is given back, if it is worth a
//! call; memory that it needs again and again, as for temporary files, stays. A client that has
//! nothing to give back is not woken.

/// For so long it is seen how much is needed.
const PERIOD_NS: u64 = 1_500_000_000;
/// Less than so many blocks stay: 1 MiB.
const WORTH: u32 = 256;

/// How many blocks the cache has needed lately.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    /// At most in this period, and in the one before.
    most: u32,
    before: u32,
    /// When this one ends.
    ends_ns: u64,
}

impl Trim {
    /// The cache uses so many now.
    pub(crate) fn note(&mut self, used: u32) {
        self.most = self.most.max(used);
    }

    /// When something may be to give back, of so many that take memory while so many are used.
    pub(crate) fn due(&mut self, now_ns: fn() -> u64, (taken, used): (u32, u32)) -> Option<u64> {
        if taken < used.saturating_add(WORTH) {
            return None;
        }
        if self.ends_ns == 0 {
            self.ends_ns = now_ns() + PERIOD_NS;
        }
        Some(self.ends_ns)
    }

    /// How many of these go back, if a period is over.
    pub(crate) fn turn(&mut self, now_ns: u64, (taken, used): (u32, u32)) -> u32 {
        if self.ends_ns == 0 || now_ns < self.ends_ns {
            return 0;
        }
        let needed = self.most.max(self.before).max(used);
        (self.before, self.most, self.ends_ns) = (self.most, used, 0);
        let over = taken.saturating_sub(needed);
        if over < WORTH { 0 } else { over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> u64 {
        1_000_000_000
    }

    #[test]
    fn what_was_not_needed_for_two_periods_goes_back() {
        let mut trim = Trim::default();
        trim.note(3000);
        assert_eq!(trim.due(clock, (3000, 2900)), None, "it is in use");
        let due = trim.due(clock, (3000, 10)).unwrap();
        assert_eq!(trim.turn(due - 1, (3000, 10)), 0);
        assert_eq!(trim.turn(due, (3000, 10)), 0, "it was needed just now");
        let due = trim.due(clock, (3000, 10)).unwrap();
        assert_eq!(trim.turn(due, (3000, 10)), 0, "and in the period before");
        let due = trim.due(clock, (3000, 10)).unwrap();
        assert_eq!(trim.turn(due, (3000, 10)), 2990);
        assert_eq!(trim.due(clock, (10, 10)), None, "nobody is woken");
    }

    #[test]
    fn what_is_needed_again_stays() {
        let mut trim = Trim::default();
        for _ in 0..10 {
            trim.note(3000);
            let due = trim.due(clock, (3000, 10)).unwrap();
            assert_eq!(trim.turn(due, (3000, 10)), 0);
        }
    }
}
