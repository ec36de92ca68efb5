//! The traces that algorithms are judged on, each from a few stated parameters and a seed, with the
//! fleet that it is for. `docs/reproduction/cooperative.md` says what the two traces of the paper
//! are matched against.

mod build;
mod start;
mod train;

use crate::access::{Access, Builder, Trace};
use crate::generate::{Depths, Generator, Model};

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// The Sprite traces 5 and 6 of the paper: 42 clients for two days.
    Sprite,
    /// The snooped trace of the paper, as it was before the clients' own hits were lost.
    Snooped,
    /// The Sprite trace, and a machine that reads everything there is twice a day.
    Scan,
    /// A farm of compilers.
    Build,
    /// Containers that start all over a fleet.
    Start,
    /// Machines that train on a set of samples which is larger than all their memory.
    Train,
}

/// The fleet that a workload is for. Memory is counted in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// How many clients.
    pub clients: u16,
    /// The memory of each.
    pub client_blocks: usize,
    /// The memory of the server.
    pub server_blocks: usize,
    /// Accesses in the trace.
    pub accesses: usize,
    /// Of them, so many warm the caches.
    pub warm: usize,
}

/// Blocks of all workloads, as in the paper.
pub const BLOCK_BYTES: u32 = 8192;

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 6] = [
        Workload::Sprite,
        Workload::Snooped,
        Workload::Scan,
        Workload::Build,
        Workload::Start,
        Workload::Train,
    ];

    /// The word for it in options and reports.
    pub fn word(self) -> &'static str {
        match self {
            Workload::Sprite => "sprite",
            Workload::Snooped => "snooped",
            Workload::Scan => "scan",
            Workload::Build => "build",
            Workload::Start => "start",
            Workload::Train => "train",
        }
    }

    /// Its description, in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Workload::Sprite => "the paper's Sprite traces 5 and 6",
            Workload::Snooped => "the paper's snooped trace, with the clients' own hits",
            Workload::Scan => "the Sprite trace, and a machine that reads everything now and then",
            Workload::Build => "compilers on 24 machines",
            Workload::Start => "containers that start on 64 machines",
            Workload::Train => "16 machines that train on a set larger than their memory",
        }
    }

    /// Its fleet.
    pub fn size(self) -> Size {
        let size = |clients, client_blocks, server_blocks, accesses, warm| Size {
            clients,
            client_blocks,
            server_blocks,
            accesses,
            warm,
        };
        match self {
            Workload::Sprite => size(42, 2048, 16_384, 700_000, 400_000),
            Workload::Snooped => size(237, 2048, 16_384, 4_000_000, 1_000_000),
            Workload::Scan => size(43, 2048, 16_384, 1_000_000, 400_000),
            Workload::Build => size(24, 2048, 8192, 1_000_000, 400_000),
            Workload::Start => size(64, 2048, 4096, 1_000_000, 400_000),
            Workload::Train => size(16, 2048, 8192, 480_000, 160_000),
        }
    }

    /// Its accesses.
    pub fn accesses(self, seed: u64) -> Box<dyn Iterator<Item = Access>> {
        let size = self.size();
        let all = size.accesses;
        match self {
            Workload::Sprite => Box::new(Generator::new(sprite(seed), all as u64).take(all)),
            Workload::Snooped => Box::new(Generator::new(snooped(seed), all as u64).take(all)),
            Workload::Scan => Box::new(scan(seed, all).take(all)),
            Workload::Build => Box::new(build::Farm::new(size.clients, seed).take(all)),
            Workload::Start => Box::new(start::Starts::new(size.clients, seed).take(all)),
            Workload::Train => Box::new(train::Epochs::new(size.clients, seed).take(all)),
        }
    }

    /// Its trace, ready to be replayed.
    pub fn trace(self, seed: u64) -> Trace {
        let mut builder = Builder::new(BLOCK_BYTES);
        for access in self.accesses(seed) {
            builder
                .push(&access)
                .expect("workloads are smaller than the limits");
        }
        builder.finish()
    }
}

