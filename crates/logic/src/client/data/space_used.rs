//! How many bytes a file occupies (`st_blocks`), as long as the server does not know all of it.
//!
//! Guarantees: the answer counts the blocks that the server has and those that are dirty here, at
//! once. It is what the server will say when all is written back; only of blocks that are changed
//! in a file with holes which others have written it is not known whether they fill one. These
//! count as new until they are written back, and the kernel does not keep such an answer. It is
//! never more than the size, and never 0 for a file with dirty bytes: programs that copy sparsely
//! believe it.

use super::cache::{BlockState, There};
use crate::client::Client;
use crate::client::api::Slot;
use crate::client::mutant::Mutant;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Fid};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Client {
    /// A block that was clean, or not here, is about to become dirty: does the server have bytes of
    /// it?
    pub(crate) fn place(&mut self, fid: Fid, (block, slot): (u64, Slot)) {
        if self.cache.there(slot) == There::Yes {
            return;
        }
        let (used, size) = self.node(fid).stored;
        let there = match block * BLOCK < size {
            false => There::No,
            true if used >= size => There::Yes,
            true => There::Unknown,
        };
        self.cache.set_there(slot, there);
    }

    /// Its dirty blocks or the server's blocks have changed: the bytes that it occupies are counted
    /// anew.
    pub(crate) fn count_used(&mut self, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let ((used, stored), Some(attr)) = (node.stored, node.attr.as_mut()) else {
            return;
        };
        if self.options.mutant == Some(Mutant::ForgetsDirtyBytes) {
            attr.used_bytes = used;
            return;
        }
        let here = self.cache.changed(fid);
        node.unsure = here.unknown > 0;
        let changed = |block: u64| match self.cache.find(fid, block)? {
            (slot, BlockState::Dirty(_) | BlockState::Sending(_)) => Some(self.cache.there(slot)),
            _ => None,
        };
        let mut all = used + u64::from(here.new) * BLOCK;
        let mut least = u64::from(here.count) * BLOCK;
        // The last block is not written to its end.
        let rest = attr.size % BLOCK;
        let last = (rest > 0).then(|| changed(attr.size / BLOCK)).flatten();
        least -= last.map_or(0, |_| BLOCK - rest);
        all -= last
            .filter(|there| *there != There::Yes)
            .map_or(0, |_| BLOCK - rest);
        // The block in which the file ended at the server goes on.
        let grown = stored % BLOCK;
        if grown > 0 && attr.size > stored && changed(stored / BLOCK) == Some(There::Yes) {
            all += (stored - grown + BLOCK).min(attr.size) - stored;
        }
        all = all.max(least);
        attr.used_bytes = all.min(attr.size);
    }

    /// The server has set its size.
    pub(crate) fn resized(&mut self, fid: Fid, attr: &Attr) {
        let node = self.node(fid);
        let (_, before) = core::mem::replace(&mut node.stored, (attr.used_bytes, attr.size));
        node.version = attr.version;
        // Bytes that are added to its last block lie in a hole.
        if attr.size > before
            && before % BLOCK > 0
            && let Some((slot, _)) = self.cache.find(fid, before / BLOCK)
        {
            self.cache.set_there(slot, There::Unknown);
        }
        self.count_used(fid);
    }
}
