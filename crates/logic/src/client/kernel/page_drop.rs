//! Pages that the kernel drops again, right behind the answer by which they may have come to be
//! zeros (see [`page_sizes`](super::page_sizes)).
//!
//! Guarantee: they stay no longer than the kernel takes. It drops one page after the other, and
//! waits for one that a program is reading; so a read that has come since is answered at once, also
//! while a recall keeps others waiting.

use super::page_sizes::Sizes;
use crate::Ticket;
use crate::client::data::read_write::young;
use crate::client::node::{Node, Range};
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Step};
use alloc::collections::BTreeSet;
use wire::Fid;

impl Sizes {
    fn drops_again(&mut self, (from, to): Range) {
        let known = self.again.unwrap_or((from, to));
        self.again = Some((from.min(known.0), to.max(known.1)));
    }
}

impl Node {
    /// May a read go on, although a recall may keep reads waiting? One of pages (`None`: it brings
    /// the kernel none) that are being dropped again is freed.
    pub(crate) fn may_read(&mut self, ticket: Ticket, pages: Option<Range>) -> bool {
        let again = self.kernel.sizes.again;
        let Some(drain) = self.drain.as_mut() else {
            return true;
        };
        if let (Some((first, last)), Some((from, to))) = (again, pages)
            && from < last
            && first < to
        {
            drain.freed.insert(ticket);
        }
        drain.freed.contains(&ticket)
    }
}

impl Client {
    /// Drops pages of the kernel that it has just been given, or has just spoilt.
    pub(crate) fn drop_again(&mut self, step: &mut Step<'_>, fid: Fid, range: Range) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let ranges = node.without_reads(&[range], &BTreeSet::new());
        for range in &ranges {
            node.kernel.sizes.drops_again(*range);
        }
        if !ranges.is_empty() {
            let young = young(node.kernel.told_at(), step.now);
            let what = Invalidate::Inode { fid, ranges, young };
            self.invalidate(step, what, After::Nothing);
        }
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.kernel.sizes.trust_zeros();
        }
    }
}
