//! The draws of a seed: sizes, limits, delays, the mix of operations and the faults. Each seed
//! draws its own, so that small limits and rare mixes are met all the time.

use crate::atlas::Fault;
use crate::inject::{DiskStrike, Strike};
use crate::lending::Neighbours;
use crate::rng::Rng;
use crate::weather::Weather;
use wire::{Limits, Time};

const MS: Time = 1_000_000;
/// Of a thousand seeds, so many are large worlds.
const LARGE_PERMILLE: u64 = 125;

/// How large the worlds are. Small ones are drawn from smaller ranges, so that many more of them
/// are seen in a second, and their few calls meet the faults and the limits more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// One seed in eight is a large world.
    #[default]
    Mixed,
    /// All are small.
    Small,
    /// All are large.
    Large,
}

impl Size {
    /// Is the world of this seed small?
    pub(crate) fn is_small(self, seed: u64) -> bool {
        match self {
            // A sequence of its own: the seed's other draws do not depend on it.
            Self::Mixed => !Rng::new(seed.rotate_left(32)).chance(LARGE_PERMILLE),
            Self::Small => true,
            Self::Large => false,
        }
    }
}

/// Operations that programs do; the weights of a plan are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Open,
    Create,
    Read,
    Write,
    Append,
    Close,
    Stat,
    FStat,
    Unlink,
    Rename,
    Link,
    Mkdir,
    Rmdir,
    List,
    Truncate,
    Chmod,
    Sync,
    Load,
    Zero,
    Copy,
    Nameless,
    StableWrite,
    StatDir,
    ChmodDir,
    SetLabel,
    GetLabel,
    MoveDir,
    Exchange,
    Store,
}

/// All of them.
pub(crate) const KINDS: [Kind; 29] = [
    Kind::Open,
    Kind::Create,
    Kind::Read,
    Kind::Write,
    Kind::Append,
    Kind::Close,
    Kind::Stat,
    Kind::FStat,
    Kind::Unlink,
    Kind::Rename,
    Kind::Link,
    Kind::Mkdir,
    Kind::Rmdir,
    Kind::List,
    Kind::Truncate,
    Kind::Chmod,
    Kind::Sync,
    Kind::Load,
    Kind::Zero,
    Kind::Copy,
    Kind::Nameless,
    Kind::StableWrite,
    Kind::StatDir,
    Kind::ChmodDir,
    Kind::SetLabel,
    Kind::GetLabel,
    Kind::MoveDir,
    Kind::Exchange,
    Kind::Store,
];

/// Those that most worlds have: the others are drawn apart, so that a world without them is the
/// one that its seed has always meant.
const USUAL_KINDS: usize = 18;
/// Behind these, those about directories themselves.
const FILE_KINDS: usize = 22;
/// Behind these come those of extended attributes.
const DIRECTORY_KINDS: usize = 24;
/// Behind these, those that move directories, and exchange names.
const LABEL_KINDS: usize = 26;

