//! Ordinary operations, second part: attributes, rights of other users, names, listings, extended
//! attributes, mappings, and names of things that are no files.

use crate::basics::{Notes, same};
use crate::harness::process::shell;
use crate::harness::{Cell, Random, run, scratch::set_mode, text};
use rustix::fs::{AtFlags, StatxFlags, Timespec, Timestamps, setxattr, statx, utimensat};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, listxattr, mknodat, removexattr};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn modes_and_owners() {
    same("modes", |dir, notes| {
        let (file, sub) = (dir.join("file"), dir.join("sub"));
        fs::write(&file, b"x").unwrap();
        fs::create_dir(&sub).unwrap();
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        for mode in [0o777, 0o000, 0o4755, 0o2755, 0o1777, 0o6711, 0o640] {
            for path in [&file, &sub] {
                set_mode(path, mode);
                notes.attributes(path);
            }
        }
        for (uid, gid) in [(Some(1), Some(2)), (Some(1000), None), (None, Some(77))] {
            set_mode(&file, 0o6755);
            notes.did("chown", chown(&file, uid, gid));
            notes.attributes(&file);
        }
        notes.did("lchown", lchown(dir.join("link"), Some(9), Some(8)));
        notes.attributes(&dir.join("link"));
        notes.did("chown of nothing", chown(dir.join("none"), Some(1), None));
        // A directory's group goes to what is made in it when the directory is set-group-id.
        chown(&sub, None, Some(55)).unwrap();
        set_mode(&sub, 0o2775);
        fs::write(sub.join("f"), b"").unwrap();
        fs::create_dir(sub.join("d")).unwrap();
        notes.attributes(&sub.join("f"));
        notes.attributes(&sub.join("d"));
        notes.attributes(dir);
    });
}

#[test]
fn times_to_the_nanosecond() {
    same("times", |dir, notes| {
        let file = dir.join("file");
        fs::write(&file, b"x").unwrap();
        for (path, seconds, nanos) in [
            (&file, 1, 1),
            (&file, 1_700_000_000, 999_999_999),
            (&file, -2, 999_999_999),
            (&file, -315_593_940, 1),
            (&file, -2_000_000_000, 500),
        ] {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: seconds,
                    tv_nsec: nanos,
                },
                last_modification: Timespec {
                    tv_sec: seconds + 5,
                    tv_nsec: nanos - 1,
                },
            };
            notes.did("utimens", utimensat(CWD, path, &times, AtFlags::empty()));
            let m = fs::metadata(path).unwrap();
            notes.value("mtime", (m.mtime(), m.mtime_nsec()));
            notes.value("atime", (m.atime(), m.atime_nsec()));
        }
        let before = fs::metadata(&file).unwrap();
        fs::write(&file, b"newer").unwrap();
        let after = fs::metadata(&file).unwrap();
        notes.value("a write moves mtime", after.mtime() > before.mtime());
        let later = (after.ctime(), after.ctime_nsec()) >= (before.ctime(), before.ctime_nsec());
        notes.value("ctime does not run backwards", later);
        let old = Timestamps {
            last_access: Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            },
            last_modification: Timespec {
                tv_sec: 10,
                tv_nsec: 0,
            },
        };
        utimensat(CWD, dir, &old, AtFlags::empty()).unwrap();
        notes.value("directory's mtime", fs::metadata(dir).unwrap().mtime());
        fs::write(dir.join("another"), b"").unwrap();
        notes.value("a name moves it", fs::metadata(dir).unwrap().mtime() > 10);
        let seen = statx(CWD, &file, AtFlags::empty(), StatxFlags::BASIC_STATS).unwrap();
        notes.value("statx", (seen.stx_size, seen.stx_nlink, seen.stx_mode));
    });
}

/// Runs a line of shell as an ordinary user and notes how it ended and what it complained of.
fn as_user(dir: &Path, notes: &mut Notes, line: &str) {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", line])
        .current_dir(dir)
        .env("LC_ALL", "C")
        .uid(12_345)
        .gid(23_456);
    let output = run(&mut command);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    // Only the reason: paths differ.
    let reason = err.trim_end().rsplit(": ").next().unwrap_or("").to_owned();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    notes.value(line, (output.status.code(), out, reason));
}

