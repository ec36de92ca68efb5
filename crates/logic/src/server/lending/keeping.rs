//! Last copies that leave a client's cache: another client is told to keep them.
//!
//! A client says which blocks it is about to give up. Of those that nobody else has, as far as the
//! hints know, the server hands each row on to one client: a random one (N-chance forwarding,
//! Dahlin and others, 1994, section 2.4), or the one whose room is worth least (weighted LRU,
//! section 2.5, and `fleet`). That client borrows them as a reader would, so a lender's bytes are
//! held against the same digests; nothing is ever waited for.
//!
//! Guarantees: a client is handed only blocks that somebody for whom it speaks might read, and no
//! more of them than it has said to have room for, or than are worth more than those that lie
//! there; a block that the hints know nothing of is handed to nobody; no message is owed to anybody
//! for a block that was handed on. Where a client gives up a block that one other client has, that
//! one hears that its copy is a last copy now.

use super::{Lender, Lending};
use crate::peers::{Keeping, cheapest};
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::limits::{BLOCK_BYTES, LEAVING, LENT_BLOCKS};
use wire::{
    Attr, Capability, Digest, Elsewhere, Fid, Handed, Last, Leaving, LenderId, Op, Request,
    SessionId, Spare, Time, ToClient, VERSION_OF_LAST, splitmix64,
};

const NS_PER_MS: u64 = 1_000_000;
/// Blocks that lay unused for so long are gone already.
const GONE: u32 = u32::MAX;

/// Blocks in a row of which at least one is a last copy.
struct Row {
    fid: Fid,
    attr: Attr,
    first: u64,
    /// Of the last copies.
    digests: Vec<Option<Digest>>,
    idle_ms: u32,
    chances: u8,
}

impl Row {
    fn count(&self) -> u32 {
        self.digests.iter().flatten().count() as u32
    }
}

/// The other clients that have a block which a client gives up.
enum Left {
    /// Nobody: this is its digest.
    Nobody(Digest),
    One(LenderId),
    Several,
}

/// A block is one more of these rows.
fn extend(rows: &mut Vec<Last>, (fid, version, block): (Fid, u64, u64)) {
    match rows.last_mut() {
        Some(row)
            if (row.fid, row.version) == (fid, version)
                && row.first + u64::from(row.count) == block
                && row.count < LENT_BLOCKS =>
        {
            row.count += 1;
        }
        _ => rows.push(Last {
            fid,
            version,
            first: block,
            count: 1,
        }),
    }
}

impl Server {
    /// Blocks are about to leave a client's cache.
    pub(crate) fn on_leaving(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        (blocks, spare): (Vec<Leaving>, Spare),
    ) {
        let Some(keeping) = self.cooperation().keeping() else {
            return; // it was told otherwise meanwhile
        };
        let Some(me) = self.lending.of_session.get(&session).copied() else {
            return;
        };
        let Some(known) = self.lending.lenders.get_mut(&me) else {
            return;
        };
        known.spare = Some((spare, step.now));
        let mut alone = BTreeMap::new();
        for leaving in blocks {
            if let Some(row) = self.last_copies(step, (me, keeping), leaving, &mut alone) {
                self.hand_on(step, (me, keeping), row);
            }
        }
        self.say_last(step, alone);
    }

    /// Clients hear of which of their blocks no other client has a copy any more.
    fn say_last(&mut self, step: &mut Step<'_>, alone: BTreeMap<LenderId, Vec<Last>>) {
        for (lender, mut rows) in alone {
            let Some(session) = self.lending.lenders.get(&lender).map(|one| one.session) else {
                continue;
            };
            let version = self.sessions.get(&session).map_or(0, |one| one.version);
            if version >= VERSION_OF_LAST {
                // Of the others the client goes on believing that there are copies.
                rows.truncate(LEAVING);
                self.send(step, session, ToClient::Last(rows));
            }
        }
    }

    /// Those of these blocks that nobody else has, and are still there; from now on nobody is sent
    /// to this client for any of them. `alone`: those that one other client has.
    fn last_copies(
        &mut self,
        step: &Step<'_>,
        (me, keeping): (LenderId, Keeping),
        leaving: Leaving,
        alone: &mut BTreeMap<LenderId, Vec<Last>>,
    ) -> Option<Row> {
        let Leaving {
            fid,
            version,
            first,
            count,
            idle_ms,
            ..
        } = leaving;
        let attr = step.disk.attr(fid).ok().flatten();
        let attr = attr.filter(|attr| attr.version == version)?;
        let inside = attr.size.div_ceil(u64::from(BLOCK_BYTES));
        let blocks = first..inside.min(first + u64::from(count));
        let give_up = |block| match self.lending.give_up(me, (fid, block), version) {
            Left::Nobody(digest) => Some(digest),
            Left::One(other) => {
                extend(alone.entry(other).or_default(), (fid, version, block));
                None
            }
            Left::Several => None,
        };
        let row = Row {
            fid,
            attr,
            first,
            digests: blocks.map(give_up).collect(),
            idle_ms,
            chances: leaving.chances.unwrap_or(keeping.chances),
        };
        self.lending.counts.leaving += u64::from(row.count());
        (row.count() > 0 && row.chances > 0 && idle_ms < GONE).then_some(row)
    }

