//! The measures, their units, and the wished figures.

use crate::place::At;
use crate::{apply, archive, bulk, cold, idle, names, programs, sources, warm};
use std::io;

/// A figure's unit; it says too which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Operations a second.
    PerSecond,
    /// Megabytes (10⁶) a second.
    Megabytes,
    /// Microseconds.
    Microseconds,
    /// Seconds.
    Seconds,
    /// Hundredths of a processor.
    Percent,
    /// Mebibytes of memory.
    Mebibytes,
    /// So many for each 100 files.
    PerHundred,
    /// Messages in all.
    Messages,
}

impl Unit {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Megabytes => "MB/s",
            Self::Microseconds => "us",
            Self::Seconds => "s",
            Self::Percent => "%",
            Self::Mebibytes => "MiB",
            Self::PerHundred => "/100",
            Self::Messages => "msgs",
        }
    }

    /// Is more of it better?
    pub(crate) fn rises(self) -> bool {
        matches!(self, Self::PerSecond | Self::Megabytes)
    }
}

/// The wish for a figure: at least (or at most, where less is better) this, and the aim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wish {
    /// Of the ratio to the local side.
    Ratio(f64, f64),
    /// Of the mount's figure.
    Value(f64, f64),
    /// Of the mount's figure, or as good as the local side.
    ValueOrLocal(f64, f64),
}

/// One figure of a measure.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) wish: Wish,
}

/// On which side it is taken, beside the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The mount, and the local directory.
    Both,
    /// The mount that announces no opens, and the local directory.
    Silent,
    /// The mount only.
    Mount,
    /// The mount only, which can be taken away and mounted again.
    Cold,
    /// The mount only, of whose processes it is known what they use.
    Served,
}

/// A measure, with a figure for each line.
pub(crate) struct Measure {
    pub(crate) lines: &'static [Line],
    pub(crate) side: Side,
    pub(crate) take: fn(&mut At<'_>) -> io::Result<Vec<f64>>,
}

const fn line(name: &'static str, what: &'static str, unit: Unit, wish: Wish) -> Line {
    Line {
        name,
        what,
        unit,
        wish,
    }
}

const fn both(lines: &'static [Line], take: fn(&mut At<'_>) -> io::Result<Vec<f64>>) -> Measure {
    Measure {
        lines,
        side: Side::Both,
        take,
    }
}

use Unit::{Mebibytes, Megabytes, Messages, Microseconds, PerHundred, PerSecond, Percent, Seconds};
use Wish::{Ratio, Value, ValueOrLocal};

