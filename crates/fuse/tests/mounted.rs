//! A real mount of a small file system: what the kernel asks, what it caches, what it gives up.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ariel_fuse::abi::ROOT_ID;
use ariel_fuse::mount::Control;
use ariel_fuse::{Errno, MountError, MountOptions, Transport, mount};
use support::{Mount, can_mount, is_mounted, ordinary_operations};

/// Of the mounts here.
#[allow(dead_code)]
const TRANSPORT: Transport = Transport::Device;

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap()
}

#[test]
fn ordinary_operations_work_with_one_thread_and_with_four() {
    if !can_mount() {
        return;
    }
    for threads in [1, 4] {
        let mount = Mount::new(threads);
        ordinary_operations(&mount);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let mount = &mount;
                scope.spawn(move || {
                    for round in 0..50 {
                        let path = mount.at(&format!("{number}-{round}"));
                        let content = vec![number as u8; 10_000 + round];
                        fs::write(&path, &content).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), content);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 400);
    }
}

#[test]
fn requests_are_as_large_as_agreed() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    if mount::set_read_ahead(mount.connection, 1 << 20).is_err() {
        println!("SKIPPED: /sys cannot be written here");
        return;
    }
    mount.memory.put("large", &vec![7; 8 << 20]);
    assert_eq!(fs::read(mount.at("large")).unwrap().len(), 8 << 20);
    fs::write(mount.at("written"), vec![8; 4 << 20]).unwrap();
    assert_eq!(mount.memory.largest(), (1 << 20, 1 << 20));
}

#[test]
fn large_listings_come_complete() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(2);
    for number in 0..3000 {
        mount.memory.put(
            &format!("name-{number:0width$}", width = 1 + number % 200),
            b"x",
        );
    }
    let mut seen: Vec<_> = fs::read_dir(&mount.path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3000);
}

#[test]
fn what_is_cached_is_not_asked_for_again() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(2);
    mount.memory.put("file", b"content");
    let warm = || {
        assert_eq!(fs::metadata(mount.at("file")).unwrap().len(), 7);
        assert!(fs::metadata(mount.at("absent")).is_err());
    };
    let mut file = fs::File::open(mount.at("file")).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    warm();
    let before = mount.requests();
    for _ in 0..100 {
        warm();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut content).unwrap();
    }
    assert_eq!(
        mount.requests(),
        before,
        "100 warm rounds asked for nothing"
    );
    assert!(before["LOOKUP"] == 2 && before["READ"] == 1, "{before:?}");
    drop(fs::File::open(mount.at("file")).unwrap());
    assert_eq!(mount.requests()["OPEN"], before["OPEN"] + 1);
}

#[test]
fn changes_show_after_the_notification() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let node = mount.memory.put("file", b"old");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"old");
    // As long: the kernel asks for attributes once after a READ, for the access time.
    mount.memory.put("file", b"new");
    assert_eq!(
        fs::read(mount.at("file")).unwrap(),
        b"old",
        "cached for ever"
    );
    notifier.inval_inode(node, 0, 0).unwrap();
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"new");

    assert!(fs::metadata(mount.at("new")).is_err());
    mount.memory.put("new", b"x");
    assert!(
        fs::metadata(mount.at("new")).is_err(),
        "absence is cached too"
    );
    notifier.inval_entry(ROOT_ID, b"new").unwrap();
    assert!(fs::metadata(mount.at("new")).is_ok());
    assert_eq!(
        errno(&notifier.inval_entry(ROOT_ID, b"unheard of").unwrap_err()),
        Errno::NOENT
    );
    assert_eq!(
        errno(&notifier.inval_inode(123_456, 0, 0).unwrap_err()),
        Errno::NOENT
    );

    mount.memory.remove("new");
    assert!(fs::metadata(mount.at("new")).is_ok(), "cached for ever");
    if notifier.has_epoch() {
        notifier.inc_epoch().unwrap();
    } else {
        notifier.inval_entry(ROOT_ID, b"new").unwrap();
    }
    assert!(fs::metadata(mount.at("new")).is_err());
    assert_eq!(notifier.counters().not_known.load(Ordering::Relaxed), 2);
}

#[test]
fn bugs_of_a_handler_cost_one_request() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    for name in ["panic", "forgotten"] {
        let error = fs::metadata(mount.at(name)).unwrap_err();
        assert_eq!(errno(&error), Errno::IO, "{name}");
    }
    assert!(fs::metadata(mount.at("deadlock")).is_err());
    assert!(mount.memory.refused_on_serving_thread());
    ordinary_operations(&mount);
}

