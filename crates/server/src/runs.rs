//! The ends at which the logs of earlier runs were left: a file beside the store, on stable storage
//! before anybody is told of this run.
//!
//! Guarantees: a line says of a run up to which record its log was left when another run began. It
//! is written before that other run adds anything that it tells of. So a client that was answered
//! by any of the latest runs can be told what of that is lost. Without the file nothing is said of
//! them, and clients ask again for all that may be lost: after a power failure changes that were
//! not lost are made once more then, in the same order.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use wire::{Epoch, Place, limits::RUNS};

/// The first line.
const HEAD: &str = "ariel runs 1";

/// Runs, oldest first: the first epoch of each, and the last record of those before it that it
/// found.
type Runs = Vec<(Epoch, u64)>;

fn parse(text: &str) -> Option<Runs> {
    let mut lines = text.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let numbers = |line: &str| {
        let (boot, found) = line.split_once(' ')?;
        Some((boot.parse().ok()?, found.parse().ok()?))
    };
    lines.map(numbers).collect()
}

/// The last record that is left of each run but the last.
fn left(runs: &Runs) -> Vec<Place> {
    let pairs = runs.iter().zip(runs.iter().skip(1));
    pairs
        .map(|(&(boot, _), &(_, record))| Place { boot, record })
        .collect()
}

/// Notes that a run begins which has found everything up to this record. Returns the ends of the
/// latest runs before it.
pub(crate) fn begin(data: &Path, boot: Epoch, found: u64) -> io::Result<Vec<Place>> {
    let path = data.join("runs");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let mut runs = parse(&text).unwrap_or_default();
    // A store that was put back from a copy begins these runs anew.
    runs.retain(|(earlier, _)| *earlier < boot);
    runs.push((boot, found));
    let old = runs.len().saturating_sub(RUNS);
    runs.drain(..old);
    let mut text = format!("{HEAD}\n");
    for (boot, found) in &runs {
        text.push_str(&format!("{boot} {found}\n"));
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(data)?.sync_all()?;
    Ok(left(&runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[(u64, u64)]) -> Vec<Place> {
        let place = |&(boot, record): &(u64, u64)| Place { boot, record };
        all.iter().map(place).collect()
    }

    #[test]
    fn each_run_is_told_where_the_latest_ones_before_it_end() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(begin(dir.path(), 100, 0).unwrap(), vec![]);
        assert_eq!(begin(dir.path(), 200, 17).unwrap(), places(&[(100, 17)]));
        // One that is lost with its records found less.
        let left = begin(dir.path(), 300, 16).unwrap();
        assert_eq!(left, places(&[(100, 17), (200, 16)]));
        for run in 4..=40 {
            begin(dir.path(), run * 100, run).unwrap();
        }
        let left = begin(dir.path(), 4100, 41).unwrap();
        assert_eq!(left.len(), RUNS - 1);
        assert_eq!(left.last(), places(&[(4000, 41)]).last());
    }

    #[test]
    fn a_store_put_back_from_a_copy_forgets_the_runs_that_it_never_had() {
        let dir = tempfile::tempdir().unwrap();
        begin(dir.path(), 100, 0).unwrap();
        begin(dir.path(), 200, 50).unwrap();
        assert_eq!(begin(dir.path(), 200, 40).unwrap(), places(&[(100, 40)]));
    }

    #[test]
    fn what_is_no_such_file_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "ariel runs 2\n1 2\n", "ariel runs 1\n1 x\n"] {
            fs::write(dir.path().join("runs"), text).unwrap();
            assert_eq!(begin(dir.path(), 300, 9).unwrap(), vec![]);
        }
    }
}
