//! Observations: an operation, its begin and end, and its outcome. Histories hold nothing else; a
//! judge that trusts the file system's own counters would judge nothing.

use crate::plan::XATTR;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An object that is judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Object {
    /// A record in a file, overwritten as a whole.
    Register {
        /// Number of the file.
        file: u32,
        /// Number of the record.
        slot: u32,
    },
    /// The length of a file.
    Size {
        /// Number of the file.
        file: u32,
    },
    /// A file that is only appended to, new in each round.
    Log {
        /// The round.
        round: u64,
        /// Number of the log.
        file: u32,
    },
    /// A few names, in one directory or in two.
    Names {
        /// Number of the directory.
        group: u32,
    },
    /// The time of change of a file, set by programs.
    Time {
        /// Number of the file.
        file: u32,
    },
    /// An extended attribute of a file.
    Xattr {
        /// Number of the file.
        file: u32,
    },
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Register { file, slot } => write!(f, "record {slot} of file r{file}"),
            Object::Size { file } => write!(f, "size of file s{file}"),
            Object::Log { round, file } => write!(f, "log l{round}-{file}"),
            Object::Names { group } => write!(f, "directory d{group}"),
            Object::Time { file } => write!(f, "time of change of file a{file}"),
            Object::Xattr { file } => write!(f, "attribute {XATTR} of file a{file}"),
        }
    }
}

/// So many words of a record with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Words of 8 bytes.
    pub words: u32,
    /// The value they hold.
    pub value: u64,
}

/// The outcome of a renaming that does not replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moved {
    /// It was done.
    Done,
    /// The old name was not there.
    Missing,
    /// The new name was there.
    Taken,
}

/// A call and its outcome. Values are unique in a run; 0 is how a record begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// A record was written.
    Write(u64),
    /// A record was read; more than one run of words is a torn one.
    Read(Vec<Run>),
    /// A file was cut or extended to this length.
    SetSize(u64),
    /// A write reached to this length, which may have been there already.
    GrowTo(u64),
    /// The length was asked.
    Size(u64),
    /// A record was appended.
    Append(u64),
    /// All records were read.
    ReadLog(Vec<u64>),
    /// The number of records, by the file's length.
    LogLength(u64),
    /// Exclusive creation; not done: the name was there.
    Create {
        /// The name.
        name: u8,
        /// The object that the name then stands for.
        id: u64,
        /// It was created.
        done: bool,
    },
    /// Removal; not done: the name was not there.
    Remove {
        /// The name.
        name: u8,
        /// It was removed.
        done: bool,
    },
    /// Renaming, which replaces; not done: the old name was not there.
    Rename {
        /// The old name.
        from: u8,
        /// The new name.
        to: u8,
        /// It was renamed.
        done: bool,
    },
    /// Renaming, which does not replace.
    Move {
        /// The old name.
        from: u8,
        /// The new name.
        to: u8,
        /// The outcome.
        moved: Moved,
    },
    /// Two names change places; not done: one of them was not there.
    Exchange {
        /// The one.
        from: u8,
        /// The other.
        to: u8,
        /// They have changed.
        done: bool,
    },
    /// A name was looked up.
    Look {
        /// The name.
        name: u8,
        /// The object that it stands for.
        found: Option<u64>,
    },
    /// A name in a listing of the directory, or missing there. A listing is no snapshot, in POSIX:
    /// each name is judged by itself.
    Listed {
        /// The name.
        name: u8,
        /// It was listed.
        present: bool,
    },
    /// An answer that no file system may give.
    Wrong(String),
}

impl Action {
    /// Does it only look? Then it may be left out of a history, or put wherever it fits.
    pub fn observes(&self) -> bool {
        match self {
            Action::Read(_)
            | Action::Size(_)
            | Action::ReadLog(_)
            | Action::LogLength(_)
            | Action::Look { .. }
            | Action::Listed { .. }
            | Action::Wrong(_) => true,
            Action::Create { done, .. }
            | Action::Remove { done, .. }
            | Action::Rename { done, .. }
            | Action::Exchange { done, .. } => !done,
            Action::Move { moved, .. } => *moved != Moved::Done,
            Action::Write(_) | Action::SetSize(_) | Action::GrowTo(_) | Action::Append(_) => false,
        }
    }

