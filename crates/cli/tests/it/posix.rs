//! Features of a local disk beyond the ordinary that programs of one machine expect: files without
//! a name, access lists, holes. Each is compared with the local file system.

use crate::basics::{Notes, same};
use crate::harness::process::{shell, shell_ok};
use crate::harness::starts::{closed_is_closed, start};
use crate::harness::status::{bytes_moved, server_received, since, status};
use crate::harness::{Cell, Pair, Random, Scratch, has_program, local, real_system};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::fs::{fallocate, linkat, open, seek};
use rustix::io::{ReadWriteFlags, pwritev2};
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// A file without a name, in a directory.
fn nameless(dir: &Path, more: OFlags) -> rustix::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    Ok(File::from(open(dir, flags, Mode::from_raw_mode(0o640))?))
}

/// Gives a file that is open a name.
fn give_name(file: &File, path: &Path) -> rustix::io::Result<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, link, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_file_without_a_name_gets_one_or_none() {
    same("tmpfile", |dir, notes| {
        let mut file = nameless(dir, OFlags::empty()).unwrap();
        file.write_all(b"nameless").unwrap();
        notes.value("entries", count(dir));
        notes.value("links", file.metadata().unwrap().nlink());
        notes.value("mode", file.metadata().unwrap().mode());
        notes.did("link", give_name(&file, &dir.join("named")));
        notes.did("link again", give_name(&file, &dir.join("twice")));
        notes.value("content", fs::read(dir.join("named")).unwrap());
        notes.value("links", file.metadata().unwrap().nlink());
        fs::remove_file(dir.join("named")).unwrap();
        fs::remove_file(dir.join("twice")).unwrap();
        notes.did(
            "link after the last unlink",
            give_name(&file, &dir.join("late")),
        );
        let alone = nameless(dir, OFlags::EXCL).unwrap();
        notes.did(
            "link an exclusive one",
            give_name(&alone, &dir.join("alone")),
        );
        notes.value("entries", count(dir));
    });
}

#[test]
fn a_file_that_got_its_name_late_is_whole_on_the_other_mount() {
    let Some(pair) = Pair::start("tmpfile-two") else {
        return;
    };
    for round in 0..10 {
        let (one, other) = pair.sides(round);
        let name = format!("file-{round}");
        let mut file = nameless(one, OFlags::empty()).unwrap();
        let content = vec![round as u8 + 1; 10_000];
        file.write_all(&content).unwrap();
        assert!(!other.join(&name).exists());
        give_name(&file, &one.join(&name)).unwrap();
        assert!(
            fs::read(other.join(&name)).unwrap() == content,
            "round {round}"
        );
        file.write_all(b"more").unwrap();
        assert_eq!(fs::metadata(other.join(&name)).unwrap().len(), 10_004);
        fs::remove_file(other.join(&name)).unwrap();
        let late = give_name(&file, &one.join("late"));
        assert_eq!(late, Err(rustix::io::Errno::NOENT), "its last name is gone");
    }
}

#[test]
fn holes_are_found() {
    let Some(cell) = Cell::start("holes") else {
        return;
    };
    let mount = cell.mount();
    let file = File::options();
    let path = mount.join("sparse");
    let file = { file }
        .read(true)
        .write(true)
        .create(true)
        .open(path)
        .unwrap();
    let far = 1 << 43;
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(&[1; 4096], far).unwrap();
    let data = |at: u64| seek(&file, SeekFrom::Data(at)).ok();
    let hole = |at: u64| seek(&file, SeekFrom::Hole(at)).ok();
    assert!(hole(0).is_some_and(|at| (5..far).contains(&at)));
    assert!(data(1 << 30).is_some_and(|at| at <= far && at + (2 << 20) > far));
    assert_eq!(hole(far), Some(far + 4096));
    assert_eq!(data(far + 4096), None);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, far, 4096).unwrap();
    assert_eq!(data(1 << 30), None);
    assert_eq!(file.metadata().unwrap().len(), far + 4096);
    assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    // Room behind the end changes no bytes, and the time of the change is seen at once.
    let changed = || {
        let seen = file.metadata().unwrap();
        (seen.ctime(), seen.ctime_nsec())
    };
    let before = changed();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 2 * far, 4096).unwrap();
    assert!(changed() > before);
    assert_eq!(file.metadata().unwrap().len(), far + 4096);
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        let result = fallocate(&file, refused, 0, 4096);
        assert_eq!(result, Err(rustix::io::Errno::OPNOTSUPP));
    }
}

