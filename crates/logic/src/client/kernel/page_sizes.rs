//! The kernel's use of sizes, and how that is kept from leaving zeros among its pages.
//!
//! Linux cuts its pages off at each size that it is told. If it is reading such a page it waits for
//! it first, so that bytes which are newer than the size are cut off as well. And the end that a
//! short answer to a read shows is ignored if the kernel was told something of the file since it
//! asked: it goes on believing in a longer file, and takes the zeros behind the answer for bytes.
//! Questions and answers cross, so neither can be prevented. Pages that may have been hit are
//! dropped again right behind the answer; the next read finds out. The same for a range that it
//! makes zeros: it does so behind the answer, also with pages that have come since the file was
//! changed, and have newer bytes.
//!
//! An answer about attributes that is older than bytes which the kernel got in the meantime would
//! cut these off too: such a question is asked again.

use crate::Ticket;
use crate::client::api::{Call, Done, How, Lifetime, Output};
use crate::client::data::read_write::young;
use crate::client::mutant::Mutant;
use crate::client::node::{Node, Phase, Range};
use crate::client::notices::Invalidate;
use crate::client::{After, Client, Running, Step};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{Attr, Epoch, Fid, Kind, Op, RequestId, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How long a question or an answer may be on its way between the kernel and the client.
const CROSSING_NS: Time = 500_000;

/// A read for the kernel's pages that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) range: Range,
    arrived: Time,
    /// The smallest size that the kernel may have taken in while it waits for these pages.
    least: u64,
    /// Bytes from here on may be cut off once they have come; `u64::MAX`: none.
    cut: u64,
    /// The kernel may make a part of these pages zeros once they have come.
    zeroed: bool,
}

/// The sizes that the kernel may believe a file to have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    /// It takes the file to be no longer than this.
    pub(super) most: u64,
    /// The smallest size that it was told of late; when it was last told one.
    least: u64,
    told: Time,
    /// The same of those that end within a page, which is cut off there: the smallest and the
    /// largest. (At an end between two pages whole ones go, and are read again.)
    partial: Option<Range>,
    /// When it was last given something that makes it ignore the ends of reads under way.
    moved: Time,
    /// Notifications that it has not been seen to take in.
    notices: u32,
    /// Those of them that drop pages; one that takes sizes back may wait for a call that asks for
    /// the size.
    pub(super) drops: u32,
    /// Where the bytes end that it got for its pages; the last request sent before that.
    pages: u64,
    paged: RequestId,
    /// It got some while the server was changing bytes for this machine.
    given_beside: bool,
    /// The range that it made zeros last, and when it was told to.
    zeroed: Option<(Range, Time)>,
    /// Bytes that it may have cut off in a page which it has, and is to drop.
    pub(super) spoilt: Option<Range>,
    /// From the first to the last page that it is dropping again.
    pub(super) again: Option<Range>,
}

impl Sizes {
    /// The kernel was told something of the file that is no size.
    pub(crate) fn moved(&mut self, now: Time) {
        self.moved = now;
    }

    /// A notification leaves.
    pub(crate) fn noticed(&mut self, now: Time, drops: bool) {
        self.moved = now;
        self.notices += 1;
        self.drops += u32::from(drops);
    }

    /// The kernel has taken a notification in.
    pub(crate) fn taken_in(&mut self, now: Time, drops: bool) {
        self.moved = now;
        self.notices = self.notices.saturating_sub(1);
        self.drops = self.drops.saturating_sub(u32::from(drops));
        self.trust_zeros();
    }

    /// The kernel has no pages from there on.
    pub(crate) fn dropped(&mut self, from: u64) {
        self.pages = self.pages.min(from);
    }

    /// Where the kernel may cut off pages of this range by what it was told of late.
    fn cuts(&self, (from, _): Range) -> u64 {
        match self.partial {
            Some((first, _)) if first > from => first,
            // There may be one between the two.
            Some((_, last)) if last > from => from,
            _ => u64::MAX,
        }
    }

    fn wrote(&mut self, now: Time, call: &Call) {
        if let Call::Write {
            offset, len, how, ..
        } = call
        {
            // The kernel puts what it appends at the end that it knows.
            let from = if *how == How::Append {
                self.most
            } else {
                *offset
            };
            self.most = self.most.max(from + u64::from(*len));
            self.moved = now;
        }
    }
}

