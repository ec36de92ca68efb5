//! When dirty blocks leave: by age (every 5 s what is older than 30 s; Nelson, section 3.5), when
//! the token is asked back, when a program syncs, when the cache is full.
//!
//! Never two batches of one file are on their way, and never more than [`CLEANERS_MAX`] in all;
//! over a slow network fewer, so that the blocks of a recalled file do not stand behind much. A
//! block that is changed while it is on its way stays dirty. The blocks of a file leave in their
//! order, from the first dirty one on, and each batch makes the file at the server as long as its
//! bytes reach, not as long as it is here: what a lost machine leaves of a file that grew ends
//! where the bytes end, and has no zeros in their place. A refused batch is tried again: by the
//! next sync, recall or scan, and after a pause that grows for calls that wait for a slot.

use super::cache::{BlockState, There};
use crate::Ticket;
use crate::client::api::{Call, Done, How};
use crate::client::mutant::Mutant;
use crate::client::notices::Event;
use crate::client::piece::Piece;
use crate::client::session::asked::Why;
use crate::client::{Client, Step};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Caller, Fid, Hold, Op, Refusal, Time, WriteMode};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most batches on their way.
const CLEANERS_MAX: u32 = 32;
/// How many are, before it is known how long they take, and where they take long.
const FIRST_CLEANERS: u32 = 8;
const LEAST_CLEANERS: u32 = 2;
/// A batch that is not answered within this time has waited for others.
const SLOW_BATCH_NS: Time = 1_000_000_000;

/// The write-back of all files together.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteBack {
    /// When it was begun last since much is changed.
    pub(crate) cleaned_at: Time,
    /// When files are looked through next for blocks that are old enough.
    pub(crate) next_scan: Time,
    /// Files that wait for their turn; how many batches are on their way.
    pub(crate) wants_cleaner: Turns,
    pub(crate) cleaners: u32,
    pub(crate) window: Window,
    refused: Refused,
}

/// How many batches may be on their way: as many as are answered soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window(u32);

impl Default for Window {
    fn default() -> Self {
        Self(FIRST_CLEANERS)
    }
}

impl Window {
    /// A batch has been answered after so long.
    pub(crate) fn answered(&mut self, took: Time) {
        self.0 = if took > SLOW_BATCH_NS {
            (self.0 / 2).max(LEAST_CLEANERS)
        } else {
            (self.0 + 1).min(CLEANERS_MAX)
        };
    }
}

/// Files whose next batch waits until others are answered, in their order. Each is there once,
/// however often it is asked for meanwhile: by scans while the server is away, for example.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    order: VecDeque<Fid>,
    all: BTreeSet<Fid>,
}

impl Turns {
    fn push(&mut self, fid: Fid) {
        if self.all.insert(fid) {
            self.order.push_back(fid);
        }
    }

    fn pop(&mut self) -> Option<Fid> {
        let fid = self.order.pop_front()?;
        self.all.remove(&fid);
        Some(fid)
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// How long a call that needs a slot waits after a write-back was refused: at first, and at most.
const PAUSE_LEAST_NS: u64 = 100_000_000;
const PAUSE_MOST_NS: u64 = 5_000_000_000;

/// Batches that were refused by a full or failing disk, and are tried again: not at once, since the
/// answer would be the same, and that as often as messages travel.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused {
    pause_ns: u64,
    /// Before then nobody tries for the sake of a slot; 0: there is no such time.
    until: Time,
    /// There was no room.
    full: bool,
}

impl Refused {
    fn again(&mut self, now: Time) {
        // Of batches that were on their way together only the first counts.
        if now >= self.until {
            self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_LEAST_NS, PAUSE_MOST_NS);
            self.until = now + self.pause_ns;
        }
    }
}

impl Client {
    /// Writes back what is old enough.
    pub(crate) fn scan(&mut self, step: &mut Step<'_>) {
        self.resolve_all(step);
        for (fid, since) in self.cache.dirty_files() {
            if step.now >= since + self.options.write_delay_ns {
                self.flush(step, fid);
            }
        }
    }

