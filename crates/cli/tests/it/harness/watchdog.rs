//! Nobody waits for ever: when a test's time is over, what it started is ended, so that the system
//! calls it waits in return with an error and the test fails. If even that does not help, the whole
//! test program ends.

use super::{say, scratch};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

/// How long a test may take to fail after what it started has been ended.
const LAST_WORDS: Duration = Duration::from_secs(60);

struct Watched {
    name: String,
    deadline: Instant,
    expired: bool,
    groups: Vec<u32>,
    mounts: Vec<PathBuf>,
}

static WATCHED: Mutex<BTreeMap<u64, Watched>> = Mutex::new(BTreeMap::new());
static START: Once = Once::new();
/// Told when a deadline was added that may be the next one.
static ADDED: Condvar = Condvar::new();

/// One test under watch; dropped at its end. Clones of the number register what it starts.
pub struct Watch(u64);

/// Names a test under watch.
#[derive(Clone, Copy)]
pub struct WatchId(u64);

impl Watch {
    pub fn new(name: &str, limit: Duration) -> Self {
        START.call_once(|| {
            std::thread::spawn(patrol);
        });
        let mut watched = WATCHED.lock().unwrap();
        let id = watched.keys().next_back().map_or(1, |last| last + 1);
        let entry = Watched {
            name: name.to_owned(),
            deadline: Instant::now() + limit,
            expired: false,
            groups: Vec::new(),
            mounts: Vec::new(),
        };
        watched.insert(id, entry);
        ADDED.notify_all();
        Self(id)
    }

    pub fn id(&self) -> WatchId {
        WatchId(self.0)
    }
}

impl WatchId {
    /// A process group that was started and has not been waited for yet.
    pub fn add_group(self, group: u32) {
        self.change(|w| w.groups.push(group));
    }

    /// The process has been waited for: its number may belong to somebody else from now on.
    pub fn remove_group(self, group: u32) {
        self.change(|w| w.groups.retain(|g| *g != group));
    }

    pub fn add_mount(self, point: &Path) {
        self.change(|w| w.mounts.push(point.to_owned()));
    }

    fn change(self, change: impl FnOnce(&mut Watched)) {
        if let Some(watched) = WATCHED.lock().unwrap().get_mut(&self.0) {
            change(watched);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(mut watched) = WATCHED.lock() {
            watched.remove(&self.0);
        }
    }
}

/// Sleeps from deadline to deadline.
fn patrol() {
    let mut all = WATCHED.lock().unwrap();
    loop {
        let now = Instant::now();
        all.values_mut()
            .filter(|watched| watched.deadline <= now)
            .for_each(|watched| expire(watched, now));
        let next = all.values().map(|watched| watched.deadline).min();
        all = match next {
            None => ADDED.wait(all).unwrap(),
            Some(next) => ADDED.wait_timeout(all, next - now).unwrap().0,
        };
    }
}

fn expire(watched: &mut Watched, now: Instant) {
    if watched.expired {
        say(&format!(
            "{} cannot even fail: the tests end here",
            watched.name
        ));
        std::process::exit(101);
    }
    watched.expired = true;
    watched.deadline = now + LAST_WORDS;
    end(watched);
}

fn end(watched: &Watched) {
    say(&format!(
        "{} takes too long: ending what it started",
        watched.name
    ));
    for point in &watched.mounts {
        scratch::force_unmount(point);
    }
    for group in &watched.groups {
        super::process::kill_group(*group);
    }
}

#[test]
fn what_takes_too_long_is_ended() {
    let watch = Watch::new("a test of the watchdog", Duration::from_millis(300));
    let mut command = std::process::Command::new("sleep");
    let mut child = super::process::Proc::spawn(command.arg("600"), Some(watch.id())).unwrap();
    let status = child
        .wait(Duration::from_secs(30))
        .expect("the watchdog ends it");
    assert!(!status.success(), "{status}");
}
