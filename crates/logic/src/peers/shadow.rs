//! Would the fleet do better if blocks that are used once did not push out what is there? Two small
//! models of the whole fleet as one memory find out, on a sample of the names: one replaces the
//! block used longest ago, the other one keeps new blocks apart until they are used again.
//!
//! Guarantees: both models see the same uses; the verdict changes only after enough of them, and
//! only for a clear difference.

use super::Name;
use super::shelf::Shelf;

/// A model holds about so many blocks.
const MODEL_BLOCKS: usize = 1024;
/// So many uses lie between two verdicts.
const USES: u32 = 512;
/// New blocks have a tenth of the memory.
pub(super) const FRESH_PART: usize = 10;

/// Lists of the second model.
const MAIN: u8 = 0;
const FRESH: u8 = 1;

/// Which names are in the sample: one of two to the power of this.
pub(super) fn sample_bits(all_blocks: usize) -> u32 {
    (all_blocks / MODEL_BLOCKS).max(1).ilog2()
}

/// Is the name in the sample?
pub(super) fn is_sampled(name: Name, bits: u32) -> bool {
    wire::mix64(name.0).trailing_zeros() >= bits
}

/// The two models.
pub(super) struct Shadow {
    bits: u32,
    now: u32,
    by_age: Shelf,
    kept_apart: Shelf,
    /// Hits of each, old ones fading.
    hits: [u32; 2],
    /// Uses that both have seen, old ones fading.
    uses: u32,
    since: u32,
    /// The verdict: new blocks are to be kept apart.
    pub(super) apart: bool,
}

impl Shadow {
    pub(super) fn new(all_blocks: usize) -> Self {
        let bits = sample_bits(all_blocks);
        let blocks = (all_blocks >> bits).max(1);
        Self {
            bits,
            now: 0,
            by_age: Shelf::new(blocks),
            kept_apart: Shelf::new(blocks),
            hits: [0; 2],
            uses: 0,
            since: 0,
            apart: false,
        }
    }

    /// A block was used somewhere in the fleet.
    pub(super) fn used(&mut self, name: Name) {
        if !is_sampled(name, self.bits) {
            return;
        }
        self.now += 1;
        let now = self.now;
        self.hits[0] += u32::from(use_by_age(&mut self.by_age, now, name));
        self.hits[1] += u32::from(use_apart(&mut self.kept_apart, now, name));
        self.uses += 1;
        self.since += 1;
        if self.since == USES {
            self.since = 0;
            self.judge();
        }
    }

    /// The difference has to be a fiftieth of all uses, in either direction.
    fn judge(&mut self) {
        let clear = self.uses / 50;
        let [by_age, apart] = self.hits;
        if apart > by_age + clear {
            self.apart = true;
        } else if by_age > apart + clear {
            self.apart = false;
        }
        self.hits = self.hits.map(|hits| hits - hits / 4);
        self.uses -= self.uses / 4;
    }
}

fn use_by_age(shelf: &mut Shelf, now: u32, name: Name) -> bool {
    if let Some(slot) = shelf.find(name) {
        shelf.touch(now, slot, MAIN);
        return true;
    }
    if shelf.is_full()
        && let Some(oldest) = shelf.oldest(MAIN)
    {
        shelf.remove(oldest);
    }
    shelf.insert(now, name, MAIN);
    false
}

fn use_apart(shelf: &mut Shelf, now: u32, name: Name) -> bool {
    if let Some(slot) = shelf.find(name) {
        shelf.touch(now, slot, MAIN);
        return true;
    }
    if !shelf.is_full() {
        shelf.insert(now, name, MAIN);
        return false;
    }
    let fresh = shelf.oldest(FRESH);
    let many = shelf.length(FRESH) * FRESH_PART >= shelf.capacity();
    let gone = fresh.filter(|_| many).or(shelf.oldest(MAIN)).or(fresh);
    if let Some(gone) = gone {
        shelf.remove(gone);
    }
    shelf.insert(now, name, FRESH);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over twice the memory is better served by keeping what is there; a working set that
    /// moves on is not. The verdict follows.
    #[test]
    fn the_verdict_follows_the_work() {
        let blocks = 64 * MODEL_BLOCKS;
        let mut shadow = Shadow::new(blocks);
        for _ in 0..4 {
            for name in 0..2 * blocks as u64 {
                shadow.used(Name(name));
            }
        }
        assert!(shadow.apart, "a loop: {:?}", shadow.hits);
        for step in 0..8 * blocks as u64 {
            // Each block is used twice, with half of the memory between the two.
            shadow.used(Name(1 << 40 | step));
            shadow.used(Name(1 << 40 | step.saturating_sub(blocks as u64 / 2)));
        }
        assert!(!shadow.apart, "a working set that moves: {:?}", shadow.hits);
    }
}
