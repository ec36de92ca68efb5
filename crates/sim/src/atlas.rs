//! The fault atlas: what goes wrong in a world, what may come together, and what it may cost.
//!
//! One table, [`ATLAS`], from which worlds draw and by which the judge excuses. Other faults do not
//! happen; a loss that no line allows may not happen. `docs/simulation.md` shows the
//! same table.

use crate::disk::{Trouble, Troubles};
use crate::inject::Strike;
use crate::moving::Cut;
use crate::plan::Plan;
use crate::power::blackout;
use crate::rng::Rng;
use store::Keep;
use wire::Time;

const MS: Time = 1_000_000;

/// The directions of a link that are silent: to the server, to the client.
pub(crate) type Ways = [bool; 2];

/// Something that goes wrong at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing gets through on these ways of a client's link for a while.
    Silence { host: u32, ways: Ways, ns: Time },
    /// A client's link breaks and is made again after a while.
    Cut { host: u32, ns: Time },
    /// The server's process dies and is started again after a while.
    Server { ns: Time },
    /// A client's machine vanishes; another one takes its place after a while.
    Client { host: u32, ns: Time },
    /// A client's process is killed; its guard tells the server, and another mount takes its place.
    Killed { host: u32, ns: Time },
    /// All machines lose their power; the server's keeps this of what was not stable.
    Blackout { ns: Time, keep: Keep },
    /// The server's machine loses its power, keeps this of what was not stable, and is started
    /// again after a while. The clients live on.
    Power { ns: Time, keep: Keep },
    /// The server is lost. After more than a lease another one is there, as with replicas: it has
    /// the same files, knows no session, and its epochs begin where those of the lost one began.
    Replaced { ns: Time },
    /// A client is slow for a while: messages to it and its waking come later by this.
    SlowClient { host: u32, by_ns: Time, ns: Time },
    /// So is the server.
    SlowServer { by_ns: Time, ns: Time },
    /// A client answers nothing that it is asked for a while, and does everything else.
    Mute { host: u32, ns: Time },
    /// Something is wrong with the server's disk for a while.
    Disk { trouble: Trouble, ns: Time },
    /// A byte of the server's disk rots, so far (parts of a million) into what may; somebody has a
    /// copy, and puts it back when the server cannot start or when all is over.
    Rot { at_ppm: u32 },
    /// A machine that is not ours comes, and lies for a while.
    Liar { greedy: bool, ns: Time },
    /// A client's machine has memory for so few blocks for a while.
    Memory { host: u32, slots: u32, ns: Time },
    /// The rights of the clients' machine are said to be others: all that they cache is asked for.
    Regrant,
    /// Somebody moves the store to the server so many behind the one that has it, and `again`, if
    /// that fails.
    Move { hops: u32, again: bool },
    /// Something happens at a step of the next move that comes to it.
    CutMove { cut: Cut },
    /// The cell's database is out of reach for a while: a change that is asked for is made, or made
    /// later, or never.
    Database { ns: Time },
    /// A server does nothing for a while, and then goes on where it was.
    Paused { server: u32, ns: Time },
}

/// A line of the atlas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Loss,
    Repetition,
    Silence,
    LongSilence,
    OneWay,
    Cut,
    Restart,
    Vanish,
    Killed,
    Blackout,
    Power,
    Replaced,
    SlowClient,
    SlowServer,
    Drift,
    Mute,
    FullDisk,
    FullVolume,
    DiskErrors,
    Rot,
    Liar,
    Memory,
    Regrant,
    Move,
    CutMove,
    Database,
    Paused,
}

/// The costs that a fault may have. It may never cost anything that a fsync had answered for, make
/// a change twice or in part, or give an answer that was never true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs {
    /// Calls may take longer than the bound for quiet worlds.
    pub(crate) late: bool,
    /// A session may end: changes that its machine had not written back and made stable may be
    /// gone.
    pub(crate) session: bool,
    /// The latest changes that no fsync has answered for may be undone, of all machines.
    pub(crate) unsynced: bool,
}

/// The atlas's line for a kind.
pub(crate) struct Line {
    pub(crate) kind: Kind,
    pub(crate) costs: Costs,
}

const FREE: Costs = Costs {
    late: false,
    session: false,
    unsynced: false,
};
const LATE: Costs = Costs { late: true, ..FREE };
const SESSION: Costs = Costs {
    session: true,
    ..LATE
};
const UNSYNCED: Costs = Costs {
    unsynced: true,
    ..SESSION
};

const fn line(kind: Kind, costs: Costs) -> Line {
    Line { kind, costs }
}