#[test]
fn rights_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        crate::harness::skipped("rights", "acting as another user needs root");
        return;
    }
    same("rights", |dir, notes| {
        let make = |name: &str, mode, owner: (u32, u32)| {
            fs::write(dir.join(name), b"content\n").unwrap();
            chown(dir.join(name), Some(owner.0), Some(owner.1)).unwrap();
            set_mode(&dir.join(name), mode);
        };
        let (me, my_group, root) = ((12_345, 0), (0, 23_456), (0, 0));
        for (name, mode, owner) in [
            ("secret", 0o600, root),
            ("public", 0o644, root),
            ("mine", 0o400, me),
            ("ours", 0o060, my_group),
            ("others", 0o006, root),
            ("not-ours", 0o606, my_group),
            ("program", 0o644, me),
        ] {
            make(name, mode, owner);
            as_user(dir, notes, &format!("cat {name}"));
            as_user(dir, notes, &format!("echo more >> {name}"));
            as_user(dir, notes, &format!("./{name}"));
            as_user(dir, notes, &format!("chmod 777 {name}"));
            as_user(dir, notes, &format!("chown 0 {name}"));
            as_user(dir, notes, &format!("touch -d 2001-01-01 {name}"));
        }
        for (name, mode) in [
            ("closed", 0o700),
            ("list", 0o744),
            ("pass", 0o711),
            ("open", 0o777),
        ] {
            fs::create_dir(dir.join(name)).unwrap();
            fs::write(dir.join(name).join("file"), b"x").unwrap();
            set_mode(&dir.join(name), mode);
            for line in [
                "ls D",
                "cat D/file",
                "echo x > D/new",
                "rm -f D/file",
                "mkdir D/d",
            ] {
                as_user(dir, notes, &line.replace('D', name));
            }
        }
        // The sticky bit: only the owner removes.
        set_mode(&dir.join("open"), 0o1777);
        fs::write(dir.join("open/roots"), b"x").unwrap();
        as_user(dir, notes, "rm -f open/roots");
        as_user(dir, notes, "mv open/roots open/taken");
        as_user(dir, notes, "echo x > open/own; rm -f open/own; ls open");
        as_user(
            dir,
            notes,
            "umask 027; mkdir open/u; echo x > open/u/f; stat -c '%a %u %g' open/u/f",
        );
        // A write by an ordinary user takes set-user-id away.
        make("setuid", 0o6777, root);
        as_user(dir, notes, "echo x >> setuid; stat -c '%a' setuid");
    });
}

#[test]
fn names_of_every_kind_and_length() {
    same("names", |dir, notes| {
        let longest = "n".repeat(255);
        for name in [
            "with space",
            "tab\there",
            "line\nbreak",
            "ünïcödé",
            "-dash",
            "...",
            "a\\b",
            "%s",
            &longest,
        ] {
            notes.did("write", fs::write(dir.join(name), name));
            notes.file(&dir.join(name));
        }
        use std::os::unix::ffi::OsStrExt;
        let bytes = std::ffi::OsStr::from_bytes(b"\xff\xfe no text");
        notes.did("a name that is not text", fs::write(dir.join(bytes), b"x"));
        let too_long = "n".repeat(256);
        notes.did("256 bytes", fs::write(dir.join(&too_long), b"x"));
        notes.did("stat of 256 bytes", fs::metadata(dir.join(&too_long)));
        notes.did("mkdir of 256 bytes", fs::create_dir(dir.join(&too_long)));
        notes.did(
            "rename to it",
            fs::rename(dir.join("%s"), dir.join(&too_long)),
        );
        notes.did(
            "path of 5,000 bytes",
            fs::metadata(dir.join("x/".repeat(2_500))),
        );
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        notes.value("listing", names);
        let mut deep = dir.to_owned();
        for depth in 0..60 {
            deep.push(format!("d{depth}"));
        }
        notes.did("60 levels", fs::create_dir_all(&deep));
        notes.did("a file below", fs::write(deep.join("leaf"), b"deep"));
        notes.file(&deep.join("leaf"));
    });
}

