//! The behaviour of a local disk that programs expect, with two mounts at once: numbers of the file
//! system, limits of extended attributes, ends of set-id bits, access lists that are inherited,
//! programs that run, direct input and output, notifications of the own machine, and calls that do
//! nothing.

use crate::harness::process::{run, shell, shell_ok};
use crate::harness::scratch::set_mode;
use crate::harness::starts::{closed_is_closed, start};
use crate::harness::{
    Cell, Pair, Random, Scratch, eventually, has_program, local, real_system, text,
};
use crate::harness::{cell::CellOptions, mount::Mount};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{
    CWD, FileType, FlockOperation, Mode, OFlags, StatVfs, XattrFlags, flock, getxattr, listxattr,
    mknodat, open, setxattr, statvfs, syncfs,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn numbers(mount: &Mount) -> StatVfs {
    statvfs(mount.path()).unwrap()
}

/// Writes a file of so many MiB that is on stable storage.
fn fill(path: &Path, seed: u64, mib: u64) -> std::io::Result<()> {
    let file = File::create(path)?;
    let bytes = Random(seed).bytes(MIB as usize);
    (0..mib).try_for_each(|at| file.write_all_at(&bytes, at * MIB))?;
    file.sync_all()
}

#[test]
fn numbers_of_the_file_system_are_true_also_when_it_is_full() {
    if !real_system("statfs-full") {
        return;
    }
    const DISK_MIB: u64 = 400;
    let options = CellOptions {
        disk_mib: Some(DISK_MIB),
        ..CellOptions::default()
    };
    let Some(pair) = Pair::start_with("statfs-full", options, &[]) else {
        return;
    };
    let (a, b) = (&pair.a, &pair.b);
    let used = |seen: &StatVfs| seen.f_files - seen.f_ffree;
    let free_mib = |seen: &StatVfs| seen.f_bavail * seen.f_frsize / MIB;
    let begin = numbers(b);
    assert_eq!(begin.f_blocks * begin.f_frsize, DISK_MIB * MIB);
    let objects = used(&begin);
    for n in 0..10 {
        fs::write(a.join(&format!("small-{n}")), b"x").unwrap();
    }
    fs::create_dir(a.join("dir")).unwrap();
    // A mount that asks reports its own new objects before; those of others are reported seconds
    // later.
    assert_eq!(used(&numbers(a)), objects + 11);
    assert_eq!(used(&numbers(b)), objects + 11);
    fill(&a.join("large"), 1, 50).unwrap();
    let filled = numbers(b);
    let taken = free_mib(&begin) - free_mib(&filled);
    assert!((50..90).contains(&taken), "{taken} MiB for 50");
    // Until nothing more goes in; files that were reported written are there.
    let full = (0..DISK_MIB / 10).find_map(|n| {
        let path = a.join(&format!("filler-{n:03}"));
        fill(&path, n, 10).err().map(|error| (n, error))
    });
    let (count, error) = full.expect("the disk is never full");
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    numbers(a);
    let seen = numbers(b);
    assert!(free_mib(&seen) < 40, "{} MiB are free", free_mib(&seen));
    assert_eq!(used(&seen), objects + 12 + count + 1);
    assert_eq!(fs::metadata(b.join("filler-000")).unwrap().len(), 10 * MIB);
    // The file that has found no room is given up, and through the other mount room is made.
    fs::remove_file(a.join(&format!("filler-{count:03}"))).unwrap();
    for n in 0..count {
        fs::remove_file(b.join(&format!("filler-{n:03}"))).unwrap();
    }
    // A file without a name is there for a moment: somebody may be about to open it.
    let gone = eventually(Duration::from_secs(20), || {
        used(&numbers(a)) == objects + 12
    });
    assert!(gone, "{} objects", used(&numbers(a)));
    let room = eventually(Duration::from_secs(60), || {
        free_mib(&numbers(a)) > 200 && fill(&a.join("again"), 7, 50).is_ok()
    });
    assert!(room, "{} MiB are free", free_mib(&numbers(a)));
    let expected = Random(1).bytes(MIB as usize);
    let large = fs::read(b.join("large")).unwrap();
    assert!(large.chunks(MIB as usize).all(|chunk| chunk == expected));
}

#[test]
fn extended_attributes_have_the_limits_of_linux() {
    if !real_system("xattr-limits") {
        return;
    }
    let Some(pair) = Pair::start("xattr-limits") else {
        return;
    };
    let (one, other) = (pair.a.join("file"), pair.b.join("file"));
    fs::write(&one, b"x").unwrap();
    let any = XattrFlags::empty();
    let set = |path: &Path, name: &str, len: usize| {
        setxattr(path, name, &Random(len as u64).bytes(len), any)
    };
    let read = |path: &Path, name: &str| {
        let mut value = vec![0; 65_536];
        getxattr(path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    for space in ["user", "trusted", "security"] {
        let name = format!("{space}.{}", "n".repeat(254 - space.len()));
        assert_eq!(name.len(), 255);
        for len in [0, 1, 65_536] {
            assert_eq!(set(&one, &name, len), Ok(()), "{space} {len}");
            assert_eq!(read(&other, &name), Ok(Random(len as u64).bytes(len)));
        }
        assert_eq!(set(&one, &name, 65_537), Err(Errno::TOOBIG));
        assert_eq!(set(&one, &format!("{name}n"), 1), Err(Errno::RANGE));
        let mut small = [0; 10];
        let short = getxattr(&other, name.as_str(), &mut small[..]);
        assert_eq!(short, Err(Errno::RANGE));
        rustix::fs::removexattr(&other, name.as_str()).unwrap();
        assert_eq!(read(&one, &name), Err(Errno::NODATA));
    }
    // A user who may not is refused, as everywhere.
    let tried = |space: &str| {
        let line = format!("setfattr -n {space}.x -v y file");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line]).current_dir(pair.b.path());
        run(command.uid(12_345).gid(23_456)).status
    };
    set_mode(&one, 0o666);
    assert!(tried("user").success() && !tried("trusted").success());
    // As many names as Linux lists.
    let full = (0..1_000).find_map(|n| {
        let name = format!("user.{n:0>240}");
        set(&one, &name, 1).err().map(|error| (n, error))
    });
    let (count, error) = full.expect("there is no bound of names");
    assert_eq!(error, Errno::NOSPC);
    let mut names = vec![0; 65_536];
    let len = listxattr(&other, &mut names[..]).unwrap();
    let listed = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    assert_eq!(listed.count(), count + 1, "and user.x");
    assert_eq!(listxattr(&other, &mut names[..100]), Err(Errno::RANGE));
}

#[test]
fn set_id_bits_end_with_a_change_by_another_user_on_any_mount() {
    let Some(pair) = Pair::start("killpriv") else {
        return;
    };
    for (round, line) in [
        "echo more >> prog",
        "truncate -s 3 prog",
        "printf x | dd of=prog bs=1 conv=notrunc status=none",
        "fallocate -l 100 prog",
        "python3 -c \"open('prog', 'r+b').truncate(1)\"",
    ]
    .iter()
    .enumerate()
    {
        for (mode, left) in [(0o6777, 0o777), (0o2767, 0o767)] {
            let (one, other) = pair.sides(round);
            let program = one.join("prog");
            fs::write(&program, b"#!/bin/sh").unwrap();
            chown(&program, Some(1), Some(2)).unwrap();
            set_mode(&program, mode);
            // It is known there, with the bits.
            assert_eq!(
                fs::metadata(other.join("prog")).unwrap().mode() & 0o7777,
                mode
            );
            let mut command = Command::new("/bin/sh");
            command
                .args(["-c", line])
                .current_dir(other)
                .uid(12_345)
                .gid(23_456);
            let output = run(&mut command);
            assert!(output.status.success(), "{line}: {}", text(&output));
            for side in [one, other] {
                let seen = fs::metadata(side.join("prog")).unwrap().mode() & 0o7777;
                // Without the right to execute, the group's bit is something else.
                let kept = if mode == 0o2767 { left | 0o2000 } else { left };
                assert!(
                    seen == left || seen == kept,
                    "{line}: {mode:o} became {seen:o}"
                );
            }
            fs::remove_file(program).unwrap();
        }
    }
}

/// Makes things below a directory whose access list is inherited, or where it is not.
const MAKE: &str = "(umask 077; echo x > d/file; mkdir d/dir; mkfifo d/fifo); \
    (umask 022; echo x > d/open; mkdir d/wide; cp /bin/true d/program)";
const LISTED: &str = "getfacl -n d d/*";

#[test]
fn lists_set_on_one_mount_are_inherited_on_the_other_at_once() {
    if !has_program("inherited", "setfacl") {
        return;
    }
    let Some(pair) = Pair::start("inherited") else {
        return;
    };
    let plain = Scratch::new("inherited-plain");
    for (round, list) in ["u:5:rwx,g:6:rx,o::---", "u::rwx,g::---,m::rwx,u:7:r", ""]
        .iter()
        .enumerate()
    {
        let set = match *list {
            "" => "setfacl -k d".to_owned(),
            list => format!("setfacl -d -m {list} d"),
        };
        let (one, other) = pair.sides(round);
        let mut expected = String::new();
        for (first, second) in [(plain.path(), plain.path()), (one, other)] {
            shell_ok(first, "mkdir d && echo x > d/before");
            // The other one knows the directory before it has the list.
            shell_ok(second, "ls -l d");
            shell_ok(first, &set);
            shell_ok(second, MAKE);
            let listed = shell_ok(first, LISTED);
            shell_ok(second, "rm -r d");
            if expected.is_empty() {
                expected = listed;
            } else {
                assert_eq!(listed, expected, "{list:?}");
            }
        }
    }
}

#[test]
fn direct_input_and_output_is_exact_on_both_mounts() {
    let Some(pair) = Pair::start("o-direct") else {
        return;
    };
    const BLOCK: usize = 4096;
    let direct = |path: &Path| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT | OFlags::CLOEXEC;
        File::from(open(path, flags, Mode::from_raw_mode(0o600)).unwrap())
    };
    let mut expected = vec![0; 16 * BLOCK];
    // Memory that begins at a block, as local disks want it.
    let mut memory = vec![0; 18 * BLOCK];
    let begin = memory.as_ptr().align_offset(BLOCK);
    let memory = &mut memory[begin..][..17 * BLOCK];
    let (one, other) = (direct(&pair.a.join("f")), direct(&pair.b.join("f")));
    let cached = File::open(pair.b.join("f")).unwrap();
    one.write_all_at(&memory[..16 * BLOCK], 0).unwrap();
    let mut random = Random(3);
    for round in 0..60_u8 {
        let (first, count) = (random.below(14) as usize, 1 + random.below(2) as usize);
        let (at, len) = (first * BLOCK, count * BLOCK);
        memory[..len].fill(round + 1);
        let writer = if round % 2 == 0 { &one } else { &other };
        writer.write_all_at(&memory[..len], at as u64).unwrap();
        expected[at..at + len].fill(round + 1);
        for reader in [&one, &other] {
            reader.read_exact_at(&mut memory[..16 * BLOCK], 0).unwrap();
            assert!(memory[..16 * BLOCK] == expected[..], "round {round}");
        }
        let mut plain = vec![0; 16 * BLOCK];
        cached.read_exact_at(&mut plain, 0).unwrap();
        assert!(plain == expected, "round {round}: through the page cache");
    }
    // At the end there is less than was asked for.
    assert_eq!(
        other
            .read_at(&mut memory[..BLOCK], 16 * BLOCK as u64)
            .unwrap(),
        0
    );
}

