//! Every translation, with the cases that a kernel really sends.
#![allow(clippy::unwrap_used, missing_docs)]

use super::*;
use crate::abi::Opcode;

fn header(uid: u32) -> Header {
    Header {
        unique: 1,
        opcode: Opcode::WRITE,
        nodeid: 7,
        uid,
        gid: 5,
        pid: 1,
    }
}

fn file(mode: u16) -> Attr {
    Attr {
        uid: 10,
        gid: 20,
        nlink: 2,
        size: 5000,
        used_bytes: 8192,
        mtime: 2_999_999_999,
        ctime: 0,
        btime: 0,
        version: 3,
        ..Attr::new(Kind::File, mode, 1_000_000_007)
    }
}

#[test]
fn what_the_kernel_asks_by_itself_it_asks_as_root() {
    assert_eq!(caller(&header(u32::MAX)), ROOT);
    let expected = Caller {
        uid: 1000,
        gid: 5,
        groups: None,
    };
    assert_eq!(caller(&header(1000)), expected);
    assert_eq!(asker(&header(1000)).thread, 1);
}

#[test]
fn attributes_are_split_as_the_kernel_wants_them() {
    let attr = attr(9, &file(0o4755));
    assert_eq!(attr.ino, 9);
    assert_eq!(attr.mode, 0o104_755);
    assert_eq!((attr.atime, attr.atimensec), (1, 7));
    assert_eq!((attr.mtime, attr.mtimensec), (2, 999_999_999));
    assert_eq!((attr.blocks, attr.blksize), (16, 131_072));
    assert_eq!((attr.nlink, attr.size), (2, 5000));
}

#[test]
fn only_valid_fields_are_set() {
    assert_eq!(set(&SetattrIn::default()), Ok(Set::default()));
    let args = SetattrIn {
        valid: fattr::MODE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::KILL_SUIDGID,
        mode: 0o100_640,
        atime: 3,
        atimensec: 4,
        mtime: 9,
        size: 77,
        ..SetattrIn::default()
    };
    let expected = Set {
        mode: Some(0o640),
        atime: Some(SetTime::To(3_000_000_004)),
        mtime: Some(SetTime::Now),
        kill_set_id: true,
        ..Set::default()
    };
    assert_eq!(set(&args), Ok(expected));
}

#[test]
fn times_that_cannot_be_said_are_bounded() {
    for (seconds, ns) in [
        (0, 0),
        (7, 9),
        (-1, 999_999_999),
        (-5, 3),
        (-(1 << 31), 0),
        (1 << 33, 1),
    ] {
        assert_eq!(file_time::parts(time(seconds as u64, ns)), (seconds, ns));
    }
    assert_eq!(file_time::parts(time(i64::MIN as u64, 3)), (-(1 << 31), 0));
    assert!(file_time::parts(time(i64::MAX as u64, 3)).0 > 1 << 33);
}

#[test]
fn a_size_beyond_the_largest_is_refused() {
    let args = |size| SetattrIn {
        valid: fattr::SIZE,
        size,
        ..SetattrIn::default()
    };
    assert_eq!(set(&args(limits::FILE_BYTES)).unwrap().size, Some(1 << 50));
    let refused = set(&args(limits::FILE_BYTES + 1));
    assert_eq!(refused, Err(Refusal::TooLarge));
}

#[test]
fn an_open_file_may_be_cut_whatever_its_mode() {
    let args = |valid| SetattrIn {
        valid,
        ..SetattrIn::default()
    };
    let by_fd = args(fattr::SIZE | fattr::FH | fattr::LOCKOWNER);
    assert_eq!(set_asker(&header(1000), &by_fd).caller, ROOT);
    for valid in [
        fattr::SIZE,
        fattr::FH,
        fattr::SIZE | fattr::FH | fattr::MODE,
    ] {
        assert_eq!(set_asker(&header(1000), &args(valid)).caller.uid, 1000);
    }
}

#[test]
fn a_file_handle_says_how_the_file_was_opened() {
    for (flags, read, write, append) in [
        (OFlags::RDONLY.bits(), true, false, false),
        (OFlags::RDONLY.bits() | EXECUTE, false, false, false),
        (OFlags::WRONLY.bits(), false, true, false),
        ((OFlags::RDWR | OFlags::APPEND).bits(), true, true, true),
    ] {
        let number = u64::from(flags) << 40;
        let opening = Opening {
            number,
            ..Opening::of(flags)
        };
        let access = Access { read, write };
        assert_eq!(
            (opening.access, opening.append),
            (access, append),
            "{flags:#x}"
        );
        assert_eq!(Opening::from_handle(opening.handle()), opening);
    }
}

#[test]
fn direct_is_what_may_not_be_cached() {
    use abi::fopen;
    for (cached, flush) in [(true, false), (false, true), (true, true), (false, false)] {
        let flags = open_flags(cached, flush);
        assert_eq!(flags & fopen::KEEP_CACHE != 0, cached);
        assert_eq!(flags & fopen::DIRECT_IO != 0, !cached);
        assert_eq!(flags & fopen::NOFLUSH == 0, flush);
        assert_eq!(flags & fopen::PARALLEL_DIRECT_WRITES, 0);
    }
}

