//! Runs the server's machine on a store and on the network.
//!
//! Guarantees: the machine's outputs are carried out in their order; no message leaves before
//! everything applied until then is out of this process's memory, so a change that was answered to
//! a client survives a `kill -9`; bytes that are no message end their own connection and no other.
//! When the store fails, the server stops serving at once instead of answering what is not so.
//! Nothing is decided here: every decision is `logic::server`'s.
#![forbid(unsafe_code)]

mod bulks;
mod congested;
mod core;
mod counts;
mod disk;
mod events;
mod held;
mod profile;
mod runs;
mod scrub;
mod seals;
mod state;
mod status;
mod sync;

pub use counts::Moved;
pub use profile::Measured;
pub use scrub::Checks;
pub use status::{ClientLine, Status};

use crate::core::Core;
use crate::held::HeldLog;
use crate::scrub::Scrub;
use crate::state::State;
use crate::sync::SyncThread;
use access::Members;
use net::{Addresses, Entrance, Identity, ListenOptions, Listener, NotLoopback, Speaks, Timer};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoreError};
use wire::{Epoch, MachineId, Place, Rights};

/// The machine's limits and delays.
pub type MachineOptions = logic::server::Options;
/// The machine's figures.
pub type Figures = logic::server::Figures;
/// How clients lend blocks of their caches to each other.
pub type Policy = logic::peers::Policy;
/// Figures of lending.
pub type LendingFigures = logic::server::LendingFigures;
/// A token as listed for people.
pub type TokenLine = logic::server::TokenLine;

/// Each start of the server begins its epochs this far above those of the start before: more than
/// the grants and recalls that one run can make.
const EPOCHS_OF_A_BOOT: u32 = 40;

/// The options of a server.
pub struct ServerOptions {
    /// Directory of the store; made if it is not there.
    pub data: PathBuf,
    /// User and group of a new store's root.
    pub owner: (u32, u32),
    /// Where to listen, each a name or a number with a port; port 0 takes any free one.
    pub listen: Vec<Addresses>,
    /// The machines that may come in, and the rights of each.
    pub gate: Gate,
    /// The machine's limits and delays.
    pub machine: MachineOptions,
    /// Called once, on any thread, when the server had to stop serving, with the reason. It must
    /// not wait for [`Server::stop`].
    pub on_failure: Box<dyn Fn(&str) + Send + Sync>,
}

/// The peers that may come in.
#[derive(Clone)]
pub enum Gate {
    /// Processes of this machine, whatever they say. Nothing is protected.
    InsecureLoopback,
    /// The machines of a cell.
    Cell(Arc<dyn Machines>),
}

