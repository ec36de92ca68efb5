//! Faults as they happen, and the rules watched meanwhile: the clients that are fenced, and the
//! tokens that they use.

use crate::atlas::Fault;
use crate::coverage::Rare;
use crate::disk::Trouble;
use crate::exec::Signal;
use crate::inject::Strike;
use crate::rng::{Branch, Rng};
use crate::room::Room;
use crate::world::{NOBODY, World};
use crate::wrong::wrong;
use logic::client::Client;
use std::rc::Rc;
use store::Keep;
use wire::{Fid, Right, SessionId, Time, ToServer};

impl World {
    /// The server took everything from a session. Its machine uses nothing any more, whether it
    /// has heard of that or not: its lease is over.
    pub(crate) fn on_fenced(&self, session: SessionId) {
        self.fenced.borrow_mut().insert(session);
        if self.is_liar(session) {
            return self.meet(Rare::LiarFenced.bit());
        }
        let host = self.sessions.borrow().get(&session).copied();
        if let Some(host) = host {
            if self.mute.borrow().contains_key(&host) {
                self.meet(Rare::MuteFenced.bit());
            }
            self.history.lost(host, self.sched.moment());
            self.history.over.borrow_mut().insert(host);
            self.board.wipe(host);
            self.check_idle(host, session);
        }
        let muted = host.is_some_and(|host| self.net.muted_by_loss(self, host));
        if !self.plan.may_be_fenced(host) && !muted {
            self.fail(wrong!(
                "session {session} was fenced, and had not been silent for long"
            ));
        }
    }

    /// Something is taken from a silent client. Its machine uses nothing, since its lease is over;
    /// what it did is applied later, or kept beside what others did, so that what is shown until
    /// then may be what was before.
    pub(crate) fn on_away(&self, session: SessionId, all: bool) {
        if self.is_liar(session) {
            return self.meet(Rare::LiarFenced.bit());
        }
        self.meet(Rare::Away.bit());
        let host = self.sessions.borrow().get(&session).copied();
        if let Some(host) = host {
            if self.mute.borrow().contains_key(&host) {
                self.meet(Rare::MuteFenced.bit());
            }
            self.history.away(host, self.sched.moment());
            if all {
                self.board.wipe(host);
            }
            self.check_idle(host, session);
        }
        let muted = host.is_some_and(|host| self.net.muted_by_loss(self, host));
        if !self.plan.may_be_fenced(host) && !muted && !host.is_some_and(|it| self.has_gone(it)) {
            self.fail(wrong!(
                "something was taken in session {session}, and it had not been silent for long"
            ));
        }
    }

    /// The locks of a file were taken from a silent client, or all that it has.
    pub(crate) fn on_unlocked(&self, session: SessionId, fid: Option<Fid>) {
        let host = self.sessions.borrow().get(&session).copied();
        match (host, fid) {
            (Some(host), Some(fid)) => self.board.take(host, fid),
            (Some(host), None) => self.board.wipe(host),
            (None, _) => {}
        }
    }

    /// A server starts that knows these sessions: a machine that has come back to its last run, and
    /// has not heard what of its locks that run had given to others, gives all of them up.
    pub(crate) fn on_untold(&self, known: &[SessionId]) {
        for (host, room) in &*self.rooms.borrow() {
            let own = room.alive() && known.contains(&room.session());
            if own && room.with(Client::lacks_what_was_taken) {
                self.board.wipe(*host);
            }
        }
    }

    /// Has this machine left? Its goodbye may have found no server.
    fn has_gone(&self, host: u32) -> bool {
        let room = self.rooms.borrow().get(&host).cloned();
        room.is_some_and(|room| room.alive() && room.with(Client::has_left))
    }

    fn check_idle(&self, host: u32, session: SessionId) {
        let room = self.rooms.borrow().get(&host).cloned();
        let room = room.filter(|room| room.alive() && room.session() == session);
        if room.is_some_and(|room| room.with(Client::serves)) {
            self.fail(wrong!(
                "h{host} was fenced while it still used what it had: its lease was not over"
            ));
        }
    }

    /// No two machines hold what excludes each other, and none has changed what it may not, at this
    /// instant.
    pub(crate) fn check_tokens(&self) {
        let mut held: Vec<logic::check::Held> = Vec::new();
        for room in self.rooms.borrow().values().filter(|room| room.alive()) {
            let session = room.session();
            let uses = room.with(|client| client.serves() && !client.has_left());
            if self.fenced.borrow().contains(&session) || !uses {
                continue; // its lease is over, or it has gone: it uses nothing
            }
            let tokens = room.with(Client::tokens).into_iter();
            let used = tokens.filter(|token| token.right >= Right::Shared);
            held.extend(used.map(|token| (session, token)));
        }
        if let Err(broken) = logic::check::check(&held, None) {
            self.fail(wrong!("{broken}"));
        }
    }

