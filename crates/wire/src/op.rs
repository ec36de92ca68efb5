//! Every file operation. The same vocabulary is used by fronts, client, network, server and store;
//! each adds what is its own (a ticket, a token, a slot) and none translates.

use crate::attr::{Kind, Set};
use crate::blob::Blob;
use crate::codec::{VERSION_OF_REPLICAS, VERSION_OLDEST};
use crate::ids::{Epoch, Fid, RequestId, Time};
use crate::lock::{Lock, LockOwner, LockWait};
use crate::name::Name;
use crate::rights::NOBODY;
use crate::stream::StreamChunk;
use crate::volume::{Room, VolumeOp};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The user and groups that ask: checked by the server as well as by the client's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups, where the front knows them; `None`: not known. The server takes them for
    /// none.
    pub groups: Option<Vec<u32>>,
}

impl Caller {
    /// Root, in no further group.
    pub const fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
        }
    }

    /// The one who stands for those who are not believed.
    pub const fn nobody() -> Self {
        Self {
            uid: NOBODY,
            gid: NOBODY,
            groups: Some(Vec::new()),
        }
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
}

/// The object to make under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Make {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// A FIFO, a socket's or a device's name.
    Node {
        /// Which.
        kind: Kind,
        /// Device number, zero for FIFOs and sockets.
        rdev: u32,
    },
    /// A mount point of the volume, or the snapshot, that has this name now. For a superuser, or
    /// for who owns both the directory and the volume's root.
    Mount(Name),
    /// A mount point of a volume of another server of the cell, by its number. For a superuser: the
    /// server cannot look who owns what is behind it.
    MountElsewhere(u32),
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// By a program, at the offset given.
    At,
    /// By a program, at the end of the file, wherever that is when it is applied.
    Append,
    /// The kernel hands on what a program changed in a shared mapping, or (with silent opens) wrote
    /// to the page cache. It holds locks of pages meanwhile, so it waits for nobody: it is applied
    /// first and taken from other caches afterwards.
    Lazy,
    /// Write-back of dirty blocks by the holder of the Exclusive token. Carries the times that the
    /// file has for the holder, and its size as far as its bytes are at the server then.
    Back {
        /// The file is at least so long: for the holder it may be longer, by bytes that come later.
        size: u64,
        /// Its time of modification for the holder.
        mtime: Time,
        /// Its time of change for the holder.
        ctime: Time,
    },
}

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Made or replaced.
    Any,
    /// Only made.
    Create,
    /// Only replaced.
    Replace,
    /// Made or replaced, and the set-group-id bit goes: an access list, set by a user who is not in
    /// the object's group.
    EndsSetGid,
}

