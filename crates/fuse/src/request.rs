//! A request of the kernel, decoded in place: names and data are slices of the buffer it was
//! read into. Decoding never panics and never allocates, whatever the bytes are. A name handed
//! out is never empty, holds no zero byte and was ended by one.

mod decode;

use crate::abi::{
    self, AccessIn, BmapIn, CopyFileRangeIn, FallocateIn, InitIn, IoctlIn, LkIn, Opcode, PollIn,
    SetattrIn, StatxIn,
};

/// The caller of a request, and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the request; `INTERRUPT` names it.
    pub unique: u64,
    /// The kind of the request.
    pub opcode: Opcode,
    /// The file, or the directory a name is in.
    pub nodeid: u64,
    /// User id the caller acts with (fsuid).
    pub uid: u32,
    /// Group id the caller acts with (fsgid).
    pub gid: u32,
    /// Thread of the caller; 0 when the kernel itself asks.
    pub pid: u32,
}

/// A decoded request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// The caller of a request, and its file.
    pub header: Header,
    /// The operation.
    pub operation: Operation<'a>,
    /// All of it, as it was read.
    whole: (&'a [u8], Dialect),
}

/// A request that is decoded later.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Vec<u8>,
    dialect: Dialect,
}

impl Kept {
    /// The request, decoded anew.
    ///
    /// # Errors
    /// None: it was decoded before.
    pub fn request(&self) -> Result<Request<'_>, ParseError> {
        Request::parse_in(&self.bytes, self.dialect)
    }
}

/// The parts of the negotiation that cannot be seen in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// `SETXATTR` has the long form.
    pub setxattr_ext: bool,
}

impl Default for Dialect {
    /// The dialect of every kernel since 7.33.
    fn default() -> Self {
        Dialect { setxattr_ext: true }
    }
}

/// Why bytes are not a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Fewer bytes than the head of a request.
    #[error("{len} bytes are no request: the head alone has 40")]
    NoHead {
        /// Bytes there.
        len: usize,
    },
    /// The length in the head is not the length read.
    #[error("{opcode}: the head says {said} bytes, {read} were read")]
    Length {
        /// The request whose answer is awaited.
        unique: u64,
        /// Its kind.
        opcode: Opcode,
        /// Length by the head.
        said: usize,
        /// Length read.
        read: usize,
    },
    /// The request ends within its arguments.
    #[error("{opcode}: the request ends before its {what}")]
    Short {
        /// The request whose answer is awaited.
        unique: u64,
        /// Its kind.
        opcode: Opcode,
        /// The missing part.
        what: &'static str,
    },
    /// A name is empty or has no end.
    #[error("{opcode}: a name is empty or without its zero byte")]
    Name {
        /// The request whose answer is awaited.
        unique: u64,
        /// Its kind.
        opcode: Opcode,
    },
}

impl ParseError {
    /// The request that waits for an answer, if the head was legible and an answer is expected.
    #[must_use]
    pub fn awaits_reply(&self) -> Option<u64> {
        match *self {
            ParseError::NoHead { .. } => None,
            ParseError::Length { unique, opcode, .. }
            | ParseError::Short { unique, opcode, .. }
            | ParseError::Name { unique, opcode } => opcode.expects_reply().then_some(unique),
        }
    }
}

impl<'a> Request<'a> {
    /// Decodes one request in the usual dialect. `bytes` is exactly what one read gave.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        Self::parse_in(bytes, Dialect::default())
    }

    /// A copy that outlives the buffer which the request was read into.
    #[must_use]
    pub fn keep(&self) -> Kept {
        let (bytes, dialect) = self.whole;
        let bytes = bytes.to_vec();
        Kept { bytes, dialect }
    }

    /// Decodes one request in the dialect negotiated.
    pub fn parse_in(bytes: &'a [u8], dialect: Dialect) -> Result<Self, ParseError> {
        decode::request(bytes, dialect)
    }
}

impl Operation<'_> {
    /// The node besides the request's that it is about.
    pub(crate) fn other_node(&self) -> Option<u64> {
        match self {
            Operation::Rename(rename) => Some(rename.new_parent),
            Operation::Link { nodeid, .. } => Some(*nodeid),
            Operation::CopyFileRange(args) | Operation::CopyFileRange64(args) => {
                Some(args.nodeid_out)
            }
            _ => None,
        }
    }
}

