//! How a cell begins: its authority, its administrator, and the machine on which it was made.

use crate::authority::{Authority, new_key};
use crate::credential::Credential;
use crate::database::{Changes, Database as _};
use crate::engine::Embedded;
use crate::etcd::Etcd;
use crate::location::{self, DatabaseUrl, Location};
use crate::machine::Role;
use crate::members::{
    AUTHORITY, AuthorityFile, CELL, Cell, CellError, DATABASE, decode, encode, place, refused,
};
use crate::private;
use crate::revision::ServerLine;
use crate::words::{hex, now_s, secret};
use std::io;
use std::path::{Path, PathBuf};
use wire::Rights;

/// The record of the authority, which certifies each server that has the database.
const AUTHORITY_RECORD: &str = "authority";

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
        begin(dir)?;
        let file = new_cell()?;
        let text = serde_json::to_string_pretty(&file).map_err(|e| failed(io::Error::other(e)))?;
        let aside = dir.join("authority.new");
        private::write(&aside, &text).map_err(failed)?;
        let cell = Cell::with(file, Box::new(Embedded::open(&dir.join(DATABASE))?))?;
        cell.add_own(dir, "administrator", machine)?;
        // The last step: before it there is no cell.
        std::fs::rename(&aside, &path).map_err(failed)
    }

    /// Adds an administrator and a machine, whose credentials come into directories inside of this
    /// one.
    fn add_own(&self, dir: &Path, administrator: &str, machine: &str) -> Result<(), CellError> {
        for (name, role, rights) in [
            (administrator, Role::Administrator, Rights::default()),
            (machine, Role::Machine, Rights::all()),
        ] {
            let (key, public) = new_key()?;
            let certified = self.add(
                (name, role, (rights, Vec::new())),
                &public,
                Changes::default(),
            )?;
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
        Ok(())
    }

    /// Makes a cell whose servers will have one database together, with an administrator and the
    /// machine it is made on, whose credentials come into directories inside of `dir`.
    ///
    /// # Errors
    /// There is one already, here or there; or the database is away.
    pub fn make_shared(dir: &Path, location: &Location, machine: &str) -> Result<(), CellError> {
        begin(dir)?;
        let database = Etcd::new(location.clone())?;
        let file = new_cell()?;
        let at = place(CELL, AUTHORITY_RECORD);
        let changes = Changes {
            when: vec![(at.clone(), None)],
            then: vec![(at, Some(encode(&file)?))],
        };
        if !database.commit(&changes)? {
            return Err(refused(format!(
                "the database at {} has a cell already: `ariel serve --join` adds a server to it, \
                 and another name after the last slash is for another cell",
                location.url
            )));
        }
        let cell = Cell::with(file, Box::new(database))?;
        cell.add_own(dir, "administrator", machine)?;
        cell.enter_server(location)?;
        // The last step: before it this directory belongs to no cell.
        location.write(dir)
    }

    /// A number for a server that is to be added to the cell of a database: its volumes are
    /// numbered by it.
    ///
    /// # Errors
    /// The database has no cell, or is away.
    pub fn number_server(location: &Location) -> Result<u32, CellError> {
        Cell::open_shared(location.clone())?.take_server_number()
    }

    /// Adds a server to the cell of a database, with an administrator and a machine of its own. Its
    /// store numbers volumes by the number of the location.
    ///
    /// # Errors
    /// The directory has a cell, the database has none or is away, or a server, machine or
    /// administrator of that name is there, or a server of that number.
    pub fn join_shared(dir: &Path, location: &Location, machine: &str) -> Result<(), CellError> {
        begin(dir)?;
        let cell = Cell::open_shared(location.clone())?;
        let number = location.number;
        if !cell.is_free_number(number)? {
            return Err(refused(format!(
                "the store was not made for this cell, and its volumes may have the numbers of \
                 others (server number {number}): let the server begin with an empty directory, \
                 and bring volumes there with `ariel volume send` and `receive`"
            )));
        }
        let administrator = format!("administrator-{}", location.server);
        // Looked at first, so that a refusal leaves nothing behind.
        for name in [&administrator, machine] {
            cell.is_free(name)?;
        }
        cell.add_own(dir, &administrator, machine)?;
        cell.enter_server(location)?;
        location.write(dir)
    }

    /// Opens the cell of a database.
    pub(crate) fn open_shared(location: Location) -> Result<Cell, CellError> {
        let url = location.url.clone();
        let database = Etcd::new(location)?;
        let bytes = database.get(&place(CELL, AUTHORITY_RECORD))?;
        let bytes = bytes.ok_or_else(|| {
            refused(format!(
                "the database at {url} has no cell: make one with `ariel cell init --database`"
            ))
        })?;
        Cell::with(decode(&bytes)?, Box::new(database))
    }

    /// Enters a server under its name, which no other one has.
    fn enter_server(&self, location: &Location) -> Result<(), CellError> {
        let name = &location.server;
        if self.servers()?.iter().any(|line| line.name == *name) {
            return Err(refused(format!(
                "the cell has a server {name} already: choose another name with `--name`, or have \
                 it forgotten with `ariel cell remove-server {name}`"
            )));
        }
        self.tell_server(&ServerLine {
            name: name.clone(),
            addresses: None,
            revision: 0,
            number: location.number,
        })
    }

    /// Does this directory belong to a cell?
    #[must_use]
    pub fn is_in(dir: &Path) -> bool {
        dir.join(AUTHORITY).exists() || dir.join(location::FILE).exists()
    }

    /// The database that a directory's cell shares with other servers.
    ///
    /// # Errors
    /// The file that says it cannot be read.
    pub fn database(dir: &Path) -> Result<Option<DatabaseUrl>, CellError> {
        Ok(Location::read(dir)?.map(|location| location.url))
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

/// The name and the authority of a new cell.
fn new_cell() -> Result<AuthorityFile, CellError> {
    let cell = hex(&secret()[..4]);
    let (certificate, key) = Authority::make(&cell, now_s())?;
    Ok(AuthorityFile {
        cell,
        certificate,
        key,
    })
}

/// Makes the directory of a cell that has none yet.
fn begin(dir: &Path) -> Result<(), CellError> {
    if Cell::is_in(dir) {
        return Err(CellError::Exists(dir.to_owned()));
    }
    private::make_dir(dir).map_err(|error| CellError::Io {
        path: dir.to_owned(),
        error,
    })
}