/// Shell that makes a tree with lists, inherited ones among them.
const LISTS: &str = "umask 027 && mkdir t && cd t && echo a > plain && \
    setfacl -m u:1:rw,g:2:r plain && \
    mkdir d && setfacl -m d:u:3:rwx,d:g:4:rx,d:o::r d && echo b > d/f && mkdir d/sub && \
    echo c > d/sub/g && (umask 077; echo e > d/h; mkfifo d/p; ln -s f d/l) && \
    cp /bin/true d/x && chmod 750 d/x && chmod 640 plain && setfacl -m m::r d/f && \
    echo k > kept && setfacl -m u:9:rw kept && setfacl -b kept && \
    setfacl -m o::- d/h && chmod g+w d/h";
const SHOW: &str = "cd t && find . ! -type l | sort | xargs getfacl -n --absolute-names && \
    find . ! -name . -printf '%p %M\\n' | sort";

#[test]
fn access_lists_are_kept_and_inherited() {
    if !has_program("lists", "setfacl") {
        return;
    }
    let Some(pair) = Pair::start("lists") else {
        return;
    };
    let plain = Scratch::new("lists-plain");
    for dir in [plain.path(), pair.a.path()] {
        shell_ok(dir, LISTS);
    }
    let expected = shell_ok(plain.path(), SHOW);
    assert_eq!(shell_ok(pair.a.path(), SHOW), expected, "where it was made");
    assert_eq!(shell_ok(pair.b.path(), SHOW), expected, "elsewhere");
    for bad in ["setfacl -m d:u:1:r t/plain", "setfacl -m u:5:r t/none"] {
        let (local, mounted) = (shell(plain.path(), bad), shell(pair.a.path(), bad));
        assert!(
            !local.status.success() && !mounted.status.success(),
            "{bad}"
        );
    }
}

#[test]
fn access_lists_decide_who_may_and_changes_count_at_once() {
    if !has_program("lists-rights", "setfacl") || !has_program("lists-rights", "setpriv") {
        return;
    }
    let Some(pair) = Pair::start("lists-rights") else {
        return;
    };
    let (a, b) = (pair.a.path(), pair.b.path());
    shell_ok(a, "chmod 755 . && echo secret > f && chmod 600 f");
    let as_user = |dir: &Path, what: &str| {
        let line = format!("setpriv --reuid 1 --regid 1 --clear-groups sh -c '{what}'");
        shell(dir, &line).status.success()
    };
    for round in 0..10 {
        let (one, other) = pair.sides(round);
        assert!(!as_user(other, "cat f") && !as_user(one, "cat f"));
        shell_ok(one, "setfacl -m u:1:r f");
        assert!(as_user(other, "cat f"), "round {round}: given elsewhere");
        assert!(as_user(one, "cat f"), "round {round}: given here");
        assert!(
            !as_user(other, "echo x >> f"),
            "round {round}: for reading only"
        );
        shell_ok(other, "setfacl -m u:1:rw f");
        assert!(
            as_user(one, "echo x >> f"),
            "round {round}: for writing too"
        );
        shell_ok(one, "chmod g-rwx f");
        assert!(
            !as_user(other, "cat f"),
            "round {round}: the mask allows nothing"
        );
        shell_ok(other, "setfacl -b f && chmod 600 f");
    }
    shell_ok(b, "mkdir d && setfacl -m d:u:1:rwx,u:1:rwx d");
    assert!(as_user(a, "echo own > d/f && mkdir d/e"));
    assert!(as_user(b, "echo more >> d/f && touch d/e/g && rm d/f"));
    // That there was nothing is known no more.
    shell_ok(b, "mkdir seen");
    shell_ok(a, "ls -ld seen && getfattr -d -m - seen");
    shell_ok(b, "setfattr -n user.x -v 1 seen && setfacl -m u:1:rwx seen");
    let value = shell_ok(a, "getfattr --only-values -n user.x seen");
    assert_eq!(value, "1");
    assert!(as_user(a, "echo own > seen/f"));
}