    /// The names it is about.
    pub(crate) fn names(&self) -> Vec<u8> {
        match self {
            Action::Create { name, .. }
            | Action::Remove { name, .. }
            | Action::Look { name, .. }
            | Action::Listed { name, .. } => vec![*name],
            Action::Rename { from, to, .. }
            | Action::Move { from, to, .. }
            | Action::Exchange { from, to, .. } => vec![*from, *to],
            _ => Vec::new(),
        }
    }

    /// The values it brings or shows.
    pub(crate) fn values(&self) -> Vec<u64> {
        match self {
            Action::Write(v)
            | Action::SetSize(v)
            | Action::GrowTo(v)
            | Action::Size(v)
            | Action::Append(v)
            | Action::Create { id: v, .. } => vec![*v],
            Action::Read(runs) => runs.iter().map(|run| run.value).collect(),
            Action::ReadLog(values) => values.clone(),
            Action::Look { found, .. } => found.iter().copied().collect(),
            _ => Vec::new(),
        }
    }
}

/// A value for people: which process made it, and as its how manieth.
pub(crate) fn shown(value: u64) -> String {
    match value {
        0 => "initial".to_owned(),
        1 => "there".to_owned(),
        _ => format!("p{}.{}", (value >> 32).saturating_sub(1), value as u32),
    }
}

fn list(values: &[u64]) -> String {
    let all: Vec<String> = values.iter().map(|value| shown(*value)).collect();
    format!("[{}]", all.join(" "))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write(value) => write!(f, "write {}", shown(*value)),
            Action::Read(runs) => match runs.as_slice() {
                [] => f.write_str("read"),
                [run] => write!(f, "read: {}", shown(run.value)),
                runs => {
                    let part = |run: &Run| format!("{} words {}", run.words, shown(run.value));
                    let parts: Vec<String> = runs.iter().map(part).collect();
                    write!(f, "read, torn: {}", parts.join(", "))
                }
            },
            Action::SetSize(n) => write!(f, "truncate to {n}"),
            Action::GrowTo(n) => write!(f, "write up to {n}"),
            Action::Size(n) => write!(f, "size: {n}"),
            Action::Append(value) => write!(f, "append {}", shown(*value)),
            Action::ReadLog(values) => write!(f, "read log: {}", list(values)),
            Action::LogLength(n) => write!(f, "log has the size of {n} records"),
            Action::Create { name, id, done } => {
                let what = if *done { "done" } else { "exists already" };
                match id {
                    1 => write!(f, "create n{name}: {what}"),
                    id => write!(f, "create n{name} as {}: {what}", shown(*id)),
                }
            }
            Action::Remove { name, done } => {
                let what = if *done { "done" } else { "does not exist" };
                write!(f, "remove n{name}: {what}")
            }
            Action::Rename { from, to, done } => {
                let what = if *done { "done" } else { "does not exist" };
                write!(f, "rename n{from} to n{to}: {what}")
            }
            Action::Move { from, to, moved } => {
                let what = match moved {
                    Moved::Done => "done",
                    Moved::Missing => "does not exist",
                    Moved::Taken => "exists already",
                };
                write!(f, "rename n{from} to n{to}, not replacing: {what}")
            }
            Action::Exchange { from, to, done } => {
                let what = if *done { "done" } else { "does not exist" };
                write!(f, "exchange n{from} and n{to}: {what}")
            }
            Action::Look { name, found } => match found {
                Some(id) => write!(f, "look up n{name}: {}", shown(*id)),
                None => write!(f, "look up n{name}: does not exist"),
            },
            Action::Listed { name, present } => {
                let what = if *present { "has" } else { "lacks" };
                write!(f, "listing {what} n{name}")
            }
            Action::Wrong(what) => write!(f, "{what}"),
        }
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its object.
    pub object: Object,
    /// Number of the mount.
    pub mount: u32,
    /// Number of the process.
    pub process: u32,
    /// When the descriptors and directories were opened that it went through.
    pub opened_ns: u64,
    /// Before the first system call.
    pub begin_ns: u64,
    /// After the last one.
    pub end_ns: u64,
    /// False: it failed, or has not ended; it may happen at any time after its begin, or never.
    pub known: bool,
    /// The call and its outcome.
    pub action: Action,
}