/// Everything that is survived, and its price.
pub(crate) const ATLAS: [Line; 27] = [
    line(Kind::Loss, LATE),
    line(Kind::Repetition, FREE),
    line(Kind::Silence, LATE),
    line(Kind::LongSilence, SESSION),
    line(Kind::OneWay, LATE),
    line(Kind::Cut, LATE),
    // A restarted server may wait in vain for a machine that is cut off meanwhile.
    line(Kind::Restart, SESSION),
    line(Kind::Vanish, SESSION),
    line(Kind::Killed, SESSION),
    line(Kind::Blackout, UNSYNCED),
    // Nothing of what living clients were answered: they ask for it again.
    line(Kind::Power, LATE),
    line(Kind::Replaced, SESSION),
    line(Kind::SlowClient, LATE),
    line(Kind::SlowServer, LATE),
    line(Kind::Drift, FREE),
    // The session of the machine that is mute, and of no other: see `may_be_fenced`.
    line(Kind::Mute, SESSION),
    line(Kind::FullDisk, LATE),
    // Bytes stored in a mapping are kept until there is room.
    line(Kind::FullVolume, LATE),
    // A server whose disk cannot be written or synced stops, and is started again.
    line(Kind::DiskErrors, SESSION),
    // Programs are told so, and not what is not true.
    line(Kind::Rot, FREE),
    line(Kind::Liar, LATE),
    // Changed blocks are written back before they go.
    line(Kind::Memory, LATE),
    line(Kind::Regrant, LATE),
    // As a restart: for its clients the server is started again elsewhere.
    line(Kind::Move, SESSION),
    line(Kind::CutMove, SESSION),
    line(Kind::Database, LATE),
    line(Kind::Paused, LATE),
];

impl Fault {
    /// How long it lasts.
    pub(crate) fn length(self) -> Time {
        match self {
            Self::Silence { ns, .. }
            | Self::Cut { ns, .. }
            | Self::SlowClient { ns, .. }
            | Self::SlowServer { ns, .. }
            | Self::Mute { ns, .. }
            | Self::Disk { ns, .. }
            | Self::Liar { ns, .. }
            | Self::Memory { ns, .. }
            | Self::Database { ns }
            | Self::Paused { ns, .. } => ns,
            Self::CutMove { cut } => cut.length(),
            Self::Move { .. } => MOVE_NS,
            Self::Server { ns }
            | Self::Client { ns, .. }
            | Self::Killed { ns, .. }
            | Self::Blackout { ns, .. }
            | Self::Power { ns, .. }
            | Self::Replaced { ns } => ns + MS,
            Self::Rot { .. } | Self::Regrant => MS,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Silence { ways, .. } if ways != [true, true] => Kind::OneWay,
            Self::Silence { .. } => Kind::Silence,
            Self::Cut { .. } => Kind::Cut,
            Self::Server { .. } => Kind::Restart,
            Self::Client { .. } => Kind::Vanish,
            Self::Killed { .. } => Kind::Killed,
            Self::Blackout { .. } => Kind::Blackout,
            Self::Power { .. } => Kind::Power,
            Self::Replaced { .. } => Kind::Replaced,
            Self::SlowClient { .. } => Kind::SlowClient,
            Self::SlowServer { .. } => Kind::SlowServer,
            Self::Mute { .. } => Kind::Mute,
            Self::Disk { trouble, .. } => match trouble {
                Trouble::Full { .. } => Kind::FullDisk,
                Trouble::Errors(_) => Kind::DiskErrors,
            },
            Self::Rot { .. } => Kind::Rot,
            Self::Liar { .. } => Kind::Liar,
            Self::Memory { .. } => Kind::Memory,
            Self::Regrant => Kind::Regrant,
            Self::Move { .. } => Kind::Move,
            Self::CutMove { .. } => Kind::CutMove,
            Self::Database { .. } => Kind::Database,
            Self::Paused { .. } => Kind::Paused,
        }
    }

    /// May the server hear nothing of a client meanwhile?
    fn hushes(self) -> bool {
        matches!(self, Self::Silence { .. } | Self::Cut { .. })
    }
}

