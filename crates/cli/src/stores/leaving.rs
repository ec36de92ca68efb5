//! A store that goes to another server: it is copied from here, closed, and taken back where the
//! other one does not come to an end.
//!
//! Guarantees: the record says that a store leaves before it is closed, and the other server hears
//! of that when the directory is at rest. A question that comes again is answered as before, if the
//! store was closed in order by this run of the server; else the store is opened, and closed anew.

use super::{Closed, SILENCE, Stores};
use cell::StoreAnswer;
use logic::placement::Placement;
use ship::Answerer;
use std::sync::Arc;
use std::time::Instant;

impl Stores {
    /// Tells another server of the directory of a store.
    pub(super) fn ship(
        &self,
        (first_volume, turn): (u32, Option<u64>),
        ask: &ship::Ask,
    ) -> Result<StoreAnswer, String> {
        let answerer = {
            let mut state = self.lock();
            if turn.is_some() {
                let closed = state.closed.get_mut(&first_volume);
                let closed = closed.filter(|closed| Some(closed.turn) == turn && closed.in_order);
                let closed =
                    closed.ok_or("the store is served here again: begin the move again")?;
                closed.asked = Instant::now();
            }
            let dir = self.places.store(first_volume);
            let answerer = state.answerers.entry(first_volume);
            Arc::clone(answerer.or_insert_with(|| Arc::new(Answerer::new(&dir))))
        };
        let told = answerer.answer(ask).map_err(|error| error.to_string())?;
        Ok(StoreAnswer::Shipped(told))
    }

    /// Closes a store for another server; the turn in which it was closed.
    pub(super) fn leave(&self, first_volume: u32, to: &str) -> Result<u64, String> {
        let own = self.own()?;
        let _acting = self.act();
        let mut record = self.record(first_volume)?;
        if record.server == own && record.leaving_to.is_some() {
            let here = self.lock().closed.get(&first_volume).copied();
            let is_same = here.is_some_and(|it| it.in_order && it.turn == record.turn);
            if is_same && record.leaving_to.as_deref() == Some(to) {
                self.is_asked(first_volume);
                return Ok(record.turn);
            }
            if here.is_some_and(|it| it.in_order && it.asked.elapsed() < SILENCE) {
                let other = record.leaving_to.unwrap_or_default();
                return Err(format!("it moves to {other} already"));
            }
            // An earlier attempt was cut short.
            record = self.stay(first_volume, &record)?;
            if here.is_some() {
                self.open(first_volume)?;
            }
        }
        let server = self.server()?;
        if !server.serves(first_volume) {
            return Err("the store is not served here: see the log of this server".into());
        }
        let next = record
            .leave(own, to)
            .ok_or("the store is another server's: see `ariel volume list --all`")?;
        if !self.place(first_volume, &record, &next)? {
            return Err("the record of the store has changed: try again".into());
        }
        self.note_closed(first_volume, next.turn);
        if let Err(error) = server.close_store(first_volume) {
            // It recovers here as after a crash; elsewhere nobody could tell whether it is whole.
            self.stay(first_volume, &next)?;
            self.open(first_volume)?;
            return Err(format!("the store cannot be closed in order: {error}"));
        }
        if let Some(closed) = self.lock().closed.get_mut(&first_volume) {
            closed.in_order = true;
        }
        self.is_asked(first_volume);
        Ok(next.turn)
    }

    fn is_asked(&self, first_volume: u32) {
        if let Some(closed) = self.lock().closed.get_mut(&first_volume) {
            closed.asked = Instant::now();
        }
    }

    /// The record says that the store stays.
    fn stay(&self, first_volume: u32, record: &Placement) -> Result<Placement, String> {
        let next = record.stay(self.own()?);
        let next = next.ok_or("the store is another server's")?;
        match self.place(first_volume, record, &next)? {
            true => Ok(next),
            false => Err("the record of the store has changed: try again".into()),
        }
    }

    /// Serves a store again that was closed for another server in this turn.
    pub(super) fn take_back(&self, first_volume: u32, turn: u64) -> Result<(), String> {
        let _acting = self.act();
        self.take_back_now(first_volume, turn)
    }

    fn take_back_now(&self, first_volume: u32, turn: u64) -> Result<(), String> {
        let record = self.record(first_volume)?;
        let is_closed = self.lock().closed.contains_key(&first_volume);
        if !is_closed || record.turn != turn || record.stay(self.own()?).is_none() {
            return Ok(()); // the keeper looks at it again
        }
        self.stay(first_volume, &record)?;
        self.open(first_volume)
    }

    /// The same, where the other server has asked nothing for too long.
    pub(super) fn take_back_if_silent(&self, first_volume: u32, turn: u64) -> Result<(), String> {
        let _acting = self.act();
        let is_silent = |closed: &Closed| closed.asked.elapsed() >= SILENCE;
        if !self.lock().closed.get(&first_volume).is_some_and(is_silent) {
            return Ok(());
        }
        tracing::warn!(
            first_volume,
            "the server to which a store was to move is silent: it is served here again"
        );
        self.take_back_now(first_volume, turn)
    }
}
