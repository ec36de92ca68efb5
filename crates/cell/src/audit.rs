//! The audit log: a line of JSON for each change of the cell, each login and each refusal.
//!
//! Guarantees: a line is written whole or not at all; the log and its older parts together take no
//! more than a bound; of each line the newest ones are kept. A log that others have renamed, or
//! removed, is begun anew with the next line.

use crate::words::now_s;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the log before a new one is begun, and how many older ones are kept.
const BYTES_MAX: u64 = 16 << 20;
const OLDER: u32 = 3;

/// The log, open.
pub(crate) struct Audit {
    path: PathBuf,
    bytes_max: u64,
    open: Mutex<(File, u64)>,
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

impl Audit {
    pub(crate) fn open(path: PathBuf) -> io::Result<Audit> {
        Audit::with(path, BYTES_MAX)
    }

    fn with(path: PathBuf, bytes_max: u64) -> io::Result<Audit> {
        let open = Mutex::new(open(&path)?);
        Ok(Audit {
            path,
            bytes_max,
            open,
        })
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Notes an action or a wish, its author, and the reason of a refusal.
    pub(crate) fn note(&self, who: &str, what: &Value, outcome: Result<(), String>) {
        let line = json!({
            "at": now_s(),
            "who": who,
            "what": what,
            "refused": outcome.err(),
        });
        let text = format!("{line}\n");
        let mut open = self.open.lock();
        let written = self.append(&mut open, text.as_bytes());
        if let Err(error) = written {
            tracing::error!(%error, %line, "the audit log cannot be written");
        }
    }

    fn append(&self, current: &mut (File, u64), line: &[u8]) -> io::Result<()> {
        if !self.is_in_place(&current.0)? {
            *current = open(&self.path)?;
        }
        self.make_room(current, line.len() as u64)?;
        current.1 += line.len() as u64;
        current.0.write_all(line)
    }

    /// Is this the file that has the log's name?
    fn is_in_place(&self, file: &File) -> io::Result<bool> {
        let named = match self.path.metadata() {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let opened = file.metadata()?;
        Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino()))
    }

    /// Begins a new log if this one would grow too long.
    fn make_room(&self, current: &mut (File, u64), bytes: u64) -> io::Result<()> {
        if current.1 == 0 || current.1 + bytes <= self.bytes_max {
            return Ok(());
        }
        for number in (1..OLDER).rev() {
            match fs::rename(self.older(number), self.older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.older(1))?;
        *current = open(&self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_log_that_others_have_renamed_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::open(path.clone()).unwrap();
        let lines = |name: &str| {
            let text = fs::read_to_string(dir.path().join(name)).unwrap();
            text.lines().count()
        };
        audit.note("ann", &json!("one"), Ok(()));
        fs::rename(&path, dir.path().join("audit.log-20261130")).unwrap();
        audit.note("ann", &json!("two"), Ok(()));
        audit.note("ann", &json!("three"), Ok(()));
        assert_eq!((lines("audit.log-20261130"), lines("audit.log")), (1, 2));
        fs::remove_file(&path).unwrap();
        audit.note("ann", &json!("four"), Ok(()));
        assert_eq!(lines("audit.log"), 1);
    }

    #[test]
    fn the_log_is_bounded_and_its_newest_lines_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let most = 1000;
        for number in 0..200 {
            // Opened anew now and then, as by a server that starts again.
            let audit = Audit::with(path.clone(), most).unwrap();
            for again in 0..3 {
                let refused = (again == 0).then(|| "no".to_owned());
                let outcome = refused.map_or(Ok(()), Err);
                audit.note("ann", &json!(number * 3 + again), outcome);
            }
        }
        let mut numbers = Vec::new();
        let names = ["audit.log.3", "audit.log.2", "audit.log.1", "audit.log"];
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len());
        for name in names {
            let path = dir.path().join(name);
            let found = path.metadata().unwrap();
            assert!(found.len() <= most && found.mode() & 0o077 == 0);
            for line in fs::read_to_string(path).unwrap().lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!(
                    line["refused"].is_null(),
                    !line["what"].as_u64().unwrap().is_multiple_of(3)
                );
                numbers.push(line["what"].as_u64().unwrap());
            }
        }
        assert_eq!(numbers.last(), Some(&599));
        assert!(
            numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{numbers:?}"
        );
    }
}
