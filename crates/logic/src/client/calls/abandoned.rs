//! Calls whose callers wait no longer: they are being killed, a signal has come, or the server has
//! been silent for too long.
//!
//! Guarantees: such a call is answered at once. Its change is made once or not at all: a request
//! that was never sent is dropped, one that was sent stays under way with its number and its bytes,
//! over new connections too, until the server has answered it. The kernel never hears of the
//! references, opens and locks that this answer brings, so they are given back here; and before the
//! change is confirmed the kernel is told to drop all that the change has made wrong in its caches
//! ([`crate::client::kernel::reply_ack`]), as it holds no lock of it any more.
//!
//! The kernel tells of a signal once for each request, and of some not at all: over io_uring, when
//! it comes in the first moments; the end of a program is no signal. So callers that wait for long
//! are looked at again and again by the front, which sees what signals they have.

use crate::Ticket;
use crate::client::api::{Call, Done, How, Output};
use crate::client::locks::delegation::Decides;
use crate::client::notices::Waiting;
use crate::client::session::asked::{Sent, Why};
use crate::client::{Client, Running, Step};
use crate::footprint::Footprint;
use crate::ranges::Span;
use alloc::vec::Vec;
use wire::{Access, Fid, LockOwner, Op, Outcome, Refusal, RequestId, Time};

/// Callers are looked at when they have waited for so long, and after as long again. A killed
/// caller is gone within a second, also where it takes two looks and the machine is busy.
pub(crate) const CALLER_CHECK_NS: Time = 250_000_000;

/// A server that is there answers a question within this time.
pub(crate) const SERVER_REPLY_NS: Time = 2_000_000_000;

impl Client {
    /// The caller waits no longer, whatever its call is.
    pub(crate) fn abandon(&mut self, step: &mut Step<'_>, ticket: Ticket, refusal: Refusal) {
        match self.callers.calls.get(&ticket).map(|running| &running.call) {
            // The bytes are a program's that stored them long ago: they must not be lost with it.
            Some(Call::Write {
                how: How::Paged, ..
            }) if refusal == Refusal::Interrupted => return,
            None | Some(Call::Release { .. } | Call::Leave) => return,
            Some(_) => {}
        }
        let sent = self.request_of(ticket);
        if let Some((id, false)) = sent
            && self.drop_unsent(step, (ticket, id), refusal)
        {
            return;
        }
        self.abandon_lock(step, ticket);
        self.let_go(step, ticket, refusal);
    }

    /// A signal came that the program handles: its call ends if nothing can have been done.
    pub(crate) fn interrupt(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let sent = self.request_of(ticket).is_some_and(|(_, said)| said);
        let ends = match self.callers.calls.get(&ticket).map(|running| &running.call) {
            // Others may wait for the pages of such a read.
            Some(Call::Read { pages, .. }) => !pages,
            Some(Call::Write { how, .. }) => *how != How::Paged && !sent,
            Some(Call::Sync { .. }) => true,
            Some(Call::Lock { .. }) => return self.on_interrupt(step, ticket),
            _ => false,
        };
        // A call that only waits to be answered has been done.
        if ends && !self.asked.unfinished.contains_key(&ticket) && !self.answer_waits(ticket) {
            self.abandon(step, ticket, Refusal::Interrupted);
        }
    }

    /// The request that is under way for a call, and whether it was ever sent.
    fn request_of(&self, ticket: Ticket) -> Option<(RequestId, bool)> {
        let of = |sent: &&Sent| matches!(sent.why, Why::Call(of) if of == ticket);
        let mut requests = self.asked.requests.iter();
        let (id, sent) = requests.find(|(_, sent)| of(sent))?;
        Some((*id, sent.said))
    }