#[test]
fn devices_and_set_id_bits_count_where_that_was_asked_for() {
    if !real_system("trusted") {
        return;
    }
    let Some(cell) = Cell::start("trusted") else {
        return;
    };
    let (plain, trusted) = (cell.mount(), cell.mount_with(&["--trusted"]));
    let mode = Mode::from_raw_mode(0o666);
    let zero = rustix::fs::makedev(1, 5);
    mknodat(
        CWD,
        plain.join("zero"),
        FileType::CharacterDevice,
        mode,
        zero,
    )
    .unwrap();
    fs::copy("/usr/bin/id", plain.join("id")).unwrap();
    chown(plain.join("id"), Some(4_321), None).unwrap();
    set_mode(&plain.join("id"), 0o4755);
    let read = |mount: &Mount| {
        let mut bytes = [1; 4];
        let file = File::open(mount.join("zero")).map_err(|error| error.kind())?;
        file.read_exact_at(&mut bytes, 0)
            .map_err(|error| error.kind())?;
        Ok(bytes)
    };
    assert_eq!(read(&plain), Err(ErrorKind::PermissionDenied));
    assert_eq!(read(&trusted), Ok([0; 4]));
    assert_eq!(shell_ok(plain.path(), "./id -u"), "0\n");
    assert_eq!(shell_ok(trusted.path(), "./id -u"), "4321\n");
}

