//! Delegated changes: applied as they come.
//!
//! The client to which a directory is delegated (it holds its token Exclusive) has answered the
//! caller already, and nobody else can have looked since. So nothing is in the way of such a
//! change, and it cannot be refused; if it is all the same (the disk fails, the client has lied or
//! has been fenced), so are all that the client sends behind it: others are shown a prefix of what
//! it did.

use crate::server::Server;
use crate::server::Step;
use crate::server::api::{Bulk, Conn, Disk};
use crate::server::mutant::Mutant;
use crate::server::requests::conflicts::Need;
use crate::server::requests::plan::Plan;
use crate::server::table::{Holder, Waiting};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    Epoch, Fid, Grant, Op, Origin, Outcome, Refusal, Request, RequestId, Right, SessionId, What,
};

/// Most requests of a client that are kept because they have overtaken others.
const OVERTAKEN_MAX: usize = 1024;
/// Of those with bytes beside them, which may be a MiB each.
const OVERTAKEN_BULKS_MAX: usize = 64;

impl Server {
    /// Delegated changes that came together.
    pub(crate) fn on_requests(
        &mut self,
        step: &mut Step<'_>,
        from: (Conn, SessionId),
        requests: Vec<Request>,
    ) {
        for request in requests {
            self.on_request(step, from, request, (0, 0));
        }
    }

    /// Does the client hold Exclusive all that its delegated change is about?
    pub(crate) fn holds_all(&self, waiting: &Waiting, plan: &Plan) -> bool {
        let session = waiting.session;
        let holds = |fid: &Fid| {
            let held = self.holder(session, *fid);
            held.is_some_and(|holder| holder.right == Right::Exclusive)
        };
        let whole = self.sessions.get(&session).is_some_and(|s| !s.broken);
        whole && plan.fids().iter().all(holds)
    }

    /// A delegated change that the disk has no room for, or cannot make: its caller believes that
    /// it is done. Its client asks for it later, and changes that build on it wait.
    pub(crate) fn comes_later(
        &mut self,
        step: &mut Step<'_>,
        waiting: &Waiting,
        refusal: Refusal,
    ) -> bool {
        if waiting.request.delegated.is_none() {
            return false;
        }
        if !matches!(refusal, Refusal::NoSpace | Refusal::Quota | Refusal::Disk) {
            if waiting.salvage.is_none() {
                self.break_delegation(waiting.session);
            }
            return false;
        }
        self.ask_later(step, (waiting.session, waiting.request.id));
        true
    }

    /// Has the delegated change before this request been applied? An earlier run of the server may
    /// have done it.
    pub(crate) fn is_its_turn(&self, step: &Step<'_>, id: SessionId, request: &Request) -> bool {
        let after = request.after;
        let Some(session) = self.sessions.get(&id) else {
            return true;
        };
        let origin = Origin {
            session: id,
            request: after,
        };
        let any = self.options.mutant == Some(Mutant::DoesOutOfTurn);
        let answered =
            any || after == 0 || session.answers.contains_key(&after) || after < session.acked;
        answered || step.disk.answer(origin).is_some()
    }

    /// Keeps a request that has overtaken others; of too many the client asks again later.
    pub(crate) fn keep_back(
        &mut self,
        step: &mut Step<'_>,
        id: SessionId,
        (request, bulk): (Request, Bulk),
    ) {
        let key = (request.after, request.id);
        let room = |kept: &BTreeMap<_, (Request, Bulk)>| {
            let bulks = kept.values().filter(|(_, bulk)| *bulk != 0).count();
            kept.len() < OVERTAKEN_MAX && (bulk == 0 || bulks < OVERTAKEN_BULKS_MAX)
        };
        let kept = self.sessions.get_mut(&id).map(|s| &mut s.overtaken);
        match kept {
            Some(kept) if kept.contains_key(&key) => step.discard(bulk),
            Some(kept) if room(kept) => drop(kept.insert(key, (request, bulk))),
            _ => {
                step.discard(bulk);
                self.ask_later(step, (id, request.id));
            }
        }
    }

