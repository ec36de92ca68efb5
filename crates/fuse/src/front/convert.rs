//! The kernel's words to the client's and back: pure functions, one for each pair. The meaning of
//! node ids is in `nodes`.

use client::front::{Asker, How, Waits};
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags, StatxFlags, XattrFlags};
use wire::{
    Access, Attr, Caller, Filesystem, Kind, Make, Refusal, Set, SetTime, Time, XattrMode,
    file_time, limits,
};

use crate::abi::{self, Kstatfs, SetattrIn, fattr};
use crate::request::{Header, Read, Write};

/// The permission bits, the set-id bits and the sticky bit of a mode.
const MODE_BITS: u32 = 0o7777;
/// The permission bits alone.
const PERMISSION_BITS: u32 = 0o777;
/// The set-user-id and set-group-id bits.
const SET_ID_BITS: u16 = 0o6000;
/// The size in which programs are advised to read and write: standard I/O makes its buffers that
/// large.
const IO_BYTES: u32 = 128 << 10;
/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Unit of what statfs(2) says.
const STATFS_BYTES: u32 = 4096;
/// The kernel opens the file to execute it: the right to read it is not needed. (Its own
/// `__FMODE_EXEC`, which it hands on among the flags of open(2).)
const EXECUTE: u32 = 0x20;

/// Root, which needs no permission.
pub(super) const ROOT: Caller = Caller {
    uid: 0,
    gid: 0,
    groups: None,
};

/// The caller of a request. Further groups do not come with requests: `Tree::asker` looks them up
/// for operations that are compared with them. A write-back by the kernel itself comes without any
/// user.
pub(super) fn asker(header: &Header) -> Asker {
    Asker {
        caller: caller(header),
        thread: header.pid,
        waits: waits(header),
    }
}

/// The waiter for the answer to a request.
fn waits(header: &Header) -> Waits {
    Waits {
        thread: header.pid,
        number: header.unique,
    }
}

/// The front asks, with the rights of root, while this thread waits. That takes no answer in before
/// it has its own, so it is not the one that asks. Nor does a signal that it handles end this.
pub(super) fn inner(thread: u32) -> Asker {
    let waits = Waits { thread, number: 0 };
    Asker {
        waits,
        ..Asker::from(ROOT)
    }
}

fn caller(header: &Header) -> Caller {
    const NOBODY: u32 = u32::MAX;
    if header.uid == NOBODY || header.gid == NOBODY {
        return ROOT;
    }
    Caller {
        uid: header.uid,
        gid: header.gid,
        groups: None,
    }
}

/// The type bits of `st_mode`.
pub(super) fn type_bits(kind: Kind) -> u32 {
    let file_type = match kind {
        Kind::File => FileType::RegularFile,
        // For programs a directory stands there.
        Kind::Directory | Kind::Mount => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Character => FileType::CharacterDevice,
        Kind::Block => FileType::BlockDevice,
    };
    file_type.as_raw_mode()
}

/// Attributes of a node for the kernel.
pub(super) fn attr(nodeid: u64, attr: &Attr) -> abi::Attr {
    let parts = |time: Time| {
        let (seconds, nanoseconds) = file_time::parts(time);
        (seconds as u64, nanoseconds) // signed, in the kernel's words
    };
    let ((atime, atimensec), (mtime, mtimensec)) = (parts(attr.atime), parts(attr.mtime));
    let (ctime, ctimensec) = parts(attr.ctime);
    abi::Attr {
        ino: nodeid,
        size: attr.size,
        blocks: attr.used_bytes.div_ceil(SECTOR_BYTES),
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: type_bits(attr.kind) | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: IO_BYTES,
        flags: 0,
    }
}

