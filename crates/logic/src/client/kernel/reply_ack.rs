//! Answers to changes that the kernel may not have taken in.
//!
//! An answer has been written to the kernel; the thread that asked takes it in when it runs again,
//! and until then other programs of its machine may be shown what the kernel kept from before: a
//! name that is gone, an older size. So where the kernel keeps anything, a change counts as seen
//! (it is confirmed, or acknowledged) only when that is proved. The proof costs nothing when
//! - the thread that asked asks for something else, or
//! - of a change in a directory: somebody else is asking for something that the kernel asks for
//!   with the directory locked, as it is from before the change until its answer is taken in.
//!
//! Only if the server asks before that, since another machine wants to see the change, the kernel
//! is told something: a notification that does nothing waits for its turn at the directory's lock.
//! If that takes too long, since others may have the lock whom the server keeps waiting until this
//! change is confirmed, the kernel is told to ask again for what has changed, which takes no lock.
//! It is the second choice since it takes away what is warm; but for a file the first, as there it
//! is the attributes only.
//!
//! A rename whose answer brings no grant of the directory leaves the kernel a name there that it
//! believes for ever, since it moves it as it was, and nothing covers it. It drops that as soon as
//! the answer is taken in, and the change is confirmed only then: so long nobody changes the name.
//!
//! A thread that ends after its change proves nothing. After a second it is taken for proved: a
//! thread that is to run has not been kept from it for so long.

use super::inode_locks::Held;
use super::replies::Awaits;
use crate::Ticket;
use crate::client::api::Call;
use crate::client::data::read_write::young;
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Running, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, Name, Op, RequestId, Right, Time, ToServer, Unseen};

/// How long the server is kept waiting for the turn at the lock while a call may have it that waits
/// for the server...
const CALL_HOLDS_LOCK_WAIT_NS: Time = 1_000_000;
/// ...and else, where the thread that has the lock need only run. On a machine where all processors
/// are wanted, or whose share of them is used up, that takes tens of milliseconds.
const ACK_WAIT_NS: Time = 200_000_000;

/// An own change that is answered.
#[derive(Clone, Debug)]
struct UnackedChange {
    /// The names and objects that it touched.
    unseen: Unseen,
    /// Waits in the ledger until the reply has been digested.
    waiter: u64,
    /// Since when the server has been asking.
    asked: Option<Time>,
    /// Notifications to ask again that are not done; `None`: none was sent.
    looks: Option<u32>,
    /// The kernel is dropping a name in each of these that the change has moved there.
    moved: Vec<Fid>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyAcks {
    changes: BTreeMap<RequestId, UnackedChange>,
    /// Those that the server asks about.
    asked: BTreeSet<RequestId>,
}

impl ReplyAcks {
    /// Is it not known yet whether this one was taken in?
    pub(crate) fn holds(&self, id: RequestId) -> bool {
        self.changes.contains_key(&id)
    }

    /// Does the server ask about none of them?
    pub(crate) fn is_unasked(&self) -> bool {
        self.asked.is_empty()
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<RequestId> {
        self.changes.keys().next().copied()
    }

    /// The names and objects that all of them touch.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = Unseen> + '_ {
        self.changes.values().map(|untaken| untaken.unseen.clone())
    }

    /// The session is over.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Client {
    /// The answer to a change has come: what may the kernel keep that it makes wrong? Of a file
    /// alone, nothing that no right covers.
    pub(crate) fn outdates(&self, id: RequestId, ticket: Ticket) -> Option<Unseen> {
        let keeps = |fid: &Fid| {
            let node = self.nodes.get(fid);
            node.is_some_and(|node| node.token.right > Right::None)
        };
        let unseen = self.touches(id, &self.callers.calls.get(&ticket)?.call)?;
        (!unseen.names.is_empty() || unseen.fids.iter().any(keeps)).then_some(unseen)
    }

