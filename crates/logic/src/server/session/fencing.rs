//! Leases: which of them go on, and what becomes of silent clients.
//!
//! When somebody waits for a client and its lease is over, the server takes from it what is wanted
//! (see `taking`); never before, since its machine uses what it holds as long as the lease runs. A
//! session that is there but leaves a question unanswered for longer than `recall_ns` is *stalled*:
//! nothing that it says renews its lease until it has answered. An answer after which the same
//! request must ask again is none: a client that gives nothing back, says less than it was asked
//! for or speaks of other epochs is as silent as one that says nothing. So every waiting request
//! goes on after `recall_ns` and a lease at most, and a fenced client has stopped by itself.
//!
//! A client that is asked for a file, or for room, writes back first what it has changed, and over
//! a slow network that takes longer. So each byte that comes earns it time, as much as it takes at
//! a rate that is far below what a network is good for.

use crate::server::Server;
use crate::server::mutant::Mutant;
use crate::server::room::ROOM_MOST;
use crate::server::table::Ask;
use crate::server::{Event, Output, Step};
use alloc::vec::Vec;
use wire::{Fid, SessionId, Time, ToClient, What};

/// So many leases goes a session on that holds nothing, and has no connection.
const IDLE_LEASES: Time = 10;

/// Bytes that come so fast, or faster, keep a question open: 256 KiB a second.
const NS_PER_BYTE: Time = 1_000_000_000 / (256 << 10);
/// As much as a client may have changed of a volume: no client earns more time for one question.
const EARNED_MOST_NS: Time = NS_PER_BYTE * ROOM_MOST.bytes;

/// Before every object.
const FIRST: Fid = Fid {
    volume: 0,
    vnode: 0,
    uniq: 0,
};

impl Server {
    /// Since when the question that has waited longest for its answer has been asked.
    pub fn oldest_question(&self) -> Option<Time> {
        let recalls = self.asked.iter().filter_map(|asked| self.recalled(*asked));
        let sessions = self.sessions.values();
        let confirms = sessions.flat_map(|session| session.confirm_asked.values());
        let locks = self.lock_delegations.asks().map(|(_, since, _)| since);
        let confirms = confirms.map(|asked| asked.since);
        recalls.chain(confirms).chain(locks).min()
    }

    /// Since when this session has been asked for something of this object that somebody may wait
    /// for, but for the time that it has earned: nobody ever waits for the answer to a question in
    /// passing.
    fn recalled(&self, (id, fid): (SessionId, Fid)) -> Option<Time> {
        let holder = self.files.get(&fid)?.holders.get(&id)?;
        let asks = holder.asks.iter();
        let waited_for = asks.filter(|ask| !matches!(ask.what, What::Listed | What::Unused));
        waited_for.map(|ask| ask.since + ask.earned).min()
    }

    /// A client has written back so much of a file: it may have been asked for it, or for room.
    /// Bytes that come faster than that earn nothing for a time in which none come.
    pub(crate) fn earn_time(&mut self, now: Time, (id, fid): (SessionId, Fid), bytes: u32) {
        for at in [fid, Fid::room(fid.volume)] {
            let file = self.files.get_mut(&at);
            let holder = file.and_then(|file| file.holders.get_mut(&id));
            for ask in holder.into_iter().flat_map(|holder| &mut holder.asks) {
                let earned = ask.earned + NS_PER_BYTE * u64::from(bytes);
                ask.earned = earned
                    .min(now.saturating_sub(ask.since))
                    .min(EARNED_MOST_NS);
            }
        }
    }

    /// Time that was earned is not counted when the same requests ask this client again.
    pub(crate) fn keep_earned(&mut self, at: (SessionId, Fid), answered: &[Ask]) {
        for ask in answered.iter().filter(|ask| ask.earned > 0) {
            for seq in &ask.waiters {
                let waiting = self.waiting.get_mut(seq);
                if let Some(since) = waiting.and_then(|waiting| waiting.asked.get_mut(&at)) {
                    *since += ask.earned;
                }
            }
        }
    }

    /// Does it leave a question unanswered for too long?
    fn leaves_unanswered(&self, now: Time, id: SessionId) -> bool {
        let late = |since: Time| now > since + self.options.recall_ns;
        let own = self.asked.range((id, FIRST)..);
        let own = own.take_while(|(session, _)| *session == id);
        let confirms = self.sessions.get(&id).map(|s| s.confirm_asked.values());
        let mut locks = self.lock_delegations.asks();
        own.filter_map(|asked| self.recalled(*asked)).any(late)
            || locks.any(|(session, since, _)| session == id && late(since))
            || confirms.is_some_and(|mut all| all.any(|asked| late(asked.since)))
    }

