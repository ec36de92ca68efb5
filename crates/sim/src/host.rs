//! The room of the server: carries out what `logic::server::Server` says, and survives its death.

use crate::clock::Clock;
use crate::coverage::{self, Rare};
use crate::disk::{Closed, DiskRoom, UNIT, Units};
use crate::liar::LIAR;
use crate::network::Beside;
use crate::world::{NOBODY, World};
use crate::wrong::wrong;
use logic::peers::Policy;
use logic::server::{Conn, Disk, Event, Input, Options, Output, Server};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use store::Keep;
use wire::{Fid, Place, SessionId, Time, ToServer};

/// The server's machine and disk.
pub(crate) struct ServerRoom {
    options: Options,
    clock: Clock,
    machine: RefCell<Option<Server>>,
    /// The room of the last outputs, to be used again.
    outputs: RefCell<Vec<Output>>,
    pub(crate) disk: RefCell<DiskRoom>,
    boots: Cell<u64>,
    /// Where the logs of earlier runs end.
    left: RefCell<Vec<Place>>,
    /// Sessions that the last run had fenced when it stopped, and had told nobody.
    fencing: RefCell<Vec<SessionId>>,
    tick_at: Cell<Option<Time>>,
    /// The next run is another server.
    replaced: Cell<bool>,
}

impl ServerRoom {
    pub(crate) fn new(options: Options, clock: Clock, disk: DiskRoom) -> Self {
        Self {
            options,
            clock,
            machine: RefCell::new(None),
            outputs: RefCell::default(),
            disk: RefCell::new(disk),
            boots: Cell::new(0),
            left: RefCell::default(),
            fencing: RefCell::default(),
            tick_at: Cell::new(None),
            replaced: Cell::new(false),
        }
    }

    /// The process ends, since its disk could not be written or made stable. Somebody starts it
    /// again.
    fn stop(&self, world: &Rc<World>, why: String) {
        if !self.disk.borrow().shaken() {
            return world.fail(wrong!("the server stops: {why}"));
        }
        world.meet(Rare::Stopped.bit());
        self.die(world, None);
        self.revive(world);
    }

    fn revive(&self, world: &Rc<World>) {
        let most = self.options.lease_ns / 8;
        let delay = world.rng.borrow_mut().between(1_000_000, most);
        let then = Rc::clone(world);
        let at = world.sched.now() + delay;
        world.sched.at(at, move || then.server.start(&then));
    }

    pub(crate) fn up(&self) -> bool {
        self.machine.borrow().is_some()
    }

    /// Another server is there, which has what the disk has, and knows no session.
    pub(crate) fn start_another(&self, world: &Rc<World>) {
        world.meet(Rare::AnotherServer.bit());
        self.replaced.set(true);
        self.start(world);
    }

    fn forget_sessions(&self, world: &Rc<World>) {
        let known = self.disk.borrow().sessions();
        for session in known {
            self.disk.borrow_mut().close_session(session);
            world.on_fenced(session);
        }
        if let Err(why) = self.disk.borrow_mut().write_out() {
            world.fail(wrong!("the disk of another server: {why}"));
        }
    }

    fn count_boot(&self) {
        if self.boots.get() > 0 {
            let (boot, record) = (self.boots.get() << 40, self.disk.borrow().left());
            self.left.borrow_mut().push(Place { boot, record });
        }
        self.boots.set(self.boots.get() + 1);
    }

    /// Starts, or starts again with what the disk has.
    pub(crate) fn start(&self, world: &Rc<World>) {
        if self.up() {
            return;
        }
        let opened = self.disk.borrow_mut().open();
        match opened {
            Ok(()) => {}
            Err(Closed::Disk(what)) if self.disk.borrow().troubled() => {
                world.trace(|| format!("server does not start: {what}"));
                world.meet(Rare::NotStarted.bit());
                return self.revive(world);
            }
            Err(Closed::Disk(what) | Closed::Wrong(what)) => {
                return world.fail(wrong!("the disk does not open: {what}"));
            }
        }
        if self.replaced.take() {
            self.forget_sessions(world);
        } else {
            self.count_boot();
        }
        let known = self.disk.borrow().sessions();
        let epoch = self.boots.get() << 40;
        let root = Fid::root(1);
        world.trace(|| format!("server starts, knows {known:?}"));
        if !known.is_empty() {
            world.meet(Rare::RestartKnown.bit());
        }
        // A note that it could not write out may have come to the disk all the same.
        for session in self.fencing.take() {
            if !known.contains(&session) {
                world.on_fenced(session);
            }
        }
        let now = self.clock.shows(world.sched.now());
        let newest = self.disk.borrow().newest();
        let options = self.options.clone();
        let held = self.disk.borrow().may_hold();
        let server = Server::new(options, now, (epoch, root), (known, newest)).knowing(held);
        let away = self.disk.borrow().away();
        let server = server.after(self.left.borrow().clone()).without(&away);
        for session in away {
            world.on_unlocked(session, None);
        }
        *self.machine.borrow_mut() = Some(server);
        self.arm(world);
        if world.plan.neighbours.is_some() {
            let policy = Policy::Greedy;
            self.input(world, Input::Cooperate { policy });
        }
    }

    /// The process dies; with its machine, if that lost its power, alone or with all others, and
    /// kept this of what was not stable.
    pub(crate) fn die(&self, world: &Rc<World>, power: Option<(Keep, bool)>) {
        world.trace(|| "server dies".into());
        *self.machine.borrow_mut() = None;
        self.tick_at.set(None);
        let disk = &mut *self.disk.borrow_mut();
        match power {
            Some((keep, alone)) => {
                if let Err(wrong) = disk.power(keep, alone) {
                    world.fail(wrong);
                }
            }
            None => disk.die(),
        }
        world.net.server_died(world);
    }

