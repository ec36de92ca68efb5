//! Where logs go: standard error in the foreground; in the background a file, and until that is
//! known, memory.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The variable that says how much is logged.
const VARIABLE: &str = "ARIEL_LOG";
/// Most bytes kept while the file is not known.
const EARLY_BYTES_MAX: usize = 1 << 20;

enum Target {
    Early(Vec<u8>),
    File(File),
}

static TARGET: Mutex<Target> = Mutex::new(Target::Early(Vec::new()));

fn target() -> MutexGuard<'static, Target> {
    TARGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs to standard error.
pub(crate) fn to_stderr(default: &str) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(default))
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    // Only ever called once; a second call would change nothing.
    let _ = subscriber.try_init();
}

/// Logs to the file that [`use_file`] will name.
pub(crate) fn to_file() {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter("info"))
        .with_ansi(false)
        .with_writer(ToFile);
    let _ = subscriber.try_init();
}

/// Appends what was logged, and what will be, to this file.
pub(crate) fn use_file(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    // Names of files are in it.
    let mut file = options.create(true).append(true).mode(0o600).open(path)?;
    let mut target = target();
    if let Target::Early(early) = &*target {
        file.write_all(early)?;
    }
    *target = Target::File(file);
    Ok(())
}

/// A bug ends the process at once: what other threads would make of a half-changed state could
/// be wrong. Crashes are recovered from. Damage that the index's engine stops at is no bug: one
/// request fails then, and the store says so.
pub(crate) fn end_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        if store::catches_panics() {
            return tracing::debug!("the engine of the index stopped: {info}");
        }
        tracing::error!("a bug, please report it: {info}");
        let _ = writeln!(io::stderr(), "ariel: a bug, please report it: {info}");
        std::process::abort();
    }));
}

fn filter(default: &str) -> EnvFilter {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let wanted = if wanted.is_empty() { default } else { &wanted };
    EnvFilter::try_new(wanted).unwrap_or_else(|error| {
        let _ = writeln!(
            io::stderr(),
            "ariel: {VARIABLE}: {error}: try error, warn, info or debug"
        );
        EnvFilter::new(default)
    })
}

struct ToFile;

impl<'a> MakeWriter<'a> for ToFile {
    type Writer = ToFile;
    fn make_writer(&'a self) -> ToFile {
        ToFile
    }
}

impl Write for ToFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *target() {
            Target::Early(early) if early.len() < EARLY_BYTES_MAX => early.extend_from_slice(bytes),
            Target::Early(_) => {}
            Target::File(file) => file.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
