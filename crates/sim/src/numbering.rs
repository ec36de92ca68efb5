//! The parts of a run, as they come up: calls, losses and repetitions are numbered and either
//! happen or are left out; machines draw from sequences of their own. So that what is left out
//! changes nothing of the rest (see [`crate::only`]).

use crate::only::CallId;
use crate::rng::{Branch, Rng};
use crate::run::Played;
use crate::world::World;

/// A stage of a machine with random numbers of its own.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Joins,
    Prepares,
    Works,
    Looks,
}

impl World {
    /// Does something with the random numbers of a machine: leaving out one changes no other.
    pub(crate) fn as_machine<T>(&self, host: u32, stage: Stage, action: impl FnOnce() -> T) -> T {
        let key = [self.key, u64::from(host), stage as u64];
        self.sched.with_rng(Rng::of(Branch::Machine, &key), action)
    }

    /// Does this call take part? If it does, it begins now.
    pub(crate) fn plays(&self, call: CallId) -> bool {
        let plays = self.only.has_call(call);
        if plays {
            self.played.borrow_mut().calls.push(call);
        }
        plays
    }

    /// A message to or from this machine would be lost: is it?
    pub(crate) fn loses(&self, host: u32) -> bool {
        let mut played = self.played.borrow_mut();
        played.losses += 1;
        let lost = self.only.is_lost(played.losses);
        if lost {
            self.trace(|| format!("h{host}: the next message is lost (lost {})", played.losses));
        }
        lost
    }

    /// A message to or from this machine would arrive twice: does it?
    pub(crate) fn repeats(&self, host: u32) -> bool {
        let mut played = self.played.borrow_mut();
        played.repetitions += 1;
        let twice = self.only.is_twice(played.repetitions);
        if twice {
            let number = played.repetitions;
            self.trace(|| format!("h{host}: the next message arrives twice (twice {number})"));
        }
        twice
    }

    /// The parts played so far.
    pub(crate) fn played(&self) -> Played {
        let mut played = self.played.take();
        played.machines = (1..=self.last_host.get())
            .filter(|&host| host > self.plan.clients || self.only.has_machine(host))
            .collect();
        played.faults.clone_from(&self.fault_numbers);
        played.messages = self.net.messages.get();
        played
    }
}