    /// Writes back everything dirty, as fast as it can leave. While files wait for their turn that
    /// is so, and the others follow: to look at all of them for each batch that is answered would
    /// cost the square of their number.
    pub(crate) fn clean_all(&mut self, step: &mut Step<'_>) {
        self.next_cleaner(step);
        if !self.writeback.wants_cleaner.is_empty() {
            return self.press(step);
        }
        for fid in self.cache.files_to_clean() {
            self.flush(step, fid);
        }
    }

    /// Writes back everything dirty of a file.
    pub(crate) fn flush(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.node(fid).writeback.flush = true;
        self.clean(step, fid);
    }

    /// Sends the next batch of a file, if it is its turn.
    pub(crate) fn clean(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        if node.untold.stillborn {
            return self.bury_stillborn(step, fid);
        }
        if !node.writeback.flush
            || node.writeback.sending
            || node.pending.resizing > 0
            || node.pending.timing > 0
        {
            return;
        }
        if node.stranded {
            // These bytes go where it is found that they belong, and no recall waits for that.
            return self.go_on_draining(step, fid);
        }
        let size = node.attr.as_ref().map(|attr| attr.size);
        let Some((first, slots)) = self.batch(fid) else {
            self.node(fid).writeback.flush = false;
            return self.cleaned(step, fid);
        };
        let Some(size) = size else {
            // A client that changes blocks knows the size. Were it otherwise, they could not leave,
            // and calls that wait for them would ask for that again and again.
            self.node(fid).writeback.flush = false;
            return;
        };
        if self.writeback.cleaners >= self.writeback.window.0 || self.is_pressed() {
            self.press(step);
            return self.writeback.wants_cleaner.push(fid);
        }
        self.writeback.cleaners += 1;
        // None was on its way.
        self.cache.changed_from(fid, first);
        let end = size.min((first + slots.len() as u64) * BLOCK);
        let offset = first * BLOCK;
        let len = end.saturating_sub(offset) as u32;
        let count = slots.len() as u32;
        let mut bulk = Vec::with_capacity(slots.len());
        for (at, slot) in slots.into_iter().enumerate() {
            self.cache.set(slot, BlockState::Sending(None));
            let left = len.saturating_sub(at as u32 * BLOCK_BYTES).min(BLOCK_BYTES);
            bulk.push(Piece::Slot {
                slot,
                at: 0,
                len: left,
            });
        }
        let node = self.node(fid);
        node.writeback.sending = true;
        let of = |time: fn(&Attr) -> Time| node.attr.as_ref().map_or(0, time);
        let (mtime, ctime) = (of(|attr| attr.mtime), of(|attr| attr.ctime));
        // The server learns of the size as far as it has the bytes: were this machine lost now,
        // others would read zeros behind them.
        let ahead = self.options.mutant == Some(Mutant::TellsSizeAhead);
        let size = if ahead { size } else { end };
        let op = Op::Write {
            fid,
            offset,
            len,
            mode: WriteMode::Back { size, mtime, ctime },
        };
        let why = Why::Back { fid, first, count };
        let id = self.request(step, (op, Caller::default(), Hold::default()), bulk, why);
        self.node(fid).writeback.batch = id;
    }

