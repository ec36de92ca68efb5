//! Renews a machine's certificate before it expires, while its processes run.
//!
//! Guarantees: of several processes with the same credential one renews it, and the others find the
//! new one; a failure leaves the old credential, is told, and is tried again.

use crate::credential::{Credential, FILE};
use crate::question::{self, AskError};
use crate::words::now_s;
use net::{Addresses, Worker};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked at, at most.
const LOOK: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Shared {
    stopping: Mutex<bool>,
    stopped: Condvar,
}

/// The thread that renews. Dropping it ends the thread.
pub struct Renewal {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Renewal {
    /// Keeps the credential in this directory fresh, with the help of this server.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(dir: &Path, servers: Addresses) -> io::Result<Renewal> {
        let shared = Arc::new(Shared::default());
        let worker = {
            let (shared, dir) = (Arc::clone(&shared), dir.to_owned());
            Worker::start("renewal", move || run(&shared, &dir, &servers))?
        };
        Ok(Renewal { shared, worker })
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        *self.shared.stopping.lock() = true;
        self.shared.stopped.notify_all();
        self.worker.join();
    }
}

fn run(shared: &Shared, dir: &Path, servers: &Addresses) {
    loop {
        let pause = match look(dir, servers) {
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!("the certificate of this machine is not renewed yet: {error}");
                LOOK
            }
        };
        let mut stopping = shared.stopping.lock();
        if !*stopping {
            shared.stopped.wait_for(&mut stopping, pause);
        }
        if *stopping {
            return;
        }
    }
}

/// Renews the credential if it is due; how long it may be left alone.
fn look(dir: &Path, servers: &Addresses) -> Result<Duration, AskError> {
    let read = || -> Result<Option<Credential>, AskError> { Ok(Credential::read(dir)?) };
    let Some(credential) = read()? else {
        return Ok(LOOK);
    };
    let (from, until) = credential.life_s;
    let part = Duration::from_secs(until.saturating_sub(from) / 10);
    let pause = LOOK.min(part).max(Duration::from_secs(1));
    if !credential.is_due(now_s()) {
        return Ok(pause);
    }
    // Another process may be about to do the same.
    let _lock = lock(dir).map_err(|error| AskError::Refused(error.to_string()))?;
    match read()? {
        Some(credential) if credential.is_due(now_s()) => {
            question::renew(&credential, servers)?.write(dir)?;
            tracing::info!("the certificate of this machine was renewed");
        }
        _ => {}
    }
    Ok(pause)
}

fn lock(dir: &Path) -> io::Result<std::fs::File> {
    let path: PathBuf = dir.join(FILE).with_extension("lock");
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
