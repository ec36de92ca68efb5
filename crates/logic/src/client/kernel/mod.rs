//! One model of what the kernel of this machine may still believe, and how that is taken back.
//!
//! Inputs: a thread has asked for something (`kernel_asks`, and `kernel_asked` once the call has
//! been begun), a reply is written (`kernel_is_told`), a notification is done (`on_invalidated`),
//! time passes (`tick_kernel`), the kernel forgets an object ([`belief::Belief::forgets`]).
//! Outputs: notifications (`invalidate`), each with the action that follows it.
//!
//! Questions and orders of the rest of the client: may the kernel know this name (`may_be_known`,
//! `lasts`)? Drop these names and answer when that is certain (`drop_names`). Is it not certain yet
//! that the reply to this change has been digested (`is_unseen`)? May it have attributes of this
//! object in flight that no token covers (`has_uncovered`)?
//!
//! Guarantees: nothing outside of this folder changes what is kept here. One ledger ([`replies`])
//! says which replies are in flight to which threads, and one table ([`inode_locks`]) what the
//! kernel has locked during which call.

pub(super) mod belief;
pub(super) mod cut_pages;
pub(super) mod dentries;
pub(super) mod inode_locks;
pub(super) mod lookup_barrier;
pub(super) mod name_revoke;
pub(super) mod notify_done;
pub(super) mod open_prefill;
pub(super) mod page_drop;
mod page_sizes;
pub(super) mod replies;
pub(super) mod reply_ack;
pub(super) mod retry;
pub(super) mod stale_replies;
pub(super) mod uncovered_sizes;
pub(super) mod wound_wait;

use super::api::{Call, Done, Lifetime};
use super::{Client, Running, Step};
use crate::Ticket;
use inode_locks::LockHolders;
use replies::{Awaits, Replies};
use wire::{Fid, Name, RequestId, Time, Unseen};

/// The model. Its knowledge of single objects is in their nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    replies: Replies,
    holders: LockHolders,
    notices: notify_done::Notices,
    acks: reply_ack::ReplyAcks,
    revokes: name_revoke::NameRevokes,
    barriers: lookup_barrier::LookupBarriers,
    /// It keeps no names, and drops them without a lock.
    drops_at_once: bool,
    /// The objects that the rename which is being answered has moved.
    moved: [Option<Fid>; 2],
    /// Names that it moves to where nothing covers them.
    uncovered: alloc::vec::Vec<(Fid, Name)>,
}

impl Kernel {
    /// It keeps no names, and drops them without a lock.
    pub(crate) fn drops_at_once(&mut self) {
        self.drops_at_once = true;
    }

    /// A caller waits no longer: nothing is locked for it.
    pub(crate) fn lets_go(&mut self, ticket: Ticket) {
        self.holders.remove(ticket);
    }

    /// Does the reply to this call, which is done, wait until something has been dropped?
    pub(crate) fn keeps_answer(&self, ticket: Ticket) -> bool {
        self.notices.keep_answer(ticket)
    }

    /// May a call have this one locked?
    pub(crate) fn may_lock(&self, fid: Fid) -> bool {
        self.holders.may_lock(fid)
    }

    /// Notes the objects that the rename which is being answered has moved.
    pub(crate) fn moves(&mut self, moved: [Option<Fid>; 2]) {
        self.moved = moved;
    }

    /// It moves these names, with their old lifetimes, to places where nothing covers them. None of
    /// them when it is answered.
    pub(crate) fn uncovers(&mut self, names: alloc::vec::Vec<(Fid, Name)>) {
        self.uncovered = names;
    }

    /// The session is over: all that its changes have made wrong is dropped with the rest.
    pub(crate) fn lose_changes(&mut self) {
        self.replies.forget_changes();
        self.acks.clear();
    }

    /// The session is over: the recalls of names that it has asked for are not answered.
    pub(crate) fn lose_name_revokes(&mut self) {
        self.revokes.lose();
    }

