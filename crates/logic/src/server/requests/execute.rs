//! Doing a request once nothing is in its way: the store first, then what others may be told, then
//! grants and the answer.

use super::conflicts::Need;
use super::inline_data::bytes_ahead;
use super::listing_attrs::show_held;
use super::plan::Plan;
use crate::server::api::{By, Disk};
use crate::server::mutant::Mutant;
use crate::server::schedules::OWN;
use crate::server::table::{Seq, Unconfirmed, Waiting};
use crate::server::tokens::grants::{delegable, mount_point, note_bare};
use crate::server::{Server, Step};
use alloc::vec::Vec;
use wire::{
    Access, Fid, Grant, Hold, Logged, Name, Op, Outcome, Refusal, Reply, Request, RequestId, Right,
    SessionId, Time,
};
use wire::{What, WriteMode};

impl Server {
    pub(crate) fn execute(&mut self, step: &mut Step<'_>, mut waiting: Waiting, plan: &Plan) {
        let session = waiting.session;
        if self.ends_change(step, &waiting) {
            return;
        }
        if let Some(refusal) = self.forbids_waiting(step.disk, &waiting) {
            self.comes_later(step, &waiting, refusal);
            self.refuse(step, &waiting, refusal);
            self.recheck_all(step, &waiting);
            return self.go_on_behind(step, session, waiting.request.id);
        }
        let salvaged = waiting.salvage.is_some();
        self.raise(step.disk, (session, salvaged), &mut waiting.request);
        let mut changed = false;
        match waiting.request.op {
            Op::Read { .. } => self.read(step, &waiting),
            Op::Sync { .. } => self.begin_sync(step, &waiting),
            Op::Room { .. } => self.give_room(step, &waiting),
            _ => match self.apply(step, &waiting, plan) {
                Ok(done) => changed = done,
                Err(until) => return self.wait_for_room(step, waiting, (plan, until)),
            },
        }
        self.spread(step, (&waiting, plan), changed);
        self.go_on_behind(step, waiting.session, waiting.request.id);
    }

    fn read(&mut self, step: &mut Step<'_>, waiting: &Waiting) {
        let Op::Read { fid, offset, len } = waiting.request.op else {
            return;
        };
        let (session, request) = (waiting.session, &waiting.request);
        let mut grants = Vec::new();
        if let Some(elsewhere) = self.elsewhere(step, (session, request)) {
            self.grant((session, fid), Right::Shared, &mut grants);
            if !grants.is_empty() {
                self.note_elsewhere(session, &elsewhere);
                let mut reply = Reply::from(Outcome::Elsewhere(elsewhere));
                reply.grants = grants;
                return self.answer(step, (session, request), reply, 0);
            }
        }
        let (outcome, bulk) = step.disk.read(fid, offset, len);
        self.note_sent(step, (session, request), (&outcome, bulk));
        if matches!(outcome, Outcome::Read { .. }) {
            self.grant((session, fid), Right::Shared, &mut grants);
            if grants.is_empty() && request.keeps {
                self.grant_pages(session, fid, &mut grants);
            }
            self.note_bytes((session, fid), (request.id, bulk), &grants);
        }
        let mut reply = Reply::from(outcome);
        reply.grants = grants;
        self.answer(step, (waiting.session, &waiting.request), reply, bulk);
    }

