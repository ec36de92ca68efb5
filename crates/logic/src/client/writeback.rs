//! When dirty blocks leave: by age (every 5 s what is older than 30 s; Nelson, section 3.5), when
//! the token is asked back, when a program syncs, when the cache is full.
//!
//! Never two batches of one file are on their way, and never more than [`CLEANERS`] in all. A block
//! that is changed while it is on its way stays dirty. What was refused is tried again.

use super::api::{Call, Done, Piece};
use super::cache::State;
use super::session::Why;
use super::told::Event;
use super::{Client, Step};
use crate::Ticket;
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Caller, Fid, Hold, Op, Refusal, WriteMode};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most batches on their way.
const CLEANERS: u32 = 32;

impl Client {
    /// Writes back what is old enough.
    pub(super) fn scan(&mut self, step: &mut Step<'_>) {
        for (fid, since) in self.cache.dirty_files() {
            if step.now >= since + self.options.write_delay_ns {
                self.flush(step, fid);
            }
        }
    }

    /// Writes back everything dirty of a file.
    pub(super) fn flush(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.node(fid).flush = true;
        self.clean(step, fid);
    }

    /// Sends the next batch of a file, if it is its turn.
    pub(super) fn clean(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if node.stillborn {
            return self.bury_stillborn(step, fid);
        }
        if !node.flush || node.sending || node.resizing > 0 || node.timing > 0 {
            return;
        }
        let size = node.attr.as_ref().map(|attr| attr.size);
        let Some((first, slots)) = self.batch(fid) else {
            self.node(fid).flush = false;
            return self.cleaned(step, fid);
        };
        let Some(size) = size else {
            // Who changes blocks knows the size. Were it otherwise, they could not leave, and what
            // waits for them would ask for that again and again.
            self.node(fid).flush = false;
            return;
        };
        if self.cleaners >= CLEANERS {
            return self.wants_cleaner.push_back(fid);
        }
        self.cleaners += 1;
        // None was on its way.
        self.cache.changed_from(fid, first);
        let end = size.min((first + slots.len() as u64) * BLOCK);
        let offset = first * BLOCK;
        let len = end.saturating_sub(offset) as u32;
        let count = slots.len() as u32;
        let mut bulk = Vec::with_capacity(slots.len());
        for (at, slot) in slots.into_iter().enumerate() {
            self.cache.set(slot, State::Sending(None));
            let left = len.saturating_sub(at as u32 * BLOCK_BYTES).min(BLOCK_BYTES);
            bulk.push(Piece::Slot {
                slot,
                at: 0,
                len: left,
            });
        }
        let node = self.node(fid);
        node.sending = true;
        let of = |time: fn(&Attr) -> wire::Time| node.attr.as_ref().map_or(0, time);
        let (mtime, ctime) = (of(|attr| attr.mtime), of(|attr| attr.ctime));
        let op = Op::Write {
            fid,
            offset,
            len,
            mode: WriteMode::Back { size, mtime, ctime },
        };
        let why = Why::Back { fid, first, count };
        self.request(step, (op, Caller::default(), Hold::default()), bulk, why);
    }

    /// The first dirty block of a file and its dirty neighbours.
    fn batch(&self, fid: Fid) -> Option<(u64, Vec<u32>)> {
        let mut batch: Option<(u64, Vec<u32>)> = None;
        for (block, slot, state) in self.cache.changed_blocks(fid) {
            if !matches!(state, State::Dirty(_)) {
                if batch.is_some() {
                    break;
                }
                continue;
            }
            match &mut batch {
                None => batch = Some((block, alloc::vec![slot])),
                Some((first, slots)) => {
                    let next = *first + slots.len() as u64;
                    if block != next || slots.len() as u32 >= self.options.batch_blocks {
                        break;
                    }
                    slots.push(slot);
                }
            }
        }
        batch
    }

