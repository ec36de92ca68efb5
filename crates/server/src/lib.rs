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
mod further;
mod held;
mod partition;
mod profile;
mod router;
mod runs;
mod scrub;
mod seals;
mod sharing;
mod state;
mod status;
mod sync;

pub use counts::Moved;
pub use profile::Measured;
pub use scrub::Checks;
pub use status::{ClientLine, Status, StoreLoad};

use crate::partition::{Common, Partition};
use crate::router::Router;
use access::Members;
use net::{Addresses, Entrance, Identity, ListenOptions, Listener, NotLoopback, Speaks};
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::StoreError;
use wire::{MachineId, Rights, VolumeInfo};

/// The machine's limits and delays.
pub type MachineOptions = logic::server::Options;
/// The machine's figures.
pub type Figures = logic::server::Figures;
/// How clients lend blocks of their caches to each other.
pub type Policy = logic::peers::Policy;
/// Figures of lending.
pub type LendingFigures = logic::server::LendingFigures;
/// How the lease of a client is.
pub type Lease = logic::server::Lease;
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
    /// A user of a machine has changed the volumes or an access list, or was refused to.
    fn administered(&self, done: &Administered);
    /// A connection of a machine was refused a session, or has lost it, and why.
    fn refused(&self, machine: MachineId, why: &str);
}

/// A change that a user wanted, and who that was.
pub type Administered = logic::server::Administered;
/// The change.
pub type Deed = logic::server::Deed;

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
    /// The directory of a further store has another one.
    #[error(
        "{0} has a store whose first volume is {1}: put back the directory that the server has made"
    )]
    Another(PathBuf, u32),
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

/// The directory of a store that was closed in order at another server has come here whole: the
/// next start knows what its clients may hold, as if it had been closed here.
///
/// # Errors
/// Its notes cannot be written.
pub fn has_come(data: &Path) -> io::Result<()> {
    held::HeldLog::has_come(data)
}

