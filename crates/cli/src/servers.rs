//! The servers of a cell with several of them: which one has a volume.
//!
//! Guarantees: of a cell with one server, and without a name of a volume, nothing is looked for;
//! the server that was named goes before the others; the servers themselves are asked, so that
//! nothing can be out of date.

use crate::args::TrustArgs;
use crate::failure::Failure;
use crate::guard::Guard;
use crate::trust;
use cell::{Answer, Credential, Question};
use files::{Options, Tree};
use fuse::front::{Place, Servers};
use net::Addresses;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{Name, SessionId, VolumeInfo, VolumeState, volume_numbers};

/// A server, by its name, and the volumes that it has; or why it does not tell.
pub(crate) struct Found {
    pub(crate) server: String,
    pub(crate) addresses: Addresses,
    pub(crate) volumes: Result<Vec<VolumeInfo>, String>,
}

/// A server that runs.
#[derive(Clone, Debug)]
pub(crate) struct One {
    pub(crate) name: String,
    pub(crate) addresses: Addresses,
    /// The number by which it numbers volumes.
    number: u32,
}

/// The servers of the cell, as one of them tells, and how this machine shows itself to
/// them: none of a cell with one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    pub(crate) servers: Vec<One>,
    /// The names of those that do not run.
    stopped: Vec<String>,
    pub(crate) trust: TrustArgs,
}

impl Running {
    /// Has the cell one server only?
    fn is_alone(&self) -> bool {
        self.servers.len() + self.stopped.len() < 2
    }
}

/// Asks a server for those of its cell.
pub(crate) fn running(
    what: &str,
    server: &Addresses,
    trust: &TrustArgs,
) -> Result<Running, Failure> {
    let (_, Some(dir)) = trust::server(what, server, trust)? else {
        return Ok(Running::default());
    };
    let failed = |error: &dyn std::fmt::Display| Failure::of(what, error);
    let credential = Credential::read(&dir).map_err(|error| failed(&error))?;
    let tls = credential
        .ok_or_else(|| failed(&"the credential is gone"))?
        .tls();
    let tls = tls.map_err(|error| failed(&error))?;
    let answer = cell::ask(server, &tls, &Question::Servers).map_err(|error| failed(&error))?;
    let Answer::Servers(lines) = answer else {
        return Err(failed(&cell::AskError::Strange));
    };
    let mut running = Running {
        trust: TrustArgs {
            credentials: Some(dir),
            insecure_loopback: false,
        },
        ..Running::default()
    };
    for line in lines {
        match line.addresses.and_then(|addresses| addresses.parse().ok()) {
            None => running.stopped.push(line.name),
            Some(addresses) => running.servers.push(One {
                name: line.name,
                addresses,
                number: line.number,
            }),
        }
    }
    Ok(running)
}

/// Asks a server for its volumes.
pub(crate) fn look(what: &str, (name, addresses): (String, Addresses), trust: &TrustArgs) -> Found {
    let options = Options {
        name: format!("ariel {what}, process {}", std::process::id()),
        ..Options::default()
    };
    let volumes = trust::server(what, &addresses, trust).map_err(|error| error.to_string());
    let volumes = volumes.and_then(|(server, _)| {
        let tree = Tree::connect(server, &options).map_err(|error| error.to_string())?;
        let volumes = tree.volumes().map_err(|error| error.to_string())?;
        tree.close().map_err(|error| error.to_string())?;
        Ok(volumes)
    });
    Found {
        server: name,
        addresses,
        volumes,
    }
}

/// The volume of which a name speaks: a snapshot is where its volume is.
fn base(name: &Name) -> String {
    let text = name.to_string();
    text.split_once('@')
        .map_or(text.clone(), |(base, _)| base.to_owned())
}

/// The volume that is meant, where a server has it, and the servers that do not tell; one that is
/// there goes before one that was deleted.
fn search(
    what: &str,
    (all, mut silent): (impl Iterator<Item = (String, Addresses)>, Vec<String>),
    (trust, is_meant): (&TrustArgs, impl Fn(&VolumeInfo) -> bool),
) -> (Option<(Addresses, VolumeInfo)>, Vec<String>) {
    let mut deleted = None;
    for found in all.map(|one| look(what, one, trust)) {
        let Ok(volumes) = found.volumes else {
            silent.push(found.server);
            continue;
        };
        let meant = volumes.into_iter().filter(|info| is_meant(info));
        let best = meant.max_by_key(|info| info.state == VolumeState::Present);
        match best {
            Some(info) if info.state == VolumeState::Present => {
                return (Some((found.addresses, info)), silent);
            }
            Some(info) => drop(deleted.get_or_insert((found.addresses, info))),
            None => {}
        }
    }
    (deleted, silent)
}

