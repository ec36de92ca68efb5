//! The ECD benchmark: edit, compile, link and debug, twice, under a window system (*Virtual Memory
//! vs. The File System*, table 1). Bytes of each phase are the paper's; how long each computes, and
//! how it uses its pages, is not in the paper, and is stated here.

use super::machine::{MS, Machine, PAGE, SECOND, pages};
use super::pools::{Counts, Division};
use wire::Time;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The accesses of a phase to a file.
struct Io {
    file: u32,
    bytes: u64,
    write: bool,
}

struct Phase {
    image: u64,
    /// So many hundredths of its image it uses at a time, from the beginning on to the end.
    hot: u64,
    computes: Time,
    io: &'static [Io],
}

const fn read(file: u32, bytes: u64) -> Io {
    let write = false;
    Io { file, bytes, write }
}

const fn write(file: u32, bytes: u64) -> Io {
    let write = true;
    Io { file, bytes, write }
}

const SOURCE: u32 = 1;
const HEADERS: u32 = 2;
const OBJECT: u32 = 3;
const OBJECTS: u32 = 4;
const KERNEL: u32 = 5;
const SYMBOLS: u32 = 6;

const PHASES: [Phase; 4] = [
    Phase {
        image: 560 * KIB,
        hot: 60,
        computes: 20 * SECOND,
        io: &[read(SOURCE, 35 * KIB), write(SOURCE, 35 * KIB)],
    },
    Phase {
        image: MIB,
        hot: 60,
        computes: 30 * SECOND,
        io: &[
            read(SOURCE, 35 * KIB),
            read(HEADERS, 600 * KIB),
            write(OBJECT, 165 * KIB),
        ],
    },
    Phase {
        image: 3 * MIB,
        hot: 50,
        computes: 50 * SECOND,
        io: &[
            read(OBJECT, 165 * KIB),
            read(OBJECTS, 4900 * KIB),
            write(KERNEL, 3 * MIB),
        ],
    },
    Phase {
        image: 8 * MIB + 512 * KIB,
        hot: 60,
        computes: 60 * SECOND,
        io: &[read(KERNEL, 3 * MIB), read(SYMBOLS, MIB)],
    },
];

/// The window system: used all the time, a little.
const WINDOWS: u64 = MIB + 512 * KIB;
/// A step of a program, and how many pages it uses in it.
const STEP: Time = 20 * MS;
const USES: u32 = 40;

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Seconds.
    pub(super) elapsed: f64,
    pub(super) counts: Counts,
}

impl Run {
    fn mib(pages: u64) -> f64 {
        (pages * PAGE) as f64 / MIB as f64
    }

    /// MiB that moved for programs' pages.
    pub(super) fn paged(&self) -> f64 {
        Self::mib(self.counts.page_ins + self.counts.page_outs)
    }

    /// MiB that moved for files.
    pub(super) fn filed(&self) -> f64 {
        Self::mib(self.counts.reads + self.counts.write_backs)
    }
}

pub(super) fn run(memory: u64, division: Division, seed: u64) -> Run {
    let mut machine = Machine::new(memory, division);
    let mut dice = seed;
    let mut draw = |below: u32| (wire::splitmix64(&mut dice) % u64::from(below.max(1))) as u32;
    let windows = pages(WINDOWS);
    let mut now = 0;
    for page in 0..windows {
        let cost = machine
            .pools
            .use_page(now, (0, page), page.is_multiple_of(2), true);
        now = machine.pay(now, cost, false);
    }
    let began = now;
    machine.pools.begin();
    for number in 0..8_u32 {
        let phase = &PHASES[number as usize % 4];
        let program = number + 1;
        let image = pages(phase.image);
        let hot = (u64::from(image) * phase.hot / 100) as u32;
        let steps = phase.computes / STEP;
        // The files are used evenly over the phase.
        let blocks: u64 = phase.io.iter().map(|io| u64::from(pages(io.bytes))).sum();
        let all = phase
            .io
            .iter()
            .flat_map(|io| (0..pages(io.bytes)).map(move |page| (io.file, page, io.write)));
        let mut left = all;
        let mut done = 0;
        for step in 0..steps {
            now = machine.compute(now, STEP);
            let begin = (u64::from(image - hot) * step / steps) as u32;
            for _ in 0..USES {
                let page = begin + draw(hot);
                let used = (program, page);
                let cost = machine
                    .pools
                    .use_page(now, used, page.is_multiple_of(2), true);
                now = machine.pay(now, cost, false);
            }
            let cost = machine.pools.use_page(now, (0, draw(windows)), false, true);
            now = machine.pay(now, cost, false);
            while done * steps < blocks * (step + 1)
                && let Some((file, page, write)) = left.next()
            {
                let cost = machine.pools.use_file(now, (file, page), write, write);
                now = machine.pay(now, cost, false);
                done += 1;
            }
            machine.tend(now);
        }
        machine.pools.end_program(program);
    }
    Run {
        elapsed: (now - began) as f64 / SECOND as f64,
        counts: machine.pools.counts,
    }
}