/// A running server. Dropping it ends it in order.
pub struct Server {
    router: Arc<Router>,
    listener: Listener,
    common: Common,
    owner: (u32, u32),
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
        let silence = Duration::from_nanos(machine.lease_ns);
        let common = Common {
            gate,
            machine,
            sharing: Arc::default(),
            policy: Mutex::new(Policy::Off),
        };
        let how = store_options(owner);
        let store = store::Store::open_or_create(&data, &how)?;
        let first = Partition::start(&data, store, &common, on_failure)?;
        let router = Arc::new(Router::new(Arc::new(first)));
        let events = Arc::clone(&router) as Arc<dyn net::Events>;
        let listener = match Listener::bind(&listen, how_to_listen(&common.gate, silence), events) {
            Ok(listener) => listener,
            Err(error) => {
                if let Err(error) = router.first().stop() {
                    tracing::error!(%error, "the store was not closed in order");
                }
                let addr = listed(&listen);
                return Err(StartError::Listen { addr, error });
            }
        };
        tracing::info!(addr = listed(listener.local_addrs()), data = %data.display(), "serving");
        Ok(Server {
            router,
            listener,
            common,
            owner,
        })
    }

    /// The number of the first volume of the server's first store.
    #[must_use]
    pub fn first_volume(&self) -> u32 {
        self.router.first().first_volume
    }

    /// The volumes of all stores, without the first ones of further stores, which nobody sees.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let mut all = self.router.first().core.volumes();
        for partition in self.router.further() {
            all.extend(further::seen(&partition));
        }
        all
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
    pub fn machine_changed(&self, machine: MachineId, why: &str) {
        self.listener.shut_out(machine, why);
    }

    /// A machine is not trusted any more: it has no sessions when this returns.
    pub fn expel(&self, machine: MachineId, why: &str) {
        for partition in self.router.all() {
            partition.core.expel(machine);
        }
        self.listener.shut_out(machine, why);
    }

    /// The rights of a machine have changed, and no mount of it judges by the old ones when this
    /// returns: each has given up what it cached, or its lease is over.
    ///
    /// # Errors
    /// The server has restarted, and does not know yet who judges by what.
    pub fn regrant(&self, machine: MachineId, why: &str) -> Result<(), String> {
        self.listener.shut_out(machine, why);
        let all = self.router.all().into_iter();
        let told: Vec<bool> = all.map(|one| one.core.regrant(machine)).collect();
        all_in_force(&told)
    }

    /// The cell's groups are others from now on, and no mount judges by what they were when this
    /// returns.
    ///
    /// # Errors
    /// The server has restarted, and does not know yet who judges by what.
    pub fn regroup(&self, members: &Members) -> Result<(), String> {
        let all = self.router.all().into_iter();
        // All are told, also when one cannot be.
        let told: Vec<bool> = all.map(|one| one.core.regroup(members.clone())).collect();
        all_in_force(&told)
    }

    /// Clients lend blocks of their caches to each other like this from now on, or not.
    pub fn cooperate(&self, policy: Policy) {
        *self.common.policy.lock() = policy;
        for partition in self.router.all() {
            partition.core.cooperate(policy);
        }
    }

    /// Ends in order: answers leave, connections are closed, the stores are checkpointed and
    /// closed. A second call does nothing.
    ///
    /// # Errors
    /// A store cannot be closed, or had failed before.
    pub fn stop(&self) -> Result<(), StopError> {
        self.listener.stop();
        let ended = self.router.all().into_iter().map(|one| one.stop());
        // None keeps the others from being closed.
        let ended: Vec<Result<bool, StopError>> = ended.collect();
        let first_end = ended.iter().any(|one| matches!(one, Ok(true)));
        ended
            .into_iter()
            .collect::<Result<Vec<bool>, StopError>>()?;
        if first_end {
            tracing::info!("ended");
        }
        Ok(())
    }

    /// How it is: the first store, with the figures of its clients.
    #[must_use]
    pub fn status(&self) -> Status {
        let first = self.router.first();
        first.core.status(self.local_addr(), &first.data)
    }

    /// How the further stores are, likewise.
    #[must_use]
    pub fn further_status(&self) -> Vec<Status> {
        let addr = self.local_addr();
        let further = self.router.further().into_iter();
        further
            .map(|one| one.core.status(addr, &one.data))
            .collect()
    }

    /// The work and the bytes of each store.
    #[must_use]
    pub fn loads(&self) -> Vec<StoreLoad> {
        let addr = self.local_addr();
        let all = self.router.all().into_iter();
        all.map(|one| {
            let status = one.core.status(addr, &one.data);
            StoreLoad {
                first_volume: one.first_volume,
                store_bytes: status.store.map_or(0, |store| store.live_bytes),
                messages: status.received.iter().map(|(_, count)| count).sum(),
                moved_bytes: status.moved.received + status.moved.sent,
            }
        })
        .collect()
    }

    /// All tokens.
    #[must_use]
    pub fn tokens(&self) -> Vec<TokenLine> {
        let all = self.router.all().into_iter();
        all.flat_map(|partition| partition.core.tokens()).collect()
    }

    /// Checks the stores as their last checkpoints left them, beside their work; takes as long as
    /// reading all of them. An index that is damaged is made again.
    ///
    /// # Errors
    /// One could not be checked: the cause, and the cure.
    pub fn check(&self) -> Result<(store::Report, Vec<(PathBuf, store::Report)>), String> {
        let first = self.router.first().check()?;
        let further = self.router.further().into_iter();
        let further = further.map(|one| Ok((one.data.clone(), one.check()?)));
        Ok((first, further.collect::<Result<_, String>>()?))
    }

    /// Where the time goes in the first store, by kind: of requests from arrival to answer; and of
    /// the machine's steps, in which nobody else is served.
    #[must_use]
    pub fn profile(&self) -> (Measured, Measured) {
        self.router.first().core.profile()
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

fn how_to_listen(gate: &Gate, silence: Duration) -> ListenOptions {
    ListenOptions {
        entrance: match gate {
            Gate::InsecureLoopback => Entrance::InsecureLoopback,
            Gate::Cell(machines) => Entrance::Tls(Arc::clone(machines) as Arc<dyn net::Door>),
        },
        speaks: Speaks {
            oldest: wire::VERSION_OLDEST,
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

/// Has every store a change in force?
fn all_in_force(told: &[bool]) -> Result<(), String> {
    match told.iter().all(|told| *told) {
        true => Ok(()),
        false => Err(
            "the server has just restarted, and waits for the cell's mounts: try again in 20 s"
                .into(),
        ),
    }
}
