//! Sizes that a kernel was told without a right to keep them.
//!
//! It takes such an answer in when the thread that asked runs again, perhaps after another machine
//! has shortened the file; and while a program asks for the new size, the old answer has the new
//! one thrown away. So before a size is set, the server asks for them back. Mostly there is nothing
//! to do: the thread has asked for something else since, so it has taken its answer in. If it has
//! not, a notification makes the kernel throw away what is still on its way to it.
//!
//! That throws away also what somebody is being told who goes by the size that the kernel then
//! knows: who seeks to the end. He holds the file's lock from before he asks until he has done so,
//! and his question may not have come yet. So the kernel is told at its turn at that lock; and once
//! more the lock is waited for, behind who got it in between. Who holds it in a call that is here
//! already may wait for the very machine that waits for this: then nobody waits for the lock.

use super::name_revoke::locks;
use super::reply_ack::DIGESTED_AFTER_NS;
use super::stale_replies::is_background;
use crate::Ticket;
use crate::client::api::{Call, Lifetime};
use crate::client::node::Phase;
use crate::client::notices::Invalidate;
use crate::client::tokens::recall::BLOCKED_READS_WAIT_NS;
use crate::client::{After, Client, Running, Step};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use wire::{Attr, Fid, Kind, Name, Op, Time};

/// How long the lock is waited for: who has it need only run.
pub(crate) const UNCOVERED_LOCK_WAIT_NS: Time = 100_000_000;

/// The first of all fids.
const FIRST: Fid = Fid {
    volume: 0,
    vnode: 0,
    uniq: 0,
};

/// An answer about attributes.
#[derive(Clone, Copy, Debug)]
struct AttrReply {
    at: Time,
    /// Who asked then goes by what the kernel knows.
    seeks: bool,
    /// No right covers it.
    loose: bool,
}

/// The answers that may not have been taken in.
#[derive(Clone, Debug, Default)]
pub(crate) struct UncoveredSizes {
    /// By the thread that asked; 0: not known.
    told: BTreeMap<(u32, Fid), AttrReply>,
    /// In the order of time; some are proved by now.
    order: VecDeque<(Time, (u32, Fid))>,
}

impl UncoveredSizes {
    fn insert(&mut self, key: (u32, Fid), told: AttrReply) {
        while let Some(&(at, old)) = self.order.front()
            && at + DIGESTED_AFTER_NS <= told.at
        {
            self.order.pop_front();
            if self.told.get(&old).is_some_and(|told| told.at == at) {
                self.told.remove(&old);
            }
        }
        self.told.insert(key, told);
        self.order.push_back((told.at, key));
    }

    /// A thread asks for something: it has taken in what it was told before.
    pub(crate) fn proved(&mut self, thread: u32, call: &Call) {
        if thread == 0 || is_background(call) {
            return;
        }
        while let Some((&key, _)) = self.told.range((thread, FIRST)..).next()
            && key.0 == thread
        {
            self.told.remove(&key);
        }
    }

    fn of(&self, now: Time, fid: Fid) -> impl Iterator<Item = &AttrReply> {
        let told = self.told.iter().filter(move |(key, _)| key.1 == fid);
        told.map(|(_, told)| told)
            .filter(move |told| now < told.at + DIGESTED_AFTER_NS)
    }

    /// May the kernel have an answer about this one to take in that no right covers?
    pub(crate) fn holds(&self, now: Time, fid: Fid) -> bool {
        self.of(now, fid).any(|told| told.loose)
    }

    /// The kernel has taken in or thrown away all that it was told of this one.
    pub(crate) fn forget(&mut self, fid: Fid) {
        self.told.retain(|key, _| key.1 != fid);
    }

    fn found(&mut self, fid: Fid) {
        self.told.retain(|key, told| key.1 != fid || !told.seeks);
    }
}

impl Client {
    /// The kernel is told attributes: may it keep them?
    pub(crate) fn loosen(
        &mut self,
        now: Time,
        running: &Running,
        (fid, attr): (Fid, &Attr),
        lifetime: Lifetime,
    ) {
        let seeks = matches!(running.call, Call::Seek { .. });
        let loose = lifetime == Lifetime::None;
        if attr.kind == Kind::File && (seeks || loose) {
            let told = AttrReply {
                at: now,
                seeks,
                loose,
            };
            self.uncovered_sizes.insert((running.thread, fid), told);
        }
    }

