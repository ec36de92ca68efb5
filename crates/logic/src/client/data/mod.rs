//! Bytes of files: the block cache, reads, writes, write-back and mappings.

pub(super) mod cache;
pub(super) mod changes;
mod conflict_file;
pub(super) mod file_capabilities;
pub(super) mod flush_before_rename;
pub(super) mod inline_data;
pub(super) mod range_ops;
pub(super) mod read_write;
pub(super) mod runs;
pub(super) mod set_aside;
pub(super) mod shared_mappings;
pub(super) mod space_used;
pub(super) mod stranded;
pub(super) mod write_errors;
pub(super) mod write_through;
pub(super) mod writeback;
