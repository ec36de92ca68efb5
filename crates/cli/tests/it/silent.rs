//! A machine that is silent for longer than its lease loses what others want, and nothing else:
//! its changes of files that nobody else has touched are there when it comes back, and those of
//! files that others have changed, too, are kept beside these. Long: the machine is away for a
//! minute and a half.

use crate::harness::process::{ariel, run, stop};
use crate::harness::status::status;
use crate::harness::{Pair, eventually, long, real_system};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Longer than a lease, for which other machines that want something wait.
const BACK: Duration = Duration::from_secs(40);

/// The files that are kept beside others below a directory.
fn beside(dir: &std::path::Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is = |path: &PathBuf| path.to_string_lossy().contains(".conflict-");
    let mut all: Vec<PathBuf> = entries.filter(is).collect();
    all.sort();
    all
}

/// A file that is there, and open, with this content.
fn written(path: &std::path::Path, content: &str) -> File {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

fn content(file: &mut File) -> String {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_stopped_daemon_loses_no_byte_and_what_others_changed_too_is_kept_beside() {
    const TEST: &str = "silent-stopped";
    if !real_system(TEST) {
        return;
    }
    let Some(Pair { mut a, b, mut cell }) = Pair::start(TEST) else {
        return;
    };
    for name in ["looked-at", "changed", "alone"] {
        fs::write(b.join(name), "before").unwrap();
    }
    let on_a = |name: &str| written(&a.join(name), &format!("{name} by A"));
    let (mut looked_at, changed, mut alone) = (on_a("looked-at"), on_a("changed"), on_a("alone"));
    // Another program has it open, too.
    let also = File::open(a.join("changed")).unwrap();
    fs::create_dir(a.join("own")).unwrap();
    for number in 0..20 {
        fs::write(a.join("own").join(format!("{number}")), format!("{number}")).unwrap();
    }

    cell.watch().server_goes();
    let daemon = a.daemon().child().id();
    stop(daemon);
    // It is there after a lease: nobody waits for longer.
    assert_eq!(fs::read_to_string(b.join("looked-at")).unwrap(), "before");
    fs::write(b.join("changed"), "by B").unwrap();
    if long() {
        thread::sleep(Duration::from_secs(70));
    }
    a.daemon().signal(Signal::CONT);
    let seen = eventually(BACK, || {
        status(a.path())["stranded_files"] == 0 && !beside(b.path()).is_empty()
    });
    cell.watch().server_is_back();
    assert!(seen, "{}", a.log());

    looked_at.sync_all().unwrap();
    alone.sync_all().unwrap();
    assert_eq!(content(&mut looked_at), "looked-at by A");
    assert_eq!(content(&mut alone), "alone by A");
    is_told_once(&[&changed, &also]);
    // Not the business of a program that comes later.
    File::open(a.join("changed")).unwrap().sync_all().unwrap();
    for mount in [a.path(), b.path()] {
        let read = |name: &str| fs::read_to_string(mount.join(name)).unwrap();
        assert_eq!(read("looked-at"), "looked-at by A");
        assert_eq!(read("alone"), "alone by A");
        assert_eq!(read("changed"), "by B");
        for number in 0..20 {
            assert_eq!(read(&format!("own/{number}")), format!("{number}"));
        }
        let kept = beside(mount);
        let [kept] = &kept[..] else {
            panic!("{kept:?} are kept");
        };
        assert_eq!(fs::read_to_string(kept).unwrap(), "changed by A");
    }
    is_listed(b.path());
    let told = status(a.path());
    assert_eq!(
        (&told["conflicts"], &told["lost_bytes"]),
        (&1.into(), &0.into())
    );
    drop((looked_at, changed, also, alone, a, b));
    cell.stop_server();
    cell.assert_clean();
}

/// The written bytes are not in this file: the fsync of each descriptor that was open says so once.
fn is_told_once(descriptors: &[&File]) {
    let told = |file: &&File| file.sync_all().err().and_then(|error| error.raw_os_error());
    let eio = Some(Errno::IO.raw_os_error());
    let first: Vec<_> = descriptors.iter().map(told).collect();
    assert_eq!(first, vec![eio; descriptors.len()]);
    let second: Vec<_> = descriptors.iter().map(told).collect();
    assert_eq!(second, vec![None; descriptors.len()]);
}

/// `ariel conflicts` names what is kept, and nothing else.
fn is_listed(mount: &std::path::Path) {
    let listed = run(ariel(&["conflicts"]).arg(mount));
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.starts_with(&mount.join("changed.conflict-").display().to_string()),
        "{listed}"
    );
    assert_eq!(listed.lines().count(), 1, "{listed}");
}