/// Attributes with the time of birth, for the kernel.
pub(super) fn statx(nodeid: u64, from: &Attr) -> abi::Statx {
    let basic = attr(nodeid, from);
    let sx_time = |time: Time| {
        let (tv_sec, tv_nsec) = file_time::parts(time);
        abi::SxTime {
            tv_sec,
            tv_nsec,
            reserved: 0,
        }
    };
    abi::Statx {
        mask: (StatxFlags::BASIC_STATS | StatxFlags::BTIME).bits(),
        blksize: basic.blksize,
        nlink: basic.nlink,
        uid: basic.uid,
        gid: basic.gid,
        mode: basic.mode as u16,
        ino: basic.ino,
        size: basic.size,
        blocks: basic.blocks,
        atime: sx_time(from.atime),
        btime: sx_time(from.btime),
        ctime: sx_time(from.ctime),
        mtime: sx_time(from.mtime),
        // As the kernel packs a device number into 32 bits, which is how it came.
        rdev_major: (basic.rdev & 0x000f_ff00) >> 8,
        rdev_minor: (basic.rdev & 0xff) | ((basic.rdev >> 12) & 0x000f_ff00),
        ..abi::Statx::default()
    }
}

/// The mode of a new object, without the type, and the umask, which counts unless the directory has
/// a list that is inherited.
pub(super) const fn new_mode(mode: u32, umask: u32) -> u32 {
    (mode & MODE_BITS) | ((umask & PERMISSION_BITS) << wire::UMASK_SHIFT)
}

/// A mode of the kernel without the type.
pub(super) const fn mode(mode: u32) -> u16 {
    (mode & MODE_BITS) as u16
}

/// Does a write by an ordinary user change this mode?
pub(super) const fn has_set_id(mode: u16) -> bool {
    mode & SET_ID_BITS != 0
}

/// Does it depend on the caller's further groups which set-id bits of this file a write takes?
pub(super) const fn groups_count(caller: &Caller, attr: &Attr) -> bool {
    const SET_GID: u16 = 0o2000;
    const GROUP_EXECUTE: u16 = 0o010;
    attr.mode & (SET_GID | GROUP_EXECUTE) == SET_GID && caller.gid != attr.gid
}

/// A time of the kernel, whose seconds are signed.
fn time(seconds: u64, nanoseconds: u32) -> Time {
    file_time::of(seconds as i64, nanoseconds)
}

/// The attributes that a `SETATTR` sets. Its change time is not looked at: the kernel sends one
/// only when it keeps writes back, which it is not allowed to.
pub(super) fn set(args: &SetattrIn) -> Result<Set, Refusal> {
    let has = |flag: u32| args.valid & flag != 0;
    let moment = |flag: u32, now: u32, exact: Time| match (has(flag), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(exact)),
        (false, false) => None,
    };
    if has(fattr::SIZE) && args.size > limits::FILE_BYTES {
        return Err(Refusal::TooLarge);
    }
    Ok(Set {
        mode: has(fattr::MODE).then(|| mode(args.mode)),
        uid: has(fattr::UID).then_some(args.uid),
        gid: has(fattr::GID).then_some(args.gid),
        size: has(fattr::SIZE).then_some(args.size),
        atime: moment(
            fattr::ATIME,
            fattr::ATIME_NOW,
            time(args.atime, args.atimensec),
        ),
        mtime: moment(
            fattr::MTIME,
            fattr::MTIME_NOW,
            time(args.mtime, args.mtimensec),
        ),
        kill_set_id: has(fattr::KILL_SUIDGID),
    })
}

/// The caller of a `SETATTR`. ftruncate(2) is allowed to a program that has the file open for
/// writing, which the kernel has seen to, whatever the mode says by now.
pub(super) fn set_asker(header: &Header, args: &SetattrIn) -> Asker {
    const FTRUNCATE: u32 = fattr::SIZE | fattr::FH | fattr::LOCKOWNER | fattr::KILL_SUIDGID;
    let needed = fattr::SIZE | fattr::FH;
    if args.valid & needed == needed && args.valid & !FTRUNCATE == 0 {
        return Asker {
            caller: ROOT,
            ..asker(header)
        };
    }
    asker(header)
}

/// How a file is opened. The file handle says it again at each later request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) access: Access,
    pub(super) append: bool,
    /// Tells it apart from all that were ever open.
    pub(super) number: u64,
}

impl Opening {
    const READ: u64 = 1;
    const WRITE: u64 = 2;
    const APPEND: u64 = 4;
    const BITS: u32 = 3;

