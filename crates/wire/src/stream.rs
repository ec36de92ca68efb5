//! The stream of a volume: pieces of a snapshot, or of the changes between two, from which the
//! store of another server makes the same snapshot.
//!
//! Objects are named by their numbers at the sender. The receiver gives them numbers of its own, by
//! a rule that it keeps with the volume, so that later pieces find what earlier ones made.

use crate::attr::{Attr, Kind};
use crate::blob::Blob;
use crate::ids::Time;
use crate::name::Name;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Tells a volume or a snapshot from all others, whatever any of them is called: the partition that
/// it was made in, its number there, and when it was made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Identity {
    /// Of the partition, chosen at random when it was made.
    pub partition: u64,
    /// The number of the volume or the snapshot.
    pub number: u32,
    /// When it was made.
    pub made: Time,
}

/// A snapshot that is sent, and what the receiver must have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHead {
    /// The volume of the snapshot.
    pub volume: Identity,
    /// The snapshot.
    pub snapshot: Identity,
    /// The name of the snapshot, behind that of its volume.
    pub name: Name,
    /// Only what changed since this snapshot is sent.
    pub since: Option<Identity>,
    /// Objects that the snapshot has, about.
    pub objects: u64,
    /// Bytes that it has, about.
    pub bytes: u64,
}

/// A snapshot that is received and not complete yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiving {
    /// The snapshot that it will be.
    pub head: StreamHead,
    /// How many chunks of the stream are there.
    pub chunks: u64,
    /// The bytes that a sender needs to go on behind these.
    pub after: Blob,
    /// Changes of the volume are still to be undone before anything is received.
    pub undoing: bool,
}

/// The identity of a volume or a snapshot, and its origin if it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Of itself.
    pub identity: Identity,
    /// The volume or the snapshot of another server, or of this one, that it is a copy of.
    pub copy_of: Option<Identity>,
    /// How much of it is there, as long as it is not complete.
    pub receiving: Option<Receiving>,
}

/// The object that a name in a directory names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// The name.
    pub name: Name,
    /// The number of the object.
    pub vnode: u64,
    /// Tells two uses of the number apart.
    pub uniq: u32,
    /// The kind of the object.
    pub kind: Kind,
}

/// One thing that a snapshot has, or has no more.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamPiece {
    /// An object. The pieces of its contents follow.
    Object {
        vnode: u64,
        uniq: u32,
        attr: Attr,
        /// The directory that has its name, of several names one of them; 0: none, or the root.
        parent: u64,
        /// The position of that name.
        home: u64,
        /// Of a directory: the position that the next name gets.
        next_position: u64,
        /// Of a file: how many of its first bytes the sender keeps in its index.
        inline: u32,
    },
    /// The object is gone, with all that it had.
    Gone { vnode: u64 },
    /// The entry of a directory at a position; `None`: nothing any more.
    Place {
        dir: u64,
        position: u64,
        child: Option<Child>,
    },
    /// An extended attribute; `None`: it is gone.
    Xattr {
        vnode: u64,
        name: Vec<u8>,
        value: Option<Blob>,
    },
    /// The target of a symbolic link; the name of the volume behind a mount point, whose attributes
    /// hold a number that means nothing here.
    Target { vnode: u64, target: Blob },
    /// Bytes of a file: so many of those beside the pieces, behind those of the pieces before.
    /// `inline`: the sender keeps them in its index.
    Bytes {
        vnode: u64,
        offset: u64,
        len: u32,
        inline: bool,
    },
    /// A part of a file in which there is nothing any more.
    Hole { vnode: u64, from: u64, to: u64 },
}

/// A part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamChunk {
    /// The pieces.
    pub pieces: Vec<StreamPiece>,
    /// The bytes of files that belong to them.
    pub bytes: Blob,
}

/// The reply to a client that asks for a part of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dump {
    /// The snapshot that is sent.
    pub head: StreamHead,
    /// The part.
    pub chunk: StreamChunk,
    /// From where the next part is to be asked for; `None`: this was the last one.
    pub next: Option<Blob>,
}
