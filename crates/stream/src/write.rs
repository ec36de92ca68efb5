//! Writing a stream.

use crate::frame::{Chain, END, End, Head, MAGIC, PART, PLAIN, Part, Resume, VERSION, ZSTD, seal};
use std::io::{self, Write};
use wire::StreamHead;

/// How parts are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// With zstd, at this level.
    Level(i32),
}

/// Writes a stream.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    compression: Compression,
    chain: Chain,
    parts: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the head. `from`: where an earlier stream of the same was interrupted.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(
        mut out: W,
        head: &StreamHead,
        from: Option<Resume>,
        compression: Compression,
    ) -> io::Result<Self> {
        let from = from.unwrap_or_else(|| Resume {
            parts: 0,
            chain: Chain::of_head(VERSION, head),
        });
        let head = head.clone();
        let Resume { parts, chain } = from;
        let bytes = wire::encode(&Head { head, from });
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(bytes.len() as u32).to_le_bytes())?;
        out.write_all(&bytes)?;
        out.write_all(blake3::hash(&bytes).as_bytes())?;
        Ok(Self {
            out,
            compression,
            chain,
            parts,
        })
    }

    fn frame(&mut self, kind: u8, plain: &[u8]) -> io::Result<usize> {
        self.chain = self.chain.behind(kind, plain);
        let packed = match self.compression {
            Compression::Level(level) => Some(zstd::bulk::compress(plain, level)?),
            Compression::None => None,
        };
        // A frame that does not become smaller stays as it is.
        let packed = packed.filter(|packed| packed.len() < plain.len());
        let (encoding, stored) = match &packed {
            Some(packed) => (ZSTD, packed.as_slice()),
            None => (PLAIN, plain),
        };
        self.out.write_all(&[kind, encoding])?;
        self.out.write_all(&(stored.len() as u32).to_le_bytes())?;
        self.out.write_all(&(plain.len() as u32).to_le_bytes())?;
        self.out.write_all(stored)?;
        self.out.write_all(&seal(self.chain, encoding, stored))?;
        Ok(stored.len())
    }

    /// Writes a part. Returns how many bytes it took.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn part(&mut self, part: &Part) -> io::Result<usize> {
        let bytes = wire::encode_about(part, part.chunk.bytes.0.len() + 4096);
        self.parts += 1;
        self.frame(PART, &bytes)
    }

    /// Writes the end. The bytes may still be in a buffer of the writer below.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(mut self) -> io::Result<W> {
        let parts = self.parts;
        self.frame(END, &wire::encode(&End { parts }))?;
        self.out.flush()?;
        Ok(self.out)
    }
}
