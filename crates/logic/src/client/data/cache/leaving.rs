//! Which blocks a cache is about to give up: they are said to the server a little ahead, so that a
//! last copy can be handed on.
//!
//! Guarantees: each block that makes room while blocks are kept is said once, ahead as a rule and
//! in the order in which they go, or else behind (up to a bound): so the server's hints know who
//! has it. No message for a few.

use super::worth::WHOLE;
use super::{Cache, Slot};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Fid, Time};

/// So many of the blocks that go next are said to leave before they go, as a part of all...
const AHEAD_PART: u32 = 8;
/// ...and at most.
const AHEAD_MOST: u32 = 2048;
/// Fewer are not worth a message.
const WORTH_SAYING: u32 = 32;
/// So many blocks that went unsaid are remembered at most.
const GONE_MOST: usize = 4096;

/// A block that is about to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goes {
    pub(crate) fid: Fid,
    pub(crate) block: u64,
    pub(crate) used: Time,
    /// It is gone already: nobody can have it from here.
    pub(crate) gone: bool,
    /// Of a block that is kept for others.
    pub(crate) kept: Option<(u64, u8)>,
}

/// The words to the server so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// How many own blocks were said to leave, and are still here.
    said: u32,
    /// How many blocks went for own ones, and how many for those of others, since some were last
    /// said to leave.
    driven: u32,
    driven_by_others: u32,
    /// Blocks that went before they were said to leave.
    gone: Vec<Goes>,
}

impl Cache {
    /// Nothing counts as said any more.
    pub(super) fn forget_all_saying(&mut self) {
        for entry in &mut self.entries {
            entry.said = false;
        }
        self.leaving = Said::default();
    }

    /// A block goes for another one: an own one, or one of others.
    pub(super) fn drives_out(&mut self, for_others: bool) {
        match for_others {
            _ if self.worth.weights.is_none() => {}
            true => self.leaving.driven_by_others += 1,
            false => self.leaving.driven += 1,
        }
    }

    /// A block goes: if it was not said before, it is said behind.
    pub(super) fn goes_now(&mut self, slot: Slot) {
        let unsaid = self.worth.weights.is_some() && !self.entries[slot as usize].said;
        if unsaid && self.leaving.gone.len() < GONE_MOST {
            let gone = self.goes(slot, true);
            self.leaving.gone.push(gone);
        }
    }

    /// The blocks that go next and were not said to leave, and those that went unsaid, if they are
    /// worth a message.
    pub(crate) fn leaving(&mut self, most: usize) -> Vec<Goes> {
        let Some(weights) = self.worth.weights else {
            return Vec::new();
        };
        let ahead = (self.limit / AHEAD_PART).clamp(2, AHEAD_MOST);
        let driven = self.leaving.driven + self.leaving.driven_by_others;
        let due = ahead.saturating_sub(self.leaving.said).min(driven);
        let worth = WORTH_SAYING.min(ahead).max(1);
        if due < worth && self.leaving.gone.len() < worth as usize {
            return Vec::new();
        }
        let mut goes = Vec::new();
        let due = (due as usize).min(most);
        let for_others = due.min(self.leaving.driven_by_others as usize);
        (self.leaving.driven, self.leaving.driven_by_others) = (0, 0);
        self.say_next(weights.others, for_others, &mut goes);
        self.say_next(weights.own, due - for_others, &mut goes);
        // Behind those that another client can still have.
        let gone = self.leaving.gone.len().min(most - goes.len());
        goes.extend(self.leaving.gone.drain(..gone));
        goes
    }

    /// Says that blocks leave: those that go next where the ages of copies count so much.
    fn say_next(&mut self, weight: u32, due: usize, goes: &mut Vec<Goes>) {
        let orders = [
            (&self.worth.lasts, WHOLE),
            (&self.worth.copies, weight.into()),
            (self.kept_by_use(), WHOLE),
        ];
        let mut unsaid = orders.map(|(order, weight)| (self.unsaid(order, due), weight));
        for _ in 0..due {
            let next = |(slots, weight): &(Vec<Slot>, u64)| {
                slots.last().map(|slot| self.age_of(*slot, *weight))
            };
            let oldest = unsaid.iter_mut().max_by_key(|order| next(order));
            let Some(slot) = oldest.and_then(|(slots, _)| slots.pop()) else {
                return;
            };
            let saying = self.goes(slot, false);
            self.entries[slot as usize].said = true;
            self.leaving.said += u32::from(saying.kept.is_none());
            goes.push(saying);
        }
    }

    /// Blocks of an order that were not said to leave, the oldest last; kept ones that may not be
    /// handed on any more go in silence.
    fn unsaid(&self, order: &BTreeSet<(Time, Slot)>, most: usize) -> Vec<Slot> {
        let silent = |slot: Slot| {
            let entry = &self.entries[slot as usize];
            let kept = self.kept_at(slot);
            entry.said || kept.is_some_and(|(_, chances)| chances == 0)
        };
        let slots = order.iter().map(|(_, slot)| *slot);
        let unsaid = slots.filter(|slot| !silent(*slot)).take(most);
        let mut unsaid: Vec<Slot> = unsaid.collect();
        unsaid.reverse();
        unsaid
    }

    /// A block, as it is said to leave.
    fn goes(&self, slot: Slot, gone: bool) -> Goes {
        let entry = &self.entries[slot as usize];
        let ((fid, block), used) = (entry.key, entry.used);
        let kept = self.kept_at(slot);
        Goes {
            fid,
            block,
            used,
            gone,
            kept,
        }
    }

    /// A block is no longer about to go, or is gone.
    pub(super) fn forget_saying(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot as usize];
        if core::mem::take(&mut entry.said) {
            self.leaving.said -= 1;
        }
    }
}