#[test]
fn a_session_ends_with_its_mount() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(3);
    let session = Arc::clone(&mount.session);
    let waiting = std::thread::spawn(move || session.wait());
    assert_eq!(
        mount::connection_id(&mount.path).unwrap(),
        Some(mount.connection)
    );
    assert_eq!(
        mount::unmount(&mount.path).unwrap(),
        mount::Unmounted::Clean
    );
    waiting.join().unwrap();
    assert_eq!(mount::connection_id(&mount.path).unwrap(), None);
    assert!(matches!(
        mount::unmount(&mount.path),
        Err(MountError::NotMounted(_))
    ));
}

#[test]
fn a_mount_in_use_is_detached_and_ends_with_its_last_user() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(2);
    let mut file = fs::File::create(mount.at("file")).unwrap();
    assert_eq!(
        mount::unmount(&mount.path).unwrap(),
        mount::Unmounted::Detached
    );
    assert!(!is_mounted(&mount.path));
    file.write_all(b"still served").unwrap();
    assert_eq!(mount.memory.content("file"), b"still served");
    drop(file);
    mount.session.wait();
}

#[test]
fn an_aborted_connection_lets_everybody_go() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let user = fs::File::create(mount.at("file")).unwrap();
    let path = mount.at("held");
    let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
    mount.memory.await_held();
    if Control::open(mount.connection)
        .and_then(|control| control.abort())
        .is_err()
    {
        println!("fusectl is not mounted: aborting by MNT_FORCE");
        let forced = rustix::mount::UnmountFlags::FORCE;
        assert!(
            rustix::mount::unmount(&mount.path, forced).is_err(),
            "it is in use"
        );
    }
    let error = creating.join().unwrap().unwrap_err();
    assert!(
        matches!(errno(&error), Errno::CONNABORTED | Errno::NOTCONN),
        "{error}"
    );
    mount.session.wait();
    // The late answer is not wanted, and no error.
    mount.memory.release_held();
    let helper = MountOptions {
        by_helper: true,
        ..MountOptions::default()
    };
    let stale = mount::mount(&mount.path, &helper).unwrap_err();
    assert!(matches!(stale, MountError::Stale(_)), "{stale}");
    assert!(stale.to_string().contains("ariel umount"), "{stale}");
    drop(user);
}

/// Looks at a path until it answers; returns what it found each time. The directory below a dead
/// mount must never be seen.
fn look_until_it_answers(path: &std::path::Path) -> Vec<io::Result<bool>> {
    let mut seen = Vec::new();
    loop {
        let looked = fs::metadata(path).map(|_| path.join("below").exists());
        let answers = looked.is_ok();
        seen.push(looked);
        if answers {
            return seen;
        }
    }
}

#[test]
fn a_dead_mount_is_replaced_without_a_moment_between() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("below")).unwrap();
    // It is not empty while it is not mounted on.
    let point = dir.path().join("below/point");
    fs::create_dir(&point).unwrap();
    let mut dead = Mount::at_place(&point, &MountOptions::default());
    for round in 0..20 {
        let user = fs::File::create(dead.at("file")).unwrap();
        Control::open(dead.connection).unwrap().abort().unwrap();
        dead.session.wait();
        let error = fs::metadata(&point).unwrap_err();
        let not_connected = [Errno::NOTCONN, Errno::CONNABORTED];
        assert!(not_connected.contains(&errno(&error)), "{error}");
        let next = std::thread::scope(|scope| {
            let looking = scope.spawn(|| look_until_it_answers(&point));
            let next = Mount::at_place(&point, &MountOptions::default());
            let seen = looking.join().unwrap();
            for error in seen[..seen.len() - 1]
                .iter()
                .map(|looked| looked.as_ref().unwrap_err())
            {
                assert!(
                    not_connected.contains(&errno(error)),
                    "round {round}: {error}"
                );
            }
            next
        });
        assert_ne!(next.id, dead.id);
        assert!(next.id.is_at(&point));
        let found = mount::find(&point).unwrap().unwrap();
        assert_eq!(found.connection, next.connection);
        ordinary_operations(&next);
        let late = (&user).write(b"x").unwrap_err();
        assert!(not_connected.contains(&errno(&late)), "{late}");
        std::mem::replace(&mut dead, next).forget();
    }
    // One was put in the place of the other: nothing is below the last.
    let point_of = |mount: &mount::MountEntry| mount.mount_point == point;
    let there = mount::mounts()
        .unwrap()
        .into_iter()
        .filter(point_of)
        .count();
    assert_eq!(there, 1);
}

