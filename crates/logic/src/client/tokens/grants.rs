//! Grants: which of those that answers carry count.
//!
//! Guarantees: no grant is used from before the last recall of its object, or while a recall is
//! being answered; and none of a file with stranded bytes but that of the claim for these.

use crate::client::Client;
use crate::client::mutant::Mutant;
use wire::{Grant, Right};

impl Client {
    /// Takes over a grant, if it counts: none of a file whose stranded bytes are not claimed. A
    /// recall of it would wait for a read that holds a page, and the read waits for the claim.
    pub(crate) fn accept(&mut self, grant: Grant) -> bool {
        let node = self.node(grant.fid);
        node.token.seen = node.token.seen.max(grant.epoch);
        !node.stranded && self.accept_claimed(grant)
    }

    /// The same of a file that is claimed for its stranded bytes.
    pub(crate) fn accept_claimed(&mut self, grant: Grant) -> bool {
        let trusting = self.options.mutant == Some(Mutant::IgnoresEpochs);
        let node = self.node(grant.fid);
        node.token.seen = node.token.seen.max(grant.epoch);
        if (grant.epoch < node.token.void || node.drain.is_some()) && !trusting {
            return false;
        }
        if node.token.right < Right::Shared && grant.right >= Right::Shared {
            node.attr = None;
            node.forget_xattrs();
        }
        node.token.right = node.token.right.max(grant.right);
        // An answer that a later one has overtaken vouches for nothing.
        let latest = grant.epoch > node.token.grant || trusting;
        node.token.grant = node.token.grant.max(grant.epoch);
        latest
    }
}