#[test]
fn a_program_runs_on_from_a_file_that_is_replaced_elsewhere() {
    let Some(pair) = Pair::start("run-replaced") else {
        return;
    };
    fs::copy("/bin/sleep", pair.a.join("program")).unwrap();
    let run = |dir: &Path, time: &str| {
        closed_is_closed();
        start(Command::new(dir.join("program")).arg(time)).unwrap()
    };
    let mut running = run(pair.b.path(), "600");
    // As installers do it: another file takes the name.
    fs::copy("/bin/true", pair.a.join("new")).unwrap();
    fs::rename(pair.a.join("new"), pair.a.join("program")).unwrap();
    assert!(run(pair.b.path(), "0").wait().unwrap().success());
    assert!(running.try_wait().unwrap().is_none(), "it ended");
    running.kill().unwrap();
    running.wait().unwrap();
    if !local() {
        // A program that runs on one machine may be opened for writing on another, not on its own.
        let mut running = run(pair.b.path(), "0");
        running.wait().unwrap();
        fs::copy("/bin/sleep", pair.a.join("program")).unwrap();
        let mut running = run(pair.b.path(), "600");
        let here = File::options().write(true).open(pair.b.join("program"));
        let there = File::options().write(true).open(pair.a.join("program"));
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(here.unwrap_err().kind(), ErrorKind::ExecutableFileBusy);
        assert!(there.is_ok());
    }
}