/// A tree with lists and attributes, and the command that shows all of them.
const KEPT: &str = "mkdir t && echo 1 > t/a && setfacl -m u:1:rw,g:2:r t/a && \
    setfattr -n user.x -v one t/a && setfattr -n trusted.y -v two t/a && mkdir t/d && \
    setfacl -m d:u:3:rx t/d && setfattr -n user.z -v 0x00ff t/d";
const KEPT_SHOWN: &str = "getfacl -nR t; getfattr -Rd -m '(user|trusted)' t | sort";

#[test]
fn tar_keeps_lists_and_attributes() {
    for program in ["setfacl", "setfattr", "tar"] {
        if !has_program("tar-lists", program) {
            return;
        }
    }
    let Some(pair) = Pair::start("tar-lists") else {
        return;
    };
    let plain = Scratch::new("tar-lists-plain");
    shell_ok(pair.a.path(), KEPT);
    let archive = plain.join("t.tar");
    let all = "--acls --xattrs --xattrs-include='*'";
    shell_ok(
        pair.b.path(),
        &format!("tar {all} -cf {} t", archive.display()),
    );
    shell_ok(pair.b.path(), "rm -r t");
    shell_ok(
        pair.b.path(),
        &format!("tar {all} -xpf {}", archive.display()),
    );
    shell_ok(plain.path(), KEPT);
    let expected = shell_ok(plain.path(), KEPT_SHOWN);
    assert_eq!(shell_ok(pair.a.path(), KEPT_SHOWN), expected);
}

/// tar does this to each directory that has no default list.
#[test]
fn an_access_list_that_is_not_there_is_removed_without_an_error() {
    if !has_program("no-lists", "python3") {
        return;
    }
    let Some(pair) = Pair::start("no-lists") else {
        return;
    };
    let script = "
import os
os.mkdir('d')
for name in ('system.posix_acl_default', 'system.posix_acl_access'):
    os.setxattr('d', name, b'\\x02\\0\\0\\0')
    os.removexattr('d', name)
try:
    os.removexattr('d', 'user.none')
except OSError as error:
    print(error.strerror)";
    let said = shell_ok(pair.a.path(), &format!("python3 -c \"{script}\""));
    assert_eq!(said.trim(), "No data available");
}

#[test]
fn a_copy_moves_no_bytes_over_the_network() {
    let Some(pair) = Pair::start("reflink") else {
        return;
    };
    let content: Vec<u8> = Random(5).bytes(33_000_001);
    let mut file = File::create(pair.a.join("from")).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let addr = pair.cell.addr();
    let logged = |addr: &str| status(addr)["store"]["appended_bytes"].as_u64().unwrap();
    let before = (!local()).then(|| (server_received(addr), bytes_moved(addr), logged(addr)));
    shell_ok(pair.b.path(), "cp --reflink=auto from to");
    if let Some((before, bytes, log)) = before {
        let asked = since(&before, &server_received(addr));
        let moved = ["Read", "Write"].map(|kind| asked.get(kind));
        assert!(
            moved == [None, None] && asked.get("Copy") == Some(&1),
            "{asked:?}"
        );
        let bytes = bytes_moved(addr) - bytes;
        assert!(bytes < 100_000, "{bytes} bytes for {asked:?}");
        let logged = logged(addr) - log;
        assert!(logged < 1_000_000, "the copy has {logged} bytes of its own");
    }
    for (side, name) in [(&pair.a, "to"), (&pair.b, "to"), (&pair.b, "from")] {
        let copied = fs::read(side.join(name)).unwrap();
        assert!(copied == content, "{name} differs");
    }
    // Neither of them is the other.
    let from = File::options().write(true).open(pair.a.join("from"));
    from.unwrap().write_all_at(b"changed", 4096).unwrap();
    assert!(fs::read(pair.b.join("to")).unwrap() == content);
    assert_eq!(
        &fs::read(pair.b.join("from")).unwrap()[4096..4103],
        b"changed"
    );
}

