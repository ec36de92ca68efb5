//! A cell's door as a server knows it.

use cell::CellDoor;
use net::{Door, Identity, KeyPrint, ServerTls};
use server::Machines;
use wire::{MachineId, Rights};

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
}
