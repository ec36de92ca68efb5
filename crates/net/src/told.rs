//! A bound for the log: of many refusals some are logged, and of the others the number.

/// So many refusals are logged in such a time, and of others the number.
const TOLD_MAX: u32 = 16;
const TOLD_NS: u64 = 10_000_000_000;
/// The refusals that were logged lately, since when, and how many were not.
#[derive(Default)]
pub(crate) struct Told {
    since_ns: u64,
    count: u32,
    hushed: u64,
}

impl Told {
    /// Is one more logged? If it is, so is the number of those before that were not.
    pub(crate) fn takes(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns >= self.since_ns + TOLD_NS {
            (self.since_ns, self.count) = (now_ns, 0);
        }
        if self.count >= TOLD_MAX {
            self.hushed += 1;
            return None;
        }
        self.count += 1;
        Some(std::mem::take(&mut self.hushed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_refusals_the_number_is_logged() {
        let mut told = Told::default();
        let first = TOLD_NS;
        assert!((0..TOLD_MAX).all(|_| told.takes(first) == Some(0)));
        assert!((0..7).all(|_| told.takes(first + 1).is_none()));
        assert_eq!(told.takes(first + TOLD_NS), Some(7));
        assert_eq!(told.takes(first + TOLD_NS), Some(0));
    }
}
