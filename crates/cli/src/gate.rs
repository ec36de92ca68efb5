//! A cell's door as a server knows it.

use cell::CellDoor;
use net::{Door, Identity, KeyPrint, ServerTls, Worker};
use server::Machines;
use std::sync::Arc;
use wire::{MachineId, Rights};

/// Sees to logins that expire. Dropping it ends that.
pub(crate) struct Lapses {
    gate: Arc<Gatekeeper>,
    worker: Worker,
}

impl Lapses {
    pub(crate) fn start(gate: &Arc<Gatekeeper>) -> std::io::Result<Lapses> {
        let (gate, watched) = (Arc::clone(gate), Arc::clone(gate));
        let run = move || while watched.0.lapse() {};
        Ok(Lapses {
            gate,
            worker: Worker::start("lapses", run)?,
        })
    }
}

impl Drop for Lapses {
    fn drop(&mut self) {
        self.gate.0.stop_lapses();
        self.worker.join();
    }
}

/// Takes in what other servers of the cell change. Dropping it ends that, and tells them.
pub(crate) struct Follower {
    gate: Arc<Gatekeeper>,
    worker: Worker,
}

impl Follower {
    pub(crate) fn start(gate: &Arc<Gatekeeper>) -> std::io::Result<Follower> {
        let (gate, watched) = (Arc::clone(gate), Arc::clone(gate));
        let run = move || while watched.0.follow_next() {};
        Ok(Follower {
            gate,
            worker: Worker::start("follower", run)?,
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.gate.0.stop_following();
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
