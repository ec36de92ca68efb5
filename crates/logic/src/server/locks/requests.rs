//! Requests for locks: which are answered at once, which wait, and what ends the waiting. Of a file
//! about whose locks a client decides, see `lock_delegation`.
//!
//! A request for a lock is answered as any other. If it has to wait, the answer says so, and
//! `Waited` tells the end of that, again and again until it has been heard: so a request that waits
//! for hours does not keep the client from acknowledging all that it asked for since. Each request
//! is done once: its answer is kept until it is acknowledged. After a restart of the server the
//! clients say which locks they hold, and ask again for those that they were waiting for.

use crate::locks::{Owner, Place, Seq};
use crate::ranges::EVERYTHING;
use crate::server::mutant::Mutant;
use crate::server::{Server, Step};
use alloc::vec::Vec;
use wire::{
    Fid, HeldLock, Lock, LockOwner, LockWait, Locked, Op, Outcome, Refusal, Reply, Request,
    RequestId, SessionId, Time, ToClient,
};

/// The end of a wait, until it has been heard.
#[derive(Clone, Debug)]
pub(crate) struct Waited {
    pub(crate) outcome: Outcome,
    pub(crate) sent: Time,
}

impl Server {
    pub(crate) fn on_lock_request(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        request: &Request,
    ) {
        let id = request.id;
        if let Op::Lock { fid, .. } | Op::TestLock { fid, .. } = request.op {
            if self.waits_for_delegation(step, (session, request), fid) {
                return;
            }
            self.note_locking(session, fid, matches!(request.op, Op::Lock { .. }));
        }
        match request.op {
            Op::Lock { fid, .. } if !step.disk.may_lock(&request.caller, fid) => {
                self.answer_lock(step, (session, id), Outcome::Refused(Refusal::Denied));
            }
            Op::Lock { fid, lock, wait } => {
                let outcome = self.lock(step, (session, id), (fid, lock), wait);
                self.answer_lock(step, (session, id), outcome);
                self.go_on_locking(step, fid, (session, lock.owner));
            }
            Op::Unlock {
                fid,
                owner,
                first,
                last,
            } => {
                self.locks.give_up(fid, (session, owner), (first, last));
                let outcome = self.locked(Locked::Done, None);
                self.answer_lock(step, (session, id), outcome);
                self.go_on_locking(step, fid, (session, owner));
            }
            Op::GiveLocks {
                fid,
                upto,
                decided,
                ref held,
            } => {
                self.answer_lock(step, (session, id), Outcome::Done);
                self.on_give_locks(step, session, (fid, upto, decided), held.as_deref());
            }
            Op::TestLock { fid, lock } => {
                self.take_from_silent(step, fid, (session, lock));
                let found = self.locks.conflict(fid, session, lock);
                let found = found.map(|(whose, held)| Lock {
                    pid: if whose == session { held.pid } else { 0 },
                    ..held
                });
                self.answer_lock(step, (session, id), Outcome::InTheWay(found));
            }
            Op::StopWaiting { request } => self.on_stop_waiting(step, (session, id), request),
            _ => {}
        }
    }

    /// The outcome of a request for a lock; `of`: the file and the client, where the file's locks
    /// may be delegated.
    fn locked(&mut self, locked: Locked, of: Option<(Fid, SessionId)>) -> Outcome {
        let at = self.next_epoch();
        let delegated = of.is_some_and(|(fid, session)| self.delegates_locks(fid, session, at));
        Outcome::Locked {
            locked,
            at,
            delegated,
        }
    }

