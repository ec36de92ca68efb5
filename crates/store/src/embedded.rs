//! The index in a file of the partition: redb, on pages under checksums.
//!
//! Guarantees: damage of the file is an error of the reads that meet it, and of no others; it is
//! never taken for an absent key; and it is counted, so that the index is made again. redb stops
//! with a panic at a page that it cannot make sense of: that is caught here, and nowhere else.

use crate::disk::Files;
use crate::engine::{Batch, Engine, Pair};
use crate::error::StoreError;
use crate::pages::Pages;
use crate::value;
use parking_lot::RwLock;
use redb::{ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use std::any::Any;
use std::cell::Cell;
use std::fmt::Debug;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("index");

/// The name of the index's file.
pub(crate) const INDEX: &str = "index.redb";

type View = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// redb in a file of the partition.
pub(crate) struct Redb {
    files: Arc<dyn Files>,
    name: &'static str,
    cache_bytes: usize,
    /// `None` after a failed commit: redb takes nothing more then, and is opened again.
    open: RwLock<Option<Open>>,
    doubts: Arc<Doubts>,
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

/// How often something was read that is not what was written.
#[derive(Debug, Default)]
struct Doubts(AtomicU64);

impl Doubts {
    /// One more; the first is told.
    fn add(&self, what: &str) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "damaged: {what}; what needs that part of it fails until the index has been made \
                 again from the log, all else goes on"
            );
        }
    }
}

fn failed(doing: &str, error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(e) => unread(doing, e),
        redb::Error::Corrupted(text) => StoreError::Damaged(format!("the index ({text})")),
        other => StoreError::io(format!("{doing} the index"), io::Error::other(other)),
    }
}

/// Is it the disk that failed, or what is on it?
fn unread(doing: &str, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            StoreError::Damaged(format!("the index ({error})"))
        }
        _ => StoreError::io(format!("{doing} the index"), error),
    }
}

/// The calling thread's work in the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// Nothing.
    Off,
    /// It looks at pages of a view, where the engine holds no lock.
    Looking,
    /// Anything else.
    Working,
}

thread_local! {
    static GUARD: Cell<Guard> = const { Cell::new(Guard::Off) };
}

/// Is a panic of the calling thread caught, since it only says that the index is damaged? A
/// hook that ends the process at a panic must let these pass.
#[must_use]
pub fn catches_panics() -> bool {
    GUARD.get() != Guard::Off
}

/// redb asserts what a damaged file breaks: that must not end the server.
fn guarded<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    caught(Guard::Working, work).unwrap_or_else(|stop| Err(stopped(stop)))
}

fn caught<T>(guard: Guard, work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    let outer = GUARD.replace(guard);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARD.set(outer);
    done
}

/// Why the engine stopped.
fn stopped(stop: Box<dyn Any + Send>) -> StoreError {
    match stop.downcast::<Unread>() {
        Ok(unread_page) => unread("read", unread_page.0),
        Err(_) => StoreError::Damaged("the index (its engine stopped at what it found)".to_owned()),
    }
}

/// A page that cannot be read. It leaves redb in the way of a panic: redb takes no error of its
/// file for one of this page only, and reads nothing any more after it.
struct Unread(io::Error);

impl Open {
    fn new(files: &dyn Files, name: &str, cache_bytes: usize) -> Result<Self, StoreError> {
        let disk = files
            .open(name, true)
            .map_err(|e| StoreError::io("open the index", e))?;
        let pages = Pages::open(disk).map_err(|e| unread("open", e))?;
        guarded(|| {
            let database = redb::Database::builder()
                .set_cache_size(cache_bytes)
                .create_with_backend(Backend(pages))
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
        self.view = self.opened()?;
        Ok(())
    }

    /// The latest committed state.
    fn opened(&self) -> Result<Option<View>, StoreError> {
        let read = self
            .database
            .begin_read()
            .map_err(|e| failed("read", redb::Error::from(e)))?;
        match read.open_table(TABLE) {
            Ok(table) => Ok(Some(table)),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(failed("read", e)),
        }
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
        Self::named(files, INDEX, cache_bytes)
    }

    /// In a file of this name.
    pub(crate) fn named(
        files: Arc<dyn Files>,
        name: &'static str,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        let open = Open::new(&*files, name, cache_bytes)?;
        Ok(Self {
            files,
            name,
            cache_bytes,
            open: RwLock::new(Some(open)),
            doubts: Arc::default(),
        })
    }

    /// Opens redb again if a commit failed.
    fn reopen(&self) -> Result<(), StoreError> {
        let mut open = self.open.write();
        if open.is_none() {
            *open = Some(Open::new(&*self.files, self.name, self.cache_bytes)?);
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
                    Some(view) => look(&self.doubts, || read(view)),
                    None => Ok(none),
                };
            }
            self.doubting(self.reopen())?;
        }
    }

