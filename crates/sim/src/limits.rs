//! Which worlds have snapshots, and which a volume that may have only so much; and what is promised
//! there.

use crate::atlas;
use crate::plan::{Kind, Plan};
use crate::rng::Rng;
use wire::{Limits, Room};

impl Plan {
    /// A volume that may have only so much, in one world of six of those whose disk is sound. A
    /// client that cannot write back what programs have stored in a mapping is taken for one that
    /// does not answer, where the server's patience is short.
    pub(crate) fn draw_limits(&mut self, rng: &mut Rng) {
        let kinds = self.kinds();
        let impatient = kinds.contains(&atlas::Kind::Mute) || kinds.contains(&atlas::Kind::Liar);
        let taken_for_mute = impatient && self.stores();
        let sound = !self.power_fails() && !self.troubles().any();
        if rng.chance(160) && sound && !taken_for_mute {
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
        self.limits.is_some() && !self.stores() && !self.severe && !self.loses_anybody()
    }

    /// Do programs store through mappings?
    fn stores(&self) -> bool {
        self.weights[Kind::Store as usize] > 0
    }

    /// May what programs have stored have to wait until the volume has room, and with it everybody
    /// who wants that file?
    pub(crate) fn is_cramped(&self) -> bool {
        self.limits.is_some() && self.stores()
    }

    /// Snapshots, in one world of four of those whose disk is sound and keeps all that was applied.
    pub(crate) fn draw_snapshots(&mut self, rng: &mut Rng) {
        if rng.chance(250) && !self.power_fails() && !self.troubles().any() {
            self.snapshots = rng.between(1, 3) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Size;

    #[test]
    fn nobody_who_waits_for_room_is_taken_for_mute() {
        let mut cramped = 0;
        for seed in 0..5_000 {
            let plan = Plan::draw(seed, Size::default());
            let kinds = plan.kinds();
            let of = |kind: atlas::Kind| kinds.contains(&kind);
            let impatient = of(atlas::Kind::Mute) || of(atlas::Kind::Liar);
            assert!(!(impatient && plan.is_cramped()), "{seed}");
            cramped += u32::from(plan.is_cramped());
        }
        assert!(cramped > 50, "{cramped}");
    }
}
