//! Frames on a byte stream: a fixed header, the body (an encoded message), the bulk (file data).
//!
//! A long message travels in pieces: a `Message` frame with the first bytes of body and bulk, then
//! `Part` frames with the others. Between two pieces whole messages may come, never a second one in
//! pieces: so a short message waits for one piece of a long one, and not for all of it.
//!
//! Guarantees: reading never panics, whatever the bytes, and never holds more than the bounds
//! below and one message in pieces; memory is taken as bytes arrive, not because a header announces
//! them. There is no checksum: TLS authenticates all bytes, TCP on loopback has its own, and the
//! store checks what it keeps.
//!
//! ```text
//!  0  magic "ARIL"     4  version    5  kind     6  flags u16, zero        all little endian
//!  8  body length u32  12 bulk length u32        16 bytes that follow u32  20 reserved u32, zero
//! ```
//!
//! The lengths are those of the whole message, and zero in a `Part`.

use crate::announced::{Announced, Source, read_announced};
use crate::greeting::TEXT_BYTES_MAX;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// Most bytes of a body.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a bulk.
pub const BULK_BYTES_MAX: usize = 2 << 20;

const MAGIC: [u8; 4] = *b"ARIL";
/// How TLS begins.
const TLS_HANDSHAKE: [u8; 3] = [0x16, 3, 1];
const VERSION: u8 = 3;
/// Read ahead: a message without bulk comes with one system call. More would be copied twice.
pub(crate) const READ_AHEAD_BYTES: usize = 16 << 10;
/// A message of no more is short: it is handled at once.
const SHORT_BYTES: usize = 512;
/// A body buffer larger than this is not kept for the next frame.
const KEPT_BODY_BYTES: usize = 64 << 10;

const _: () = assert!(BODY_BYTES_MAX <= BULK_BYTES_MAX && BULK_BYTES_MAX <= u32::MAX as usize);

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first frame each way: which versions of the rooms' protocol the sender speaks.
    Hello,
    /// Instead of a Hello: why the sender does not go on.
    Refused,
    /// A message of the rooms above, or its first piece.
    Message,
    /// The next piece of the message that has begun.
    Part,
}

/// Why a stream is not a sequence of frames, or cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are those of TLS.
    #[error(
        "the peer speaks TLS, and this side was started with --insecure-loopback: use it on \
             both sides, or on neither"
    )]
    Tls,
    /// The first bytes are of another protocol.
    #[error("bytes {0:02x?} start no frame: the peer speaks another protocol; check the port")]
    BadMagic([u8; 4]),
    /// The peer's frames are of another version.
    #[error("frame version {0}, expected {VERSION}: run the same version of Ariel on both ends")]
    BadVersion(u8),
    /// A kind, flag or reserved byte that this version does not know, or a Hello that is too long.
    #[error("malformed frame header: run the same version of Ariel on both ends")]
    BadHeader,
    /// Longer than a frame may be.
    #[error(
        "a frame of {body_bytes} + {bulk_bytes} bytes exceeds the bounds of {BODY_BYTES_MAX} + \
         {BULK_BYTES_MAX}: split the message"
    )]
    TooLarge {
        /// Bytes of the body.
        body_bytes: usize,
        /// Bytes of the bulk.
        bulk_bytes: usize,
    },
    /// The stream ended inside a frame.
    #[error("the connection ended inside a frame: the peer crashed or was cut off")]
    Truncated,
    /// The first frame was no Hello, or a Hello came later, or a piece of no message, or a second
    /// message in pieces.
    #[error("a {0:?} frame where it may not be: the peer does not follow the protocol")]
    OutOfTurn(Kind),
    /// The stream could not be read.
    #[error("reading the connection failed: {0}")]
    Io(#[source] Arc<io::Error>),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> FrameError {
        FrameError::Io(Arc::new(error))
    }
}

/// The content of the fixed part; its lengths are within the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: Kind,
    body_len: u32,
    bulk_len: u32,
    here: u32,
}

impl Header {
    /// The header of a frame that holds all of a message with these lengths.
    ///
    /// # Errors
    /// A length exceeds its bound.
    pub fn new(kind: Kind, body_bytes: usize, bulk_bytes: usize) -> Result<Header, FrameError> {
        if body_bytes > BODY_BYTES_MAX || bulk_bytes > BULK_BYTES_MAX {
            return Err(FrameError::TooLarge {
                body_bytes,
                bulk_bytes,
            });
        }
        let most = match kind {
            Kind::Hello | Kind::Refused => TEXT_BYTES_MAX,
            Kind::Message => BODY_BYTES_MAX + BULK_BYTES_MAX,
            Kind::Part => 0,
        };
        if body_bytes + bulk_bytes > most {
            return Err(FrameError::BadHeader);
        }
        Ok(Header {
            kind,
            body_len: body_bytes as u32,
            bulk_len: bulk_bytes as u32,
            here: (body_bytes + bulk_bytes) as u32,
        })
    }

