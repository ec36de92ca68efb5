//! A farm of compilers: a job reads the compiler, a source and its headers, and writes an object;
//! the last job of a package reads all its objects, wherever they were made, and writes a program.
//! A package is built again after some of its sources have changed.

use super::{Lots, Runs};
use crate::access::{Access, Op};

const PACKAGES: u64 = 120;
const SOURCES: u64 = 60;
const HEADERS: u64 = 6000;
const HEADERS_OF_A_SOURCE: u64 = 25;
const COMPILERS: u64 = 6;
const COMPILER_BLOCKS: u32 = 300;
const PROGRAM_BLOCKS: u32 = 150;
/// Of all sources of a package, so many change before it is built again.
const CHANGED: u64 = 12;

pub(super) struct Farm {
    clients: u64,
    lots: Lots,
    /// The package that is being built, and its next source.
    package: u64,
    source: u64,
    builds: u64,
    runs: Runs,
}

fn blocks(name: u64, most: u64) -> u32 {
    (1 + wire::mix64(name) % most) as u32
}

impl Farm {
    pub(super) fn new(clients: u16, seed: u64) -> Self {
        Self {
            clients: u64::from(clients),
            lots: Lots::new(seed, 3),
            package: 0,
            source: SOURCES,
            builds: 0,
            runs: Runs::default(),
        }
    }

    fn job(&mut self) {
        if self.source >= SOURCES {
            self.link();
            self.package = self.lots.popular(PACKAGES);
            self.source = 0;
            self.change();
        }
        let client = self.lots.below(self.clients);
        let source = self.package * SOURCES + self.source;
        self.source += 1;
        let compiler = (1 << 40) | (self.package % COMPILERS);
        self.runs.push(client, Op::Read, compiler, COMPILER_BLOCKS);
        let name = (2 << 40) | source;
        self.runs.push(client, Op::Read, name, blocks(name, 6));
        for _ in 0..HEADERS_OF_A_SOURCE {
            let name = (3 << 40) | self.lots.popular(HEADERS);
            self.runs.push(client, Op::Read, name, blocks(name, 3));
        }
        let name = (4 << 40) | source;
        self.runs.push(client, Op::Write, name, blocks(name, 8));
    }

    fn link(&mut self) {
        self.builds += 1;
        let client = self.lots.below(self.clients);
        for source in 0..SOURCES {
            let name = (4 << 40) | (self.package * SOURCES + source);
            self.runs.push(client, Op::Read, name, blocks(name, 8));
        }
        let program = (5 << 40) | self.package;
        self.runs.push(client, Op::Write, program, PROGRAM_BLOCKS);
    }

    fn change(&mut self) {
        let client = self.lots.below(self.clients);
        for _ in 0..CHANGED {
            let name = (2 << 40) | (self.package * SOURCES + self.lots.below(SOURCES));
            self.runs.push(client, Op::Write, name, blocks(name, 6));
        }
    }
}

impl Iterator for Farm {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        while self.runs.waiting.is_empty() {
            self.job();
        }
        self.runs.next()
    }
}
