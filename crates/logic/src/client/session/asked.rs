//! Requests and statements of the client that the server has not answered.
//!
//! Guarantee: a request keeps its number, and all that it brings, until it is answered. So it can
//! be sent again as it was.

use crate::Ticket;
use crate::client::node::FillStart;
use crate::client::piece::Piece;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Fid, Request, RequestId, Room, Time, ToServer, Unseen};

/// The requests and statements to the server that it has not answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) last_request: RequestId,
    /// The request whose answer is being taken in.
    pub(crate) answering: RequestId,
    pub(crate) requests: BTreeMap<RequestId, Sent>,
    /// Reports of opens and of tokens given back, until the server has noted them.
    pub(crate) statements: BTreeMap<Fid, Statement>,
    pub(crate) last_stamp: u64,
    /// Objects asked for that were not known, while a file was being made and opened.
    pub(crate) guessed: BTreeSet<Fid>,
    /// Requests whose answer the server wants to be told of.
    pub(crate) confirms: BTreeSet<RequestId>,
    /// Calls whose request is answered, but not they: the kernel must drop something first. Each
    /// with what the kernel may have kept until its change was done.
    pub(crate) unfinished: BTreeMap<Ticket, (RequestId, Option<Unseen>)>,
}

/// Why a request was sent.
#[derive(Clone, Debug)]
pub(crate) enum Why {
    /// For a call. With the object's fill count when it was sent.
    Call(Ticket),
    /// To fill blocks: which file, first block, how many, and the file's fill count.
    Fill {
        fid: Fid,
        first: u64,
        count: u32,
        since: FillStart,
    },
    /// To know what follows in a directory, ahead of its use.
    Walk,
    /// To know all names of a directory.
    Names,
    /// About locks, and for no call.
    Lock,
    /// To write blocks back: which file, first block, how many.
    Back { fid: Fid, first: u64, count: u32 },
    /// To take the capabilities from a file that is written: which, and how often it may have got
    /// some.
    Privileges { fid: Fid, sets: u32 },
    /// To find a place for bytes of this file that were not written back in time.
    Stranded(Fid),
    /// For numbers of what is made here.
    Numbers,
    /// For room in a volume; and for how much somebody waits.
    Room { volume: u32, need: Room },
    /// To have the server make stable what it has.
    Stable,
    /// To tell of a change that is answered.
    Delegated(crate::client::delegation::changes::LoggedObjects),
}

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) request: Request,
    pub(crate) bulk: Vec<Piece>,
    pub(crate) why: Why,
    /// When it left for the first time: a server that answers it has heard this client since.
    pub(crate) left: Option<Time>,
    /// Not to be sent before its turn.
    pub(crate) kept: bool,
    /// It was sent, on whichever connection.
    pub(crate) said: bool,
}

impl Sent {
    /// One that is sent later.
    pub(crate) fn kept(request: Request, why: Why) -> Self {
        Self {
            request,
            bulk: Vec::new(),
            why,
            left: None,
            kept: true,
            said: false,
        }
    }
}

/// A report about an object's opens or token.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(super) stamp: u64,
    pub(super) message: ToServer,
}
