//! The commands that work on a server's tree without a mount: `ls`, `cat`, `put`, `get`, `rm`,
//! `mv`, `mkdir`, `stat`; and `volume`.
//!
//! Guarantees: they behave, speak and exit as their Unix namesakes; a failure is told at once, and
//! the rest is done; when a command ends with 0 the server has everything.

mod balance;
mod cat;
mod connect;
mod copy;
mod get;
mod list;
mod lists;
mod long;
mod mkdir;
mod mounts;
mod moving;
mod mv;
mod names;
mod parts;
mod progress;
mod put;
mod receive;
mod release;
mod replicate;
mod rm;
mod send;
mod show;
mod stat;
mod volume;

pub(crate) use cat::cat;
pub(crate) use get::get;
pub(crate) use list::ls;
pub(crate) use mkdir::mkdir;
pub(crate) use mv::mv;
pub(crate) use put::put;
pub(crate) use rm::rm;
pub(crate) use stat::stat;
pub(crate) use volume::volume;

use crate::args::{Remote, TreeArgs};
use crate::failure::{FAILED, Failure};
use crate::{servers, trust};
use files::{Error, Options, Tree};
use net::Addresses;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sessions of a command, and whether something failed.
struct Session {
    command: &'static str,
    args: TreeArgs,
    trees: BTreeMap<Addresses, Arc<Tree>>,
    failed: Arc<AtomicBool>,
}

/// Tells of failures, from any thread.
#[derive(Clone)]
struct Complaints {
    command: &'static str,
    failed: Arc<AtomicBool>,
}

impl Session {
    fn new(command: &'static str, args: &TreeArgs) -> Self {
        Self {
            command,
            args: args.clone(),
            trees: BTreeMap::new(),
            failed: Arc::new(AtomicBool::new(false)),
        }
    }

    /// The tree of a place. A server that cannot be used ends the command.
    fn tree(&mut self, place: &Remote) -> Result<Arc<Tree>, Failure> {
        if let Some(tree) = self.trees.get(&place.server) {
            return Ok(Arc::clone(tree));
        }
        let options = Options {
            name: format!("ariel {}, process {}", self.command, std::process::id()),
            volume: self.args.volume.as_ref().map(ToString::to_string),
            ..Options::default()
        };
        let at = (&self.args.trust, self.args.volume.as_ref());
        let addresses = servers::of_volume(self.command, &place.server, at)?;
        let (server, _) = trust::server(self.command, &addresses, &self.args.trust)?;
        let tree = Tree::connect(server, &options);
        let tree = Arc::new(tree.map_err(|error| Failure::of(self.command, error))?);
        self.trees.insert(place.server.clone(), Arc::clone(&tree));
        Ok(tree)
    }

    fn complaints(&self) -> Complaints {
        Complaints {
            command: self.command,
            failed: Arc::clone(&self.failed),
        }
    }

    /// Does something at a place; a failure is told, and does not end the command.
    fn try_at<T>(&self, place: &Remote, work: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        self.complaints().of(place, work())
    }

    /// Gives everything back to the servers; the exit code.
    fn end(self) -> Result<ExitCode, Failure> {
        let Self {
            command,
            trees,
            failed,
            ..
        } = self;
        for tree in trees.into_values() {
            if let Ok(tree) = Arc::try_unwrap(tree) {
                tree.close().map_err(|error| Failure::of(command, error))?;
            }
        }
        let failed = failed.load(Ordering::Relaxed);
        Ok(ExitCode::from(if failed { FAILED } else { 0 }))
    }
}

impl Complaints {
    /// Tells of a failure.
    fn say(&self, place: impl fmt::Display, reason: impl fmt::Display) {
        self.failed.store(true, Ordering::Relaxed);
        // Where standard error is gone, there is nobody to tell.
        let _ = writeln!(io::stderr(), "ariel: {}: {place}: {reason}", self.command);
    }

    fn of<T>(&self, place: impl fmt::Display, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.say(place, error.reason())).ok()
    }

    /// The same of a local path.
    fn of_local<T>(&self, path: &Path, result: io::Result<T>) -> Option<T> {
        result
            .map_err(|error| self.say(path.display(), reason(&error)))
            .ok()
    }
}

/// The text of an error without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// A place below another one.
fn below(place: &Remote, name: impl AsRef<Path>) -> Remote {
    Remote {
        server: place.server.clone(),
        path: place.path.join(name),
    }
}

/// True if nobody reads standard output any more, so that further output is of no use.
fn is_over(result: io::Result<()>) -> Result<bool, Failure> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(Failure::of("standard output", reason(&error))),
    }
}
