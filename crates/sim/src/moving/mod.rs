//! Worlds in which the store moves between servers while programs use it, as the servers of a cell
//! move it: its directory is carried in rounds, closed, carried once more, and the cell's record of
//! it is changed. `logic::placement` decides by that record, here and in earnest.
//!
//! Guarantees: each server has a disk, a process, clocks and a network of its own, and each of them
//! can fail by itself, at any step of a move. A process that dies takes its tasks with it; one that
//! is paused does nothing, and then goes on where it was, with all that has come to it meanwhile.

mod command;
mod cut;
mod database;
mod keeper;
mod plan;
mod source;
mod target;

use crate::clock::Wall;
use crate::coverage::Rare;
use crate::disk::DiskRoom;
use crate::exec::{Guard, Lock, Signal};
use crate::host::ServerRoom;
use crate::world::World;
pub(crate) use cut::Cut;
use cut::Step;
use database::Database;
use logic::placement::Placement;
use logic::server::Conn;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use store::Keep;
use target::Move;
use wire::Time;

const MS: Time = 1_000_000;
/// The owners of the tasks of servers, above all machines.
const SERVERS: u32 = 2_000;
const NAMES: [&str; 3] = ["s1", "s2", "s3"];

/// A planted fault of how servers give the store to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A server goes on serving the store when its record names another one.
    ServesOn,
    /// A server that starts serves what it has a copy of.
    ServesAnyCopy,
    /// The last round is left out: the copy is what it was while the store was in use.
    SkipsLastRound,
    /// The last round does not bring all that differs.
    CarriesPart,
    /// The record is changed before the copy is on stable storage.
    TakesUnstable,
}

/// The reason why something did not come about, for the trace.
type Failed = &'static str;

/// The cell of several servers.
pub(crate) struct Moving {
    pub(crate) database: Database,
    mutant: Option<Mutant>,
    /// Faults that wait for a step of a move.
    armed: RefCell<Vec<Cut>>,
    /// Commands that drive a move.
    commands: Cell<u32>,
    /// They are killed, or told to take the move back.
    killed: Cell<bool>,
    cancelled: Cell<bool>,
}

impl Moving {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        Self {
            database: Database::new(&Placement::made(NAMES[0])),
            mutant,
            armed: RefCell::default(),
            commands: Cell::new(0),
            killed: Cell::new(false),
            cancelled: Cell::new(false),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

fn number(name: &str) -> usize {
    let found = NAMES.iter().position(|known| *known == name);
    found.expect("the record names a server")
}

/// A store that is not served here, although its directory is.
#[derive(Clone, Copy, Debug)]
struct Closed {
    /// In this turn, for another server; 0: that one has it, or it could not be opened.
    turn: u64,
    /// This run of the server has closed it, with nothing left to be recovered.
    in_order: bool,
    /// When the other one asked something about it last.
    asked: Time,
    /// It is not looked at before.
    not_before: Time,
}

/// Something that a paused process will do.
type Held = Box<dyn FnOnce(&Rc<World>)>;

/// The things that a server has for stores that move.
pub(crate) struct Site {
    /// Does its process run? How often it has died.
    up: Cell<bool>,
    deaths: Cell<u32>,
    paused_until: Cell<Time>,
    /// The things that have come to it meanwhile, in their order.
    held: RefCell<VecDeque<Held>>,
    closed: Cell<Option<Closed>>,
    /// The copy that is on its way, and the turn of one that is whole.
    coming: RefCell<Option<DiskRoom>>,
    whole: Cell<Option<u64>>,
    moves: RefCell<Option<Rc<Move>>>,
    /// Does a task look after what is closed?
    keeps: Cell<bool>,
    /// Held while the record is changed, and what follows from it is done.
    acting: RefCell<Rc<Lock>>,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self {
            up: Cell::new(true),
            deaths: Cell::new(0),
            paused_until: Cell::new(0),
            held: RefCell::default(),
            closed: Cell::new(None),
            coming: RefCell::default(),
            whole: Cell::new(None),
            moves: RefCell::default(),
            keeps: Cell::new(false),
            acting: RefCell::default(),
        }
    }

    /// The process has died. A copy that was on its way goes; all else on its disk stays.
    fn dies(&self) {
        self.up.set(false);
        self.deaths.set(self.deaths.get() + 1);
        self.paused_until.set(0);
        self.held.take();
        self.closed.set(None);
        self.coming.take();
        self.moves.take();
        self.keeps.set(false);
        self.acting.replace(Rc::default());
    }

    fn is_moving(&self) -> bool {
        let moves = self.moves.borrow();
        moves.as_ref().is_some_and(|of| of.is_running())
    }
}

/// A run of a server's process, for the tasks in it.
#[derive(Clone)]
struct Run {
    world: Rc<World>,
    own: usize,
}

impl Run {
    fn room(&self) -> &ServerRoom {
        &self.world.servers[self.own]
    }

