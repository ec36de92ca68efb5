//! The errors of a target, with advice.

use std::io;
use std::path::{Path, PathBuf};

/// Why a round did not come to its end. The files that were carried stay.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// It could not be asked, or refused.
    #[error("the source of the copy did not answer: {0}; begun again, the copy goes on from here")]
    Source(String),
    /// It answered something that cannot be.
    #[error("the source of the copy answered {0}: use the same version of Ariel on both servers")]
    Strange(&'static str),
    /// It was not at rest in a last round.
    #[error(
        "`{0}` changed at the source of the copy during the last round: nobody may have its \
         directory open then"
    )]
    Changed(String),
    /// There is not enough room.
    #[error(
        "the copy {to} needs {needs} bytes more, and {free} are free on its disk: free that much, \
         or copy to a larger disk"
    )]
    Room {
        /// The copy's directory.
        to: PathBuf,
        /// More bytes than the copy has.
        needs: u64,
        /// Bytes.
        free: u64,
    },
    /// The room was used up meanwhile.
    #[error(
        "{0} cannot be written, as its disk is full: free room there; begun again, the copy goes \
         on from here"
    )]
    Full(PathBuf),
    /// The copy's directory cannot be used as it must.
    #[error(
        "cannot {doing} {path}: {error}; the directory must be this program's own, on a disk that \
         works"
    )]
    Io {
        /// Which use.
        doing: &'static str,
        /// Of which file.
        path: PathBuf,
        /// How that failed.
        error: io::Error,
    },
}

impl ShipError {
    /// The error of a use of a file.
    pub(crate) fn of<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> Self + 'a {
        move |error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(path.into()),
            _ => Self::Io {
                doing,
                path: path.into(),
                error,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_used_up_quota_are_told_from_a_broken_disk() {
        let path = Path::new("/data/log-00000001");
        let of = |kind| ShipError::of("write", path)(io::Error::from(kind)).to_string();
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let text = of(kind);
            assert!(text.starts_with("/data/log-00000001"), "{text}");
            assert!(text.contains("free room there"), "{text}");
        }
        let text = of(io::ErrorKind::Other);
        assert!(
            text.starts_with("cannot write /data/log-00000001"),
            "{text}"
        );
        assert!(!text.contains("free room"), "{text}");
    }
}
