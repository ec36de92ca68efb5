//! Messages between a client and a server. Both directions share one connection. In each, short
//! messages overtake long ones, and messages under way when a connection ends are lost; nothing
//! relies on more: messages that cross are put in order by epochs, request numbers and stamps.

use crate::attr::Attr;
use crate::delegated::Chosen;
use crate::ids::{Epoch, Fid, RequestId, SessionId, Time};
use crate::lend::{Handed, Last, Leaving, LenderId, Secret, Spare};
use crate::lock::HeldLock;
use crate::name::Name;
use crate::outcome::{Outcome, Reply};
use crate::refusal::Refusal;
use crate::request::Request;
use crate::rights::Rights;
use crate::watch::{Change, WatchId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The right to cache. On a file it covers data and attributes, on a directory its entries, present
/// and absent, and its attributes. Ordered by strength.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Right {
    /// Nothing may be cached.
    #[default]
    None,
    /// Pages that the kernel was given while the file was shared: they may stay until the server
    /// asks for them, which it does before every change.
    Transient,
    /// May be read from the cache.
    Shared,
    /// May be read and changed in the cache.
    Exclusive,
}

/// The opens of a client on a file, opens on their way to the server included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// It is open, in whatever way.
    pub open: bool,
    /// It is open for writing.
    pub write: bool,
    /// Raised by the client with each statement of this kind: the latest one counts.
    pub stamp: u64,
}

/// A client's claim to one file, sent to a restarted server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Of what.
    pub fid: Fid,
    /// The right that it holds.
    pub right: Right,
    /// Its opens.
    pub hold: Hold,
}

/// A change that a client has asked for and whose caller has not been answered, told to a restarted
/// server: if it was applied before, others are shown it only when the caller has been answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// Which request.
    pub request: RequestId,
    /// The names that it changes.
    pub names: Vec<(Fid, Name)>,
    /// The objects that it changes, as far as the client knows them.
    pub fids: Vec<Fid>,
}

/// Makes an operation the same one when it is repeated, also over a restart of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The session of the request.
    pub session: SessionId,
    /// Which.
    pub request: RequestId,
}

/// The place of a change in the order of the server's log: a run of the server, and the number of
/// the change's record in its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The run, by its first epoch.
    pub boot: Epoch,
    /// The record.
    pub record: u64,
}

/// The part of a request that asks again for a change that was answered before, and that the
/// server's machine has lost with its power. The change is made again as it was, at its time and
/// with its numbers, and in the order of the places of all such changes, whichever clients ask for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Again {
    /// Where it was when it was made for the first time.
    pub place: Place,
    /// How many changes its client asks for again before it.
    pub index: u32,
    /// When it was made.
    pub at: Time,
    /// Which numbers what it makes has.
    pub chosen: Chosen,
    /// The objects that the names named which it takes away: the one that it removes or moves, and
    /// the one that it moves something to. If they name something else, it is not made.
    pub named: [Option<Fid>; 2],
}

/// A demand of the server on a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// Keep at most this right. A client that is asked for Shared and has the file open for writing
    /// keeps none, since the file is write-shared from then on.
    Keep(Right),
    /// These names of a directory (or none), and its attributes and listing, change: drop them. The
    /// token stays.
    Names(Vec<Name>),
    /// Which size and times does the file have? The holder may also step down to Shared.
    Attr,
    /// Somebody lists it, and may look at it next: unless it is open for writing, changed blocks
    /// are written back, and the holder steps down to Shared when that is done. It answers at once.
    Listed,
    /// Somebody else changes names in this directory, and nobody else does: a client that does not
    /// use it gives it up by `Release`, with all that its kernel knows of it. It answers at once.
    Unused,
    /// The locks of this file are not the client's to decide any more. It answers by a request,
    /// `GiveLocks`.
    Locks,
}

/// A callback: a request from the server to a client about what it caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recall {
    /// On what.
    pub fid: Fid,
    /// Its place in the order: grants of this object with a lower epoch are void from now on,
    /// unless they had arrived and are kept.
    pub epoch: Epoch,
    /// The demand.
    pub what: What,
}

/// The answer to a callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// Of what.
    pub fid: Fid,
    /// The recall's epoch.
    pub epoch: Epoch,
    /// The right that the client still holds.
    pub right: Right,
    /// No grant up to this epoch is in use beyond `right`: it has been dropped or is void.
    pub upto: Epoch,
    /// Its opens.
    pub hold: Hold,
    /// The holder's attributes, when it was asked for them and holds Exclusive.
    pub attr: Option<Attr>,
}

