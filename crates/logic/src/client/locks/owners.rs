//! The locks of each owner on this machine, as far as they are known, and the calls that wait.
//!
//! Guarantees: of each byte of an owner the latest answer is remembered; nothing is remembered of
//! one that has nothing, waits for nothing, and has lost nothing. A lock that a restarted server is
//! told is certainly still held: one that an unanswered request may have given up is not told.

use crate::Ticket;
use crate::client::{Call, Client};
use crate::ranges::{EVERYTHING, Ranges, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Epoch, Fid, HeldLock, Lock, LockMode, LockOwner, Locked, Op, Outcome, RequestId};

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
    /// The locks that a restarted server is told. One that has been asked for may have been given,
    /// and others may have those that it left, whether the request is not answered or waits: the
    /// end of its wait may be lost.
    pub(crate) fn lock_claims(&self) -> Vec<HeldLock> {
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
        for ticket in self.locks.waiting_calls() {
            if let Some(Call::Lock { fid, lock, .. }) = self.called(*ticket)
                && let Some(claims) = all.get_mut(&(*fid, lock.owner))
            {
                claims.update((lock.first, lock.last), |old| left_by(lock, old));
            }
        }
        let held = |((fid, owner), claims): ((Fid, LockOwner), Ranges<LockMode>)| {
            let pid = self.locks.owners[&(fid, owner)].pid;
            let locks = locks(owner, pid, &claims);
            locks.into_iter().map(move |lock| HeldLock { fid, lock })
        };
        all.into_iter().flat_map(held).collect()
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
