//! The arguments of requests about opening files and about open files, behind the head, as the
//! kernel lays them out.

use super::FileLock;

structures! {
    /// `OPEN` and `OPENDIR`.
    pub struct OpenIn of 8 bytes {
        /// `O_*`.
        pub flags: u32,
        /// `OPEN_KILL_SUIDGID`.
        pub open_flags: u32,
    }

    /// `CREATE` and `TMPFILE`, followed by the name.
    pub struct CreateIn of 16 bytes {
        /// `O_*`.
        pub flags: u32,
        /// Type and permissions, umask applied.
        pub mode: u32,
        /// The caller's umask.
        pub umask: u32,
        /// `OPEN_KILL_SUIDGID`.
        pub open_flags: u32,
    }

    /// `RELEASE` and `RELEASEDIR`.
    pub struct ReleaseIn of 24 bytes {
        /// File handle.
        pub fh: u64,
        /// `O_*`.
        pub flags: u32,
        /// `RELEASE_*`.
        pub release_flags: u32,
        /// Owner of locks.
        pub lock_owner: u64,
    }

    /// `FLUSH`.
    pub struct FlushIn of 24 bytes {
        /// File handle.
        pub fh: u64,
        /// Unused; zero.
        pub unused: u32,
        /// Unused; zero.
        pub padding: u32,
        /// Owner of locks.
        pub lock_owner: u64,
    }

    /// `READ`, `READDIR` and `READDIRPLUS`.
    pub struct ReadIn of 40 bytes {
        /// File handle.
        pub fh: u64,
        /// Where to begin.
        pub offset: u64,
        /// Bytes wanted at most.
        pub size: u32,
        /// `READ_LOCKOWNER`.
        pub read_flags: u32,
        /// Owner of locks.
        pub lock_owner: u64,
        /// `O_*`.
        pub flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `WRITE`, followed by the bytes.
    pub struct WriteIn of 40 bytes {
        /// File handle.
        pub fh: u64,
        /// Where to begin.
        pub offset: u64,
        /// Number of bytes.
        pub size: u32,
        /// `WRITE_*`.
        pub write_flags: u32,
        /// Owner of locks.
        pub lock_owner: u64,
        /// `O_*`.
        pub flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `FSYNC` and `FSYNCDIR`.
    pub struct FsyncIn of 16 bytes {
        /// File handle.
        pub fh: u64,
        /// `FSYNC_FDATASYNC`.
        pub fsync_flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `GETLK`, `SETLK` and `SETLKW`.
    pub struct LkIn of 48 bytes {
        /// File handle.
        pub fh: u64,
        /// Owner of the lock.
        pub owner: u64,
        /// The lock.
        pub lk: FileLock,
        /// `LK_FLOCK`.
        pub lk_flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `BMAP`.
    pub struct BmapIn of 16 bytes {
        /// Block of the file.
        pub block: u64,
        /// Size of a block.
        pub blocksize: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `IOCTL`, followed by the input.
    pub struct IoctlIn of 32 bytes {
        /// File handle.
        pub fh: u64,
        /// `FUSE_IOCTL_*`.
        pub flags: u32,
        /// Command.
        pub cmd: u32,
        /// Argument.
        pub arg: u64,
        /// Length of the input.
        pub in_size: u32,
        /// Room for the output.
        pub out_size: u32,
    }

    /// `POLL`.
    pub struct PollIn of 24 bytes {
        /// File handle.
        pub fh: u64,
        /// Handle for the notification.
        pub kh: u64,
        /// `POLL_SCHEDULE_NOTIFY`.
        pub flags: u32,
        /// Events asked for.
        pub events: u32,
    }

    /// `FALLOCATE`.
    pub struct FallocateIn of 32 bytes {
        /// File handle.
        pub fh: u64,
        /// Where to begin.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// `FALLOC_FL_*`.
        pub mode: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `LSEEK`.
    pub struct LseekIn of 24 bytes {
        /// File handle.
        pub fh: u64,
        /// Where to begin.
        pub offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        pub whence: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `COPY_FILE_RANGE` and `COPY_FILE_RANGE_64`.
    pub struct CopyFileRangeIn of 56 bytes {
        /// Source handle.
        pub fh_in: u64,
        /// Source offset.
        pub off_in: u64,
        /// Target file.
        pub nodeid_out: u64,
        /// Target handle.
        pub fh_out: u64,
        /// Target offset.
        pub off_out: u64,
        /// Number of bytes.
        pub len: u64,
        /// 0.
        pub flags: u64,
    }
}