    fn lock(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, RequestId),
        (fid, lock): (Fid, Lock),
        wait: LockWait,
    ) -> Outcome {
        let owner = (session, lock.owner);
        // Where a list says who may lock, the server decides about each lock.
        let own = (!step.disk.governed(fid)).then_some((fid, session));
        let held = self
            .locks
            .held(fid, owner)
            .filter(|_| lock.owner.is_whole());
        if held.is_some_and(|held| held.iter().any(|(_, mode)| mode == lock.mode)) {
            return self.locked(Locked::Done, own);
        }
        // As flock(2) says: a lock is not changed into another, but given up first.
        let changes = held.is_some() && self.locks.give_up(fid, owner, EVERYTHING);
        if !changes && self.has_most_locks(session) {
            return Outcome::Refused(Refusal::TooManyLocks);
        }
        self.take_from_silent(step, fid, (session, lock));
        if self.locks.conflict(fid, session, lock).is_none() {
            self.locks.hold(fid, session, lock);
            return self.locked(Locked::Done, own);
        }
        if wait == LockWait::Never {
            return self.locked(Locked::Conflict, own);
        }
        let detects = wait == LockWait::UnlessDeadlocked;
        let place = Place {
            fid,
            session,
            request,
            lock,
            detects,
        };
        if self.finds_deadlocks() && self.locks.deadlocks(&place) {
            return Outcome::Refused(Refusal::Deadlock);
        }
        self.locks.enter(place);
        self.wake(step.now);
        self.locked(Locked::Waits, None)
    }

    fn has_most_locks(&self, session: SessionId) -> bool {
        let state = self.sessions.get(&session);
        let unheard = state.map_or(0, |state| state.waited.len());
        self.locks.of(session) + unheard >= self.options.locks
    }

    fn finds_deadlocks(&self) -> bool {
        self.options.mutant != Some(Mutant::IgnoresDeadlocks)
    }

    /// Takes the locks that are in the way from clients that have been silent for longer than the
    /// lease.
    fn take_from_silent(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (session, lock): (SessionId, Lock),
    ) {
        for id in self.locks.holders(fid, session, lock) {
            let heard = self.sessions.get(&id).map_or(step.now, |other| other.heard);
            if id != session && step.now > heard + self.options.lease_ns {
                self.take_locks_first(step, id, fid);
            }
        }
    }

    /// This owner's locks of a file have changed: waiting requests may go on, in the order of
    /// arrival.
    pub(crate) fn go_on_locking(&mut self, step: &mut Step<'_>, fid: Fid, changed: Owner) {
        // A lock given to an owner that waits elsewhere may close a circle.
        let mut circle = self.locks.is_waiting(changed);
        while let Some(seq) = self.next_lock(fid) {
            let Some(place) = self.locks.leave(seq) else {
                return;
            };
            self.locks.hold(fid, place.session, place.lock);
            circle |= self.locks.is_waiting(place.owner());
            let outcome = self.locked(Locked::Done, Some((fid, place.session)));
            self.tell_waited(step, (place.session, place.request), outcome);
        }
        circle &= self.finds_deadlocks();
        while circle && let Some(seq) = self.locks.next_deadlocked(fid) {
            self.stop_waiting(step, seq, Refusal::Deadlock);
        }
    }

    /// The next request that a lock is given to. A client that is away gets none before it is back.
    fn next_lock(&self, fid: Fid) -> Option<Seq> {
        self.locks.next_free(fid, |session| !self.is_away(session))
    }

    /// A client that was away is given the locks that it waits for.
    pub(crate) fn go_on_waiting(&mut self, step: &mut Step<'_>, session: SessionId) {
        for fid in self.locks.waits_of(session) {
            self.go_on_locking(step, fid, (session, LockOwner::Whole(0)));
        }
    }

    fn stop_waiting(&mut self, step: &mut Step<'_>, seq: Seq, refusal: Refusal) {
        if let Some(place) = self.locks.leave(seq) {
            let outcome = Outcome::Refused(refusal);
            self.tell_waited(step, (place.session, place.request), outcome);
        }
    }

    /// The caller was interrupted. If his request has not come yet, it is answered before it comes.
    pub(crate) fn on_stop_waiting(
        &mut self,
        step: &mut Step<'_>,
        (session, id): (SessionId, RequestId),
        request: RequestId,
    ) {
        let interrupted = Outcome::Refused(Refusal::Interrupted);
        if let Some(seq) = self.locks.place_of(session, request) {
            self.stop_waiting(step, seq, Refusal::Interrupted);
        } else if self.lock_delegations.take(session, request) || self.drop_held(session, request) {
            self.answer_lock(step, (session, request), interrupted);
        } else if let Some(state) = self.sessions.get_mut(&session)
            && request >= state.acked
            && !state.lock_answers.contains_key(&request)
        {
            self.answer_lock(step, (session, request), interrupted);
        }
        self.answer_lock(step, (session, id), Outcome::Done);
    }

    /// Answers, and keeps the answer until it is acknowledged.
    pub(crate) fn answer_lock(
        &mut self,
        step: &mut Step<'_>,
        (session, id): (SessionId, RequestId),
        outcome: Outcome,
    ) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running.remove(&id);
            if self.options.mutant != Some(Mutant::LocksTwice) {
                state.lock_answers.insert(id, outcome.clone());
            }
        }
        self.reply_lock(step, (session, id), outcome);
    }

    pub(crate) fn reply_lock(
        &mut self,
        step: &mut Step<'_>,
        (session, id): (SessionId, RequestId),
        outcome: Outcome,
    ) {
        self.reply(step, (session, id), Reply::from(outcome), 0);
    }

    fn tell_waited(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, RequestId),
        outcome: Outcome,
    ) {
        if let Some(state) = self.sessions.get_mut(&session) {
            let waited = Waited {
                outcome: outcome.clone(),
                sent: step.now,
            };
            state.waited.insert(request, waited);
        }
        self.wake(step.now);
        self.send(step, session, ToClient::Waited { request, outcome });
    }

    /// Tells the ends of waits again: one client all of them, else those that are due.
    pub(crate) fn repeat_waited(&mut self, step: &mut Step<'_>, only: Option<SessionId>) {
        let mut again = Vec::new();
        let sessions = self.sessions.iter_mut();
        for (&session, state) in sessions.filter(|(id, _)| only.is_none_or(|only| only == **id)) {
            for (&request, waited) in &mut state.waited {
                if only.is_some() || step.now >= waited.sent + self.options.resend_ns {
                    waited.sent = step.now;
                    let outcome = waited.outcome.clone();
                    again.push((session, ToClient::Waited { request, outcome }));
                }
            }
        }
        for (session, message) in again {
            self.send(step, session, message);
        }
    }

    pub(crate) fn on_heard(&mut self, session: SessionId, request: RequestId) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.waited.remove(&request);
        }
    }

    /// Does a lock that a client says to hold exclude what another one has said? Both were never
    /// given.
    pub(crate) fn contradicts_lock(&self, id: SessionId, held: &HeldLock) -> bool {
        self.locks.conflict(held.fid, id, held.lock).is_some()
    }

    /// A session is over: its locks are free.
    pub(crate) fn free_locks(&mut self, step: &mut Step<'_>, id: SessionId) {
        let nobody = (id, LockOwner::Whole(0));
        for fid in self.locks.drop_session(id) {
            self.go_on_locking(step, fid, nobody);
        }
        self.end_delegations(step, id);
    }

    /// When the oldest unheard end of a wait was sent last.
    pub(crate) fn oldest_waited(&self) -> Option<Time> {
        let sessions = self.sessions.values();
        let waited = sessions.flat_map(|session| session.waited.values());
        waited.map(|waited| waited.sent).min()
    }
}
