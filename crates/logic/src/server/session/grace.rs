//! After a restart: the time in which clients say what they hold.
//!
//! Guarantees: nothing is done, and nothing granted, that is in the way of what a client may hold
//! that has not said so yet. The disk knows what each may hold, if the last run could note that;
//! then only requests about such objects wait, and all others are served at once. If the disk does
//! not know, every request waits for every client; but not one that looks at a replica, of which
//! nobody can hold what is in its way. The time ends when all have come, or after
//! `grace_ns`: then those that have not come are away (see `taking`), but not one whose parts still
//! arrive. A client that comes may also have to ask again for changes that a power failure has
//! undone: nothing else is done before these are, see `redo`. The requests that wait are bounded:
//! one that finds no room is forgotten, and its client, whose connection is ended later, sends it
//! again.

use crate::server::api::{Bulk, Event, Output};
use crate::server::mutant::Mutant;
use crate::server::requests::plan::Plan;
use crate::server::watch::queues::Key;
use crate::server::{Server, Step};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, Op, Origin, Outcome, Request, RequestId, Right, SessionId, Time, Unseen};

/// Most requests that wait for clients to come back, and most of those with bytes beside them.
const HELD_REQUESTS_MAX: usize = 65_536;
const HELD_BULKS_MAX: usize = 256;
/// Most requests that are begun in one step when they need not wait any more.
const BEGUN_PER_STEP_MAX: usize = 256;
/// While its parts arrive a client is waited for so many times as long as another one.
const ARRIVING_WAIT_FACTOR: Time = 30;

/// A request that waits.
type HeldRequest = (SessionId, Request, Bulk);

/// The wait for clients after a restart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grace {
    /// When it began, and until when clients may come; `None`: it is over.
    began: Time,
    until: Option<Time>,
    /// Those that have not said all that they hold.
    missing: BTreeSet<SessionId>,
    /// The most that these may hold of each object; `None`: anything of all.
    doubts: Option<BTreeMap<Fid, Vec<(SessionId, Right)>>>,
    /// The same objects, by client.
    doubtful: BTreeMap<SessionId, Vec<Fid>>,
    /// Requests, each by one client that it waits for.
    held: BTreeMap<SessionId, Vec<HeldRequest>>,
    /// How many these are, and how many of them have bytes beside them.
    count: usize,
    bulks: usize,
    /// Requests that need not wait any more.
    ready: VecDeque<HeldRequest>,
    /// Clients of which requests found no room.
    forgotten: BTreeSet<SessionId>,
    /// It is over, but not all that it ends with has been done; and the nameless objects that are
    /// looked at then.
    ending: bool,
    orphans: Vec<Fid>,
    /// Changes that their machines may not show yet, and that are to be made again first.
    unseen: BTreeMap<(SessionId, RequestId), Unseen>,
    /// Watches that begin as soon as all lost changes have been made again.
    watches: Vec<(Key, (Fid, bool), u64)>,
    /// A client is gone that may have had something to ask for again: it was fenced, or its process
    /// was killed.
    lost: bool,
}

impl Grace {
    /// Was a machine lost together with the power, and with it changes that others may have seen?
    pub(crate) fn lost_changes(&self) -> bool {
        self.lost
    }

