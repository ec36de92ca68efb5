//! The world of one run: virtual time, the machines and what is between them.
//!
//! The events in it, one after the other, are in [`stages`](crate::stages).

use crate::clock::{Clock, Wall};
use crate::coverage::Rare;
use crate::disk::{DiskRoom, Units};
use crate::exec::{Sched, Signal};
use crate::history::History;
use crate::host::ServerRoom;
use crate::kernel::Kernel;
use crate::lending::Lending;
use crate::liar::{LIAR, Liar};
use crate::locker::{Board, Locker};
use crate::moving::Moving;
use crate::mutant::Mutant;
use crate::network::{Beside, Network};
use crate::numbering::Stage;
use crate::only::{Extra, Only};
use crate::plan::{CLOCKS, Plan};
use crate::program::Program;
use crate::rng::{Branch, Rng};
use crate::room::Room;
use crate::run::{Played, Report, RunOptions};
use crate::snapshots::{Keeper, Snapshot};
use crate::trace::Trace;
use crate::watcher::Watchers;
use crate::wrong::Wrong;
use logic::client;
use logic::server::{self, Conn};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::{Attr, Kind, SessionId, Time, ToClient, ToServer};

const MS: Time = 1_000_000;
pub(crate) const SECOND: Time = 1_000 * MS;
/// The time at the beginning; not zero, so that nobody takes zero for a time.
const START: Time = 1_000 * SECOND;
/// Clocks of machines are wrong by up to this many times ten seconds.
const WRONG: u64 = 1_000;
/// More happenings than any run has that goes on.
const STEPS: u64 = 4_000_000;
/// The owner of what belongs to no machine.
pub(crate) const NOBODY: u32 = 0;

/// Everything that exists in a run.
pub(crate) struct World {
    pub(crate) sched: Rc<Sched>,
    /// The beginning of the run's random numbers.
    pub(crate) key: u64,
    /// The part of the seed's world that takes part.
    pub(crate) only: Only,
    /// Which of the seed's faults are in the plan.
    pub(crate) fault_numbers: Vec<u32>,
    pub(crate) played: RefCell<Played>,
    /// The random numbers of what happens now.
    pub(crate) rng: Rc<RefCell<Rng>>,
    pub(crate) plan: Plan,
    pub(crate) net: Network,
    pub(crate) history: History,
    /// Those of which each has the store at times; mostly there is one.
    pub(crate) servers: Vec<ServerRoom>,
    pub(crate) moving: Moving,
    trace: Trace,
    /// Rare things that happened: see [`Rare`].
    met: Cell<u128>,
    pub(crate) rooms: RefCell<BTreeMap<u32, Rc<Room>>>,
    pub(crate) last_host: Cell<u32>,
    pub(crate) sessions: RefCell<BTreeMap<SessionId, u32>>,
    pub(crate) fenced: RefCell<BTreeSet<SessionId>>,
    /// Machines that are slow: until when, by how much.
    pub(crate) slow: RefCell<BTreeMap<u32, (Time, Time)>>,
    /// Machines that answer nothing: until when.
    pub(crate) mute: RefCell<BTreeMap<u32, Time>>,
    pub(crate) liar: Liar,
    /// The programs' locks.
    pub(crate) board: Board,
    pub(crate) watchers: Watchers,
    pub(crate) snapshots: RefCell<Vec<Snapshot>>,
    pub(crate) lending: Lending,
    /// The machines whose watching programs have been told all changes before this moment.
    pub(crate) told: RefCell<Option<(BTreeSet<u32>, u64)>>,
    /// Programs that run, by machine.
    pub(crate) running: RefCell<BTreeMap<u32, u32>>,
    pub(crate) faults_end: Cell<Time>,
    /// Messages so far at which something else could go wrong, where something does.
    pub(crate) exposed: Cell<u32>,
    failure: RefCell<Option<Wrong>>,
}

