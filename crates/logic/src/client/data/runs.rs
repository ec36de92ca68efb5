//! Blocks that lack, as the requests that fetch them.

use alloc::vec::Vec;

/// Most blocks that one request fetches.
const FILL_BLOCKS: u64 = 256;

/// Runs of blocks that one request each fetches: the first block, and how many.
pub(crate) fn runs(blocks: Vec<u64>) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == block && *count < FILL_BLOCKS => {
                *count += 1;
            }
            _ => runs.push((block, 1)),
        }
    }
    runs
}
