//! What follows the head of requests about inodes, names and the file system, as the kernel
//! lays it out.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `FORGET`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ForgetIn {
    /// How many look-ups are taken back.
    pub nlookup: u64,
}

/// One item of `BATCH_FORGET`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct ForgetOne {
    /// The file forgotten.
    pub nodeid: u64,
    /// How many look-ups are taken back.
    pub nlookup: u64,
}

/// `BATCH_FORGET`, followed by items.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct BatchForgetIn {
    /// Number of items.
    pub count: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `GETATTR`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct GetattrIn {
    /// `GETATTR_FH`.
    pub getattr_flags: u32,
    /// Unused; zero.
    pub padding: u32,
    /// File handle.
    pub fh: u64,
}

/// `MKNOD`, followed by the name.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct MknodIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct MkdirIn {
    /// Permissions, umask applied.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// `RENAME`, followed by both names.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct RenameIn {
    /// Target directory.
    pub newdir: u64,
}

/// `RENAME2`, followed by both names.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Rename2In {
    /// Target directory.
    pub newdir: u64,
    /// `RENAME_*`.
    pub flags: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `LINK`, followed by the new name.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct LinkIn {
    /// The file that gets another name.
    pub oldnodeid: u64,
}

/// `SETATTR`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct SetattrIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct SetxattrCompatIn {
    /// Length of the value.
    pub size: u32,
    /// `XATTR_*`.
    pub flags: u32,
}

/// `SETXATTR` with `SETXATTR_EXT`, followed by name and value.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct SetxattrIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct GetxattrIn {
    /// Room for the answer; 0 asks for the size.
    pub size: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `ACCESS`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct AccessIn {
    /// `R_OK`, `W_OK`, `X_OK`.
    pub mask: u32,
    /// Unused; zero.
    pub padding: u32,
}

/// `INIT` before 7.36.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct InitCompatIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct InitIn {
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
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct InterruptIn {
    /// The request whose caller was interrupted.
    pub unique: u64,
}

/// `SYNCFS`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct SyncfsIn {
    /// Unused; zero.
    pub padding: u64,
}

/// `STATX`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct StatxIn {
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

const _: () = {
    assert!(size_of::<ForgetIn>() == 8);
    assert!(size_of::<BatchForgetIn>() == 8);
    assert!(size_of::<GetattrIn>() == 16);
    assert!(size_of::<MknodIn>() == 16);
    assert!(size_of::<MkdirIn>() == 8);
    assert!(size_of::<RenameIn>() == 8);
    assert!(size_of::<Rename2In>() == 16);
    assert!(size_of::<LinkIn>() == 8);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<SetxattrCompatIn>() == 8);
    assert!(size_of::<SetxattrIn>() == 16);
    assert!(size_of::<GetxattrIn>() == 8);
    assert!(size_of::<AccessIn>() == 8);
    assert!(size_of::<InitCompatIn>() == 16);
    assert!(size_of::<InitIn>() == 64);
    assert!(size_of::<InterruptIn>() == 8);
    assert!(size_of::<SyncfsIn>() == 8);
    assert!(size_of::<StatxIn>() == 24);
};