    /// The call of a change is answered, just now.
    pub(crate) fn answered(
        &mut self,
        step: &mut Step<'_>,
        (id, unseen): (RequestId, Option<Unseen>),
        running: &Running,
    ) {
        let Some(unseen) = unseen else {
            return self.confirm(step, id);
        };
        if self.kernel.acks.holds(id) {
            return; // it is shown, whatever the kernel makes of the answer
        }
        let wrote = match running.call {
            Call::Write {
                fid, offset, len, ..
            } => Some((fid, offset + u64::from(len))),
            _ => None,
        };
        self.await_digestion((step.now, running.thread), id, unseen, wrote);
        for (dir, name) in core::mem::take(&mut self.kernel.uncovered) {
            self.drop_moved(step, id, dir, name);
        }
        if self.asked.confirms.contains(&id) && !self.prove(step, id) {
            self.confirm(step, id);
        }
    }

    fn await_digestion(
        &mut self,
        (now, thread): (Time, u32),
        id: RequestId,
        unseen: Unseen,
        wrote: Option<(Fid, u64)>,
    ) {
        let replies = &mut self.kernel.replies;
        let waiter = replies.wait(now, thread, Awaits::Change(id), wrote);
        let change = UnackedChange {
            unseen,
            waiter,
            asked: None,
            looks: None,
            moved: Vec::new(),
        };
        let other = self.kernel.acks.changes.insert(id, change);
        assert!(
            other.is_none(),
            "the change of request {id} is answered twice"
        );
    }

    /// The reply to this change need not be waited for.
    fn forget_unseen(&mut self, id: RequestId) -> bool {
        let acks = &mut self.kernel.acks;
        acks.asked.remove(&id);
        let change = acks.changes.remove(&id);
        if let Some(change) = &change {
            self.kernel.replies.take(change.waiter);
        }
        change.is_some()
    }

    /// A change whose caller did not wait for it is made: of all that it touched the kernel keeps
    /// what was before, as it does not know that anything has happened.
    pub(crate) fn disown(
        &mut self,
        step: &mut Step<'_>,
        (id, unseen): (RequestId, Option<Unseen>),
        (running, doubted): (&Running, bool),
    ) {
        let Some(unseen) = unseen else {
            return self.confirm(step, id);
        };
        let fids: BTreeSet<Fid> = unseen
            .fids
            .iter()
            .chain(&running.changed)
            .copied()
            .collect();
        let names = unseen.names.clone();
        if !self.kernel.acks.holds(id) {
            self.await_digestion((step.now, 0), id, unseen, None);
        }
        // Else the kernel has dropped them already, and kept none since.
        for (dir, name) in names.into_iter().filter(|_| !doubted) {
            self.drop_moved(step, id, dir, name);
        }
        // The kernel does not do now what it does by itself behind the answer to these.
        let bytes = matches!(
            running.call,
            Call::Op(Op::Allocate { .. } | Op::Copy { .. })
        );
        for fid in fids {
            let none = BTreeSet::new();
            let node = self
                .nodes
                .get(&fid)
                .filter(|node| bytes && node.kernel.pages);
            let ranges = node.map(|node| node.without_reads(&[(0, u64::MAX)], &none));
            // A look-up may have been answered by how it was a moment ago.
            let told = self.nodes.get(&fid).map(|node| node.kernel.told_at());
            let what = Invalidate::Inode {
                fid,
                ranges: ranges.unwrap_or_default(),
                young: told.is_some_and(|told| young(told, step.now)),
            };
            self.invalidate(step, what, After::Moved(id, fid));
            if let Some(untaken) = self.kernel.acks.changes.get_mut(&id) {
                untaken.moved.push(fid);
            }
        }
        self.on_digested(step, id);
        if self.kernel.acks.holds(id) && self.asked.confirms.contains(&id) && !self.prove(step, id)
        {
            self.confirm(step, id);
        }
    }

    /// The server asks whether a request has been answered to its caller.
    pub(crate) fn on_confirm(&mut self, step: &mut Step<'_>, request: RequestId) {
        let unfinished = self.asked.unfinished.values().any(|(id, _)| *id == request);
        let asked = self.asked.requests.contains_key(&request);
        if unfinished || asked || self.prove(step, request) {
            self.asked.confirms.insert(request);
            self.show_before_answer(step, request);
        } else {
            self.say(step, ToServer::Confirmed { request });
        }
    }

