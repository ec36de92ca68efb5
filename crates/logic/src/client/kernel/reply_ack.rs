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

use super::name_revoke::locks;
use crate::Ticket;
use crate::client::api::{Call, How};
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Running, Step};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, Name, Op, RequestId, Right, Time, Unseen};

/// How long the server is kept waiting for the turn at the lock while a look-up may have it that
/// waits for the server...
const LOOKUP_HOLDS_LOCK_WAIT_NS: Time = 1_000_000;
/// ...and else, so that it is only waited for who needs to run. On a machine where all processors
/// are wanted, or whose share of them is used up, that takes tens of milliseconds.
const ACK_WAIT_NS: Time = 200_000_000;
/// After this time an answer has been taken in.
pub(crate) const DIGESTED_AFTER_NS: Time = 1_000_000_000;

/// An own change that is answered.
#[derive(Clone, Debug)]
struct UnackedChange {
    /// What it touched.
    unseen: Unseen,
    /// Who asked.
    thread: u32,
    /// Where the bytes end that it wrote.
    wrote: Option<(Fid, u64)>,
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
    /// By who asked.
    threads: BTreeMap<u32, Vec<RequestId>>,
    /// Those that the server asks about.
    asked: BTreeSet<RequestId>,
    /// In the order of the answers; some are proved by now.
    order: VecDeque<(Time, RequestId)>,
    /// Names that the change being answered moves to where nothing covers them.
    pub(crate) uncovered: Vec<(Fid, Name)>,
}

impl ReplyAcks {
    fn insert(&mut self, now: Time, id: RequestId, untaken: UnackedChange) {
        self.threads.entry(untaken.thread).or_default().push(id);
        self.order.push_back((now, id));
        self.changes.insert(id, untaken);
    }

