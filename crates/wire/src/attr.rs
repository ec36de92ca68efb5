//! Attributes of files, and changes of them.

use crate::ids::{Fid, Time};
use serde::{Deserialize, Serialize};

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device's name.
    Character,
    /// A block device's name.
    Block,
    /// A mount point: for programs the root of another volume stands in its place.
    Mount,
}

impl Kind {
    /// Does it look like a directory to programs? Its name counts as one of those of its parent.
    #[must_use]
    pub const fn looks_like_directory(self) -> bool {
        matches!(self, Self::Directory | Self::Mount)
    }
}

/// The attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attr {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, set-id bits and the sticky bit: the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names (of a directory: 2 + number of directories in it).
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes that it occupies.
    pub used_bytes: u64,
    /// Device number of a character or block device, as in `st_rdev`; of a mount point the number
    /// of the volume whose root stands there, 0 if there never was one, and the same for ever.
    pub rdev: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the content or of an attribute.
    pub ctime: Time,
    /// When it was made.
    pub btime: Time,
    /// Raised with each change of the content: a client that holds blocks of another version drops
    /// them.
    pub version: u64,
}

impl Attr {
    /// The root that stands in the place of a mount point.
    #[must_use]
    pub fn leads_to(&self) -> Option<Fid> {
        (self.kind == Kind::Mount).then(|| Fid::root(self.rdev))
    }

    /// Those of a new object of root, which is empty and was made then.
    #[must_use]
    pub fn new(kind: Kind, mode: u16, made: Time) -> Self {
        Self {
            kind,
            mode,
            uid: 0,
            gid: 0,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            size: 0,
            used_bytes: 0,
            rdev: 0,
            atime: made,
            mtime: made,
            ctime: made,
            btime: made,
            version: 1,
        }
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The time of the operation.
    Now,
    /// This time.
    To(Time),
}

/// A change of attributes; attributes that are `None` stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// New mode (12 bits).
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size: bytes cut off are gone, bytes added read as zeros.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// Take away set-user-id and set-group-id as a write by an ordinary user does.
    pub kill_set_id: bool,
}
