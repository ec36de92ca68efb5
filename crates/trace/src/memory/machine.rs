//! A diskless machine of the paper: one processor, one way to the file server, and the memory.
//! The numbers here are the parameters of both benchmarks.

use super::pools::{Cost, Division, Pools};
use wire::Time;

pub(super) const MS: Time = 1_000_000;
pub(super) const SECOND: Time = 1000 * MS;
/// A page of memory, bytes: a Sun-3's. A page of the file cache is as large, as two blocks.
pub(super) const PAGE: u64 = 8192;
/// The kernel's share of a machine's memory (section 6.5).
const KERNEL: u64 = 1_363_149;
/// The file cache never has less: 64 KiB (table 6-4).
const LEAST: usize = 8;
/// The way of a page from or to the server, whose memory has it: 8 KiB at about 600 KB/s.
const NETWORK: Time = 14 * MS;
/// The processor's cost of a page: the fault, or the call, and the protocol.
const PROCESSOR: Time = 4 * MS;
/// A changed block is written back at this age, which is looked for so often.
const DELAY: Time = 30 * SECOND;
const SCAN: Time = 5 * SECOND;

/// Pages of so many bytes.
pub(super) fn pages(bytes: u64) -> u32 {
    bytes.div_ceil(PAGE) as u32
}

pub(super) struct Machine {
    pub(super) pools: Pools,
    processor: Time,
    network: Time,
    scanned: Time,
}

impl Machine {
    pub(super) fn new(memory: u64, division: Division) -> Self {
        let frames = (memory - KERNEL) / PAGE;
        Self {
            pools: Pools::new(frames as usize, LEAST, division),
            processor: 0,
            network: 0,
            scanned: 0,
        }
    }

    /// Computes for so long, after the program that computes now; returns when that is done.
    pub(super) fn compute(&mut self, now: Time, time: Time) -> Time {
        self.processor = self.processor.max(now) + time;
        self.processor
    }

    /// The same of a program that goes before all others, as schedulers let interactive ones.
    pub(super) fn compute_first(&mut self, now: Time, time: Time) -> Time {
        self.processor = self.processor.max(now) + time;
        now + time
    }

    /// Pays for a use of a page or a block; when the program goes on. It waits for what is fetched;
    /// what has to leave for it leaves before that, on the same network.
    pub(super) fn pay(&mut self, now: Time, cost: Cost, first: bool) -> Time {
        let mut now = now;
        for (moves, waits) in [
            (cost.page_out, false),
            (cost.write_back, false),
            (cost.fetched, true),
        ] {
            if !moves {
                continue;
            }
            let computed = match first {
                true => self.compute_first(now, PROCESSOR),
                false => self.compute(now, PROCESSOR),
            };
            self.network = self.network.max(computed) + NETWORK;
            now = if waits { self.network } else { computed };
        }
        now
    }

    /// Writes back what is old, beside the programs.
    pub(super) fn tend(&mut self, now: Time) {
        if now >= self.scanned + SCAN {
            self.scanned = now;
            let count = self.pools.write_back(now.saturating_sub(DELAY));
            self.network = self.network.max(now) + count * NETWORK;
            self.processor = self.processor.max(now) + count * PROCESSOR;
        }
    }
}