    /// The objects of which this session has been asked for something that somebody waits for.
    pub(crate) fn asked_of(&self, id: SessionId) -> Vec<Fid> {
        let own = self.asked.range((id, FIRST)..);
        let own = own.take_while(|(session, _)| *session == id);
        let waited_for = own.filter(|asked| self.recalled(**asked).is_some());
        waited_for.map(|(_, fid)| *fid).collect()
    }

    /// Sessions that somebody waits for.
    fn waited_for(&self) -> Vec<SessionId> {
        let confirms = |session: &&crate::server::table::Session| !session.confirm_asked.is_empty();
        let asked = self
            .asked
            .iter()
            .filter(|asked| self.recalled(**asked).is_some());
        let mut ids: Vec<SessionId> = asked.map(|(id, _)| *id).collect();
        let sessions = self.sessions.iter();
        ids.extend(sessions.filter(|(_, s)| confirms(s)).map(|(id, _)| *id));
        ids.extend(self.locks.waited_for());
        ids.extend(self.lock_delegations.asks().map(|(id, _, _)| id));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Notes who is stalled, and takes what is wanted from those whose lease is over.
    pub(crate) fn fence_silent(&mut self, step: &mut Step<'_>) {
        for id in self.waited_for() {
            let stalled = self.leaves_unanswered(step.now, id);
            let at_once = stalled && self.options.mutant == Some(Mutant::FencesAtOnce);
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.stalled = stalled;
            if at_once || step.now > session.heard + self.options.lease_ns {
                self.take_wanted(step, id);
            }
        }
    }

    /// It has said something, which renews its lease unless it is stalled. True if it does.
    pub(crate) fn hear(&mut self, now: Time, id: SessionId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else {
            return false;
        };
        if session.counts() {
            session.heard = now;
        }
        session.counts()
    }

    /// Has it answered what it was asked for too long ago? Then it is welcome again.
    pub(crate) fn revive(&mut self, step: &mut Step<'_>, id: SessionId) {
        let stalled = self
            .sessions
            .get(&id)
            .is_some_and(|session| session.stalled);
        if !stalled || self.leaves_unanswered(step.now, id) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        (session.stalled, session.heard) = (false, step.now);
        if core::mem::take(&mut session.unwelcome) {
            self.welcome(step, id, true);
        }
    }

    /// How long a session without a connection that holds nothing goes on.
    pub(crate) fn idle_ns(&self) -> Time {
        IDLE_LEASES * self.options.lease_ns
    }

    /// Ends sessions of machines that have not been heard of for a long time: soon, if they hold
    /// nothing, else after `silent_ns`, though nobody wants what they hold.
    pub(crate) fn tick_silent(&mut self, step: &mut Step<'_>) {
        while let Some(&(due, id)) = self.silent.first()
            && due <= step.now
        {
            self.silent.pop_first();
            let Some(session) = self.sessions.get(&id) else {
                continue;
            };
            // It is looked at again when its next connection has ended.
            if session.conn.is_some() || self.grace.lasts() {
                continue;
            }
            let nothing = session.fids.is_empty() && session.answers.is_empty();
            let nothing = nothing && session.running.is_empty() && self.locks.of(id) == 0;
            let nothing = nothing && session.away.is_none();
            let idle_until = session.heard + self.idle_ns();
            let until = session.heard.saturating_add(self.options.silent_ns);
            if step.now >= until {
                self.fence(step, id);
            } else if nothing && step.now >= idle_until {
                step.out.push(Output::Event(Event::Closed { session: id }));
                self.end_session(step, id);
            } else {
                let more = self.bound_silent(step);
                self.silent
                    .insert((if more { step.now + 1 } else { until }, id));
            }
        }
    }

    pub(crate) fn fence(&mut self, step: &mut Step<'_>, id: SessionId) {
        self.send(step, id, ToClient::Lost);
        step.out.push(Output::Event(Event::Fenced { session: id }));
        if let Some(conn) = self.sessions.get(&id).and_then(|session| session.conn) {
            self.conns.remove(&conn);
            step.out.push(Output::Close {
                conn,
                violation: None,
            });
        }
        self.end_session(step, id);
        // Others are given now what it held: the session may not come back after a power failure,
        // and its answered changes are not lost with one.
        step.disk.make_firm();
    }
}
