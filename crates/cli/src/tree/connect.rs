//! The trees that commands about volumes work on, and the names that volumes may have.

use crate::args::TrustArgs;
use crate::failure::Failure;
use crate::{servers, trust};
use files::{Options, Tree};
use net::Addresses;
use std::time::Duration;
use wire::{Name, StoreOf, VolumeState, is_replica_name};

/// A command that works with several servers goes on without one that says nothing for so long: a
/// server that starts again is back by then.
const SILENCE: Duration = Duration::from_secs(20);

pub(super) fn connect(trust: &TrustArgs, server: &Addresses) -> Result<Tree, Failure> {
    connect_in(trust, server, None)
}

/// The first tree of the store that has this volume, on whichever server.
pub(super) fn connect_to(
    trust: &TrustArgs,
    server: &Addresses,
    volume: &Name,
) -> Result<Tree, Failure> {
    let addresses = servers::of_volume("volume", server, (trust, Some(volume)))?;
    connect_to_store(trust, &addresses, StoreOf::Volume(volume.as_bytes()))
}

/// The first tree of a store.
pub(super) fn connect_to_store(
    trust: &TrustArgs,
    server: &Addresses,
    store: StoreOf<'_>,
) -> Result<Tree, Failure> {
    let volume = String::from_utf8_lossy(&store.text()).into_owned();
    connect_as(trust, server, Some(volume))
}

fn connect_as(
    trust: &TrustArgs,
    server: &Addresses,
    volume: Option<String>,
) -> Result<Tree, Failure> {
    connect_by(trust, server, (volume, None))
}

/// The tree of a volume, or the first one of a store, of just this server. No call waits for long
/// when the server is silent.
pub(super) fn connect_within(
    trust: &TrustArgs,
    server: &Addresses,
    volume: String,
) -> Result<Tree, Failure> {
    connect_by(trust, server, (Some(volume), Some(SILENCE)))
}

fn connect_by(
    trust: &TrustArgs,
    server: &Addresses,
    (volume, timeout): (Option<String>, Option<Duration>),
) -> Result<Tree, Failure> {
    let options = Options {
        name: format!("ariel volume, process {}", std::process::id()),
        volume,
        timeout,
        ..Options::default()
    };
    let (server, _) = trust::server("volume", server, trust)?;
    Tree::connect(server, &options).map_err(|error| Failure::of("volume", error))
}

/// The tree of a volume; `None`: of the first one.
pub(super) fn connect_in(
    trust: &TrustArgs,
    server: &Addresses,
    volume: Option<&Name>,
) -> Result<Tree, Failure> {
    let addresses = servers::of_volume("volume", server, (trust, volume))?;
    connect_as(trust, &addresses, volume.map(ToString::to_string))
}

/// The name is not one that replicas have.
pub(super) fn is_no_replicas_name(name: &Name) -> Result<(), Failure> {
    match is_replica_name(name.as_bytes()) {
        false => Ok(()),
        true => Err(Failure::of(
            &name.to_string(),
            "names that end in `.readonly` are those of replicas, which `ariel volume replicate` \
             makes: choose another one",
        )),
    }
}

/// No volume of any server that answers has this name: each store knows its own alone.
pub(super) fn is_free(trust: &TrustArgs, server: &Addresses, name: &Name) -> Result<(), Failure> {
    is_no_replicas_name(name)?;
    match servers::volume_elsewhere("volume", server, (trust, name)) {
        Ok(Some((other, info))) if !matches!(info.state, VolumeState::Deleted(_)) => {
            let text = match other == *server {
                true => "the name is taken: choose another one, or rename what has it".to_owned(),
                false => {
                    format!("the server at {other} has a volume of this name: choose another one")
                }
            };
            Err(Failure::of(&name.to_string(), text))
        }
        // Where nobody can be asked, the store itself refuses what is in it.
        _ => Ok(()),
    }
}
