//! The IFS benchmark: an interactive program sleeps, and then uses 5.7 of 6.7 MB, of which it
//! changes a half, while Sort runs (Nelson, section 6.5).

use super::machine::{MS, Machine, PAGE, SECOND, pages};
use super::pools::{Counts, Division};
use wire::Time;

/// Bytes of the interactive program, and of Sort's memory.
const INTERACTIVE: u64 = 5_976_883;
const SORT: u64 = 760 << 10;
/// The interactive program's cost of a page that is in memory.
const GLANCE: Time = 40_000;
/// Sort alone takes 60 s, of which it computes so long at each of 1,350 blocks of 4 KiB.
const COMPUTES: Time = 42 * MS;
const SLICE: Time = 4 * MS;
/// Pages of Sort used at a block.
const USES: u32 = 12;
/// The passes of Sort: pages read, pages written, and whether what was read is removed then. In all
/// 2.7 MB each way.
const PASSES: [(u32, u32, bool); 3] = [(125, 125, false), (110, 110, true), (110, 110, true)];

const SORTS: u32 = 1;
const TOUCHES: u32 = 0;

/// The result of a run; times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) responses: Vec<f64>,
    pub(super) sort: f64,
    pub(super) counts: Counts,
}

impl Run {
    pub(super) fn average(&self) -> f64 {
        self.responses.iter().sum::<f64>() / self.responses.len().max(1) as f64
    }

    pub(super) fn least(&self) -> f64 {
        self.responses.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(super) fn most(&self) -> f64 {
        self.responses.iter().copied().fold(0.0, f64::max)
    }
}

/// The blocks that Sort uses, in their order: file, page, whether it writes, and whether it has
/// then done with a file.
fn blocks() -> Vec<(u32, u32, bool, Option<u32>)> {
    let mut all = Vec::new();
    for (pass, (reads, writes, removes)) in (0_u32..).zip(PASSES) {
        let longest = reads.max(writes);
        for page in 0..longest {
            for half in 0..2 {
                let last = page + 1 == longest && half == 1;
                let gone = (last && removes).then_some(pass);
                if page < reads {
                    all.push((pass, page, false, None));
                }
                if page < writes {
                    all.push((pass + 1, page, true, gone));
                }
            }
        }
    }
    all
}

/// The interactive program.
struct Interactive {
    sleep: Time,
    page: u32,
    woke: Time,
    at: Time,
    responses: Vec<f64>,
}

impl Interactive {
    fn step(&mut self, machine: &mut Machine) {
        let used = (TOUCHES, self.page);
        let cost = machine
            .pools
            .use_page(self.at, used, self.page.is_multiple_of(2), false);
        let now = machine.compute_first(self.at, GLANCE);
        self.at = machine.pay(now, cost, true);
        self.page += 1;
        if self.page == pages(INTERACTIVE) {
            self.responses
                .push((self.at - self.woke) as f64 / SECOND as f64);
            self.page = 0;
            self.woke = self.at + self.sleep;
            self.at = self.woke;
        }
    }
}

/// `sleep`: between two uses. `alone`: Sort has the machine for itself.
pub(super) fn run(memory: u64, division: Division, sleep: Time, alone: bool, seed: u64) -> Run {
    let mut machine = Machine::new(memory, division);
    let mut dice = seed;
    let mut now = 0;
    if !alone {
        for page in 0..pages(INTERACTIVE) {
            machine
                .pools
                .use_page(now, (TOUCHES, page), page % 2 == 0, false);
        }
    }
    now += SECOND;
    machine.pools.begin();
    let began = now;
    let first = if alone { Time::MAX } else { now + sleep };
    let mut interactive = Interactive {
        sleep,
        page: 0,
        woke: first,
        at: first,
        responses: Vec::new(),
    };
    for (file, page, write, gone) in blocks() {
        for _ in 0..COMPUTES / SLICE {
            while interactive.at <= now {
                interactive.step(&mut machine);
            }
            now = machine.compute(now, SLICE);
        }
        for _ in 0..USES {
            let page = (wire::splitmix64(&mut dice) % (SORT / PAGE)) as u32;
            let cost = machine.pools.use_page(now, (SORTS, page), true, false);
            now = machine.pay(now, cost, false);
        }
        let cost = machine.pools.use_file(now, (file, page), write, write);
        now = machine.pay(now, cost, false);
        if let Some(file) = gone {
            machine.pools.remove_file(file);
        }
        machine.tend(now);
    }
    Run {
        responses: interactive.responses,
        sort: (now - began) as f64 / SECOND as f64,
        counts: machine.pools.counts,
    }
}
