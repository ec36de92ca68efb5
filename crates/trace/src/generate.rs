//! Makes traces from a few stated parameters.
//!
//! A client works in turns; in a turn it accesses files, most of them whole and in order. Which one
//! comes next is drawn by its depth: how many blocks were used since its last use, by this client
//! or by the whole fleet. So the hit rate of a memory of any size is a parameter, as nearly as
//! files of many blocks allow, and how much clients share is another one.
//!
//! Guarantees: the same model gives the same trace.

use crate::access::{Access, Op};
use crate::stack::Stack;
use wire::{mix64, splitmix64};

/// Where the next file comes from: with this chance from depths between these, in blocks. Within
/// them each order of magnitude is as likely.
#[derive(Clone, Copy, Debug)]
pub struct Depths {
    /// The chance.
    pub chance: f64,
    /// The smallest depth.
    pub from: f64,
    /// The largest depth.
    pub to: f64,
}

/// The parameters.
#[derive(Clone, Debug)]
pub struct Model {
    /// How many clients.
    pub clients: u32,
    /// The activity of the n-th client falls as `n^-skew`.
    pub skew: f64,
    /// Accesses to files in a turn of a client, on average.
    pub turn: f64,
    /// The time is divided into so many shifts ...
    pub shifts: u32,
    /// ... and a client takes part in a shift with this chance.
    pub on_shift: f64,
    /// Files that the client itself has used.
    pub own: Vec<Depths>,
    /// Files that anybody has used. The rest of the chances up to 1 is for new files, also where
    /// nothing has been used at the depth that was drawn.
    pub fleet: Depths,
    /// The chance that an access to a known file writes it.
    pub write: f64,
    /// The chance that a new file is made by its client instead of read.
    pub make: f64,
    /// The chance that a file is removed after it was written.
    pub delete: f64,
    /// Blocks of a file: the logarithm has this mean ...
    pub size_log: f64,
    /// ... and this deviation.
    pub size_deviation: f64,
    /// The largest file, in blocks.
    pub size_limit: u32,
    /// The chance that a file is accessed from its beginning to its end; else a part of it is, in
    /// order.
    pub whole: f64,
    /// Microseconds between two accesses to blocks.
    pub pace_us: u64,
    /// Of all that is drawn by lot.
    pub seed: u64,
}

/// A trace in the making.
pub struct Generator {
    model: Model,
    lots: u64,
    activity: Vec<f64>,
    own: Vec<Stack>,
    fleet: Stack,
    sizes: Vec<u32>,
    client: u32,
    turn_left: u64,
    /// The file that is being accessed: its blocks from, to.
    run: (u32, u32, u32, Op),
    removes: bool,
    blocks: u64,
    expected: u64,
}

impl Generator {
    /// A trace of this model; its shifts divide `expected` accesses.
    pub fn new(model: Model, expected: u64) -> Self {
        let rank = |client: u32| mix64(u64::from(client) ^ model.seed);
        let mut order: Vec<u32> = (0..model.clients).collect();
        order.sort_by_key(|client| rank(*client));
        let mut activity = vec![0.0; order.len()];
        for (place, client) in order.iter().enumerate() {
            activity[*client as usize] = (place as f64 + 1.0).powf(-model.skew);
        }
        Self {
            lots: mix64(model.seed ^ 0x7472_6163_6573),
            own: order.iter().map(|_| Stack::default()).collect(),
            fleet: Stack::default(),
            sizes: Vec::new(),
            client: 0,
            turn_left: 0,
            run: (0, 0, 0, Op::Read),
            removes: false,
            blocks: 0,
            expected: expected.max(1),
            activity,
            model,
        }
    }

    /// From 0 to 1, without 1.
    fn lot(&mut self) -> f64 {
        (splitmix64(&mut self.lots) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, of: f64) -> bool {
        self.lot() < of
    }

    fn begin_turn(&mut self) {
        let shift = self.blocks * u64::from(self.model.shifts) / self.expected;
        let seed = self.model.seed;
        let on = |client: u32, part: f64| {
            let drawn = mix64(mix64(seed ^ (shift << 20)) ^ u64::from(client));
            ((drawn >> 11) as f64 / (1_u64 << 53) as f64) < part
        };
        let weight = |client: u32, part: f64| match on(client, part) {
            true => self.activity[client as usize],
            false => 0.0,
        };
        let sum_of = |part: f64| {
            (0..self.model.clients)
                .map(|c| weight(c, part))
                .sum::<f64>()
        };
        let mut part = self.model.on_shift;
        if sum_of(part) == 0.0 {
            part = 1.0;
        }
        let sum = sum_of(part);
        let mut drawn = (splitmix64(&mut self.lots) >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        for client in 0..self.model.clients {
            let weight = weight(client, part);
            if weight > 0.0 {
                self.client = client;
                if drawn < weight {
                    break;
                }
                drawn -= weight;
            }
        }
        let lot = 1.0 - self.lot();
        self.turn_left = (-lot.ln() * self.model.turn) as u64 + 1;
    }

    /// A depth between these.
    fn depth(&mut self, depths: Depths) -> u64 {
        let lot = self.lot();
        (depths.from * (depths.to / depths.from).powf(lot)) as u64
    }

    fn known(&mut self) -> Option<u32> {
        let mut lot = self.lot();
        let mut own = None;
        for at in 0..self.model.own.len() {
            let depths = self.model.own[at];
            if lot < depths.chance {
                let depth = self.depth(depths);
                own = Some(self.own[self.client as usize].at(depth));
                break;
            }
            lot -= depths.chance;
        }
        let fleet = self.model.fleet;
        match own {
            Some(file) => return file,
            None if lot >= fleet.chance => return None,
            None => {}
        }
        let depth = self.depth(fleet);
        self.fleet.at(depth)
    }

    fn new_file(&mut self) -> u32 {
        // Twelve lots make a normal deviate, near enough.
        let normal: f64 = (0..12).map(|_| self.lot()).sum::<f64>() - 6.0;
        let blocks = (self.model.size_log + normal * self.model.size_deviation).exp();
        self.sizes
            .push((blocks as u32).clamp(1, self.model.size_limit));
        self.sizes.len() as u32 - 1
    }

    fn begin_file(&mut self) {
        if self.turn_left == 0 {
            self.begin_turn();
        }
        self.turn_left -= 1;
        let (file, write) = match self.known() {
            Some(file) => (file, self.model.write),
            None => (self.new_file(), self.model.make),
        };
        let op = if self.chance(write) {
            Op::Write
        } else {
            Op::Read
        };
        let size = self.sizes[file as usize];
        let (mut from, mut to) = (0, size);
        if !self.chance(self.model.whole) {
            from = (self.lot() * f64::from(size)) as u32;
            to = from + 1 + (self.lot() * f64::from(size - from)) as u32;
        }
        self.run = (file, from, to.min(size), op);
        self.removes = op == Op::Write && self.chance(self.model.delete);
        self.own[self.client as usize].used(file, size);
        self.fleet.used(file, size);
    }
}

impl Iterator for Generator {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        let (file, from, to, op) = self.run;
        let time_us = self.blocks * self.model.pace_us;
        let access = |client, op, block| Access {
            time_us,
            client,
            op,
            file: u64::from(file),
            block,
        };
        if from < to {
            self.run.1 += 1;
            self.blocks += 1;
            return Some(access(self.client, op, from));
        }
        if std::mem::take(&mut self.removes) {
            self.fleet.remove(file);
            for own in &mut self.own {
                own.remove(file);
            }
            return Some(access(self.client, Op::Delete, 0));
        }
        self.begin_file();
        self.next()
    }
}
