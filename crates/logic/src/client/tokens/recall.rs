//! Recalls: tokens and names that the server asks back.
//!
//! A file's token is given back in steps. From the recall on, calls that could change what is open
//! or cached wait (they hold no lock of the kernel that the dropping of pages needs); reads for the
//! kernel's pages wait too, and the ranges of all unanswered ones are left out of what the kernel
//! is told to drop, since it holds those pages locked. If the kernel still does not finish, a read
//! may have locked a page after that: such reads are answered, and their ranges dropped once more.
//! Then dirty blocks are written back, then the answer leaves, then everybody goes on.

use crate::Ticket;
use crate::client::data::read_write::young;
use crate::client::kernel::uncovered_sizes::UNCOVERED_LOCK_WAIT_NS;
use crate::client::mutant::Mutant;
use crate::client::node::{Drain, Phase, Range};
use crate::client::notices::Invalidate;
use crate::client::session::asked::Why;
use crate::client::{After, Client, Step};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Attr, Epoch, Fid, Hold, Op, Recall, Returned, Right, Time, ToServer, What};

const WHOLE: Range = (0, u64::MAX);
/// How long an answer about attributes may take to be taken in by the kernel.
const SETTLE_NS: Time = 200_000;
/// How long a drain waits for that at most.
const SETTLE_MAX_NS: Time = 5_000_000;
/// How long the kernel may take to drop pages before waiting reads are freed.
pub(crate) const BLOCKED_READS_WAIT_NS: Time = 1_000_000;

impl Client {
    pub(crate) fn on_recall(&mut self, step: &mut Step<'_>, recall: Recall) {
        let Recall { fid, epoch, what } = recall;
        self.counts.recalls += 1;
        if what == What::Locks {
            return self.on_locks_recalled(step, fid, epoch);
        }
        if fid.is_room() && self.nodes.contains_key(&fid) {
            return self.on_room_recalled(step, fid, epoch);
        }
        let Some(node) = self.nodes.get_mut(&fid) else {
            self.forgotten.floor = self.forgotten.floor.max(epoch);
            self.forgotten.recalled = self.asked.last_request;
            return self.answer_unknown(step, fid, epoch);
        };
        node.token.void = node.token.void.max(epoch);
        node.untold.private = false;
        if !matches!(what, What::Attr | What::Listed) {
            self.bar_walks(step.now, fid);
        }
        match what {
            What::Names(names) => self.drop_names(step, fid, epoch, names),
            What::Attr => self.tell_attr(step, fid, epoch),
            What::Listed => self.is_listed(step, fid, epoch),
            What::Unused => self.on_unused(step, fid, epoch),
            What::Keep(keep) => self.give_back(step, fid, epoch, keep),
            What::Locks => {}
        }
    }

    pub(crate) fn answer_unknown(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch) {
        let stamp = self.stamp();
        let making = |sent: &crate::client::Sent| sent.request.op.makes_open();
        let made: Vec<wire::Access> = self.asked.requests.values().filter_map(making).collect();
        if !made.is_empty() {
            self.asked.guessed.insert(fid);
        }
        let hold = Hold {
            open: !made.is_empty(),
            write: made.iter().any(|access| access.write),
            stamp,
        };
        let returned = Returned {
            fid,
            epoch,
            right: Right::None,
            upto: epoch,
            hold,
            attr: None,
        };
        self.say(step, ToServer::Returned(returned));
    }

    /// No file is being made and opened any more: guesses about such files are put right.
    pub(crate) fn settle_guesses(&mut self, step: &mut Step<'_>) {
        let making = |sent: &crate::client::Sent| sent.request.op.makes_open().is_some();
        if self.asked.guessed.is_empty() || self.asked.requests.values().any(making) {
            return;
        }
        for fid in core::mem::take(&mut self.asked.guessed) {
            self.say_opens(step, fid);
        }
    }

    pub(crate) fn answer_recall(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        epoch: Epoch,
        attr: Option<Attr>,
    ) {
        let stamp = self.stamp();
        let right = self.node(fid).token.right;
        self.say_returned(step, (fid, epoch), stamp, (right, attr));
    }

