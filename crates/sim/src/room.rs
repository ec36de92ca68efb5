//! The room of one client machine: carries out what `logic::client::Client` says, in its order, as
//! the real room does: slots, bytes of calls, messages, answers to the kernel.

use crate::clock::Clock;
use crate::coverage::{self, Rare};
use crate::disk::{UNIT, Units};
use crate::exec::Signal;
use crate::kernel::Kernel;
use crate::network::Beside;
use crate::world::World;
use crate::wrong::wrong;
use logic::client::{Call, Client, Done, Event, Input, Options, Output, Piece, Waits};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;
use wire::{Caller, Fid, Refusal, SessionId, Time};

/// Units of a slot.
const SLOT_UNITS: usize = BLOCK_BYTES as usize / UNIT as usize;

/// An answer, with the bytes that were read.
pub(crate) struct Reply {
    pub(crate) done: Done,
    pub(crate) units: Units,
}

struct Waiting {
    units: Units,
    reply: Signal<Reply>,
    late: bool,
    /// The file that it opens.
    opens: Option<Fid>,
}

/// One client machine's room.
pub(crate) struct Room {
    pub(crate) host: u32,
    machine: RefCell<Client>,
    /// The room of the last outputs, to be used again.
    outputs: RefCell<Vec<Output>>,
    slots: RefCell<Vec<u64>>,
    calls: RefCell<BTreeMap<u64, Waiting>>,
    /// Bytes of writes whose callers were killed: they may have to be sent again.
    orphaned: RefCell<BTreeMap<u64, Units>>,
    /// Bytes of requests that may have to be sent again, also after they were answered.
    kept: RefCell<BTreeMap<u64, Units>>,
    last_ticket: Cell<u64>,
    tick_at: Cell<Option<Time>>,
    clock: Clock,
    alive: Cell<bool>,
    kernel: RefCell<Option<Rc<Kernel>>>,
}

fn units(bytes: u32) -> usize {
    debug_assert!(u64::from(bytes) % UNIT == 0);
    bytes as usize / UNIT as usize
}

fn place(slot: u32, at: u32) -> usize {
    slot as usize * SLOT_UNITS + units(at)
}

impl Room {
    pub(crate) fn new(host: u32, session: SessionId, options: Options, clock: Clock) -> Rc<Self> {
        let slots = vec![0; options.slots as usize * SLOT_UNITS];
        let name = format!("host{host}");
        Rc::new(Self {
            host,
            machine: RefCell::new(Client::new(options, session, name.as_bytes())),
            outputs: RefCell::default(),
            slots: RefCell::new(slots),
            calls: RefCell::default(),
            orphaned: RefCell::default(),
            kept: RefCell::default(),
            last_ticket: Cell::new(0),
            tick_at: Cell::new(None),
            clock,
            alive: Cell::new(true),
            kernel: RefCell::new(None),
        })
    }

    pub(crate) fn set_kernel(&self, kernel: Option<Rc<Kernel>>) {
        *self.kernel.borrow_mut() = kernel;
    }

    pub(crate) fn kernel(&self) -> Option<Rc<Kernel>> {
        self.kernel.borrow().clone()
    }

    pub(crate) fn alive(&self) -> bool {
        self.alive.get()
    }

    pub(crate) fn session(&self) -> SessionId {
        self.machine.borrow().session()
    }

