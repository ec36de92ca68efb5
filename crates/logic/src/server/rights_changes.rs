//! Changes of groups and of the rights of machines, which are in force when they are answered.
//!
//! Kernels and clients judge by what they cache. So the server makes a request to itself, which
//! waits as a change of all that would: of groups for all that access lists govern, of a machine's
//! rights for all that its clients cache. When it has come back, or the leases of silent clients
//! are over, nobody goes by what was: `Event::InForce` says so.

use super::api::{Conn, Event, On, Output};
use super::requests::plan::Plan;
use super::schedules::OWN;
use super::table::{Holder, Seq, Waiting};
use crate::Ticket;
use crate::server::api::Disk;
use crate::server::mutant::Mutant;
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;
use wire::{Epoch, Fid, MachineId, Op, Request, Right, Rights, SessionId};

/// The requests of the server to itself that wait.
pub(crate) type Changes = BTreeMap<Seq, Change>;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    ticket: Ticket,
    of: Changed,
}

/// The kind of a change.
#[derive(Clone, Debug)]
enum Changed {
    /// Groups: the mounts on which they count otherwise than before; none: on all.
    Groups(Option<Vec<(MachineId, Vec<u8>)>>),
    /// Rights: those of these holders.
    Rights(Holders),
}

/// The holders of a machine, of what they were granted up to an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holders {
    machine: MachineId,
    upto: Epoch,
}

impl Server {
    /// The cell's groups are others now: kernels that were shown who is in them forget that.
    pub(crate) fn on_regroup(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        on: Option<Vec<(MachineId, Vec<u8>)>>,
    ) {
        let of = Changed::Groups(on);
        self.put_in_force(step, Change { ticket, of });
    }

    /// The rights of a machine are these now. Connections that were made under others end; on new
    /// ones its clients are told these before anything else. So whatever a client was granted
    /// earlier, and gives back there, it does not judge by any more.
    pub(crate) fn on_regrant(
        &mut self,
        step: &mut Step<'_>,
        ticket: Ticket,
        (machine, rights): (MachineId, &Rights),
    ) {
        let conns: Vec<Conn> = self.peers.outdated(machine, rights);
        for conn in conns {
            let violation = None;
            step.out.push(Output::Close { conn, violation });
            self.forget_peer(conn);
            self.lending.forget_conn(conn);
            self.on_gone(step.now, conn);
        }
        let upto = self.epoch;
        let of = Changed::Rights(Holders { machine, upto });
        self.put_in_force(step, Change { ticket, of });
    }

    fn put_in_force(&mut self, step: &mut Step<'_>, change: Change) {
        if self.locks_in_doubt().is_some() {
            let (ticket, done) = (change.ticket, false);
            let event = Event::InForce { ticket, done };
            return step.out.push(Output::Event(event));
        }
        self.last_seq += 1;
        let seq = self.last_seq;
        // It looks at nothing: its plan says what it waits for.
        let request = Request::new(change.ticket, Op::GetAttr { fid: self.root });
        let plan = self.plan_change(step.disk, &change, None);
        self.changes.insert(seq, change);
        let waiting = Waiting::new((seq, self.epoch), OWN, (request, 0));
        let needs = self.needs(&waiting, &plan);
        let early = self.options.mutant == Some(Mutant::RegrantsAtOnce);
        if needs.0.is_empty() || early {
            return self.execute(step, waiting, &plan);
        }
        self.wait_for(step, (seq, waiting), plan, needs);
    }

    fn plan_change(&self, disk: &dyn Disk, change: &Change, behind: Option<Fid>) -> Plan {
        match &change.of {
            Changed::Groups(on) => self.plan_regroup(disk, on.as_deref(), behind),
            Changed::Rights(holders) => self.plan_regrant(*holders, behind),
        }
    }

    /// All that lists govern, and that these mounts have, is given up by all.
    fn plan_regroup(
        &self,
        disk: &dyn Disk,
        on: Option<&[(MachineId, Vec<u8>)]>,
        behind: Option<Fid>,
    ) -> Plan {
        let of_mount = |session: SessionId| {
            let On { machine, name } = self.mount_of(session);
            let is =
                |mount: &(MachineId, Vec<u8>)| (mount.0, mount.1.as_slice()) == (machine, name);
            on.is_none_or(|mounts| mounts.iter().any(is))
        };
        let mut plan = Plan {
            withdraws: true,
            ..Plan::default()
        };
        let of = |fid: Fid, (session, holder): (SessionId, &Holder)| {
            holder.right > Right::None && of_mount(session) && disk.governed(fid)
        };
        plan.next_round(behind, |plan, behind| self.gather_held(plan, behind, of));
        plan
    }

    /// All that the clients of a machine cache is given up by them. Others keep what they have, and
    /// are granted more meanwhile.
    fn plan_regrant(&self, holders: Holders, behind: Option<Fid>) -> Plan {
        let mut plan = Plan {
            gathers_of: Some(holders),
            ..Plan::default()
        };
        let of = |_, at: (SessionId, &Holder)| self.is_one_of(holders, at);
        plan.next_round(behind, |plan, behind| self.gather_held(plan, behind, of));
        plan
    }

    /// Gathers the objects behind this one that somebody holds for whom this is so.
    fn gather_held(
        &self,
        plan: &mut Plan,
        behind: Option<Fid>,
        of: impl Fn(Fid, (SessionId, &Holder)) -> bool,
    ) {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for (fid, file) in self.files.range((from, Bound::Unbounded)) {
            let mut holders = file.holders.iter();
            let most = self.options.gathered_at_once;
            if holders.any(|(id, holder)| of(*fid, (*id, holder)))
                && !plan.gather((*fid, Right::None), most)
            {
                break;
            }
        }
    }

    /// Has this client something that the holders of a plan are to give up?
    pub(crate) fn is_one_of(&self, holders: Holders, (id, holder): (SessionId, &Holder)) -> bool {
        let session = self.sessions.get(&id);
        holder.right > Right::None
            && holder.epoch <= holders.upto
            && session.is_some_and(|session| session.machine == Some(holders.machine))
    }

    /// The plan of such a request of the server to itself, as things are now.
    pub(crate) fn changing(&self, disk: &dyn Disk, waiting: &Waiting) -> Option<Plan> {
        let change = self.changes.get(&waiting.seq)?;
        Some(self.plan_change(disk, change, waiting.plan.more_behind))
    }

    /// Is it such a request? It is done.
    pub(crate) fn ends_change(&mut self, step: &mut Step<'_>, waiting: &Waiting) -> bool {
        let Some(Change { ticket, .. }) = self.changes.remove(&waiting.seq) else {
            return false;
        };
        let done = true;
        step.out
            .push(Output::Event(Event::InForce { ticket, done }));
        self.recheck_all(step, waiting);
        true
    }
}
