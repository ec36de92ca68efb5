//! Requests: arrival, waiting, and judging again after each event.
//!
//! A request is judged from scratch whenever something changes where it waits. It claims nothing
//! meanwhile; it only marks the files, so that no grant is given that would be in its way. So no
//! two requests can wait for each other. Some may keep others waiting for a while: see `turns`.

use super::awaited::Awaited;
use super::conflicts::{Need, Needs};
use super::plan::Plan;
use crate::server::api::{Bulk, Conn, Output};
use crate::server::mutant::Mutant;
use crate::server::schedules::OWN;
use crate::server::table::{Seq, Session, Waiting};
use crate::server::{Server, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    Fid, Op, Origin, Outcome, Refusal, Reply, Request, RequestId, Right, SessionId, ToClient,
    Violation,
};

impl Server {
    pub(crate) fn on_request(
        &mut self,
        step: &mut Step<'_>,
        (conn, id): (Conn, SessionId),
        mut request: Request,
        (bulk, bulk_len): (Bulk, u32),
    ) {
        self.narrow(step.disk, conn, &mut request);
        let expected = if let Op::Write { len, .. } = request.op {
            len
        } else {
            0
        };
        if matches!(request.op, Op::Reap { .. }) {
            step.discard(bulk);
            return step.violation(conn, Violation::Forbidden);
        }
        if bulk_len != expected {
            step.discard(bulk);
            return step.violation(conn, Violation::Bounds);
        }
        self.on_acked(step, id, request.acked);
        self.hear_time(step, request.clock);
        let Some(session) = self.sessions.get_mut(&id) else {
            return step.discard(bulk);
        };
        if !session.counts() {
            session.uncounted = session.uncounted.max(request.id);
        }
        if let Some(reply) = session.answers.get(&request.id).cloned() {
            step.discard(bulk);
            let reply = self.again(id, reply);
            return self.reply(step, (id, request.id), reply, 0);
        }
        if let Some(outcome) = session.lock_answers.get(&request.id).cloned() {
            return self.reply_lock(step, (id, request.id), outcome);
        }
        if request.id < session.acked {
            return step.discard(bulk);
        }
        if let Some(again) = request.again.as_deref().copied() {
            return self.on_again(step, id, (request, bulk), again);
        }
        if !self.is_its_turn(step, id, &request) {
            return self.keep_back(step, id, (request, bulk));
        }
        self.on_new_request(step, id, request, bulk);
    }

    /// An answer that is given again. Its grants may have been taken back since, so it grants
    /// nothing; but it says up to which epoch the client was granted something: else the client
    /// could never give that back if the first answer was lost.
    pub(crate) fn again(&self, id: SessionId, mut reply: Reply) -> Reply {
        reply.grants.retain_mut(|grant| {
            let held = self
                .holder(id, grant.fid)
                .filter(|held| held.right > Right::None);
            grant.right = Right::None;
            grant.bare = false;
            grant.epoch = held.map_or(0, |held| held.epoch);
            held.is_some()
        });
        reply
    }

