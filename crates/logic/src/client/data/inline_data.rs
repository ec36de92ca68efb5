//! Bytes of small files that come with the answer to a look-up, or to a listing.
//!
//! A program that looks a file up mostly opens and reads it next: then one exchange is enough. One
//! that only walks through names would be sent bytes that nobody reads. So each block that came and
//! was not read costs some credit, each one that was read, or would have been, gives some; without
//! credit no bytes are asked for. The bytes count as fetched blocks: under the grant that came with
//! them, and only where nothing of the file is here.

use super::cache::BlockState;
use crate::client::api::Output;
use crate::client::{Client, Step};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{DirEntry, Fid, Op, Outcome, Right};

/// So many blocks may come in vain, and no more than this part of the cache.
const UNREAD_MAX: u32 = 2048;
const UNREAD_CACHE_PART: u32 = 4;
/// Blocks that may come in vain for each that is read.
const UNREAD_PER_READ: u32 = 2;

/// Are look-ups mostly followed by reads?
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    credit: u32,
    most: u32,
}

/// A part of the bytes beside a message: those of a file, from which one on and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Brought {
    pub(crate) fid: Fid,
    from: u32,
    bytes: u32,
}

impl Budget {
    pub(crate) fn new(slots: u32) -> Self {
        let most = UNREAD_MAX.min(slots / UNREAD_CACHE_PART);
        Self { credit: most, most }
    }

    /// How long a file may be whose bytes are wanted with this answer. `walked`: does somebody walk
    /// through directories, and read what is there?
    pub(crate) fn wanted(&self, op: &Op, bytes: u32, walked: bool) -> u32 {
        let asks = match op {
            Op::Lookup { .. } | Op::Prefetch { .. } => true,
            Op::ReadDir { .. } => walked,
            _ => false,
        };
        if asks && self.credit > 0 { bytes } else { 0 }
    }

    fn earn(&mut self, blocks: u32) {
        self.credit = self.most.min(
            self.credit
                .saturating_add(blocks.saturating_mul(UNREAD_PER_READ)),
        );
    }
}

/// The file whose bytes came with this answer and a grant that counts.
pub(crate) fn came(op: &Op, (outcome, granted): (&Outcome, &[Fid]), bytes: u32) -> Option<Brought> {
    let (Op::Lookup { .. }, Outcome::Entry(entry)) = (op, outcome) else {
        return None;
    };
    let (fid, from) = (entry.fid, 0);
    (bytes > 0 && granted.contains(&fid)).then_some(Brought { fid, from, bytes })
}

/// The same of the entries of a listing, of which so many bytes came in all.
pub(crate) fn listed(entries: &[DirEntry], bytes: u32) -> Vec<Brought> {
    let mut from = 0;
    let place = |entry: &DirEntry| {
        let brought = Brought {
            fid: entry.fid,
            from,
            bytes: entry.ahead,
        };
        from = from.saturating_add(entry.ahead).min(bytes);
        (entry.ahead > 0 && entry.ahead <= bytes - brought.from).then_some(brought)
    };
    entries.iter().filter_map(place).collect()
}

/// Up to which position of a listing bytes came, and whether nothing is behind it.
pub(crate) fn reach(entries: &[DirEntry], end: bool) -> (u64, bool) {
    let last = entries.iter().rposition(|entry| entry.ahead > 0);
    let position = last.map_or(0, |at| entries[at].position);
    (position, end && last == entries.len().checked_sub(1))
}

impl Client {
    /// A file's bytes have come, and a grant of it that counts. Are they kept?
    pub(crate) fn bytes_came(&mut self, step: &mut Step<'_>, brought: Brought) -> bool {
        let Brought { fid, from, bytes } = brought;
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        self.inline_budget.credit = self.inline_budget.credit.saturating_sub(blocks);
        let Some(node) = self.nodes.get_mut(&fid) else {
            return false;
        };
        let size = node.attr.as_ref().map_or(0, |attr| attr.size);
        // Bytes that were written through the server since the question left are not in the answer.
        let fits = node.token.right == Right::Shared
            && node.cached()
            && node.edits == 0
            && size == u64::from(bytes);
        let here = |block: u64| self.cache.find(fid, block).is_some();
        let all = 0..u64::from(blocks);
        if !fits || all.clone().any(here) || !self.cache.available(blocks as usize) {
            return false;
        }
        node.ahead = blocks;
        for block in all {
            let at = block as u32 * BLOCK_BYTES;
            let len = (bytes - at).min(BLOCK_BYTES);
            let taken = self.cache.take(fid, block, BlockState::Clean);
            let slot = taken.expect("slots were counted");
            let from = from + at;
            step.out.push(Output::Fill { slot, from, len });
        }
        true
    }

    /// A file is read from its cache: did its bytes come with a look-up?
    pub(crate) fn read_ahead_pays(&mut self, fid: Fid) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            let blocks = core::mem::take(&mut node.ahead);
            self.inline_budget.earn(blocks);
        }
    }

    /// A file is fetched from its beginning: could its bytes have come ahead?
    pub(crate) fn read_ahead_would_pay(&mut self, fid: Fid, from: u64) -> bool {
        let size = self.node(fid).attr.as_ref().map_or(0, |attr| attr.size);
        let pays = from == 0 && size <= u64::from(self.options.ahead_bytes);
        if pays {
            self.inline_budget
                .earn(size.div_ceil(u64::from(BLOCK_BYTES)) as u32);
        }
        pays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Name;

    #[test]
    fn who_only_walks_through_names_is_sent_bytes_for_a_while_only() {
        let look = Op::Lookup {
            dir: Fid::root(1),
            name: Name::new(b"x").expect("a name"),
        };
        let mut ahead = Budget::new(400);
        let came = (0..1000).filter(|_| {
            let wanted = ahead.wanted(&look, 4096, false) == 4096;
            ahead.credit = ahead.credit.saturating_sub(u32::from(wanted));
            wanted
        });
        assert_eq!(came.count(), 100);
        // And again as soon as somebody reads.
        ahead.earn(1);
        assert_eq!(ahead.wanted(&look, 4096, false), 4096);
        let stat = Op::GetAttr { fid: Fid::root(1) };
        assert_eq!(Budget::new(400).wanted(&stat, 4096, true), 0);
        let (dir, after, max) = (Fid::root(1), 0, 9);
        let list = Op::ReadDir { dir, after, max };
        assert_eq!(ahead.wanted(&list, 4096, false), 0);
        assert_eq!(ahead.wanted(&list, 4096, true), 4096);
    }

    #[test]
    fn bytes_of_entries_lie_one_behind_the_other_and_none_beyond_the_end() {
        let entry = |vnode: u64, ahead: u32| DirEntry {
            name: Name::new(b"x").expect("a name"),
            fid: Fid {
                vnode,
                ..Fid::root(1)
            },
            kind: wire::Kind::File,
            position: vnode,
            attr: None,
            ahead,
            bare: false,
        };
        let entries = [entry(2, 10), entry(3, 0), entry(4, 5), entry(5, 7)];
        let places: Vec<_> = listed(&entries, 16)
            .iter()
            .map(|brought| (brought.fid.vnode, brought.from, brought.bytes))
            .collect();
        assert_eq!(places, [(2, 0, 10), (4, 10, 5)]);
    }
}
