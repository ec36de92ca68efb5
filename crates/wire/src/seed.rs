//! The meaning of a seed: people write seeds down, and hosts agree on what follows from a number.
//!
//! Guarantees: the same seed gives the same numbers on every machine and in every version. They are
//! no secrets: an observer of one of them knows all that follow.

/// The next number of a sequence whose seed, and then state, this is: SplitMix64 (Steele, Lea and
/// Flood, "Fast splittable pseudorandom number generators").
#[inline]
pub fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix64(*state)
}

/// Its last step: a number that shows nothing of the pattern in the numbers that it is made of.
#[inline]
pub fn mix64(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::splitmix64;

    /// The numbers that other programs publish for this seed.
    #[test]
    fn a_seed_means_what_it_always_meant() {
        let mut state = 1_234_567;
        let numbers = [(); 5].map(|()| splitmix64(&mut state));
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }
}