#[test]
fn a_write_for_stable_storage_is_there_when_it_is_answered() {
    if !real_system("dsync") {
        return;
    }
    let Some(pair) = Pair::start("dsync") else {
        return;
    };
    let addr = pair.cell.addr();
    let stable = || {
        let store = &status(addr)["store"];
        let of = |key: &str| store[key].as_u64().unwrap();
        (of("syncs"), of("records") == of("stable_records"))
    };
    let all = ReadWriteFlags::empty();
    let plain = OFlags::empty();
    for round in 0..3 {
        for (how, flags, each, syncs) in [
            ("as usual", plain, all, false),
            ("O_DSYNC", OFlags::DSYNC, all, true),
            ("O_SYNC", OFlags::SYNC, all, true),
            ("appended", OFlags::DSYNC | OFlags::APPEND, all, true),
            ("RWF_DSYNC", plain, ReadWriteFlags::DSYNC, true),
        ] {
            // In the last round somebody else has the file open: it is written at the server.
            let path = pair.a.join(&format!("{how} {round}"));
            let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | flags;
            let file = open(path, flags, Mode::from_raw_mode(0o600)).unwrap();
            let other = (round == 2).then(|| File::open(pair.b.join(&format!("{how} {round}"))));
            rustix::fs::fsync(&file).unwrap();
            let before = stable();
            let data = [IoSlice::new(b"to stay")];
            assert_eq!(pwritev2(&file, &data, 0, each), Ok(7), "{how}");
            let after = stable();
            assert_eq!(after.0 > before.0, syncs, "{how}: {before:?}, {after:?}");
            assert!(!syncs || after.1, "{how}: not all is stable");
            drop(other);
        }
    }
}

#[test]
fn a_program_that_runs_is_not_written() {
    same("etxtbsy", |dir, notes| {
        let program = dir.join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let runs = |argument: &str| {
            closed_is_closed();
            start(Command::new(&program).arg(argument))
        };
        let mut child = runs("60").unwrap();
        notes.did("write", File::options().write(true).open(&program));
        child.kill().unwrap();
        child.wait().unwrap();
        notes.did("write later", File::options().write(true).open(&program));
        let writer = File::options().append(true).open(&program).unwrap();
        let run = runs("0").and_then(|mut child| child.wait());
        notes.did("run what is open for writing", run);
        drop(writer);
        notes.did("run", runs("0").unwrap().wait());
    });
}

#[test]
fn paths_and_links_have_the_usual_limits() {
    same("limits", |dir, notes: &mut Notes| {
        let long = "n".repeat(255);
        let mut deep = dir.to_path_buf();
        let mut made = 0;
        while deep.as_os_str().len() + 256 < 4096 {
            deep.push(&long);
            fs::create_dir(&deep).unwrap();
            made += 1;
        }
        notes.value("directories of 255 bytes", made > 10);
        let left = 4095 - deep.as_os_str().len() - 1;
        notes.did(
            "the longest path",
            fs::write(deep.join("x".repeat(left)), b"y"),
        );
        notes.did("one more", fs::write(deep.join("x".repeat(left + 1)), b"y"));
        for len in [1, 4095] {
            let link = dir.join(format!("link-{len}"));
            let target = "t".repeat(len);
            notes.did("symlink", std::os::unix::fs::symlink(&target, &link));
            notes.value(
                "target",
                fs::read_link(&link).map(|t| t.as_os_str().len()).ok(),
            );
        }
        let too_long = "t".repeat(4096);
        notes.did(
            "longer",
            std::os::unix::fs::symlink(too_long, dir.join("no")),
        );
    });
}
