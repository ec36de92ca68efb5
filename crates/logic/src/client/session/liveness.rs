//! Is the server there? When it is asked for a word, when a connection is given up on which none
//! comes, and what the server wants to be asked again.
//!
//! Guarantees: a connection lives only as long as the server is heard on it. `KeepAlive` is
//! answered at once, whatever else the server does. So while anything is asked that is not
//! answered, silence is broken by one after a sixteenth of the lease; and when that brings nothing
//! for three sixteenths more, the connection is given up and another one is made. On a connection
//! that lives nothing is said twice: TCP loses nothing of it.

use super::LinkState;
use crate::client::api::Output;
use crate::client::{Client, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{RequestId, Time, ToServer};

/// How long a server is waited for of which nothing is known, not even the lease.
const UNKNOWN_SERVER_WAIT_NS: Time = 4_000_000_000;

/// The signs that the server is there, and when the client looks for the next one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Liveness {
    /// When the next regular `KeepAlive` leaves.
    next: Time,
    /// When one leaves because something is not answered.
    probe: Option<Time>,
    /// When the first greeting or `KeepAlive` left after which nothing has been heard.
    unheard: Option<Time>,
    /// Requests that the server could not do yet: when they are sent again.
    later: BTreeMap<RequestId, Time>,
}

impl Liveness {
    /// The session is over: nothing of it is asked again.
    pub(crate) fn lose(&mut self) {
        *self = Self::default();
    }
}

impl Client {
    /// Something was asked that will be answered.
    pub(crate) fn await_word(&mut self, now: Time) {
        let due = now + self.session.lease_ns / 16;
        self.session.liveness.probe.get_or_insert(due);
    }

    /// A word of the server is needed now, unless one has been asked for already.
    pub(crate) fn break_silence(&mut self, now: Time) {
        if self.session.liveness.unheard.is_none() {
            self.session.liveness.probe = Some(now);
        }
    }

    /// A greeting has left on a new connection, on which everything is said again.
    pub(crate) fn await_welcome(&mut self, now: Time) {
        self.session.liveness.lose();
        self.session.liveness.unheard = Some(now);
    }

    /// The server knows this client: from now on it is told regularly that it is there.
    pub(crate) fn begin_keeping_alive(&mut self, now: Time) {
        self.session.liveness.next = now + self.session.lease_ns / 4;
    }

    /// A message has come.
    pub(crate) fn hear(&mut self, now: Time) {
        let unwelcome = self.session.state == LinkState::Greeting;
        self.session.liveness.unheard = unwelcome.then_some(now);
        self.session.liveness.probe = None;
        if self.asked.requests.len() > self.delegation.kept.len() {
            self.await_word(now);
        }
    }

    /// The server has not done this request, and wants it once more.
    pub(crate) fn ask_later(&mut self, now: Time, id: RequestId) {
        if self.asked.requests.contains_key(&id) {
            let due = now + self.options.later_ns;
            self.session.liveness.later.insert(id, due);
        }
    }

    pub(crate) fn tick_liveness(&mut self, step: &mut Step<'_>) {
        if self.gives_up_at().is_some_and(|due| step.now >= due) {
            step.out.push(Output::Redial);
            self.session.state = LinkState::Down;
        }
        if self.session.state != LinkState::Up {
            return;
        }
        if step.now >= self.speaks_at() {
            self.session.liveness.next = step.now + self.session.lease_ns / 4;
            self.session.liveness.probe = None;
            self.session.liveness.unheard.get_or_insert(step.now);
            self.settle_taken(step);
            let acked = self.acked();
            let sent = step.now;
            self.say(step, ToServer::KeepAlive { sent, acked });
        }
        let due = |(id, at): (&RequestId, &Time)| (step.now >= *at).then_some(*id);
        let due: Vec<RequestId> = self.session.liveness.later.iter().filter_map(due).collect();
        for id in due {
            self.session.liveness.later.remove(&id);
            self.send_request(step, id);
        }
    }

    fn speaks_at(&self) -> Time {
        let probe = self.session.liveness.probe.unwrap_or(Time::MAX);
        self.session.liveness.next.min(probe)
    }

    /// When the connection is given up.
    fn gives_up_at(&self) -> Option<Time> {
        let patience = match self.session.lease_ns {
            0 => UNKNOWN_SERVER_WAIT_NS,
            lease_ns => lease_ns / 16 * 3,
        };
        let unheard = self
            .session
            .liveness
            .unheard
            .filter(|_| self.session.state.talks());
        unheard.map(|since| since + patience)
    }

    /// When it wants to be called.
    pub(crate) fn liveness_due(&self) -> Option<Time> {
        let speaks = (self.session.state == LinkState::Up).then(|| self.speaks_at());
        let later = self.session.liveness.later.values().copied().min();
        let later = later.filter(|_| self.session.state == LinkState::Up);
        let dues = [speaks, self.gives_up_at(), later];
        dues.into_iter().flatten().min()
    }
}
