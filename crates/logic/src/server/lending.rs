//! Which clients lend which blocks: hints, and the answers that name a lender.
//!
//! A client that has fetched blocks is noted with the digests of what it was sent; a later reader
//! of the same version is sent there, with these digests and a capability. A hint may be wrong: the
//! lender has given the block up, or has gone. Then the reader asks here once more, says so, and
//! gets the bytes. A block is named by (fid, block, version), so a change of the file makes all
//! hints of it worthless by itself, and no message is owed to anybody for that.
//!
//! Guarantees: nothing is noted, reckoned or sent while nobody lends. Memory is bounded: the oldest
//! hints go. Nobody is named who is not connected, has not said that he lends, or has failed
//! somebody just now.

mod failures;
mod keeping;
mod rereads;

use super::api::{Bulk, Conn};
use super::{Server, Step};
use crate::peers::Policy;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use failures::Failures;
use rereads::Rereads;
use wire::limits::BLOCK_BYTES;
use wire::{
    Capability, Digest, Elsewhere, Fid, LenderId, Lenders, Op, Outcome, Request, Right, Secret,
    SessionId, Spare, Time, ToClient, VERSION_OF_KEEPING,
};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// So many lenders of a block are known; the latest ones.
const NAMED: usize = 4;

/// A client that lends blocks.
#[derive(Clone, Debug)]
struct Lender {
    /// Where; empty: it has not said so.
    addr: Vec<u8>,
    key: Secret,
    conn: Conn,
    session: SessionId,
    failures: Failures,
    /// Its room for blocks of others, and when it has said so; none: it keeps nothing for them.
    spare: Option<(Spare, Time)>,
}

/// A block's version and digest, and the clients that may have it.
#[derive(Clone, Debug)]
struct Hint {
    version: u64,
    digest: Digest,
    /// Those that have it, the latest first; zeros: nobody.
    lenders: [LenderId; NAMED],
}

impl Hint {
    fn has(&self, lender: LenderId) -> bool {
        self.lenders.contains(&lender)
    }

    fn add(&mut self, lender: LenderId) {
        let old = self.lenders.iter().position(|known| *known == lender);
        let end = old.unwrap_or(NAMED - 1);
        self.lenders[..=end].rotate_right(1);
        self.lenders[0] = lender;
    }

    fn remove(&mut self, lender: LenderId) {
        if let Some(at) = self.lenders.iter().position(|known| *known == lender) {
            self.lenders[at..].rotate_left(1);
            self.lenders[NAMED - 1] = 0;
        }
    }
}

/// All that is known of lenders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lending {
    policy: Option<Policy>,
    lenders: BTreeMap<LenderId, Lender>,
    of_session: BTreeMap<SessionId, LenderId>,
    last: LenderId,
    hints: BTreeMap<(Fid, u64), Hint>,
    /// The blocks of which there are hints, in the order of their coming.
    order: VecDeque<(Fid, u64)>,
    rereads: Rereads,
    counts: LendingFigures,
    /// For what is drawn by lot.
    lots: u64,
}

/// Figures for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LendingFigures {
    /// Clients that lend.
    pub lenders: u64,
    /// Blocks of which there are hints.
    pub hints: u64,
    /// Blocks that readers were sent to other clients for.
    pub forwarded: u64,
    /// Blocks that were sent from here, to clients that lend.
    pub sent: u64,
    /// Answers of lenders that had given up what they were asked for.
    pub lacking: u64,
    /// Those that came too late, or not as they should.
    pub failing: u64,
    /// Last copies that clients were about to give up.
    pub leaving: u64,
    /// Those of them that another client was told to keep.
    pub handed: u64,
}

impl Lending {
    fn on(&self) -> bool {
        self.policy.is_some_and(|policy| policy != Policy::Off)
    }

    /// The files that are read again, and whether a client is there.
    fn rereads(&mut self) -> (&mut Rereads, impl Fn(LenderId) -> bool) {
        let lenders = &self.lenders;
        let is_there = |lender| lenders.contains_key(&lender);
        (&mut self.rereads, is_there)
    }

    /// No client could lend to another one.
    fn lacks_others(&self) -> bool {
        self.lenders.len() < 2
    }

