//! Names that the kernel may have in hand when a session ends or was away, or when a name is let go
//! without its lock.
//!
//! A rename(2) under way may have looked up its old name in the session that is over; the server
//! has let others change that name since. If the rename found the object under its new name in the
//! next session, where another machine has moved it, it would succeed without asking anybody (see
//! [`super::name_revoke`]). The same threatens when a recall of names was answered because the lock
//! did not come in time. It has a name in hand only under the directory's lock, and it has the lock
//! of the directory too in which it looks up the other name, whichever that is. So every directory
//! is *barred* then, until the kernel has had its lock for us once: a look-up in it meanwhile waits
//! a while, and is refused then, unless a change that waits for us holds the lock, so that the
//! look-up's thread has nothing in hand; and an earlier look-up is refused when its answer comes.
//! The kernel lets go of the lock, and begins the refused call again by itself (ESTALE), once.
//! Where nobody holds the lock that is over at once.
//!
//! A program is told ESTALE only if its call would have to begin again twice. That is rare: a
//! look-up that finds nothing is answered, since a rename asks then; and of a call that comes to
//! the place again at which it was refused it is known which objects it has in hand
//! ([`super::retry`]), so that it is refused only if it finds one of these.

use crate::Ticket;
use crate::client::api::{Call, Done};
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Running, Step};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use wire::{Fid, Name, Op, Refusal, Time};

/// How long a look-up in a barred directory waits, each of them: on a machine that is kept from
/// running the kernel may take that long to get at the lock, and a call that is refused twice fails
/// in its program.
const BARRIER_WAIT_NS: Time = 100_000_000;

/// The directories that are barred.
#[derive(Clone, Debug, Default)]
pub(crate) struct LookupBarriers {
    /// Each with its notification, and the look-ups that wait: until when.
    dirs: BTreeMap<Fid, (u64, VecDeque<(Time, Ticket)>)>,
}

impl LookupBarriers {
    /// Is this directory barred?
    pub(crate) fn holds(&self, dir: Fid) -> bool {
        self.dirs.contains_key(&dir)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// When the first look-up is refused that waits.
    pub(crate) fn due(&self) -> Option<Time> {
        let waiting = self.dirs.values().filter_map(|bar| bar.1.front());
        waiting.map(|(until, _)| *until).min()
    }
}

impl Client {
    /// The session is over, or was away, or the patience with one of their locks is over.
    pub(crate) fn bar_directories(&mut self, step: &mut Step<'_>) {
        let dirs = self.nodes.iter().filter(|(_, node)| node.directory);
        let dirs: Vec<Fid> = dirs.map(|(fid, _)| *fid).collect();
        for dir in dirs {
            self.bar(step, dir);
        }
    }

    pub(crate) fn bar(&mut self, step: &mut Step<'_>, dir: Fid) {
        // Whichever name: the kernel looks for it under the directory's lock.
        let name = Name::new(b"-").expect("it is a name");
        let id = self.invalidate(step, Invalidate::Name { dir, name }, After::Bar(dir));
        self.kernel.barriers.dirs.entry(dir).or_default().0 = id;
    }

    /// The answer of a call, unless it was begun before its directory was barred: it may be the
    /// second look-up of a rename.
    pub(crate) fn refuse_late(
        &mut self,
        step: &mut Step<'_>,
        running: &Running,
        done: Done,
    ) -> Done {
        let Call::Op(Op::Lookup { dir, .. }) = &running.call else {
            return done;
        };
        if !self.kernel.barriers.holds(*dir) || self.kernel.holders.change_named(*dir) {
            return done;
        }
        // Where it finds nothing the rename will ask.
        let Done::Entry { fid, .. } = done else {
            return done;
        };
        if running.repeated && !self.kernel.may_have_in_hand(running.thread, fid) {
            return done;
        }
        self.on_forget(step, fid, 1);
        Done::Refused(self.refusal(running.thread))
    }

    /// A look-up begins: is it held back, or refused?
    pub(crate) fn is_barred(&mut self, step: &mut Step<'_>, ticket: Ticket, dir: Fid) -> bool {
        if !self.kernel.barriers.holds(dir) || self.kernel.holders.change_named(dir) {
            return false;
        }
        if self
            .callers
            .calls
            .get(&ticket)
            .is_some_and(|running| running.repeated)
        {
            return false;
        }
        let Some((_, waiting)) = self.kernel.barriers.dirs.get_mut(&dir) else {
            return false;
        };
        waiting.push_back((step.now + BARRIER_WAIT_NS, ticket));
        true
    }

    /// The kernel has had the lock.
    pub(crate) fn on_lock_seen(&mut self, step: &mut Step<'_>, dir: Fid, id: u64) {
        if self
            .kernel
            .barriers
            .dirs
            .get(&dir)
            .is_none_or(|bar| bar.0 != id)
        {
            return; // barred again since
        }
        let bar = self.kernel.barriers.dirs.remove(&dir);
        for (_, ticket) in bar.into_iter().flat_map(|bar| bar.1) {
            self.start(step, ticket);
        }
    }

    pub(crate) fn tick_barriers(&mut self, step: &mut Step<'_>) {
        let mut late = Vec::new();
        for (dir, (_, waiting)) in &mut self.kernel.barriers.dirs {
            while let Some((until, ticket)) = waiting.front()
                && *until <= step.now
            {
                late.push((*dir, *ticket));
                waiting.pop_front();
            }
        }
        for (dir, ticket) in late {
            if self.kernel.holders.change_named(dir) {
                self.start(step, ticket);
            } else if let Some(running) = self.callers.calls.get(&ticket) {
                let refused = self.refusal(running.thread);
                self.finish(step, ticket, Done::Refused(refused));
            }
        }
    }
}

impl Client {
    /// Linux begins a call again once: a program whose call has been begun again is told.
    fn refusal(&self, thread: u32) -> Refusal {
        match self.kernel.may_be_retrying(thread) {
            true => Refusal::Stale,
            false => Refusal::Again,
        }
    }
}
