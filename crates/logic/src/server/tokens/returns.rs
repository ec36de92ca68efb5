//! The reports of clients about what they hold: answers to recalls, tokens given back, opens, and
//! that an answer has been seen. Also the asking.

use super::recall_batch::is_among;
use crate::server::requests::awaited::Awaited;
use crate::server::requests::conflicts::{Confirm, Need};
use crate::server::table::{Ask, Asked, Holder, Seq};
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use wire::{
    Epoch, Fid, Hold, Name, Recall, RequestId, Returned, Right, SessionId, Time, ToClient, What,
};

impl Server {
    /// Asks a client, unless the same has been asked already in a way that serves this request too.
    /// The request arrived at this epoch, and since this time the client is in its way.
    /// Returns the number of the question whose answer serves it.
    pub(crate) fn ask(
        &mut self,
        step: &mut Step<'_>,
        need: Need,
        (arrived, since): (Epoch, Time),
        waiter: Option<Seq>,
    ) -> Epoch {
        let Need { session, fid, what } = need;
        let file = self.files.entry(fid).or_default();
        let holder = file.holders.of(session);
        let granted = holder.epoch;
        let serves = |ask: &&mut Ask| match (&ask.what, &what) {
            (What::Keep(asked), What::Keep(wanted)) => asked <= wanted && ask.epoch > granted,
            (What::Names(asked), What::Names(wanted)) => {
                ask.epoch > arrived && wanted.iter().all(|name| is_among(name, asked))
            }
            (asked, wanted) => ask.epoch > arrived && asked == wanted,
        };
        if let Some(ask) = holder.asks.iter_mut().find(serves) {
            ask.since = ask.since.min(since);
            ask.waiters.extend(waiter);
            return ask.id;
        }
        if let What::Names(names) = &what
            && let Some(id) = self.gather(step.now, (session, fid), names, (since, waiter))
        {
            return id;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let holder = self.files.entry(fid).or_default().holders.of(session);
        let earned = holder.earned_since(since);
        holder.asks.push(Ask {
            id: epoch,
            epoch,
            what: what.clone(),
            since,
            earned,
            sent: step.now,
            waiters: waiter.into_iter().collect(),
        });
        self.note_asked(step.now, session, fid);
        self.hurry(step.now, session);
        self.send_recall(step, session, Recall { fid, epoch, what });
        epoch
    }

    /// Somebody is waited for.
    pub(crate) fn wake(&mut self, now: Time) {
        let next = now + self.every_ns();
        self.next_tick.get_or_insert(next);
    }

    /// How often it looks for silent clients and lost messages.
    pub(crate) fn every_ns(&self) -> Time {
        self.options.resend_ns.min(self.options.lease_ns / 4).max(1)
    }

    /// When that question was sent last whose turn it is to be sent again first.
    pub(crate) fn oldest_sent(&self) -> Option<Time> {
        let holders = self.asked.iter().filter_map(|(session, fid)| {
            let file = self.files.get(fid)?;
            file.holders.get(session)
        });
        let asks = holders.flat_map(|holder| &holder.asks);
        let recalls = asks.filter(|ask| !ask.gathers()).map(|ask| ask.sent);
        let sessions = self.sessions.values();
        let confirms = sessions.flat_map(|session| session.confirm_asked.values());
        let confirms = confirms.map(|asked| asked.sent);
        let told = self
            .oldest_waited()
            .into_iter()
            .chain(self.oldest_watched());
        let locks = self.lock_delegations.asks().map(|(_, _, sent)| sent);
        recalls.chain(confirms).chain(told).chain(locks).min()
    }

    /// Sends unanswered recalls again: to one session that has come back, or where it is time.
    pub(crate) fn repeat_asks(&mut self, step: &mut Step<'_>, only: Option<SessionId>) {
        let mut again: Vec<(SessionId, Recall)> = Vec::new();
        let asked = self
            .asked
            .iter()
            .filter(|(id, _)| only.is_none_or(|only| only == *id));
        for &(session, fid) in asked {
            let file = self.files.get_mut(&fid);
            let Some(holder) = file.and_then(|file| file.holders.get_mut(&session)) else {
                continue;
            };
            for ask in &mut holder.asks {
                let due = only.is_some() || step.now >= ask.sent + self.options.resend_ns;
                if due && !ask.gathers() {
                    ask.sent = step.now;
                    let (epoch, what) = (ask.epoch, ask.what.clone());
                    again.push((session, Recall { fid, epoch, what }));
                }
            }
        }
        for (session, recall) in again {
            self.send_recall(step, session, recall);
        }
    }

    pub(crate) fn on_returned(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        returned: Returned,
    ) {
        let Returned {
            fid,
            epoch,
            right,
            upto,
            hold,
            attr,
        } = returned;
        let Some(holder) = self
            .files
            .get_mut(&fid)
            .and_then(|file| file.holders.get_mut(&session))
        else {
            return;
        };
        let dropped = names_of(&holder.asks, epoch);
        let (answered, left): (Vec<Ask>, Vec<Ask>) = core::mem::take(&mut holder.asks)
            .into_iter()
            .partition(|ask| answers(ask, (epoch, right), dropped.as_deref()));
        holder.asks = left;
        // The report is true also if it is repeated, and nobody waits for it any more.
        lower(holder, upto, right, hold);
        self.held.push((session, fid));
        self.looked(step, (session, fid), attr.as_ref());
        let keep = |ask: &Ask| matches!(ask.what, What::Keep(Right::None));
        if right == Right::None && answered.iter().any(keep) {
            self.unshow(session, fid, hold.stamp);
            self.look_anew(session, fid);
        }
        if let Some(attr) = &attr {
            self.hear_time(step, attr.ctime);
        }
        self.keep_earned((session, fid), &answered);
        let paid = self.pay((session, hold.stamp), fid, &answered, attr.as_ref());
        let again = self.look_again(step, (session, fid), paid);
        self.ask_gathered(step, session, fid);
        self.judge_outdated(step);
        // A request is put off because of what others are still owed; if these are only owed less
        // than before, it concerns only requests of the client that has answered.
        let only = (!again).then_some(session);
        self.recheck(step, fid, (session, only));
    }

    pub(crate) fn on_release(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        (fid, epoch): (Fid, Epoch),
        (right, hold): (Right, Hold),
    ) {
        let stamp = hold.stamp;
        if self.awaits(session) {
            return;
        }
        if let Some(holder) = self
            .files
            .get_mut(&fid)
            .and_then(|file| file.holders.get_mut(&session))
            && holder.epoch <= epoch
        {
            lower(holder, epoch, right, hold);
            self.held.push((session, fid));
            self.said(step, session, fid);
        }
        self.send(step, session, ToClient::Noted { fid, stamp });
    }

    pub(crate) fn on_opens(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        fid: Fid,
        hold: Hold,
    ) {
        let stamp = hold.stamp;
        if self.awaits(session) {
            return;
        }
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        // Of a file that nothing is known of, only the latest word counts: an older one may have
        // been overtaken by the close.
        let latest = stamp > state.stamp;
        state.stamp = state.stamp.max(stamp);
        let new = latest && hold.open && step.disk.attr(fid) != Ok(None);
        if new && self.may_have_open(step.disk, session, (fid, hold)) {
            if let Some(state) = self.sessions.get_mut(&session) {
                state.fids.insert(fid);
            }
            self.files.entry(fid).or_default().holders.of(session);
        }
        let file = self.files.get_mut(&fid);
        if let Some(holder) = file.and_then(|file| file.holders.get_mut(&session)) {
            holder.declare(hold);
            self.said(step, session, fid);
        }
        self.send(step, session, ToClient::Noted { fid, stamp });
    }

    /// A client has said unasked what it holds: requests that wait for it there may not have to.
    fn said(&mut self, step: &mut Step<'_>, session: SessionId, fid: Fid) {
        let waiters = self.waiters(session, fid);
        self.look_again(step, (session, fid), waiters);
        self.recheck(step, fid, (session, None));
    }

    /// Asks a client whether it has handed an answer to its caller.
    pub(crate) fn ask_confirm(&mut self, step: &mut Step<'_>, confirm: Confirm, waiter: Seq) {
        let Confirm {
            session,
            request,
            whole,
        } = confirm;
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let sent = step.now;
        let since = match state.unanswered.contains(&request) {
            true => sent.saturating_sub(self.options.recall_ns),
            false => sent,
        };
        match state.confirm_asked.entry(request) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().whole |= whole;
                entry.get_mut().waiters.insert(waiter);
            }
            Entry::Vacant(entry) => {
                let waiters = BTreeSet::from([waiter]);
                entry.insert(Asked {
                    since,
                    sent,
                    whole,
                    waiters,
                });
                self.wake(step.now);
                self.send(step, session, ToClient::Confirm { request });
                self.hurry(step.now, session);
            }
        }
    }

    /// Asks again for confirmations: of one client for all, else for those that are due.
    pub(crate) fn repeat_confirms(&mut self, step: &mut Step<'_>, only: Option<SessionId>) {
        let mut again = Vec::new();
        let sessions = self.sessions.iter_mut();
        for (&session, state) in sessions.filter(|(id, _)| only.is_none_or(|only| only == **id)) {
            for (&request, asked) in &mut state.confirm_asked {
                if only.is_some() || step.now >= asked.sent + self.options.resend_ns {
                    asked.sent = step.now;
                    again.push((session, request));
                }
            }
        }
        for (session, request) in again {
            self.send(step, session, ToClient::Confirm { request });
        }
    }

    pub(crate) fn on_confirmed(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        request: RequestId,
    ) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.unanswered.remove(&request);
        }
        self.confirm_all(step, session, alloc::vec![request]);
    }

    /// These changes have been seen by their callers: others may see them.
    pub(crate) fn confirm_all(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        requests: Vec<RequestId>,
    ) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let mut touched: BTreeSet<Fid> = BTreeSet::new();
        let mut paid: BTreeSet<(Seq, RequestId)> = BTreeSet::new();
        for request in &requests {
            let asked = state.confirm_asked.remove(request);
            let waiters = asked.into_iter().flat_map(|asked| asked.waiters);
            paid.extend(waiters.map(|seq| (seq, *request)));
            touched.extend(state.unconfirmed.remove(request).into_iter().flatten());
        }
        for fid in &touched {
            if let Some(file) = self.files.get_mut(fid) {
                let done = |c: &crate::server::table::Unconfirmed| {
                    c.session == session && requests.contains(&c.request)
                };
                file.unconfirmed.retain(|change| !done(change));
            }
        }
        self.held.extend(touched.iter().map(|fid| (session, *fid)));
        self.pay_confirmed(step, session, paid);
        for fid in touched {
            if self.is_shown(session, fid) {
                // It was not to be asked for that before.
                self.look_again(step, (session, fid), self.waiting_at(fid));
            }
            self.recheck(step, fid, (session, None));
        }
    }

    /// These requests wait no more for these changes of a client to be confirmed.
    pub(crate) fn pay_confirmed(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        paid: BTreeSet<(Seq, RequestId)>,
    ) {
        for (seq, request) in &paid {
            if let Some(waiting) = self.waiting.get_mut(seq) {
                waiting.owed.remove(&Awaited::Confirmed(session, *request));
            }
        }
        let mut last = None;
        for (seq, _) in paid {
            if last.replace(seq) != Some(seq) {
                self.judge_if_free(step, seq);
            }
        }
    }
}