    /// The first dirty block of a file and its dirty neighbours.
    fn batch(&self, fid: Fid) -> Option<(u64, Vec<u32>)> {
        let mut batch: Option<(u64, Vec<u32>)> = None;
        for (block, slot, state) in self.cache.changed_blocks(fid) {
            if !matches!(state, BlockState::Dirty(_)) {
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
    pub(crate) fn on_written_back(
        &mut self,
        step: &mut Step<'_>,
        (fid, first, count): (Fid, u64, u32),
        result: Result<Attr, Refusal>,
    ) {
        self.writeback.cleaners = self.writeback.cleaners.saturating_sub(1);
        if result == Err(Refusal::SessionLost) {
            return self.on_batch_stranded(step, (fid, first, count));
        }
        let refused = result.as_ref().err().copied();
        // Blocks that can never be written are dropped; those that may be written later are tried
        // again.
        let lost =
            refused.filter(|why| !matches!(why, Refusal::NoSpace | Refusal::Quota | Refusal::Disk));
        for block in first..first + u64::from(count) {
            let Some((slot, BlockState::Sending(again))) = self.cache.find(fid, block) else {
                continue;
            };
            match (refused, lost) {
                (_, Some(_)) => self.cache.drop_block(fid, block),
                (Some(_), None) => self
                    .cache
                    .set(slot, BlockState::Dirty(again.unwrap_or(step.now))),
                (None, _) => {
                    self.cache.set_there(slot, There::Yes);
                    self.cache
                        .set(slot, again.map_or(BlockState::Clean, BlockState::Dirty));
                }
            }
        }
        let node = self.node(fid);
        node.writeback.sending = false;
        if let Ok(attr) = result {
            node.version = attr.version;
            node.stored = (attr.used_bytes, attr.size);
            if let Some(own) = node.attr.as_mut() {
                own.version = attr.version;
            }
            self.rebase(fid, attr.version);
        }
        self.count_used(fid);
        if let Some(refusal) = refused {
            self.write_back_failed(step, (fid, count), refusal, lost.is_some());
        }
        // One without a name that is closed goes when its blocks have left; if these were refused,
        // the next scan tries again.
        let settled = lost.is_some() || refused.is_none();
        if settled && self.nodes.get(&fid).is_some_and(|node| node.unlinked) {
            self.bury_if_unused(step, fid);
        }
        match refused {
            Some(refusal) if lost.is_none() => self.go_hungry(step, refusal),
            _ => self.writeback.refused = Refused::default(),
        }
        self.unpark(step, fid);
        self.clean(step, fid);
        self.resolve(step, fid);
        self.next_cleaner(step);
        if settled {
            self.feed_starved(step);
        }
    }

    /// The write-back that was to make room was refused.
    fn go_hungry(&mut self, step: &mut Step<'_>, refusal: Refusal) {
        self.writeback.refused.again(step.now);
        self.writeback.refused.full = matches!(refusal, Refusal::NoSpace | Refusal::Quota);
        self.refuse_starved(step);
    }

    /// Where there is no room for what is dirty, there is none for more.
    fn refuse_starved(&mut self, step: &mut Step<'_>) {
        if !self.writeback.refused.full {
            return;
        }
        let is_write = |ticket: &Ticket| {
            let running = self.callers.calls.get(ticket);
            let how = running.map(|running| match running.call {
                Call::Write { how, .. } => Some(how),
                _ => None,
            });
            // Bytes that were stored through a mapping are in no other place: they wait.
            how.flatten().is_some_and(|how| how != How::Paged)
        };
        let starved = core::mem::take(&mut self.callers.starved);
        let (writes, others): (Vec<_>, Vec<_>) = starved.into_iter().partition(is_write);
        self.callers.starved = others;
        for ticket in writes {
            self.finish(step, ticket, Done::Refused(Refusal::NoSpace));
        }
    }

    /// Has write-back just been refused, so that it makes no slots free? A call that waits for one
    /// waits on, or is refused.
    pub(crate) fn cannot_clean(&mut self, step: &mut Step<'_>) -> bool {
        let refused = step.now < self.writeback.refused.until;
        if refused {
            self.refuse_starved(step);
        }
        refused
    }

    /// When calls that wait for a slot try again.
    pub(crate) fn starved_due(&self) -> Option<Time> {
        let waits = !self.callers.starved.is_empty() && self.writeback.refused.until > 0;
        waits.then_some(self.writeback.refused.until)
    }

    pub(crate) fn tick_starved(&mut self, step: &mut Step<'_>) {
        if self.starved_due().is_some_and(|due| step.now >= due) {
            self.writeback.refused.until = 0;
            self.feed_starved(step);
        }
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
        // Tried again by the next scan, sync or recall; a loop here would only turn in place.
        node.writeback.flush = node.writeback.flush && lost;
        self.fail_writes(step, fid, refusal);
        if lost && !unlinked {
            let bytes = u64::from(count) * BLOCK;
            step.out
                .push(crate::client::Output::Event(Event::DataLost { fid, bytes }));
        } else if !lost {
            step.out
                .push(crate::client::Output::Event(Event::WriteBackRefused {
                    fid,
                    refusal,
                }));
        }
    }

    pub(crate) fn next_cleaner(&mut self, step: &mut Step<'_>) {
        while self.writeback.cleaners < self.writeback.window.0 && !self.is_pressed() {
            let Some(fid) = self.writeback.wants_cleaner.pop() else {
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

    pub(crate) fn sync(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (fid, handle): (Fid, Option<u64>),
    ) {
        if self.node(fid).untold.stillborn {
            return self.finish(step, ticket, Done::Nothing);
        }
        if let Some(error) = self.write_error(fid, handle) {
            return self.finish(step, ticket, Done::Refused(error));
        }
        self.node(fid).writeback.syncing.push((ticket, step.now));
        self.flush(step, fid);
        self.go_on_syncing(step, fid);
    }

    /// Goes on with calls, and sends the sync of those that ask for one, whose blocks have all been
    /// written back.
    pub(crate) fn go_on_syncing(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self
            .nodes
            .get(&fid)
            .is_none_or(|node| node.writeback.syncing.is_empty())
        {
            return;
        }
        let oldest = self
            .cache
            .blocks(fid, 0)
            .filter_map(|(_, _, state)| match state {
                BlockState::Dirty(since) => Some(since),
                BlockState::Sending(_) => Some(0),
                _ => None,
            })
            .min();
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = core::mem::take(&mut node.writeback.syncing)
            .into_iter()
            .partition(|(_, asked)| oldest.is_none_or(|oldest| oldest > *asked));
        node.writeback.syncing = waiting;
        for (ticket, _) in ready {
            let call = self.callers.calls.get(&ticket).map(|running| &running.call);
            match call {
                Some(Call::Sync { .. }) => self.send_sync(step, ticket, fid),
                _ => self.start(step, ticket),
            }
        }
    }

    /// The server's content of a file is stable. Something of it may have been lost meanwhile.
    pub(crate) fn on_synced(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) {
        let error = match self.callers.calls.get(&ticket) {
            // Nobody hears of its end, and of an error: the next fsync tells that.
            Some(running) if running.abandoned => None,
            Some(running) => match running.call {
                Call::Sync { handle, .. } => self.write_error(fid, handle),
                _ => self.write_error(fid, None),
            },
            None => self.write_error(fid, None),
        };
        self.finish(step, ticket, error.map_or(Done::Nothing, Done::Refused));
    }

    fn send_sync(&mut self, step: &mut Step<'_>, ticket: Ticket, fid: Fid) {
        let Some(running) = self.callers.calls.get(&ticket) else {
            return;
        };
        assert!(
            matches!(running.call, Call::Sync { .. }),
            "a sync waits for write-back here"
        );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_network_has_few_batches_on_their_way_and_a_fast_one_many() {
        let mut window = Window::default();
        for _ in 0..100 {
            window.answered(SLOW_BATCH_NS / 10);
        }
        assert_eq!(window.0, CLEANERS_MAX);
        for _ in 0..5 {
            window.answered(8 * SLOW_BATCH_NS);
        }
        assert_eq!(window.0, LEAST_CLEANERS);
        window.answered(SLOW_BATCH_NS / 10);
        assert_eq!(window.0, LEAST_CLEANERS + 1);
    }
}