    /// A request that the server cannot have heard of is dropped, as if it had been refused.
    /// False: it must be done all the same.
    fn drop_unsent(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        refusal: Refusal,
    ) -> bool {
        let Some(sent) = self.asked.requests.get(&id) else {
            return false;
        };
        let op = sent.request.op.clone();
        if matches!(op, Op::Unlock { .. }) {
            return false;
        }
        self.asked.requests.remove(&id);
        let outcome = Outcome::Refused(refusal);
        if op.locks() {
            self.on_lock_answer(step, (Some(ticket), id), &op, outcome);
            return true;
        }
        self.unsend(&op);
        match op {
            Op::Read { .. } => self.let_go(step, ticket, refusal),
            _ => self.on_refused(step, ticket, &op, refusal),
        }
        for dir in Footprint::new(&op).dirs().into_iter().flatten() {
            self.retire(step, dir);
        }
        self.settle_guesses(step);
        true
    }

    /// A lock that is waited for is not wanted any more, and locks that are to be given up are
    /// given up.
    fn abandon_lock(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        let Some(running) = self.callers.calls.get(&ticket) else {
            return;
        };
        match running.call.clone() {
            Call::Lock { .. } if self.waits_here_no_more(ticket) => {}
            Call::Lock { .. }
                if self.request_of(ticket).is_some() || self.waits_for_lock(ticket) =>
            {
                self.on_interrupt(step, ticket);
            }
            Call::Unlock {
                fid,
                owner,
                first,
                last,
            } if self.lock_delegation.decides(fid) == Decides::Nobody => {
                self.ask_behind_lock((fid, owner));
                self.lock_delegation
                    .unlock_later(fid, (owner, (first, last)));
            }
            Call::Unlock {
                fid,
                owner,
                first,
                last,
            } if self.request_of(ticket).is_none() => {
                if let Some(behind) = self.locks.behind.get_mut(&(fid, owner)) {
                    behind.retain(|other| *other != ticket);
                }
                self.unlock_now(step, ticket, (fid, owner), (first, last));
            }
            _ => {}
        }
    }

    /// Answers a call at once. Its requests that are under way go on without it.
    fn let_go(&mut self, step: &mut Step<'_>, ticket: Ticket, refusal: Refusal) {
        let goes_on = self.request_of(ticket).is_some()
            || self.asked.unfinished.contains_key(&ticket)
            || self.waits_for_lock(ticket)
            || self.answer_waits(ticket);
        let Some(mut running) = self.callers.calls.remove(&ticket) else {
            return; // answered by now
        };
        self.kernel.lets_go(ticket);
        let done = Done::Refused(refusal);
        self.note_again(step.now, &running, &done);
        let reads = match running.call {
            Call::Read { fid, .. } => Some(fid),
            _ => None,
        };
        if let Some(node) = reads.and_then(|fid| self.nodes.get_mut(&fid)) {
            node.kernel.ends_read(ticket);
            if let Some(drain) = node.drain.as_mut() {
                drain.freed.remove(&ticket);
            }
        }
        if !goes_on {
            step.done(ticket, done);
        } else {
            running.abandoned = true;
            if let Some(key) = lock_key(&running.call) {
                self.ask_behind_lock(key);
            }
            // The kernel may forget them now; the request under way is about them all the same.
            for fid in named_by(&running.call) {
                self.node(fid).kernel.refers();
            }
            if self.request_of(ticket).is_some()
                && let Some(unseen) = self.touches(0, &running.call)
                && !unseen.names.is_empty()
            {
                self.doubt(step, ticket, unseen.names);
            }
            match running.call {
                // Its bytes may have to be sent once more.
                Call::Write { .. } => step.out.push(Output::Abandoned { ticket, done }),
                _ => step.done(ticket, done),
            }
            self.callers.abandoned.insert(ticket, running);
        }
        if let Some(fid) = reads {
            self.ask_behind(step, fid);
            self.go_on_draining(step, fid);
        }
    }

    /// Is the call done, and its answer waits until the kernel has dropped something? Its results
    /// (an open, references) are given back then.
    fn answer_waits(&self, ticket: Ticket) -> bool {
        self.kernel.keeps_answer(ticket)
    }

    /// An answer for a call that was abandoned: while it is taken in, the call is as any other.
    pub(crate) fn take_up(&mut self, ticket: Ticket, changed: &[Fid]) {
        if let Some(mut running) = self.callers.abandoned.remove(&ticket) {
            running.changed.extend_from_slice(changed);
            self.callers.calls.insert(ticket, running);
        }
    }

