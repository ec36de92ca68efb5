//! What follows the head of requests about opening files and about open files, as the kernel
//! lays it out.

use super::FileLock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `OPEN` and `OPENDIR`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct OpenIn {
    /// `O_*`.
    pub flags: u32,
    /// `OPEN_KILL_SUIDGID`.
    pub open_flags: u32,
}

/// `CREATE` and `TMPFILE`, followed by the name.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct CreateIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ReleaseIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct FlushIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ReadIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct WriteIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct FsyncIn {
    /// File handle.
    pub fh: u64,
    /// `FSYNC_FDATASYNC`.
    pub fsync_flags: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `GETLK`, `SETLK` and `SETLKW`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct LkIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct BmapIn {
    /// Block of the file.
    pub block: u64,
    /// Size of a block.
    pub blocksize: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `IOCTL`, followed by the input.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct IoctlIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct PollIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct FallocateIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct LseekIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct CopyFileRangeIn {
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

const _: () = {
    assert!(size_of::<OpenIn>() == 8);
    assert!(size_of::<CreateIn>() == 16);
    assert!(size_of::<ReleaseIn>() == 24);
    assert!(size_of::<FlushIn>() == 24);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<FsyncIn>() == 16);
    assert!(size_of::<LkIn>() == 48);
    assert!(size_of::<BmapIn>() == 16);
    assert!(size_of::<IoctlIn>() == 32);
    assert!(size_of::<PollIn>() == 24);
    assert!(size_of::<FallocateIn>() == 32);
    assert!(size_of::<LseekIn>() == 24);
    assert!(size_of::<CopyFileRangeIn>() == 56);
};
