//! Errors, as programs and people see them.

use client::{ClientError, LeaveError};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use wire::{NameError, Refusal};

/// The result of the functions of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operation was refused, and nothing was changed.
    #[error("{}: {}", path.display(), text(*errno))]
    Refused {
        /// Which path it was about.
        path: PathBuf,
        /// Why, as the system call of the same name says it.
        errno: Errno,
    },
    /// The server cannot be used.
    #[error("{}: {reason}", path.display())]
    Server {
        /// Which path it was about.
        path: PathBuf,
        /// The failure, and what helps.
        reason: &'static str,
    },
    /// There is no session with a server.
    #[error(transparent)]
    Connect(#[from] ClientError),
    /// Not everything could be given back to the server.
    #[error(transparent)]
    Leave(#[from] LeaveError),
}

impl Error {
    /// A refusal by the client or the server.
    pub(crate) fn refused(path: &Path, refusal: Refusal) -> Self {
        let path = path.to_owned();
        match reason(refusal) {
            Ok(errno) => Self::Refused { path, errno },
            Err(reason) => Self::Server { path, reason },
        }
    }

    /// A refusal by this library.
    pub(crate) fn errno(path: &Path, errno: Errno) -> Self {
        let path = path.to_owned();
        Self::Refused { path, errno }
    }

    /// The path leads to a volume of another server, with which there is no session.
    pub(crate) fn elsewhere(path: &Path) -> Self {
        let reason = "another server of the cell has what is behind a mount point on this path: \
                      name its volume with --volume, or go there through a mount";
        let path = path.to_owned();
        Self::Server { path, reason }
    }

    pub(crate) fn name(path: &Path, error: NameError) -> Self {
        Self::refused(path, error.into())
    }

    /// The number that a system call would give for it.
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        match self {
            Self::Refused { errno, .. } => errno.raw_os_error(),
            Self::Server { .. } | Self::Connect(_) | Self::Leave(_) => Errno::IO.raw_os_error(),
        }
    }

    /// The error without the path.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Refused { errno, .. } => text(*errno),
            Self::Server { reason, .. } => (*reason).to_owned(),
            Self::Connect(error) => error.to_string(),
            Self::Leave(error) => error.to_string(),
        }
    }

    /// No such name?
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == Errno::NOENT)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.raw_os_error()).kind();
        Self::new(kind, error)
    }
}

/// The text of an error number, without the number.
fn text(errno: Errno) -> String {
    let text = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// A refusal as an error number, or in words where a number would not help.
const fn reason(refusal: Refusal) -> std::result::Result<Errno, &'static str> {
    Err(match refusal {
        Refusal::Damaged => "the stored bytes are damaged: `ariel fsck` says what else is",
        Refusal::Disk => "the server's disk failed: see the server's log",
        Refusal::SessionLost => "the session with the server was lost: begin again",
        Refusal::ReadOnly => {
            "nothing can be changed here: a snapshot never changes, and a machine that may only \
             read is allowed to write by `ariel machine grant --read-write`"
        }
        Refusal::Expired => "the login has expired: `ariel login`",
        Refusal::OlderServer => {
            "the server runs an older Ariel, which does not know this: install on it what runs here"
        }
        Refusal::NoAnswer => "the server did not answer in time",
        other => return Ok(client::errno(other)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_like_that_of_the_system_call() {
        let error = Error::refused(Path::new("/a/b"), Refusal::NotFound);
        assert_eq!(error.to_string(), "/a/b: No such file or directory");
        assert_eq!(error.raw_os_error(), 2);
        let io = std::io::Error::from(error);
        assert_eq!(io.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn what_has_no_number_says_what_helps() {
        let error = Error::refused(Path::new("f"), Refusal::Disk);
        assert_eq!(
            error.to_string(),
            "f: the server's disk failed: see the server's log"
        );
        assert_eq!(error.raw_os_error(), 5);
    }
}