    /// Answers a recall by what was so at this stamp.
    pub(crate) fn say_returned(
        &mut self,
        step: &mut Step<'_>,
        (fid, epoch): (Fid, Epoch),
        stamp: u64,
        (right, attr): (Right, Option<Attr>),
    ) {
        let notes_loss = self.options.mutant != Some(Mutant::KeepsOvertakenBlocks);
        let node = self.node(fid);
        let (upto, hold) = (node.token.seen.max(epoch), node.hold(stamp));
        // A grant up to there that is still on its way must not be used after this has been said.
        node.token.void = node.token.void.max(upto + 1);
        if right < Right::Shared && notes_loss {
            node.token.unshared = node.token.void;
        }
        let returned = Returned {
            fid,
            epoch,
            right,
            upto,
            hold,
            attr,
        };
        self.say(step, ToServer::Returned(returned));
    }

    /// The holder's attributes; it steps down if nothing needs the Exclusive token any more.
    pub(crate) fn tell_attr(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch) {
        let clean = !self
            .cache
            .blocks(fid, 0)
            .any(|(_, _, state)| crate::client::is_dirty(state));
        let owes = self.owes(fid);
        let node = self.node(fid);
        let own = node.own().cloned();
        if let Some(drain) = node.drain.as_mut() {
            let dropping = matches!(drain.phase, Phase::Dropping(..)) && !owes;
            if let Some(attr) = own.filter(|_| dropping) {
                // A page may be locked by a read that waits for a change whose maker asks this.
                return self.answer_recall(step, fid, epoch, Some(attr));
            }
            drain.epoch = drain.epoch.max(epoch);
            return;
        }
        if owes {
            let node = self.node(fid);
            node.tell = node.tell.max(Some(epoch));
            return self.ship(step);
        }
        let node = self.node(fid);
        let unused =
            !node.hold(0).write && node.pending.resizing == 0 && node.pending.remote_writes == 0;
        if node.token.right == Right::Exclusive && clean && unused {
            node.token.right = Right::Shared;
        }
        let attr = node.own().cloned();
        if node.token.right == Right::Exclusive && attr.is_none() {
            // Own changes are on their way: the server knows better once they have arrived. (Some
            // may have arrived already, and only their answers been lost with the connection.)
            return self.give_back(step, fid, epoch, Right::None);
        }
        self.answer_recall(step, fid, epoch, attr);
    }

    fn give_back(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch, keep: Right) {
        let (last, loose) = (self.asked.last_request, self.has_uncovered(step.now, fid));
        let node = self.node(fid);
        let epoch = epoch.max(node.tell.take().unwrap_or(0));
        // Open for writing here and wanted elsewhere: the file is write-shared from now on.
        let keep = if node.hold(0).write {
            Right::None
        } else {
            keep
        };
        if let Some(drain) = node.drain.as_mut() {
            drain.epoch = drain.epoch.max(epoch);
            if keep < drain.keep {
                drain.keep = keep;
                self.drop_pages(step, fid, vec![WHOLE]);
            }
            return;
        }
        // Answers that the kernel was given without a right are taken back too, as long as they may
        // be on their way there.
        let loose = keep == Right::None && loose;
        if node.token.right <= keep && !loose {
            if keep == Right::None {
                node.marks.recalled = last;
            }
            return self.answer_kept(step, (fid, epoch), keep);
        }
        let most = match node.token.right {
            Right::None => UNCOVERED_LOCK_WAIT_NS,
            _ => SETTLE_MAX_NS,
        };
        let until = step.now + most;
        let phase = Phase::Settling(until, None);
        node.drain = Some(Drain {
            epoch,
            keep,
            until,
            loose: node.token.right == Right::None,
            locked: false,
            phase,
            again: Vec::new(),
            freed: BTreeSet::new(),
        });
        self.draining.insert(fid);
        self.go_on_draining(step, fid);
    }

    /// Not more is held than may be kept. Names that the kernel has in hand are not known here, and
    /// an answer that tells of one may be on its way: if they may be kept, they are.
    fn answer_kept(&mut self, step: &mut Step<'_>, (fid, epoch): (Fid, Epoch), keep: Right) {
        let stamp = self.stamp();
        let right = self.node(fid).token.right;
        let said = if keep == Right::Transient {
            keep
        } else {
            right
        };
        self.say_returned(step, (fid, epoch), stamp, (said, None));
    }

