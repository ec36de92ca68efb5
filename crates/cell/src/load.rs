//! How much a server has to do, and how much room it has: plain data for those who compare servers.

use serde::{Deserialize, Serialize};

/// Bytes that are as much work as a message.
const BYTES_PER_MESSAGE: u64 = 64 << 10;

/// The load of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of the disk of its data directory.
    pub disk_bytes: u64,
    /// Bytes of it that nothing uses.
    pub free_bytes: u64,
    /// Its stores.
    pub stores: Vec<StoreLoad>,
}

/// The load of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreLoad {
    /// The number of its first volume.
    pub first_volume: u32,
    /// The volume for which it was made; none: it has several, or none, and does not move.
    pub volume: Option<String>,
    /// Bytes on the disk that are in use.
    pub store_bytes: u64,
    /// Messages from clients since it was opened.
    pub messages: u64,
    /// Bytes from and to clients since then.
    pub moved_bytes: u64,
}

impl StoreLoad {
    /// The work since it was opened, in messages: large ones count as several.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.messages + self.moved_bytes / BYTES_PER_MESSAGE
    }
}
