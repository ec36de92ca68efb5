//! The index as it lies behind the log: an ordered map that is changed only in whole batches, each
//! of which is durable when `commit` returns, or did not happen.
//!
//! Two engines: redb in a file of the partition ([`crate::embedded`]), and the map of a
//! [`MemoryDisk`].

use crate::error::StoreError;
use crate::key::Key;
use crate::memory::MemoryDisk;
use crate::value;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

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
    /// The committed state of now, which stays as it is. It commits nothing.
    fn view(&self) -> Result<Arc<dyn Engine>, StoreError>;
    /// Is it a file beside the log, which can be lost or rot by itself?
    fn is_file(&self) -> bool {
        false
    }
    /// Something that was read is not what was written: it has to be made again.
    fn doubt(&self) {}
    /// How often that was so, since the engine was opened.
    fn doubts(&self) -> u64 {
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

    fn view(&self) -> Result<Arc<dyn Engine>, StoreError> {
        Ok(Arc::new(self.copy()))
    }
}
