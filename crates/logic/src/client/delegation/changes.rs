//! Delegated directories: changes of names and attributes that nobody is asked about.
//!
//! A directory that this client holds Exclusive is its own: a change there is answered from what is
//! known here ([`super::local_apply`]) and kept in order; the server hears of it later, when the
//! oldest is old enough, when there are many, before anything is asked of the server that builds on
//! them, or when somebody else looks: before the token goes back, all that concerns it has been
//! applied. An fsync of anything sends all of them first.
//!
//! Changes that are kept when the machine dies, or is fenced, are lost: always the latest ones,
//! since they are sent and applied in their order. A file that was made and removed again before
//! the server has heard of it leaves no trace.

use super::local_apply::Prediction;
use crate::Ticket;
use crate::client::api::{Done, Output};
use crate::client::mutant::Mutant;
use crate::client::notices::Event;
use crate::client::session::asked::{Sent, Why};
use crate::client::{Client, Step};
use crate::footprint::Footprint;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use wire::{
    Caller, Delegated, Fid, Hold, Op, Outcome, Refusal, Reply, Request, RequestId, Right, Time,
    ToServer,
};

/// So many at most are kept.
const LOG_MAX: usize = 16_384;
/// More are not answered before the server has said what became of those before.
const UNANSWERED_MAX: usize = 32_768;
/// The changes that the server does not know of, and numbers for what is made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delegation {
    /// Not sent yet, in their order.
    pub(crate) kept: BTreeSet<RequestId>,
    /// Directories in which something was made and has gone again, which changed their times: by
    /// which change of names that is kept no more. Also files of which nothing else brings them.
    pub(crate) touched: BTreeMap<Fid, RequestId>,
    /// When the oldest was made.
    since: Time,
    /// The last one that was sent.
    pub(crate) last: RequestId,
    /// Of these the server has not said what became of them.
    pub(crate) unanswered: usize,
    /// Replies that came before the reply to the change in front of theirs.
    pub(crate) overtaking: super::reply_order::OvertakingReplies,
    /// Numbers that nobody else gets: the first, and how many.
    pub(super) numbers: VecDeque<(u64, u32)>,
    /// A question for more is on its way.
    pub(super) asked: bool,
    /// So many are asked for next; 0: there has been no directory to make anything in.
    pub(super) count: u32,
    /// They are not asked for before that: the server had no room for what they are for.
    pub(super) ask_again: Time,
}

/// The objects that a change is about.
#[derive(Clone, Debug)]
pub(crate) struct LoggedObjects {
    pub(crate) fids: Vec<Fid>,
    /// Other directories that must be where they are when the server hears of it.
    pub(crate) relies_on: Vec<Fid>,
}

impl LoggedObjects {
    pub(crate) fn all(&self) -> impl Iterator<Item = Fid> {
        self.fids.iter().chain(&self.relies_on).copied()
    }
}

impl Client {
    /// Answers a change by itself, if it can.
    pub(crate) fn done_here(&mut self, step: &mut Step<'_>, ticket: Ticket, op: &Op) -> bool {
        let busy = self.delegation.unanswered >= UNANSWERED_MAX;
        if self.options.keep_ns.is_none() || busy || !op.may_be_delegated() {
            return false;
        }
        if self.callers.unattended.any() {
            // It may be about what such a change removes: no lock keeps it from that any more.
            return false;
        }
        let Some(caller) = self
            .callers
            .calls
            .get(&ticket)
            .map(|running| running.caller.clone())
        else {
            return false;
        };
        if self.is_nobody(&caller) {
            return false;
        }
        let room = self.has_room_for(op);
        let Some(prediction) = room.then(|| self.predict(step.now, op, &caller)).flatten() else {
            if self.delegation.count > 0 {
                self.reserve_if_low(step);
                self.ask_for_room_of(step, op);
            }
            return false;
        };
        if self.set_stillborn(step, ticket, (op, &prediction)) {
            return true;
        }
        self.asked.last_request += 1;
        let id = self.asked.last_request;
        self.keep(step, id, (op, caller), &prediction);
        self.take_over(id, &prediction);
        self.asked.answering = id;
        let unseen = self.outdates(id, ticket);
        self.asked.unfinished.insert(ticket, (id, unseen));
        self.answer_here(step, (ticket, id), op, prediction);
        if self.delegation.kept.len() >= LOG_MAX {
            self.ship(step);
        }
        self.reserve_if_low(step);
        self.ask_for_room_of(step, op);
        true
    }

