//! The reach of a session's users: of all users of the machine, as far as it is believed about
//! them, or of those who have logged in there, each within the limits of his proof.
//!
//! A machine that is believed says who its users are, so its session may do what any of them might
//! do. Of one that is not, the users are known, with the groups that the cell gives them: the
//! session may do what one of them may do by modes and lists. A user who has not logged in is
//! nobody, and may read what everybody may.

use super::machines::{changes, raised};
use crate::server::Server;
use crate::server::api::Disk;
use crate::server::lists::is_below;
use crate::server::rules::{Want, rule};
use alloc::vec::Vec;
use wire::{
    Attr, Caller, Fid, Hold, Holding, Name, Op, Outcome, Proven, Refusal, Request, Right, Rights,
    SessionId, WriteMode,
};

const READ: u16 = 4;
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

/// The object that a proof is limited to, and the way there.
struct Limit<'a> {
    /// The objects from the root on, as far as they are known now.
    way: Vec<Fid>,
    /// The names that lead from each of them to the next one.
    names: &'a [Name],
}

impl Limit<'_> {
    /// The object that the proof is limited to, if it is there.
    fn top(&self) -> Option<Fid> {
        let whole = self.way.len() == self.names.len() + 1;
        self.way.last().copied().filter(|_| whole)
    }

    /// On the way: is this about the next step alone, or what a kernel asks for to come there?
    fn leads_on(&self, at: usize, op: &Op) -> bool {
        match op {
            Op::Lookup { name, .. } => self.names.get(at) == Some(name),
            Op::GetXattr { .. } => true,
            _ => false,
        }
    }
}

/// Somebody for whom a session may ask.
enum Party<'a> {
    /// Anybody whom the machine may speak for.
    Machine(&'a Rights),
    /// A user who has proved himself, and what his proof is limited to.
    User(&'a Proven, Option<Limit<'a>>),
    /// A user who has not.
    Nobody,
}

