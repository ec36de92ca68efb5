//! The queue of a link: bulks, messages ready to leave, and how far the writer came.
//!
//! Guarantees: a bulk is never copied on its way to the socket. Messages without a bulk, of at most
//! [`SWIFT_BYTES`], are *swift*: they leave in the order queued, and go before all others, which
//! leave in the order queued too. A swift message waits for one piece of a long one at most: for
//! [`STEP_MIN`] bytes when the peer, or the network, does not take what is offered; and a long one
//! waits for the swift messages that were queued when its last piece was written, not for those
//! that follow them.

use crate::frame::{FrameError, HEADER_BYTES, Header, Kind};
use crate::spare;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Slices handed to one system call.
pub(crate) const SLICES: usize = 320;

/// Most bytes that wait to be written to a peer that came by itself. It must be cut off if it
/// leaves more unread, or could fill this process's memory.
pub const QUEUE_BYTES_MAX: usize = 256 << 20;
/// A link on which more waits is congested: work that would add to that is put off.
pub const CONGESTED_BYTES: usize = 4 << 20;
/// A message that is longer, or has a bulk, does not go before others.
pub(crate) const SWIFT_BYTES: usize = 4 << 10;
/// Of long messages so much leaves at a time while the network is slow.
const STEP_MIN: usize = 64 << 10;
/// And so much while everything that is offered is taken at once.
const STEP_MAX: usize = 1 << 20;

/// Raw file data that goes with a message, in one or several parts that are sent as one.
#[derive(Clone, Debug, Default)]
pub struct Bulk {
    parts: Vec<Part>,
    len: usize,
}

#[derive(Clone)]
enum Part {
    Owned(Vec<u8>),
    /// Always in bounds: checked when pushed.
    Shared(Arc<[u8]>, Range<usize>),
    Held(Held, Range<usize>),
}

/// Bytes that others hold too, wherever they are: always the same for as long as this is there.
pub type Held = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Owned(bytes) => bytes,
            Part::Shared(bytes, range) => &bytes[range.clone()],
            Part::Held(bytes, range) => &(**bytes).as_ref()[range.clone()],
        }
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
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

    /// The same of bytes that are not in an allocation of their own.
    ///
    /// # Panics
    /// The range is not within the bytes.
    pub fn push_held(&mut self, bytes: Held, range: Range<usize>) {
        let len = (*bytes).as_ref()[range.clone()].len();
        if len > 0 {
            self.len += len;
            self.parts.push(Part::Held(bytes, range));
        }
    }

    /// All bytes, part by part.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(Part::bytes)
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

/// A message ready to leave.
pub(crate) struct Outgoing {
    header: Header,
    body: Vec<u8>,
    bulk: Bulk,
}

impl Outgoing {
    pub(crate) fn new(kind: Kind, body: Vec<u8>, bulk: Bulk) -> Result<Outgoing, FrameError> {
        let header = Header::new(kind, body.len(), bulk.len())?;
        Ok(Outgoing { header, body, bulk })
    }

    pub(crate) fn len(&self) -> usize {
        HEADER_BYTES + self.payload()
    }

    fn payload(&self) -> usize {
        self.body.len() + self.bulk.len()
    }

    /// Does it go before long messages?
    fn is_swift(&self) -> bool {
        self.bulk.is_empty() && self.body.len() <= SWIFT_BYTES
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        [self.body.as_slice()].into_iter().chain(self.bulk.slices())
    }
}

/// Messages that nobody has begun to write, in two lanes.
#[derive(Default)]
pub(crate) struct Queue {
    swift: VecDeque<Outgoing>,
    long: VecDeque<Outgoing>,
}

impl Queue {
    /// Queues a message; `behind`: behind all that is queued, whatever its length.
    pub(crate) fn push(&mut self, message: Outgoing, behind: bool) {
        if behind || !message.is_swift() {
            self.long.push_back(message);
        } else {
            self.swift.push_back(message);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.swift.is_empty() && self.long.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Queue::default();
    }
}

/// A long message that leaves in pieces, and the piece that is being written.
struct Pieces {
    message: Outgoing,
    /// How many bytes of body and bulk belong to pieces that were begun.
    begun: usize,
    /// The header of the piece that is being written, and where in the message it begins and ends.
    header: [u8; HEADER_BYTES],
    piece: Range<usize>,
}

impl Pieces {
    fn left(&self) -> usize {
        self.message.payload() - self.begun
    }

    /// Begins the next piece.
    fn cut(&mut self, most: usize) {
        let end = self.begun + self.left().min(most);
        let here = end - self.begun;
        let header = if self.begun == 0 {
            self.message.header.first_piece(here)
        } else {
            Header::part(here)
        };
        self.header = header.encode();
        self.piece = self.begun..end;
        self.begun = end;
    }

