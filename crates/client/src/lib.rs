//! The cache manager of one machine: runs the client's machine on memory and on the network. A
//! library; it knows neither FUSE nor any other front.
//!
//! Guarantees: the machine's outputs are carried out in their order, whichever threads the inputs
//! come from ([`effects`]); the front is never called with a lock held; every call is answered
//! once, unless the client is stopped before: then its callback is dropped. Nothing is decided
//! here: every decision is `logic::client`'s.
//!
//! A call runs on the thread that makes it, as far as the machine can answer without the server:
//! no hop to another thread. No call blocks.
#![forbid(unsafe_code)]

mod arena;
mod bytes;
mod close_session;
mod core;
mod effects;
mod errno;
mod error;
pub mod front;
mod leading;
mod lost;
mod memory;
mod peers;
pub mod priority;
mod state;
mod trim;

pub use close_session::close_session;
pub use errno::errno;
pub use error::ClientError;

use crate::core::Core;
use crate::front::{
    Asker, Bounds, Call, Completion, Counters, Done, Figures, Finder, Front, MachineOptions,
    Memory, OnDone, OnNews, Reading, TokenLine,
};
use crate::leading::Leading;
use crate::memory::Watch;
use crate::state::State;
use logic::Ticket;
use logic::client::Input;
use net::{Addresses, Dialer, Passage, Speaks, Timer};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use wire::{Caller, Fid, Refusal, Rights, SessionId, WatchId};

/// How often it is looked whether a leaving client gets on.
const LEAVE_STEP: Duration = Duration::from_millis(500);
/// How long a server that is away is waited for by a client that owes it nothing.
const AWAY_TIME: Duration = Duration::from_secs(2);
/// And by one that owes it something.
const OWING_TIME: Duration = Duration::from_secs(5);

/// Where a server is, and how it is reached.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its addresses.
    pub addresses: Addresses,
    /// How this machine shows itself.
    pub passage: Passage,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.addresses.fmt(f)
    }
}

/// The versions that this client speaks.
pub(crate) fn speaks() -> Speaks {
    Speaks {
        oldest: wire::VERSION_OLDEST,
        newest: wire::VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
    }
}

/// The options of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The server.
    pub server: Server,
    /// The machine's limits and delays.
    pub machine: MachineOptions,
    /// Between which bounds the size of the cache varies; `None`: it is that of `machine`.
    pub memory: Option<Bounds>,
    /// A name for people: host and mount point.
    pub name: String,
    /// Finds the server of the tree's volume when it is not where it was; `None`: nobody does.
    pub finder: Option<Arc<dyn Finder>>,
}

/// The data and changes that the server has not got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Changed bytes, in whole blocks.
    pub bytes: u64,
    /// Files that these are of.
    pub files: u64,
    /// Changes of names and attributes.
    pub changes: u64,
}

impl Owed {
    fn of(figures: &Figures) -> Owed {
        Owed {
            bytes: figures.dirty * u64::from(wire::limits::BLOCK_BYTES),
            files: figures.dirty_files,
            changes: figures.untold,
        }
    }

    /// Has the server got everything?
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Owed::default()
    }
}

impl std::ops::Add for Owed {
    type Output = Owed;

    fn add(self, other: Owed) -> Owed {
        Owed {
            bytes: self.bytes + other.bytes,
            files: self.files + other.files,
            changes: self.changes + other.changes,
        }
    }
}

impl std::fmt::Display for Owed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Owed {
            bytes,
            files,
            changes,
        } = self;
        write!(
            f,
            "{bytes} changed bytes of {files} files and {changes} changes of names and attributes"
        )
    }
}

/// Why not everything was given back.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    /// Nothing moved for the time given.
    #[error(
        "{owed} did not get to the server at {server}: start it and try again, or give that up \
         with `ariel umount --force`"
    )]
    Stuck {
        /// The server.
        server: Addresses,
        /// The data and changes that it has not got.
        owed: Owed,
    },
    /// The machine refused.
    #[error(
        "leaving the server at {server} was refused ({refusal:?}): see the log for what is lost"
    )]
    Refused {
        /// The server.
        server: Addresses,
        /// Why.
        refusal: Refusal,
    },
    /// The client was stopped meanwhile.
    #[error("the client was stopped before everything was written back: see the log")]
    Stopped,
}

/// A client of one server. Dropping it stops it without giving anything back: [`Client::leave`]
/// first.
pub struct Client {
    core: Arc<Core>,
    dialer: Dialer,
}

