//! The debts to each waiting request: answers to recalls, and confirmations.
//!
//! Guarantees: an answer touches only the requests that wait for it, and looks at the one holder
//! that gave it; a request is compared with all holders again only when nothing is owed to it any
//! more. So a request that waits for many holders costs a step for each of them, whatever else
//! waits there. Each request that waits is owed something, or is put off until a time that is
//! noted: a debt that is never paid ends with its session.

use super::plan::Plan;
use crate::server::table::{Ask, File, Queue, Seq, Waiting};
use crate::server::tokens::recall_batch::is_among;
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Attr, Epoch, Fid, Name, RequestId, Right, SessionId, What};

/// Something that a waiting request is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Awaited {
    /// The answer to the question of this number.
    Answer(Epoch),
    /// That this change is confirmed.
    Confirmed(SessionId, RequestId),
}

/// Effects of a finished request on others that wait for the same objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recheck {
    /// Clients that have come to hold more of an object than before, or were told a name of it.
    grown: Vec<(SessionId, Fid)>,
    /// Requests to which a holder has said what is true no more.
    outdated: BTreeSet<Seq>,
}

impl Server {
    /// A client has come to hold more of this than before: a request that waits here may have to
    /// ask it.
    pub(crate) fn note_grown(&mut self, session: SessionId, fid: Fid) {
        if self.files.get(&fid).is_some_and(File::waits) {
            self.recheck.grown.push((session, fid));
        }
    }

    /// A holder's report to this request is true no more.
    pub(crate) fn note_outdated(&mut self, seq: Seq) {
        self.recheck.outdated.insert(seq);
    }

    /// Enters a request as waiting where its plan says, instead of where an earlier one said.
    pub(crate) fn enter_plan(&mut self, seq: Seq, plan: Plan) {
        let Some(waiting) = self.waiting.get_mut(&seq) else {
            return;
        };
        let before = core::mem::take(&mut waiting.plan);
        let fids = plan.fids();
        // Where it was about something before, it stays entered: others may know it there. Not so
        // of a round of many objects that it had asked for: in all rounds that may be very much.
        let round = before.more_behind.is_some();
        for fid in before.fids() {
            self.cost.look();
            self.leave_queue(seq, fid, &before);
            let goes_on = fids.binary_search(&fid).is_ok();
            let had_asked_for = round && before.gathers.contains_key(&fid);
            if !goes_on && !had_asked_for {
                let file = self.files.entry(fid).or_default();
                let queue = file.queue.get_or_insert_default();
                queue.waiting.insert(seq, false);
            }
        }
        for &fid in &fids {
            self.cost.look();
            let file = self.files.entry(fid).or_default();
            let queue = file.queue.get_or_insert_default();
            queue.waiting.insert(seq, plan.disturbs(fid));
            if plan.views_all_of(fid) {
                queue.whole.insert(seq);
            }
            for name in plan.names_viewed(fid) {
                let named = queue.named.entry(name.clone()).or_default();
                named.insert(seq);
            }
        }
        let Some(waiting) = self.waiting.get_mut(&seq) else {
            return;
        };
        if round {
            for fid in before.gathers.into_keys() {
                waiting.fids.remove(&fid);
                waiting.gathered.push(fid);
            }
        }
        waiting.fids.extend(fids);
        waiting.plan = plan;
    }

    /// Takes a request out of all places where it is entered.
    pub(crate) fn leave_queues(&mut self, waiting: &Waiting) {
        for fid in &waiting.fids {
            self.leave_queue(waiting.seq, *fid, &waiting.plan);
        }
    }

