//! Room granted ahead, on real mounts: quotas of volumes and full disks, with delayed writers on
//! three mounts. Programs are refused by write(2), or by calls that make a name; all that was
//! answered is there, and no close and no fsync fails for want of room.

use crate::harness::process::system_python;
use crate::harness::{
    Cell, ariel, cell::CellOptions, eventually, mount::Mount, real_system, run, text,
};
use rustix::fs::{StatVfs, statvfs};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Writes a file in pieces until it is refused, in letters of its own; says how many bytes were
/// answered and why it ended, and what fsync (if asked for) and close say. Then it makes names
/// until that is refused.
const WRITER: &str = r#"
import os, sys
path, piece, most, syncs, names = sys.argv[1], *map(int, sys.argv[2:6])
done, why, sync, close, made, last = 0, 0, 0, 0, 0, 0
block = (os.path.basename(path).encode() * piece)[:piece]
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
while done < most:
    try:
        done += os.write(fd, block[:most - done])
    except OSError as error:
        why = error.errno
        break
try:
    if syncs:
        os.fsync(fd)
except OSError as error:
    sync = error.errno
try:
    os.close(fd)
except OSError as error:
    close = error.errno
while made < names:
    try:
        os.close(os.open(path + "-%d" % made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        made += 1
    except OSError as error:
        last = error.errno
        break
print(done, why, sync, close, made, last)
"#;

/// The words of a writer.
#[derive(Debug)]
struct Said {
    path: PathBuf,
    done: u64,
    why: i32,
    sync: i32,
    close: i32,
    made: u64,
    last: i32,
}

fn writer(path: PathBuf, piece: u64, most: u64, syncs: bool, names: u64) -> (PathBuf, Child) {
    let numbers = [piece, most, u64::from(syncs), names].map(|number| number.to_string());
    let mut command = Command::new(system_python());
    command.args(["-c", WRITER]).arg(&path).args(numbers);
    let child = command.stdout(Stdio::piped()).spawn();
    (path, child.expect("a writer starts"))
}

fn said((path, child): (PathBuf, Child)) -> Said {
    let output = child.wait_with_output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let words: Vec<i64> = line
        .split_whitespace()
        .map(|w| w.parse().unwrap())
        .collect();
    let &[done, why, sync, close, made, last] = words.as_slice() else {
        panic!("{}: {line}", path.display());
    };
    Said {
        path,
        done: done as u64,
        why: why as i32,
        sync: sync as i32,
        close: close as i32,
        made: made as u64,
        last: last as i32,
    }
}

/// Has the file all that its writer was answered, and nothing else?
fn holds(path: &Path, said: &Said, piece: u64) {
    let name = said.path.file_name().unwrap().as_encoded_bytes();
    let block: Vec<u8> = name.iter().copied().cycle().take(piece as usize).collect();
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, said.done, "{}", path.display());
    for (at, chunk) in bytes.chunks(piece as usize).enumerate() {
        assert_eq!(
            chunk,
            &block[..chunk.len()],
            "{} piece {at}",
            path.display()
        );
    }
}

/// Is everything that was answered there, on all these mounts?
fn all_hold(mounts: &[Mount], all: &[Said], piece: u64) {
    for said in all {
        let dir = said.path.parent().unwrap().file_name().unwrap();
        let name = said.path.file_name().unwrap();
        for mount in mounts {
            holds(&mount.path().join(dir).join(name), said, piece);
        }
    }
}

fn volume(cell: &Cell, command: &str, words: &[&str]) -> String {
    let mut line = vec!["volume", command, cell.addr()];
    line.extend(words);
    let trust = cell.trust();
    line.extend(trust.iter().map(String::as_str));
    let output = run(&mut ariel(&line));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Bytes and objects of a volume, as the server counts them.
fn used(cell: &Cell, name: &str) -> (u64, u64) {
    let listed = volume(cell, "list", &["--json"]);
    let lines = listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let mut lines = lines.filter(|line: &serde_json::Value| line["name"] == name);
    let line = lines.next().expect("the volume");
    let number = |key: &str| line[key].as_u64().unwrap();
    (number("bytes"), number("objects"))
}

fn numbers(mount: &Mount) -> StatVfs {
    statvfs(mount.path()).unwrap()
}

#[test]
fn eight_writers_on_three_mounts_fill_a_quota_and_never_exceed_it() {
    const QUOTA: u64 = 24 * MIB;
    const OBJECTS: u64 = 400;
    const PIECE: u64 = 4096;
    if !real_system("room-quota") {
        return;
    }
    let Some(cell) = Cell::start("room-quota") else {
        return;
    };
    let objects = OBJECTS.to_string();
    let limits = [
        "q",
        "--mode",
        "777",
        "--quota",
        "24M",
        "--objects",
        &objects,
    ];
    volume(&cell, "create", &limits);
    let mounts: Vec<Mount> = (0..3)
        .map(|_| cell.mount_with(&["--volume", "q"]))
        .collect();
    let df = numbers(&mounts[0]);
    assert_eq!(df.f_blocks * df.f_frsize, QUOTA);
    assert_eq!(df.f_files, OBJECTS);
    for (at, mount) in mounts.iter().enumerate() {
        fs::create_dir(mount.join(&format!("d{at}"))).unwrap();
    }
    let writers = (0..8_usize).map(|at| {
        let dir = mounts[at % 3].join(&format!("d{}", at % 3));
        writer(dir.join(format!("w{at}")), PIECE, QUOTA, at % 2 == 0, 500)
    });
    let writers: Vec<_> = writers.collect();
    // While they write: the sum never exceeds the limit.
    let mut most = (0, 0);
    let full = eventually(Duration::from_secs(60), || {
        let (bytes, objects) = used(&cell, "q");
        assert!(bytes <= QUOTA && objects <= OBJECTS, "{bytes} {objects}");
        most = most.max((bytes, objects));
        bytes > QUOTA * 99 / 100
    });
    let all: Vec<Said> = writers.into_iter().map(said).collect();
    assert!(full, "at most {most:?} are used: {all:?}");
    let quota = Errno::DQUOT.raw_os_error();
    for said in &all {
        assert_eq!((said.why, said.sync, said.close), (quota, 0, 0), "{said:?}");
        assert_eq!(said.last, quota, "{said:?}");
    }
    let answered: u64 = all.iter().map(|said| said.done).sum();
    let made: u64 = all.iter().map(|said| said.made).sum();
    assert!(
        answered <= QUOTA && answered * 1000 >= QUOTA * 999,
        "{answered}"
    );
    // The root, three directories, and the writers' files.
    assert_eq!(made + 4 + 8, OBJECTS, "{all:?}");
    let counted = eventually(Duration::from_secs(60), || {
        used(&cell, "q") == (answered, OBJECTS)
    });
    assert!(
        counted,
        "{:?}, and {answered} were answered",
        used(&cell, "q")
    );
    all_hold(&mounts[..1], &all, PIECE);
    goes_on(&cell, &mounts, &all[0].path);
}

/// A file that is removed from the full volume makes room for others; and so do other limits.
fn goes_on(cell: &Cell, mounts: &[Mount], file: &Path) {
    const PIECE: u64 = 4096;
    let df = numbers(&mounts[1]);
    assert!(df.f_bavail * df.f_frsize < 8 * PIECE, "{}", df.f_bavail);
    // A removed file makes room for the next, without a word.
    fs::remove_file(file).unwrap();
    let here = file.with_file_name("again");
    fs::write(&here, [7; 4096]).unwrap();
    fs::remove_file(&here).unwrap();
    // Another machine may have kept the removal for a while, which was of its own directory.
    let path = mounts[1].join("again");
    let again = eventually(Duration::from_secs(30), || {
        fs::write(&path, [7; 4096]).is_ok()
    });
    assert!(again, "no room where some was made");
    let shown = volume(cell, "show", &["q"]);
    assert!(shown.contains("quota:     25165824 (24M), "), "{shown}");
    volume(cell, "set", &["q", "--quota", "none", "--objects", "none"]);
    fs::write(mounts[2].join("free"), vec![1; MIB as usize]).unwrap();
}

#[test]
fn what_delayed_writers_were_answered_is_there_on_a_full_disk() {
    const PIECE: u64 = 64 << 10;
    if !real_system("room-full") {
        return;
    }
    let options = CellOptions {
        disk_mib: Some(300),
        ..CellOptions::default()
    };
    let Some(cell) = Cell::start_with("room-full", options) else {
        return;
    };
    let mounts: Vec<Mount> = (0..3).map(|_| cell.mount()).collect();
    let spare = mounts[0].join("spare");
    let mut file = fs::File::create(&spare).unwrap();
    file.write_all(&vec![3; 40 << 20]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    for (at, mount) in mounts.iter().enumerate() {
        fs::create_dir(mount.join(&format!("d{at}"))).unwrap();
    }
    let writers = (0..6_usize).map(|at| {
        let dir = mounts[at % 3].join(&format!("d{}", at % 3));
        writer(dir.join(format!("w{at}")), PIECE, 300 * MIB, at % 2 == 0, 0)
    });
    let all: Vec<Said> = writers.collect::<Vec<_>>().into_iter().map(said).collect();
    let full = Errno::NOSPC.raw_os_error();
    for said in &all {
        assert_eq!((said.why, said.sync, said.close), (full, 0, 0), "{said:?}");
    }
    let answered: u64 = all.iter().map(|said| said.done).sum();
    assert!(answered > 100 * MIB, "{answered}");
    // Reading and removing go on; and then so does everything else.
    fs::read_dir(mounts[1].path()).unwrap();
    fs::remove_file(mounts[1].join("spare")).unwrap();
    fs::write(mounts[2].join("d2/again"), vec![9; MIB as usize]).unwrap();
    all_hold(&mounts, &all, PIECE);
    for mount in &mounts {
        let log = mount.log();
        assert!(!log.contains("not written back"), "{log}");
        assert!(log.len() < 20_000, "{} bytes of log", log.len());
    }
}