    fn remove(&mut self, id: RequestId) -> bool {
        self.asked.remove(&id);
        let Some(untaken) = self.changes.remove(&id) else {
            return false;
        };
        if let Some(ids) = self.threads.get_mut(&untaken.thread) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.threads.remove(&untaken.thread);
            }
        }
        while let Some((_, id)) = self.order.front()
            && !self.changes.contains_key(id)
        {
            self.order.pop_front();
        }
        true
    }

    /// Is it not known yet whether this one was taken in?
    pub(crate) fn holds(&self, id: RequestId) -> bool {
        self.changes.contains_key(&id)
    }

    /// The first of them.
    pub(crate) fn first(&self) -> Option<RequestId> {
        self.changes.keys().next().copied()
    }

    /// What all of them touch.
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
            node.is_some_and(|node| node.right > Right::None)
        };
        let unseen = self.touches(id, &self.calls.get(&ticket)?.call)?;
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
        let wrote = match running.call {
            Call::Write {
                fid, offset, len, ..
            } => Some((fid, offset + u64::from(len))),
            _ => None,
        };
        let untaken = UnackedChange {
            unseen,
            thread: running.thread,
            wrote,
            asked: None,
            looks: None,
            moved: Vec::new(),
        };
        self.reply_acks.insert(step.now, id, untaken);
        for (dir, name) in core::mem::take(&mut self.reply_acks.uncovered) {
            self.drop_moved(step, id, dir, name);
        }
        if self.confirms.contains(&id) && !self.prove(step, id) {
            self.confirm(step, id);
        }
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
        let untaken = UnackedChange {
            unseen,
            thread: 0,
            wrote: None,
            asked: None,
            looks: None,
            moved: Vec::new(),
        };
        self.reply_acks.insert(step.now, id, untaken);
        // Else the kernel has dropped them already, and kept none since.
        for (dir, name) in names.into_iter().filter(|_| !doubted) {
            self.drop_moved(step, id, dir, name);
        }
        // What the kernel does itself behind the answer to these, it does not do now.
        let bytes = matches!(
            running.call,
            Call::Op(Op::Allocate { .. } | Op::Copy { .. })
        );
        for fid in fids {
            let none = BTreeSet::new();
            let node = self.nodes.get(&fid).filter(|node| bytes && node.pages);
            let ranges = node.map(|node| node.without_reads(&[(0, u64::MAX)], &none));
            let what = Invalidate::Inode {
                fid,
                ranges: ranges.unwrap_or_default(),
                young: false,
            };
            self.invalidate(step, what, After::Moved(id, fid));
            if let Some(untaken) = self.reply_acks.changes.get_mut(&id) {
                untaken.moved.push(fid);
            }
        }
        self.on_taken(step, id);
        if self.reply_acks.holds(id) && self.confirms.contains(&id) && !self.prove(step, id) {
            self.confirm(step, id);
        }
    }

    /// The server wants to know whether this one has been seen; false if there is nothing to prove.
    pub(crate) fn prove(&mut self, step: &mut Step<'_>, id: RequestId) -> bool {
        let Some(untaken) = self.reply_acks.changes.get_mut(&id) else {
            return false;
        };
        if untaken.asked.is_some() {
            return true;
        }
        untaken.asked = Some(step.now);
        self.reply_acks.asked.insert(id);
        let Some((dir, _)) = untaken.unseen.names.first() else {
            self.look_again(step, id);
            return true;
        };
        let dir = *dir;
        if !untaken.moved.is_empty() {
            self.on_taken(step, id);
            return true;
        }
        if self.is_asked_for(dir) {
            self.reply_acks.remove(id);
            return false;
        }
        self.invalidate(step, Invalidate::Turn { fid: dir }, After::Turn(id));
        true
    }

    /// The kernel moves a name to where nothing covers it.
    fn drop_moved(&mut self, step: &mut Step<'_>, id: RequestId, dir: Fid, name: Name) {
        let what = Invalidate::Name { dir, name };
        self.invalidate(step, what, After::Moved(id, dir));
        if let Some(untaken) = self.reply_acks.changes.get_mut(&id) {
            untaken.moved.push(dir);
        }
    }

    /// The kernel has dropped what this change has moved: for that it needed the lock.
    pub(crate) fn on_moved(&mut self, step: &mut Step<'_>, (id, dir): (RequestId, Fid)) {
        let Some(untaken) = self.reply_acks.changes.get_mut(&id) else {
            return;
        };
        if let Some(at) = untaken.moved.iter().position(|moved| *moved == dir) {
            untaken.moved.swap_remove(at);
            self.on_taken(step, id);
        }
    }

    /// Is something asked for with this directory locked?
    fn is_asked_for(&self, dir: Fid) -> bool {
        let mut calls = self.calls.values();
        calls.any(|running| locked(&running.call, dir))
    }

    /// Has the kernel ask again for all that this change has touched.
    fn look_again(&mut self, step: &mut Step<'_>, id: RequestId) {
        let Some(untaken) = self.reply_acks.changes.get_mut(&id) else {
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
        let Some(untaken) = self.reply_acks.changes.get_mut(&id) else {
            return;
        };
        let left = untaken.looks.map_or(0, |left| left.saturating_sub(1));
        untaken.looks = Some(left);
        if left == 0 {
            untaken.moved.clear();
            self.on_taken(step, id);
        }
    }

    /// This answer has been taken in.
    pub(crate) fn on_taken(&mut self, step: &mut Step<'_>, id: RequestId) {
        let untaken = self.reply_acks.changes.get(&id);
        if let Some(untaken) = untaken.filter(|untaken| !untaken.moved.is_empty()) {
            // Who has the lock now may wait for the server, and the server for this.
            let stuck = untaken.moved.iter().any(|dir| self.is_asked_for(*dir));
            if stuck && untaken.asked.is_some() {
                self.look_again(step, id);
            }
            return;
        }
        if self.reply_acks.remove(id) {
            self.confirm(step, id);
        }
    }

    /// A call has come: what does it prove?
    pub(crate) fn on_next_call(&mut self, step: &mut Step<'_>, thread: u32, call: &Call) {
        if self.reply_acks.changes.is_empty() {
            return;
        }
        let own = match thread {
            0 => None,
            thread => self.reply_acks.threads.get(&thread),
        };
        let changes = &self.reply_acks.changes;
        let own = own.into_iter().flatten();
        let own = own.filter(|id| changes.get(id).is_some_and(|untaken| untaken.is_over(call)));
        let asked = self.reply_acks.asked.iter();
        let asked = asked.filter(|id| {
            changes
                .get(id)
                .is_some_and(|untaken| untaken.is_freed(call))
        });
        let proved: Vec<RequestId> = own.chain(asked).copied().collect();
        for id in proved {
            self.on_taken(step, id);
        }
    }

    /// Answers that were written long ago have been taken in.
    pub(crate) fn settle_taken(&mut self, step: &mut Step<'_>) {
        while let Some(&(at, id)) = self.reply_acks.order.front()
            && step.now >= at + DIGESTED_AFTER_NS
        {
            self.reply_acks.order.pop_front();
            self.on_taken(step, id);
            // Acknowledgements must go on, whoever has the lock that the name is dropped under.
            if self.reply_acks.holds(id) {
                self.look_again(step, id);
            }
        }
    }

    pub(crate) fn tick_taken(&mut self, step: &mut Step<'_>) {
        let asked: Vec<RequestId> = self.reply_acks.asked.iter().copied().collect();
        for id in asked {
            let untaken = self.reply_acks.changes.get(&id);
            let due = untaken.and_then(|untaken| self.look_due(untaken));
            if due.is_some_and(|due| step.now >= due) {
                self.look_again(step, id);
            }
        }
    }

    pub(crate) fn taken_due(&self) -> Option<Time> {
        let asked = self.reply_acks.asked.iter();
        let asked = asked.filter_map(|id| self.reply_acks.changes.get(id));
        asked.filter_map(|untaken| self.look_due(untaken)).min()
    }

    /// When the turn at the lock is waited for no longer.
    fn look_due(&self, untaken: &UnackedChange) -> Option<Time> {
        let asked = untaken.asked.filter(|_| untaken.looks.is_none())?;
        let looks = |running: &Running| {
            let Call::Op(Op::Lookup { dir, .. }) = &running.call else {
                return false;
            };
            untaken.unseen.names.iter().any(|(at, _)| at == dir)
        };
        let patience = if self.calls.values().any(looks) {
            LOOKUP_HOLDS_LOCK_WAIT_NS
        } else {
            ACK_WAIT_NS
        };
        Some(asked + patience)
    }
}

impl UnackedChange {
    /// The thread that asked asks for something: is that something else? A large write is several,
    /// each at the end of the one before, and the kernel takes the size in behind the last one.
    fn is_over(&self, call: &Call) -> bool {
        match (self.wrote, call) {
            (
                Some(end),
                Call::Write {
                    fid, offset, how, ..
                },
            ) => end != (*fid, *offset) && *how != How::Append,
            _ => true,
        }
    }

    /// Is something asked for with the directory locked that was changed?
    fn is_freed(&self, call: &Call) -> bool {
        let dir = self.unseen.names.first();
        dir.is_some_and(|(dir, _)| locked(call, *dir))
    }
}

/// Does the kernel ask for this with the directory locked, so that it cannot while it changes it?
pub(crate) fn locked(call: &Call, dir: Fid) -> bool {
    locks(call, dir) || matches!(call, Call::List { dir: at, .. } if *at == dir)
}
