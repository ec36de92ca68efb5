//! Which machine is at the other end of a connection, and what it may do.
//!
//! A session belongs to the machine that began it: no other may go on with it, end it, or say what
//! it holds. What a machine says of its users is believed within its rights alone, whatever its
//! client makes of them. A machine that may not change the tree is never granted Exclusive, so that
//! every change of its programs is asked for, and refused.

use crate::server::api::{Conn, Disk};
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{Access, Fid, MachineId, Op, Refusal, Request, Rights, SessionId};

/// The machines at the connections. One that is not here is of a process which need not prove
/// anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(BTreeMap<Conn, (MachineId, Rights)>);

/// Does it change the tree, or prepare for that?
fn changes(op: &Op) -> bool {
    let writes = |access: &Access| access.write;
    match op {
        // Numbers alone change nothing.
        Op::Reserve { .. } => false,
        Op::Open { access, .. } => writes(access),
        Op::Claim { .. } => true,
        _ => op.changes(),
    }
}

/// The files whose bytes an operation reads (4) or writes (2) without the store's looking at who
/// asks: an open did that.
fn touched(op: &Op) -> [Option<(Fid, u16)>; 2] {
    const READS: u16 = 4;
    const WRITES: u16 = 2;
    match *op {
        Op::Read { fid, .. } | Op::Find { fid, .. } => [Some((fid, READS)), None],
        Op::Write { fid, .. } | Op::Allocate { fid, .. } => [Some((fid, WRITES)), None],
        Op::Claim { fid } => [Some((fid, READS)), Some((fid, WRITES))],
        Op::Copy { from, to, .. } => [Some((from, READS)), Some((to, WRITES))],
        _ => [None, None],
    }
}

impl Server {
    pub(crate) fn on_came(&mut self, conn: Conn, machine: MachineId, rights: Rights) {
        self.peers.0.insert(conn, (machine, rights));
    }

    pub(crate) fn forget_peer(&mut self, conn: Conn) {
        self.peers.0.remove(&conn);
    }

    fn machine_at(&self, conn: Conn) -> MachineId {
        self.peers.0.get(&conn).map_or(0, |(machine, _)| *machine)
    }

    /// What may be done on a connection.
    pub(crate) fn rights_at(&self, conn: Conn) -> Rights {
        let peer = self.peers.0.get(&conn);
        peer.map_or(Rights::all(), |(_, rights)| rights.clone())
    }

    /// May whoever is at this connection go on with this session? One that an earlier run of the
    /// server left is the first one's that comes for it.
    pub(crate) fn is_its_own(&mut self, conn: Conn, id: SessionId) -> bool {
        let machine = self.machine_at(conn);
        match self.sessions.get_mut(&id) {
            Some(session) => *session.machine.get_or_insert(machine) == machine,
            None => true,
        }
    }

    /// The session has just begun on this connection.
    pub(crate) fn bind(&mut self, conn: Conn, id: SessionId) {
        let machine = self.machine_at(conn);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.machine.get_or_insert(machine);
        }
    }

    /// The request as the machine may make it.
    pub(crate) fn narrow(&self, conn: Conn, request: &mut Request) {
        if let Some((_, rights)) = self.peers.0.get(&conn) {
            request.caller = rights.squash(core::mem::take(&mut request.caller));
        }
    }

    /// Does the session's machine change nothing?
    pub(crate) fn only_reads(&self, id: SessionId) -> bool {
        self.bounds(id).is_some_and(|rights| !rights.write)
    }

    /// Why a request may not be made by the session's machine: it may only read; or nobody for whom
    /// it speaks could have opened what is read or written here.
    pub(crate) fn forbids(&self, disk: &impl Disk, id: SessionId, op: &Op) -> Option<Refusal> {
        let rights = self.bounds(id)?;
        if !rights.write && changes(op) {
            return Some(Refusal::ReadOnly);
        }
        let out_of_reach = |(fid, bit): (Fid, u16)| {
            let attr = disk.attr(fid).ok().flatten();
            attr.is_some_and(|attr| !rights.may_reach(&attr, bit, !disk.bare(fid)))
        };
        let touched = touched(op).into_iter().flatten();
        (!rights.root && touched.into_iter().any(out_of_reach)).then_some(Refusal::Denied)
    }

    /// The bounds of the session's machine, if it has any.
    pub(crate) fn bounds(&self, id: SessionId) -> Option<&Rights> {
        let conn = self.sessions.get(&id).and_then(|session| session.conn)?;
        let (_, rights) = self.peers.0.get(&conn)?;
        (!rights.root || !rights.write).then_some(rights)
    }

    /// A machine is not trusted any more: nobody waits for its leases, and nothing that it says
    /// later counts.
    pub(crate) fn on_expelled(&mut self, step: &mut Step<'_, impl Disk>, machine: MachineId) {
        let sessions = self.sessions.iter();
        let own = sessions.filter(|(_, session)| session.machine == Some(machine));
        let own: Vec<SessionId> = own.map(|(id, _)| *id).collect();
        for id in own {
            self.fence(step, id);
        }
    }
}