impl Plan {
    /// Which lines of the atlas this world is about.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.faults.iter().map(|(_, fault)| fault.kind()).collect();
        let hushed: Time = self
            .faults
            .iter()
            .filter(|(_, fault)| fault.hushes())
            .map(|(_, fault)| fault.length())
            .sum();
        // A client is heard of every quarter of its lease at the latest.
        if hushed > self.server.lease_ns / 2 {
            kinds.push(Kind::LongSilence);
        }
        if self.weather.loss_permille > 0 {
            kinds.push(Kind::Loss);
        }
        if self.weather.repeat_permille > 0 {
            kinds.push(Kind::Repetition);
        }
        kinds.extend(self.strike.map(|(strike, _)| match strike {
            Strike::Repeat => Kind::Repetition,
            Strike::Cut => Kind::Cut,
            Strike::Restart => Kind::Restart,
            Strike::Vanish => Kind::Vanish,
            Strike::Kill => Kind::Killed,
        }));
        if self.disk_strike.is_some() {
            kinds.push(Kind::DiskErrors);
        }
        if self.drift_ppm.iter().any(|&ppm| ppm != 0) {
            kinds.push(Kind::Drift);
        }
        if self.is_cramped() {
            kinds.push(Kind::FullVolume);
        }
        kinds
    }

    /// The costs that all of it together may have.
    pub(crate) fn costs(&self) -> Costs {
        self.costs_of(&self.kinds())
    }

    /// May this machine lose its session? A mute one costs no other's.
    pub(crate) fn may_be_fenced(&self, host: Option<u32>) -> bool {
        let mute =
            |fault: &Fault| matches!(fault, Fault::Mute { host: at, .. } if Some(*at) == host);
        self.faults.iter().any(|(_, fault)| mute(fault)) || self.loses_anybody()
    }

    /// May machines that answer lose their sessions too?
    pub(crate) fn loses_anybody(&self) -> bool {
        let mut kinds = self.kinds();
        kinds.retain(|kind| *kind != Kind::Mute);
        self.costs_of(&kinds).session
    }

    fn costs_of(&self, kinds: &[Kind]) -> Costs {
        let mut all = Costs::default();
        for line in ATLAS.iter().filter(|line| kinds.contains(&line.kind)) {
            all.late |= line.costs.late;
            all.session |= line.costs.session;
            all.unsynced |= line.costs.unsynced;
        }
        // Clients that are there in time lose nothing by a restart, here or elsewhere.
        let restarts = [Kind::Power, Kind::Move]
            .iter()
            .any(|kind| kinds.contains(kind));
        all.session &= !restarts || !kinds.iter().all(|kind| kind.spares());
        all
    }

    /// The troubles of the disk.
    pub(crate) fn troubles(&self) -> Troubles {
        let mut all = Troubles {
            limits: self.limits,
            ..Troubles::default()
        };
        for (_, fault) in &self.faults {
            match fault {
                Fault::Disk { trouble, .. } => trouble.note(&mut all),
                Fault::Rot { .. } => all.rot = true,
                _ => {}
            }
        }
        if let Some((strike, call)) = self.disk_strike {
            Trouble::strike(strike, call).note(&mut all);
        }
        all
    }

    /// Trouble of the disk, from a sequence of its own too; then the power may fail, which shows
    /// what is on the disk.
    pub(crate) fn draw_trouble(&mut self, rng: &mut Rng) {
        let mute = self.kinds().contains(&Kind::Mute);
        // A client that cannot write back what is asked for is taken for mute, and patience is
        // short there.
        if mute || !rng.chance(TROUBLE_PERMILLE) {
            return;
        }
        let most = self.server.lease_ns;
        let power_fails = rng.chance(BLACKOUT_PERMILLE);
        let mut last = 0;
        for _ in 0..rng.between(1, 3) {
            let at = self.fault_time(rng);
            last = last.max(at);
            let trouble = match power_fails && rng.chance(500) {
                true => Trouble::SYNC,
                false => Trouble::draw(rng),
            };
            let ns = rng.between(MS, most);
            self.faults.push((at, Fault::Disk { trouble, ns }));
        }
        if power_fails {
            let at = last + rng.between(1, self.span_ns / 2);
            self.faults.push((at, blackout(rng)));
        }
    }

    pub(crate) fn draw_faults(&mut self, rng: &mut Rng) {
        let lease = self.server.lease_ns;
        let kinds = if self.severe { 4 } else { 3 };
        for _ in 0..rng.between(0, 3) {
            let at = self.fault_time(rng);
            let host = rng.between(1, u64::from(self.clients)) as u32;
            let short = rng.between(1, lease / 4);
            let ns = if self.severe && rng.chance(500) {
                rng.between(lease / 2, 2 * lease)
            } else {
                short
            };
            let ways = [true, true];
            let fault = match rng.below(kinds) {
                0 => Fault::Silence { host, ways, ns },
                1 => Fault::Cut { host, ns },
                2 => Fault::Server { ns: short },
                _ => Fault::Client { host, ns },
            };
            self.faults.push((at, fault));
        }
    }

    /// Rarer faults, drawn from a sequence of their own, so that other worlds stay as they are.
    pub(crate) fn draw_rarities(&mut self, rng: &mut Rng) {
        if rng.chance(RARE_PERMILLE) {
            let most = i64::from(DRIFT_PPM);
            let rate = |rng: &mut Rng| rng.below(2 * most as u64 + 1) as i64 - most;
            let extreme = rng.chance(300);
            for ppm in &mut self.drift_ppm {
                *ppm = match (extreme, rng.below(2)) {
                    (false, _) => rate(rng),
                    (true, 0) => most,
                    (true, _) => -most,
                };
            }
        }
        if !rng.chance(2 * RARE_PERMILLE) {
            return;
        }
        if rng.chance(BLACKOUT_PERMILLE) {
            let at = rng.between(10, 300) * MS;
            return self.faults.push((at, blackout(rng)));
        }
        for _ in 0..rng.between(1, 2) {
            let at = self.fault_time(rng);
            let fault = self.rarity(rng);
            self.faults.push((at, fault));
        }
    }

    /// A client that answers nothing, for a while or as long as programs run, drawn from a sequence
    /// of its own too. The server's patience is short then.
    pub(crate) fn draw_mute(&mut self, rng: &mut Rng) {
        if !rng.chance(RARE_PERMILLE / 2) {
            return;
        }
        let lease = self.server.lease_ns;
        self.server.recall_ns = rng.between(lease / 2, 2 * lease);
        let at = self.fault_time(rng);
        let host = rng.between(1, u64::from(self.clients)) as u32;
        let while_ns = rng.between(1, 4 * lease);
        let ns = *rng.pick(&[while_ns, while_ns, 12 * lease]);
        self.faults.push((at, Fault::Mute { host, ns }));
    }

    /// Processes of clients that are killed, drawn likewise.
    pub(crate) fn draw_kills(&mut self, rng: &mut Rng) {
        if !rng.chance(RARE_PERMILLE / 2) {
            return;
        }
        for _ in 0..rng.between(1, 3) {
            let at = self.fault_time(rng);
            let host = rng.between(1, u64::from(self.clients)) as u32;
            let ns = rng.between(MS, 100 * MS);
            self.faults.push((at, Fault::Killed { host, ns }));
        }
    }

    /// Bytes of the disk that rot, drawn likewise; then the power may fail.
    pub(crate) fn draw_rot(&mut self, rng: &mut Rng) {
        if self.troubles().any() || !rng.chance(RARE_PERMILLE / 2) {
            return;
        }
        let mut last = 0;
        for _ in 0..rng.between(1, 5) {
            let at = self.fault_time(rng);
            last = last.max(at);
            let at_ppm = rng.below(1_000_000) as u32;
            self.faults.push((at, Fault::Rot { at_ppm }));
        }
        let at = last + rng.between(1, self.span_ns / 4);
        if rng.chance(BLACKOUT_PERMILLE) {
            self.faults.push((at, blackout(rng)));
        } else if rng.chance(RESTART_PERMILLE) {
            self.faults.push((at, Fault::Server { ns: MS }));
        }
    }

    fn rarity(&self, rng: &mut Rng) -> Fault {
        let lease = self.server.lease_ns;
        let host = rng.between(1, u64::from(self.clients)) as u32;
        let most = if self.severe { 2 * lease } else { lease / 4 };
        let ns = rng.between(1, most);
        let by_ns = rng.between(MS, lease / SLOW);
        match rng.below(4) {
            0 => Fault::SlowClient { host, by_ns, ns },
            1 => Fault::SlowServer { by_ns, ns },
            way => Fault::Silence {
                host,
                ways: [way == 2, way == 3],
                ns,
            },
        }
    }
}

