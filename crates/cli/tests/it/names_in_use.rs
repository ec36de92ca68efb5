//! What programs hold by a name (the directory in which they work, what is mounted on it) stays
//! theirs whatever other machines do around it: a name that is still right is never taken away.

use crate::harness::Pair;
use crate::harness::process::Proc;
use crate::harness::scratch::{force_unmount, is_mounted, set_mode};
use std::fs::{self, File, FileTimes};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const ROUNDS: u32 = 150;

/// A directory mounted on another one; unmounted when dropped.
struct Bound(PathBuf);

impl Bound {
    fn new(what: &Path, on: &Path) -> Self {
        rustix::mount::mount_bind(what, on).unwrap();
        Bound(on.to_path_buf())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        force_unmount(&self.0);
    }
}

/// All that a machine can do to a directory and to names in it that nobody else uses.
fn disturb(dir: &Path, round: u32) {
    set_mode(
        dir,
        if round.is_multiple_of(2) {
            0o755
        } else {
            0o700
        },
    );
    let times =
        FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(round.into()));
    File::open(dir).unwrap().set_times(times).unwrap();
    let own = |name: &str| dir.join(format!("{name}-{round}"));
    fs::write(own("file"), b"x").unwrap();
    fs::rename(own("file"), own("moved")).unwrap();
    fs::hard_link(own("moved"), own("link")).unwrap();
    fs::create_dir(own("dir")).unwrap();
    assert!(fs::metadata(own("absent")).is_err());
    assert!(fs::read_dir(dir).unwrap().count() >= 2);
    fs::remove_dir(own("dir")).unwrap();
    fs::remove_file(own("link")).unwrap();
    fs::remove_file(own("moved")).unwrap();
}

/// Repeats it until told to end.
fn until(over: &AtomicBool, mut what: impl FnMut(u32)) {
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        what(round);
        round += 1;
    }
}

#[test]
fn mount_points_and_working_directories_outlive_what_others_do_around_them() {
    let Some(pair) = Pair::start("names-in-use") else {
        return;
    };
    let (dir, there) = (pair.a.join("dir"), pair.b.join("dir"));
    let (point, work) = (dir.join("point"), dir.join("work"));
    fs::create_dir_all(&point).unwrap();
    fs::create_dir(&work).unwrap();
    let bound = pair.cell.scratch().dir("bound");
    fs::write(bound.join("inside"), b"x").unwrap();
    let bound = Bound::new(&bound, &point);

    let mut asks = Command::new("sh");
    asks.args([
        "-c",
        "cd \"$0\" && while /bin/pwd -P >/dev/null; do :; done",
    ]);
    asks.arg(&work).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut asks = Proc::spawn(&mut asks, Some(pair.cell.watch())).unwrap();

    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Who walks by the names finds out that they are not valid any more.
        scope.spawn(|| {
            until(&over, |_| {
                fs::metadata(&work).unwrap();
                fs::metadata(&point).unwrap();
            })
        });
        scope.spawn(|| {
            until(&over, |round| {
                let own = dir.join(format!("here-{round}"));
                fs::write(&own, b"x").unwrap();
                fs::remove_file(&own).unwrap();
            })
        });
        let disturbed =
            std::panic::catch_unwind(|| (0..ROUNDS).for_each(|round| disturb(&there, round)));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = disturbed {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(is_mounted(&point), "what was mounted here has gone");
    assert!(point.join("inside").exists());
    if let Some(status) = asks.poll() {
        let mut said = String::new();
        let stderr = asks.child().stderr.as_mut().unwrap();
        std::io::Read::read_to_string(stderr, &mut said).unwrap();
        panic!("no working directory any more: {status}, {said}");
    }
    drop((asks, bound));
}