    /// May a program hold the file's lock that has asked for the attributes and not taken in what
    /// it was told? (Who seeks to the end does.) That is over when somebody else has the lock.
    pub(crate) fn is_sought(&mut self, step: &mut Step<'_>, fid: Fid, turn: Option<u64>) -> bool {
        let locked = self.is_locked(fid);
        if locked {
            self.uncovered_sizes.found(fid);
        }
        let seeking = self
            .uncovered_sizes
            .of(step.now, fid)
            .any(|told| told.seeks);
        let node = self.node(fid);
        if locked
            && let Some(drain) = node.drain.as_mut()
            && let Phase::Settling(_, turn) = &mut drain.phase
        {
            *turn = None;
        }
        if !seeking || node.asking > 0 || turn.is_some() {
            return seeking;
        }
        let id = self.invalidate(step, Invalidate::Turn { fid }, After::Settled(fid));
        if let Some(drain) = self.node(fid).drain.as_mut()
            && let Phase::Settling(_, turn) = &mut drain.phase
        {
            *turn = Some(id);
        }
        true
    }

    /// A notification had its turn at the lock.
    pub(crate) fn on_settled(&mut self, step: &mut Step<'_>, fid: Fid, id: u64) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let Some(drain) = node.drain.as_mut() else {
            return;
        };
        if let Phase::Settling(until, Some(turn)) = drain.phase
            && turn == id
        {
            drain.phase = Phase::Settling(until, None);
            // Somebody who came behind it may be asking again.
            if node.asking == 0 {
                self.uncovered_sizes.found(fid);
            }
            self.go_on_draining(step, fid);
        }
    }

    /// A call has come: if it holds the lock of a file, nobody else does.
    pub(crate) fn on_file_locked(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let Some(running) = self.calls.get(&ticket) else {
            return;
        };
        let locked = |fid: &Fid| self.locks_file(&running.call, *fid);
        let files: Vec<Fid> = self.draining.iter().copied().filter(locked).collect();
        for fid in files {
            self.go_on_draining(step, fid);
        }
    }

    /// Does a call that is not answered hold the lock of this file?
    fn is_locked(&self, fid: Fid) -> bool {
        let mut running = self.calls.values();
        running.any(|running| self.locks_file(&running.call, fid))
    }

    /// The kernel locks the file that is linked, moved, replaced or loses a name, too. What a name
    /// means is known here while a token of the directory covers it, as it mostly does.
    fn locks_file(&self, call: &Call, fid: Fid) -> bool {
        let names = |dir: &Fid, name: &Name| {
            let known = self.nodes.get(dir).and_then(|node| node.names.get(name));
            known.is_some_and(|known| known.is_some_and(|known| known.fid == fid))
        };
        match call {
            Call::Op(Op::Link { fid: of, .. }) => *of == fid,
            Call::Op(Op::Unlink { dir, name }) => names(dir, name),
            Call::Op(Op::Rename {
                from,
                name,
                to,
                new,
                ..
            }) => names(from, name) || names(to, new),
            call => locks(call, fid),
        }
    }

    /// Has what the kernel was told without a right thrown away.
    pub(crate) fn drop_loose(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self.is_locked(fid) {
            return self.drop_locked(step, fid);
        }
        let id = self.invalidate(step, Invalidate::Sizes { fid }, After::Drain(fid));
        if let Some(drain) = self.node(fid).drain.as_mut() {
            drain.phase = Phase::Dropping(id, step.now + BLOCKED_READS_WAIT_NS);
        }
    }

    /// The same without the lock, and without waiting for pages: a read that holds one may wait for
    /// the very machine that waits for this.
    fn drop_locked(&mut self, step: &mut Step<'_>, fid: Fid) {
        if let Some(drain) = self.node(fid).drain.as_mut() {
            drain.locked = true;
        }
        self.drop_pages(step, fid, Vec::new());
    }

    /// The lock has been waited for in vain for a while: is there anything to wait for?
    pub(crate) fn wait_no_more(&mut self, step: &mut Step<'_>, fid: Fid) {
        let node = self.nodes.get(&fid);
        let waits = |drain: &&crate::client::node::Drain| drain.loose && !drain.locked;
        let Some(drain) = node.and_then(|node| node.drain.as_ref()).filter(waits) else {
            return;
        };
        if step.now >= drain.until || self.is_locked(fid) {
            self.drop_locked(step, fid);
        }
    }
}
