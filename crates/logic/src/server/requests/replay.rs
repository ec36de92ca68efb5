//! Changes that were answered and lost: made again, as they were and in the order in which they
//! were.
//!
//! When the server's machine loses its power, the end of the log is lost with what was answered and
//! not yet stable. Each client has kept its part of that, with the places in the log, and asks for
//! it again. The server merges these requests by their places. So every change finds what it found
//! before, whoever made that, and comes out as it did: no client was answered anything that is not
//! so again. Nothing else is done until then, and where a change is there already (the last run
//! lost its power too, while it made these again) its kept outcome is the answer.
//!
//! Changes that belong to no client's answers are not made again: those that nobody was answered,
//! which come as any request behind all of these, and the removals of nameless objects.
//!
//! Guarantees: a change is made again only when all others that may come before it are known: each
//! client has said how many it asks for, and none of them is asked for out of its turn. A client
//! whose next one does not come is waited for as one that does not say what it holds. The requests
//! held meanwhile are bounded by those that clients may have under way.

use super::conflicts::Need;
use super::plan::kept_of;
use crate::server::api::{Bulk, By, Disk};
use crate::server::mutant::Mutant;
use crate::server::table::Waiting;
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    Again, Fid, Logged, Op, Outcome, Place, Refusal, Reply, Request, Right, SessionId, Time, What,
    limits,
};

/// Most changes that are made again in one step.
const REPLAYED_PER_STEP_MAX: usize = 256;

/// The changes that one client asks for again.
#[derive(Clone, Debug, Default)]
struct ReplayedChange {
    /// How many changes, when it has said so.
    count: Option<u32>,
    /// The next one's turn.
    next: u32,
    /// Those that have come and have not had their turn.
    came: BTreeMap<u32, (Request, Bulk)>,
    /// When the latest one came, or had its turn.
    moved: Time,
}

/// The changes that all clients ask for again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redo {
    asked: BTreeMap<SessionId, ReplayedChange>,
    /// Some may have their turn now, and were left for another step.
    due: bool,
}

impl Redo {
    /// A client that still has changes to ask for.
    pub(crate) fn unfinished(&self) -> Option<SessionId> {
        self.asked.keys().next().copied()
    }

    /// Has this one?
    pub(crate) fn is_unfinished(&self, id: SessionId) -> bool {
        self.asked.contains_key(&id)
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due
    }

    /// Clients whose next change has not come, and since when nothing has.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        let lacks = |asked: &ReplayedChange| !asked.came.contains_key(&asked.next);
        let lacking = self.asked.iter().filter(move |(_, asked)| lacks(asked));
        lacking.map(|(id, asked)| (*id, asked.moved))
    }

    /// The party whose turn it is, if that is known.
    fn first(&self) -> Option<SessionId> {
        let place = |(id, asked): (&SessionId, &ReplayedChange)| {
            let (request, _) = asked.came.get(&asked.next)?;
            Some((request.again.as_ref()?.place, *id))
        };
        let all: Option<Vec<(Place, SessionId)>> = self.asked.iter().map(place).collect();
        all?.into_iter().min().map(|(_, id)| id)
    }

    /// Any client whose next change has come, in no order.
    fn any(&self) -> Option<SessionId> {
        let came =
            |(_, asked): &(&SessionId, &ReplayedChange)| asked.came.contains_key(&asked.next);
        self.asked.iter().find(came).map(|(id, _)| *id)
    }
}

/// Do the names that a change takes away name what they named? An object may be missing, since its
/// maker was lost with the power, and somebody else's object have its name.
fn finds_the_same(disk: &dyn Disk, op: &Op, named: [Option<Fid>; 2]) -> bool {
    let finds = |dir, name| disk.lookup(dir, name).unwrap_or_default();
    match op {
        Op::Unlink { dir, name } | Op::Rmdir { dir, name } | Op::Unmount { dir, name } => {
            finds(*dir, name) == named[0]
        }
        Op::Rename {
            from,
            name,
            to,
            new,
            exchange,
            ..
        } => {
            let there = finds(*to, new);
            let free = *exchange || there == named[1] || there == named[0];
            finds(*from, name) == named[0] && free
        }
        _ => true,
    }
}

impl Server {
    /// A client says how many changes it asks for again.
    pub(crate) fn expect_again(&mut self, now: Time, id: SessionId, count: u32) {
        if count > 0 {
            let asked = self.redo.asked.entry(id).or_default();
            (asked.count, asked.moved) = (Some(count), now);
        }
    }

    /// A change that is asked for again comes, perhaps before its turn.
    pub(crate) fn on_again(
        &mut self,
        step: &mut Step<'_>,
        id: SessionId,
        (request, bulk): (Request, Bulk),
        again: Again,
    ) {
        let away = self
            .sessions
            .get(&id)
            .is_none_or(|session| session.away.is_some());
        let open = !away && (self.awaits(id) || self.redo.asked.contains_key(&id));
        if !open || matches!(request.op, Op::Reserve { .. }) {
            // Nothing was lost, or its client has said that this was all.
            step.discard(bulk);
            let reply = Reply::from(Outcome::Refused(Refusal::SessionLost));
            return self.answer(step, (id, &request), reply, 0);
        }
        let asked = self.redo.asked.entry(id).or_default();
        let expected = asked.next..asked.next.saturating_add(limits::AGAIN);
        if !expected.contains(&again.index) || asked.came.contains_key(&again.index) {
            return step.discard(bulk);
        }
        asked.came.insert(again.index, (request, bulk));
        asked.moved = step.now;
        self.redo(step);
    }

