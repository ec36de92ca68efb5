//! Faults at a step of a move.

use super::{Moving, Run};
use crate::coverage::Rare;
use crate::rng::Rng;
use crate::world::World;
use std::rc::Rc;
use store::Keep;
use wire::Time;

/// A step of a move that has just been made, or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The target has found the store.
    Begun,
    /// A round was made while the store is in use.
    Round,
    /// The record says that the store leaves; it is served still.
    Leaving,
    /// The source has closed it, and has not said so.
    Closed,
    /// The last round was made, and nothing of it is stable.
    Last,
    /// The copy is stable.
    Stable,
    /// It is noted as whole.
    Whole,
    /// The target is about to take over.
    Switching,
    /// A server has read the record, and is about to change it.
    Changing,
    /// It was changed, and the store is not open yet.
    Switched,
    /// The store is served at the target.
    Served,
    /// The source is about to remove what it has left.
    Removing,
}

const STEPS: [Step; 12] = [
    Step::Begun,
    Step::Round,
    Step::Leaving,
    Step::Closed,
    Step::Last,
    Step::Stable,
    Step::Whole,
    Step::Switching,
    Step::Changing,
    Step::Switched,
    Step::Served,
    Step::Removing,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    Source,
    Target,
    Both,
    /// The command that drives the move.
    Command,
    Database,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// A process dies.
    Dies,
    /// With the power of its machine, whose disk keeps this.
    Power(Keep),
    /// It does nothing for a while. (Of a command: it takes the move back.)
    Pauses,
}

/// A fault, whom it hits, and at which step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    step: Step,
    whom: Whom,
    how: How,
    /// For how long.
    ns: Time,
}

impl Cut {
    /// `power`: what a machine's disk keeps that loses its power, if that may happen here.
    pub(crate) fn draw(rng: &mut Rng, power: Option<Keep>, most_ns: Time) -> Self {
        let step = *rng.pick(&STEPS);
        let whom = *rng.pick(&[
            Whom::Source,
            Whom::Source,
            Whom::Target,
            Whom::Target,
            Whom::Target,
            Whom::Both,
            Whom::Command,
            Whom::Database,
            Whom::Database,
        ]);
        let dies = power.map_or(How::Dies, How::Power);
        let how = *rng.pick(&[dies, dies, How::Dies, How::Pauses]);
        let ns = rng.between(1, most_ns);
        Self {
            step,
            whom,
            how,
            ns,
        }
    }

    /// Does a machine lose its power?
    pub(crate) fn is_power(&self) -> bool {
        matches!(self.how, How::Power(_))
    }

    /// How long it lasts.
    pub(crate) fn length(&self) -> Time {
        self.ns
    }
}

impl Moving {
    /// It happens when a move comes to that step.
    pub(crate) fn arm(&self, cut: Cut) {
        self.armed.borrow_mut().push(cut);
    }

    fn take(&self, step: Step) -> Option<Cut> {
        let armed = &mut *self.armed.borrow_mut();
        let at = armed.iter().position(|cut| cut.step == step)?;
        Some(armed.remove(at))
    }
}

impl Run {
    /// A move has come to this step, from one server to another.
    pub(super) async fn reach(&self, step: Step, [source, target]: [usize; 2]) {
        let world = &self.world;
        let cut = world.moving.take(step).filter(|_| world.faults_on());
        if let Some(cut) = cut {
            // This task may be in what ends.
            let then = Rc::clone(world);
            let strike = move || then.cut(cut, [source, target]);
            world.sched.at(world.sched.now(), strike);
        }
        self.rest(200_000).await;
    }
}

impl World {
    fn cut(self: &Rc<Self>, cut: Cut, [source, target]: [usize; 2]) {
        self.trace(|| format!("{cut:?}"));
        let until = self.sched.now() + cut.ns;
        let whom: &[usize] = match cut.whom {
            Whom::Source => &[source],
            Whom::Target => &[target],
            Whom::Both => &[source, target],
            Whom::Command if cut.how == How::Pauses => return self.moving.cancelled.set(true),
            Whom::Command => return self.moving.killed.set(true),
            Whom::Database => return self.moving.database.away(until),
        };
        self.meet(Rare::MoveCut.bit());
        for &own in whom {
            match cut.how {
                How::Dies => self.ends_for(own, None, cut.ns),
                How::Power(keep) => self.ends_for(own, Some(keep), cut.ns),
                How::Pauses => self.pause(own, until),
            }
        }
    }
}