    /// Takes a request with this plan out of one place.
    fn leave_queue(&mut self, seq: Seq, fid: Fid, plan: &Plan) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        if let Some(queue) = &mut file.queue {
            queue.leave(seq, plan.names_viewed(fid));
            if queue.is_empty() {
                file.queue = None;
            }
        }
    }

    /// Is it put off, with nothing owed to it?
    pub(crate) fn mark_put_off(&mut self, seq: Seq, put_off: bool) {
        let Some(waiting) = self.waiting.get(&seq) else {
            return;
        };
        for fid in &waiting.fids {
            let queue = self.files.get_mut(fid).and_then(|file| file.queue.as_mut());
            let Some(Queue { idle, .. }) = queue.map(|queue| &mut **queue) else {
                continue;
            };
            if put_off {
                idle.insert(seq);
            } else {
                idle.remove(&seq);
            }
        }
    }

    /// Tells the requests that wait for them what was answered. Returns these requests.
    pub(crate) fn pay(
        &mut self,
        (session, stamp): (SessionId, u64),
        fid: Fid,
        answered: &[Ask],
        attr: Option<&Attr>,
    ) -> BTreeSet<Seq> {
        let mut paid = BTreeSet::new();
        for ask in answered {
            for seq in &ask.waiters {
                let Some(waiting) = self.waiting.get_mut(seq) else {
                    continue;
                };
                waiting.owed.remove(&Awaited::Answer(ask.id));
                paid.insert(*seq);
                // Only what was asked while it waited says what was so then.
                if ask.epoch > waiting.arrived {
                    waiting.hear((session, stamp), fid, (&ask.what, attr));
                }
            }
        }
        paid
    }

    /// Nobody will answer these any more.
    pub(crate) fn write_off(&mut self, asks: &[Ask]) {
        for ask in asks {
            for seq in &ask.waiters {
                if let Some(waiting) = self.waiting.get_mut(seq) {
                    waiting.owed.remove(&Awaited::Answer(ask.id));
                }
            }
        }
    }

    /// A client has said something of an object: these requests, which wait for it, ask it again if
    /// that was not enough. A request that is owed nothing more is judged. True if somebody asked
    /// again.
    pub(crate) fn look_again(
        &mut self,
        step: &mut Step<'_>,
        (session, fid): (SessionId, Fid),
        seqs: BTreeSet<Seq>,
    ) -> bool {
        let holder = self.holder(session, fid);
        let asked = holder.into_iter().flat_map(|holder| &holder.asks);
        let open: Vec<Epoch> = asked.map(|ask| ask.id).collect();
        let mut again = false;
        for seq in seqs {
            let Some(waiting) = self.waiting.get_mut(&seq) else {
                continue;
            };
            for id in &open {
                waiting.owed.remove(&Awaited::Answer(*id));
            }
            let arrived = waiting.arrived;
            let Some(waiting) = self.waiting.get(&seq) else {
                continue;
            };
            let needs = self.needs_of(waiting, &waiting.plan, (session, fid));
            let since = waiting.asked.get(&(session, fid));
            let since = since.copied().unwrap_or(step.now);
            again |= !needs.is_empty();
            if needs.is_empty()
                && let Some(waiting) = self.waiting.get_mut(&seq)
            {
                waiting.asked.remove(&(session, fid));
            }
            for need in needs {
                let id = self.ask(step, need, (arrived, since), Some(seq));
                if let Some(waiting) = self.waiting.get_mut(&seq) {
                    waiting.asked.insert((session, fid), since);
                    waiting.owed.insert(Awaited::Answer(id));
                }
            }
            self.judge_if_free(step, seq);
        }
        again
    }

    /// Changes that this request would show have been made since it was judged.
    fn owe_confirmations(&mut self, step: &mut Step<'_>, seq: Seq) {
        let Some(waiting) = self.waiting.get(&seq) else {
            return;
        };
        for confirm in self.unconfirmed(waiting.session, &waiting.plan) {
            let debt = Awaited::Confirmed(confirm.session, confirm.request);
            if let Some(waiting) = self.waiting.get_mut(&seq) {
                waiting.owed.insert(debt);
            }
            self.mark_put_off(seq, false);
            self.ask_confirm(step, confirm, seq);
        }
    }

    /// Judges a request that is owed nothing more. One that is put off waits for something else.
    pub(crate) fn judge_if_free(&mut self, step: &mut Step<'_>, seq: Seq) {
        let free = |waiting: &Waiting| waiting.owed.is_empty();
        if self.waiting.get(&seq).is_some_and(free) {
            self.judge(step, seq);
        }
    }

    /// Those who wait for what this client was asked of this object.
    pub(crate) fn waiters(&self, session: SessionId, fid: Fid) -> BTreeSet<Seq> {
        let holder = self.holder(session, fid);
        let asks = holder.into_iter().flat_map(|holder| &holder.asks);
        asks.flat_map(|ask| ask.waiters.iter().copied()).collect()
    }

    /// All who wait for something of this object.
    pub(crate) fn waiting_at(&self, fid: Fid) -> BTreeSet<Seq> {
        let file = self.files.get(&fid).into_iter();
        file.flat_map(File::waiting).collect()
    }

    /// Holders' reports to some requests are true no more: these ask again.
    pub(crate) fn judge_outdated(&mut self, step: &mut Step<'_>) {
        for seq in core::mem::take(&mut self.recheck.outdated) {
            self.judge(step, seq);
        }
    }

    /// Requests that are put off here: all, or those of one client.
    pub(crate) fn judge_put_off(&mut self, step: &mut Step<'_>, fid: Fid, only: Option<SessionId>) {
        let queue = self.files.get(&fid).and_then(|file| file.queue.as_ref());
        let idle = queue.into_iter().flat_map(|queue| queue.idle.iter());
        let of = |seq: &&Seq| {
            let waiting = self.waiting.get(*seq);
            waiting.is_some_and(|waiting| only.is_none_or(|only| only == waiting.session))
        };
        let idle: Vec<Seq> = idle.filter(of).copied().collect();
        for seq in idle {
            self.judge_if_free(step, seq);
        }
    }

    /// A request has been done: requests that wait for its objects are looked at, as far as they
    /// may be concerned.
    pub(crate) fn spread(
        &mut self,
        step: &mut Step<'_>,
        (done, plan): (&Waiting, &Plan),
        changed: bool,
    ) {
        let Recheck { grown, outdated } = core::mem::take(&mut self.recheck);
        let mut concerned = outdated;
        let mut shown = BTreeSet::new();
        if changed {
            for (dir, names) in &plan.names {
                let queue = self.files.get(dir).and_then(|file| file.queue.as_ref());
                let named = names.iter().filter_map(|name| queue?.named.get(name));
                concerned.extend(named.flatten());
            }
            for fid in plan.fids() {
                let queue = self.files.get(&fid).and_then(|file| file.queue.as_ref());
                shown.extend(queue.into_iter().flat_map(|queue| &queue.whole));
            }
        }
        for seq in shown.difference(&concerned) {
            self.owe_confirmations(step, *seq);
        }
        for seq in concerned {
            self.judge(step, seq);
        }
        for (session, fid) in grown {
            self.look_again(step, (session, fid), self.waiting_at(fid));
        }
        let mut fids: BTreeSet<Fid> = plan.fids().into_iter().collect();
        fids.extend(&done.fids);
        fids.extend(&done.gathered);
        for fid in fids {
            self.recheck(step, fid, (done.session, None));
        }
    }
}