    /// One that comes for the first time, as far as is known, and at its turn.
    pub(crate) fn on_new_request(
        &mut self,
        step: &mut Step<'_>,
        id: SessionId,
        request: Request,
        bulk: Bulk,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return step.discard(bulk);
        };
        if !session.running.insert(request.id) {
            return step.discard(bulk);
        }
        if let Op::StopWaiting { request: waits } = request.op {
            // Not even until a restarted server serves again.
            return self.on_stop_waiting(step, (id, request.id), waits);
        }
        let number = request.id;
        let put_back = session.put_back.remove(&number);
        self.begin(step, id, request, bulk);
        if put_back {
            self.on_put_back(step, id, number);
        }
    }

    /// All requests below this one have been answered to their callers.
    pub(crate) fn on_acked(&mut self, step: &mut Step<'_>, id: SessionId, acked: RequestId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if acked <= session.acked {
            return;
        }
        session.acked = acked;
        session.lock_answers = session.lock_answers.split_off(&acked);
        session.unanswered = session.unanswered.split_off(&acked);
        session.put_back = session.put_back.split_off(&acked);
        let later = session.answers.split_off(&acked);
        if !core::mem::replace(&mut session.answers, later).is_empty() {
            step.disk.forget_answers(id, acked);
        }
        let confirmed: Vec<RequestId> = session
            .unconfirmed
            .range(..acked)
            .map(|(request, _)| *request)
            .collect();
        if !confirmed.is_empty() {
            self.confirm_all(step, id, confirmed);
        }
    }

    pub(crate) fn begin(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        request: Request,
        bulk: Bulk,
    ) {
        if !self.sessions.contains_key(&session) {
            return step.discard(bulk);
        }
        let forbidden = self.forbids(step.disk, session, &request);
        if request.op.locks() {
            if let Some(refusal) = forbidden {
                let outcome = Outcome::Refused(refusal);
                return self.answer_lock(step, (session, request.id), outcome);
            }
            let away = self.is_away(session).then_some(session);
            if let Some(missing) = away.or_else(|| self.locks_in_doubt()) {
                return self.hold(step, missing, (session, request, bulk));
            }
            return self.on_lock_request(step, session, &request);
        }
        self.last_seq += 1;
        let at = (self.last_seq, self.epoch);
        let mut waiting = Waiting::new(at, session, (request, bulk));
        // Where somebody else may have changed the rights without a word so far, that is found out
        // first.
        if let Some(refusal) = forbidden
            && !self.may_be_outdated(session, &waiting.request.op)
        {
            // Of a delegated change: changes that build on it are refused as well.
            self.comes_later(step, &waiting, refusal);
            return self.refuse(step, &waiting, refusal);
        }
        if let (Op::Volume(_), Some(missing)) = (&waiting.request.op, self.locks_in_doubt()) {
            // Nobody knows who has what in the volume.
            let Waiting { request, bulk, .. } = waiting;
            return self.hold(step, missing, (session, request, bulk));
        }
        // Most requests wait for nothing, and are never entered as waiting.
        let plan = match self.plan(step.disk, &waiting) {
            Ok(plan) => plan,
            Err(refusal) if self.comes_later(step, &waiting, refusal) => return,
            Err(refusal) => return self.refuse(step, &waiting, refusal),
        };
        if let Some(missing) = self.in_doubt((session, &waiting.request.op), &plan) {
            let Waiting { request, bulk, .. } = waiting;
            return self.hold(step, missing, (session, request, bulk));
        }
        let Some(plan) = self.salvaged(step, &mut waiting, plan) else {
            return;
        };
        // Nobody else can be in the way of a delegated change.
        let delegated = waiting.request.delegated.is_some() && waiting.salvage.is_none();
        if delegated || self.applied_before(step.disk, &waiting) {
            return self.execute(step, waiting, &plan);
        }
        let needs = self.needs(&waiting, &plan);
        let free = needs.0.is_empty() && needs.1.is_empty();
        if free && !self.put_off(step, &waiting, &plan) {
            return self.execute(step, waiting, &plan);
        }
        if matches!(waiting.request.op, Op::Prefetch { .. }) {
            return self.not_now(step, &waiting);
        }
        self.wait_for(step, (at.0, waiting), plan, needs);
    }

    /// A request waits for what others give up or confirm.
    pub(crate) fn wait_for(
        &mut self,
        step: &mut Step<'_>,
        (seq, mut waiting): (Seq, Waiting),
        plan: Plan,
        needs: Needs,
    ) {
        waiting.since.get_or_insert(step.now);
        let before = self.waiting.insert(seq, waiting);
        assert!(
            before.is_none(),
            "each request that waits has a place of its own"
        );
        self.note_freezing(&*step.disk, seq);
        self.wait(step, seq, plan, needs);
    }

    /// Does a request if nothing stands in its way, or asks for what does.
    pub(crate) fn judge(&mut self, step: &mut Step<'_>, seq: Seq) {
        if !self.judge_salvage(step, seq) {
            return;
        }
        let Some(waiting) = self.waiting.get(&seq) else {
            return;
        };
        let plan = match self.plan(step.disk, waiting) {
            Ok(plan) => plan,
            Err(refusal) => return self.cannot_be_done(step, seq, refusal),
        };
        if let Some(missing) = self.in_doubt((waiting.session, &waiting.request.op), &plan) {
            let over = self.take_waiting(seq);
            self.recheck_all(step, &over);
            let held = (over.session, over.request, over.bulk);
            return self.hold(step, missing, held);
        }
        let needs = self.needs(waiting, &plan);
        let free = needs.0.is_empty() && needs.1.is_empty();
        if free && !self.put_off(step, waiting, &plan) {
            let waiting = self.take_waiting(seq);
            return self.execute(step, waiting, &plan);
        }
        self.wait(step, seq, plan, needs);
    }

    /// A change that waits may have to be done in another way than before, or not at all. False: it
    /// is over.
    fn judge_salvage(&mut self, step: &mut Step<'_>, seq: Seq) -> bool {
        let known = self.waiting.get(&seq).filter(|w| w.salvage.is_some());
        let Some(mut waiting) = known.cloned() else {
            return true;
        };
        let way = self.salvage(step, &mut waiting);
        if let Some(known) = self.waiting.get_mut(&seq) {
            (known.request, known.salvage) = (waiting.request, waiting.salvage);
        }
        match way.map_err(|outcome| *outcome) {
            Ok(()) => return true,
            Err(Outcome::Refused(refusal)) => self.cannot_be_done(step, seq, refusal),
            Err(outcome) => {
                let over = self.take_waiting(seq);
                let about = (over.session, &over.request);
                self.answer(step, about, Reply::from(outcome), 0);
                self.end_waiting(step, &over);
            }
        }
        false
    }

    /// Nothing happens for a request that has waited.
    fn cannot_be_done(&mut self, step: &mut Step<'_>, seq: Seq, refusal: Refusal) {
        let over = self.take_waiting(seq);
        if !self.comes_later(step, &over, refusal) {
            self.refuse(step, &over, refusal);
        }
        self.end_waiting(step, &over);
    }

    fn end_waiting(&mut self, step: &mut Step<'_>, over: &Waiting) {
        self.recheck_all(step, over);
        self.go_on_behind(step, over.session, over.request.id);
    }

    /// Nobody needs it, so nobody is asked for what it would need.
    fn not_now(&mut self, step: &mut Step<'_>, waiting: &Waiting) {
        let reply = Reply::from(Outcome::Done);
        self.answer(step, (waiting.session, &waiting.request), reply, 0);
    }

    /// The disk cannot say what the request is about: nothing happens.
    pub(crate) fn refuse(&mut self, step: &mut Step<'_>, waiting: &Waiting, refusal: Refusal) {
        step.discard(waiting.bulk);
        let reply = Reply::from(Outcome::Refused(refusal));
        self.answer(step, (waiting.session, &waiting.request), reply, 0);
    }

    /// Enters a request as waiting where it is about something, and asks for what it waits for.
    fn wait(&mut self, step: &mut Step<'_>, seq: Seq, plan: Plan, (needs, confirms): Needs) {
        self.enter_plan(seq, plan);
        self.wake(step.now);
        let put_off = needs.is_empty() && confirms.is_empty();
        self.mark_put_off(seq, put_off);
        if put_off {
            self.note_put_off(step.now, seq);
        }
        let Some(waiting) = self.waiting.get_mut(&seq) else {
            return;
        };
        let (session, arrived) = (waiting.session, waiting.arrived);
        let freezes = waiting.plan.freezes.is_some();
        let mut asked = BTreeMap::new();
        for Need { session, fid, .. } in &needs {
            let key = (*session, *fid);
            asked.insert(key, *waiting.asked.get(&key).unwrap_or(&step.now));
        }
        waiting.asked.clone_from(&asked);
        let mut owed = BTreeSet::new();
        for need in needs {
            let since = asked[&(need.session, need.fid)];
            let question = self.ask(step, need, (arrived, since), Some(seq));
            owed.insert(Awaited::Answer(question));
        }
        for confirm in confirms {
            assert!(
                session != confirm.session || freezes,
                "nobody waits for himself"
            );
            owed.insert(Awaited::Confirmed(confirm.session, confirm.request));
            self.ask_confirm(step, confirm, seq);
        }
        if let Some(waiting) = self.waiting.get_mut(&seq) {
            waiting.owed = owed;
        }
    }

    pub(crate) fn take_waiting(&mut self, seq: Seq) -> Waiting {
        let waiting = self
            .waiting
            .remove(&seq)
            .expect("the request has just been looked at");
        self.leave_queues(&waiting);
        if let Some(until) = waiting.patient_until {
            self.patient.remove(&(until, seq));
        }
        self.volumes.forget(seq);
        waiting
    }

    /// Nobody waits for this answer any more. Where others may have been put off for it.
    pub(crate) fn drop_waiting(&mut self, step: &mut Step<'_>, seq: Seq) -> BTreeSet<Fid> {
        let mut waiting = self.take_waiting(seq);
        step.discard(waiting.bulk);
        waiting.fids.extend(waiting.gathered);
        waiting.fids
    }

    /// This client may have changed something here: requests that are put off here, of all clients
    /// or of one, are judged again, in the order of arrival.
    pub(crate) fn recheck(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (by, only): (SessionId, Option<SessionId>),
    ) {
        self.reap_if_unused(step, fid);
        self.judge_put_off(step, fid, only);
        self.tidy(fid, by);
    }

    /// A request that others were put off for is over.
    pub(crate) fn recheck_all(&mut self, step: &mut Step<'_>, over: &Waiting) {
        for &fid in over.fids.iter().chain(&over.gathered) {
            self.recheck(step, fid, (over.session, None));
        }
    }

    /// Answers a request, and keeps the answer to a change until it is acknowledged. A change has
    /// one place in the log of this run: each answer to it says that, so that its client can ask
    /// for the change again when the place is lost.
    pub(crate) fn answer(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, &Request),
        mut reply: Reply,
        bulk: Bulk,
    ) {
        if session == OWN {
            return self.note_scheduled(step, (request, &reply.outcome));
        }
        self.note_administered(step, (session, request), &reply.outcome);
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running.remove(&request.id);
            if request.op.changes() {
                let before = state.answers.get(&request.id);
                let place = before.and_then(|before| before.logged);
                if !matches!(reply.outcome, Outcome::Refused(_)) {
                    reply.logged = reply.logged.or(place);
                }
                state.answers.insert(request.id, reply.clone());
            }
        }
        self.reply(step, (session, request.id), reply, bulk);
    }

    pub(crate) fn reply(
        &mut self,
        step: &mut Step<'_>,
        (session, id): (SessionId, RequestId),
        reply: Reply,
        bulk: Bulk,
    ) {
        let clock = self.time(step);
        // Of a request that came while nothing that its client said was counted nothing is known.
        let counts = |session: &Session| session.counts() && id > session.uncounted;
        let renews = self.sessions.get(&session).is_some_and(counts);
        let message = ToClient::Reply {
            id,
            reply,
            clock,
            renews,
            stable: self.stable(step),
        };
        self.send_bulk(step, session, message, bulk);
    }

    /// Up to which record everything is stable.
    pub(crate) fn stable(&self, step: &Step<'_>) -> u64 {
        match self.options.mutant {
            Some(Mutant::SaysStableEarly) => step.disk.logged(),
            _ => step.disk.stable(),
        }
    }

    /// Has a request asked again, since it cannot be done yet: nothing is kept of it.
    pub(crate) fn ask_later(&mut self, step: &mut Step<'_>, (session, id): (SessionId, RequestId)) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running.remove(&id);
        }
        let later = Reply::from(Outcome::Refused(Refusal::Later));
        self.reply(step, (session, id), later, 0);
    }

    pub(crate) fn begin_sync(&mut self, step: &mut Step<'_>, waiting: &Waiting) {
        self.last_sync += 1;
        self.syncs
            .insert(self.last_sync, (waiting.session, waiting.request.id));
        step.out.push(Output::Sync {
            ticket: self.last_sync,
        });
    }

    pub(crate) fn on_synced(&mut self, step: &mut Step<'_>, ticket: u64, ok: bool) {
        let Some((session, id)) = self.syncs.remove(&ticket) else {
            return;
        };
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running.remove(&id);
        }
        let outcome = if ok {
            Outcome::Done
        } else {
            Outcome::Refused(Refusal::Disk)
        };
        self.reply(step, (session, id), Reply::from(outcome), 0);
    }

    pub(crate) fn origin(waiting: &Waiting) -> Origin {
        Origin {
            session: waiting.session,
            request: waiting.request.id,
        }
    }
}