/// About how long a move takes.
const MOVE_NS: Time = 30 * MS;
/// How many worlds of a thousand have a rare fault of one sort.
pub(crate) const RARE_PERMILLE: u64 = 100;
/// How many of these have a power failure instead, of a thousand.
const BLACKOUT_PERMILLE: u64 = 250;
/// How many of the others whose disk rots have a restart, which reads its log, of a thousand.
const RESTART_PERMILLE: u64 = 500;
/// Worlds of a thousand whose disk is in trouble.
const TROUBLE_PERMILLE: u64 = 80;
/// How far a clock's rate may be off, millionths; see "Leases" in `docs/protocol.md`.
pub(crate) const DRIFT_PPM: u32 = 50_000;
/// A slow machine is late by this part of the lease at most.
const SLOW: u64 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_line_and_every_line_is_drawn() {
        let mut drawn = Vec::new();
        for seed in 0..3_000 {
            let plan = Plan::draw(seed, crate::plan::Size::default());
            for kind in plan.kinds() {
                assert!(ATLAS.iter().any(|line| line.kind == kind), "{kind:?}");
                drawn.push(kind);
            }
        }
        for line in &ATLAS {
            assert!(
                drawn.contains(&line.kind),
                "{:?} was never drawn",
                line.kind
            );
        }
    }
}
