//! Cached names and pages stay in the kernel: messages are counted at the daemon's door and at the
//! server's while 2,000 files are read and listed a second time.
//!
//! Two things are allowed everywhere. KeepAlive to the server, which depends on time alone. STATFS,
//! at most one for each `find`: the kernel never caches it, and `find` asks once for each file
//! system that it enters.

use crate::harness::cell::CellOptions;
use crate::harness::status::{Counts, Doors, cost_of, resident_mib, status};
use crate::harness::{Cell, Mount, eventually, process::shell_ok, real_system};
use std::fs;
use std::path::Path;
use std::time::Duration;

const FILES: u64 = 2_000;

fn populate(root: &Path) {
    for d in 0..20 {
        let dir = root.join(format!("dir-{d}"));
        fs::create_dir(&dir).unwrap();
        for f in 0..FILES / 20 {
            fs::write(
                dir.join(format!("file-{f}")),
                format!("file {d} {f}\n").repeat(20),
            )
            .unwrap();
        }
    }
}

fn read_all(root: &Path) {
    let lines = shell_ok(root, "find . -type f -print0 | xargs -0 cat | wc -l");
    assert_eq!(lines.trim(), (FILES * 20).to_string(), "lines in all files");
}

fn list_all(root: &Path) {
    let lines = shell_ok(root, "find . -ls | wc -l");
    assert_eq!(
        lines.trim(),
        (FILES + 20 + 1).to_string(),
        "lines of find -ls"
    );
}

fn look_for_absent(root: &Path) {
    for n in 0..200 {
        assert!(fs::metadata(root.join(format!("dir-3/absent-{n}"))).is_err());
        assert!(fs::metadata(root.join(format!("nowhere-{n}"))).is_err());
    }
}

/// Takes away what is allowed of this kind, and gives how many there were.
fn allow(counts: &mut Counts, kind: &str, most: u64) -> Result<u64, String> {
    let n = counts.remove(kind).unwrap_or(0);
    if n > most {
        return Err(format!("{n} messages {kind}, at most {most} are due"));
    }
    Ok(n)
}

/// Whether nothing was asked of anybody but STATFS, once for each `find`.
fn silent(doors: Doors, finds: u64) -> Result<(), String> {
    let Doors {
        mut daemon,
        mut server,
    } = doors;
    allow(&mut daemon, "STATFS", finds)?;
    allow(&mut server, "StatVolume", finds)?;
    if !daemon.is_empty() {
        return Err(format!("the kernel asked the daemon: {daemon:?}"));
    }
    if !server.is_empty() {
        return Err(format!("the server was asked: {server:?}"));
    }
    Ok(())
}

/// Asserts what doing `work` once more costs. The machine may take pages and inodes from the
/// kernel's caches, whatever Ariel does, and the kernel says so: a pass that does not please the
/// judge, but in which that was said and the server recalled nothing, says nothing about Ariel and
/// is repeated. A pass that nobody counts comes before each, since reading a page makes the kernel
/// forget its file's time of access, and ask for it at the next stat.
fn assert_cost(
    what: &str,
    mount: (&Path, &str),
    work: impl Fn(),
    judge: impl Fn(Doors) -> Result<(), String>,
) {
    let (root, addr) = mount;
    for _ in 0..20 {
        let before = (recalls(root), taken_back());
        work();
        let verdict = judge(cost_of(root, addr, &work));
        let after = (recalls(root), taken_back());
        match verdict {
            Ok(()) => return,
            Err(why) if before.0 != after.0 || before.1 == after.1 => panic!("{what}: {why}"),
            Err(why) => eprintln!("{what}: the kernel took memory back, once more: {why}"),
        }
    }
    panic!("{what}: the kernel takes memory back in each pass: too little for this test");
}

fn recalls(mount: &Path) -> u64 {
    status(mount)["recalls"]
        .as_u64()
        .expect("a mount says how many recalls it had")
}

/// The objects that the kernel has dropped from its caches by itself since the machine started:
/// pages of files that were needed again, and names and inodes that were looked through for some to
/// forget.
fn taken_back() -> [u64; 2] {
    // Each processor counts for itself, and adds to the machine's sums once a second, or now.
    fs::read("/proc/sys/vm/stat_refresh").expect("the machine's sums are brought up to date");
    let counters = fs::read_to_string("/proc/vmstat").unwrap();
    ["workingset_refault_file ", "slabs_scanned "].map(|name| {
        let count = counters.lines().find_map(|line| line.strip_prefix(name));
        let count = count.and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("the kernel does not count {name}"))
    })
}

/// Whether each open was announced to the daemon once, and nothing else asked.
fn announced(doors: Doors) -> Result<(), String> {
    let Doors { mut daemon, server } = doors;
    let opens = allow(&mut daemon, "OPEN", FILES)?;
    let releases = allow(&mut daemon, "RELEASE", FILES)?;
    if (opens, releases) != (FILES, FILES) {
        return Err(format!("{opens} opens and {releases} releases"));
    }
    silent(Doors { daemon, server }, 1)
}

