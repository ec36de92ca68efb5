//! The store's directory from run to run: what the next one is told, how it is closed in order for
//! another server and carried there, and what a power failure leaves of it at rest.

use super::DiskRoom;
use crate::clock::Wall;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::Keep;
use wire::{Fid, Place, Right, SessionId};

/// How much is carried of what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Whole,
    /// Not all of it: a planted fault.
    Part,
}

impl DiskRoom {
    /// One more run begins: the run before it is known by the end of its log.
    pub(crate) fn count_boot(&mut self) {
        if self.boots > 0 {
            let (boot, record) = (self.boots << 40, self.left());
            self.runs.push(Place { boot, record });
        }
        self.boots += 1;
    }

    /// The tokens that sessions of the last run may hold, if they are known.
    pub(crate) fn may_hold(&self) -> Option<Vec<(SessionId, Fid, Right)>> {
        self.all_held.then(|| self.holder_notes.all())
    }

    /// The last record that is left of the runs before this one.
    fn left(&self) -> u64 {
        self.volume.left()
    }

    /// The store is closed in order: all of it is stable, and nothing of it is in memory.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        self.write_out()?;
        self.bulks.clear();
        self.at_rest = true;
        self.volume.close()
    }

    /// A copy of it as it is now, at a server whose wall clock this is; it has what came `before`.
    pub(crate) fn carried(&self, before: Option<Self>, share: Share, wall: Wall) -> Self {
        let before = before.map(|before| before.volume);
        Self {
            sched: Rc::clone(&self.sched),
            volume: self.volume.carry(before, share),
            met: Rc::clone(&self.met),
            bulks: BTreeMap::new(),
            last_bulk: self.last_bulk,
            applied: self.applied.clone(),
            restored: Vec::new(), // all machines never lose their power where there are moves
            powerless: self.powerless,
            stable: self.stable,
            logged: false,
            firm: false,
            written: self.written,
            tend_at: None,
            troubled: false,
            shaken: false,
            wall,
            walls: Rc::clone(&self.walls),
            holder_notes: self.holder_notes.clone(),
            all_held: self.all_held,
            limits: self.limits,
            broken: Rc::clone(&self.broken),
            boots: self.boots,
            runs: self.runs.clone(),
            at_rest: true,
        }
    }

    /// Puts a copy on stable storage.
    pub(crate) fn sync_copy(&mut self) {
        self.volume.sync_copy();
    }

    /// Is there nothing that a process could lose?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.at_rest
    }

    /// The machine loses its power while the directory is at rest: it keeps what is stable, and the
    /// notes of what clients hold count no more. The next opening looks whether all is there.
    pub(crate) fn power_at_rest(&mut self, keep: Keep) {
        self.holder_notes.lose();
        self.all_held = false;
        self.volume.power_at_rest(keep);
    }
}
