//! Signals that ask for an orderly end.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::thread;

/// Calls `first` at the first signal. A second one ends the process at once, for whoever does not
/// want to wait any longer; what a killed process leaves is cleaned up or recovered from.
pub(crate) fn on_end(first: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let wait = move || {
        let mut first = Some(first);
        for signal in signals.forever() {
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
