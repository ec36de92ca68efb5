//! The disk's records of what each client may hold, for the time after a restart.
//!
//! Guarantees: each grant to a client, and each change that it has not confirmed, is noted before
//! it can know of it, with the step that makes it; each token that it no longer holds is noted too,
//! behind what the step changes on the disk: that a silent client is away is such a change.
//! So the disk never knows of less than clients hold, as long as it keeps what it was told.

use crate::server::{Server, Step};
use wire::{Fid, Right, SessionId};

impl Server {
    /// The end of a step: notes what has changed.
    pub(crate) fn note_held(&mut self, step: &mut Step<'_>) {
        let mut changed = core::mem::take(&mut self.held);
        for (session, fid) in changed.drain(..) {
            self.forget_room(session, fid);
            self.forget_exclusive(fid);
            let most = self.may_hold(session, fid);
            let file = self.files.get_mut(&fid);
            let Some(holder) = file.and_then(|file| file.holders.get_mut(&session)) else {
                continue;
            };
            if holder.noted == most {
                continue;
            }
            let less = most < holder.noted;
            holder.noted = most;
            step.disk.note_held((session, fid), most, less);
            if most == Right::None {
                self.tidy(fid, session);
            }
        }
        // Its room is used again.
        self.held = changed;
    }

    /// Forgets that somebody held this Exclusive, if nobody does any more.
    pub(crate) fn forget_exclusive(&mut self, fid: Fid) {
        let file = self.files.get(&fid).into_iter();
        let mut holders = file.flat_map(|file| file.holders.values());
        if !holders.any(|holder| holder.right == Right::Exclusive) {
            self.exclusive.remove(&fid);
        }
    }

    /// The most that a client may hold: a client with a change that others may not see yet counts
    /// as holding the object alone; one with something in its kernel's hand as sharing it.
    fn may_hold(&self, session: SessionId, fid: Fid) -> Right {
        let Some(file) = self.files.get(&fid) else {
            return Right::None;
        };
        let own = |change: &crate::server::table::Unconfirmed| change.session == session;
        if file.unconfirmed.iter().any(own) {
            return Right::Exclusive;
        }
        let holder = file.holders.get(&session);
        match holder.map_or(Right::None, |holder| holder.right) {
            Right::Transient => Right::Shared,
            right => right,
        }
    }

    /// All that the disk is to know, to be written anew.
    pub fn held(&self) -> impl Iterator<Item = (SessionId, Fid, Right)> + '_ {
        self.files.iter().flat_map(|(fid, file)| {
            let holders = file.holders.iter();
            let noted = holders.filter(|(_, holder)| holder.noted > Right::None);
            noted.map(|(session, holder)| (*session, *fid, holder.noted))
        })
    }
}