    /// A delegated change is done: requests that have overtaken it have their turn.
    pub(crate) fn go_on_behind(&mut self, step: &mut Step<'_>, id: SessionId, done: RequestId) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        if !session.answers.contains_key(&done) || session.overtaken.is_empty() {
            return;
        }
        // A thousand may have come in the wrong order. Each is done when the one before it is over,
        // not as a part of that.
        self.done.push_back((id, done));
        if self.done.len() > 1 {
            return;
        }
        while let Some(&(id, done)) = self.done.front() {
            self.begin_behind(step, id, done);
            self.done.pop_front();
        }
    }

    /// Begins what has overtaken this request.
    fn begin_behind(&mut self, step: &mut Step<'_>, id: SessionId, done: RequestId) {
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        let behind = session.overtaken.range((done, 0)..=(done, RequestId::MAX));
        let keys: Vec<_> = behind.map(|(key, _)| *key).collect();
        for key in keys {
            let session = self.sessions.get_mut(&id);
            let kept = session.and_then(|session| session.overtaken.remove(&key));
            if let Some((request, bulk)) = kept {
                self.on_new_request(step, id, request, bulk);
            }
        }
    }

    /// From now on nothing delegated is taken from this client.
    fn break_delegation(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.broken = true;
        }
    }

    /// Notes who uses which directories. Those that a client changes alone may be delegated to it:
    /// none in which something is inherited that a client does not know of.
    pub(crate) fn note_users(
        &mut self,
        disk: &dyn Disk,
        waiting: &Waiting,
        plan: &Plan,
    ) -> Vec<Fid> {
        let (session, request) = (waiting.session, &waiting.request);
        for dir in plan.looks.iter().filter(|dir| !plan.names_in(**dir)) {
            self.delegation_policy.looked(*dir, session);
        }
        let mut alone = Vec::new();
        for (dir, _) in &plan.names {
            if request.delegated.is_some() {
                self.delegation_policy.changed_there(*dir);
            } else if self.delegation_policy.changed(*dir, session)
                && request.keeps
                && disk.bare(*dir)
            {
                alone.push(*dir);
            }
        }
        alone
    }

    /// Asks others whether they use directories that would be delegated if nobody else held
    /// anything of them; nobody waits for the answers.
    pub(crate) fn ask_for_unused(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        alone: &[Fid],
    ) {
        for &fid in alone {
            let idle = |holder: &Holder| matches!(holder.right, Right::Transient | Right::Shared);
            let file = self.files.get(&fid);
            let holders = file.into_iter().flat_map(|file| file.holders.iter());
            let others = holders.filter(|(id, holder)| **id != session && idle(holder));
            let others: Vec<(SessionId, Epoch)> =
                others.map(|(id, holder)| (*id, holder.epoch)).collect();
            if others.is_empty() || !self.delegation_policy.asks(fid) {
                continue;
            }
            for (session, granted) in others {
                let what = What::Unused;
                let need = Need { session, fid, what };
                self.ask(step, need, (granted, step.now), None);
            }
        }
    }

    /// These were to be delegated: some have been.
    pub(crate) fn note_delegated(&mut self, alone: &[Fid], grants: &[Grant]) {
        for grant in grants {
            if grant.right == Right::Exclusive && alone.contains(&grant.fid) {
                self.delegation_policy.delegated(grant.fid);
            }
        }
    }

    /// An object made by a delegated change is its maker's alone: nobody else knows of it. If the
    /// server knows anything of it all the same, the maker has lied: it holds what it cannot be
    /// granted. (After a restart it has said that it holds the object before it told of the change.
    /// Then it may have been asked to give it up already, as for a snapshot: it has it until it
    /// does.)
    pub(crate) fn grant_made(
        &mut self,
        session: SessionId,
        (op, outcome): (&Op, &Outcome),
        grants: &mut Vec<Grant>,
    ) {
        let (Op::Make { .. }, Outcome::Entry(entry)) = (op, outcome) else {
            return;
        };
        // A machine that may not write any more has made it when it could, and has bytes for it: so
        // it is granted, and asked for; see `withdraw_made`.
        let held = self.holder(session, entry.fid).map(|held| held.right);
        if self.is_alone(session, entry.fid) {
            self.grant_own(session, entry.fid, grants);
        } else if held != Some(Right::Exclusive) {
            self.break_delegation(session);
        }
    }
}