    /// Attributes of what has gone before the server has heard of it change here alone.
    fn set_stillborn(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (op, prediction): (&Op, &Prediction),
    ) -> bool {
        let Outcome::Attr(attr) = &prediction.outcome else {
            return false;
        };
        let (Op::SetAttr { fid, .. } | Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. }) = op
        else {
            return false;
        };
        let fid = *fid;
        let node = self.node(fid);
        if !node.untold.stillborn {
            return false;
        }
        node.attr = Some(attr.clone());
        if !matches!(op, Op::SetAttr { .. }) {
            self.answer_xattr(step, ticket, op);
            return true;
        }
        let (attr, lifetime) = self.to_say(fid, attr.clone());
        self.finish(step, ticket, Done::Attr { attr, lifetime });
        true
    }

    /// Puts a change behind those that are kept.
    pub(crate) fn keep(
        &mut self,
        step: &mut Step<'_>,
        id: RequestId,
        (op, caller): (&Op, Caller),
        prediction: &Prediction,
    ) {
        self.reserve_room(step.now, op);
        let mut chosen = prediction.chosen;
        if self.options.mutant == Some(Mutant::TellsOtherPositions) {
            chosen.position += u64::from(chosen.position != 0);
        }
        let stamp = self.stamp();
        let access = op.makes_open();
        let hold = Hold {
            open: access.is_some(),
            write: access.is_some_and(|access| access.write),
            stamp,
        };
        let request = Request {
            caller,
            hold,
            delegated: Some(Delegated {
                at: prediction.at,
                chosen,
                unseen: true,
                named: self.taken_away(&prediction.outcome),
            }),
            ..Request::new(id, op.clone())
        };
        let mut fids: Vec<Fid> = prediction.after.iter().map(|(fid, _)| *fid).collect();
        fids.dedup();
        let relies_on = prediction.relies_on.clone();
        let about = LoggedObjects { fids, relies_on };
        let in_them = Footprint::new(op).dirs();
        for fid in about.all() {
            let node = self.node(fid);
            (node.untold.delegated, node.untold.told_by) = (node.untold.delegated + 1, id);
            if about.relies_on.contains(&fid) {
                continue;
            }
            let made = prediction.chosen.vnode == fid.vnode;
            if made || (node.untold.unborn != 0 && !in_them.contains(&Some(fid))) {
                node.untold.own.push(id);
            }
        }
        let sent = Sent::kept(request, Why::Delegated(about));
        self.asked.requests.insert(id, sent);
        self.delegation.begins(step.now);
        self.delegation.kept.insert(id);
        self.delegation.unanswered += 1;
    }

    /// From now on things are as the prediction says.
    fn take_over(&mut self, id: RequestId, prediction: &Prediction) {
        let last = self.asked.last_request;
        for (fid, attr) in &prediction.after {
            let made = prediction.chosen.vnode == fid.vnode;
            let node = self.node(*fid);
            if made {
                node.token.right = Right::Exclusive;
                node.version = attr.version;
                node.directory = attr.kind == wire::Kind::Directory;
                node.dir.whole = node.directory;
                node.dir.last = node.directory.then_some(0);
                (node.untold.unborn, node.bare) = (id, true);
            }
            node.attr = Some(attr.clone());
            node.marks.changed = last;
        }
    }

    fn answer_here(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        op: &Op,
        prediction: Prediction,
    ) {
        let granted: Vec<Fid> = prediction.after.iter().map(|(fid, _)| *fid).collect();
        let position = prediction.chosen.position;
        if let (Op::SetAttr { fid, .. }, Outcome::Attr(attr)) = (op, &prediction.outcome) {
            let (attr, lifetime) = self.to_say(*fid, attr.clone());
            self.node(*fid).kernel.is_told_attr(step.now);
            self.finish(step, ticket, Done::Attr { attr, lifetime });
        } else if matches!(op, Op::SetXattr { .. } | Op::RemoveXattr { .. }) {
            self.answer_xattr(step, ticket, op);
        } else {
            self.on_names(step, (ticket, id), op, (prediction.outcome, granted, 0));
        }
        match op {
            Op::Make { dir, name, .. } | Op::Link { dir, name, .. } => {
                self.node(*dir).placed(name, position);
            }
            Op::Rename { to, new, .. } => self.node(*to).placed(new, position),
            Op::Unlink { dir, name } | Op::Rmdir { dir, name } if self.node(*dir).dir.whole => {
                self.node(*dir).dir.names.remove(name);
            }
            _ => {}
        }
    }

    /// A file has gone, with its last name and its last descriptor, or a directory with all that
    /// was in it, of which the server has not heard: the changes kept about it are struck out, and
    /// only the times of directories have changed.
    pub(crate) fn strikes_out(&mut self, step: &mut Step<'_>, fid: Fid) -> bool {
        let Some(node) = self.nodes.get(&fid) else {
            return false;
        };
        let used = !node.unlinked
            || node.hold(0).open
            || node.writeback.sending
            || !self.options.announced;
        if used || node.untold.unborn == 0 {
            return false;
        }
        let Some(own) = self.only_about(fid) else {
            return false;
        };
        for (id, dirs) in own {
            match dirs {
                Some(dirs) => {
                    for dir in dirs {
                        let touched = self.delegation.touched.entry(dir).or_default();
                        *touched = id.max(*touched);
                    }
                    self.strike(id);
                }
                None => self.was_not_there(id, fid),
            }
        }
        self.delegation.touched.remove(&fid);
        let node = self.node(fid);
        (node.untold.stillborn, node.writeback.flush) = (true, false);
        node.untold.own = Vec::new();
        self.bury_stillborn(step, fid);
        true
    }

    /// A file that has gone before the server has heard of it is never written back. Its bytes go
    /// when the kernel has let go of it: a descriptor that is no open file can be opened once more.
    pub(crate) fn bury_stillborn(&mut self, step: &mut Step<'_>, fid: Fid) {
        let node = self.nodes.get(&fid);
        let used = node.is_none_or(|node| node.kernel.is_known() || node.hold(0).open);
        if used && self.session.leaving.is_none() {
            return;
        }
        let blocks: Vec<u64> = self.cache.blocks(fid, 0).map(|(block, ..)| block).collect();
        for block in blocks {
            self.cache.drop_block(fid, block);
        }
        self.feed_starved(step);
    }

    /// The changes about this object, if all are kept, and the directories that each of them is
    /// about too; `None`: it gives the object's name to another one. There is none that needs this
    /// object: names in a directory are not about it alone.
    fn only_about(&self, fid: Fid) -> Option<Vec<(RequestId, Option<Vec<Fid>>)>> {
        let node = self.nodes.get(&fid)?;
        if node.untold.own.len() != node.untold.delegated as usize {
            return None;
        }
        let part = |id: &RequestId| {
            let sent = self.asked.requests.get(id).filter(|sent| sent.kept)?;
            let Why::Delegated(about) = &sent.why else {
                return None;
            };
            let dirs: Vec<Fid> = Footprint::new(&sent.request.op)
                .dirs()
                .into_iter()
                .flatten()
                .collect();
            let mut all = about.fids.iter();
            if all.all(|of| *of == fid || dirs.contains(of)) {
                return Some((*id, Some(dirs)));
            }
            // The last of them is the object whose name is taken.
            (about.fids.last() == Some(&fid)).then_some((*id, None))
        };
        node.untold.own.iter().map(part).collect()
    }

    /// The server will find nothing in the place of the file whose name another one has taken.
    fn was_not_there(&mut self, id: RequestId, fid: Fid) {
        if let Some(sent) = self.asked.requests.get_mut(&id)
            && let Why::Delegated(about) = &mut sent.why
        {
            about.fids.retain(|of| *of != fid);
            self.node(fid).untold.delegated -= 1;
        }
    }

    fn strike(&mut self, id: RequestId) {
        self.delegation.kept.remove(&id);
        let Some(Sent { request, why, .. }) = self.asked.requests.remove(&id) else {
            return;
        };
        self.unreserve_room(&request.op);
        let Why::Delegated(about) = why else {
            return;
        };
        self.delegation.unanswered -= 1;
        for fid in about.all() {
            self.node(fid).untold.delegated -= 1;
        }
    }

    /// The server has said what became of a delegated change.
    pub(crate) fn on_shipped(
        &mut self,
        step: &mut Step<'_>,
        about: &LoggedObjects,
        (request, reply): (&Request, &Reply),
    ) {
        if reply.outcome == Outcome::Refused(Refusal::SessionLost) {
            // So are all behind it.
            self.say(step, ToServer::Goodbye);
            return self.lose(step);
        }
        for grant in &reply.grants {
            self.accept(*grant);
        }
        self.note_salvaged(step, about, (request, reply));
        self.delegation.unanswered = self.delegation.unanswered.saturating_sub(1);
        for fid in about.all() {
            let Some(node) = self.nodes.get_mut(&fid) else {
                continue;
            };
            node.untold.delegated = node.untold.delegated.saturating_sub(1);
            // The first is always the one that made it.
            node.untold.unborn = 0;
            node.untold.own = Vec::new();
            if node.untold.delegated > 0 {
                continue;
            }
            if let Some(epoch) = node.tell.take() {
                self.tell_attr(step, fid, epoch);
            }
            self.bury_if_unused(step, fid);
            self.go_on_draining(step, fid);
            self.resolve(step, fid);
            self.retire(step, fid);
        }
        self.leave_if_clean(step);
    }

    /// The session is over: changes that the server was not told are lost.
    pub(crate) fn lose_delegated(&mut self, step: &mut Step<'_>) {
        let lost = core::mem::take(&mut self.delegation);
        let count = lost.unanswered as u64 + lost.touched.len() as u64;
        if count > 0 {
            step.out.push(Output::Event(Event::ChangesLost { count }));
        }
    }

    pub(crate) fn tick_delegation(&mut self, step: &mut Step<'_>) {
        if self.delegation_due().is_some_and(|due| step.now >= due) {
            self.ship(step);
        }
    }

    /// When the oldest of what is kept is to be sent.
    pub(crate) fn delegation_due(&self) -> Option<Time> {
        let keep_ns = self
            .options
            .keep_ns
            .filter(|_| !self.delegation.is_empty())?;
        Some(self.delegation.since.saturating_add(keep_ns))
    }
}

impl Delegation {
    /// The last one sent, if the server may not have applied it: a request made now comes after it.
    pub(crate) fn last_unanswered(&self, requests: &BTreeMap<RequestId, Sent>) -> RequestId {
        if requests.contains_key(&self.last) {
            self.last
        } else {
            0
        }
    }

    /// Has there been a directory to make something in?
    pub(crate) fn names_are_made(&self) -> bool {
        self.count > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.touched.is_empty()
    }

    /// Something is kept: since when, if it is the first.
    fn begins(&mut self, now: Time) {
        if self.is_empty() {
            self.since = now;
        }
    }
}