    /// True if it has changed something now. An error: until then it waits for room.
    fn apply(&mut self, step: &mut Step<'_>, waiting: &Waiting, plan: &Plan) -> Result<bool, Time> {
        let (session, op) = (waiting.session, &waiting.request.op);
        let (mut outcome, repeated, logged) = self.apply_once(step, waiting, plan);
        let mut delegated = Vec::new();
        if let Outcome::Refused(refusal) = outcome
            && self.is_put_back(step, waiting, refusal)?
        {
            return Ok(false);
        }
        let done = !matches!(outcome, Outcome::Refused(_));
        if done {
            self.note_objects(step.now, waiting, &outcome);
            if !repeated {
                if shows_before(&waiting.request) {
                    self.note_changes(waiting, plan);
                }
                self.outdate_said(waiting, plan);
                delegated = self.note_users(&*step.disk, waiting, plan);
                self.tell_change(step, waiting, &outcome);
                self.after_volume(step, (op, &outcome));
            }
        }
        step.disk.show(self.mount_of(session), op, &mut outcome);
        show_held(waiting, &mut outcome);
        self.hide(step.disk, session, (op, &mut outcome));
        let held = self.withhold(waiting, &mut outcome);
        let mut grants = Vec::new();
        match waiting.request.delegated {
            _ if repeated => {}
            Some(_) => self.grant_made(session, (op, &outcome), &mut grants),
            None => self.grant_for(step, (waiting, &outcome), &delegated, &mut grants),
        }
        self.grant_claimed(session, (op, &outcome), &mut grants);
        self.note_delegated(&delegated, &grants);
        self.ask_for_unused(step, session, &delegated);
        if let (Op::MakeNameless { .. }, Outcome::Entry(entry)) = (op, &outcome)
            && entry.attr.nlink == 0
        {
            // Behind the grant: of what loses its last name nothing more is granted Exclusive.
            self.linger(step.now, entry.fid);
        }
        self.told(waiting, &outcome, &mut grants);
        let heard = self.show(step.now, waiting, (&outcome, &grants));
        if let Op::Write {
            fid,
            mode: WriteMode::Lazy,
            ..
        } = op
            && matches!(outcome, Outcome::Written { .. })
        {
            self.take_from_others(step, session, *fid);
            self.grant_pages(session, *fid, &mut grants);
        }
        note_bare(&*step.disk, op, &mut grants);
        let about = (&*self, session, &waiting.request);
        let bulk = bytes_ahead(step, about, (&mut outcome, &grants));
        let reply = Reply {
            outcome,
            grants,
            heard,
            logged,
            aside: self.put_aside(step, waiting),
        };
        let made = made_by(&waiting.request, &reply.outcome);
        self.answer(step, (session, &waiting.request), reply, bulk);
        self.withdraw_made(step, session, made);
        self.say_listed(step, held);
        Ok(done && !repeated && op.changes())
    }

    /// Is a change that was refused none for its caller, since its client asks for it later? An
    /// error: until then it waits for room.
    fn is_put_back(
        &mut self,
        step: &mut Step<'_>,
        waiting: &Waiting,
        refusal: Refusal,
    ) -> Result<bool, Time> {
        if let Some(until) = self.room_comes(step.now, waiting, refusal) {
            return Err(until);
        }
        step.discard(waiting.bulk);
        Ok(self.comes_later(step, waiting, refusal))
    }

    /// Was it applied by an earlier run of the server? Then nothing stands in its way, and its
    /// effects that the caller has not seen were entered when the client came back.
    pub(crate) fn applied_before(&self, disk: &dyn Disk, waiting: &Waiting) -> bool {
        let twice = self.options.mutant == Some(Mutant::AppliesTwice);
        let changes = waiting.request.op.changes() && !twice;
        changes && disk.answer(Self::origin(waiting)).is_some()
    }

    /// The outcome, and whether it is that of an earlier run of the server: then it says how things
    /// were, and nothing may be cached of it.
    fn apply_once(
        &mut self,
        step: &mut Step<'_>,
        waiting: &Waiting,
        plan: &Plan,
    ) -> (Outcome, bool, Option<Logged>) {
        let request = &waiting.request;
        let again = request.op.changes() && waiting.session != OWN;
        let origin = again.then(|| Self::origin(waiting));
        let twice = self.options.mutant == Some(Mutant::AppliesTwice);
        let kept = origin
            .filter(|_| !twice)
            .and_then(|origin| step.disk.answer(origin));
        if let Some(outcome) = kept {
            step.discard(waiting.bulk);
            return (outcome, true, None);
        }
        if let Op::Write {
            fid,
            mode: WriteMode::Back { .. },
            ..
        } = request.op
        {
            let holds = |f: &crate::server::table::File| {
                f.holders
                    .get(&waiting.session)
                    .is_some_and(|h| h.right == Right::Exclusive)
            };
            if !self.files.get(&fid).is_some_and(holds) {
                step.discard(waiting.bulk);
                return (Outcome::Refused(Refusal::SessionLost), false, None);
            }
        }
        let delegated = request.delegated;
        let salvaged = waiting.salvage.is_some();
        if delegated.is_some() && !salvaged && !self.holds_all(waiting, plan) {
            return (Outcome::Refused(Refusal::SessionLost), false, None);
        }
        let now = self.stamp(step);
        // Its machine has shown no later time than this: see `hear_time`.
        let now = delegated.map_or(now, |delegated| delegated.at.min(now));
        let by = By {
            caller: &request.caller,
            origin,
            delegated: delegated.map(|delegated| delegated.chosen),
            again: false,
            promised: self.promised_beside(&*step.disk, waiting),
        };
        let outcome = match request.op {
            Op::Prefetch { dir, after, max } => {
                let op = Op::ReadDir { dir, after, max };
                step.disk.apply(now, &op, by, 0)
            }
            _ => step.disk.apply(now, &request.op, by, waiting.bulk),
        };
        let done = request.op.changes() && !matches!(outcome, Outcome::Refused(_));
        if done {
            self.spend_room(waiting);
            self.note_written_back(step.now, waiting);
        }
        let record = step.disk.logged();
        (outcome, false, done.then_some(Logged { record, at: now }))
    }

