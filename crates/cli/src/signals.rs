//! Signals that ask for an orderly end, and SIGHUP, which a daemon takes as: open your log anew.

use crate::log;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::thread;

/// Calls `first` at the first signal. A second one ends the process at once, for a user who does
/// not want to wait any longer; what a killed process leaves is cleaned up or recovered from.
pub(crate) fn on_end(first: impl FnOnce() + Send + 'static) -> io::Result<()> {
    await_signals(first, false)
}

/// The same for a daemon, which has no terminal that could hang up.
pub(crate) fn on_end_of_daemon(first: impl FnOnce() + Send + 'static) -> io::Result<()> {
    await_signals(first, true)
}

fn await_signals(first: impl FnOnce() + Send + 'static, is_daemon: bool) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let wait = move || {
        let mut first = Some(first);
        for signal in signals.forever() {
            if is_daemon && signal == SIGHUP {
                match log::reopen() {
                    Ok(()) => tracing::info!("SIGHUP: the log is opened anew"),
                    Err(error) => tracing::error!("SIGHUP: the log cannot be opened: {error}"),
                }
                continue;
            }
            match first.take() {
                Some(first) => first(),
                None => {
                    tracing::error!(signal, "a second signal: ending at once");
                    std::process::exit(i32::from(crate::failure::FAILED));
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
