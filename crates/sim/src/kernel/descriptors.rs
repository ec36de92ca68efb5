//! The judge of lost bytes: each descriptor that was open when its file lost some is told by its
//! next fsync.

use super::Kernel;
use crate::wrong::wrong;
use logic::client::{Done, Event};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Fid, Refusal};

/// The descriptors of one machine.
#[derive(Default)]
pub(super) struct Descriptors {
    open: RefCell<BTreeMap<Fid, BTreeSet<u64>>>,
    /// These must be told.
    owed: RefCell<BTreeSet<u64>>,
}

impl Descriptors {
    pub(super) fn opened(&self, fid: Fid, number: u64) {
        self.open
            .borrow_mut()
            .entry(fid)
            .or_default()
            .insert(number);
    }

    pub(super) fn closed(&self, fid: Fid, number: u64) {
        if let Some(open) = self.open.borrow_mut().get_mut(&fid) {
            open.remove(&number);
        }
        self.owed.borrow_mut().remove(&number);
    }

    /// The kernel's own write-back of a file has failed: the next fsync of each of its descriptors
    /// says so without asking the client.
    pub(super) fn told_by_kernel(&self, fid: Fid) {
        if let Some(open) = self.open.borrow().get(&fid) {
            self.owed
                .borrow_mut()
                .retain(|number| !open.contains(number));
        }
    }

    pub(super) fn is_owed(&self, number: u64) -> bool {
        self.owed.borrow().contains(&number)
    }
}

impl Kernel {
    /// The client says that something written to a file is not in it. (A conflict without bytes is
    /// one of names.)
    pub(crate) fn hears(&self, event: &Event) {
        let fid = match event {
            Event::DataLost { fid, .. } => fid,
            Event::Conflict { fid, bytes, .. } if *bytes > 0 => fid,
            _ => return,
        };
        if let Some(open) = self.descriptors.open.borrow().get(fid) {
            self.descriptors.owed.borrow_mut().extend(open);
        }
    }

    /// An fsync was answered that began when this descriptor had to be told, or not.
    pub(super) fn fsync_answered(&self, (fid, number): (Fid, u64), owed: bool, done: &Done) {
        match done {
            Done::Nothing if owed => {
                let host = self.room.host;
                self.world.fail(wrong!(
                    "h{host}: {fid} has lost bytes, and an fsync of it succeeds before it says so"
                ));
            }
            Done::Refused(Refusal::Interrupted) => {}
            Done::Refused(_) => drop(self.descriptors.owed.borrow_mut().remove(&number)),
            _ => {}
        }
    }
}
