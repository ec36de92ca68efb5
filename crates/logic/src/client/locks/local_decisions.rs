//! Calls about locks that are answered here, as the server would answer them.
//!
//! Guarantees: a given lock excludes nothing that anybody holds; locks that wait are given in the
//! order of asking; nothing is given near the end of the lease. An owner's locks are remembered
//! beside (`lock_owners`), so that they can be told whenever the server is to decide.
//!
//! A circle of processes that wait for each other is found where all its waits are known. So the
//! waits that are refused when they close one are all here, or all at the server: before one begins
//! there, the files in which others wait here are given back.

use super::delegation::OWN;
use crate::Ticket;
use crate::client::{Call, Client, Done, Step};
use crate::locks::{Place, Seq};
use crate::ranges::{EVERYTHING, Ranges, Span};
use wire::limits::DELEGATED_LOCKS;
use wire::{Fid, Lock, LockOwner, LockWait, Op, Refusal};

/// Parts that are locked of all its files, and calls that wait: the server bounds what is more.
const PARTS_MAX: usize = 16_384;

impl Client {
    /// Gives the lock, or lets the call wait for it.
    pub(crate) fn lock_here(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, lock): (Fid, Lock),
        wait: LockWait,
    ) {
        self.note_decided(step, fid, 1);
        let owner = (OWN, lock.owner);
        let table = &mut self.lock_delegation.table;
        let whole = lock.owner.is_whole();
        let has = |held: &Ranges<_>| held.iter().any(|(_, mode)| mode == lock.mode);
        if whole && table.held(fid, owner).is_some_and(has) {
            return self.give_lock(step, ticket);
        }
        // As flock(2) says: a lock is not changed into another, but given up first.
        let changes = whole && table.give_up(fid, owner, EVERYTHING);
        if changes {
            self.hold_here((fid, lock.owner), EVERYTHING, None);
        }
        let table = &self.lock_delegation.table;
        let full = table.parts(fid) + 2 > DELEGATED_LOCKS || table.of(OWN) >= PARTS_MAX;
        if !changes && full {
            return self.ask_instead(step, ticket, fid);
        }
        if table.conflict(fid, OWN, lock).is_none() {
            self.lock_delegation.table.hold(fid, OWN, lock);
            self.hold_here((fid, lock.owner), (lock.first, lock.last), Some(lock));
            self.give_lock(step, ticket);
        } else if wait == LockWait::Never {
            self.finish_lock(step, ticket, Done::Refused(Refusal::Locked));
        } else {
            self.wait_here(step, ticket, (fid, lock), wait);
        }
        self.locks.tidy((fid, lock.owner));
        self.go_on_here(step, fid, lock.owner);
    }

    fn wait_here(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, lock): (Fid, Lock),
        wait: LockWait,
    ) {
        let detects = wait == LockWait::UnlessDeadlocked;
        let place = Place {
            fid,
            session: OWN,
            request: ticket,
            lock,
            detects,
        };
        if self.lock_delegation.table.deadlocks(&place) {
            return self.finish_lock(step, ticket, Done::Refused(Refusal::Deadlock));
        }
        if detects && self.waits_at_server() {
            return self.ask_instead(step, ticket, fid);
        }
        self.locks.asks((fid, lock.owner));
        self.lock_delegation.table.enter(place);
    }

    /// The server is to decide about this call.
    fn ask_instead(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) {
        self.give_locks(step, fid);
        self.lock_delegation.park(fid, ticket);
    }

    /// Does the server know, or hear soon, of a call that is told if it would wait for ever?
    fn waits_at_server(&self) -> bool {
        let detects = |wait: LockWait| wait == LockWait::UnlessDeadlocked;
        let asked = self.asked.requests.values();
        let mut asked = asked.filter(|sent| match sent.request.op {
            Op::Lock { wait, .. } => detects(wait),
            _ => false,
        });
        let waiting = self.locks.waiting_calls();
        let mut waiting = waiting.filter(|ticket| match self.called(**ticket) {
            Some(Call::Lock { wait, .. }) => detects(*wait),
            _ => false,
        });
        asked.next().is_some() || waiting.next().is_some()
    }

    /// Gives up what an owner has locked of these bytes.
    pub(crate) fn unlock_here(
        &mut self,
        step: &mut Step<'_>,
        (fid, owner): (Fid, LockOwner),
        span: Span,
    ) {
        self.note_decided(step, fid, 1);
        self.lock_delegation.table.give_up(fid, (OWN, owner), span);
        self.hold_here((fid, owner), span, None);
        self.locks.gives_up((fid, owner), span);
        self.locks.tidy((fid, owner));
        self.go_on_here(step, fid, owner);
    }

    /// Which lock is in the way?
    pub(crate) fn test_here(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, lock): (Fid, Lock),
    ) {
        self.note_decided(step, fid, 1);
        let found = self.lock_delegation.table.conflict(fid, OWN, lock);
        self.finish(step, ticket, Done::InTheWay(found.map(|(_, held)| held)));
    }

    fn hold_here(&mut self, key: (Fid, LockOwner), span: Span, lock: Option<Lock>) {
        let at = self.lock_delegation.latest;
        self.locks.holds(key, span, lock, at);
    }

    /// This owner's locks of a file have changed: the calls that wait there go on, in their order.
    fn go_on_here(&mut self, step: &mut Step<'_>, fid: Fid, changed: LockOwner) {
        let mut circle = self.lock_delegation.table.is_waiting((OWN, changed));
        while let Some(seq) = self.lock_delegation.table.next_free(fid, |_| true) {
            let Some(place) = self.leave_here(seq) else {
                return;
            };
            let (lock, owner) = (place.lock, place.owner());
            self.lock_delegation.table.hold(fid, OWN, lock);
            self.hold_here((fid, owner.1), (lock.first, lock.last), Some(lock));
            circle |= self.lock_delegation.table.is_waiting(owner);
            self.give_lock(step, place.request);
        }
        while circle && let Some(seq) = self.lock_delegation.table.next_deadlocked(fid) {
            if let Some(place) = self.leave_here(seq) {
                let refusal = Done::Refused(Refusal::Deadlock);
                self.finish_lock(step, place.request, refusal);
                self.locks.tidy((fid, place.lock.owner));
            }
        }
    }

    pub(crate) fn leave_here(&mut self, seq: Seq) -> Option<Place> {
        let place = self.lock_delegation.table.leave(seq)?;
        self.locks.asked_less((place.fid, place.lock.owner));
        Some(place)
    }

    /// The caller was interrupted: true if its call waited here.
    pub(crate) fn waits_here_no_more(&mut self, ticket: Ticket) -> bool {
        let seq = self.lock_delegation.table.place_of(OWN, ticket);
        let Some(place) = seq.and_then(|seq| self.leave_here(seq)) else {
            return false;
        };
        self.locks.tidy((place.fid, place.lock.owner));
        true
    }
}
