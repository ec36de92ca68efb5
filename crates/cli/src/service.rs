//! Reports to a service manager: that a daemon is ready, that it ends, that it still works.
//!
//! Guarantees: where none has started this process, nothing is done; a manager that cannot be told
//! keeps nobody from working. The watchdog is told only after the daemon itself has answered: one
//! whose lock is never let go is started again.

use sd_notify::NotifyState;
use std::os::unix::fs::MetadataExt;
use std::thread;

/// Has a service manager started this process, and does it wait to be told?
pub(crate) fn is_managed() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Does standard error go to the journal? (systemd.exec(5), `$JOURNAL_STREAM`.)
pub(crate) fn logs_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| stream == format!("{}:{}", stderr.dev(), stderr.ino()))
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("the service manager cannot be told: {error}");
    }
}

/// It works; `status` is one line for people.
pub(crate) fn ready(status: &str) {
    if is_managed() {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }
}

/// It ends in order.
pub(crate) fn stopping() {
    if is_managed() {
        tell(&[NotifyState::Stopping]);
    }
}

/// Tells the watchdog, if there is one, each time that `answers` has returned; until it says that
/// there is nothing left to watch.
pub(crate) fn watch(answers: impl Fn() -> bool + Send + 'static) {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return;
    };
    let run = move || {
        while answers() {
            tell(&[NotifyState::Watchdog]);
            // Half of the time in which the manager wants to be told; there is no event for that.
            thread::sleep(interval / 2);
        }
    };
    let thread = thread::Builder::new().name("watchdog".into()).spawn(run);
    if let Err(error) = thread {
        tracing::warn!("the watchdog of the service manager is not told: {error}");
    }
}
