//! Operations on ranges of files that the server does by itself: fallocate, copies, finding holes.
//!
//! This client's changes to a file that such an operation looks into are at the server before it; a
//! file that it changes has no dirty blocks, or older bytes would be written over it later. Nor is
//! a file made longer, by a change of its size, than bytes that are still on their way. While an
//! operation is under way the cache of that file is not used, as during an own write at the server.

use crate::Ticket;
use crate::client::api::{Call, Done};
use crate::client::mutant::Mutant;
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Step, is_dirty};
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Fid, Op, Right, Time};

impl Client {
    /// Must the operation wait for blocks to be written back, or for its turn?
    pub(crate) fn must_bring(&mut self, step: &mut Step<'_>, ticket: Ticket, op: &Op) -> bool {
        if let Some(fid) = op.edits() {
            let node = self.node(fid);
            if node.drain.is_some() || node.pending.resizing + node.pending.cutting > 0 {
                node.parked.push(ticket);
                return true;
            }
            if self.has_changed(fid) {
                self.bring(step, (ticket, fid), Time::MAX);
                return true;
            }
        }
        let Some(fid) = op.draws_on().filter(|fid| op.edits() != Some(*fid)) else {
            return false;
        };
        let Some(running) = self.callers.calls.get_mut(&ticket) else {
            return false;
        };
        // Once is enough: later writes may be looked at or not.
        if core::mem::replace(&mut running.brought, true) || !self.has_changed(fid) {
            return false;
        }
        let now = step.now;
        self.bring(step, (ticket, fid), now);
        true
    }

    /// Must a change of the size wait for bytes that it would put inside the file before the server
    /// has them? Others would read zeros in their place if this machine were lost.
    pub(crate) fn must_bring_within(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        op: &Op,
    ) -> bool {
        let Op::SetAttr { fid, set } = op else {
            return false;
        };
        let Some(node) = self.nodes.get(fid) else {
            return false;
        };
        // A file that is no longer here than there has nothing behind its end there.
        let there = node.stored.1;
        let longer = node.attr.as_ref().is_none_or(|attr| attr.size > there);
        let Some(size) = set.size.filter(|size| longer && *size > there) else {
            return false;
        };
        let starts_within =
            |(block, _, state)| is_dirty(state) && block * u64::from(BLOCK_BYTES) < size;
        let within = self.cache.changed_blocks(*fid).any(starts_within);
        let ahead = self.options.mutant == Some(Mutant::ResizesAheadOfBytes);
        let running = self.callers.calls.get_mut(&ticket);
        let Some(running) = running.filter(|running| within && !ahead && !running.brought) else {
            return false;
        };
        // Later writes have their turn behind the change.
        running.brought = true;
        let now = step.now;
        self.bring(step, (ticket, *fid), now);
        true
    }

    /// Must a write that the server does wait for what is changed of the file?
    pub(crate) fn must_bring_all(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) -> bool {
        let changed = self.has_changed(fid);
        if changed {
            self.bring(step, (ticket, fid), Time::MAX);
        }
        changed
    }

    /// Has it bytes that are to be written back? Those of a file that is gone before the server has
    /// heard of it never are: a call that waited for them would wait for ever.
    fn has_changed(&self, fid: Fid) -> bool {
        if self.options.mutant == Some(Mutant::LeavesRanges) || self.is_gone_unheard(fid) {
            return false;
        }
        let mut blocks = self.cache.blocks(fid, 0);
        blocks.any(|(_, _, state)| is_dirty(state))
    }

    /// Writes back what is dirty; the call goes on when nothing is left that was there by then.
    fn bring(&mut self, step: &mut Step<'_>, (ticket, fid): (Ticket, Fid), until: Time) {
        self.node(fid).writeback.syncing.push((ticket, until));
        self.flush(step, fid);
        self.go_on_syncing(step, fid);
    }

    /// The operation goes to the server: the file's cache is not used until it is answered, and the
    /// known attributes are not shown to anybody meanwhile.
    pub(crate) fn note_edit(&mut self, fid: Fid) {
        let node = self.node(fid);
        node.pending.remote_writes += 1;
        node.edits += 1;
        node.attr = None;
    }

    /// Ends a copy or a search, which has shown the file as the server has it, when the kernel has
    /// dropped an older size of it. Else a read through the kernel would end where it did before.
    pub(crate) fn finish_shown(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        done: Done,
    ) {
        if !self.is_disowned(fid, false) {
            return self.finish(step, ticket, done);
        }
        let what = Invalidate::Inode {
            fid,
            ranges: alloc::vec::Vec::new(),
            young: false,
        };
        self.invalidate(step, what, After::Answer(ticket, done));
    }

    /// The server has done it. The kernel drops the pages itself, behind the answer.
    pub(crate) fn on_edited(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        (attr, vouched): (Attr, bool),
        done: Done,
    ) {
        self.keep_edited(fid, (attr, vouched));
        let zeros = self.zeroed_by(ticket);
        match self.copied_by(ticket) {
            Some(from) => self.finish_shown(step, (ticket, from), done),
            None => self.finish(step, ticket, done),
        }
        let node = self.node(fid);
        let spoilt = zeros.filter(|zeros| node.zeroes(step.now, *zeros));
        if node.pending.remote_writes == 0 {
            node.pages_beside_are_known();
        }
        if let Some(range) = spoilt {
            self.drop_again(step, fid, range);
        }
        self.unpark(step, fid);
    }

    /// The file from which this call copies.
    fn copied_by(&self, ticket: Ticket) -> Option<Fid> {
        match self.callers.calls.get(&ticket)?.call {
            Call::Op(Op::Copy { from, .. }) => Some(from),
            _ => None,
        }
    }

    /// The range that the kernel makes zeros itself, behind the answer to this call: of the pages
    /// that are in it in part.
    fn zeroed_by(&self, ticket: Ticket) -> Option<(u64, u64)> {
        match self.callers.calls.get(&ticket)?.call {
            Call::Op(Op::Allocate {
                zero: true,
                offset,
                len,
                ..
            }) => Some((offset, offset.saturating_add(len))),
            _ => None,
        }
    }

    /// Keeps the attributes of a file, and drops its clean blocks, after an own change of its bytes
    /// at the server.
    pub(crate) fn keep_edited(&mut self, fid: Fid, (attr, vouched): (Attr, bool)) {
        self.cache.drop_clean(fid, 0);
        let node = self.node(fid);
        if attr.version > node.version || node.attr.is_none() {
            // An answer that was kept over a restart of the server says how things were then.
            node.version = node.version.max(attr.version);
            node.attr = None;
            if node.token.right >= Right::Shared && vouched {
                node.has_attr(attr);
            }
        } else if attr.version == node.version {
            // No bytes have changed, but times may have: room was made behind the end.
            let older = node.attr.as_ref().is_some_and(|own| own.ctime < attr.ctime);
            if vouched {
                self.changed(fid, attr, vouched);
            } else if older && node.token.right < Right::Exclusive {
                node.attr = None;
            }
        }
    }
}
