//! Sizes that a kernel was told without a right to keep them.
//!
//! It takes such an answer in when the thread that asked runs again, perhaps after another machine
//! has shortened the file; and while a program asks for the new size, the old answer has the new
//! one thrown away. So before a size is set, the server asks for them back. Mostly there is nothing
//! to do: the thread has asked for something else since, so it has taken its answer in. If it has
//! not, a notification makes the kernel throw away what is still on its way to it.
//!
//! That throws away also the answer to a thread that goes by the size which the kernel then knows:
//! one that seeks to the end. It holds the file's lock from before it asks until it has done so,
//! and its question may not have come yet. So the kernel is told at its turn at that lock; and once
//! more the lock is waited for, behind the thread that got it in between. A thread that holds it in
//! a call that is here already may wait for the very machine that waits for this: then nobody waits
//! for the lock.

use super::replies::Tells;
use crate::Ticket;
use crate::client::node::Phase;
use crate::client::notices::Invalidate;
use crate::client::tokens::recall::BLOCKED_READS_WAIT_NS;
use crate::client::{After, Client, Step};
use alloc::vec::Vec;
use wire::{Fid, Time};

/// How long the lock is waited for: the thread that has it need only run.
pub(crate) const UNCOVERED_LOCK_WAIT_NS: Time = 100_000_000;

impl Client {
    /// May the kernel have a reply about this one in flight that no right covers?
    pub(crate) fn has_uncovered(&self, now: Time, fid: Fid) -> bool {
        self.may_tell(now, fid, Tells::UNCOVERED)
    }

    fn may_tell(&self, now: Time, fid: Fid, tells: Tells) -> bool {
        let replies = self.nodes.get(&fid).map(|node| &node.kernel.attr.replies);
        replies.is_some_and(|replies| replies.tell(&self.kernel.replies, now, tells, None))
    }

    fn sought(&mut self, fid: Fid) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.kernel.attr.replies.sought();
        }
    }

    /// May a program hold the file's lock that has asked for the attributes and not taken in what
    /// it was told? (Who seeks to the end does.) That is over when somebody else has the lock.
    pub(crate) fn is_sought(&mut self, step: &mut Step<'_>, fid: Fid, turn: Option<u64>) -> bool {
        let locked = self.kernel.holders.changer(fid).is_some();
        if locked {
            self.sought(fid);
        }
        let seeking = self.may_tell(step.now, fid, Tells::SEEKS);
        let node = self.node(fid);
        if locked
            && let Some(drain) = node.drain.as_mut()
            && let Phase::Settling(_, turn) = &mut drain.phase
        {
            *turn = None;
        }
        if !seeking || node.pending.asking > 0 || turn.is_some() {
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
            if node.pending.asking == 0 {
                self.sought(fid);
            }
            self.go_on_draining(step, fid);
        }
    }

    /// A call has come: if it holds the lock of a file, nobody else does.
    pub(crate) fn on_file_locked(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let holders = &self.kernel.holders;
        let locked = |fid: &Fid| holders.is_changed_by(*fid, ticket);
        let files: Vec<Fid> = self.draining.iter().copied().filter(locked).collect();
        for fid in files {
            self.go_on_draining(step, fid);
        }
    }

    /// Has what the kernel was told without a right thrown away.
    pub(crate) fn drop_loose(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self.kernel.holders.changer(fid).is_some() {
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
        if step.now >= drain.until || self.kernel.holders.changer(fid).is_some() {
            self.drop_locked(step, fid);
        }
    }
}
