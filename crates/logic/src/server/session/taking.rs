//! Taking from a silent client: the tokens that somebody wants, and nothing else.
//!
//! When a client's lease is over, its machine uses nothing of what it holds. A request that waits
//! for something of it gets that: a token, a lock, a change that is not confirmed. The session
//! lives on with all the rest, with its answers, so that each of its requests is still done once,
//! and with what it may have open, so that no nameless object goes.
//!
//! From then on the session is *away*, in a *term* of its own: nothing that the client says renews
//! its lease before it has said in that term what it holds, part by part, and has heard what of
//! that it does not hold any more. If more is taken meanwhile, another term begins. So a client
//! never uses what was taken from it, however late which message comes. It tells the server its
//! changes under such a token by other means: see `salvage`, and the client's `stranded`.
//!
//! The disk remembers that a session is away, in the order of its log: its claims in a later run of
//! the server, which does not know what was taken, count for nothing.

use crate::server::api::{Event, Output};
use crate::server::table::Session;
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Fid, HeldLock, Holding, LockOwner, RequestId, Right, SessionId, Time};

/// Most tokens that are taken in one step though nobody wants them.
const TAKEN_PER_STEP_MAX: usize = 4096;

/// A session that is away: its files that may be open, and the locks that it has lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Away {
    /// `None`: anything, since an earlier run of the server took it; until it has come, or the time
    /// after the restart is over.
    open: Option<BTreeSet<Fid>>,
    /// Files of which it has lost locks, or the right to decide about them.
    unlocked: BTreeSet<Fid>,
    /// It has greeted since: once that gives it a lease to say what it holds.
    greeted: bool,
}

impl Server {
    /// These sessions were away when the last run of the server ended: nobody waits for them, and
    /// their claims of what they hold count for nothing.
    #[must_use]
    pub fn without(mut self, away: &[SessionId]) -> Self {
        for id in away {
            if let Some(session) = self.sessions.get_mut(id) {
                session.away = Some(Away::default());
                self.grace.not_missing(*id);
                self.silent
                    .insert((session.heard + self.options.silent_ns, *id));
            }
        }
        self
    }

    /// Takes from a silent client what others wait for.
    pub(crate) fn take_wanted(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.stalled
        {
            session.unanswered.extend(session.confirm_asked.keys());
        }
        self.go_away(step, id, false);
        for fid in self.asked_of(id) {
            self.take_token(step, (id, fid));
        }
        let session = self.sessions.get(&id);
        let asked = session.map(|session| session.confirm_asked.keys().copied());
        let asked: Vec<RequestId> = asked.into_iter().flatten().collect();
        if !asked.is_empty() {
            // Its kernel shows nothing any more.
            self.confirm_all(step, id, asked);
        }
        let mut locked = self.locks.wanted_of(id);
        locked.extend(self.lock_delegations.asked_of(id));
        for fid in locked {
            self.take_locks(step, id, fid);
        }
    }

    /// Takes what else others wait for of the clients from which something was taken in this step.
    /// The greeting of such a client gives it another lease, and questions from before would wait
    /// for that one, too.
    pub(crate) fn take_rest(&mut self, step: &mut Step<'_>) {
        while let Some(id) = self.taken_from.pop_first() {
            self.take_wanted(step, id);
        }
    }

    /// Takes all that a client has said to hold in the time after a restart: not all of it came, or
    /// it cannot be.
    pub(crate) fn take_all(&mut self, step: &mut Step<'_>, id: SessionId) {
        self.go_away(step, id, true);
        let session = self.sessions.get(&id);
        let fids = session
            .map(|session| session.fids.clone())
            .unwrap_or_default();
        for fid in fids {
            self.take_token(step, (id, fid));
        }
        for fid in self.locks.held_by(id) {
            self.take_locks(step, id, fid);
        }
    }

