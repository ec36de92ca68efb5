//! Changes as they are told to watchers: each one that was made in the tree, in the order in which
//! the server made them, by whichever client.

use crate::attr::Kind;
use crate::ids::Fid;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Numbers the watches of a client; never reused by it.
pub type WatchId = u64;

/// Where something is, as seen from what is watched: names with a `/` between two of them. Empty:
/// the watched object itself. `None`: not known, since the file has lost the name that was known,
/// and has others, or since the way there is longer than
/// [`limits::PATH_BYTES`](crate::limits::PATH_BYTES).
pub type Path = Option<Vec<u8>>;

/// The deed of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    /// It came to be under this name, or got it as another one, or was moved here from where nobody
    /// watches.
    Made,
    /// The name is gone, or was moved to where nobody watches.
    Removed,
    /// The name was moved; the object that had the new name has lost it.
    Moved {
        /// To where.
        to: Path,
    },
    /// The two names changed places.
    Exchanged {
        /// With which.
        with: Path,
    },
    /// Bytes of the file changed, or its size.
    Written,
    /// The mode, the owner, times, a list of access or an extended attribute changed.
    Attributes,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The deed.
    pub deed: Deed,
    /// To what.
    pub fid: Fid,
    /// Of which kind that is.
    pub kind: Kind,
    /// Under which name.
    pub path: Path,
}

impl Change {
    /// About how many bytes it takes in a message.
    pub fn bytes(&self) -> usize {
        let len = |path: &Path| path.as_ref().map_or(0, Vec::len);
        let other = match &self.deed {
            Deed::Moved { to } => len(to),
            Deed::Exchanged { with } => len(with),
            _ => 0,
        };
        len(&self.path) + other + size_of::<Self>()
    }
}