    /// The header of the first piece of such a message: `here` bytes of it follow.
    #[must_use]
    pub(crate) fn first_piece(self, here: usize) -> Header {
        let here = here.min(self.body_bytes() + self.bulk_bytes()) as u32;
        Header { here, ..self }
    }

    /// The header of a later piece.
    #[must_use]
    pub(crate) fn part(here: usize) -> Header {
        Header {
            kind: Kind::Part,
            body_len: 0,
            bulk_len: 0,
            here: here as u32,
        }
    }

    /// The purpose of the frame.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Bytes of the body.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_len as usize
    }

    /// Bytes of the bulk.
    #[must_use]
    pub fn bulk_bytes(&self) -> usize {
        self.bulk_len as usize
    }

    /// Bytes that follow it.
    #[must_use]
    pub fn here_bytes(&self) -> usize {
        self.here as usize
    }

    fn is_whole(&self) -> bool {
        self.here_bytes() == self.body_bytes() + self.bulk_bytes()
    }

    /// The header as it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = match self.kind {
            Kind::Hello => 1,
            Kind::Message => 2,
            Kind::Part => 3,
            Kind::Refused => 4,
        };
        bytes[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bulk_len.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.here.to_le_bytes());
        bytes
    }

    /// The header that these bytes are.
    ///
    /// # Errors
    /// They are none, or of another version, or announce more than the bounds.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let [
            m0,
            m1,
            m2,
            m3,
            version,
            kind,
            f0,
            f1,
            b0,
            b1,
            b2,
            b3,
            k0,
            k1,
            k2,
            k3,
            h0,
            h1,
            h2,
            h3,
            rest @ ..,
        ] = *bytes;
        if [m0, m1, m2] == TLS_HANDSHAKE {
            return Err(FrameError::Tls);
        }
        if [m0, m1, m2, m3] != MAGIC {
            return Err(FrameError::BadMagic([m0, m1, m2, m3]));
        }
        if version != VERSION {
            return Err(FrameError::BadVersion(version));
        }
        let kind = match kind {
            1 => Kind::Hello,
            2 => Kind::Message,
            3 => Kind::Part,
            4 => Kind::Refused,
            _ => return Err(FrameError::BadHeader),
        };
        if [f0, f1] != [0; 2] || rest != [0; 4] {
            return Err(FrameError::BadHeader);
        }
        let body_len = u32::from_le_bytes([b0, b1, b2, b3]);
        let bulk_len = u32::from_le_bytes([k0, k1, k2, k3]);
        let here = u32::from_le_bytes([h0, h1, h2, h3]);
        let whole = Header::new(kind, body_len as usize, bulk_len as usize)?;
        let header = Header { here, ..whole };
        let fits = match kind {
            Kind::Hello | Kind::Refused => header.is_whole() && bulk_len == 0,
            // A piece without bytes would be no end of pieces.
            Kind::Message => header.is_whole() || (1..whole.here).contains(&here),
            Kind::Part => here > 0,
        };
        if !fits {
            return Err(FrameError::BadHeader);
        }
        Ok(header)
    }
}

/// A frame as read. The body is borrowed from the reader, the bulk is the receiver's to keep.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Its purpose.
    pub kind: Kind,
    /// The encoded message.
    pub body: &'a [u8],
    /// The file data.
    pub bulk: Vec<u8>,
    /// A short message follows, which is here in full already: reading it waits for nobody.
    pub short_follows: bool,
}

/// A message of which not all pieces have come.
#[derive(Debug)]
struct Pieces {
    header: Header,
    body: Announced,
    bulk: Announced,
}

impl Pieces {
    fn missing(&self) -> usize {
        let all = self.header.body_bytes() + self.header.bulk_bytes();
        all - self.body.filled - self.bulk.filled
    }

    /// Takes the next `here` bytes, of those that are missing.
    fn take<R: Source>(
        &mut self,
        stream: &mut BufReader<R>,
        here: usize,
    ) -> Result<(), FrameError> {
        let of_body = here.min(self.header.body_bytes() - self.body.filled);
        self.body.read(stream, of_body)?;
        self.bulk.read(stream, here - of_body)
    }
}

