//! The locks of each owner on this machine, as far as they are known, and the calls that wait.
//!
//! Guarantees: of each byte of an owner the latest answer is remembered; nothing is remembered of
//! one that has nothing, waits for nothing, and has lost nothing. A lock that a restarted server is
//! told is certainly still held: one that an unanswered request may have given up is not told, and
//! from then on is not held here either.

use crate::Ticket;
use crate::client::session::asked::Why;
use crate::client::{Call, Client, Done};
use crate::ranges::{EVERYTHING, Ranges, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    Epoch, Fid, HeldLock, Lock, LockMode, LockOwner, LockWait, Locked, Op, Outcome, Refusal,
    RequestId,
};

/// The locks that each owner has for certain.
type Claims = BTreeMap<(Fid, LockOwner), Ranges<LockMode>>;

/// The locks of one owner on one file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// Of each byte that an answer was about: how it is locked, if it is, and since which epoch.
    pub(crate) known: Ranges<(Option<LockMode>, Epoch)>,
    /// Through which descriptors it has locked.
    pub(crate) handles: BTreeSet<u64>,
    /// Requests that are not answered, or wait.
    pub(crate) asked: u32,
    /// The process that locked last.
    pub(crate) pid: u32,
    /// It has lost locks with the session, and does not know.
    pub(crate) lost: bool,
    /// Locks of it were taken, and the server may have given it others since, whose answers came
    /// before it was known what was taken: they are given up there with all the rest.
    pub(crate) doubtful: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    pub(crate) owners: BTreeMap<(Fid, LockOwner), Own>,
    /// Calls whose requests wait at the server.
    pub(crate) waiting: BTreeMap<RequestId, Ticket>,
    /// Calls whose callers have been interrupted.
    pub(crate) interrupted: BTreeSet<Ticket>,
    /// Calls of owners whose locks change for no call that waits, and that is not answered: their
    /// open file has been closed, and the kernel may give the next one the same number, whose lock
    /// must not be given up by that; or a caller waits no longer.
    pub(crate) behind: BTreeMap<(Fid, LockOwner), Vec<Ticket>>,
    /// Calls whose lock came when the lease was near its end: others may have it by now.
    pub(crate) late: Vec<Ticket>,
    /// Calls because of which a restarted server was told of less than their owners had: one of
    /// bytes is lost if they are refused. Has the lock been asked for once more, without waiting?
    pub(crate) lessening: BTreeMap<Ticket, bool>,
    /// Files whose locks were taken while something was asked for: a lock given before this epoch
    /// is not held, however late the answer comes.
    pub(crate) void: BTreeMap<Fid, Epoch>,
}

impl Own {
    pub(crate) fn learn(&mut self, span: Span, mode: Option<LockMode>, at: Epoch) {
        self.known.update(span, |old| match old {
            Some((_, since)) if since > at => old,
            _ => Some((mode, at)),
        });
    }

    /// Where nothing is under way, bytes that are not locked need not be known, nor since when the
    /// others are.
    pub(crate) fn settle(&mut self) {
        if self.asked == 0 {
            let last = self.known.iter().map(|(_, (_, at))| at).max();
            let last = last.unwrap_or_default();
            let locked =
                |(mode, _): (Option<LockMode>, Epoch)| mode.is_some().then_some((mode, last));
            self.known.update(EVERYTHING, |old| old.and_then(locked));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.asked == 0 && self.known.is_empty() && !self.lost && !self.doubtful
    }

    pub(crate) fn claims(&self) -> Ranges<LockMode> {
        let mut claims = Ranges::default();
        for (span, (mode, _)) in self.known.iter() {
            claims.set(span, mode);
        }
        claims
    }

    /// A restarted server is told that it has this, and nothing else. Answers of the last run,
    /// which would be older, do not come any more.
    fn has_only(&mut self, claims: &Ranges<LockMode>) {
        let last = self.known.iter().map(|(_, (_, at))| at).max();
        let last = last.unwrap_or_default();
        self.known = Ranges::default();
        for (span, mode) in claims.iter() {
            self.known.set(span, Some((Some(mode), last)));
        }
    }
}

impl Locks {
    /// A request of this owner leaves, or a call of it begins to wait.
    pub(crate) fn asks(&mut self, key: (Fid, LockOwner)) {
        self.owners.entry(key).or_default().asked += 1;
    }

