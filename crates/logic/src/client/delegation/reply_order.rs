//! Replies to changes that build on a delegated change: they are taken in behind its own.
//!
//! A delegated change is answered to its caller before the server hears of it. A change that is
//! lost when the server's machine loses its power is asked for again at its place in the lost log,
//! if the server has answered it; a change that the server has not answered comes behind all of
//! these. So a change must not count as answered while one before it does not: it would be made
//! again without what it builds on, be refused, and its caller had been told that it is done.
//!
//! Guarantees: of the delegated changes, and of the changes that were asked for behind them
//! (`after`), those whose replies are taken in are the first ones, as in the log. A reply that has
//! overtaken another one is kept until that has been taken in; on a new connection, where both
//! requests are repeated, it counts as lost. No circle can come of that: the reply that is waited
//! for has left the server already.

use crate::client::{Client, Step};
use alloc::collections::BTreeMap;
use wire::{Reply, RequestId};

/// Replies that have overtaken the reply to what their changes build on.
#[derive(Clone, Debug, Default)]
pub(crate) struct OvertakingReplies {
    replies: BTreeMap<RequestId, Reply>,
}

impl OvertakingReplies {
    /// Their requests are repeated on a new connection, or their session is over.
    pub(crate) fn clear(&mut self) {
        self.replies.clear();
    }
}

impl Client {
    pub(crate) fn on_reply(
        &mut self,
        step: &mut Step<'_>,
        id: RequestId,
        mut reply: Reply,
        bulk_len: u32,
    ) {
        self.note_grants(&mut reply.grants);
        if self.on_made_again(step, id, &reply) {
            return;
        }
        if let Some(reply) = self.in_turn(id, reply) {
            self.take_reply(step, id, reply, bulk_len);
            self.take_overtaking(step);
        }
    }

    /// Is the delegated change before this request not answered?
    fn comes_before_its_turn(&self, id: RequestId) -> bool {
        let before = self.asked.requests.get(&id).map(|sent| sent.request.after);
        before.is_some_and(|before| self.asked.requests.contains_key(&before))
    }

    /// The reply, if it may be taken in now; else it is kept. A reply without a place in the log
    /// never waits: a refusal changes nothing, and changes that an earlier run has left are stable.
    fn in_turn(&mut self, id: RequestId, reply: Reply) -> Option<Reply> {
        if reply.logged.is_none() || !self.comes_before_its_turn(id) {
            return Some(reply);
        }
        self.delegation.overtaking.replies.insert(id, reply);
        None
    }

    /// A reply has been taken in: those that had overtaken it follow.
    fn take_overtaking(&mut self, step: &mut Step<'_>) {
        while let Some(id) = self.first_in_turn() {
            if let Some(reply) = self.delegation.overtaking.replies.remove(&id) {
                self.take_reply(step, id, reply, 0);
            }
        }
    }

    fn first_in_turn(&self) -> Option<RequestId> {
        let mut ids = self.delegation.overtaking.replies.keys().copied();
        ids.find(|id| !self.comes_before_its_turn(*id))
    }
}
