//! Objects that programs hold by a name (the directory in which they work, a mount point) stay
//! theirs whatever other machines do around them: a name that is still right is never taken away.

use crate::harness::Pair;
use crate::harness::process::Proc;
use crate::harness::scratch::{force_unmount, is_mounted, set_mode};
use rustix::fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat, renameat, symlinkat, unlinkat};
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
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
        // A program that walks by the names finds out that they are not valid any more.
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

/// A program that works in a directory.
fn works_in(pair: &Pair, dir: &Path) -> Proc {
    let mut sleeps = Command::new("sleep");
    sleeps.arg("600").current_dir(dir).stdin(Stdio::null());
    Proc::spawn(&mut sleeps, Some(pair.cell.watch())).unwrap()
}

/// Looks where a program works, as getcwd(2) does, until told to end; says how often, or what the
/// kernel said. (A shell's `pwd` would look around for its way.)
fn looks_where(cwd: &Path, dir: &Path, over: &AtomicBool) -> Result<u64, PathBuf> {
    let mut times = 0;
    while !over.load(Ordering::Relaxed) {
        let found = fs::read_link(cwd).unwrap();
        if found != dir {
            return Err(found);
        }
        times += 1;
    }
    Ok(times)
}

/// A way to make or remove a name.
#[derive(Clone, Copy, Debug)]
enum Way {
    Directory,
    File,
    Symlink,
    Rename,
    Link,
    Unlink,
    Rmdir,
}

impl Way {
    const ALL: [Way; 7] = [
        Way::Directory,
        Way::File,
        Way::Symlink,
        Way::Rename,
        Way::Link,
        Way::Unlink,
        Way::Rmdir,
    ];

    /// Is the name there afterwards? Before, it is the other way round.
    fn makes(self) -> bool {
        !matches!(self, Way::Unlink | Way::Rmdir)
    }

    fn prepare(self, at: (&File, &Path)) -> io::Result<()> {
        match self {
            Way::Directory | Way::File | Way::Symlink => Ok(()),
            Way::Rename | Way::Link => Way::File.go((at.0, &old(at.1))),
            Way::Unlink => Way::File.go(at),
            Way::Rmdir => Way::Directory.go(at),
        }
    }

    fn go(self, (dir, name): (&File, &Path)) -> io::Result<()> {
        let made = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match self {
            Way::Directory => mkdirat(dir, name, Mode::RWXU),
            Way::File => openat(dir, name, made, Mode::RUSR).map(drop),
            Way::Symlink => symlinkat("somewhere", dir, name),
            Way::Rename => renameat(dir, old(name), dir, name),
            Way::Link => linkat(dir, old(name), dir, name, AtFlags::empty()),
            Way::Unlink => unlinkat(dir, name, AtFlags::empty()),
            Way::Rmdir => unlinkat(dir, name, AtFlags::REMOVEDIR),
        }
        .map_err(Into::into)
    }
}

fn old(name: &Path) -> PathBuf {
    name.with_extension("old")
}

/// One of two machines that change names of one directory at the same moment, each of which knows
/// of the other's name whether it is there. Every second time by names in that directory: a change
/// that begins again may have its lock at once then.
fn competes(mount: &Path, (own, other): (&str, &str), meet: &Barrier) -> Vec<String> {
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        let way = Way::ALL[round as usize / 2 % Way::ALL.len()];
        let both = Path::new("both").join(round.to_string());
        let (top, way_there) = match round.is_multiple_of(2) {
            true => (mount.join(&both), Path::new("")),
            false => (mount.to_path_buf(), both.as_path()),
        };
        let (own, other) = (way_there.join(own), mount.join(&both).join(other));
        let made = fs::create_dir(mount.join(&both)).or_else(exists);
        let dir = made.and_then(|()| File::open(top));
        let mut done = dir.and_then(|dir| way.prepare((&dir, &own)).map(|()| dir));
        // Neither leaves before the other does: one that has failed goes on meeting.
        meet.wait();
        let before = fs::symlink_metadata(&other).is_ok();
        meet.wait();
        done = done.and_then(|dir| way.go((&dir, &own)).map(|()| dir));
        meet.wait();
        let after = fs::symlink_metadata(&other).is_ok();
        if done.is_err() || (before, after) != (!way.makes(), way.makes()) {
            wrong.push(format!("{round} {way:?}: {done:?}, {before}, {after}"));
        }
    }
    wrong
}

fn exists(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    }
}

#[test]
fn working_directories_have_their_paths_while_two_machines_change_one_directory() {
    let Some(pair) = Pair::start("competes") else {
        return;
    };
    fs::create_dir(pair.a.join("both")).unwrap();
    fs::create_dir_all(pair.a.join("work/place")).unwrap();
    let (meet, over) = (Barrier::new(2), AtomicBool::new(false));
    let works = [&pair.a, &pair.b].map(|mount| mount.join("work/place"));
    let mut programs = works.clone().map(|dir| works_in(&pair, &dir));
    let found = std::thread::scope(|scope| {
        let mut looks = Vec::new();
        for (dir, program) in works.iter().zip(&mut programs) {
            let (over, cwd) = (&over, format!("/proc/{}/cwd", program.child().id()));
            scope.spawn(move || until(over, |_| drop(fs::metadata(dir))));
            looks.push(scope.spawn(move || looks_where(Path::new(&cwd), dir, over)));
        }
        let compete = [(&pair.a, ("a", "b")), (&pair.b, ("b", "a"))].map(|(mount, names)| {
            let meet = &meet;
            scope.spawn(move || competes(mount.path(), names, meet))
        });
        let wrong = compete.map(|machine| machine.join().unwrap());
        over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, [const { Vec::<String>::new() }; 2]);
        looks
            .into_iter()
            .map(|look| look.join().unwrap())
            .collect::<Vec<_>>()
    });
    drop(programs);
    for found in found {
        let times = found.expect("a working directory that nobody touches has its path");
        assert!(times > u64::from(ROUNDS), "{times}");
    }
}
