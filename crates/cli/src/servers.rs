//! The servers of a cell with several of them: which one has a volume.
//!
//! Guarantees: of a cell with one server, and without a name of a volume, nothing is looked for;
//! the server that was named goes before the others; the servers themselves are asked, so that
//! nothing can be out of date; they are asked at the same time, so that one which does not answer
//! delays nobody who need not wait for it.

use crate::args::TrustArgs;
use crate::at_once;
use crate::failure::Failure;
use crate::guard::Guard;
use crate::trust;
use cell::{Answer, Credential, Question, StoreAnswer, StoreQuestion};
use files::{Options, Tree};
use fuse::front::{Place, Servers};
use net::{Addresses, Missing};
use std::collections::BTreeMap;
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
    /// Is it a server of the cell that does not run?
    pub(crate) fn is_stopped(&self, name: &str) -> bool {
        self.stopped.iter().any(|stopped| stopped == name)
    }

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
            }),
        }
    }
    Ok(running)
}

/// Asks a server for its volumes.
pub(crate) fn look(what: &str, (name, addresses): (String, Addresses), trust: &TrustArgs) -> Found {
    let volumes = volumes_at(what, &addresses, trust);
    Found {
        server: name,
        addresses,
        volumes: volumes.map_err(|error| error.to_string()),
    }
}

/// The volumes of all stores of a server.
fn volumes_at(
    what: &str,
    addresses: &Addresses,
    trust: &TrustArgs,
) -> Result<Vec<VolumeInfo>, Failure> {
    let (server, dir) = trust::server(what, addresses, trust)?;
    if let Some(dir) = dir {
        return match ask_stores(what, (addresses, &dir), StoreQuestion::Volumes)? {
            StoreAnswer::Volumes(listed) => listed.volumes(),
            _ => None,
        }
        .ok_or_else(|| Failure::of(what, cell::AskError::Strange));
    }
    let options = Options {
        name: format!("ariel {what}, process {}", std::process::id()),
        ..Options::default()
    };
    let tree = Tree::connect(server, &options).map_err(|error| Failure::of(what, error))?;
    let volumes = tree.volumes().map_err(|error| Failure::of(what, error))?;
    tree.close().map_err(|error| Failure::of(what, error))?;
    Ok(volumes)
}

/// Asks a server about its stores, with the credential in a directory.
pub(crate) fn ask_stores(
    what: &str,
    at: (&Addresses, &Path),
    question: StoreQuestion,
) -> Result<StoreAnswer, Failure> {
    ask_about(at, question).map_err(|error| Failure::of(what, error))
}

