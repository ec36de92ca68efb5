//! How this machine shows itself to servers: where its credential is found.
//!
//! The first of these that holds one counts: the directory of `--credentials`; of a server of this
//! user on this machine, the directory of its data; the user's configuration directory; /etc/ariel.

use crate::args::TrustArgs;
use crate::failure::{FAILED, Failure};
use crate::{paths, serve};
use cell::{Cell, Credential, Role, Shown};
use net::{Addresses, Passage};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a server of this machine may take to say where its data is.
const LOCAL: Duration = Duration::from_secs(2);
/// The machine's own configuration.
const OF_MACHINE: &str = "/etc/ariel";

/// Where a cell is, beside the store in a server's data directory.
pub(crate) fn cell_dir(data: &Path) -> PathBuf {
    data.join("cell")
}

/// Where a machine that joins keeps its credential.
pub(crate) fn own_dir() -> PathBuf {
    match paths::config() {
        Some(dir) if !rustix::process::geteuid().is_root() => dir,
        _ => PathBuf::from(OF_MACHINE),
    }
}

fn is_loopback(address: &str) -> bool {
    let addr = address.parse::<SocketAddr>();
    addr.is_ok_and(|addr| addr.ip().to_canonical().is_loopback())
}

/// The data directory of the server at one of these addresses, if it is this user's.
fn local_data(servers: &Addresses) -> Option<PathBuf> {
    let mut local = servers.iter().filter(|one| is_loopback(one));
    local.find_map(|addr| {
        let addr = addr.parse().ok()?;
        let status = serve::ask_within(addr, "status", LOCAL).ok().flatten()?;
        Some(PathBuf::from(status["data"].as_str()?))
    })
}

/// Where credentials for this may be, the first place first.
fn places(given: Option<&Path>, data: Option<&Path>, role: Role) -> Vec<PathBuf> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let own = data.map(|data| Cell::credentials(&cell_dir(data), role));
    let shared = [paths::config(), Some(PathBuf::from(OF_MACHINE))];
    let shared = shared.into_iter().flatten().map(|dir| match role {
        Role::Machine => dir,
        Role::Administrator => dir.join("administrator"),
    });
    own.into_iter().chain(shared).collect()
}

/// The first credential of these, and where it is.
fn first(what: &str, places: &[PathBuf]) -> Result<Option<(PathBuf, Credential)>, Failure> {
    for dir in places {
        let read = Credential::read(dir).map_err(|error| Failure::of(what, error))?;
        if let Some(credential) = read {
            return Ok(Some((dir.clone(), credential)));
        }
    }
    Ok(None)
}

fn listed(places: &[PathBuf]) -> String {
    let shown: Vec<String> = places.iter().map(|dir| dir.display().to_string()).collect();
    shown.join(", ")
}

/// The server at these addresses, and the directory of the credential for it, if one is needed.
pub(crate) fn server(
    what: &str,
    servers: &Addresses,
    trust: &TrustArgs,
) -> Result<(client::Server, Option<PathBuf>), Failure> {
    let reached = |passage| client::Server {
        addresses: servers.clone(),
        passage,
    };
    if trust.insecure_loopback {
        return Ok((reached(Passage::InsecureLoopback), None));
    }
    let data = match trust.credentials {
        Some(_) => None,
        None => local_data(servers),
    };
    let places = places(trust.credentials.as_deref(), data.as_deref(), Role::Machine);
    let Some((dir, _)) = first(what, &places)? else {
        let nobody = match servers.iter().any(is_loopback) {
            true => format!(
                "no server of this user answers at {servers} on this machine (`ariel serve` starts \
                 one), and "
            ),
            false => String::new(),
        };
        let text = format!(
            "{what}: {nobody}this machine has no certificate ({} was looked for in {}): on the \
             server's \
             machine `ariel join-token` prints a line, and `ariel join` here takes it",
            cell::FILE,
            listed(&places)
        );
        return Err(Failure::new(FAILED, text));
    };
    let shown = Arc::new(Shown::of(&dir));
    Ok((reached(Passage::Tls(shown)), Some(dir)))
}

/// An administrator's credential.
pub(crate) fn administrator(
    what: &str,
    (credentials, data): (Option<&Path>, Option<&Path>),
) -> Result<Credential, Failure> {
    let default = match (credentials, data) {
        (None, None) => paths::default_data().ok(),
        _ => None,
    };
    let places = places(
        credentials,
        data.or(default.as_deref()),
        Role::Administrator,
    );
    match first(what, &places)? {
        Some((_, credential)) if credential.role == Role::Administrator => Ok(credential),
        Some((dir, _)) => {
            let text = format!(
                "{} is a machine's credential, not an administrator's",
                dir.display()
            );
            Err(Failure::of(what, text))
        }
        None => {
            let text = format!(
                "there is no administrator's credential in {}: name the server's data directory \
                 with --data DIR, or make a cell with `ariel cell init --data DIR`",
                listed(&places)
            );
            Err(Failure::of(what, text))
        }
    }
}

/// Where the servers of a credential are.
pub(crate) fn servers_of(what: &str, credential: &Credential) -> Result<Addresses, Failure> {
    credential.servers().ok_or_else(|| {
        let text = "the cell's server has not been started yet, so nobody knows where it is: \
                    `ariel serve --data DIR --listen ADDR`, then again";
        Failure::of(what, text)
    })
}
