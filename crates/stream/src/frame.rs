//! The layout of a stream: a head, parts, and an end; and how each is covered by a hash.

use serde::{Deserialize, Serialize};
use wire::{Blob, Bounded, StreamChunk, StreamHead};

/// The version of the layout that this program writes, and the latest one that it reads.
pub const VERSION: u32 = 2;
/// The version whose parts name no groups.
pub(crate) const NAMELESS: u32 = 1;
/// The first bytes of a stream.
pub(crate) const MAGIC: [u8; 8] = *b"ArielVol";
/// Most bytes of the head.
pub(crate) const HEAD_BYTES: usize = 4096;
/// Most bytes of a part, before it is compressed: what one message may have.
pub(crate) const PART_BYTES: usize = wire::limits::BODY_BYTES;

/// A frame that is a part.
pub(crate) const PART: u8 = 1;
/// The last frame.
pub(crate) const END: u8 = 2;

/// A frame as it is.
pub(crate) const PLAIN: u8 = 0;
/// A frame compressed with zstd.
pub(crate) const ZSTD: u8 = 1;

/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 32;

/// The hash of a frame and of all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain(pub [u8; HASH_BYTES]);

impl Chain {
    /// Behind the head.
    pub(crate) fn of_head(version: u32, head: &StreamHead) -> Self {
        let bytes = wire::encode(head);
        Self(*blake3::hash(&[&MAGIC[..], &version.to_le_bytes(), &bytes].concat()).as_bytes())
    }

    /// Of parts that are carried without a stream: the same for all of them.
    pub(crate) fn of_carried(head: &StreamHead, sender: &str) -> Self {
        Self::of_head(VERSION, head).behind(PART, sender.as_bytes())
    }

    /// Behind one more frame.
    pub(crate) fn behind(self, kind: u8, plain: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(&[kind]);
        hasher.update(&(plain.len() as u32).to_le_bytes());
        hasher.update(plain);
        Self(*hasher.finalize().as_bytes())
    }
}

/// The hash behind a frame: of all frames so far, and of the bytes as which this one is written.
pub(crate) fn seal(chain: Chain, encoding: u8, stored: &[u8]) -> [u8; HASH_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&chain.0);
    hasher.update(&[encoding]);
    hasher.update(stored);
    *hasher.finalize().as_bytes()
}

/// Where a stream begins: 0 parts are behind the place where a whole one does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resume {
    /// So many parts came before.
    pub parts: u64,
    /// Their hash; of none, that of the head.
    pub chain: Chain,
}

/// The head as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) head: StreamHead,
    pub(crate) from: Resume,
}

/// A part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// From where the sender's server is asked for the next one; empty: there is none.
    pub after: Blob,
    /// The pieces of the part, and the bytes of files.
    pub chunk: StreamChunk,
    /// The groups of the sender's cell that access lists in the part name, by their numbers there:
    /// these mean nothing elsewhere.
    pub groups: Vec<(u32, Vec<u8>)>,
}

/// A part in which groups have no names.
#[derive(Serialize, Deserialize)]
pub(crate) struct NamelessPart {
    after: Blob,
    chunk: StreamChunk,
}

impl From<NamelessPart> for Part {
    fn from(NamelessPart { after, chunk }: NamelessPart) -> Self {
        let groups = Vec::new();
        Self {
            after,
            chunk,
            groups,
        }
    }
}

/// The end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Parts from the very first one on.
    pub parts: u64,
}

impl Bounded for Head {
    fn within_bounds(&self) -> bool {
        true
    }
}

impl Bounded for NamelessPart {
    fn within_bounds(&self) -> bool {
        self.after.0.len() <= wire::limits::STREAM_AFTER_BYTES && self.chunk.within_bounds()
    }
}

impl Bounded for Part {
    fn within_bounds(&self) -> bool {
        let named = |(_, name): &(u32, Vec<u8>)| name.len() <= wire::limits::NAME_BYTES;
        let after = self.after.0.len() <= wire::limits::STREAM_AFTER_BYTES;
        after && self.chunk.within_bounds() && self.groups.iter().all(named)
    }
}

impl Bounded for End {
    fn within_bounds(&self) -> bool {
        true
    }
}
