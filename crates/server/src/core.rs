//! The server's lock and what happens around it: inputs enter, links are flushed after it.
//!
//! Guarantees: no thread waits for the network or calls the room above while it holds the lock.

use crate::profile::Measured;
use crate::state::{After, State};
use crate::status::{self, Status};
use crate::{Gate, TokenLine};
use access::Members;
use logic::Ticket;
use logic::peers::Policy;
use logic::server::Input;
use net::{Link, Timer};
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use store::Store;
use wire::{MachineId, SessionId, VolumeInfo};

/// The state that the threads of a server share.
pub(crate) struct Core {
    state: Mutex<State>,
    timer: OnceLock<Timer>,
    gate: Gate,
    on_failure: Box<dyn Fn(&str) + Send + Sync>,
}

impl Core {
    pub(crate) fn new(state: State, on_failure: Box<dyn Fn(&str) + Send + Sync>) -> Core {
        Core {
            gate: state.gate.clone(),
            state: Mutex::new(state),
            timer: OnceLock::new(),
            on_failure,
        }
    }

    /// Does `work` under the lock, and afterwards what must be done without it.
    pub(crate) fn enter<T>(&self, work: impl FnOnce(&mut State, &mut After) -> T) -> T {
        let mut after = After::default();
        let result = work(&mut self.state.lock(), &mut after);
        if let Gate::Cell(machines) = &self.gate {
            after
                .administered
                .iter()
                .for_each(|done| machines.administered(done));
            let refused = after.refused.iter();
            refused.for_each(|(machine, why)| machines.refused(*machine, why));
        }
        for link in after.flush {
            link.flush();
        }
        if let (Some(deadline), Some(timer)) = (after.deadline, self.timer.get()) {
            timer.set(deadline);
        }
        if let Some(reason) = after.failure {
            (self.on_failure)(&reason);
        }
        result
    }

    /// From now on deadlines are met, the first one included.
    pub(crate) fn begin(&self, timer: Timer) {
        if self.timer.set(timer).is_ok() {
            self.enter(|state, after| after.deadline = state.deadline());
        }
    }

    /// The timer's callback: returns the next deadline.
    pub(crate) fn on_deadline(&self) -> Option<u64> {
        self.enter(|state, after| {
            state.on_deadline(after);
            // The timer is told by the result.
            after.deadline = None;
            state.store.as_ref().and_then(|_| state.deadline())
        })
    }

    /// Clients lend to each other like this from now on.
    pub(crate) fn cooperate(&self, policy: Policy) {
        self.enter(|state, after| state.handle(Input::Cooperate { policy }, after));
    }

    /// The cell's groups are others; false: ask again when all clients have come back.
    pub(crate) fn regroup(&self, members: Members) -> bool {
        let (told, hears) = channel();
        self.enter(|state, after| state.regroup(members, told, after));
        hears.recv().unwrap_or(false)
    }

    /// The rights of a machine are others; false: ask again when all clients have come back.
    pub(crate) fn regrant(&self, machine: MachineId) -> bool {
        let (told, hears) = channel();
        self.enter(|state, after| state.regrant(machine, told, after));
        hears.recv().unwrap_or(false)
    }

    /// Publishes what was received under this number, as soon as that can be.
    pub(crate) fn publish(&self, volume: u32) {
        self.enter(|state, after| {
            if state.store.is_some() {
                state.handle(Input::Publish(volume), after);
            }
        });
    }

    /// A machine is not trusted any more.
    pub(crate) fn expel(&self, machine: MachineId) {
        self.enter(|state, after| state.handle(Input::Expelled { machine }, after));
    }

    /// The changes for which these tickets waited are stable, or could not be made so.
    pub(crate) fn on_synced(&self, tickets: &[Ticket], result: Result<(), String>) {
        self.enter(|state, after| {
            let ok = result.is_ok();
            for &ticket in tickets {
                state.handle(Input::Synced { ticket, ok }, after);
            }
            if let Err(error) = result {
                // The kernel may have dropped what it could not write: a later success would
                // say nothing about it.
                state.fail(format!("the store cannot be made stable: {error}"), after);
            }
        });
    }

    /// Where tickets of `Output::Sync` go; none: nowhere.
    pub(crate) fn set_syncs(&self, syncs: Option<Sender<Ticket>>) {
        self.state.lock().syncs = syncs;
    }

    /// Ends the timer's thread.
    pub(crate) fn end_timer(&self) {
        if let Some(timer) = self.timer.get() {
            timer.stop();
        }
    }

    /// Ends serving: the store, or why there is none any more.
    pub(crate) fn end(&self) -> Result<Option<Store>, String> {
        let mut state = self.state.lock();
        state.end_waits();
        match state.failure.take() {
            Some(reason) => Err(reason),
            None => Ok(state.store.take()),
        }
    }

    /// The volumes of the store; none, when it is not served any more.
    pub(crate) fn volumes(&self) -> Vec<VolumeInfo> {
        let state = self.lock();
        state.store.as_ref().map_or_else(Vec::new, Store::volumes)
    }

    /// Does the store know this session?
    pub(crate) fn knows(&self, session: SessionId) -> bool {
        self.lock().machine.has_session(session)
    }

    /// The cell's groups are others, and no client has come yet that judges by them.
    pub(crate) fn set_members(&self, members: Members) {
        if let Some(store) = &mut self.lock().store {
            store.set_members(members);
        }
    }

    /// Other stores hear what this one has promised of the disk.
    pub(crate) fn note_promised(&self) {
        self.lock().note_promised();
    }

    /// Ends all connections: their volumes are elsewhere, or on their way.
    pub(crate) fn send_away(&self) {
        let links: Vec<Arc<Link>> = self.lock().links.values().cloned().collect();
        for link in links {
            link.send_elsewhere();
        }
    }

    /// Figures for people.
    pub(crate) fn status(&self, addr: SocketAddr, data: &Path) -> Status {
        status::of(&mut self.lock(), addr, data)
    }

    /// Where the time goes: requests from arrival to answer, and the machine's steps.
    pub(crate) fn profile(&self) -> (Measured, Measured) {
        self.lock().profile.read()
    }

    /// All tokens.
    pub(crate) fn tokens(&self) -> Vec<TokenLine> {
        self.lock().machine.tokens()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