    /// How much later than usual this machine does what it does now (the server: `NOBODY`).
    pub(crate) fn late_ns(&self, host: u32) -> Time {
        let slow = self.slow.borrow();
        let slow = slow
            .get(&host)
            .filter(|(until, _)| *until > self.sched.now());
        slow.map_or(0, |(_, by_ns)| *by_ns)
    }

    /// Does this machine keep back what it would say, since it answers nothing now?
    pub(crate) fn keeps_back(&self, host: u32, message: &ToServer) -> bool {
        let answer = matches!(
            message,
            ToServer::Returned { .. } | ToServer::Confirmed { .. }
        );
        let mute = self.mute.borrow();
        let until = mute.get(&host).copied().unwrap_or(0);
        let kept = answer && until > self.sched.now();
        if kept {
            self.meet(Rare::Mute.bit());
        }
        kept
    }

    /// Nobody waits longer for an answer of a client than for its lease to end, from when the
    /// server's patience has; ticks of the server come now and then, and late if it is slow.
    pub(crate) fn check_patience(&self, [before, after]: [Option<Time>; 2], now: Time) {
        let server = &self.plan.server;
        let ticks = 2 * server.resend_ns.min(server.lease_ns / 4) + server.lease_ns / 8;
        let most = server.recall_ns + server.lease_ns + ticks;
        if after.is_some_and(|asked| now > asked + most) {
            self.fail(wrong!(
                "the server waits for an answer for longer than it may"
            ));
        }
        let late = |asked: &Time| now > asked + server.recall_ns;
        if before.filter(late).is_some() && after.filter(late).is_none() {
            self.meet(Rare::Late.bit());
        }
    }

    pub(crate) fn schedule_faults(self: &Rc<Self>) {
        let mut end = self.sched.now() + self.plan.span_ns;
        for (&number, (at, fault)) in self.fault_numbers.iter().zip(self.plan.faults.clone()) {
            let at = self.sched.now() + at;
            let then = Rc::clone(self);
            let rng = Rng::of(Branch::Fault, &[self.key, u64::from(number)]);
            let happen = || self.sched.at(at, move || then.fault(number, fault));
            self.sched.with_rng(rng, happen);
            end = end.max(at + fault.length());
        }
        if self.plan.strike.is_some() {
            end += 2 * self.plan.server.resend_ns;
        }
        if let Some((strike, call)) = self.plan.disk_strike {
            let (trouble, ns) = (Trouble::strike(strike, call), end - self.sched.now());
            self.fault(0, Fault::Disk { trouble, ns });
        }
        self.faults_end.set(end);
        let then = Rc::clone(self);
        self.sched.at(end, move || {
            then.trace(|| "faults stop".into());
            then.slow.borrow_mut().clear();
            then.mute.borrow_mut().clear();
            then.net.heal();
            then.liar_leaves();
        });
    }

    /// A message to or from this machine is about to leave while faults happen: what is done to it.
    pub(crate) fn strikes(self: &Rc<Self>, host: u32) -> Option<Strike> {
        let (strike, at) = self.plan.strike?;
        // It ends before the faults are over.
        let ns = self.plan.server.resend_ns;
        let end = self.faults_end.get();
        if end == Time::MAX || self.sched.now() + 2 * ns >= end {
            return None;
        }
        let message = self.exposed.get() + 1;
        self.exposed.set(message);
        if message != at {
            return None;
        }
        self.trace(|| format!("h{host}: message {message}: {strike:?}"));
        let fault = match strike {
            Strike::Repeat => return Some(strike),
            Strike::Cut => Fault::Cut { host, ns },
            Strike::Restart => Fault::Server { ns },
            Strike::Vanish => Fault::Client { host, ns },
            Strike::Kill => Fault::Killed { host, ns },
        };
        // The machine that sends it is in the middle of a step.
        let then = Rc::clone(self);
        self.sched
            .at(self.sched.now(), move || then.fault(0, fault));
        Some(strike)
    }