/// Everything that a seed fixes.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: u32,
    pub(crate) programs: u32,
    pub(crate) operations: u32,
    pub(crate) weights: [u64; KINDS.len()],
    pub(crate) names: u64,
    pub(crate) dirs: u64,
    /// Are there directories in directories? And does each machine mostly use one of its own?
    pub(crate) deep: bool,
    pub(crate) homes: bool,
    pub(crate) units: u64,
    pub(crate) think_ns: Time,
    pub(crate) notify_ns: Time,
    pub(crate) kernel_ns: Time,
    pub(crate) press_ns: Time,
    pub(crate) weather: Weather,
    pub(crate) client: logic::client::Options,
    pub(crate) server: logic::server::Options,
    /// About how long the programs run: the time in which faults happen.
    pub(crate) span_ns: Time,
    pub(crate) small: bool,
    pub(crate) faults: Vec<(Time, Fault)>,
    /// Do long silences and vanishing machines belong to this world?
    pub(crate) severe: bool,
    /// How much faster than the world's the clocks run, millionths: the server's, the clients'.
    pub(crate) drift_ppm: [i64; CLOCKS],
    /// Of each machine so many programs lock, and do so many things each.
    pub(crate) lockers: u32,
    pub(crate) locks: u32,
    /// On each machine so many watch.
    pub(crate) watches: u32,
    /// From each machine so many snapshots are made.
    pub(crate) snapshots: u32,
    /// Of a thousand calls, so many callers are killed, or handle a signal, within this time.
    pub(crate) signals: (u64, Time),
    /// The volume may have only so much.
    pub(crate) limits: Option<Limits>,
    /// So many servers: the store moves between them.
    pub(crate) servers: u32,
    /// Clients lend blocks to each other, like this.
    pub(crate) neighbours: Option<Neighbours>,
    /// A further fault, and its message: no seed draws it.
    pub(crate) strike: Option<(Strike, u32)>,
    /// The same of a call of the server's disk.
    pub(crate) disk_strike: Option<(DiskStrike, u32)>,
}

/// Clocks of a world; machines beyond these share them.
pub(crate) const CLOCKS: usize = 6;

impl Plan {
    /// Draws everything that a seed fixes beforehand.
    pub(crate) fn draw(seed: u64, size: Size) -> Self {
        let mut plan = Self::draw_usual(&mut Rng::new(seed), size.is_small(seed));
        plan.draw_rarities(&mut Rng::new(!seed));
        plan.draw_mute(&mut Rng::new(seed.rotate_left(16)));
        plan.draw_trouble(&mut Rng::new(!seed.rotate_left(16)));
        plan.draw_liar(&mut Rng::new(seed.rotate_left(48)));
        plan.draw_kills(&mut Rng::new(seed.rotate_left(12)));
        plan.draw_ranges(&mut Rng::new(!seed.rotate_left(8)));
        plan.draw_rot(&mut Rng::new(!seed.rotate_left(48)));
        plan.draw_locks(&mut Rng::new(seed.rotate_left(8)));
        plan.draw_watches(&mut Rng::new(!seed.rotate_left(24)));
        plan.draw_walks(&mut Rng::new(seed.rotate_left(40)));
        plan.draw_directories(&mut Rng::new(!seed.rotate_left(40)));
        plan.draw_labels(&mut Rng::new(seed.rotate_left(24)));
        plan.draw_moves(&mut Rng::new(!seed.rotate_left(56)));
        plan.draw_signals(&mut Rng::new(!seed.rotate_left(32)));
        plan.draw_stores(&mut Rng::new(seed.rotate_left(56)));
        plan.draw_ends(seed);
        plan.draw_regrants(&mut Rng::new(seed.rotate_left(44)));
        plan.draw_memory(&mut Rng::new(!seed.rotate_left(12)));
        plan.draw_neighbours(&mut Rng::new(!seed.rotate_left(4)));
        plan.draw_store_moves(&mut Rng::new(!seed.rotate_left(36)));
        plan.draw_snapshots(&mut Rng::new(seed.rotate_left(20)));
        plan.draw_limits(&mut Rng::new(!seed.rotate_left(20)));
        plan.draw_turns(&mut Rng::new(seed.rotate_left(28)));
        plan
    }

    /// Programs that read and write one file in turns, in one world of five. Bytes travel long, so
    /// that what is asked of a token and granted again overtakes them.
    fn draw_turns(&mut self, rng: &mut Rng) {
        if !rng.chance(200) {
            return;
        }
        (self.names, self.dirs) = (1, 0);
        // Each block is asked for, instead of coming with a look-up.
        self.client.ahead_bytes = 0;
        self.weather.bulk_ns = *rng.pick(&[10 * MS, 30 * MS, 100 * MS]);
        self.weather.jitter_ns = *rng.pick(&[5_000, 100_000]);
        self.think_ns = *rng.pick(&[0, 20_000, MS]);
        for kind in [Kind::Open, Kind::Read, Kind::Write, Kind::Close] {
            self.weights[kind as usize] = *rng.pick(&[60, 200, 400]);
        }
    }

