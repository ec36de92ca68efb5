//! Pages into which programs may store: those of shared mappings.
//!
//! Linux tells nobody of a store. It asks for a page when a program first touches it, and writes
//! the page back some time after it was changed. Programs that have a file open for writing can
//! store into all its pages, for whomever the kernel has asked for them. So while a file is open
//! for writing here, the kernel has pages of it only under the Exclusive token, which this client
//! claims when it is asked for a page without having it. A recall drops these pages, which brings
//! what was stored in them, before anybody else reads or writes: a read that begins after a store
//! sees it, on any machine.
//!
//! Descriptors for writing are direct, so that nothing but a mapping makes the kernel ask for pages
//! through one; and only clients that share a file that is mapped pay, by one claim for each turn.

use super::read_write::young;
use crate::Ticket;
use crate::client::api::{Call, Done, How, Output};
use crate::client::mutant::Mutant;
use crate::client::node::{Node, Phase, Range};
use crate::client::notices::{Event, Invalidate};
use crate::client::session::asked::Why;
use crate::client::{After, Client, Running, Step};
use alloc::vec;
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Caller, Fid, Op, Refusal, RequestId, Right, Time, WriteMode};

/// So long a page stays at least that a program has asked for, so that it can store into it before
/// another machine has it: two that want it at once would else hand it on and never use it.
const PAGE_HOLD_NS: Time = 500_000;

/// So often a write waits for what is stored into its pages. After that it goes first.
const CLEARS_MAX: u32 = 8;

/// Has the kernel dropped pages for this call, and been given none since?
fn clears(running: &Running, paged: u64) -> bool {
    running.cleared.is_some_and(|(then, _)| then == paged)
}

impl Node {
    /// Does the kernel have pages into which programs may store?
    pub(crate) fn is_stored_into(&self) -> bool {
        self.kernel.mapped_at() > 0 && self.kernel.has_pages() && self.hold(0).write
    }

    /// Until when a program that was given a page may not have used it.
    pub(crate) fn stores_until(&self) -> Time {
        match self.kernel.mapped_at() {
            0 => 0,
            at => at + PAGE_HOLD_NS,
        }
    }
}

impl Client {
    /// May the kernel have no pages of this file, since a program might store into them unseen?
    pub(crate) fn withholds_pages(&self, fid: Fid) -> bool {
        let shares = self.options.mutant == Some(Mutant::SharesMappedPages);
        let node = self.nodes.get(&fid);
        let withheld = |node: &Node| node.hold(0).write && node.token.right < Right::Exclusive;
        self.options.announced && !shares && node.is_some_and(|node| withheld(node))
    }

    /// A read for pages into which programs may store, while the server applies an own write: it
    /// waits for that. Else a page of before the write, with what is stored into it, would be
    /// written back behind it.
    fn comes_behind_write(&mut self, ticket: Ticket, fid: Fid) -> bool {
        let announced = self.options.announced;
        let node = self.node(fid);
        let changes = node.pending.remote_writes > 0 && node.hold(0).write;
        // The server has nobody else to wait for while the file is this client's: so neither does a
        // recall, whose pages this read has locked, wait in a circle.
        let free = node.drain.is_none() || node.token.right == Right::Exclusive;
        let mut sent = self.asked.requests.values().map(|sent| &sent.request.op);
        let waits = announced
            && changes
            && free
            && sent.any(|op| match op {
                Op::Write {
                    mode: WriteMode::Back { .. },
                    ..
                } => false,
                Op::Write { fid: of, .. } => *of == fid,
                _ => false,
            });
        if waits {
            self.node(fid).parked.push(ticket);
        }
        waits
    }

