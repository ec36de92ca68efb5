//! Training: in each epoch every sample is read once, in a new random order, by whichever machine
//! has its turn. No order of use tells what is used next; a block that stays in memory is a hit
//! each epoch.

use super::{Lots, Runs};
use crate::access::{Access, Op};

/// Samples, and the blocks of each: twice what the fleet can keep.
const SAMPLES: u64 = 10_000;
const SAMPLE_BLOCKS: u32 = 8;

pub(super) struct Epochs {
    clients: u64,
    lots: Lots,
    order: Vec<u64>,
    at: usize,
    runs: Runs,
}

impl Epochs {
    pub(super) fn new(clients: u16, seed: u64) -> Self {
        Self {
            clients: u64::from(clients),
            lots: Lots::new(seed, 1),
            order: (0..SAMPLES).collect(),
            at: usize::MAX,
            runs: Runs::default(),
        }
    }
}

impl Iterator for Epochs {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if let Some(access) = self.runs.next() {
            return Some(access);
        }
        if self.at >= self.order.len() {
            for last in (1..self.order.len()).rev() {
                let other = self.lots.below(last as u64 + 1) as usize;
                self.order.swap(last, other);
            }
            self.at = 0;
        }
        let client = self.at as u64 % self.clients;
        self.runs
            .push(client, Op::Read, self.order[self.at], SAMPLE_BLOCKS);
        self.at += 1;
        self.runs.next()
    }
}