fn warm_mount(cell: &Cell, mount: &Mount, opens_are_silent: bool) {
    let root = mount.path();
    let door = (root, cell.addr());
    read_all(root);
    assert_cost(
        "find | xargs cat again",
        door,
        || read_all(root),
        |doors| {
            if opens_are_silent {
                silent(doors, 1)
            } else {
                announced(doors)
            }
        },
    );
    assert_cost(
        "find -ls again",
        door,
        || list_all(root),
        |doors| silent(doors, 1),
    );
    assert_cost(
        "stat of absent names again",
        door,
        || look_for_absent(root),
        |doors| silent(doors, 0),
    );
}

fn cell(name: &str) -> Option<Cell> {
    if !real_system(name) {
        return None;
    }
    // Alone: memory that other tests need may take pages from the kernel's cache.
    Cell::start_with(
        name,
        CellOptions {
            alone: true,
            ..CellOptions::default()
        },
    )
}

#[test]
fn a_warm_tree_costs_only_announcements() {
    let Some(cell) = cell("warm") else { return };
    let (a, b) = (cell.mount(), cell.mount());
    populate(a.path());
    // The mount that has only read, then the one that has written.
    warm_mount(&cell, &b, false);
    warm_mount(&cell, &a, false);
}

#[test]
fn a_warm_tree_costs_nothing_with_silent_opens() {
    let Some(cell) = cell("warm-silent") else {
        return;
    };
    let writer = cell.mount();
    populate(writer.path());
    drop(writer);
    let mount = cell.mount_with(&["--opens", "silent"]);
    warm_mount(&cell, &mount, true);
}

#[test]
fn opening_again_what_this_mount_writes_costs_the_server_nothing() {
    let Some(cell) = cell("warm-write") else {
        return;
    };
    let mount = cell.mount();
    let write = || {
        for n in 0..50 {
            let file = fs::File::options()
                .write(true)
                .open(mount.join(&format!("f{n}")));
            std::io::Write::write_all(&mut file.unwrap(), b"over and over").unwrap();
        }
    };
    (0..50).for_each(|n| fs::write(mount.join(&format!("f{n}")), b"first").unwrap());
    write();
    let mut cost = cost_of(mount.path(), cell.addr(), write);
    // The cleaner may write back what has become old in the meantime.
    cost.server.remove("Write");
    assert!(
        cost.server.is_empty(),
        "the server was asked: {:?}",
        cost.server
    );
}

/// Of a short file that is here the kernel has the pages when it is open: it asks for none, nor for
/// the attributes once more, and has the new bytes when another machine has changed it.
#[test]
fn a_short_file_that_is_opened_need_not_be_read() {
    const SIZES: [usize; 7] = [1, 4095, 4096, 4097, 9000, 32_768, 32_769];
    let Some(cell) = cell("given") else { return };
    let (a, b) = (cell.mount(), cell.mount());
    let content = |size: usize, salt: usize| -> Vec<u8> {
        (0..size).map(|at| (at * 7 + size + salt) as u8).collect()
    };
    let name = |size: usize| format!("of-{size}");
    for size in SIZES {
        fs::write(a.join(&name(size)), content(size, 0)).unwrap();
    }
    let read = |mount: &Mount, salt: usize| {
        for size in SIZES {
            let size_now = size + salt;
            let path = mount.join(&name(size));
            assert!(
                fs::read(&path).unwrap() == content(size_now, salt),
                "{size}"
            );
            assert_eq!(fs::metadata(path).unwrap().len(), size_now as u64);
        }
    };
    // The kernel asks for the attributes of what was written.
    for size in SIZES {
        fs::metadata(a.join(&name(size))).unwrap();
    }
    let mut cost = cost_of(a.path(), cell.addr(), || read(&a, 0)).daemon;
    let count = SIZES.len() as u64;
    assert_eq!(cost.remove("OPEN"), Some(count));
    assert_eq!(cost.remove("RELEASE"), Some(count));
    // The last one is too long, and is asked for.
    assert!(
        cost.remove("READ").is_some_and(|reads| reads <= 2),
        "{cost:?}"
    );
    // By STATX where the program wants to know the time of birth, too.
    let asked = ["GETATTR", "STATX"].map(|kind| cost.remove(kind).unwrap_or(0));
    assert!(asked.iter().sum::<u64>() <= 1, "{asked:?}");
    assert!(cost.is_empty(), "the kernel asked for more: {cost:?}");
    // Elsewhere it is longer now, then shorter: the given pages do not stay.
    for (mount, other, salt) in [(&a, &b, 5000), (&b, &a, 1), (&a, &b, 0)] {
        for size in SIZES {
            fs::write(other.join(&name(size)), content(size + salt, salt)).unwrap();
        }
        read(mount, salt);
        read(other, salt);
        read(mount, salt);
    }
}

/// Memory that a mount does not need goes back to the machine.
#[test]
fn memory_of_what_is_not_cached_any_more_goes_back() {
    const MIB: u64 = 96;
    let Some(cell) = cell("memory") else { return };
    let mount = cell.mount();
    let resident = || resident_mib(mount.path());
    let before = resident();
    let file = mount.path().join("temporary");
    fs::write(&file, vec![7; (MIB << 20) as usize]).unwrap();
    let cached = resident();
    assert!(
        cached >= before + MIB * 3 / 4,
        "{before} MiB, then {cached}"
    );
    fs::remove_file(file).unwrap();
    let goes = eventually(Duration::from_secs(60), || resident() < before + MIB / 4);
    assert!(
        goes,
        "{before} MiB, {cached} with the file, and {}",
        resident()
    );
}
