//! The room of a server: carries out what `logic::server::Server` says, and survives its death.

use crate::clock::Clock;
use crate::coverage::{self, Rare};
use crate::disk::{Closed, DiskRoom, UNIT, Units};
use crate::liar::LIAR;
use crate::moving::Site;
use crate::network::Beside;
use crate::regrants::Regrants;
use crate::world::{NOBODY, World};
use crate::wrong::wrong;
use logic::Ticket;
use logic::server::{Conn, Disk, Event, Input, Options, Output, Server};
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::rc::Rc;
use store::Keep;
use wire::{Fid, SessionId, Time, ToServer};

/// A server's machine and disk.
pub(crate) struct ServerRoom {
    /// Its number among the servers.
    own: usize,
    options: Options,
    clock: Clock,
    pub(crate) machine: RefCell<Option<Server>>,
    /// The room of the last outputs, to be used again.
    outputs: RefCell<Vec<Output>>,
    /// The store's directory, where it is here.
    disk: RefCell<Option<DiskRoom>>,
    /// The rest of what it has where the store moves.
    pub(crate) site: Site,
    /// Sessions that the last run had fenced, or taken something from, when it stopped: nobody was
    /// told.
    unnoted: RefCell<Vec<Event>>,
    tick_at: Cell<Option<Time>>,
    /// The next run is another server.
    replaced: Cell<bool>,
    pub(crate) regrants: Regrants,
}

impl ServerRoom {
    pub(crate) fn new(
        own: usize,
        (options, clock): (Options, Clock),
        disk: Option<DiskRoom>,
    ) -> Self {
        Self {
            own,
            options,
            clock,
            machine: RefCell::new(None),
            outputs: RefCell::default(),
            disk: RefCell::new(disk),
            site: Site::new(),
            unnoted: RefCell::default(),
            tick_at: Cell::new(None),
            replaced: Cell::new(false),
            regrants: Regrants::default(),
        }
    }