/// A file operation. Fields are named as in the system calls that they serve.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Which object has this name? Outcome: `Entry`.
    Lookup { dir: Fid, name: Name },
    /// Outcome: `Attr`.
    GetAttr { fid: Fid },
    /// Outcome: `Attr`.
    SetAttr { fid: Fid, set: Set },
    /// Outcome: `Target`.
    ReadLink { fid: Fid },
    /// Makes an object under a name that must not exist. With `open`, it is opened too (a file).
    /// The mode's 12 bits are those asked for; above them ([`UMASK_SHIFT`]) is the umask, which
    /// counts unless the directory has a list that is inherited. Outcome: `Entry`.
    Make {
        dir: Fid,
        name: Name,
        make: Make,
        mode: u32,
        open: Option<Access>,
    },
    /// Gives an object (not a directory) another name. Outcome: `Entry`.
    Link { fid: Fid, dir: Fid, name: Name },
    /// Removes a name of anything but a directory or a mount point. Outcome: `Removed`.
    Unlink { dir: Fid, name: Name },
    /// Removes an empty directory. Outcome: `Removed`.
    Rmdir { dir: Fid, name: Name },
    /// Moves a name, over an existing one unless `no_replace`, or exchanges two. Both together,
    /// which mean nothing beside each other: it moves a name, over an existing one too, and leaves
    /// a *whiteout* in its place, a character device of number 0 (overlayfs: a name of a lower
    /// directory is gone). Outcome: `Renamed`.
    Rename {
        from: Fid,
        name: Name,
        to: Fid,
        new: Name,
        no_replace: bool,
        exchange: bool,
    },
    /// Announces an open file. Outcome: `Opened`.
    Open { fid: Fid, access: Access },
    /// Outcome: `Read`; the bytes travel beside it. Shorter than asked only at the end.
    Read { fid: Fid, offset: u64, len: u32 },
    /// The bytes travel beside it. Outcome: `Written`.
    Write {
        fid: Fid,
        offset: u64,
        len: u32,
        mode: WriteMode,
    },
    /// Entries after the position `after` (0: from the beginning), in the order of positions.
    /// Outcome: `Dir`.
    ReadDir { dir: Fid, after: u64, max: u32 },
    /// All that was applied to this object before is on stable storage. Outcome: `Done`.
    Sync { fid: Fid },
    /// Outcome: `Filesystem`.
    StatFs,
    /// Outcome: `Value`.
    GetXattr { fid: Fid, name: Vec<u8> },
    /// Outcome: `Attr`.
    SetXattr {
        fid: Fid,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    /// Outcome: `Value`: names, each ended by a zero byte.
    ListXattr { fid: Fid },
    /// Outcome: `Attr`.
    RemoveXattr { fid: Fid, name: Vec<u8> },
    /// Removes what is left of an object that has no name, once nobody has it open. Never sent by a
    /// client. Outcome: `Done`.
    Reap { fid: Fid },
    /// Outcome: `Locked`.
    Lock {
        fid: Fid,
        lock: Lock,
        wait: LockWait,
    },
    /// Gives up what this owner has locked of these bytes. Outcome: `Locked`.
    Unlock {
        fid: Fid,
        owner: LockOwner,
        first: u64,
        last: u64,
    },
    /// Which lock is in the way of this one? Outcome: `InTheWay`.
    TestLock { fid: Fid, lock: Lock },
    /// The request of this number, for a lock, waits no more. Outcome: `Done`.
    StopWaiting { request: RequestId },
    /// fallocate(2): a range of a file comes to read as zeros and occupies nothing (`zero`), or
    /// there is room for it. The file becomes as long as the range reaches, unless `keep_size`.
    /// Outcome: `Written`.
    Allocate {
        fid: Fid,
        offset: u64,
        len: u64,
        zero: bool,
        keep_size: bool,
    },
    /// Copies bytes of a file (`from`, from `at` on) over those of a file (`to`, from `offset` on):
    /// as many as there are before the end of the first one. Outcome: `Copied`.
    Copy {
        from: Fid,
        at: u64,
        to: Fid,
        offset: u64,
        len: u32,
    },
    /// The first byte from `offset` on that is in a hole (the end of the file counts as one), or
    /// that is in none. Outcome: `Position`.
    Find { fid: Fid, offset: u64, hole: bool },
    /// Makes a file without a name, as if in this directory, and opens it: it lives while it is
    /// open, or gets a name by `Link`. Mode and outcome are those of `Make`.
    MakeNameless { dir: Fid, mode: u32, open: Access },
    /// The same as `ReadDir`, for the client's cache alone, which is about to need what follows in
    /// a directory that somebody walks through. It waits for nobody. Outcome: `Dir`; `Done` if it
    /// would have had to wait, since others change the directory.
    Prefetch { dir: Fid, after: u64, max: u32 },
    /// Gives the client numbers for what it makes in directories that are delegated to it: nobody
    /// else gets these. Outcome: `Numbers`.
    Reserve { count: u32 },
    /// Gives back what was delegated up to this epoch: to decide about the locks of a file. `held`:
    /// what the client has locked of it, none of it twice; `None`: what the server knows. So many
    /// calls were answered without it (`decided`). Outcome: `Done`.
    GiveLocks {
        fid: Fid,
        upto: Epoch,
        decided: u32,
        held: Option<Vec<Lock>>,
    },
    /// All of a file for the client, whoever has it open: its kernel asks for a page of a mapping
    /// in which programs may store. Others give up what they have. Outcome: `Attr`.
    Claim { fid: Fid },
    /// Changes the volumes of the partition. Outcome: `Volume`.
    Volume(VolumeOp),
    /// The volumes of the partition. Outcome: `Volumes`.
    Volumes,
    /// Numbers of a volume, within its limits. Outcome: `Filesystem`.
    StatVolume { volume: u32 },
    /// Room in a volume for what the client answers before the server has heard of it: of what it
    /// was given it still has so much (`held`), and it wants more. Outcome: `Room`, what it gets.
    Room { volume: u32, held: Room, want: Room },
    /// A part of what a snapshot has, or of what changed since another snapshot of its volume, from
    /// a place on that an earlier answer has named. `plan`: without the bytes of files. A
    /// superuser's. Outcome: `Dump`.
    Dump {
        of: Name,
        since: Option<Name>,
        after: Option<Blob>,
        plan: bool,
    },
    /// The next part of a snapshot that is being received, and what its sender needs to go on
    /// behind it. A superuser's. Outcome: `Done`.
    Restore {
        volume: u32,
        number: u64,
        after: Blob,
        chunk: StreamChunk,
    },
    /// Removes a mount point, and nothing of the volume behind it. For a superuser, or for who owns
    /// the directory or has made the mount point. Outcome: `Removed`.
    Unmount { dir: Fid, name: Name },
}

/// The extended attribute of a directory that holds its access list as in Andrew.
pub const ACCESS_LIST: &[u8] = b"system.ariel_acl";

/// In the mode of what is to be made: bits below the umask.
pub const UMASK_SHIFT: u32 = 12;

impl Op {
    /// The first version of the protocol that has the operation: a server that speaks an older one
    /// cannot read it.
    pub fn since(&self) -> u32 {
        match self {
            Self::Volume(VolumeOp::ReceiveRelease { .. } | VolumeOp::DropReleases { .. }) => {
                VERSION_OF_REPLICAS
            }
            _ => VERSION_OLDEST,
        }
    }

