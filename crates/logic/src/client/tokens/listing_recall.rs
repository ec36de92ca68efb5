//! Files that somebody else lists, and may look at next.
//!
//! Guarantees: a holder that does not write gives up Exclusive soon after such a question, so that
//! the look-ups that follow a listing ask it nothing.

use crate::client::{Client, Step};
use wire::{Epoch, Fid, Right};

impl Client {
    /// Somebody lists it, and may look at it next.
    pub(super) fn is_listed(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch) {
        let node = self.node(fid);
        if let Some(drain) = node.drain.as_mut() {
            drain.epoch = drain.epoch.max(epoch);
            return;
        }
        let unused = !node.directory && !node.unlinked && !node.hold(0).write;
        node.writeback.listed = unused && node.token.right == Right::Exclusive;
        self.answer_recall(step, fid, epoch, None);
        if self.node(fid).writeback.listed {
            self.flush(step, fid);
        }
    }

    /// All is written back of a file that somebody lists: Shared is enough for a client that does
    /// not write, and lets others have it too.
    pub(crate) fn step_down_listed(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if !core::mem::take(&mut node.writeback.listed) {
            return;
        }
        let changing = node.hold(0).write || node.pending.resizing + node.pending.remote_writes > 0;
        let held = node.token.right == Right::Exclusive && node.drain.is_none() && !node.unlinked;
        if held && !changing && !self.owes(fid) {
            self.release(step, fid, Right::Shared);
        }
    }
}
