//! Own clean blocks by what their room is worth, while blocks are kept for other machines: copies
//! (blocks that another client has, too), and last copies.
//!
//! Guarantees: without that, nothing is here, and the list says which block goes. Each order is by
//! last use. Which block goes is decided by age, where the ages of copies count more
//! (`logic::peers::fleet`); so a copy makes room for last copies wherever it stands among them.

use super::{BlockState, Cache, NONE, Slot};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Fid, Time};

/// Weights are in these parts.
pub(super) const WHOLE: u64 = 16;

/// How the ages of copies count, 16ths: of those that make room for an own block, and for one of
/// others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(super) own: u32,
    pub(super) others: u32,
}

impl Weights {
    /// For own blocks, and for those of others.
    pub(crate) fn new(own: u32, others: u32) -> Self {
        Self { own, others }
    }
}

/// The orders, by last use.
#[derive(Clone, Debug, Default)]
pub(super) struct Worth {
    /// Blocks are kept.
    pub(super) weights: Option<Weights>,
    pub(super) copies: BTreeSet<(Time, Slot)>,
    pub(super) lasts: BTreeSet<(Time, Slot)>,
}

impl Worth {
    fn order_of(&mut self, copied: bool) -> &mut BTreeSet<(Time, Slot)> {
        match copied {
            true => &mut self.copies,
            false => &mut self.lasts,
        }
    }
}

impl Cache {
    /// Blocks are kept for others, with these weights, or no more: then they go.
    pub(crate) fn set_weights(&mut self, weights: Option<Weights>) {
        let before = core::mem::replace(&mut self.worth.weights, weights);
        self.forget_all_saying();
        match (before.is_some(), weights.is_some()) {
            (false, true) => self.part(),
            (true, false) => self.unite(),
            _ => {}
        }
        self.check();
    }

    /// The blocks of the list get their places in the orders.
    fn part(&mut self) {
        let mut at = core::mem::replace(&mut self.oldest, NONE);
        (self.newest, self.listed) = (NONE, 0);
        while at != NONE {
            let slot = at;
            at = self.entries[slot as usize].newer;
            let ordered = self.order(slot);
            assert!(ordered, "blocks are kept");
        }
    }

    /// All blocks are on the list again, by their last use.
    fn unite(&mut self) {
        let Worth { copies, lasts, .. } = core::mem::take(&mut self.worth);
        let mut all: Vec<(Time, Slot)> = copies.into_iter().chain(lasts).collect();
        all.sort_unstable();
        for (_, slot) in all {
            self.entries[slot as usize].by_worth = false;
            self.link(slot, (self.newest, NONE));
        }
    }

    /// Gives a clean block its place in the orders; false: there are none.
    pub(super) fn order(&mut self, slot: Slot) -> bool {
        if self.worth.weights.is_none() {
            return false;
        }
        let entry = &mut self.entries[slot as usize];
        entry.by_worth = true;
        self.worth.order_of(entry.copied).insert((entry.used, slot));
        true
    }

    /// A block leaves the orders; false: it is in none.
    pub(super) fn leave_order(&mut self, slot: Slot) -> bool {
        let entry = &mut self.entries[slot as usize];
        let was = core::mem::take(&mut entry.by_worth);
        if was {
            let order = self.worth.order_of(entry.copied);
            assert!(order.remove(&(entry.used, slot)), "it is in its order");
        }
        was
    }

    /// How many blocks could be given up at once.
    pub(crate) fn clean(&self) -> u64 {
        self.givable() as u64
    }

    /// How many own blocks may be given up.
    pub(super) fn givable(&self) -> usize {
        self.listed as usize + self.worth.copies.len() + self.worth.lasts.len()
    }

    /// When the own block was used that lies unused for longest.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let listed = (self.oldest != NONE).then(|| self.entries[self.oldest as usize].used);
        let orders = [&self.worth.copies, &self.worth.lasts];
        let ordered = orders.into_iter().filter_map(|order| order.first());
        listed
            .into_iter()
            .chain(ordered.map(|(used, _)| *used))
            .min()
    }

    /// Another client has a copy of a block: one that is kept here goes before all others.
    pub(crate) fn set_copied(&mut self, slot: Slot) {
        if !self.keep_no_longer(slot) {
            self.set_last(slot, false);
        }
    }

    /// No other client has a block of this version any more.
    pub(crate) fn is_last(&mut self, fid: Fid, block: u64) {
        if let Some((slot, BlockState::Clean)) = self.find(fid, block) {
            self.set_last(slot, true);
        }
    }

    fn set_last(&mut self, slot: Slot, last: bool) {
        let ordered = self.leave_order(slot);
        self.entries[slot as usize].copied = !last;
        if ordered {
            self.order(slot);
        }
    }

    /// How long a block lay unused, as it counts.
    pub(super) fn age_of(&self, slot: Slot, weight: u64) -> u64 {
        let used = self.entries[slot as usize].used;
        self.now.saturating_sub(used).saturating_mul(weight)
    }

    /// How the ages of copies count where an own block needs room.
    fn own_weight(&self) -> u32 {
        self.worth
            .weights
            .map_or(WHOLE as u32, |weights| weights.own)
    }

    /// The own block that is worth least, and its age, where those of copies count so much.
    pub(super) fn own_that_goes(&self, weight: u32) -> Option<(u64, Slot)> {
        let listed = (self.oldest != NONE).then_some(self.oldest);
        let first = |order: &BTreeSet<(Time, Slot)>| order.first().map(|(_, slot)| *slot);
        let last = listed.or_else(|| first(&self.worth.lasts));
        let last = last.map(|slot| (self.age_of(slot, WHOLE), slot));
        let copy = first(&self.worth.copies);
        let copy = copy.map(|slot| (self.age_of(slot, weight.into()), slot));
        // Of two that are as old the copy goes.
        last.into_iter().chain(copy).max_by_key(|(age, _)| *age)
    }

    /// A slot, of the block that is worth least; `than`: only if it lay unused since before that.
    pub(super) fn evict(&mut self, weight: u32, than: Option<Time>) -> Option<Slot> {
        let own = self.own_that_goes(weight);
        let kept = self.oldest_kept();
        let kept = kept.map(|slot| (self.age_of(slot, WHOLE), slot));
        let age = |used: Time| self.now.saturating_sub(used).saturating_mul(WHOLE);
        let least = than.map_or(0, age);
        let older = |found: &(u64, Slot)| than.is_none() || found.0 > least;
        match (own.filter(older), kept.filter(older)) {
            (own, Some(kept)) if own.is_none_or(|own| kept.0 >= own.0) => {
                self.give_up_kept(kept.1);
                Some(kept.1)
            }
            (Some((_, slot)), _) => {
                self.give_up_own(slot);
                Some(slot)
            }
            (None, _) => None,
        }
    }

    fn give_up_own(&mut self, slot: Slot) {
        self.goes_now(slot);
        self.unlist(slot);
        self.index.remove(&self.entries[slot as usize].key);
    }

    /// A slot, of the own block that is worth least.
    pub(super) fn evict_own(&mut self) -> Option<Slot> {
        let (_, slot) = self.own_that_goes(self.own_weight())?;
        self.give_up_own(slot);
        Some(slot)
    }

    /// Makes room for an own block.
    pub(super) fn evict_for_own(&mut self) -> Option<Slot> {
        self.drives_out(false);
        self.evict(self.own_weight(), None)
    }
}
