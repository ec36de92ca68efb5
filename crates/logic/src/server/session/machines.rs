//! Which machine is at the other end of a connection, and what it may do.
//!
//! A session belongs to the machine that began it: no other may go on with it, end it, or say what
//! it holds. What a machine says of its users is believed within its rights alone, whatever its
//! client makes of them. A machine that may not change the tree is never granted Exclusive, so that
//! every change of its programs is asked for, and refused.

use crate::server::api::{Conn, Disk};
use crate::server::rules::{Want, rule};
use crate::server::{Server, Step};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wire::{
    Access, Attr, Caller, Fid, Hold, Holding, MachineId, NOBODY, Op, Outcome, Refusal, Request,
    Right, Rights, SessionId, Set, SetTime,
};

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
fn only_dates(set: &Set) -> bool {
    let mtime = set.mtime;
    let other = Set {
        mtime,
        ..Set::default()
    };
    matches!(mtime, Some(SetTime::To(_))) && *set == other
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

    /// The request as the machine may make it. Groups that its front does not know count for
    /// nothing.
    pub(crate) fn narrow(&self, conn: Conn, request: &mut Request) {
        if let Some((_, rights)) = self.peers.0.get(&conn) {
            request.caller = rights.squash(core::mem::take(&mut request.caller));
        }
        request.caller.groups.get_or_insert_default();
    }

    /// Does the session's machine change nothing?
    pub(crate) fn only_reads(&self, id: SessionId) -> bool {
        self.bounds(id).is_some_and(|rights| !rights.write)
    }

    /// Why a request may not be made by the session's machine: it may only read; or nobody for whom
    /// it speaks could get at what the request is about.
    pub(crate) fn forbids(&self, disk: &impl Disk, id: SessionId, op: &Op) -> Option<Refusal> {
        let rights = self.bounds(id)?;
        if !rights.write && changes(op) {
            return Some(Refusal::ReadOnly);
        }
        let objects = rule(op).objects.into_iter().flatten();
        self.objects_in_reach(disk, id, objects).err()
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

    /// Can the session get at this object? One that is not there is nobody's secret: the store says
    /// so.
    pub(crate) fn in_reach(
        &self,
        disk: &impl Disk,
        id: SessionId,
        object: (Fid, Want),
    ) -> Result<(), Refusal> {
        self.objects_in_reach(disk, id, core::iter::once(object))
    }

    fn objects_in_reach(
        &self,
        disk: &impl Disk,
        id: SessionId,
        objects: impl Iterator<Item = (Fid, Want)>,
    ) -> Result<(), Refusal> {
        let Some(rights) = self.bounds(id).filter(|rights| !rights.root) else {
            return Ok(());
        };
        for (fid, want) in objects {
            let Some(attr) = disk.attr(fid)? else {
                continue;
            };
            let bits = want.bits();
            let opens = bits == 0 || rights.may_reach(&attr, bits, !disk.bare(fid));
            if !opens || !self.comes_to(disk, (id, rights), (fid, &attr))? {
                return Err(Refusal::Denied);
            }
        }
        Ok(())
    }

    /// Could anybody of the session have come to this object by names? What it caches or has open
    /// it has come to. An object without a name is in nobody's way but its holders'.
    fn comes_to(
        &self,
        disk: &impl Disk,
        (id, rights): (SessionId, &Rights),
        (fid, attr): (Fid, &Attr),
    ) -> Result<bool, Refusal> {
        const SEARCH: u16 = 1;
        let holds = |fid: Fid| {
            let holder = self.holder(id, fid);
            holder.is_some_and(|held| held.right > Right::None || held.may_be_open())
        };
        if attr.nlink == 0 {
            return Ok(holds(fid));
        }
        let session = self.sessions.get(&id).and_then(|session| session.root);
        let (root, _) = session.unwrap_or((self.root, false));
        let mut at = fid;
        while at != root && !holds(at) {
            let Some((dir, _)) = disk.place(at)? else {
                return Ok(false);
            };
            let Some(attr) = disk.attr(dir)? else {
                return Ok(false);
            };
            if !rights.may_reach(&attr, SEARCH, !disk.bare(dir)) {
                return Ok(false);
            }
            at = dir;
        }
        Ok(true)
    }

    /// Could somebody of the session have this open?
    pub(crate) fn may_have_open(
        &self,
        disk: &impl Disk,
        id: SessionId,
        (fid, hold): (Fid, Hold),
    ) -> bool {
        let want = if hold.write { Want::Write } else { Want::Open };
        // A disk that fails says nothing against it.
        self.in_reach(disk, id, (fid, want)) != Err(Refusal::Denied)
    }

    /// Does it say after a restart that it holds what it can never have got?
    pub(crate) fn claims_too_much(
        &self,
        disk: &impl Disk,
        id: SessionId,
        holding: &Holding,
    ) -> bool {
        let Some(rights) = self.bounds(id).filter(|rights| !rights.root) else {
            return false;
        };
        let Holding { fid, right, hold } = *holding;
        let want = match right {
            Right::Exclusive => Want::Write,
            _ if hold.write => Want::Write,
            _ if hold.open => Want::Open,
            _ => Want::Reach,
        };
        match disk.attr(fid) {
            // Which of the clients that held it had it open nobody knows any more.
            Ok(Some(attr)) if attr.nlink == 0 => {
                !rights.may_reach(&attr, want.bits(), !disk.bare(fid))
            }
            Ok(Some(_)) => self.in_reach(disk, id, (fid, want)) == Err(Refusal::Denied),
            _ => false,
        }
    }

    /// A listing by somebody who may read the directory, and not search it: names, and nothing of
    /// what they name.
    pub(crate) fn hide(&self, disk: &impl Disk, id: SessionId, (op, outcome): (&Op, &mut Outcome)) {
        let (Op::ReadDir { dir, .. } | Op::Prefetch { dir, .. }, Outcome::Dir { entries, .. }) =
            (op, outcome)
        else {
            return;
        };
        if !self.may_be_told(disk, id, &[*dir]) {
            for entry in entries {
                (entry.attr, entry.bare) = (None, false);
            }
        }
    }

    /// May the session be told what happens to names in the first of these directories, each of
    /// which is in the next one?
    pub(crate) fn may_be_told(&self, disk: &impl Disk, id: SessionId, way: &[Fid]) -> bool {
        const READ: u16 = 4;
        const SEARCH: u16 = 1;
        let Some(rights) = self.bounds(id).filter(|rights| !rights.root) else {
            return true;
        };
        way.iter().enumerate().all(|(at, dir)| {
            let bits = if at == 0 { [READ, SEARCH] } else { [SEARCH; 2] };
            let attr = disk.attr(*dir).ok().flatten();
            let may = |attr: &Attr, bit| rights.may_reach(attr, bit, !disk.bare(*dir));
            attr.is_some_and(|attr| bits.iter().all(|bit| may(&attr, *bit)))
        })
    }

    /// What a write brings with it is asked for by the kernel or by the client itself, in nobody's
    /// name or in root's. From a machine whose root is nobody it is taken in root's name after all,
    /// if the machine could write to the object.
    pub(crate) fn raise(&self, disk: &impl Disk, id: SessionId, request: &mut Request) {
        const CAPABILITY: &[u8] = b"security.capability";
        let Some(rights) = self.bounds(id) else {
            return;
        };
        let fid = match &request.op {
            // ftruncate(2): the file is open for writing, whatever its mode says by now.
            Op::SetAttr { fid, set } if request.hold.write && only_cuts(set) => *fid,
            // A directory that is delegated, and in which names have come and gone.
            Op::SetAttr { fid, set } if request.delegated.is_some() && only_dates(set) => *fid,
            Op::RemoveXattr { fid, name } if name == CAPABILITY => *fid,
            _ => return,
        };
        let nobody = request.caller.uid == NOBODY;
        if rights.write && nobody && self.in_reach(disk, id, (fid, Want::Write)).is_ok() {
            request.caller = Caller {
                groups: Some(Vec::new()),
                ..Caller::default()
            };
        }
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
