//! Where the database of a cell with several servers is, and how it is reached.
//!
//! Guarantees: what is read back is what was written; a place that would send the cell's keys in
//! clear over a network is refused.

use crate::members::CellError;
use crate::private;
use net::Addresses;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The name of the file that says it, in the cell's directory.
pub(crate) const FILE: &str = "database.json";
/// The port of etcd, where none is named.
const PORT: &str = "2379";
/// The beginning of all keys, where none is named.
const PREFIX: &str = "ariel";

/// The place of a database in etcd: `etcds://HOST[:PORT][,HOST[:PORT]]...[/PREFIX]`, or `etcd://`
/// without TLS, on loopback alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DatabaseUrl {
    /// With TLS?
    pub(crate) tls: bool,
    /// `HOST:PORT` of each member.
    pub(crate) hosts: Vec<String>,
    /// The beginning of all keys.
    pub(crate) prefix: String,
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<DatabaseUrl, String> {
        let form = || {
            format!(
                "{text:?} is no place of a database such as etcds://db1,db2:2379 or etcd://[::1]"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(form)?;
        let tls = match scheme {
            "etcds" => true,
            "etcd" => false,
            _ => return Err(form()),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(fits) {
            return Err(form());
        }
        let hosts = hosts.split(',').map(with_port);
        let hosts: Option<Vec<String>> = hosts.collect();
        let hosts = hosts.ok_or_else(form)?;
        if !tls && !hosts.iter().all(|host| is_loopback(host)) {
            return Err(format!(
                "{text}: the cell's keys would cross the network in clear; name it etcds://, with \
                 `--database-ca` and what else etcd wants, or keep it on loopback"
            ));
        }
        let prefix = prefix.to_owned();
        Ok(DatabaseUrl { tls, hosts, prefix })
    }
}

fn with_port(host: &str) -> Option<String> {
    let has_port = match host.rsplit_once(']') {
        Some((_, after)) => after.starts_with(':'),
        None => host.contains(':'),
    };
    let whole = match has_port {
        true => host.to_owned(),
        false => format!("{host}:{PORT}"),
    };
    // Read as the addresses of servers are, so that the same forms are right.
    let read: Addresses = whole.parse().ok()?;
    (read.iter().count() == 1).then_some(whole)
}

fn is_loopback(host: &str) -> bool {
    let addr = host.parse::<std::net::SocketAddr>();
    host.starts_with("localhost:") || addr.is_ok_and(|addr| addr.ip().to_canonical().is_loopback())
}

impl std::fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.hosts.join(","), self.prefix)
    }
}

impl TryFrom<String> for DatabaseUrl {
    type Error = String;

    fn try_from(text: String) -> Result<DatabaseUrl, String> {
        text.parse()
    }
}

impl From<DatabaseUrl> for String {
    fn from(url: DatabaseUrl) -> String {
        url.to_string()
    }
}

/// The place of the database, and which files show this server to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The place.
    pub url: DatabaseUrl,
    /// The certificates of authorities that etcd's are from, as PEM; none: no TLS.
    pub ca: Option<PathBuf>,
    /// The certificate and the key of this server as a client of etcd, as PEM.
    pub client: Option<(PathBuf, PathBuf)>,
    /// How the cell calls this server.
    pub server: String,
    /// The number of this server; 0: it made the cell.
    pub number: u32,
}

impl Location {
    /// The one that the cell in this directory has; none: its database is in the directory.
    pub(crate) fn read(dir: &Path) -> Result<Option<Location>, CellError> {
        let path = dir.join(FILE);
        let failed = |error| CellError::Io {
            path: path.clone(),
            error,
        };
        let text = match private::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let read = serde_json::from_str(&text).map_err(io::Error::other);
        read.map(Some).map_err(failed)
    }

    /// Writes it for the cell in this directory.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), CellError> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = text.and_then(|text| private::write(&path, &text));
        written.map_err(|error| CellError::Io { path, error })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn places_are_read_and_those_in_clear_are_refused() {
        let url: DatabaseUrl = "etcds://db1,[fd00::2],db3:4000/cell-7".parse().unwrap();
        assert_eq!(url.hosts, ["db1:2379", "[fd00::2]:2379", "db3:4000"]);
        assert_eq!(url.to_string().parse::<DatabaseUrl>().unwrap(), url);
        let near: DatabaseUrl = "etcd://127.0.0.1:1,[::1],localhost".parse().unwrap();
        assert_eq!((near.tls, near.prefix.as_str()), (false, "ariel"));
        let clear = "etcd://db1".parse::<DatabaseUrl>().unwrap_err();
        assert!(
            clear.contains("in clear") && clear.contains("etcds://"),
            "{clear}"
        );
        for wrong in [
            "",
            "etcd",
            "http://db1",
            "etcds://",
            "etcds://a,,b",
            "etcds://a/b/c",
        ] {
            assert!(wrong.parse::<DatabaseUrl>().is_err(), "{wrong}");
        }
    }
}