#[test]
fn only_the_dead_mount_that_is_meant_is_replaced() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    Control::open(mount.connection).unwrap().abort().unwrap();
    mount.session.wait();
    let again = |id| MountOptions {
        replaces: Some(id),
        ..MountOptions::default()
    };
    let other = mount::MountId(mount.id.0 - 1);
    let error = mount::mount(&mount.path, &again(other)).unwrap_err();
    assert!(matches!(error, MountError::Gone(_)), "{error}");
    // It is taken away while it is being replaced.
    let prepared = mount::prepare(&mount.path, &again(mount.id)).unwrap();
    mount::unmount(&mount.path).unwrap();
    let error = prepared.hidden.unwrap().show().unwrap_err();
    assert!(matches!(error, MountError::Gone(_)), "{error}");
    assert!(!is_mounted(&mount.path));
    let error = mount::mount(&mount.path, &again(mount.id)).unwrap_err();
    assert!(matches!(error, MountError::Gone(_)), "{error}");
}

#[test]
fn what_is_read_only_cannot_be_changed() {
    if !can_mount() {
        return;
    }
    let mut flags = mount::Flags::default();
    assert!(flags.apply("ro") && flags.apply("noexec"));
    let options = MountOptions {
        flags,
        source: "127.0.0.1:7".into(),
        ..MountOptions::default()
    };
    let mount = Mount::with(1, &options);
    mount.memory.put("file", b"content");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"content");
    let refused = fs::write(mount.at("file"), b"x").unwrap_err();
    assert_eq!(errno(&refused), Errno::ROFS);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = mount.path.to_str().unwrap();
    let line = table.lines().find(|line| line.contains(point)).unwrap();
    assert!(line.contains(" ro,nosuid,nodev,noexec,"), "{line}");
    assert!(line.contains(" - fuse.ariel 127.0.0.1:7 ro,"), "{line}");
}

#[test]
fn mount_points_that_will_not_do_are_named_with_the_cure() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let attempt = |path: &std::path::Path| {
        mount::mount(path, &MountOptions::default())
            .map(drop)
            .unwrap_err()
    };
    let (missing, file) = (dir.path().join("missing"), dir.path().join("file"));
    assert!(attempt(&missing).to_string().contains("mkdir -p"));
    assert!(matches!(attempt(&missing), MountError::Missing(_)));
    assert!(matches!(attempt(&file), MountError::NotDirectory(_)));
    assert!(matches!(attempt(dir.path()), MountError::NotEmpty(_)));
    assert!(matches!(attempt(&mount.path), MountError::Already(_)));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&mount.path, &link).unwrap();
    assert!(matches!(
        attempt(&link),
        MountError::Already(_) | MountError::NotEmpty(_)
    ));
    assert_eq!(mount::connection_id(&link).unwrap(), Some(mount.connection));
}

/// The way of ordinary users, where its program is installed.
#[test]
fn the_helper_mounts_too() {
    let installed = std::process::Command::new("fusermount3")
        .arg("-V")
        .output()
        .is_ok();
    if !can_mount() {
        return;
    }
    let options = MountOptions {
        by_helper: true,
        source: "ariel,x".into(),
        ..MountOptions::default()
    };
    if !installed {
        let dir = tempfile::tempdir().unwrap();
        let error = mount::mount(dir.path(), &options).unwrap_err();
        assert!(matches!(error, MountError::NoHelper) && error.to_string().contains("fuse3"));
        println!("SKIPPED: fusermount3 (package fuse3) is not installed");
        return;
    }
    let mount = Mount::with(2, &options);
    ordinary_operations(&mount);
    let entry = mount::find(&mount.path).unwrap().unwrap();
    assert!(entry.is_ariel() && entry.source == "ariel,x", "{entry:?}");
    mount::unmount(&mount.path).unwrap();
    mount.session.wait();
}

#[test]
fn the_end_of_a_mount_can_be_awaited() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let patience = support::PATIENCE;
    assert!(!mount::await_gone(&mount.path, Duration::ZERO).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| mount::await_gone(&mount.path, patience));
        mount::unmount(&mount.path).unwrap();
        assert!(waiting.join().unwrap().unwrap(), "not within {patience:?}");
    });
    assert!(mount::await_gone(&mount.path, Duration::ZERO).unwrap());
}

#[test]
fn a_device_that_may_not_be_opened_is_told_with_the_cure_of_its_cause() {
    use rustix::io::Errno as Kernels;
    let told = |errno| MountError::DeviceRefused(errno).to_string();
    let (rules, mode) = (told(Kernels::PERM), told(Kernels::ACCESS));
    assert!(
        rules.contains("DeviceAllow") && !rules.contains("chmod"),
        "{rules}"
    );
    assert!(
        mode.contains("chmod 666 /dev/fuse") && mode.contains("nodev"),
        "{mode}"
    );
    assert!(told(Kernels::IO).contains("modprobe fuse"));
    let helper = |message: &str| {
        let message = format!("fusermount3: failed to open /dev/fuse: {message}");
        MountError::Helper { message }.to_string()
    };
    assert!(helper("Operation not permitted").contains("DeviceAllow"));
    assert!(helper("Permission denied").contains("chmod 666"));
    assert!(helper("No such file or directory").contains("modprobe fuse"));
}