#[test]
fn a_directory_of_5000_entries() {
    same("large-directory", |dir, notes| {
        let list = |notes: &mut Notes| {
            let mut names = Vec::new();
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                names.push((entry.file_name(), entry.file_type().unwrap().is_dir()));
            }
            names.sort();
            let copies = names.windows(2).filter(|pair| pair[0] == pair[1]).count();
            notes.value("entries, listed twice", (names.len(), copies));
            notes.bytes("names", format!("{names:?}").as_bytes());
        };
        for n in 0..5_000 {
            let path = dir.join(format!("entry-{n:05}"));
            if n % 50 == 0 {
                fs::create_dir(path).unwrap()
            } else {
                fs::write(path, b"").unwrap()
            }
        }
        list(notes);
        // Removing while listing: nothing that stays is missed.
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().ends_with('7') {
                fs::remove_file(path).unwrap();
            }
        }
        list(notes);
        let output = shell(dir, "ls -f | wc -l; ls -l | wc -l; find . -type d | wc -l");
        notes.value(
            "ls and find",
            String::from_utf8_lossy(&output.stdout).into_owned(),
        );
    });
}

#[test]
fn extended_attributes() {
    same("xattrs", |dir, notes| {
        let file = dir.join("file");
        fs::write(&file, b"x").unwrap();
        let get = |notes: &mut Notes, path: &Path, name: &str| {
            let mut value = vec![0; 70_000];
            let got = getxattr(path, name, &mut value[..]);
            notes.note(name, got.map(|n| record_of(&value[..n])));
        };
        for path in [file.as_path(), dir] {
            for (name, len) in [("user.one", 3), ("user.two", 0), ("trusted.three", 2_000)] {
                let set = setxattr(path, name, &Random(9).bytes(len), XattrFlags::empty());
                notes.did("set", set);
                get(notes, path, name);
            }
            notes.did(
                "create",
                setxattr(path, "user.one", b"x", XattrFlags::CREATE),
            );
            notes.did(
                "replace",
                setxattr(path, "user.none", b"x", XattrFlags::REPLACE),
            );
            notes.did(
                "replace",
                setxattr(path, "user.one", b"replaced", XattrFlags::REPLACE),
            );
            get(notes, path, "user.one");
            get(notes, path, "user.none");
            let mut list = vec![0; 4096];
            let n = listxattr(path, &mut list[..]).unwrap();
            let mut names: Vec<_> = list[..n].split(|b| *b == 0).map(<[u8]>::to_vec).collect();
            names.sort();
            notes.value("list", names);
            notes.did("remove", removexattr(path, "user.one"));
            notes.did("again", removexattr(path, "user.one"));
            let mut small = [0; 2];
            notes.did(
                "a small buffer",
                getxattr(path, "trusted.three", &mut small[..]),
            );
            notes.did(
                "no such space",
                setxattr(path, "nothing.x", b"x", XattrFlags::empty()),
            );
        }
    });
}

fn record_of(bytes: &[u8]) -> (usize, u64) {
    (bytes.len(), crate::harness::record::sum(bytes))
}

#[test]
fn fifos_sockets_and_devices() {
    same("special", |dir, notes| {
        let fifo = dir.join("fifo");
        let mode = Mode::from_raw_mode(0o640);
        notes.did("fifo", mknodat(CWD, &fifo, FileType::Fifo, mode, 0));
        notes.attributes(&fifo);
        notes.did("again", mknodat(CWD, &fifo, FileType::Fifo, mode, 0));
        let moved = shell(dir, "(echo through a fifo > fifo &); cat fifo");
        notes.value(
            "bytes through it",
            String::from_utf8_lossy(&moved.stdout).into_owned(),
        );
        let device = rustix::fs::makedev(1, 3);
        notes.did(
            "device",
            mknodat(
                CWD,
                dir.join("null"),
                FileType::CharacterDevice,
                mode,
                device,
            ),
        );
        notes.attributes(&dir.join("null"));
        let block = mknodat(
            CWD,
            dir.join("block"),
            FileType::BlockDevice,
            mode,
            0x1234_5678,
        );
        notes.did("block device", block);
        notes.attributes(&dir.join("block"));
        notes.did(
            "a plain file by mknod",
            mknodat(CWD, dir.join("f"), FileType::RegularFile, mode, 0),
        );
        notes.attributes(&dir.join("f"));
        // The path is short here: a socket's name has 108 bytes at most.
        let bound = shell(
            dir,
            "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock'); \
             s.listen(); c = socket.socket(socket.AF_UNIX); c.connect('sock'); \
             print('connected')\"",
        );
        notes.value(
            "socket",
            String::from_utf8_lossy(&bound.stdout).into_owned(),
        );
        notes.note(
            "is a socket",
            fs::symlink_metadata(dir.join("sock")).map(|m| m.mode() & 0o170000),
        );
        notes.did("rename of a fifo", fs::rename(&fifo, dir.join("fifo2")));
        notes.did("unlink of it", fs::remove_file(dir.join("fifo2")));
    });
}

