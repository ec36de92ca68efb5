//! Why a store cannot be opened, written or synced. Each text says what is wrong and the cure.
//! Errors of an operation's caller are not here but in [`wire::Refusal`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use wire::Refusal;

/// Why a store cannot do its work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the partition open.
    #[error(
        "partition {} is in use by process {}: end that process first",
        dir.display(),
        pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string())
    )]
    InUse {
        /// The partition.
        dir: PathBuf,
        /// The process that has it open, where its lock file says so.
        pid: Option<u32>,
    },
    /// A partition can only be created in an empty directory.
    #[error("cannot create a partition in {}: it is not empty; name a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// There is no partition.
    #[error("{} holds no partition: create one there, or name another directory", .0.display())]
    NotAPartition(PathBuf),
    /// There is a partition without the file that keeps a second process out.
    #[error(
        "the partition {dir} has no file named `lock`: make sure that no server works on it, then \
         `touch {dir}/lock`",
        dir = .0.display()
    )]
    NoLock(PathBuf),
    /// The index cannot be used, and has to be made again.
    #[error(
        "the index {dir}/index.redb {what}: the server makes it again from the log when it starts, \
         and so does `ariel fsck --repair {dir}`",
        dir = dir.display()
    )]
    IndexBroken {
        /// The partition.
        dir: PathBuf,
        /// The fault.
        what: String,
    },
    /// The index cannot be used, and the remaining log cannot make it again.
    #[error(
        "the index {dir}/index.redb {what}, and it cannot be made again from the log ({why}): put \
         back the missing file, or restore the whole partition from a copy",
        dir = dir.display()
    )]
    IndexLost {
        /// The partition.
        dir: PathBuf,
        /// The fault.
        what: String,
        /// Why it cannot be made again.
        why: String,
    },
    /// The partition was written by another version of this program.
    #[error(
        "the partition has format {found}, this program reads format {known}: serve it with the \
         program that wrote it, and copy its files to a new one"
    )]
    Format {
        /// The log's format.
        found: u32,
        /// The format that this program reads.
        known: u32,
    },
    /// Bytes that were on stable storage are not there any more, or are not those that were
    /// written.
    #[error(
        "damaged: {0}; run `ariel fsck` on the partition to see what is affected, restore that \
         from a copy, or let `ariel fsck --repair` save what is readable"
    )]
    Damaged(String),
    /// The disk is full.
    #[error("no space is left on the disk of the partition: make room, nothing else is needed")]
    NoSpace,
    /// The operating system refused.
    #[error("cannot {doing}: {source}; check the disk and the rights of the partition's directory")]
    Io {
        /// The attempted work.
        doing: String,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// An earlier sync failed: it is not known what of the log is on the disk.
    #[error(
        "an earlier sync of the log failed, so nothing more is accepted: check the disk and start \
         the server again, it goes on from what the disk really holds"
    )]
    SyncFailed,
}

impl StoreError {
    /// An error of the operating system, with what was attempted.
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        if full {
            return Self::NoSpace;
        }
        Self::Io {
            doing: doing.into(),
            source: Arc::new(source),
        }
    }

    /// The work failed since a part of the index could not be read: the log says why.
    pub(crate) fn unreadable(doing: impl Into<String>) -> Self {
        Self::io(doing, io::Error::other("the index could not be read"))
    }

    /// The refusal that a caller gets for it.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::NoSpace => Refusal::NoSpace,
            Self::Damaged(_) => Refusal::Damaged,
            _ => Refusal::Disk,
        }
    }
}
