//! Changes of rights that take nothing in truth: all clients are asked for all that they cache, as
//! when a machine is granted something else. No answer may be another one for that, and when the
//! server says that it is in force, nobody holds anything that was granted before.

use crate::atlas::Fault;
use crate::coverage::Rare;
use crate::host::ServerRoom;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::world::World;
use crate::wrong::wrong;
use logic::Ticket;
use logic::server::{Input, Server};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Epoch, Right, Rights};

/// In so many of a thousand worlds.
const REGRANTS_PERMILLE: u64 = 66;

/// Changes of rights that a server is to say are in force, each with the epoch of the latest grant
/// before it.
#[derive(Default)]
pub(crate) struct Regrants {
    last: RefCell<Ticket>,
    open: RefCell<BTreeMap<Ticket, Epoch>>,
}

impl Regrants {
    /// The server has died, and nobody waits any more.
    pub(crate) fn end(&self) {
        self.open.borrow_mut().clear();
    }

    pub(crate) fn are_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    fn begin(&self, server: &Server) -> Ticket {
        let tokens = server.tokens();
        let upto = tokens.iter().map(|token| token.epoch).max().unwrap_or(0);
        let ticket = *self.last.borrow() + 1;
        *self.last.borrow_mut() = ticket;
        self.open.borrow_mut().insert(ticket, upto);
        ticket
    }

    /// Judges what the server says.
    pub(crate) fn in_force(
        &self,
        world: &Rc<World>,
        (ticket, done): (Ticket, bool),
        server: &Server,
    ) {
        let upto = self.open.borrow_mut().remove(&ticket);
        let Some(upto) = upto else {
            return world.fail(wrong!(
                "change {ticket} of rights is in force twice, or unasked"
            ));
        };
        if !done {
            return;
        }
        world.meet(Rare::Regranted.bit());
        let tokens = server.tokens();
        let mut held = tokens.iter().filter(|token| token.right > Right::None);
        if let Some(token) = held.find(|token| token.epoch <= upto) {
            world.fail(wrong!(
                "a change of rights is in force, and {token:?} is older"
            ));
        }
    }
}

impl Plan {
    /// Changes of rights, from a sequence of their own.
    pub(crate) fn draw_regrants(&mut self, rng: &mut Rng) {
        if !rng.chance(REGRANTS_PERMILLE) {
            return;
        }
        for _ in 0..rng.between(1, 4) {
            let at = self.fault_time(rng);
            self.faults.push((at, Fault::Regrant));
        }
    }
}

impl ServerRoom {
    /// The rights of the clients' machine are said to be others.
    pub(crate) fn regrant(&self, world: &Rc<World>) {
        let begun = {
            let machine = self.machine.borrow();
            machine.as_ref().map(|server| self.regrants.begin(server))
        };
        if let Some(ticket) = begun {
            let (machine, rights) = (0, Rights::all());
            let input = Input::Regrant {
                ticket,
                machine,
                rights,
            };
            self.input(world, input);
        }
    }

    pub(crate) fn on_in_force(&self, world: &Rc<World>, of: (Ticket, bool)) {
        let machine = self.machine.borrow();
        if let Some(server) = machine.as_ref() {
            self.regrants.in_force(world, of, server);
        }
    }
}
