//! Bytes whose number a header announced, read from a stream.
//!
//! Guarantees: memory is taken as bytes arrive: an announcement alone costs [`FIRST_STEP_BYTES`] at
//! most, or a buffer that was used before; a returned buffer holds bytes of the stream only.

use crate::frame::FrameError;
use crate::spare;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpStream;

/// Taken before the first byte came; doubled with each part that really arrived.
const FIRST_STEP_BYTES: usize = 256 << 10;

/// A stream that frames are read from.
pub trait Source: Read {
    /// Appends what comes next, at most `most` bytes; none at the end of the stream.
    ///
    /// # Errors
    /// The stream cannot be read.
    fn append(&mut self, into: &mut Vec<u8>, most: usize) -> io::Result<usize> {
        let here = into.len();
        into.resize(here + most, 0);
        let read = self.read(&mut into[here..]);
        into.truncate(here + *read.as_ref().unwrap_or(&0));
        read
    }
}

impl Source for &[u8] {}
impl Source for TcpStream {}
impl Source for &TcpStream {}

/// Bytes that a header announced, as they come.
#[derive(Debug, Default)]
pub(crate) struct Announced {
    /// Longer than what has come if the buffer was used before, and holds bytes of then.
    bytes: Vec<u8>,
    /// How many have come.
    pub(crate) filled: usize,
}

impl Announced {
    /// For a bulk: a buffer that was used before costs no new memory, whatever is announced.
    pub(crate) fn bulk(bytes: usize) -> Announced {
        Announced {
            bytes: spare::used(bytes).unwrap_or_default(),
            filled: 0,
        }
    }

    /// Takes `more` bytes.
    pub(crate) fn read<R: Source>(
        &mut self,
        stream: &mut BufReader<R>,
        more: usize,
    ) -> Result<(), FrameError> {
        let end = self.filled + more;
        if self.bytes.len() < end {
            self.bytes.truncate(self.filled);
            read_announced(stream, end, &mut self.bytes)?;
        } else if let Err(error) = stream.read_exact(&mut self.bytes[self.filled..end]) {
            return Err(match error.kind() {
                io::ErrorKind::UnexpectedEof => FrameError::Truncated,
                _ => error.into(),
            });
        }
        self.filled = end;
        Ok(())
    }

    /// The bytes that have come.
    pub(crate) fn whole(mut self) -> Vec<u8> {
        self.bytes.truncate(self.filled);
        self.bytes
    }
}

/// Appends to `into` until it has `announced` bytes; it grows as they arrive.
pub(crate) fn read_announced<R: Source>(
    stream: &mut BufReader<R>,
    announced: usize,
    into: &mut Vec<u8>,
) -> Result<(), FrameError> {
    while into.len() < announced {
        // As much again as has come: an announcement alone costs FIRST_STEP_BYTES at most.
        let room = into.capacity() - into.len();
        let step = (announced - into.len()).min(into.len().max(FIRST_STEP_BYTES).max(room));
        into.reserve_exact(step);
        let end = into.len() + step;
        while into.len() < end {
            let wanted = end - into.len();
            let here = stream.buffer().len().min(wanted);
            if here > 0 {
                into.extend_from_slice(&stream.buffer()[..here]);
                stream.consume(here);
                continue;
            }
            match stream.get_mut().append(into, wanted) {
                Ok(0) => return Err(FrameError::Truncated),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::{BULK_BYTES_MAX, READ_AHEAD_BYTES};

    fn stream(bytes: &[u8]) -> BufReader<&[u8]> {
        BufReader::with_capacity(READ_AHEAD_BYTES, bytes)
    }

    #[test]
    fn a_buffer_that_was_used_is_filled_from_its_beginning() {
        let bytes: Vec<u8> = (0..100_u8).collect();
        let mut from = stream(&bytes);
        let mut announced = Announced {
            bytes: vec![7; 90],
            filled: 0,
        };
        announced.read(&mut from, 30).unwrap();
        announced.read(&mut from, 50).unwrap();
        assert_eq!(announced.whole(), bytes[..80]);
        let mut too_short = Announced {
            bytes: vec![7; 90],
            filled: 0,
        };
        let end = too_short.read(&mut from, 21);
        assert!(matches!(end, Err(FrameError::Truncated)));
    }

    #[test]
    fn an_announcement_alone_takes_little_memory() {
        let mut into = Vec::new();
        let end = read_announced(&mut stream(&[]), BULK_BYTES_MAX, &mut into);
        assert!(matches!(end, Err(FrameError::Truncated)));
        assert!(into.capacity() <= FIRST_STEP_BYTES, "{}", into.capacity());

        let mut into = Vec::new();
        let some = vec![7; FIRST_STEP_BYTES + 1];
        let end = read_announced(&mut stream(&some), BULK_BYTES_MAX, &mut into);
        assert!(matches!(end, Err(FrameError::Truncated)));
        assert!(
            into.capacity() <= 2 * FIRST_STEP_BYTES,
            "{}",
            into.capacity()
        );
    }

    #[test]
    fn what_arrives_takes_no_more_than_it_needs() {
        let bytes: Vec<u8> = (0..BULK_BYTES_MAX - 3).map(|at| (at % 251) as u8).collect();
        let mut into = Vec::new();
        read_announced(&mut stream(&bytes), bytes.len(), &mut into).unwrap();
        assert_eq!(into, bytes);
        assert_eq!(into.capacity(), bytes.len());
    }
}