    /// Its client's session has ended.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        if let Some(lender) = self.of_session.remove(&session) {
            self.lenders.remove(&lender);
        }
    }

    pub(crate) fn forget_conn(&mut self, conn: Conn) {
        for lender in self
            .lenders
            .values_mut()
            .filter(|lender| lender.conn == conn)
        {
            lender.addr.clear();
        }
    }

    fn number(&mut self, session: SessionId) -> LenderId {
        if let Some(known) = self.of_session.get(&session) {
            return *known;
        }
        self.last += 1;
        self.of_session.insert(session, self.last);
        self.last
    }

    /// This lender's word about blocks was wrong.
    fn withdraw(&mut self, lender: LenderId, fid: Fid, blocks: core::ops::Range<u64>) {
        let known = self.hints.range_mut((fid, blocks.start)..(fid, blocks.end));
        known.for_each(|(_, hint)| hint.remove(lender));
    }

    /// The lender that has most of these blocks, if it has at least half of those that are wanted;
    /// `me` is the reader.
    fn best(
        &self,
        now: Time,
        me: LenderId,
        (fid, version): (Fid, u64),
        blocks: core::ops::Range<u64>,
    ) -> Option<LenderId> {
        let mut found: BTreeMap<LenderId, (u64, usize)> = BTreeMap::new();
        let known = self.hints.range((fid, blocks.start)..(fid, blocks.end));
        for (_, hint) in known.filter(|(_, hint)| hint.version == version) {
            for (rank, lender) in hint.lenders.iter().enumerate() {
                let counts = found.entry(*lender).or_default();
                *counts = (counts.0 + 1, counts.1 + NAMED - rank);
            }
        }
        let may = |lender: &LenderId| {
            let known = self.lenders.get(lender);
            *lender != me
                && known.is_some_and(|known| !known.addr.is_empty() && known.failures.are_over(now))
        };
        found.retain(|lender, _| may(lender));
        let (lender, (count, _)) = found.into_iter().max_by_key(|(_, counts)| *counts)?;
        (2 * count >= blocks.end - blocks.start).then_some(lender)
    }

    fn note(&mut self, limit: usize, key: (Fid, u64), version: u64, digest: Digest) -> &mut Hint {
        if !self.hints.contains_key(&key) {
            while self.hints.len() >= limit.max(1) {
                match self.order.pop_front() {
                    Some(oldest) => self.hints.remove(&oldest),
                    None => break,
                };
            }
            self.order.push_back(key);
        }
        let fresh = Hint {
            version,
            digest,
            lenders: [0; NAMED],
        };
        let hint = self.hints.entry(key).or_insert_with(|| fresh.clone());
        if (hint.version, hint.digest) != (version, digest) {
            *hint = fresh;
        }
        hint
    }
}

impl Server {
    /// Says whether clients lend blocks to each other from now on, and how.
    pub(crate) fn on_cooperate(&mut self, step: &mut Step<'_>, policy: Policy) {
        if self.lending.policy.unwrap_or(Policy::Off) == policy {
            return;
        }
        let was = core::mem::take(&mut self.lending);
        // Numbers are not used again: a capability sealed for an old one is worth nothing.
        (self.lending.policy, self.lending.last) = (Some(policy), was.last);
        self.lending.lots = was.lots;
        self.lending.counts = was.counts;
        let connected = self
            .sessions
            .iter()
            .filter(|(_, state)| state.conn.is_some());
        let all: Vec<SessionId> = connected.map(|(id, _)| *id).collect();
        for session in all {
            if was.on() {
                // Clients forget what the last policy has made them keep.
                self.send(step, session, ToClient::Keep);
            }
            self.say_lend(step, session);
        }
    }

    /// A client is told that clients lend, if they do.
    pub(crate) fn say_lend(&mut self, step: &mut Step<'_>, session: SessionId) {
        if !self.lending.on() {
            return;
        }
        let lender = self.lending.number(session);
        // The room puts the secret in.
        let secret = [0; 32];
        self.send(step, session, ToClient::Lend { lender, secret });
        let version = self.sessions.get(&session).map_or(0, |known| known.version);
        let keeping = self.cooperation().keeping();
        if let Some(keeping) = keeping.filter(|_| version >= VERSION_OF_KEEPING) {
            let share = ToClient::Share {
                copies_weigh: keeping.copies_weigh,
                others_weigh: keeping.others_weigh,
            };
            self.send(step, session, share);
        }
    }

    /// A client lends.
    pub(crate) fn on_lends(
        &mut self,
        (conn, session): (Conn, SessionId),
        lends: (Vec<u8>, Secret),
    ) {
        if !self.lending.on() {
            return; // it was told otherwise meanwhile
        }
        let (addr, key) = lends;
        let number = self.lending.number(session);
        let lender = Lender {
            addr,
            key,
            conn,
            session,
            failures: Failures::default(),
            spare: None,
        };
        self.lending.lenders.insert(number, lender);
    }