/// The machines of a cell, as a server needs to know them.
pub trait Machines: net::Door {
    /// The rights of a machine at this moment.
    fn rights(&self, machine: MachineId) -> Rights;
    /// The users of each group when the server begins.
    fn members(&self) -> Members;
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Other machines cannot prove who they are.
    #[error(transparent)]
    NotLoopback(#[from] NotLoopback),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Clients could not be told what of their changes is left after a power failure.
    #[error("{0} cannot be written ({1}): make it writable, and room on its disk")]
    Runs(PathBuf, #[source] io::Error),
    /// The address cannot be used.
    #[error("{addr} cannot be listened at ({error}): stop what listens there or use another port")]
    Listen {
        /// The address.
        addr: String,
        /// Why.
        error: io::Error,
    },
    /// No thread can be started.
    #[error("no thread can be started ({0}): raise the limit of processes (ulimit -u)")]
    Thread(#[source] io::Error),
}

/// Why a server did not end in order. The store recovers at its next start.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The store cannot be closed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It had stopped serving before.
    #[error("the server had stopped serving: {0}")]
    Failed(String),
}

/// A running server. Dropping it ends it in order.
pub struct Server {
    core: Arc<Core>,
    listener: Listener,
    syncs: SyncThread,
    scrub: Scrub,
    data: PathBuf,
    /// The first thread that stops the server does it all; others wait.
    stopped: Mutex<bool>,
}

impl Server {
    /// Opens the store (recovering what a crash left) and serves.
    ///
    /// # Errors
    /// The store cannot be opened, or the address not be listened at.
    pub fn start(options: ServerOptions) -> Result<Server, StartError> {
        let ServerOptions {
            data,
            owner,
            listen,
            gate,
            machine,
            on_failure,
        } = options;
        // Before the store is made: a wrong address leaves nothing behind.
        let listen = resolve(&listen, &gate)?;
        let mut store = Store::open_or_create(&data, &store_options(owner))?;
        let boot = store.boot() << EPOCHS_OF_A_BOOT;
        let left = left_of_runs(&data, boot, &store)?;
        if store.boot() > 1 {
            store.pass_over_numbers()?;
        }
        if let Gate::Cell(machines) = &gate {
            store.set_members(machines.members());
        }
        let (known, away) = (store.sessions(), store.away());
        let (held_log, held) = HeldLog::open(&data, &known);
        tell_who_is_waited_for(known.len(), held.as_ref().map(Vec::len));
        let syncer = store.sync_handle();
        let now = net::clock::now_ns();
        let (root, newest) = (store.root(), store.newest());
        warn_if_set_back(newest);
        let silence = Duration::from_nanos(machine.lease_ns);
        let (place, known) = ((boot, root), (known, newest));
        let machine = logic::server::Server::new(machine, now, place, known);
        let machine = machine.knowing(held).after(left).without(&away);
        let state = State::new(machine, store, held_log, gate.clone());
        let core = Arc::new(Core::new(state, on_failure));
        let syncs = SyncThread::start(&core, syncer).map_err(StartError::Thread)?;
        let timer = {
            let core = Arc::downgrade(&core);
            let on_deadline = move || core.upgrade().and_then(|core| core.on_deadline());
            Timer::new(Box::new(on_deadline)).map_err(StartError::Thread)?
        };
        core.begin(timer);
        let scrub = Scrub::start(&core).map_err(StartError::Thread)?;
        let events = Arc::clone(&core) as Arc<dyn net::Events>;
        let listener = match Listener::bind(&listen, how(&gate, silence), events) {
            Ok(listener) => listener,
            Err(error) => {
                scrub.stop();
                syncs.stop(&core);
                if let Ok(Some(store)) = core.end() {
                    store.close()?;
                }
                let addr = listed(&listen);
                return Err(StartError::Listen { addr, error });
            }
        };
        tracing::info!(addr = listed(listener.local_addrs()), data = %data.display(), "serving");
        Ok(Server {
            core,
            listener,
            syncs,
            scrub,
            data,
            stopped: Mutex::new(false),
        })
    }

    /// Where it listens first.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Everywhere where it listens.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.listener.local_addrs()
    }

    /// The rights of a machine have changed: its connections are made anew, under what holds now.
    /// One that was expelled has no sessions any more when this returns.
    pub fn machine_changed(&self, machine: MachineId, (expelled, why): (bool, &str)) {
        if expelled {
            self.core.expel(machine);
        }
        self.listener.shut_out(machine, why);
    }

    /// The cell's groups are others from now on, and no mount judges by what they were when this
    /// returns.
    ///
    /// # Errors
    /// The server has restarted, and does not know yet who judges by what.
    pub fn regroup(&self, members: Members) -> Result<(), String> {
        match self.core.regroup(members) {
            true => Ok(()),
            false => Err(
                "the server has just restarted, and waits for the cell's mounts: try again \
                          in 20 s"
                    .into(),
            ),
        }
    }

    /// Clients lend blocks of their caches to each other like this from now on, or not.
    pub fn cooperate(&self, policy: Policy) {
        self.core.cooperate(policy);
    }

    /// Ends in order: answers leave, connections are closed, the store is
    /// checkpointed and closed. A second call does nothing.
    ///
    /// # Errors
    /// The store cannot be closed, or had failed before.
    pub fn stop(&self) -> Result<(), StopError> {
        let mut stopped = self.stopped.lock();
        if std::mem::replace(&mut *stopped, true) {
            return Ok(());
        }
        self.listener.stop();
        self.scrub.stop();
        self.syncs.stop(&self.core);
        self.core.end_timer();
        match self.core.end() {
            Ok(Some(store)) => store.close()?,
            Ok(None) => {}
            Err(reason) => return Err(StopError::Failed(reason)),
        }
        tracing::info!("ended");
        Ok(())
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status(self.local_addr(), &self.data)
    }

    /// All tokens.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenLine> {
        self.core.tokens()
    }

