//! Notices of the client's machine: what the kernel must drop, what people should know, and who
//! waits for an answer.

use crate::Ticket;
use alloc::vec::Vec;
use wire::{Fid, Name, Refusal, Time};

/// The waiter for a call's answer: of several calls that the front makes for one request, it is
/// the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The kernel's thread; 0: not known, or none.
    pub thread: u32,
    /// The front's number of the request, by which `Signalled` names it.
    pub number: u64,
}

/// Somebody who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For the answer to this call.
    pub ticket: Ticket,
    /// The kernel's thread; 0: not known.
    pub thread: u32,
    /// The kernel has told of a signal.
    pub signalled: bool,
    /// For how long.
    pub waited_ns: Time,
}

/// A notification to the kernel to drop something.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// Attributes and, of these byte ranges (from, to; `u64::MAX`: to the end), pages. No ranges:
    /// attributes only.
    Inode {
        /// Of what.
        fid: Fid,
        /// Which ranges.
        ranges: Vec<(u64, u64)>,
        /// An answer that makes the kernel know the object may still be on its way to it.
        young: bool,
    },
    /// A name, and the directory's attributes and listing. Done under the directory's lock, which
    /// a call that is at the client may hold.
    Name {
        /// In which directory.
        dir: Fid,
        /// Which name.
        name: Name,
    },
    /// All names of all directories, and this directory's attributes and listing. Waits for no
    /// lock.
    Names {
        /// Which directory.
        dir: Fid,
    },
    /// That these names are right, which they are: the kernel asks again at their next use. And the
    /// directory's attributes and listing. Done under the directory's lock.
    Expire {
        /// In which directory.
        dir: Fid,
        /// Which names.
        names: Vec<Name>,
    },
    /// The answers about a file's attributes that are on their way. Its lock is got before and once
    /// more afterwards, so that a program that seeks to the end by such an answer has done so.
    Sizes {
        /// Of which file.
        fid: Fid,
    },
    /// Nothing; done when the object's lock was got, which the kernel holds during each change of
    /// it.
    Turn {
        /// Which object.
        fid: Fid,
    },
    /// A directory's attributes and listing.
    Listing {
        /// Which directory.
        dir: Fid,
    },
    /// Nothing that is in use: of these objects what nobody uses, with their names and pages.
    /// Where the kernel cannot be told so, nothing at all.
    Unused {
        /// Which objects.
        fids: Vec<Fid>,
    },
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session was lost: the server took the tokens of a silent client.
    SessionLost,
    /// Changed bytes of this file could not be written back and are gone.
    DataLost {
        /// Of which file.
        fid: Fid,
        /// How many bytes.
        bytes: u64,
    },
    /// Changes of names and attributes that the server had not been told of are gone.
    ChangesLost {
        /// How many.
        count: u64,
    },
    /// Others have changed a file, or taken a name, while this client was away: its own changes are
    /// in a file beside it.
    Conflict {
        /// Of which file.
        fid: Fid,
        /// Where; the same, if only the name is another one.
        made: Fid,
        /// How many bytes had not been written back.
        bytes: u64,
    },
    /// A mount point leads to a volume that is not there.
    VolumeGone {
        /// Its number; 0: none was known here when a stream brought the mount point.
        volume: u32,
    },
    /// A write-back was refused; it is tried again.
    WriteBackRefused {
        /// Of which file.
        fid: Fid,
        /// Why.
        refusal: Refusal,
    },
}
