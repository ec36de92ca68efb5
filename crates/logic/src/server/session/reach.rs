//! The reach of a session's users: of all users of the machine, as far as it is believed about
//! them, or of those who have logged in there, each within the limits of his proof.
//!
//! A machine that is believed says who its users are, so its session may do what any of them might
//! do. Of one that is not, the users are known, with the groups that the cell gives them: the
//! session may do what one of them may do by modes and lists. A user who has not logged in is
//! nobody, and may read what everybody may.

use super::limits::{Inside, Limits, has_part};
use super::machines::{changes, raised};
use crate::server::Server;
use crate::server::api::Disk;
use crate::server::lists::dirs_of;
use crate::server::rules::{Want, rule};
use wire::{
    Attr, Caller, Fid, Hold, Holding, Op, Outcome, Proven, Refusal, Request, Right, Rights,
    SessionId, WriteMode,
};

const READ: u16 = 4;
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

/// Somebody for whom a session may ask.
enum Who<'a> {
    /// Anybody whom the machine may speak for.
    Machine(&'a Rights),
    /// A user who has proved himself.
    User(&'a Proven),
    /// A user who has not.
    Nobody,
}

/// Somebody for whom a session may ask, within these limits.
struct Party<'a> {
    who: Who<'a>,
    limits: Limits<'a>,
}