    /// The store's directory, which is here.
    pub(crate) fn disk(&self) -> Ref<'_, DiskRoom> {
        Ref::map(self.disk.borrow(), |disk| {
            disk.as_ref().expect("the store's directory is here")
        })
    }

    pub(crate) fn disk_mut(&self) -> RefMut<'_, DiskRoom> {
        RefMut::map(self.disk.borrow_mut(), |disk| {
            disk.as_mut().expect("the store's directory is here")
        })
    }

    /// Is the store's directory here?
    pub(crate) fn has_disk(&self) -> bool {
        self.disk.borrow().is_some()
    }

    /// The store's directory is this from now on. The one that was here.
    pub(crate) fn put_disk(&self, disk: Option<DiskRoom>) -> Option<DiskRoom> {
        self.disk.replace(disk)
    }

    /// The process ends, since its disk could not be written or made stable. Somebody starts it
    /// again.
    fn stop(&self, world: &Rc<World>, why: String) {
        if !self.disk().shaken() {
            return world.fail(wrong!("the server stops: {why}"));
        }
        world.meet(Rare::Stopped.bit());
        self.die(world, None);
        self.revive(world);
    }

    fn revive(&self, world: &Rc<World>) {
        let most = self.options.lease_ns / 8;
        let delay = world.rng.borrow_mut().between(1_000_000, most);
        let at = world.sched.now() + delay;
        world.comes_back_at(self.own, at);
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
        let known = self.disk().sessions();
        for session in known {
            self.disk_mut().close_session(session);
            world.on_fenced(session);
        }
        if let Err(why) = self.disk_mut().write_out() {
            world.fail(wrong!("the disk of another server: {why}"));
        }
    }

    /// Starts, or starts again with what the disk has.
    pub(crate) fn start(&self, world: &Rc<World>) {
        if self.up() {
            return;
        }
        let opened = self.disk_mut().open();
        match opened {
            Ok(()) => {}
            Err(Closed::Disk(what)) if self.disk().troubled() => {
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
            self.disk_mut().count_boot();
        }
        let known = self.disk().sessions();
        let epoch = self.disk().boots << 40;
        let root = Fid::root(1);
        world.trace(|| format!("server starts, knows {known:?}"));
        if !known.is_empty() {
            world.meet(Rare::RestartKnown.bit());
        }
        // A note that it could not write out may have come to the disk all the same.
        let away = self.disk().away();
        for note in self.unnoted.take() {
            match note {
                Event::Fenced { session } if !known.contains(&session) => world.on_fenced(session),
                Event::Away { session, all } if away.contains(&session) => {
                    world.on_away(session, all);
                }
                _ => {}
            }
        }
        world.on_untold(&known);
        let now = self.clock.shows(world.sched.now());
        let newest = self.disk().newest();
        let options = self.options.clone();
        let held = self.disk().may_hold();
        let server = Server::new(options, now, (epoch, root), (known, newest)).knowing(held);
        let server = server.after(self.disk().runs.clone()).without(&away);
        for session in away {
            world.on_unlocked(session, None);
        }
        *self.machine.borrow_mut() = Some(server);
        self.arm(world);
        if let Some(neighbours) = &world.plan.neighbours {
            let policy = neighbours.policy;
            self.input(world, Input::Cooperate { policy });
        }
    }

    /// The process dies; with its machine, if that lost its power, alone or with all others, and
    /// kept this of what was not stable.
    pub(crate) fn die(&self, world: &Rc<World>, power: Option<(Keep, bool)>) {
        world.trace(|| format!("{} dies", world.server_name(self.own)));
        self.end_machine();
        if let Some(disk) = &mut *self.disk.borrow_mut() {
            match power {
                Some((keep, _)) if disk.is_at_rest() => disk.power_at_rest(keep),
                Some((keep, alone)) => {
                    if let Err(wrong) = disk.power(keep, alone) {
                        world.fail(wrong);
                    }
                }
                None => disk.die(),
            }
        }
        world.net.server_died(world, self.own);
    }

    fn end_machine(&self) {
        *self.machine.borrow_mut() = None;
        self.tick_at.set(None);
        self.regrants.end();
    }

    /// Serves no more, and leaves the store at rest for another server.
    pub(crate) fn close(&self, world: &Rc<World>) {
        world.trace(|| format!("{} closes the store", world.server_name(self.own)));
        self.end_machine();
        if let Err(what) = self.disk_mut().close() {
            world.fail(wrong!("the store cannot be closed: {what}"));
        }
        world.net.server_died(world, self.own);
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
        let held = self.disk().held();
        let locked = figures.locks + figures.lock_waits;
        let idle = figures.waiting + locked == 0 && !self.regrants.are_open();
        let clean = server.tokens().is_empty() && idle && held == 0;
        (!clean).then(|| format!("{figures:?}, {held} bulks, {:?}", server.tokens()))
    }

    pub(crate) fn message(&self, world: &Rc<World>, from: Conn, beside: Beside<ToServer>) {
        let Beside { message, units } = beside;
        if !self.has_disk() {
            return;
        }
        let bulk_len = (units.len() as u64 * UNIT) as u32;
        let bulk = self.disk_mut().hold(units);
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
            world.trace(|| format!("{} < {input:?}", world.server_name(self.own)));
            let disk = &mut *self.disk_mut();
            let now = self.clock.shows(world.sched.now());
            let asked = server.oldest_question();
            server.handle(now, input, disk, &mut outputs);
            world.check_patience([asked, server.oldest_question()], now);
            disk.write_out()
        };
        if let Err(why) = written {
            // Not one of these may be carried out: the changes that they report could be lost.
            let noted = outputs.drain(..).filter_map(|output| match output {
                Output::Event(note @ (Event::Fenced { .. } | Event::Away { .. })) => Some(note),
                _ => None,
            });
            self.unnoted.borrow_mut().extend(noted);
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
        world.trace(|| format!("{} > {output:?}", world.server_name(self.own)));
        world.meet(coverage::of_server(&output));
        match output {
            Output::Send {
                to,
                message,
                bulk,
                behind,
            } => {
                let units = match bulk {
                    0 => Units::new(),
                    bulk => self.disk_mut().release(bulk),
                };
                let beside = Beside { message, units };
                world.net.to_client(world, to, (beside, behind));
            }
            Output::Sync { ticket } => {
                let (own, boot) = (self.own, self.disk().boots);
                let upto = self.disk().position();
                let delay =
                    world.rng.borrow_mut().between(50_000, 3_000_000) + world.late_ns(NOBODY);
                let at = world.sched.now() + delay;
                world.when_running(own, at, move |world| {
                    let server = &world.servers[own];
                    if server.up() && server.disk().boots == boot {
                        server.sync(world, ticket, upto);
                    }
                });
            }
            Output::Discard { bulk } => {
                self.disk_mut().release(bulk);
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
            Output::Event(Event::GraceOver) => self.disk_mut().all_held = true,
            Output::Event(Event::InForce { ticket, done }) => {
                self.on_in_force(world, (ticket, done));
            }
            Output::Event(_) => {}
        }
    }

    fn sync(&self, world: &Rc<World>, ticket: Ticket, upto: u64) {
        let synced = self.disk_mut().sync();
        let ok = synced.is_ok();
        if ok {
            self.disk_mut().answered(upto);
        }
        self.input(world, Input::Synced { ticket, ok });
        if let Err(why) = synced
            && self.up()
        {
            world.meet(Rare::SyncFailed.bit());
            self.stop(world, why);
        }
    }

    fn arm(&self, world: &Rc<World>) {
        let deadline = {
            let machine = self.machine.borrow();
            let Some(server) = machine.as_ref() else {
                return;
            };
            let deadlines = [server.deadline(), self.disk().tend_at()];
            deadlines.into_iter().flatten().min()
        };
        let Some(deadline) = deadline else { return };
        let due = self.clock.reaches(deadline) + world.late_ns(NOBODY);
        let at = due.max(world.sched.now() + 1_000);
        if self.tick_at.get().is_some_and(|armed| armed <= at) {
            return;
        }
        self.tick_at.set(Some(at));
        let own = self.own;
        world.when_running(own, at, move |world| {
            let server = &world.servers[own];
            if server.tick_at.get() == Some(at) {
                server.tick_at.set(None);
                let now = server.clock.shows(world.sched.now());
                server.disk_mut().tend(now);
                server.input(world, Input::Tick);
            }
        });
    }
}
