//! Errors, as programs and people see them.

use rustix::io::Errno;

/// The results of this library's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not give this user's faults to programs.
    #[error(
        "the kernel does not let this user handle page faults ({0}): as root `sysctl \
         vm.unprivileged_userfaultfd=1`, or give the user /dev/userfaultfd"
    )]
    Faults(Errno),
    /// The kernel refused something that it has to be able to do.
    #[error(
        "the kernel refused a call of userfaultfd or memory ({0}): Linux 6.4 or later is needed"
    )]
    Kernel(Errno),
    /// The pager cannot be talked to.
    #[error("the pager does not answer ({0}): it was ended, or never started")]
    Pager(Errno),
    /// The pager refused a call.
    #[error("{0}")]
    Refused(&'static str),
    /// No pager can be started.
    #[error("no pager can be started ({0}): put the program `ariel` on the PATH, or set ARIEL")]
    Start(String),
    /// The backing store refused.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// A local file refused.
    #[error(transparent)]
    Local(#[from] std::io::Error),
}
