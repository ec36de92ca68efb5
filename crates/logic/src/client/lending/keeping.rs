//! Blocks for the fleet: this client says which blocks leave its cache, and keeps last copies that
//! leave the caches of others.
//!
//! Guarantees: a block that is kept is used only as an own one could be: under Shared, with the
//! version that the file has under it. All kept blocks go when the server restarts, the session
//! ends, or the machine is busy: what a version names is certain in one run of the server only, and
//! no machine is slowed down for others. Nothing waits for a block that is handed on: one that goes
//! before the other client has asked for it is lost, and costs a read.

use super::super::data::cache::{Goes, Weights};
use super::super::session::LinkState;
use super::super::{Client, Mutant, Step};
use super::{Output, PeerOutput};
use alloc::vec::Vec;
use wire::limits::{BLOCK_BYTES, LEAVING, LENT_BLOCKS};
use wire::{Fid, Handed, Last, Leaving, Right, Spare, Time, ToServer};

const NS_PER_MS: u64 = 1_000_000;
/// For so long a client that gives blocks up may say nothing.
const SILENT_NS: Time = 500_000_000;
/// So many rows of blocks are waited for at most.
const TAKING: usize = 64;

/// Blocks that another client gives up, and that are kept here.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    fid: Fid,
    version: u64,
    first: u64,
    used: Time,
    chances: u8,
    pub(super) until: Time,
}

/// How this client shares its memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    weights: Weights,
    /// The server was told this last.
    said: Option<Spare>,
}

impl Client {
    /// The server says that clients keep blocks for each other.
    pub(crate) fn on_share(&mut self, step: &mut Step<'_>, weights: Weights) {
        if !self.lending.wanted {
            return; // this client takes no part
        }
        let said = None;
        self.lending.sharing = Some(Sharing { weights, said });
        self.share_memory(step);
    }

    /// Memory is shared as far as the machine is idle, and the server is told.
    pub(super) fn share_memory(&mut self, step: &mut Step<'_>) {
        let lends = self.lending.lends() && !self.lending.busy;
        let Some(sharing) = self.lending.sharing.as_mut().filter(|_| lends) else {
            return self.cache.set_weights(None);
        };
        sharing.said = None;
        self.cache.set_weights(Some(sharing.weights));
        self.say_spare(step);
    }

    /// Nothing is kept for others, and nothing is said to leave.
    pub(super) fn stop_sharing(&mut self) {
        self.lending.sharing = None;
        self.lending.taking.clear();
        self.cache.set_weights(None);
    }

    /// The server is told how much room there is, if that is news.
    pub(super) fn say_spare(&mut self, step: &mut Step<'_>) {
        let spare = self.spare(step.now);
        let Some(sharing) = &mut self.lending.sharing else {
            return;
        };
        let news = sharing.said.is_none_or(|said| is_news(said, spare));
        if news && self.session.state == LinkState::Up {
            sharing.said = Some(spare);
            let blocks = Vec::new();
            self.say(step, ToServer::Leaving { blocks, spare });
        }
    }

    fn spare(&self, now: Time) -> Spare {
        let (free, oldest) = self.cache.spare();
        let idle_ms = oldest.map_or(0, |used| now.saturating_sub(used) / NS_PER_MS);
        Spare {
            free,
            idle_ms: idle_ms.min(u64::from(u32::MAX)) as u32,
        }
    }

    /// After each step: blocks that go next are said to leave.
    pub(crate) fn say_leaving(&mut self, step: &mut Step<'_>) {
        let shares = self.lending.sharing.is_some() && self.lending.lends() && !self.lending.busy;
        if !shares || self.session.state != LinkState::Up {
            return;
        }
        loop {
            let goes = self.cache.leaving(LEAVING);
            if goes.is_empty() {
                return;
            }
            let blocks = self.rows(step.now, goes);
            let spare = self.spare(step.now);
            if let Some(sharing) = &mut self.lending.sharing {
                sharing.said = Some(spare);
            }
            self.say(step, ToServer::Leaving { blocks, spare });
        }
    }

