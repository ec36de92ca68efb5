//! Pages that the kernel may have cut off by itself, and that it writes back.
//!
//! A program stores into a page through a mapping. While the page was on its way to the kernel, one
//! more thread took in an answer with a smaller size. Linux cuts the page off there once the bytes
//! are there (`truncate_pagecache` waits for that), and writes the zeros back with what was stored,
//! although another machine has made the file longer meanwhile. The page is dropped right behind
//! the answer; until then the client takes what comes back of it with care.
//!
//! A store between the bytes and the cut would be lost all the same. So a smaller size than the
//! kernel believes in is not told while it waits for such a page: the question waits.
//!
//! Guarantee: zeros in the part that may have been cut off change nothing. A program that stores
//! zeros there in the moment between is not told from the kernel.

use super::page_sizes::Sizes;
use crate::Ticket;
use crate::client::Client;
use crate::client::api::How;
use crate::client::node::{Node, Range};
use wire::{Attr, Fid};

impl Sizes {
    /// The kernel may have cut off these bytes of a page that it has.
    pub(super) fn doubt_zeros(&mut self, (from, to): Range) {
        let known = self.spoilt.unwrap_or((from, to));
        self.spoilt = Some((from.min(known.0), to.max(known.1)));
    }

    /// The bytes that it has cut off are gone when it drops no pages any more, or need not.
    pub(super) fn trust_zeros(&mut self) {
        self.spoilt = self.spoilt.filter(|_| self.drops > 0);
        self.again = self.again.filter(|_| self.drops > 0);
    }
}

impl Node {
    /// Would the kernel, told this size now, cut off a page that it waits for?
    pub(super) fn is_cut_by(&self, size: u64) -> bool {
        let smaller = !self.directory && size < self.kernel.sizes.most;
        let mut reads = self.kernel.reading.values();
        smaller && reads.any(|reading| size < reading.range.1)
    }

    /// Its attributes, if they may be said without asking, and told to the kernel now.
    pub(crate) fn tellable(&self) -> Option<&Attr> {
        self.held().filter(|attr| !self.is_cut_by(attr.size))
    }
}

impl Client {
    /// Does a look-up wait, since the size that it has found would cut off a page?
    pub(crate) fn waits_for_page(&mut self, ticket: Ticket, fid: Fid, size: u64) -> bool {
        let node = self.nodes.get_mut(&fid);
        let Some(node) = node.filter(|node| node.is_cut_by(size)) else {
            return false;
        };
        node.behind.push(ticket);
        true
    }

    /// The part of a write whose zeros may be the kernel's.
    pub(crate) fn spoilt_of(&self, fid: Fid, (from, to): Range, how: How) -> Option<Range> {
        let node = self.nodes.get(&fid).filter(|_| how == How::Paged)?;
        let spoilt = node.kernel.sizes.spoilt?;
        (spoilt.0 < to && from < spoilt.1).then_some(spoilt)
    }
}

/// A range in parts, each of which is in another one or outside of it.
pub(crate) fn parts(
    (from, to): Range,
    spoilt: Option<Range>,
) -> impl Iterator<Item = (Range, bool)> {
    let (first, last) = spoilt.unwrap_or((to, to));
    let (first, last) = (first.clamp(from, to), last.clamp(from, to));
    let all = [
        ((from, first), false),
        ((first, last), true),
        ((last, to), false),
    ];
    all.into_iter().filter(|((from, to), _)| from < to)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    #[test]
    fn a_write_is_split_where_the_kernel_may_have_cut() {
        let parts = |of, spoilt| super::parts(of, spoilt).collect::<Vec<_>>();
        assert_eq!(parts((0, 8), None), [((0, 8), false)]);
        assert_eq!(parts((0, 8), Some((2, 4))).len(), 3);
        let tail = [((4, 5), false), ((5, 8), true)];
        assert_eq!(parts((4, 8), Some((5, 9))), tail);
        assert_eq!(parts((4, 8), Some((0, 9))), [((4, 8), true)]);
        assert_eq!(parts((4, 8), Some((8, 9))), [((4, 8), false)]);
        assert_eq!(parts((4, 8), Some((0, 4))), [((4, 8), false)]);
    }
}
