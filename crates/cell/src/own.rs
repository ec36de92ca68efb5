//! How a cell begins: its authority, its administrator, and the machine on which it was made.

use crate::authority::{Authority, new_key};
use crate::credential::Credential;
use crate::database::Changes;
use crate::engine::Embedded;
use crate::machine::Role;
use crate::members::{AUTHORITY, AuthorityFile, Cell, CellError, DATABASE};
use crate::private;
use crate::words::{hex, now_s, secret};
use std::io;
use std::path::{Path, PathBuf};
use wire::Rights;

impl Cell {
    /// Makes a cell in a directory, with an administrator and the machine it is made on, whose
    /// credentials come into directories inside of it.
    ///
    /// # Errors
    /// There is one already, or nothing can be written.
    pub fn make(dir: &Path, machine: &str) -> Result<(), CellError> {
        let failed = |error| CellError::Io {
            path: dir.to_owned(),
            error,
        };
        let path = dir.join(AUTHORITY);
        if path.exists() {
            return Err(CellError::Exists(dir.to_owned()));
        }
        private::make_dir(dir).map_err(failed)?;
        let name = hex(&secret()[..4]);
        let (certificate, key) = Authority::make(&name, now_s())?;
        let file = AuthorityFile {
            cell: name,
            certificate,
            key,
        };
        let text = serde_json::to_string_pretty(&file).map_err(|e| failed(io::Error::other(e)))?;
        let aside = dir.join("authority.new");
        private::write(&aside, &text).map_err(failed)?;
        let cell = Cell::with(file, Box::new(Embedded::open(&dir.join(DATABASE))?))?;
        for (name, role, rights) in [
            ("administrator", Role::Administrator, Rights::default()),
            (machine, Role::Machine, Rights::all()),
        ] {
            let (key, public) = new_key()?;
            let certified = cell.add((name, role, rights), &public, Changes::default())?;
            let credential = Credential {
                cell: certified.cell,
                name: certified.name,
                role,
                servers: None,
                life_s: certified.life_s,
                authority: certified.authority,
                certificate: certified.certificate,
                key,
            };
            credential.write(&Cell::credentials(dir, role))?;
        }
        // The last step: before it there is no cell.
        std::fs::rename(&aside, &path).map_err(failed)
    }

    /// Where the credentials of a cell's own administrator, and its own machine, are.
    #[must_use]
    pub fn credentials(dir: &Path, role: Role) -> PathBuf {
        dir.join(match role {
            Role::Administrator => "administrator",
            Role::Machine => "machine",
        })
    }

    /// Renews the credentials that [`Cell::make`] made, which may have expired while no server ran.
    pub(crate) fn renew_own(&self, dir: &Path) -> Result<(), CellError> {
        for role in [Role::Administrator, Role::Machine] {
            let dir = Cell::credentials(dir, role);
            let Some(mut credential) = Credential::read(&dir)? else {
                continue;
            };
            let print = net::print_of_pem(&credential.certificate).ok();
            let machine = print.and_then(|print| self.machine_of(print));
            let Some(machine) = machine.filter(|machine| machine.revoked_s.is_none()) else {
                continue;
            };
            if credential.is_due(now_s()) {
                let (key, public) = new_key()?;
                let certified = self.renew(machine.id, &public)?;
                credential.life_s = certified.life_s;
                credential.certificate = certified.certificate;
                credential.key = key;
                credential.write(&dir)?;
            }
        }
        Ok(())
    }
}
