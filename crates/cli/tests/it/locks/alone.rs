//! Locks of files that only one mount uses: that mount decides about them, and nobody is asked;
//! when another one locks there, all exclude each other as ever.

use super::pair;
use crate::harness::local;
use crate::harness::status::{cost_of, status};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::fs::{self, File};
use std::path::Path;

const CYCLES: usize = 500;

/// Opens, locks, gives up and closes, and locks twice through one descriptor.
fn lock_and_unlock(path: &Path) {
    let open = || File::options().read(true).write(true).open(path).unwrap();
    for _ in 0..CYCLES {
        let file = open();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        flock(&file, FlockOperation::Unlock).unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        // What is still locked is given up by the close.
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
