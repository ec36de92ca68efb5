//! Advisory locks: what the programs of this machine have locked, as far as the server has said.
//!
//! The server decides. What it has given is remembered here for three ends: a restarted server is
//! told of it, a close gives up what its owner or its open file still has, and whoever has locked
//! nothing closes without asking anybody.
//!
//! Answers may overtake each other, so each carries the epoch in which it was given, and of each
//! byte the latest counts. What a request that is not answered may have given up is not claimed of
//! a restarted server: the last run may have given it to somebody else.

use super::session::Why;
use super::{Call, Client, Done, Step};
use crate::Ticket;
use crate::ranges::{EVERYTHING, Ranges, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    Caller, Epoch, Fid, HeldLock, Hold, Lock, LockMode, LockOwner, LockWait, Locked, Op, Outcome,
    Refusal, RequestId, ToServer,
};

/// What one owner has locked of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    /// Of each byte that an answer was about: how it is locked, if it is, and since which epoch.
    known: Ranges<(Option<LockMode>, Epoch)>,
    /// Through which descriptors it has locked.
    handles: BTreeSet<u64>,
    /// Requests that are not answered, or wait.
    pub(super) asked: u32,
    /// The process that locked last.
    pid: u32,
    /// It has lost locks with the session, and does not know.
    pub(super) lost: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    pub(super) owners: BTreeMap<(Fid, LockOwner), Own>,
    /// Calls whose requests wait at the server.
    waiting: BTreeMap<RequestId, Ticket>,
    /// Calls whose callers have been interrupted.
    pub(super) interrupted: BTreeSet<Ticket>,
    /// Calls of owners whose open file has been closed, and that is not answered: the kernel may
    /// give the next open file the same number, whose lock must not be given up by that.
    pub(super) behind: BTreeMap<(Fid, LockOwner), Vec<Ticket>>,
    /// Calls whose lock came when the lease was near its end: others may have it by now.
    late: Vec<Ticket>,
}

impl Own {
    fn learn(&mut self, span: Span, mode: Option<LockMode>, at: Epoch) {
        self.known.update(span, |old| match old {
            Some((_, since)) if since > at => old,
            _ => Some((mode, at)),
        });
    }

    /// Where nothing is under way, what is not locked need not be known, nor since when the
    /// rest is.
    fn settle(&mut self) {
        if self.asked == 0 {
            let last = self.known.iter().map(|(_, (_, at))| at).max();
            let last = last.unwrap_or_default();
            let locked =
                |(mode, _): (Option<LockMode>, Epoch)| mode.is_some().then_some((mode, last));
            self.known.update(EVERYTHING, |old| old.and_then(locked));
        }
    }

    fn is_over(&self) -> bool {
        self.asked == 0 && self.known.is_empty() && !self.lost
    }

    fn claims(&self) -> Ranges<LockMode> {
        let mut claims = Ranges::default();
        for (span, (mode, _)) in self.known.iter() {
            claims.set(span, mode);
        }
        claims
    }
}

