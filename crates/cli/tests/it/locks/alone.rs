//! Locks of files that only one mount uses: that mount decides about them, and nobody is asked;
//! when another one locks there, all exclude each other as ever.

use super::{WAKES, pair, three, took, wait_for_waiters};
use crate::harness::status::{cost_of, server_received, since, status};
use crate::harness::{eventually, local, real_system};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

const CYCLES: usize = 500;

/// Opens, locks, gives up and closes, and locks twice through one descriptor.
fn lock_and_unlock(path: &Path) {
    let open = || File::options().read(true).write(true).open(path).unwrap();
    for _ in 0..CYCLES {
        let file = open();
        // Linux may tell the last close of the file before only now: the lock waits for that.
        flock(&file, FlockOperation::LockExclusive).unwrap();
        flock(&file, FlockOperation::Unlock).unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        // The close gives up the locks that are left.
        fcntl_lock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        flock(&file, FlockOperation::LockShared).unwrap();
    }
}

fn decided(mount: &Path) -> u64 {
    status(mount)["locks"]["decided"].as_u64().unwrap()
}

#[test]
fn locks_of_one_mount_cost_no_message() {
    let Some(pair) = pair("locks-alone") else {
        return;
    };
    if local() {
        return;
    }
    let path = pair.a.join("file");
    lock_and_unlock(&path);
    let before = decided(pair.a.path());
    let cost = cost_of(pair.a.path(), pair.cell.addr(), || lock_and_unlock(&path));
    assert!(
        cost.server.is_empty(),
        "the server was asked: {:?}",
        cost.server
    );
    let calls = decided(pair.a.path()) - before;
    assert!(calls >= 6 * CYCLES as u64, "{calls} calls were decided");
    assert_eq!(status(pair.a.path())["locks"]["held"], 0);
    // Another mount takes that over, and comes to decide when it goes on alone.
    let path = pair.b.join("file");
    lock_and_unlock(&path);
    let cost = cost_of(pair.b.path(), pair.cell.addr(), || lock_and_unlock(&path));
    assert!(
        cost.server.is_empty(),
        "the server was asked: {:?}",
        cost.server
    );
}

#[test]
fn a_lock_that_was_given_without_a_message_excludes_the_other_mount() {
    let Some(pair) = pair("locks-alone-excludes") else {
        return;
    };
    let open = |mount: &crate::harness::Mount| {
        let path = mount.join("file");
        File::options().read(true).write(true).open(path).unwrap()
    };
    lock_and_unlock(&pair.a.join("file"));
    for (here, there) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        let (mine, other) = (open(here), open(there));
        for _ in 0..20 {
            flock(&mine, FlockOperation::NonBlockingLockExclusive).unwrap();
            fcntl_lock(&mine, FlockOperation::NonBlockingLockExclusive).unwrap();
            flock(&mine, FlockOperation::Unlock).unwrap();
        }
        flock(&mine, FlockOperation::LockExclusive).unwrap();
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap_err();
        flock(&mine, FlockOperation::Unlock).unwrap();
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    }
}

/// Programs of one mount wait for each other there, also after another mount has asked, and when
/// the server has been killed meanwhile.
#[test]
fn who_waits_on_the_mount_that_decides_goes_on_waiting_at_the_server() {
    if !real_system("locks-alone-waits") {
        return;
    }
    let Some(mut pair) = pair("locks-alone-waits") else {
        return;
    };
    lock_and_unlock(&pair.a.join("file"));
    let [mut one, mut other, mut third] = three(&pair);
    one.done("lock f wait ex 0 10");
    let before = server_received(pair.cell.addr());
    third.tell("lock f wait ex 5 10");
    let waits = || status(pair.a.path())["locks"]["waiting"] == 1;
    assert!(
        eventually(Duration::from_secs(20), waits),
        "it does not wait"
    );
    let given_up = one.done("lock f wait un 0 10");
    assert!(took(given_up.at_ns, third.hear().at_ns) < WAKES);
    let mut asked = since(&before, &server_received(pair.cell.addr()));
    asked.retain(|kind, _| kind.contains("Lock"));
    assert!(asked.is_empty(), "the server was asked: {asked:?}");
    // Locks that were decided there are reported when another mount asks, and the waiting program
    // waits on.
    one.tell("lock f wait ex 5 10");
    assert!(
        eventually(Duration::from_secs(20), waits),
        "it does not wait"
    );
    other.fails("lock f try ex 14 1", "EAGAIN");
    wait_for_waiters(&pair, 1);
    pair.cell.kill9();
    pair.cell.start_server();
    other.fails("lock f try ex 14 1", "EAGAIN");
    let given_up = third.done("lock f wait un 5 10");
    assert!(took(given_up.at_ns, one.hear().at_ns) < WAKES);
    other.fails("lock f try ex 14 1", "EAGAIN");
    one.done("lock f wait un 5 10");
    other.done("lock f try ex 14 1");
}

/// The server dies while a mount decides: it is told what was locked without it.
#[test]
fn locks_that_the_server_was_not_told_of_are_kept_over_its_restart() {
    if !real_system("locks-alone-restart") {
        return;
    }
    let Some(mut pair) = pair("locks-alone-restart") else {
        return;
    };
    lock_and_unlock(&pair.a.join("file"));
    let [mut one, mut other, _third] = three(&pair);
    one.done("flock f ex wait");
    one.done("lock f wait ex 0 10");
    pair.cell.kill9();
    pair.cell.start_server();
    other.fails("flock f sh try", "EAGAIN");
    other.fails("lock f try ex 9 1", "EAGAIN");
    one.done("lock f wait un 0 10");
    other.done("lock f try ex 9 1");
}

/// Each program locks a counter a random number of times in a row, adds one each time, and pauses:
/// so the deciding goes from mount to mount, and to the server where several lock at once.
const COUNTS: &str = r#"
import fcntl, os, random, sys, time
number, rounds = int(sys.argv[1]), int(sys.argv[2])
rng = random.Random(number)
fd = os.open("file", os.O_RDWR)
added = 0
for _ in range(rounds):
    for _ in range(rng.randrange(1, 30)):
        fcntl.flock(fd, fcntl.LOCK_EX)
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 0)
        value = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%020d" % (value + 1), 0)
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, 0)
        fcntl.flock(fd, fcntl.LOCK_UN)
        added += 1
    time.sleep(rng.random() / 20)
print(added)
"#;

#[test]
fn a_counter_under_locks_counts_whoever_decides_about_them() {
    let Some(pair) = pair("locks-counter") else {
        return;
    };
    fs::write(pair.a.join("file"), b"00000000000000000000").unwrap();
    super::many::run_all(&pair, COUNTS, 4, &["40"]);
    let added: u64 = (0..4)
        .map(|number| {
            super::many::said(&pair, number)
                .trim()
                .parse::<u64>()
                .unwrap()
        })
        .sum();
    let counted = fs::read_to_string(pair.b.join("file")).unwrap();
    assert_eq!(counted.parse::<u64>().unwrap(), added);
    let calls = || decided(pair.a.path()) + decided(pair.b.path());
    assert!(local() || calls() > 0, "nothing was decided at a mount");
}
