//! Messages that a silent link holds up.
//!
//! Guarantees: what is held up on a way arrives when that way is silent no more, in the order in
//! which it would have arrived, and nothing that comes later arrives before it, however often the
//! silence begins anew: a connection keeps its order, as TCP does.

use super::Network;
use crate::atlas::Ways;
use crate::rng::Rng;
use crate::world::World;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use wire::Time;

/// A machine, and the direction of its link.
type Way = (u32, usize);

/// An arrival, and its random numbers.
type Message = (Box<dyn FnOnce()>, Rng);

/// The messages that silent ways hold up, each way's in their order.
#[derive(Default)]
pub(super) struct Held(RefCell<BTreeMap<Way, VecDeque<Message>>>);

impl Network {
    /// Nothing gets through on these ways for a while.
    pub(crate) fn silence(&self, world: &World, host: u32, (ways, ns): (Ways, Time)) {
        if let Some(link) = self.links.borrow_mut().get_mut(&host) {
            for (until, _) in link.silent_until.iter_mut().zip(ways).filter(|(_, on)| *on) {
                *until = (*until).max(world.sched.now() + ns);
            }
        }
    }

    fn silent_until(&self, (host, way): (u32, usize)) -> Time {
        let links = self.links.borrow();
        links.get(&host).map_or(0, |link| link.silent_until[way])
    }

    /// Has it arrive then, or when its way is silent no more, behind all that came before it: TCP
    /// sends it again, and keeps the order.
    pub(super) fn at(world: &Rc<World>, way: Way, at: Time, arrive: impl FnOnce() + 'static) {
        let then = Rc::clone(world);
        world.sched.at(at, move || {
            let until = then.net.silent_until(way);
            let mut held = then.net.held.0.borrow_mut();
            let waiting = held.entry(way).or_default();
            if until <= then.sched.now() && waiting.is_empty() {
                drop(held);
                return arrive();
            }
            let rng = then.rng.borrow_mut().branch();
            waiting.push_back((Box::new(arrive), rng));
            if waiting.len() == 1 {
                drop(held);
                Self::let_through(&then, way, until);
            }
        });
    }

    /// Lets arrive what a silent way has held up, at this time, unless the way is silent longer.
    fn let_through(world: &Rc<World>, way: Way, at: Time) {
        let then = Rc::clone(world);
        world.sched.at(at, move || {
            let until = then.net.silent_until(way);
            if until > then.sched.now() {
                return Self::let_through(&then, way, until);
            }
            while let Some((arrive, rng)) = then.net.next_held(way) {
                then.sched.with_rng(rng, arrive);
            }
        });
    }

    fn next_held(&self, way: Way) -> Option<Message> {
        self.held.0.borrow_mut().get_mut(&way)?.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunOptions;

    #[test]
    fn a_way_that_is_silent_twice_keeps_its_order() {
        const MS: Time = 1_000_000;
        let world = World::new(1, &RunOptions::default());
        let (start, way) = (world.sched.now(), (1, 0));
        world.net.join(&world, way.0);
        let said = Rc::new(RefCell::new(Vec::new()));
        let say = |at: Time, word: &'static str| {
            let (heard, then) = (Rc::clone(&said), Rc::clone(&world));
            let arrive = move || heard.borrow_mut().push((word, then.sched.now() - start));
            Network::at(&world, way, start + at, arrive);
        };
        let silence = |at: Time, ns: Time| {
            let then = Rc::clone(&world);
            let begin = move || then.net.silence(&then, way.0, ([true, false], ns));
            world.sched.at(start + at, begin);
        };
        silence(0, 10 * MS);
        say(MS, "hello");
        silence(5 * MS, 20 * MS);
        say(6 * MS, "request");
        say(25 * MS, "later");
        say(26 * MS, "last");
        while world.sched.now() < start + 30 * MS {
            world.sched.step();
        }
        let end = 25 * MS;
        let all = [
            ("hello", end),
            ("request", end),
            ("later", end),
            ("last", 26 * MS),
        ];
        assert_eq!(*said.borrow(), all);
    }
}
