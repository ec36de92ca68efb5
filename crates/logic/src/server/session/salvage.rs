//! Delegated changes of a client that does not hold any more what it made them under: it was
//! silent, and others wanted the directory.
//!
//! Its callers have been answered. So all that can be done is done, by the rules of any other
//! request; nothing that others have done meanwhile is undone for it; and an object that it made is
//! never dropped: where its name has been taken it gets another one beside that, which says host
//! and time, and where the directory is gone it gets one in the root. A name is taken away only
//! from the object that it named, and only if nobody else has changed that; attributes are set only
//! if nobody else has changed the object since. Changes that build on such a one name objects, not
//! paths, and so are done as well.

use crate::aside;
use crate::server::api::{Disk, Event, Output};
use crate::server::requests::plan::Plan;
use crate::server::session::machines::only_dates;
use crate::server::table::Waiting;
use crate::server::{Server, Step};
use alloc::boxed::Box;
use wire::{Delegated, Fid, Kind, Name, Op, Outcome, Refusal, Reply, Request, Right, SessionId};

/// Names for what came aside in one moment, at most.
const NUMBERS: u32 = 1000;

/// A change that is salvaged.
#[derive(Clone, Debug)]
pub(crate) struct Salvage {
    /// As its client says it.
    op: Op,
    /// Where it comes instead of where it was to be.
    aside: Option<(Fid, Name)>,
}

/// How such a change is done.
enum Way {
    As(Box<Op>),
    Aside(Box<Op>, (Fid, Name)),
    /// There is nothing to be done, and this is what became of it.
    Not(Box<Outcome>),
}

impl Way {
    fn done() -> Self {
        Self::Not(Box::new(Outcome::Done))
    }

    fn refused(refusal: Refusal) -> Self {
        Self::Not(Box::new(Outcome::Refused(refusal)))
    }
}

impl Server {
    /// Does a delegated change come from a client that holds less than it was made under, and did
    /// not lie so far?
    fn is_salvage(&self, waiting: &Waiting, plan: &Plan) -> bool {
        let session = waiting.session;
        let holds = |fid: &Fid| {
            let held = self.holder(session, *fid);
            held.is_some_and(|holder| holder.right == Right::Exclusive)
        };
        let whole = self.sessions.get(&session).is_some_and(|s| !s.broken);
        let told = waiting.request.delegated.is_some();
        told && whole && !plan.fids().iter().all(holds)
    }

    /// The plan of a request, or of what is done of it if it is salvaged; none if it is over.
    pub(crate) fn salvaged(
        &mut self,
        step: &mut Step<'_>,
        waiting: &mut Waiting,
        plan: Plan,
    ) -> Option<Plan> {
        if !self.is_salvage(waiting, &plan) || self.applied_before(step.disk, waiting) {
            return Some(plan);
        }
        let way = self.salvage(step, waiting);
        let plan = way.and_then(|()| {
            let plan = self.plan(step.disk, waiting);
            plan.map_err(|refusal| Box::new(Outcome::Refused(refusal)))
        });
        let session = waiting.session;
        match plan {
            Ok(plan) => return Some(plan),
            Err(outcome) => match *outcome {
                Outcome::Refused(why) if self.comes_later(step, waiting, why) => return None,
                outcome => {
                    let request = &waiting.request;
                    self.answer(step, (session, request), Reply::from(outcome), 0);
                }
            },
        }
        self.go_on_behind(step, session, waiting.request.id);
        None
    }

    /// Why a request may not be done. A change that is salvaged has only its client's word that it
    /// was answered when the session held what it needs: so it is allowed what any other is.
    pub(crate) fn forbids_waiting(&self, disk: &dyn Disk, waiting: &Waiting) -> Option<Refusal> {
        let (session, request) = (waiting.session, &waiting.request);
        match waiting.salvage {
            Some(_) => self.forbids_anew(disk, session, request),
            None => self.forbids(disk, session, request),
        }
    }

    fn forbids_anew(
        &self,
        disk: &dyn Disk,
        session: SessionId,
        request: &Request,
    ) -> Option<Refusal> {
        let mut other = request.clone();
        other.delegated = None;
        self.forbids(disk, session, &other)
    }

    /// Makes such a change what can be done as things are now; or says what becomes of it.
    pub(crate) fn salvage(
        &self,
        step: &Step<'_>,
        waiting: &mut Waiting,
    ) -> Result<(), Box<Outcome>> {
        let Some(delegated) = waiting.request.delegated else {
            return Ok(());
        };
        let salvage = waiting.salvage.get_or_insert_with(|| Salvage {
            op: waiting.request.op.clone(),
            aside: None,
        });
        let way = self.way(step.disk, waiting.session, (&salvage.op, &delegated));
        let forbidden = self.forbids_anew(step.disk, waiting.session, &waiting.request);
        match forbidden.map_or(way, Err).unwrap_or_else(Way::refused) {
            Way::As(op) => (waiting.request.op, salvage.aside) = (*op, None),
            Way::Aside(op, place) => (waiting.request.op, salvage.aside) = (*op, Some(place)),
            Way::Not(outcome) => return Err(outcome),
        }
        Ok(())
    }