    /// From the flags of open(2).
    pub(super) fn of(flags: u32) -> Self {
        let mode = flags & OFlags::ACCMODE.bits();
        let write = mode == OFlags::WRONLY.bits() || mode == OFlags::RDWR.bits();
        let read = mode != OFlags::WRONLY.bits() && flags & EXECUTE == 0;
        Self {
            access: Access { read, write },
            append: flags & OFlags::APPEND.bits() != 0,
            number: 0,
        }
    }

    /// The file handle.
    pub(super) fn handle(self) -> u64 {
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        bit(self.access.read, Self::READ)
            | bit(self.access.write, Self::WRITE)
            | bit(self.append, Self::APPEND)
            | self.number << Self::BITS
    }

    /// Reads a file handle.
    pub(super) const fn from_handle(handle: u64) -> Self {
        Self {
            access: Access {
                read: handle & Self::READ != 0,
                write: handle & Self::WRITE != 0,
            },
            append: handle & Self::APPEND != 0,
            number: handle >> Self::BITS,
        }
    }
}

/// The flags in the answer to an open. `FLUSH` is needed for locks only: nothing else happens at
/// close. Parallel direct writes are never allowed: an append relies on the kernel's lock of the
/// inode.
pub(super) const fn open_flags(cached: bool, flush: bool) -> u32 {
    use abi::fopen;
    let flush = if flush { 0 } else { fopen::NOFLUSH };
    if cached {
        fopen::KEEP_CACHE | flush
    } else {
        // No page is locked during a direct write, so that it may wait for other machines.
        fopen::DIRECT_IO | flush
    }
}

/// The source of a write's bytes. A write from the page cache has pages locked; so has every write
/// where opens are silent, since no open was answered as direct.
pub(super) fn how(write: &Write<'_>, silent_opens: bool) -> How {
    if write.from_cache || silent_opens {
        How::Paged
    } else if Opening::of(write.flags).append {
        How::Append
    } else {
        How::Direct
    }
}

/// Is a write to be on stable storage when it is answered (O_DSYNC, O_SYNC, RWF_DSYNC)? The kernel
/// asks for that by itself behind a write from the page cache, and leaves it to us with any other.
pub(super) fn is_stable(write: &Write<'_>, silent_opens: bool) -> bool {
    let paged = how(write, silent_opens) == How::Paged;
    !paged && write.flags & OFlags::DSYNC.bits() != 0
}

/// Is a file open past the page cache, by flags of open(2) or fcntl(2) (O_DIRECT)?
pub(super) fn bypasses_pages(flags: u32) -> bool {
    flags & OFlags::DIRECT.bits() != 0
}

/// May the bytes of a read end up in the page cache? Those reads are of whole pages, and are done
/// for nobody in particular: one that bypasses the page cache says whose locks count for it,
/// whether the descriptor does so by itself (O_DIRECT) or was made to. Mappings of both have pages.
pub(super) fn fills_pages(read: &Read, silent_opens: bool) -> bool {
    let page = limits::BLOCK_BYTES;
    let whole = read.offset.is_multiple_of(u64::from(page)) && read.size.is_multiple_of(page);
    (silent_opens || whole) && read.lock_owner.is_none()
}

/// How many bytes to read: none behind the largest size of a file, where no file has any.
pub(super) fn read_len(offset: u64, size: u32) -> Result<u32, Refusal> {
    if size > limits::BULK_BYTES {
        // A short answer would say that the file ends there.
        return Err(Refusal::Invalid);
    }
    let left = limits::FILE_BYTES.saturating_sub(offset);
    Ok(u64::from(size).min(left) as u32)
}

/// How many bytes to write, if they fit.
pub(super) fn write_len(offset: u64, len: usize) -> Result<u32, Refusal> {
    let len = u32::try_from(len).map_err(|_| Refusal::Invalid)?;
    if len > limits::BULK_BYTES {
        return Err(Refusal::Invalid);
    }
    let end = offset.checked_add(u64::from(len));
    match end.is_some_and(|end| end <= limits::FILE_BYTES) {
        true => Ok(len),
        false => Err(Refusal::TooLarge),
    }
}

