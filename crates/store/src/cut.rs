//! The changes that a repair leaves out of the log: reported to people, since nobody will ever
//! apply them.

use crate::record::{Entry, Record};
use crate::state::Core;
use wire::{Fid, Name, Op};

/// The changes that a repair could not apply.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// The changes that still read, for people, up to a bound.
    pub(crate) changes: Vec<String>,
    /// How many more there are.
    pub(crate) more: u64,
    /// Segments that have something behind the cut.
    pub(crate) segments: Vec<u32>,
}

/// The directory and the name that an operation is about.
fn names(op: &Op) -> Option<(Fid, &Name)> {
    match op {
        Op::Make { dir, name, .. }
        | Op::Unlink { dir, name }
        | Op::Rmdir { dir, name }
        | Op::Unmount { dir, name }
        | Op::Link { dir, name, .. }
        | Op::Rename {
            from: dir, name, ..
        } => Some((*dir, name)),
        _ => None,
    }
}

/// Most changes that are listed.
const CHANGES_MAX: usize = 10_000;

impl Cut {
    pub(crate) fn note(&mut self, record: &Record<'_>, core: &Core) {
        let what = match &record.happened {
            Entry::Apply { op, .. } => match names(op) {
                Some((dir, name)) => format!("{} of {name} in {}", op.kind(), core.describe(dir)),
                None => match record.happened.fid().or(op.edits()) {
                    Some(fid) => format!("{} of {}", op.kind(), core.describe(fid)),
                    None => op.kind().to_owned(),
                },
            },
            _ => return,
        };
        match self.changes.len() < CHANGES_MAX {
            true => self.changes.push(what),
            false => self.more += 1,
        }
    }
}