/// The server that has a volume: this one before the others. Where nobody can be asked, it is this
/// one, and its user is told why.
pub(crate) fn of_volume(
    what: &str,
    server: &Addresses,
    (trust, volume): (&TrustArgs, Option<&Name>),
) -> Result<Addresses, Failure> {
    let Some(volume) = volume else {
        return Ok(server.clone());
    };
    let running = running(what, server, trust).unwrap_or_default();
    match running.is_alone() {
        true => Ok(server.clone()),
        false => found(what, server, (running, &base(volume))).map(|(addresses, _)| addresses),
    }
}

/// The server that has a volume, this one before the others, and what it says of it; nothing: the
/// cell has no other servers.
pub(crate) fn volume_elsewhere(
    what: &str,
    server: &Addresses,
    (trust, volume): (&TrustArgs, &Name),
) -> Result<Option<VolumeInfo>, Failure> {
    let running = running(what, server, trust)?;
    match running.is_alone() {
        true => Ok(None),
        false => found(what, server, (running, &volume.to_string())).map(|(_, info)| Some(info)),
    }
}

fn found(
    what: &str,
    server: &Addresses,
    (running, name): (Running, &str),
) -> Result<(Addresses, VolumeInfo), Failure> {
    let first = std::iter::once((server.to_string(), server.clone()));
    let Running {
        servers,
        stopped,
        trust,
    } = running;
    let others = servers.into_iter().map(|one| (one.name, one.addresses));
    let is_meant = |info: &VolumeInfo| info.name.to_string() == name;
    let (found, silent) = search(what, (first.chain(others), stopped), (&trust, is_meant));
    found.ok_or_else(|| {
        let without = match silent.is_empty() {
            true => String::new(),
            false => format!(" ({} did not answer)", silent.join(", ")),
        };
        let text = format!(
            "no server of the cell has a volume {name}{without}: `ariel volume list --all ADDR` \
             shows all"
        );
        Failure::of(what, text)
    })
}

/// Finds the servers of volumes for a mount: the servers that ran when one was asked last, where
/// none can be asked now.
#[derive(Debug)]
pub(crate) struct OfMount {
    server: Addresses,
    trust: TrustArgs,
    known: Mutex<Running>,
    guard: Mutex<Told>,
}

/// The guard of the mount, once there is one, and the sessions of which it is to be told.
#[derive(Default)]
struct Told {
    guard: Option<Arc<Guard>>,
    early: Vec<(Addresses, SessionId)>,
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} sessions not told", self.early.len())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OfMount {
    pub(crate) fn new(server: &Addresses, credentials: &Path) -> OfMount {
        OfMount {
            server: server.clone(),
            trust: TrustArgs {
                credentials: Some(credentials.to_owned()),
                insecure_loopback: false,
            },
            known: Mutex::default(),
            guard: Mutex::default(),
        }
    }

    /// From now on this guard is told of sessions.
    pub(crate) fn guarded_by(&self, guard: &Arc<Guard>) {
        let mut told = lock(&self.guard);
        for (server, session) in told.early.drain(..) {
            guard.also(&server, session);
        }
        told.guard = Some(Arc::clone(guard));
    }

    fn running(&self) -> Result<Running, String> {
        let told = running(MOUNT, &self.server, &self.trust);
        let mut known = lock(&self.known);
        match told {
            Ok(running) => *known = running,
            Err(error) if known.servers.is_empty() => return Err(error.to_string()),
            Err(error) => tracing::warn!(%error, "the servers of the cell are as they were before"),
        }
        Ok(known.clone())
    }
}

const MOUNT: &str = "mount";

impl Servers for OfMount {
    fn of_volume(&self, volume: u32) -> Result<Option<Place>, String> {
        let Running {
            mut servers,
            stopped,
            trust,
        } = self.running()?;
        // The server that has made it has it still, as a rule.
        servers.sort_by_key(|one| one.number != volume_numbers::server(volume));
        let all = servers.into_iter().map(|one| (one.name, one.addresses));
        let is_meant = |info: &VolumeInfo| info.id == volume;
        match search(MOUNT, (all, stopped), (&trust, is_meant)) {
            (Some((_, info)), _) if info.state != VolumeState::Present => Ok(None),
            (Some((addresses, info)), _) => {
                let server = trust::server(MOUNT, &addresses, &trust);
                let (server, _) = server.map_err(|error| error.to_string())?;
                let volume = info.name.to_string();
                Ok(Some(Place { server, volume }))
            }
            (None, silent) if silent.is_empty() => Ok(None),
            (None, silent) => Err(format!(
                "it is at none of the servers that answer, and {} did not answer: see whether it \
                 runs, with `ariel cell servers`",
                silent.join(", ")
            )),
        }
    }

    fn has_session(&self, server: &Addresses, session: SessionId) {
        let mut told = lock(&self.guard);
        match &told.guard {
            Some(guard) => guard.also(server, session),
            None => told.early.push((server.clone(), session)),
        }
    }
}
