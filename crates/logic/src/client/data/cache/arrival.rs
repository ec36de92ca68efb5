//! Blocks that wait for their bytes.
//!
//! Guarantees: a block takes the bytes of the fill that asked for it last, and of no earlier one.
//! While such a one is on its way the block may be changed here, written back, given up and asked
//! for once more.

use super::{BlockState, Cache};
use crate::client::api::Slot;
use alloc::vec::Vec;
use wire::Fid;

impl BlockState {
    pub(crate) fn is_filling(self) -> bool {
        matches!(self, Self::Filling(_))
    }
}

impl Cache {
    /// The number of a fill that begins now.
    pub(crate) fn begin_fill(&mut self) -> u64 {
        self.fills += 1;
        self.fills
    }

    /// The slot of a block that waits for the bytes of this fill.
    pub(crate) fn awaits(&self, fid: Fid, block: u64, fill: u64) -> Option<Slot> {
        let (slot, state) = self.find(fid, block)?;
        (state == BlockState::Filling(fill)).then_some(slot)
    }

    /// Gives up the blocks of a file that wait for their bytes.
    pub(crate) fn drop_filling(&mut self, fid: Fid) {
        let filling =
            |(block, _, state): (u64, Slot, BlockState)| state.is_filling().then_some(block);
        let blocks: Vec<u64> = self.blocks(fid, 0).filter_map(filling).collect();
        for block in blocks {
            self.drop_block(fid, block);
        }
    }
}
