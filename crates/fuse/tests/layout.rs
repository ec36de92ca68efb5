//! The structures are those of the kernel: sizes and the offset of every field, checked against
//! the C compiler and the installed `linux/fuse.h` for what that header knows.
#![allow(clippy::unwrap_used, missing_docs)]

use std::mem::offset_of;
use std::process::Command;

use ariel_fuse::abi::*;

struct Structure {
    c: &'static str,
    size: usize,
    /// Name in C and offset here, of each field in use.
    fields: &'static [(&'static str, usize)],
}

macro_rules! c_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $member:literal) => {
        $member
    };
}

macro_rules! table {
    ($($rust:ident = $c:literal { $($field:ident $(as $member:literal)?),* $(,)? })*) => {
        &[$(Structure {
            c: $c,
            size: size_of::<$rust>(),
            fields: &[$((c_name!($field $($member)?), offset_of!($rust, $field))),*],
        }),*]
    };
}

/// Every structure the oldest header in use (7.38) knows, with its name in C.
const STRUCTURES: &[Structure] = table! {
    InHeader = "fuse_in_header" { len, opcode, unique, nodeid, uid, gid, pid, total_extlen }
    OutHeader = "fuse_out_header" { len, error, unique }
    Attr = "fuse_attr" {
        ino, size, blocks, atime, mtime, ctime, atimensec, mtimensec, ctimensec, mode,
        nlink, uid, gid, rdev, blksize, flags,
    }
    Kstatfs = "fuse_kstatfs" { blocks, bfree, bavail, files, ffree, bsize, namelen, frsize }
    FileLock = "fuse_file_lock" { start, end, kind as "type", pid }
    EntryOut = "fuse_entry_out" {
        nodeid, generation, entry_valid, attr_valid, entry_valid_nsec, attr_valid_nsec,
        attr,
    }
    AttrOut = "fuse_attr_out" { attr_valid, attr_valid_nsec, attr }
    ForgetIn = "fuse_forget_in" { nlookup }
    ForgetOne = "fuse_forget_one" { nodeid, nlookup }
    BatchForgetIn = "fuse_batch_forget_in" { count }
    GetattrIn = "fuse_getattr_in" { getattr_flags, fh }
    MknodIn = "fuse_mknod_in" { mode, rdev, umask }
    MkdirIn = "fuse_mkdir_in" { mode, umask }
    RenameIn = "fuse_rename_in" { newdir }
    Rename2In = "fuse_rename2_in" { newdir, flags }
    LinkIn = "fuse_link_in" { oldnodeid }
    SetattrIn = "fuse_setattr_in" {
        valid, fh, size, lock_owner, atime, mtime, ctime, atimensec, mtimensec, ctimensec,
        mode, uid, gid,
    }
    OpenIn = "fuse_open_in" { flags, open_flags }
    CreateIn = "fuse_create_in" { flags, mode, umask, open_flags }
    OpenOut = "fuse_open_out" { fh, open_flags }
    ReleaseIn = "fuse_release_in" { fh, flags, release_flags, lock_owner }
    FlushIn = "fuse_flush_in" { fh, lock_owner }
    ReadIn = "fuse_read_in" { fh, offset, size, read_flags, lock_owner, flags }
    WriteIn = "fuse_write_in" { fh, offset, size, write_flags, lock_owner, flags, padding }
    WriteOut = "fuse_write_out" { size }
    FsyncIn = "fuse_fsync_in" { fh, fsync_flags }
    SetxattrIn = "fuse_setxattr_in" { size, flags, setxattr_flags }
    GetxattrIn = "fuse_getxattr_in" { size }
    GetxattrOut = "fuse_getxattr_out" { size }
    LkIn = "fuse_lk_in" { fh, owner, lk, lk_flags, padding }
    LkOut = "fuse_lk_out" { lk }
    AccessIn = "fuse_access_in" { mask }
    InitIn = "fuse_init_in" { major, minor, max_readahead, flags, flags2 }
    InitOut = "fuse_init_out" {
        major, minor, max_readahead, flags, max_background, congestion_threshold, max_write,
        time_gran, max_pages, map_alignment, flags2,
    }
    InterruptIn = "fuse_interrupt_in" { unique }
    BmapIn = "fuse_bmap_in" { block, blocksize }
    BmapOut = "fuse_bmap_out" { block }
    IoctlIn = "fuse_ioctl_in" { fh, flags, cmd, arg, in_size, out_size }
    IoctlOut = "fuse_ioctl_out" { result, flags, in_iovs, out_iovs }
    PollIn = "fuse_poll_in" { fh, kh, flags, events }
    PollOut = "fuse_poll_out" { revents }
    FallocateIn = "fuse_fallocate_in" { fh, offset, length, mode, padding }
    LseekIn = "fuse_lseek_in" { fh, offset, whence }
    LseekOut = "fuse_lseek_out" { offset }
    CopyFileRangeIn = "fuse_copy_file_range_in" {
        fh_in, off_in, nodeid_out, fh_out, off_out, len, flags,
    }
    SyncfsIn = "fuse_syncfs_in" {  }
    Dirent = "fuse_dirent" { ino, off, namelen, kind as "type" }
    Direntplus = "fuse_direntplus" { entry as "entry_out", dirent }
    StoreOut = "fuse_notify_store_out" { nodeid, offset, size, padding }
    InvalInodeOut = "fuse_notify_inval_inode_out" { nodeid as "ino", offset as "off", len }
    InvalEntryOut = "fuse_notify_inval_entry_out" { parent, namelen, flags }
};

