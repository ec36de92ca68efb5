//! Nobody waits for ever: when a test's time is over, what it started is ended, so that the system
//! calls it waits in return with an error and the test fails. If even that does not help, the whole
//! test program ends. The same happens to a test of which a task is stuck on one of its mounts: see
//! [`super::stuck`].

use super::{say, scratch, stuck};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

/// How long a test may take to fail after what it started has been ended.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// After an outage the lease of a machine that is gone may have to end, and that be noticed.
const SETTLES: Duration = Duration::from_secs(30);

struct Watched {
    name: String,
    deadline: Instant,
    expired: bool,
    groups: Vec<u32>,
    mounts: Vec<PathBuf>,
    /// The network it began in.
    network: PathBuf,
    /// The test has taken the server away.
    away: bool,
    /// From then on waiting tasks are to be answered; a disturbance has to settle before.
    settled: Instant,
    /// The longest wait in state D so far.
    longest: Duration,
    /// The report on a task that is stuck.
    verdict: Option<String>,
}

static WATCHED: Mutex<BTreeMap<u64, Watched>> = Mutex::new(BTreeMap::new());
static START: Once = Once::new();
/// Told when a deadline was added that may be the next one.
static ADDED: Condvar = Condvar::new();

/// One test under watch; dropped at its end. Clones of the number register what it starts.
pub struct Watch(u64);

/// Names a test under watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchId(u64);

impl Watch {
    pub fn new(name: &str, limit: Duration) -> Self {
        START.call_once(|| {
            std::thread::spawn(patrol);
            std::thread::spawn(stuck::patrol);
        });
        let mut watched = WATCHED.lock().unwrap();
        let id = watched.keys().next_back().map_or(1, |last| last + 1);
        let entry = Watched {
            name: name.to_owned(),
            deadline: Instant::now() + limit,
            expired: false,
            groups: Vec::new(),
            mounts: Vec::new(),
            network: this_network(),
            away: false,
            settled: Instant::now(),
            longest: Duration::ZERO,
            verdict: None,
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

    /// The test takes the server away: only a killed task must not wait.
    pub fn server_goes(self) {
        self.change(|w| w.away = true);
    }

    /// It is there again, if the test has taken it away.
    pub fn server_is_back(self) {
        self.change(Watched::comes_back);
    }

    /// A machine of the cell has been killed or told to end: others may wait for its lease.
    pub fn disturbed(self) {
        self.change(|w| w.settled = Instant::now() + SETTLES);
    }

    /// The longest wait in state D so far.
    pub fn longest_wait(self) -> Duration {
        let mut longest = Duration::ZERO;
        self.change(|w| longest = w.longest);
        longest
    }

    /// The report on a task that is stuck, if one is; the caller that takes it judges it.
    pub fn take_verdict(self) -> Option<String> {
        let mut verdict = None;
        self.change(|w| verdict = w.verdict.take());
        verdict
    }

    fn change(self, change: impl FnOnce(&mut Watched)) {
        if let Some(watched) = WATCHED.lock().unwrap().get_mut(&self.0) {
            change(watched);
        }
    }
}

impl Watched {
    fn comes_back(&mut self) {
        if std::mem::take(&mut self.away) {
            self.settled = Instant::now() + SETTLES;
        }
    }
}

fn this_network() -> PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap_or_default()
}

/// The network of this thread is taken away, or made slow, or is as it was again.
pub fn network_changes(away: bool) {
    let network = this_network();
    let mut all = WATCHED.lock().unwrap();
    for watched in all.values_mut().filter(|w| w.network == network) {
        watched.comes_back();
        watched.away = away;
    }
}

/// The tests under watch: their mounts, and whether waiting tasks are to be answered.
pub fn tests() -> Vec<(WatchId, Vec<PathBuf>, bool)> {
    let all = WATCHED.lock().unwrap();
    let now = Instant::now();
    let tests = all.iter().map(|(id, watched)| {
        let answers = !watched.away && watched.settled <= now;
        (WatchId(*id), watched.mounts.clone(), answers)
    });
    tests.collect()
}

/// Somebody has waited for so long on a mount of this test. With a verdict its time is over.
pub fn waited(test: WatchId, waited: Duration, verdict: Option<String>) {
    test.change(|watched| {
        watched.longest = watched.longest.max(waited);
        if let Some(verdict) = verdict.filter(|_| watched.verdict.is_none()) {
            say(&format!("{}: {verdict}", watched.name));
            watched.verdict = Some(verdict);
            watched.deadline = watched.deadline.min(Instant::now());
        }
    });
    ADDED.notify_all();
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
    let why = match &watched.verdict {
        Some(_) => "is stuck",
        None => "takes too long",
    };
    say(&format!("{} {why}: ending what it started", watched.name));
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
