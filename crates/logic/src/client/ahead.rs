//! Bytes of small files that come with the answer to a look-up.
//!
//! Who looks a file up mostly opens and reads it next: then one exchange is enough. Who only walks
//! through names would be sent what nobody reads. So each file that came and was not read costs
//! some credit, each one that was read, or would have been, gives some; without credit no bytes are
//! asked for. The bytes count as fetched blocks: under the grant that came with them, and only
//! where nothing of the file is here.

use super::api::Output;
use super::cache::State;
use super::{Client, Step};
use wire::limits::BLOCK_BYTES;
use wire::{Fid, Op, Outcome, Right};

/// So many files may come in vain.
const MOST: u32 = 64;
/// Files that may come in vain for each that is read.
const FOR_EACH: u32 = 2;

/// Are look-ups mostly followed by reads?
#[derive(Clone, Debug)]
pub(super) struct Ahead {
    credit: u32,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { credit: MOST }
    }
}

impl Ahead {
    /// How long a file may be whose bytes are wanted with this answer.
    pub(super) fn wanted(&self, op: &Op, bytes: u32) -> u32 {
        match op {
            Op::Lookup { .. } if self.credit > 0 => bytes,
            _ => 0,
        }
    }

    fn earn(&mut self) {
        self.credit = MOST.min(self.credit + FOR_EACH);
    }
}

/// The file whose bytes came with this answer and a grant that counts.
pub(super) fn came(op: &Op, (outcome, granted): (&Outcome, &[Fid]), bytes: u32) -> Option<Fid> {
    let (Op::Lookup { .. }, Outcome::Entry(entry)) = (op, outcome) else {
        return None;
    };
    (bytes > 0 && granted.contains(&entry.fid)).then_some(entry.fid)
}

impl Client {
    /// A look-up has brought a file's bytes, and a grant that counts.
    pub(super) fn bytes_came(&mut self, step: &mut Step<'_>, fid: Fid, bytes: u32) {
        self.ahead.credit = self.ahead.credit.saturating_sub(1);
        let blocks = u64::from(bytes.div_ceil(BLOCK_BYTES));
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let size = node.attr.as_ref().map_or(0, |attr| attr.size);
        // What was written through the server since the question left is not in the bytes.
        let fits = node.right == Right::Shared
            && node.cached()
            && node.fills == 0
            && size == u64::from(bytes);
        let here = |block: u64| self.cache.find(fid, block).is_some();
        if !fits || (0..blocks).any(here) || !self.cache.available(blocks as usize) {
            return;
        }
        node.ahead = true;
        for block in 0..blocks {
            let from = block as u32 * BLOCK_BYTES;
            let len = (bytes - from).min(BLOCK_BYTES);
            let taken = self.cache.take(fid, block, State::Clean);
            let slot = taken.expect("slots were counted");
            step.out.push(Output::Fill { slot, from, len });
        }
    }

    /// A file is read from its cache: did its bytes come with a look-up?
    pub(super) fn read_ahead_pays(&mut self, fid: Fid) {
        let node = self.nodes.get_mut(&fid);
        if node.is_some_and(|node| core::mem::take(&mut node.ahead)) {
            self.ahead.earn();
        }
    }

    /// A file is fetched from its beginning: could its bytes have come with its look-up?
    pub(super) fn read_ahead_would_pay(&mut self, fid: Fid, from: u64) {
        let size = self.node(fid).attr.as_ref().map_or(0, |attr| attr.size);
        if from == 0 && size <= u64::from(self.options.ahead_bytes) {
            self.ahead.earn();
        }
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
        let mut ahead = Ahead::default();
        let came = (0..1000).filter(|_| {
            let wanted = ahead.wanted(&look, 4096) == 4096;
            ahead.credit = ahead.credit.saturating_sub(u32::from(wanted));
            wanted
        });
        assert_eq!(came.count(), MOST as usize);
        // And again as soon as somebody reads.
        ahead.earn();
        assert_eq!(ahead.wanted(&look, 4096), 4096);
        let stat = Op::GetAttr { fid: Fid::root(1) };
        assert_eq!(Ahead::default().wanted(&stat, 4096), 0);
    }
}
