//! Which rights go with a reply.
//!
//! A grant is given only where nothing is in its way at that moment: no other client's right or
//! open that conflicts, no waiting request that is about to change the object, no recall under way
//! to the same client. A right that the client has already is granted again with a new epoch, which
//! vouches for the reply; but no more than the request is for: a client that gives Exclusive back
//! while such a grant is on its way has given it back.

use crate::server::Server;
use crate::server::api::Disk;
use crate::server::table::{File, Holder, Waiting};
use alloc::vec::Vec;
use wire::{DirEntry, Epoch, Fid, Grant, Kind, Op, Outcome, Right, SessionId, What};

impl Server {
    /// Grants the client what may be granted of a file, at most `wanted`.
    pub(crate) fn grant(
        &mut self,
        (session, fid): (SessionId, Fid),
        wanted: Right,
        grants: &mut Vec<Grant>,
    ) {
        let exclusive =
            wanted == Right::Exclusive && self.may_change(fid) && self.exclusive_fits(session, fid);
        let right = if exclusive {
            Right::Exclusive
        } else if self.shared_fits(session, fid) {
            Right::Shared
        } else {
            return;
        };
        let held = self
            .holder(session, fid)
            .map_or(Right::None, |holder| holder.right);
        if right == Right::Exclusive {
            self.look_at(fid);
        }
        self.enter((session, fid), right, right.max(held), grants);
    }

    /// Grants an object that a client has made in a directory delegated to it, and holds already.
    pub(crate) fn grant_own(&mut self, session: SessionId, fid: Fid, grants: &mut Vec<Grant>) {
        self.look_at(fid);
        self.enter((session, fid), Right::Exclusive, Right::Exclusive, grants);
    }

    /// Grants all of a claimed file, whoever has it open: others have given up all that they had of
    /// it.
    pub(crate) fn grant_claimed(
        &mut self,
        session: SessionId,
        (op, outcome): (&Op, &Outcome),
        grants: &mut Vec<Grant>,
    ) {
        let (&Op::Claim { fid }, Outcome::Attr(attr)) = (op, outcome) else {
            return;
        };
        if attr.kind != Kind::File {
            return;
        }
        let fits = self.files.get(&fid).is_none_or(|file| {
            let mut others = file.holders.iter().filter(|(id, _)| **id != session);
            !asked(file, session) && others.all(|(_, other)| other.right == Right::None)
        });
        if fits {
            self.look_at(fid);
            self.enter((session, fid), Right::Exclusive, Right::Exclusive, grants);
        }
    }

    /// The bytes of a read may stay in the client's kernel until they are asked for; or a name that
    /// it was told.
    pub(crate) fn grant_pages(&mut self, session: SessionId, fid: Fid, grants: &mut Vec<Grant>) {
        let held = self
            .holder(session, fid)
            .map_or(Right::None, |holder| holder.right);
        let right = held.max(Right::Transient);
        self.enter((session, fid), right, right, grants);
    }

    /// Grants a right to a client that holds this one from then on.
    fn enter(
        &mut self,
        (session, fid): (SessionId, Fid),
        right: Right,
        held: Right,
        grants: &mut Vec<Grant>,
    ) {
        let epoch: Epoch = self.next_epoch();
        let holder = self.files.entry(fid).or_default().holders.of(session);
        assert!(
            epoch > holder.epoch,
            "grants of an object follow one another"
        );
        assert!(held >= right, "a grant takes nothing away");
        let grown = held > holder.right;
        holder.right = held;
        holder.epoch = epoch;
        if right == Right::Exclusive {
            holder.exclusive = epoch;
        }
        holder.known = holder.known && held < Right::Shared;
        if held == Right::Exclusive {
            self.exclusive.insert(fid);
        }
        if let Some(state) = self.sessions.get_mut(&session) {
            state.fids.insert(fid);
        }
        if grown {
            self.note_grown(session, fid);
        }
        self.held.push((session, fid));
        let bare = false;
        grants.push(Grant {
            fid,
            right,
            epoch,
            bare,
        });
    }