#[test]
fn a_write_knows_whether_pages_are_locked() {
    let write = |flags: OFlags, from_cache| Write {
        fh: 0,
        offset: 0,
        data: &[],
        flags: flags.bits(),
        lock_owner: None,
        from_cache,
        kill_suidgid: false,
    };
    let append = OFlags::WRONLY | OFlags::APPEND;
    assert_eq!(how(&write(OFlags::RDWR, false), false), How::Direct);
    assert_eq!(how(&write(append, false), false), How::Append);
    assert_eq!(how(&write(append, true), false), How::Paged);
    assert_eq!(how(&write(append, false), true), How::Paged);
}

#[test]
fn reads_of_whole_pages_may_be_kept() {
    let read = |offset, size, flags: OFlags| Read {
        fh: 0,
        offset,
        size,
        flags: flags.bits(),
        lock_owner: None,
    };
    let plain = |offset, size| read(offset, size, OFlags::RDONLY);
    assert!(fills_pages(&plain(0, 4096), false));
    assert!(fills_pages(&plain(1 << 20, 128 << 10), false));
    assert!(!fills_pages(&plain(0, 100), false));
    assert!(!fills_pages(&plain(100, 4096), false));
    assert!(fills_pages(&plain(100, 1), true));
    // A direct read locks no page, and puts nothing into one.
    for flags in [OFlags::RDWR, OFlags::RDONLY | OFlags::DIRECT] {
        let mapped = read(0, 4096, flags);
        let direct = Read {
            lock_owner: Some(7),
            ..mapped
        };
        assert!(fills_pages(&mapped, false));
        assert!(!fills_pages(&direct, false));
        assert!(!fills_pages(&direct, true));
    }
}

#[test]
fn no_span_reaches_beyond_the_largest_file() {
    assert_eq!(read_len(0, 1 << 20), Ok(1 << 20));
    assert_eq!(read_len(0, (1 << 20) + 1), Err(Refusal::Invalid));
    assert_eq!(read_len(limits::FILE_BYTES - 10, 4096), Ok(10));
    assert_eq!(read_len(u64::MAX, 4096), Ok(0));
    assert_eq!(write_len(limits::FILE_BYTES - 10, 10), Ok(10));
    for offset in [limits::FILE_BYTES - 10, u64::MAX] {
        assert_eq!(write_len(offset, 11), Err(Refusal::TooLarge));
    }
    assert_eq!(write_len(0, (1 << 20) + 1), Err(Refusal::Invalid));
}

#[test]
fn only_known_flags_and_kinds_are_accepted() {
    assert_eq!(rename_flags(0), Ok((false, false)));
    assert_eq!(rename_flags(1), Ok((true, false)));
    assert_eq!(rename_flags(2), Ok((false, true)));
    assert_eq!(rename_flags(4), Ok((true, true)));
    for flags in [3, 5, 6, 8] {
        assert_eq!(rename_flags(flags), Err(Refusal::Invalid));
    }
    assert_eq!(xattr_mode(0), Ok(XattrMode::Any));
    assert_eq!(xattr_mode(1), Ok(XattrMode::Create));
    assert_eq!(xattr_mode(2), Ok(XattrMode::Replace));
    assert_eq!(xattr_mode(3), Err(Refusal::Invalid));
    assert_eq!(make(0o100_644, 0), Ok(Make::File));
    let device = Make::Node {
        kind: Kind::Character,
        rdev: 0x103,
    };
    assert_eq!(make(0o020_600, 0x103), Ok(device));
    let fifo = Make::Node {
        kind: Kind::Fifo,
        rdev: 0,
    };
    assert_eq!(make(0o010_600, 0x103), Ok(fifo));
    assert_eq!(make(0o040_755, 0), Err(Refusal::Invalid));
}

#[test]
fn the_kernel_is_asked_where_groups_decide() {
    let read = Access {
        read: true,
        write: false,
    };
    let who = |uid, gid| Caller {
        uid,
        gid,
        groups: None,
    };
    let check = |uid, gid, mode| permission(&who(uid, gid), &file(mode), read);
    assert_eq!(check(0, 0, 0), Permission::Given);
    assert_eq!(check(10, 99, 0o400), Permission::Given);
    assert_eq!(check(10, 20, 0o077), Permission::Denied);
    assert_eq!(check(11, 20, 0o040), Permission::Given);
    assert_eq!(check(11, 20, 0o004), Permission::Denied);
    assert_eq!(check(11, 21, 0o044), Permission::Given);
    assert_eq!(check(11, 21, 0o700), Permission::Denied);
    assert_eq!(check(11, 21, 0o004), Permission::Unknown);
    assert_eq!(check(11, 21, 0o040), Permission::Unknown);
}

#[test]
fn sizes_of_the_file_system_are_counted_in_blocks() {
    let numbers = Filesystem {
        total_bytes: 1 << 30,
        free_bytes: (1 << 20) + 5,
        files: 3,
        free_files: 7,
    };
    let out = statfs(&numbers);
    assert_eq!((out.blocks, out.bfree, out.bavail), (1 << 18, 256, 256));
    assert_eq!((out.files, out.ffree), (10, 7));
    assert_eq!((out.bsize, out.frsize, out.namelen), (4096, 4096, 255));
}
