//! The progress of a long transfer on a terminal: bytes, rate, time left, and how many files are
//! done.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};

const LINE: &str = "{spinner} {bytes:>11} of {total_bytes:<11} {bar:20} {bytes_per_sec:>13} \
                    {eta:>4} left  {msg}";

/// A bar of this form. Nothing is shown if nobody wants it, or there is no terminal.
pub(super) fn bar(quiet: bool, form: &str, length: Option<u64>) -> ProgressBar {
    let target = match quiet || !io::stderr().is_terminal() {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr(),
    };
    let bar = ProgressBar::with_draw_target(length, target);
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar
}

/// The progress of one command.
pub(super) struct Progress {
    bar: ProgressBar,
    done: AtomicU64,
    found: AtomicU64,
}

impl Progress {
    /// Nothing is shown if nobody wants it, or there is no terminal.
    pub(super) fn new(quiet: bool) -> Self {
        Self {
            bar: bar(quiet, LINE, Some(0)),
            done: AtomicU64::new(0),
            found: AtomicU64::new(0),
        }
    }

    /// There is one more file, of so many bytes.
    pub(super) fn found(&self, bytes: u64) {
        self.found.fetch_add(1, Ordering::Relaxed);
        self.bar.inc_length(bytes);
        self.show();
    }

    /// So many bytes of a file are copied.
    pub(super) fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// A file is done.
    pub(super) fn finished(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.show();
    }

    fn show(&self) {
        let done = self.done.load(Ordering::Relaxed);
        let found = self.found.load(Ordering::Relaxed);
        self.bar.set_message(format!("{done} of {found} files"));
    }

    /// All is copied; the work from now on has no length.
    pub(super) fn wait_for(&self, what: &'static str) {
        self.bar.set_message(what);
        self.bar.tick();
    }

    /// Prints something without spoiling the line.
    pub(super) fn beside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
