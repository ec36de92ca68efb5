//! Locks of files that one client alone uses: the client decides about them.
//!
//! Guarantees: about the locks of a file decides the server, or the one client to which that is
//! *delegated*. It is delegated only while nobody else has locked anything of the file, or waits
//! there. As long as it is, requests about its locks by others wait here, and nothing that the
//! client does is known; it is asked for it, and gives it back by `GiveLocks` with what is locked
//! by then. That is a request, so it is repeated until it is answered and counts once; and while it
//! is under way the client asks nothing about these locks. So a request about locks by the client
//! to which they are delegated was sent before it began to decide, and the server's table is right
//! for it. A session that ends ends its delegations, and what was locked under them.
//!
//! A restarted server has delegated nothing: clients say what they have locked, and ask again.

use crate::server::delegation::policy::DelegationPolicy;
use crate::server::mutant::Mutant;
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::limits::DELEGATED_LOCKS;
use wire::{
    Epoch, Fid, Lock, LockOwner, Recall, Request, RequestId, SessionId, Time, ToClient, What,
};

/// Files about whose locks one client may decide, at most.
const DELEGATED_FILES_MAX: usize = 4096;

/// The question for a delegation.
#[derive(Clone, Copy, Debug)]
struct LockRecall {
    epoch: Epoch,
    since: Time,
    sent: Time,
}

/// That a client decides about the locks of a file.
#[derive(Clone, Debug)]
struct LockDelegation {
    session: SessionId,
    /// The latest answer that said so.
    at: Epoch,
    asked: Option<LockRecall>,
    /// Requests of others about these locks.
    behind: Vec<(SessionId, Request)>,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct LockDelegations {
    files: BTreeMap<Fid, LockDelegation>,
    counts: BTreeMap<SessionId, usize>,
    policy: DelegationPolicy,
}

impl LockDelegations {
    /// It takes so many requests for locks in a row.
    pub(crate) fn new(run: u32) -> Self {
        Self {
            files: BTreeMap::new(),
            counts: BTreeMap::new(),
            policy: DelegationPolicy::new(run),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    fn of(&self, session: SessionId) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    /// The sessions that have been asked, since when, and when last.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (SessionId, Time, Time)> + '_ {
        let files = self.files.values();
        files.filter_map(|file| {
            file.asked
                .map(|asked| (file.session, asked.since, asked.sent))
        })
    }

    /// The files about whose locks a client decides, and its session.
    pub(crate) fn files(&self) -> impl Iterator<Item = (Fid, SessionId)> + '_ {
        self.files.iter().map(|(fid, file)| (*fid, file.session))
    }

    /// Does this client decide about the locks of a file?
    pub(crate) fn is_of(&self, fid: Fid, session: SessionId) -> bool {
        self.files
            .get(&fid)
            .is_some_and(|file| file.session == session)
    }

    /// The files about whose locks this client decides, and which it was asked to give up.
    pub(crate) fn asked_of(&self, session: SessionId) -> impl Iterator<Item = Fid> + '_ {
        let own = self
            .files
            .iter()
            .filter(move |(_, file)| file.session == session);
        own.filter(|(_, file)| file.asked.is_some())
            .map(|(fid, _)| *fid)
    }

    fn enter(&mut self, fid: Fid, session: SessionId, at: Epoch) {
        let counts = &mut self.counts;
        let file = self.files.entry(fid).or_insert_with(|| {
            *counts.entry(session).or_default() += 1;
            LockDelegation {
                session,
                at,
                asked: None,
                behind: Vec::new(),
            }
        });
        file.at = at;
    }

    fn remove(&mut self, fid: Fid) -> Option<LockDelegation> {
        let file = self.files.remove(&fid)?;
        if let Some(count) = self.counts.get_mut(&file.session) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&file.session);
            }
        }
        Some(file)
    }

    /// Takes a request out of those that wait for a delegation.
    pub(crate) fn take(&mut self, session: SessionId, request: RequestId) -> bool {
        let is = |known: &(SessionId, Request)| (known.0, known.1.id) == (session, request);
        self.files.values_mut().any(|file| {
            let at = file.behind.iter().position(is);
            at.map(|at| file.behind.remove(at)).is_some()
        })
    }
}