    fn site(&self) -> &Site {
        &self.room().site
    }

    fn name(&self) -> &'static str {
        NAMES[self.own]
    }

    fn now(&self) -> Time {
        self.world.sched.now()
    }

    fn trace(&self, text: &str) {
        self.world.trace(|| format!("{}: {text}", self.name()));
    }

    /// A part of a lease.
    fn lease(&self, part: Time) -> Time {
        self.world.plan.server.lease_ns / part
    }

    /// The wall clock of its machine.
    fn wall(&self) -> Wall {
        Wall::new(self.world.key.wrapping_add(self.own as u64))
    }

    /// Time passes here, up to so much, and on while the process is paused.
    async fn rest(&self, most_ns: Time) {
        let ns = self.world.rng.borrow_mut().between(1, most_ns);
        self.world.sched.sleep(ns).await;
        loop {
            let until = self.site().paused_until.get();
            let now = self.now();
            if until <= now {
                return;
            }
            self.world.sched.sleep(until - now).await;
        }
    }

    /// Begins a task of this run.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.world.sched.spawn(SERVERS + self.own as u32, task);
    }

    async fn act(&self) -> Guard {
        let acting = Rc::clone(&self.site().acting.borrow());
        acting.lock(&self.world.sched, true).await
    }

    async fn record(&self) -> Result<Placement, Failed> {
        let record = self.world.database_get().await;
        self.rest(MS).await;
        record
    }

    /// Changes the record; false: it was another one.
    async fn place(&self, before: &Placement, after: &Placement) -> Result<bool, Failed> {
        self.trace(&format!("{before:?} is to become {after:?}"));
        self.reach(Step::Changing, [self.own; 2]).await;
        let placed = self.world.database_swap(before, after).await;
        self.rest(MS).await;
        self.trace(&format!("the change of the record: {placed:?}"));
        placed
    }

    /// Serves the store that is here.
    fn open(&self) -> Result<(), Failed> {
        self.room().start(&self.world);
        if !self.room().up() {
            return Err("the store cannot be opened");
        }
        self.site().whole.set(None);
        self.site().closed.set(None);
        Ok(())
    }

    /// A process begins: the record says which part it has.
    async fn begin(self) {
        if !self.room().has_disk() {
            return;
        }
        self.note_closed(0);
        if self.world.moving.is(Mutant::ServesAnyCopy) {
            // It comes to be the world's, wherever the record says that it is.
            let _ = self.open();
            return;
        }
        let _acting = self.act().await;
        if let Err(why) = self.find_part().await {
            self.trace(why);
        }
    }
}

/// An answer that is owed: if nobody gives it, it is that the asked one is gone.
struct Owed<T>(Signal<Result<T, Failed>>, Cell<bool>);

impl<T> Owed<T> {
    fn give(&self, answer: Result<T, Failed>) {
        if !self.1.replace(true) {
            self.0.set(answer);
        }
    }
}

impl<T> Drop for Owed<T> {
    fn drop(&mut self) {
        self.give(Err("the other server is gone"));
    }
}

impl World {
    /// Asks a server something, which it does when it runs.
    async fn ask<T: 'static, A: Future<Output = Result<T, Failed>>>(
        self: &Rc<Self>,
        to: usize,
        answer: impl FnOnce(Run) -> A + 'static,
    ) -> Result<T, Failed> {
        let flight = self.rng.borrow_mut().between(50_000, 2 * MS);
        self.sched.sleep(flight).await;
        let run = Run {
            world: Rc::clone(self),
            own: to,
        };
        if !run.site().up.get() {
            return Err("the other server does not run");
        }
        let signal = Signal::new(&self.sched);
        let owed = Rc::new(Owed(signal.clone(), Cell::new(false)));
        let late = Rc::downgrade(&owed);
        let patience = self.plan.server.lease_ns / PATIENCE;
        self.sched.at(self.sched.now() + patience, move || {
            if let Some(owed) = late.upgrade() {
                owed.give(Err("the other server does not answer"));
            }
        });
        let asked = run.clone();
        run.spawn(async move {
            asked.rest(200_000).await;
            let answered = answer(asked).await;
            owed.give(answered);
        });
        let answered = signal.wait().await;
        self.sched.sleep(flight).await;
        answered
    }
}

/// A server waits this part of a lease for the answer of another one.
const PATIENCE: Time = 8;
/// A client that has lost its server dials it for this part of a lease before it asks the others;
/// and so long later it asks again.
const LOST: Time = 32;

