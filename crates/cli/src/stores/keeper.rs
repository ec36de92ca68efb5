//! The thread that looks after stores which are closed here.
//!
//! Guarantees: a store that was closed for another server is served again when that one is silent;
//! a move whose copy was whole when this server died is taken to its end; the copy of a store that
//! another server has goes when that one serves it, and not before.

use super::{Closed, SILENCE, Stores};
use cell::StoreQuestion;
use logic::placement::{Part, Placement};
use net::Worker;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often the records of stores that are closed are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// After a failure, or while the new server of a store does not serve it yet, it is left alone for
/// so long.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The thread, and where there are other servers the one that looks after replicas. Dropping it
/// ends them.
pub(crate) struct Keeper(Arc<Stores>, Vec<Worker>);

impl Keeper {
    pub(super) fn start(stores: Arc<Stores>) -> Result<Keeper, String> {
        let failed = |error| format!("no thread can be started: {error}");
        let mut keeper = Keeper(Arc::clone(&stores), Vec::new());
        let of = Arc::clone(&stores);
        let worker = Worker::start("stores", move || of.keep());
        keeper.1.push(worker.map_err(failed)?);
        if stores.own.is_some() {
            let worker = Worker::start("replicas", move || stores.follow_releases());
            keeper.1.push(worker.map_err(failed)?);
        }
        Ok(keeper)
    }

    pub(crate) fn stores(&self) -> Weak<Stores> {
        Arc::downgrade(&self.0)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.lock().ending = true;
        self.0.changed.notify_all();
        self.0.sites.end();
        self.1.iter().for_each(Worker::join);
    }
}

impl Stores {
    /// Looks after stores that are closed, until the server ends.
    fn keep(&self) {
        let mut state = self.lock();
        while !state.ending {
            let closed: Vec<(u32, Closed)> = state.closed.iter().map(|(a, b)| (*a, *b)).collect();
            drop(state);
            for (first_volume, closed) in closed {
                if closed.not_before > Instant::now() || self.is_moving(first_volume) {
                    continue;
                }
                if let Err(error) = self.look_after(first_volume, closed) {
                    tracing::warn!(first_volume, error, "a store that is not served");
                    self.leave_alone(first_volume);
                }
            }
            state = self.lock();
            if !state.ending {
                let waited = self.changed.wait_timeout(state, LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Decides by a record that may change meanwhile: each deed looks at it again.
    fn look_after(&self, first_volume: u32, closed: Closed) -> Result<(), String> {
        let Some(own) = &self.own else {
            return self.serve_again(first_volume);
        };
        let record = self.record(first_volume)?;
        match record.part(own, self.places.whole_of(first_volume)) {
            Part::Serves => self.serve_again(first_volume),
            Part::Leaves(turn) if closed.asked.elapsed() >= SILENCE => {
                self.take_back_if_silent(first_volume, turn)
            }
            Part::Leaves(_) => Ok(()),
            Part::Takes(turn) => self.take_over(first_volume, turn),
            Part::Nothing => {
                if let Some(now) = self.lock().closed.get_mut(&first_volume)
                    && now.turn == closed.turn
                {
                    now.turn = 0;
                }
                self.changed.notify_all();
                self.remove_copy(first_volume, &record)
            }
        }
    }

    /// Serves a store that is this server's, and is not served.
    fn serve_again(&self, first_volume: u32) -> Result<(), String> {
        let _acting = self.act();
        let is_own = match &self.own {
            None => true,
            Some(own) => {
                let whole_of = self.places.whole_of(first_volume);
                self.record(first_volume)?.part(own, whole_of) == Part::Serves
            }
        };
        match is_own && self.lock().closed.contains_key(&first_volume) {
            true => self.open(first_volume),
            false => Ok(()),
        }
    }

    /// It is looked at again later.
    fn leave_alone(&self, first_volume: u32) {
        if let Some(closed) = self.lock().closed.get_mut(&first_volume) {
            closed.not_before = Instant::now() + ASK_AGAIN;
        }
    }

    /// Does a move to here hold this store?
    pub(super) fn is_moving(&self, first_volume: u32) -> bool {
        let state = self.lock();
        let mut moves = state.moves.values();
        moves.any(|one| !one.is_over() && one.first_volume() == Some(first_volume))
    }

    /// Removes the copy of a store that another server has, when it serves it.
    fn remove_copy(&self, first_volume: u32, record: &Placement) -> Result<(), String> {
        if record.leaving_to.is_some() {
            self.leave_alone(first_volume);
            return Ok(());
        }
        if !record.is_removed() {
            let server = self.line_of(&record.server)?;
            let question = StoreQuestion::Serves { first_volume };
            if let Err(error) = self.ask(&server, question) {
                tracing::debug!(first_volume, error, "the copy of a store stays");
                self.leave_alone(first_volume);
                return Ok(());
            }
        }
        // The answer may have taken its time: the store may be on its way back.
        let acting = self.act();
        let is_same = self.placement(first_volume)?.as_ref() == Some(record);
        if !is_same || self.is_moving(first_volume) {
            return Ok(());
        }
        if self.lock().closed.remove(&first_volume).is_none() {
            return Ok(());
        }
        self.lock().answerers.remove(&first_volume);
        let aside = self.places.set_aside(first_volume)?;
        drop(acting);
        self.places.remove_aside(&aside)?;
        tracing::info!(
            first_volume,
            "the copy of a store that has moved is removed"
        );
        Ok(())
    }
}
