//! Jobs of the notifier on a real mount: each ends, once, however the kernel's locks stand.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ariel_fuse::abi::ROOT_ID;
use ariel_fuse::{Job, Kind, Notifier, Outcome};
use support::{Mount, PATIENCE, can_mount, eventually};

fn submit(notifier: &Notifier, kind: Kind) -> Receiver<Outcome> {
    let (sender, receiver) = channel();
    notifier.submit(Job {
        kind,
        done: Box::new(move |outcome| sender.send(outcome).unwrap()),
    });
    receiver
}

fn entry(name: &[u8], busy: bool) -> Kind {
    Kind::Entry {
        parent: ROOT_ID,
        name: name.to_vec(),
        busy,
        attr: true,
    }
}

fn inode(nodeid: u64, young: bool) -> Kind {
    Kind::Inode {
        nodeid,
        ranges: vec![(-1, 0), (0, 4096), (4096, 0)],
        young,
    }
}

#[test]
fn jobs_take_back_what_they_say() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let wait = |kind| submit(&notifier, kind).recv_timeout(PATIENCE).unwrap();
    let node = mount.memory.put("file", b"old");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"old");
    assert!(fs::metadata(mount.at("new")).is_err());
    assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 1);

    mount.memory.put("file", b"young");
    assert_eq!(wait(inode(node, false)), Outcome::Done);
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"young");

    for busy in [false, true] {
        let name = format!("new-{busy}");
        assert!(fs::metadata(mount.at(&name)).is_err());
        mount.memory.put(&name, b"x");
        assert_ne!(
            wait(entry(name.as_bytes(), busy)),
            Outcome::Failed(ariel_fuse::Errno::IO)
        );
        assert!(fs::metadata(mount.at(&name)).is_ok(), "{name}");
    }
    assert_eq!(
        fs::read_dir(&mount.path).unwrap().count(),
        3,
        "the listing is fresh"
    );
    assert_eq!(wait(entry(b"never heard of", false)), Outcome::Done);
    if notifier.has_epoch() {
        mount.memory.remove("new-true");
        assert_eq!(wait(Kind::Epoch), Outcome::Epoch);
        assert!(fs::metadata(mount.at("new-true")).is_err());
    }
}

#[test]
fn inodes_not_known_are_gone_and_young_ones_are_waited_for() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let wait = |kind| submit(&notifier, kind).recv_timeout(PATIENCE).unwrap();
    assert_eq!(wait(inode(4711, false)), Outcome::Done);
    assert_eq!(notifier.counters().young_retries.load(Ordering::Relaxed), 0);
    let begin = Instant::now();
    let expected = if notifier.has_epoch() {
        Outcome::Epoch
    } else {
        Outcome::Done
    };
    assert_eq!(wait(inode(4711, true)), expected);
    assert!(begin.elapsed() >= Duration::from_millis(10));
    assert!(notifier.counters().young_retries.load(Ordering::Relaxed) > 0);
}

/// The kernel holds the directory's lock while a CREATE waits; nothing else may wait for it.
#[test]
fn a_locked_directory_delays_nobody() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    if !notifier.has_epoch() {
        println!("SKIPPED: this kernel cannot raise the epoch (Linux 6.16 can)");
        return;
    }
    let node = mount.memory.put("file", b"old");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"old");
    let path = mount.at("held");
    let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
    eventually("the directory is locked", || mount.memory.held() == 1);

    // More than there may be threads.
    let names: Vec<_> = (0..100).map(|number| format!("name-{number}")).collect();
    for name in &names {
        mount.memory.put(name, b"x");
    }
    let begin = Instant::now();
    let mut jobs: Vec<_> = names
        .iter()
        .map(|name| submit(&notifier, entry(name.as_bytes(), false)))
        .collect();
    jobs.push(submit(&notifier, entry(b"file", true)));
    for job in &jobs {
        assert_eq!(job.recv_timeout(PATIENCE).unwrap(), Outcome::Epoch);
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?} for 101 names");
    assert_eq!(
        mount.memory.held(),
        1,
        "the directory is locked all the while"
    );
    mount.memory.release_held();
    creating.join().unwrap().unwrap();

    // The threads are free again, and the plain way works.
    mount.memory.put("file", b"young");
    let job = submit(&notifier, inode(node, false));
    assert_eq!(job.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"young");
    let counters = notifier.counters();
    assert!(counters.entry_late.load(Ordering::Relaxed) > 0);
    let completed = || counters.completed.load(Ordering::Relaxed);
    assert_eq!(completed(), counters.submitted.load(Ordering::Relaxed));
}

/// A blocked notification of one file leaves those of others alone.
#[test]
fn one_blocked_notification_does_not_delay_another() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(2);
    let notifier = mount.session.notifier();
    let node = mount.memory.put("file", b"x");
    fs::read(mount.at("file")).unwrap();
    let path = mount.at("held");
    let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
    eventually("the directory is locked", || mount.memory.held() == 1);
    let blocked: Vec<_> = (0..20)
        .map(|_| {
            let notifier = notifier.clone();
            std::thread::spawn(move || drop(notifier.inval_entry(ROOT_ID, b"file")))
        })
        .collect();
    for _ in 0..200 {
        let job = submit(&notifier, inode(node, false));
        assert_eq!(job.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    }
    assert!(blocked.iter().any(|thread| !thread.is_finished()));
    mount.memory.release_held();
    creating.join().unwrap().unwrap();
    blocked
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}