/// All of them, in the order of the table.
pub(crate) const MEASURES: [Measure; 24] = [
    both(
        &[line("stat", "stat, warm", PerSecond, Ratio(0.85, 0.95))],
        warm::stat,
    ),
    both(
        &[line(
            "absent",
            "absent name, warm",
            PerSecond,
            Ratio(0.75, 0.95),
        )],
        warm::absent,
    ),
    both(
        &[line(
            "open",
            "open + read 4 KiB + close, warm",
            PerSecond,
            Ratio(0.16, 0.25),
        )],
        warm::open_read_close,
    ),
    Measure {
        lines: &[line(
            "open-silent",
            "the same, opens silent",
            PerSecond,
            Ratio(0.65, 0.75),
        )],
        side: Side::Silent,
        take: warm::open_read_close,
    },
    both(
        &[line(
            "random",
            "random 4 KiB reads, warm",
            PerSecond,
            Ratio(0.85, 1.0),
        )],
        warm::random_read,
    ),
    both(
        &[line(
            "reread",
            "sequential read, warm",
            Megabytes,
            Ratio(0.85, 1.0),
        )],
        warm::sequential_read,
    ),
    both(
        &[line(
            "list",
            "readdir + stat of each, warm",
            PerSecond,
            Ratio(0.5, 0.8),
        )],
        warm::list,
    ),
    Measure {
        lines: &[
            line(
                "getattr",
                "getattr to the daemon, p50",
                Microseconds,
                Value(9.0, 7.0),
            ),
            line(
                "getattr-99",
                "getattr to the daemon, p99",
                Microseconds,
                Value(20.0, 10.0),
            ),
        ],
        side: Side::Mount,
        take: warm::getattr,
    },
    Measure {
        lines: &[line(
            "first-touch",
            "open + read + close, first touch after mount",
            PerSecond,
            Value(10_000.0, 20_000.0),
        )],
        side: Side::Cold,
        take: cold::first_touch,
    },
    Measure {
        lines: &[line(
            "cold-read",
            "sequential read, client cold",
            Megabytes,
            Value(1000.0, 2000.0),
        )],
        side: Side::Cold,
        take: cold::sequential_read,
    },
    both(
        &[line(
            "write",
            "sequential write, 1 MiB writes",
            Megabytes,
            ValueOrLocal(1000.0, 1000.0),
        )],
        bulk::write_large,
    ),
    both(
        &[line(
            "write-4k",
            "sequential write, 4 KiB writes",
            Megabytes,
            Value(300.0, 400.0),
        )],
        bulk::write_small,
    ),
    both(
        &[
            line(
                "create",
                "create + write 1 KiB + close",
                PerSecond,
                Ratio(1.0, 1.0),
            ),
            line(
                "rename",
                "rename in a directory",
                PerSecond,
                Ratio(0.5, 1.0),
            ),
            line("unlink", "unlink", PerSecond, Ratio(0.5, 1.0)),
            line("mkdir", "mkdir", PerSecond, Ratio(0.5, 1.0)),
            line("rmdir", "rmdir", PerSecond, Ratio(0.5, 1.0)),
        ],
        names::one_thread,
    ),
    both(
        &[
            line(
                "create-4",
                "create..., 4 threads",
                PerSecond,
                Ratio(0.8, 1.0),
            ),
            line(
                "temporary",
                "create + write + unlink",
                PerSecond,
                Value(12_000.0, 12_000.0),
            ),
        ],
        names::threads_and_temporary,
    ),
    Measure {
        lines: &[line(
            "temporary-told",
            "of the client for 10,000 of them",
            Messages,
            Value(0.0, 0.0),
        )],
        side: Side::Served,
        take: names::temporary_told,
    },
    both(
        &[
            line(
                "extract",
                "extract a tar of many files",
                Seconds,
                Ratio(1.3, 1.0),
            ),
            line("remove-tree", "rm -rf of it", Seconds, Ratio(1.3, 1.0)),
        ],
        archive::extract_and_remove,
    ),
    Measure {
        lines: &[line(
            "messages",
            "of the client for such files, beside bytes",
            PerHundred,
            Value(1.0, 1.0),
        )],
        side: Side::Served,
        take: archive::messages,
    },
    Measure {
        lines: &[line(
            "list-other",
            "ls -lR on another mount after it",
            Seconds,
            Value(1.5, 0.5),
        )],
        side: Side::Mount,
        take: archive::list_elsewhere,
    },
    both(
        &[
            line("git-clone", "git clone, local", Seconds, Ratio(1.15, 1.0)),
            line("git-status", "git status after", Seconds, Ratio(1.3, 1.0)),
            line(
                "git-status-2",
                "git status, nothing to read",
                Seconds,
                Ratio(1.3, 1.0),
            ),
        ],
        sources::clone_and_status,
    ),
    both(
        &[line(
            "build",
            "build of a C project, objects here",
            Seconds,
            Ratio(1.08, 1.02),
        )],
        sources::build,
    ),
    Measure {
        lines: &[
            line(
                "apply",
                "the server applies creates told later",
                PerSecond,
                Value(50_000.0, 150_000.0),
            ),
            line(
                "apply-server",
                "processor time of the server for each",
                Microseconds,
                Value(20.0, 6.7),
            ),
        ],
        side: Side::Served,
        take: apply::apply,
    },
    both(
        &[line(
            "sort",
            "sort of 200 MB in 16 MB of memory",
            Seconds,
            Ratio(1.4, 1.1),
        )],
        programs::sort,
    ),
    both(
        &[
            line(
                "andrew",
                "copy, stat, read and build a C project, warm",
                Seconds,
                Ratio(1.10, 1.04),
            ),
            line(
                "andrew-server",
                "processor time of the server meanwhile",
                Percent,
                Value(2.4, 1.0),
            ),
        ],
        programs::andrew,
    ),
    Measure {
        lines: &[
            line(
                "idle",
                "processor time of an idle client",
                Percent,
                Value(0.1, 0.02),
            ),
            line(
                "resident",
                "memory of a client beside its cache",
                Mebibytes,
                Value(64.0, 64.0),
            ),
        ],
        side: Side::Served,
        take: idle::idle,
    },
];
