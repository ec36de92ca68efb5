//! The generator of everything random in a world: a seed gives a sequence (splitmix64), and a
//! sequence has branches, which are sequences of their own.
//!
//! Randomness follows causes. A task that begins something, another task or an event at a later
//! time, gives it a branch of its own sequence ([`Sched`](crate::exec::Sched)); a call of a program
//! begins a sequence that its number names. So a call's draws, and all that follows from them, do
//! not depend on what else happens in the world, and leaving that out does not change them.

use wire::mix64;

/// A seeded generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
    /// Where the next branch begins.
    branch: u64,
}

/// The first number of a key, so that no two uses name the same sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Branch {
    /// Of the world, not of anything in it.
    World,
    /// Of a machine.
    Machine,
    /// Of a call of a program.
    Call,
    /// Of a fault.
    Fault,
    /// Of a program that locks.
    Locker,
    /// Of the watching programs of a machine.
    Watcher,
    /// Of the server's wall clock.
    Wall,
    /// Of the maker of snapshots.
    Keeper,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Odd, and not the other one: branches do not follow the numbers.
const BRANCH_STEP: u64 = 0xd134_2543_de82_ef95;

impl Rng {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring sequences.
        let mut rng = Self {
            state: seed.wrapping_mul(STEP) ^ 0x5851_f42d_4c95_7f2d,
            branch: mix64(seed ^ BRANCH_STEP),
        };
        rng.next();
        rng
    }

    /// The sequence of this key, one of its own for each.
    pub(crate) fn of(branch: Branch, key: &[u64]) -> Self {
        let mixed = |so_far: u64, &part: &u64| mix64(so_far.wrapping_add(BRANCH_STEP) ^ part);
        Self::new(key.iter().fold(mixed(0, &(branch as u64)), mixed))
    }

    /// The next branch: draws from it change nothing here, nor the other way round.
    pub(crate) fn branch(&mut self) -> Self {
        self.branch = self.branch.wrapping_add(BRANCH_STEP);
        Self::new(mix64(self.branch))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        wire::splitmix64(&mut self.state)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True `permille` times of a thousand.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// An index, as likely as its weight.
    pub(crate) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, &weight) in weights.iter().enumerate() {
            if at < weight {
                return index;
            }
            at -= weight;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_branch_and_its_stem_change_nothing_of_each_other() {
        let mut stem = Rng::new(1);
        let mut drawn = Rng::new(1);
        drawn.next();
        let (mut one, mut other) = (stem.branch(), drawn.branch());
        assert_eq!(one.next(), other.next());
        one.next();
        assert_eq!(stem.branch().next(), drawn.branch().next());
        assert_eq!(stem.next(), Rng::new(1).next());
    }

    #[test]
    fn no_two_sequences_are_the_same() {
        let mut met = BTreeSet::new();
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            assert!(met.insert(rng.next()));
            for _ in 0..100 {
                assert!(met.insert(rng.branch().next()));
            }
            for index in 0..100 {
                assert!(met.insert(Rng::of(Branch::Call, &[seed, index]).next()));
                assert!(met.insert(Rng::of(Branch::Machine, &[seed, index]).next()));
            }
        }
    }
}