    /// Has another client keep a row of last copies.
    fn hand_on(&mut self, step: &mut Step<'_>, (me, keeping): (LenderId, Keeping), row: Row) {
        let Some(to) = self.taker(step, (me, keeping), &row) else {
            return;
        };
        let until = self.own_time(step) + self.options.capability_ns;
        let lending = &mut self.lending;
        let (Some(from), Some(taker)) = (lending.lenders.get(&me), lending.lenders.get(&to)) else {
            return;
        };
        let capability = Capability {
            fid: row.fid,
            version: row.attr.version,
            first: row.first,
            count: row.digests.len() as u32,
            until,
            reader: taker.key,
            seal: [0; 32], // the room's
        };
        let offset = row.first * u64::from(BLOCK_BYTES);
        let end = offset + u64::from(capability.count * BLOCK_BYTES);
        let from = Elsewhere {
            len: (end.min(row.attr.size) - offset) as u32,
            size: row.attr.size,
            lender: me,
            addr: from.addr.clone(),
            key: from.key,
            digests: row.digests.clone(),
            capability,
        };
        for (block, _) in (row.first..).zip(&row.digests).filter(|(_, d)| d.is_some()) {
            if let Some(hint) = lending.hints.get_mut(&(row.fid, block)) {
                hint.add(to);
            }
        }
        lending.counts.handed += u64::from(row.count());
        let handed = Handed {
            from,
            // N-chance forwarding takes a block that comes for one that was used just now.
            idle_ms: if keeping.random { 0 } else { row.idle_ms },
            chances: row.chances - u8::from(keeping.random),
        };
        let session = taker.session;
        self.send(step, session, ToClient::Take(handed));
    }

    /// The client that is to keep a row of blocks: the best of those that might read them.
    fn taker(&mut self, step: &Step<'_>, how: (LenderId, Keeping), row: &Row) -> Option<LenderId> {
        let mut passed = Vec::new();
        loop {
            let to = self.lending.best_keeper(step.now, how, (row, &passed))?;
            let keeper = self.lending.lenders.get(&to)?;
            let (fid, offset, len) = (row.fid, 0, 1);
            let read = Request::new(1, Op::Read { fid, offset, len });
            if self.forbids(step.disk, keeper.session, &read).is_some() {
                passed.push(to);
                continue;
            }
            let spare = self.lending.lenders.get_mut(&to)?.spare.as_mut();
            if let Some((spare, _)) = spare {
                // The client's next word says how much is left.
                spare.free = spare.free.saturating_sub(row.count());
            }
            return Some(to);
        }
    }
}

impl Lending {
    /// A client is about to give a block up: who else has it, as far as is known.
    fn give_up(&mut self, me: LenderId, key: (Fid, u64), version: u64) -> Left {
        let lenders = &self.lenders;
        let lends = |id: &LenderId| lenders.get(id).is_some_and(|known| !known.addr.is_empty());
        let hint = self.hints.get_mut(&key);
        let Some(hint) = hint.filter(|hint| hint.version == version) else {
            return Left::Several; // nothing can be said of it
        };
        // A client that said so before, and then used the block again, is no longer named.
        hint.remove(me);
        let mut others = hint.lenders.iter().filter(|id| lends(id));
        match (others.next(), others.next()) {
            (None, _) => Left::Nobody(hint.digest),
            (Some(other), None) => Left::One(*other),
            _ => Left::Several,
        }
    }

    /// The client that keeps a row of blocks best, of those that were not passed over.
    fn best_keeper(
        &mut self,
        now: Time,
        (me, how): (LenderId, Keeping),
        (row, passed): (&Row, &[LenderId]),
    ) -> Option<LenderId> {
        let keeps = |(id, one): &(&LenderId, &Lender)| {
            let asked = **id != me && !passed.contains(id);
            asked && !one.addr.is_empty() && one.failures.are_over(now) && one.spare.is_some()
        };
        let others = self.lenders.iter().filter(keeps);
        if how.random {
            // One that keeps nothing for others says so by this.
            let none = |one: &Lender| {
                one.spare
                    .is_some_and(|(spare, _)| spare == Spare::default())
            };
            let others = others.filter(|(_, one)| !none(one));
            let all: Vec<LenderId> = others.map(|(id, _)| *id).collect();
            let drawn = splitmix64(&mut self.lots) % (all.len() as u64).max(1);
            return all.get(drawn as usize).copied();
        }
        let age_of = |one: &Lender| one.spare.map_or(0, |spare| age_ms(now, spare));
        let ages = others.map(|(id, one)| (*id, age_of(one)));
        cheapest(ages, u64::from(row.idle_ms))
    }
}

/// How long the block lay unused that makes room for one of others: free room is older than
/// everything, and the more there is of it, the older.
fn age_ms(now: Time, (spare, said): (Spare, Time)) -> u64 {
    match spare.free {
        0 => u64::from(spare.idle_ms) + now.saturating_sub(said) / NS_PER_MS,
        free => (1 << 48) + u64::from(free),
    }
}
