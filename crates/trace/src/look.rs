//! The shape of a trace: how much is read, shared and in order.

use crate::access::{Access, Op};
use std::collections::HashMap;

/// The counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Accesses by operation, in the order of [`Op::ALL`].
    pub ops: [u64; 5],
    /// Reads that continue where the same client's last read of the same file ended, or begin it.
    pub in_order: u64,
    /// The time of the last access.
    pub last_us: u64,
    /// Of each block: its first client, and whether there was another one.
    blocks: HashMap<(u64, u32), (u32, bool)>,
    next: HashMap<(u32, u64), u32>,
}

impl Look {
    /// The next access.
    pub fn see(&mut self, access: &Access) {
        self.ops[access.op as usize] += 1;
        self.last_us = self.last_us.max(access.time_us);
        if !matches!(access.op, Op::Read | Op::Write) {
            return;
        }
        let block = self.blocks.entry((access.file, access.block));
        let (first, shared) = block.or_insert((access.client, false));
        *shared |= *first != access.client;
        let after = access.block.wrapping_add(1);
        let next = self
            .next
            .insert((access.client, access.file), after)
            .unwrap_or(0);
        if access.op == Op::Read && (access.block == next || access.block == 0) {
            self.in_order += 1;
        }
    }

    /// Different blocks, and how many of them more than one client has used.
    pub fn blocks(&self) -> (u64, u64) {
        let shared = self.blocks.values().filter(|(_, shared)| *shared).count();
        (self.blocks.len() as u64, shared as u64)
    }
}