/// The object that mknod(2) makes.
pub(super) fn make(mode: u32, rdev: u32) -> Result<Make, Refusal> {
    let node = |kind, rdev| Ok(Make::Node { kind, rdev });
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(Make::File),
        FileType::Fifo => node(Kind::Fifo, 0),
        FileType::Socket => node(Kind::Socket, 0),
        FileType::CharacterDevice => node(Kind::Character, rdev),
        FileType::BlockDevice => node(Kind::Block, rdev),
        _ => Err(Refusal::Invalid),
    }
}

/// The meaning of renameat2(2)'s flags: (not over an existing name, exchange), or both for a
/// whiteout.
pub(super) fn rename_flags(flags: u32) -> Result<(bool, bool), Refusal> {
    match RenameFlags::from_bits_retain(flags) {
        flags if flags.is_empty() => Ok((false, false)),
        RenameFlags::NOREPLACE => Ok((true, false)),
        RenameFlags::EXCHANGE => Ok((false, true)),
        RenameFlags::WHITEOUT => Ok((true, true)),
        _ => Err(Refusal::Invalid),
    }
}

/// The meaning of fallocate(2)'s mode: (zeros, the size stays).
pub(super) fn allocate_mode(mode: u32) -> Result<(bool, bool), Refusal> {
    let mode = FallocateFlags::from_bits_retain(mode);
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    let rest = mode.difference(FallocateFlags::KEEP_SIZE);
    if rest.is_empty() {
        Ok((false, keep_size))
    } else if rest == FallocateFlags::ZERO_RANGE
        || (rest == FallocateFlags::PUNCH_HOLE && keep_size)
    {
        Ok((true, keep_size))
    } else {
        Err(Refusal::NotSupported)
    }
}

/// Does lseek(2) look for a hole, or for what is in none?
pub(super) fn finds_hole(whence: u32) -> Result<bool, Refusal> {
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    match whence {
        SEEK_DATA => Ok(false),
        SEEK_HOLE => Ok(true),
        _ => Err(Refusal::Invalid),
    }
}

/// The meaning of setxattr(2)'s flags.
pub(super) fn xattr_mode(flags: u32) -> Result<XattrMode, Refusal> {
    match XattrFlags::from_bits_retain(flags) {
        flags if flags.is_empty() => Ok(XattrMode::Any),
        XattrFlags::CREATE => Ok(XattrMode::Create),
        XattrFlags::REPLACE => Ok(XattrMode::Replace),
        _ => Err(Refusal::Invalid),
    }
}

/// Numbers of the file system.
pub(super) fn statfs(numbers: &Filesystem) -> Kstatfs {
    let blocks = |bytes: u64| bytes / u64::from(STATFS_BYTES);
    Kstatfs {
        blocks: blocks(numbers.total_bytes),
        bfree: blocks(numbers.free_bytes),
        bavail: blocks(numbers.free_bytes),
        files: numbers.files.saturating_add(numbers.free_files),
        ffree: numbers.free_files,
        bsize: STATFS_BYTES,
        namelen: limits::NAME_BYTES as u32,
        frsize: STATFS_BYTES,
        ..Kstatfs::default()
    }
}

/// The knowledge of a user's right to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// He has it.
    Given,
    /// He has it not.
    Denied,
    /// It depends on groups that only the kernel knows.
    Unknown,
}

/// May the caller open a file with these attributes?
pub(super) fn permission(caller: &Caller, attr: &Attr, access: Access) -> Permission {
    let wanted = if access.read { 4 } else { 0 } | if access.write { 2 } else { 0 };
    let within = |bits: u16| wanted & !bits == 0;
    let (owner, group, others) = (
        within(attr.mode >> 6),
        within(attr.mode >> 3),
        within(attr.mode),
    );
    let given = |yes: bool| match yes {
        true => Permission::Given,
        false => Permission::Denied,
    };
    match caller.uid {
        0 => Permission::Given,
        uid if uid == attr.uid => given(owner),
        _ if caller.gid == attr.gid => given(group),
        _ if group == others => given(group),
        _ => Permission::Unknown,
    }
}

#[cfg(test)]
mod tests;
