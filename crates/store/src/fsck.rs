//! Checks a partition that nobody has open: its engine, its log, its index and all bytes.
//!
//! Looks without changing: the log is rolled forward in memory only, and a torn end stays where it
//! is (the engine may repair its own file after a crash, as each opening does).

use crate::check::Places;
use crate::disk::{Directory, Files};
use crate::embedded::Redb;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::log::{self, segment_name};
use crate::memory::MemoryDisk;
use crate::open::{Purpose, open, open_engine};
use crate::options::Options;
use crate::record::{self, SEGMENT_HEADER_BYTES, SegmentHead, SegmentId};
use crate::report::{Damage, Report};
use std::path::Path;
use std::sync::Arc;

/// Checks the partition in a directory; refuses one that is in use.
pub fn fsck(dir: &Path) -> Result<Report, StoreError> {
    let files: Arc<dyn Files> = Arc::new(Directory::open(dir)?);
    match open_engine(dir, &files, &Options::default()) {
        Ok(engine) => with_engine(files, Arc::new(engine)),
        Err(broken @ (StoreError::IndexBroken { .. } | StoreError::IndexLost { .. })) => {
            let what = broken.to_string();
            Ok(unreadable(Damage::Index { what }))
        }
        Err(other) => Err(other),
    }
}

/// Checks the partition, whose index engine is the one that directories have, on a disk in memory
/// that no store has open.
pub fn fsck_memory_with_engine(disk: &MemoryDisk) -> Result<Report, StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    match Redb::new(files.clone(), Options::default().index_cache_bytes) {
        Ok(engine) => with_engine(files, Arc::new(engine)),
        Err(StoreError::Damaged(what)) => Ok(unreadable(Damage::Engine { what })),
        Err(other) => Err(other),
    }
}

fn with_engine(files: Arc<dyn Files>, engine: Arc<Redb>) -> Result<Report, StoreError> {
    let mut damages = Vec::new();
    match engine.sound() {
        Ok(()) => {}
        Err(StoreError::Damaged(what)) => damages.push(Damage::Engine { what }),
        Err(other) => return Err(other),
    }
    check_all(files, engine, None, damages)
}

/// Checks the partition on a disk in memory that no store has open.
pub fn fsck_memory(disk: &MemoryDisk) -> Result<Report, StoreError> {
    let (files, engine) = (Arc::new(disk.clone()), Arc::new(disk.clone()));
    check_all(files, engine, Some(disk.clone()), Vec::new())
}

fn unreadable(damage: Damage) -> Report {
    Report {
        damages: vec![damage],
        ..Report::default()
    }
}

fn check_all(
    files: Arc<dyn Files>,
    engine: Arc<dyn Engine>,
    memory: Option<MemoryDisk>,
    mut damages: Vec<Damage>,
) -> Result<Report, StoreError> {
    let segments = log::segments(&*files)?;
    let mut places = Places::new();
    let mut identity = None;
    let mut bad = Vec::new();
    for segment in segments {
        let bytes = log::load(&*files, segment)?;
        match record::parse_segment_header(segment, &bytes) {
            SegmentHead::First(id, _) => {
                identity.get_or_insert(id.identity);
            }
            _ => bad.push((segment, 0)),
        }
        let id = SegmentId {
            number: segment,
            identity: identity.unwrap_or_default(),
        };
        let mut found = Vec::new();
        walk_segment(id, &bytes, &mut (&mut found, &mut bad));
        places.insert(segment, found);
    }
    let options = Options::default();
    let opened = open(files, engine, (memory, &options, Purpose::Look));
    let end = opened.as_ref().ok().map(|store| store.log.end());
    // Recovery has made sure that what does not read behind the end is a torn write.
    bad.retain(|(segment, at)| {
        end.is_none_or(|end| (*segment, *at as u64) < (end.segment, end.offset))
    });
    damages.extend(bad.iter().map(|(segment, at)| Damage::Log {
        segment: segment_name(*segment),
        at: *at as u64,
        what: "the log does not read".to_owned(),
    }));
    let store = match opened {
        Ok(store) => store,
        Err(StoreError::Damaged(what)) => {
            damages.push(Damage::Engine { what });
            return Ok(Report {
                damages,
                ..Report::default()
            });
        }
        Err(other) => return Err(other),
    };
    let mut report = store.check_with(Some(&places));
    // First what concerns files, then what explains it.
    report.damages.append(&mut damages);
    Ok(report)
}

/// Places of file bytes, and where the log does not read.
type Found<'a> = (
    &'a mut Vec<(std::ops::Range<u64>, wire::Fid)>,
    &'a mut Vec<(u32, usize)>,
);

/// Reads all records of a segment.
fn walk_segment(id: SegmentId, bytes: &[u8], found: &mut Found<'_>) {
    let mut at = SEGMENT_HEADER_BYTES;
    while at < bytes.len() {
        let Some(record) = record::parse(id, bytes, at) else {
            found.1.push((id.number, at));
            match record::find(id, bytes, at + 1) {
                Some(next) => at = next.at,
                None => return,
            }
            continue;
        };
        if let Some(fid) = record.happened.fid() {
            let data = (at + record::HEADER_BYTES) as u64;
            found.0.push((data..data + record.data.len() as u64, fid));
        }
        at = record.next;
    }
}
