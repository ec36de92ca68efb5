//! The tests' foundation: a cell (a server with its data), mounts of it, bounded waiting.

pub mod cell;
#[path = "../../../src/child.rs"]
mod child;
pub mod group;
pub mod holder;
pub mod image;
pub mod machines;
pub mod mount;
pub mod network;
pub mod permits;
pub mod process;
pub mod record;
pub mod rerun;
pub mod scratch;
pub mod slow_disk;
pub mod starts;
pub mod status;
pub mod stuck;
#[path = "../../../../fuse/tests/support/switch.rs"]
pub mod switch;
pub mod tasks;
pub mod watchdog;

pub use cell::{Cell, Pair};
pub use mount::Mount;
pub use network::Network;
pub use process::{ariel, run, text};
pub use scratch::Scratch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Both "mounts" are one local directory: the check of the tests themselves.
pub fn local() -> bool {
    std::env::var_os("ARIEL_IT_LOCAL").is_some()
}

/// The long forms of tests are asked for (`make conformance`, `make soak`).
pub fn long() -> bool {
    std::env::var_os("ARIEL_LONG").is_some()
}

/// Says something that the test runner does not swallow.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A test cannot run here: said loudly, and a failure where everything must be there.
pub fn skipped(test: &str, why: &str) {
    say(&format!("SKIPPED: {test}: {why}"));
    let ci = std::env::var_os("CI").is_some_and(|v| !v.is_empty());
    assert!(
        !ci || local(),
        "{test} cannot be skipped where CI is set: {why}"
    );
}

/// Is there what a mount needs? Says what is missing.
pub fn can_mount(test: &str) -> bool {
    if local() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        skipped(test, "mounting needs root; run the tests as root");
        return false;
    }
    if !Path::new("/dev/fuse").exists() {
        skipped(
            test,
            "/dev/fuse is missing; load the module with `modprobe fuse`",
        );
        return false;
    }
    true
}

/// The options of all mounts that the environment may set: the variable, and the option.
const OF_ALL_MOUNTS: [(&str, &str); 3] = [
    ("ARIEL_IT_TRANSPORT", "--transport"),
    ("ARIEL_IT_WITHOUT", "--without"),
    ("ARIEL_IT_NAME_DELAY", "--name-delay"),
];

/// The value of a variable of the environment, if it is not empty.
fn said(variable: &str) -> Option<String> {
    let said = std::env::var(variable).ok();
    said.filter(|said| !said.is_empty())
}

/// Can requests come over io_uring here? Says what is missing. Mounts of the harness hold the
/// switch until they work.
pub fn has_uring(test: &str) -> bool {
    hold_uring(test).is_some()
}

/// The same, and as long as it is held they can: for programs that mount themselves.
pub fn hold_uring(test: &str) -> Option<switch::Switch> {
    let held = switch::hold(true);
    held.map_err(|missing| skipped(test, &missing)).ok()
}

/// For tests of the program itself: false, said loudly, when only the judge is being checked.
pub fn real_system(test: &str) -> bool {
    if local() {
        say(&format!(
            "SKIPPED: {test}: nothing of the program to test with ARIEL_IT_LOCAL"
        ));
        return false;
    }
    can_mount(test)
}

/// Is this program installed? `make test` installs it, so its absence in CI is a failure.
pub fn has_program(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !found {
        skipped(test, &format!("{program} is missing; run tools/setup"));
    }
    found
}

/// A suite that others wrote. `make test` installs it, so its absence in CI is a failure.
pub fn suite(test: &str, program: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let path = target.map(|dir| dir.join("suites/bin").join(program));
    let found = path.filter(|path| path.is_file());
    if found.is_none() {
        let why = format!("{program} is missing; run tools/setup suites");
        skipped(test, &why);
    }
    found
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Waits until something is true; false when the limit has passed. For states of which nothing
/// tells: the end of somebody else's process, what a server says of itself, lines of a log.
pub fn eventually(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if is_true() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A seeded generator: a failing run can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        wire::splitmix64(&mut self.0)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Bytes that differ for each seed.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
