//! The reader's side: blocks that a lender is asked for, and what is used of what it brings.

use super::super::data::cache::BlockState;
use super::super::data::runs::runs;
use super::super::node::FillStart;
use super::super::session::asked::Why;
use super::super::{Client, Step};
use super::{Output, PeerOutput};
use alloc::vec::Vec;
use wire::limits::BLOCK_BYTES;
use wire::{
    Caller, Capability, Elsewhere, Epoch, Fid, LenderId, Lenders, Op, Outcome, Right, Time,
};

/// For so long a lender may say nothing...
const SILENT_NS: Time = 500_000_000;
/// ...and for so long it may take, saying now and then that the blocks are on their way to it.
const SOON_NS: Time = 3_000_000_000;
/// So many answers of others are waited for at most.
const BORROWING: usize = 256;

/// Blocks that a lender is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Borrowing {
    fid: Fid,
    first: u64,
    count: u32,
    /// Its fill, and the file's own changes of bytes when the server was asked; the version tells
    /// of others.
    since: FillStart,
    /// So many bytes of them are in the file.
    bytes: u32,
    version: u64,
    lender: LenderId,
    caller: Caller,
    /// Until when the server lets it be asked for: the later it was sent there, the later.
    sent: Time,
    pub(crate) until: Time,
    /// The lender has said that it will answer: so long it is waited for at most.
    soon: Option<Time>,
}

impl Borrowing {
    /// Is it about some of these blocks, and was its reader sent no earlier than theirs?
    pub(super) fn is_later(&self, of: &Capability) -> bool {
        let begins = self.first < of.first + u64::from(of.count);
        let ends = of.first < self.first + u64::from(self.count);
        self.fid == of.fid && begins && ends && self.sent >= of.until
    }
}

impl Client {
    /// The answer to a request for missing blocks.
    pub(in crate::client) fn on_fill_reply(
        &mut self,
        step: &mut Step<'_>,
        (blocks, (since, granted)): ((Fid, u64, u32), (FillStart, Option<Epoch>)),
        caller: Caller,
        (outcome, bulk_len): (Outcome, u32),
    ) {
        let bytes = match outcome {
            Outcome::Elsewhere(elsewhere) => {
                return self.borrow(step, blocks, (since, caller), elsewhere);
            }
            Outcome::Read { len, .. } => Some(len.min(bulk_len)),
            Outcome::Refused(refusal) => {
                self.fail_reads(step, blocks.0, refusal);
                None
            }
            _ => None,
        };
        self.on_filled(step, blocks, (since, granted), bytes);
    }

    /// The server has said who lends the blocks that it was asked for.
    fn borrow(
        &mut self,
        step: &mut Step<'_>,
        (fid, first, count): (Fid, u64, u32),
        (since, caller): (FillStart, Caller),
        elsewhere: Elsewhere,
    ) {
        let named = &elsewhere.capability;
        let fits = (named.fid, named.first) == (fid, first) && named.count <= count;
        let borrowing = Borrowing {
            fid,
            first,
            count,
            since,
            bytes: elsewhere.len,
            version: named.version,
            lender: elsewhere.lender,
            caller,
            sent: named.until,
            until: step.now + SILENT_NS,
            soon: None,
        };
        self.lending.last += 1;
        let id = self.lending.last;
        let room = self.lending.borrowing.len() < BORROWING;
        self.lending.borrowing.insert(id, borrowing);
        self.lend_before_borrowing(step);
        if fits && room {
            let borrow = PeerOutput::Borrow { id, elsewhere };
            return step.out.push(Output::Peer(borrow));
        }
        self.on_borrowed(step, id, &[], false);
    }