    pub(crate) fn root(&self) -> Option<Fid> {
        self.machine.borrow().root()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&Client) -> T) -> T {
        look(&self.machine.borrow())
    }

    /// The machine vanishes: nothing that comes to it is heard any more.
    pub(crate) fn die(&self) {
        self.alive.set(false);
        self.calls.borrow_mut().clear();
        self.set_kernel(None);
    }

    /// A call; `late`: the answer is digested some time after it was written.
    pub(crate) fn call(
        self: &Rc<Self>,
        world: &Rc<World>,
        call: Call,
        units: Units,
        late: bool,
    ) -> Signal<Reply> {
        self.last_ticket.set(self.last_ticket.get() + 1);
        let ticket = self.last_ticket.get();
        let reply = Signal::new(&world.sched);
        let waiting = Waiting {
            units,
            reply: reply.clone(),
            late,
            opens: match &call {
                Call::Open { fid, .. } => Some(*fid),
                _ => None,
            },
        };
        self.calls.borrow_mut().insert(ticket, waiting);
        let caller = Caller::default();
        self.input(
            world,
            Input::Call {
                ticket,
                caller,
                thread: world.sched.task() as u32,
                waits: Waits::default(),
                call,
            },
            Units::new(),
        );
        reply
    }

    /// The cache may use so many slots, and know so many objects, from now on.
    pub(crate) fn allow(self: &Rc<Self>, world: &Rc<World>, slots: u32, objects: usize) {
        let before = self.with(Client::used_slots);
        world.trace(|| format!("h{} has {before} blocks", self.host));
        self.input(world, Input::Memory { slots, objects }, Units::new());
        if self.with(Client::used_slots) < before {
            world.meet(Rare::Shrunk.bit());
        }
    }

    /// The caller of the last call is killed after this time, or handles a signal, if it waits.
    pub(crate) fn signal_later(self: &Rc<Self>, world: &Rc<World>, after: Time, ends: bool) {
        let ticket = self.last_ticket.get();
        let (room, then) = (Rc::clone(self), Rc::clone(world));
        world.sched.at(world.sched.now() + after, move || {
            if !room.calls.borrow().contains_key(&ticket) {
                return;
            }
            let input = match ends {
                true => Input::Abandon { ticket },
                false => Input::Interrupt { ticket },
            };
            room.input(&then, input, Units::new());
            if !room.calls.borrow().contains_key(&ticket) {
                then.meet(Rare::Interrupted.bit());
            }
        });
    }

    /// Are there bytes of writes that nobody waits for?
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphaned.borrow().is_empty()
    }

    /// Are bytes kept for requests?
    pub(crate) fn keeps_bytes(&self) -> bool {
        !self.kept.borrow().is_empty()
    }

    /// Gives the machine an input, with the units beside a message, and does what it says.
    pub(crate) fn input(self: &Rc<Self>, world: &Rc<World>, input: Input, beside: Units) {
        if !self.alive.get() {
            return;
        }
        world.trace(|| format!("h{} < {}", self.host, brief(&input)));
        let now = self.clock.shows(world.sched.now());
        let mut outputs = self.outputs.take();
        let lists = matches!(
            input,
            Input::Call {
                call: Call::List { .. },
                ..
            }
        );
        let shared = self.machine.borrow().lending();
        self.machine.borrow_mut().handle(now, input, &mut outputs);
        self.meet_kept(world, (shared, self.machine.borrow().lending()));
        // In these worlds there are fewer blocks than a step gives up.
        if self.machine.borrow().is_over() {
            world.fail(wrong!("h{} keeps more blocks than it may", self.host));
        }
        for output in outputs.drain(..) {
            if lists {
                world.meet(coverage::of_listing(&output));
            }
            self.output(world, output, &beside);
        }
        self.outputs.replace(outputs);
        self.arm(world);
    }

    fn arm(self: &Rc<Self>, world: &Rc<World>) {
        let Some(deadline) = self.machine.borrow().deadline() else {
            return;
        };
        // A deadline that has passed comes a moment later, so that time goes on.
        let due = self.clock.reaches(deadline) + world.late_ns(self.host);
        let at = due.max(world.sched.now() + 1_000);
        if self.tick_at.get().is_some_and(|armed| armed <= at) {
            return;
        }
        self.tick_at.set(Some(at));
        let (room, world_then) = (Rc::clone(self), Rc::clone(world));
        world.sched.at(at, move || {
            if room.tick_at.get() == Some(at) {
                room.tick_at.set(None);
                room.input(&world_then, Input::Tick, Units::new());
            }
        });
    }

    /// Moves bytes into slots.
    fn move_units(&self, world: &World, output: Output, beside: &Units) {
        match output {
            Output::Fill { slot, from, len } => {
                let mut slots = self.slots.borrow_mut();
                let to = &mut slots[place(slot, 0)..][..SLOT_UNITS];
                to.fill(0);
                if len > 0 {
                    to[..units(len)].copy_from_slice(&beside[units(from)..][..units(len)]);
                }
            }
            Output::CopyIn {
                ticket,
                from,
                slot,
                at,
                len,
                but_zeros,
            } => {
                let calls = self.calls.borrow();
                let Some(waiting) = calls.get(&ticket) else {
                    return world.fail(wrong!("bytes of the unknown call {ticket} are used"));
                };
                let from = &waiting.units[units(from)..][..units(len)];
                let mut slots = self.slots.borrow_mut();
                let to = &mut slots[place(slot, at)..][..units(len)];
                let counts = |unit: &u64| *unit != 0 || !but_zeros;
                for (to, from) in to.iter_mut().zip(from).filter(|(_, from)| counts(from)) {
                    *to = *from;
                }
            }
            Output::Zero { slot, at, len } => {
                self.slots.borrow_mut()[place(slot, at)..][..units(len)].fill(0);
            }
            _ => {}
        }
    }

    fn output(self: &Rc<Self>, world: &Rc<World>, output: Output, beside: &Units) {
        world.trace(|| format!("h{} > {}", self.host, show(&output)));
        world.meet(coverage::of_client(&output));
        match output {
            Output::Send { message, bulk } => {
                let (message, units) = (*message, self.gather(&bulk, beside));
                world
                    .net
                    .to_server(world, self.host, Beside { message, units });
            }
            Output::Keep { request, bulk } => {
                let units = self.gather(&bulk, beside);
                self.kept.borrow_mut().insert(request, units);
            }
            Output::Forget { request } => self.forget(world, request),
            Output::Done { ticket, done } => self.answer(world, ticket, done, beside),
            Output::Abandoned { ticket, done } => {
                let calls = self.calls.borrow();
                let units = calls.get(&ticket).map(|waiting| waiting.units.clone());
                drop(calls);
                self.orphaned
                    .borrow_mut()
                    .extend(units.map(|units| (ticket, units)));
                world.meet(Rare::Abandoned.bit());
                self.answer(world, ticket, done, beside);
            }
            Output::Spent { ticket } => {
                if self.orphaned.borrow_mut().remove(&ticket).is_none() {
                    world.fail(wrong!("bytes of the call {ticket} are given back twice"));
                }
            }
            // Kernels of these worlds report killed callers by themselves.
            Output::Look { .. } => {}
            Output::Fill { .. } | Output::CopyIn { .. } | Output::Zero { .. } => {
                self.move_units(world, output, beside);
            }
            Output::Outdated { fid } => {
                if let Some(kernel) = self.kernel() {
                    kernel.throw_away(fid);
                }
            }
            Output::Invalidate { id, what } => match self.kernel() {
                Some(kernel) => kernel.invalidate(id, what),
                None => self.invalidated_later(world, id),
            },
            Output::Watched {
                watch,
                missed,
                changes,
                end,
            } => {
                let moment = world.sched.moment();
                let whose = (self.host, watch);
                let met = world.watchers.told(moment, whose, (missed, changes), end);
                world.meet(met);
            }
            Output::Peer(output) => self.to_peer(world, output, beside),
            Output::Hangup | Output::Redial => world.net.hangup(world, self.host),
            Output::Event(event) => self.event(world, &event),
        }
    }

    fn forget(&self, world: &World, request: u64) {
        if self.kept.borrow_mut().remove(&request).is_none() {
            world.fail(wrong!(
                "bytes of the request {request} are given back twice"
            ));
        }
    }

    fn event(&self, world: &World, event: &Event) {
        if let Some(kernel) = self.kernel() {
            kernel.hears(event);
        }
        if let Event::WriteBackRefused { fid, refusal } = event
            && matches!(refusal, Refusal::Quota | Refusal::NoSpace)
            && world.plan.keeps_room()
        {
            world.fail(wrong!(
                "h{} had answered a write to {fid}, and it finds no room: {refusal:?}",
                self.host
            ));
        }
        if !matches!(
            event,
            Event::SessionLost | Event::DataLost { .. } | Event::ChangesLost { .. }
        ) {
            return;
        }
        world.history.lost(self.host, world.sched.moment());
        world.history.admits(self.host, event);
        let restarts = world.plan.power_fails() || world.servers.len() > 1;
        let spared = restarts && !world.plan.costs().session;
        if spared && matches!(event, Event::ChangesLost { .. }) {
            world.fail(wrong!("h{} has lost what it was answered", self.host));
        }
    }

    /// There is no kernel before the mount.
    fn invalidated_later(self: &Rc<Self>, world: &Rc<World>, id: u64) {
        let (room, world_then) = (Rc::clone(self), Rc::clone(world));
        world.sched.at(world.sched.now(), move || {
            room.input(&world_then, Input::Invalidated { id }, Units::new());
        });
    }

    pub(crate) fn gather(&self, pieces: &[Piece], beside: &Units) -> Units {
        let mut all = Units::new();
        for piece in pieces {
            match *piece {
                Piece::Slot { slot, at, len } => {
                    all.extend(&self.slots.borrow()[place(slot, at)..][..units(len)]);
                }
                Piece::Zero { len } => all.extend(std::iter::repeat_n(0, units(len))),
                Piece::Bulk { from, len } => all.extend(&beside[units(from)..][..units(len)]),
                Piece::Kept { request } => {
                    all.extend(self.kept.borrow().get(&request).into_iter().flatten());
                }
                Piece::Call { ticket } => {
                    let (calls, orphaned) = (self.calls.borrow(), self.orphaned.borrow());
                    let waiting = calls.get(&ticket).map(|waiting| &waiting.units);
                    all.extend(waiting.or(orphaned.get(&ticket)).into_iter().flatten());
                }
            }
        }
        all
    }

    fn answer(&self, world: &Rc<World>, ticket: u64, done: Done, beside: &Units) {
        let Some(waiting) = self.calls.borrow_mut().remove(&ticket) else {
            return world.fail(wrong!("the call {ticket} is answered twice: {done:?}"));
        };
        let units = match &done {
            Done::Read { pieces } | Done::Opened { bytes: pieces, .. } => {
                self.gather(pieces, beside)
            }
            _ => Units::new(),
        };
        // Before the answer is, as what the kernel must drop is told to it in its order.
        if let (Some(fid), Some(kernel)) = (waiting.opens, self.kernel())
            && !units.is_empty()
        {
            world.meet(Rare::Given.bit());
            kernel.store(fid, &units);
        }
        let reply = Reply { done, units };
        if !waiting.late {
            return waiting.reply.set(reply);
        }
        let delay = world.plan.kernel_delay(&mut world.rng.borrow_mut());
        world
            .sched
            .at(world.sched.now() + delay, move || waiting.reply.set(reply));
    }
}

fn brief(input: &Input) -> String {
    match input {
        Input::Message { message, bulk_len } => format!("{message:?} +{bulk_len}"),
        Input::Call { ticket, call, .. } => format!("#{ticket} {call:?}"),
        other => format!("{other:?}"),
    }
}

fn show(output: &Output) -> String {
    match output {
        Output::Send { message, bulk } => format!("{message:?} {bulk:?}"),
        Output::Done { ticket, done } => format!("#{ticket} {done:?}"),
        other => format!("{other:?}"),
    }
}
