//! The index as it lies behind the log: an ordered map that is changed only in whole batches, each
//! of which is durable when `commit` returns, or did not happen.
//!
//! Two engines: redb in a file of the partition, and the map of a [`MemoryDisk`].

use crate::disk::{Disk, Files};
use crate::error::StoreError;
use crate::key::Key;
use crate::memory::MemoryDisk;
use crate::value;
use parking_lot::RwLock;
use redb::{ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes of the index: what a key holds from now on, or `None`: nothing.
pub(crate) type Batch = BTreeMap<Key, Option<Vec<u8>>>;

/// A key and what lies under it, the checksum included.
pub(crate) type Pair = (Key, Vec<u8>);

/// An ordered map of sealed values.
pub(crate) trait Engine: Debug + Send + Sync {
    /// The sealed value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// The first keys of `from..to`, at most `limit`.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError>;
    /// Makes all changes durable, or none. Seals the values.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;
    /// Does the engine itself find its file sound? For fsck; slow.
    fn sound(&self) -> Result<(), StoreError>;
    /// How often it stopped at damage that it does not survive by itself.
    fn stops(&self) -> u64 {
        0
    }
}

impl Engine for MemoryDisk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.index_get(key)
            .map_err(|e| StoreError::io("read the index", e))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.index_scan(from, to, limit)
            .map_err(|e| StoreError::io("read the index", e))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let sealed = batch
            .iter()
            .map(|(key, value)| (key, value.as_ref().map(|value| value::seal(key, value))));
        self.index_commit(sealed)
            .map_err(|e| StoreError::io("commit the index", e))
    }

    fn sound(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("index");

/// The name of redb's file.
pub(crate) const INDEX: &str = "index.redb";

type View = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// redb in a file of the partition.
pub(crate) struct Redb {
    files: Arc<dyn Files>,
    cache_bytes: usize,
    /// `None` after a failed commit: redb takes nothing more then, and is opened again.
    open: RwLock<Option<Open>>,
    /// Reads that it did not survive.
    stops: AtomicU64,
}

struct Open {
    database: redb::Database,
    /// The latest committed state. `None`: nothing was ever committed.
    view: Option<View>,
}

impl Debug for Redb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redb")
    }
}

fn failed(doing: &str, error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(e) => StoreError::io(format!("{doing} the index"), e),
        redb::Error::Corrupted(text) => StoreError::Damaged(format!("the index ({text})")),
        other => StoreError::io(format!("{doing} the index"), io::Error::other(other)),
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Is a panic of the calling thread caught, since it only says that the index is damaged? A
/// hook that ends the process at a panic must let these pass.
#[must_use]
pub fn catches_panics() -> bool {
    GUARDED.get()
}

/// redb asserts what a damaged file breaks: that must not end the server.
fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    caught(work).unwrap_or_else(|| {
        let text = "the index (its engine stopped at what it found)".to_owned();
        Err(StoreError::Damaged(text))
    })
}

/// `None`: the engine stopped.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    let outer = GUARDED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    done.ok()
}

impl Open {
    fn new(files: &Arc<dyn Files>, cache_bytes: usize) -> Result<Self, StoreError> {
        let disk = files
            .open(INDEX, true)
            .map_err(|e| StoreError::io("open the index", e))?;
        guarded(|| {
            let database = redb::Database::builder()
                .set_cache_size(cache_bytes)
                .create_with_backend(Backend(disk))
                .map_err(|e| failed("open", e))?;
            let mut open = Self {
                database,
                view: None,
            };
            open.refresh()?;
            Ok(open)
        })
    }

    fn refresh(&mut self) -> Result<(), StoreError> {
        let read = self
            .database
            .begin_read()
            .map_err(|e| failed("read", redb::Error::from(e)))?;
        self.view = match read.open_table(TABLE) {
            Ok(table) => Some(table),
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(e) => return Err(failed("read", e)),
        };
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let fail = |e: redb::Error| failed("commit", e);
        let mut write = self.database.begin_write().map_err(|e| fail(e.into()))?;
        // Opening after a crash must not take longer the larger the tree is.
        write.set_quick_repair(true);
        {
            let mut table = write.open_table(TABLE).map_err(|e| fail(e.into()))?;
            for (key, value) in batch {
                match value {
                    Some(value) => {
                        let sealed = value::seal(key, value);
                        table.insert(key.as_slice(), sealed.as_slice())
                    }
                    None => table.remove(key.as_slice()),
                }
                .map_err(|e| fail(e.into()))?;
            }
        }
        write.commit().map_err(|e| fail(e.into()))
    }
}

