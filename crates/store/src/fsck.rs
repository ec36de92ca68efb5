//! Checks a partition that nobody has open: its engine, its log, its image, its index, all bytes.
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
    /// Checks everything but the log: the index, and the bytes of all files. May run while the
    /// store is open.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Apply;
    use wire::{Caller, Fid, Make, Name, Op, Outcome, WriteMode};

    fn run(store: &mut Store, op: &Op, data: &[u8]) -> Outcome {
        store.apply(Apply {
            op,
            caller: &Caller::default(),
            now: 7,
            origin: None,
            data,
            delegated: None,
        })
    }

    fn filled(disk: &MemoryDisk) -> Store {
        let options = Options {
            segment_bytes: 8 << 10,
            identity: 5,
            ..Options::default()
        };
        let mut store = Store::create_in_memory(disk, &options).unwrap();
        let mut dir = store.root();
        for n in 0..60_u64 {
            let name = Name::new(format!("name{n}").as_bytes()).unwrap();
            let make = match n % 5 {
                0 => Make::Directory,
                _ => Make::File,
            };
            let op = Op::Make {
                dir,
                name,
                make,
                mode: 0o755,
                open: None,
            };
            let Outcome::Entry(made) = run(&mut store, &op, &[]) else {
                panic!("not made");
            };
            if n % 5 == 0 {
                dir = made.fid;
                continue;
            }
            let data = vec![n as u8; 2_000];
            let op = Op::Write {
                fid: made.fid,
                offset: 0,
                len: 2_000,
                mode: WriteMode::At,
            };
            run(&mut store, &op, &data);
        }
        store.write_out().unwrap();
        store
    }

    fn lines(store: &Store, limits: Limits) -> Vec<String> {
        let report = check_store(store, (limits, &mut |_| true));
        assert_eq!((report.objects, report.bytes), (61, 48 * 2_000));
        let mut lines: Vec<String> = report.damages.iter().map(ToString::to_string).collect();
        lines.sort();
        lines
    }

    const LITTLE: Limits = Limits {
        objects: 7,
        records: 5,
    };

    #[test]
    fn many_rounds_find_what_one_finds() {
        let disk = MemoryDisk::new();
        let mut store = filled(&disk);
        assert_eq!(lines(&store, Limits::default()), Vec::<String>::new());
        assert_eq!(lines(&store, LITTLE), Vec::<String>::new());
        // Bytes, a record, a name of nothing, and a file with one name too many.
        let volume = store.root().volume;
        let fid = |vnode| Fid {
            volume,
            vnode,
            uniq: 1,
        };
        let files = disk.files();
        assert!(files.len() > 5);
        disk.flip(&files[2].0, 3_000);
        disk.flip(&files[4].0, 60);
        let named = |vnode| crate::value::Named {
            fid: fid(vnode),
            kind: wire::Kind::File,
            position: 99,
        };
        let index = &mut store.core.index;
        for (name, vnode) in [(&b"nothing"[..], 4_000), (b"more", 9)] {
            let value = crate::value::encode(&named(vnode));
            index.put(crate::key::name(fid(1), name), Some(value));
        }
        let found = lines(&store, Limits::default());
        assert!(found.len() > 5, "{found:?}");
        assert_eq!(lines(&store, LITTLE), found);
    }

    #[test]
    fn a_check_that_is_told_to_stop_does() {
        let disk = MemoryDisk::new();
        let mut store = filled(&disk);
        store.checkpoint().unwrap();
        let checker = store.checker().unwrap();
        let mut calls = 0;
        assert!(checker.run(&mut |_| true).is_some_and(|r| r.is_clean()));
        let stopped = checker.run(&mut |_| {
            calls += 1;
            calls < 4
        });
        assert_eq!((stopped, calls), (None, 4));
    }
}
