//! Which worlds have machines whose memory others want.

use crate::atlas::{Fault, RARE_PERMILLE};
use crate::plan::{Kind, Plan};
use crate::rng::Rng;

impl Plan {
    /// Memory that others want, drawn from a sequence of its own: mostly all but the least,
    /// sometimes less of it.
    pub(crate) fn draw_memory(&mut self, rng: &mut Rng) {
        if !rng.chance(2 * RARE_PERMILLE) {
            return;
        }
        self.client.dirty_slots = *rng.pick(&[u32::MAX, u32::MAX, 4, 8]);
        if !self.deep && rng.chance(700) {
            self.fill_caches(rng);
        }
        for _ in 0..rng.between(1, 6) {
            let at = self.fault_time(rng);
            let host = rng.between(1, u64::from(self.clients)) as u32;
            let some = rng.between(1, u64::from(self.client.slots)) as u32;
            let slots = *rng.pick(&[0, 0, some]);
            let ns = rng.between(1, self.span_ns / 2);
            self.faults.push((at, Fault::Memory { host, slots, ns }));
        }
    }

    /// Caches that are too small for what programs read: blocks leave them.
    pub(crate) fn draw_small_caches(&mut self, rng: &mut Rng) {
        if !self.deep {
            self.fill_caches(rng);
        }
        self.client.ahead_bytes = 0;
        self.server.hints = 1 << 20;
        self.units = self.units.max(48);
        for (kind, most) in [(Kind::Open, 400), (Kind::Read, 900), (Kind::Write, 300)] {
            self.weights[kind as usize] = rng.between(100, most);
        }
        self.operations = self.operations.max(40);
        for host in 1..=self.clients {
            let slots = rng.between(1, 6) as u32;
            let (at, ns) = (rng.between(1, self.span_ns / 8), self.span_ns);
            self.faults.push((at, Fault::Memory { host, slots, ns }));
        }
    }

    /// Programs have files enough that caches fill: of one or two there are blocks for any memory.
    fn fill_caches(&mut self, rng: &mut Rng) {
        self.names = rng.between(3, 10);
        self.dirs = self.dirs.max(2);
        self.units = self.units.max(16);
        self.client.passing_bytes = u32::MAX;
        for kind in [Kind::Create, Kind::Write, Kind::Read] {
            self.weights[kind as usize] = rng.between(40, 120);
        }
        for kind in [Kind::Unlink, Kind::Truncate, Kind::Sync] {
            self.weights[kind as usize] = rng.between(0, 5);
        }
    }
}
