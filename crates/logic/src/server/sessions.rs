//! Sessions: greeting, end, and what a restarted server is told.
//!
//! After a restart the server serves nobody until the sessions that it knew have said
//! what they hold, or their time is over; who has not spoken by then is fenced.

use super::api::{By, Conn, Disk, Event, Output};
use super::table::Holder;
use super::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use wire::{
    Epoch, Fid, HeldLock, Holding, Kind, Op, Origin, Outcome, Right, SessionId, Time, ToClient,
    Unseen, VERSION, Violation, Welcome,
};

/// Looks at who is silent and what was lost in the time of one, at most.
const LOOKS: Time = 8;

impl Server {
    pub(super) fn on_hello(
        &mut self,
        step: &mut Step<'_, impl Disk>,
        from: Conn,
        (version, id): (u32, SessionId),
        name: Vec<u8>,
    ) {
        if version != VERSION {
            return step.violation(from, Violation::Version);
        }
        if self.conns.get(&from).is_some_and(|&known| known != id) {
            return step.violation(from, Violation::Greeting);
        }
        let known = self.sessions.contains_key(&id);
        if !known {
            step.out
                .push(Output::Event(Event::Opened { session: id, name }));
        }
        let session = self.sessions.entry(id).or_default();
        // A greeting that is answered renews the lease.
        if !session.stalled {
            session.heard = step.now;
        }
        session.unwelcome = session.stalled;
        let welcome = !session.stalled;
        // Who comes for the first time has nothing to say after a restart, and is not waited for.
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
        if welcome {
            self.welcome(step, id, resumed);
        }
        self.repeat_asks(step, Some(id));
        self.repeat_lock_asks(step, Some(id));
        self.repeat_confirms(step, Some(id));
        self.repeat_waited(step, Some(id));
    }

    pub(super) fn welcome(&mut self, step: &mut Step<'_, impl Disk>, id: SessionId, resumed: bool) {
        let (boot, root, lease_ns) = (self.boot, self.root, self.options.lease_ns);
        let clock = self.own_time(step);
        self.send(
            step,
            id,
            ToClient::Welcome(Welcome {
                boot,
                root,
                resumed,
                lease_ns,
                clock,
            }),
        );
    }

    /// A session begins with its first word that is no greeting, and is remembered from then on.
    pub(super) fn begin_session(&mut self, step: &mut Step<'_, impl Disk>, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !core::mem::replace(&mut session.used, true)
        {
            step.disk.open_session(id, step.now);
        }
    }