    /// Grants a directory that is listed, and what is listed with its attributes.
    pub(crate) fn grant_listed(
        &mut self,
        (session, dir): (SessionId, Fid),
        entries: &[DirEntry],
        grants: &mut Vec<Grant>,
    ) {
        self.grant((session, dir), Right::Shared, grants);
        let known = |entry: &&DirEntry| entry.attr.is_some() && entry.kind != Kind::Mount;
        for entry in entries.iter().filter(known) {
            self.grant((session, entry.fid), Right::Shared, grants);
        }
    }

    pub(crate) fn holder(&self, session: SessionId, fid: Fid) -> Option<&Holder> {
        self.files.get(&fid)?.holders.get(&session)
    }

    pub(crate) fn exclusive_fits(&self, session: SessionId, fid: Fid) -> bool {
        !self.only_reads(session) && self.is_alone(session, fid)
    }

    /// Could it be anybody's alone, and is it this session's?
    pub(crate) fn is_alone(&self, session: SessionId, fid: Fid) -> bool {
        if self.doubted(fid, session, Right::Exclusive) {
            return false;
        }
        let Some(file) = self.files.get(&fid) else {
            return true;
        };
        let others = || file.holders.iter().filter(|(id, _)| **id != session);
        !file.waits()
            && file.orphan.is_none()
            && !asked(file, session)
            && others().all(|(_, other)| other.right == Right::None && !other.may_be_open())
    }

    fn shared_fits(&self, session: SessionId, fid: Fid) -> bool {
        if self.doubted(fid, session, Right::Shared) {
            return false;
        }
        let Some(file) = self.files.get(&fid) else {
            return true;
        };
        if asked(file, session) || self.changed_by_others(session, fid) {
            return false;
        }
        let writes = self.holder(session, fid).is_some_and(Holder::writes);
        for (_, other) in file.holders.iter().filter(|(id, _)| **id != session) {
            let shared = other.may_be_open() || other.right != Right::None;
            if other.right == Right::Exclusive || other.writes() || (writes && shared) {
                return false;
            }
        }
        !file.about_to_change()
    }
}

/// Has this client been asked to give this file up, and not answered?
pub(crate) fn asked(file: &File, session: SessionId) -> bool {
    let keep = |holder: &Holder| {
        holder
            .asks
            .iter()
            .any(|ask| matches!(ask.what, What::Keep(_)))
    };
    file.holders.get(&session).is_some_and(keep)
}

/// Says of the objects that a request is about whether they have extended attributes: kernels ask
/// for that again and again. Entries of a listing say it themselves; directories are not asked, but
/// a client to which one is delegated must know whether objects that it makes there inherit
/// anything.
pub(crate) fn note_bare(disk: &dyn Disk, op: &Op, grants: &mut [Grant]) {
    let dirs = match op {
        Op::ReadDir { .. } | Op::Prefetch { .. } => return,
        Op::Lookup { dir, .. } | Op::Make { dir, .. } | Op::Link { dir, .. } => [Some(*dir), None],
        Op::Unlink { dir, .. } | Op::Rmdir { dir, .. } | Op::Unmount { dir, .. } => {
            [Some(*dir), None]
        }
        Op::Rename { from, to, .. } => [Some(*from), Some(*to)],
        _ => [None, None],
    };
    for grant in grants {
        let dir = dirs.contains(&Some(grant.fid));
        let asked = grant.right >= Right::Shared && (!dir || grant.right == Right::Exclusive);
        grant.bare = asked && disk.bare(grant.fid);
    }
}

/// A new directory is its maker's, until somebody else looks.
pub(crate) fn delegable(disk: &dyn Disk, waiting: &Waiting, outcome: &Outcome) -> Option<Right> {
    let Outcome::Entry(entry) = outcome else {
        return None;
    };
    // Objects made in it must inherit nothing that a client does not know of.
    let directory = entry.attr.kind == Kind::Directory && disk.bare(entry.fid);
    let own = waiting.request.keeps && directory;
    own.then_some(Right::Exclusive)
}

/// The mount point in an answer. It leads to the same for as long as it exists: nobody need hold
/// it.
pub(crate) fn mount_point(outcome: &Outcome) -> Option<Fid> {
    let (fid, attr) = match outcome {
        Outcome::Entry(entry) => (entry.fid, &entry.attr),
        Outcome::Renamed { fid, attr, .. } => (*fid, attr),
        _ => return None,
    };
    (attr.kind == Kind::Mount).then_some(fid)
}