    /// Have these sessions taken all that they are to be told of what they watch?
    pub(crate) fn all_told(&self, sessions: &BTreeSet<SessionId>) -> bool {
        let machine = self.machine.borrow();
        let server = machine.as_ref();
        server.is_some_and(|server| !server.untold().any(|session| sessions.contains(&session)))
    }

    /// The server's state that is left over when every client has said goodbye.
    pub(crate) fn left_over(&self) -> Option<String> {
        let machine = self.machine.borrow();
        let server = machine.as_ref()?;
        let figures = server.figures();
        let held = self.disk.borrow().held();
        let locked = figures.locks + figures.lock_waits;
        let idle = figures.waiting + locked == 0;
        let clean = server.tokens().is_empty() && idle && held == 0;
        (!clean).then(|| format!("{figures:?}, {held} bulks, {:?}", server.tokens()))
    }

    pub(crate) fn message(&self, world: &Rc<World>, from: Conn, beside: Beside<ToServer>) {
        let Beside { message, units } = beside;
        let bulk_len = (units.len() as u64 * UNIT) as u32;
        let bulk = self.disk.borrow_mut().hold(units);
        self.input(
            world,
            Input::Message {
                from,
                message,
                bulk,
                bulk_len,
            },
        );
    }

    pub(crate) fn input(&self, world: &Rc<World>, input: Input) {
        let mut outputs = self.outputs.take();
        let written = {
            let mut machine = self.machine.borrow_mut();
            let Some(server) = machine.as_mut() else {
                return;
            };
            world.trace(|| format!("server < {input:?}"));
            let disk = &mut *self.disk.borrow_mut();
            let now = self.clock.shows(world.sched.now());
            let asked = server.oldest_question();
            server.handle(now, input, disk, &mut outputs);
            world.check_patience([asked, server.oldest_question()], now);
            disk.write_out()
        };
        if let Err(why) = written {
            // Not one of these may be carried out: the changes that they report could be lost.
            let fenced = outputs.drain(..).filter_map(|output| match output {
                Output::Event(Event::Fenced { session }) => Some(session),
                _ => None,
            });
            self.fencing.borrow_mut().extend(fenced);
            self.outputs.replace(outputs);
            return self.stop(world, why);
        }
        for output in outputs.drain(..) {
            self.output(world, output);
        }
        self.outputs.replace(outputs);
        self.arm(world);
    }

    fn output(&self, world: &Rc<World>, output: Output) {
        world.trace(|| format!("server > {output:?}"));
        world.meet(coverage::of_server(&output));
        match output {
            Output::Send { to, message, bulk } => {
                let units = match bulk {
                    0 => Units::new(),
                    bulk => self.disk.borrow_mut().release(bulk),
                };
                world.net.to_client(world, to, Beside { message, units });
            }
            Output::Sync { ticket } => {
                let (then, boot) = (Rc::clone(world), self.boots.get());
                let upto = self.disk.borrow().position();
                let delay =
                    world.rng.borrow_mut().between(50_000, 3_000_000) + world.late_ns(NOBODY);
                world.sched.at(world.sched.now() + delay, move || {
                    let server = &then.server;
                    if server.boots.get() == boot && server.up() {
                        let synced = server.disk.borrow_mut().sync();
                        let ok = synced.is_ok();
                        if ok {
                            server.disk.borrow_mut().answered(upto);
                        }
                        server.input(&then, Input::Synced { ticket, ok });
                        if let Err(why) = synced
                            && server.up()
                        {
                            then.meet(Rare::SyncFailed.bit());
                            server.stop(&then, why);
                        }
                    }
                });
            }
            Output::Discard { bulk } => {
                self.disk.borrow_mut().release(bulk);
            }
            Output::Close { conn, violation } => {
                if world.net.owner(conn) == Some(LIAR) {
                    world.meet(violation.map_or(0, |_| Rare::LiarEnded.bit()));
                } else if let Some(violation) = violation.filter(|_| !world.net.is_closed(conn)) {
                    world.fail(wrong!("the server finds a client at fault: {violation:?}"));
                }
                world.net.close(world, conn);
            }
            Output::Event(Event::Fenced { session }) => world.on_fenced(session),
            Output::Event(Event::Away { session, all }) => world.on_away(session, all),
            Output::Event(Event::Unlocked { session, fid }) => {
                world.on_unlocked(session, Some(fid));
            }
            Output::Event(Event::GraceOver) => self.disk.borrow_mut().all_held = true,
            Output::Event(_) => {}
        }
    }

    fn arm(&self, world: &Rc<World>) {
        let deadline = {
            let machine = self.machine.borrow();
            let Some(server) = machine.as_ref() else {
                return;
            };
            let deadlines = [server.deadline(), self.disk.borrow().tend_at()];
            deadlines.into_iter().flatten().min()
        };
        let Some(deadline) = deadline else { return };
        let due = self.clock.reaches(deadline) + world.late_ns(NOBODY);
        let at = due.max(world.sched.now() + 1_000);
        if self.tick_at.get().is_some_and(|armed| armed <= at) {
            return;
        }
        self.tick_at.set(Some(at));
        let then = Rc::clone(world);
        world.sched.at(at, move || {
            if then.server.tick_at.get() == Some(at) {
                let server = &then.server;
                server.tick_at.set(None);
                let now = server.clock.shows(then.sched.now());
                server.disk.borrow_mut().tend(now);
                server.input(&then, Input::Tick);
            }
        });
    }
}