    /// A read for pages that the kernel may not have yet: it waits for them to be claimed.
    pub(crate) fn must_claim(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        caller: &Caller,
    ) -> bool {
        if self.comes_behind_write(ticket, fid) {
            return true;
        }
        if !self.withholds_pages(fid) {
            return false;
        }
        let node = self.node(fid);
        if node.drain.is_some() && node.kernel.has_pages() {
            // Pages of before the file was opened for writing are being dropped, which may wait for
            // this one. It is dropped once more before the open is answered.
            return false;
        }
        if node.drain.is_some() || node.pending.claiming > 0 {
            node.parked.push(ticket);
            return true;
        }
        let hold = node.hold(0);
        let op = Op::Claim { fid };
        self.note_sent(&op);
        let why = Why::Call(ticket);
        self.request(step, (op, caller.clone(), hold), Vec::new(), why);
        true
    }

    /// The file is this client's now, unless a recall was faster.
    pub(crate) fn on_claimed(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id, fid): (Ticket, RequestId, Fid),
        (attr, vouched): (Attr, bool),
    ) {
        let node = self.node(fid);
        let unknown = node.attr.is_none() && node.pending.remote_writes == 0;
        if node.token.right == Right::Exclusive && unknown && id > node.marks.changed {
            // Nobody else changes it, whatever was asked back meanwhile.
            let outdated = core::mem::replace(&mut node.version, attr.version) != attr.version;
            node.has_attr(attr);
            if outdated {
                self.cache.drop_clean(fid, 0);
            }
            self.count_used(fid);
        } else {
            self.learn(fid, attr, vouched);
        }
        self.start(step, ticket);
        self.unpark(step, fid);
        self.retire(step, fid);
    }

    /// A claim was refused: the file is gone.
    pub(crate) fn on_claim_refused(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        refusal: Refusal,
    ) {
        self.node(fid).kernel.ends_read(ticket);
        self.finish(step, ticket, Done::Refused(refusal));
        self.ask_behind(step, fid);
        self.unpark(step, fid);
        self.retire(step, fid);
    }

    /// A file is open for writing, and is not this client's: the kernel drops what it has of it
    /// before the program knows.
    pub(crate) fn drops_for_writer(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
    ) -> bool {
        if !self.withholds_pages(fid) || !self.node(fid).kernel.has_pages() {
            return false;
        }
        let now = step.now;
        let node = self.node(fid);
        let (paged, young) = (node.kernel.paged(), young(node.kernel.told_at(), now));
        let ranges = vec![(0, u64::MAX)];
        let what = Invalidate::Inode { fid, ranges, young };
        self.invalidate(step, what, After::Opened(ticket, fid, paged));
        true
    }

    /// The kernel has dropped what it had when the file was opened for writing: once more, if it
    /// was given something since.
    pub(crate) fn on_dropped_for_writer(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        paged: u64,
    ) {
        let withheld = self.withholds_pages(fid);
        let node = self.node(fid);
        // A recall may be having it drop pages, too, and wait for one that a program asks for: that
        // is served only as long as the kernel may have some.
        let dropping =
            matches!(&node.drain, Some(drain) if matches!(drain.phase, Phase::Dropping(..)));
        if withheld && node.kernel.paged() == paged && !dropping {
            node.kernel.has_no_pages();
        }
        if !self.drops_for_writer(step, (ticket, fid)) {
            let (cached, bytes) = (false, Vec::new());
            self.note_opened(fid, ticket);
            self.finish(step, ticket, Done::Opened { cached, bytes });
        }
    }

    /// A write into pages that the kernel may have, and that programs may have stored into since it
    /// dropped them for this write: the stored bytes come first. They come with the whole page, and
    /// would else bring back what that had before the write. True if that is waited for.
    pub(crate) fn stores_come_first(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        (from, to): Range,
    ) -> bool {
        let (now, block) = (step.now, u64::from(BLOCK_BYTES));
        let node = self.node(fid);
        let mapped = node.is_stored_into();
        let (paged, told) = (node.kernel.paged(), node.kernel.told_at());
        let Some(running) = self.callers.calls.get_mut(&ticket) else {
            return false;
        };
        let times = running.cleared.map_or(0, |(_, times)| times);
        if !mapped || clears(running, paged) || times == CLEARS_MAX {
            return false;
        }
        running.cleared = Some((paged, times + 1));
        let ranges = vec![(from / block * block, to.next_multiple_of(block))];
        let young = young(told, now);
        let what = Invalidate::Inode { fid, ranges, young };
        self.invalidate(step, what, After::Begin(ticket));
        true
    }

    /// Has the kernel no page of what this call writes, since it was given none?
    pub(crate) fn is_cleared(&self, ticket: Ticket, fid: Fid) -> bool {
        let paged = self.nodes.get(&fid).map(|node| node.kernel.paged());
        let running = self.callers.calls.get(&ticket);
        running.is_some_and(|running| paged.is_some_and(|paged| clears(running, paged)))
    }

    /// Is it what was stored into pages, and can it be taken in though the caches are not used just
    /// now? The kernel may be dropping these pages for that very reason, and others behind them.
    pub(crate) fn takes_stores(&self, call: &Call) -> bool {
        let Call::Write { fid, how, .. } = call else {
            return false;
        };
        let node = self.nodes.get(fid);
        let held = node.is_none_or(|node| node.token.right < Right::Exclusive || node.cached());
        *how == How::Paged && self.options.announced && held
    }

    /// Stored bytes go to the cache, never past it: the disk might refuse them, and nobody would be
    /// told. So they wait while the cache is not used, for an own change at the server or for the
    /// attributes behind one. Both wait for nobody else, as the file is this client's.
    pub(crate) fn stores_wait(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) -> bool {
        let announced = self.options.announced;
        let node = self.node(fid);
        if node.cached() || !announced {
            return false;
        }
        if node.pending.remote_writes + node.pending.claiming > 0 {
            node.parked.push(ticket);
        } else {
            let (op, hold) = (Op::Claim { fid }, node.hold(0));
            self.note_sent(&op);
            let why = Why::Call(ticket);
            self.request(step, (op, Caller::default(), hold), Vec::new(), why);
        }
        true
    }

    /// Bytes stored into a page leave the kernel when the file is not this client's any more: its
    /// session was lost, and others may have written since. They are lost, too.
    pub(crate) fn is_stored_too_late(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        call: &Call,
    ) -> bool {
        let &Call::Write { fid, len, .. } = call else {
            return false;
        };
        let shares = self.options.mutant == Some(Mutant::SharesMappedPages);
        let held = self.node(fid).token.right == Right::Exclusive;
        if !self.options.announced || shares {
            return false;
        }
        if held && !self.serves() && !self.reassertion.parts.is_empty() {
            // It may be had anew, and the server has not said yet whether it was taken before.
            self.callers.parked.push(ticket);
            return true;
        }
        if held {
            return self.stores_wait(step, ticket, fid);
        }
        self.refuse_stored(step, ticket, (fid, len));
        true
    }

    /// These files are not this client's any more. Stored bytes that wait to be taken in, for the
    /// attributes or for a slot, were stored when they were: others may have written since, whether
    /// the file is had again or not.
    pub(crate) fn lose_stores(&mut self, step: &mut Step<'_>, lost: impl Fn(Fid) -> bool) {
        if !self.options.announced {
            return;
        }
        let stores = |(ticket, running): (&Ticket, &Running)| match running.call {
            Call::Write {
                fid,
                len,
                how: How::Paged,
                ..
            } if lost(fid) => Some((*ticket, (fid, len))),
            _ => None,
        };
        let waiting: Vec<(Ticket, (Fid, u32))> =
            self.callers.calls.iter().filter_map(stores).collect();
        for (ticket, bytes) in waiting {
            self.refuse_stored(step, ticket, bytes);
        }
    }

    fn refuse_stored(&mut self, step: &mut Step<'_>, ticket: Ticket, (fid, len): (Fid, u32)) {
        let bytes = u64::from(len);
        step.out.push(Output::Event(Event::DataLost { fid, bytes }));
        self.finish(step, ticket, Done::Refused(Refusal::SessionLost));
    }
}
