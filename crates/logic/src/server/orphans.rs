//! Objects that have lost their last name: how long they stay, and the room that they give back.
//!
//! Guarantees: an object goes when no name leads to it, nobody has it open, and no program can have
//! it in hand from a look-up of a moment ago. A change that the disk, or the limits of its volume,
//! have no room for is not refused while an object is about to go that may give some: it waits for
//! that, but for no longer than an object stays that loses its name now. So what a program removes
//! makes room for what it writes next.

use crate::room::growth;
use crate::server::api::By;
use crate::server::requests::conflicts::Needs;
use crate::server::requests::plan::Plan;
use crate::server::table::Waiting;
use crate::server::{Server, Step};
use wire::{Fid, Op, Refusal, Time};

impl Server {
    /// An object without a name goes when nobody has it open, and not at once.
    pub(crate) fn linger(&mut self, now: Time, fid: Fid) {
        let until = now + self.options.linger_ns;
        self.files.entry(fid).or_default().orphan = Some(until);
        self.lingering.insert((until, fid));
    }

    /// Has an object lost its last name so lately that a program may have it in hand?
    pub(crate) fn lingers(&self, fid: Fid) -> bool {
        let orphan = self.files.get(&fid).and_then(|file| file.orphan);
        orphan.is_some_and(|until| self.lingering.contains(&(until, fid)))
    }

    /// An object that had no name has one now.
    pub(crate) fn keep_named(&mut self, fid: Fid) {
        let file = self.files.get_mut(&fid);
        if let Some(until) = file.and_then(|file| file.orphan.take()) {
            self.lingering.remove(&(until, fid));
        }
    }

    /// Those that have stayed for long enough.
    pub(crate) fn tick_lingering(&mut self, step: &mut Step<'_>) {
        while let Some((until, fid)) = self.lingering.first().copied() {
            if step.now < until {
                break;
            }
            self.lingering.remove(&(until, fid));
            self.reap_if_unused(step, fid);
            self.forget_quiet(fid);
        }
    }

    /// Removes what is left of a nameless object once nobody has it open.
    pub(crate) fn reap_if_unused(&mut self, step: &mut Step<'_>, fid: Fid) {
        let Some(file) = self.files.get(&fid) else {
            return;
        };
        let due = file.orphan.is_some_and(|until| step.now >= until);
        if !due || file.in_use() || self.is_kept_away(fid) {
            return;
        }
        if let Some(file) = self.files.get_mut(&fid) {
            file.orphan = None;
        }
        let nobody = wire::Caller::default();
        let now = self.stamp(step);
        let reap = Op::Reap { fid };
        let by = By {
            caller: &nobody,
            origin: None,
            delegated: None,
            again: false,
            promised: None,
        };
        step.disk.apply(now, &reap, by, 0);
    }

    /// When an object goes that may give the room for which a change was refused; `None`: none
    /// does, or the change has waited for all that had lost their names when it came.
    pub(crate) fn room_comes(
        &self,
        now: Time,
        waiting: &Waiting,
        refusal: Refusal,
    ) -> Option<Time> {
        let anywhere = match refusal {
            Refusal::NoSpace => true,
            Refusal::Quota => false,
            _ => return None,
        };
        let request = &waiting.request;
        let (volume, _) = growth(&request.op).filter(|_| request.delegated.is_none())?;
        let waited = waiting.since.map(|since| since + self.options.linger_ns);
        if waited.is_some_and(|over| now >= over) {
            return None;
        }
        // Also where a client may still have it open: mostly it is about to say that it has not.
        let goes = |fid: &Fid| anywhere || fid.volume == volume;
        let mut lingering = self.lingering.iter();
        let next = lingering.find(|(until, fid)| *until > now && goes(fid));
        next.map(|(until, _)| *until)
    }

    /// A change is tried once more then.
    pub(crate) fn wait_for_room(
        &mut self,
        step: &mut Step<'_>,
        mut waiting: Waiting,
        (plan, until): (&Plan, Time),
    ) {
        let seq = waiting.seq;
        waiting.patient_until = Some(until);
        self.patient.insert((until, seq));
        self.wait_for(step, (seq, waiting), plan.clone(), Needs::default());
    }
}