    /// It has been taken in.
    pub(crate) fn put_down(&mut self, ticket: Ticket) {
        let abandoned = |running: &Running| running.abandoned;
        if self.callers.calls.get(&ticket).is_some_and(abandoned)
            && let Some(running) = self.callers.calls.remove(&ticket)
        {
            self.callers.abandoned.insert(ticket, running);
        }
    }

    /// The end of a call that was abandoned: nobody hears its answer.
    pub(crate) fn bury_call(
        &mut self,
        step: &mut Step<'_>,
        (ticket, running): (Ticket, Running),
        done: Done,
    ) {
        if matches!(running.call, Call::Write { .. }) {
            step.out.push(Output::Spent { ticket });
        }
        self.forget_wait(ticket);
        let refused = matches!(done, Done::Refused(_));
        let doubted = self.end_doubt(step, ticket);
        if let Some((id, unseen)) = self.asked.unfinished.remove(&ticket) {
            let unseen = unseen.filter(|_| !refused);
            self.disown(step, (id, unseen), (&running, doubted));
        }
        self.give_up_answer(step, &running, done);
        for fid in named_by(&running.call) {
            self.on_forget(step, fid, 1);
        }
    }

    /// Gives up all that an answer gave to a kernel that never hears of it.
    fn give_up_answer(&mut self, step: &mut Step<'_>, running: &Running, done: Done) {
        match (&running.call, done) {
            (call, Done::Entry { fid, .. }) => {
                if let Call::Op(
                    Op::Make {
                        open: Some(access), ..
                    }
                    | Op::MakeNameless { open: access, .. },
                ) = call
                {
                    self.shut(step, fid, *access);
                }
                self.on_forget(step, fid, 1);
            }
            (Call::Open { fid, access, .. }, Done::Opened { .. }) => {
                self.shut(step, *fid, *access);
            }
            (Call::Lock { fid, lock, .. }, Done::Nothing) => {
                self.give_up_lock(step, (*fid, lock.owner), (lock.first, lock.last));
            }
            (call @ (Call::Lock { .. } | Call::Unlock { .. }), _) => {
                if let Some(key) = lock_key(call) {
                    self.go_on_behind_lock(step, key);
                }
            }
            (_, Done::Listing { entries, .. }) => {
                for entry in entries.iter().filter(|entry| entry.known.is_some()) {
                    self.on_forget(step, entry.fid, 1);
                }
            }
            _ => {}
        }
    }

    /// The call is over, and was abandoned.
    pub(crate) fn forget_wait(&mut self, ticket: Ticket) {
        self.locks.interrupted.remove(&ticket);
        self.locks.lessening.remove(&ticket);
    }

    /// The locks of an owner change, and nobody waits for that: until it has ended, further calls
    /// for its locks wait. The server might come to it in another order.
    pub(crate) fn ask_behind_lock(&mut self, key: (Fid, LockOwner)) {
        self.locks.behind.entry(key).or_default();
    }

    /// One such change has ended.
    pub(crate) fn go_on_behind_lock(&mut self, step: &mut Step<'_>, key: (Fid, LockOwner)) {
        if !self.locks.behind.contains_key(&key) || self.changes_locks_unheard(key) {
            return;
        }
        for ticket in self.locks.behind.remove(&key).into_iter().flatten() {
            self.start(step, ticket);
        }
    }

    /// Is there a change of an owner's locks under way of which no call hears?
    fn changes_locks_unheard(&self, key: (Fid, LockOwner)) -> bool {
        let mut abandoned = self.callers.abandoned.values();
        let mut asked = self.asked.requests.values();
        abandoned.any(|running| lock_key(&running.call) == Some(key))
            || asked.any(|sent| match sent.request.op {
                Op::Unlock { fid, owner, .. } => {
                    (fid, owner) == key && matches!(sent.why, Why::Lock)
                }
                _ => false,
            })
            || self.lock_delegation.unlocks_later(key)
    }