    fn note_written_back(&mut self, now: Time, waiting: &Waiting) {
        if let Op::Write {
            fid,
            len,
            mode: WriteMode::Back { .. },
            ..
        } = waiting.request.op
        {
            self.earn_time(now, (waiting.session, fid), len);
        }
    }

    /// Reports of Exclusive holders about an object to waiting requests are true no more: these ask
    /// again. (A holder's own write was not there yet when it reported.)
    fn outdate_said(&mut self, waiting: &Waiting, plan: &Plan) {
        if !waiting.request.op.changes() {
            return;
        }
        let used = plan.uses.map(|(fid, _)| fid).filter(|fid| {
            let held = self.holder(waiting.session, *fid);
            held.is_none_or(|holder| holder.right < Right::Exclusive)
        });
        for fid in plan.changes.iter().map(|(fid, _)| *fid).chain(used) {
            let Some(file) = self.files.get(&fid) else {
                continue;
            };
            let all: Vec<Seq> = file.waiting().collect();
            for seq in all {
                let other = self.waiting.get_mut(&seq);
                if other.is_some_and(|other| other.attrs.remove(&fid).is_some()) {
                    self.note_outdated(seq);
                }
            }
        }
    }

    /// Enters what is open and what is nameless now.
    fn note_objects(&mut self, now: Time, waiting: &Waiting, outcome: &Outcome) {
        let session = waiting.session;
        match (&waiting.request.op, outcome) {
            (Op::Open { fid, .. }, _) => self.declare(session, *fid, waiting.request.hold),
            (op, Outcome::Entry(entry)) if op.makes_open().is_some() => {
                self.declare(session, entry.fid, waiting.request.hold);
            }
            // It may be the first name.
            (Op::Link { fid, .. }, Outcome::Entry(_)) => self.keep_named(*fid),
            _ => {}
        }
        let gone = match outcome {
            Outcome::Removed { fid, attr, .. } => Some((*fid, attr.nlink)),
            Outcome::Renamed {
                victim: Some((fid, attr)),
                ..
            } => Some((*fid, attr.nlink)),
            _ => None,
        };
        if let Some((fid, 0)) = gone {
            self.linger(now, fid);
        }
    }

    /// Enters what the caller's machine must confirm before others are shown it.
    fn note_changes(&mut self, waiting: &Waiting, plan: &Plan) {
        let session = waiting.session;
        let change = (session, waiting.request.id);
        for (dir, names) in &plan.names {
            for name in names {
                self.unconfirm(change, *dir, Some(name.clone()));
            }
        }
        for (fid, _) in &plan.changes {
            self.unconfirm(change, *fid, None);
        }
        // Also where its machine keeps nothing: others may be shown only what its client has been
        // answered, as it asks for nothing else again when the server loses its power.
        if let Op::Write {
            fid,
            mode: WriteMode::At | WriteMode::Append,
            ..
        }
        | Op::Allocate { fid, .. }
        | Op::Copy { to: fid, .. } = &waiting.request.op
        {
            self.unconfirm(change, *fid, None);
        }
    }

