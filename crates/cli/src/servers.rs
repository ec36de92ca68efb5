//! The servers of a cell with several of them: which one has a volume.
//!
//! Guarantees: of a cell with one server, and without a name of a volume, nothing is looked for;
//! the server that was named goes before the others; the servers themselves are asked, so that
//! nothing can be out of date.

use crate::args::TrustArgs;
use crate::failure::Failure;
use crate::trust;
use cell::{Answer, Credential, Question};
use files::{Options, Tree};
use net::Addresses;
use wire::{Name, VolumeInfo, VolumeState};

/// A server, by its name, and the volumes that it has; or why it does not tell.
pub(crate) struct Found {
    pub(crate) server: String,
    pub(crate) addresses: Addresses,
    pub(crate) volumes: Result<Vec<VolumeInfo>, String>,
}

/// The servers of the cell that run, as one of them tells, and how this machine shows itself to
/// them: none of a cell with one server.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) servers: Vec<(String, Addresses)>,
    pub(crate) trust: TrustArgs,
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
    let all = lines.into_iter().filter_map(|line| {
        let addresses = line.addresses?.parse().ok()?;
        Some((line.name, addresses))
    });
    Ok(Running {
        servers: all.collect(),
        trust: TrustArgs {
            credentials: Some(dir),
            insecure_loopback: false,
        },
    })
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

/// Has one of these volumes the name? One that is there goes before one that was deleted.
fn has(volumes: &[VolumeInfo], name: &str) -> Option<bool> {
    let named = volumes.iter().filter(|info| info.name.to_string() == name);
    named.map(|info| info.state == VolumeState::Present).max()
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
    let Running { servers, trust } = running(what, server, trust).unwrap_or_default();
    if servers.len() < 2 {
        return Ok(server.clone());
    }
    let name = base(volume);
    let named = look(what, (server.to_string(), server.clone()), &trust);
    if matches!(&named.volumes, Ok(volumes) if has(volumes, &name) == Some(true)) {
        return Ok(server.clone());
    }
    let (mut silent, mut deleted) = (Vec::new(), None);
    let others = servers.into_iter().map(|one| look(what, one, &trust));
    for found in std::iter::once(named).chain(others) {
        match found.volumes.map(|volumes| has(&volumes, &name)) {
            Ok(Some(true)) => return Ok(found.addresses),
            Ok(Some(false)) => drop(deleted.get_or_insert(found.addresses)),
            Ok(None) => {}
            Err(_) => silent.push(found.server),
        }
    }
    deleted.ok_or_else(|| {
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