    /// The next step of a drain, if it can be made.
    pub(crate) fn go_on_draining(&mut self, step: &mut Step<'_>, fid: Fid) {
        let skip = match self.options.mutant {
            Some(Mutant::ReturnsBeforeInvalidating) => 1,
            Some(Mutant::ReturnsBeforeWritingBack) => 2,
            _ => 0,
        };
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let Some(drain) = node.drain.as_ref() else {
            return;
        };
        match drain.phase {
            Phase::Settling(until, turn) => {
                if drain.loose {
                    return self.drop_loose(step, fid);
                }
                if step.now < until && self.is_sought(step, fid, turn) {
                    return;
                }
                let Some(node) = self.nodes.get(&fid) else {
                    return;
                };
                if step.now < settled(node, until) {
                    return;
                }
                let Some(drain) = node.drain.as_ref() else {
                    return;
                };
                if drain.keep < Right::Shared && skip != 1 {
                    return self.drop_pages(step, fid, vec![WHOLE]);
                }
                self.write_back_all(step, fid);
            }
            Phase::Dropping(..) => {}
            Phase::Flushing => {
                let (sending, stranded) = (node.writeback.sending, node.stranded);
                // Nobody waits for stranded blocks: others may have to let them be set aside.
                let dirty = !stranded
                    && self
                        .cache
                        .blocks(fid, 0)
                        .any(|(_, _, s)| crate::client::is_dirty(s));
                let told = node.untold.delegated == 0 || !self.owes(fid);
                if skip != 2 && (dirty || sending || !told) {
                    return;
                }
                match self.given_since(fid) {
                    Some(ranges) => self.drop_pages(step, fid, ranges),
                    None => self.end_drain(step, fid),
                }
            }
        }
    }

    /// The ranges that freed reads were given when the kernel had dropped pages already.
    fn given_since(&mut self, fid: Fid) -> Option<Vec<Range>> {
        let drain = self.node(fid).drain.as_mut()?;
        let ranges = core::mem::take(&mut drain.again);
        (drain.keep < Right::Shared && !ranges.is_empty()).then_some(ranges)
    }

    /// All that the kernel keeps of an object, for it to drop.
    pub(crate) fn whole(&self, fid: Fid, now: Time) -> Invalidate {
        let Some(node) = self.nodes.get(&fid) else {
            return Invalidate::Listing { dir: fid };
        };
        if node.directory || Some(fid) == self.root {
            return Invalidate::Names { dir: fid };
        }
        let freed = node
            .drain
            .as_ref()
            .map(|drain| drain.freed.clone())
            .unwrap_or_default();
        let ranges = node.without_reads(&[WHOLE], &freed);
        Invalidate::Inode {
            fid,
            ranges,
            young: young(node.kernel.told_at(), now),
        }
    }

    pub(crate) fn drop_pages(&mut self, step: &mut Step<'_>, fid: Fid, ranges: Vec<Range>) {
        let now = step.now;
        let mut what = self.whole_or_expired(fid, now);
        let withheld = self.withholds_pages(fid);
        let node = self.node(fid);
        if let (Invalidate::Inode { ranges: told, .. }, Some(drain)) = (&mut what, &node.drain) {
            *told = node.without_reads(&ranges, &drain.freed);
            if withheld && !node.kernel.has_pages() {
                // It has none, and those that it is asking for are claimed first: perhaps by a
                // client that another machine's claim waits for.
                told.clear();
            }
        }
        let id = self.invalidate(step, what, After::Drain(fid));
        if let Some(drain) = self.node(fid).drain.as_mut() {
            drain.phase = Phase::Dropping(id, now + BLOCKED_READS_WAIT_NS);
            self.draining.insert(fid);
        }
    }