/// The same, with an error in words.
pub(crate) fn ask_about(
    (server, dir): (&Addresses, &Path),
    question: StoreQuestion,
) -> Result<StoreAnswer, String> {
    let credential = Credential::read(dir).map_err(|error| error.to_string())?;
    let tls = credential.ok_or("the credential is gone")?.tls()?;
    match cell::ask(server, &tls, &Question::Stores(question)) {
        Ok(Answer::Stores(answer)) => Ok(answer),
        Ok(_) => Err(cell::AskError::Strange.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Has a server make one more store; the number of its first volume.
pub(crate) fn make_store(
    what: &str,
    server: &Addresses,
    trust: &TrustArgs,
) -> Result<u32, Failure> {
    let (_, dir) = trust::server(what, server, trust)?;
    let dir = dir.ok_or_else(|| {
        Failure::of(
            what,
            "a volume has a store of its own on a server of a cell only: make one with `ariel cell \
             init`, or leave `--own-store` out",
        )
    })?;
    match ask_stores(what, (server, &dir), StoreQuestion::Make)? {
        StoreAnswer::Made(first_volume) => Ok(first_volume),
        _ => Err(Failure::of(what, cell::AskError::Strange)),
    }
}

/// The volume of which a name speaks: a snapshot is where its volume is.
fn base(name: &Name) -> String {
    let text = name.to_string();
    text.split_once('@')
        .map_or(text.clone(), |(base, _)| base.to_owned())
}

/// The volume that is meant of those that a server has; one that is there goes before one that was
/// deleted.
fn best(volumes: Vec<VolumeInfo>, is_meant: impl Fn(&VolumeInfo) -> bool) -> Option<VolumeInfo> {
    let meant = volumes.into_iter().filter(|info| is_meant(info));
    meant.max_by_key(|info| info.state == VolumeState::Present)
}

/// A volume, and the server that has it.
type Having = (Addresses, VolumeInfo);

/// The volume that is meant, where a server has it, and the servers that do not tell; one that is
/// there goes before one that was deleted. All are asked at the same time, and the first one that
/// has it is not kept waiting by the others.
fn search(
    what: &str,
    (all, mut silent): (Vec<(String, Addresses)>, Vec<String>),
    (trust, is_meant): (&TrustArgs, impl Fn(&VolumeInfo) -> bool),
) -> (Option<Having>, Vec<String>) {
    let names = all.iter().map(|(name, _)| name.clone());
    let mut unheard: BTreeMap<usize, String> = names.enumerate().collect();
    let (what, trust) = (what.to_owned(), trust.clone());
    let answers = at_once::ask(all, move |one| look(&what, one, &trust));
    let mut deleted = BTreeMap::new();
    for (place, found) in answers {
        let Ok(volumes) = found.volumes else { continue };
        unheard.remove(&place);
        match best(volumes, &is_meant) {
            Some(info) if info.state == VolumeState::Present => {
                return (Some((found.addresses, info)), silent);
            }
            Some(info) => drop(deleted.insert(place, (found.addresses, info))),
            None => {}
        }
    }
    silent.extend(unheard.into_values());
    (deleted.pop_first().map(|(_, found)| found), silent)
}

/// The server that has a volume: this one before the others. Where nobody can be asked, it is this
/// one, and its user is told why.
pub(crate) fn of_volume(
    what: &str,
    server: &Addresses,
    at: (&TrustArgs, Option<&Name>),
) -> Result<Addresses, Failure> {
    with_servers(what, server, at).map(|(addresses, _)| addresses)
}

/// The same, and the servers of the cell that were asked.
pub(crate) fn with_servers(
    what: &str,
    server: &Addresses,
    (trust, volume): (&TrustArgs, Option<&Name>),
) -> Result<(Addresses, Running), Failure> {
    let Some(volume) = volume else {
        return Ok((server.clone(), Running::default()));
    };
    let running = running(what, server, trust).unwrap_or_default();
    let addresses = match running.is_alone() {
        true => server.clone(),
        false => found(what, server, (running.clone(), &base(volume)))?.0,
    };
    Ok((addresses, running))
}

/// The server that has a volume, this one before the others, and what it says of it; nothing: there
/// is no cell.
pub(crate) fn volume_elsewhere(
    what: &str,
    server: &Addresses,
    (trust, volume): (&TrustArgs, &Name),
) -> Result<Option<(Addresses, VolumeInfo)>, Failure> {
    let running = running(what, server, trust)?;
    // Without a cell there is one server, which has one store.
    match running.trust.credentials.is_none() {
        true => Ok(None),
        false => {
            let is_alone = running.is_alone();
            match found(what, server, (running, &volume.to_string())) {
                Err(_) if is_alone => Ok(None),
                found => found.map(Some),
            }
        }
    }
}

fn found(
    what: &str,
    server: &Addresses,
    (running, name): (Running, &str),
) -> Result<Having, Failure> {
    let Running {
        servers,
        mut stopped,
        trust,
    } = running;
    let is_meant = |info: &VolumeInfo| info.name.to_string() == name;
    // It has just told of the others.
    let own = look(what, (server.to_string(), server.clone()), &trust);
    let own = match own.volumes {
        Ok(volumes) => best(volumes, is_meant).map(|info| (own.addresses, info)),
        Err(_) => {
            stopped.push(own.server);
            None
        }
    };
    let own = match own {
        Some(found) if found.1.state == VolumeState::Present => return Ok(found),
        own => own,
    };
    let others = servers.into_iter().map(|one| (one.name, one.addresses));
    let others = others
        .filter(|(_, addresses)| addresses != server)
        .collect();
    let (found, silent) = search(what, (others, stopped), (&trust, is_meant));
    let is_there = |found: &Having| found.1.state == VolumeState::Present;
    let found = match found {
        Some(found) if is_there(&found) => Some(found),
        found => own.or(found),
    };
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
    known: Arc<Mutex<Running>>,
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
    /// For a mount whose own server is one of these, or the only one.
    pub(crate) fn new(server: &Addresses, known: Running, credentials: &Path) -> OfMount {
        OfMount {
            server: server.clone(),
            trust: TrustArgs {
                credentials: Some(credentials.to_owned()),
                insecure_loopback: false,
            },
            known: Arc::new(Mutex::new(known)),
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

    fn known(&self) -> Running {
        lock(&self.known).clone()
    }

    /// The servers, as the first one tells that answers.
    fn told(&self) -> Result<Running, String> {
        told((&self.server, &self.trust), &self.known)
    }

    /// A server that has a replica: those that were known before are asked while the first one that
    /// answers is still asked for others, as the cell's database may be away.
    fn of_replica(&self, volume: u32) -> Option<Having> {
        let (known, server, trust) = (
            Arc::clone(&self.known),
            self.server.clone(),
            self.trust.clone(),
        );
        let ways = at_once::ask(vec![false, true], move |anew| {
            let running = match anew {
                true => told((&server, &trust), &known)?,
                false => lock(&known).clone(),
            };
            find(running, volume)
        });
        ways.into_iter().find_map(|(_, found)| found.ok().flatten())
    }

    fn running(&self) -> Result<Running, String> {
        self.told().or_else(|error| {
            let known = self.known();
            if known.servers.is_empty() {
                return Err(error);
            }
            tracing::warn!(error, "the servers of the cell are as they were before");
            Ok(known)
        })
    }
}

const MOUNT: &str = "mount";

/// The servers of a cell, as the first one tells that answers: this one, or one of those that are
/// known.
fn told(
    (server, trust): (&Addresses, &TrustArgs),
    known: &Mutex<Running>,
) -> Result<Running, String> {
    let others = lock(known).clone().servers.into_iter();
    let others = others.map(|one| one.addresses);
    let others = others.filter(|addresses| addresses != server);
    let all = std::iter::once(server.clone()).chain(others).collect();
    let trust = trust.clone();
    let answers = at_once::ask(all, move |server| running(MOUNT, &server, &trust));
    let mut failed = BTreeMap::new();
    for (place, told) in answers {
        match told {
            Ok(running) => {
                (*lock(known)).clone_from(&running);
                return Ok(running);
            }
            Err(error) => drop(failed.insert(place, error)),
        }
    }
    let first = failed.pop_first().map(|(_, error)| error.to_string());
    Err(first.unwrap_or_else(|| "no server could be asked: see the log".to_owned()))
}

/// The server that has a volume, and what it says of it; nothing: none has it.
fn find(running: Running, volume: u32) -> Result<Option<Having>, String> {
    let Running {
        servers,
        stopped,
        trust,
    } = running;
    let all = servers.into_iter().map(|one| (one.name, one.addresses));
    let is_meant = |info: &VolumeInfo| info.id == volume;
    let all = (all.collect(), stopped);
    match search(MOUNT, all, (&trust, is_meant)) {
        (Some((_, info)), _) if info.state != VolumeState::Present => Ok(None),
        (Some(found), _) => Ok(Some(found)),
        (None, silent) if silent.is_empty() => Ok(None),
        (None, silent) => Err(format!(
            "it is at none of the servers that answer, and {} did not answer: see whether it \
             runs, with `ariel cell servers`",
            silent.join(", ")
        )),
    }
}

impl Servers for OfMount {
    fn of_volume(&self, volume: u32) -> Result<Option<Place>, String> {
        let mut running = self.running()?;
        if running.servers.is_empty() {
            // The cell has one server, of which another store has the volume.
            running.servers.push(One {
                name: self.server.to_string(),
                addresses: self.server.clone(),
            });
        }
        let Some((addresses, info)) = find(running, volume)? else {
            return Ok(None);
        };
        let server = trust::server(MOUNT, &addresses, &self.trust);
        let (server, _) = server.map_err(|error| error.to_string())?;
        let volume = info.name.to_string();
        Ok(Some(Place { server, volume }))
    }

    fn again(&self, volume: u32, missing: Missing) -> Option<Addresses> {
        // It is waited for where it was: nobody else can tell, or has what it had.
        if missing == Missing::Lost && self.known().is_alone() {
            return None;
        }
        if volume_numbers::is_replica(volume) {
            return self.of_replica(volume).map(|(addresses, _)| addresses);
        }
        let running = self.told().unwrap_or_else(|error| {
            tracing::debug!(error, "the servers of the cell are as they were before");
            self.known()
        });
        let found = find(running, volume);
        let found = found.inspect_err(|error| tracing::debug!(volume, error, "not found"));
        found.ok().flatten().map(|(addresses, _)| addresses)
    }

    fn has_session(&self, server: &Addresses, session: SessionId) {
        let mut told = lock(&self.guard);
        match &told.guard {
            Some(guard) => guard.also(server, session),
            None => told.early.push((server.clone(), session)),
        }
    }
}
