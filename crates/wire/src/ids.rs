//! Names of things. None of them holds a location, a pointer or a host.

use serde::{Deserialize, Serialize};

/// Nanoseconds. What files are stamped with is the volume's clock, which the server keeps: since
/// 1970. Everything else is the clock of the process that says it, since whenever that likes.
/// Neither runs backwards.
pub type Time = u64;

/// Orders grants and recalls of a partition, and the restarts of its server: every grant and every
/// recall takes the next number, and a restart begins far above all earlier ones.
pub type Epoch = u64;

/// One client's stay with a server, chosen by the client at random; never zero.
pub type SessionId = u64;

/// Numbers the requests of a session from 1 upwards, never reused within it.
pub type RequestId = u64;

/// Names a file, a directory or any other object for ever (Andrew, section 5.2): it holds no
/// location, and is not used again when the object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fid {
    /// The volume that the object belongs to.
    pub volume: u32,
    /// The object within the volume.
    pub vnode: u64,
    /// Tells two uses of one vnode number apart.
    pub uniq: u32,
}

impl Fid {
    /// The root directory of a volume.
    pub const fn root(volume: u32) -> Self {
        Self {
            volume,
            vnode: 1,
            uniq: 1,
        }
    }
}

impl core::fmt::Display for Fid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}.{}", self.volume, self.vnode, self.uniq)
    }
}