    /// The opposite.
    pub(crate) fn asked_less(&mut self, key: (Fid, LockOwner)) {
        if let Some(own) = self.owners.get_mut(&key) {
            own.asked = own.asked.saturating_sub(1);
        }
    }

    /// An owner gives up these bytes where that is decided.
    pub(crate) fn gives_up(&mut self, key: (Fid, LockOwner), span: Span) {
        if let Some(own) = self.owners.get_mut(&key).filter(|_| span == EVERYTHING) {
            own.doubtful = false;
        }
    }

    /// An owner has this lock, or nothing, of these bytes; so it was decided here.
    pub(crate) fn holds(
        &mut self,
        key: (Fid, LockOwner),
        span: Span,
        lock: Option<Lock>,
        at: Epoch,
    ) {
        if let Some(own) = self.owners.get_mut(&key) {
            own.known.set(span, lock.map(|lock| (Some(lock.mode), at)));
            own.pid = lock.map_or(own.pid, |lock| lock.pid);
        }
    }

    /// Was this lock taken before its answer came?
    pub(crate) fn is_void(&self, op: &Op, outcome: &Outcome) -> bool {
        let (Op::Lock { fid, .. }, Outcome::Locked { locked, at, .. }) = (op, outcome) else {
            return false;
        };
        let void = self.void.get(fid).copied().unwrap_or(0);
        *locked == Locked::Done && *at < void
    }

    /// Has anybody here lost a lock of this file, and not given it up?
    pub(crate) fn is_lost(&self, fid: Fid) -> bool {
        let all = (fid, LockOwner::Whole(0))..=(fid, LockOwner::Bytes(u64::MAX));
        !self.owners.is_empty() && self.owners.range(all).any(|(_, own)| own.lost)
    }

    /// Less is left of what an owner had, since he asked for this lock, and he does not get it: he
    /// has lost a lock of bytes. (One of a whole file is given up before another one is asked for.)
    fn loses(&mut self, (fid, lock): (Fid, &Lock)) -> bool {
        let own = self.owners.get_mut(&(fid, lock.owner));
        let Some(own) = own.filter(|_| !lock.owner.is_whole()) else {
            return false;
        };
        let mut parts = own.known.overlapping((lock.first, lock.last));
        let left = parts.any(|(_, (mode, _))| mode == Some(LockMode::Shared));
        own.lost |= left;
        left
    }

    pub(crate) fn tidy(&mut self, key: (Fid, LockOwner)) {
        if self.owners.get(&key).is_some_and(Own::is_over) {
            self.owners.remove(&key);
        }
    }

    pub(crate) fn forget(&mut self, key: (Fid, LockOwner)) {
        self.owners.remove(&key);
    }

    /// Calls whose requests wait at the server.
    pub(crate) fn waiting_calls(&self) -> impl Iterator<Item = &Ticket> {
        self.waiting.values()
    }
}

impl Client {
    /// The locks that the server is told. If it has restarted, these are all that are held: it
    /// knows of no others.
    pub(crate) fn claim_locks(&mut self, restarted: bool) -> Vec<HeldLock> {
        let (all, lessening) = self.certain_locks();
        if restarted {
            for (key, claims) in &all {
                if let Some(own) = self.locks.owners.get_mut(key) {
                    own.has_only(claims);
                }
            }
            for ticket in lessening {
                self.locks.lessening.entry(ticket).or_default();
            }
        }
        let held = |((fid, owner), claims): ((Fid, LockOwner), Ranges<LockMode>)| {
            let pid = self.locks.owners[&(fid, owner)].pid;
            let locks = locks(owner, pid, &claims);
            locks.into_iter().map(move |lock| HeldLock { fid, lock })
        };
        all.into_iter().flat_map(held).collect()
    }

