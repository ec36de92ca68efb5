//! The cell's database: small, seldom changed, and behind one trait, so that it can live in a
//! replicated store when there are several servers. Nothing else knows the engine.

use std::time::Duration;

/// One record: in which table, under which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The table.
    pub table: &'static str,
    /// The key.
    pub key: String,
}

/// Changes that are made together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// They are made only if each of these records is as said; none: it must not be there.
    pub when: Vec<(Place, Option<Vec<u8>>)>,
    /// The records, each once, and their new values; none: the record goes.
    pub then: Vec<(Place, Option<Vec<u8>>)>,
}

/// Why the database could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// Another process has it.
    #[error("the cell's database at {0} is in use: end the server that has it open")]
    InUse(String),
    /// Its engine failed.
    #[error(
        "the cell's database at {place} fails ({error}): see to its disk, or restore the directory \
         from a backup"
    )]
    Engine {
        /// Where it is.
        place: String,
        /// The engine's error.
        error: String,
    },
    /// It cannot be asked as its place is given.
    #[error("the cell's database at {place} cannot be asked: {error}")]
    Access {
        /// Where it is.
        place: String,
        /// Its error, with the cure.
        error: String,
    },
    /// The database of the servers of a cell together is away, or refuses.
    #[error(
        "the cell's database at {place} does not answer ({error}): nothing can be changed in the \
         cell until it does; see to etcd"
    )]
    Shared {
        /// Where it is.
        place: String,
        /// Its error.
        error: String,
    },
}

/// The database.
pub trait Database: Send + Sync {
    /// A record.
    ///
    /// # Errors
    /// The engine failed.
    fn get(&self, place: &Place) -> Result<Option<Vec<u8>>, DatabaseError>;
    /// All records of a table, by key.
    ///
    /// # Errors
    /// The engine failed.
    fn list(&self, table: &'static str) -> Result<Vec<(String, Vec<u8>)>, DatabaseError>;
    /// Makes changes; false: a record was not as said, and nothing was changed. When it returns
    /// true, they survive a power failure.
    ///
    /// # Errors
    /// The engine failed, and it is not known whether they were made.
    fn commit(&self, changes: &Changes) -> Result<bool, DatabaseError>;
    /// Is it changed by other processes, too?
    fn is_shared(&self) -> bool {
        false
    }
    /// Waits at most so long until a record has another value than this; the value it has then.
    ///
    /// # Errors
    /// The engine failed.
    fn wait_changed(
        &self,
        place: &Place,
        seen: Option<&[u8]>,
        limit: Duration,
    ) -> Result<Option<Vec<u8>>, DatabaseError> {
        let _ = (seen, limit);
        self.get(place)
    }
}
