//! Changes that those who look after a cell want to read of: of volumes, and of access lists. Each
//! is told with the machine and the user on whose behalf it was asked, whether it was done or not.

use super::api::{Event, Output};
use crate::server::api::Disk;
use crate::server::{Server, Step};
use alloc::vec::Vec;
use wire::{ACCESS_LIST, Fid, MachineId, Name, Op, Outcome, Refusal, Request, SessionId, VolumeOp};

/// Most names of a path that are told.
const NAMES_MAX: usize = 4096;

/// A change that somebody wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Of the volumes.
    Volume(VolumeOp),
    /// Of the access list of a directory.
    List {
        /// The volume's number.
        volume: u32,
        /// The names that lead to the directory, as far as they are known.
        path: Vec<Name>,
        /// The new list; none: it has none any more.
        list: Option<Vec<u8>>,
    },
}

/// A change, and who wanted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Administered {
    /// The machine that asked for it.
    pub machine: MachineId,
    /// The user on whose behalf it did.
    pub uid: u32,
    /// The change.
    pub deed: Deed,
    /// Why it was not made.
    pub refused: Option<Refusal>,
}

impl Server {
    /// A question of a user is answered: if it was to change volumes or access lists, those who
    /// look after the cell can read it.
    pub(crate) fn note_administered(
        &self,
        step: &mut Step<'_>,
        (session, request): (SessionId, &Request),
        outcome: &Outcome,
    ) {
        let Some(deed) = deed(step.disk, &request.op) else {
            return;
        };
        let refused = match outcome {
            Outcome::Refused(refusal) => Some(*refusal),
            _ => None,
        };
        let done = Administered {
            machine: self.mount_of(session).machine,
            uid: request.caller.uid,
            deed,
            refused,
        };
        step.out.push(Output::Event(Event::Administered(done)));
    }
}

fn deed(disk: &dyn Disk, op: &Op) -> Option<Deed> {
    let list = |fid: Fid, list| Deed::List {
        volume: fid.volume,
        path: path_of(disk, fid),
        list,
    };
    match op {
        Op::Volume(op) => Some(Deed::Volume(op.clone())),
        Op::SetXattr {
            fid, name, value, ..
        } if name == ACCESS_LIST => Some(list(*fid, Some(value.clone()))),
        Op::RemoveXattr { fid, name } if name == ACCESS_LIST => Some(list(*fid, None)),
        _ => None,
    }
}

/// The names from the root of the volume to a directory.
fn path_of(disk: &dyn Disk, dir: Fid) -> Vec<Name> {
    let mut names = Vec::new();
    let mut at = dir;
    // Of a disk that fails it is told as much as is known.
    while let Ok(Some((above, name))) = disk.place(at) {
        names.push(name);
        at = above;
        if names.len() == NAMES_MAX {
            break;
        }
    }
    names.reverse();
    names
}
