//! A mount's daemon ends without a word: no mount stays behind, and other mounts go on.

use crate::harness::{Cell, Pair, real_system};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn a_killed_daemon_leaves_no_mount_and_disturbs_nobody() {
    if !real_system("killed") {
        return;
    }
    let Some(pair) = Pair::start("killed") else {
        return;
    };
    fs::write(pair.a.join("ours"), b"ours").unwrap();
    fs::write(pair.b.join("synced"), b"synced").unwrap();
    File::open(pair.b.join("synced"))
        .unwrap()
        .sync_all()
        .unwrap();
    let held = File::options()
        .create_new(true)
        .write(true)
        .open(pair.b.join("held"))
        .unwrap();
    held.write_all_at(b"never synced", 0).unwrap();
    // In this order, so that the cell is dropped last.
    let Pair { cell, a, b } = pair;
    let point = b.path().to_owned();

    b.kill9();

    assert!(
        held.write_at(b"x", 0).is_err(),
        "a handle of a dead mount still writes"
    );
    drop(held);
    let begin = Instant::now();
    assert_eq!(fs::read(a.join("ours")).unwrap(), b"ours");
    fs::write(a.join("new"), b"new").unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "files of the living wait for the dead"
    );
    // What the dead one had may have to wait for the end of its lease.
    assert_eq!(fs::read(a.join("synced")).unwrap(), b"synced");
    fs::write(a.join("synced"), b"ours now").unwrap();
    let _ = fs::read(a.join("held")).unwrap();

    let again = crate::harness::Mount::start_at(&cell, point, &[]);
    assert_eq!(fs::read(again.join("synced")).unwrap(), b"ours now");
    fs::write(again.join("from again"), b"x").unwrap();
    assert_eq!(fs::read(a.join("from again")).unwrap(), b"x");
}

#[test]
fn a_daemon_asked_to_end_unmounts_and_loses_nothing() {
    if !real_system("terminated") {
        return;
    }
    let Some(cell) = Cell::start("terminated") else {
        return;
    };
    let mut mount = cell.mount();
    fs::write(mount.join("file"), b"written just before").unwrap();
    let point = mount.path().to_owned();
    mount.daemon().signal(rustix::process::Signal::TERM);
    let status = mount
        .daemon()
        .wait(Duration::from_secs(30))
        .expect("SIGTERM ends a mount");
    assert!(status.success(), "{status}\n{}", mount.log());
    let gone = fuse::mount::await_gone(&point, Duration::from_secs(5));
    assert!(gone.unwrap(), "the mount is still there");
    mount.forget();
    assert_eq!(
        fs::read(cell.mount().join("file")).unwrap(),
        b"written just before"
    );
}

#[test]
fn a_killed_server_does_not_keep_a_mount_from_ending() {
    if !real_system("orphan") {
        return;
    }
    let Some(mut cell) = Cell::start("orphan") else {
        return;
    };
    let mut mount = cell.mount();
    fs::write(mount.join("file"), b"x").unwrap();
    cell.kill9();
    mount.daemon().signal(rustix::process::Signal::TERM);
    let point = mount.path().to_owned();
    let gone = fuse::mount::await_gone(&point, Duration::from_secs(60));
    assert!(gone.unwrap(), "a mount without a server cannot be ended");
    let ended = mount.daemon().wait(Duration::from_secs(30));
    assert!(ended.is_some(), "its daemon goes on");
    mount.forget();
}