    /// Clients that lend to each other, in one world of five.
    fn draw_neighbours(&mut self, rng: &mut Rng) {
        if rng.chance(200) {
            self.neighbours = Some(Neighbours::draw(rng));
            self.client.lends = logic::client::Lends::Idle;
            // Bytes that come with look-ups need not be asked for.
            self.client.ahead_bytes = *rng.pick(&[0, 0, 0, self.client.ahead_bytes]);
            self.weights[Kind::Read as usize] *= 3;
            self.server.hints = *rng.pick(&[2, 16, 1 << 20]);
            self.server.reread_files = *rng.pick(&[None, None, Some(1), Some(1 << 16)]);
            let keeps = self
                .neighbours
                .as_ref()
                .is_some_and(|n| n.policy.keeping().is_some());
            if keeps && rng.chance(700) {
                self.draw_small_caches(rng);
            }
        }
    }

    /// Operations on ranges of files, and files without a name, in one world of four.
    fn draw_ranges(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            for weight in &mut self.weights[USUAL_KINDS..FILE_KINDS] {
                *weight = *rng.pick(&[0, 10, 10, 50]);
            }
        }
    }

    /// Attributes of directories, in one world of three.
    fn draw_directories(&mut self, rng: &mut Rng) {
        if rng.chance(333) {
            for weight in &mut self.weights[FILE_KINDS..DIRECTORY_KINDS] {
                *weight = *rng.pick(&[5, 20, 50]);
            }
        }
    }

    /// Extended attributes, in one world of four.
    fn draw_labels(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            for weight in &mut self.weights[DIRECTORY_KINDS..LABEL_KINDS] {
                *weight = *rng.pick(&[10, 30, 60]);
            }
        }
    }

    /// Directories in directories, which are moved, and names that are exchanged, in one world of
    /// five.
    fn draw_moves(&mut self, rng: &mut Rng) {
        if rng.chance(200) {
            self.deep = true;
            self.homes = rng.chance(500);
            self.dirs = rng.between(1, 2);
            self.weights[LABEL_KINDS] = *rng.pick(&[20, 60, 120]);
            self.weights[LABEL_KINDS + 1] = *rng.pick(&[0, 10, 40]);
            for kind in [Kind::Mkdir, Kind::Rmdir] {
                let weight = &mut self.weights[kind as usize];
                *weight = *rng.pick(&[*weight, 20, 60]);
            }
            if self.homes {
                self.weights[Kind::Mkdir as usize] = 200;
                self.weights[LABEL_KINDS] = 200;
            }
        }
    }

    /// In one world of three programs are killed, or handle signals.
    fn draw_signals(&mut self, rng: &mut Rng) {
        if rng.chance(333) {
            let within = *rng.pick(&[self.kernel_ns, MS, 10 * MS, 300 * MS]);
            self.signals = (*rng.pick(&[20, 100, 400]), within);
        }
    }

    /// When a signal comes to a caller, if one does, and whether it ends the caller.
    pub(crate) fn signal(&self, rng: &mut Rng) -> Option<(Time, bool)> {
        let (permille, within) = self.signals;
        (permille > 0 && rng.chance(permille)).then(|| (rng.below(within), rng.chance(700)))
    }

    /// Stores through shared mappings, in one world of four.
    fn draw_stores(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            self.weights[Kind::Store as usize] = *rng.pick(&[10, 30, 90]);
        }
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.weights[DIRECTORY_KINDS] > 0
    }

    /// How long changes in delegated directories are kept: not drawn either.
    fn keep_ns(lease_ns: u64) -> Option<u64> {
        [None, Some(0), Some(5 * MS), Some(300 * MS)][(lease_ns / MS / 4 % 4) as usize]
    }

    fn draw_usual(rng: &mut Rng, small: bool) -> Self {
        let of = |small_one: u64, large_one: u64| if small { small_one } else { large_one };
        let clients = rng.between(2, of(3, 4)) as u32;
        let calm = rng.chance(400);
        // Everybody wants the same few files.
        let hot = rng.chance(300);
        let severe = !calm && rng.chance(400);
        let resend_ns = rng.between(of(10, 20), of(90, 200)) * MS;
        let lease_ns = rng.between(of(300, 600), of(1_000, 3_000)) * MS;
        let client = logic::client::Options {
            slots: rng.between(16, of(24, 64)) as u32,
            least_slots: 3,
            write_delay_ns: rng.between(of(1, 5), of(100, 1_000)) * MS,
            scan_ns: rng.between(of(1, 2), of(30, 200)) * MS,
            // Not drawn, so that the other worlds stay what they were.
            objects: [6, 1 << 20, 1 << 20, 1 << 20][(lease_ns / MS % 4) as usize],
            later_ns: resend_ns,
            batch_blocks: rng.between(1, 8) as u32,
            ahead_bytes: *rng.pick(&[0, 1024, 65_536]),
            // Drawn apart, so that the other worlds stay what they were.
            walk_entries: 0,
            walk_misses: 1,
            walk_pause_ns: MS,
            passing_bytes: *rng.pick(&[1024, 8192, u32::MAX]),
            keep_ns: Self::keep_ns(lease_ns),
            lend_limits: crate::lending::limits(lease_ns),
            ..logic::client::Options::default()
        };
        let server = server_options(rng, lease_ns, small);
        let mut plan = Self {
            clients,
            programs: rng.between(1, of(2, 3)) as u32,
            operations: rng.between(of(6, 20), of(40, 90)) as u32,
            weights: weights(rng),
            names: if hot { 1 } else { rng.between(1, of(2, 3)) },
            deep: false,
            homes: false,
            dirs: if hot { 0 } else { rng.below(of(2, 3)) },
            units: rng.between(1, of(8, 24)),
            think_ns: *rng.pick(&[0, 20_000, MS, 5 * MS, 20 * MS]),
            notify_ns: *rng.pick(&[5_000, 50_000, 400_000, 2 * MS]),
            kernel_ns: *rng.pick(&[2_000, 20_000, 60_000]),
            press_ns: *rng.pick(&[MS, 10 * MS, 500 * MS]),
            weather: Weather::draw(rng, calm),
            client,
            server,
            span_ns: 500 * MS,
            small,
            faults: Vec::new(),
            severe,
            drift_ppm: [0; CLOCKS],
            lockers: 0,
            locks: 0,
            watches: 0,
            snapshots: 0,
            signals: (0, 0),
            limits: None,
            servers: 1,
            neighbours: None,
            strike: None,
            disk_strike: None,
        };
        if small {
            plan.span_ns = 10 * MS + u64::from(plan.operations) * plan.usual_ns();
        }
        if !calm {
            plan.draw_faults(rng);
        }
        plan
    }

    /// In one world of four programs lock.
    fn draw_locks(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            self.lockers = rng.between(1, 2) as u32;
            self.locks = rng.between(4, if self.small { 16 } else { 40 }) as u32;
            self.server.lock_run = *rng.pick(&[0, 1, 1, 2, 4]);
            self.client.lock_idle_ns = rng.between(1, 200) * MS;
        }
    }

    /// In one world of four somebody watches.
    fn draw_watches(&mut self, rng: &mut Rng) {
        if rng.chance(250) {
            self.watches = rng.between(1, 2) as u32;
            self.server.watches = rng.between(1, 2) as usize;
            self.server.watch_changes = *rng.pick(&[1, 2, 4, 1000]);
            self.server.watch_bytes = *rng.pick(&[1, 500, 16 << 20]);
            self.server.look_ns = *rng.pick(&[MS, 10 * MS, 100 * MS]);
        }
    }

    /// In half of the worlds clients look ahead in directories that programs walk through.
    fn draw_walks(&mut self, rng: &mut Rng) {
        // Longer than a kernel takes to take anything in.
        self.client.still_ns = MS;
        if rng.chance(500) {
            self.client.walk_entries = *rng.pick(&[1, 2, 4, 64]);
            self.client.walk_misses = rng.between(1, 3) as u32;
            self.client.walk_pause_ns = *rng.pick(&[MS, 10 * MS, 1000 * MS]);
            self.client.still_ns = *rng.pick(&[MS, 2 * MS, 10 * MS]);
        }
    }

    /// How much faster than the world's a machine's clock runs, millionths; 0: the server's.
    pub(crate) fn drift(&self, machine: u32) -> i64 {
        self.drift_ppm[machine as usize % CLOCKS]
    }

    /// When a fault happens, after the programs have begun.
    pub(crate) fn fault_time(&self, rng: &mut Rng) -> Time {
        if self.small {
            rng.between(MS, self.span_ns)
        } else {
            rng.between(10, 600) * MS
        }
    }

    /// About how long an operation takes that asks the server, and the pause before it.
    fn usual_ns(&self) -> Time {
        let weather = &self.weather;
        self.think_ns / 2
            + 2 * weather.base_ns
            + weather.jitter_ns
            + weather.bulk_ns / 2
            + 2 * self.kernel_ns
    }

    /// How long the kernel takes to hand a request over or to digest an answer.
    pub(crate) fn kernel_delay(&self, rng: &mut Rng) -> Time {
        let most = if rng.chance(50) {
            3 * self.kernel_ns
        } else {
            self.kernel_ns
        };
        rng.between(500, most.max(1_000))
    }

    /// How long it takes until a notification is written.
    pub(crate) fn notify_delay(&self, rng: &mut Rng) -> Time {
        rng.between(500, self.notify_ns)
    }
}

