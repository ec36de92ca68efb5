//! Which worlds have snapshots, and which a volume that may have only so much; and what is promised
//! there.

use crate::plan::{Kind, Plan};
use crate::rng::Rng;
use wire::{Limits, Room};

impl Plan {
    /// A volume that may have only so much, in one world of six of those whose disk is sound.
    pub(crate) fn draw_limits(&mut self, rng: &mut Rng) {
        if rng.chance(160) && !self.power_fails() && !self.troubles().any() {
            self.limits = Some(Limits {
                bytes: rng.between(4, 24) << 11,
                objects: rng.between(12, 40),
            });
            // So that there is something to be given of that.
            self.server.room_least = Room {
                bytes: 4096,
                objects: 1,
            };
        }
    }

    /// Is what was answered never refused later? Stores through mappings wait for nobody,
    /// and a client that was silent for too long may have lost its room.
    pub(crate) fn keeps_room(&self) -> bool {
        let stores = self.weights[Kind::Store as usize] > 0;
        self.limits.is_some() && !stores && !self.severe && !self.loses_anybody()
    }

    /// Snapshots, in one world of four of those whose disk is sound and keeps all that was applied.
    pub(crate) fn draw_snapshots(&mut self, rng: &mut Rng) {
        if rng.chance(250) && !self.power_fails() && !self.troubles().any() {
            self.snapshots = rng.between(1, 3) as u32;
        }
    }
}