    /// The clients that answer a read instead of the store.
    pub(crate) fn elsewhere(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, &Request),
    ) -> Option<Elsewhere> {
        let Op::Read { fid, offset, len } = request.op else {
            return None;
        };
        let me = *self.lending.of_session.get(&session)?;
        let blocks = offset / BLOCK..(offset + u64::from(len)).div_ceil(BLOCK);
        match request.lenders {
            Lenders::Any => {}
            Lenders::None => return None,
            Lenders::Passing => {
                let wanted = self.are_copies_wanted(step, (me, fid));
                return wanted.then(|| Elsewhere::nobody(fid));
            }
            Lenders::Lacking(lender) => {
                self.lending.counts.lacking += 1;
                self.lending.withdraw(lender, fid, blocks);
                return None;
            }
            Lenders::Failing(lender) => {
                self.on_failing(step.now, lender, (fid, blocks));
                return None;
            }
        }
        let reader = self.lending.lenders.get(&me)?.key;
        let alone = self
            .holder(session, fid)
            .is_some_and(|held| held.right == Right::Exclusive);
        let attr = step.disk.attr(fid).ok().flatten()?;
        let len = u64::from(len).min(attr.size.saturating_sub(offset)) as u32;
        // Of a block that begins inside the file all bytes are known, and zeros behind its end.
        let blocks = blocks.start..(offset + u64::from(len)).div_ceil(BLOCK);
        if alone || !offset.is_multiple_of(BLOCK) || blocks.is_empty() {
            return None;
        }
        let version = attr.version;
        // The reading counts, wherever the bytes come from.
        self.is_read_again((fid, version, attr.size), me);
        let lender = self
            .lending
            .best(step.now, me, (fid, version), blocks.clone())?;
        let digest = |block: u64| {
            let hint = self.lending.hints.get(&(fid, block))?;
            (hint.version == version && hint.has(lender)).then_some(hint.digest)
        };
        let digests: Vec<Option<Digest>> = blocks.clone().map(digest).collect();
        let until = self.own_time(step) + self.options.capability_ns;
        let known = self.lending.lenders.get(&lender)?;
        Some(Elsewhere {
            len,
            size: attr.size,
            lender,
            addr: known.addr.clone(),
            key: known.key,
            capability: Capability {
                fid,
                version: attr.version,
                first: blocks.start,
                count: digests.len() as u32,
                until,
                reader,
                seal: [0; 32], // the room's
            },
            digests,
        })
    }

    /// Should a reader keep a copy of what only the kernel of its machine keeps until now?
    fn are_copies_wanted(&mut self, step: &Step<'_>, (reader, fid): (LenderId, Fid)) -> bool {
        if self.lending.lacks_others() {
            return false;
        }
        let Ok(Some(attr)) = step.disk.attr(fid) else {
            return false;
        };
        self.is_read_again((fid, attr.version, attr.size), reader)
    }

    /// A client asks for bytes of this version of a file of this size: is the file read again?
    fn is_read_again(&mut self, of: (Fid, u64, u64), reader: LenderId) -> bool {
        let (rereads, is_there) = self.lending.rereads();
        self.options.reread_files.is_none() || rereads.is_again(of, reader, is_there)
    }

    /// A reader is sent to a lender, and lends the blocks itself from now on: those that it waits
    /// for, too.
    pub(crate) fn note_elsewhere(&mut self, session: SessionId, elsewhere: &Elsewhere) {
        let Some(me) = self.lending.of_session.get(&session).copied() else {
            return;
        };
        let Capability { fid, first, .. } = elsewhere.capability;
        for (block, digest) in (first..).zip(&elsewhere.digests) {
            if digest.is_some()
                && let Some(hint) = self.lending.hints.get_mut(&(fid, block))
            {
                hint.add(me);
                self.lending.counts.forwarded += 1;
            }
        }
    }

    /// A reader is sent the bytes from here; if the file is one that is read again, the reader
    /// lends them from now on.
    pub(crate) fn note_sent(
        &mut self,
        step: &mut Step<'_>,
        (session, request): (SessionId, &Request),
        (outcome, bulk): (&Outcome, Bulk),
    ) {
        let (&Op::Read { fid, offset, .. }, &Outcome::Read { len, .. }) = (&request.op, outcome)
        else {
            return;
        };
        let Some(me) = self.lending.of_session.get(&session).copied() else {
            return;
        };
        let takes_part = self.lending.lenders.contains_key(&me);
        if request.lenders == Lenders::None || !takes_part {
            return;
        }
        let Ok(Some(attr)) = step.disk.attr(fid) else {
            return;
        };
        let of = (fid, attr.version, attr.size);
        let again = match self.options.reread_files {
            None => true,
            Some(most) => {
                let (rereads, is_there) = self.lending.rereads();
                rereads.on_sent(most, of, (me, len), is_there)
            }
        };
        let kept = request.lenders != Lenders::Passing && offset.is_multiple_of(BLOCK);
        if !again || self.lending.lacks_others() || !kept {
            return;
        }
        let digests = step.disk.digests(bulk);
        self.lending.counts.sent += digests.len() as u64;
        let limit = self.options.hints;
        for (block, digest) in (offset / BLOCK..).zip(digests) {
            let key = (fid, block);
            self.lending.note(limit, key, attr.version, digest).add(me);
        }
    }

    /// A lender has not answered a reader in time, or not as it should.
    fn on_failing(
        &mut self,
        now: Time,
        lender: LenderId,
        (fid, blocks): (Fid, core::ops::Range<u64>),
    ) {
        self.lending.counts.failing += 1;
        self.lending.withdraw(lender, fid, blocks);
        if let Some(known) = self.lending.lenders.get_mut(&lender) {
            known.failures.rest(now, self.options.rest_ns);
        }
    }

    /// Figures of lending.
    pub fn lending(&self) -> LendingFigures {
        let there = self.lending.lenders.values();
        LendingFigures {
            lenders: there.filter(|lender| !lender.addr.is_empty()).count() as u64,
            hints: self.lending.hints.len() as u64,
            ..self.lending.counts
        }
    }

    /// How clients lend to each other.
    pub fn cooperation(&self) -> Policy {
        self.lending.policy.unwrap_or(Policy::Off)
    }
}
