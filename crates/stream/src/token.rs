//! The token by which a sender goes on after an interruption, as a word for a command line.

use crate::frame::Chain;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use wire::{Blob, Bounded, Identity, Receiving, StreamHead};

/// From where on a stream is still wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Which snapshot.
    pub snapshot: Identity,
    /// Since which one.
    pub since: Option<Identity>,
    /// So many parts came.
    pub parts: u64,
    /// Their hash.
    pub chain: Chain,
    /// From where the sender's server is asked for the next one.
    pub after: Blob,
}

/// The word is none, or only a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a word to resume by, or not all of it: copy what `ariel volume receive` or `ariel volume \
     show` says"
)]
pub struct TokenError;

/// The mark that a receiver's server keeps with the received parts: where the sender would go on,
/// and the hash of these parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The hash.
    pub chain: Chain,
    /// From where the sender's server is asked for the next part.
    pub after: Blob,
}

impl Mark {
    /// As it is kept.
    pub fn kept(&self) -> Blob {
        Blob(wire::encode(self))
    }

    /// The mark of a part that a command carries from one store to another, without a stream: its
    /// hash is that of the head and of the sender's name, so parts of another snapshot, or of a
    /// sender that parts it otherwise, are noticed.
    pub fn carried((head, sender): (&StreamHead, &str), after: Blob) -> Self {
        let chain = Chain::of_carried(head, sender);
        Self { chain, after }
    }

    /// Is it that of a part which was carried of this snapshot from this sender?
    pub fn is_carried(&self, (head, sender): (&StreamHead, &str)) -> bool {
        self.chain == Chain::of_carried(head, sender)
    }

    /// The same back; `None`: nothing has come, or it is not one.
    pub fn of(kept: &Blob) -> Option<Self> {
        wire::decode(&kept.0).ok()
    }
}

impl Bounded for Mark {
    fn within_bounds(&self) -> bool {
        self.after.0.len() <= wire::limits::STREAM_AFTER_BYTES
    }
}

impl Token {
    /// The token of a snapshot that is being received; `None`: nothing of it has come yet.
    pub fn of(receiving: &Receiving) -> Option<Self> {
        let Mark { chain, after } = Mark::of(&receiving.after)?;
        Some(Self {
            snapshot: receiving.head.snapshot,
            since: receiving.head.since,
            parts: receiving.chunks,
            chain,
            after,
        })
    }
}

/// Bytes of the hash by which a word is known to be whole.
const CHECK_BYTES: usize = 4;
/// The first byte of a word: its version.
const TOKEN_VERSION: u8 = 1;

impl Bounded for Token {
    fn within_bounds(&self) -> bool {
        self.after.0.len() <= wire::limits::STREAM_AFTER_BYTES
    }
}

fn check(bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK_BYTES]);
    check
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![TOKEN_VERSION];
        bytes.extend(wire::encode(self));
        bytes.extend(check(&bytes));
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(TokenError);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Result<Vec<u8>, TokenError> = pairs
            .iter()
            .map(|[high, low]| Ok((digit(*high)? * 16 + digit(*low)?) as u8))
            .collect();
        let bytes = bytes?;
        let (said, hash) = bytes.split_last_chunk::<CHECK_BYTES>().ok_or(TokenError)?;
        let (version, encoded) = said.split_first().ok_or(TokenError)?;
        if !rest.is_empty() || check(said) != *hash || *version != TOKEN_VERSION {
            return Err(TokenError);
        }
        wire::decode(encoded).map_err(|_| TokenError)
    }
}
