//! `ariel volume replicate`: read-only replicas of a volume come to servers of the cell, and go.
//!
//! Guarantees: no server is asked for anything before all that are named are known; one that
//! refuses keeps no other one from having a replica, and the command ends with 1 then.

use super::release::release_number;
use super::volume::say;
use crate::args::ReplicateArgs;
use crate::failure::{FAILED, Failure};
use crate::servers::{self, One, Running, ask_about, ask_stores, volume_elsewhere};
use cell::{AskError, Replicas, StoreAnswer, StoreQuestion};
use net::Addresses;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use wire::{Name, VolumeInfo, VolumeState, is_replica_name, replica_name, split_volume_name};

const WHAT: &str = "volume replicate";

/// The cell, as the server that was named tells.
struct Cell {
    server: Addresses,
    running: Running,
    credentials: PathBuf,
}

impl Cell {
    fn of(args: &ReplicateArgs) -> Result<Cell, Failure> {
        let running = servers::running(WHAT, &args.at.server, &args.at.trust)?;
        let credentials = running.trust.credentials.clone();
        match credentials.filter(|_| !running.servers.is_empty()) {
            Some(credentials) => Ok(Cell {
                server: args.at.server.clone(),
                running,
                credentials,
            }),
            None => Err(Failure::of(
                WHAT,
                "the cell has one server only, and replicas are for others: `ariel serve --join` \
                 adds one, in a cell whose database is in etcd",
            )),
        }
    }

    /// A server that runs.
    fn server(&self, name: &str) -> Result<&One, Failure> {
        let mut all = self.running.servers.iter();
        all.find(|one| one.name == name).ok_or_else(|| {
            let text = match self.running.is_stopped(name) {
                true => format!(
                    "{name} does not run: start it; of a server that will never come back `ariel \
                     cell remove-server {name}` takes away what the cell knows, replicas included"
                ),
                false => format!(
                    "the cell has no server {name}: `ariel cell servers` on a server shows all"
                ),
            };
            Failure::of(WHAT, text)
        })
    }

    fn replicated(&self) -> Result<Vec<(u32, Replicas)>, Failure> {
        let at = (&self.server, self.credentials.as_path());
        match ask_stores(WHAT, at, StoreQuestion::Replicated)? {
            StoreAnswer::Replicated(all) => Ok(all),
            _ => Err(Failure::of(WHAT, AskError::Strange)),
        }
    }

    fn ask(&self, server: &One, question: StoreQuestion) -> Result<StoreAnswer, String> {
        ask_about((&server.addresses, &self.credentials), question)
    }
}

/// The number of the volume, and the servers that have replicas of it.
fn known(cell: &Cell, args: &ReplicateArgs) -> Result<(u32, Vec<String>), Failure> {
    let name = args.name.to_string();
    let failed = |text: String| Err(Failure::of(&name, text));
    if is_replica_name(args.name.as_bytes()) {
        return failed("it is a replica itself: name the volume that it is of".to_owned());
    }
    let mut all = cell.replicated()?.into_iter();
    if args.on.is_empty() {
        // The volume itself may be lost.
        return match all.find(|(_, record)| record.name == name) {
            Some((volume, record)) => Ok((volume, record.servers)),
            None => failed("it has no replicas: see `ariel volume show`".to_owned()),
        };
    }
    let at = (&args.at.trust, &args.name);
    match volume_elsewhere(WHAT, &cell.server, at)? {
        Some((addresses, info)) if info.state == VolumeState::Present => {
            let record = all.find(|(volume, _)| *volume == info.id);
            if record.is_none() {
                has_no_release(cell, (&addresses, &info))?;
            }
            let servers = record.map(|(_, record)| record.servers);
            Ok((info.id, servers.unwrap_or_default()))
        }
        _ => failed("there is no such volume: see `ariel volume list --all`".to_owned()),
    }
}

/// No snapshot of a volume that gets its first replica is called as those of releases are.
fn has_no_release(cell: &Cell, (at, info): (&Addresses, &VolumeInfo)) -> Result<(), Failure> {
    let name = info.name.to_string();
    let found = servers::look(WHAT, (name.clone(), at.clone()), &cell.running.trust);
    let all = found.volumes.map_err(|error| Failure::of(&name, error))?;
    let is_ours = |other: &&VolumeInfo| {
        let snapshot = split_volume_name(&other.name).1.and_then(release_number);
        let there = other.state == VolumeState::Present && snapshot.is_some();
        there && other.snapshot_of == Some(info.id)
    };
    let found = all.iter().find(is_ours);
    found.map_or(Ok(()), |snapshot| {
        let text = format!(
            "it has a snapshot {}, as those of its releases are called: give that another name \
             with `ariel volume rename`, or delete it",
            snapshot.name
        );
        Err(Failure::of(&name, text))
    })
}

pub(super) fn replicate(args: &ReplicateArgs) -> Result<ExitCode, Failure> {
    let cell = Cell::of(args)?;
    let of = |name: &String| cell.server(name);
    let come: Vec<&One> = args.on.iter().map(of).collect::<Result<_, _>>()?;
    let go: Vec<&One> = args.not_on.iter().map(of).collect::<Result<_, _>>()?;
    let (volume, servers) = known(&cell, args)?;
    let mut code = ExitCode::SUCCESS;
    let mut told = |server: &One, done: Result<String, String>| match done {
        Ok(text) => say(&format!("{}: {text}\n", server.name)),
        Err(why) => {
            code = ExitCode::from(FAILED);
            // Where standard error is gone, there is nobody to tell.
            let _ = writeln!(io::stderr(), "ariel: {WHAT}: {}: {why}", server.name);
            Ok(())
        }
    };
    // One after the other: the first one says which store the others have, too.
    for server in come {
        let is_new = !servers.contains(&server.name);
        told(
            server,
            one_more(&cell, server, (volume, &args.name), is_new),
        )?;
    }
    for server in go {
        let question = StoreQuestion::Unreplicate { volume };
        let done = cell.ask(server, question);
        told(
            server,
            done.map(|_| "it has no replica any more".to_owned()),
        )?;
    }
    Ok(code)
}

/// Has a server make a replica.
fn one_more(
    cell: &Cell,
    server: &One,
    (volume, name): (u32, &Name),
    is_new: bool,
) -> Result<String, String> {
    let question = StoreQuestion::Replicate {
        volume,
        name: name.to_string(),
    };
    match (cell.ask(server, question)?, replica_name(name.as_bytes())) {
        (StoreAnswer::Made(_), Ok(replica)) if is_new => Ok(format!(
            "it has a replica, {replica}, which is empty until `ariel volume release`"
        )),
        (StoreAnswer::Made(_), _) => Ok("it has a replica already".to_owned()),
        _ => Err(AskError::Strange.to_string()),
    }
}
