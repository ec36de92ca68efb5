//! The kernel's FUSE interface, protocol 7.45: structures, opcodes and flags, and nothing that
//! acts. Every structure has the size and the offsets of `linux/fuse.h`; an assertion with each
//! and a test against the installed header hold that. All integers are in the
//! machine's own byte order, as the interface demands.

mod flags;
mod opcode;
#[macro_use]
mod structure;
mod file_requests;
mod inode_requests;
mod structs;
mod structs_uring;

pub use file_requests::*;
pub use flags::*;
pub use inode_requests::*;
pub use opcode::Opcode;
pub use structs::*;
pub use structs_uring::*;

/// Major version of the interface spoken here.
pub const MAJOR: u32 = 7;
/// Newest minor version of the interface spoken here.
pub const MINOR: u32 = 45;
/// Oldest minor version accepted (Linux 5.4): the last of the flags exact caching depends on,
/// `EXPLICIT_INVAL_DATA`, came with 7.30.
pub const MINOR_LEAST: u32 = 31;
/// Minor version with which `FOPEN_NOFLUSH` came (Linux 5.16).
pub const MINOR_NO_FLUSH: u32 = 35;
/// Minor version with which `FUSE_STATX` came (Linux 6.6).
pub const MINOR_STATX: u32 = 39;
/// Minor version of the first Linux (6.12) of which it is known that a page that ends behind the
/// file's end, and comes by `FUSE_NOTIFY_STORE`, has zeros there: before, it could be memory that
/// somebody else had used.
pub const MINOR_STORE_ZEROS: u32 = 41;
/// Minor version with which `FUSE_NOTIFY_INC_EPOCH` came (Linux 6.16).
pub const MINOR_INC_EPOCH: u32 = 44;
/// Minor version with which `FUSE_NOTIFY_PRUNE` came (Linux 6.18).
pub const MINOR_PRUNE: u32 = 45;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Longest name the kernel passes or accepts, in bytes.
pub const NAME_LEN_MAX: usize = 1024;
/// Variable-length records (directory entries, extensions) are padded to this many bytes.
pub const RECORD_ALIGN: usize = 8;

/// A buffer for requests must be at least this long, in bytes.
pub const READ_BUFFER_LEAST: usize = 8192;

/// `len` rounded up to the alignment of variable-length records.
#[must_use]
pub const fn record_align(len: usize) -> usize {
    len.next_multiple_of(RECORD_ALIGN)
}

/// Codes of unsolicited notifications, written with `unique` 0 and the code as `error`.
pub mod notify {
    /// A file polled for has become ready.
    pub const POLL: i32 = 1;
    /// Drop attributes and a range of cached pages of an inode.
    pub const INVAL_INODE: i32 = 2;
    /// Drop one cached name. Takes the directory's lock.
    pub const INVAL_ENTRY: i32 = 3;
    /// Put bytes into an inode's page cache.
    pub const STORE: i32 = 4;
    /// Ask for bytes of an inode's page cache.
    pub const RETRIEVE: i32 = 5;
    /// Drop one cached name and tell watchers that it was removed.
    pub const DELETE: i32 = 6;
    /// Send again every request that was read and not answered.
    pub const RESEND: i32 = 7;
    /// Every name of the connection is dropped at its next use, and looked up anew. Takes no
    /// lock. (7.44)
    pub const INC_EPOCH: i32 = 8;
    /// Of `INVAL_ENTRY`, since Linux 6.2: the name stays, and is asked for at its next use.
    pub const EXPIRE_ONLY: u32 = 1;
    /// Forget inodes nobody uses. (7.45)
    pub const PRUNE: i32 = 9;
}

/// Commands of the interface over io_uring (`FUSE_IO_URING_CMD_*`).
pub mod uring {
    /// Hands over the memory of one seat. Completes when a request was put there.
    pub const REGISTER: u32 = 1;
    /// Takes the answer from a seat. Completes when the next request was put there.
    pub const COMMIT_AND_FETCH: u32 = 2;
}