    /// Bytes of the piece, with its header; none when it has been written.
    fn len(&self) -> usize {
        match self.piece.len() {
            0 => 0,
            len => HEADER_BYTES + len,
        }
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let parts = self.message.slices().scan(0, |at, part| {
            let from = *at;
            *at += part.len();
            Some((from, part))
        });
        let payload = parts.map(|(from, part)| {
            let within = |place: usize| place.clamp(from, from + part.len()) - from;
            &part[within(self.piece.start)..within(self.piece.end)]
        });
        [self.header.as_slice()].into_iter().chain(payload)
    }
}

/// The messages that the writing thread has taken from the queue.
pub(crate) struct Unsent {
    /// Whole messages, and their headers.
    whole: VecDeque<([u8; HEADER_BYTES], Outgoing)>,
    /// Behind them.
    pieces: Option<Pieces>,
    /// Bytes of what comes first that are already written.
    skip: usize,
    /// Of long messages so much is taken at a time.
    step: usize,
}

impl Default for Unsent {
    fn default() -> Unsent {
        Unsent {
            whole: VecDeque::new(),
            pieces: None,
            skip: 0,
            step: STEP_MIN,
        }
    }
}

impl Unsent {
    /// Takes the messages that leave next, when all that was taken is written: the swift ones, and
    /// so much of the long ones that the next swift message does not wait for long. Returns by how
    /// many bytes that is more than was queued.
    pub(crate) fn take(&mut self, queue: &mut Queue) -> usize {
        let with_header = |message: Outgoing| (message.header.encode(), message);
        self.whole.extend(queue.swift.drain(..).map(with_header));
        if let Some(pieces) = &mut self.pieces {
            pieces.cut(self.step);
            return HEADER_BYTES;
        }
        let mut room = self.step;
        while let Some(next) = queue.long.front() {
            if next.len() <= room {
                room -= next.len();
                self.whole.extend(queue.long.pop_front().map(with_header));
            } else if room == self.step {
                self.pieces = queue.long.pop_front().map(|message| Pieces {
                    message,
                    begun: 0,
                    header: [0; HEADER_BYTES],
                    piece: 0..0,
                });
                if let Some(pieces) = &mut self.pieces {
                    pieces.cut(room);
                }
                break;
            } else {
                break;
            }
        }
        0
    }

    /// All that was taken is written.
    pub(crate) fn is_empty(&self) -> bool {
        let written = |pieces: &Pieces| pieces.piece.is_empty();
        self.whole.is_empty() && self.pieces.as_ref().is_none_or(written)
    }

    pub(crate) fn clear(&mut self) {
        *self = Unsent::default();
    }

    /// Lays the next bytes into `slices`; returns how many slices are filled, and of how many
    /// bytes.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> (usize, usize) {
        let mut skip = self.skip;
        let (mut filled, mut bytes) = (0, 0);
        let whole = self.whole.iter().flat_map(|(header, message)| {
            let header = [header.as_slice()].into_iter();
            header.chain(message.slices())
        });
        let pieces = self.pieces.iter().filter(|pieces| pieces.len() > 0);
        for part in whole.chain(pieces.flat_map(Pieces::slices)) {
            if filled == SLICES {
                break;
            }
            if skip < part.len() {
                slices[filled] = IoSlice::new(&part[skip..]);
                bytes += part.len() - skip;
                filled += 1;
                skip = 0;
            } else {
                skip -= part.len();
            }
        }
        (filled, bytes)
    }