/// The events of inotify, until so many have come.
fn told(watch: &OwnedFd, count: usize) -> Vec<String> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let event = |_| {
        let event = reader.next().unwrap();
        let name = event.file_name().map_or("", |name| name.to_str().unwrap());
        format!("{:?} {name}", event.events())
    };
    (0..count).map(event).collect()
}

#[test]
fn a_program_is_notified_of_what_happens_on_its_own_machine() {
    let Some(pair) = Pair::start("inotify") else {
        return;
    };
    let plain = Scratch::new("inotify-plain");
    let watched = [pair.a.join("d"), plain.join("d")];
    let mut seen = Vec::new();
    let _keep: Vec<_> = watched
        .iter()
        .map(|dir| {
            fs::create_dir_all(dir).unwrap();
            let watch = inotify::init(CreateFlags::CLOEXEC).unwrap();
            let all = WatchFlags::CREATE
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::MODIFY
                | WatchFlags::MOVE
                | WatchFlags::DELETE
                | WatchFlags::ATTRIB;
            inotify::add_watch(&watch, dir, all).unwrap();
            // The other mount's first change is not reported, and in nobody's way.
            if dir == &watched[0] && !local() {
                fs::write(pair.b.join("d/elsewhere"), b"x").unwrap();
            }
            fs::write(dir.join("f"), b"x").unwrap();
            fs::rename(dir.join("f"), dir.join("g")).unwrap();
            set_mode(&dir.join("g"), 0o600);
            fs::remove_file(dir.join("g")).unwrap();
            // The removal of a file whose last name it was is told of its attributes too.
            seen.push(told(&watch, 7));
            watch
        })
        .collect();
    assert_eq!(seen[0], seen[1]);
    assert!(!local() || seen[0].len() == 7);
}

#[test]
fn calls_that_promise_nothing_more_succeed() {
    let Some(pair) = Pair::start("syncs") else {
        return;
    };
    let file = File::create(pair.a.join("f")).unwrap();
    file.write_all_at(&Random(1).bytes(100_000), 0).unwrap();
    syncfs(&file).unwrap();
    let script = "import ctypes, os\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        f = os.open('f', os.O_RDWR)\n\
        at, len = ctypes.c_long(4096), ctypes.c_long(8192)\n\
        print([libc.sync_file_range(f, at, len, flags) for flags in (0, 1, 2, 4, 7)])\n\
        print(libc.sync_file_range(f, at, len, 8), ctypes.get_errno())\n";
    for side in [&pair.a, &pair.b] {
        let output = shell(side.path(), &format!("python3 -c \"{script}\""));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, "[0, 0, 0, 0, 0]\n-1 22\n", "{}", text(&output));
    }
    // A directory can be locked; other machines do not know of it.
    let lock = |mount: &Mount| {
        let dir = File::open(mount.path()).unwrap();
        flock(&dir, FlockOperation::NonBlockingLockExclusive).map(|()| dir)
    };
    let held = lock(&pair.a).unwrap();
    assert_eq!(lock(&pair.a).map(drop), Err(Errno::WOULDBLOCK));
    assert_eq!(lock(&pair.b).is_ok(), !local());
    drop(held);
}
