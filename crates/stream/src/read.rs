//! Reading a stream: nothing is returned that was not verified.

use crate::error::StreamError;
use crate::frame::{
    Chain, END, End, HASH_BYTES, HEAD_BYTES, Head, MAGIC, NAMELESS, NamelessPart, PART, PART_BYTES,
    PLAIN, Part, Resume, VERSION, ZSTD, seal,
};
use std::io::{self, Read};
use wire::StreamHead;

/// The next frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A part.
    Part(Part),
    /// The end: all has come.
    End,
}

/// Reads a stream.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    version: u32,
    head: StreamHead,
    at: Resume,
}

/// Reads so many bytes; false: the input ends before.
fn fill(input: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// It is not the head of a stream, or of one that a later program wrote, or damaged.
    pub fn new(mut input: R) -> Result<Self, StreamError> {
        let mut front = [0; MAGIC.len() + 4];
        if !fill(&mut input, &mut front)? || front[..MAGIC.len()] != MAGIC {
            return Err(StreamError::NotAStream);
        }
        let found = number(&front[MAGIC.len()..]);
        if found == 0 {
            return Err(StreamError::NotAStream);
        }
        if found > VERSION {
            let known = VERSION;
            return Err(StreamError::Newer { found, known });
        }
        let damaged = |what| StreamError::Damaged { part: 0, what };
        let ended = StreamError::Truncated { parts: 0 };
        let mut len = [0; 4];
        if !fill(&mut input, &mut len)? {
            return Err(ended);
        }
        let len = number(&len) as usize;
        if len > HEAD_BYTES {
            return Err(damaged("its head is too long"));
        }
        let (mut bytes, mut hash) = (vec![0; len], [0; HASH_BYTES]);
        if !fill(&mut input, &mut bytes)? || !fill(&mut input, &mut hash)? {
            return Err(ended);
        }
        if *blake3::hash(&bytes).as_bytes() != hash {
            return Err(damaged("the checksum of its head is wrong"));
        }
        let Ok(Head { head, from }) = wire::decode(&bytes) else {
            return Err(damaged("its head cannot be decoded"));
        };
        if from.parts == 0 && from.chain != Chain::of_head(found, &head) {
            return Err(damaged("its head does not begin it"));
        }
        Ok(Self {
            input,
            version: found,
            head,
            at: from,
        })
    }

    /// The snapshot that is sent.
    pub fn head(&self) -> &StreamHead {
        &self.head
    }

    /// How much has been read of it, with what came before it.
    pub fn at(&self) -> &Resume {
        &self.at
    }

    fn damaged(&self, what: &'static str) -> StreamError {
        StreamError::Damaged {
            part: self.at.parts + 1,
            what,
        }
    }

    fn bytes(&mut self, into: &mut [u8]) -> Result<(), StreamError> {
        match fill(&mut self.input, into)? {
            true => Ok(()),
            false => Err(StreamError::Truncated {
                parts: self.at.parts,
            }),
        }
    }

    /// The next part, or the end.
    ///
    /// # Errors
    /// The stream ends too early, or is not what was written.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Next, StreamError> {
        let mut front = [0; 10];
        self.bytes(&mut front)?;
        let (kind, encoding) = (front[0], front[1]);
        let (stored, len) = (number(&front[2..]) as usize, number(&front[6..]) as usize);
        if len > PART_BYTES || stored > len {
            return Err(self.damaged("it is too long"));
        }
        let (mut bytes, mut hash) = (vec![0; stored], [0; HASH_BYTES]);
        self.bytes(&mut bytes)?;
        self.bytes(&mut hash)?;
        let plain = match encoding {
            PLAIN if stored == len => bytes.clone(),
            ZSTD => zstd::bulk::decompress(&bytes, len)
                .map_err(|_| self.damaged("it cannot be decompressed"))?,
            _ => return Err(self.damaged("nobody knows how it is compressed")),
        };
        let chain = self.at.chain.behind(kind, &plain);
        if plain.len() != len || seal(chain, encoding, &bytes) != hash {
            return Err(self.damaged("its checksum is wrong"));
        }
        match kind {
            PART => {
                let part = match self.version {
                    NAMELESS => wire::decode::<NamelessPart>(&plain).map(Part::from),
                    _ => wire::decode(&plain),
                };
                let part = part.map_err(|_| self.damaged("it cannot be decoded"))?;
                self.at.parts += 1;
                self.at.chain = chain;
                Ok(Next::Part(part))
            }
            END => match wire::decode(&plain) {
                Ok(End { parts }) if parts == self.at.parts => Ok(Next::End),
                _ => Err(self.damaged("it ends at another place than it says")),
            },
            _ => Err(self.damaged("nobody knows what it is")),
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    let bytes = bytes.first_chunk();
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
