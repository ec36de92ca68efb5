//! Advisory locks: those of the programs of this machine, as far as they are known.
//!
//! The server decides, or this client, where nobody else uses a file's locks (`lock_delegation`).
//! The locks are remembered here: a restarted server is told of them, as is one to which the
//! deciding is given back; a close gives up what its owner or its open file still has; and a
//! program that has locked nothing closes without asking anybody.
//!
//! Answers may overtake each other, so each carries the epoch in which it was given, and of each
//! byte the latest counts. A lock that an unanswered request may have given up is not claimed of a
//! restarted server: the last run may have given it to somebody else.

use super::delegation::Decides;
use super::owners::Own;
use crate::Ticket;
use crate::client::session::asked::{Sent, Why};
use crate::client::{Call, Client, Done, Step};
use crate::ranges::{EVERYTHING, Ranges, Span};
use alloc::vec::Vec;
use wire::{
    Caller, Fid, Hold, Lock, LockOwner, LockWait, Locked, Op, Outcome, Refusal, RequestId, ToServer,
};

impl Client {
    /// Begins a call about locks.
    pub(crate) fn lock_call(&mut self, step: &mut Step<'_>, ticket: Ticket, call: Call) {
        match call {
            Call::Lock {
                fid,
                lock,
                wait,
                handle,
            } => self.lock(step, ticket, (fid, lock, handle), wait),
            Call::Unlock {
                fid,
                owner,
                first,
                last,
            } => self.unlock(step, ticket, (fid, owner), (first, last)),
            Call::TestLock { fid, lock } => match self.lock_delegation.decides(fid) {
                Decides::Client => self.test_here(step, ticket, (fid, lock)),
                Decides::Nobody => self.lock_delegation.park(fid, ticket),
                Decides::Server => {
                    self.ask_lock(step, Op::TestLock { fid, lock }, Why::Call(ticket));
                }
            },
            _ => {}
        }
    }

    /// Does the call give up what is not locked at all? Then nobody need be asked, however things
    /// stand with the server.
    pub(crate) fn gives_up_nothing(&self, call: &Call) -> bool {
        match call {
            Call::Unlock { fid, owner, .. } => !self.locks.owners.contains_key(&(*fid, *owner)),
            _ => false,
        }
    }

