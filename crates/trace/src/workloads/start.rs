//! Containers start: a machine reads what one image needs, always the same files in the same order,
//! and writes a little of its own. A few images start often; now and then one is replaced.

use super::{Lots, Runs};
use crate::access::{Access, Op};

const IMAGES: u64 = 60;
/// Files that a start reads, and blocks of each on average.
const FILES: u64 = 180;
const FILE_BLOCKS: u64 = 8;
/// Of the files, these many belong to all images of a base, of which there are so many.
const BASE_FILES: u64 = 60;
const BASES: u64 = 5;
/// So many starts later an image has a new version.
const NEW_VERSION: u64 = 25;
const LOG_BLOCKS: u32 = 8;

pub(super) struct Starts {
    clients: u64,
    lots: Lots,
    versions: Vec<u64>,
    starts: u64,
    runs: Runs,
}

impl Starts {
    pub(super) fn new(clients: u16, seed: u64) -> Self {
        Self {
            clients: u64::from(clients),
            lots: Lots::new(seed, 2),
            versions: vec![0; IMAGES as usize],
            starts: 0,
            runs: Runs::default(),
        }
    }

    fn start(&mut self) {
        self.starts += 1;
        if self.starts.is_multiple_of(NEW_VERSION) {
            let replaced = self.lots.below(IMAGES);
            self.versions[replaced as usize] += 1;
        }
        let (client, image) = (self.lots.below(self.clients), self.lots.popular(IMAGES));
        let version = self.versions[image as usize];
        for file in 0..FILES {
            let name = match file < BASE_FILES {
                true => (1 << 40) | (image % BASES) << 32 | file,
                false => (2 << 40) | image << 32 | version << 16 | file,
            };
            // The size of a file is one for ever.
            let blocks = 1 + wire::mix64(name) % (2 * FILE_BLOCKS - 1);
            self.runs.push(client, Op::Read, name, blocks as u32);
        }
        self.runs
            .push(client, Op::Write, (3 << 40) | self.starts, LOG_BLOCKS);
    }
}

impl Iterator for Starts {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        while self.runs.waiting.is_empty() {
            self.start();
        }
        self.runs.next()
    }
}
