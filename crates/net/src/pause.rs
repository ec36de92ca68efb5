//! The pauses between attempts to connect: the clients of a restarted server do not come all at
//! once.
//!
//! Guarantees: a pause is random, between 20 ms and 1 s; its bound doubles with each.

/// Bounds of the pause between attempts.
pub(crate) const PAUSE_MIN_NS: u64 = 20_000_000;
pub(crate) const PAUSE_MAX_NS: u64 = 1_000_000_000;

/// The pauses: drawn from a range that doubles.
pub(crate) struct Pause {
    random: u64,
    ceiling_ns: u64,
}

impl Pause {
    pub(crate) fn new(seed: u64) -> Pause {
        Pause {
            random: seed,
            ceiling_ns: 2 * PAUSE_MIN_NS,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.ceiling_ns = 2 * PAUSE_MIN_NS;
    }

    pub(crate) fn next_ns(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood): good enough to spread clients. Written out, since
        // this crate knows no word of the protocol, `wire::splitmix64` included.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let pause_ns = PAUSE_MIN_NS + mixed % (self.ceiling_ns - PAUSE_MIN_NS + 1);
        self.ceiling_ns = (2 * self.ceiling_ns).min(PAUSE_MAX_NS);
        pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds_and_differ_by_seed() {
        let draw = |seed| {
            let mut pause = Pause::new(seed);
            (0..200).map(|_| pause.next_ns()).collect::<Vec<_>>()
        };
        let first = draw(1);
        assert!(
            first
                .iter()
                .all(|ns| (PAUSE_MIN_NS..=PAUSE_MAX_NS).contains(ns))
        );
        assert!(first[0] <= 2 * PAUSE_MIN_NS, "the first attempt comes soon");
        assert!(first.iter().max() > Some(&(PAUSE_MAX_NS / 2)), "they grow");
        assert_ne!(first, draw(2));
        assert_eq!(first, draw(1), "one seed, one sequence");
    }
}