/// The server's answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The first epoch of this run of the server: another one means that it restarted.
    pub boot: Epoch,
    /// Another one than before, in a session that was known: the client must say by `Reassert` what
    /// it holds, since the server does not know it, or has taken some of it.
    pub term: Epoch,
    /// The root of the tree.
    pub root: Fid,
    /// The session was known, by this run or by what the last run left on disk.
    pub resumed: bool,
    /// How long a silent client keeps its tokens, ns. 0: as long as before, and this greeting did
    /// not renew that, since the client leaves a question unanswered.
    pub lease_ns: Time,
    /// The time that the server's own clock shows.
    pub clock: Time,
    /// The last record that each of the latest runs of the server before this one had written and
    /// that was left when the next one began: its answers behind that are lost.
    pub left: Vec<Place>,
    /// The rights of the client's machine: the client shows its programs nothing else.
    pub rights: Rights,
}

/// A message of a client.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToServer {
    /// Opens a session, or goes on with it on a new connection.
    Hello {
        /// Version of the protocol.
        version: u32,
        /// The session.
        session: SessionId,
        /// A name for people: host and mount point.
        name: Vec<u8>,
        /// The volume, or the snapshot, whose root is to be the tree's; empty: the first volume.
        volume: Vec<u8>,
    },
    /// Asks for an operation. Bytes to be written travel beside it.
    Request(Request),
    /// Asks for delegated changes, in their order.
    Requests(Vec<Request>),
    /// Answers a recall.
    Returned(Returned),
    /// Gives a token back unasked: valid if the last grant known to the server is this one.
    Release {
        /// Of what.
        fid: Fid,
        /// The last grant's epoch.
        epoch: Epoch,
        /// The right that is kept.
        right: Right,
        /// Its opens.
        hold: Hold,
    },
    /// The opens of a file have changed; sent when no token covers them.
    Opens {
        /// Of what.
        fid: Fid,
        /// The opens now.
        hold: Hold,
    },
    /// This request has been answered to its caller.
    Confirmed {
        /// Which.
        request: RequestId,
    },
    /// In a new term: what the client holds and waits for, in parts.
    Reassert {
        /// The term that it is meant for.
        term: Epoch,
        /// Which part this is, from 0 on, and of how many.
        part: (u32, u32),
        /// How many changes it asks for again.
        again: u32,
        /// Its tokens and opens.
        holdings: Vec<Holding>,
        /// Changes that its callers have not seen answered.
        unseen: Vec<Unseen>,
        /// Locks that it holds.
        locks: Vec<HeldLock>,
    },
    /// Renews the lease.
    KeepAlive {
        /// When it was sent, by the client's clock: comes back in `Alive`.
        sent: Time,
        /// As in requests.
        acked: RequestId,
    },
    /// Ends the session: everything has been given back.
    Goodbye,
    /// This change of names holds a lock in its kernel that an answer to a recall needs: it is to
    /// be refused with `Again` if an earlier request waits for that answer. May be lost.
    PutBack {
        /// Which.
        request: RequestId,
    },
    /// Answers `Waited`.
    Heard {
        /// Which request.
        request: RequestId,
    },
    /// Wants to be told what changes; said again on each new connection.
    Watch {
        /// Which watch.
        watch: WatchId,
        /// A directory, or anything else.
        fid: Fid,
        /// All that is below it, at whatever depth.
        recursive: bool,
        /// The number of the next change that it has not been told; 0: none yet.
        next: u64,
    },
    /// Answers `Watched`: the changes have been taken.
    Took {
        /// Which watch.
        watch: WatchId,
        /// The number of the next change that it has not been told.
        next: u64,
    },
    /// Wants to be told no more.
    Unwatch {
        /// Which watch.
        watch: WatchId,
    },
    /// Lends blocks of its cache, and borrows from others; said on each new connection, once the
    /// server has said that clients do so.
    Lends {
        /// Where it listens, as text.
        addr: Vec<u8>,
        /// The print of its key.
        key: Secret,
    },
    /// Blocks are about to leave its cache, those first that lay unused for longest; said by
    /// clients that keep blocks for others. Without blocks: only the room that it has.
    Leaving {
        /// The blocks.
        blocks: Vec<Leaving>,
        /// Its room for blocks of others.
        spare: Spare,
    },
}