impl World {
    pub(crate) fn new(seed: u64, options: &RunOptions) -> Rc<Self> {
        let mut plan = Plan::draw(seed, options.size);
        let only = options.only.clone();
        let key = match only.salt {
            0 => seed,
            salt => Rng::of(Branch::World, &[seed, u64::from(salt)]).next(),
        };
        let (mut store, mut moving) = (None, None);
        match options.mutant {
            Some(Mutant::Client(mutant)) => plan.client.mutant = Some(mutant),
            Some(Mutant::Server(mutant)) => plan.server.mutant = Some(mutant),
            Some(Mutant::Store(mutant)) => store = Some(mutant),
            Some(Mutant::Moving(mutant)) => moving = Some(mutant),
            None => {}
        }
        // Which disk it is does not depend on what is left out.
        let (power_fails, troubles) = (plan.power_fails(), plan.troubles());
        let fault_numbers = only.apply(&mut plan);
        let troubles = match plan.disk_strike {
            Some(_) => plan.troubles(),
            None => troubles,
        };
        let sched = Sched::new(START, Rng::of(Branch::World, &[key]));
        let rng = Rc::clone(sched.rng());
        let disk = DiskRoom::new(
            &sched,
            &mut rng.borrow_mut(),
            (power_fails, troubles),
            store,
            Wall::new(key),
        );
        let trace = Trace::new(options.trace);
        trace.line(START, || format!("{plan:?}"));
        Rc::new(Self {
            servers: servers(&plan, disk),
            moving: Moving::new(moving),
            sched,
            key,
            only,
            fault_numbers,
            played: RefCell::default(),
            rng,
            plan,
            net: Network::default(),
            history: History::default(),
            trace,
            met: Cell::new(0),
            rooms: RefCell::default(),
            last_host: Cell::new(0),
            sessions: RefCell::default(),
            fenced: RefCell::default(),
            slow: RefCell::default(),
            mute: RefCell::default(),
            liar: Liar::default(),
            board: Board::default(),
            watchers: Watchers::default(),
            snapshots: RefCell::default(),
            lending: Lending::default(),
            told: RefCell::default(),
            running: RefCell::default(),
            faults_end: Cell::new(Time::MAX),
            exposed: Cell::new(0),
            failure: RefCell::new(None),
        })
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        self.trace.line(self.sched.now() - START, text);
    }

    /// Rare things happened.
    pub(crate) fn meet(&self, bits: u128) {
        self.met.set(self.met.get() | bits);
    }

    /// Something is wrong; the first such thing counts.
    pub(crate) fn fail(&self, wrong: Wrong) {
        self.trace(|| format!("FAILURE {}", wrong.what));
        self.failure.borrow_mut().get_or_insert(wrong);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.trace.take()
    }

    pub(crate) fn faults_on(&self) -> bool {
        self.sched.now() < self.faults_end.get()
    }

    /// The number of the server that has the store, as the cell's record says.
    pub(crate) fn owner(&self) -> usize {
        self.moving.database.owner()
    }

    /// That server.
    pub(crate) fn server(&self) -> &ServerRoom {
        &self.servers[self.owner()]
    }

    /// A connection has ended.
    pub(crate) fn to_server_gone(self: &Rc<Self>, conn: Conn) {
        self.at_server_of(conn, move |world, server| {
            server.input(world, server::Input::Gone { conn });
        });
    }

    pub(crate) fn message_to_server(self: &Rc<Self>, conn: Conn, beside: Beside<ToServer>) {
        self.at_server_of(conn, move |world, server| {
            server.message(world, conn, beside);
        });
    }

    pub(crate) fn to_room(self: &Rc<Self>, host: u32, input: client::Input, units: Units) {
        if host == LIAR {
            return self.liar_hears(&input);
        }
        let room = self.rooms.borrow().get(&host).cloned();
        let Some(room) = room.filter(|room| room.alive()) else {
            return;
        };
        let grants = matches!(
            &input,
            client::Input::Message { message, .. }
                if matches!(&**message, ToClient::Reply { reply, .. } if !reply.grants.is_empty())
        );
        room.input(self, input, units);
        self.sessions.borrow_mut().insert(room.session(), host);
        if grants {
            self.check_tokens();
        }
    }