    /// A batch was answered.
    pub(super) fn on_written_back(
        &mut self,
        step: &mut Step<'_>,
        (fid, first, count): (Fid, u64, u32),
        result: Result<Attr, Refusal>,
    ) {
        self.cleaners = self.cleaners.saturating_sub(1);
        let refused = result.as_ref().err().copied();
        // What can never be written is dropped; what may succeed later is tried again.
        let lost = refused.filter(|why| !matches!(why, Refusal::NoSpace | Refusal::Disk));
        for block in first..first + u64::from(count) {
            let Some((slot, State::Sending(again))) = self.cache.find(fid, block) else {
                continue;
            };
            match (refused, lost) {
                (_, Some(_)) => self.cache.drop_block(fid, block),
                (Some(_), None) => self
                    .cache
                    .set(slot, State::Dirty(again.unwrap_or(step.now))),
                (None, _) => self
                    .cache
                    .set(slot, again.map_or(State::Clean, State::Dirty)),
            }
        }
        let node = self.node(fid);
        node.sending = false;
        if let Ok(attr) = result {
            node.version = attr.version;
            if let Some(own) = node.attr.as_mut() {
                (own.version, own.used_bytes) = (attr.version, attr.used_bytes);
            }
        }
        if let Some(refusal) = refused {
            self.write_back_failed(step, (fid, count), refusal, lost.is_some());
        }
        if self.nodes.get(&fid).is_some_and(|node| node.unlinked) {
            self.bury_if_unused(step, fid);
        }
        self.unpark(step, fid);
        self.clean(step, fid);
        self.next_cleaner(step);
        self.feed_starved(step);
    }

    fn write_back_failed(
        &mut self,
        step: &mut Step<'_>,
        (fid, count): (Fid, u32),
        refusal: Refusal,
        lost: bool,
    ) {
        let node = self.node(fid);
        let unlinked = node.unlinked;
        node.error = Some(refusal);
        // Tried again by the next scan, sync or recall; a loop here would only turn in place.
        node.flush = node.flush && lost;
        for (ticket, _) in core::mem::take(&mut node.syncing) {
            self.finish(step, ticket, Done::Refused(refusal));
        }
        if lost && !unlinked {
            let bytes = u64::from(count) * BLOCK;
            step.out
                .push(super::Output::Event(Event::DataLost { fid, bytes }));
        } else if !lost {
            step.out.push(super::Output::Event(Event::WriteBackRefused {
                fid,
                refusal,
            }));
        }
    }

    pub(super) fn next_cleaner(&mut self, step: &mut Step<'_>) {
        while self.cleaners < CLEANERS {
            let Some(fid) = self.wants_cleaner.pop_front() else {
                break;
            };
            self.clean(step, fid);
        }
        self.leave_if_clean(step);
    }

    /// Nothing dirty of a file is left to be sent now.
    fn cleaned(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.go_on_syncing(step, fid);
        self.go_on_draining(step, fid);
        self.step_down_listed(step, fid);
        self.bury_if_unused(step, fid);
        self.retire(step, fid);
        self.leave_if_clean(step);
    }

    pub(super) fn sync(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) {
        if self.node(fid).stillborn {
            return self.finish(step, ticket, Done::Nothing);
        }
        if let Some(error) = self.node(fid).error.take() {
            return self.finish(step, ticket, Done::Refused(error));
        }
        self.node(fid).syncing.push((ticket, step.now));
        self.flush(step, fid);
        self.go_on_syncing(step, fid);
    }

    /// Goes on with calls, and sends the sync of those that ask for one, whose blocks have all been
    /// written back.
    pub(super) fn go_on_syncing(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self
            .nodes
            .get(&fid)
            .is_none_or(|node| node.syncing.is_empty())
        {
            return;
        }
        let oldest = self
            .cache
            .blocks(fid, 0)
            .filter_map(|(_, _, state)| match state {
                State::Dirty(since) => Some(since),
                State::Sending(_) => Some(0),
                _ => None,
            })
            .min();
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = core::mem::take(&mut node.syncing)
            .into_iter()
            .partition(|(_, asked)| oldest.is_none_or(|oldest| oldest > *asked));
        node.syncing = waiting;
        for (ticket, _) in ready {
            let call = self.calls.get(&ticket).map(|running| &running.call);
            match call {
                Some(Call::Sync { .. }) => self.send_sync(step, ticket, fid),
                _ => self.start(step, ticket),
            }
        }
    }

    fn send_sync(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) {
        let Some(running) = self.calls.get(&ticket) else {
            return;
        };
        debug_assert!(matches!(running.call, Call::Sync { .. }));
        let caller = running.caller.clone();
        let op = Op::Sync { fid };
        self.request(
            step,
            (op, caller, Hold::default()),
            Vec::new(),
            Why::Call(ticket),
        );
    }
}