impl World {
    /// The name of a server in traces.
    pub(crate) fn server_name(&self, own: usize) -> &'static str {
        match self.servers.len() {
            1 => "server",
            _ => NAMES[own],
        }
    }

    /// The servers begin; the first one has the store.
    pub(crate) fn servers_begin(self: &Rc<Self>) {
        self.servers[0].start(self);
    }

    /// Does the server that has the store serve it, and does none of them do anything about it?
    pub(crate) fn settled(&self) -> bool {
        let now = self.sched.now();
        let rests = |server: &ServerRoom| {
            let site = &server.site;
            site.up.get() && site.paused_until.get() <= now && !site.is_moving()
        };
        let alone = self.servers.len() == 1;
        let calm = alone || (self.moving.commands.get() == 0 && self.servers.iter().all(rests));
        calm && self.server().up()
    }

    /// A server's process dies, of itself or with the power of its machine, and is started again.
    pub(crate) fn ends_for(self: &Rc<Self>, own: usize, power: Option<Keep>, ns: Time) {
        let server = &self.servers[own];
        if !server.site.up.get() {
            return;
        }
        self.sched.kill(SERVERS + own as u32);
        server.die(self, power.map(|keep| (keep, true)));
        server.site.dies();
        self.comes_back_at(own, self.sched.now() + ns);
    }

    /// A server's process is started at this time.
    pub(crate) fn comes_back_at(self: &Rc<Self>, own: usize, at: Time) {
        let world = Rc::clone(self);
        self.sched.at(at, move || {
            let server = &world.servers[own];
            server.site.up.set(true);
            if world.servers.len() == 1 {
                return server.start(&world);
            }
            world.trace(|| format!("{} runs again", NAMES[own]));
            let run = Run {
                world: Rc::clone(&world),
                own,
            };
            run.spawn(run.clone().begin());
        });
    }

    /// A server does nothing until then.
    pub(crate) fn pause(self: &Rc<Self>, own: usize, until: Time) {
        let own = own % self.servers.len();
        let site = &self.servers[own].site;
        if !site.up.get() || site.paused_until.get() >= until {
            return;
        }
        self.trace(|| format!("{} is paused", NAMES[own]));
        site.paused_until.set(until);
        let world = Rc::clone(self);
        self.sched.at(until, move || world.goes_on(own));
    }

    /// A paused server goes on with what has come to it.
    fn goes_on(self: &Rc<Self>, own: usize) {
        let site = &self.servers[own].site;
        while !self.is_paused(own) {
            let next = site.held.borrow_mut().pop_front();
            match next {
                Some(action) => action(self),
                None => return,
            }
        }
    }

    fn is_paused(&self, own: usize) -> bool {
        self.servers[own].site.paused_until.get() > self.sched.now()
    }

    /// A server's process does something now, or when it goes on.
    fn does(self: &Rc<Self>, own: usize, action: impl FnOnce(&Rc<Self>) + 'static) {
        match self.is_paused(own) {
            true => {
                let held = &self.servers[own].site.held;
                held.borrow_mut().push_back(Box::new(action));
            }
            false => action(self),
        }
    }

    /// Does something in a server's process at this time, or when it goes on; nothing, if it has
    /// died meanwhile.
    pub(crate) fn when_running(
        self: &Rc<Self>,
        own: usize,
        at: Time,
        action: impl FnOnce(&Rc<Self>) + 'static,
    ) {
        let world = Rc::clone(self);
        let deaths = self.servers[own].site.deaths.get();
        self.sched.at(at, move || {
            let site = &world.servers[own].site;
            if world.servers.len() > 1 && site.deaths.get() != deaths {
                return;
            }
            world.does(own, action);
        });
    }

    /// Something has come to the server of a connection.
    pub(crate) fn at_server_of(
        self: &Rc<Self>,
        conn: Conn,
        action: impl FnOnce(&Rc<Self>, &ServerRoom) + 'static,
    ) {
        let own = self.net.side(conn);
        self.does(own, move |world| action(world, &world.servers[own]));
    }

    /// A client has dialed this server, which does not serve the store, and has had no connection
    /// for so long. It asks the others.
    pub(crate) fn seek(self: &Rc<Self>, host: u32, (at, lost_ns): (usize, Time)) {
        let lease = self.plan.server.lease_ns;
        let site = &self.servers[at].site;
        let told = site.up.get() && site.paused_until.get() <= self.sched.now();
        if !told && lost_ns < lease / LOST {
            return self.net.connect_later(self, host, 5 * MS);
        }
        if told {
            self.meet(Rare::Sought.bit());
        }
        let delay = self.rng.borrow_mut().between(200_000, 2 * MS);
        let world = Rc::clone(self);
        self.sched.at(self.sched.now() + delay, move || {
            let again = match world.found() {
                Some(found) => {
                    world.net.turn(host, found);
                    0
                }
                None => lease / LOST,
            };
            world.net.connect_later(&world, host, again);
        });
    }

    /// The server that says that it serves the store.
    fn found(&self) -> Option<usize> {
        let now = self.sched.now();
        let says = |server: &ServerRoom| server.up() && server.site.paused_until.get() <= now;
        self.servers.iter().position(says)
    }
}