impl Server {
    /// Somebody else decides about the locks of this file: it is asked for that, and the request
    /// waits.
    pub(crate) fn waits_for_delegation(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, &Request),
        fid: Fid,
    ) -> bool {
        let Some(file) = self.lock_delegations.files.get_mut(&fid) else {
            return false;
        };
        let holder = file.session;
        if holder == session {
            return false;
        }
        let heard = self.sessions.get(&holder).map(|holder| holder.heard);
        if heard.is_some_and(|heard| step.now > heard + self.options.lease_ns) {
            self.take_locks_first(step, holder, fid);
            return self.waits_for_delegation(step, (session, request), fid);
        }
        file.behind.push((session, request.clone()));
        if file.asked.is_some() {
            return true;
        }
        self.epoch += 1;
        let (epoch, what) = (self.epoch, What::Locks);
        file.asked = Some(LockRecall {
            epoch,
            since: step.now,
            sent: step.now,
        });
        self.recalls += 1;
        self.wake(step.now);
        self.send(step, holder, ToClient::Recall(Recall { fid, epoch, what }));
        true
    }

    /// This client asks for a lock, or which one is in the way of it.
    pub(crate) fn note_locking(&mut self, session: SessionId, fid: Fid, locks: bool) {
        if locks {
            self.lock_delegations.policy.changed(fid, session);
        } else {
            self.lock_delegations.policy.looked(fid, session);
        }
    }

    /// May the client decide about the locks of a file from this answer on? That is noted then.
    pub(crate) fn delegates_locks(&mut self, fid: Fid, session: SessionId, at: Epoch) -> bool {
        let delegations = &self.lock_delegations;
        let known = delegations.files.get(&fid);
        // Nor while it is asked for it: its answer is about what came before.
        let free = known.is_none_or(|file| file.session == session && file.asked.is_none());
        let careless = self.options.mutant == Some(Mutant::DelegatesLocked);
        let alone = careless || self.locks.is_alone(fid, session);
        let stalled = self.sessions.get(&session).is_none_or(|s| s.stalled);
        let due = self.options.lock_run > 0 && delegations.policy.is_due(fid, session);
        let room = delegations.of(session) < DELEGATED_FILES_MAX
            && self.locks.parts(fid) < DELEGATED_LOCKS / 4;
        if !free || !alone || stalled || !due || !room {
            return false;
        }
        self.lock_delegations.enter(fid, session, at);
        self.lock_delegations.policy.delegated(fid);
        true
    }

    /// A client gives back what was delegated to it up to this epoch, with what it has locked.
    pub(crate) fn on_give_locks(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        (fid, upto, decided): (Fid, Epoch, u32),
        held: Option<&[Lock]>,
    ) {
        let known = self.lock_delegations.files.get(&fid);
        if known.is_none_or(|file| file.session != session || file.at > upto) {
            return;
        }
        self.lock_delegations.policy.changed_often(fid, decided);
        if let Some(held) = held {
            self.locks.free(fid, session);
            for lock in held {
                self.locks.hold(fid, session, *lock);
            }
        }
        if self.locks.of(session) > 2 * self.options.locks {
            return self.fence(step, session); // more than it may have by far
        }
        self.end_delegation(step, fid);
    }

    /// Nobody decides about the locks of this file but the server: requests that waited for that go
    /// on.
    pub(crate) fn end_delegation(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(file) = self.lock_delegations.remove(fid) else {
            return;
        };
        let nobody = (file.session, LockOwner::Whole(0));
        for (session, _) in &file.behind {
            self.lock_delegations.policy.looked(fid, *session);
        }
        self.go_on_locking(step, fid, nobody);
        for (session, request) in file.behind {
            // The session may have been fenced for what another one of these was about.
            if !self.sessions.contains_key(&session) {
                continue;
            }
            if self.is_away(session) {
                self.hold(step, session, (session, request, 0));
                continue;
            }
            self.on_lock_request(step, session, &request);
        }
    }

    /// A session is over: nothing is delegated to it, and none of its requests waits.
    pub(crate) fn end_delegations(&mut self, step: &mut Step<'_>, id: SessionId) {
        for file in self.lock_delegations.files.values_mut() {
            file.behind.retain(|(session, _)| *session != id);
        }
        let files = self.lock_delegations.files();
        let own: Vec<Fid> = files
            .filter(|(_, whose)| *whose == id)
            .map(|(fid, _)| fid)
            .collect();
        for fid in own {
            self.end_delegation(step, fid);
        }
    }

    /// Asks again for delegations: one client for all of them, else where it is due.
    pub(crate) fn repeat_lock_asks(&mut self, step: &mut Step<'_>, only: Option<SessionId>) {
        let mut again = Vec::new();
        for (&fid, file) in &mut self.lock_delegations.files {
            let Some(asked) = file.asked.as_mut() else {
                continue;
            };
            let due = step.now >= asked.sent + self.options.resend_ns;
            if only.map_or(due, |only| only == file.session) {
                asked.sent = step.now;
                let (epoch, what) = (asked.epoch, What::Locks);
                again.push((file.session, Recall { fid, epoch, what }));
            }
        }
        for (session, recall) in again {
            self.send(step, session, ToClient::Recall(recall));
        }
    }

    /// Parts of files that are locked, and requests that wait, as far as the server decides.
    pub(crate) fn lock_figures(&self) -> (u64, u64) {
        let (locks, waiting) = self.locks.figures();
        let files = self.lock_delegations.files();
        let elsewhere: usize = files.map(|(fid, _)| self.locks.parts(fid)).sum();
        let behind = self.lock_delegations.files.values();
        let behind: usize = behind.map(|file| file.behind.len()).sum();
        (locks - elsewhere as u64, waiting + behind as u64)
    }
}
