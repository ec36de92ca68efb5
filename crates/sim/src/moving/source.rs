//! A store that goes to another server: it is carried from here, closed, and taken back where the
//! other one does not come to an end. As in the real room (`cli/src/stores/leaving.rs`).

use super::{Closed, Failed, Mutant, NAMES, Run, Step};
use crate::clock::Wall;
use crate::coverage::Rare;
use crate::disk::{DiskRoom, Share};
use logic::placement::Placement;
use wire::Time;

/// A store that was closed for another server is served again when that one has asked nothing for
/// this part of a lease.
const SILENCE: Time = 8;

impl Run {
    pub(super) fn note_closed(&self, turn: u64) {
        let now = self.now();
        self.site().closed.set(Some(Closed {
            turn,
            in_order: false,
            asked: now,
            not_before: now,
        }));
        self.keep_what_is_closed();
    }

    fn change_closed(&self, change: impl FnOnce(&mut Closed)) {
        let mut closed = self.site().closed.get();
        if let Some(closed) = &mut closed {
            change(closed);
        }
        self.site().closed.set(closed);
    }

    fn is_asked(&self) {
        let now = self.now();
        self.change_closed(|closed| closed.asked = now);
    }

    pub(super) fn leave_alone(&self, for_ns: Time) {
        let until = self.now() + for_ns;
        self.change_closed(|closed| closed.not_before = until);
    }

    pub(super) fn is_silent(&self, closed: Closed) -> bool {
        self.now() >= closed.asked + self.lease(SILENCE)
    }

    /// Another server has it by now.
    pub(super) fn is_elsewhere(&self, seen: Closed) {
        self.change_closed(|closed| {
            if closed.turn == seen.turn {
                closed.turn = 0;
            }
        });
    }

    /// The directory for a copy at another server: as it is while it is in use, or at rest since
    /// it was closed in this turn.
    pub(super) fn ship(
        &self,
        turn: Option<u64>,
        before: Option<DiskRoom>,
        (share, wall): (Share, Wall),
    ) -> Result<DiskRoom, Failed> {
        if turn.is_some() {
            let closed = self.site().closed.get();
            let closed = closed.filter(|closed| Some(closed.turn) == turn && closed.in_order);
            closed.ok_or("the store is served here again")?;
            self.is_asked();
        }
        match self.room().has_disk() {
            true => Ok(self.room().disk().carried(before, share, wall)),
            false => Err("the store is not here"),
        }
    }

    /// Closes the store for another server; the turn in which it was closed.
    pub(super) async fn leave(&self, to: usize) -> Result<u64, Failed> {
        let _acting = self.act().await;
        let mut record = self.record().await?;
        if record.server == self.name() && record.leaving_to.is_some() {
            let here = self.site().closed.get();
            let is_same = here.is_some_and(|it| it.in_order && it.turn == record.turn);
            if is_same && record.leaving_to.as_deref() == Some(NAMES[to]) {
                self.is_asked();
                return Ok(record.turn);
            }
            if here.is_some_and(|it| it.in_order && !self.is_silent(it)) {
                return Err("it moves to another server already");
            }
            record = self.stay(&record).await?;
            if here.is_some() {
                self.open()?;
            }
        }
        if !self.room().up() {
            return Err("the store is not served here");
        }
        let next = record.leave(self.name(), NAMES[to]);
        let next = next.ok_or("the store is another server's")?;
        if !self.place(&record, &next).await? {
            return Err("the record of the store has changed");
        }
        self.note_closed(next.turn);
        self.reach(Step::Leaving, [self.own, to]).await;
        if !self.world.moving.is(Mutant::ServesOn) {
            self.room().close(&self.world);
        }
        self.change_closed(|closed| closed.in_order = true);
        self.is_asked();
        self.reach(Step::Closed, [self.own, to]).await;
        Ok(next.turn)
    }

    /// The record says that the store stays.
    async fn stay(&self, record: &Placement) -> Result<Placement, Failed> {
        let next = record.stay(self.name());
        let next = next.ok_or("the store is another server's")?;
        match self.place(record, &next).await? {
            true => Ok(next),
            false => Err("the record of the store has changed"),
        }
    }

    /// Serves the store again that was closed for another server in this turn.
    pub(super) async fn take_back(&self, turn: u64) -> Result<(), Failed> {
        let _acting = self.act().await;
        self.take_back_now(turn).await
    }

    async fn take_back_now(&self, turn: u64) -> Result<(), Failed> {
        let record = self.record().await?;
        let is_closed = self.site().closed.get().is_some();
        if !is_closed || record.turn != turn || record.stay(self.name()).is_none() {
            return Ok(()); // the keeper looks at it again
        }
        self.stay(&record).await?;
        self.world.meet(Rare::TakenBack.bit());
        self.open()
    }

    /// The same, where the other server has asked nothing for too long.
    pub(super) async fn take_back_if_silent(&self, turn: u64) -> Result<(), Failed> {
        let _acting = self.act().await;
        match self.site().closed.get() {
            Some(closed) if self.is_silent(closed) => self.take_back_now(turn).await,
            _ => Ok(()),
        }
    }
}
