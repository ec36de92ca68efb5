//! Ends of the server that its next run, or another server, feels: which worlds have them, and what
//! may happen beside them.

use crate::atlas::{Fault, Kind, RARE_PERMILLE};
use crate::plan::Plan;
use crate::rng::Rng;
use store::Keep;
use wire::Time;

const MS: Time = 1_000_000;

impl Kind {
    /// Does it leave every client its session, also where the server's power fails?
    pub(crate) fn spares(self) -> bool {
        matches!(
            self,
            Self::Loss
                | Self::Repetition
                | Self::Restart
                | Self::Power
                | Self::Drift
                | Self::Memory
                | Self::Move
                | Self::CutMove
                | Self::Database
                | Self::Paused
        )
    }
}

impl Plan {
    /// Does the server's machine lose its power, alone or with others?
    pub(crate) fn power_fails(&self) -> bool {
        let mut faults = self.faults.iter().map(|(_, fault)| fault);
        faults.any(|fault| match fault {
            Fault::Blackout { .. } | Fault::Power { .. } => true,
            Fault::CutMove { cut } => cut.is_power(),
            _ => false,
        })
    }

    /// Both, each drawn from a sequence of its own.
    pub(crate) fn draw_ends(&mut self, seed: u64) {
        self.draw_power(&mut Rng::new(seed.rotate_left(4)));
        self.draw_replaced(&mut Rng::new(!seed.rotate_left(28)));
    }

    /// Servers in the places of lost ones. Nothing is lost with the power then, as no server would
    /// know whom to wait for.
    fn draw_replaced(&mut self, rng: &mut Rng) {
        if self.power_fails() || self.troubles().any() || !rng.chance(RARE_PERMILLE / 2) {
            return;
        }
        let lease = self.server.lease_ns;
        for _ in 0..rng.between(1, 2) {
            let at = self.fault_time(rng);
            let ns = rng.between(lease, 2 * lease);
            self.faults.push((at, Fault::Replaced { ns }));
        }
    }

    /// The power of the server's machine alone.
    fn draw_power(&mut self, rng: &mut Rng) {
        if !rng.chance(RARE_PERMILLE) {
            return;
        }
        // Nothing else happens by which a client could lose its session: no answer may be lost
        // then. (Of a machine that is lost with the power, changes are lost that others had seen.)
        self.faults.retain(|(_, fault)| fault.kind().spares());
        self.severe = false;
        for _ in 0..rng.between(1, 3) {
            let at = self.fault_time(rng);
            let (ns, keep) = power(rng);
            self.faults.push((at, Fault::Power { ns, keep }));
        }
    }
}

/// For how long the power is away, and what the disk keeps.
pub(crate) fn power(rng: &mut Rng) -> (Time, Keep) {
    let torn = Keep::Torn(rng.between(1, 99) as u8);
    let keep = *rng.pick(&[Keep::Synced, torn, torn]);
    (rng.between(1, 100) * MS, keep)
}

/// All machines lose their power.
pub(crate) fn blackout(rng: &mut Rng) -> Fault {
    let (ns, keep) = power(rng);
    Fault::Blackout { ns, keep }
}