/// A message of a server.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// Answers `Hello`.
    Welcome(Welcome),
    /// Answers a request. Bytes that were read travel beside it.
    Reply {
        /// Which request.
        id: RequestId,
        /// The answer.
        reply: Reply,
        /// Nothing at the server has a later time when it leaves.
        clock: Time,
        /// The lease runs from when the request was sent, at least.
        renews: bool,
        /// Up to this record of the server's log everything is stable.
        stable: u64,
    },
    /// A callback.
    Recall(Recall),
    /// Has this request been answered to its caller? Somebody wants to see its effect.
    Confirm {
        /// Which.
        request: RequestId,
    },
    /// Answers `KeepAlive`: the lease runs from the time given. Zero: from no other time than
    /// before, since the client leaves a question unanswered.
    Alive {
        /// As it was sent.
        sent: Time,
        /// The time that the server's own clock shows.
        clock: Time,
        /// Up to this record of the server's log everything is stable.
        stable: u64,
    },
    /// Answers `Opens` and `Release`, which are said again on each new connection until this comes.
    Noted {
        /// Of what.
        fid: Fid,
        /// The statement's stamp.
        stamp: u64,
    },
    /// A part of `Reassert`, which is said again likewise, has come.
    Reasserted {
        /// The term.
        term: Epoch,
        /// The part.
        part: u32,
        /// The objects among these that the client does not hold any more: others have wanted them.
        taken: Vec<Fid>,
        /// Files of which it has lost its locks, and the right to decide about locks.
        unlocked: Vec<Fid>,
    },
    /// The session is over: the lease ended, or the server does not know it.
    Lost,
    /// This request for a lock, answered by `Waits` before, waits no more; repeated until `Heard`.
    Waited {
        /// Which request.
        request: RequestId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// Changes of what is watched; repeated until `Took` says that they came.
    Watched {
        /// Which watch.
        watch: WatchId,
        /// The number of the first of them.
        first: u64,
        /// Changes before this one have not been told, and will not be.
        missed: bool,
        /// The changes, in their order.
        changes: Vec<Change>,
        /// Nothing more comes, and why.
        end: Option<Refusal>,
    },
    /// Clients lend blocks to each other from now on.
    Lend {
        /// The client's number among those that do.
        lender: LenderId,
        /// The secret that the capabilities for it are sealed with.
        secret: Secret,
    },
    /// They do so no more.
    Keep,
    /// Clients that lend say by `Leaving` which blocks leave their caches, and may keep blocks for
    /// each other; follows `Lend`, until `Keep`.
    Share {
        /// The weight of the age of a copy beside that of a block that nobody else has, 16ths: of
        /// the blocks that make room for the client's own...
        copies_weigh: u32,
        /// ...and for one of others.
        others_weigh: u32,
    },
    /// Keep these blocks for the others.
    Take(Handed),
    /// Of these blocks no other client has a copy any more. To clients of version 23 on.
    Last(Vec<Last>),
}

/// How a peer broke the protocol: the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Violation {
    /// The bytes are not a message.
    Undecodable,
    /// Another version of the protocol.
    Version,
    /// A message before the greeting, or a second greeting.
    Greeting,
    /// A bound was broken.
    Bounds,
    /// An operation that clients may not ask for.
    Forbidden,
    /// The session of another machine.
    Foreign,
    /// A volume that is not there.
    NoVolume,
    /// A volume of which its machine was granted nothing.
    NotGranted,
    /// A client that speaks a version without replicas, where a replica is.
    NoReplicas,
}

impl ToServer {
    /// Is it the last word on its connection, behind all that was said before?
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Goodbye)
    }

    /// The message's kind, for counters and traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "Hello",
            Self::Request(request) => request.op.kind(),
            Self::Requests(_) => "Requests",
            Self::Returned(_) => "Returned",
            Self::Release { .. } => "Release",
            Self::Opens { .. } => "Opens",
            Self::Confirmed { .. } => "Confirmed",
            Self::Reassert { .. } => "Reassert",
            Self::KeepAlive { .. } => "KeepAlive",
            Self::Goodbye => "Goodbye",
            Self::PutBack { .. } => "PutBack",
            Self::Heard { .. } => "Heard",
            Self::Watch { .. } => "Watch",
            Self::Took { .. } => "Took",
            Self::Unwatch { .. } => "Unwatch",
            Self::Lends { .. } => "Lends",
            Self::Leaving { .. } => "Leaving",
        }
    }
}

impl ToClient {
    /// Is it the last word on its connection, behind all that was said before?
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Lost)
    }

    /// The message's kind, for counters and traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "Welcome",
            Self::Reply { .. } => "Reply",
            Self::Recall(_) => "Recall",
            Self::Confirm { .. } => "Confirm",
            Self::Alive { .. } => "Alive",
            Self::Noted { .. } => "Noted",
            Self::Reasserted { .. } => "Reasserted",
            Self::Lost => "Lost",
            Self::Waited { .. } => "Waited",
            Self::Watched { .. } => "Watched",
            Self::Lend { .. } => "Lend",
            Self::Keep => "Keep",
            Self::Share { .. } => "Share",
            Self::Take(_) => "Take",
            Self::Last(_) => "Last",
        }
    }
}
