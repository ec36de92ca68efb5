//! overlayfs, as containers' storage uses it, with its upper and work directory on a mount.

use crate::harness::process::{shell, shell_ok, text};
use crate::harness::{Cell, Scratch, has_program, real_system, skipped};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A merged directory, unmounted at its end.
struct Merged(PathBuf);

impl Merged {
    fn new(at: &Path, lower: &Path, upper: &Path, work: &Path) -> rustix::io::Result<Self> {
        let [lower, upper, work] = [lower, upper, work].map(|path| path.display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let options = CString::new(options).unwrap();
        mount(
            "overlay",
            at,
            "overlay",
            MountFlags::empty(),
            options.as_c_str(),
        )?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

const LOWER: &str = "mkdir -p dir/sub gone opaque && echo a >dir/a && echo b >dir/sub/b && \
    echo c >gone/c && echo d >opaque/d && echo e >e && echo f >f && echo g >g && ln -s e link";
/// The changes that are made in the merged directory.
const WORK: &str = "echo new >new && mkdir made && echo in >made/in && rm e && echo more >>f && \
    mv g h && mv dir/a dir/z && rm -r gone && rm -r opaque && mkdir opaque && echo o >opaque/o && \
    mv made moved && chmod 640 dir/sub/b && ln f hard && mkfifo pipe && echo over >t && mv t h && \
    setfattr -n user.x -v y f && rm link && ln -s f link && mkdir gone && rmdir gone";
const SHOW: &str = "find . -printf '%P %M %s %l\\n' | \
    sed 's/^\\(.* d[^ ]*\\) [0-9]*/\\1/' | sort && \
    find . -type f -exec md5sum {} + | sort && getfattr -d f";

#[test]
fn an_upper_directory_on_a_mount_does_what_one_on_the_local_disk_does() {
    if !real_system("overlay") {
        return;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.contains("overlay") && !shell(Path::new("/"), "modprobe overlay").status.success() {
        return skipped("overlay", "the kernel has no overlayfs");
    }
    if !has_program("overlay", "setfattr") {
        return;
    }
    let Some(cell) = Cell::start("overlay") else {
        return;
    };
    let (mounted, other) = (cell.mount(), cell.mount());
    let plain = Scratch::new("overlay-plain");
    let tmpfs = CString::new("size=64m").unwrap();
    let local = plain.dir("local");
    // The local disk of the test may be an overlay itself, which cannot be an upper directory.
    mount(
        "tmpfs",
        &local,
        "tmpfs",
        MountFlags::empty(),
        tmpfs.as_c_str(),
    )
    .unwrap();
    let local = Merged(local);
    let mut shown = Vec::new();
    for place in [mounted.path(), &local.0] {
        let lower = plain.dir(&format!("lower{}", shown.len()));
        let at = plain.dir(&format!("merged{}", shown.len()));
        shell_ok(&lower, LOWER);
        for name in ["upper", "work"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        let start = || Merged::new(&at, &lower, &place.join("upper"), &place.join("work"));
        let merged = start().unwrap();
        let done = shell(&at, WORK);
        assert!(done.status.success(), "{}", text(&done));
        let first = shell_ok(&at, SHOW);
        drop(merged);
        let again = start().unwrap();
        assert_eq!(shell_ok(&at, SHOW), first, "after mounting it again");
        drop(again);
        shown.push(first);
    }
    assert_eq!(shown[0], shown[1]);
    // A whiteout, which hides a name of the lower directory, is seen as such on another mount.
    let whiteout = fs::metadata(other.join("upper/e")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
}

#[test]
fn a_rename_leaves_a_whiteout() {
    let Some(cell) = Cell::start("whiteout") else {
        return;
    };
    let (one, other) = (cell.mount(), cell.mount());
    for round in 0..3 {
        let (old, new) = (one.join("old"), one.join("new"));
        fs::write(&old, b"bytes").unwrap();
        if round == 1 {
            assert_eq!(fs::read(other.join("old")).unwrap(), b"bytes");
            assert!(fs::metadata(other.join("new")).is_err());
        }
        if round == 2 {
            fs::write(&new, b"replaced").unwrap();
        }
        renameat_with(CWD, &old, CWD, &new, RenameFlags::WHITEOUT).unwrap();
        for side in [&one, &other] {
            let left = fs::metadata(side.join("old")).unwrap();
            assert!(left.file_type().is_char_device() && left.rdev() == 0);
            assert_eq!(fs::read(side.join("new")).unwrap(), b"bytes");
        }
        let listed: Vec<_> = fs::read_dir(one.path()).unwrap().collect();
        assert_eq!(listed.len(), 2);
        fs::remove_file(&old).unwrap();
        fs::remove_file(other.join("new")).unwrap();
        assert!(fs::metadata(other.join("old")).is_err());
    }
}