    /// Is it not known yet whether the reply to this change was digested?
    pub(crate) fn is_unseen(&self, id: RequestId) -> bool {
        self.acks.holds(id)
    }

    /// The first such change.
    pub(crate) fn first_unseen(&self) -> Option<RequestId> {
        self.acks.first()
    }

    /// The names and objects that all of them touch.
    pub(crate) fn unseen_changes(&self) -> impl Iterator<Item = Unseen> + '_ {
        self.acks.unseen()
    }

    /// May a thread that walks to a place once more have this object in hand?
    pub(crate) fn may_have_in_hand(&self, thread: u32, fid: Fid) -> bool {
        self.replies.may_have_in_hand(thread, fid)
    }

    /// Has a thread been told to begin again, and not been seen to have done so?
    pub(crate) fn may_be_retrying(&self, thread: u32) -> bool {
        self.replies.may_be_retrying(thread)
    }

    /// Are look-ups in this directory held back?
    pub(crate) fn bars(&self, dir: Fid) -> bool {
        self.barriers.holds(dir)
    }

    /// Is nothing waited for that time ends? (So it mostly is, and this is asked after each call.)
    fn is_at_rest(&self) -> bool {
        self.barriers.is_empty()
            && self.revokes.is_empty()
            && self.acks.is_unasked()
            && self.replies.stale_due().is_none()
    }
}

impl Client {
    /// A thread asks for something. May it do so once more, since it was told to begin again?
    pub(crate) fn kernel_asks(
        &mut self,
        step: &mut Step<'_>,
        (ticket, thread): (Ticket, u32),
        call: &Call,
    ) -> bool {
        let digested = self.kernel.replies.on_call(thread, call);
        for awaits in digested {
            match awaits {
                Awaits::Change(id) => self.on_digested(step, id),
                Awaits::Attributes(fid) => self.throw_now(step, fid),
            }
        }
        self.note_use(call);
        if let Some(held) = self.held(call) {
            self.on_locks_seen(step, &held);
            self.kernel.holders.insert(ticket, held);
        }
        self.kernel.repeats(step.now, thread, call)
    }

    /// The call has been begun: a recall of names that waits for a lock of this call need not wait
    /// any more.
    pub(crate) fn kernel_asked(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        self.on_locked(step, ticket);
        self.on_doubtful_call(step);
    }

    /// A reply is about to be written.
    pub(crate) fn kernel_is_told(
        &mut self,
        step: &mut Step<'_>,
        running: &Running,
        done: &mut Done,
    ) {
        if !self.serves() {
            lasts_no_longer(done);
        }
        self.note_told(step.now, running, done);
        self.note_again(step.now, running, done);
        self.note_handed(step.now, running, done);
        if !matches!(done, Done::Refused(_)) {
            self.throw_late(step, running);
        }
    }

    pub(crate) fn tick_kernel(&mut self, step: &mut Step<'_>) {
        self.tick_names(step);
        self.tick_barriers(step);
        self.tick_acks(step);
        self.tick_stale(step);
        self.tick_unattended(step);
    }

    pub(crate) fn kernel_due(&self) -> Option<Time> {
        let unattended = self.unattended_due();
        if self.kernel.is_at_rest() {
            return unattended;
        }
        let due = [
            unattended,
            self.names_due(),
            self.acks_due(),
            self.kernel.barriers.due(),
            self.kernel.replies.stale_due(),
        ];
        due.into_iter().flatten().min()
    }
}

/// An answer that comes when the lease is near its end: the kernel has dropped everything for that,
/// and would keep this if the object is taken then. (Listings and pages look at that themselves.)
fn lasts_no_longer(done: &mut Done) {
    match done {
        Done::Entry {
            name_lifetime,
            attr_lifetime,
            ..
        } => (*name_lifetime, *attr_lifetime) = (Lifetime::None, Lifetime::None),
        Done::Absent { lifetime } | Done::Attr { lifetime, .. } => *lifetime = Lifetime::None,
        _ => {}
    }
}