    fn failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Lets things happen until this is true; false if something failed or it takes too long.
    pub(crate) fn until(&self, limit: Time, what: &str, done: impl Fn() -> bool) -> bool {
        let deadline = self.sched.now() + limit;
        while !done() {
            if self.failed() {
                return false;
            }
            let late = self.sched.now() > deadline || self.trace.steps() > STEPS;
            if late || !self.sched.step() {
                let open = self.history.unreturned(self.sched.now()).join("; ");
                let class = format!("{what} does not end");
                self.fail(Wrong::new(&class, format!("{class}: {open}")));
                return false;
            }
        }
        !self.failed()
    }

    /// A machine that takes the place of another one.
    pub(crate) fn another_host(self: &Rc<Self>) -> Rc<Room> {
        self.last_host.set(self.last_host.get() + 1);
        self.add_host(self.last_host.get())
    }

    pub(crate) fn add_host(self: &Rc<Self>, host: u32) -> Rc<Room> {
        self.as_machine(host, Stage::Joins, || self.join(host))
    }

    fn join(self: &Rc<Self>, host: u32) -> Rc<Room> {
        let (session, ahead) = {
            let mut rng = self.rng.borrow_mut();
            (rng.next() | 1, rng.below(10 * SECOND) * WRONG)
        };
        let clock = Clock::new(START, ahead, self.plan.drift(host));
        let room = Room::new(host, session, self.plan.client.clone(), clock);
        self.sessions.borrow_mut().insert(session, host);
        self.rooms.borrow_mut().insert(host, Rc::clone(&room));
        self.net.join(self, host);
        room
    }

    /// Mounts and starts programs as soon as the server has been heard.
    pub(crate) fn begin_host(self: &Rc<Self>, room: &Rc<Room>, go: &Signal<()>, first: bool) {
        let (world, room, go) = (Rc::clone(self), Rc::clone(room), go.clone());
        let host = room.host;
        let programs = if first { 1 } else { self.plan.programs };
        let lockers = if first { 0 } else { self.lockers() };
        let keepers = u32::from(!first && self.makes_snapshots());
        *self.running.borrow_mut().entry(room.host).or_default() += programs + lockers + keepers;
        let stage = if first { Stage::Prepares } else { Stage::Works };
        let begin = async move {
            if room.kernel().is_none() {
                let root = loop {
                    match room.root() {
                        Some(root) => break root,
                        None => world.sched.sleep(MS).await,
                    }
                };
                let kernel = Kernel::new(&world, &room, root, directory());
                room.set_kernel(Some(kernel));
            }
            let Some(kernel) = room.kernel() else { return };
            if first {
                Program::new(&world, &kernel, (room.host, 0))
                    .prepare()
                    .await;
                go.set(());
                return world.program_ended(room.host);
            }
            for number in 1..=world.plan.programs {
                let mut program = Program::new(&world, &kernel, (room.host, number));
                let then = Rc::clone(&world);
                world.sched.spawn(room.host, async move {
                    let operations = then.plan.operations;
                    program.run(operations).await;
                    then.program_ended(program.host());
                });
            }
            world.start_lockers(&room);
            world.start_keeper(&room);
            let key = [world.key, u64::from(room.host)];
            let rng = Rng::of(Branch::Watcher, &key);
            let start = || world.start_watchers(&room);
            world.sched.with_rng(rng, start);
            if world.only.has(Extra::Pressure) {
                world.press(&kernel, room.host);
            }
        };
        self.as_machine(host, stage, || self.sched.spawn(host, begin));
    }

    /// How many programs of each machine lock.
    fn lockers(&self) -> u32 {
        if self.only.has(Extra::Locks) {
            self.plan.lockers
        } else {
            0
        }
    }

    /// How many watch on each machine.
    pub(crate) fn watchers_of_each(&self) -> u32 {
        if self.only.has(Extra::Watches) {
            self.plan.watches
        } else {
            0
        }
    }

    fn start_lockers(self: &Rc<Self>, room: &Rc<Room>) {
        for number in 1..=self.lockers() {
            let locker = Locker::new(self, room, number);
            let (then, host) = (Rc::clone(self), room.host);
            let work = async move {
                locker.run(then.plan.locks).await;
                then.program_ended(host);
            };
            // The other programs draw what they drew without these.
            let rng = Rng::of(
                Branch::Locker,
                &[self.key, u64::from(host), u64::from(number)],
            );
            self.sched.with_rng(rng, || self.sched.spawn(host, work));
        }
    }

