//! The client's own vocabulary: the words in which a front talks to it. A front uses these names
//! and those of `wire`, and knows nothing of the machine behind them.

use net::Bulk;
use std::fmt::Debug;
use std::sync::Arc;
use wire::{Caller, Change, Fid, Refusal, SessionId};

/// A call of a program.
pub type Call = logic::client::Call;
/// The caller and the thread that ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The user and groups, by the rules of permission.
    pub caller: Caller,
    /// The kernel's thread that waits for the answer; 0: not known, or none.
    pub thread: u32,
    /// The waiter for the answer, perhaps by way of the front, which makes several calls for one
    /// request.
    pub waits: Waits,
}

impl From<Caller> for Asker {
    fn from(caller: Caller) -> Self {
        Asker {
            caller,
            ..Asker::default()
        }
    }
}

/// Where written bytes come from.
pub type How = logic::client::How;
/// The answer to a call.
pub type Done = logic::client::Done;
/// How long the kernel may keep an answer.
pub type Lifetime = logic::client::Lifetime;
/// An entry of a listing.
pub type Listed = logic::client::Listed;
/// A notification to the kernel to drop something.
pub type Invalidate = logic::client::Invalidate;
/// The waiter for an answer.
pub type Waits = logic::client::Waits;
/// Somebody who waits.
pub type Waiting = logic::client::Waiting;
/// The machine's limits and delays.
pub type MachineOptions = logic::client::Options;
/// When blocks are lent to other clients.
pub type Lends = logic::client::Lends;
/// How much a client does for others at most.
pub type LendLimits = logic::client::LendLimits;
/// The machine's figures.
pub type Figures = logic::client::Figures;
/// Between what the size of the cache varies.
pub type Bounds = logic::memory::Bounds;
/// A token as listed for people.
pub type TokenLine = logic::client::TokenLine;

/// The addresses of a server.
pub type Addresses = net::Addresses;
/// How often something happened, and how long it took.
pub type Meter = net::Meter;
/// The reading of a meter.
pub type Reading = net::Reading;

/// The clock of meters, ns.
#[must_use]
pub fn now_ns() -> u64 {
    net::clock::now_ns()
}

/// A front: it shows the tree to programs, and caches what it was given until it is told to drop
/// it.
pub trait Front: Send + Sync {
    /// Something must be dropped. Queues the work and returns at once; when it is done,
    /// [`crate::Client::invalidated`] is called with the same `id`, by any thread.
    fn invalidate(&self, id: u64, what: Invalidate);

    /// The attributes of this object must be thrown away, and those that are on their way to where
    /// they are cached. Done when this returns; waits for nothing, as a call that is about to be
    /// answered has the object in use.
    fn outdated(&self, fid: Fid);

    /// Much memory was freed that is not needed soon: it may go back to the system. Called by a
    /// thread that nobody waits for.
    fn released(&self);

    /// These have been waiting for a while: whether they end, or handle a signal, is to be said by
    /// [`crate::Client::abandon`] or [`crate::Client::interrupt`]. Queues the work and returns.
    fn look(&self, callers: Vec<Waiting>);

    /// Returns when every answer given so far has arrived where it goes. Called before a message
    /// leaves, since that may tell the server of it.
    fn settle(&self);
}

/// Why the server of a volume is sought.
pub type Missing = net::Missing;

/// Finds the server of a volume when it is not where it was. A client that goes on at another one
/// does so in its session, as with a server that was restarted.
pub trait Finder: Debug + Send + Sync {
    /// Where the volume of this number is; `None`: nobody knows, or it is on its way. It may take
    /// as long as it takes to ask other servers. It may be called, and may return, after the client
    /// was stopped.
    fn find(&self, volume: u32, missing: Missing) -> Option<Addresses>;

    /// The client goes on with its session of this volume at another server.
    fn moved(&self, volume: u32, session: SessionId, from_to: (&Addresses, &Addresses));
}

