//! Attributes that a thread takes in when they are outdated already.
//!
//! The kernel takes an answer in when the thread that asked runs again. By then another thread of
//! the same machine may have changed a name in that directory, or moved the object. Such a change
//! marks what the kernel knows as outdated, but not what is on its way to it: that it would keep
//! for ever. (With sizes and modes it knows better.) So before such a change is answered the kernel
//! is told to throw away what it was told of it, whenever that comes.
//!
//! Guarantees: once such a change is answered, no attributes from before it are kept. There is
//! nothing to do, and mostly there is not, if the thread that makes the change is the one that was
//! told last, or if that one has asked for something else since, so that it has taken its answer
//! in.
//!
//! Who goes by what the kernel knows, and not by what he is told himself (for whether he may, or
//! for where a file ends), would go by what was before if his answer was thrown away. If there is
//! news for him in it, nothing is thrown away before he must have taken it in, since he asks for
//! something else, or since it was long ago; until then programs may see old times.

use super::notify_done::After;
use super::reply_ack::DIGESTED_AFTER_NS;
use crate::client::api::{Call, How, Lifetime, Output};
use crate::client::notices::Invalidate;
use crate::client::{Client, Running, Step};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Attr, Fid, Kind, Op, Time};

/// Of so many threads it is known when they asked last; of two that share a place, of the later.
const THREAD_BUCKETS: usize = 64;

/// Mode, owner, group and size: what the kernel goes by.
type Basis = (u16, u32, u32, u64);

/// Who was told attributes that the kernel may keep, and may not have taken them in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastAsker {
    /// Somebody was, since the last change that made them wrong.
    any: bool,
    /// 0: not known.
    thread: u32,
    /// The last call that had come when it was told.
    call: u64,
    /// It is not the only one.
    others: bool,
    /// What the kernel goes by was another before.
    news: bool,
    /// It was told this last.
    basis: Option<Basis>,
}

/// Which threads have asked for something when, and what is thrown away later.
#[derive(Clone, Debug)]
pub(crate) struct LastCalls {
    /// How many calls have come.
    calls: u64,
    /// By number, modulo their count: which one, and its last call.
    last: Vec<(u32, u64)>,
    /// What the rename that is being answered has moved.
    moved: [Option<Fid>; 2],
    /// What is not thrown away before these times, or before who was told it has taken it in.
    later: VecDeque<(Time, Fid, LastAsker)>,
}

impl Default for LastCalls {
    fn default() -> Self {
        Self {
            calls: 0,
            last: vec![(0, 0); THREAD_BUCKETS],
            moved: [None; 2],
            later: VecDeque::new(),
        }
    }
}

impl LastCalls {
    /// A thread asks for something: it has taken in what it was told before. What the kernel asks
    /// for in the background, though, a thread may have caused before that.
    pub(crate) fn note(&mut self, thread: u32, call: &Call) {
        self.calls += 1;
        if thread != 0 && !is_background(call) {
            self.last[thread as usize % THREAD_BUCKETS] = (thread, self.calls);
        }
    }

    /// A rename has moved these.
    pub(crate) fn note_moved(&mut self, moved: [Option<Fid>; 2]) {
        self.moved = moved;
    }

    /// What this thread has taken in by now is not put off any more.
    fn proved(&mut self, thread: u32) -> Option<Fid> {
        let mut later = self.later.iter();
        let at = later.position(|(_, _, asker)| asker.thread == thread && !self.may_have(asker))?;
        self.later.remove(at).map(|(_, fid, _)| fid)
    }

    fn may_have(&self, asker: &LastAsker) -> bool {
        let (thread, call) = self.last[asker.thread as usize % THREAD_BUCKETS];
        let taken = thread == asker.thread && thread != 0 && call > asker.call;
        asker.any && (asker.others || !taken)
    }
}