    /// The operation's kind, for counters and traces.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Lookup { .. } => "Lookup",
            Self::GetAttr { .. } => "GetAttr",
            Self::SetAttr { .. } => "SetAttr",
            Self::ReadLink { .. } => "ReadLink",
            Self::Make { .. } => "Make",
            Self::Link { .. } => "Link",
            Self::Unlink { .. } => "Unlink",
            Self::Rmdir { .. } => "Rmdir",
            Self::Rename { .. } => "Rename",
            Self::Open { .. } => "Open",
            Self::Read { .. } => "Read",
            Self::Write { .. } => "Write",
            Self::ReadDir { .. } => "ReadDir",
            Self::Sync { .. } => "Sync",
            Self::StatFs => "StatFs",
            Self::GetXattr { .. } => "GetXattr",
            Self::SetXattr { .. } => "SetXattr",
            Self::ListXattr { .. } => "ListXattr",
            Self::RemoveXattr { .. } => "RemoveXattr",
            Self::Reap { .. } => "Reap",
            Self::Lock { .. } => "Lock",
            Self::Unlock { .. } => "Unlock",
            Self::TestLock { .. } => "TestLock",
            Self::StopWaiting { .. } => "StopWaiting",
            Self::Allocate { .. } => "Allocate",
            Self::Copy { .. } => "Copy",
            Self::Find { .. } => "Find",
            Self::MakeNameless { .. } => "MakeNameless",
            Self::Prefetch { .. } => "Prefetch",
            Self::Reserve { .. } => "Reserve",
            Self::GiveLocks { .. } => "GiveLocks",
            Self::Claim { .. } => "Claim",
            Self::Volume { .. } => "Volume",
            Self::Volumes => "Volumes",
            Self::StatVolume { .. } => "StatVolume",
            Self::Room { .. } => "Room",
            Self::Dump { .. } => "Dump",
            Self::Restore { .. } => "Restore",
            Self::Unmount { .. } => "Unmount",
        }
    }

    /// Does it change the store? Only these need to be applied exactly once.
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Self::SetAttr { .. }
                | Self::Make { .. }
                | Self::Link { .. }
                | Self::Unlink { .. }
                | Self::Rmdir { .. }
                | Self::Rename { .. }
                | Self::Write { .. }
                | Self::SetXattr { .. }
                | Self::RemoveXattr { .. }
                | Self::Reap { .. }
                | Self::Allocate { .. }
                | Self::Copy { .. }
                | Self::MakeNameless { .. }
                | Self::Reserve { .. }
                | Self::Volume(_)
                | Self::Restore { .. }
                | Self::Unmount { .. }
        )
    }

    /// May its caller be answered before the server has heard of it?
    pub fn may_be_delegated(&self) -> bool {
        match self {
            Self::SetAttr { set, .. } => set.size.is_none(),
            Self::Rename { exchange, .. } => !exchange,
            Self::SetXattr { mode, .. } => *mode != XattrMode::EndsSetGid,
            // The server knows the volumes, and who owns them.
            Self::Make { make, .. } => !matches!(make, Make::Mount(_) | Make::MountElsewhere(_)),
            Self::RemoveXattr { .. }
            | Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. } => true,
            _ => false,
        }
    }

    /// Does its caller begin again if it is told to? All changes of names but those by bind(2),
    /// which makes a socket's.
    pub fn may_be_put_back(&self) -> bool {
        const SOCKET: Kind = Kind::Socket;
        match self {
            Self::Make { make, .. } => !matches!(make, Make::Node { kind: SOCKET, .. }),
            Self::Link { .. }
            | Self::Unlink { .. }
            | Self::Rmdir { .. }
            | Self::Rename { .. }
            | Self::Unmount { .. } => true,
            _ => false,
        }
    }

    /// Does it leave a whiteout in the place of what it moves?
    pub fn leaves_whiteout(&self) -> bool {
        matches!(
            self,
            Self::Rename {
                no_replace: true,
                exchange: true,
                ..
            }
        )
    }

    /// Is it about locks? These are the server's alone: the store never sees them.
    pub fn locks(&self) -> bool {
        matches!(
            self,
            Self::Lock { .. }
                | Self::Unlock { .. }
                | Self::TestLock { .. }
                | Self::StopWaiting { .. }
                | Self::GiveLocks { .. }
        )
    }

    /// Does its answer bring much?
    pub fn brings_bytes(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::ReadDir { .. } | Self::Prefetch { .. } | Self::Dump { .. }
        )
    }

    /// How it opens what it makes.
    pub fn makes_open(&self) -> Option<Access> {
        match self {
            Self::Make { open, .. } => *open,
            Self::MakeNameless { open, .. } => Some(*open),
            _ => None,
        }
    }

    /// The file whose bytes a program changes by this, without any that travel beside it.
    pub fn edits(&self) -> Option<Fid> {
        match self {
            Self::Allocate { fid, .. } | Self::Copy { to: fid, .. } => Some(*fid),
            _ => None,
        }
    }

    /// The file that this looks into at the server, where its bytes must be.
    pub fn draws_on(&self) -> Option<Fid> {
        match self {
            Self::Find { fid, .. } | Self::Copy { from: fid, .. } => Some(*fid),
            _ => None,
        }
    }
}