    /// A lock was given to a caller that waits for it no more.
    fn give_up_lock(&mut self, step: &mut Step<'_>, key: (Fid, LockOwner), span: Span) {
        let own = self.locks.owners.get(&key);
        let decides = self.lock_delegation.decides(key.0);
        match own.filter(|own| !own.lost).map(|_| decides) {
            Some(Decides::Server) => self.ask_to_unlock(step, key, span, Why::Lock),
            Some(Decides::Nobody) => self.lock_delegation.unlock_later(key.0, (key.1, span)),
            Some(Decides::Client) => {
                self.unlock_here(step, key, span);
                self.go_on_behind_lock(step, key);
            }
            None => self.go_on_behind_lock(step, key),
        }
    }

    fn shut(&mut self, step: &mut Step<'_>, fid: Fid, access: Access) {
        self.shut_opened(step, fid, access);
        self.bury_if_unused(step, fid);
        self.retire(step, fid);
    }

    /// The kernel has told of a signal: its caller is looked at, now.
    pub(crate) fn on_signalled(&mut self, step: &mut Step<'_>, number: u64) {
        let mut calls = self.callers.calls.iter_mut();
        let Some((&ticket, running)) = calls.find(|(_, running)| running.waits.number == number)
        else {
            return;
        };
        running.signalled = true;
        let callers = Vec::from([waiting(step.now, ticket, running)]);
        step.out.push(Output::Look { callers });
    }

    /// A call waits: it is looked at later.
    pub(crate) fn look_later(&mut self, now: Time) {
        if self.callers.next_look <= now {
            self.callers.next_look = now + CALLER_CHECK_NS;
        }
    }

    /// Ends the waits that have lasted too long, and has the callers of the others looked at.
    pub(crate) fn tick_waits(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if now < self.callers.next_look || self.callers.calls.is_empty() {
            return;
        }
        self.callers.next_look = now + CALLER_CHECK_NS;
        if let Some(timeout_ns) = self.options.timeout_ns {
            let silent =
                |running: &Running| now >= running.since.max(self.session.heard_at) + timeout_ns;
            let late = self
                .callers
                .calls
                .iter()
                .filter(|(_, running)| silent(running));
            let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
            if now >= self.session.heard_at + timeout_ns / 3 {
                // Silence must mean something: the server is asked whether it is there.
                self.break_silence(now);
            }
            for ticket in late {
                self.abandon(step, ticket, Refusal::NoAnswer);
            }
        }
        let long = |running: &Running| now >= running.since + CALLER_CHECK_NS / 2;
        let seen = |running: &Running| running.waits.thread != 0 || running.signalled;
        let calls = self.callers.calls.iter();
        let calls = calls.filter(|(_, running)| long(running) && seen(running));
        let callers: Vec<Waiting> = calls
            .map(|(t, running)| waiting(now, *t, running))
            .collect();
        if !callers.is_empty() {
            step.out.push(Output::Look { callers });
        }
    }

    pub(crate) fn waits_due(&self) -> Option<Time> {
        (!self.callers.calls.is_empty()).then_some(self.callers.next_look)
    }
}

/// The objects that a call names by themselves.
fn named_by(call: &Call) -> Vec<Fid> {
    match call {
        Call::Op(op) => {
            let footprint = Footprint::new(op);
            let dirs = footprint.dirs().into_iter().flatten();
            dirs.chain(footprint.holds_on_to()).collect()
        }
        Call::Open { fid, .. } | Call::Write { fid, .. } | Call::Sync { fid, .. } => {
            Vec::from([*fid])
        }
        _ => Vec::new(),
    }
}

/// The file and the owner whose locks a call changes.
fn lock_key(call: &Call) -> Option<(Fid, LockOwner)> {
    match call {
        Call::Lock { fid, lock, .. } => Some((*fid, lock.owner)),
        Call::Unlock { fid, owner, .. } => Some((*fid, *owner)),
        _ => None,
    }
}

fn waiting(now: Time, ticket: Ticket, running: &Running) -> Waiting {
    Waiting {
        ticket,
        thread: running.waits.thread,
        signalled: running.signalled,
        waited_ns: now.saturating_sub(running.since),
    }
}
