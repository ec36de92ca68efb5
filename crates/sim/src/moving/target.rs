//! A move of the store to this server, while it is in use at another one, as in the real room
//! (`cli/src/stores/moving.rs`): rounds carry its directory while programs use it; then it is
//! closed, the last round makes the copy exact and stable, the record is changed, and the store is
//! opened here.

use super::{Failed, MS, Mutant, Run, Step, number};
use crate::disk::Share;
use logic::placement::Part;
use std::cell::Cell;
use std::rc::Rc;
use wire::Time;

/// The record is read again after this part of a lease, where the database did not answer.
const UNKNOWN: Time = 64;

/// A move to here.
pub(super) struct Move {
    claimed: Cell<bool>,
    over: Cell<bool>,
    done: Cell<bool>,
    cancelled: Cell<bool>,
}

impl Move {
    pub(super) fn is_running(&self) -> bool {
        !self.over.get()
    }

    pub(super) fn has_claimed(&self) -> bool {
        self.claimed.get() && self.is_running()
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.get()
    }

    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
    }

    fn goes_on(&self) -> Result<(), Failed> {
        match self.cancelled.get() {
            true => Err("the move was cancelled"),
            false => Ok(()),
        }
    }
}

impl Run {
    /// Begins a move, if none is under way.
    pub(super) fn begin_move(&self) {
        if self.site().is_moving() {
            return;
        }
        let of = Rc::new(Move {
            claimed: Cell::new(false),
            over: Cell::new(false),
            done: Cell::new(false),
            cancelled: Cell::new(false),
        });
        self.site().moves.replace(Some(Rc::clone(&of)));
        let run = self.clone();
        self.spawn(async move {
            let ended = run.run_move(&of).await;
            run.trace(ended.err().unwrap_or("the store has come"));
            of.done.set(ended.is_ok());
            of.over.set(true);
        });
    }

    async fn run_move(&self, of: &Move) -> Result<(), Failed> {
        let source = number(&self.record().await?.server);
        if source == self.own {
            return Err("the store is on this server already");
        }
        let serves = self.world.ask(source, |run| async move {
            match run.room().up() {
                true => Ok(()),
                false => Err("the store is not served there"),
            }
        });
        serves.await?;
        self.claim(of, source).await?;
        self.reach(Step::Begun, [source, self.own]).await;
        let moved = self.carry(of, source).await;
        if moved.is_err() {
            self.site().coming.take();
        }
        moved
    }

    /// The store is this move's from now on, if it is where it was found. A copy that is here is
    /// where it begins.
    async fn claim(&self, of: &Move, source: usize) -> Result<(), Failed> {
        let _acting = self.act().await;
        let record = self.record().await?;
        if self.room().up() {
            return Err("the store is served here");
        }
        if number(&record.server) != source {
            return Err("it has just moved");
        }
        if let Part::Takes(_) = record.part(self.name(), self.site().whole.get()) {
            return Err("an earlier move is just taken to its end");
        }
        of.claimed.set(true);
        self.site().closed.set(None);
        self.site().whole.set(None);
        let left = self.room().put_disk(None);
        self.site().coming.replace(left);
        Ok(())
    }

    async fn carry(&self, of: &Move, source: usize) -> Result<(), Failed> {
        let rounds = self.world.rng.borrow_mut().between(1, 3);
        for _ in 0..rounds {
            self.round(of, source, (None, Share::Whole)).await?;
            self.reach(Step::Round, [source, self.own]).await;
            self.rest(3 * MS).await;
        }
        of.goes_on()?;
        let own = self.own;
        let left = self
            .world
            .ask(source, move |run| async move { run.leave(own).await });
        let turn = left.await?;
        let ended = self.take(of, source, turn).await;
        if ended.is_err() {
            let given = self
                .world
                .ask(source, move |run| async move { run.take_back(turn).await });
            if let Err(why) = given.await {
                self.trace(why);
            }
        }
        ended
    }

    async fn round(
        &self,
        of: &Move,
        source: usize,
        (turn, share): (Option<u64>, Share),
    ) -> Result<(), Failed> {
        of.goes_on()?;
        let (before, wall) = (self.site().coming.take(), self.wall());
        let shipped = self.world.ask(source, move |run| async move {
            run.ship(turn, before, (share, wall))
        });
        let shipped = shipped.await?;
        self.site().coming.replace(Some(shipped));
        Ok(())
    }

    /// Makes the copy exact, and takes the store over.
    async fn take(&self, of: &Move, source: usize, turn: u64) -> Result<(), Failed> {
        let both = [source, self.own];
        let is = |mutant| self.world.moving.is(mutant);
        let share = match is(Mutant::CarriesPart) {
            true => Share::Part,
            false => Share::Whole,
        };
        if !is(Mutant::SkipsLastRound) {
            self.round(of, source, (Some(turn), share)).await?;
        }
        self.reach(Step::Last, both).await;
        let coming = self.site().coming.take();
        let mut coming = coming.ok_or("the copy is gone")?;
        if !is(Mutant::TakesUnstable) {
            coming.sync_copy();
        }
        self.site().coming.replace(Some(coming));
        self.reach(Step::Stable, both).await;
        self.room().put_disk(self.site().coming.take());
        self.site().whole.set(Some(turn));
        self.reach(Step::Whole, both).await;
        while !self.wins(source, turn).await? {
            self.rest(self.lease(UNKNOWN)).await;
        }
        self.reach(Step::Switched, both).await;
        let opened = {
            let _acting = self.act().await;
            self.open()
        };
        if opened.is_err() {
            self.note_closed(0);
        }
        self.reach(Step::Served, both).await;
        opened
    }

    /// Does the record name this server by now? An error: the other one has taken the store back.
    async fn wins(&self, source: usize, turn: u64) -> Result<bool, Failed> {
        let _acting = self.act().await;
        self.reach(Step::Switching, [source, self.own]).await;
        match self.win(turn).await {
            Ok(true) => Ok(true),
            Ok(false) => {
                self.room().put_disk(None);
                self.site().whole.set(None);
                Err("the other server has taken the store back")
            }
            Err(why) => {
                self.trace(why);
                Ok(false)
            }
        }
    }

    /// Has the record name this server; false: the store was taken back. The caller acts.
    pub(super) async fn win(&self, turn: u64) -> Result<bool, Failed> {
        let record = self.record().await?;
        if record.part(self.name(), Some(turn)) == Part::Serves {
            return Ok(true);
        }
        let Some(next) = record.arrive(self.name(), turn) else {
            return Ok(false);
        };
        match self.place(&record, &next).await? {
            true => Ok(true),
            false => Err("the record of the store changes"),
        }
    }
}
