//! Where logs go: standard error in the foreground; in the background a file, and until that is
//! known, memory.
//!
//! Guarantees: a file that grows past [`FILE_BYTES_MAX`] is renamed (`.1`, the older ones `.2` and
//! `.3`) and a new one begun, so that logs never fill a disk; SIGHUP opens the file of that name
//! anew, for those who rename it themselves. A log that cannot be written stops nothing.

use crate::service;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The variable that says how much is logged.
const VARIABLE: &str = "ARIEL_LOG";
/// Most bytes kept while the file is not known.
const EARLY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How many full files are kept.
const FILES_KEPT: u32 = 3;

enum Target {
    Early(Vec<u8>),
    File(LogFile),
}

/// A log with a name.
struct LogFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<LogFile> {
        let mut options = File::options();
        // Names of files are in it.
        let file = options.create(true).append(true).mode(0o600).open(path)?;
        Ok(LogFile {
            bytes: file.metadata()?.len(),
            file,
            path: path.to_owned(),
            bytes_max,
        })
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + bytes.len() as u64 > self.bytes_max {
            self.rotate()?;
        }
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Gives the full file a number, and begins a new one.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES_KEPT).rev() {
            // There need not be so many yet.
            let _ = std::fs::rename(self.numbered(number), self.numbered(number + 1));
        }
        std::fs::rename(&self.path, self.numbered(1))?;
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        *self = LogFile::open(&self.path, self.bytes_max)?;
        Ok(())
    }
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
    let _ = match service::logs_to_journal() {
        // The journal has the time of each line.
        true => subscriber.without_time().try_init(),
        false => subscriber.try_init(),
    };
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
    let mut file = LogFile::open(path, FILE_BYTES_MAX)?;
    let mut target = target();
    if let Target::Early(early) = &*target {
        file.write(early)?;
    }
    *target = Target::File(file);
    Ok(())
}

/// Opens the file of the same name anew, if logs go to one: somebody may have renamed it.
pub(crate) fn reopen() -> io::Result<()> {
    match &mut *target() {
        Target::Early(_) => Ok(()),
        Target::File(file) => file.reopen(),
    }
}

/// A bug ends the process at once: other threads could do wrong on a half-changed state. Crashes
/// are recovered from. Damage that the index's engine stops at is no bug: one request fails then,
/// and the store says so.
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
            Target::File(file) => file.write(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_file_gets_a_number_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = LogFile::open(&path, 8).unwrap();
        for line in [
            "one\n", "two\n", "three\n", "four\n", "five\n", "six\n", "seven\n",
        ] {
            log.write(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("log"), "seven\n");
        assert_eq!(read("log.1"), "six\n");
        assert_eq!(read("log.2"), "five\n");
        assert_eq!(read("log.3"), "four\n");
        assert!(!dir.path().join("log.4").exists());
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("old"));
        let mut log = LogFile::open(&path, 1 << 20).unwrap();
        log.write(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        log.write(b"two\n").unwrap();
        log.reopen().unwrap();
        log.write(b"three\n").unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"one\ntwo\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"three\n");
    }
}
