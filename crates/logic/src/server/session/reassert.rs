//! A client's claims in a new term: after a restart whether they can be true, and how they are
//! entered; and which of them have been taken.

use crate::server::api::Disk;
use crate::server::table::Session;
use crate::server::{Server, Step};
use alloc::vec::Vec;
use wire::{Fid, HeldLock, Holding, Kind, Right, SessionId, ToClient, ToServer};

impl Server {
    pub(crate) fn on_reassert(&mut self, step: &mut Step<'_>, id: SessionId, said: ToServer) {
        let ToServer::Reassert {
            term,
            part: (part, parts),
            again,
            holdings,
            unseen,
            locks,
        } = said
        else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if term != session.term {
            return;
        }
        let refused = session.refused;
        let awaited = !session.reasserted && (self.grace.lasts() || session.away.is_some());
        let believed = awaited && session.away.is_none();
        let first = awaited && !refused && session.parts.insert(part);
        if first {
            session.came = step.now;
            if believed && !self.believe(step, id, (&holdings, &locks)) {
                // Its lease is not renewed before it is told `Reasserted`, and so is over when this
                // time ends and all is taken from it.
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.refused = true;
                }
                return;
            }
            for change in unseen {
                self.note_unseen(step, id, change);
            }
        }
        if refused {
            return;
        }
        let mut taken = self.not_held(step, id, &holdings);
        if let Some(session) = self.sessions.get_mut(&id) {
            match session.taken.get(&part) {
                _ if first => drop(session.taken.insert(part, taken.clone())),
                // A repetition, which is answered with the same: what it has given up by itself
                // meanwhile was not taken, and its kernel may still have that.
                Some(said) if !awaited => taken.clone_from(said),
                _ => {}
            }
        }
        if first {
            self.note_unlocked(id, &locks);
        }
        let again = (awaited && believed).then_some(again);
        self.answer_part(step, (id, awaited), ((part, parts), again), taken);
    }

    /// Says what of a part is not held; with the last part the client is as any other again.
    /// `again`: how many changes it makes again, if the server is to wait for these.
    fn answer_part(
        &mut self,
        step: &mut Step<'_>,
        (id, awaited): (SessionId, bool),
        ((part, parts), again): ((u32, u32), Option<u32>),
        taken: Vec<Fid>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let complete = session.parts.len() as u64 >= u64::from(parts);
        session.reasserted |= complete;
        let unlocked = session.unlocked.iter().copied().collect();
        let (all, term) = (session.reasserted, session.term);
        if all && awaited {
            self.come_back(step, id);
        }
        if let Some(again) = again.filter(|_| all) {
            self.expect_again(step.now, id, again);
        }
        if all {
            self.forget_doubts(id);
        }
        let said = ToClient::Reasserted {
            term,
            part,
            taken,
            unlocked,
        };
        self.send(step, id, said);
        if all && awaited {
            self.answer_again(step, id);
        }
        if all {
            self.go_on_back(step, id);
            self.no_longer_missing(step, id);
        }
    }

    /// After a restart a client holds what it claims to hold. False: it claims something that
    /// excludes an earlier claim of another client; both were never granted, so nothing that it
    /// says counts.
    fn believe(
        &mut self,
        step: &Step<'_>,
        id: SessionId,
        (holdings, locks): (&[Holding], &[HeldLock]),
    ) -> bool {
        let disk = &*step.disk;
        let contradicts = |holding: &Holding| self.contradicts(disk, id, holding);
        let excluded = |held: &HeldLock| self.contradicts_lock(id, held);
        let many = self.locks.of(id) + locks.len() > 2 * self.options.locks;
        if many || holdings.iter().any(contradicts) || locks.iter().any(excluded) {
            return false;
        }
        for holding in holdings {
            self.reassert(id, holding);
        }
        for held in locks {
            self.locks.hold(held.fid, id, held.lock);
        }
        true
    }

    /// Is this session still to say what it held when it came back? Its reports of later changes
    /// are not heard before that, and so are sent again.
    pub(crate) fn awaits(&self, id: SessionId) -> bool {
        let session = self.sessions.get(&id);
        let says = |session: &Session| self.grace.lasts() || session.away.is_some();
        session.is_some_and(|session| says(session) && !session.reasserted)
    }

    /// Does it exclude what another session has said to hold? Both were never granted: the one that
    /// came first is believed, the other one is as lost as if it had not come. (Of a directory a
    /// client does not know what its kernel has in hand, and says that it has something: an
    /// Exclusive holder was granted that when others had nothing.)
    pub(crate) fn contradicts(&self, disk: &dyn Disk, id: SessionId, holding: &Holding) -> bool {
        if self.claims_too_much(disk, id, holding) {
            return true;
        }
        let Some(file) = self.files.get(&holding.fid) else {
            return false;
        };
        let others = file.holders.iter().filter(|(session, _)| **session != id);
        let excluded = others.filter_map(|(_, other)| {
            let other = other.right;
            let (weaker, stronger) = (other.min(holding.right), other.max(holding.right));
            (stronger == Right::Exclusive && weaker > Right::None).then_some(weaker)
        });
        // The disk is asked only if it may matter: clients say a great many rights.
        excluded.max().is_some_and(|weaker| {
            let kind = disk.attr(holding.fid).ok().flatten().map(|attr| attr.kind);
            // The disk does not know the kind of a change that is to be made again.
            kind.is_some_and(|kind| kind != Kind::Directory) || weaker > Right::Transient
        })
    }

    pub(crate) fn reassert(&mut self, id: SessionId, holding: &Holding) {
        let file = self.files.entry(holding.fid).or_default();
        // Recalls sent to this client since an earlier part stay open: others wait for the answers.
        let holder = file.holders.of(id);
        holder.right = holding.right;
        (holder.epoch, holder.exclusive) = (self.boot, self.boot);
        (holder.hold, holder.known) = (holding.hold, holding.right < Right::Shared);
        if holding.right == Right::Exclusive {
            self.exclusive.insert(holding.fid);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.fids.insert(holding.fid);
        }
        self.room_reasserted(id, holding.fid);
        self.held.push((id, holding.fid));
    }
}