    pub(crate) fn declare(&mut self, session: SessionId, fid: Fid, hold: Hold) {
        let holder = self.files.entry(fid).or_default().holders.of(session);
        holder.declare(hold);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.fids.insert(fid);
        }
    }

    pub(crate) fn unconfirm(
        &mut self,
        (session, request): (SessionId, RequestId),
        fid: Fid,
        name: Option<Name>,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.unconfirmed.entry(request).or_default().push(fid);
        let change = Unconfirmed {
            session,
            request,
            name,
        };
        let file = self.files.entry(fid).or_default();
        file.unconfirmed.push(change);
        // This entry notes how much of it the disk knows.
        file.holders.of(session);
        state.fids.insert(fid);
        self.held.push((session, fid));
    }

    /// Grants what goes with the outcome.
    fn grant_for(
        &mut self,
        step: &mut Step<'_>,
        (waiting, outcome): (&Waiting, &Outcome),
        delegated: &[Fid],
        grants: &mut Vec<Grant>,
    ) {
        let session = waiting.session;
        let disk = &*step.disk;
        // The Exclusive holder of a file knows more of it than the store: the store's attributes
        // must not count as news when the answer arrives after the token was given back.
        let alone = self.held_alone(session, &waiting.request.op, outcome);
        let shown = |fid: &Fid| !waiting.attrs.contains_key(fid) && alone != Some(*fid);
        let own = delegable(disk, waiting, outcome);
        let in_dir = |dir: &Fid| match delegated.contains(dir) {
            true => Right::Exclusive,
            false => Right::Shared,
        };
        let mut give = |server: &mut Self, fid: Fid, right: Right| {
            if mount_point(outcome) != Some(fid) {
                server.grant((session, fid), right, grants);
            }
        };
        match (&waiting.request.op, outcome) {
            (Op::Lookup { dir, .. } | Op::Link { dir, .. }, Outcome::Entry(entry)) => {
                give(self, *dir, in_dir(dir));
                if shown(&entry.fid) {
                    give(self, entry.fid, Right::Shared);
                }
            }
            (Op::Lookup { dir, .. }, Outcome::Absent { .. }) => give(self, *dir, Right::Shared),
            (op, Outcome::Attr(_)) => {
                if let Some(fid) = answered_by_attr(op).filter(shown) {
                    give(self, fid, Right::Shared);
                }
            }
            (Op::MakeNameless { open, .. }, Outcome::Entry(entry)) => {
                give(self, entry.fid, wanted(Some(*open)));
            }
            (Op::Make { dir, open, .. }, Outcome::Entry(entry)) => {
                give(self, *dir, in_dir(dir));
                give(self, entry.fid, own.unwrap_or(wanted(*open)));
            }
            (
                Op::Unlink { dir, .. } | Op::Rmdir { dir, .. } | Op::Unmount { dir, .. },
                Outcome::Removed { .. },
            ) => give(self, *dir, in_dir(dir)),
            (Op::Rename { from, to, .. }, Outcome::Renamed { fid, .. }) => {
                give(self, *from, in_dir(from));
                if from != to {
                    give(self, *to, in_dir(to));
                }
                if shown(fid) {
                    give(self, *fid, Right::Shared);
                }
            }
            (Op::Open { fid, access }, Outcome::Opened(_)) => {
                give(self, *fid, wanted(Some(*access)));
            }
            (Op::Write { mode, .. }, Outcome::Written { .. }) if is_back(mode) => {}
            (Op::Write { fid, .. } | Op::Allocate { fid, .. }, Outcome::Written { .. })
            | (Op::Copy { to: fid, .. }, Outcome::Copied { .. }) => {
                give(self, *fid, Right::Exclusive);
            }
            (Op::ReadDir { dir, .. } | Op::Prefetch { dir, .. }, Outcome::Dir { entries, .. }) => {
                self.grant_listed((session, *dir), entries, grants);
            }
            _ => {}
        }
    }

    /// The object of an answer, if the client itself holds it Exclusive.
    fn held_alone(&self, session: SessionId, op: &Op, outcome: &Outcome) -> Option<Fid> {
        let fid = match (op, outcome) {
            (_, Outcome::Entry(entry)) => entry.fid,
            (_, Outcome::Renamed { fid, .. }) => *fid,
            (op, Outcome::Attr(_)) => answered_by_attr(op)?,
            _ => return None,
        };
        let holder = self.files.get(&fid)?.holders.get(&session)?;
        (holder.right == Right::Exclusive).then_some(fid)
    }

    /// After a write that could not wait: others drop what they cache as soon as may be.
    fn take_from_others(&mut self, step: &mut Step<'_>, session: SessionId, fid: Fid) {
        let Some(file) = self.files.get(&fid) else {
            return;
        };
        let others: Vec<SessionId> = file
            .holders
            .iter()
            .filter(|(id, holder)| **id != session && holder.right != Right::None)
            .map(|(id, _)| *id)
            .collect();
        let arrived = self.epoch;
        for other in others {
            let need = Need {
                session: other,
                fid,
                what: What::Keep(Right::None),
            };
            self.ask(step, need, (arrived, step.now), None);
        }
    }
}

/// The object whose attributes are the answer to this.
fn answered_by_attr(op: &Op) -> Option<Fid> {
    match op {
        Op::GetAttr { fid }
        | Op::SetAttr { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => Some(*fid),
        _ => None,
    }
}

fn is_back(mode: &WriteMode) -> bool {
    matches!(mode, WriteMode::Back { .. })
}

/// The object that a client has made by itself, and tells the server now.
fn made_by(request: &Request, outcome: &Outcome) -> Option<Fid> {
    match outcome {
        Outcome::Entry(entry) if request.delegated.is_some() => Some(entry.fid),
        _ => None,
    }
}

/// May the client's machine still show how things were before this change? Of a delegated one its
/// client says so.
fn shows_before(request: &Request) -> bool {
    request.delegated.is_none_or(|delegated| delegated.unseen)
}

/// The right that goes with an open.
fn wanted(access: Option<Access>) -> Right {
    if access.is_some_and(|access| access.write) {
        Right::Exclusive
    } else {
        Right::Shared
    }
}