    /// It begins now; without anybody to wait for the first input ends it.
    pub(crate) fn new(now: Time, grace_ns: Time, known: &[SessionId]) -> Self {
        let grace_ns = if known.is_empty() { 0 } else { grace_ns };
        Self {
            began: now,
            until: Some(now + grace_ns),
            missing: known.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Does the server wait for clients of its last run?
    pub(crate) fn lasts(&self) -> bool {
        self.until.is_some()
    }

    /// This client is not waited for, though the last run knew it.
    pub(crate) fn not_missing(&mut self, id: SessionId) {
        self.missing.remove(&id);
        self.doubtful.remove(&id);
        for of in self.doubts.iter_mut().flat_map(BTreeMap::values_mut) {
            of.retain(|(session, _)| *session != id);
        }
    }

    /// Is its time over?
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// Has something to be done now?
    pub(crate) fn due(&self) -> Option<Time> {
        (!self.ready.is_empty() || self.ending).then_some(0)
    }

    /// A client wants to watch this, when all is there again.
    pub(crate) fn put_off_watch(&mut self, key: Key, what: (Fid, bool), next: u64) {
        self.watches.retain(|(of, ..)| *of != key);
        if self.watches.len() < HELD_REQUESTS_MAX {
            self.watches.push((key, what, next));
        }
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.count + self.ready.len()
    }

    /// The most that a client may hold of an object which has not come; and which client.
    fn doubt(&self, fid: Fid, but: SessionId) -> Option<(SessionId, Right)> {
        let doubts = self.doubts.as_ref()?.get(&fid)?.iter();
        let missing = |(id, _): &&(SessionId, Right)| *id != but && self.missing.contains(id);
        doubts
            .filter(missing)
            .max_by_key(|(_, right)| *right)
            .copied()
    }
}

impl Server {
    /// Takes over what the disk knows of what the sessions of the last run may hold.
    #[must_use]
    pub fn knowing(mut self, held: Option<Vec<(SessionId, Fid, Right)>>) -> Self {
        let grace = &mut self.grace;
        grace.doubts = held.is_some().then(BTreeMap::new);
        for (session, fid, right) in held.into_iter().flatten() {
            if !grace.missing.contains(&session) || right == Right::None {
                continue;
            }
            self.rooms.may_be_had(fid);
            if let Some(doubts) = &mut grace.doubts {
                doubts.entry(fid).or_default().push((session, right));
                grace.doubtful.entry(session).or_default().push(fid);
            }
        }
        self
    }

    /// May a client that has not come back hold so much of this that nobody else may be granted
    /// this right?
    pub(crate) fn doubted(&self, fid: Fid, session: SessionId, right: Right) -> bool {
        let most = if right == Right::Exclusive {
            Right::None
        } else {
            Right::Shared
        };
        let doubt = self.grace.doubt(fid, session);
        doubt.is_some_and(|(_, held)| held > most)
    }

    /// How many clients that have not come back may hold something of this.
    pub(crate) fn missing_at(&self, fid: Fid) -> usize {
        let doubts = self
            .grace
            .doubts
            .as_ref()
            .and_then(|doubts| doubts.get(&fid));
        let missing = |(session, _): &&(SessionId, Right)| self.grace.missing.contains(session);
        doubts.map_or(0, |doubts| doubts.iter().filter(missing).count())
    }

    /// A client for which a request must wait: it has not come back, and may hold what is in the
    /// way. A client that has not said itself what it holds waits until it has.
    pub(crate) fn in_doubt(
        &self,
        (session, op): (SessionId, &Op),
        plan: &Plan,
    ) -> Option<SessionId> {
        let grace = &self.grace;
        if grace.missing.contains(&session) {
            return Some(session);
        }
        let early = self.options.mutant == Some(Mutant::ServesBeforeRedone);
        if let Some(unfinished) = self.redo.unfinished().filter(|_| !early) {
            return Some(unfinished);
        }
        let first = *grace.missing.first()?;
        if self.options.mutant == Some(Mutant::ServesAtOnce) {
            return None;
        }
        if plan.withdraws {
            return Some(first);
        }
        if grace.doubts.is_none() {
            return (!self.reads_replica((session, op), plan)).then_some(first);
        }
        plan.fids().into_iter().find_map(|fid| {
            let (missing, held) = grace.doubt(fid, session)?;
            (held == Right::Exclusive || plan.disturbs(fid)).then_some(missing)
        })
    }

    /// A client for which a request about locks must wait: nobody knows what is locked.
    pub(crate) fn locks_in_doubt(&self) -> Option<SessionId> {
        let unfinished = self.redo.unfinished();
        self.grace.missing.first().copied().or(unfinished)
    }

    /// Has the machine of the last run failed, as far as is known, and with it what was not stable?
    pub(crate) fn lost_power(&self) -> bool {
        self.grace.lasts() && self.grace.doubts.is_none()
    }

    /// May there be changes that were lost, and have not been made again?
    pub(crate) fn may_lack_changes(&self) -> bool {
        let unsaid = self.lost_power() && self.anybody_missing();
        unsaid || self.redo.unfinished().is_some()
    }

    pub(crate) fn anybody_missing(&self) -> bool {
        !self.grace.missing.is_empty()
    }

    /// Lets a request wait for this client.
    pub(crate) fn hold(
        &mut self,
        step: &mut Step<'_>,
        missing: SessionId,
        (session, request, bulk): HeldRequest,
    ) {
        let grace = &mut self.grace;
        let full = grace.count >= HELD_REQUESTS_MAX || (bulk != 0 && grace.bulks >= HELD_BULKS_MAX);
        if full {
            grace.forgotten.insert(session);
            if let Some(state) = self.sessions.get_mut(&session) {
                state.running.remove(&request.id);
            }
            return step.discard(bulk);
        }
        grace.count += 1;
        grace.bulks += usize::from(bulk != 0);
        let held = grace.held.entry(missing).or_default();
        held.push((session, request, bulk));
    }

    /// Somebody waits no more for this request, which waits. Did it?
    pub(crate) fn drop_held(&mut self, session: SessionId, request: RequestId) -> bool {
        let is = |held: &HeldRequest| held.0 == session && held.1.id == request;
        let before = self.grace.waiting();
        for held in self.grace.held.values_mut() {
            let all = held.len();
            held.retain(|held| !is(held));
            self.grace.count -= all - held.len();
        }
        self.grace.ready.retain(|held| !is(held));
        self.grace.waiting() < before
    }

    /// This client is not waited for any more: it has come, or its session is over.
    pub(super) fn no_longer_missing(&mut self, step: &mut Step<'_>, id: SessionId) {
        if !self.grace.missing.remove(&id) {
            return;
        }
        self.release_held(id);
        self.redo(step);
        self.grace_if_complete(step);
    }

    /// A client that was away knows what has been taken: the requests that it has sent meanwhile
    /// are done.
    pub(super) fn go_on_back(&mut self, step: &mut Step<'_>, id: SessionId) {
        if self.is_away(id) {
            return;
        }
        if !self.grace.lasts() && self.grace.forgotten.remove(&id) {
            self.hang_up(step, id);
        }
        self.go_on_waiting(step, id);
        self.release_held(id);
        self.begin_ready(step);
    }

    /// Requests that waited for this client need not wait for it any more.
    pub(crate) fn release_held(&mut self, id: SessionId) {
        let held = self.grace.held.remove(&id).unwrap_or_default();
        self.grace.count -= held.len();
        self.grace.bulks -= held.iter().filter(|(_, _, bulk)| *bulk != 0).count();
        self.grace.ready.extend(held);
    }

    /// Begins requests that need not wait any more: some, and the others in later steps.
    pub(crate) fn begin_ready(&mut self, step: &mut Step<'_>) {
        if !self.may_lack_changes() {
            for (key, what, next) in core::mem::take(&mut self.grace.watches) {
                if self.sessions.contains_key(&key.0) {
                    self.on_watch(step, key, what, next);
                }
            }
        }
        for _ in 0..BEGUN_PER_STEP_MAX {
            let Some((session, request, bulk)) = self.grace.ready.pop_front() else {
                break;
            };
            self.begin(step, session, request, bulk);
        }
        if self.grace.ready.is_empty() && core::mem::take(&mut self.grace.ending) {
            self.reap_orphans(step);
        }
    }

    /// It has said what it holds: of all else that the disk knew, it holds nothing any more.
    pub(super) fn forget_doubts(&mut self, id: SessionId) {
        for fid in self.grace.doubtful.remove(&id).unwrap_or_default() {
            let doubts = self.grace.doubts.as_mut();
            let Some(of) = doubts.and_then(|doubts| doubts.get_mut(&fid)) else {
                continue;
            };
            let Some(at) = of.iter().position(|(session, _)| *session == id) else {
                continue;
            };
            let (_, right) = of.swap_remove(at);
            let file = self.files.entry(fid).or_default();
            file.holders.of(id).noted = right;
            if let Some(session) = self.sessions.get_mut(&id) {
                session.fids.insert(fid);
            }
            self.held.push((id, fid));
        }
    }

    /// A change that the last run has applied if the store knows its answer: others are not shown
    /// it before the caller has been answered.
    pub(super) fn note_unseen(&mut self, step: &mut Step<'_>, session: SessionId, change: Unseen) {
        let Unseen {
            request,
            names,
            fids,
        } = change;
        let named = match step.disk.answer(Origin { session, request }) {
            None => {
                let change = Unseen {
                    request,
                    names,
                    fids,
                };
                self.grace.unseen.insert((session, request), change);
                return;
            }
            Some(Outcome::Refused(_)) => return,
            Some(Outcome::Removed { fid, .. }) => vec![fid],
            Some(Outcome::Renamed { fid, victim, .. }) => {
                let victim = victim.map(|(fid, _)| fid);
                victim.into_iter().chain([fid]).collect()
            }
            Some(_) => vec![],
        };
        for (dir, name) in names {
            self.unconfirm((session, request), dir, Some(name));
        }
        for fid in fids.into_iter().chain(named) {
            self.unconfirm((session, request), fid, None);
        }
    }

    /// This change has been made again.
    pub(crate) fn note_seen_later(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        request: RequestId,
    ) {
        if let Some(change) = self.grace.unseen.remove(&(session, request)) {
            self.note_unseen(step, session, change);
        }
    }

    pub(crate) fn grace_if_complete(&mut self, step: &mut Step<'_>) {
        let all = self.grace.missing.is_empty() && self.redo.unfinished().is_none();
        if self.grace.lasts() && all {
            self.end_grace(step);
        } else {
            self.begin_ready(step);
        }
    }

    /// The time of grace is over: a client that has not come is away, unless it is still saying
    /// what it holds.
    pub(crate) fn on_grace_due(&mut self, step: &mut Step<'_>) {
        let last = self.grace.began + ARRIVING_WAIT_FACTOR * self.options.grace_ns;
        let lease_ns = self.options.lease_ns;
        let until = |id: &SessionId| {
            let session = self.sessions.get(id)?;
            let talks = session.conn.is_some() && !session.parts.is_empty() && !session.refused;
            let until = (session.came + lease_ns).min(last);
            (talks && until > step.now).then_some(until)
        };
        let missing = self.grace.missing.iter();
        let (talking, mut late): (Vec<SessionId>, Vec<SessionId>) =
            missing.copied().partition(|id| until(id).is_some());
        let mut next: Vec<Time> = talking.iter().filter_map(until).collect();
        for (id, moved) in self.redo.waited_for() {
            match (moved + lease_ns).min(last) {
                until if until > step.now => next.push(until),
                _ => late.push(id),
            }
        }
        if next.is_empty() && self.redo.unfinished().is_some() {
            next.push(step.now + lease_ns); // it waits for nobody but the next step
        }
        self.grace.until = next.into_iter().min();
        self.grace.lost |= !late.is_empty() && self.grace.doubts.is_none();
        for id in late {
            self.take_all(step, id);
            self.end_in_grace(step, id);
        }
        if self.grace.lasts() {
            self.grace_if_complete(step);
        } else {
            self.end_grace(step);
        }
    }

    fn end_grace(&mut self, step: &mut Step<'_>) {
        if core::mem::replace(&mut self.grace.ending, true) {
            return;
        }
        self.grace.until = None;
        self.grace.doubts = None;
        self.grace.doubtful.clear();
        self.grace.unseen.clear();
        self.forget_open_before();
        step.out.push(Output::Event(Event::GraceOver));
        for fid in step.disk.orphans() {
            self.files.entry(fid).or_default().orphan = Some(step.now);
            self.grace.orphans.push(fid);
        }
        for id in core::mem::take(&mut self.grace.forgotten) {
            // It says again on its next connection what found no room.
            self.hang_up(step, id);
        }
        if self.grace.lost {
            self.take_all_back(step);
        }
        // One of the requests that begin here may be of the client that made such a nameless
        // object, and has not been answered yet. A request that was held behind one of these may be
        // about one that has not begun yet: it finds that in `ready`.
        self.begin_ready(step);
    }

    fn reap_orphans(&mut self, step: &mut Step<'_>) {
        for fid in core::mem::take(&mut self.grace.orphans) {
            self.reap_if_unused(step, fid);
            self.forget_quiet(fid);
        }
    }

    /// A session is over.
    pub(crate) fn end_in_grace(&mut self, step: &mut Step<'_>, id: SessionId) {
        let owes = self.grace.missing.contains(&id) || self.redo.is_unfinished(id);
        self.grace.lost |= self.lost_power() && owes;
        self.grace.forgotten.remove(&id);
        self.forget_again(step, id);
        self.release_held(id);
        self.no_longer_missing(step, id);
        self.redo(step);
        if self.grace.lasts() {
            self.grace_if_complete(step);
        }
    }

    /// Ends a connection, without any blame: the client makes another one.
    fn hang_up(&mut self, step: &mut Step<'_>, id: SessionId) {
        let session = self.sessions.get_mut(&id);
        if let Some(conn) = session.and_then(|session| session.conn.take()) {
            self.conns.remove(&conn);
            step.out.push(Output::Close {
                conn,
                violation: None,
            });
        }
    }
}
