//! What a link still has to write: bulks, frames ready to leave, and how far the writer came.
//!
//! Guarantees: bytes leave in the order queued; a bulk is never copied on its way to the socket.

use crate::frame::{FrameError, HEADER_BYTES, Header, Kind};
use crate::spare;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Slices handed to one system call.
pub(crate) const SLICES: usize = 320;

/// Raw file data that goes with a message, in one or several parts that are sent as one.
#[derive(Debug, Default)]
pub struct Bulk {
    parts: Vec<Part>,
    len: usize,
}

#[derive(Debug)]
enum Part {
    Owned(Vec<u8>),
    /// Always in bounds: checked when pushed.
    Shared(Arc<[u8]>, Range<usize>),
}

impl Bulk {
    /// No data.
    #[must_use]
    pub fn empty() -> Bulk {
        Bulk::default()
    }

    /// Bytes of all parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no data.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.parts.push(Part::Owned(bytes));
        }
    }

    /// Appends a range of bytes that others hold too; they stay where they are until written.
    ///
    /// # Panics
    /// The range is not within the bytes.
    pub fn push_shared(&mut self, bytes: Arc<[u8]>, range: Range<usize>) {
        let part = &bytes[range.clone()];
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(Part::Shared(bytes, range));
        }
    }

    /// All bytes, part by part.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| match part {
            Part::Owned(bytes) => bytes.as_slice(),
            Part::Shared(bytes, range) => &bytes[range.clone()],
        })
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        for part in self.parts.drain(..) {
            if let Part::Owned(bytes) = part {
                spare::give(bytes);
            }
        }
    }
}

impl From<Vec<u8>> for Bulk {
    fn from(bytes: Vec<u8>) -> Bulk {
        let mut bulk = Bulk::empty();
        bulk.push(bytes);
        bulk
    }
}

impl From<Arc<[u8]>> for Bulk {
    fn from(bytes: Arc<[u8]>) -> Bulk {
        let range = 0..bytes.len();
        let mut bulk = Bulk::empty();
        bulk.push_shared(bytes, range);
        bulk
    }
}

/// A frame ready to leave.
pub(crate) struct Outgoing {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
    bulk: Bulk,
}

impl Outgoing {
    pub(crate) fn new(kind: Kind, body: Vec<u8>, bulk: Bulk) -> Result<Outgoing, FrameError> {
        let header = Header::new(kind, body.len(), bulk.len())?.encode();
        Ok(Outgoing { header, body, bulk })
    }

    pub(crate) fn len(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.bulk.len()
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        [self.header.as_slice(), self.body.as_slice()]
            .into_iter()
            .chain(self.bulk.slices())
    }
}

/// Frames taken from the queue by whoever writes.
#[derive(Default)]
pub(crate) struct Unsent {
    frames: VecDeque<Outgoing>,
    /// Bytes of the first frame that are already written.
    skip: usize,
}

impl Unsent {
    pub(crate) fn take(&mut self, queue: &mut VecDeque<Outgoing>) {
        self.frames.append(queue);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Unsent::default();
    }

    /// Lays the next bytes into `slices`; returns how many slices are filled.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut skip = self.skip;
        let mut filled = 0;
        for part in self.frames.iter().flat_map(Outgoing::slices) {
            if filled == SLICES {
                break;
            }
            if skip < part.len() {
                slices[filled] = IoSlice::new(&part[skip..]);
                filled += 1;
                skip = 0;
            } else {
                skip -= part.len();
            }
        }
        filled
    }

    /// Forgets the first `written` bytes.
    pub(crate) fn advance(&mut self, written: usize) {
        self.skip += written;
        while let Some(first) = self.frames.front() {
            if self.skip < first.len() {
                return;
            }
            self.skip -= first.len();
            self.frames.pop_front();
        }
        debug_assert_eq!(self.skip, 0, "no more is written than there was");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn bytes_leave_in_order_whatever_the_socket_takes() {
        let shared: Arc<[u8]> = (0..200).collect();
        let mut expected: Vec<u8> = Vec::new();
        for taken_at_once in 1..120 {
            let mut unsent = Unsent::default();
            expected.clear();
            for frame in 0..50_u8 {
                let mut bulk = Bulk::from(vec![frame; usize::from(frame % 7)]);
                bulk.push_shared(Arc::clone(&shared), 10..10 + usize::from(frame));
                let out = Outgoing::new(Kind::Message, vec![frame; 9], bulk).unwrap();
                expected.extend(out.slices().flatten());
                unsent.take(&mut VecDeque::from([out]));
            }
            let mut sent: Vec<u8> = Vec::new();
            while !unsent.is_empty() {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let filled = unsent.fill(&mut slices);
                let before = sent.len();
                sent.extend(
                    slices[..filled]
                        .iter()
                        .flat_map(|s| s.iter())
                        .take(taken_at_once),
                );
                let written = sent.len() - before;
                unsent.advance(written);
            }
            assert_eq!(sent, expected);
        }
    }
}
