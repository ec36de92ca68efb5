//! A request of a client: the operation, in whose name, and what it depends on.

use crate::delegated::Delegated;
use crate::ids::{RequestId, Time};
use crate::lend::Lenders;
use crate::message::{Again, Hold};
use crate::op::{Caller, Op};
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number in the session.
    pub id: RequestId,
    /// All requests below this number have been answered to their callers: the server forgets them.
    pub acked: RequestId,
    /// The operation.
    pub op: Op,
    /// The user and groups that ask.
    pub caller: Caller,
    /// The opens of the client on the file that the operation names, this open included.
    pub hold: Hold,
    /// The bytes of a read may stay in the kernel's page cache, outside the client's sight; or a
    /// directory that is made, or in which names are changed, may be delegated to the client; or a
    /// listing is wanted with attributes, and tokens for them.
    pub keeps: bool,
    /// A look-up, or a listing with attributes, may bring the bytes of files that are no longer
    /// than this.
    pub ahead: u32,
    /// The latest time of the volume's clock that the client has stamped anything with; 0: none.
    pub clock: Time,
    /// It was answered to its caller before it was sent.
    pub delegated: Option<Delegated>,
    /// The last delegated change before it: it is done when that has been applied; 0: none.
    pub after: RequestId,
    /// It was answered before, and the server has lost it.
    pub again: Option<Box<Again>>,
    /// Of a read: the clients that may bring the bytes.
    pub lenders: Lenders,
}

impl Request {
    /// A request of root that depends on no other and opens nothing.
    #[must_use]
    pub fn new(id: RequestId, op: Op) -> Request {
        Request {
            id,
            acked: 0,
            op,
            caller: Caller::default(),
            hold: Hold::default(),
            keeps: false,
            ahead: 0,
            clock: 0,
            delegated: None,
            after: 0,
            again: None,
            lenders: Lenders::None,
        }
    }
}