    /// Makes again what has its turn: some, and the others in later steps.
    pub(crate) fn redo(&mut self, step: &mut Step<'_>) {
        self.redo.due = false;
        let mut finished = false;
        for _ in 0..REPLAYED_PER_STEP_MAX {
            finished |= self.end_redone(step);
            if self.lacks_any() {
                break;
            }
            let arrival = self.options.mutant == Some(Mutant::RedoesAsItComes);
            let next = if arrival {
                self.redo.any()
            } else {
                self.redo.first()
            };
            let Some(id) = next else { break };
            self.redo_one(step, id);
        }
        finished |= self.end_redone(step);
        self.redo.due = !self.lacks_any() && self.redo.first().is_some();
        if finished {
            self.grace_if_complete(step);
        }
    }

    /// May somebody who has not said anything yet ask for what comes first?
    fn lacks_any(&self) -> bool {
        let arrival = self.options.mutant == Some(Mutant::RedoesAsItComes);
        self.lost_power() && self.anybody_missing() && !arrival
    }

    fn redo_one(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(asked) = self.redo.asked.get_mut(&id) else {
            return;
        };
        let came = asked.came.remove(&asked.next);
        (asked.next, asked.moved) = (asked.next + 1, step.now);
        if let Some((request, bulk)) = came {
            self.make_again(step, id, (request, bulk));
        }
    }

    /// Those that have asked for all are not waited for any more. Is there one?
    fn end_redone(&mut self, step: &mut Step<'_>) -> bool {
        let all = |(id, asked): (&SessionId, &ReplayedChange)| {
            (asked.count.is_some_and(|count| asked.next >= count)).then_some(*id)
        };
        let ended: Vec<SessionId> = self.redo.asked.iter().filter_map(all).collect();
        for id in &ended {
            self.forget_again(step, *id);
        }
        !ended.is_empty()
    }

    /// Nothing more is waited for of this client.
    pub(crate) fn forget_again(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(asked) = self.redo.asked.remove(&id) else {
            return;
        };
        for (_, bulk) in asked.came.into_values() {
            step.discard(bulk);
        }
        self.release_held(id);
    }

    fn make_again(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        (mut request, bulk): (Request, Bulk),
    ) {
        let Some(again) = request.again.as_deref().copied() else {
            return step.discard(bulk);
        };
        let forbidden = self.forbids(step.disk, session, &request);
        self.raise(step.disk, (session, false), &mut request);
        let waiting = Waiting::new((0, self.epoch), session, (request, bulk));
        if let Some(refusal) = forbidden {
            self.refuse(step, &waiting, refusal);
            return self.go_on_behind(step, session, waiting.request.id);
        }
        let (outcome, logged) = self.make(step, &waiting, again);
        let request = &waiting.request;
        if !matches!(outcome, Outcome::Refused(_)) {
            self.note_seen_later(step, session, request.id);
            self.tell_change(step, &waiting, &outcome);
        }
        let reply = Reply {
            logged,
            ..Reply::from(outcome)
        };
        self.answer(step, (session, request), reply, 0);
        self.go_on_behind(step, session, request.id);
    }

    /// Makes a change again: the outcome, and the change's place in the log; none if an earlier run
    /// has made it, of which all is left and stable.
    fn make(
        &mut self,
        step: &mut Step<'_>,
        waiting: &Waiting,
        again: Again,
    ) -> (Outcome, Option<Logged>) {
        let origin = Self::origin(waiting);
        let (op, bulk) = (&waiting.request.op, waiting.bulk);
        let kept = step.disk.answer(origin);
        // Without a failure nothing was lost, whatever its client believes.
        if let Some(outcome) = kept.or((!self.lost_power()).then_some(Outcome::Done)) {
            step.discard(bulk);
            return (outcome, None);
        }
        if !finds_the_same(&*step.disk, op, again.named) {
            step.discard(bulk);
            return (Outcome::Refused(Refusal::Stale), None);
        }
        self.hear_time_again(step, again.at);
        let at = again.at.min(self.stamp(step));
        let by = By {
            caller: &waiting.request.caller,
            origin: Some(origin),
            delegated: Some(again.chosen),
            again: true,
            // It had its room before.
            promised: None,
        };
        let outcome = step.disk.apply(at, op, by, bulk);
        step.discard(bulk);
        let record = step.disk.logged();
        (outcome, Some(Logged { record, at }))
    }

    /// A machine was lost together with the power, and with it changes that others may have seen:
    /// nobody keeps anything that may have been made of them, and nobody else is shown an object
    /// before its holders have given it up. Of a directory a kernel may have a name in hand:
    /// whoever changes one later asks for that.
    pub(crate) fn take_all_back(&mut self, step: &mut Step<'_>) {
        let mut held = Vec::new();
        for (fid, file) in &self.files {
            let kept = match kept_of(&*step.disk, *fid) {
                Ok(Right::Shared) => Right::Transient,
                _ => Right::None,
            };
            let holders = file.holders.iter();
            let holding = holders.filter(|(_, holder)| holder.right > kept);
            held.extend(holding.map(|(session, holder)| (*session, *fid, holder.epoch, kept)));
        }
        for (session, fid, epoch, kept) in held {
            if let Some(file) = self.files.get_mut(&fid) {
                file.holders.of(session).doubted = Some(kept);
            }
            let what = What::Keep(kept);
            let need = Need { session, fid, what };
            self.ask(step, need, (epoch, step.now), None);
        }
    }
}
