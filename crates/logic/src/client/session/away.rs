//! Coming back after a silence: which of this client's tokens and locks others have wanted
//! meanwhile.
//!
//! Guarantees: in a new term nothing that is held is used before the server has said of each part
//! of it what has been taken. A taken token is given up at once, and changes made under it are
//! kept: names are told as ever (the server does what can be done of them), bytes are *stranded*
//! until the file is had again; see `data::stranded`. An owner whose lock was taken reads and
//! writes nothing of that file, and gets no other lock of it, before he has given it up.

use crate::client::mutant::Mutant;
use crate::client::{Call, Client, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Epoch, Fid, Op, Right, ToServer};

/// The tokens and locks that were taken, as far as the server has said it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    tokens: BTreeSet<Fid>,
    locks: BTreeSet<Fid>,
}

impl Client {
    /// The server has heard a part of what is held, and says what of that is not.
    pub(crate) fn on_reasserted(
        &mut self,
        step: &mut Step<'_>,
        (term, part): (Epoch, u32),
        (taken, unlocked): (Vec<Fid>, Vec<Fid>),
    ) {
        if term != self.session.term || self.reassertion.parts.is_empty() {
            return;
        }
        let open = self.reassertion.parts.len();
        let is =
            |said: &ToServer| matches!(said, ToServer::Reassert { part: of, .. } if of.0 == part);
        self.reassertion.parts.retain(|said| !is(said));
        if self.reassertion.parts.len() == open {
            return;
        }
        self.taken.tokens.extend(taken);
        self.taken.locks.extend(unlocked);
        if !self.reassertion.parts.is_empty() {
            return;
        }
        let taken = core::mem::take(&mut self.taken);
        if self.options.mutant != Some(Mutant::KeepsWhatWasTaken) {
            self.give_up_taken(step, &taken);
        }
        self.reassertion.bases.clear();
        self.renew(step, self.reassertion.since);
        // Earlier statements that the server has not heard.
        self.state_again(step);
        self.repeat_held_back(step);
        self.resolve_all(step);
    }

    /// Was this client away, and has not heard yet what was taken from it?
    #[must_use]
    pub fn lacks_what_was_taken(&self) -> bool {
        !self.reassertion.parts.is_empty() && self.session.term != self.session.boot
    }

    /// The server has restarted before it told what it had taken from a client that was away: it
    /// does not know that any more, and any of what is held may have been taken.
    pub(crate) fn give_up_what_may_be_taken(&mut self, step: &mut Step<'_>) {
        if !self.lacks_what_was_taken() {
            return;
        }
        let held = self
            .nodes
            .iter()
            .filter(|(_, node)| node.token.right > Right::None);
        let tokens = held.map(|(fid, _)| *fid).collect();
        let locked = self.locks.owners.keys().map(|(fid, _)| *fid);
        let locks = locked.chain(self.lock_delegation.files()).collect();
        self.give_up_taken(step, &Taken { tokens, locks });
    }

    fn give_up_taken(&mut self, step: &mut Step<'_>, taken: &Taken) {
        // Where files are is known from directories that may be among these.
        for &fid in &taken.tokens {
            self.note_place(fid);
        }
        self.lose_stores(step, |fid| taken.tokens.contains(&fid));
        for &fid in &taken.tokens {
            self.lose_token(step, fid);
            let directory = self.nodes.get(&fid).is_some_and(|node| node.directory);
            if directory && !self.kernel.bars(fid) {
                self.bar(step, fid);
            }
        }
        let asks = |sent: &super::asked::Sent| sent.request.op.locks();
        if self.locks.waiting.is_empty() && !self.asked.requests.values().any(asks) {
            self.locks.void.clear();
        }
        for &fid in &taken.locks {
            self.lose_locks_of(fid);
        }
    }

    /// Others have had this since. Its changes stay here.
    pub(crate) fn lose_token(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.lose_room(fid);
        let term = self.session.term;
        let Some(node) = self.nodes.get_mut(&fid) else {
            self.forgotten.floor = self.forgotten.floor.max(term);
            return;
        };
        node.token.void = node.token.void.max(term);
        if node.token.right == Right::None {
            return;
        }
        if self.options.mutant == Some(Mutant::DropsStranded) {
            self.drop_changed(fid);
        }
        self.strand(fid);
        let node = self.node(fid);
        node.token.right = Right::None;
        (node.tell, node.writeback.listed, node.writeback.flush) = (None, false, false);
        (node.untold.private, node.bare) = (false, false);
        node.edits += 1;
        node.forget_xattrs();
        let drained = node.drain.take().is_some();
        self.draining.remove(&fid);
        self.void(fid);
        self.step_over_listing(fid);
        if drained {
            self.unpark(step, fid);
        }
        self.retire(step, fid);
    }

    /// Drops what is changed of a file, and says nothing.
    fn drop_changed(&mut self, fid: Fid) {
        let all: Vec<_> = self.cache.blocks(fid, 0).collect();
        let dirty = all
            .iter()
            .filter(|(_, _, state)| crate::client::is_dirty(*state));
        for (block, ..) in dirty {
            self.cache.drop_block(fid, *block);
        }
    }

    fn step_over_listing(&mut self, fid: Fid) {
        let node = self.node(fid);
        if node.directory {
            (node.dir.last, node.dir.order) = (None, None);
        }
    }

    /// Does this call read or write a file of which a lock was lost, as nobody knows yet who had
    /// it?
    pub(crate) fn lacks_lock(&self, call: &Call) -> bool {
        let (Call::Read { fid, .. } | Call::Write { fid, .. }) = call else {
            return false;
        };
        self.locks.is_lost(*fid)
    }

    /// The file of a call that must wait until it is known what becomes of stranded bytes.
    pub(crate) fn is_stranded(&self, call: &Call) -> Option<Fid> {
        if self.stranded.is_empty() || self.takes_stores(call) {
            return None;
        }
        let fids = match call {
            Call::Read { fid, .. }
            | Call::Write { fid, .. }
            | Call::Sync { fid, .. }
            | Call::Seek { fid }
            | Call::Open { fid, .. } => [Some(*fid), None],
            Call::Op(Op::GetAttr { fid } | Op::SetAttr { fid, .. }) => [Some(*fid), None],
            Call::Op(Op::Allocate { fid, .. } | Op::Find { fid, .. }) => [Some(*fid), None],
            Call::Op(Op::Copy { from, to, .. }) => [Some(*from), Some(*to)],
            _ => [None, None],
        };
        let mut fids = fids.into_iter().flatten();
        fids.find(|fid| self.stranded.contains_key(fid))
    }
}
