//! The findings of a check of a partition. Each damage names its object and the cure.

use std::collections::BTreeSet;
use std::fmt;
use wire::Fid;

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Bytes of a file cannot be read.
    Bytes {
        /// The file, for people.
        file: String,
        /// First offset concerned.
        from: u64,
        /// First offset behind it.
        to: u64,
        /// The fault.
        what: String,
    },
    /// The index's keys of an object contradict each other.
    Object {
        /// The object, for people.
        file: String,
        /// The fault.
        what: String,
    },
    /// An entry of the index is not one, or its checksum is wrong.
    Entry {
        /// Which, for people.
        entry: String,
        /// The fault.
        what: String,
    },
    /// The index cannot be opened at all.
    Index {
        /// The fault, and the cure.
        what: String,
    },
    /// Bytes of a file, which are right, lie where the log does not say so.
    Stray {
        /// The file, for people.
        file: String,
        /// The segment's file.
        segment: String,
    },
    /// The image of the index, from which that could be made again.
    Image {
        /// The fault.
        what: String,
    },
    /// The index engine finds its own file damaged.
    Engine {
        /// The engine's error.
        what: String,
    },
    /// A segment of the log does not read.
    Log {
        /// The segment's file.
        segment: String,
        /// Where in it, bytes.
        at: u64,
        /// The fault.
        what: String,
    },
    /// A number that is kept of the whole partition is wrong.
    Count {
        /// Which.
        name: String,
        /// The number in the index.
        kept: u64,
        /// The true number.
        found: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes {
                file,
                from,
                to,
                what,
            } => write!(
                f,
                "{file}: bytes {from} to {to} are damaged: {what}; restore the file from a copy, \
                 or write these bytes again; `ariel fsck --repair` notes them as lost"
            ),
            Self::Object { file, what } => write!(
                f,
                "{file}: {what}; `ariel fsck --repair` makes the index again from the log"
            ),
            Self::Entry { entry, what } => write!(
                f,
                "index entry {entry}: {what}; `ariel fsck --repair` makes the index again from the \
                 log"
            ),
            Self::Stray { file, segment } => write!(
                f,
                "{file}: its bytes in {segment} are right, but no record of it says that they lie \
                 there; `ariel fsck --repair` moves them"
            ),
            Self::Image { what } => write!(
                f,
                "{what}; a server writes another one within seconds, and so does `ariel fsck \
                 --repair`"
            ),
            Self::Index { what } => f.write_str(what),
            Self::Engine { what } => write!(
                f,
                "index: {what}; `ariel fsck --repair` makes it again from the log"
            ),
            Self::Log { segment, at, what } => write!(
                f,
                "{segment} at byte {at}: {what}; files named above as damaged have lost bytes \
                 there, other files have not; `ariel fsck --repair` moves what is good"
            ),
            Self::Count { name, kept, found } => write!(
                f,
                "the partition counts {kept} {name} and has {found}; no file is concerned; `ariel \
                 fsck --repair` makes the index again from the log"
            ),
        }
    }
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that exist.
    pub objects: u64,
    /// Bytes of files and symbolic links.
    pub bytes: u64,
    /// Objects without a name, which wait for being reaped: no damage.
    pub orphans: Vec<Fid>,
    /// Everything that is not as it must be, up to a bound.
    pub damages: Vec<Damage>,
    /// How many more there are.
    pub more: u64,
    /// Bytes of files that a repair has noted as lost: no damage, since they are refused. Up to a
    /// bound.
    pub losses: Vec<Loss>,
    /// How many more of these there are.
    pub more_losses: u64,
    /// Conditions that are no damage, and should not stay so.
    pub warnings: Vec<String>,
    /// The highest vnode number of an object.
    pub(crate) top: u64,
    /// Segments that do not read, or not as they should.
    pub(crate) broken: BTreeSet<u32>,
}

/// Bytes of a file that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The file, for people.
    pub file: String,
    /// First offset concerned.
    pub from: u64,
    /// First offset behind it.
    pub to: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, from, to } = self;
        write!(
            f,
            "{file}: bytes {from} to {to} are lost, and reading them is an error until they are \
             written again"
        )
    }
}

/// Most lines of a kind.
const LINES_MAX: usize = 10_000;

impl Report {
    /// Is everything as it must be?
    pub fn is_clean(&self) -> bool {
        self.damages.is_empty()
    }

    pub(crate) fn add(&mut self, damage: Damage) {
        match self.damages.len() < LINES_MAX {
            true => self.damages.push(damage),
            false => self.more += 1,
        }
    }

    /// Notes a loss; one that goes on where the last one ended is one with it.
    pub(crate) fn lose(&mut self, loss: Loss) {
        let full = self.losses.len() >= LINES_MAX;
        match self.losses.last_mut() {
            Some(last) if last.file == loss.file && last.to == loss.from => last.to = loss.to,
            _ if full => self.more_losses += 1,
            _ => self.losses.push(loss),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for damage in &self.damages {
            writeln!(f, "{damage}")?;
        }
        write!(
            f,
            "{} objects, {} bytes, {} without a name; damages: {}",
            self.objects,
            self.bytes,
            self.orphans.len(),
            self.damages.len() as u64 + self.more
        )
    }
}