#[test]
fn mapped_files_and_programs() {
    same("mapped", |dir, notes| {
        fs::write(dir.join("data"), Random(3).bytes(100_000)).unwrap();
        let script = "import mmap, zlib\n\
            f = open('data', 'r+b')\n\
            r = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\n\
            p = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=3)\n\
            p[5:8] = b'xyz'\n\
            print(zlib.crc32(r), zlib.crc32(p), r[5:8] != p[5:8])\n\
            w = mmap.mmap(f.fileno(), 0)\n\
            w[50000:50004] = b'mark'\n\
            w.flush()\n\
            print(open('data', 'rb').read()[50000:50004], r[50000:50004])\n";
        fs::write(dir.join("map.py"), script).unwrap();
        let output = shell(dir, "python3 map.py 2>&1");
        notes.value(
            "python",
            String::from_utf8_lossy(&output.stdout).into_owned(),
        );
        notes.file(&dir.join("data"));
        // A program is mapped too.
        let ran = shell(
            dir,
            "cp /bin/true prog && ./prog && chmod 644 prog && ./prog; echo $?",
        );
        notes.value("program", String::from_utf8_lossy(&ran.stdout).into_owned());
    });
}

/// A new name comes behind all others: a program that renames what it lists must not meet it again
/// for ever.
#[test]
fn renaming_what_is_listed_comes_to_an_end() {
    let Some(cell) = Cell::start("renamed-listing") else {
        return;
    };
    let mount = cell.mount();
    const FILES: usize = 1_500; // more than a program reads at once
    for n in 0..FILES {
        fs::write(mount.join(&format!("entry-with-a-long-name-{n:05}")), b"").unwrap();
    }
    let mut met = 0;
    for entry in fs::read_dir(mount.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, path.with_extension(format!("renamed-{met}"))).unwrap();
        met += 1;
        assert!(met <= 2 * FILES, "the listing goes on behind its end");
    }
    assert!(met >= FILES, "{met} of {FILES} names were listed");
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), FILES);
}

#[test]
fn statfs_is_plausible() {
    let Some(cell) = Cell::start("statfs") else {
        return;
    };
    let mount = cell.mount();
    fs::write(mount.join("file"), b"x").unwrap();
    let seen = rustix::fs::statvfs(mount.path()).unwrap();
    let (all, free) = (seen.f_blocks, seen.f_bavail);
    assert!(all > 0 && free <= all, "{free} blocks free of {all}");
    let (block, longest) = (seen.f_bsize, seen.f_namemax);
    assert!(
        block >= 512 && longest == 255,
        "blocks of {block}, names of {longest}"
    );
    let output = shell(mount.path(), "df .");
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn fsync_of_files_and_directories() {
    same("fsync", |dir, notes| {
        for n in 0..20 {
            let file = File::create(dir.join(format!("f{n}"))).unwrap();
            file.write_all_at(&Random(n).bytes(10_000), 0).unwrap();
            notes.did("fsync", file.sync_all());
            notes.did("fdatasync", file.sync_data());
        }
        notes.did("fsync of a directory", File::open(dir).unwrap().sync_all());
        let output = shell(dir, "sync . && sync -f . && echo done");
        notes.value("sync", String::from_utf8_lossy(&output.stdout).into_owned());
        notes.file(&dir.join("f7"));
    });
}