/// No world lasts as long.
const MONTH: Time = 30 * 24 * 3_600_000 * MS;

fn server_options(rng: &mut Rng, lease_ns: Time, small: bool) -> logic::server::Options {
    let (soonest_ms, latest_ms, linger_ms) = if small { (10, 90, 60) } else { (20, 200, 300) };
    logic::server::Options {
        lease_ns,
        grace_ns: lease_ns,
        recall_ns: 60_000 * MS,
        resend_ns: rng.between(soonest_ms, latest_ms) * MS,
        linger_ns: rng.between(0, linger_ms) * MS,
        // Not drawn, so that the other worlds stay what they were.
        names_at_once: [1, 4, 4, 4][(lease_ns / MS / 16 % 4) as usize],
        gathered_at_once: [4096, 1, 4096, 3][(lease_ns / MS / 2 % 4) as usize],
        silent_ns: [3 * lease_ns, MONTH, lease_ns + 1, MONTH][(lease_ns / MS / 4 % 4) as usize],
        locks: 1000,
        mutant: None,
        ..logic::server::Options::default()
    }
}

/// Each operation is as likely as any, unless the seed has more or none of it.
fn weights(rng: &mut Rng) -> [u64; KINDS.len()] {
    let mut weights = [0; KINDS.len()];
    for (weight, kind) in weights.iter_mut().zip(KINDS).take(USUAL_KINDS) {
        let usual = match kind {
            Kind::Open => 20,
            Kind::Read | Kind::Write => 25,
            Kind::Append | Kind::Stat | Kind::Close => 12,
            Kind::Create => 10,
            Kind::FStat | Kind::Load => 8,
            Kind::Mkdir | Kind::Rmdir => 2,
            _ => 5,
        };
        *weight = match rng.below(8) {
            0 => 0,
            1 => usual * 5,
            _ => usual,
        };
    }
    weights[0] = weights[0].max(10);
    weights
}
