//! The task that looks after a store which is here and not served, as in the real room
//! (`cli/src/stores/keeper.rs`): a store that was closed for another server is served again when
//! that one is silent; a move whose copy was whole when this server died is taken to its end; what
//! is left of a store that another server has goes when that one serves it, and not before.

use super::{Closed, Failed, Run, Step, number};
use crate::coverage::Rare;
use logic::placement::{Part, Placement};
use wire::Time;

/// How often it looks, as a part of a lease; and for how long it leaves the store alone after a
/// failure.
const LOOK: Time = 64;
const ASK_AGAIN: Time = 16;

impl Run {
    pub(super) fn keep_what_is_closed(&self) {
        if !self.site().keeps.replace(true) {
            self.spawn(self.clone().keep());
        }
    }

    async fn keep(self) {
        loop {
            self.rest(self.lease(LOOK)).await;
            let Some(closed) = self.site().closed.get() else {
                self.site().keeps.set(false);
                return;
            };
            if closed.not_before > self.now() || self.holds_a_move() {
                continue;
            }
            if let Err(why) = self.look_after(closed).await {
                self.trace(why);
                self.leave_alone(self.lease(ASK_AGAIN));
            }
        }
    }

    /// Does a move to here hold the store?
    pub(super) fn holds_a_move(&self) -> bool {
        let moves = self.site().moves.borrow();
        moves.as_ref().is_some_and(|of| of.has_claimed())
    }

    /// Decides by a record that may change meanwhile: each deed looks at it again.
    async fn look_after(&self, closed: Closed) -> Result<(), Failed> {
        let record = self.record().await?;
        match record.part(self.name(), self.site().whole.get()) {
            Part::Serves => self.serve_again().await,
            Part::Leaves(turn) if self.is_silent(closed) => self.take_back_if_silent(turn).await,
            Part::Leaves(_) => Ok(()),
            Part::Takes(turn) => self.take_over(turn).await,
            Part::Nothing => {
                self.is_elsewhere(closed);
                self.remove_copy(&record).await
            }
        }
    }

    /// At the start of a process, and the keeper sees to all that is not served then.
    pub(super) async fn find_part(&self) -> Result<(), Failed> {
        let record = self.record().await?;
        match record.part(self.name(), self.site().whole.get()) {
            Part::Serves => self.open(),
            Part::Leaves(turn) | Part::Takes(turn) => {
                self.note_closed(turn);
                Ok(())
            }
            Part::Nothing => Ok(()),
        }
    }

    /// Serves a store that is this server's, and is not served.
    async fn serve_again(&self) -> Result<(), Failed> {
        let _acting = self.act().await;
        let record = self.record().await?;
        let part = record.part(self.name(), self.site().whole.get());
        match part == Part::Serves && self.site().closed.get().is_some() {
            true => self.open(),
            false => Ok(()),
        }
    }

    async fn take_over(&self, turn: u64) -> Result<(), Failed> {
        let _acting = self.act().await;
        let is_here = self.site().closed.get().is_some();
        if is_here && self.win(turn).await? {
            self.world.meet(Rare::TakenOver.bit());
            self.open()?;
        }
        Ok(())
    }

    /// Removes what is left of a store that another server has, when it serves it.
    async fn remove_copy(&self, record: &Placement) -> Result<(), Failed> {
        if record.leaving_to.is_some() {
            return Err("the store is between two others");
        }
        let owner = number(&record.server);
        let serves = self.world.ask(owner, |run| async move {
            match run.room().up() {
                true => Ok(()),
                false => Err("the store is not served here"),
            }
        });
        serves.await?;
        self.reach(Step::Removing, [self.own, owner]).await;
        let _acting = self.act().await;
        let is_same = self.record().await? == *record;
        if !is_same || self.holds_a_move() || self.room().up() {
            return Ok(());
        }
        if self.site().closed.take().is_some() {
            self.trace("what is left of the store is removed");
            self.room().put_disk(None);
            self.site().whole.set(None);
        }
        Ok(())
    }
}