    /// Takes tokens of the clients that have been silent longest, if more is kept for silent ones
    /// than may be. (They lose no change by that, and no lock.) True: there is more of it.
    pub(crate) fn bound_silent(&mut self, step: &mut Step<'_>) -> bool {
        let (now, lease_ns) = (step.now, self.options.lease_ns);
        let silent = |s: &&Session| s.conn.is_none() && now > s.heard + lease_ns;
        let kept = self.sessions.values().filter(silent);
        let kept: usize = kept.map(|session| session.fids.len()).sum();
        let over = kept.saturating_sub(self.options.silent_tokens);
        if over == 0 {
            return false;
        }
        let sessions = self.sessions.iter().filter(|(_, s)| silent(s));
        let mut sessions: Vec<(Time, SessionId)> = sessions.map(|(id, s)| (s.heard, *id)).collect();
        sessions.sort_unstable();
        let mut left = over.min(TAKEN_PER_STEP_MAX);
        for (_, id) in sessions {
            let all = self.sessions.get(&id).map(|session| session.fids.iter());
            let held = all.into_iter().flatten().filter(|fid| {
                let holder = self.holder(id, **fid);
                holder.is_some_and(|holder| holder.right > Right::None)
            });
            let fids: Vec<Fid> = held.take(left).copied().collect();
            if !fids.is_empty() {
                self.go_away(step, id, false);
                self.taken_from.insert(id);
            }
            left -= fids.len();
            for fid in fids {
                self.take_token(step, (id, fid));
            }
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// As [`Self::take_locks`], before it is the turn of the silent client's other things.
    pub(crate) fn take_locks_first(&mut self, step: &mut Step<'_>, id: SessionId, fid: Fid) {
        self.take_locks(step, id, fid);
        self.taken_from.insert(id);
    }

    /// Takes what a silent client has locked of a file, since it is in somebody's way.
    pub(crate) fn take_locks(&mut self, step: &mut Step<'_>, id: SessionId, fid: Fid) {
        self.go_away(step, id, false);
        if let Some(away) = self.sessions.get_mut(&id).and_then(|s| s.away.as_mut()) {
            away.unlocked.insert(fid);
        }
        step.out
            .push(Output::Event(Event::Unlocked { session: id, fid }));
        self.locks.free(fid, id);
        if self.lock_delegations.is_of(fid, id) {
            self.end_delegation(step, fid);
        } else {
            self.go_on_locking(step, fid, (id, LockOwner::Whole(0)));
        }
    }

    /// Nothing is waited for of this client, and nothing that it has said, or says now, counts
    /// before it has said in a new term what it holds.
    fn go_away(&mut self, step: &mut Step<'_>, id: SessionId, all: bool) {
        self.epoch += 1;
        let term = self.epoch;
        let silent_ns = self.options.silent_ns;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let heard = session.away.is_some() && session.conn.is_none() && session.parts.is_empty();
        if heard {
            return; // it has not said anything since
        }
        (session.term, session.reasserted, session.stalled) = (term, false, false);
        (session.unwelcome, session.refused) = (false, false);
        session.parts.clear();
        session.taken.clear();
        session.unlocked.clear();
        let first = session.away.is_none();
        let away = session.away.get_or_insert_with(|| Away {
            open: Some(BTreeSet::new()),
            ..Away::default()
        });
        away.greeted &= !first;
        if let Some(conn) = session.conn.take() {
            self.conns.remove(&conn);
            let violation = None;
            step.out.push(Output::Close { conn, violation });
        }
        self.silent.insert((step.now.saturating_add(silent_ns), id));
        self.forget_waiting_of(step, id);
        if first {
            step.out
                .push(Output::Event(Event::Away { session: id, all }));
            // Others are given now what it held. So the next run must know that it is away, and the
            // client's answered changes may not be lost with the power, since nobody would ask for
            // them in time.
            step.disk.note_away(id, true);
            step.disk.make_firm();
        }
    }

    /// Its requests wait no more; it repeats them when it comes back.
    fn forget_waiting_of(&mut self, step: &mut Step<'_>, id: SessionId) {
        let waiting = self.waiting.iter();
        let own = waiting.filter(|(_, waiting)| waiting.session == id);
        let own: Vec<_> = own
            .map(|(seq, waiting)| (*seq, waiting.request.id))
            .collect();
        // None of them is to be done in place of another one that goes before it.
        let mut touched = BTreeSet::new();
        for (seq, request) in own {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.running.remove(&request);
            }
            touched.extend(self.drop_waiting(step, seq));
        }
        for fid in touched {
            self.recheck(step, fid, (id, None));
        }
    }

    /// Somebody else is to have this.
    fn take_token(&mut self, step: &mut Step<'_>, (id, fid): (SessionId, Fid)) {
        let Some(holder) = self
            .files
            .get_mut(&fid)
            .and_then(|file| file.holders.get_mut(&id))
        else {
            return;
        };
        let open = holder.may_be_open();
        let asks = core::mem::take(&mut holder.asks);
        (holder.right, holder.known) = (Right::None, true);
        holder.doubted = None;
        (holder.hold.open, holder.hold.write) = (false, false);
        self.held.push((id, fid));
        if let Some(away) = self.sessions.get_mut(&id).and_then(|s| s.away.as_mut())
            && open
            && let Some(all) = &mut away.open
        {
            all.insert(fid);
        }
        step.out
            .push(Output::Event(Event::Taken { session: id, fid }));
        self.unshow(id, fid, u64::MAX);
        let waiters = asks.iter().flat_map(|ask| ask.waiters.iter().copied());
        let waiters: BTreeSet<_> = waiters.collect();
        self.forget_look(fid);
        self.write_off(&asks);
        self.look_again(step, (id, fid), waiters);
        self.recheck(step, fid, (id, None));
    }

    /// Has something been taken from it that it has not heard of? It locks nothing until then:
    /// locks that it is told to have lost would be mixed up with those that it is given.
    pub(crate) fn is_away(&self, id: SessionId) -> bool {
        let session = self.sessions.get(&id);
        session.is_some_and(|session| session.away.is_some())
    }

    /// A session that is away and may have this open.
    fn opener_away(&self, fid: Fid) -> Option<SessionId> {
        let opens = |away: &Away| {
            let open = away.open.as_ref();
            open.is_none_or(|open| open.contains(&fid))
        };
        let mut sessions = self.sessions.iter();
        let found = sessions.find(|(_, session)| session.away.as_ref().is_some_and(opens));
        found.map(|(id, _)| *id)
    }

    /// Does a session that is away keep a nameless object, which would go otherwise? The object is
    /// looked at again when that session is away no more.
    pub(crate) fn is_kept_away(&mut self, fid: Fid) -> bool {
        let opener = self.opener_away(fid);
        if let Some(id) = opener {
            self.kept_away.entry(id).or_default().insert(fid);
        }
        opener.is_some()
    }

    /// The time after a restart is over: a session that has not come keeps no removed file any
    /// more by what it may have open, or one machine that stays away would keep all that anybody
    /// removes.
    pub(crate) fn forget_open_before(&mut self) {
        for session in self.sessions.values_mut() {
            if let Some(away) = &mut session.away {
                away.open.get_or_insert_default();
            }
        }
        // The caller looks at all nameless objects.
        self.kept_away.clear();
    }

    /// The objects that a client claims to hold, in this part of its list, and does not hold.
    pub(crate) fn not_held(
        &mut self,
        step: &Step<'_>,
        id: SessionId,
        holdings: &[Holding],
    ) -> Vec<Fid> {
        let mut taken = Vec::new();
        let session = self.sessions.get(&id);
        let term = session.map_or(self.boot, |session| session.term);
        let away = term != self.boot || self.is_away(id);
        for holding in holdings {
            let holder = self.holder(id, holding.fid);
            // A grant of this term is another one than the client means.
            let holder = holder.filter(|holder| !away || holder.epoch <= term);
            let held = holder.map_or(Right::None, |holder| holder.right);
            if held < holding.right {
                taken.push(holding.fid);
            }
            let may = !self.claims_too_much(&*step.disk, id, holding);
            if holding.hold.open && may && step.disk.attr(holding.fid) != Ok(None) {
                self.declare(id, holding.fid, holding.hold);
            }
        }
        taken
    }

    /// Of which files it has lost locks, when it says for the first time which ones it holds. A
    /// repetition is answered with the same: meanwhile it may have given up some of them by itself,
    /// and got others.
    pub(crate) fn note_unlocked(&mut self, id: SessionId, locks: &[HeldLock]) {
        let lost = |held: &&HeldLock| {
            let owner = (id, held.lock.owner);
            let decides = self.lock_delegations.is_of(held.fid, id);
            !decides && !self.locks.holds(held.fid, owner, &held.lock)
        };
        // One that does not lie never says more.
        let told = self.sessions.get(&id).map_or(0, |s| s.unlocked.len());
        let most = (2 * self.options.locks).saturating_sub(told);
        let lost = locks.iter().filter(lost).map(|held| held.fid);
        let mut unlocked: BTreeSet<Fid> = lost.take(most).collect();
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let away = session.away.iter().flat_map(|away| &away.unlocked);
        unlocked.extend(away.copied());
        for fid in &unlocked {
            self.locks.free(*fid, id);
        }
        session.unlocked.append(&mut unlocked);
    }

    /// It has said all that it holds, and is told what of that is not so: it is as any other again.
    pub(crate) fn come_back(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.away.take().is_none() {
            return;
        }
        session.heard = step.now;
        step.out.push(Output::Event(Event::Back { session: id }));
        step.disk.note_away(id, false);
        // Else a power failure would let others' changes be made again without it.
        step.disk.make_firm();
        self.reap_kept(step, id);
    }

    /// A client is asked for something: if it is away, the server takes that soon.
    pub(crate) fn hurry(&mut self, now: Time, id: SessionId) {
        let lease_ns = self.options.lease_ns;
        let session = self.sessions.get(&id);
        let session = session.filter(|session| session.away.is_some());
        if session.is_some_and(|session| now > session.heard + lease_ns) {
            self.next_tick = Some(now);
        }
    }

    /// Looks again at the nameless objects that this session kept while it was away, and at no
    /// others: they go, unless somebody else has them open. Another one that is away may keep them.
    pub(crate) fn reap_kept(&mut self, step: &mut Step<'_>, id: SessionId) {
        for fid in self.kept_away.remove(&id).unwrap_or_default() {
            self.cost.look();
            self.reap_if_unused(step, fid);
            self.forget_quiet(fid);
        }
    }
}

impl Session {
    /// Its greeting has come. True if that is a sign of life that others wait for.
    pub(crate) fn is_greeted(&mut self) -> bool {
        match &mut self.away {
            Some(away) => !core::mem::replace(&mut away.greeted, true),
            None => !self.stalled,
        }
    }

    /// Does what it says renew its lease?
    pub(crate) fn counts(&self) -> bool {
        !self.stalled && self.away.is_none()
    }
}