impl Party<'_> {
    /// May he use an object in one of these ways, by its mode and its lists?
    fn may(&self, disk: &dyn Disk, (fid, attr): (Fid, &Attr), bits: u16) -> Result<bool, Refusal> {
        let (caller, writes) = match self.who {
            Who::Machine(rights) => return Ok(rights.may_reach(attr, bits, !disk.bare(fid))),
            // The owner may give himself what he has not, where his mode decides.
            Who::User(user) if user.uid == attr.uid && user.write && !disk.governed(fid) => {
                return Ok(true);
            }
            Who::User(user) => {
                let mut caller = user.caller();
                disk.join_groups(None, &mut caller);
                (caller, user.write)
            }
            Who::Nobody => (Caller::nobody(), false),
        };
        for bit in [READ, WRITE, SEARCH] {
            let asked = bits & bit != 0 && (bit != WRITE || writes);
            if asked && disk.allows(&caller, fid, bit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Server {
    /// Why a request may not be made in this session: its machine may only read; its user's proof
    /// has expired, or does not reach so far; or nobody for whom it speaks could get at what the
    /// request is about.
    pub(crate) fn forbids(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        request: &Request,
    ) -> Option<Refusal> {
        let rights = self.bounds(id)?;
        if is_answered(request) {
            return self.answered_forbids(disk, (id, rights), request);
        }
        if !rights.write && changes(&request.op) {
            return Some(Refusal::ReadOnly);
        }
        if let Err(refusal) = self.leaves_parts(disk, rights, &request.op) {
            return Some(refusal);
        }
        let objects = rule(&request.op).objects.into_iter().flatten();
        let found = self.objects_in_reach(disk, id, objects);
        if rights.trusted {
            return found.err();
        }
        let user = rights.proven(request.caller.uid);
        if rule(&request.op).caller || found.is_ok() {
            let by_user = user.and_then(|user| self.user_forbids(disk, (id, user), request));
            return by_user.or(found.err()).or_else(|| {
                let stranger = user.is_none() && rule(&request.op).caller;
                (stranger && changes(&request.op) && raised(request).is_none())
                    .then_some(Refusal::Denied)
            });
        }
        // A user whose login has expired learns why.
        let lapsed = rights.users.iter().any(|user| user.expired);
        found.err().map(|refusal| match refusal {
            Refusal::Denied if lapsed => Refusal::Expired,
            other => other,
        })
    }

    /// Why a user who has proved himself may not ask for this, whatever the objects' modes say.
    fn user_forbids(
        &self,
        disk: &dyn Disk,
        (id, user): (SessionId, &Proven),
        request: &Request,
    ) -> Option<Refusal> {
        if !rule(&request.op).caller {
            return None;
        }
        // A change that an earlier run of the server had answered, and lost with its power, was
        // allowed then.
        if user.expired && request.again.is_none() {
            return Some(Refusal::Expired);
        }
        if !user.write && changes(&request.op) {
            return Some(Refusal::ReadOnly);
        }
        self.leaves_proof(disk, (id, user), &request.op).err()
    }

    /// Why a change that the client has answered itself may not be done, whatever has become of the
    /// rights since.
    fn answered_forbids(
        &self,
        disk: &dyn Disk,
        (id, rights): (SessionId, &Rights),
        request: &Request,
    ) -> Option<Refusal> {
        if rights.trusted || !rule(&request.op).caller || raised(request).is_some() {
            return None;
        }
        match rights.answerable(request.caller.uid) {
            Some(user) => self.leaves_proof(disk, (id, user), &request.op).err(),
            None => Some(Refusal::Denied),
        }
    }

    /// The root of the tree that a session has.
    pub(crate) fn root_at(&self, id: SessionId) -> Fid {
        let session = self.sessions.get(&id).and_then(|session| session.root);
        session.map_or(self.root, |(root, _)| root)
    }

    /// Can the session get at this object? One that is not there is nobody's secret: the store says
    /// so.
    pub(crate) fn in_reach(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        object: (Fid, Want),
    ) -> Result<(), Refusal> {
        self.objects_in_reach(disk, id, core::iter::once(object))
    }

    fn objects_in_reach(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        objects: impl Iterator<Item = (Fid, Want)>,
    ) -> Result<(), Refusal> {
        let Some(rights) = self.bounds(id).filter(|rights| bounds_reach(rights)) else {
            return Ok(());
        };
        for (fid, want) in objects {
            let Some(attr) = disk.attr(fid)? else {
                continue;
            };
            let object = (fid, &attr);
            let reached = |party: &Party<'_>| self.gets_at(disk, (id, party), object, (want, true));
            if !self.any_party(disk, (id, rights, fid.volume), reached)? {
                // A kernel that has a name of it in hand still begins again, and finds it gone.
                let gone = attr.nlink == 0 && !self.has(id, fid);
                return Err([Refusal::Denied, Refusal::Stale][usize::from(gone)]);
            }
        }
        Ok(())
    }

    /// Does the session cache an object, or may it have it open?
    fn has(&self, id: SessionId, fid: Fid) -> bool {
        let holder = self.holder(id, fid);
        holder.is_some_and(|held| held.right > Right::None || held.may_be_open())
    }

    /// Is it so for anybody of the session, within the limits that count in this volume?
    fn any_party(
        &self,
        disk: &dyn Disk,
        (id, rights, volume): (SessionId, &Rights, u32),
        mut holds: impl FnMut(&Party<'_>) -> Result<bool, Refusal>,
    ) -> Result<bool, Refusal> {
        let limits = |user| self.limits_of(disk, (id, rights, user), volume);
        if rights.trusted {
            let (who, limits) = (Who::Machine(rights), limits(None)?);
            return holds(&Party { who, limits });
        }
        for user in rights.users.iter().filter(|user| !user.expired) {
            let (who, limits) = (Who::User(user), limits(Some(user))?);
            if holds(&Party { who, limits })? {
                return Ok(true);
            }
        }
        let (who, limits) = (Who::Nobody, limits(None)?);
        holds(&Party { who, limits })
    }

    /// Can this one get at an object? `held`: the session caches the object or has it open, so it
    /// has come to it.
    fn gets_at(
        &self,
        disk: &dyn Disk,
        (id, party): (SessionId, &Party<'_>),
        (fid, attr): (Fid, &Attr),
        (want, held): (Want, bool),
    ) -> Result<bool, Refusal> {
        let bits = want.bits();
        if bits != 0 && !party.may(disk, (fid, attr), bits)? {
            return Ok(false);
        }
        // A program may have looked a name up that is gone since; later it is in nobody's way but
        // its holders'.
        if attr.nlink == 0 && !self.lingers(fid) && !self.has(id, fid) {
            return Ok(false);
        }
        let nameless = held && attr.nlink == 0 && self.has(id, fid);
        let inside = party.limits.at(fid, (bits == 0, nameless));
        if self.opens_ways((id, party), fid, held) {
            return Ok(inside.is_whole());
        }
        // It has come here before: that this is in its limits still is enough.
        if held && self.has(id, fid) {
            return party.limits.hold(disk, fid, inside);
        }
        for dir in dirs_of(disk, fid)? {
            if self.comes_to(disk, (id, party), dir, (inside, held))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Need it not be asked by which way a session has come here? A volume can be had by its name,
    /// too: so a mount point of it opens nothing more.
    fn opens_ways(&self, (id, party): (SessionId, &Party<'_>), at: Fid, held: bool) -> bool {
        let holds = held && party.limits.are_none() && self.has(id, at);
        at == self.root_at(id) || at == Fid::root(at.volume) || holds
    }

    /// Can this one come to what is in a directory, by the way from the root to it? `inside`: it is
    /// known that this does not leave what he is limited to.
    fn comes_to(
        &self,
        disk: &dyn Disk,
        (id, party): (SessionId, &Party<'_>),
        dir: Fid,
        (mut inside, held): (Inside, bool),
    ) -> Result<bool, Refusal> {
        let mut at = dir;
        loop {
            let Some(attr) = disk.attr(at)? else {
                return Ok(false);
            };
            if !party.may(disk, (at, &attr), SEARCH)? {
                return Ok(false);
            }
            inside = party.limits.with(inside, at);
            if self.opens_ways((id, party), at, held) {
                return Ok(inside.is_whole());
            }
            match disk.place(at)? {
                Some((dir, _)) => at = dir,
                None => return Ok(false),
            }
        }
    }

    /// Could somebody of the session have this open?
    pub(crate) fn may_have_open(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        (fid, hold): (Fid, Hold),
    ) -> bool {
        let want = if hold.write { Want::Write } else { Want::Open };
        // A disk that fails says nothing against it.
        let found = self.in_reach(disk, id, (fid, want));
        !matches!(found, Err(Refusal::Denied | Refusal::Stale))
    }

    /// Does it say after a restart that it holds what it can never have got?
    pub(crate) fn claims_too_much(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        holding: &Holding,
    ) -> bool {
        let Some(rights) = self.bounds(id).filter(|rights| bounds_reach(rights)) else {
            return false;
        };
        let Holding { fid, right, hold } = *holding;
        let want = match right {
            Right::Exclusive => Want::Write,
            _ if hold.write => Want::Write,
            _ if hold.open => Want::Open,
            _ => Want::Reach,
        };
        let Ok(Some(attr)) = disk.attr(fid) else {
            return false;
        };
        let may = match attr.nlink {
            // Which of the clients that held it had it open nobody knows any more.
            0 => self.any_party(disk, (id, rights, fid.volume), |party| {
                party.may(disk, (fid, &attr), want.bits())
            }),
            _ => self.in_reach(disk, id, (fid, want)).map(|()| true),
        };
        // A disk that fails says nothing against it.
        matches!(may, Ok(false) | Err(Refusal::Denied))
    }

    /// May the session keep what it caches of an object, now that its rights are others?
    pub(crate) fn may_keep(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        (fid, right): (Fid, Right),
    ) -> bool {
        let Some(rights) = self.bounds(id) else {
            return true;
        };
        let writes = (right < Right::Exclusive && !fid.is_room()) || rights.write;
        if !writes || !bounds_reach(rights) || fid.is_room() {
            return writes;
        }
        let want = match right {
            Right::Exclusive => Want::Write,
            _ => Want::Read,
        };
        let Ok(Some(attr)) = disk.attr(fid) else {
            return false;
        };
        let object = (fid, &attr);
        let reached = |party: &Party<'_>| self.gets_at(disk, (id, party), object, (want, false));
        self.any_party(disk, (id, rights, fid.volume), reached) == Ok(true)
    }

    /// May the session be told what happens to names in the first of these directories, each of
    /// which is in the next one?
    pub(crate) fn may_be_told(&self, disk: &dyn Disk, id: SessionId, way: &[Fid]) -> bool {
        let Some(rights) = self.bounds(id).filter(|rights| bounds_reach(rights)) else {
            return true;
        };
        let Some(first) = way.first() else {
            return true;
        };
        let told = |party: &Party<'_>| {
            for (at, dir) in way.iter().enumerate() {
                let Some(attr) = disk.attr(*dir)? else {
                    return Ok(false);
                };
                let object = (*dir, &attr);
                let lists = at > 0 || party.may(disk, object, READ)?;
                if !lists || !party.may(disk, object, SEARCH)? {
                    return Ok(false);
                }
            }
            party.limits.hold(disk, *first, Inside::NOTHING)
        };
        self.any_party(disk, (id, rights, first.volume), told) == Ok(true)
    }

    /// A listing by somebody who may read the directory, and not search it: names, and nothing of
    /// what they name. Of volumes a machine is told those that it was granted something of.
    pub(crate) fn hide(&self, disk: &dyn Disk, id: SessionId, (op, outcome): (&Op, &mut Outcome)) {
        if let Outcome::Volumes(volumes) = outcome
            && let Some(rights) = self.bounds(id)
        {
            volumes.retain(|info| has_part(disk, rights, info.id));
        }
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
}

/// Is there something that its users cannot come to, whoever they are?
fn bounds_reach(rights: &Rights) -> bool {
    !rights.root || rights.is_limited()
}

/// Was it answered by the client, under tokens that it had? Then it was allowed, and is done
/// whatever has become of the rights since. It is taken under Exclusive alone, which is asked back
/// when rights end.
pub(crate) fn is_answered(request: &Request) -> bool {
    let back = matches!(
        &request.op,
        Op::Write {
            mode: WriteMode::Back { .. },
            ..
        }
    );
    back || request.delegated.is_some()
}
