//! The words of cooperation: a client lends blocks of its cache to another one, at the server's
//! word.
//!
//! Nothing here is needed for correctness. A digest that the server has made of its own bytes
//! vouches for a block, whoever brings it; a capability says that the server lets this reader have
//! it.

use crate::ids::{Fid, Time};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The first half of the SHA-256 of a block; the block is as long as all others, with zeros behind
/// the end of its file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Digest(pub [u8; 16]);

/// A secret that a server shares with one client, a seal made with it, or the print of a machine's
/// key (zeros: of a process that need not prove anything).
pub type Secret = [u8; 32];

/// Numbers a client among those that lend, for one run of a server; never zero.
pub type LenderId = u32;

/// The server's word that a reader may have these blocks, for the client that is to lend them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Of which file.
    pub fid: Fid,
    /// Of which version of its content.
    pub version: u64,
    /// From which block on.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// Until when, by the volume's clock.
    pub until: Time,
    /// The print of the reader's key.
    pub reader: Secret,
    /// Made with the secret that server and lender share, of all the above.
    pub seal: Secret,
}

impl Capability {
    /// The text that is sealed.
    pub fn sealed_text(&self) -> Vec<u8> {
        let bare = Self {
            seal: [0; 32],
            ..self.clone()
        };
        crate::codec::encode(&bare)
    }
}

/// Where the bytes of a read are, instead of beside the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// So many bytes would have been read.
    pub len: u32,
    /// The file's size at that moment.
    pub size: u64,
    /// The client that lends them.
    pub lender: LenderId,
    /// Where it listens, as text.
    pub addr: Vec<u8>,
    /// The print of its key.
    pub key: Secret,
    /// Of each block; `None`: the lender does not have it.
    pub digests: Vec<Option<Digest>>,
    /// The capability, which the lender wants to see.
    pub capability: Capability,
}

impl Elsewhere {
    /// No client is named: the reader's copies of this file are wanted, so it is to ask with
    /// [`Lenders::Any`]. Answers [`Lenders::Passing`] alone.
    pub fn nobody(fid: Fid) -> Self {
        Self {
            len: 0,
            size: 0,
            lender: 0,
            addr: Vec::new(),
            key: Secret::default(),
            digests: Vec::new(),
            capability: Capability {
                fid,
                version: 0,
                first: 0,
                count: 0,
                until: 0,
                reader: Secret::default(),
                seal: Secret::default(),
            },
        }
    }
}

/// Blocks in a row that a client's cache is about to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Of which file.
    pub fid: Fid,
    /// Of which version of its content.
    pub version: u64,
    /// From which block on.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// How long they lay unused, ms: the one that was used last. `u32::MAX`: they are gone already.
    pub idle_ms: u32,
    /// How often they may still be handed on, if they were kept for others here; `None`: they are
    /// the client's own.
    pub chances: Option<u8>,
}

/// Blocks in a row that no client but one has any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Of which file.
    pub fid: Fid,
    /// Of which version of its content.
    pub version: u64,
    /// From which block on.
    pub first: u64,
    /// How many.
    pub count: u32,
}

/// The room that a client has for blocks of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spare {
    /// Blocks that it can take and give up nothing.
    pub free: u32,
    /// How long the block lay unused that it would give up next for one of others, ms.
    pub idle_ms: u32,
}

/// Blocks that a client is to keep for the others: another client, which gives them up, lends them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// The blocks, and the client that has them.
    pub from: Elsewhere,
    /// How long they lay unused, ms.
    pub idle_ms: u32,
    /// How often they may be handed on from there.
    pub chances: u8,
}

/// May another client bring the bytes of a read?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lenders {
    /// No.
    #[default]
    None,
    /// Any may.
    Any,
    /// No: this one was asked and did not have all of them.
    Lacking(LenderId),
    /// No: this one did not answer in time, or not as it should.
    Failing(LenderId),
    /// No: the kernel of the reader's machine keeps the bytes, and the reader no copy. If the file
    /// is one that is read again, the reader wants to hear of that instead
    /// ([`Elsewhere::nobody`]), and asks anew. Of version 24.
    Passing,
}

/// A message of a reader to a lender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLender {
    /// Asks for blocks.
    Borrow {
        /// Numbers the question on its connection.
        ask: u64,
        /// The blocks, and the server's word for them.
        capability: Capability,
    },
}

/// A message of a lender to a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToReader {
    /// The blocks are on their way to the lender: the answer comes later.
    Soon {
        /// Which question.
        ask: u64,
    },
    /// Answers `Borrow`. The blocks travel beside it, whole, one behind the other.
    Lent {
        /// Which question.
        ask: u64,
        /// Which of the blocks these are, counted from the first that was asked for; ascending.
        have: Vec<u16>,
    },
}
