//! Reading the files of the log, at any place of any of them.

use crate::disk::{Disk, Files};
use crate::error::StoreError;
use crate::log::{Place, segment_name};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Most segments that are kept open.
const OPEN_SEGMENTS: usize = 256;

/// A source of the log's bytes.
pub(crate) trait Bytes {
    /// Reads bytes of a record.
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), StoreError>;
    /// Are checksums looked at? Not by a store with that fault planted into it.
    fn verifies(&self) -> bool {
        true
    }
}

/// The files of the log.
#[derive(Debug)]
pub(crate) struct Segments {
    files: Arc<dyn Files>,
    open: Mutex<BTreeMap<u32, Arc<dyn Disk>>>,
}

impl Segments {
    pub(crate) fn new(files: Arc<dyn Files>) -> Self {
        let open = Mutex::default();
        Self { files, open }
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    fn disk(&self, segment: u32) -> io::Result<Arc<dyn Disk>> {
        let mut open = self.open.lock();
        if let Some(disk) = open.get(&segment) {
            return Ok(disk.clone());
        }
        if open.len() >= OPEN_SEGMENTS {
            open.clear();
        }
        let disk = self.files.open(&segment_name(segment), false)?;
        open.insert(segment, disk.clone());
        Ok(disk)
    }

    /// Nobody reads a segment any more.
    pub(crate) fn forget(&self, segment: u32) {
        self.open.lock().remove(&segment);
    }
}

/// All bytes of a segment.
pub(crate) fn load(files: &dyn Files, segment: u32) -> Result<Vec<u8>, StoreError> {
    let name = segment_name(segment);
    let read = || {
        let disk = files.open(&name, false)?;
        let len = usize::try_from(disk.len()?).map_err(io::Error::other)?;
        let mut bytes = vec![0; len];
        disk.read_at(0, &mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => StoreError::Damaged(format!("the segment {name} is missing")),
        _ => StoreError::io(format!("read {name}"), e),
    })
}

impl Bytes for Segments {
    fn read(&self, place: Place, into: &mut [u8]) -> Result<(), StoreError> {
        let name = segment_name(place.segment);
        let disk = self.disk(place.segment);
        disk.and_then(|disk| disk.read_at(place.offset, into))
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => {
                    StoreError::Damaged(format!("the segment {name} is missing"))
                }
                io::ErrorKind::UnexpectedEof => {
                    StoreError::Damaged(format!("the segment {name} is too short"))
                }
                _ => StoreError::io(format!("read {name}"), e),
            })
    }
}