    /// The locks that are certainly still held, and the calls because of which these are less than
    /// the owners had. A lock that has been asked for may have been given, and others may have
    /// those that it left, whether the request is not answered or waits: the end of its wait may be
    /// lost.
    fn certain_locks(&self) -> (Claims, BTreeSet<Ticket>) {
        let owners = self.locks.owners.iter();
        let mut all: Claims = owners.map(|(key, own)| (*key, own.claims())).collect();
        let mut lessening = BTreeSet::new();
        for sent in self.asked.requests.values() {
            match &sent.request.op {
                Op::Unlock {
                    fid,
                    owner,
                    first,
                    last,
                } => {
                    if let Some(claims) = all.get_mut(&(*fid, *owner)) {
                        claims.set((*first, *last), None);
                    }
                }
                Op::Lock { fid, lock, .. } if lessens(&mut all, (*fid, lock)) => {
                    if let Why::Call(ticket) = sent.why {
                        lessening.insert(ticket);
                    }
                }
                _ => {}
            }
        }
        for ticket in self.locks.waiting_calls() {
            if let Some(Call::Lock { fid, lock, .. }) = self.called(*ticket)
                && lessens(&mut all, (*fid, lock))
            {
                lessening.insert(*ticket);
            }
        }
        (all, lessening)
    }

    /// The answer to a call for a lock, where less may be left of what its owner had. `None`: the
    /// caller has been interrupted, and gets what he has asked for if he need not wait for it.
    pub(super) fn end_lessening(&mut self, ticket: Ticket, done: Done) -> Option<Done> {
        let lessens = self.locks.lessening.remove(&ticket);
        let running = self.callers.calls.get_mut(&ticket);
        let (Some(again), Done::Refused(refusal)) = (lessens, &done) else {
            return Some(done);
        };
        // Nobody hears of the answer to a call that was abandoned.
        let Some(running) = running.filter(|running| !running.abandoned) else {
            return Some(done);
        };
        let Call::Lock {
            fid, lock, wait, ..
        } = &mut running.call
        else {
            return Some(done);
        };
        if *refusal == Refusal::Interrupted && !again {
            *wait = LockWait::Never;
            self.locks.lessening.insert(ticket, true);
            return None;
        }
        let (fid, lock) = (*fid, *lock);
        if self.locks.loses((fid, &lock)) {
            return Some(Done::Refused(Refusal::SessionLost));
        }
        match refusal {
            Refusal::Locked if again => Some(Done::Refused(Refusal::Interrupted)),
            _ => Some(done),
        }
    }

    /// The locks of a file.
    pub(crate) fn locked_of(&self, fid: Fid) -> Vec<Lock> {
        let all = (fid, LockOwner::Whole(0))..=(fid, LockOwner::Bytes(u64::MAX));
        let owners = self.locks.owners.range(all);
        let held = owners.flat_map(|((_, owner), own)| locks(*owner, own.pid, &own.claims()));
        held.collect()
    }

    /// Parts of files that are locked, and calls that wait for a lock at the server.
    pub(crate) fn lock_figures(&self) -> (u64, u64) {
        let locked = |own: &Own| {
            own.known
                .iter()
                .filter(|(_, (mode, _))| mode.is_some())
                .count()
        };
        let locks: usize = self.locks.owners.values().map(locked).sum();
        let waiting = self.locks.waiting.len() as u64;
        (locks as u64, waiting + self.lock_delegation.waiting())
    }
}

/// Takes out of the claims what this lock leaves, if it was asked for; was there more?
fn lessens(all: &mut Claims, (fid, lock): (Fid, &Lock)) -> bool {
    let mut less = false;
    if let Some(claims) = all.get_mut(&(fid, lock.owner)) {
        claims.update((lock.first, lock.last), |old| {
            let left = left_by(lock, old);
            less |= left != old;
            left
        });
    }
    less
}

/// The parts that an owner has locked.
fn locks(owner: LockOwner, pid: u32, parts: &Ranges<LockMode>) -> Vec<Lock> {
    let lock = |((first, last), mode)| Lock {
        owner,
        mode,
        first,
        last,
        pid,
    };
    parts.iter().map(lock).collect()
}

/// The lock that is certainly still held if this one has been asked for.
fn left_by(lock: &Lock, held: Option<LockMode>) -> Option<LockMode> {
    if lock.owner.is_whole() {
        return held.filter(|mode| *mode == lock.mode);
    }
    held.map(|mode| mode.min(lock.mode))
}