impl Client {
    /// Starts connecting to the server, and goes on doing so for ever. Invalidations go to `front`.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(options: ClientOptions, front: Arc<dyn Front>) -> Result<Client, ClientError> {
        let ClientOptions {
            server,
            mut machine,
            memory,
            name,
            finder,
        } = options;
        let Server { addresses, passage } = server;
        let memory = memory.map(|bounds| Bounds {
            most: bounds.most.min(memory::total()).max(bounds.least),
            ..bounds
        });
        if let Some(bounds) = memory {
            machine.slots = memory::slots(bounds.most);
            machine.dirty_slots = machine.dirty_slots.min(memory::DIRTY);
        }
        let shown = Memory::new(memory, machine.slots);
        let state = State::new(machine, net::entropy::session_id(), &name);
        let core = Arc::new(Core::new(state, front, shown));
        let timer = {
            let core = Arc::downgrade(&core);
            let on_deadline = move || core.upgrade().and_then(|core| core.on_deadline());
            Timer::new(Box::new(on_deadline)).map_err(ClientError::Thread)?
        };
        core.begin(timer);
        if let Some(bounds) = memory {
            core.watched(Watch::start(&core, bounds).map_err(ClientError::Thread)?);
        }
        let peers = peers::Peers::new(Arc::downgrade(&core), &passage);
        core.state().peers = Some(Arc::new(peers));
        let events = Arc::clone(&core) as Arc<dyn net::Events>;
        let how = (passage, speaks());
        let finder = finder.map(|finder| Leading::finder(&core, finder));
        let dialer = Dialer::with_finder(addresses, how, events, finder);
        let dialer = dialer.map_err(ClientError::Thread)?;
        Ok(Client { core, dialer })
    }

    /// Makes a call. `data`: the bytes of a write, which are copied once: to where they stay.
    /// `reply` is called once, on this thread or on another, possibly before this returns.
    /// Returns the call's number.
    pub fn call(&self, asker: impl Into<Asker>, call: Call, data: &[u8], reply: OnDone) -> Ticket {
        self.core.call(asker.into(), call, data, reply)
    }

    /// A signal came to the caller of a call, and it will handle it: it is answered soon if it
    /// waits for a lock, reads through its descriptor, syncs, or writes what was not sent yet.
    pub fn interrupt(&self, ticket: Ticket) {
        self.core.tell(Input::Interrupt { ticket });
    }

    /// The caller of a call ends: it is answered at once. Its change is made once or not at all,
    /// and nothing of it stays open or locked.
    pub fn abandon(&self, ticket: Ticket) {
        self.core.tell(Input::Abandon { ticket });
    }

    /// A signal came to the caller that waits for the request of this number (of its `Waits`):
    /// [`Front::look`] is asked what it is.
    pub fn signalled(&self, number: u64) {
        self.core.tell(Input::Signalled { number });
    }

    /// Has what changes told: in a directory, or in all that is below it, or of anything else, by
    /// whichever machine. It goes on over ends of connections, of sessions and of servers, until
    /// [`Client::unwatch`], until the news say that it has ended, or until the client is stopped:
    /// then `on_news` is dropped. `None`: it is stopped already.
    pub fn watch(&self, fid: Fid, recursive: bool, on_news: OnNews) -> Option<WatchId> {
        self.core.watch(fid, recursive, on_news)
    }

    /// No more changes are to be told. One that is being told may still come.
    pub fn unwatch(&self, watch: WatchId) {
        self.core.unwatch(watch);
    }

    /// The front's kernel keeps no names: none need be waited for.
    pub fn keeps_no_names(&self) {
        self.core.tell(Input::DropsAtOnce);
    }

    /// The front gave its kernel a reference to the root of a volume that this client shows, in an
    /// answer that did not come from here.
    pub fn handed(&self, root: Fid) {
        self.core.tell(Input::Handed { root });
    }

    /// The front gives back `count` of the references that answers gave it.
    pub fn forget(&self, fid: Fid, count: u64) {
        self.core.tell(Input::Forget { fid, count });
    }

    /// An object's mode and how many names it has, if they are known under a token: no call is
    /// needed then.
    #[must_use]
    pub fn known_mode_and_links(&self, fid: Fid) -> Option<(u16, u32)> {
        self.core.state().machine.known_mode_and_links(fid)
    }

    /// Has this client seen an object lose its last name?
    #[must_use]
    pub fn has_lost_names(&self, fid: Fid) -> bool {
        self.core.state().machine.has_lost_names(fid)
    }

    /// Has the kernel been told of this object, and not said that it has forgotten it?
    #[must_use]
    pub fn has_handed(&self, fid: Fid) -> bool {
        self.core.state().machine.has_handed(fid)
    }

    /// The front has dropped what [`Front::invalidate`] named under this number.
    pub fn invalidated(&self, id: u64) {
        self.core.tell(Input::Invalidated { id });
    }

    /// Waits until the server has opened a session, and says the tree's root.
    ///
    /// # Errors
    /// It has not within `timeout`, or refuses to, several times; the client goes on trying.
    pub fn wait_ready(&self, timeout: Duration) -> Result<Fid, ClientError> {
        let began_ns = net::clock::now_ns();
        // Where one side refuses the other, nothing else need be waited for.
        self.dialer.wait_connected(timeout)?;
        let waited = Duration::from_nanos(net::clock::now_ns().saturating_sub(began_ns));
        let left = timeout.saturating_sub(waited);
        let root = self.core.wait_root(left);
        let server = || self.server();
        root.map_err(|(refused, last_end)| match last_end {
            Some(why) if refused => ClientError::Refused {
                server: server(),
                why,
            },
            last_end => ClientError::NoSession {
                server: server(),
                last_end,
            },
        })
    }

    /// The tree's root.
    ///
    /// # Panics
    /// It is not known: [`Client::wait_ready`] has not succeeded yet.
    #[must_use]
    pub fn root(&self) -> Fid {
        self.core
            .root()
            .expect("the client was waited for until it was ready")
    }

    /// The server, where it is now, as far as is known.
    #[must_use]
    pub fn server(&self) -> Addresses {
        self.dialer.addr()
    }

    /// The rights of the machine, as the server has said last.
    #[must_use]
    pub fn rights(&self) -> Rights {
        self.core.state().machine.rights().clone()
    }

    /// The same for a thread that waits for a change of them. It keeps no client from ending.
    #[must_use]
    pub fn watch_rights(&self) -> RightsWatch {
        RightsWatch {
            core: Arc::clone(&self.core),
        }
    }

    /// Its session; another one after a loss.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.core.state().machine.session()
    }

    /// Writes everything back, gives everything back and ends the session. Gives up when not one
    /// dirty block was written back for `timeout`; a server that is away is not waited for when
    /// there is nothing to be written back, and for 5 s if there is. Must not be called from a
    /// callback.
    ///
    /// # Errors
    /// Not everything could be written back.
    pub fn leave(&self, timeout: Duration) -> Result<(), LeaveError> {
        let (send, receive) = mpsc::channel();
        let reply = Box::new(move |completion: Completion| {
            // Nobody waits any more if the time was over.
            let _ = send.send(completion.done);
        });
        self.call(Caller::default(), Call::Leave, &[], reply);
        let progress = |figures: &Figures| (figures.dirty, figures.untold);
        let mut left = progress(&self.figures());
        let step = timeout.min(LEAVE_STEP);
        let mut idle = Duration::ZERO;
        loop {
            match receive.recv_timeout(step) {
                Ok(Done::Refused(refusal)) => {
                    let server = self.server();
                    return Err(LeaveError::Refused { server, refusal });
                }
                Ok(_) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(LeaveError::Stopped),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let figures = self.figures();
            let before = left;
            left = progress(&figures);
            idle = if left < before {
                Duration::ZERO
            } else {
                idle + step
            };
            let (away, owed) = (self.is_away(), Owed::of(&figures));
            let server = self.server();
            if owed.is_nothing() && away && idle >= AWAY_TIME {
                tracing::warn!(%server, "the server is away: the lease will tell it of the end");
                return Ok(());
            }
            if idle >= timeout || (away && idle >= OWING_TIME) {
                return Err(LeaveError::Stuck { server, owed });
            }
        }
    }

    /// The machine's figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.core.state().machine.figures()
    }

    /// Is there no connection, or has the server been silent for longer than one that is there?
    #[must_use]
    pub fn is_away(&self) -> bool {
        let figures = self.figures();
        !figures.connected || net::clock::now_ns() >= figures.heard_by
    }

    /// The data and changes that the server has not got yet.
    #[must_use]
    pub fn owed(&self) -> Owed {
        Owed::of(&self.figures())
    }

    /// How much memory the cache has.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let mut memory = *self.core.memory().lock();
        let pages = self.core.pool().resident() as u64;
        memory.resident = pages * u64::from(wire::limits::BLOCK_BYTES);
        memory
    }

    /// All tokens.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenLine> {
        self.core.state().machine.tokens()
    }

    /// Messages and mishaps so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.core.state().counters()
    }

    /// How long the server took to answer requests, by kind: from when each was sent first.
    #[must_use]
    pub fn answers(&self) -> Vec<(&'static str, Reading)> {
        self.core.state().answers()
    }

    /// Ends the connection (what is queued still leaves) and all threads. Later calls are refused.
    /// Must not be called from a callback.
    pub fn stop(&self) {
        if self.core.stop() {
            self.dialer.stop();
        }
    }
}

/// The rights of a client's machine, for a thread that waits until they change.
pub struct RightsWatch {
    core: Arc<Core>,
}

impl RightsWatch {
    /// Waits until the rights that the server said last are so, or the client has been stopped.
    /// False: that did not happen within `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration, are_so: impl Fn(&Rights) -> bool) -> bool {
        let ready = |state: &State| are_so(state.machine.rights()).then_some(());
        match self.core.wait_until(timeout, ready) {
            Ok(()) => true,
            Err(state) => state.stopped,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}
