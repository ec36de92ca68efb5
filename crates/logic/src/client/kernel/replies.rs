//! The ledger of replies in flight: those that have been written to the kernel, and that the
//! threads which asked may not have digested.
//!
//! The kernel takes a reply in when the thread that asked runs again. Until then it goes by what it
//! believed before, and afterwards it keeps what the reply says. Every decision that depends on
//! which of the two is so asks this ledger, and one rule answers. A reply is *digested* when
//! - its thread asks for something else, or
//! - a second has passed: a thread that is to run has not been kept from it for so long.
//!
//! A call that the kernel makes in the background proves nothing: a thread may have caused it
//! before it asked for what this reply answers. Nor does a call of a thread that is not known (0).
//! The next part of a large write does not end that write: the kernel takes the size in behind the
//! last one.
//!
//! A thread that was told to begin again is in the ledger too, until it has ([`super::retry`]).

use super::retry::Retry;
use crate::client::api::{Call, How};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, RequestId, Time};

/// After this time a reply has been digested.
pub(crate) const DIGESTED_AFTER_NS: Time = 1_000_000_000;
/// Buckets of the table of last calls; of two threads that share one, the later is known.
const THREAD_BUCKETS: usize = 64;

/// The effects that a reply about an object's attributes may still have when its thread digests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tells(u8);

impl Tells {
    /// The kernel keeps them until it is told otherwise.
    pub(crate) const KEPT: Self = Self(1);
    /// They tell a file's size that no token covers.
    pub(crate) const UNCOVERED: Self = Self(2);
    /// Its thread goes by the size that the kernel then knows: it seeks to the end.
    pub(crate) const SEEKS: Self = Self(4);

    pub(crate) fn when(self, holds: bool) -> Self {
        Self(if holds { self.0 } else { 0 })
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A reply about attributes, when it was written.
#[derive(Clone, Copy, Debug, Default)]
struct AttrReply {
    thread: u32,
    tells: Tells,
    /// How many calls had come by then.
    call: u64,
    at: Time,
}

/// The replies about the attributes of one object that may be in flight: the last of each of two
/// threads, and of all others together the time of the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttrReplies {
    known: [AttrReply; 2],
    others: (Time, Tells),
}

impl AttrReplies {
    /// Does any reply tell this, other than to `but`, that may be in flight?
    pub(crate) fn tell(&self, ledger: &Replies, now: Time, tells: Tells, but: Option<u32>) -> bool {
        let (at, others) = self.others;
        let counts = |reply: &&AttrReply| but.is_none_or(|thread| reply.thread != thread);
        (others.has(tells) && now < at + DIGESTED_AFTER_NS)
            || (self.known.iter().filter(counts))
                .any(|reply| reply.tells.has(tells) && ledger.is_in_flight(now, reply))
    }

    /// A reply is written.
    pub(crate) fn add(&mut self, ledger: &Replies, now: Time, thread: u32, tells: Tells) {
        let new = AttrReply {
            thread,
            tells,
            call: ledger.calls,
            at: now,
        };
        let own =
            |reply: &&mut AttrReply| reply.thread == thread && reply.tells != Tells::default();
        if let Some(reply) = self.known.iter_mut().find(own) {
            let before = reply.tells.when(ledger.is_in_flight(now, reply));
            *reply = AttrReply {
                tells: before.and(tells),
                ..new
            };
            return;
        }
        let over = |reply: &&mut AttrReply| {
            reply.tells == Tells::default() || !ledger.is_in_flight(now, reply)
        };
        if let Some(reply) = self.known.iter_mut().find(over) {
            *reply = new;
            return;
        }
        let [first, second] = &mut self.known;
        core::mem::swap(first, second);
        let (at, before) = self.others;
        let before = before.when(now < at + DIGESTED_AFTER_NS);
        self.others = (second.at.max(at), before.and(second.tells));
        *second = new;
    }

    /// None that is in flight does this any more.
    pub(crate) fn forget(&mut self, tells: Tells) {
        for reply in &mut self.known {
            reply.tells = reply.tells.without(tells);
        }
        self.others.1 = self.others.1.without(tells);
    }

    /// Every thread that goes by the size has done so.
    pub(crate) fn sought(&mut self) {
        let both = Tells::SEEKS.and(Tells::UNCOVERED);
        for reply in &mut self.known {
            if reply.tells.has(Tells::SEEKS) {
                reply.tells = reply.tells.without(both);
            }
        }
        self.others.1 = self.others.1.without(Tells::SEEKS);
    }