/// The names that are dropped when this recall is answered, if it is one of names.
fn names_of(asks: &[Ask], epoch: Epoch) -> Option<Vec<Name>> {
    let asked = asks.iter().find(|ask| ask.epoch == epoch);
    match asked.map(|ask| &ask.what) {
        Some(What::Names(names)) => Some(names.clone()),
        _ => None,
    }
}

/// Does an answer to the recall `epoch`, which leaves `right` and by which these names are dropped,
/// answer this one too? Recalls of tokens are answered by the latest; a recall of names by a later
/// one of the same names, or if nothing is left.
fn answers(ask: &Ask, (epoch, right): (Epoch, Right), dropped: Option<&[Name]>) -> bool {
    match &ask.what {
        _ if ask.epoch >= epoch || ask.gathers() => ask.epoch == epoch,
        What::Names(names) => {
            let all = |dropped: &[Name]| names.iter().all(|name| is_among(name, dropped));
            right == Right::None || dropped.is_some_and(all)
        }
        _ => true,
    }
}

/// Takes over what a client says that it still holds, if it knew of the last grant.
fn lower(holder: &mut Holder, upto: Epoch, right: Right, hold: Hold) {
    if holder.epoch <= upto {
        // Said before the client was told a name: it may be in its kernel's hand.
        let least = if hold.stamp < holder.told {
            Right::Transient
        } else {
            Right::None
        };
        holder.right = holder.right.min(right.max(least));
        holder.declare(hold);
        // Opens under a token are not told: the report is true only of that moment.
        holder.known = holder.right < Right::Shared;
    } else if holder.exclusive <= upto {
        // Its grants since then were Shared at most.
        holder.right = holder.right.min(right.max(Right::Shared));
    }
    holder.doubted = holder.doubted.filter(|most| holder.right > *most);
}