impl Node {
    /// A read for the kernel's pages has come, or is begun again.
    pub(crate) fn reads_pages(&mut self, now: Time, ticket: Ticket, range: Range) {
        let recent = now < self.kernel.sizes.told + CROSSING_NS;
        let (least, cut) = if recent {
            (self.kernel.sizes.least, self.kernel.sizes.cuts(range))
        } else {
            (u64::MAX, u64::MAX)
        };
        let zeroed = self.kernel.sizes.zeroed;
        let zeroed =
            zeroed.is_some_and(|(zeros, at)| now < at + CROSSING_NS && overlap(zeros, range));
        self.kernel.reading.entry(ticket).or_insert(Reading {
            range,
            arrived: now,
            least,
            cut,
            zeroed,
        });
    }

    /// The kernel is told a size; `set`: it takes it over whatever it knows.
    fn told_size(&mut self, now: Time, size: u64, set: bool) {
        let sizes = &mut self.kernel.sizes;
        let recent = now < sizes.told + CROSSING_NS;
        sizes.least = if recent { sizes.least.min(size) } else { size };
        let partial = !size.is_multiple_of(BLOCK);
        let known = sizes.partial.filter(|_| recent);
        sizes.partial = match known {
            Some((first, last)) if partial => Some((first.min(size), last.max(size))),
            None if partial => Some((size, size)),
            known => known,
        };
        sizes.most = if set { size } else { sizes.most.max(size) };
        (sizes.told, sizes.moved) = (now, now);
        for reading in self.kernel.reading.values_mut() {
            reading.least = reading.least.min(size);
            if partial && size > reading.range.0 {
                reading.cut = reading.cut.min(size);
            }
        }
    }

    /// Would this size, told now, spoil a page that the kernel is reading? A smaller one cuts it
    /// off. A larger one makes the kernel take for bytes the zeros behind an answer that is as
    /// short as the file was, or behind the place where an older size cuts the page off.
    fn is_told_across(&self, size: u64) -> bool {
        let most = self.kernel.sizes.most;
        let spoils = |reading: &Reading| {
            let (_, to) = reading.range;
            size < to || (size > most && (to > most || reading.least < to))
        };
        self.kernel.reading.values().any(spoils)
    }

    /// The kernel is given bytes for its pages, up to `end`: the range that must be dropped again.
    pub(crate) fn gave_pages(
        &mut self,
        now: Time,
        reading: Reading,
        (end, last): (u64, RequestId),
    ) -> Option<Range> {
        let Reading {
            range: (from, to),
            arrived,
            cut,
            zeroed,
            ..
        } = reading;
        let beside = self.pending.remote_writes > 0;
        let sizes = &mut self.kernel.sizes;
        sizes.given_beside |= beside;
        if end > from {
            sizes.pages = sizes.pages.max(end);
        }
        sizes.paged = last;
        let cut = (cut < end).then_some(cut);
        if let Some(cut) = cut {
            sizes.doubt_zeros((cut, cut.next_multiple_of(BLOCK).min(end)));
        }
        let crossed = sizes.notices > 0 || sizes.moved + CROSSING_NS > arrived;
        let ignored = end < to && crossed && sizes.most > end;
        if end < to && !crossed {
            sizes.most = sizes.most.min(end);
        }
        let spoilt = cut.into_iter().chain(ignored.then_some(end));
        let first = spoilt.chain(zeroed.then_some(from)).min()?;
        assert!(arrived <= now, "a read is answered before it came");
        Some((from.max(first / BLOCK * BLOCK), to))
    }

    /// Would the kernel cut off, or make zeros, some of the bytes up to `end` if it got them now,
    /// by what it was told a moment ago?
    pub(crate) fn may_cut(&self, now: Time, end: u64) -> bool {
        let sizes = &self.kernel.sizes;
        let told = now < sizes.told + CROSSING_NS && sizes.least < end;
        told || sizes.zeroed.is_some_and(|(_, at)| now < at + CROSSING_NS)
    }

    /// The kernel is given all bytes of the file unasked, and takes it for as long as they reach.
    pub(crate) fn gave_all(&mut self, now: Time, (end, last): (u64, RequestId)) {
        let sizes = &mut self.kernel.sizes;
        (sizes.pages, sizes.paged) = (sizes.pages.max(end), last);
        sizes.most = sizes.most.max(end);
        sizes.moved(now);
    }
}

/// Have two ranges a page in common?
fn overlap(one: Range, other: Range) -> bool {
    one.0 / BLOCK * BLOCK < other.1 && other.0 < one.1.next_multiple_of(BLOCK)
}