    /// The only thread that may have such a reply in flight; 0: there are several.
    pub(crate) fn sole_thread(&self, ledger: &Replies, now: Time, tells: Tells) -> u32 {
        let (at, others) = self.others;
        let in_flight =
            |reply: &&AttrReply| reply.tells.has(tells) && ledger.is_in_flight(now, reply);
        let mut threads = self
            .known
            .iter()
            .filter(in_flight)
            .map(|reply| reply.thread);
        match (threads.next(), threads.next()) {
            (Some(thread), None) if !others.has(tells) || now >= at + DIGESTED_AFTER_NS => thread,
            _ => 0,
        }
    }
}

/// An action that waits until a reply has been digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// This change counts as seen then.
    Change(RequestId),
    /// The kernel drops this object's attributes then, which are outdated.
    Attributes(Fid),
}

#[derive(Clone, Debug)]
struct Waiter {
    awaits: Awaits,
    thread: u32,
    since: Time,
    /// Of a write: where its bytes end.
    wrote: Option<(Fid, u64)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    waiters: Vec<u64>,
    /// The system call that it may be beginning again.
    pub(super) retry: Option<Retry>,
}

impl Thread {
    pub(super) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }
}

/// The ledger.
#[derive(Clone, Debug)]
pub(crate) struct Replies {
    /// How many calls have come.
    calls: u64,
    /// Threads and their last calls but for those in the background, by bucket.
    last: Vec<(u32, u64)>,
    pub(super) threads: BTreeMap<u32, Thread>,
    /// In the order of their replies.
    waiters: BTreeMap<u64, Waiter>,
    next_waiter: u64,
    /// How many of them await the end of attributes.
    stale: usize,
    /// How many threads may be beginning again.
    pub(super) retrying: usize,
    /// Until then there may be others.
    pub(super) others_retry_until: Time,
}

impl Default for Replies {
    fn default() -> Self {
        Self {
            calls: 0,
            last: vec![(0, 0); THREAD_BUCKETS],
            threads: BTreeMap::new(),
            waiters: BTreeMap::new(),
            next_waiter: 0,
            stale: 0,
            retrying: 0,
            others_retry_until: 0,
        }
    }
}

impl Replies {
    /// A thread asks for something: which replies has it digested that something waits for?
    pub(crate) fn on_call(&mut self, thread: u32, call: &Call) -> Vec<Awaits> {
        self.calls += 1;
        if thread == 0 || is_background(call) {
            return Vec::new();
        }
        self.last[thread as usize % THREAD_BUCKETS] = (thread, self.calls);
        let Some(known) = self.threads.get(&thread) else {
            return Vec::new();
        };
        let waiters = &self.waiters;
        let over = |waiter: &&u64| waiters.get(waiter).is_some_and(|waiter| waiter.ends(call));
        let digested: Vec<u64> = known.waiters.iter().filter(over).copied().collect();
        let ended = |waiter: u64| match self.waiters.get(&waiter)?.awaits {
            // It is over once nothing else is waited for: `take`.
            Awaits::Change(id) => Some(Awaits::Change(id)),
            Awaits::Attributes(_) => self.take(waiter),
        };
        digested.into_iter().filter_map(ended).collect()
    }

    fn is_in_flight(&self, now: Time, reply: &AttrReply) -> bool {
        let (thread, call) = self.last[reply.thread as usize % THREAD_BUCKETS];
        let asked = thread == reply.thread && thread != 0 && call > reply.call;
        !asked && now < reply.at + DIGESTED_AFTER_NS
    }

    /// A reply to this thread is written now, and something waits until it is digested. Gives the
    /// number of the wait.
    pub(crate) fn wait(
        &mut self,
        now: Time,
        thread: u32,
        awaits: Awaits,
        wrote: Option<(Fid, u64)>,
    ) -> u64 {
        self.next_waiter += 1;
        let waiter = Waiter {
            awaits,
            thread,
            since: now,
            wrote,
        };
        self.stale += usize::from(matches!(awaits, Awaits::Attributes(_)));
        let last = self.waiters.last_key_value();
        assert!(
            last.is_none_or(|(_, last)| last.since <= now),
            "replies are written in the order of time"
        );
        self.waiters.insert(self.next_waiter, waiter);
        if thread != 0 {
            let known = self.threads.entry(thread).or_default();
            known.waiters.push(self.next_waiter);
        }
        self.next_waiter
    }

    /// It is known otherwise, or over.
    pub(crate) fn take(&mut self, waiter: u64) -> Option<Awaits> {
        let Waiter { awaits, thread, .. } = self.waiters.remove(&waiter)?;
        if let Awaits::Attributes(_) = awaits {
            assert!(
                self.stale > 0,
                "no outdated attributes wait, and yet these do"
            );
            self.stale -= 1;
        }
        if let Some(known) = self.threads.get_mut(&thread) {
            known.waiters.retain(|other| *other != waiter);
            self.forget_idle(thread);
        }
        Some(awaits)
    }

