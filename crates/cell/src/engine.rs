//! The embedded engine of the cell's database: one file of `redb`, written by one process.

use crate::database::{Changes, Database, DatabaseError, Place};
use redb::{Database as Redb, ReadableDatabase, ReadableTable, TableDefinition};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file.
pub(crate) struct Embedded {
    path: PathBuf,
    file: Redb,
}

type Table = TableDefinition<'static, &'static str, &'static [u8]>;

impl Embedded {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Embedded, DatabaseError> {
        let mut options = std::fs::File::options();
        // Made before the engine sees it, so that it is never anybody else's.
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path);
        let failed = |error: &dyn std::fmt::Display| DatabaseError::Engine {
            place: path.display().to_string(),
            error: error.to_string(),
        };
        let file = file.map_err(|error| failed(&error))?;
        let file = match Redb::builder().create_file(file) {
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => {
                return Err(DatabaseError::InUse(path.display().to_string()));
            }
            other => other.map_err(|error| failed(&error))?,
        };
        let path = path.to_owned();
        Ok(Embedded { path, file })
    }

    fn failed(&self, error: impl Into<redb::Error>) -> DatabaseError {
        DatabaseError::Engine {
            place: self.path.display().to_string(),
            error: error.into().to_string(),
        }
    }
}

fn table(name: &'static str) -> Table {
    TableDefinition::new(name)
}

impl Database for Embedded {
    fn get(&self, place: &Place) -> Result<Option<Vec<u8>>, DatabaseError> {
        let read = self.file.begin_read().map_err(|error| self.failed(error))?;
        let table = match read.open_table(table(place.table)) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let found = table.get(place.key.as_str());
        let found = found.map_err(|error| self.failed(error))?;
        Ok(found.map(|found| found.value().to_vec()))
    }

    fn list(&self, name: &'static str) -> Result<Vec<(String, Vec<u8>)>, DatabaseError> {
        let read = self.file.begin_read().map_err(|error| self.failed(error))?;
        let table = match read.open_table(table(name)) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(error)),
        };
        let all = table.iter().map_err(|error| self.failed(error))?;
        let records = all.map(|record| {
            let (key, value) = record.map_err(|error| self.failed(error))?;
            Ok((key.value().to_owned(), value.value().to_vec()))
        });
        records.collect()
    }

    fn commit(&self, changes: &Changes) -> Result<bool, DatabaseError> {
        let write = self
            .file
            .begin_write()
            .map_err(|error| self.failed(error))?;
        for (place, expected) in &changes.when {
            let table = write.open_table(table(place.table));
            let table = table.map_err(|error| self.failed(error))?;
            let found = table.get(place.key.as_str());
            let found = found.map_err(|error| self.failed(error))?;
            if found.as_ref().map(|found| found.value()) != expected.as_deref() {
                // Dropping the transaction undoes it.
                return Ok(false);
            }
        }
        for (place, value) in &changes.then {
            let table = write.open_table(table(place.table));
            let mut table = table.map_err(|error| self.failed(error))?;
            let done = match value {
                Some(value) => table.insert(place.key.as_str(), value.as_slice()),
                None => table.remove(place.key.as_str()),
            };
            done.map_err(|error| self.failed(error))?;
        }
        write.commit().map_err(|error| self.failed(error))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn place(key: &str) -> Place {
        Place {
            table: "t",
            key: key.to_owned(),
        }
    }

    #[test]
    fn changes_are_made_together_only_as_expected_and_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let database = Embedded::open(&path).unwrap();
        assert_eq!(database.list("t").unwrap(), []);
        assert_eq!(database.get(&place("a")).unwrap(), None);
        let both = Changes {
            when: vec![(place("a"), None)],
            then: vec![
                (place("a"), Some(b"1".to_vec())),
                (place("b"), Some(b"2".to_vec())),
            ],
        };
        assert!(database.commit(&both).unwrap());
        assert!(!database.commit(&both).unwrap(), "a is there");
        let swap = Changes {
            when: vec![(place("a"), Some(b"1".to_vec())), (place("c"), None)],
            then: vec![(place("a"), None), (place("c"), Some(b"3".to_vec()))],
        };
        assert!(database.commit(&swap).unwrap());
        assert!(!database.commit(&swap).unwrap());
        drop(database);
        let again = Embedded::open(&path).unwrap();
        let left = [
            ("b".to_owned(), b"2".to_vec()),
            ("c".to_owned(), b"3".to_vec()),
        ];
        assert_eq!(again.list("t").unwrap(), left);
        assert!(Embedded::open(&path).is_err(), "one process at a time");
    }
}
