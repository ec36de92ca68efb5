//! Memory for cached blocks: whole pages of the kernel, one for each block.
//!
//! Guarantees: a block is one page, so any block goes back to the machine by itself, whatever its
//! neighbours do; an allocator can give back only pages in which nothing is used. The pages that no
//! block uses stay until [`Pool::trim`], which gives them back without a lock held: nobody waits
//! for it. A block keeps its pool's memory mapped, also when the pool is dropped first.
//!
//! A page is either of one [`Block`], which alone reads and writes it, or on one of the pool's
//! lists, where nobody does. The lists are behind one lock.

mod region;

use parking_lot::Mutex;
use region::{Page, Region};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// Pages of a region: address space that is asked for at once (32 MiB).
const REGION_PAGES: usize = 8192;
/// Pages that the kernel fills at once: a fault for each would cost more than the copy into it.
const FILLED: usize = 64;

/// Where the blocks of one cache come from.
#[derive(Clone, Default)]
pub struct Pool(Arc<Shared>);

#[derive(Default)]
struct Shared(Mutex<Lists>);

/// The pages that no block uses.
#[derive(Default)]
struct Lists {
    regions: Vec<Region>,
    /// Memory is behind them; the last one is used next.
    warm: Vec<Page>,
    /// No memory is: given back, or never used. Runs of pages; the last one is used next.
    cold: Vec<(Page, usize)>,
    /// How many pages have memory: those of blocks, and the warm ones.
    resident: usize,
}

impl Lists {
    fn take(&mut self) -> Page {
        if self.warm.is_empty() {
            self.fill();
        }
        self.warm.pop().expect("pages were added just now")
    }

    /// Has the kernel put memory behind some pages.
    fn fill(&mut self) {
        let (first, count) = self.cold.pop().unwrap_or_else(|| {
            let region = Region::new(REGION_PAGES);
            let first = region.first();
            self.regions.push(region);
            (first, REGION_PAGES)
        });
        let filled = count.min(FILLED);
        if filled < count {
            self.cold.push((first.after(filled), count - filled));
        }
        first.fill(filled);
        self.resident += filled;
        self.warm
            .extend((0..filled).rev().map(|at| first.after(at)));
    }
}

impl Pool {
    /// A block with whatever was in its page before; of this process, or zeros.
    #[must_use]
    pub fn take(&self) -> Block {
        let page = self.0.0.lock().take();
        Block {
            page,
            pool: Arc::clone(&self.0),
        }
    }

    /// How many pages have memory: those of blocks, and some that no block uses.
    #[must_use]
    pub fn resident(&self) -> usize {
        self.0.0.lock().resident
    }

    /// Gives back the memory of all pages that no block uses, but for so many. Says how many.
    pub fn trim(&self, keep: usize) -> usize {
        let mut going = {
            let mut lists = self.0.0.lock();
            // The ones used last stay: they are in the processor's caches.
            let count = lists.warm.len().saturating_sub(keep);
            lists.warm.drain(..count).collect::<Vec<_>>()
        };
        if going.is_empty() {
            return 0;
        }
        going.sort_unstable();
        let count = going.len();
        let runs = runs(&going);
        for (first, count) in &runs {
            first.give_back(*count);
        }
        let mut lists = self.0.0.lock();
        lists.resident -= count;
        lists.cold.extend(runs);
        count
    }
}

/// Pages in their order, as runs.
fn runs(pages: &[Page]) -> Vec<(Page, usize)> {
    let mut runs: Vec<(Page, usize)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((first, count)) if first.after(*count) == *page => *count += 1,
            _ => runs.push((*page, 1)),
        }
    }
    runs
}

/// A block's memory, of one owner.
pub struct Block {
    page: Page,
    pool: Arc<Shared>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.0.lock().warm.push(self.page);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this block owns the page, and its pool keeps that mapped; a writer has the block
        // alone.
        unsafe { self.page.bytes() }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has the block.
        unsafe { self.page.bytes_mut() }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A copy in a page of its own.
impl Clone for Block {
    fn clone(&self) -> Block {
        let mut copy = Pool(Arc::clone(&self.pool)).take();
        copy.copy_from_slice(self);
        copy
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Block")
    }
}