fn program() -> String {
    let mut text = String::from("#include <stddef.h>\n#include <linux/fuse.h>\n");
    for Structure { c, size, fields } in STRUCTURES {
        text.push_str(&format!(
            "_Static_assert(sizeof(struct {c}) == {size}, \"{c}\");\n"
        ));
        for (name, offset) in *fields {
            text.push_str(&format!(
                "_Static_assert(offsetof(struct {c}, {name}) == {offset}, \"{c}.{name}\");\n"
            ));
        }
    }
    for (name, value) in [
        ("FUSE_HANDLE_KILLPRIV_V2", init::HANDLE_KILLPRIV_V2),
        ("FUSE_EXPLICIT_INVAL_DATA", init::EXPLICIT_INVAL_DATA),
        ("FUSE_HAS_EXPIRE_ONLY", init::HAS_EXPIRE_ONLY),
        ("FUSE_NO_OPENDIR_SUPPORT", init::NO_OPENDIR_SUPPORT),
        ("FUSE_SETXATTR_EXT", init::SETXATTR_EXT),
        ("FUSE_INIT_EXT", init::INIT_EXT),
    ] {
        text.push_str(&format!(
            "_Static_assert({name} == {value}ULL, \"{name}\");\n"
        ));
    }
    for opcode in Opcode::ALL
        .iter()
        .filter(|opcode| opcode.0 <= Opcode::TMPFILE.0)
    {
        let (name, value) = (opcode.name(), opcode.0);
        text.push_str(&format!(
            "_Static_assert(FUSE_{name} == {value}, \"{name}\");\n"
        ));
    }
    text
}

#[test]
fn structures_are_the_kernels() {
    if !std::path::Path::new("/usr/include/linux/fuse.h").exists() {
        println!("SKIPPED: no /usr/include/linux/fuse.h (package linux-libc-dev)");
        assert!(std::env::var_os("CI").is_none(), "CI needs linux-libc-dev");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("layout.c");
    std::fs::write(&source, program()).unwrap();
    let output = Command::new("cc")
        .args(["-fsyntax-only", "-std=c11"])
        .arg(&source)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Sizes of what came after that header, from the kernel's sources of 7.39 to 7.45.
#[test]
fn younger_structures_have_their_sizes() {
    assert_eq!(size_of::<Statx>(), 256);
    assert_eq!(size_of::<StatxIn>(), 24);
    assert_eq!(size_of::<StatxOut>(), 288);
    assert_eq!(offset_of!(Statx, ino), 32);
    assert_eq!(offset_of!(Statx, btime), 80);
    assert_eq!(offset_of!(Statx, rdev_major), 128);
    assert_eq!(size_of::<CopyFileRangeOut>(), 8);
    assert_eq!(offset_of!(InitOut, flags2), 32);
    assert_eq!(offset_of!(InitOut, request_timeout), 40);
    assert_eq!((notify::INC_EPOCH, notify::EXPIRE_ONLY), (8, 1));
    assert_eq!(Opcode::COPY_FILE_RANGE_64.0, 53);
}
