//! Checks a partition that nobody has open: its engine, its log, its image, its index and all bytes.
//!
//! Looks without changing: the log is rolled forward in memory only, and a torn end stays where it
//! is (the engine may repair its own file after a crash, as each opening does).

use crate::check::{Limits, Logged, Pace, check};
use crate::disk::{Directory, Files};
use crate::engine::Engine;
use crate::error::StoreError;
use crate::memory::MemoryDisk;
use crate::open::{Purpose, open, open_engine};
use crate::options::Options;
use crate::report::{Damage, Report};
use crate::segments::Segments;
use crate::store::Store;
use std::path::Path;
use std::sync::Arc;

impl Store {
    /// Checks everything but the log: the index, and the bytes of all files. May run while the store
    /// is open.
    pub fn check(&self) -> Report {
        check(
            &self.core,
            &self.log,
            None,
            (Limits::default(), &mut |_| true),
        )
        .unwrap_or_default()
    }
}

/// Checks the partition in a directory; refuses one that is in use.
pub fn fsck(dir: &Path) -> Result<Report, StoreError> {
    let files: Arc<dyn Files> = Arc::new(Directory::open(dir)?);
    with_files(dir, &files)
}

/// Checks the partition, whose index engine is the one that directories have, on a disk in memory
/// that no store has open.
pub fn fsck_memory_with_engine(disk: &MemoryDisk) -> Result<Report, StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    with_files(Path::new("memory"), &files)
}

fn with_files(dir: &Path, files: &Arc<dyn Files>) -> Result<Report, StoreError> {
    let options = Options::default();
    let engine = match open_engine(dir, files, &options) {
        Ok(engine) => Arc::new(engine),
        Err(broken @ StoreError::IndexBroken { .. }) => {
            let what = broken.to_string();
            return Ok(Damage::Index { what }.into());
        }
        Err(other) => return Err(other),
    };
    let sound = match engine.sound() {
        Err(StoreError::Damaged(what)) => Some(Damage::Engine { what }),
        other => other.map(|()| None)?,
    };
    let mut report = check_all(files, engine, None)?;
    report.damages.extend(sound);
    Ok(report)
}

/// Checks the partition on a disk in memory that no store has open.
pub fn fsck_memory(disk: &MemoryDisk) -> Result<Report, StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    check_all(&files, Arc::new(disk.clone()), Some(disk.clone()))
}

impl From<Damage> for Report {
    fn from(damage: Damage) -> Self {
        let mut report = Self::default();
        report.add(damage);
        report
    }
}

fn check_all(
    files: &Arc<dyn Files>,
    engine: Arc<dyn Engine>,
    memory: Option<MemoryDisk>,
) -> Result<Report, StoreError> {
    let options = Options::default();
    match open(files.clone(), engine, (memory, &options, Purpose::Look)) {
        Ok(store) => Ok(check_store(&store, (Limits::default(), &mut |_| true))),
        Err(damaged @ StoreError::Damaged(_)) => {
            let what = damaged.to_string();
            Ok(Damage::Index { what }.into())
        }
        Err(other) => Err(other),
    }
}

/// Checks a store that was opened to be looked at, all of whose log is in its files.
pub(crate) fn check_store(store: &Store, how: (Limits, Pace<'_>)) -> Report {
    let segments = Segments::new(store.log.files().clone());
    let log = Logged {
        segments: &segments,
        end: store.log.end(),
        image: store.images.base(),
        needs_image: store.core.index.engine().is_file(),
    };
    check(&store.core, &store.log, Some(log), how).unwrap_or_default()
}