/// Takes frames from a stream.
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: BufReader<R>,
    body: Vec<u8>,
    pieces: Option<Pieces>,
}

impl<R: Source> FrameReader<R> {
    /// Reads frames from `stream`.
    pub fn new(stream: R) -> FrameReader<R> {
        FrameReader {
            stream: BufReader::with_capacity(READ_AHEAD_BYTES, stream),
            body: Vec::new(),
            pieces: None,
        }
    }

    /// The next whole message or Hello; none when the stream ended between two of them.
    ///
    /// # Errors
    /// The stream holds no frame here or cannot be read; it must not be read further.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        let (kind, bulk) = loop {
            let mut bytes = [0; HEADER_BYTES];
            if !self.read_header(&mut bytes)? {
                return match self.pieces {
                    Some(_) => Err(FrameError::Truncated),
                    None => Ok(None),
                };
            }
            let header = Header::decode(&bytes)?;
            match self.pieces.take() {
                None if header.kind == Kind::Part => {
                    return Err(FrameError::OutOfTurn(Kind::Part));
                }
                Some(pieces) if header.kind == Kind::Part => {
                    if let Some(bulk) = self.next_piece(pieces, header.here_bytes())? {
                        break (Kind::Message, bulk);
                    }
                }
                Some(_) if !header.is_whole() => {
                    return Err(FrameError::OutOfTurn(header.kind));
                }
                None if !header.is_whole() => {
                    let pieces = Pieces {
                        header,
                        body: Announced::default(),
                        bulk: Announced::bulk(header.bulk_bytes()),
                    };
                    self.next_piece(pieces, header.here_bytes())?;
                }
                begun => {
                    self.pieces = begun;
                    break (header.kind, self.read_whole(header)?);
                }
            }
        };
        Ok(Some(Frame {
            kind,
            short_follows: self.is_short_here(),
            body: &self.body,
            bulk,
        }))
    }

    /// Reads a frame that holds all of its message: the bulk; the body is kept here.
    fn read_whole(&mut self, header: Header) -> Result<Vec<u8>, FrameError> {
        if self.body.capacity() > KEPT_BODY_BYTES {
            self.body = Vec::new();
        }
        self.body.clear();
        read_announced(&mut self.stream, header.body_bytes(), &mut self.body)?;
        let mut bulk = Announced::bulk(header.bulk_bytes());
        bulk.read(&mut self.stream, header.bulk_bytes())?;
        Ok(bulk.whole())
    }

    /// Reads the next piece; of the last one the bulk of its message, whose body is kept here.
    fn next_piece(
        &mut self,
        mut pieces: Pieces,
        here: usize,
    ) -> Result<Option<Vec<u8>>, FrameError> {
        if here > pieces.missing() {
            return Err(FrameError::BadHeader);
        }
        pieces.take(&mut self.stream, here)?;
        if pieces.missing() > 0 {
            self.pieces = Some(pieces);
            return Ok(None);
        }
        self.body = pieces.body.whole();
        Ok(Some(pieces.bulk.whole()))
    }

    fn is_short_here(&self) -> bool {
        let Some((header, rest)) = self.stream.buffer().split_first_chunk() else {
            return false;
        };
        Header::decode(header).is_ok_and(|header| {
            let short = header.bulk_bytes() == 0 && header.kind == Kind::Message;
            short && header.is_whole() && header.body_bytes() <= SHORT_BYTES.min(rest.len())
        })
    }

    /// Fills the header; false when the stream ended before its first byte.
    fn read_header(&mut self, bytes: &mut [u8; HEADER_BYTES]) -> Result<bool, FrameError> {
        let mut filled = 0;
        while filled < HEADER_BYTES {
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(FrameError::Truncated),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_wrong_byte_of_a_header_is_noticed_or_changes_a_length() {
        let header = Header::new(Kind::Message, 5, 6).unwrap();
        let good = header.encode();
        assert_eq!(Header::decode(&good).unwrap(), header);
        for at in 0..HEADER_BYTES {
            for value in (0..=255).filter(|value| *value != good[at]) {
                let mut bytes = good;
                bytes[at] = value;
                match Header::decode(&bytes) {
                    Ok(other) => assert!((8..20).contains(&at) && other != header, "byte {at}"),
                    Err(FrameError::BadMagic(_)) => assert!(at < 4),
                    Err(FrameError::BadVersion(_)) => assert_eq!(at, 4),
                    Err(FrameError::TooLarge { .. }) => assert!((8..16).contains(&at)),
                    Err(_) => assert!((5..).contains(&at), "byte {at}"),
                }
            }
        }
    }
}
