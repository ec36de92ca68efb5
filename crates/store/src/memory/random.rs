//! Numbers from a seed, for what a crash leaves.

/// The generator.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, end: u64) -> u64 {
        wire::splitmix64(&mut self.0) % end.max(1)
    }
}