impl Redb {
    pub(crate) fn new(files: Arc<dyn Files>, cache_bytes: usize) -> Result<Self, StoreError> {
        let open = Open::new(&files, cache_bytes)?;
        Ok(Self {
            files,
            cache_bytes,
            open: RwLock::new(Some(open)),
            stops: AtomicU64::new(0),
        })
    }

    /// Opens redb again if a commit failed.
    fn reopen(&self) -> Result<(), StoreError> {
        let mut open = self.open.write();
        if open.is_none() {
            *open = Some(Open::new(&self.files, self.cache_bytes)?);
        }
        Ok(())
    }

    fn view<T>(
        &self,
        read: impl Fn(&View) -> Result<T, StoreError>,
        none: T,
    ) -> Result<T, StoreError> {
        loop {
            if let Some(open) = &*self.open.read() {
                return match &open.view {
                    Some(view) => match caught(|| read(view)) {
                        Some(done) => done,
                        None => Err(self.stopped()),
                    },
                    None => Ok(none),
                };
            }
            self.reopen()?;
        }
    }

    /// The engine has stopped at a damaged page: this read fails, others go on, since it holds no
    /// lock of its own while it looks at a page.
    fn stopped(&self) -> StoreError {
        let what = "the index (its engine stopped at what it found)";
        if self.stops.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "{what}: what needs that part of it fails from now on, all else goes on; stop the \
                 server, run `ariel fsck` on its data to see what is affected, and restore that \
                 from a copy"
            );
        }
        StoreError::Damaged(what.to_owned())
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        // Nobody is left to hear it: what was committed is on the disk, whatever closing does.
        let _ = guarded(|| {
            *self.open.get_mut() = None;
            Ok(())
        });
    }
}

impl Engine for Redb {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.view(
            |view| {
                let found = view.get(key).map_err(|e| failed("read", e))?;
                Ok(found.map(|guard| guard.value().to_vec()))
            },
            None,
        )
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.view(
            |view| {
                let range = view
                    .range::<&[u8]>(from..to)
                    .map_err(|e| failed("read", e))?;
                let mut pairs = Vec::new();
                for pair in range.take(limit) {
                    let (key, value) = pair.map_err(|e| failed("read", e))?;
                    pairs.push((key.value().to_vec(), value.value().to_vec()));
                }
                Ok(pairs)
            },
            Vec::new(),
        )
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.reopen()?;
        let result = {
            // Readers go on meanwhile: only the exchange of the view needs them away.
            let open = self.open.read();
            let open = open.as_ref().expect("opened above, and one thread commits");
            guarded(|| open.commit(batch))
        };
        let mut open = self.open.write();
        let refreshed = result.and_then(|()| match &mut *open {
            Some(open) => guarded(|| open.refresh()),
            None => Ok(()),
        });
        if refreshed.is_err() {
            // What closing it says adds nothing to the error at hand.
            let _ = guarded(|| {
                *open = None;
                Ok(())
            });
        }
        refreshed
    }

    fn sound(&self) -> Result<(), StoreError> {
        self.reopen()?;
        let mut open = self.open.write();
        let open = open.as_mut().expect("opened above, and one thread checks");
        open.view = None;
        let sound = guarded(|| {
            open.database
                .check_integrity()
                .map_err(|e| failed("check", e))
        })?;
        open.refresh()?;
        if sound {
            Ok(())
        } else {
            Err(StoreError::Damaged("the index (repaired)".to_owned()))
        }
    }

    fn stops(&self) -> u64 {
        self.stops.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Backend(Arc<dyn Disk>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.resize(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }
}
