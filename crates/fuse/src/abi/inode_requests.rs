//! The arguments of requests about inodes, names and the file system, behind the head, as the
//! kernel lays them out.

structures! {
    /// `FORGET`.
    pub struct ForgetIn of 8 bytes {
        /// How many look-ups are taken back.
        pub nlookup: u64,
    }

    /// One item of `BATCH_FORGET`.
    pub struct ForgetOne of 16 bytes {
        /// The file forgotten.
        pub nodeid: u64,
        /// How many look-ups are taken back.
        pub nlookup: u64,
    }

    /// `BATCH_FORGET`, followed by items.
    pub struct BatchForgetIn of 8 bytes {
        /// Number of items.
        pub count: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `GETATTR`.
    pub struct GetattrIn of 16 bytes {
        /// `GETATTR_FH`.
        pub getattr_flags: u32,
        /// Unused; zero.
        pub padding: u32,
        /// File handle.
        pub fh: u64,
    }

    /// `MKNOD`, followed by the name.
    pub struct MknodIn of 16 bytes {
        /// Type and permissions, umask applied.
        pub mode: u32,
        /// Device number.
        pub rdev: u32,
        /// The caller's umask.
        pub umask: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `MKDIR`, followed by the name.
    pub struct MkdirIn of 8 bytes {
        /// Permissions, umask applied.
        pub mode: u32,
        /// The caller's umask.
        pub umask: u32,
    }

    /// `RENAME`, followed by both names.
    pub struct RenameIn of 8 bytes {
        /// Target directory.
        pub newdir: u64,
    }

    /// `RENAME2`, followed by both names.
    pub struct Rename2In of 16 bytes {
        /// Target directory.
        pub newdir: u64,
        /// `RENAME_*`.
        pub flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `LINK`, followed by the new name.
    pub struct LinkIn of 8 bytes {
        /// The file that gets another name.
        pub oldnodeid: u64,
    }

    /// `SETATTR`.
    pub struct SetattrIn of 88 bytes {
        /// Which fields count.
        pub valid: u32,
        /// Unused; zero.
        pub padding: u32,
        /// File handle.
        pub fh: u64,
        /// Size.
        pub size: u64,
        /// Owner of locks.
        pub lock_owner: u64,
        /// Seconds.
        pub atime: u64,
        /// Seconds.
        pub mtime: u64,
        /// Seconds.
        pub ctime: u64,
        /// Nanoseconds.
        pub atimensec: u32,
        /// Nanoseconds.
        pub mtimensec: u32,
        /// Nanoseconds.
        pub ctimensec: u32,
        /// Permissions.
        pub mode: u32,
        /// Unused; zero.
        pub unused4: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Unused; zero.
        pub unused5: u32,
    }

    /// `SETXATTR` without `SETXATTR_EXT`, followed by name and value.
    pub struct SetxattrCompatIn of 8 bytes {
        /// Length of the value.
        pub size: u32,
        /// `XATTR_*`.
        pub flags: u32,
    }

    /// `SETXATTR` with `SETXATTR_EXT`, followed by name and value.
    pub struct SetxattrIn of 16 bytes {
        /// Length of the value.
        pub size: u32,
        /// `XATTR_*`.
        pub flags: u32,
        /// `SETXATTR_ACL_KILL_SGID`.
        pub setxattr_flags: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `GETXATTR` (followed by the name) and `LISTXATTR`.
    pub struct GetxattrIn of 8 bytes {
        /// Room for the answer; 0 asks for the size.
        pub size: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `ACCESS`.
    pub struct AccessIn of 8 bytes {
        /// `R_OK`, `W_OK`, `X_OK`.
        pub mask: u32,
        /// Unused; zero.
        pub padding: u32,
    }

    /// `INIT` before 7.36.
    pub struct InitCompatIn of 16 bytes {
        /// Major version.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Most the kernel reads ahead.
        pub max_readahead: u32,
        /// Flags, first word.
        pub flags: u32,
    }

    /// `INIT` since 7.36.
    pub struct InitIn of 64 bytes {
        /// Major version.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Most the kernel reads ahead.
        pub max_readahead: u32,
        /// Flags, first word.
        pub flags: u32,
        /// Flags, second word.
        pub flags2: u32,
        /// Unused; zero.
        pub unused: [u32; 11],
    }

    /// `INTERRUPT`.
    pub struct InterruptIn of 8 bytes {
        /// The request whose caller was interrupted.
        pub unique: u64,
    }

    /// `SYNCFS`.
    pub struct SyncfsIn of 8 bytes {
        /// Unused; zero.
        pub padding: u64,
    }

    /// `STATX`.
    pub struct StatxIn of 24 bytes {
        /// `GETATTR_FH`.
        pub getattr_flags: u32,
        /// Unused; zero.
        pub reserved: u32,
        /// File handle.
        pub fh: u64,
        /// `AT_STATX_*`.
        pub sx_flags: u32,
        /// Fields asked for.
        pub sx_mask: u32,
    }
}
