//! Bits of the kernel's FUSE interface, each group in a module named like the prefix in
//! `linux/fuse.h`.

/// Flags of `FUSE_INIT`. Bits 32 and up travel in the word `flags2`, valid with `INIT_EXT`.
pub mod init {
    /// Reads may be sent while others are under way.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// POSIX locks are sent to the file system.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// File handles are sent with `fstat` and the like.
    pub const FILE_OPS: u64 = 1 << 2;
    /// `O_TRUNC` is passed in `OPEN` instead of being sent as `SETATTR`.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Look-ups of `.` and `..` are understood.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes larger than one page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The kernel does not apply the umask.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Kernel can splice from the device.
    pub const SPLICE_WRITE: u64 = 1 << 7;
    /// Kernel can move spliced pages.
    pub const SPLICE_MOVE: u64 = 1 << 8;
    /// Kernel can splice to the device.
    pub const SPLICE_READ: u64 = 1 << 9;
    /// BSD locks are sent to the file system.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// Kernel can send `IOCTL` for directories.
    pub const HAS_IOCTL_DIR: u64 = 1 << 11;
    /// Cached pages are dropped when size or mtime seem to have changed.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// `READDIRPLUS` is understood.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel chooses between `READDIR` and `READDIRPLUS`.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct I/O is sent in parallel pieces.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Writes are kept in the page cache and sent later.
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    /// `ENOSYS` to `OPEN` means: opens need not be announced.
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    /// Look-ups and listings of one directory are sent in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The file system clears set-id bits on write, chown and truncate (first version).
    pub const HANDLE_KILLPRIV: u64 = 1 << 19;
    /// POSIX access lists are checked by the kernel.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// Reading the device after an abort gives `ECONNABORTED`.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` of the answer is valid.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Symbolic links' targets are cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// `ENOSYS` to `OPENDIR` means: listings need not be announced.
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    /// Cached pages are dropped on notification only.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// `map_alignment` of the answer is valid.
    pub const MAP_ALIGNMENT: u64 = 1 << 26;
    /// Directories can be mounted automatically as file systems of their own.
    pub const SUBMOUNTS: u64 = 1 << 27;
    /// The file system clears set-id bits when the request says so.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// `SETXATTR` carries the extended structure.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// `INIT` carries a second word of flags.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Security contexts come with create, mkdir, symlink and mknod.
    pub const SECURITY_CTX: u64 = 1 << 32;
    /// Direct access per inode.
    pub const HAS_INODE_DAX: u64 = 1 << 33;
    /// The group of a new file's directory comes with the request.
    pub const CREATE_SUPP_GROUP: u64 = 1 << 34;
    /// Names can be expired without being dropped.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    /// Files opened with `DIRECT_IO` can be mapped shared.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// Reads and writes can pass through to a file of another file system.
    pub const PASSTHROUGH: u64 = 1 << 37;
    /// File handles for export are refused.
    pub const NO_EXPORT_SUPPORT: u64 = 1 << 38;
    /// `NOTIFY_RESEND` is understood.
    pub const HAS_RESEND: u64 = 1 << 39;
    /// Mounts with mapped ids are allowed.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
    /// Requests can travel over io_uring.
    pub const OVER_IO_URING: u64 = 1 << 41;
    /// `request_timeout` of the answer is valid.
    pub const REQUEST_TIMEOUT: u64 = 1 << 42;
}

/// Flags of the answers to `OPEN`, `OPENDIR` and `CREATE`.
pub mod fopen {
    /// Bypass the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Keep what is cached of the file.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// The file cannot seek.
    pub const NONSEEKABLE: u32 = 1 << 2;
    /// The listing may be cached.
    pub const CACHE_DIR: u32 = 1 << 3;
    /// The file has no position at all.
    pub const STREAM: u32 = 1 << 4;
    /// No `FLUSH` at close.
    pub const NOFLUSH: u32 = 1 << 5;
    /// Direct writes to one file run in parallel.
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    /// Reads and writes go to the file registered as `backing_id`.
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// Which fields of `SETATTR` are to be set.
pub mod fattr {
    /// `mode`.
    pub const MODE: u32 = 1 << 0;
    /// `uid`.
    pub const UID: u32 = 1 << 1;
    /// `gid`.
    pub const GID: u32 = 1 << 2;
    /// `size`.
    pub const SIZE: u32 = 1 << 3;
    /// `atime`.
    pub const ATIME: u32 = 1 << 4;
    /// `mtime`.
    pub const MTIME: u32 = 1 << 5;
    /// `fh` is valid.
    pub const FH: u32 = 1 << 6;
    /// `atime` is to be the present.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// `mtime` is to be the present.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// `lock_owner` is valid.
    pub const LOCKOWNER: u32 = 1 << 9;
    /// `ctime`.
    pub const CTIME: u32 = 1 << 10;
    /// Set-id bits are to be cleared (`HANDLE_KILLPRIV_V2`).
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_GETATTR` and `FUSE_STATX`: `fh` is valid.
pub const GETATTR_FH: u32 = 1 << 0;
/// `FUSE_RELEASE`: flush as well.
pub const RELEASE_FLUSH: u32 = 1 << 0;
/// `FUSE_RELEASE`: give up the BSD lock.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `FUSE_GETLK` and the like: the lock is a BSD lock.
pub const LK_FLOCK: u32 = 1 << 0;
/// `FUSE_WRITE`: from the page cache (a shared mapping); the file handle is a guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE`: `lock_owner` is valid.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_WRITE`: set-id bits are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_READ`: `lock_owner` is valid.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_OPEN` and `FUSE_CREATE`: set-id bits are to be cleared.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FUSE_SETXATTR`: the set-group-id bit is to be cleared with the access list.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FUSE_FSYNC`: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `FUSE_POLL`: a notification is wanted.
pub const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
/// `FUSE_NOTIFY_INVAL_ENTRY`: expire the name, do not drop it.
pub const EXPIRE_ONLY: u32 = 1 << 0;
/// Bit of `unique` set in requests sent again after `NOTIFY_RESEND`.
pub const UNIQUE_RESEND: u64 = 1 << 63;