impl Waiting {
    /// A client has answered what it was asked for this request.
    fn hear(
        &mut self,
        (session, stamp): (SessionId, u64),
        fid: Fid,
        (what, attr): (&What, Option<&Attr>),
    ) {
        match what {
            What::Names(names) => {
                self.stripped.insert((session, fid));
                let own = self.plan.names.iter().filter(|(dir, _)| *dir == fid);
                for name in own.flat_map(|(_, own)| own) {
                    if is_among(name, names) {
                        self.dropped.mark((session, fid), name, stamp);
                    }
                }
            }
            What::Attr => {
                if let Some(attr) = attr {
                    self.attrs.insert(fid, attr.clone());
                }
            }
            What::Keep(Right::None) => {
                self.gave_up.insert((session, fid));
            }
            What::Keep(_) | What::Listed | What::Unused | What::Locks => {}
        }
    }
}

impl Queue {
    fn leave<'a>(&mut self, seq: Seq, names: impl Iterator<Item = &'a Name>) {
        self.waiting.remove(&seq);
        self.idle.remove(&seq);
        self.whole.remove(&seq);
        for name in names {
            let Some(named) = self.named.get_mut(name) else {
                continue;
            };
            named.remove(&seq);
            if named.is_empty() {
                self.named.remove(name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
