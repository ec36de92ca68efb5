//! Jobs of the notifier on a real mount: each ends, once, however the kernel's locks stand.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ariel_fuse::abi::ROOT_ID;
use ariel_fuse::{Job, Kind, Notifier, Outcome, Transport};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use support::{Mount, PATIENCE, can_mount};

/// Of the mounts here.
#[allow(dead_code)]
const TRANSPORT: Transport = Transport::Device;

fn submit(notifier: &Notifier, kind: Kind) -> Receiver<Outcome> {
    let (sender, receiver) = channel();
    let done = move |outcome| sender.send(outcome).unwrap();
    notifier.submit(Job::new(kind, done));
    receiver
}

fn entry(name: &[u8]) -> Kind {
    Kind::Entry {
        parent: ROOT_ID,
        name: name.to_vec(),
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

    mount.memory.put("new", b"x");
    assert_eq!(wait(entry(b"new")), Outcome::Done);
    assert!(fs::metadata(mount.at("new")).is_ok());
    assert_eq!(
        fs::read_dir(&mount.path).unwrap().count(),
        2,
        "the listing is fresh"
    );
    assert_eq!(wait(entry(b"never heard of")), Outcome::Done);
    if notifier.has_epoch() {
        mount.memory.remove("new");
        assert_eq!(wait(Kind::Epoch), Outcome::Epoch);
        assert!(fs::metadata(mount.at("new")).is_err());
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
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert!(notifier.counters().young_retries.load(Ordering::Relaxed) > 0);

    // The kernel says that it has forgotten it: nobody waits for it any more.
    let (sender, receiver) = channel();
    let asked = Arc::new(AtomicU64::new(0));
    let known = {
        let asked = Arc::clone(&asked);
        move || asked.fetch_add(1, Ordering::Relaxed) < 3
    };
    let done = move |outcome| sender.send(outcome).unwrap();
    notifier.submit(Job {
        known: Box::new(known),
        ..Job::new(inode(4711, true), done)
    });
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    // Thrice it might come, then not: four looks for the first range, one for each other.
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

/// A name that is expired is asked for again, and a mount on it stays.
#[test]
fn expired_names_stay_where_they_are() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    if !notifier.has_epoch() {
        println!("SKIPPED: this kernel is given no names to keep (Linux 6.16 is)");
        return;
    }
    let wait = |kind| submit(&notifier, kind).recv_timeout(PATIENCE).unwrap();
    mount.memory.put("file", b"here");
    let other = tempfile::NamedTempFile::new().unwrap();
    let at = mount.at("file");
    rustix::mount::mount_bind(other.path(), &at).unwrap();
    let expire = Kind::Expire {
        parent: ROOT_ID,
        names: vec![b"file".to_vec(), b"never heard of".to_vec()],
    };
    let before = mount.requests();
    let outcome = wait(expire);
    let seen = fs::metadata(&at).unwrap().ino();
    let after = mount.requests();
    // Were it gone, there would be nothing to unmount.
    rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(outcome, Outcome::Done);
    assert_eq!(seen, other.as_file().metadata().unwrap().ino());
    let asked = |requests: &std::collections::BTreeMap<_, _>| requests.get("LOOKUP").copied();
    assert_eq!(asked(&after), asked(&before).map(|n| n + 1));
}

/// The kernel holds the directory's lock while a CREATE waits. Names in it wait; nothing else does.
#[test]
fn a_locked_directory_delays_its_names_only() {
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
    let file = fs::File::open(mount.at("file")).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3);
    let path = mount.at("held");
    let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
    // It holds the directory's lock.
    mount.memory.await_held();

    // More than there may be threads.
    let names: Vec<_> = (0..100).map(|number| format!("name-{number}")).collect();
    let jobs: Vec<_> = names
        .iter()
        .map(|name| submit(&notifier, entry(name.as_bytes())))
        .collect();
    mount.memory.put("file", b"young");
    for (kind, expected) in [
        (Kind::Epoch, Outcome::Epoch),
        (inode(node, false), Outcome::Done),
    ] {
        let job = submit(&notifier, kind);
        assert_eq!(job.recv_timeout(PATIENCE).unwrap(), expected);
    }
    // By its name it would not be found before the directory is free.
    let read = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes[..read], b"young");
    assert!(jobs.iter().all(|job| job.try_recv().is_err()), "not locked");
    assert_eq!(mount.memory.held(), 1, "locked all the while");
    mount.memory.release_held();
    creating.join().unwrap().unwrap();
    for job in &jobs {
        assert_eq!(job.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    }
    let counters = notifier.counters();
    let completed = || counters.completed.load(Ordering::Relaxed);
    assert_eq!(completed(), counters.submitted.load(Ordering::Relaxed));
}

/// A turn comes when a change has been taken in: not while it is unanswered.
#[test]
fn a_turn_at_a_lock_comes_behind_the_change_that_holds_it() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let turn = |nodeid| submit(&notifier, Kind::Turn { nodeid });
    let node = mount.memory.put("file", b"old");
    assert_eq!(fs::read(mount.at("file")).unwrap(), b"old");
    for nodeid in [node, ROOT_ID, 4711] {
        assert_eq!(turn(nodeid).recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    }
    let path = mount.at("held");
    let creating = std::thread::spawn(move || fs::File::create(path).map(drop));
    mount.memory.await_held();
    let waits = turn(ROOT_ID);
    assert_eq!(turn(node).recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    assert!(waits.try_recv().is_err(), "the change is not answered");
    mount.memory.release_held();
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    creating.join().unwrap().unwrap();
    assert_eq!(notifier.counters().failed.load(Ordering::Relaxed), 0);
}

/// An answer that was given before, and comes after, is not taken in.
#[test]
fn sizes_that_are_taken_back_are_not_taken_in_late() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let wait = |kind| submit(&notifier, kind).recv_timeout(PATIENCE).unwrap();
    let node = mount.memory.put("file", b"abcdef");
    let path = mount.at("file");
    assert_eq!(fs::metadata(&path).unwrap().len(), 6);
    assert_eq!(wait(inode(node, false)), Outcome::Done);
    mount.memory.hold_attributes(node);
    let late = path.clone();
    let asking = std::thread::spawn(move || fs::metadata(late).unwrap().len());
    mount.memory.await_held();
    for nodeid in [node, 4711] {
        assert_eq!(wait(Kind::Sizes { nodeid }), Outcome::Done);
    }
    mount.memory.put("file", b"ab");
    mount.memory.release_held();
    assert_eq!(asking.join().unwrap(), 6, "who asked is told all the same");
    assert_eq!(fs::metadata(&path).unwrap().len(), 2);
    assert_eq!(notifier.counters().failed.load(Ordering::Relaxed), 0);
}

/// A program that seeks to the end has the file locked, and goes by the size in the answer.
#[test]
fn sizes_are_taken_back_behind_who_seeks_to_the_end() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let job = |kind| submit(&notifier, kind);
    let node = mount.memory.put("file", b"abcdef");
    let mut file = fs::File::open(mount.at("file")).unwrap();
    mount.memory.put("file", b"abc");
    let dropped = job(inode(node, false)).recv_timeout(PATIENCE).unwrap();
    assert_eq!(dropped, Outcome::Done);
    mount.memory.hold_attributes(node);
    let seeking = std::thread::spawn(move || file.seek(SeekFrom::End(0)).unwrap());
    mount.memory.await_held();
    let waits = job(Kind::Sizes { nodeid: node });
    let turn = job(Kind::Turn { nodeid: ROOT_ID });
    assert_eq!(turn.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    assert!(waits.try_recv().is_err(), "who seeks is not answered");
    mount.memory.release_held();
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap(), Outcome::Done);
    assert_eq!(seeking.join().unwrap(), 3);
    assert_eq!(notifier.counters().failed.load(Ordering::Relaxed), 0);
}

