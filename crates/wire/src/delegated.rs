//! The data that goes with a change which a client has made by itself, and tells later.

use crate::ids::{Fid, Time};
use serde::{Deserialize, Serialize};

/// Numbers that a client has chosen for a delegated change, and has told its callers of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The number of what is made, of those that the client was given; 0: nothing is.
    pub vnode: u64,
    /// The position of the name that is made, unless a name that is there keeps its own; 0: the
    /// next one of the directory, as of any other change.
    pub position: u64,
}

/// The part of a request that makes it one for a delegated change: the client has answered its
/// caller already, under the Exclusive tokens of the directories and objects that it is about. It
/// waits for nobody but the delegated change before it; without the tokens it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegated {
    /// When, by the volume's clock.
    pub at: Time,
    /// The numbers that the client has chosen for it.
    pub chosen: Chosen,
    /// The client's machine may still show how things were before.
    pub unseen: bool,
    /// The objects that the names named which it takes away: the one that it removes or moves, and
    /// the one that it moves something to; each with the version of its content. If the tokens were
    /// taken from a silent client meanwhile, nothing else is taken away in their stead.
    pub named: [Option<(Fid, u64)>; 2],
}