    fn lock(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, lock, handle): (Fid, Lock, u64),
        wait: LockWait,
    ) {
        if self.locks.interrupted.contains(&ticket) {
            return self.finish_lock(step, ticket, Done::Refused(Refusal::Interrupted));
        }
        if let Some(behind) = self.locks.behind.get_mut(&(fid, lock.owner)) {
            return behind.push(ticket);
        }
        let key = (fid, lock.owner);
        if self.locks.owners.get(&key).is_some_and(|own| own.lost) {
            return self.finish_lock(step, ticket, Done::Refused(Refusal::SessionLost));
        }
        let decides = self.lock_delegation.decides(fid);
        if decides == Decides::Nobody {
            return self.lock_delegation.park(fid, ticket);
        }
        let own = self.locks.owners.entry(key).or_default();
        own.handles.insert(handle);
        own.pid = lock.pid;
        if decides == Decides::Client {
            return self.lock_here(step, ticket, (fid, lock), wait);
        }
        own.asked += 1;
        self.ask_lock(step, Op::Lock { fid, lock, wait }, Why::Call(ticket));
    }

    fn unlock(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, owner): (Fid, LockOwner),
        (first, last): Span,
    ) {
        // The lock that its owner waits for may be one that it must give up, too.
        if let Some(behind) = self.locks.behind.get_mut(&(fid, owner)) {
            return behind.push(ticket);
        }
        self.unlock_now(step, ticket, (fid, owner), (first, last));
    }

    pub(crate) fn unlock_now(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, owner): (Fid, LockOwner),
        (first, last): Span,
    ) {
        let Some(own) = self.locks.owners.get_mut(&(fid, owner)) else {
            return self.finish(step, ticket, Done::Nothing);
        };
        if own.lost {
            if (first, last) != EVERYTHING {
                return self.finish(step, ticket, Done::Nothing);
            }
            own.lost = false;
            if own.is_over() {
                self.locks.forget((fid, owner));
                return self.finish(step, ticket, Done::Nothing);
            }
        }
        match self.lock_delegation.decides(fid) {
            Decides::Client => {
                self.unlock_here(step, (fid, owner), (first, last));
                return self.finish(step, ticket, Done::Nothing);
            }
            Decides::Nobody => return self.lock_delegation.park(fid, ticket),
            Decides::Server => {}
        }
        self.ask_to_unlock(step, (fid, owner), (first, last), Why::Call(ticket));
    }

    /// The last copy of a descriptor is closed: locks that were got through it alone are given up.
    /// (Bytes that a process had locked are given up at its own close, as the kernel tells.)
    pub(crate) fn unlock_closed(&mut self, step: &mut Step<'_>, fid: Fid, handle: u64) {
        let all = (fid, LockOwner::Whole(0))..=(fid, LockOwner::Bytes(u64::MAX));
        let mut ended: Vec<LockOwner> = Vec::new();
        for ((_, owner), own) in self.locks.owners.range_mut(all) {
            if own.handles.remove(&handle) && own.handles.is_empty() {
                ended.push(*owner);
            }
        }
        for owner in ended {
            let key = (fid, owner);
            let own = self.locks.owners.get_mut(&key);
            let lost = own.map(|own| {
                let lost = core::mem::take(&mut own.lost);
                lost && own.is_over()
            });
            match lost.map(|lost| (lost, self.lock_delegation.decides(fid))) {
                Some((true, _)) => self.locks.forget(key),
                Some((false, Decides::Client)) => self.unlock_here(step, key, EVERYTHING),
                Some((false, Decides::Nobody)) => {
                    self.locks.behind.insert(key, Vec::new());
                    self.lock_delegation.unlock_later(fid, (owner, EVERYTHING));
                }
                Some((false, Decides::Server)) => {
                    self.locks.behind.insert(key, Vec::new());
                    self.ask_to_unlock(step, key, EVERYTHING, Why::Lock);
                }
                None => {}
            }
        }
    }

    /// Gives up what an owner has of these bytes at the server.
    pub(crate) fn ask_to_unlock(
        &mut self,
        step: &mut Step<'_>,
        (fid, owner): (Fid, LockOwner),
        (first, last): Span,
        why: Why,
    ) {
        self.locks.asks((fid, owner));
        self.locks.gives_up((fid, owner), (first, last));
        let op = Op::Unlock {
            fid,
            owner,
            first,
            last,
        };
        self.ask_lock(step, op, why);
    }

    pub(crate) fn ask_lock(&mut self, step: &mut Step<'_>, op: Op, why: Why) -> RequestId {
        if let Op::Lock { fid, .. } | Op::Unlock { fid, .. } = op {
            self.lock_delegation.asks(fid);
            self.give_waited_for(step, &op);
        }
        // A list of the file's directory may say who may lock.
        let asks = match (&op, &why) {
            (Op::Lock { .. }, Why::Call(ticket)) => self.callers.calls.get(ticket),
            _ => None,
        };
        let caller = asks.map_or_else(Caller::default, |running| running.caller.clone());
        self.request(step, (op, caller, Hold::default()), Vec::new(), why)
    }

    /// The answer to a request about locks; `ticket`: of the call, if it is for one.
    pub(crate) fn on_lock_answer(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Option<Ticket>, RequestId),
        op: &Op,
        outcome: Outcome,
    ) {
        self.note_who_decides(step, id, (op, &outcome));
        if let Op::Lock { fid, lock, .. } = op
            && self.locks.is_void(op, &outcome)
        {
            // It is asked for once more.
            self.answered_lock(step, (*fid, lock.owner), |_| ());
            if let Some(ticket) = ticket.filter(|ticket| self.called(*ticket).is_some()) {
                self.start(step, ticket);
            }
            return;
        }
        let done = match (op, outcome) {
            (Op::Lock { fid, lock, .. }, outcome) => {
                let key = (*fid, lock.owner);
                match self.lock_answer(step, key, lock, outcome) {
                    Some(done) => done,
                    None => {
                        let ticket = ticket.filter(|ticket| self.called(*ticket).is_some());
                        return self.lock_waits(step, id, ticket);
                    }
                }
            }
            (
                Op::Unlock {
                    fid,
                    owner,
                    first,
                    last,
                },
                Outcome::Locked { at, .. },
            ) => {
                let key = (*fid, *owner);
                self.answered_lock(step, key, |own| own.learn((*first, *last), None, at));
                if ticket.is_none() {
                    self.go_on_behind_lock(step, key);
                }
                Done::Nothing
            }
            (_, Outcome::InTheWay(lock)) => Done::InTheWay(lock),
            (_, Outcome::Refused(refusal)) => Done::Refused(refusal),
            _ => Done::Nothing,
        };
        let Some(ticket) = ticket else { return };
        if matches!(op, Op::Lock { .. }) && done == Done::Nothing {
            return self.give_lock(step, ticket);
        }
        self.finish_lock(step, ticket, done);
    }

    /// The server lets a request wait. If the caller was interrupted, a server that has restarted
    /// since does not know of that any more.
    fn lock_waits(&mut self, step: &mut Step<'_>, id: RequestId, ticket: Option<Ticket>) {
        let Some(ticket) = ticket else { return };
        self.locks.waiting.insert(id, ticket);
        let stops =
            |sent: &Sent| matches!(sent.request.op, Op::StopWaiting { request } if request == id);
        if self.locks.interrupted.contains(&ticket) && !self.asked.requests.values().any(stops) {
            self.ask_lock(step, Op::StopWaiting { request: id }, Why::Lock);
        }
    }

    /// A call has its lock, unless the lease is near its end.
    pub(crate) fn give_lock(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        if step.now >= self.lease_end() {
            return self.locks.late.push(ticket);
        }
        self.finish_lock(step, ticket, Done::Nothing);
    }

    /// The lease goes on: locks that came near its end are held.
    pub(crate) fn give_late_locks(&mut self, step: &mut Step<'_>) {
        for ticket in core::mem::take(&mut self.locks.late) {
            self.finish_lock(step, ticket, Done::Nothing);
        }
    }

    /// The answer to a request for a lock; none if it waits.
    fn lock_answer(
        &mut self,
        step: &mut Step<'_>,
        key: (Fid, LockOwner),
        lock: &Lock,
        outcome: Outcome,
    ) -> Option<Done> {
        let span = (lock.first, lock.last);
        let Outcome::Locked { locked, at, .. } = outcome else {
            self.answered_lock(step, key, |_| ());
            let refusal = match outcome {
                Outcome::Refused(refusal) => refusal,
                _ => Refusal::Invalid,
            };
            return Some(Done::Refused(refusal));
        };
        // A lock of the whole file from before is given up, whatever became of the new one.
        let whole = lock.owner.is_whole();
        match locked {
            Locked::Done => {
                let lost = self.locks.owners.get(&key).is_some_and(|own| own.lost);
                self.answered_lock(step, key, |own| own.learn(span, Some(lock.mode), at));
                Some(match lost {
                    true => Done::Refused(Refusal::SessionLost),
                    false => Done::Nothing,
                })
            }
            Locked::Conflict => {
                self.answered_lock(step, key, |own| {
                    if whole {
                        own.learn(span, None, at);
                    }
                });
                Some(Done::Refused(Refusal::Locked))
            }
            Locked::Waits => {
                if let Some(own) = self.locks.owners.get_mut(&key).filter(|_| whole) {
                    own.learn(span, None, at);
                }
                None
            }
        }
    }

    fn answered_lock(
        &mut self,
        step: &mut Step<'_>,
        key: (Fid, LockOwner),
        learn: impl FnOnce(&mut Own),
    ) {
        if let Some(own) = self.locks.owners.get_mut(&key) {
            learn(own);
            own.asked = own.asked.saturating_sub(1);
            own.settle();
            self.locks.tidy(key);
        }
        self.lock_done(step, key.0);
    }

    pub(crate) fn finish_lock(&mut self, step: &mut Step<'_>, ticket: Ticket, done: Done) {
        self.locks.interrupted.remove(&ticket);
        match self.end_lessening(ticket, done) {
            Some(done) => self.finish(step, ticket, done),
            None => self.start(step, ticket),
        }
    }

    /// A request for a lock waits no more.
    pub(crate) fn on_waited(&mut self, step: &mut Step<'_>, id: RequestId, outcome: Outcome) {
        self.say(step, ToServer::Heard { request: id });
        // It may have overtaken the answer that the request waits.
        let asked = self.asked.requests.get(&id);
        let ticket = match asked.map(|sent| (&sent.why, &sent.request.op)) {
            Some((Why::Call(ticket), Op::Lock { .. })) => Some(*ticket),
            Some(_) => return,
            None => self.locks.waiting.remove(&id),
        };
        self.asked.requests.remove(&id);
        let Some(ticket) = ticket else { return };
        if let Some(Call::Lock {
            fid, lock, wait, ..
        }) = self.called(ticket)
        {
            let op = Op::Lock {
                fid: *fid,
                lock: *lock,
                wait: *wait,
            };
            self.on_lock_answer(step, (Some(ticket), id), &op, outcome);
        }
    }

    /// The caller has been interrupted. If he waits for a lock, the server is asked whether he has
    /// it; if it has not been asked for the lock, he does not get it.
    pub(crate) fn on_interrupt(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let call = self.callers.calls.get(&ticket).map(|running| &running.call);
        // A call whose lock was given, and that has not been told, has it, or asks for it again.
        let given = self.locks.late.contains(&ticket);
        let waits = matches!(call, Some(Call::Lock { .. })) && !given;
        if !waits || !self.locks.interrupted.insert(ticket) {
            return;
        }
        if self.waits_here_no_more(ticket) {
            return self.finish_lock(step, ticket, Done::Refused(Refusal::Interrupted));
        }
        let of = |why: &Why| matches!(why, Why::Call(asked) if *asked == ticket);
        let sent = self.asked.requests.iter().find(|(_, sent)| of(&sent.why));
        let waits = self
            .locks
            .waiting
            .iter()
            .find(|(_, known)| **known == ticket);
        let request = sent.map(|(id, _)| *id).or(waits.map(|(id, _)| *id));
        match request {
            Some(request) => {
                self.ask_lock(step, Op::StopWaiting { request }, Why::Lock);
            }
            None => self.finish_lock(step, ticket, Done::Refused(Refusal::Interrupted)),
        }
    }

    /// A call that is not answered, or was abandoned.
    pub(crate) fn called(&self, ticket: Ticket) -> Option<&Call> {
        let running = self.callers.calls.get(&ticket);
        let running = running.or_else(|| self.callers.abandoned.get(&ticket));
        running.map(|running| &running.call)
    }

    /// Does the call wait at the server for a lock, or for the moment at which it is told of it?
    pub(crate) fn waits_for_lock(&self, ticket: Ticket) -> bool {
        let mut waiting = self.locks.waiting.values();
        waiting.any(|other| *other == ticket) || self.locks.late.contains(&ticket)
    }

    /// The server has restarted: nobody waits there any more.
    pub(crate) fn wait_again(&mut self, step: &mut Step<'_>) {
        for (_, ticket) in core::mem::take(&mut self.locks.waiting) {
            if let Some(Call::Lock { fid, lock, .. }) = self.called(ticket) {
                self.answered_lock(step, (*fid, lock.owner), |_| ());
                self.start(step, ticket);
            }
        }
        for ticket in self.take_waited_here() {
            self.start(step, ticket);
        }
    }

    /// Others have got locks that were held here on a file, or may have. A lock that nobody has
    /// been told to have is asked for again.
    pub(crate) fn lose_locks_of(&mut self, fid: Fid) {
        let mut waited = self.lose_lock_delegation(fid);
        self.callers.parked.append(&mut waited);
        for ticket in core::mem::take(&mut self.locks.late) {
            match self.called(ticket) {
                Some(Call::Lock { fid: of, lock, .. }) if *of == fid => {
                    let (owner, span) = (lock.owner, (lock.first, lock.last));
                    if let Some(own) = self.locks.owners.get_mut(&(fid, owner)) {
                        own.known.set(span, None);
                        own.doubtful = true;
                    }
                    self.callers.parked.push(ticket);
                }
                _ => self.locks.late.push(ticket),
            }
        }
        self.locks.void.insert(fid, self.session.term);
        let all = (fid, LockOwner::Whole(0))..=(fid, LockOwner::Bytes(u64::MAX));
        for (_, own) in self.locks.owners.range_mut(all) {
            own.lost |= own.known.iter().any(|(_, (mode, _))| mode.is_some());
            own.doubtful |= own.lost;
            own.known = Ranges::default();
        }
        self.locks
            .owners
            .retain(|(of, _), own| *of != fid || !own.is_over());
    }

    /// The session is over, and with it all locks.
    pub(crate) fn lose_locks(&mut self) {
        let mut waited = self.lose_lock_delegations();
        self.callers.parked.append(&mut waited);
        // An owner whose open file is closed will never give up what it has lost.
        let behind = core::mem::take(&mut self.locks.behind);
        for key in behind.keys() {
            self.locks.forget(*key);
        }
        self.locks.owners.retain(|_, own| {
            own.lost |= own.known.iter().any(|(_, (mode, _))| mode.is_some());
            own.known = Ranges::default();
            own.doubtful = false;
            own.asked = 0;
            own.lost
        });
        self.locks.void.clear();
        self.locks.lessening.clear();
        self.callers.parked.append(&mut self.locks.late);
        self.callers.parked.extend(behind.into_values().flatten());
        self.callers
            .parked
            .extend(core::mem::take(&mut self.locks.waiting).into_values());
    }
}