    /// Does somebody on each machine make snapshots?
    pub(crate) fn makes_snapshots(&self) -> bool {
        self.plan.snapshots > 0 && self.only.has(Extra::Snapshots)
    }

    fn start_keeper(self: &Rc<Self>, room: &Rc<Room>) {
        if !self.makes_snapshots() {
            return;
        }
        let keeper = Keeper::new(self, room);
        let (then, host) = (Rc::clone(self), room.host);
        let work = async move {
            keeper.run().await;
            then.program_ended(host);
        };
        let rng = Rng::of(Branch::Keeper, &[self.key, u64::from(host)]);
        self.sched.with_rng(rng, || self.sched.spawn(host, work));
    }

    fn program_ended(&self, host: u32) {
        if let Some(count) = self.running.borrow_mut().get_mut(&host) {
            *count -= 1;
        }
    }

    /// Memory is short now and then.
    fn press(self: &Rc<Self>, kernel: &Rc<Kernel>, host: u32) {
        let (world, kernel) = (Rc::clone(self), Rc::clone(kernel));
        self.sched.spawn(host, async move {
            loop {
                let pause = world.rng.borrow_mut().between(1, 2 * world.plan.press_ns);
                world.sched.sleep(pause).await;
                // Nobody is hurt any more, but much time may be left to pass.
                if world.plan.small && world.running.borrow().get(&host) == Some(&0) {
                    break;
                }
                kernel.press();
            }
        });
    }

    pub(crate) fn alive(&self) -> Vec<Rc<Room>> {
        self.rooms
            .borrow()
            .values()
            .filter(|room| room.alive())
            .cloned()
            .collect()
    }

    /// Where something was to go wrong: the number of that message or call, if there was one.
    fn exposed(&self) -> u64 {
        match self.plan.disk_strike {
            Some((_, call)) => {
                let met = self.server().disk().failed_calls() > 0;
                u64::from(call) - u64::from(!met)
            }
            None => u64::from(self.exposed.get()),
        }
    }

    /// One whole run.
    pub(crate) fn run(self: &Rc<Self>) -> Result<Report, Wrong> {
        let judged = self.stages().unwrap_or_default();
        self.sched.clear();
        for room in self.rooms.borrow().values() {
            room.set_kernel(None);
        }
        self.rooms.borrow_mut().clear();
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Report {
                calls: self.history.calls(),
                messages: self.net.messages.get(),
                exposed: self.exposed(),
                values: judged.values,
                unknown: judged.unknown,
                steps: self.trace.steps(),
                longest_ns: self.history.longest_ns.get(),
                virtual_ns: self.sched.now() - START,
                met: self.all_met(),
            }),
        }
    }

    /// Is the server's disk the real store?
    pub(crate) fn has_real_store(&self) -> bool {
        self.server().disk().met.get() & Rare::Stored.bit() != 0
    }

    fn all_met(&self) -> u128 {
        let large = if self.plan.small {
            0
        } else {
            Rare::Large.bit()
        };
        self.met.get() | self.server().disk().met.get() | large
    }
}

/// The servers of a world: the first one has the store at the beginning. Each has its own clocks.
fn servers(plan: &Plan, disk: DiskRoom) -> Vec<ServerRoom> {
    let mut disk = Some(disk);
    let server = |own: usize| {
        let (ahead, machine) = match own {
            0 => (0, NOBODY),
            _ => (own as u64 * 77 * SECOND, (CLOCKS - own) as u32),
        };
        let clock = Clock::new(START, ahead, plan.drift(machine));
        ServerRoom::new(own, (plan.server.clone(), clock), disk.take())
    };
    (0..plan.servers as usize).map(server).collect()
}

/// A directory of which nothing is known yet.
fn directory() -> Attr {
    Attr {
        version: 0,
        ..Attr::new(Kind::Directory, 0o755, 0)
    }
}
