//! The plan: the options of a run, the orders to each worker, and the places of all objects.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Nanoseconds of a monotonic clock that all processes of the machine share.
pub type Clock = fn() -> u64;

/// Names in one group of names.
pub(crate) const NAMES: u8 = 4;
/// The records of a register file: offset and length. Some share a block of 4 KiB: a file system
/// that takes care of whole blocks only mixes them up.
pub(crate) const SLOTS: [(u64, usize); 5] = [
    (0, 4096),
    (4096, 2048),
    (6144, 1024),
    (7168, 512),
    (7680, 512),
];
/// Length of a register file.
pub(crate) const REGISTERS_LENGTH: u64 = 8192;

/// The extended attribute that is set and read.
pub(crate) const XATTR: &str = "user.torture";

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this time, in nanoseconds.
    Time(u64),
    /// After about so many operations.
    Operations(u64),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directories that show one tree.
    pub mounts: Vec<PathBuf>,
    /// When it ends.
    pub limit: Limit,
    /// Decides which operations are tried; the schedule is the machine's.
    pub seed: u64,
    /// Workers at each mount.
    pub processes: u32,
    /// Register files; the other kinds of objects follow from it.
    pub files: u32,
    /// A read that sees half of a concurrent write is a violation.
    pub atomic: bool,
    /// How long a worker may take for one round before it counts as hanging.
    pub hang_ns: u64,
}

/// The knowledge of one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The mount it works through.
    pub mount: PathBuf,
    /// The mount's number.
    pub mount_number: u32,
    /// Its own number, unique in the run.
    pub process: u32,
    /// How many there are in all.
    pub processes: u32,
    /// The run's seed.
    pub seed: u64,
    /// The directory in the tree that holds everything.
    pub dir: String,
    /// Register files.
    pub files: u32,
    /// Crashes happen: changes are made durable before they count, and may fail.
    pub kills: bool,
}

impl Plan {
    pub(crate) fn size_files(&self) -> u32 {
        self.files.div_ceil(2)
    }

    pub(crate) fn logs(&self) -> u32 {
        self.files.div_ceil(4)
    }

    pub(crate) fn attribute_files(&self) -> u32 {
        self.files.div_ceil(4)
    }

    pub(crate) fn groups(&self) -> u32 {
        self.files
    }
}

/// The abilities of the tree, as far as they differ between file systems.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Abilities {
    /// Symbolic links.
    pub(crate) symlinks: bool,
    /// More than one name for a file.
    pub(crate) links: bool,
    /// Renaming that does not replace, or exchanges.
    pub(crate) exchange: bool,
    /// Extended attributes.
    pub(crate) xattrs: bool,
}

impl Abilities {
    /// Operations that are not tried, since the tree cannot do them.
    pub(crate) fn missing(self) -> Vec<String> {
        let all = [
            (self.symlinks, "symbolic links"),
            (self.links, "links"),
            (self.exchange, "renaming that exchanges or does not replace"),
            (self.xattrs, "extended attributes"),
        ];
        let missing = all.iter().filter(|(can, _)| !can);
        missing.map(|(_, what)| (*what).to_owned()).collect()
    }
}

/// The orders to a worker, one line each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make the directory and its files.
    Setup,
    /// Find the directory that another worker has made.
    Find,
    /// Make the logs of a round.
    Begin { round: u64 },
    /// Work.
    Work {
        round: u64,
        operations: u32,
        can: Abilities,
    },
    /// Read the logs of a round for the last time and remove them.
    End { round: u64 },
    /// Remove everything.
    Clean,
}

/// The answers of a worker, one line each.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) operations: Vec<crate::history::Operation>,
    /// The order could not be carried out.
    pub(crate) error: Option<String>,
    /// The abilities of the tree.
    pub(crate) can: Abilities,
}
