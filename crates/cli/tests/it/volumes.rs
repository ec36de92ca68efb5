//! Volumes, their snapshots and clones, on real mounts: what a snapshot has, under load; that
//! nothing changes it; clones; deletions and their undoing; and the command line.

use crate::harness::{
    Cell, Pair, ariel, eventually, names, process::shell_ok, real_system, run, text,
};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

fn volume(cell: &Cell, command: &str, words: &[&str]) -> Output {
    let mut line = vec!["volume", command, cell.addr()];
    line.extend(words);
    let trust = cell.trust();
    line.extend(trust.iter().map(String::as_str));
    run(&mut ariel(&line))
}

#[track_caller]
pub fn done(cell: &Cell, command: &str, words: &[&str]) -> String {
    let output = volume(cell, command, words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub fn refused(cell: &Cell, command: &str, words: &[&str], why: &str) {
    let output = volume(cell, command, words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(said.contains(why), "{said}");
}

/// Everything of a tree: kind, mode, owner, size, times, links, targets and bytes.
fn manifest(dir: &Path) -> String {
    let list = "find . -mindepth 1 -printf '%P %y %m %U:%G %n %s %T@ %l\n' | sort; \
                find . -type f -print0 | sort -z | xargs -0 -r sha256sum; \
                getfattr -R -d -m - . 2>/dev/null | sort";
    shell_ok(dir, list)
}

fn fill(dir: &Path) {
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/one"), "one").unwrap();
    fs::hard_link(dir.join("d/one"), dir.join("d/two")).unwrap();
    std::os::unix::fs::symlink("d/one", dir.join("link")).unwrap();
    fs::set_permissions(dir.join("d"), PermissionsExt::from_mode(0o751)).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(&[7; 100_000], 3 << 20).unwrap();
}

#[test]
fn a_snapshot_is_the_tree_of_its_moment_and_never_changes() {
    if !real_system("volumes-snapshot") {
        return;
    }
    let Some(pair) = Pair::start("volumes-snapshot") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    fill(a);
    // Written and open, in a directory that the mount has for itself.
    let mut open = File::create(a.join("d/open")).unwrap();
    open.write_all(b"open").unwrap();
    let expected = manifest(a);
    assert_eq!(done(cell, "snapshot", &["root", "monday"]), "root@monday\n");
    open.write_all(b" and later").unwrap();
    fs::remove_file(b.join("d/two")).unwrap();
    fs::rename(b.join("sparse"), b.join("d/moved")).unwrap();
    fs::write(b.join("d/one"), "changed").unwrap();
    fs::create_dir(a.join("new")).unwrap();

    let frozen = cell.mount_with(&["--volume", "root@monday"]);
    let snap = frozen.path();
    assert_eq!(manifest(snap), expected);
    let read_only = |result: std::io::Result<()>| {
        let error = result.expect_err("it was changed");
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    };
    read_only(fs::write(snap.join("new"), "x"));
    read_only(fs::remove_file(snap.join("d/one")));
    read_only(fs::create_dir(snap.join("e")));
    read_only(fs::rename(snap.join("link"), snap.join("other")));
    read_only(fs::set_permissions(
        snap.join("d"),
        PermissionsExt::from_mode(0o700),
    ));
    read_only(
        File::options()
            .write(true)
            .open(snap.join("d/one"))
            .map(drop),
    );
    drop(open);
    // A snapshot outlives the server's process.
    let mut pair = pair;
    pair.cell.kill9();
    pair.cell.start_server();
    assert_eq!(manifest(snap), expected);
    assert_eq!(fs::read(pair.a.join("d/one")).unwrap(), b"changed");
    let bytes = fs::metadata(pair.b.join("d/open")).unwrap().size();
    assert_eq!(bytes, "open and later".len() as u64);
}

/// A program that appends numbered records to two files, the second only when the first has it.
fn append(dirs: [&Path; 2], (begun, answered): (&AtomicU64, &AtomicU64), stop: &AtomicBool) {
    let open = |dir: &Path, name: &str| {
        let options = File::options().append(true).create(true).clone();
        options.open(dir.join(name)).unwrap()
    };
    let (mut first, mut second) = (open(dirs[0], "first"), open(dirs[1], "second"));
    for number in 1.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let record = format!("{number:015}\n");
        begun.store(number, Ordering::SeqCst);
        first.write_all(record.as_bytes()).unwrap();
        second.write_all(record.as_bytes()).unwrap();
        answered.store(number, Ordering::SeqCst);
    }
}

const SNAPSHOTS: usize = 20;
const RECORD: u64 = 16;

#[test]
fn snapshots_under_load_have_every_answered_write_and_no_later_one() {
    if !real_system("volumes-load") {
        return;
    }
    let Some(pair) = Pair::start("volumes-load") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    let stop = AtomicBool::new(false);
    let counts: Vec<(AtomicU64, AtomicU64)> = (0..3).map(|_| Default::default()).collect();
    fs::create_dir(a.join("own")).unwrap();
    let mut seen = Vec::new();
    // One file cached by its only writer, one in a directory of its own, both on two mounts.
    let (own_a, own_b) = (a.join("own"), b.join("own"));
    let dirs = [
        [a.to_owned(), a.to_owned()],
        [own_a, b.join("shared")],
        [b.join("other"), own_b],
    ];
    for dir in ["shared", "other"] {
        fs::create_dir(b.join(dir)).unwrap();
    }
    thread::scope(|scope| {
        for ((begun, answered), dirs) in counts.iter().zip(&dirs) {
            let stop = &stop;
            scope.spawn(move || append([&dirs[0], &dirs[1]], (begun, answered), stop));
        }
        for nth in 0..SNAPSHOTS {
            // So many more records by each: the snapshots are at different moments.
            let before: Vec<u64> = counts.iter().map(|c| c.1.load(Ordering::SeqCst)).collect();
            while counts
                .iter()
                .zip(&before)
                .any(|(count, before)| count.1.load(Ordering::SeqCst) < before + 3)
            {
                thread::yield_now();
            }
            let answered: Vec<u64> = counts.iter().map(|c| c.1.load(Ordering::SeqCst)).collect();
            done(cell, "snapshot", &["root", &format!("s{nth}")]);
            let begun: Vec<u64> = counts.iter().map(|c| c.0.load(Ordering::SeqCst)).collect();
            seen.push((answered, begun));
        }
        stop.store(true, Ordering::SeqCst);
    });
    judge(cell, &seen);
}

/// Judges each snapshot: it has all that was answered before, nothing that was begun after it, and
/// never the second file ahead of the first.
fn judge(cell: &Cell, seen: &[(Vec<u64>, Vec<u64>)]) {
    let places = [
        ["first", "second"],
        ["own/first", "shared/second"],
        ["other/first", "own/second"],
    ];
    for (nth, (answered, begun)) in seen.iter().enumerate() {
        let frozen = cell.mount_with(&["--volume", &format!("root@s{nth}")]);
        for (writer, files) in places.iter().enumerate() {
            let records = files.map(|file| {
                let bytes = fs::read(frozen.join(file)).unwrap();
                let whole: String = (1..=bytes.len() as u64 / RECORD)
                    .map(|number| format!("{number:015}\n"))
                    .collect();
                assert!(bytes == whole.as_bytes(), "snapshot {nth}: {file} is torn");
                bytes.len() as u64 / RECORD
            });
            let (least, most) = (answered[writer], begun[writer]);
            for count in records {
                assert!(
                    (least..=most).contains(&count),
                    "snapshot {nth}, writer {writer}: {count} records, {least} were answered \
                     before and {most} begun after"
                );
            }
            assert!(
                records[0] >= records[1],
                "snapshot {nth}, writer {writer}: the second file is ahead: {records:?}"
            );
        }
    }
}

#[test]
fn a_clone_goes_its_own_way_and_a_deleted_volume_comes_back() {
    if !real_system("volumes-clone") {
        return;
    }
    let Some(mut pair) = Pair::start("volumes-clone") else {
        return;
    };
    let a = pair.a.path().to_owned();
    fill(&a);
    let expected = manifest(&a);
    assert_eq!(done(&pair.cell, "clone", &["root", "trial"]), "trial\n");
    let (one, other) = (
        pair.cell.mount_with(&["--volume", "trial"]),
        pair.cell.mount_with(&["--volume", "trial"]),
    );
    assert_eq!(manifest(one.path()), expected);
    fs::write(one.join("d/one"), "of the clone").unwrap();
    assert_eq!(fs::read(other.join("d/two")).unwrap(), b"of the clone");
    fs::remove_file(other.join("link")).unwrap();
    assert_eq!(manifest(&a), expected);
    fs::write(a.join("d/one"), "of the volume").unwrap();
    let cloned = manifest(one.path());
    assert!(cloned.contains("sparse") && !cloned.contains("link"));

    done(&pair.cell, "delete", &["trial"]);
    for mount in [&one, &other] {
        let gone = fs::read(mount.join("d/one")).expect_err("it is deleted");
        assert_eq!(
            gone.raw_os_error(),
            Some(rustix::io::Errno::STALE.raw_os_error())
        );
    }
    pair.cell.restart();
    done(&pair.cell, "undelete", &["trial"]);
    drop((one, other));
    let back = pair.cell.mount_with(&["--volume", "trial"]);
    assert_eq!(manifest(back.path()), cloned);
    drop(back);
    done(&pair.cell, "delete", &["trial"]);
    done(&pair.cell, "purge", &["trial"]);
    refused(&pair.cell, "undelete", &["trial"], "no such volume");
    assert_eq!(fs::read(a.join("d/two")).unwrap(), b"of the volume");
}

#[test]
fn the_command_line_tells_what_is_wrong_and_what_helps() {
    if !real_system("volumes-command") {
        return;
    }
    let Some(cell) = Cell::start("volumes-command") else {
        return;
    };
    assert_eq!(done(&cell, "create", &["home", "--mode", "750"]), "home\n");
    done(&cell, "snapshot", &["home", "one"]);
    let list = done(&cell, "list", &[]);
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["NAME", "home", "home@one", "root"]);
    let json = done(&cell, "list", &["--json"]);
    let lines: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[1]["name"], "home@one");
    assert_eq!(lines[1]["snapshot"], true);
    assert!(done(&cell, "show", &["home"]).contains("snapshot:  home@one"));
    done(&cell, "rename", &["home@one", "home@two"]);
    let wrong: [(&str, &[&str], &str); 8] = [
        ("create", &["home"], "the name is taken"),
        ("create", &["root"], "the name is taken"),
        ("snapshot", &["house", "x"], "no such volume"),
        ("snapshot", &["home@two", "x"], "a snapshot never changes"),
        ("delete", &["root"], "the first volume stays"),
        (
            "rename",
            &["home@two", "root@two"],
            "stays one of its volume",
        ),
        ("purge", &["home"], "`ariel volume delete` comes first"),
        ("show", &["house"], "no such volume"),
    ];
    for (command, words, why) in wrong {
        refused(&cell, command, words, why);
    }
    let odd = volume(&cell, "create", &["a/b"]);
    assert_eq!(odd.status.code(), Some(2), "{}", text(&odd));

    // The commands that need no mount work on any volume.
    let trust = cell.trust();
    let tree = |words: &[&str]| {
        let words = words.iter().copied();
        let words: Vec<&str> = words.chain(trust.iter().map(String::as_str)).collect();
        run(&mut ariel(&words))
    };
    let place = |path: &str| format!("{}:{path}", cell.addr());
    let made = tree(&["mkdir", "--volume", "home", &place("/d")]);
    assert!(made.status.success(), "{}", text(&made));
    let listed = tree(&["ls", "--volume", "home", &place("/")]);
    assert_eq!(listed.stdout, b"d\n", "{}", text(&listed));
    let listed = tree(&["ls", "--volume", "home@two", &place("/")]);
    assert_eq!(listed.stdout, b"", "{}", text(&listed));
    let refused = tree(&["mkdir", "--volume", "home@two", &place("/d")]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("a snapshot never changes"), "{said}");
    let missing = tree(&["ls", "--volume", "house", &place("/")]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(said.contains("a volume that is not there"), "{said}");
}

#[track_caller]
fn fails_with<T>(result: std::io::Result<T>, expected: rustix::io::Errno) {
    let error = result.err().expect("it fails");
    assert_eq!(
        error.raw_os_error(),
        Some(expected.raw_os_error()),
        "{error}"
    );
}

/// The output of an ordinary user's command.
fn as_user(dir: &Path, line: &str) -> Output {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", line]).current_dir(dir);
    run(command.uid(12_345).gid(23_456))
}

#[test]
fn snapshots_are_below_the_root_for_everybody_and_read_only() {
    if !real_system("volumes-below") {
        return;
    }
    let Some(pair) = Pair::start("volumes-below") else {
        return;
    };
    let (cell, a, b) = (&pair.cell, pair.a.path(), pair.b.path());
    fill(a);
    fs::write(a.join("d/secret"), "secret").unwrap();
    fs::set_permissions(a.join("d/secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let mut open = File::create(a.join("d/open")).unwrap();
    open.write_all(b"open").unwrap();
    let (root_names, expected) = (names(a), manifest(a));
    assert_eq!(names(&b.join(".snapshots")), [""; 0]);
    done(cell, "snapshot", &["root", "monday"]);
    open.write_all(b" and later").unwrap();
    fs::write(b.join("d/one"), "changed").unwrap();
    fs::remove_file(b.join("sparse")).unwrap();
    for side in [a, b] {
        assert_eq!(names(&side.join(".snapshots")), ["monday"]);
        assert_eq!(manifest(&side.join(".snapshots/monday")), expected);
        assert!(!names(side).contains(&".snapshots".to_owned()));
    }
    assert_eq!(names(a).len() + 1, root_names.len());

    let monday = a.join(".snapshots/monday");
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    assert_ne!(inode(&monday.join("d/one")), inode(&a.join("d/one")));
    let again = b.join(".snapshots/monday/d/one");
    assert_eq!(inode(&monday.join("d/one")), inode(&again));

    // Modes count as they were.
    let read = as_user(&monday, "cat d/one");
    assert_eq!(read.stdout, b"one", "{}", text(&read));
    for forbidden in ["cat d/secret", "ls d", "mkdir ../x", "touch new"] {
        assert_ne!(as_user(&monday, forbidden).status.code(), Some(0));
    }
    nothing_there_changes(a);
    // A file comes back, and shares its bytes with the snapshot.
    shell_ok(
        a,
        "cp -p .snapshots/monday/sparse . && cp -p .snapshots/monday/d/one d/one",
    );
    let bytes = |dir: &Path| {
        (
            fs::read(dir.join("sparse")).unwrap(),
            fs::read(dir.join("d/two")),
        )
    };
    assert!(bytes(b).0 == bytes(&monday).0);
    assert_eq!(bytes(b).1.unwrap(), b"one");
    drop(open);
    let Pair { a, b, mut cell } = pair;
    drop((a, b));
    cell.stop_server();
    cell.assert_clean();
}

/// By root, since no mode keeps root from it.
fn nothing_there_changes(root: &Path) {
    use rustix::io::Errno;
    let all = root.join(".snapshots");
    let monday = all.join("monday");
    let write = |path: &Path| File::options().write(true).open(path);
    fails_with(fs::write(monday.join("new"), "x"), Errno::ROFS);
    fails_with(write(&monday.join("d/one")), Errno::ROFS);
    fails_with(fs::remove_file(monday.join("d/one")), Errno::ROFS);
    fails_with(fs::create_dir(monday.join("e")), Errno::ROFS);
    fails_with(
        fs::rename(monday.join("link"), monday.join("other")),
        Errno::ROFS,
    );
    let closed: fs::Permissions = PermissionsExt::from_mode(0o700);
    fails_with(
        fs::set_permissions(monday.join("d"), closed.clone()),
        Errno::ROFS,
    );
    fails_with(fs::create_dir(all.join("x")), Errno::ROFS);
    fails_with(fs::write(all.join("x"), "x"), Errno::ROFS);
    fails_with(fs::set_permissions(&all, closed), Errno::ROFS);
    // Nothing leads from one volume into another.
    fails_with(
        fs::hard_link(monday.join("d/one"), root.join("x")),
        Errno::XDEV,
    );
    fails_with(
        fs::rename(monday.join("d/one"), root.join("x")),
        Errno::XDEV,
    );
    // The name is taken, and stays.
    fails_with(fs::create_dir(&all), Errno::EXIST);
    fails_with(fs::remove_dir(&all), Errno::ROFS);
    fails_with(fs::rename(&all, root.join("x")), Errno::ROFS);
    fs::create_dir(root.join("empty")).unwrap();
    fails_with(fs::rename(root.join("empty"), &all), Errno::ROFS);
    fs::remove_dir(root.join("empty")).unwrap();
}

/// A program that makes the name without a mount keeps it.
fn whoever_has_the_name_keeps_it(cell: &Cell, sides: [&Path; 2]) {
    let place = format!("{}:/.snapshots", cell.addr());
    let trust = cell.trust();
    for (command, listed) in [("mkdir", true), ("rm", false)] {
        let mut line = vec![command, &place];
        if command == "rm" {
            line.insert(1, "-r");
        }
        line.extend(trust.iter().map(String::as_str));
        let made = run(&mut ariel(&line));
        assert!(made.status.success(), "{}", text(&made));
        for side in sides {
            assert_eq!(names(side).contains(&".snapshots".to_owned()), listed);
            assert_eq!(side.join(".snapshots/one").exists(), !listed);
        }
    }
}

#[test]
fn snapshots_come_and_go_below_the_root_for_all_mounts_at_once() {
    if !real_system("volumes-come-and-go") {
        return;
    }
    let Some(mut pair) = Pair::start("volumes-come-and-go") else {
        return;
    };
    let (a, b) = (pair.a.path().to_owned(), pair.b.path().to_owned());
    fs::write(a.join("f"), "one").unwrap();
    done(&pair.cell, "snapshot", &["root", "one"]);
    let all = |expected: &[&str]| {
        for side in [&a, &b] {
            assert_eq!(names(&side.join(".snapshots")), expected);
            for name in ["one", "two", "three"] {
                let file = side.join(".snapshots").join(name).join("f");
                assert_eq!(
                    file.exists(),
                    expected.contains(&name),
                    "{}",
                    file.display()
                );
            }
        }
    };
    all(&["one"]);
    // A directory that stays open is no other.
    let held = rustix::fs::open(
        a.join(".snapshots"),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let mut held = rustix::fs::Dir::new(held).unwrap();
    let mut count = || {
        held.rewind();
        std::iter::from_fn(|| held.read()).count()
    };
    assert_eq!(count(), 3);
    fs::write(b.join("f"), "two").unwrap();
    done(&pair.cell, "snapshot", &["root", "two"]);
    assert_eq!(count(), 4);
    all(&["one", "two"]);
    assert_eq!(fs::read(a.join(".snapshots/two/f")).unwrap(), b"two");
    let open = File::open(a.join(".snapshots/one/f")).unwrap();
    done(&pair.cell, "delete", &["root@one"]);
    all(&["two"]);
    fails_with(open.metadata().map(drop), rustix::io::Errno::STALE);
    drop(open);
    done(&pair.cell, "rename", &["root@two", "root@three"]);
    all(&["three"]);
    done(&pair.cell, "undelete", &["root@one"]);
    all(&["one", "three"]);
    assert_eq!(count(), 4);
    pair.cell.kill9();
    pair.cell.start_server();
    all(&["one", "three"]);
    done(&pair.cell, "delete", &["root@three"]);
    all(&["one"]);

    whoever_has_the_name_keeps_it(&pair.cell, [&a, &b]);
    let hidden = pair.cell.mount_with(&["--hide-snapshots"]);
    assert!(!hidden.join(".snapshots").exists());
    let frozen = pair.cell.mount_with(&["--volume", "root@one"]);
    assert!(frozen.join("f").exists() && !frozen.join(".snapshots").exists());
}

fn scheduled(cell: &Cell) -> Vec<String> {
    let list = done(cell, "list", &["--json"]);
    let lines = list.lines().map(|line| serde_json::from_str(line).unwrap());
    let names = lines.map(|line: serde_json::Value| line["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("root@1s-")).collect()
}

fn schedules_that_make_no_sense_are_refused(cell: &Cell) {
    for (words, why) in [
        (&["root", "--every", "hour"][..], "needs its --keep"),
        (&["root", "--every", "hour", "--keep", "1001"], "at most"),
        (
            &[
                "root", "--every", "1h", "--keep", "1", "--every", "hour", "--keep", "2",
            ],
            "twice",
        ),
        (&["root", "--every", "month", "--keep", "1"], "not a period"),
        (&["root@x", "--none"], "no `@`"),
        (&["root"], "--every"),
    ] {
        let wrong = volume(cell, "schedule", words);
        let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert!(
            wrong.status.code() == Some(2) && said.contains(why),
            "{said}"
        );
    }
}

#[test]
fn a_schedule_makes_snapshots_and_takes_them_away() {
    if !real_system("volumes-schedule") {
        return;
    }
    let Some(mut cell) = Cell::start("volumes-schedule") else {
        return;
    };
    let mount = cell.mount();
    fs::write(mount.join("f"), "written").unwrap();
    let rules = [
        "--every", "1s", "--keep", "2", "--every", "day", "--keep", "7",
    ];
    done(&cell, "schedule", &[&["root"], &rules[..]].concat());
    let shown = done(&cell, "show", &["root"]);
    assert!(shown.contains("every 1s, keep 2") && shown.contains("every day, keep 7"));
    // Until the first ones have gone again. Nobody tells of that: this looks from time to time.
    let limit = std::time::Duration::from_secs(60);
    let mut first = Vec::new();
    let turns = |cell: &Cell, first: &mut Vec<String>| {
        let turned = eventually(limit, || {
            let now = scheduled(cell);
            assert!(now.len() <= 3, "{now:?}");
            if first.is_empty() {
                *first = now;
                return false;
            }
            !now.is_empty() && now.iter().all(|name| !first.contains(name))
        });
        assert!(turned, "{first:?} stay");
    };
    turns(&cell, &mut first);
    let days = names(&mount.join(".snapshots"));
    let day = days.iter().find(|name| name.starts_with("day-")).unwrap();
    let file = mount.join(".snapshots").join(day).join("f");
    assert_eq!(
        fs::read(file).unwrap(),
        b"written",
        "it was in the mount's cache alone"
    );
    // It goes on after the server's process has ended, and nobody waits for what it missed.
    cell.kill9();
    cell.start_server();
    first.clear();
    turns(&cell, &mut first);
    let newest = scheduled(&cell).pop().unwrap();
    done(&cell, "schedule", &["root", "--none"]);
    assert!(!done(&cell, "show", &["root"]).contains("every"));
    let left = scheduled(&cell);
    assert!(
        left.len() <= 3 && left.iter().any(|name| *name >= newest),
        "{left:?}"
    );
    schedules_that_make_no_sense_are_refused(&cell);
    drop(mount);
    cell.stop_server();
    cell.assert_clean();
}

#[test]
fn a_volume_is_shown_as_json_too() {
    let Some(cell) = Cell::start("volumes-show-json") else {
        return;
    };
    done(&cell, "create", &["v"]);
    done(&cell, "set", &["v", "--quota", "8M"]);
    done(&cell, "snapshot", &["v", "one"]);
    // A name that is taken is told with what has it, and with what is possible then.
    let cure = "v@one: the volume has a snapshot of this name";
    refused(&cell, "snapshot", &["v", "one"], cure);
    done(&cell, "snapshot", &["v", "two"]);
    refused(&cell, "rename", &["v@two", "v@one"], cure);
    done(&cell, "delete", &["v@two"]);
    let shown: serde_json::Value =
        serde_json::from_str(&done(&cell, "show", &["v", "--json"])).unwrap();
    assert_eq!(shown["name"], "v");
    assert_eq!(shown["quota_bytes"], 8 << 20);
    assert_eq!(shown["snapshots"], serde_json::json!(["v@one"]));
    assert_eq!(shown["replicas"], serde_json::Value::Null);
    // All that the list says of it is there under the same names.
    let list = done(&cell, "list", &["--json"]);
    let mut lines = list
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let listed = lines.find(|line| line["name"] == "v").unwrap();
    for (name, value) in listed.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}");
    }
}
