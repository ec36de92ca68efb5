//! Heads of messages, structures used both ways, and what answers and notifications carry, as
//! the kernel lays them out.

structures! {
    /// Head of every request.
    pub struct InHeader of 40 bytes {
        /// Length of the request with this head.
        pub len: u32,
        /// The kind of the request.
        pub opcode: u32,
        /// Number of the request; the answer repeats it.
        pub unique: u64,
        /// The file concerned.
        pub nodeid: u64,
        /// User id of the caller.
        pub uid: u32,
        /// Group id of the caller.
        pub gid: u32,
        /// Process (thread) id of the caller; 0 when the kernel itself asks.
        pub pid: u32,
        /// Length of the extensions at the end, in units of 8 bytes.
        pub total_extlen: u16,
        /// Unused; zero.
        pub padding: u16,
    }

    /// Head of every answer and notification.
    pub struct OutHeader of 16 bytes {
        /// Length of the answer with this head.
        pub len: u32,
        /// 0, a negated error number, or a notification code.
        pub error: i32,
        /// Number of the request, 0 for notifications.
        pub unique: u64,
    }

    /// Attributes of a file.
    pub struct Attr of 88 bytes {
        /// Inode number shown to programs.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Space used, in units of 512 bytes.
        pub blocks: u64,
        /// Last access, seconds.
        pub atime: u64,
        /// Last change of the content, seconds.
        pub mtime: u64,
        /// Last change of the inode, seconds.
        pub ctime: u64,
        /// Nanoseconds of `atime`.
        pub atimensec: u32,
        /// Nanoseconds of `mtime`.
        pub mtimensec: u32,
        /// Nanoseconds of `ctime`.
        pub ctimensec: u32,
        /// Type and permissions.
        pub mode: u32,
        /// Number of names.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Device number of device nodes.
        pub rdev: u32,
        /// Preferred size of I/O.
        pub blksize: u32,
        /// `FUSE_ATTR_*`.
        pub flags: u32,
    }

    /// State of a file system.
    pub struct Kstatfs of 80 bytes {
        /// Blocks in all, of `frsize` bytes.
        pub blocks: u64,
        /// Free blocks.
        pub bfree: u64,
        /// Blocks free for ordinary users.
        pub bavail: u64,
        /// Inodes in all.
        pub files: u64,
        /// Free inodes.
        pub ffree: u64,
        /// Preferred size of I/O.
        pub bsize: u32,
        /// Longest name.
        pub namelen: u32,
        /// Size of a block.
        pub frsize: u32,
        /// Unused; zero.
        pub padding: u32,
        /// Unused; zero.
        pub spare: [u32; 6],
    }

    /// A range lock.
    pub struct FileLock of 24 bytes {
        /// First byte.
        pub start: u64,
        /// Last byte, included.
        pub end: u64,
        /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
        pub kind: u32,
        /// Process that holds it.
        pub pid: u32,
    }

    /// Answer that makes a name and its inode known to the kernel.
    pub struct EntryOut of 128 bytes {
        /// Node id; 0 says the name is absent.
        pub nodeid: u64,
        /// Distinguishes inodes that had the same node id.
        pub generation: u64,
        /// Lifetime of the name, seconds.
        pub entry_valid: u64,
        /// Lifetime of the attributes, seconds.
        pub attr_valid: u64,
        /// Nanoseconds of `entry_valid`.
        pub entry_valid_nsec: u32,
        /// Nanoseconds of `attr_valid`.
        pub attr_valid_nsec: u32,
        /// The attributes.
        pub attr: Attr,
    }

    /// Answer to `GETATTR` and `SETATTR`.
    pub struct AttrOut of 104 bytes {
        /// Lifetime of the attributes, seconds.
        pub attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        pub attr_valid_nsec: u32,
        /// Unused; zero.
        pub padding: u32,
        /// The attributes.
        pub attr: Attr,
    }

    /// Answer to `OPEN` and `OPENDIR`, second half of that to `CREATE`.
    pub struct OpenOut of 16 bytes {
        /// File handle.
        pub fh: u64,
        /// `fopen` flags.
        pub open_flags: u32,
        /// Registered file for `PASSTHROUGH`.
        pub backing_id: i32,
    }

    /// Answer to `WRITE` and `COPY_FILE_RANGE`.
    pub struct WriteOut of 8 bytes {
        /// Bytes written.
        pub size: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// Answer to `GETXATTR` and `LISTXATTR` of size 0.
    pub struct GetxattrOut of 8 bytes {
        /// Size of the value.
        pub size: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// Answer to `GETLK`.
    pub struct LkOut of 24 bytes {
        /// The lock in the way.
        pub lk: FileLock,
    }

    /// Answer to `INIT`.
    pub struct InitOut of 64 bytes {
        /// Major version.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Most the kernel may read ahead.
        pub max_readahead: u32,
        /// Flags, first word.
        pub flags: u32,
        /// Most requests in the background.
        pub max_background: u16,
        /// Background requests from which the kernel holds back.
        pub congestion_threshold: u16,
        /// Most bytes of a `WRITE`.
        pub max_write: u32,
        /// Granularity of times in nanoseconds.
        pub time_gran: u32,
        /// Most pages of a request.
        pub max_pages: u16,
        /// Alignment of direct-access mappings, as a power of two.
        pub map_alignment: u16,
        /// Flags, second word.
        pub flags2: u32,
        /// Depth of file systems below a passthrough.
        pub max_stack_depth: u32,
        /// Seconds after which the kernel gives a request up.
        pub request_timeout: u16,
        /// Unused; zero.
        pub unused: [u16; 11],
    }

    /// Answer to `BMAP`.
    pub struct BmapOut of 8 bytes {
        /// Block of the device.
        pub block: u64,
    }

    /// Answer to `IOCTL`, followed by the output.
    pub struct IoctlOut of 16 bytes {
        /// The result of the call.
        pub result: i32,
        /// `FUSE_IOCTL_RETRY`.
        pub flags: u32,
        /// Input ranges of a retry.
        pub in_iovs: u32,
        /// Output ranges of a retry.
        pub out_iovs: u32,
    }

    /// Answer to `POLL`.
    pub struct PollOut of 8 bytes {
        /// Events present.
        pub revents: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// Answer to `LSEEK`.
    pub struct LseekOut of 8 bytes {
        /// The position found.
        pub offset: u64,
    }

    /// Answer to `COPY_FILE_RANGE_64`.
    pub struct CopyFileRangeOut of 8 bytes {
        /// Bytes copied.
        pub bytes_copied: u64,
    }

    /// A time in `Statx`.
    pub struct SxTime of 16 bytes {
        /// Seconds.
        pub tv_sec: i64,
        /// Nanoseconds.
        pub tv_nsec: u32,
        /// Unused; zero.
        pub reserved: i32,
    }

    /// Attributes of a file, with the time of its birth.
    pub struct Statx of 256 bytes {
        /// Fields present.
        pub mask: u32,
        /// Preferred size of I/O.
        pub blksize: u32,
        /// `STATX_ATTR_*`.
        pub attributes: u64,
        /// Number of names.
        pub nlink: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Type and permissions.
        pub mode: u16,
        /// Unused; zero.
        pub spare0: u16,
        /// Inode number shown to programs.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Space used, in units of 512 bytes.
        pub blocks: u64,
        /// Attributes supported.
        pub attributes_mask: u64,
        /// Last access.
        pub atime: SxTime,
        /// Birth.
        pub btime: SxTime,
        /// Last change of the inode.
        pub ctime: SxTime,
        /// Last change of the content.
        pub mtime: SxTime,
        /// Device number of device nodes.
        pub rdev_major: u32,
        /// Device number of device nodes.
        pub rdev_minor: u32,
        /// Device of the file system.
        pub dev_major: u32,
        /// Device of the file system.
        pub dev_minor: u32,
        /// Unused; zero.
        pub spare2: [u64; 14],
    }

    /// Answer to `STATX`.
    pub struct StatxOut of 288 bytes {
        /// Lifetime of the attributes, seconds.
        pub attr_valid: u64,
        /// Nanoseconds of `attr_valid`.
        pub attr_valid_nsec: u32,
        /// 0.
        pub flags: u32,
        /// Unused; zero.
        pub spare: [u64; 2],
        /// The attributes.
        pub stat: Statx,
    }

    /// Head of an entry in the answer to `READDIR`, followed by the name.
    pub struct Dirent of 24 bytes {
        /// Inode number.
        pub ino: u64,
        /// Where the next entry begins: cookie to go on from.
        pub off: u64,
        /// Length of the name.
        pub namelen: u32,
        /// Type of the file, `mode >> 12`.
        pub kind: u32,
    }

    /// Head of an entry in the answer to `READDIRPLUS`.
    pub struct Direntplus of 152 bytes {
        /// The answer to a look-up of the name.
        pub entry: EntryOut,
        /// The entry itself.
        pub dirent: Dirent,
    }

    /// `notify::INVAL_INODE`.
    pub struct InvalInodeOut of 24 bytes {
        /// The file.
        pub nodeid: u64,
        /// First byte; negative for the attributes alone.
        pub offset: i64,
        /// Number of bytes; 0 or less for all to the end.
        pub len: i64,
    }

    /// `notify::STORE`, followed by the bytes.
    pub struct StoreOut of 24 bytes {
        /// The file.
        pub nodeid: u64,
        /// Where the bytes belong.
        pub offset: u64,
        /// How many they are.
        pub size: u32,
        /// Nothing.
        pub padding: u32,
    }

    /// `notify::PRUNE`, followed by the node ids, 8 bytes each.
    pub struct PruneOut of 16 bytes {
        /// How many.
        pub count: u32,
        /// Zero.
        pub padding: u32,
        /// Zero.
        pub spare: u64,
    }

    /// `notify::INVAL_ENTRY`, followed by the name and a zero byte.
    pub struct InvalEntryOut of 16 bytes {
        /// The directory.
        pub parent: u64,
        /// Length of the name.
        pub namelen: u32,
        /// `EXPIRE_ONLY`.
        pub flags: u32,
    }
}