impl Node {
    /// The kernel makes a range zeros: pages that it is reading too, once they have come. Has it
    /// been given others since the file was changed?
    pub(crate) fn zeroes(&mut self, now: Time, zeros: Range) -> bool {
        self.kernel.sizes.zeroed = Some((zeros, now));
        for reading in self.kernel.reading.values_mut() {
            reading.zeroed |= overlap(zeros, reading.range);
        }
        self.kernel.sizes.given_beside
    }

    /// No change is under way beside which the kernel was given pages.
    pub(crate) fn pages_beside_are_known(&mut self) {
        self.kernel.sizes.given_beside = false;
    }
}

impl Client {
    /// A call is answered: notes what that tells the kernel of sizes.
    pub(crate) fn note_told(&mut self, now: Time, running: &Running, done: &Done) {
        let call = &running.call;
        match (call, done) {
            (Call::Op(Op::SetAttr { fid, .. }), Done::Attr { attr, .. }) => {
                self.tell(now, (*fid, attr), true);
                self.note_set(*fid, attr);
            }
            (Call::Op(Op::GetAttr { fid }) | Call::Seek { fid }, Done::Attr { attr, lifetime }) => {
                self.tell(now, (*fid, attr), false);
                self.note_attr_reply(now, running, (*fid, attr), *lifetime);
            }
            (
                _,
                Done::Entry {
                    fid,
                    attr,
                    attr_lifetime,
                    ..
                },
            ) => {
                self.tell(now, (*fid, attr), false);
                self.note_attr_reply(now, running, (*fid, attr), *attr_lifetime);
            }
            (_, Done::Listing { entries, .. }) => {
                for entry in entries {
                    if let Some((attr, lifetime)) = &entry.known {
                        self.tell(now, (entry.fid, attr), false);
                        self.note_attr_reply(now, running, (entry.fid, attr), *lifetime);
                    }
                }
            }
            (Call::Op(op), Done::Written { .. } | Done::Nothing) => {
                self.note_edited(now, op, done);
            }
            (Call::Write { fid, .. }, Done::Written { .. }) => {
                if let Some(node) = self.nodes.get_mut(fid) {
                    node.kernel.sizes.wrote(now, call);
                    node.kernel.attr.wrote(call);
                }
            }
            _ => {}
        }
    }

    /// The kernel takes a file for as long as such a change reaches.
    fn note_edited(&mut self, now: Time, op: &Op, done: &Done) {
        let reaches = match (op, done) {
            (
                Op::Allocate {
                    keep_size: true, ..
                },
                _,
            ) => Some(0),
            (Op::Allocate { offset, len, .. }, _) => Some(offset + len),
            (Op::Copy { offset, .. }, Done::Written { len }) => Some(offset + u64::from(*len)),
            _ => None,
        };
        let node = op.edits().and_then(|fid| self.nodes.get_mut(&fid));
        if let (Some(node), Some(end)) = (node, reaches) {
            node.kernel.sizes.most = node.kernel.sizes.most.max(end);
            node.kernel.sizes.moved(now);
            node.kernel.attr.reaches(end);
        }
    }

    fn tell(&mut self, now: Time, (fid, attr): (Fid, &Attr), set: bool) {
        if attr.kind == Kind::File
            && let Some(node) = self.nodes.get_mut(&fid)
        {
            node.told_size(now, attr.size, set);
        }
    }

    /// The attributes of an answer, which nothing vouches for, might be older than what has been
    /// told to the server since: that nothing of the object is here any more. Or they might cut off
    /// bytes that are newer: of a read under way, or of one that was answered since they were asked
    /// for. Then the question is asked again, behind that. Not if the server says that it knew what
    /// it had been told: where changes follow each other, something is told during each question.
    pub(crate) fn asked_again(
        &mut self,
        step: &mut Step<'_>,
        (ticket, id): (Ticket, RequestId),
        (fid, said): (Fid, &Attr),
    ) -> bool {
        let (attr, lifetime) = self.to_say(fid, said.clone());
        let (boot, heard) = (self.session.boot, self.heard);
        let Some(node) = self.nodes.get_mut(&fid) else {
            return false;
        };
        if attr.kind != Kind::File || lifetime == Lifetime::Forever || node.tellable().is_some() {
            return false;
        }
        let seeks = matches!(
            self.callers.calls.get(&ticket).map(|running| &running.call),
            Some(Call::Seek { .. })
        );
        if let Some(drain) = &node.drain
            && !matches!(drain.phase, Phase::Settling(..))
            && (!seeks || !drain.loose || drain.locked || drain.phase == Phase::Flushing)
        {
            // The kernel is dropping what it was told. (Who seeks has the lock that is waited for.)
            node.parked.push(ticket);
            return true;
        }
        let recalled = id <= node.marks.recalled && !had_heard(node, boot, heard);
        if !recalled && node.is_told_across(attr.size) {
            node.behind.push(ticket);
            return true;
        }
        let outrun = node.kernel.pages
            && id <= node.kernel.sizes.paged
            && attr.size < node.kernel.sizes.pages;
        if recalled || outrun {
            self.start(step, ticket);
        }
        recalled || outrun
    }