    fn doubting<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(what)) = &result {
            self.doubts.add(what);
        }
        result
    }
}

/// Looks at pages. If the engine stops at a damaged one, this look fails and others go on, since it
/// holds no lock of its own meanwhile.
fn look<T>(doubts: &Doubts, read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let result = caught(Guard::Looking, read).unwrap_or_else(|stop| Err(stopped(stop)));
    if let Err(StoreError::Damaged(what)) = &result {
        doubts.add(what);
    }
    result
}

fn get_from(view: &View, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let found = view.get(key).map_err(|e| failed("read", e))?;
    Ok(found.map(|guard| guard.value().to_vec()))
}

fn scan_from(view: &View, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
    let range = view
        .range::<&[u8]>(from..to)
        .map_err(|e| failed("read", e))?;
    let mut pairs = Vec::new();
    for pair in range.take(limit) {
        let (key, value) = pair.map_err(|e| failed("read", e))?;
        pairs.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok(pairs)
}

impl Drop for Redb {
    fn drop(&mut self) {
        // Nobody is left to hear it: committed changes are on the disk, whatever closing does.
        let _ = guarded(|| {
            *self.open.get_mut() = None;
            Ok(())
        });
    }
}

impl Engine for Redb {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.view(|view| get_from(view, key), None)
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        self.view(|view| scan_from(view, from, to, limit), Vec::new())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.doubting(self.reopen())?;
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
            // An error of closing it adds nothing to the one at hand.
            let _ = guarded(|| {
                *open = None;
                Ok(())
            });
        }
        drop(open);
        self.doubting(refreshed)
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

    fn view(&self) -> Result<Arc<dyn Engine>, StoreError> {
        self.doubting(self.reopen())?;
        let open = self.open.read();
        let view = match open.as_ref() {
            Some(open) => Arc::new(guarded(|| open.opened())?),
            None => Arc::new(None),
        };
        let doubts = self.doubts.clone();
        Ok(Arc::new(Frozen { view, doubts }))
    }

    fn is_file(&self) -> bool {
        true
    }

    fn doubt(&self) {
        self.doubts.add("the index");
    }

    fn doubts(&self) -> u64 {
        self.doubts.0.load(Ordering::Relaxed)
    }
}

/// A committed state of redb.
struct Frozen {
    view: Arc<Option<View>>,
    doubts: Arc<Doubts>,
}

impl Debug for Frozen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Frozen")
    }
}

impl Engine for Frozen {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match &*self.view {
            Some(view) => look(&self.doubts, || get_from(view, key)),
            None => Ok(None),
        }
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        match &*self.view {
            Some(view) => look(&self.doubts, || scan_from(view, from, to, limit)),
            None => Ok(Vec::new()),
        }
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        let error = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        Err(StoreError::io("change a view of the index", error))
    }

    fn sound(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn view(&self) -> Result<Arc<dyn Engine>, StoreError> {
        let (view, doubts) = (self.view.clone(), self.doubts.clone());
        Ok(Arc::new(Self { view, doubts }))
    }

    fn doubt(&self) {
        self.doubts.add("the index");
    }
}

#[derive(Debug)]
struct Backend(Pages);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read(offset, out) {
            Err(error) if GUARD.get() == Guard::Looking => resume_unwind(Box::new(Unread(error))),
            other => other,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
