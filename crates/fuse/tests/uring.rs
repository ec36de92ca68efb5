//! All that is true of a mount whose requests are read from the device is true of one whose
//! requests come over io_uring: the same tests once more. Then the cases that only the ring can get
//! wrong.
// Each part is a program of its own elsewhere, and brings its support along.
#![allow(clippy::unwrap_used, clippy::duplicate_mod, missing_docs)]

#[path = "guarded.rs"]
mod guarded;
#[path = "mounted.rs"]
mod mounted;
#[path = "notified.rs"]
mod notified;
mod support;

use std::fs;
use std::sync::{Arc, Barrier};

use ariel_fuse::{Session, SessionError, Transport, mount};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use support::{Mount, can_mount, eventually, switch};

/// Of the mounts in all tests of this program.
const TRANSPORT: Transport = Transport::Uring;

/// Puts the calling thread on the first processor that it may use.
fn stay_on_one_processor() {
    let mine = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| mine.is_set(*cpu)).unwrap();
    let mut only = CpuSet::new();
    only.set(first);
    sched_setaffinity(None, &only).unwrap();
}

/// Files, the attributes of which the kernel does not know.
fn files_to_be_asked_for(mount: &Mount, count: usize) -> Vec<std::path::PathBuf> {
    let notifier = mount.session.notifier();
    let ask_again = |number| {
        let name = format!("file-{number}");
        let node = mount.memory.put(&name, b"x");
        let path = mount.at(&name);
        assert_eq!(fs::metadata(&path).unwrap().len(), 1);
        notifier.inval_inode(node, -1, 0).unwrap();
        path
    };
    (0..count).map(ask_again).collect()
}

/// Ends the connection when a test fails: calls that wait for an answer would keep it from ending.
struct AbortOnPanic<'a>(&'a Mount);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // It says that the mount is in use, and aborts.
            let _ = rustix::mount::unmount(&self.0.path, rustix::mount::UnmountFlags::FORCE);
        }
    }
}

#[test]
fn requests_come_over_io_uring_and_what_is_forgotten_by_the_device() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    assert_eq!(mount.session.transport(), Transport::Uring);
    for number in 0..100 {
        let path = mount.at(&format!("file-{number}"));
        fs::write(&path, b"x").unwrap();
        fs::remove_file(&path).unwrap();
    }
    eventually("the kernel forgets what was removed", || {
        let counts = mount.session.counters().snapshot();
        let of = |name| counts.get(name).copied().unwrap_or(0);
        of("FORGET") + of("BATCH_FORGET") > 0
    });
}

/// All that wait are programs on one processor: its queue has no seat for each at the beginning.
#[test]
fn any_number_of_requests_can_wait_and_others_go_on() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let paths = files_to_be_asked_for(&mount, 150);
    mount.memory.hold_all_attributes(true);
    std::thread::scope(|scope| {
        let _abort = AbortOnPanic(&mount);
        for path in &paths {
            scope.spawn(move || {
                stay_on_one_processor();
                assert_eq!(fs::metadata(path).unwrap().len(), 1);
            });
        }
        eventually("all wait", || mount.memory.held() == paths.len());
        mount.memory.hold_all_attributes(false);
        scope.spawn(|| {
            stay_on_one_processor();
            fs::write(mount.at("other"), b"others go on").unwrap();
        });
        eventually("others go on", || {
            mount.memory.holds("other", b"others go on")
        });
        mount.memory.release_held();
    });
}

/// While the thread that serves a processor is busy, more requests come there than there are seats;
/// none of these is answered until all have come, and yet all come.
#[test]
fn requests_that_found_no_seat_do_not_wait_for_those_that_did() {
    if !can_mount() {
        return;
    }
    let mount = Mount::new(1);
    let paths = files_to_be_asked_for(&mount, 60);
    mount.memory.hold_all_attributes(true);
    std::thread::scope(|scope| {
        let _abort = AbortOnPanic(&mount);
        scope.spawn(|| {
            stay_on_one_processor();
            assert!(fs::metadata(mount.at("stall")).is_err());
        });
        mount.memory.await_stalled();
        let asking = Arc::new(Barrier::new(paths.len() + 1));
        let threads: Vec<i32> = paths
            .iter()
            .map(|path| {
                let (told, tid) = std::sync::mpsc::channel();
                let asking = Arc::clone(&asking);
                scope.spawn(move || {
                    stay_on_one_processor();
                    told.send(rustix::thread::gettid().as_raw_nonzero().get())
                        .unwrap();
                    asking.wait();
                    assert_eq!(fs::metadata(path).unwrap().len(), 1);
                });
                tid.recv().unwrap()
            })
            .collect();
        asking.wait();
        for tid in threads {
            eventually("it has asked and waits for the answer", || {
                let stat = fs::read_to_string(format!("/proc/self/task/{tid}/wchan"));
                stat.is_ok_and(|place| place.contains("request_wait_answer"))
            });
        }
        mount.memory.unstall();
        eventually("all wait", || mount.memory.held() == paths.len());
        mount.memory.hold_all_attributes(false);
        mount.memory.release_held();
    });
    fs::write(mount.at("afterwards"), b"works").unwrap();
    assert_eq!(fs::read(mount.at("afterwards")).unwrap(), b"works");
}

#[test]
fn forced_where_it_is_switched_off_the_cure_is_named_and_left_to_us_the_device_does() {
    if !can_mount() {
        return;
    }
    let _off = switch::hold(false).unwrap();
    let begin = |transport| {
        let dir = tempfile::tempdir().unwrap();
        let mounted = mount::mount(dir.path(), &mount::MountOptions::default()).unwrap();
        let options = ariel_fuse::Options {
            transport,
            ..ariel_fuse::Options::default()
        };
        let session = Session::new(mounted.fd, options);
        mount::unmount(&mounted.mount_point).unwrap();
        session
    };
    let refused = begin(Transport::Uring).unwrap_err();
    assert!(matches!(refused, SessionError::Uring(_)), "{refused}");
    assert!(refused.to_string().contains("echo Y >"), "{refused}");
    assert_eq!(
        begin(Transport::Auto).unwrap().transport(),
        Transport::Device
    );
}