    fn fault(self: &Rc<Self>, number: u32, fault: Fault) {
        self.trace(|| format!("fault {number}: {fault:?}"));
        let now = self.sched.now();
        match fault {
            Fault::Silence { host, ways, ns } => self.net.silence(self, host, (ways, ns)),
            Fault::Cut { host, ns } => self.net.cut(self, host, ns),
            Fault::Server { ns } => {
                if self.server().up() {
                    self.ends_for(self.owner(), None, ns);
                }
            }
            Fault::SlowClient { host, by_ns, ns } => {
                self.slow.borrow_mut().insert(host, (now + ns, by_ns));
            }
            Fault::SlowServer { by_ns, ns } => {
                self.slow.borrow_mut().insert(NOBODY, (now + ns, by_ns));
            }
            Fault::Mute { host, ns } => {
                self.mute.borrow_mut().insert(host, now + ns);
            }
            Fault::Disk { trouble, ns } => {
                self.server().disk_mut().trouble(Some(trouble));
                let then = Rc::clone(self);
                let heal = move || then.server().disk_mut().trouble(None);
                self.sched.at(now + ns, heal);
            }
            Fault::Rot { at_ppm } => self.server().disk_mut().rot(at_ppm),
            Fault::Liar { greedy, ns } => self.liar_comes(greedy, now + ns),
            Fault::Power { ns, keep } => {
                if self.server().up() {
                    self.ends_for(self.owner(), Some(keep), ns);
                }
            }
            Fault::Replaced { ns } => {
                if self.server().up() {
                    self.server().die(self, None);
                    let then = Rc::clone(self);
                    self.sched
                        .at(now + ns, move || then.server().start_another(&then));
                }
            }
            Fault::Blackout { ns, keep } => self.blackout(now + ns, keep),
            Fault::Regrant => self.server().regrant(self),
            Fault::Move { hops, again } => self.command_move(hops, again),
            Fault::CutMove { cut } => self.moving.arm(cut),
            Fault::Database { ns } => self.moving.database.away(now + ns),
            Fault::Paused { server, ns } => self.pause(server as usize, now + ns),
            Fault::Client { host, ns } => {
                let room = self.rooms.borrow().get(&host).cloned();
                if let Some(room) = room.filter(|room| room.alive()) {
                    self.client_dies(&room);
                    self.net.leave(host);
                    let then = Rc::clone(self);
                    self.sched.at(now + ns, move || then.another_client());
                }
            }
            Fault::Killed { host, ns } => self.kill(host, now + ns),
            Fault::Memory { host, slots, ns } => {
                self.allow(host, slots);
                let (then, most) = (Rc::clone(self), self.plan.client.slots);
                self.sched.at(now + ns, move || then.allow(host, most));
            }
        }
    }

    /// The cache of this machine may use so many slots from now on.
    fn allow(self: &Rc<Self>, host: u32, slots: u32) {
        let room = self.rooms.borrow().get(&host).cloned();
        if let Some(room) = room.filter(|room| room.alive()) {
            let objects = self.plan.client.objects;
            room.allow(self, slots, objects);
        }
    }

    /// A client's process is killed. Its kernel shows what it keeps until it has nothing of the
    /// mount any more. Only then may the guard end the session: others may change everything then.
    fn kill(self: &Rc<Self>, host: u32, until: Time) {
        let room = self.rooms.borrow().get(&host).cloned();
        let Some(room) = room.filter(|room| room.alive()) else {
            return;
        };
        let session = room.session();
        room.die();
        self.net.killed(self, host);
        let (ends, told) = {
            let mut rng = self.rng.borrow_mut();
            let ends = rng.between(self.sched.now() + 1, until);
            (ends, rng.between(ends, until))
        };
        let then = Rc::clone(self);
        self.sched.at(ends, move || then.kernel_ends(host));
        let then = Rc::clone(self);
        self.sched.at(told, move || then.bury(session));
        let then = Rc::clone(self);
        self.sched.at(until, move || then.another_client());
    }

    /// The guard of a client that was killed says goodbye for it.
    fn bury(self: &Rc<Self>, session: SessionId) {
        self.meet(Rare::Buried.bit());
        let hello = ToServer::Hello {
            version: wire::VERSION,
            session,
            name: b"guard".to_vec(),
            volume: Vec::new(),
        };
        self.net.says(self, [hello, ToServer::Goodbye]);
    }

    /// All machines lose their power at once; others take the clients' places.
    fn blackout(self: &Rc<Self>, until: Time, keep: Keep) {
        if !self.server().up() {
            return;
        }
        for room in self.alive() {
            self.client_dies(&room);
            self.net.leave(room.host);
            let then = Rc::clone(self);
            self.sched.at(until, move || then.another_client());
        }
        let killed: Vec<u32> = self.running.borrow().keys().copied().collect();
        for host in killed {
            self.kernel_ends(host);
        }
        self.server().die(self, Some((keep, false)));
        self.comes_back_at(self.owner(), until);
    }

    fn client_dies(self: &Rc<Self>, room: &Rc<Room>) {
        room.die();
        self.kernel_ends(room.host);
    }

    /// Nobody is shown anything any more by what this machine keeps.
    fn kernel_ends(self: &Rc<Self>, host: u32) {
        if self.running.borrow_mut().remove(&host).is_none() {
            return; // with the power
        }
        self.history.lost(host, self.sched.moment());
        self.history.gone(host);
        self.board.wipe(host);
        self.sched.kill(host);
    }

    fn another_client(self: &Rc<Self>) {
        let room = self.another_host();
        let go = Signal::new(&self.sched);
        self.begin_host(&room, &go, false);
    }
}
