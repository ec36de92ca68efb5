//! The status of a server or a mount (`ariel status --json`), and counting messages with it.

use super::eventually;
use super::process::{ariel, run, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

/// Messages by kind.
pub type Counts = BTreeMap<String, u64>;

/// Asks for the status.
pub fn status(target: impl AsRef<OsStr>) -> Value {
    let args = [OsStr::new("status"), OsStr::new("--json"), target.as_ref()];
    let output = run(&mut ariel(&args));
    assert!(
        output.status.success(),
        "ariel status --json: {}",
        text(&output)
    );
    serde_json::from_slice(&output.stdout).expect("status --json prints one JSON object")
}

/// Resident memory of a server or a mount, in MiB.
pub fn resident_mib(target: impl AsRef<OsStr>) -> u64 {
    let pid = status(target)["pid"].as_u64().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024
}

/// The counters under a path of keys.
pub fn counts(status: &Value, path: &[&str]) -> Counts {
    let found = path.iter().try_fold(status, |value, key| value.get(key));
    let object = found.and_then(Value::as_object);
    let object = object.unwrap_or_else(|| panic!("no {path:?} in {status:#}"));
    object
        .iter()
        .map(|(kind, n)| (kind.clone(), n.as_u64().unwrap()))
        .collect()
}

/// The messages counted since; kinds that have not changed are left out.
pub fn since(before: &Counts, after: &Counts) -> Counts {
    let grown = |(kind, n): (&String, &u64)| {
        let more = n - before.get(kind).copied().unwrap_or(0);
        (more > 0).then(|| (kind.clone(), more))
    };
    after.iter().filter_map(grown).collect()
}

/// Messages at the server's door (from all its clients).
pub fn server_received(addr: &str) -> Counts {
    counts(&status(addr), &["received"])
}

/// Bytes that went over all connections of a server.
pub fn bytes_moved(addr: &str) -> u64 {
    counts(&status(addr), &["bytes"]).values().sum()
}

/// Messages at both doors while something is done.
pub struct Doors {
    pub daemon: Counts,
    pub server: Counts,
}

/// Counts what the work costs at both doors. RELEASE comes after close(2) has returned, so the
/// counters are read when no open is left. The cost of asking for the status is measured just
/// before, and left out; keep-alives are left out as well.
pub fn cost_of(mount: &Path, addr: &str, work: impl FnOnce()) -> Doors {
    let first = server_received(addr);
    let asking = since(&first, &server_received(addr));
    let daemon_before = at_rest(mount);
    let server_before = server_received(addr);
    work();
    let daemon = since(&daemon_before, &at_rest(mount));
    let mut server = since(&server_before, &server_received(addr));
    server.remove("KeepAlive");
    for (kind, n) in &asking {
        if let Some(count) = server.get_mut(kind) {
            *count = count.saturating_sub(*n);
        }
    }
    server.retain(|_, n| *n > 0);
    Doors { daemon, server }
}

/// The requests from the kernel so far, when all that was opened has been released.
fn at_rest(mount: &Path) -> Counts {
    let mut requests = Counts::new();
    let rests = eventually(Duration::from_secs(20), || {
        let status = status(mount);
        requests = counts(&status, &["fuse", "requests"]);
        status["opens"] == 0
    });
    assert!(rests, "{} is not released", mount.display());
    requests
}