/// The size that the kernel believes, without asking.
fn believed(path: &std::path::Path) -> u64 {
    let flags = AtFlags::STATX_DONT_SYNC;
    statx(CWD, path, flags, StatxFlags::SIZE).unwrap().stx_size
}

/// The size grows at once, no byte that is cached changes, and a smaller size changes nothing.
#[test]
fn the_kernel_is_told_that_a_file_has_grown() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let notifier = mount.session.notifier();
    let told = |nodeid, size| {
        let kind = Kind::Grown { nodeid, size };
        submit(&notifier, kind).recv_timeout(PATIENCE).unwrap()
    };
    let node = mount.memory.put("file", b"abc");
    let path = mount.at("file");
    let file = fs::File::open(&path).unwrap();
    let mut bytes = [0; 100];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 3);
    assert_eq!(believed(&path), 3);
    for (size, expected) in [(9, 9), (5, 9), (3, 9), (9, 9), (5000, 5000)] {
        assert_eq!(told(node, size), Outcome::Done);
        assert_eq!(believed(&path), expected);
    }
    assert_eq!(
        told(4711, 9),
        Outcome::Done,
        "nothing is known, so nothing is believed"
    );
    assert_eq!(notifier.counters().failed.load(Ordering::Relaxed), 0);
    mount.memory.put("file", b"abcdef");
    assert_eq!(
        submit(&notifier, inode(node, false))
            .recv_timeout(PATIENCE)
            .unwrap(),
        Outcome::Done
    );
    let read = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes[..read], b"abcdef");
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
    // It holds the directory's lock.
    mount.memory.await_held();
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