    /// The kernel is dropping pages of this one. Would it be told a size that has grown now, by
    /// which a read then goes, it would show zeros behind the older end: the question waits.
    pub(crate) fn waits_for_drop(&mut self, fid: Fid, ticket: Ticket) -> bool {
        let Some(node) = self.nodes.get_mut(&fid) else {
            return false;
        };
        let loose = node.drain.as_ref().is_some_and(|drain| drain.loose);
        let waits = node.kernel.sizes.drops > 0 && !loose;
        if waits {
            node.behind.push(ticket);
        }
        waits
    }

    /// The kernel has taken a notification in.
    pub(crate) fn ask_after_drop(&mut self, step: &mut Step<'_>, fid: Fid) {
        if self
            .nodes
            .get(&fid)
            .is_some_and(|node| node.kernel.sizes.drops == 0)
        {
            self.ask_behind(step, fid);
        }
    }

    /// A read for the kernel's pages is not under way any more.
    pub(crate) fn ask_behind(&mut self, step: &mut Step<'_>, fid: Fid) {
        let behind = self
            .nodes
            .get_mut(&fid)
            .map(|node| core::mem::take(&mut node.behind));
        for ticket in behind.into_iter().flatten() {
            self.start(step, ticket);
        }
    }

    /// Answers a change of the size, and has the kernel drop its pages behind it: it does not look
    /// at them if it believed in that size before, however long the file was. Not before the
    /// answer: till then it holds write-back, which such a page may need. So nothing that makes the
    /// file longer is done until they are gone, but for another change of the size: behind that the
    /// kernel drops them itself.
    pub(crate) fn answer_resize(
        &mut self,
        step: &mut Step<'_>,
        (ticket, fid): (Ticket, Fid),
        size: u64,
        done: Done,
    ) {
        let (now, last) = (step.now, self.asked.last_request);
        let node = self.node(fid);
        node.marks.resized = last;
        let behind = (size / BLOCK * BLOCK, u64::MAX);
        let ranges = node.without_reads(&[behind], &alloc::collections::BTreeSet::new());
        if !node.kernel.pages || ranges.is_empty() {
            return self.finish(step, ticket, done);
        }
        node.kernel.sizes.dropped(size);
        node.pending.cutting += 1;
        let young = young(node.kernel.told_at(), now);
        let what = Invalidate::Inode { fid, ranges, young };
        if self.options.mutant == Some(Mutant::CutsBeforeTheAnswer) {
            self.node(fid).pending.cutting -= 1;
            self.invalidate(step, what, After::Answer(ticket, done));
            return;
        }
        self.finish(step, ticket, done);
        self.invalidate(step, what, After::Cut(fid));
    }

    /// The kernel has no pages any more behind an end that a call has set.
    pub(crate) fn on_cut(&mut self, step: &mut Step<'_>, fid: Fid) {
        if let Some(node) = self.nodes.get_mut(&fid) {
            node.pending.cutting = node.pending.cutting.saturating_sub(1);
            self.unpark(step, fid);
            self.retire(step, fid);
        }
    }

    /// Drops what lies behind a new end, and makes the rest of its last block zeros.
    pub(crate) fn cut(&mut self, step: &mut Step<'_>, fid: Fid, size: u64) {
        let block_bytes = u64::from(BLOCK_BYTES);
        let gone: Vec<u64> = self
            .cache
            .blocks(fid, size.div_ceil(block_bytes))
            .map(|(block, _, _)| block)
            .collect();
        for block in gone {
            self.cache.drop_block(fid, block);
        }
        let at = (size % block_bytes) as u32;
        if at == 0 {
            return;
        }
        if let Some((slot, state)) = self.cache.find(fid, size / block_bytes)
            && !state.is_filling()
        {
            step.out.push(Output::Zero {
                slot,
                at,
                len: BLOCK_BYTES - at,
            });
        }
    }
}

/// Did the server know of what was given back here when it found this out? (It says nothing of what
/// another run of it had asked for.)
fn had_heard(node: &Node, boot: Epoch, heard: Epoch) -> bool {
    heard >= node.token.void && node.token.void > boot
}
