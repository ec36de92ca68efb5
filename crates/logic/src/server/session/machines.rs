//! Which machine is at the other end of a connection, and what it may do.
//!
//! A session belongs to the machine that began it: no other may go on with it, end it, or say what
//! it holds, also after a restart of the server. A machine is believed about its users within its
//! rights alone, whatever its client makes of them. A machine that may not change the tree is never
//! granted Exclusive, so that every change of its programs is asked for, and refused.

use crate::server::api::{Conn, Disk, On};
use crate::server::requests::conflicts::Need;
use crate::server::rules::{Want, rule};
use crate::server::session::reach::is_answered;
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    Access, Caller, Fid, MachineId, NOBODY, Op, Request, Right, Rights, SessionId, Set, SetTime,
    What,
};

/// A machine at a connection, and what it may do there.
#[derive(Clone, Debug)]
struct Peer {
    machine: MachineId,
    /// The rights of the machine when it came.
    granted: Rights,
    /// Those of them that count in the session.
    rights: Rights,
}

/// The machines at the connections. One that is not here is of a process which need not prove
/// anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers(BTreeMap<Conn, Peer>);

impl Peers {
    /// The connections of a machine that were made under other rights than these.
    pub(crate) fn outdated(&self, machine: MachineId, rights: &Rights) -> Vec<Conn> {
        let outdated = |peer: &Peer| peer.machine == machine && peer.granted != *rights;
        let all = self.0.iter().filter(|(_, peer)| outdated(peer));
        all.map(|(conn, _)| *conn).collect()
    }
}

/// Does it change the tree, or prepare for that?
pub(crate) fn changes(op: &Op) -> bool {
    let writes = |access: &Access| access.write;
    match op {
        // Numbers alone change nothing.
        Op::Reserve { .. } => false,
        Op::Open { access, .. } => writes(access),
        Op::Claim { .. } => true,
        _ => op.changes(),
    }
}

/// Does it set a size, and nothing else?
fn only_cuts(set: &Set) -> bool {
    let size = set.size;
    let other = Set {
        size,
        ..Set::default()
    };
    size.is_some() && *set == other
}

/// Does it set an exact time of modification, and nothing else?
pub(crate) fn only_dates(set: &Set) -> bool {
    let mtime = set.mtime;
    let other = Set {
        mtime,
        ..Set::default()
    };
    matches!(mtime, Some(SetTime::To(_))) && *set == other
}

/// The object of what a write brings with it: the kernel or the client itself asks for that, in
/// nobody's name or in root's.
pub(crate) fn raised(request: &Request) -> Option<Fid> {
    const CAPABILITY: &[u8] = b"security.capability";
    match &request.op {
        // ftruncate(2): the file is open for writing, whatever its mode says by now.
        Op::SetAttr { fid, set } if request.hold.write && only_cuts(set) => Some(*fid),
        // A directory that is delegated, and in which names have come and gone.
        Op::SetAttr { fid, set } if request.delegated.is_some() && only_dates(set) => Some(*fid),
        Op::RemoveXattr { fid, name } if name == CAPABILITY => Some(*fid),
        _ => None,
    }
}

impl Server {
    pub(crate) fn on_came(&mut self, conn: Conn, machine: MachineId, rights: Rights) {
        // Where users prove themselves nobody is root because his machine says so.
        let root = rights.root && rights.trusted;
        let peer = Peer {
            machine,
            granted: rights.clone(),
            rights: Rights { root, ..rights },
        };
        self.peers.0.insert(conn, peer);
    }