    /// Blocks in a row, each with the version under which it is here.
    fn rows(&self, now: Time, goes: Vec<Goes>) -> Vec<Leaving> {
        let mut rows: Vec<Leaving> = Vec::new();
        for block in goes {
            let own = || self.nodes.get(&block.fid).map(|node| (node.version, None));
            let kept = block
                .kept
                .map(|(version, chances)| (version, Some(chances)));
            let Some((version, chances)) = kept.or_else(own) else {
                continue;
            };
            let idle_ms = now.saturating_sub(block.used) / NS_PER_MS;
            let idle_ms = match block.gone {
                true => u32::MAX,
                false => idle_ms.min(u64::from(u32::MAX - 1)) as u32,
            };
            match rows.last_mut() {
                Some(row)
                    if (row.fid, row.version, row.chances) == (block.fid, version, chances)
                        && row.first + u64::from(row.count) == block.block
                        && row.count < LENT_BLOCKS
                        && (row.idle_ms == u32::MAX) == block.gone =>
                {
                    row.count += 1;
                    row.idle_ms = row.idle_ms.min(idle_ms);
                }
                _ => rows.push(Leaving {
                    fid: block.fid,
                    version,
                    first: block.block,
                    count: 1,
                    idle_ms,
                    chances,
                }),
            }
        }
        rows
    }

    /// Of these blocks no other client has a copy any more.
    pub(crate) fn on_last(&mut self, rows: &[Last]) {
        for row in rows {
            let known = self.nodes.get(&row.fid);
            if known.is_none_or(|node| node.version != row.version) {
                continue;
            }
            for block in row.first..row.first.saturating_add(u64::from(row.count)) {
                self.cache.is_last(row.fid, block);
            }
        }
    }

    /// The server wants these blocks kept here.
    pub(crate) fn on_take(&mut self, step: &mut Step<'_>, handed: Handed) {
        let shares = self.lending.sharing.is_some() && self.lending.lends() && !self.lending.busy;
        if !shares || self.lending.taking.len() >= TAKING {
            return;
        }
        let named = &handed.from.capability;
        let idle_ns = u64::from(handed.idle_ms) * NS_PER_MS;
        let taking = Taking {
            fid: named.fid,
            version: named.version,
            first: named.first,
            used: step.now.saturating_sub(idle_ns),
            chances: handed.chances,
            until: step.now + SILENT_NS,
        };
        self.lending.last += 1;
        let id = self.lending.last;
        self.lending.taking.insert(id, taking);
        let elsewhere = handed.from;
        let borrow = PeerOutput::Borrow { id, elsewhere };
        step.out.push(Output::Peer(borrow));
    }

    /// Blocks that are to be kept have come, or will not. False: that was no such question.
    pub(super) fn on_taken(&mut self, step: &mut Step<'_>, id: u64, have: &[u16]) -> bool {
        let Some(taking) = self.lending.taking.remove(&id) else {
            return false;
        };
        for (place, at) in have.iter().enumerate() {
            let key = (taking.fid, taking.first + u64::from(*at), taking.version);
            let known = self.cache.find(key.0, key.1).is_some();
            let slot = match known {
                true => None, // an own one
                false => self.cache.keep(key, taking.used, taking.chances),
            };
            if let Some(slot) = slot {
                self.lending.counts.taken += 1;
                let (from, len) = (place as u32 * BLOCK_BYTES, BLOCK_BYTES);
                step.out.push(Output::Fill { slot, from, len });
            }
        }
        self.say_spare(step);
        true
    }

    /// Blocks of this file that are kept for others become own ones, where they may be used.
    pub(crate) fn adopt_kept(&mut self, fid: Fid, blocks: core::ops::Range<u64>) {
        if self.cache.kept() == 0 {
            return;
        }
        let Some(node) = self.nodes.get(&fid) else {
            return;
        };
        // Under Exclusive the file may be changed already beyond what its version tells.
        if node.token.right != Right::Shared || !node.cached() {
            return;
        }
        let version = node.version;
        for block in blocks {
            let version = match self.options.mutant {
                Some(Mutant::AdoptsAnyVersion) => self.cache.version_kept(fid, block),
                _ => Some(version),
            };
            let adopted = version.is_some_and(|version| self.cache.adopt(fid, block, version));
            self.lending.counts.adopted += u64::from(adopted);
        }
    }

    /// Other clients that do not give in time what they give up are waited for no more.
    pub(super) fn tick_taking(&mut self, step: &mut Step<'_>) {
        let late = |(id, one): (&u64, &Taking)| (one.until <= step.now).then_some(*id);
        let late: Vec<u64> = self.lending.taking.iter().filter_map(late).collect();
        for id in late {
            self.lending.taking.remove(&id);
            step.out.push(Output::Peer(PeerOutput::GiveUp { id }));
        }
    }
}

/// Would the server choose otherwise if it knew?
fn is_news(said: Spare, now: Spare) -> bool {
    let (less, more) = (said.free.min(now.free), said.free.max(now.free));
    let older = now.idle_ms / 4 > said.idle_ms / 2 || now.idle_ms < said.idle_ms / 2;
    (more - less) * 8 > more || (now.free == 0 && older)
}