impl Client {
    /// The kernel is told attributes.
    pub(crate) fn note_asker(
        &mut self,
        running: &Running,
        (fid, attr): (Fid, &Attr),
        lifetime: Lifetime,
    ) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let basis = Some(basis(attr));
        let before = node.asker;
        let pending = self.last_calls.may_have(&before);
        let news = before.basis.is_some_and(|old| Some(old) != basis);
        let keeps = lifetime == Lifetime::Forever; // else it asks again
        node.asker = LastAsker {
            any: keeps || pending,
            thread: running.thread,
            call: self.last_calls.calls,
            others: pending && (before.others || before.thread != running.thread),
            news: news || (pending && before.news),
            basis,
        };
    }

    /// The kernel takes in such an answer whatever comes, and none that it asked for before.
    pub(crate) fn note_set(&mut self, fid: Fid, attr: &Attr) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.asker = LastAsker {
                basis: Some(basis(attr)),
                ..LastAsker::default()
            };
        }
    }

    /// A change is answered: has the kernel throw away what this makes wrong and is still on its
    /// way.
    pub(crate) fn throw_late(&mut self, step: &mut Step<'_>, running: &Running) {
        let Call::Op(op) = &running.call else {
            return;
        };
        let [one, other] = outdated(op);
        let [moved, exchanged] = match op {
            Op::Rename { .. } => core::mem::take(&mut self.last_calls.moved),
            _ => [None; 2],
        };
        for fid in [one, other, moved, exchanged].into_iter().flatten() {
            self.throw_late_of(step, fid, running.thread);
        }
    }

    fn throw_late_of(&mut self, step: &mut Step<'_>, fid: Fid, thread: u32) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let asker = core::mem::take(&mut node.asker);
        node.asker.basis = asker.basis;
        let own = asker.thread == thread && thread != 0 && !asker.others;
        if own || !self.last_calls.may_have(&asker) {
            return;
        }
        if asker.news {
            let due = step.now + DIGESTED_AFTER_NS;
            self.last_calls.later.push_back((due, fid, asker));
        } else {
            step.out.push(Output::Outdated { fid });
        }
    }

    /// Who was told news has taken them in. Nobody who is about to be answered need have the object
    /// in use any more, so this is told like all else: the kernel may be writing it out and waiting
    /// for us, and who told it at once would wait for the kernel.
    pub(crate) fn tick_late(&mut self, step: &mut Step<'_>) {
        while let Some(&(due, fid, _)) = self.last_calls.later.front()
            && step.now >= due
        {
            self.last_calls.later.pop_front();
            self.throw_now(step, fid);
        }
    }

    /// A thread asks for something: what only that one was told need not wait any longer.
    pub(crate) fn throw_proved(&mut self, step: &mut Step<'_>, thread: u32) {
        while let Some(fid) = self.last_calls.proved(thread) {
            self.throw_now(step, fid);
        }
    }

    fn throw_now(&mut self, step: &mut Step<'_>, fid: Fid) {
        let what = Invalidate::Inode {
            fid,
            ranges: Vec::new(),
            young: false,
        };
        self.invalidate(step, what, After::Nothing);
    }

    pub(crate) fn late_due(&self) -> Option<Time> {
        self.last_calls.later.front().map(|(due, ..)| *due)
    }
}

fn basis(attr: &Attr) -> Basis {
    let size = match attr.kind {
        Kind::Directory => 0,
        _ => attr.size,
    };
    (attr.mode, attr.uid, attr.gid, size)
}

/// Whose attributes this changes without the kernel's throwing away answers about them.
fn outdated(op: &Op) -> [Option<Fid>; 2] {
    match op {
        Op::Make { dir, .. }
        | Op::Link { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. } => [Some(*dir), None],
        Op::Rename { from, to, .. } => [Some(*from), Some(*to).filter(|to| to != from)],
        Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } | Op::Allocate { fid, .. } => {
            [Some(*fid), None]
        }
        _ => [None; 2],
    }
}

/// May a thread cause this and go on?
pub(crate) fn is_background(call: &Call) -> bool {
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