    pub(in crate::client) fn on_borrowed(
        &mut self,
        step: &mut Step<'_>,
        id: u64,
        have: &[u16],
        failing: bool,
    ) {
        if self.on_taken(step, id, have) {
            return;
        }
        let Some(borrowing) = self.lending.borrowing.remove(&id) else {
            return; // too late
        };
        let Borrowing {
            fid,
            first,
            count,
            lender,
            ..
        } = borrowing;
        let valid = self.is_usable(&borrowing);
        let inside = borrowing.bytes.div_ceil(BLOCK_BYTES);
        let mut missing = Vec::new();
        for at in 0..count {
            let Some(slot) = self
                .cache
                .awaits(fid, first + u64::from(at), borrowing.since.fill)
            else {
                continue;
            };
            let len = BLOCK_BYTES;
            let brought = match have.binary_search(&(at as u16)) {
                _ if !valid => None,
                _ if at >= inside => Some(Output::Zero { slot, at: 0, len }),
                Ok(place) => {
                    let from = place as u32 * len;
                    self.lending.counts.borrowed += 1;
                    Some(Output::Fill { slot, from, len })
                }
                Err(_) => None,
            };
            match brought {
                Some(output) => {
                    step.out.push(output);
                    self.cache.set(slot, BlockState::Clean);
                    self.cache.set_copied(slot);
                }
                None => missing.push(first + u64::from(at)),
            }
        }
        let instead = match (failing, valid && !missing.is_empty()) {
            (true, _) => Lenders::Failing(lender),
            (false, true) => Lenders::Lacking(lender),
            (false, false) => Lenders::None,
        };
        self.lending.counts.failing += u64::from(failing);
        if instead == Lenders::Lacking(lender) {
            self.lending.counts.lacking += missing.len() as u64;
        }
        self.fetch_instead(
            step,
            (fid, missing),
            (borrowing.caller, borrowing.since.fill, instead),
        );
        self.unpark(step, fid);
        self.feed_starved(step);
        self.lend_arrived(step, fid);
    }

    /// Could the server's own bytes of that version be used if they came now?
    fn is_usable(&self, borrowing: &Borrowing) -> bool {
        self.nodes.get(&borrowing.fid).is_some_and(|node| {
            node.edits == borrowing.since.edits
                && node.token.right >= Right::Shared
                && node.version == borrowing.version
        })
    }

    /// Has the server send what no lender has brought.
    fn fetch_instead(
        &mut self,
        step: &mut Step<'_>,
        (fid, missing): (Fid, Vec<u64>),
        (caller, fill, instead): (Caller, u64, Lenders),
    ) {
        if !self.nodes.contains_key(&fid) {
            let drop = |block: u64| self.cache.drop_block(fid, block);
            return missing.into_iter().for_each(drop);
        }
        let (since, hold) = (self.node(fid).fill_start(fill), self.node(fid).hold(0));
        for (first, count) in runs(missing) {
            let offset = first * u64::from(BLOCK_BYTES);
            let len = count as u32 * BLOCK_BYTES;
            let op = Op::Read { fid, offset, len };
            let count = count as u32;
            let why = Why::Fill {
                fid,
                first,
                count,
                since,
            };
            self.lending.instead = Some(instead);
            self.request(step, (op, caller.clone(), hold), Vec::new(), why);
        }
    }

    /// The session is lost: borrowed blocks are asked for anew, by the calls that want them.
    pub(in crate::client) fn forget_borrowing(&mut self) {
        self.stop_sharing();
        for (_, borrowing) in core::mem::take(&mut self.lending.borrowing) {
            self.cache.drop_filling(borrowing.fid);
        }
    }

    /// A lender says that it will answer.
    pub(crate) fn on_soon(&mut self, now: Time, id: u64) {
        if let Some(borrowing) = self.lending.borrowing.get_mut(&id) {
            let most = *borrowing.soon.get_or_insert(now + SOON_NS);
            borrowing.until = most.min(now + SILENT_NS);
        }
    }

    /// A recall of this file waits for blocks of it: lenders are given up, since they may wait for
    /// the answer to that recall themselves.
    pub(crate) fn borrow_no_more(&mut self, step: &mut Step<'_>, fid: Fid) {
        let of_file = |(id, one): (&u64, &Borrowing)| (one.fid == fid).then_some(*id);
        let waited: Vec<u64> = self.lending.borrowing.iter().filter_map(of_file).collect();
        for id in waited {
            step.out.push(Output::Peer(PeerOutput::GiveUp { id }));
            self.on_borrowed(step, id, &[], false);
        }
    }

    /// Lenders that have not answered in time are given up. One that was there, and has stopped
    /// saying that it will answer, has lost the question or ended: it lacks the blocks.
    pub(crate) fn tick_borrowing(&mut self, step: &mut Step<'_>) {
        let late = |(id, one): (&u64, &Borrowing)| {
            let slow = one.soon.is_none_or(|most| most <= step.now);
            (one.until <= step.now).then_some((*id, slow))
        };
        let late: Vec<(u64, bool)> = self.lending.borrowing.iter().filter_map(late).collect();
        for (id, slow) in late {
            step.out.push(Output::Peer(PeerOutput::GiveUp { id }));
            self.on_borrowed(step, id, &[], slow);
        }
    }
}
