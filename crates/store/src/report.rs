//! What a check of a partition found. Each damage says what it concerns and what can be done.

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
        /// What is wrong.
        what: String,
    },
    /// What the index says of an object does not fit together.
    Object {
        /// The object, for people.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// An entry of the index is not one, or its checksum is wrong.
    Entry {
        /// Which, for people.
        entry: String,
        /// What is wrong.
        what: String,
    },
    /// The index cannot be opened at all.
    Index {
        /// What is wrong, and the cure.
        what: String,
    },
    /// The index engine finds its own file damaged.
    Engine {
        /// What it says.
        what: String,
    },
    /// A segment of the log does not read.
    Log {
        /// The segment's file.
        segment: String,
        /// Where in it, bytes.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// A number that is kept of the whole partition is wrong.
    Count {
        /// Which.
        name: String,
        /// What the index says.
        kept: u64,
        /// What is there.
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
                 or write these bytes again"
            ),
            Self::Object { file, what } => write!(
                f,
                "{file}: {what}; copy away what is still good, remove it, and restore it from a \
                 copy"
            ),
            Self::Entry { entry, what } => write!(
                f,
                "index entry {entry}: {what}; restore the partition from a copy, or remove and \
                 restore what it concerns"
            ),
            Self::Index { what } => f.write_str(what),
            Self::Engine { what } => write!(
                f,
                "index: {what}; copy away what is still good and restore the partition from a copy"
            ),
            Self::Log { segment, at, what } => write!(
                f,
                "{segment} at byte {at}: {what}; files named above as damaged have lost bytes \
                 there, other files have not: restore those from a copy"
            ),
            Self::Count { name, kept, found } => write!(
                f,
                "the partition counts {kept} {name} and has {found}; no file is concerned, report \
                 this as a bug"
            ),
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that exist.
    pub objects: u64,
    /// Bytes of files and symbolic links.
    pub bytes: u64,
    /// Objects without a name, which wait for being reaped: no damage.
    pub orphans: Vec<Fid>,
    /// Everything that is not as it must be.
    pub damages: Vec<Damage>,
}

impl Report {
    /// Is everything as it must be?
    pub fn is_clean(&self) -> bool {
        self.damages.is_empty()
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
            self.damages.len()
        )
    }
}