    /// The answer to a change of attributes waits for the server, which is asked for them once more
    /// and may wait for others that have changed them, too, and whose answers wait likewise. So the
    /// kernel drops what it knows of them: programs that look there are shown the change before it
    /// is answered.
    pub(crate) fn show_before_answer(&mut self, step: &mut Step<'_>, id: RequestId) {
        if !self.asked.confirms.contains(&id) || self.kernel.acks.holds(id) {
            return;
        }
        let asks_again = |ticket| {
            let running = self.callers.calls.get(ticket);
            let running = running.or_else(|| self.callers.abandoned.get(ticket));
            running.is_some_and(|running| running.set.is_some())
        };
        let mut unfinished = self.asked.unfinished.iter();
        let Some((_, (_, unseen))) =
            unfinished.find(|(ticket, (of, _))| *of == id && asks_again(ticket))
        else {
            return;
        };
        let Some(unseen) = unseen.clone() else {
            return self.confirm(step, id);
        };
        self.await_digestion((step.now, 0), id, unseen, None);
        self.prove(step, id);
    }

    /// The server wants to know whether this one has been seen; false if there is nothing to prove.
    pub(crate) fn prove(&mut self, step: &mut Step<'_>, id: RequestId) -> bool {
        let Some(untaken) = self.kernel.acks.changes.get_mut(&id) else {
            return false;
        };
        if untaken.asked.is_some() {
            return true;
        }
        untaken.asked = Some(step.now);
        self.kernel.acks.asked.insert(id);
        let Some((dir, _)) = untaken.unseen.names.first() else {
            self.look_again(step, id);
            return true;
        };
        let dir = *dir;
        if !untaken.moved.is_empty() {
            self.on_digested(step, id);
            return true;
        }
        if self.kernel.holders.keep_from_changing(dir) {
            self.forget_unseen(id);
            return false;
        }
        self.invalidate(step, Invalidate::Turn { fid: dir }, After::Turn(id));
        true
    }

    /// The kernel moves a name to where nothing covers it.
    fn drop_moved(&mut self, step: &mut Step<'_>, id: RequestId, dir: Fid, name: Name) {
        let what = Invalidate::Name { dir, name };
        self.invalidate(step, what, After::Moved(id, dir));
        if let Some(untaken) = self.kernel.acks.changes.get_mut(&id) {
            untaken.moved.push(dir);
        }
    }

    /// The kernel has dropped what this change has moved: for that it needed the lock.
    pub(crate) fn on_moved(&mut self, step: &mut Step<'_>, (id, dir): (RequestId, Fid)) {
        let untaken = self.kernel.acks.changes.get_mut(&id);
        let moved = untaken.map(|untaken| &mut untaken.moved);
        if let Some(moved) = moved
            && let Some(at) = moved.iter().position(|moved| *moved == dir)
        {
            moved.swap_remove(at);
            self.on_digested(step, id);
        }
        // Also when nobody asks for that change any more, as of a session that was lost.
        self.ask_behind(step, dir);
    }

    /// Is the kernel to drop what it knows of a file that was changed so?
    pub(crate) fn is_disowned(&self, fid: Fid, pages: bool) -> bool {
        self.kernel.notices.is_disowned(fid, pages)
    }

    /// A file was changed for a caller that did not wait, and the kernel has yet to drop the old
    /// size. Were a program shown the new bytes past the kernel's pages, others that read through
    /// these would be shown the old end after that; and were the kernel told that a page lies past
    /// the new end, it would take the page's beginning for the end. So the read waits; one for
    /// pages, which it holds locked, only where the kernel needs none of them.
    pub(crate) fn waits_for_disowned(&mut self, fid: Fid, ticket: Ticket, pages: bool) -> bool {
        let waits = self.is_disowned(fid, pages);
        if waits {
            self.node(fid).behind.push(ticket);
        }
        waits
    }