    /// Checks the store as its last checkpoint left it, beside its work; takes as long as reading
    /// all of it. An index that is damaged is made again.
    ///
    /// # Errors
    /// It could not be checked: the cause, and the cure.
    pub fn check(&self) -> Result<store::Report, String> {
        let goes_on = || self.stopped.try_lock().is_some_and(|stopped| !*stopped);
        self.core.check(&mut |_| goes_on())
    }

    /// Where the time goes, by kind: of requests from arrival to answer; and of the machine's
    /// steps, in which nobody else is served.
    #[must_use]
    pub fn profile(&self) -> (Measured, Measured) {
        self.core.profile()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the server did not end in order");
        }
    }
}

/// How a new store is made, and one that is there is opened.
fn store_options((uid, gid): (u32, u32)) -> store::Options {
    store::Options {
        root_uid: uid,
        root_gid: gid,
        created: net::clock::wall_ns(),
        identity: net::entropy::seed(), // so that nobody can make a piece of the log
        ..store::Options::default()
    }
}

/// The ends at which the logs of the latest runs were left; this run is noted with them.
fn left_of_runs(data: &Path, boot: Epoch, store: &Store) -> Result<Vec<Place>, StartError> {
    let left = runs::begin(data, boot, store.left_record());
    left.map_err(|error| StartError::Runs(data.join("runs"), error))
}

/// `may_hold`: how many rights they may hold, if that is known.
fn tell_who_is_waited_for(sessions: usize, may_hold: Option<usize>) {
    if sessions > 0 {
        tracing::info!(
            sessions,
            may_hold,
            "waiting for the clients of the last run"
        );
    }
}

/// The addresses where a server is to listen.
fn resolve(listen: &[Addresses], gate: &Gate) -> Result<Vec<SocketAddr>, StartError> {
    let mut found = Vec::new();
    for addresses in listen {
        let resolved = addresses.resolve().map_err(|error| StartError::Listen {
            addr: addresses.to_string(),
            error,
        })?;
        found.extend(resolved);
    }
    if matches!(gate, Gate::InsecureLoopback) {
        for addr in &found {
            Identity::check(*addr)?;
        }
    }
    Ok(found)
}

fn how(gate: &Gate, silence: Duration) -> ListenOptions {
    ListenOptions {
        entrance: match gate {
            Gate::InsecureLoopback => Entrance::InsecureLoopback,
            Gate::Cell(machines) => Entrance::Tls(Arc::clone(machines) as Arc<dyn net::Door>),
        },
        speaks: Speaks {
            oldest: wire::VERSION,
            newest: wire::VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
        },
        silence,
    }
}

fn listed(addrs: &[SocketAddr]) -> String {
    let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
    addrs.join(",")
}

/// The clock was set back since the last run, or was wrong then.
fn warn_if_set_back(newest: u64) {
    let behind_ns = newest.saturating_sub(net::clock::wall_ns());
    if behind_ns > 1_000_000_000 {
        let seconds = behind_ns / 1_000_000_000;
        tracing::warn!(
            seconds,
            "the clock of this machine is behind the latest time in the store: the times of files \
             go on from that one, more slowly until the clock has caught up. If the clock is \
             wrong, set it and start again"
        );
    }
}