/// A call's answer with its bytes.
#[derive(Debug)]
pub struct Completion {
    /// The answer.
    pub done: Done,
    /// The bytes of `Done::Read` or `Done::Opened`, in order; empty for all other answers. They are
    /// those that the pieces of the answer named when it was given.
    pub bytes: Bulk,
}

impl Completion {
    /// A refusal.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Completion {
        Completion {
            done: Done::Refused(refusal),
            bytes: Bulk::empty(),
        }
    }
}

/// Takes a call's answer; called once, without a lock held, in the order of the answers. It may
/// make further calls.
pub type OnDone = Box<dyn FnOnce(Completion) + Send>;

/// The news for a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Some changes before these were missed.
    pub missed: bool,
    /// Changes, in the order of the server.
    pub changes: Vec<Change>,
    /// Nothing more comes, and why.
    pub end: Option<Refusal>,
}

/// Takes the news for a watcher; called without a lock held, in the order of the server. The first
/// that comes says that the watch has begun. Must not wait for anything.
pub type OnNews = Arc<dyn Fn(News) + Send + Sync>;

/// How much memory cached blocks may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSize {
    /// Always the same.
    Fixed {
        /// MiB.
        mib: u32,
    },
    /// The memory that nobody else wants.
    Varies {
        /// Always so much, MiB.
        least_mib: u32,
        /// Never more, MiB; `None`: as much as the machine has.
        most_mib: Option<u32>,
        /// For so long programs' pages stay, ns.
        penalty_ns: u64,
    },
}

impl CacheSize {
    /// The bounds of a size that varies.
    #[must_use]
    pub fn bounds(self) -> Option<Bounds> {
        let CacheSize::Varies {
            least_mib,
            most_mib,
            penalty_ns,
        } = self
        else {
            return None;
        };
        Some(Bounds {
            least: u64::from(least_mib) << 20,
            most: most_mib.map_or(u64::MAX, |mib| u64::from(mib) << 20),
            penalty: penalty_ns,
        })
    }

    /// A size for the beginning, MiB.
    #[must_use]
    pub fn first_mib(self) -> u32 {
        match self {
            CacheSize::Fixed { mib } => mib,
            CacheSize::Varies { least_mib, .. } => least_mib,
        }
    }
}

/// How much memory the cache has, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Does its size vary?
    pub varies: bool,
    /// How large it may be now.
    pub size: u64,
    /// The least and the most that it may ever be.
    pub least: u64,
    /// See above.
    pub most: u64,
    /// For so long programs' pages stay, ns.
    pub penalty_ns: u64,
    /// Memory that blocks take, and some that is kept for the next.
    pub resident: u64,
    /// The cause that made it smaller than it could be, when that was looked at last.
    pub pressed: &'static str,
    /// How often something had.
    pub presses: u64,
    /// Memory that went back to the machine since somebody else wanted it.
    pub given_back: u64,
}

impl Memory {
    /// At the beginning.
    pub(crate) fn new(bounds: Option<Bounds>, slots: u32) -> Memory {
        let fixed = u64::from(slots) * u64::from(wire::limits::BLOCK_BYTES);
        Memory {
            varies: bounds.is_some(),
            size: fixed,
            least: bounds.map_or(fixed, |bounds| bounds.least),
            most: bounds.map_or(fixed, |bounds| bounds.most),
            penalty_ns: bounds.map_or(0, |bounds| bounds.penalty),
            pressed: logic::memory::Pressed::Nothing.word(),
            ..Memory::default()
        }
    }
}

/// How a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent, by kind.
    pub sent: Vec<(&'static str, u64)>,
    /// Messages received, by kind.
    pub received: Vec<(&'static str, u64)>,
    /// Connections made.
    pub connections: u64,
    /// Sessions lost: the server took the tokens of a client that it did not hear.
    pub sessions_lost: u64,
    /// Changed bytes that could not be written back and are gone.
    pub lost_bytes: u64,
    /// Changes of names and attributes that the server was not told of and are gone.
    pub lost_changes: u64,
    /// Write-backs refused, to be tried again.
    pub refused_write_backs: u64,
    /// The last object of which bytes were lost.
    pub last_lost: Option<Fid>,
}