    fn way(
        &self,
        disk: &dyn Disk,
        session: SessionId,
        (op, delegated): (&Op, &Delegated),
    ) -> Result<Way, Refusal> {
        let mut other = op.clone();
        match (op, &mut other) {
            (
                Op::Make { dir, name, .. },
                Op::Make {
                    dir: to, name: new, ..
                },
            )
            | (
                Op::Link { dir, name, .. },
                Op::Link {
                    dir: to, name: new, ..
                },
            ) => {
                let there = disk.lookup(*dir, name)?;
                if let (Op::Link { fid, .. }, Some(there)) = (op, there)
                    && *fid == there
                {
                    return Ok(Way::done());
                }
                let exists = is_directory(disk, *dir)?;
                if exists && there.is_none() {
                    return Ok(Way::As(Box::new(other)));
                }
                let home = if exists { *dir } else { Fid::root(dir.volume) };
                let place = self.free_place(disk, session, (home, name), delegated)?;
                (*to, *new) = place.clone();
                Ok(Way::Aside(Box::new(other), place))
            }
            (Op::Unlink { dir, name } | Op::Rmdir { dir, name }, _) => {
                let Some(there) = disk.lookup(*dir, name)? else {
                    return Ok(Way::done());
                };
                match is_unchanged(disk, there, delegated.named[0])? {
                    true => Ok(Way::As(Box::new(other))),
                    false => Ok(Way::refused(Refusal::Exists)),
                }
            }
            (Op::Rename { .. }, _) => self.way_of_move(disk, session, (op, delegated)),
            (
                Op::SetAttr { fid, .. } | Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. },
                _,
            ) => {
                // The object was changed after the state that its client knew.
                let attr = disk.attr(*fid)?.filter(|attr| attr.ctime > delegated.at);
                match (attr.map(|attr| attr.kind), op) {
                    // Names have come and gone there; others have changed some since.
                    (Some(Kind::Directory), Op::SetAttr { set, .. }) if only_dates(set) => {
                        Ok(Way::done())
                    }
                    (Some(_), _) => Err(Refusal::Exists),
                    (None, _) => Ok(Way::As(Box::new(other))),
                }
            }
            _ => Ok(Way::As(Box::new(other))),
        }
    }

    fn way_of_move(
        &self,
        disk: &dyn Disk,
        session: SessionId,
        (op, delegated): (&Op, &Delegated),
    ) -> Result<Way, Refusal> {
        let mut other = op.clone();
        let (
            Op::Rename {
                from,
                name,
                to,
                new,
                ..
            },
            Op::Rename { new: aside, .. },
        ) = (op, &mut other)
        else {
            return Ok(Way::As(Box::new(other)));
        };
        let moved = disk.lookup(*from, name)?;
        let known = delegated.named[0].map(|(fid, _)| fid);
        if moved.is_none() || moved != known || !is_directory(disk, *to)? {
            return Err(Refusal::NotFound);
        }
        let there = disk.lookup(*to, new)?.filter(|there| Some(*there) != moved);
        let free = match there {
            Some(there) => is_unchanged(disk, there, delegated.named[1])?,
            None => true,
        };
        if free {
            return Ok(Way::As(Box::new(other)));
        }
        let place = self.free_place(disk, session, (*to, new), delegated)?;
        aside.clone_from(&place.1);
        Ok(Way::Aside(Box::new(other), place))
    }

    /// Says of a change that is done whether it has come aside, and where.
    pub(crate) fn put_aside(&self, step: &mut Step<'_>, waiting: &Waiting) -> Option<(Fid, Name)> {
        let (dir, name) = waiting.salvage.as_ref()?.aside.clone()?;
        let (session, told) = (waiting.session, name.clone());
        let event = Event::Aside {
            session,
            dir,
            name: told,
        };
        step.out.push(Output::Event(event));
        Some((dir, name))
    }

    /// A name that says whose this is and from when, and that nothing has.
    fn free_place(
        &self,
        disk: &dyn Disk,
        session: SessionId,
        (dir, name): (Fid, &Name),
        delegated: &Delegated,
    ) -> Result<(Fid, Name), Refusal> {
        let host = self
            .sessions
            .get(&session)
            .map_or(&[][..], |session| &session.name);
        for number in 0..NUMBERS {
            let name = aside::name(name.as_bytes(), host, delegated.at, number);
            if disk.lookup(dir, &name)?.is_none() {
                return Ok((dir, name));
            }
        }
        Err(Refusal::Exists)
    }
}

fn is_directory(disk: &dyn Disk, fid: Fid) -> Result<bool, Refusal> {
    let attr = disk.attr(fid)?;
    Ok(attr.is_some_and(|attr| attr.kind == Kind::Directory && attr.nlink > 0))
}

/// Is this what the client knew under the name, with what it knew in it? (Of a directory the store
/// sees to it that it is empty.)
fn is_unchanged(disk: &dyn Disk, there: Fid, known: Option<(Fid, u64)>) -> Result<bool, Refusal> {
    let Some((_, version)) = known.filter(|(fid, _)| *fid == there) else {
        return Ok(false);
    };
    let attr = disk.attr(there)?;
    Ok(attr.is_some_and(|attr| attr.kind == Kind::Directory || attr.version == version))
}
