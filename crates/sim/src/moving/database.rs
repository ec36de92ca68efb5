//! The cell's database, as far as moves need it: one record, changed by compare-and-swap. It may be
//! out of reach: then a change that was asked for is made, or made later, or never, and nobody is
//! told.

use super::{Failed, MS, number};
use crate::coverage::Rare;
use crate::exec::Signal;
use crate::world::World;
use logic::placement::Placement;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::Time;

/// A server waits for an answer for this part of a lease.
const PATIENCE: Time = 16;
/// A change may be made late by this part of a lease.
const LATE: Time = 4;

pub(crate) struct Database {
    record: RefCell<Placement>,
    away_until: Cell<Time>,
}

impl Database {
    pub(super) fn new(record: &Placement) -> Self {
        Self {
            record: RefCell::new(record.clone()),
            away_until: Cell::new(0),
        }
    }

    /// The number of the server that the record names.
    pub(crate) fn owner(&self) -> usize {
        number(&self.record.borrow().server)
    }

    /// Nobody reaches it until then.
    pub(crate) fn away(&self, until: Time) {
        self.away_until.set(until);
    }
}

impl World {
    fn reaches_database(&self) -> bool {
        self.moving.database.away_until.get() <= self.sched.now()
    }

    fn travel_ns(&self) -> Time {
        self.rng.borrow_mut().between(50_000, 2 * MS)
    }

    async fn no_answer(self: &Rc<Self>) -> Failed {
        let patience = self.plan.server.lease_ns / PATIENCE;
        self.sched.sleep(patience).await;
        "the database does not answer"
    }

    pub(super) async fn database_get(self: &Rc<Self>) -> Result<Placement, Failed> {
        let travel = self.travel_ns();
        self.sched.sleep(travel).await;
        if !self.reaches_database() {
            return Err(self.no_answer().await);
        }
        let record = self.moving.database.record.borrow().clone();
        self.sched.sleep(travel).await;
        match self.reaches_database() {
            true => Ok(record),
            false => Err(self.no_answer().await),
        }
    }

    /// The change is made whatever becomes of the one who asks.
    pub(super) async fn database_swap(
        self: &Rc<Self>,
        before: &Placement,
        after: &Placement,
    ) -> Result<bool, Failed> {
        let (there, back) = (self.travel_ns(), self.travel_ns());
        let signal = Signal::new(&self.sched);
        let (world, answer) = (Rc::clone(self), signal.clone());
        let (before, after) = (before.clone(), after.clone());
        let arrives = move || {
            if world.reaches_database() {
                let made = world.swap(&before, &after);
                let then = Rc::clone(&world);
                let returns = move || answer.set(then.reaches_database().then_some(made));
                return world.sched.at(world.sched.now() + back, returns);
            }
            answer.set(None);
            let (may_come, late) = {
                let mut rng = world.rng.borrow_mut();
                let most = world.plan.server.lease_ns / LATE;
                (rng.chance(500), rng.between(1, most))
            };
            if may_come {
                let then = Rc::clone(&world);
                world.sched.at(world.sched.now() + late, move || {
                    if then.swap(&before, &after) {
                        then.meet(Rare::LateChange.bit());
                    }
                });
            }
        };
        self.sched.at(self.sched.now() + there, arrives);
        match signal.wait().await {
            Some(made) => Ok(made),
            None => Err(self.no_answer().await),
        }
    }

    fn swap(&self, before: &Placement, after: &Placement) -> bool {
        let record = &mut *self.moving.database.record.borrow_mut();
        let same = record == before;
        if same {
            self.trace(|| format!("the record is {after:?}"));
            if record.server != after.server {
                self.meet(Rare::Moved.bit());
            }
            record.clone_from(after);
        }
        same
    }
}
