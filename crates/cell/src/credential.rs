//! A machine's credential: one file with its certificate, its key and what it is of.
//!
//! Guarantees: the file is replaced as a whole, so its key and its certificate always fit; it is
//! its owner's alone, and not used otherwise.

use crate::machine::Role;
use crate::private;
use net::{Addresses, ClientTls, Credentials, KeyPrint, Pem, ServerTls};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the file.
pub const FILE: &str = "machine.json";

/// The content of the file.
#[derive(Clone, Serialize, Deserialize)]
pub struct Credential {
    /// The cell.
    pub cell: String,
    /// The machine's name.
    pub name: String,
    /// Its purpose.
    pub role: Role,
    /// Where the servers are, as they were told when the machine joined.
    pub servers: Option<String>,
    /// When the certificate was made, and until when it counts, seconds since 1970.
    pub life_s: (u64, u64),
    /// The authority's certificate.
    pub authority: String,
    /// The machine's certificate.
    pub certificate: String,
    /// Its key.
    pub(crate) key: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "credential of {} in cell {}", self.name, self.cell)
    }
}

/// Why a credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file cannot be read or written.
    #[error("the credential {path} cannot be used: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is no credential.
    #[error("{0} is no credential: join the cell again with `ariel join`")]
    Rubbish(PathBuf),
}

impl Credential {
    /// Reads the credential in a directory; none: there is no such file.
    ///
    /// # Errors
    /// It cannot be read, or others can read it.
    pub fn read(dir: &Path) -> Result<Option<Credential>, CredentialError> {
        let path = dir.join(FILE);
        let text = match private::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CredentialError::Io { path, error }),
        };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|_| CredentialError::Rubbish(path))
    }

    /// Writes it into a directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), CredentialError> {
        let path = dir.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = private::make_dir(dir)
            .and(text)
            .and_then(|text| private::write(&path, &(text + "\n")));
        written.map_err(|error| CredentialError::Io { path, error })
    }

    /// How a client with it shows itself.
    ///
    /// # Errors
    /// It holds something else than it should, in words.
    pub fn tls(&self) -> Result<ClientTls, String> {
        let pem = Pem {
            authority: &self.authority,
            certificate: &self.certificate,
            key: &self.key,
        };
        ClientTls::new(pem).map_err(|error| error.to_string())
    }

    /// How another machine that calls this one finds it shown, and the print of its key.
    ///
    /// # Errors
    /// As above.
    pub fn as_called(&self) -> Result<(ServerTls, KeyPrint), String> {
        let pem = Pem {
            authority: &self.authority,
            certificate: &self.certificate,
            key: &self.key,
        };
        let print = net::print_of_pem(&self.certificate).map_err(|error| error.to_string())?;
        let tls = ServerTls::new(pem).map_err(|error| error.to_string())?;
        Ok((tls, print))
    }

    /// Where the servers are, if that is known.
    #[must_use]
    pub fn servers(&self) -> Option<Addresses> {
        self.servers.as_ref()?.parse().ok()
    }

    /// Is it time to renew it: has a third of its life passed?
    #[must_use]
    pub fn is_due(&self, now_s: u64) -> bool {
        let (from, until) = self.life_s;
        now_s >= from + until.saturating_sub(from) / 3
    }
}

/// Tells two files of one name apart: number, and when it was changed.
type Version = (u64, i64, i64);

/// A credential as it is now: the file is looked at for each connection, so a process that renews
/// it does so for all.
pub struct Shown {
    dir: PathBuf,
    /// Which file was read last, and what it says.
    last: Mutex<Option<(Version, ClientTls)>>,
}

impl Shown {
    /// The credential in this directory.
    #[must_use]
    pub fn of(dir: &Path) -> Shown {
        Shown {
            dir: dir.to_owned(),
            last: Mutex::new(None),
        }
    }
}

impl Credentials for Shown {
    fn tls(&self) -> Result<ClientTls, String> {
        let path = self.dir.join(FILE);
        let found = std::fs::metadata(&path);
        let found = found.map_err(|error| format!("the credential {}: {error}", path.display()))?;
        let version = (found.ino(), found.mtime(), found.mtime_nsec());
        let mut last = self.last.lock();
        if let Some((seen, tls)) = &*last
            && *seen == version
        {
            return Ok(tls.clone());
        }
        let credential = Credential::read(&self.dir).map_err(|error| error.to_string())?;
        let credential = credential.ok_or_else(|| format!("{} is gone", path.display()))?;
        let tls = credential.tls()?;
        *last = Some((version, tls.clone()));
        Ok(tls)
    }

    fn as_called(&self) -> Result<(ServerTls, KeyPrint), String> {
        let path = self.dir.join(FILE);
        let credential = Credential::read(&self.dir).map_err(|error| error.to_string())?;
        let credential = credential.ok_or_else(|| format!("{} is gone", path.display()))?;
        credential.as_called()
    }
}