    pub(super) fn on_gone(&mut self, conn: Conn) {
        let Some(id) = self.conns.remove(&conn) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&id)
            && session.conn == Some(conn)
        {
            session.conn = None;
        }
    }

    pub(super) fn on_goodbye(&mut self, step: &mut Step<'_, impl Disk>, id: SessionId) {
        if let Some(conn) = self.sessions.get(&id).and_then(|session| session.conn) {
            step.out.push(Output::Close {
                conn,
                violation: None,
            });
        }
        step.out.push(Output::Event(Event::Closed { session: id }));
        self.end_session(step, id);
    }

    pub(super) fn on_tick(&mut self, step: &mut Step<'_, impl Disk>) {
        while let Some((until, fid)) = self.lingering.first().copied() {
            if step.now < until {
                break;
            }
            self.lingering.remove(&(until, fid));
            self.reap_if_unused(step, fid);
            self.forget_quiet(fid);
        }
        self.tick_gathered(step);
        self.tick_put_off(step);
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
            step.now + self.every_ns() / LOOKS,
            step.now + self.every_ns(),
        );
        let again = self.oldest_sent().map(|sent| sent + self.options.resend_ns);
        let next = again.map_or(latest, |again| again.clamp(soonest, latest));
        self.next_tick = self.waits().then_some(next);
    }

    /// Keeps in `asked` only who has something to answer.
    fn forget_answered(&mut self) {
        let files = &self.files;
        self.asked.retain(|(id, fid)| {
            let holder = files.get(fid).and_then(|file| file.holders.get(id));
            holder.is_some_and(|holder| !holder.asks.is_empty())
        });
    }

    /// Takes everything from a session and lets those go on who waited for it.
    pub(super) fn end_session(&mut self, step: &mut Step<'_, impl Disk>, id: SessionId) {
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
        self.shown.end(id);
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
        self.grace_if_complete(step);
    }

    pub(super) fn on_reassert(
        &mut self,
        step: &mut Step<'_, impl Disk>,
        id: SessionId,
        (boot, (part, parts)): (Epoch, (u32, u32)),
        (holdings, unseen, locks): (Vec<Holding>, Vec<Unseen>, Vec<HeldLock>),
    ) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if boot != self.boot {
            return;
        }
        let awaited = self.grace_until.is_some() && !session.reasserted && !session.refused;
        if awaited && session.parts.insert(part) {
            let disk = &*step.disk;
            let contradicts = |holding: &Holding| self.contradicts(disk, id, holding);
            let contradicts = holdings.iter().any(contradicts);
            if contradicts || self.contradicts_locks(id, &locks) {
                // Its lease is not renewed before it is told `Reasserted`, and so is over when this
                // time ends and it is fenced.
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.refused = true;
                }
                return;
            }
            for holding in holdings {
                self.reassert(id, &holding);
            }
            self.reassert_locks(id, &locks);
            for change in unseen {
                self.note_unseen(step, id, change);
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let complete = session.parts.len() as u64 >= u64::from(parts);
        session.reasserted |= complete && !session.refused;
        let all = session.reasserted;
        if all {
            self.send(step, id, ToClient::Reasserted { boot });
            self.grace_if_complete(step);
        }
    }

    /// Is this session still to say what it held when it came back? What it says has changed since
    /// then is not heard before, and so said again.
    pub(super) fn awaits(&self, id: SessionId) -> bool {
        let session = self.sessions.get(&id);
        self.grace_until.is_some() && session.is_some_and(|session| !session.reasserted)
    }

    /// A change that the last run has applied if the store knows its answer: others are not shown
    /// it before the caller has been answered.
    fn note_unseen(&mut self, step: &mut Step<'_, impl Disk>, session: SessionId, change: Unseen) {
        let Unseen {
            request,
            names,
            fids,
        } = change;
        let named = match step.disk.answer(Origin { session, request }) {
            None | Some(Outcome::Refused(_)) => return,
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

    /// Does it exclude what another session has said to hold? Both were never granted: who came
    /// first is believed, the other one is as lost as if it had not come. (Of a directory a client
    /// does not know what its kernel has in hand, and says that it has something: who holds it
    /// Exclusive was granted that when others had nothing.)
    fn contradicts(&self, disk: &impl Disk, id: SessionId, holding: &Holding) -> bool {
        let kind = disk.attr(holding.fid).ok().flatten().map(|attr| attr.kind);
        let unsure = match kind {
            Some(Kind::Directory) => Right::Transient,
            _ => Right::None,
        };
        let excludes = |other: Right| {
            let (weaker, stronger) = (other.min(holding.right), other.max(holding.right));
            stronger == Right::Exclusive && weaker > unsure
        };
        self.files.get(&holding.fid).is_some_and(|file| {
            let mut others = file.holders.iter().filter(|(session, _)| **session != id);
            others.any(|(_, holder)| excludes(holder.right))
        })
    }

    fn reassert(&mut self, id: SessionId, holding: &Holding) {
        let known = holding.right < Right::Shared;
        let file = self.files.entry(holding.fid).or_default();
        *file.holders.of(id) = Holder {
            right: holding.right,
            epoch: self.boot,
            exclusive: self.boot,
            hold: holding.hold,
            known,
            ..Holder::default()
        };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.fids.insert(holding.fid);
        }
    }

    fn grace_if_complete(&mut self, step: &mut Step<'_, impl Disk>) {
        let complete = self.sessions.values().all(|session| session.reasserted);
        if self.grace_until.is_some() && complete {
            self.end_grace(step);
        }
    }

    pub(super) fn end_grace(&mut self, step: &mut Step<'_, impl Disk>) {
        self.grace_until = None;
        step.out.push(Output::Event(Event::GraceOver));
        let late: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, s)| !s.reasserted)
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            self.fence(step, id);
        }
        let orphans = step.disk.orphans();
        for &fid in &orphans {
            self.files.entry(fid).or_default().orphan = Some(step.now);
        }
        // Among these may be who has made such an object, and has not been told of it yet. What one
        // of them was in the way of may be about one that has not begun yet: it finds it here.
        while let Some((session, request, bulk)) = self.held.pop_front() {
            self.begin(step, session, request, bulk);
        }
        for fid in orphans {
            self.reap_if_unused(step, fid);
            self.forget_quiet(fid);
        }
    }

    /// Removes what is left of a nameless object once nobody has it open.
    pub(super) fn reap_if_unused(&mut self, step: &mut Step<'_, impl Disk>, fid: Fid) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let due = file.orphan.is_some_and(|until| step.now >= until);
        if !due || file.in_use() {
            return;
        }
        file.orphan = None;
        let nobody = wire::Caller::default();
        let now = self.stamp(step);
        let reap = Op::Reap { fid };
        let by = By {
            caller: &nobody,
            origin: None,
            delegated: None,
        };
        step.disk.apply(now, &reap, by, 0);
    }
}
