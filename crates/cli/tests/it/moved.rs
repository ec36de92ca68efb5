//! A server whose store is served elsewhere from now on: mounts ask where, and go on there with
//! their sessions, as after a restart.

use crate::exact::read_all;
use crate::harness::cell::{CellOptions, INSECURE};
use crate::harness::machines::Machines;
use crate::harness::{Cell, eventually, real_system};
use crate::servers::{can_have_servers, start_of, with_one_tree};
use client::front::{CacheSize, LendLimits, Lends, Missing};
use fuse::front::{Keeping, Mount, MountOptions, Place, Servers};
use net::{
    Addresses, CloseReason, Entrance, Events, Link, LinkId, ListenOptions, Listener, Speaks,
};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use wire::SessionId;

const LIMIT: Duration = Duration::from_secs(20);

/// Says where the volume is, once the test knows it, and notes what it is told.
#[derive(Debug, Default)]
struct Known {
    at: Mutex<Option<Addresses>>,
    asked: Mutex<Vec<Missing>>,
    sessions: Mutex<Vec<(Addresses, SessionId)>>,
}

impl Servers for Known {
    fn of_volume(&self, _: u32) -> Result<Option<Place>, String> {
        Ok(None)
    }

    fn again(&self, volume: u32, missing: Missing) -> Option<Addresses> {
        assert_eq!(volume, 1, "the volume of the mount");
        self.asked.lock().unwrap().push(missing);
        self.at.lock().unwrap().clone()
    }

    fn has_session(&self, server: &Addresses, session: SessionId) {
        let mut sessions = self.sessions.lock().unwrap();
        sessions.push((server.clone(), session));
    }
}

/// Sends everybody away, and counts.
#[derive(Default)]
struct Away {
    came: Mutex<u32>,
    changed: Condvar,
}

impl Away {
    fn at(addr: &str) -> (Listener, Arc<Away>) {
        let away = Arc::new(Away::default());
        let options = ListenOptions {
            entrance: Entrance::InsecureLoopback,
            speaks: Speaks {
                oldest: wire::VERSION,
                newest: wire::VERSION,
                program: "test".into(),
            },
            silence: LIMIT,
        };
        let addrs = [addr.parse().unwrap()];
        let listener = Listener::bind(&addrs, options, Arc::clone(&away) as Arc<dyn Events>);
        (listener.unwrap(), away)
    }

    fn await_came(&self, times: u32) {
        let came = self.came.lock().unwrap();
        let is_less = |came: &mut u32| *came < times;
        let waited = self.changed.wait_timeout_while(came, LIMIT, is_less);
        let (came, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "{} of {times} came", *came);
    }
}

impl Events for Away {
    fn opened(&self, link: &Arc<Link>) {
        *self.came.lock().unwrap() += 1;
        self.changed.notify_all();
        link.send_elsewhere();
    }
    fn frame(&self, _: &Arc<Link>, _: &[u8], _: Vec<u8>) {}
    fn closed(&self, _: LinkId, _: &CloseReason) {}
}

/// A mount of the cell in this process, which asks this one where its server is.
struct Led {
    mount: Mount,
    known: Arc<Known>,
}

impl Led {
    fn start(cell: &Cell, name: &str) -> Led {
        let known = Arc::new(Known::default());
        let dir = cell.scratch().dir(name);
        cell.watch().add_mount(&dir);
        let mount = Mount::start(MountOptions {
            dir,
            server: cell.server(),
            transport: fuse::Transport::Device,
            without: fuse::Without::default(),
            threads: 1,
            silent_opens: false,
            flags: fuse::mount::Flags::default(),
            replaces: None,
            keeping: Keeping::Exact,
            interruptible: false,
            timeout_ns: None,
            cache: CacheSize::Fixed { mib: 16 },
            // Changes stay here until somebody else wants them.
            write_delay_ns: 600_000_000_000,
            name_delay_ns: 600_000_000_000,
            volume: None,
            part: None,
            servers: Some(Arc::clone(&known) as Arc<dyn Servers>),
            hides_snapshots: false,
            lends: Lends::Never,
            lend_limits: LendLimits::default(),
            name: name.to_owned(),
        });
        let mount = mount.unwrap();
        Led { mount, known }
    }

