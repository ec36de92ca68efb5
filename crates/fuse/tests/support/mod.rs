//! A file system of a few files in memory that lets the kernel cache everything for ever, with
//! doors for tests: content changed behind the kernel's back, requests held back, bugs on demand.
#![allow(dead_code, unreachable_pub)]

mod memory;
pub mod switch;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ariel_fuse::{MountOptions, Options, Session, Transport, mount};

pub use memory::Memory;

/// Longest any awaited event may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// False, said loudly, where no mount can be made; a failure under CI.
pub fn can_mount() -> bool {
    if mount::can_mount() {
        return can_use_transport();
    }
    println!("SKIPPED: a real mount needs root and /dev/fuse");
    assert!(std::env::var_os("CI").is_none(), "CI must be able to mount");
    false
}

/// Whether the kernel knows the way that requests are to come.
fn can_use_transport() -> bool {
    if crate::TRANSPORT != Transport::Uring {
        return true;
    }
    let Err(missing) = switch::hold(true) else {
        return true;
    };
    println!("SKIPPED: {missing}");
    assert!(
        std::env::var_os("CI").is_none(),
        "CI must be able to: {missing}"
    );
    false
}

/// Awaits what tells nobody, the end and the state of a process that is no child of this one; looks
/// often, gives up late.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether anything is mounted at exactly this place.
pub fn is_mounted(dir: &Path) -> bool {
    mount::find(dir).unwrap().is_some()
}

/// A mounted `Memory`, unmounted when dropped.
pub struct Mount {
    pub dir: Option<tempfile::TempDir>,
    pub path: PathBuf,
    pub connection: u32,
    pub id: mount::MountId,
    pub session: Arc<Session>,
    pub memory: Arc<Memory>,
}

impl Mount {
    pub fn new(threads: usize) -> Self {
        Self::with(threads, &MountOptions::default())
    }

    pub fn with(threads: usize, options: &MountOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().to_owned();
        Self::make(threads, (Some(dir), &point), options)
    }

    /// At a directory that is there.
    pub fn at_place(point: &Path, options: &MountOptions) -> Self {
        Self::make(1, (None, point), options)
    }

    /// For a mount whose place another one has taken.
    pub fn forget(mut self) {
        self.path = PathBuf::new();
    }

    fn make(
        threads: usize,
        (dir, point): (Option<tempfile::TempDir>, &Path),
        options: &MountOptions,
    ) -> Self {
        // Needed until it is agreed.
        let _switch = (crate::TRANSPORT == Transport::Uring).then(|| switch::hold(true).unwrap());
        let mounted = mount::mount(point, options).unwrap();
        let session = Session::new(
            mounted.fd,
            Options {
                threads,
                transport: crate::TRANSPORT,
                root: Some(mounted.mount_point.clone()),
                ..Options::default()
            },
        )
        .unwrap();
        let memory = Arc::new(Memory::new(session.notifier()));
        session.serve(memory.clone()).unwrap();
        let (path, connection, id) = (mounted.mount_point, mounted.connection, mounted.id);
        Mount {
            dir,
            path,
            connection,
            id,
            session: Arc::new(session),
            memory,
        }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Requests so far that a program waited for, by kind. (The kernel forgets and releases in
    /// its own time.)
    pub fn requests(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let mut counts = self.session.counters().snapshot();
        for asynchronous in ["FORGET", "BATCH_FORGET", "RELEASE", "INTERRUPT"] {
            counts.remove(asynchronous);
        }
        counts
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.memory.release_held();
        if is_mounted(&self.path) {
            mount::unmount(&self.path).unwrap();
        }
        if !std::thread::panicking() {
            assert!(!is_mounted(&self.path));
        }
    }
}

/// A large file is made, read, cut and removed.
pub fn ordinary_operations(mount: &Mount) {
    let path = mount.at("file");
    let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::File::create_new(&path)
        .unwrap()
        .write_all(&content)
        .unwrap();
    assert_eq!(mount.memory.content("file"), content);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3_000_000);
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(2_000_001)
        .unwrap();
    assert_eq!(fs::read(&path).unwrap(), content[..2_000_001]);
    fs::remove_file(&path).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert_eq!(fs::read_dir(&mount.path).unwrap().count(), 0);
}
