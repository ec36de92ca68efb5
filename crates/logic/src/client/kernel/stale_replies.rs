//! Attributes that a thread takes in when they are outdated already.
//!
//! The kernel takes an answer in when the thread that asked runs again. By then another thread of
//! the same machine may have changed a name in that directory, or moved the object. Such a change
//! marks what the kernel knows as outdated, but not the answers on their way to it: those it would
//! keep for ever. (With sizes and modes it knows better.) So before such a change is answered the
//! kernel is told to throw away what it was told of it, whenever that comes.
//!
//! Guarantees: once such a change is answered, no attributes from before it are kept. There is
//! nothing to do, and mostly there is not, if the thread that makes the change is the one that was
//! told last, or if that one has asked for something else since, so that it has taken its answer
//! in.
//!
//! A thread that goes by what the kernel knows, and not by its own answer (for access, or for the
//! end of a file), would go by the old attributes if its answer was thrown away. If the answer has
//! news for it, nothing is thrown away before the thread must have taken it in, since it asks for
//! something else, or since it was long ago; until then programs may see old times.

use super::notify_done::After;
use super::replies::{AttrReplies, Awaits, Tells};
use crate::client::api::{Call, How, Lifetime, Output};
use crate::client::notices::Invalidate;
use crate::client::{Client, Running, Step};
use crate::footprint::Footprint;
use alloc::vec::Vec;
use wire::{ACCESS_LIST, Attr, Fid, Kind, Op, Time};

/// Mode, owner, group and size: what the kernel goes by.
type Basis = (u16, u32, u32, u64);

/// The attributes of an object that its kernel was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToldAttr {
    pub(crate) replies: AttrReplies,
    /// One of these differed before an answer that may be in flight.
    news: bool,
    /// It was told this last, or knows it from a write of its own.
    basis: Option<Basis>,
}

impl ToldAttr {
    /// The kernel has digested or dropped all that it was told.
    pub(crate) fn dropped(&mut self) {
        self.replies.forget(Tells::UNCOVERED.and(Tells::SEEKS));
    }

    /// A write is answered, by which the kernel makes the file as long as the write reaches: a size
    /// that it is told afterwards is no news.
    pub(crate) fn wrote(&mut self, call: &Call) {
        let (
            Call::Write {
                offset, len, how, ..
            },
            Some(basis),
        ) = (call, self.basis)
        else {
            return;
        };
        // The kernel appends at the end that it knows.
        let from = match how {
            How::Append => basis.3,
            _ => *offset,
        };
        self.reaches(from + u64::from(*len));
    }

    /// The kernel takes the file for at least as long.
    pub(crate) fn reaches(&mut self, end: u64) {
        if let Some((.., size)) = &mut self.basis {
            *size = end.max(*size);
        }
    }
}

impl Client {
    /// The kernel is told attributes.
    pub(crate) fn note_attr_reply(
        &mut self,
        now: Time,
        running: &Running,
        (fid, attr): (Fid, &Attr),
        lifetime: Lifetime,
    ) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let ledger = &self.kernel.replies;
        let told = &mut node.kernel.attr;
        let basis = Some(basis(attr));
        let pending = told.replies.tell(ledger, now, Tells::KEPT, None);
        let news = told.basis.is_some_and(|old| Some(old) != basis);
        told.news = news || (pending && told.news);
        told.basis = basis;
        // Else it asks again.
        let keeps = Tells::KEPT.when(lifetime == Lifetime::Forever);
        let file = attr.kind == Kind::File;
        let uncovered = Tells::UNCOVERED.when(file && lifetime == Lifetime::None);
        let seeks = Tells::SEEKS.when(file && matches!(running.call, Call::Seek { .. }));
        let tells = keeps.and(uncovered).and(seeks);
        told.replies.add(ledger, now, running.thread, tells);
    }

    /// The kernel takes in such an answer whatever comes, and none that it asked for before.
    pub(crate) fn note_set(&mut self, fid: Fid, attr: &Attr) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.kernel.attr.replies.forget(Tells::KEPT);
            node.kernel.attr.news = false;
            node.kernel.attr.basis = Some(basis(attr));
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
            Op::Rename { .. } => core::mem::take(&mut self.kernel.moved),
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
        let ledger = &self.kernel.replies;
        let told = &mut node.kernel.attr;
        let news = core::mem::take(&mut told.news);
        let but = Some(thread).filter(|thread| *thread != 0);
        let late = told.replies.tell(ledger, step.now, Tells::KEPT, but);
        let sole = told.replies.sole_thread(ledger, step.now, Tells::KEPT);
        told.replies.forget(Tells::KEPT);
        if !late {
            return;
        }
        if news {
            let replies = &mut self.kernel.replies;
            replies.wait(step.now, sole, Awaits::Attributes(fid), None);
        } else {
            step.out.push(Output::Outdated { fid });
        }
    }

    /// The threads that were told news have digested them. No thread that is about to be answered
    /// need have the object in use any more, so this is told like all else: the kernel may be
    /// writing it out and waiting for us, and a thread that told it at once would wait for the
    /// kernel.
    pub(crate) fn tick_stale(&mut self, step: &mut Step<'_>) {
        let stale = |awaits| matches!(awaits, Awaits::Attributes(_));
        while let Some(Awaits::Attributes(fid)) = self.kernel.replies.expired(step.now, stale) {
            self.throw_now(step, fid);
        }
    }

    pub(crate) fn throw_now(&mut self, step: &mut Step<'_>, fid: Fid) {
        let what = Invalidate::Inode {
            fid,
            ranges: Vec::new(),
            young: false,
        };
        self.invalidate(step, what, After::Nothing);
    }
}

fn basis(attr: &Attr) -> Basis {
    let size = match attr.kind {
        Kind::Directory => 0,
        _ => attr.size,
    };
    (attr.mode, attr.uid, attr.gid, size)
}

/// The objects whose attributes this changes without the kernel's throwing away answers about them.
fn outdated(op: &Op) -> [Option<Fid>; 2] {
    let footprint = Footprint::new(op);
    match op {
        // Its front has the kernel forget what it was told before it answers: a list says who may
        // use the object, and whoever asks again must not have that answer thrown away.
        Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. } if name == ACCESS_LIST => {
            [None; 2]
        }
        Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } | Op::Allocate { fid, .. } => {
            [Some(*fid), None]
        }
        _ if footprint.changes_names => {
            let [from, to] = footprint.dirs();
            [from, to.filter(|_| to != from)]
        }
        _ => [None; 2],
    }
}
