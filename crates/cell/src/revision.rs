//! Several servers with one database: changes follow one another, and servers follow changes.
//!
//! Guarantees: what a server decides, it decides by all changes that were made before it, or it
//! decides again; a change that was answered is in force at every server of the cell, or the answer
//! names those that have not said so. A server whose database is away goes on with what it knows.

use crate::database::{Changes, Database};
use crate::members::{CELL, Cell, CellError, decode, encode, place};
use net::clock;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The record that each change counts up.
const REVISION: &str = "revision";
const SERVERS: &str = "servers";
/// The record of the last number that a server was given; the first server has 0.
const NUMBERS: &str = "server-numbers";
/// So often is it tried to note what nobody else's change forbids.
const TRIES: usize = 16;

/// How many changes were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Revision(pub(crate) u64);

impl Revision {
    pub(crate) fn load(database: &dyn Database) -> Result<Revision, CellError> {
        let bytes = database.get(&place(CELL, REVISION))?;
        Revision::read(bytes.as_deref())
    }

    fn read(bytes: Option<&[u8]>) -> Result<Revision, CellError> {
        Ok(Revision(bytes.map_or(Ok(0), decode)?))
    }

    fn bytes(self) -> Result<Option<Vec<u8>>, CellError> {
        match self.0 {
            0 => Ok(None),
            number => encode(&number).map(Some),
        }
    }
}

/// A server of a cell whose servers have one database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLine {
    /// Its name.
    pub name: String,
    /// Where it is reached; nothing while it does not run.
    pub addresses: Option<String>,
    /// It judges by all changes up to this one.
    pub revision: u64,
    /// Its number, which is in the numbers of its volumes; no other server ever has it.
    pub number: u32,
}

impl Cell {
    /// Makes changes that were decided by what the memory says; false: a record was not as said.
    pub(crate) fn commit(
        &self,
        at: &mut Revision,
        mut changes: Changes,
    ) -> Result<bool, CellError> {
        if !self.database.is_shared() {
            return Ok(self.database.commit(&changes)?);
        }
        let (record, next) = (place(CELL, REVISION), Revision(at.0 + 1));
        changes.when.push((record.clone(), at.bytes()?));
        changes.then.push((record, next.bytes()?));
        if self.database.commit(&changes)? {
            *at = next;
            return Ok(true);
        }
        match Revision::load(&*self.database)? == *at {
            true => Ok(false),
            false => Err(CellError::Outdated),
        }
    }

    /// Makes changes that are right whatever other servers have changed meanwhile.
    pub(crate) fn note(&self, at: &mut Revision, changes: &Changes) -> Result<(), CellError> {
        let mut latest = *at;
        for _ in 0..TRIES {
            match self.commit(&mut latest, changes.clone()) {
                Err(CellError::Outdated) => latest = Revision::load(&*self.database)?,
                Err(error) => return Err(error),
                // Nothing else is expected of any record.
                Ok(_) => {
                    // The changes of others between are still to be read.
                    if latest.0 == at.0 + 1 {
                        *at = latest;
                    }
                    return Ok(());
                }
            }
        }
        Err(CellError::Outdated)
    }

    /// Waits at most so long for a change by another server.
    pub(crate) fn wait_outdated(&self, limit: Duration) -> Result<bool, CellError> {
        let at = *self.changing.lock();
        let seen = at.bytes()?;
        let record = place(CELL, REVISION);
        let found = self
            .database
            .wait_changed(&record, seen.as_deref(), limit)?;
        // A change of this server may have been made since.
        Ok(Revision::read(found.as_deref())?.0 > self.changing.lock().0)
    }

    /// The change by which this server judges.
    pub(crate) fn revision(&self) -> u64 {
        self.changing.lock().0
    }

    /// Do several servers share the database?
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.database.is_shared()
    }

    /// The servers, by name.
    ///
    /// # Errors
    /// The database fails.
    pub fn servers(&self) -> Result<Vec<ServerLine>, CellError> {
        let all = self.database.list(SERVERS)?;
        all.iter().map(|(_, bytes)| decode(bytes)).collect()
    }

    /// A number for one more server. It is never given again, also when no server takes it.
    pub(crate) fn take_server_number(&self) -> Result<u32, CellError> {
        let at = place(CELL, NUMBERS);
        for _ in 0..TRIES {
            let found = self.database.get(&at)?;
            let last: u32 = found.as_deref().map_or(Ok(0), decode)?;
            let number = last + 1;
            let changes = Changes {
                when: vec![(at.clone(), found)],
                then: vec![(at.clone(), Some(encode(&number)?))],
            };
            if self.database.commit(&changes)? {
                return Ok(number);
            }
        }
        Err(CellError::Outdated)
    }

    /// May a server have this number: was it given, and has nobody else it?
    pub(crate) fn is_free_number(&self, number: u32) -> Result<bool, CellError> {
        let found = self.database.get(&place(CELL, NUMBERS))?;
        let last: u32 = found.as_deref().map_or(Ok(0), decode)?;
        let taken = self.servers()?.iter().any(|line| line.number == number);
        Ok((1..=last).contains(&number) && !taken)
    }

    /// Says of this server where it is, and by which changes it judges.
    pub(crate) fn tell_server(&self, line: &ServerLine) -> Result<(), CellError> {
        let changes = Changes {
            when: Vec::new(),
            then: vec![(place(SERVERS, &line.name), Some(encode(line)?))],
        };
        self.database.commit(&changes)?;
        Ok(())
    }

    /// Forgets a server that will never come back; false: there is none of this name.
    pub(crate) fn forget_server(&self, name: &str) -> Result<bool, CellError> {
        let at = place(SERVERS, name);
        let found = self.database.get(&at)?;
        let changes = Changes {
            when: Vec::new(),
            then: vec![(at, None)],
        };
        self.database.commit(&changes)?;
        Ok(found.is_some())
    }

    /// Waits at most so long until every server that runs judges by the changes that this one
    /// judges by; the names of those that have not said so.
    pub(crate) fn wait_followed(
        &self,
        own: &str,
        limit: Duration,
    ) -> Result<Vec<String>, CellError> {
        let wanted = self.changing.lock().0;
        let until_ns = clock::now_ns() + limit.as_nanos() as u64;
        let mut behind = Vec::new();
        for (name, bytes) in self.database.list(SERVERS)? {
            let mut line: ServerLine = decode(&bytes)?;
            let mut seen = Some(bytes);
            while name != own && line.addresses.is_some() && line.revision < wanted {
                let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
                if left.is_zero() {
                    behind.push(name);
                    break;
                }
                let at = place(SERVERS, &name);
                seen = self.database.wait_changed(&at, seen.as_deref(), left)?;
                match &seen {
                    Some(bytes) => line = decode(bytes)?,
                    None => break,
                }
            }
        }
        Ok(behind)
    }
}
