//! Sessions: greeting, end, and what is due at some time.

use crate::server::api::{Conn, Event, Output};
use crate::server::mutant::Mutant;
use crate::server::session::limits::has_part;
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Fid, Rights, SessionId, Time, ToClient, Violation, Welcome};
use wire::{VERSION, VERSION_OF_REPLICAS, VERSION_OF_STALLED, VERSION_OLDEST};

/// Looks for silent clients and lost messages in the time of one, at most.
const TICKS_PER_LEASE: Time = 8;

impl Server {
    pub(crate) fn on_hello(
        &mut self,
        step: &mut Step<'_>,
        from: Conn,
        (version, id): (u32, SessionId),
        (name, volume): (Vec<u8>, &[u8]),
    ) {
        if !(VERSION_OLDEST..=VERSION).contains(&version) {
            return step.violation(from, Violation::Version);
        }
        if self.conns.get(&from).is_some_and(|&known| known != id) {
            return step.violation(from, Violation::Greeting);
        }
        if !self.is_its_own(from, id) {
            return step.violation(from, Violation::Foreign);
        }
        let Some(root) = self.root_of(&*step.disk, volume) else {
            return step.violation(from, Violation::NoVolume);
        };
        // A session that is there may have changes that it was answered before the grant was.
        let known = self.sessions.contains_key(&id);
        if !known && !has_part(&*step.disk, &self.rights_at(from), root.0.volume) {
            return step.violation(from, Violation::NotGranted);
        }
        if version < VERSION_OF_REPLICAS && self.has_replica() {
            return step.violation(from, Violation::NoReplicas);
        }
        if !known {
            step.out.push(Output::Event(Event::Opened {
                session: id,
                name: name.clone(),
            }));
        }
        let boot = self.boot;
        let session = self.sessions.entry(id).or_default();
        session.name = name;
        session.version = version;
        session.since.get_or_insert(step.now);
        if !known {
            session.term = boot;
        }
        // A greeting that is answered renews the lease.
        if session.is_greeted() {
            session.heard = step.now;
        }
        session.root = Some(root);
        session.unwelcome = session.stalled && version < VERSION_OF_STALLED;
        let welcome = !session.unwelcome;
        // A client that comes for the first time has nothing to say after a restart, and is not
        // waited for.
        session.reasserted |= !known;
        let resumed = session.used;
        if let Some(old) = session.conn.replace(from).filter(|&old| old != from) {
            self.conns.remove(&old);
            step.out.push(Output::Close {
                conn: old,
                violation: None,
            });
        }
        self.conns.insert(from, id);
        self.bind(step, from, id);
        if welcome {
            self.welcome(step, id, resumed);
        }
        self.repeat_asks(step, Some(id));
        self.repeat_lock_asks(step, Some(id));
        self.repeat_confirms(step, Some(id));
        self.repeat_waited(step, Some(id));
    }

    pub(crate) fn welcome(&mut self, step: &mut Step<'_>, id: SessionId, resumed: bool) {
        let boot = self.boot;
        let clock = self.own_time(step);
        let session = self.sessions.get(&id);
        let stalled = session.is_some_and(|session| session.stalled);
        // A stalled client is to write back and to answer, and its lease goes on ending.
        let lease_ns = if stalled { 0 } else { self.options.lease_ns };
        let (root, frozen) = session
            .and_then(|session| session.root)
            .unwrap_or((self.root, false));
        let conn = session.and_then(|session| session.conn);
        let mut rights = conn.map_or(Rights::all(), |conn| self.rights_at(conn));
        rights.write &= !frozen;
        let term = self.sessions.get(&id).map_or(boot, |session| session.term);
        self.send(
            step,
            id,
            ToClient::Welcome(Welcome {
                boot,
                term,
                root,
                resumed,
                lease_ns,
                clock,
                left: self.left.clone(),
                rights,
            }),
        );
        self.say_lend(step, id);
        self.answer_again(step, id);
    }

    /// Says all answers to changes again that may have been lost with the last connection. A look
    /// of the client may show such a change, and be here before the change's repetition, if that is
    /// long. When the power has failed, a client asks again only for changes that were answered.
    pub(crate) fn answer_again(&mut self, step: &mut Step<'_>, id: SessionId) {
        let session = self.sessions.get(&id);
        let there = session.filter(|session| session.reasserted && session.away.is_none());
        let answers = there.map(|session| session.answers.clone());
        for (request, reply) in answers.into_iter().flatten() {
            let reply = self.again(id, reply);
            self.reply(step, (id, request), reply, 0);
        }
    }