    /// Has the kernel ask again for all that this change has touched.
    fn look_again(&mut self, step: &mut Step<'_>, id: RequestId) {
        let Some(untaken) = self.kernel.acks.changes.get_mut(&id) else {
            return;
        };
        if untaken.looks.is_some() {
            return;
        }
        let names = untaken.unseen.names.iter();
        let mut dirs: Vec<Fid> = names.map(|(dir, _)| *dir).collect();
        dirs.dedup();
        let names = dirs.into_iter().map(|dir| Invalidate::Names { dir });
        let attrs = untaken.unseen.fids.iter().map(|&fid| Invalidate::Inode {
            fid,
            ranges: vec![],
            young: false,
        });
        let all: Vec<Invalidate> = names.chain(attrs).collect();
        untaken.looks = Some(all.len() as u32);
        for what in all {
            self.invalidate(step, what, After::Look(id));
        }
    }

    /// The kernel has been told one of the things that it is to ask for again.
    pub(crate) fn on_look(&mut self, step: &mut Step<'_>, id: RequestId) {
        let Some(untaken) = self.kernel.acks.changes.get_mut(&id) else {
            return;
        };
        let left = untaken.looks.map_or(0, |left| left.saturating_sub(1));
        untaken.looks = Some(left);
        if left == 0 {
            untaken.moved.clear();
            self.on_digested(step, id);
        }
    }

    /// This answer has been taken in.
    pub(crate) fn on_digested(&mut self, step: &mut Step<'_>, id: RequestId) {
        let untaken = self.kernel.acks.changes.get(&id);
        if let Some(untaken) = untaken.filter(|untaken| !untaken.moved.is_empty()) {
            // The call that has the lock now may wait for the server, and the server for this.
            let holders = &self.kernel.holders;
            let stuck = (untaken.moved.iter()).any(|dir| holders.keep_from_changing(*dir));
            if stuck && untaken.asked.is_some() {
                self.look_again(step, id);
            }
            return;
        }
        if self.forget_unseen(id) {
            self.confirm(step, id);
        }
    }

    /// A call has come that has inodes locked: the thread that has changed these has digested its
    /// reply.
    pub(crate) fn on_locks_seen(&mut self, step: &mut Step<'_>, held: &Held) {
        let acks = &self.kernel.acks;
        if acks.asked.is_empty() {
            return;
        }
        let freed = |id: &&RequestId| {
            let change = acks.changes.get(id);
            let dir = change.and_then(|change| change.unseen.names.first());
            dir.is_some_and(|(dir, _)| held.keeps_from_changing(*dir))
        };
        let digested: Vec<RequestId> = acks.asked.iter().filter(freed).copied().collect();
        for id in digested {
            self.on_digested(step, id);
        }
    }

    /// Replies that were written long ago have been digested.
    pub(crate) fn settle_taken(&mut self, step: &mut Step<'_>) {
        let change = |awaits| matches!(awaits, Awaits::Change(_));
        while let Some(Awaits::Change(id)) = self.kernel.replies.expired(step.now, change) {
            self.on_digested(step, id);
            // Acknowledgements must go on, whoever has the lock that the name is dropped under.
            if self.kernel.acks.holds(id) {
                self.look_again(step, id);
            }
        }
    }

    pub(crate) fn tick_acks(&mut self, step: &mut Step<'_>) {
        let asked: Vec<RequestId> = self.kernel.acks.asked.iter().copied().collect();
        for id in asked {
            let untaken = self.kernel.acks.changes.get(&id);
            let due = untaken.and_then(|untaken| self.look_due(untaken));
            if due.is_some_and(|due| step.now >= due) {
                self.look_again(step, id);
            }
        }
    }

    pub(crate) fn acks_due(&self) -> Option<Time> {
        let asked = self.kernel.acks.asked.iter();
        let asked = asked.filter_map(|id| self.kernel.acks.changes.get(id));
        asked.filter_map(|untaken| self.look_due(untaken)).min()
    }

    /// When the turn at the lock is waited for no longer.
    fn look_due(&self, untaken: &UnackedChange) -> Option<Time> {
        let asked = untaken.asked.filter(|_| untaken.looks.is_none())?;
        let dirs = untaken.unseen.names.iter().map(|(dir, _)| *dir);
        let patience = if self.kernel.holders.may_wait_in(dirs) {
            CALL_HOLDS_LOCK_WAIT_NS
        } else {
            ACK_WAIT_NS
        };
        Some(asked + patience)
    }
}
