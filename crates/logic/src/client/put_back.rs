//! Changes that are put back, so that their callers let go of locks.
//!
//! A change of names holds its directory's lock in the kernel until it is answered. If it waits for
//! another machine which itself waits until this kernel has dropped a name of that directory, one
//! of the two must go first. The server is told which change is in the way, and refuses it if it is
//! the later one: nothing of it is done, its caller lets go of the lock, walks to the place once
//! more and begins again (Linux does so once for `ESTALE`, `retry_estale` in `namei.c`), while the
//! name is dropped. Who has begun again is not put back once more, as the program would be told.

use super::api::Call;
use super::mutant::Mutant;
use super::session::{Sent, Why};
use super::{Client, Running, Step};
use crate::Ticket;
use alloc::collections::BTreeMap;
use wire::{Fid, Kind, Make, Name, Op, Time, ToServer};

/// So many threads that begin again are known; while there are more, nobody is put back.
const THREADS: usize = 1024;
/// A thread that has not come back by then has nothing to begin again: a call takes no longer, but
/// for a thread that is stopped.
const COMES_NS: Time = 600_000_000_000;

/// Threads that were told to begin again: when, and what.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    told: BTreeMap<u32, (Time, Op)>,
}

impl Threads {
    /// A thread asks for something: is it what it was told to begin again? It may have found
    /// meanwhile that there is nothing to be done.
    pub(super) fn repeats(&mut self, thread: u32, call: &Call) -> bool {
        let Some(op) = change_of_names(call) else {
            return false;
        };
        let told = self.told.remove(&thread);
        told.is_some_and(|(_, told)| may_be_one(&told, op))
    }

    fn is_full(&mut self, now: Time) -> bool {
        if self.told.len() >= THREADS {
            self.told.retain(|_, (told, _)| now < *told + COMES_NS);
        }
        self.told.len() >= THREADS
    }
}

impl Client {
    /// Asks the server to put a call back that holds a lock. `false`: that cannot be.
    pub(super) fn put_back(&mut self, step: &mut Step<'_>, ticket: Ticket) -> bool {
        let Some(running) = self.calls.get(&ticket) else {
            return false;
        };
        // Of thread 0 it is not known which it is.
        let knows = change_of_names(&running.call).is_some() && running.thread != 0;
        if !knows || running.repeated || self.put_back.is_full(step.now) {
            return false;
        }
        let of = |sent: &Sent| matches!(sent.why, Why::Call(of) if of == ticket) && !sent.kept;
        let Some((&request, _)) = self.requests.iter().find(|(_, sent)| of(sent)) else {
            return false;
        };
        self.say(step, ToServer::PutBack { request });
        true
    }

    /// A call is answered by that it has been put back.
    pub(super) fn note_put_back(&mut self, now: Time, running: &Running) {
        let op = change_of_names(&running.call).cloned();
        if let Some(op) = op.filter(|_| self.options.mutant != Some(Mutant::PutsBackTwice)) {
            self.put_back.told.insert(running.thread, (now, op));
        }
    }
}

/// A change whose caller begins again: not bind(2), which makes a socket's name.
fn change_of_names(call: &Call) -> Option<&Op> {
    const SOCKET: Kind = Kind::Socket;
    match call {
        Call::Op(Op::Make {
            make: Make::Node { kind: SOCKET, .. },
            ..
        }) => None,
        Call::Op(
            op @ (Op::Make { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }),
        ) => Some(op),
        _ => None,
    }
}

/// Who walks to a place once more may come to another directory; or, by another symbolic link, to
/// another name.
fn may_be_one(told: &Op, op: &Op) -> bool {
    let same = core::mem::discriminant(told) == core::mem::discriminant(op);
    same && (place(told).0 == place(op).0 || place(told).1 == place(op).1)
}

fn place(op: &Op) -> (Option<Fid>, Option<&Name>) {
    match op {
        Op::Make { dir, name, .. }
        | Op::Link { dir, name, .. }
        | Op::Unlink { dir, name }
        | Op::Rmdir { dir, name }
        | Op::Rename {
            from: dir, name, ..
        } => (Some(*dir), Some(name)),
        _ => (None, None),
    }
}