/// Parameters under which the hit rates that the paper reports of the Sprite traces come out.
pub fn sprite(seed: u64) -> Model {
    let depths = |chance, from, to| Depths { chance, from, to };
    Model {
        clients: 42,
        skew: 1.1,
        turn: 100.0,
        shifts: 48,
        on_shift: 0.6,
        own: vec![
            depths(0.39, 1.0, 400.0),
            depths(0.155, 400.0, 2048.0),
            depths(0.24, 3900.0, 12_000.0),
        ],
        fleet: depths(0.08, 3000.0, 100_000.0),
        write: 0.08,
        make: 0.55,
        delete: 0.3,
        size_log: 0.5,
        size_deviation: 1.0,
        size_limit: 256,
        whole: 0.8,
        // Two days for 700,000 accesses.
        pace_us: 246_857,
        seed,
    }
}

/// The same for the snooped trace: six times as many clients for six days, each with its own
/// files more than with those of others.
pub fn snooped(seed: u64) -> Model {
    let depths = |chance, from, to| Depths { chance, from, to };
    Model {
        clients: 237,
        skew: 0.9,
        turn: 100.0,
        shifts: 144,
        on_shift: 0.5,
        own: vec![
            depths(0.60, 1.0, 400.0),
            depths(0.13, 400.0, 2048.0),
            depths(0.12, 3900.0, 12_000.0),
        ],
        fleet: depths(0.05, 10_000.0, 300_000.0),
        write: 0.08,
        make: 0.8,
        delete: 0.3,
        size_log: 0.5,
        size_deviation: 1.0,
        size_limit: 256,
        whole: 0.8,
        // Six days.
        pace_us: 129_600,
        seed,
    }
}

/// So many accesses of the Sprite trace pass between two scans ...
const SCAN_EVERY: usize = 200_000;
/// ... and so many blocks a scan reads, in files of this many.
const SCAN_BLOCKS: u32 = 120_000;
const SCAN_FILE: u32 = 24;

/// The Sprite trace with a machine that reads a large tree from end to end, over and over.
fn scan(seed: u64, all: usize) -> impl Iterator<Item = Access> {
    let mut others = Generator::new(sprite(seed), all as u64);
    let mut at = 0;
    let mut scanned = u32::MAX;
    let mut time_us = 0;
    let mut beside = 0;
    std::iter::from_fn(move || {
        // The scan takes two accesses of three while it lasts.
        if scanned < SCAN_BLOCKS && beside < 2 {
            beside += 1;
            let access = Access {
                time_us,
                client: 42,
                op: crate::access::Op::Read,
                file: (1 << 40) + u64::from(scanned / SCAN_FILE),
                block: scanned % SCAN_FILE,
            };
            scanned += 1;
            return Some(access);
        }
        beside = 0;
        at += 1;
        if at % SCAN_EVERY == 0 {
            scanned = 0;
        }
        let access = others.next()?;
        time_us = access.time_us;
        Some(access)
    })
}

/// Lots for workloads.
struct Lots(u64);

impl Lots {
    fn new(seed: u64, of: u64) -> Self {
        Self(wire::mix64(seed ^ wire::mix64(of)))
    }

    fn below(&mut self, bound: u64) -> u64 {
        wire::splitmix64(&mut self.0) % bound.max(1)
    }

    /// From 0 to 1, without 1.
    fn part(&mut self) -> f64 {
        (wire::splitmix64(&mut self.0) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A place below `bound`; the first ones are likelier, as Zipf's law has it.
    fn popular(&mut self, bound: u64) -> u64 {
        let lot = self.part();
        ((bound as f64).powf(lot) as u64 - 1).min(bound - 1)
    }
}

/// The next accesses of a workload, a run of blocks at a time.
#[derive(Default)]
struct Runs {
    waiting: std::collections::VecDeque<(Access, u32)>,
    passed: u64,
}

impl Runs {
    fn push(&mut self, client: u64, op: crate::access::Op, file: u64, blocks: u32) {
        let access = Access {
            time_us: 0,
            client: client as u32,
            op,
            file,
            block: 0,
        };
        self.waiting.push_back((access, blocks.max(1)));
    }

    fn next(&mut self) -> Option<Access> {
        let (access, left) = self.waiting.front_mut()?;
        let now = Access {
            time_us: self.passed * 1000,
            ..*access
        };
        self.passed += 1;
        access.block += 1;
        *left -= 1;
        if *left == 0 {
            self.waiting.pop_front();
        }
        Some(now)
    }
}