    pub(crate) fn on_pages_dropped(&mut self, step: &mut Step<'_>, fid: Fid, id: u64) {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return;
        };
        let Some(drain) = node.drain.as_mut() else {
            return;
        };
        if !matches!(drain.phase, Phase::Dropping(current, _) if current == id) {
            return; // overtaken by a wider one
        }
        let again = core::mem::take(&mut drain.again);
        if !again.is_empty() {
            return self.drop_pages(step, fid, again);
        }
        self.write_back_all(step, fid);
    }

    fn write_back_all(&mut self, step: &mut Step<'_>, fid: Fid) {
        if let Some(drain) = self.node(fid).drain.as_mut() {
            drain.phase = Phase::Flushing;
        }
        // From now on it waits for messages only. There may be thousands of these.
        self.draining.remove(&fid);
        if self.owes(fid) {
            self.ship(step);
        }
        self.flush(step, fid);
        self.go_on_draining(step, fid);
    }

    /// Nothing that is known of it is right for longer.
    pub(crate) fn void(&mut self, fid: Fid) {
        let last = self.asked.last_request;
        let node = self.node(fid);
        node.attr = None;
        node.marks.recalled = last;
        node.kernel.is_void();
        node.dir.names.clear();
        node.not_whole();
        node.renew_listing();
    }

    fn end_drain(&mut self, step: &mut Step<'_>, fid: Fid) {
        self.draining.remove(&fid);
        let node = self.node(fid);
        let Some(drain) = node.drain.take() else {
            return;
        };
        node.token.right = node.token.right.min(drain.keep);
        if drain.keep < Right::Shared {
            self.void(fid);
        }
        self.answer_recall(step, fid, drain.epoch, None);
        self.unpark(step, fid);
        self.bury_if_unused(step, fid);
        self.retire(step, fid);
    }

    /// Drains that wait for a moment.
    pub(crate) fn tick_drains(&mut self, step: &mut Step<'_>) {
        for fid in self.draining.clone() {
            let Some(node) = self.nodes.get_mut(&fid) else {
                continue;
            };
            let Some(drain) = node.drain.as_mut() else {
                continue;
            };
            match drain.phase {
                Phase::Dropping(id, due) if step.now >= due => {
                    drain.phase = Phase::Dropping(id, step.now + BLOCKED_READS_WAIT_NS);
                    self.free_reads(step, fid);
                    self.wait_no_more(step, fid);
                }
                _ => self.go_on_draining(step, fid),
            }
        }
    }

    /// The kernel may be waiting for a page that such a read holds locked: it waits for no other
    /// client, which may itself wait for the answer to this recall.
    fn free_reads(&mut self, step: &mut Step<'_>, fid: Fid) {
        let claiming = self.frees_claiming(fid);
        let node = self.node(fid);
        let (mut reads, others): (Vec<_>, Vec<_>) = core::mem::take(&mut node.parked)
            .into_iter()
            .partition(|ticket| node.kernel.reads(*ticket));
        node.parked = others;
        reads.extend(claiming);
        if let Some(drain) = node.drain.as_mut() {
            drain.freed.extend(node.kernel.all_reads());
        }
        self.borrow_no_more(step, fid);
        for ticket in reads {
            self.start(step, ticket);
        }
    }

    /// Reads for pages that have asked for the file's token, and can do without: programs may store
    /// into no page of it any more, or the kernel has some that are being dropped.
    fn frees_claiming(&self, fid: Fid) -> Vec<Ticket> {
        let Some(node) = self
            .nodes
            .get(&fid)
            .filter(|node| node.pending.claiming > 0)
        else {
            return Vec::new();
        };
        let Some(drain) = node.drain.as_ref() else {
            return Vec::new();
        };
        if self.withholds_pages(fid) && !node.kernel.has_pages() {
            return Vec::new();
        }
        let claims = self
            .asked
            .requests
            .values()
            .filter_map(|sent| match sent.why {
                Why::Call(ticket) if sent.request.op == (Op::Claim { fid }) => Some(ticket),
                _ => None,
            });
        let held_up = |ticket: &Ticket| node.kernel.reads(*ticket) && !drain.freed.contains(ticket);
        claims.filter(held_up).collect()
    }

    pub(crate) fn drains_due(&self) -> Option<Time> {
        let due = |fid: &Fid| {
            let node = self.nodes.get(fid)?;
            match node.drain.as_ref()?.phase {
                Phase::Settling(until, Some(_)) => Some(until),
                Phase::Settling(until, None) => Some(settled(node, until)),
                Phase::Dropping(_, due) => Some(due),
                Phase::Flushing => None,
            }
        };
        self.draining.iter().filter_map(due).min()
    }
}

/// When the kernel has taken in the answers about attributes that it was given, as far as can be
/// known: a read that asked for the end of the file must not find its answer thrown away.
fn settled(node: &crate::client::node::Node, until: Time) -> Time {
    let asked = if node.pending.asking > 0 {
        until
    } else {
        until.min(node.kernel.attr_told_at() + SETTLE_NS)
    };
    asked.max(until.min(node.stores_until()))
}
