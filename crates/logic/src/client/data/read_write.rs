//! Bytes of files: reads and writes, from the cache under a token, else at the server.
//!
//! Under Shared or Exclusive a read is answered from blocks, which are fetched if they are not
//! here; under Exclusive a write goes to blocks. Without a token both go to the server, as in
//! Sprite while a file is write-shared (Nelson, section 3.3); the pages that such a read puts into
//! the kernel's cache are there under a transient right. While an own write is at the server, the
//! cache is not used.

use super::cache::BlockState;
use super::runs::runs;
use crate::Ticket;
use crate::client::api::{Call, Done, How, Output, Slot};
use crate::client::kernel::cut_pages;
use crate::client::mutant::Mutant;
use crate::client::node::{FillStart, Node, Range};
use crate::client::notices::Invalidate;
use crate::client::piece::Piece;
use crate::client::session::asked::Why;
use crate::client::{After, Client, Running, Step};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Caller, Epoch, Fid, Op, Right, VERSION_OF_PASSING};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Client {
    pub(crate) fn read(&mut self, step: &mut Step<'_>, ticket: Ticket, running: Running) {
        let Call::Read {
            fid,
            offset,
            len,
            pages,
        } = running.call
        else {
            return;
        };
        let node = self.node(fid);
        let range = (offset, offset.saturating_add(u64::from(len)));
        if pages {
            node.reads_pages(step.now, ticket, range);
        }
        if !node.may_read(ticket, pages.then_some(range)) {
            return node.parked.push(ticket);
        }
        if self.waits_for_disowned(fid, ticket, pages)
            || (pages && self.must_claim(step, (ticket, fid), &running.caller))
        {
            return;
        }
        let passes = pages && self.passes_by(fid, (offset, len));
        if passes {
            self.lending.passes();
        }
        let node = self.node(fid);
        if passes || !node.cached() {
            let hold = node.hold(0);
            let op = Op::Read { fid, offset, len };
            self.request(
                step,
                (op, running.caller, hold),
                Vec::new(),
                Why::Call(ticket),
            );
            return;
        }
        let size = node.attr.as_ref().map_or(0, |attr| attr.size);
        let end = size.min(offset.saturating_add(u64::from(len)));
        if offset >= end {
            return self.finish_read(step, ticket, Vec::new());
        }
        self.adopt_kept(fid, offset / BLOCK..end.div_ceil(BLOCK));
        match self.gather(fid, (offset, end), pages) {
            Some(pieces) => {
                self.read_ahead_pays(fid);
                self.finish_read(step, ticket, pieces);
                self.walk_used(step, fid, &running.caller);
            }
            None => self.fill(step, (ticket, &running.caller), fid, (offset, end)),
        }
    }

    /// Is this much of a large read, of which nothing is here, that a second copy of what the
    /// kernel keeps would only drive other blocks out (Nelson, section 6.2), and cost its making?
    fn passes_by(&self, fid: Fid, (offset, len): (u64, u32)) -> bool {
        let end = offset.saturating_add(u64::from(len));
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let node = self.nodes.get(&fid);
        // The kernel's copy cannot be lent, so a client that lends keeps one if others want it.
        let lent = |node: &Node| node.is_reread || self.session.version < VERSION_OF_PASSING;
        let lent = |node: &Node| self.lending.lends() && lent(node);
        len >= self.options.passing_bytes
            && node.is_some_and(|node| node.token.right == Right::Shared && !lent(node))
            && self.cache.span(fid, blocks).all(|found| found.is_none())
    }

    /// The pieces of a range, if all its blocks are here.
    pub(crate) fn gather(
        &mut self,
        fid: Fid,
        (from, to): Range,
        pages: bool,
    ) -> Option<Vec<Piece>> {
        let blocks = from / BLOCK..to.div_ceil(BLOCK);
        let here = |found: Option<(Slot, BlockState)>| {
            found.and_then(|(slot, state)| (!state.is_filling()).then_some(slot))
        };
        let span = self.cache.span(fid, blocks.clone());
        let found: Vec<Slot> = span.map(here).collect::<Option<_>>()?;
        self.counts.hits += found.len() as u64;
        let mut pieces = Vec::with_capacity(found.len());
        for (block, slot) in blocks.zip(found) {
            let start = block * BLOCK;
            let (first, last) = (from.max(start), to.min(start + BLOCK));
            pieces.push(Piece::Slot {
                slot,
                at: (first - start) as u32,
                len: (last - first) as u32,
            });
            self.cache.touch(slot);
            if pages && last - first == BLOCK && !self.lending.lends() {
                self.cache.age(slot);
            }
        }
        Some(pieces)
    }

    /// Answers a read; the kernel may keep what it gets.
    pub(crate) fn finish_read(&mut self, step: &mut Step<'_>, ticket: Ticket, pieces: Vec<Piece>) {
        let Some(Call::Read {
            fid, offset, pages, ..
        }) = self.callers.calls.get(&ticket).map(|r| &r.call)
        else {
            return;
        };
        let (fid, offset, pages) = (*fid, *offset, *pages);
        let end = offset + pieces.iter().map(Piece::len).sum::<u64>();
        let last = self.asked.last_request;
        let node = self.node(fid);
        let reading = node.kernel.ends_read(ticket);
        if pages {
            let writable = node.hold(0).write;
            node.kernel.is_given_pages(step.now, writable);
        }
        let all = offset == 0 && node.attr.as_ref().is_some_and(|attr| end >= attr.size);
        if pages && all && !node.opens.direct {
            node.kernel.has_all();
        }
        if let (Some(drain), Some(reading)) = (node.drain.as_mut(), &reading) {
            drain.freed.remove(&ticket);
            drain.again.push(reading.range);
        }
        let again = reading.and_then(|reading| node.gave_pages(step.now, reading, (end, last)));
        self.finish(step, ticket, Done::Read { pieces });
        if let Some(range) = again {
            self.drop_again(step, fid, range);
        }
        self.ask_behind(step, fid);
    }

    /// Fetches the blocks of a range that are neither here nor on their way; the call is begun
    /// again when they come.
    fn fill(
        &mut self,
        step: &mut Step<'_>,
        (ticket, caller): (Ticket, &Caller),
        fid: Fid,
        (from, to): Range,
    ) {
        let blocks = from / BLOCK..to.div_ceil(BLOCK);
        if !self.cache.fits_beside(fid, blocks.clone()) {
            return self.starve(step, ticket);
        }
        let missing: Vec<u64> = blocks
            .filter(|block| self.cache.find(fid, *block).is_none())
            .collect();
        if self.fill_with_zeros(step, fid, &missing) {
            return self.start(step, ticket);
        }
        self.counts.misses += missing.len() as u64;
        for block in from / BLOCK..to.div_ceil(BLOCK) {
            if let Some((slot, _)) = self.cache.find(fid, block) {
                self.cache.touch(slot); // not given up for its neighbours
            }
        }
        self.node(fid).parked.push(ticket);
        let fill = self.cache.begin_fill();
        for block in &missing {
            self.cache.take(fid, *block, BlockState::Filling(fill));
        }
        let (since, hold) = (self.node(fid).fill_start(fill), self.node(fid).hold(0));
        for (first, count) in runs(missing) {
            let (offset, len) = (first * BLOCK, (count * BLOCK) as u32);
            let op = Op::Read { fid, offset, len };
            let why = Why::Fill {
                fid,
                first,
                count: count as u32,
                since,
            };
            self.request(step, (op, caller.clone(), hold), Vec::new(), why);
        }
        if self.read_ahead_would_pay(fid, from) {
            self.walk_missed_file(step, fid, caller);
        }
    }

    /// Blocks have come, unless they are outdated.
    pub(crate) fn on_filled(
        &mut self,
        step: &mut Step<'_>,
        (fid, first, count): (Fid, u64, u32),
        (since, granted): (FillStart, Option<Epoch>),
        bytes: Option<u32>,
    ) {
        let node = self.node(fid);
        let valid = node.fills(since, granted);
        let bytes = bytes.filter(|_| valid);
        if bytes.is_some() {
            self.lending.counts.fetched += u64::from(count);
        }
        for at in 0..u64::from(count) {
            let Some(slot) = self.cache.awaits(fid, first + at, since.fill) else {
                continue;
            };
            match bytes {
                Some(bytes) => {
                    let from = (at * BLOCK) as u32;
                    let len = bytes.saturating_sub(from).min(BLOCK_BYTES);
                    if len == 0 {
                        let len = BLOCK_BYTES; // behind the end of what the server has
                        step.out.push(Output::Zero { slot, at: 0, len });
                    } else {
                        step.out.push(Output::Fill { slot, from, len });
                    }
                    self.cache.set(slot, BlockState::Clean);
                }
                None => self.cache.drop_block(fid, first + at),
            }
        }
        self.unpark(step, fid);
        self.feed_starved(step);
        self.lend_arrived(step, fid);
    }

    /// The kernel cannot be served now: no slot is free. Write-back makes room.
    pub(crate) fn starve(&mut self, step: &mut Step<'_>, ticket: Ticket) {
        self.callers.starved.push(ticket);
        if self.cannot_clean(step) || self.callers.starved.len() > 1 {
            return; // or everything dirty is on its way already
        }
        self.clean_all(step);
    }

    pub(crate) fn feed_starved(&mut self, step: &mut Step<'_>) {
        for ticket in core::mem::take(&mut self.callers.starved) {
            self.start(step, ticket);
        }
    }

    /// Begins the calls again that waited at this object.
    pub(crate) fn unpark(&mut self, step: &mut Step<'_>, fid: Fid) {
        let parked = self
            .nodes
            .get_mut(&fid)
            .map(|node| core::mem::take(&mut node.parked));
        for ticket in parked.into_iter().flatten() {
            self.start(step, ticket);
        }
    }

    pub(crate) fn write(&mut self, step: &mut Step<'_>, ticket: Ticket, running: Running) {
        let Call::Write {
            fid,
            offset,
            len,
            how,
        } = running.call
        else {
            return;
        };
        let node = self.node(fid);
        let waits = node.drain.is_some() || node.pending.resizing + node.pending.cutting > 0;
        if waits && how != How::Paged {
            return node.parked.push(ticket);
        }
        if how == How::Paged && self.is_stored_too_late(step, ticket, &running.call) {
            return;
        }
        let node = self.node(fid);
        if node.token.right == Right::Exclusive && self.stores_wait(step, ticket, fid) {
            // A write at the server would be overwritten by what its machine stores in its pages.
            return;
        }
        let node = self.node(fid);
        if node.token.right < Right::Exclusive || !node.cached() {
            return self.write_at_server(step, (ticket, running.caller), (fid, offset, len), how);
        }
        let size = node.attr.as_ref().map_or(0, |attr| attr.size);
        let offset = if how == How::Append { size } else { offset };
        let mut end = offset + u64::from(len);
        if end > wire::limits::FILE_BYTES {
            return self.finish(step, ticket, Done::Refused(wire::Refusal::TooLarge));
        }
        if how == How::Paged && self.options.announced {
            // A store makes no file longer, whatever the kernel believes of its size.
            end = end.min(size);
            if end <= offset {
                return self.finish(step, ticket, Done::Written { len });
            }
        }
        let waits = how != How::Paged
            && (self.must_end_privileges(step, ticket, fid)
                || self.stores_come_first(step, (ticket, fid), (offset, end)));
        let by = (ticket, &running.caller);
        let spoilt = self.spoilt_of(fid, (offset, end), how);
        if waits
            || !self.is_admitted(step, by, (fid, offset, len), (end, how))
            || self.lacks(step, by, (fid, spoilt), (offset, end, size))
        {
            return;
        }
        self.copy_in(step, (ticket, fid), (offset, end), spoilt);
        let by_own = self.options.mutant == Some(Mutant::StampsByOwnClock);
        let (now, last) = (self.clock.shows(step.now), self.asked.last_request);
        let node = self.node(fid);
        node.marks.written = last;
        if let Some(attr) = node.attr.as_mut() {
            let now = match by_own {
                true => step.now,
                false => now.max(attr.ctime.saturating_add(1)),
            };
            attr.size = attr.size.max(end);
            (attr.mtime, attr.ctime) = (now, now);
        }
        self.count_used(fid);
        let end = offset + u64::from(len);
        self.answer_write(step, (ticket, fid), (offset, end), how);
    }

    /// Are blocks or slots missing for a write to the cache? They are asked for.
    fn lacks(
        &mut self,
        step: &mut Step<'_>,
        (ticket, caller): (Ticket, &Caller),
        (fid, spoilt): (Fid, Option<Range>),
        (offset, end, size): (u64, u64, u64),
    ) -> bool {
        let blocks = offset / BLOCK..end.div_ceil(BLOCK).max(offset / BLOCK);
        // Of a block that the kernel may have spoilt some bytes are not taken.
        let spoilt = spoilt.map(|(from, _)| from / BLOCK);
        // A block that is written in part must be here, unless nothing of it is at the server.
        let partial = |block: u64| {
            let start = block * BLOCK;
            let whole = offset <= start && end >= (start + BLOCK).min(size);
            start < size && (!whole || spoilt == Some(block))
        };
        let ends = [blocks.start, blocks.end.saturating_sub(1)];
        for block in ends.into_iter().chain(spoilt) {
            let here = || match self.cache.find(fid, block) {
                Some((_, state)) => !state.is_filling(),
                None => false,
            };
            if blocks.contains(&block) && partial(block) && !here() {
                self.fill(
                    step,
                    (ticket, caller),
                    fid,
                    (block * BLOCK, (block + 1) * BLOCK),
                );
                return true;
            }
        }
        let lacking = !self.cache.fits(fid, blocks);
        if lacking {
            self.starve(step, ticket);
        }
        lacking
    }

    fn copy_in(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        (offset, end): Range,
        spoilt: Option<Range>,
    ) {
        let dirty = BlockState::Dirty(step.now);
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let found: Vec<_> = self.cache.span(fid, blocks.clone()).collect();
        // First those that are here: they are not given up for the others then.
        for (block, found) in blocks.clone().zip(&found) {
            if let Some((slot, BlockState::Clean)) = *found {
                self.place(fid, (block, slot));
                self.cache.set(slot, dirty);
            }
        }
        for (block, found) in blocks.zip(found) {
            let start = block * BLOCK;
            let (first, last) = (offset.max(start), end.min(start + BLOCK));
            let slot = match found {
                Some((slot, _)) => slot,
                None => (self.cache.take(fid, block, dirty)).expect("slots were counted"),
            };
            // Of a block that is on its way here nothing counts any more: it would not be written
            // unless nothing of it was left at the server.
            let fresh = matches!(found, None | Some((_, BlockState::Filling(_))));
            if fresh && last - first < BLOCK {
                let len = BLOCK_BYTES;
                step.out.push(Output::Zero { slot, at: 0, len });
            }
            match found {
                Some((_, BlockState::Sending(since))) => {
                    let since = since.or(Some(step.now));
                    self.cache.set(slot, BlockState::Sending(since));
                }
                Some((_, BlockState::Filling(_))) => {
                    self.place(fid, (block, slot));
                    self.cache.set(slot, dirty);
                }
                None => self.place(fid, (block, slot)),
                Some((_, BlockState::Dirty(_) | BlockState::Clean)) => {}
            }
            let spoilt = spoilt.filter(|_| !fresh);
            for ((first, last), but_zeros) in cut_pages::parts((first, last), spoilt) {
                step.out.push(Output::CopyIn {
                    ticket,
                    from: (first - offset) as u32,
                    slot,
                    at: (first - start) as u32,
                    len: (last - first) as u32,
                    but_zeros,
                });
            }
        }
        if self.writeback.next_scan <= step.now {
            self.writeback.next_scan = step.now + self.options.scan_ns;
        }
    }

    /// Answers a write once the kernel has no outdated pages of the range.
    pub(crate) fn answer_write(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        (from, to): Range,
        how: How,
    ) {
        let done = Done::Written {
            len: (to - from) as u32,
        };
        if self.is_cleared(ticket, fid) {
            return self.finish(step, ticket, done);
        }
        let now = step.now;
        let node = self.node(fid);
        let none = alloc::collections::BTreeSet::new();
        let pages = (from / BLOCK * BLOCK, to.div_ceil(BLOCK) * BLOCK);
        let ranges = node.without_reads(&[pages], &none);
        // Writes from the page cache leave the right bytes there, and hold the pages' locks.
        if how == How::Paged || !node.kernel.has_pages() || ranges.is_empty() {
            return self.finish(step, ticket, done);
        }
        let young = young(node.kernel.told_at(), now);
        let what = Invalidate::Inode { fid, ranges, young };
        self.invalidate(step, what, After::Answer(ticket, done));
    }
}

/// The kernel may not have taken in yet what it was told so shortly ago.
pub(crate) fn young(told: u64, now: u64) -> bool {
    const UNDIGESTED_REPLY_NS: u64 = 50_000_000;
    now < told + UNDIGESTED_REPLY_NS
}