    fn join(&self, name: &str) -> PathBuf {
        self.mount.mount_point().join(name)
    }

    /// It has gone on with its session, at this server.
    fn assert_went_to(&self, addr: &str, session: SessionId) {
        let client = self.mount.client();
        assert_eq!(client.session(), session);
        assert_eq!(client.counters().sessions_lost, 0);
        let addresses: Addresses = addr.parse().unwrap();
        assert_eq!(client.server(), addresses);
        let told = self.known.sessions.lock().unwrap();
        assert_eq!(told.last(), Some(&(addresses, session)));
    }
}

fn open(path: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

/// The content of files that are open, locked, without a name, and not written back, over moves.
struct Held {
    locked: File,
    dirty: File,
    nameless: File,
}

impl Held {
    fn by(led: &Led) -> Held {
        let held = Held {
            locked: open(&led.join("locked")),
            dirty: open(&led.join("dirty")),
            nameless: open(&led.join("nameless")),
        };
        flock(&held.locked, FlockOperation::LockExclusive).unwrap();
        held.nameless.write_all_at(b"no name any more", 0).unwrap();
        fs::remove_file(led.join("nameless")).unwrap();
        held.write(b"0");
        let owed = led.mount.client().owed();
        assert!(owed.bytes > 0 && owed.changes > 0, "{owed}");
        held
    }

    fn write(&self, what: &[u8]) {
        self.dirty.write_all_at(what, 0).unwrap();
    }

    /// It is as it was, and the other mount sees it so.
    fn assert_held(&self, other: &Led, what: &[u8]) {
        assert_eq!(read_all(&self.dirty), what);
        assert_eq!(read_all(&self.nameless), b"no name any more");
        let theirs = open(&other.join("locked"));
        let taken = flock(&theirs, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(taken, Err(Errno::AGAIN), "the lock is held");
        assert_eq!(fs::read(other.join("dirty")).unwrap(), what);
        assert!(fs::metadata(other.join("nameless")).is_err());
    }
}

#[test]
fn mounts_go_on_where_their_server_was_started_again() {
    if !real_system("moved") {
        return;
    }
    let options = CellOptions {
        serve_args: vec![INSECURE.to_owned()],
        ..CellOptions::default()
    };
    let Some(mut cell) = Cell::start_with("moved", options) else {
        return;
    };
    let (a, b) = (Led::start(&cell, "a"), Led::start(&cell, "b"));
    let both = [&a, &b];
    let sessions = both.map(|led| led.mount.client().session());
    let held = Held::by(&a);
    // The server says that the volume is on its way, and nobody knows where to.
    let old = cell.addr().to_owned();
    cell.stop_server();
    let (listener, away) = Away::at(&old);
    away.await_came(6);
    // It is there, while somebody still stands where it was.
    cell.start_elsewhere();
    assert_ne!(cell.addr(), old);
    for led in both {
        *led.known.at.lock().unwrap() = Some(cell.addr().parse().unwrap());
    }
    held.assert_held(&b, b"0");
    for (led, session) in both.into_iter().zip(sessions) {
        led.assert_went_to(cell.addr(), session);
        assert!(led.known.asked.lock().unwrap().contains(&Missing::Told));
        led.known.asked.lock().unwrap().clear();
    }
    drop(listener);
    // And once more, without a word.
    held.write(b"1");
    fs::write(b.join("theirs"), b"b").unwrap();
    cell.stop_server();
    cell.start_elsewhere();
    for led in both {
        *led.known.at.lock().unwrap() = Some(cell.addr().parse().unwrap());
    }
    held.assert_held(&b, b"1");
    assert_eq!(fs::read(a.join("theirs")).unwrap(), b"b");
    for (led, session) in both.into_iter().zip(sessions) {
        led.assert_went_to(cell.addr(), session);
        let asked = led.known.asked.lock().unwrap();
        assert!(asked.iter().all(|why| *why == Missing::Lost), "{asked:?}");
    }
    drop(held);
    for led in both {
        let unmounted = eventually(LIMIT, || led.mount.unmount().is_ok());
        assert!(unmounted, "{:?}", led.mount.unmount().err());
    }
}

/// A program that holds a lock and has written something, until it is told to go on.
const HOLDER: &str = "mkfifo /srv/go; ( exec 9>>/mnt/data/held; flock 9; echo before >&9; \
                      touch /srv/ready; read go < /srv/go; echo after >&9 ) > /dev/null 2>&1 &
                      until test -e /srv/ready; do sleep 0.01; done";

/// The server of the volume `data` is stopped, another one of the cell takes its address, and it is
/// started at another one.
fn move_server(m: &mut Machines) {
    m.signal("server-2", "ariel serve", Signal::TERM);
    let mut told = String::new();
    let ended = eventually(LIMIT, || {
        told = m.must("server-1", "ariel cell servers --data /srv/ariel");
        told.contains("not running")
    });
    assert!(ended, "{told}");
    let start = start_of("server-2");
    let other = start.replace("/srv/ariel", "/srv/other");
    m.must("server-2", &format!("{other} --name other"));
    // Programs wait meanwhile.
    let waits = m.run(
        "build-1",
        "timeout -s KILL 2 sh -c 'echo no > /mnt/data/waits'",
    );
    assert!(!waits.status.success());
    m.must("server-2", &start.replace(":7070", ":7071"));
}

#[test]
fn mounts_find_a_server_that_has_moved_within_its_cell() {
    if !can_have_servers("servers-moved") {
        return;
    }
    let mut machines = with_one_tree();
    let m = &mut machines;
    // It has a volume without a name in the command, which nobody looks for.
    m.must("build-1", "ariel umount /mnt/2");
    m.must("build-1", HOLDER);
    m.must("build-1", "echo untold > /mnt/1/data/untold");
    move_server(m);
    assert_eq!(
        m.must("build-1", "timeout 20 cat /mnt/data/untold"),
        "untold\n"
    );
    assert_eq!(
        m.must("build-1", "timeout 20 cat /mnt/1/data/g"),
        "through\n"
    );
    for mount in ["/mnt/1", "/mnt/data"] {
        let told = m.must("build-1", &format!("ariel status {mount} --json"));
        for word in ["server-2:7071", "\"sessions_lost\": 0"] {
            assert!(told.contains(word), "{told} lacks {word}");
        }
        assert!(!told.contains("server-2:7070"), "{told}");
    }
    // The lock outlives the move, and so does what was not written back.
    m.refused("build-1", "flock -n /mnt/1/data/held true", &[]);
    m.must(
        "build-1",
        "echo go > /srv/go; timeout 20 flock /mnt/1/data/held true",
    );
    assert_eq!(m.must("build-1", "cat /mnt/1/data/held"), "before\nafter\n");
    killed_after_a_move(m);
    m.must("build-1", "ariel umount /mnt/data; ariel umount /mnt/1");
}

/// The guards tell the server of the daemons' deaths where it is now.
fn killed_after_a_move(m: &mut Machines) {
    m.must(
        "build-1",
        "echo by1 > /mnt/1/data/by1; echo bydata > /mnt/data/bydata",
    );
    let daemons = [
        (
            "ariel mount server-1:7070 /mnt/1",
            "/mnt/1/data",
            "/mnt/data/by1",
        ),
        (
            "ariel mount server-1:7070 /mnt/data",
            "/mnt/data",
            "/mnt/1/data/bydata",
        ),
    ];
    for (daemon, place, written) in daemons {
        m.signal("build-1", daemon, Signal::KILL);
        // Long before the server takes what a silent machine holds.
        m.must(
            "build-1",
            &format!("timeout 10 sh -c 'echo taken > {written}'"),
        );
        let mounted = eventually(LIMIT, || {
            let read = m.run("build-1", &format!("timeout 5 cat {place}/f"));
            read.status.success() && read.stdout == b"found\n"
        });
        assert!(mounted, "{place} does not come back");
    }
}
