//! Changes that are put back, so that their callers let go of locks.
//!
//! A change of names holds its directory's lock in the kernel until it is answered. If it waits for
//! another machine which itself waits until this kernel has dropped a name of that directory, one
//! of the two must go first. The server is told which change is in the way, and refuses it if it is
//! the later one: nothing of it is done, its caller lets go of the lock, walks to the place once
//! more and begins again (Linux does so once for `ESTALE`, `retry_estale` in `namei.c`), while the
//! name is dropped. A call that has begun again is not put back once more, as the program would be
//! told.

use super::Kernel;
use crate::Ticket;
use crate::client::api::{Call, Done};
use crate::client::mutant::Mutant;
use crate::client::session::asked::{Sent, Why};
use crate::client::{Client, Running, Step};
use crate::footprint::Footprint;
use alloc::vec::Vec;
use wire::{Fid, Kind, Make, Name, Op, Refusal, Time, ToServer};

impl Kernel {
    /// A thread asks for something: may it be what it has begun again? It may also have found that
    /// there is nothing to be done any more, and ask for something else.
    pub(crate) fn repeats(&mut self, now: Time, thread: u32, call: &Call) -> bool {
        let op = change_of_names(call);
        let began = self.replies.retries(now, thread, (call, op.is_some()));
        if let Call::Op(Op::Lookup { dir, name }) = call {
            return self.replies.has_come_again(thread, *dir, name);
        }
        began.is_some_and(|began| {
            op.is_some_and(|op| began.is_none_or(|began| may_be_one(&began, op)))
        })
    }
}

impl Client {
    /// Asks the server to put a call back that holds a lock. `false`: that cannot be.
    pub(crate) fn put_back(&mut self, step: &mut Step<'_>, ticket: Ticket) -> bool {
        let Some(running) = self.callers.calls.get(&ticket) else {
            return false;
        };
        // Of thread 0 it is not known which it is.
        let knows = change_of_names(&running.call).is_some() && running.thread != 0;
        let drops = self.kernel.drops_at_once;
        if !knows || drops || running.repeated || self.kernel.replies.others_retry(step.now) {
            return false;
        }
        let of = |sent: &Sent| matches!(sent.why, Why::Call(of) if of == ticket) && !sent.kept;
        let Some((&request, _)) = self.asked.requests.iter().find(|(_, sent)| of(sent)) else {
            return false;
        };
        self.say(step, ToServer::PutBack { request });
        true
    }

    /// A call is answered so that its thread begins again, or may: it does so once whatever for.
    pub(crate) fn note_again(&mut self, now: Time, running: &Running, done: &Done) {
        let again = match done {
            Done::Refused(Refusal::Again) => {
                let (op, places) = refused_at(&running.call);
                let knew = match &running.call {
                    Call::Op(Op::Lookup { dir, name }) => self.may_know(*dir, name),
                    _ => false,
                };
                (op, places, knew)
            }
            // The path has changed.
            Done::Refused(Refusal::Stale) => (None, Vec::new(), false),
            // The front may say so, when it finds that something else has the name.
            Done::Refused(Refusal::Exists) if makes_file(&running.call) => {
                (None, Vec::new(), false)
            }
            // The kernel may, by itself, when it finds a directory elsewhere (`d_splice_alias`).
            Done::Entry { fid, attr, .. }
                if attr.kind == Kind::Directory && self.is_found_elsewhere(&running.call, *fid) =>
            {
                (None, Vec::new(), false)
            }
            _ => {
                if let Call::Op(Op::Lookup { .. }) = running.call {
                    let found = match done {
                        Done::Entry { fid, .. } => Some(*fid),
                        _ => None,
                    };
                    self.kernel.replies.is_handed(running.thread, found);
                }
                return self.kernel.replies.goes_on(now, running.thread);
            }
        };
        if running.thread != 0 && self.options.mutant != Some(Mutant::PutsBackTwice) {
            self.kernel.replies.retry(now, running.thread, again);
        }
    }

    /// May the kernel know this directory already, but in another one? In the same one it gives it
    /// the name without a lock of another.
    fn is_found_elsewhere(&self, call: &Call, fid: Fid) -> bool {
        let node = self.nodes.get(&fid);
        let known = node.is_some_and(|node| node.kernel.lookups > 1 && node.kernel.is_elsewhere());
        known && matches!(call, Call::Op(Op::Lookup { .. }))
    }
}

/// A call was told to begin again: the change that it is, and the names that it walks to once more.
fn refused_at(call: &Call) -> (Option<Op>, Vec<(Fid, Name)>) {
    let (op, named) = match call {
        Call::Op(Op::Lookup { dir, name }) => (None, alloc::vec![(*dir, name.clone())]),
        _ => {
            let op = change_of_names(call);
            let named = op.map(|op| Footprint::new(op).changed_names());
            let owned = |(dir, name): (Fid, &Name)| (dir, name.clone());
            (op, named.into_iter().flatten().map(owned).collect())
        }
    };
    (op.cloned(), named)
}

fn makes_file(call: &Call) -> bool {
    const FILE: Make = Make::File;
    matches!(call, Call::Op(Op::Make { make: FILE, .. }))
}

/// A change whose caller begins again.
fn change_of_names(call: &Call) -> Option<&Op> {
    match call {
        Call::Op(op) => Some(op).filter(|op| op.may_be_put_back()),
        _ => None,
    }
}

/// A second walk to a place may come to another directory; where a file is made, also by another
/// symbolic link to another name.
fn may_be_one(began: &Op, op: &Op) -> bool {
    let kind = core::mem::discriminant::<Op>;
    match (began, op) {
        (Op::Make { make: began, .. }, Op::Make { make, .. }) if *began == Make::File => {
            *make == Make::File
        }
        _ => kind(began) == kind(op) && name(began) == name(op),
    }
}

fn name(op: &Op) -> Option<&Name> {
    let mut names = Footprint::new(op).changed_names();
    names.next().map(|(_, name)| name)
}
