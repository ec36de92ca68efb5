//! What can be chosen about a store. The defaults are for a server; tests choose small numbers so
//! that segments end and checkpoints happen.

use wire::Time;

/// How a partition is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A segment of the log ends at this size.
    pub segment_bytes: u64,
    /// A checkpoint is begun when this many bytes of the index have changed.
    pub checkpoint_bytes: u64,
    /// A checkpoint is begun when the last one is older than this, and something changed.
    /// 0: never for its age.
    pub checkpoint_ms: u64,
    /// Files up to this size lie in the index.
    pub inline_bytes: u32,
    /// Memory for the pages of the index.
    pub index_cache_bytes: usize,
    /// For a new partition: a random number. It is part of the log's checksums, so that nobody can
    /// write a file that is taken for a piece of the log.
    pub identity: u64,
    /// For a new partition: its volume.
    pub volume: u32,
    /// For a new partition: the owner of the root.
    pub root_uid: u32,
    /// For a new partition: the group of the root.
    pub root_gid: u32,
    /// For a new partition: the mode of the root, 12 bits.
    pub root_mode: u16,
    /// For a new partition: the times of the root.
    pub created: Time,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            checkpoint_bytes: 8 << 20,
            checkpoint_ms: 5_000,
            inline_bytes: 1024,
            index_cache_bytes: 256 << 20,
            identity: 0,
            volume: 1,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            created: 0,
        }
    }
}
