//! A cell's door as a server knows it.

use cell::CellDoor;
use net::{Door, Identity, KeyPrint, ServerTls, Worker};
use server::Machines;
use std::io;
use std::sync::Arc;
use wire::{MachineId, Rights};

/// A thread that waits for something in the cell, again and again. Dropping it ends that.
pub(crate) struct Watcher {
    gate: Arc<Gatekeeper>,
    end: fn(&CellDoor),
    worker: Worker,
}

impl Watcher {
    /// Sees to logins that expire.
    pub(crate) fn of_logins(gate: &Arc<Gatekeeper>) -> io::Result<Watcher> {
        Watcher::start(gate, CellDoor::lapse, CellDoor::stop_lapses)
    }

    /// Takes in what other servers of the cell change, and tells them at its end.
    pub(crate) fn of_servers(gate: &Arc<Gatekeeper>) -> io::Result<Watcher> {
        Watcher::start(gate, CellDoor::follow_next, CellDoor::stop_following)
    }

    /// `next` waits once; false: it is time to end.
    fn start(
        gate: &Arc<Gatekeeper>,
        next: fn(&CellDoor) -> bool,
        end: fn(&CellDoor),
    ) -> io::Result<Watcher> {
        let (gate, watched) = (Arc::clone(gate), Arc::clone(gate));
        let run = move || while next(&watched.0) {};
        let worker = Worker::start("cell", run)?;
        Ok(Watcher { gate, end, worker })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        (self.end)(&self.gate.0);
        self.worker.join();
    }
}

/// The door of a cell that was opened for a server.
pub(crate) struct Gatekeeper(pub(crate) CellDoor);

impl Door for Gatekeeper {
    fn tls(&self) -> ServerTls {
        self.0.tls()
    }

    fn admit(&self, key: KeyPrint) -> Result<Identity, String> {
        self.0.admit(key)
    }

    fn answer(&self, key: Option<KeyPrint>, question: &[u8]) -> Vec<u8> {
        self.0.answer(key, question)
    }
}

impl Machines for Gatekeeper {
    fn rights(&self, machine: MachineId) -> Rights {
        self.0.rights(machine)
    }

    fn members(&self) -> access::Members {
        self.0.cell().group_members()
    }
}