    /// Forgets the first `written` bytes of the `offered` ones. As long as the peer takes all that
    /// is offered at a time, that becomes more; when it does not, the next message that is swift
    /// must not wait for much. An offer of little says nothing of the network.
    pub(crate) fn advance(&mut self, written: usize, offered: usize) {
        if written < offered {
            self.step = STEP_MIN;
        } else if offered >= self.step {
            self.step = (2 * self.step).min(STEP_MAX);
        }
        self.skip += written;
        while let Some((_, first)) = self.whole.front() {
            if self.skip < first.len() {
                return;
            }
            self.skip -= first.len();
            self.whole.pop_front();
        }
        let Some(pieces) = self.pieces.as_mut().filter(|p| self.skip >= p.len()) else {
            return;
        };
        self.skip -= pieces.len();
        debug_assert_eq!(self.skip, 0, "no more is written than there was");
        pieces.piece = pieces.begun..pieces.begun;
        if pieces.left() == 0 {
            self.pieces = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::FrameReader;

    fn message(number: u8, bulk: usize) -> Outgoing {
        let bytes: Arc<[u8]> = (0..bulk + 5).map(|at| (at * 7) as u8 ^ number).collect();
        let mut both = Bulk::from(vec![number; bulk.min(3)]);
        both.push_shared(bytes, 5..5 + bulk.saturating_sub(3));
        Outgoing::new(
            Kind::Message,
            vec![number; 9 + usize::from(number % 5)],
            both,
        )
        .unwrap()
    }

    fn whole(message: &Outgoing) -> Vec<u8> {
        message.slices().flatten().copied().collect()
    }

    /// Writes up to `most` bytes to the stream.
    fn write(unsent: &mut Unsent, most: usize, stream: &mut Vec<u8>) {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (filled, offered) = unsent.fill(&mut slices);
        let before = stream.len();
        let all = slices[..filled].iter().flat_map(|slice| slice.iter());
        stream.extend(all.take(most));
        unsent.advance(stream.len() - before, offered);
    }

    #[test]
    fn each_lane_keeps_its_order_and_its_bytes_whatever_the_socket_takes() {
        for most in [1, 7, 24, 25, 100, 65_536, 65_560, usize::MAX] {
            let (mut queue, mut unsent) = (Queue::default(), Unsent::default());
            let (mut swift, mut long) = (Vec::new(), Vec::new());
            let (mut stream, mut queued) = (Vec::new(), 0);
            for number in 0..60_u8 {
                let large = if most < 50 { 300 } else { 200_000 };
                let message = message(number, [0, large, 0, 17][usize::from(number % 4)]);
                let lane = if message.is_swift() {
                    &mut swift
                } else {
                    &mut long
                };
                lane.push(whole(&message));
                queued += message.len();
                queue.push(message, false);
                if unsent.is_empty() {
                    queued += unsent.take(&mut queue);
                }
                write(&mut unsent, most, &mut stream);
            }
            loop {
                if unsent.is_empty() {
                    queued += unsent.take(&mut queue);
                }
                if unsent.is_empty() {
                    break;
                }
                write(&mut unsent, most, &mut stream);
            }
            assert_eq!(stream.len(), queued, "what was queued has left");
            let mut frames = FrameReader::new(stream.as_slice());
            let (mut swift_read, mut long_read) = (Vec::new(), Vec::new());
            while let Some(frame) = frames.next_frame().unwrap() {
                let short = frame.bulk.is_empty();
                let read = [frame.body, &frame.bulk].concat();
                if short {
                    &mut swift_read
                } else {
                    &mut long_read
                }
                .push(read);
            }
            assert!(
                swift_read == swift && long_read == long,
                "at most {most} bytes"
            );
        }
    }

    #[test]
    fn a_swift_message_waits_for_one_small_piece_where_the_network_is_slow() {
        let (mut queue, mut unsent) = (Queue::default(), Unsent::default());
        let mut stream = Vec::new();
        for number in 0..20 {
            queue.push(message(number, 0), false);
            unsent.take(&mut queue);
            write(&mut unsent, usize::MAX, &mut stream);
        }
        for number in 0..4 {
            queue.push(message(number, 1 << 20), false);
        }
        // The network takes 10,000 bytes at a time, and never all that is offered.
        for _ in 0..20 {
            if unsent.is_empty() {
                unsent.take(&mut queue);
            }
            write(&mut unsent, 10_000, &mut stream);
        }
        queue.push(message(99, 0), false);
        let before = stream.len();
        while !queue.swift.is_empty() || !unsent.whole.is_empty() {
            if unsent.is_empty() {
                unsent.take(&mut queue);
            }
            write(&mut unsent, 10_000, &mut stream);
        }
        let waited = stream.len() - before;
        assert!(waited <= STEP_MIN + 20_000, "{waited} bytes went before it");
    }

    #[test]
    fn what_is_last_stays_behind_all_that_was_queued() {
        let (mut queue, mut unsent) = (Queue::default(), Unsent::default());
        let mut stream = Vec::new();
        queue.push(message(1, 300_000), false);
        queue.push(message(2, 0), false);
        queue.push(message(3, 0), true);
        for _ in 0..10 {
            if unsent.is_empty() {
                unsent.take(&mut queue);
            }
            write(&mut unsent, usize::MAX, &mut stream);
        }
        assert!(unsent.is_empty() && queue.is_empty());
        let mut frames = FrameReader::new(stream.as_slice());
        let mut read = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            read.push(frame.body[0]);
        }
        assert_eq!(read, [2, 1, 3]);
    }
}