    /// The first reply that time has digested by now, if this is asked for.
    pub(crate) fn expired(&mut self, now: Time, asked: impl Fn(Awaits) -> bool) -> Option<Awaits> {
        let mut old = self.waiters.iter();
        let old = old
            .by_ref()
            .take_while(|(_, waiter)| now >= waiter.since + DIGESTED_AFTER_NS)
            .find(|(_, waiter)| asked(waiter.awaits))
            .map(|(waiter, _)| *waiter)?;
        self.take(old)
    }

    /// When attributes must be dropped that wait for a reply.
    pub(crate) fn stale_due(&self) -> Option<Time> {
        if self.stale == 0 {
            return None;
        }
        let stale = |waiter: &&Waiter| matches!(waiter.awaits, Awaits::Attributes(_));
        let first = self.waiters.values().find(stale)?;
        Some(first.since + DIGESTED_AFTER_NS)
    }

    /// The session is over: no change waits any more.
    pub(crate) fn forget_changes(&mut self) {
        let change = |(_, waiter): &(&u64, &Waiter)| matches!(waiter.awaits, Awaits::Change(_));
        let changes = self.waiters.iter().filter(change);
        let changes: Vec<u64> = changes.map(|(waiter, _)| *waiter).collect();
        for waiter in changes {
            self.take(waiter);
        }
    }

    pub(super) fn forget_idle(&mut self, thread: u32) {
        let idle = |known: &Thread| known.waiters.is_empty() && known.retry.is_none();
        if self.threads.get(&thread).is_some_and(idle) {
            self.threads.remove(&thread);
        }
    }
}

impl Waiter {
    /// Its thread asks for something: is that something else?
    fn ends(&self, call: &Call) -> bool {
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
}

/// May a thread cause this and go on?
pub(super) fn is_background(call: &Call) -> bool {
    matches!(
        call,
        Call::Read { pages: true, .. }
            | Call::Write {
                how: How::Paged,
                ..
            }
            | Call::Release { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fid = Fid {
        volume: 1,
        vnode: 2,
        uniq: 1,
    };
    const NAMES: Call = Call::Seek { fid: FILE };
    const READ: Call = Call::Read {
        fid: FILE,
        offset: 0,
        len: 1,
        pages: true,
    };

    #[test]
    fn a_reply_is_digested_when_its_thread_asks_for_something_else() {
        let mut ledger = Replies::default();
        let mut told = AttrReplies::default();
        ledger.on_call(7, &NAMES);
        told.add(&ledger, 0, 7, Tells::KEPT);
        let in_flight =
            |ledger: &Replies, told: &AttrReplies| told.tell(ledger, 1, Tells::KEPT, None);
        ledger.on_call(8, &NAMES);
        assert!(in_flight(&ledger, &told));
        ledger.on_call(7, &READ);
        assert!(in_flight(&ledger, &told), "it may have caused that before");
        ledger.on_call(7, &NAMES);
        assert!(!in_flight(&ledger, &told));
    }

    #[test]
    fn of_three_threads_the_last_two_are_known_and_time_ends_all() {
        let mut ledger = Replies::default();
        let mut told = AttrReplies::default();
        for thread in [7, 8, 9] {
            ledger.on_call(thread, &NAMES);
            told.add(&ledger, 5, thread, Tells::KEPT);
        }
        for thread in [7, 8, 9] {
            ledger.on_call(thread, &NAMES);
        }
        assert!(told.tell(&ledger, 6, Tells::KEPT, None));
        assert!(!told.tell(&ledger, 5 + DIGESTED_AFTER_NS, Tells::KEPT, None));
        assert_eq!(told.sole_thread(&ledger, 6, Tells::KEPT), 0);
    }

    #[test]
    fn the_next_part_of_a_write_does_not_end_it() {
        let mut ledger = Replies::default();
        let write = |offset| Call::Write {
            fid: FILE,
            offset,
            len: 10,
            how: How::Direct,
        };
        let waiter = ledger.wait(0, 7, Awaits::Change(1), Some((FILE, 10)));
        assert_eq!(ledger.on_call(7, &write(10)), []);
        assert_eq!(ledger.on_call(7, &write(30)), [Awaits::Change(1)]);
        assert_eq!(ledger.take(waiter), Some(Awaits::Change(1)));
        assert!(ledger.threads.is_empty() && ledger.waiters.is_empty());
    }
}