/// `READ`, `READDIR` and `READDIRPLUS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// File handle.
    pub fh: u64,
    /// Where to begin: a byte, or the cookie of a directory entry.
    pub offset: u64,
    /// Bytes wanted at most.
    pub size: u32,
    /// `O_*` of the open file.
    pub flags: u32,
    /// Owner of locks, where the kernel says one.
    pub lock_owner: Option<u64>,
}

/// `WRITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// File handle; a guess if `from_cache`.
    pub fh: u64,
    /// Where to begin.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// `O_*` of the open file.
    pub flags: u32,
    /// Owner of locks, where the kernel says one.
    pub lock_owner: Option<u64>,
    /// Comes from the page cache (a shared mapping), not from write(2) (`FUSE_WRITE_CACHE`).
    pub from_cache: bool,
    /// Set-id bits are to be cleared (`FUSE_WRITE_KILL_SUIDGID`).
    pub kill_suidgid: bool,
}

/// `OPEN` and `OPENDIR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// `O_*`.
    pub flags: u32,
    /// Set-id bits are to be cleared (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_suidgid: bool,
}

/// `CREATE` and `TMPFILE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The new name; what the kernel calls the file, for `TMPFILE`.
    pub name: &'a [u8],
    /// `O_*`.
    pub flags: u32,
    /// Type and permissions, the umask applied.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Set-id bits are to be cleared (`FUSE_OPEN_KILL_SUIDGID`).
    pub kill_suidgid: bool,
}

/// `RELEASE` and `RELEASEDIR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// File handle.
    pub fh: u64,
    /// `O_*` of the open file.
    pub flags: u32,
    /// Flush as well.
    pub flush: bool,
    /// `lock_owner`'s BSD lock is to be given up.
    pub flock_unlock: bool,
    /// Owner of locks.
    pub lock_owner: u64,
}

/// `RENAME` (flags 0) and `RENAME2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The old name, in the request's node.
    pub name: &'a [u8],
    /// The directory of the new name.
    pub new_parent: u64,
    /// The new name.
    pub new_name: &'a [u8],
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    pub flags: u32,
}

/// `SETXATTR`, either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setxattr<'a> {
    /// The attribute's name.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// The set-group-id bit is to be cleared.
    pub acl_kill_sgid: bool,
}

/// The items of `FORGET` and `BATCH_FORGET`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forgets<'a> {
    pub(crate) one: Option<abi::ForgetOne>,
    pub(crate) rest: &'a [u8],
}

impl Forgets<'_> {
    /// (node id, number of look-ups taken back), one after the other.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let rest = decode::forget_items(self.rest);
        self.one
            .into_iter()
            .chain(rest)
            .map(|item| (item.nodeid, item.nlookup))
    }
}

/// The operation of a request. Structures of the kernel appear where each of their fields is used.
#[allow(missing_docs)] // The fields are what the man pages of the system calls say.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    /// No answer.
    Forget(Forgets<'a>),
    /// No answer.
    BatchForget(Forgets<'a>),
    Getattr {
        fh: Option<u64>,
    },
    /// `valid` says which fields count (`abi::fattr`).
    Setattr(SetattrIn),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    /// `RENAME` and `RENAME2`.
    Rename(Rename<'a>),
    /// A new name in the request's node for the file `nodeid`.
    Link {
        nodeid: u64,
        name: &'a [u8],
    },
    Open(Open),
    Read(Read),
    Write(Write<'a>),
    Statfs,
    Release(Release),
    Fsync {
        fh: u64,
        datasync: bool,
    },
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    Setxattr(Setxattr<'a>),
    /// `size` 0 asks for the size alone.
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    /// `size` 0 asks for the size alone.
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    /// Answered by the session; a handler never sees it.
    Init(InitIn),
    Opendir(Open),
    Readdir(Read),
    Readdirplus(Read),
    Releasedir(Release),
    Access(AccessIn),
    Create(Create<'a>),
    /// The caller of the request `unique` was interrupted. No answer needed.
    Interrupt {
        unique: u64,
    },
    Destroy,
    Lseek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    Fallocate(FallocateIn),
    CopyFileRange(CopyFileRangeIn),
    /// Answered by 64 bits of length instead of 32.
    CopyFileRange64(CopyFileRangeIn),
    Tmpfile(Create<'a>),
    Syncfs,
    Statx(StatxIn),
    Getlk(LkIn),
    Setlk(LkIn),
    /// May wait.
    Setlkw(LkIn),
    Ioctl(IoctlIn, &'a [u8]),
    Poll(PollIn),
    Bmap(BmapIn),
    /// The reply to a notification, or an opcode not known here: answer `ENOSYS`.
    Unknown(Opcode),
}