impl Client {
    /// Begins a call about locks.
    pub(super) fn lock_call(&mut self, step: &mut Step<'_>, ticket: Ticket, call: Call) {
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
            Call::TestLock { fid, lock } => {
                self.ask_lock(step, Op::TestLock { fid, lock }, Why::Call(ticket));
            }
            _ => {}
        }
    }

    /// Does the call give up what is not locked at all? Then nobody need be asked, however things
    /// stand with the server.
    pub(super) fn gives_up_nothing(&self, call: &Call) -> bool {
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
        let own = self.locks.owners.entry((fid, lock.owner)).or_default();
        if own.lost {
            return self.finish_lock(step, ticket, Done::Refused(Refusal::SessionLost));
        }
        own.handles.insert(handle);
        own.asked += 1;
        own.pid = lock.pid;
        self.ask_lock(step, Op::Lock { fid, lock, wait }, Why::Call(ticket));
    }

    fn unlock(
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
            if (first, last) == EVERYTHING {
                self.locks.owners.remove(&(fid, owner));
            }
            return self.finish(step, ticket, Done::Nothing);
        }
        own.asked += 1;
        let op = Op::Unlock {
            fid,
            owner,
            first,
            last,
        };
        self.ask_lock(step, op, Why::Call(ticket));
    }

    /// The last copy of a descriptor is closed: what was locked through it alone is given up.
    /// (Bytes that a process had locked are given up at its own close, as the kernel tells.)
    pub(super) fn unlock_closed(&mut self, step: &mut Step<'_>, fid: Fid, handle: u64) {
        let all = (fid, LockOwner::Whole(0))..=(fid, LockOwner::Bytes(u64::MAX));
        let mut ended: Vec<LockOwner> = Vec::new();
        for ((_, owner), own) in self.locks.owners.range_mut(all) {
            if own.handles.remove(&handle) && own.handles.is_empty() {
                ended.push(*owner);
            }
        }
        for owner in ended {
            let key = (fid, owner);
            match self.locks.owners.get_mut(&key) {
                Some(own) if own.lost => {
                    self.locks.owners.remove(&key);
                }
                Some(own) => {
                    own.asked += 1;
                    self.locks.behind.insert(key, Vec::new());
                    let (first, last) = EVERYTHING;
                    let op = Op::Unlock {
                        fid,
                        owner,
                        first,
                        last,
                    };
                    self.ask_lock(step, op, Why::Lock);
                }
                None => {}
            }
        }
    }

    pub(super) fn ask_lock(&mut self, step: &mut Step<'_>, op: Op, why: Why) -> RequestId {
        let caller = Caller::default();
        self.request(step, (op, caller, Hold::default()), Vec::new(), why)
    }

    /// The answer to a request about locks; `ticket`: of the call, if it is for one.
    pub(super) fn on_lock_answer(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Option<Ticket>, RequestId),
        op: &Op,
        outcome: Outcome,
    ) {
        let done = match (op, outcome) {
            (Op::Lock { fid, lock, .. }, outcome) => {
                let key = (*fid, lock.owner);
                match self.lock_answer(key, lock, outcome) {
                    Some(done) => done,
                    None => {
                        let ticket = ticket.filter(|ticket| self.called(*ticket).is_some());
                        self.locks.waiting.extend(ticket.map(|ticket| (id, ticket)));
                        return;
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
                self.answered_lock(key, |own| own.learn((*first, *last), None, at));
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
        let given = matches!(op, Op::Lock { .. }) && done == Done::Nothing;
        if given && step.now >= self.lease_end() {
            return self.locks.late.push(ticket);
        }
        self.finish_lock(step, ticket, done);
    }

    /// The lease goes on: what came near its end is true.
    pub(super) fn give_late_locks(&mut self, step: &mut Step<'_>) {
        for ticket in core::mem::take(&mut self.locks.late) {
            self.finish_lock(step, ticket, Done::Nothing);
        }
    }

    /// The answer to a request for a lock; none if it waits.
    fn lock_answer(
        &mut self,
        key: (Fid, LockOwner),
        lock: &Lock,
        outcome: Outcome,
    ) -> Option<Done> {
        let span = (lock.first, lock.last);
        let Outcome::Locked { locked, at } = outcome else {
            self.answered_lock(key, |_| ());
            let refusal = match outcome {
                Outcome::Refused(refusal) => refusal,
                _ => Refusal::Invalid,
            };
            return Some(Done::Refused(refusal));
        };
        // What was a lock of the whole file before is given up, whatever became of the other.
        let whole = lock.owner.is_whole();
        match locked {
            Locked::Done => {
                self.answered_lock(key, |own| own.learn(span, Some(lock.mode), at));
                Some(Done::Nothing)
            }
            Locked::Conflict => {
                self.answered_lock(key, |own| {
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

    fn answered_lock(&mut self, key: (Fid, LockOwner), learn: impl FnOnce(&mut Own)) {
        let Some(own) = self.locks.owners.get_mut(&key) else {
            return;
        };
        learn(own);
        own.asked = own.asked.saturating_sub(1);
        own.settle();
        if own.is_over() {
            self.locks.owners.remove(&key);
        }
    }

    fn finish_lock(&mut self, step: &mut Step<'_>, ticket: Ticket, done: Done) {
        self.locks.interrupted.remove(&ticket);
        self.finish(step, ticket, done);
    }

    /// A request for a lock waits no more.
    pub(super) fn on_waited(&mut self, step: &mut Step<'_>, id: RequestId, outcome: Outcome) {
        self.say(step, ToServer::Heard { request: id });
        // It may have overtaken the answer that the request waits.
        let asked = self.requests.get(&id);
        let ticket = match asked.map(|sent| (&sent.why, &sent.request.op)) {
            Some((Why::Call(ticket), Op::Lock { .. })) => Some(*ticket),
            Some(_) => return,
            None => self.locks.waiting.remove(&id),
        };
        self.requests.remove(&id);
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
    pub(super) fn on_interrupt(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let call = self.calls.get(&ticket).map(|running| &running.call);
        // Who has been given it, and not been told, has it, or asks for it again.
        let given = self.locks.late.contains(&ticket);
        let waits = matches!(call, Some(Call::Lock { .. })) && !given;
        if !waits || !self.locks.interrupted.insert(ticket) {
            return;
        }
        let of = |why: &Why| matches!(why, Why::Call(asked) if *asked == ticket);
        let sent = self.requests.iter().find(|(_, sent)| of(&sent.why));
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
    pub(super) fn called(&self, ticket: Ticket) -> Option<&Call> {
        let running = self.calls.get(&ticket);
        let running = running.or_else(|| self.abandoned.get(&ticket));
        running.map(|running| &running.call)
    }

    /// Does the call wait at the server for a lock, or for the moment at which it is told of it?
    pub(super) fn waits_for_lock(&self, ticket: Ticket) -> bool {
        let mut waiting = self.locks.waiting.values();
        waiting.any(|other| *other == ticket) || self.locks.late.contains(&ticket)
    }

    /// What a restarted server is told.
    pub(super) fn lock_claims(&self) -> Vec<HeldLock> {
        let mut all: BTreeMap<(Fid, LockOwner), Ranges<LockMode>> = BTreeMap::new();
        for (key, own) in &self.locks.owners {
            all.insert(*key, own.claims());
        }
        for sent in self.requests.values() {
            match sent.request.op {
                Op::Unlock {
                    fid,
                    owner,
                    first,
                    last,
                } => {
                    if let Some(claims) = all.get_mut(&(fid, owner)) {
                        claims.set((first, last), None);
                    }
                }
                Op::Lock { fid, lock, .. } => {
                    if let Some(claims) = all.get_mut(&(fid, lock.owner)) {
                        claims.update((lock.first, lock.last), |old| left_by(&lock, old));
                    }
                }
                _ => {}
            }
        }
        let held = |((fid, owner), claims): ((Fid, LockOwner), Ranges<LockMode>)| {
            let pid = self.locks.owners[&(fid, owner)].pid;
            let parts: Vec<_> = claims.iter().collect();
            parts.into_iter().map(move |((first, last), mode)| {
                let lock = Lock {
                    owner,
                    mode,
                    first,
                    last,
                    pid,
                };
                HeldLock { fid, lock }
            })
        };
        all.into_iter().flat_map(held).collect()
    }

    /// The server has restarted: nobody waits there any more.
    pub(super) fn wait_again(&mut self, step: &mut Step<'_>) {
        for (_, ticket) in core::mem::take(&mut self.locks.waiting) {
            if let Some(Call::Lock { fid, lock, .. }) = self.called(ticket) {
                self.answered_lock((*fid, lock.owner), |_| ());
                self.start(step, ticket);
            }
        }
    }

    /// The session is over, and with it all locks.
    pub(super) fn lose_locks(&mut self) {
        self.locks.owners.retain(|_, own| {
            own.lost |= own.known.iter().any(|(_, (mode, _))| mode.is_some());
            own.known = Ranges::default();
            own.asked = 0;
            own.lost
        });
        self.parked.append(&mut self.locks.late);
        let behind = core::mem::take(&mut self.locks.behind);
        self.parked.extend(behind.into_values().flatten());
        self.parked
            .extend(core::mem::take(&mut self.locks.waiting).into_values());
    }

    /// Parts of files that are locked, and calls that wait for a lock at the server.
    pub(super) fn lock_figures(&self) -> (u64, u64) {
        let locked = |own: &Own| {
            own.known
                .iter()
                .filter(|(_, (mode, _))| mode.is_some())
                .count()
        };
        let locks: usize = self.locks.owners.values().map(locked).sum();
        (locks as u64, self.locks.waiting.len() as u64)
    }
}

/// What is certainly still held if this has been asked for.
fn left_by(lock: &Lock, held: Option<LockMode>) -> Option<LockMode> {
    if lock.owner.is_whole() {
        return held.filter(|mode| *mode == lock.mode);
    }
    held.map(|mode| mode.min(lock.mode))
}
