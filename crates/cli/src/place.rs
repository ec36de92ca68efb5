//! The right to a mount point: a lock that a mount's process holds until it has ended, and so until
//! everything is written back, however its mount was taken away.
//!
//! Guarantees: a mount does not begin while the last one of the same place still writes back; the
//! waiting command says so, and how much is left; the wait ends when nothing moves for a minute.

use crate::failure::{FAILED, Failure};
use crate::{control, runtime};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// How often the wait is told of.
const TELL_TIME: Duration = Duration::from_secs(1);
/// How long nothing may move.
const PATIENCE: u32 = 60;

/// The right to a mount point; given back by the end of the process at the latest.
pub(crate) struct Place {
    path: PathBuf,
    _lock: File,
}

impl Place {
    /// Takes the right to mount at `point`, and waits for the last mount there to end; `say` is
    /// told of it.
    pub(crate) fn take(point: &Path, say: impl Fn(&str)) -> Result<Option<Place>, Failure> {
        let path = match path(point) {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!("nothing waits for the end of an earlier mount: {error:#}");
                return Ok(None);
            }
        };
        loop {
            let failed = |error| Failure::of(&path.display().to_string(), error);
            let mut options = File::options();
            options.create(true).truncate(false).write(true).mode(0o600);
            let file = options.open(&path).map_err(failed)?;
            let lock = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => file,
                Err(_) => wait_for(file, point, &say)?,
            };
            // The last owner removes the file; a process that waited has the lock of nothing then.
            let (ours, there) = (lock.metadata(), std::fs::metadata(&path));
            if there.is_ok_and(|there| ours.is_ok_and(|ours| ours.ino() == there.ino())) {
                return Ok(Some(Place::of(path, lock)));
            }
        }
    }

    /// Leaves this process's number in the file, for a process that waits for it.
    fn of(path: PathBuf, mut lock: File) -> Place {
        let text = format!("{}\n", std::process::id());
        let written = lock
            .set_len(0)
            .and_then(|()| lock.write_all(text.as_bytes()));
        if let Err(error) = written {
            tracing::debug!(%error, "the lock of the place does not say whose it is");
        }
        Place { path, _lock: lock }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that stays does no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn path(point: &Path) -> anyhow::Result<PathBuf> {
    let path = runtime::dir()?.join(runtime::of_mount(point));
    Ok(path.with_extension("lock"))
}

/// Waits until the lock is free, and takes it.
fn wait_for(file: File, point: &Path, say: &impl Fn(&str)) -> Result<File, Failure> {
    let (send, locked) = mpsc::channel();
    let lock = move || -> io::Result<File> {
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    };
    // It waits for ever where this gives up; the process ends then.
    thread::spawn(move || drop(send.send(lock())));
    let (mut left, mut still) = (owed(point), 0);
    loop {
        // It may have begun meanwhile, and will not end.
        let entry = fuse::mount::find(point).ok().flatten();
        if entry.is_some_and(|entry| !entry.is_dead()) {
            let error = fuse::MountError::Already(point.to_owned());
            return Err(Failure::of("mount", error));
        }
        if still % 10 == 0 {
            let owed = left
                .as_ref()
                .map_or_else(String::new, |owed| format!(" ({owed} left)"));
            let point = point.display();
            say(&format!(
                "waiting for the last mount at {point} to write back{owed}"
            ));
        }
        match locked.recv_timeout(TELL_TIME) {
            Ok(Ok(lock)) => return Ok(lock),
            Ok(Err(error)) => return Err(Failure::of("mount", error)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::of(
                    "mount",
                    "the lock of the place cannot be waited for",
                ));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let before = std::mem::replace(&mut left, owed(point));
        still = if before == left { still + 1 } else { 0 };
        if still >= PATIENCE {
            return Err(stuck(point, left.as_deref()));
        }
    }
}

/// The blocks that the last mount has yet to write back, in words; `None`: it does not say.
fn owed(point: &Path) -> Option<String> {
    let asked = control::ask(&runtime::of_mount(point), "status", Some(TELL_TIME));
    let status = asked.ok().flatten()?;
    let blocks = status["cache"]["dirty"].as_u64()?;
    let untold = status["untold_changes"].as_u64().unwrap_or(0);
    Some(format!("{blocks} blocks and {untold} changes of names"))
}

fn stuck(point: &Path, left: Option<&str>) -> Failure {
    let left = left.unwrap_or("it does not say how much");
    let number = path(point).and_then(|path| Ok(std::fs::read_to_string(path)?));
    let number = number.unwrap_or_default();
    Failure::new(
        FAILED,
        format_args!(
            "mount: the last mount at {} has not written back everything ({left}), and nothing \
             moves: start its server again, or give that up with `kill -9 {}`",
            point.display(),
            number.trim(),
        ),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let first = Place::take(dir.path(), |_| panic!("it is free")).unwrap();
        let (send, said) = mpsc::channel();
        thread::scope(|scope| {
            let second =
                scope.spawn(|| Place::take(dir.path(), |text| drop(send.send(text.to_owned()))));
            assert!(said.recv().unwrap().contains(dir.path().to_str().unwrap()));
            drop(first);
            assert!(second.join().unwrap().unwrap().is_some());
        });
        assert!(!path(dir.path()).unwrap().exists());
    }
}
