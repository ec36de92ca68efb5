//! A machine that is silent for longer than its lease loses what others want, and nothing else:
//! its changes of files that nobody else has touched are there when it comes back, and those of
//! files that others have changed, too, are kept beside these. Long: the machine is away for a
//! minute and a half.

use crate::harness::cell::CellOptions;
use crate::harness::holder::Holder;
use crate::harness::process::{ariel, run};
use crate::harness::status::status;
use crate::harness::{Cell, Pair, eventually, long, real_system};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a lease, for which other machines that want something wait.
const BACK: Duration = Duration::from_secs(40);

/// A silent client keeps what it holds for so long.
const LEASE: Duration = Duration::from_secs(20);

/// Files that A changes before it is silent.
const NAMES: [&str; 3] = ["looked-at", "changed", "alone"];

/// The files that are kept beside others below a directory.
fn beside(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is = |path: &PathBuf| path.to_string_lossy().contains(".conflict-");
    let mut all: Vec<PathBuf> = entries.filter(is).collect();
    all.sort();
    all
}

/// A program that has changed these files, and has them open.
fn changed_by(a: &Path, cell: &Cell) -> Holder {
    let mut holder = Holder::start(a, cell.watch());
    for name in NAMES {
        holder.write((name, name), &format!("{name} by A"));
    }
    holder
}

#[test]
fn a_stopped_daemon_loses_no_byte_and_what_others_changed_too_is_kept_beside() {
    const TEST: &str = "silent-stopped";
    if !real_system(TEST) {
        return;
    }
    let Some(Pair { mut a, b, mut cell }) = Pair::start(TEST) else {
        return;
    };
    for name in NAMES {
        fs::write(b.join(name), "before").unwrap();
    }
    let mut holder = changed_by(a.path(), &cell);
    holder.look(("also", "changed"));
    fs::create_dir(a.join("own")).unwrap();
    for number in 0..20 {
        fs::write(a.join("own").join(format!("{number}")), format!("{number}")).unwrap();
    }

    cell.watch().server_goes();
    a.stand();
    // It is there after a lease: nobody waits for longer.
    assert_eq!(fs::read_to_string(b.join("looked-at")).unwrap(), "before");
    fs::write(b.join("changed"), "by B").unwrap();
    if long() {
        thread::sleep(Duration::from_secs(70));
    }
    a.go_on();
    let seen = eventually(BACK, || {
        status(a.path())["stranded_files"] == 0 && !beside(b.path()).is_empty()
    });
    cell.watch().server_is_back();
    assert!(seen, "{}", a.log());

    for name in ["looked-at", "alone"] {
        assert_eq!(holder.sync(name), None, "{name}");
        assert_eq!(holder.content(name), format!("{name} by A"));
    }
    is_told_once(&mut holder, &["changed", "also"]);
    // Not the business of a program that comes later.
    File::open(a.join("changed")).unwrap().sync_all().unwrap();
    for mount in [a.path(), b.path()] {
        let read = |name: &str| fs::read_to_string(mount.join(name)).unwrap();
        assert_eq!(read("looked-at"), "looked-at by A");
        assert_eq!(read("alone"), "alone by A");
        assert_eq!(read("changed"), "by B");
        for number in 0..20 {
            assert_eq!(read(&format!("own/{number}")), format!("{number}"));
        }
        let kept = beside(mount);
        let [kept] = &kept[..] else {
            panic!("{kept:?} are kept");
        };
        assert_eq!(fs::read_to_string(kept).unwrap(), "changed by A");
    }
    is_listed(b.path());
    let told = status(a.path());
    assert_eq!(
        (&told["conflicts"], &told["lost_bytes"]),
        (&1.into(), &0.into())
    );
    drop((holder, a, b));
    cell.stop_server();
    cell.assert_clean();
}

/// The written bytes are not in this file: the fsync of each descriptor that was open says so once.
fn is_told_once(holder: &mut Holder, descriptors: &[&str]) {
    let mut told = || -> Vec<_> { descriptors.iter().map(|name| holder.sync(name)).collect() };
    let eio = Some(Errno::IO.raw_os_error());
    assert_eq!(told(), vec![eio; descriptors.len()]);
    assert_eq!(told(), vec![None; descriptors.len()]);
}

/// `ariel conflicts` names what is kept, and nothing else.
fn is_listed(mount: &Path) {
    let listed = run(ariel(&["conflicts"]).arg(mount));
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.starts_with(&mount.join("changed.conflict-").display().to_string()),
        "{listed}"
    );
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

/// A mount or a server that waited for the stopped daemon would do so for a lease at least.
#[test]
fn a_stopped_daemon_holds_up_no_other_mount_and_no_server() {
    const TEST: &str = "silent-beside";
    if !real_system(TEST) {
        return;
    }
    let Some(Pair { mut a, b, cell }) = Pair::start(TEST) else {
        return;
    };
    fs::create_dir(b.join("of-a")).unwrap();
    for name in NAMES {
        fs::write(b.join("of-a").join(name), "before").unwrap();
    }
    fs::write(b.join("other"), "before").unwrap();
    let of_a = a.join("of-a");
    let mut holder = changed_by(&of_a, &cell);
    fs::write(of_a.join("dirty"), vec![b'd'; 1 << 20]).unwrap();
    a.stand();
    let began = Instant::now();
    let c = cell.mount();
    // Nothing that A holds is changed: that would take a lease.
    fs::write(c.join("other"), "by C").unwrap();
    assert_eq!(fs::read_to_string(b.join("other")).unwrap(), "by C");
    drop((b, c));
    let options = CellOptions {
        second: true,
        ..CellOptions::default()
    };
    let fresh = Cell::start_with("silent-fresh", options).unwrap();
    let mount = fresh.mount();
    fs::write(mount.join("file"), "here").unwrap();
    drop((mount, fresh));
    let took = began.elapsed();
    a.go_on();
    assert!(took < LEASE, "{took:?}");
    for name in NAMES {
        assert_eq!(holder.sync(name), None, "{name}");
        assert_eq!(holder.content(name), format!("{name} by A"));
    }
    assert_eq!(fs::read(of_a.join("dirty")).unwrap(), vec![b'd'; 1 << 20]);
    drop((holder, a));
}

/// Else the tests beside it would fail: each process that they start would wait for that daemon.
#[test]
fn a_test_that_has_a_file_open_itself_stops_no_daemon() {
    const TEST: &str = "silent-open";
    if !real_system(TEST) {
        return;
    }
    let Some(cell) = Cell::start(TEST) else {
        return;
    };
    let mut mount = cell.mount();
    let open = File::create(mount.join("open")).unwrap();
    let stops = std::panic::AssertUnwindSafe(|| mount.stand());
    let why = std::panic::catch_unwind(stops).expect_err("it stops the daemon");
    let why = why.downcast_ref::<String>().unwrap();
    assert!(why.contains("/open"), "{why}");
    drop(open);
    mount.stand();
    mount.go_on();
}