impl Party<'_> {
    /// May he use an object in one of these ways, by its mode and its lists?
    fn may(&self, disk: &dyn Disk, (fid, attr): (Fid, &Attr), bits: u16) -> Result<bool, Refusal> {
        let (caller, writes) = match self {
            Self::Machine(rights) => return Ok(rights.may_reach(attr, bits, !disk.bare(fid))),
            // The owner may give himself what he has not, where his mode decides.
            Self::User(user, _) if user.uid == attr.uid && user.write && !disk.governed(fid) => {
                return Ok(true);
            }
            Self::User(user, _) => {
                let mut caller = user.caller();
                disk.join_groups(None, &mut caller);
                (caller, user.write)
            }
            Self::Nobody => (Caller::nobody(), false),
        };
        for bit in [READ, WRITE, SEARCH] {
            let asked = bits & bit != 0 && (bit != WRITE || writes);
            if asked && disk.allows(&caller, fid, bit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The limit of his proof.
    fn limit(&self) -> Option<&Limit<'_>> {
        match self {
            Self::User(_, limit) => limit.as_ref(),
            _ => None,
        }
    }
}

/// The objects from the root to what is at a path, as far as there are any.
fn way_to(disk: &dyn Disk, root: Fid, path: &[Name]) -> Result<Vec<Fid>, Refusal> {
    let mut way = Vec::from([root]);
    let mut at = root;
    for name in path {
        let Some(next) = disk.lookup(at, name)? else {
            break;
        };
        way.push(next);
        at = next;
    }
    Ok(way)
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
        self.leaves_limit(disk, (id, user), &request.op).err()
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
            Some(user) => self.leaves_limit(disk, (id, user), &request.op).err(),
            None => Some(Refusal::Denied),
        }
    }

    /// Is it outside of what the user's proof is limited to?
    fn leaves_limit(
        &self,
        disk: &dyn Disk,
        (id, user): (SessionId, &Proven),
        op: &Op,
    ) -> Result<(), Refusal> {
        let Some(limit) = self.limit_of(disk, id, user)? else {
            return Ok(());
        };
        let objects = rule(op).objects.into_iter().flatten();
        for (fid, _) in objects {
            let top = limit.top();
            let step = limit.way.iter().position(|at| *at == fid);
            let inside = match step.filter(|_| top != Some(fid)) {
                Some(at) => limit.leads_on(at, op),
                None => is_below(disk, fid, top)?,
            };
            if !inside {
                return Err(Refusal::Denied);
            }
        }
        Ok(())
    }

    /// The limit of a user's proof, if it has one. Names change, and some changes come late: so it
    /// is looked for each time. A path is one of the first volume, and leads nowhere in others.
    fn limit_of<'a>(
        &self,
        disk: &dyn Disk,
        id: SessionId,
        user: &'a Proven,
    ) -> Result<Option<Limit<'a>>, Refusal> {
        let Some(names) = &user.under else {
            return Ok(None);
        };
        let way = match self.root_at(id) == self.root {
            true => way_to(disk, self.root, names)?,
            false => Vec::new(),
        };
        Ok(Some(Limit { way, names }))
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
        let Some(rights) = self.bounds(id).filter(|rights| !rights.root) else {
            return Ok(());
        };
        for (fid, want) in objects {
            let Some(attr) = disk.attr(fid)? else {
                continue;
            };
            let object = (fid, &attr);
            let reached = |party: &Party<'_>| self.gets_at(disk, (id, party), object, (want, true));
            if !self.any_party(disk, (id, rights), reached)? {
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

    /// Is it so for anybody of the session?
    fn any_party(
        &self,
        disk: &dyn Disk,
        (id, rights): (SessionId, &Rights),
        mut holds: impl FnMut(&Party<'_>) -> Result<bool, Refusal>,
    ) -> Result<bool, Refusal> {
        if rights.trusted {
            return holds(&Party::Machine(rights));
        }
        for user in rights.users.iter().filter(|user| !user.expired) {
            let limit = self.limit_of(disk, id, user)?;
            if holds(&Party::User(user, limit))? {
                return Ok(true);
            }
        }
        holds(&Party::Nobody)
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
        let limit = party.limit();
        // On the way to what he is limited to he may come, and open nothing.
        let inside = limit.is_none_or(|limit| {
            limit.top() == Some(fid) || (bits == 0 && limit.way.contains(&fid))
        });
        if self.opens_ways((id, party), fid, held) {
            return Ok(inside);
        }
        for dir in disk.dirs(fid)? {
            if self.comes_to(disk, (id, party), dir, (inside, held))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Need it not be asked by which way a session has come here? A volume can be had by its name,
    /// too: so a mount point of it opens nothing more.
    fn opens_ways(&self, (id, party): (SessionId, &Party<'_>), at: Fid, held: bool) -> bool {
        let holds = held && party.limit().is_none() && self.has(id, at);
        at == self.root_at(id) || at == Fid::root(at.volume) || holds
    }

    /// Can this one come to what is in a directory, by the way from the root to it? `inside`: it is
    /// known that this does not leave what he is limited to.
    fn comes_to(
        &self,
        disk: &dyn Disk,
        (id, party): (SessionId, &Party<'_>),
        dir: Fid,
        (mut inside, held): (bool, bool),
    ) -> Result<bool, Refusal> {
        let mut at = dir;
        loop {
            let Some(attr) = disk.attr(at)? else {
                return Ok(false);
            };
            if !party.may(disk, (at, &attr), SEARCH)? {
                return Ok(false);
            }
            inside |= party.limit().is_some_and(|limit| limit.top() == Some(at));
            if self.opens_ways((id, party), at, held) {
                return Ok(inside);
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
        let Ok(Some(attr)) = disk.attr(fid) else {
            return false;
        };
        let may = match attr.nlink {
            // Which of the clients that held it had it open nobody knows any more.
            0 => self.any_party(disk, (id, rights), |party| {
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
        if !writes || rights.root || fid.is_room() {
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
        self.any_party(disk, (id, rights), reached) == Ok(true)
    }

    /// May the session be told what happens to names in the first of these directories, each of
    /// which is in the next one?
    pub(crate) fn may_be_told(&self, disk: &dyn Disk, id: SessionId, way: &[Fid]) -> bool {
        let Some(rights) = self.bounds(id).filter(|rights| !rights.root) else {
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
            match (party.limit(), way.first()) {
                (Some(limit), Some(dir)) => is_below(disk, *dir, limit.top()),
                _ => Ok(true),
            }
        };
        self.any_party(disk, (id, rights), told) == Ok(true)
    }

    /// A listing by somebody who may read the directory, and not search it: names, and nothing of
    /// what they name.
    pub(crate) fn hide(&self, disk: &dyn Disk, id: SessionId, (op, outcome): (&Op, &mut Outcome)) {
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
