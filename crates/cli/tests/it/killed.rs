//! A mount's daemon ends without a word: the directory below its mount is never shown, its guard
//! mounts again, and other mounts go on.

use crate::harness::mount::{Background, is_dead};
use crate::harness::scratch::is_mounted;
use crate::harness::starts::closed_is_closed;
use crate::harness::{Cell, Mount, Pair, Random, ariel, eventually, real_system, run, text};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn a_killed_daemon_leaves_a_dead_mount_and_disturbs_nobody() {
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

    let point = b.kill9_and_stay();

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
    // A request for what the dead mount held may have to wait for the end of its lease.
    assert_eq!(fs::read(a.join("synced")).unwrap(), b"synced");
    fs::write(a.join("synced"), b"ours now").unwrap();
    let _ = fs::read(a.join("held")).unwrap();

    let again = Mount::start_at(&cell, point, &[]);
    assert_eq!(fs::read(again.join("synced")).unwrap(), b"ours now");
    fs::write(again.join("from again"), b"x").unwrap();
    assert_eq!(fs::read(a.join("from again")).unwrap(), b"x");
}

#[test]
fn a_directory_of_a_dead_mount_shows_no_names_of_before() {
    if !real_system("killed-names") {
        return;
    }
    let Some(pair) = Pair::start("killed-names") else {
        return;
    };
    fs::create_dir(pair.a.join("d")).unwrap();
    fs::write(pair.a.join("d/there"), b"there").unwrap();
    let dir = File::open(pair.b.join("d")).unwrap();
    let look = |name: &str| rustix::fs::statat(&dir, name, rustix::fs::AtFlags::empty());
    for _ in 0..2 {
        assert_eq!(look("absent").err(), Some(Errno::NOENT));
        look("there").unwrap();
    }
    let Pair { cell, a, b } = pair;

    let point = b.kill9_and_stay();

    // Returns when the server has been told of the death, or at the end of the lease.
    fs::write(a.join("d/absent"), b"there now").unwrap();
    fs::remove_file(a.join("d/there")).unwrap();
    for name in ["absent", "there"] {
        assert_eq!(look(name).err(), Some(Errno::NOTCONN), "{name}");
    }
    drop(dir);
    let again = Mount::start_at(&cell, point, &[]);
    assert_eq!(fs::read(again.join("d/absent")).unwrap(), b"there now");
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

/// Looks at a mount point, and through it, until it is told to stop. Each look must find a mount,
/// alive or dead. Returns how often it was dead.
fn look(point: &Path, stop: &AtomicBool) -> usize {
    let below = fs::metadata(point.parent().unwrap()).unwrap().dev();
    let is_of_dead = |error: &std::io::Error| {
        // The last: of requests under way over io_uring.
        let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
        let dead = dead.map(|errno| Some(errno.raw_os_error()));
        dead.contains(&error.raw_os_error())
    };
    let mut dead = 0;
    while !stop.load(Ordering::Relaxed) {
        match fs::metadata(point) {
            Ok(found) => assert_ne!(found.dev(), below, "the directory below is shown"),
            Err(error) if is_of_dead(&error) => dead += 1,
            Err(error) => panic!("{error}"),
        }
        match fs::read(point.join("synced")) {
            Ok(bytes) => assert_eq!(bytes, b"synced"),
            Err(error) if is_of_dead(&error) => dead += 1,
            Err(error) => panic!("{error}"),
        }
    }
    dead
}

#[test]
fn a_killed_daemon_in_the_background_is_mounted_again_by_its_guard() {
    if !real_system("again") {
        return;
    }
    let Some(cell) = Cell::start("again") else {
        return;
    };
    let mount = Background::start(&cell, "again", &["--cache-mib", "32"]);
    fs::write(mount.join("synced"), b"synced").unwrap();
    File::open(mount.join("synced"))
        .unwrap()
        .sync_all()
        .unwrap();
    let (stop, kills) = (AtomicBool::new(false), 4);
    let dead = std::thread::scope(|scope| {
        let looking = scope.spawn(|| look(mount.path(), &stop));
        for kill in 1..=kills {
            let user = File::create(mount.join("in use")).unwrap();
            let before = mount.process();
            mount.signal(rustix::process::Signal::KILL);
            let back = eventually(Duration::from_secs(60), || {
                mount.status().is_some_and(|status| status["pid"] != before)
            });
            assert!(back, "kill {kill}: not mounted again\n{}", mount.log());
            // Open descriptors are of the mount that died.
            let error = user.write_at(b"x", 0).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
            fs::write(mount.join("new"), b"new").unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert!(dead > 0, "nobody has seen a dead mount");
    let log = mount.log();
    assert_eq!(log.matches("mounted again").count(), 2 * kills, "{log}");
    let slots = mount.status().unwrap()["cache"]["slots"].clone();
    assert_eq!(slots, 32 * 256, "mounted again with other arguments");
    // Of all of them one is left, and its end is an orderly one.
    let output = run(&mut ariel(&[Path::new("umount"), mount.path()]));
    assert!(output.status.success(), "{}", text(&output));
    assert!(!is_mounted(mount.path()));
}

#[test]
fn a_connection_that_is_cut_loses_nothing_and_is_mounted_again() {
    if !real_system("cut") {
        return;
    }
    let Some(cell) = Cell::start("cut") else {
        return;
    };
    let mount = Background::start(&cell, "cut", &[]);
    let bytes = Random(3).bytes(8 << 20);
    fs::write(mount.join("dirty"), &bytes).unwrap();
    let user = File::create(mount.join("in use")).unwrap();
    let before = mount.process();
    let forced = rustix::mount::unmount(mount.path(), rustix::mount::UnmountFlags::FORCE);
    assert_eq!(forced, Err(Errno::BUSY));
    assert!(user.write_at(b"x", 0).is_err());
    let back = eventually(Duration::from_secs(60), || {
        mount.status().is_some_and(|status| status["pid"] != before)
    });
    assert!(back, "not mounted again\n{}", mount.log());
    assert!(fs::read(mount.join("dirty")).unwrap() == bytes);
    assert!(!mount.log().contains("lost"), "{}", mount.log());
}

#[test]
fn a_mount_that_cannot_be_mounted_again_stays_dead_and_says_why() {
    if !real_system("dead") {
        return;
    }
    let Some(mut cell) = Cell::start("dead") else {
        return;
    };
    let mount = Background::start(&cell, "dead", &[]);
    cell.kill9();
    mount.signal(rustix::process::Signal::KILL);
    let told = eventually(Duration::from_secs(60), || {
        mount.log().contains("next try in")
    });
    assert!(told, "{}", mount.log());
    let log = mount.log();
    let why = log
        .lines()
        .find(|line| line.contains("cannot be mounted again"))
        .unwrap();
    assert!(why.contains(cell.addr()), "{why}");
    let not_connected = Some(Errno::NOTCONN.raw_os_error());
    let dead = fs::write(mount.join("file"), b"x").unwrap_err();
    assert_eq!(dead.raw_os_error(), not_connected);
    // A person takes it away, and the guard does not bring it back.
    let output = run(&mut ariel(&[Path::new("umount"), mount.path()]));
    assert!(output.status.success(), "{}", text(&output));
    let heard = eventually(Duration::from_secs(60), || {
        mount.log().contains("taken away")
    });
    assert!(heard, "{}", mount.log());
    cell.start_server();
    assert!(!is_mounted(mount.path()));
}

#[test]
fn a_mount_without_daemon_and_guard_stays_dead_until_somebody_mounts() {
    if !real_system("both") {
        return;
    }
    let Some(cell) = Cell::start("both") else {
        return;
    };
    let mount = Background::start(&cell, "both", &[]);
    fs::write(mount.join("synced"), b"synced").unwrap();
    File::open(mount.join("synced"))
        .unwrap()
        .sync_all()
        .unwrap();
    mount.kill_guard();
    mount.signal(rustix::process::Signal::KILL);
    assert!(is_dead(mount.path()));
    let point = mount.path().to_str().unwrap();
    let output = run(&mut ariel(&["mount", cell.addr(), point]));
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read(mount.join("synced")).unwrap(), b"synced");
}

/// The kernel gives the number of the old mount's connection to the new one, at the same place.
#[test]
fn a_mount_made_at_once_after_umount_stays_and_has_everything() {
    if !real_system("at-once") {
        return;
    }
    let Some(cell) = Cell::start("at-once") else {
        return;
    };
    let mut mount = cell.mount();
    let point = mount.path().to_owned();
    for round in 0..6 {
        let bytes = Random(round).bytes(32 << 20);
        fs::write(mount.join("dirty"), &bytes).unwrap();
        closed_is_closed();
        // Nothing tells when the last user's hold on it is gone.
        let unmount = || {
            let none = rustix::mount::UnmountFlags::empty();
            rustix::mount::unmount(&point, none).is_ok()
        };
        let unmounted = eventually(Duration::from_secs(20), unmount);
        assert!(unmounted, "round {round}: it is in use");
        let next = Mount::start_at(&cell, point.clone(), &[]);
        let ended = mount.daemon().wait(Duration::from_secs(60));
        assert!(
            ended.is_some_and(|status| status.success()),
            "{ended:?}\n{}",
            mount.log()
        );
        assert!(
            is_mounted(&point),
            "round {round}: the new mount was unmounted"
        );
        assert!(
            fs::read(next.join("dirty")).unwrap() == bytes,
            "round {round}"
        );
        assert!(
            next.log().contains("waiting for the last mount"),
            "{}",
            next.log()
        );
        std::mem::replace(&mut mount, next).forget();
    }
    let log = mount.log();
    assert!(
        !log.contains("WARN"),
        "a clean end is none to warn of: {log}"
    );
}