    /// The machines that began the sessions of earlier runs, as far as that is known.
    #[must_use]
    pub fn of_machines(mut self, machines: Vec<(SessionId, MachineId)>) -> Self {
        for (id, machine) in machines {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.machine = Some(machine);
            }
        }
        self
    }

    pub(crate) fn forget_peer(&mut self, conn: Conn) {
        self.peers.0.remove(&conn);
    }

    fn machine_at(&self, conn: Conn) -> MachineId {
        self.peers.0.get(&conn).map_or(0, |peer| peer.machine)
    }

    /// The rights of a connection.
    pub(crate) fn rights_at(&self, conn: Conn) -> Rights {
        let peer = self.peers.0.get(&conn);
        peer.map_or(Rights::all(), |peer| peer.rights.clone())
    }

    /// May whoever is at this connection go on with this session? One whose machine an earlier run
    /// of the server has not noted is the first one's that comes for it.
    pub(crate) fn is_its_own(&mut self, conn: Conn, id: SessionId) -> bool {
        let machine = self.machine_at(conn);
        match self.sessions.get_mut(&id) {
            Some(session) => *session.machine.get_or_insert(machine) == machine,
            None => true,
        }
    }

    /// The session has just begun on this connection, or goes on there. It has to give back what
    /// its users may not have any more.
    pub(crate) fn bind(&mut self, step: &mut Step<'_>, conn: Conn, id: SessionId) {
        let machine = self.machine_at(conn);
        if let Some(peer) = self.peers.0.get_mut(&conn) {
            peer.rights = core::mem::take(&mut peer.rights).within(id);
        }
        let rights = self.peers.0.get(&conn).map(|peer| peer.rights.clone());
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.machine.get_or_insert(machine);
        if core::mem::replace(&mut session.rights, rights.clone()) != rights {
            self.withdraw(step, id);
        }
    }

    /// Asks a session for what it caches and its users may not have any more. It first writes back
    /// its changes under these tokens.
    fn withdraw(&mut self, step: &mut Step<'_>, id: SessionId) {
        let fids = self.sessions.get(&id).map(|session| session.fids.clone());
        for fid in fids.into_iter().flatten() {
            self.withdraw_one(step, id, fid);
        }
    }

    fn withdraw_one(&mut self, step: &mut Step<'_>, session: SessionId, fid: Fid) {
        let held = self.holder(session, fid);
        let right = held.map_or(Right::None, |held| held.right);
        if right > Right::None && !self.may_keep(step.disk, session, (fid, right)) {
            let what = What::Keep(Right::None);
            let need = Need { session, fid, what };
            self.ask(step, need, (self.epoch, step.now), None);
        }
    }

    /// The object of a change that a client made before its rights ended, and told the server only
    /// now, is recalled like the rest.
    pub(crate) fn withdraw_made(&mut self, step: &mut Step<'_>, id: SessionId, made: Option<Fid>) {
        let ended = |rights: &Rights| !rights.write || !rights.trusted || rights.is_limited();
        if let Some(fid) = made
            && self.bounds(id).is_some_and(ended)
        {
            self.withdraw_one(step, id, fid);
        }
    }

    /// The request as the machine may make it. Groups that its front does not know count for
    /// nothing.
    pub(crate) fn narrow(&self, disk: &dyn Disk, conn: Conn, request: &mut Request) {
        if let Some(peer) = self.peers.0.get(&conn) {
            let caller = core::mem::take(&mut request.caller);
            request.caller = match is_answered(request) {
                true => peer.rights.squash_answered(caller),
                false => peer.rights.squash(caller),
            };
        }
        request.caller.groups.get_or_insert_default();
        let session = self.conns.get(&conn);
        disk.join_groups(session.map(|id| self.mount_of(*id)), &mut request.caller);
    }

    /// The mount of a session.
    pub(crate) fn mount_of(&self, id: SessionId) -> On<'_> {
        let session = self.sessions.get(&id);
        On {
            machine: session.and_then(|session| session.machine).unwrap_or(0),
            name: session.map_or(&[], |session| &session.name),
        }
    }

    /// Does the session's machine change nothing?
    pub(crate) fn only_reads(&self, id: SessionId) -> bool {
        self.bounds(id).is_some_and(|rights| !rights.write)
    }

    /// May another client have changed the rights of what this is about, and not told so yet?
    pub(crate) fn may_be_outdated(&self, id: SessionId, op: &Op) -> bool {
        let mut objects = rule(op).objects.into_iter().flatten();
        objects.any(|(fid, _)| {
            let holders = self.files.get(&fid).map(|file| file.holders.iter());
            let mut others = holders.into_iter().flatten().filter(|(at, _)| **at != id);
            others.any(|(_, holder)| holder.right == Right::Exclusive)
        })
    }

    /// Changes that a write brings with it are made in root's name also for a machine whose root is
    /// nobody, if it could write to the object.
    pub(crate) fn raise(
        &self,
        disk: &dyn Disk,
        (id, salvaged): (SessionId, bool),
        request: &mut Request,
    ) {
        // The maker of a delegated change holds the object Exclusive, or the change is not taken at
        // all, or is salvaged.
        let told = request.delegated.is_some() && !salvaged;
        let Some(rights) = self.bounds(id).filter(|rights| rights.write || told) else {
            return;
        };
        let nobody = request.caller.uid == NOBODY && !rights.root;
        if let Some(fid) = raised(request).filter(|_| nobody)
            && (told || self.in_reach(disk, id, (fid, Want::Write)).is_ok())
        {
            request.caller = Caller::root();
        }
    }

    /// The bounds of the session's machine, if it has any.
    pub(crate) fn bounds(&self, id: SessionId) -> Option<&Rights> {
        let conn = self.sessions.get(&id).and_then(|session| session.conn)?;
        let rights = &self.peers.0.get(&conn)?.rights;
        (!rights.root || !rights.write || rights.is_limited()).then_some(rights)
    }

    /// A machine is not trusted any more: nobody waits for its leases, and nothing that it says
    /// later counts.
    pub(crate) fn on_expelled(&mut self, step: &mut Step<'_>, machine: MachineId) {
        let sessions = self.sessions.iter();
        let own = sessions.filter(|(_, session)| session.machine == Some(machine));
        let own: Vec<SessionId> = own.map(|(id, _)| *id).collect();
        for id in own {
            self.fence(step, id);
        }
    }
}