    /// A session begins with its first word that is no greeting, and is remembered from then on.
    pub(crate) fn begin_session(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !core::mem::replace(&mut session.used, true)
        {
            step.disk.open_session(id, session.machine.unwrap_or(0));
            // A client that is not known after a power failure has lost all that it was answered.
            if self.options.mutant != Some(Mutant::ForgetsSessions) {
                step.disk.make_firm();
            }
        }
    }

    pub(crate) fn on_gone(&mut self, now: Time, conn: Conn) {
        let Some(id) = self.conns.remove(&conn) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&id)
            && session.conn == Some(conn)
        {
            session.conn = None;
            self.silent.insert((now + self.idle_ns(), id));
        }
    }

    pub(crate) fn on_goodbye(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(conn) = self.sessions.get(&id).and_then(|session| session.conn) {
            step.out.push(Output::Close {
                conn,
                violation: None,
            });
        }
        step.out.push(Output::Event(Event::Closed { session: id }));
        self.end_session(step, id);
    }

    pub(crate) fn on_tick(&mut self, step: &mut Step<'_>) {
        self.tick_lingering(step);
        self.redo(step);
        self.begin_ready(step);
        self.tick_silent(step);
        self.tick_gathered(step);
        self.tick_put_off(step);
        self.tick_thawed(step);
        self.tick_looks(step);
        if self.next_tick.is_none_or(|due| step.now < due) {
            return;
        }
        self.tick_shown(step);
        self.forget_answered();
        self.fence_silent(step);
        self.repeat_asks(step, None);
        self.repeat_lock_asks(step, None);
        self.repeat_confirms(step, None);
        self.repeat_waited(step, None);
        self.repeat_watched(step);
        // As soon as something is due again; not for each of many things by itself, since all are
        // looked through.
        let (soonest, latest) = (
            step.now + self.every_ns() / TICKS_PER_LEASE,
            step.now + self.every_ns(),
        );
        let again = self.oldest_sent().map(|sent| sent + self.options.resend_ns);
        let next = again.map_or(latest, |again| again.clamp(soonest, latest));
        self.next_tick = self.waits().then_some(next);
    }

    /// Keeps in `asked` only sessions that have something to answer.
    fn forget_answered(&mut self) {
        let files = &self.files;
        self.asked.retain(|(id, fid)| {
            let holder = files.get(fid).and_then(|file| file.holders.get(id));
            holder.is_some_and(|holder| !holder.asks.is_empty())
        });
    }

    /// Takes everything from a session and lets the requests go on that waited for it.
    pub(crate) fn end_session(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        if let Some(conn) = session.conn {
            self.conns.remove(&conn);
        }
        step.disk.close_session(id);
        for (_, bulk) in session.overtaken.into_values() {
            step.discard(bulk);
        }
        self.sizes_told.end(id);
        self.lending.forget_session(id);
        self.watches.remove_session(id);
        self.look_no_more();
        let own: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, w)| w.session == id)
            .map(|(s, _)| *s)
            .collect();
        let mut touched: BTreeSet<Fid> = session.fids;
        for seq in own {
            touched.extend(self.drop_waiting(step, seq));
        }
        touched.extend(session.unconfirmed.into_values().flatten());
        let mut paid = Vec::new();
        for &fid in &touched {
            if let Some(file) = self.files.get_mut(&fid) {
                let holder = file.holders.remove(&id);
                file.unconfirmed.retain(|change| change.session != id);
                let asks = holder.map_or_else(Vec::new, |holder| holder.asks);
                let waiters = asks.iter().flat_map(|ask| ask.waiters.iter().copied());
                paid.push((fid, waiters.collect(), asks));
            }
        }
        for (fid, waiters, asks) in paid {
            self.forget_look(fid);
            self.forget_exclusive(fid);
            self.write_off(&asks);
            self.look_again(step, (id, fid), waiters);
            self.recheck(step, fid, (id, None));
        }
        let asked = session.confirm_asked.into_iter();
        let paid = asked.flat_map(|(request, asked)| {
            let waiters = asked.waiters.into_iter();
            waiters.map(move |seq| (seq, request))
        });
        self.pay_confirmed(step, id, paid.collect());
        self.free_locks(step, id);
        self.end_in_grace(step, id);
        if session.away.is_some() {
            self.reap_kept(step, id);
        }
    }
}
