//! Which worlds have moves, and what may happen beside them.

use super::Cut;
use crate::atlas::{Fault, Kind};
use crate::plan::Plan;
use crate::power::power;
use crate::rng::Rng;

/// Worlds of a thousand in which the store moves.
const MOVES_PERMILLE: u64 = 66;
/// How many of these have nothing by which a client could lose its session, of a thousand, and in
/// how many of those machines of servers lose their power.
const KIND_PERMILLE: u64 = 700;
const POWER_PERMILLE: u64 = 450;

impl Kind {
    /// May it happen where the store moves?
    fn is_beside_moves(self) -> bool {
        let of_clients = matches!(
            self,
            Self::Silence | Self::OneWay | Self::Cut | Self::Vanish | Self::Killed
        );
        let of_servers = matches!(self, Self::SlowClient | Self::SlowServer);
        of_clients || of_servers || (self.spares() && self != Self::Power)
    }
}

impl Plan {
    /// Moves of the store between two or three servers, from a sequence of their own.
    pub(crate) fn draw_store_moves(&mut self, rng: &mut Rng) {
        if !rng.chance(MOVES_PERMILLE) {
            return;
        }
        let kind = rng.chance(KIND_PERMILLE);
        let power_fails = kind && rng.chance(POWER_PERMILLE);
        self.faults.retain(|(_, fault)| {
            let beside = fault.kind().is_beside_moves();
            beside && (!kind || fault.kind().spares())
        });
        if kind {
            self.severe = false;
        }
        self.servers = rng.between(2, 3) as u32;
        let most_ns = self.server.lease_ns / 8;
        for _ in 0..rng.between(1, 5) {
            let at = self.fault_time(rng);
            let hops = rng.between(1, u64::from(self.servers) - 1) as u32;
            let again = rng.chance(700);
            for _ in 0..*rng.pick(&[0, 1, 1, 2]) {
                let keep = power_fails.then(|| power(rng).1);
                let cut = Cut::draw(rng, keep, most_ns);
                self.faults.push((at, Fault::CutMove { cut }));
            }
            self.faults.push((at + 1, Fault::Move { hops, again }));
        }
        if rng.chance(300) {
            let (at, ns) = (self.fault_time(rng), rng.between(1, most_ns));
            self.faults.push((at, Fault::Database { ns }));
        }
        if rng.chance(300) {
            let (at, ns) = (self.fault_time(rng), rng.between(1, most_ns));
            let server = rng.below(u64::from(self.servers)) as u32;
            self.faults.push((at, Fault::Paused { server, ns }));
        }
    }
}
