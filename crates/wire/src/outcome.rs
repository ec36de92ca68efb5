//! Results of operations.

use crate::attr::{Attr, Kind};
use crate::ids::{Epoch, Fid, Time};
use crate::lend::Elsewhere;
use crate::lock::{Lock, Locked};
use crate::message::Right;
use crate::name::Name;
use crate::refusal::Refusal;
use crate::stream::Dump;
use crate::volume::{Room, VolumeInfo};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An object that was looked up, made or linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its fid.
    pub fid: Fid,
    /// Its attributes after the operation.
    pub attr: Attr,
    /// Attributes of the directory after the operation.
    pub dir: Attr,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name.
    pub name: Name,
    /// The object that it names.
    pub fid: Fid,
    /// Its kind.
    pub kind: Kind,
    /// Where a listing goes on after this entry: positive, below 2^40, and the same for as long as
    /// the name exists.
    pub position: u64,
    /// The attributes, where the server can vouch for them without asking anybody.
    pub attr: Option<Attr>,
    /// So many bytes of it, which are all that it has, travel beside the answer, behind those of
    /// the entries before it; 0: none.
    pub ahead: u32,
    /// It has no extended attributes at all.
    pub bare: bool,
}

/// Numbers of a whole file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Objects that exist.
    pub files: u64,
    /// Objects that may still be made.
    pub free_files: u64,
}

/// The outcome of an operation.
#[allow(missing_docs, clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was refused; nothing changed.
    Refused(Refusal),
    /// A name does not exist (answer to a look-up only): the directory's attributes.
    Absent { dir: Attr },
    /// An object.
    Entry(Entry),
    /// Attributes after the operation.
    Attr(Attr),
    /// A symbolic link's target.
    Target(Vec<u8>),
    /// A name was removed.
    Removed {
        /// The object that it named.
        fid: Fid,
        /// Its attributes now; `nlink` 0 when this was the last name (a directory's too).
        attr: Attr,
        /// The directory's attributes now.
        dir: Attr,
    },
    /// A name was moved.
    Renamed {
        /// The object that was moved.
        fid: Fid,
        /// Its attributes now.
        attr: Attr,
        /// The object that the new name named before: removed, or exchanged; and its attributes
        /// now.
        victim: Option<(Fid, Attr)>,
        /// Attributes of the directory moved from.
        from: Attr,
        /// Attributes of the directory moved to (the same, if it is the same).
        to: Attr,
    },
    /// A file was opened: its attributes.
    Opened(Attr),
    /// Bytes were read; they travel beside this. `size` is the file's size at that moment.
    Read { len: u32, size: u64 },
    /// Bytes were written, at this offset; the attributes after it.
    Written { offset: u64, attr: Attr },
    /// Part of a listing; `end` when nothing follows. `last`: the last position that the directory
    /// has given, so that a listing need not follow what is added behind it; in a replica the
    /// release that is listed is in the bits above [`crate::limits::LAST_BITS`], else nothing.
    Dir {
        entries: Vec<DirEntry>,
        end: bool,
        last: u64,
        dir: Attr,
    },
    /// Numbers of the file system.
    Filesystem(Filesystem),
    /// A value or a list of an extended attribute.
    Value(Vec<u8>),
    /// Done, with nothing to say.
    Done,
    /// The outcome of a request for a lock, and when: later epochs name later outcomes, whichever
    /// answer comes first. `delegated`: from then on the client decides about the locks of this
    /// file, as soon as none of its requests about them is under way.
    Locked {
        locked: Locked,
        at: Epoch,
        delegated: bool,
    },
    /// The lock that is in the way; the process of a lock of another machine is 0.
    InTheWay(Option<Lock>),
    /// So many bytes were copied; the attributes of the file that got them.
    Copied { len: u32, attr: Attr },
    /// A place in a file.
    Position(u64),
    /// Numbers of objects, from this one on.
    Numbers { first: u64, count: u32 },
    /// A volume, after a change of it.
    Volume(VolumeInfo),
    /// Volumes, with those whose deletion can be undone, by their numbers.
    Volumes(Vec<VolumeInfo>),
    /// The bytes of a read are to be had from another client.
    Elsewhere(Elsewhere),
    /// Room for what is answered ahead of the server.
    Room(Room),
    /// A part of a volume's stream.
    Dump(Box<Dump>),
}

/// A right that comes with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// On what.
    pub fid: Fid,
    /// Which right.
    pub right: Right,
    /// Its place in the order of grants and recalls: void for a client that has seen a later
    /// recall.
    pub epoch: Epoch,
    /// It has no extended attributes at all; `false`: not known.
    pub bare: bool,
}

/// Where a change is in the server's log. It is unstable until that record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// The record.
    pub record: u64,
    /// The time at which the change was made.
    pub at: Time,
}

/// The server's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Its outcome.
    pub outcome: Outcome,
    /// The rights to cache that the client has from now on.
    pub grants: Vec<Grant>,
    /// When this tells the size of a file and no right comes with it: the client had answered all
    /// recalls of that file up to here when the answer was made. 0: not said.
    pub heard: Epoch,
    /// Of a change that this run of the server has made: where it is in the log.
    pub logged: Option<Logged>,
    /// Of a delegated change that met what others have done in that directory since its token was
    /// taken from a silent client: the other directory and name that it has made instead.
    pub aside: Option<(Fid, Name)>,
}

impl From<Outcome> for Reply {
    /// With which nothing is granted.
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            grants: Vec::new(),
            heard: 0,
            logged: None,
            aside: None,
        }
    }
}
