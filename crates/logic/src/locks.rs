//! The table of advisory locks: which owner has locked which bytes of which file, and which
//! requests wait. It decides as Linux does for the programs of one machine. The server has one of
//! all clients' locks, and a client one of the files whose locks are delegated to it.
//!
//! A lock is in the way of another if they are of different owners, have a byte in common, and one
//! of them is exclusive; locks of whole files and of bytes do not meet. A request that waits has a
//! *place* in the order of arrival, whichever machine it is from, and holds nothing by that: as on
//! one machine, a lock that no held one is in the way of is given to any owner that asks. When
//! something is given up, the places are looked through in their order.

use crate::ranges::{EVERYTHING, Ranges, Span};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use wire::{Fid, Lock, LockMode, LockOwner, RequestId, SessionId};

/// The place of a request in the order of arrival.
pub(crate) type Seq = u64;

/// An owner of locks, of whichever client. (A client calls itself 0.)
pub(crate) type Owner = (SessionId, LockOwner);

/// A request that waits for a lock.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) fid: Fid,
    pub(crate) session: SessionId,
    /// The request that waits; at a client, the call.
    pub(crate) request: RequestId,
    pub(crate) lock: Lock,
    /// It is refused if it would wait for ever.
    pub(crate) detects: bool,
}

/// The locks of one owner on one file.
#[derive(Clone, Debug, Default)]
struct Held {
    parts: Ranges<LockMode>,
    /// The process that locked last.
    pid: u32,
}

#[derive(Clone, Debug, Default)]
struct File {
    held: BTreeMap<Owner, Held>,
    waiting: BTreeSet<Seq>,
}

/// All locks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    files: BTreeMap<Fid, File>,
    /// In the order of arrival.
    places: BTreeMap<Seq, Place>,
    /// The places of each owner.
    waits: BTreeMap<Owner, BTreeSet<Seq>>,
    /// How many parts of files each session has locked, and how often it waits.
    counts: BTreeMap<SessionId, usize>,
    last: Seq,
}

impl Place {
    pub(crate) fn owner(&self) -> Owner {
        (self.session, self.lock.owner)
    }
}

fn span(lock: &Lock) -> Span {
    (lock.first, lock.last)
}

fn excludes(one: LockMode, other: LockMode) -> bool {
    one == LockMode::Exclusive || other == LockMode::Exclusive
}

impl Table {
    /// Locks that others hold and that are in the way, each owner's first.
    fn in_the_way(
        &self,
        fid: Fid,
        session: SessionId,
        lock: Lock,
    ) -> impl Iterator<Item = (Owner, Lock)> + '_ {
        let held = self.files.get(&fid).into_iter().flat_map(|file| &file.held);
        held.filter_map(move |(&owner, held)| {
            let same_kind = owner.1.is_whole() == lock.owner.is_whole();
            if !same_kind || owner == (session, lock.owner) {
                return None;
            }
            let mut parts = held.parts.overlapping(span(&lock));
            let ((first, last), mode) = parts.find(|(_, mode)| excludes(*mode, lock.mode))?;
            let (owner_of, pid) = (owner.1, held.pid);
            let held = Lock {
                owner: owner_of,
                mode,
                first,
                last,
                pid,
            };
            Some((owner, held))
        })
    }

    /// The first lock that is in the way of this one, and its client's session.
    pub(crate) fn conflict(
        &self,
        fid: Fid,
        session: SessionId,
        lock: Lock,
    ) -> Option<(SessionId, Lock)> {
        let all = self.in_the_way(fid, session, lock);
        let first = all.min_by_key(|(owner, held)| (held.first, *owner))?;
        Some((first.0.0, first.1))
    }

    /// The sessions whose locks are in the way.
    pub(crate) fn holders(&self, fid: Fid, session: SessionId, lock: Lock) -> BTreeSet<SessionId> {
        let all = self.in_the_way(fid, session, lock);
        all.map(|(owner, _)| owner.0).collect()
    }

    /// Other clients whose locks somebody waits for.
    pub(crate) fn waited_for(&self) -> BTreeSet<SessionId> {
        let places = self.places.values();
        let holders = |place: &Place| {
            let mut holders = self.holders(place.fid, place.session, place.lock);
            holders.remove(&place.session);
            holders
        };
        places.flat_map(holders).collect()
    }

    /// Files of which this client holds locks that others wait for.
    pub(crate) fn wanted_of(&self, session: SessionId) -> BTreeSet<Fid> {
        let others = self
            .places
            .values()
            .filter(|place| place.session != session);
        let wanted = others.filter(|place| {
            let holders = self.holders(place.fid, place.session, place.lock);
            holders.contains(&session)
        });
        wanted.map(|place| place.fid).collect()
    }

    /// Files of which this client holds locks.
    pub(crate) fn held_by(&self, session: SessionId) -> Vec<Fid> {
        let holds = |file: &File| file.held.keys().any(|owner| owner.0 == session);
        let files = self.files.iter().filter(|(_, file)| holds(file));
        files.map(|(fid, _)| *fid).collect()
    }

    /// Does this owner hold all of this lock, or more?
    pub(crate) fn holds(&self, fid: Fid, owner: Owner, lock: &Lock) -> bool {
        let Some(held) = self.held(fid, owner) else {
            return false;
        };
        let mut next = Some(lock.first);
        for ((first, last), mode) in held.overlapping(span(lock)) {
            let Some(at) = next.filter(|at| *at <= lock.last) else {
                return true;
            };
            if first > at || mode < lock.mode {
                return false;
            }
            next = last.checked_add(1);
        }
        next.is_none_or(|at| at > lock.last)
    }

    /// The locks that this owner holds of a file.
    pub(crate) fn held(&self, fid: Fid, owner: Owner) -> Option<&Ranges<LockMode>> {
        self.files
            .get(&fid)?
            .held
            .get(&owner)
            .map(|held| &held.parts)
    }

    /// Enters a lock as held; nothing may be in its way.
    pub(crate) fn hold(&mut self, fid: Fid, session: SessionId, lock: Lock) {
        let owner = (session, lock.owner);
        let held = self
            .files
            .entry(fid)
            .or_default()
            .held
            .entry(owner)
            .or_default();
        let before = held.parts.len();
        held.parts.set(span(&lock), Some(lock.mode));
        held.pid = lock.pid;
        let after = held.parts.len();
        self.count(session, before, after);
    }

    /// Gives up what an owner holds of these bytes; false if that is nothing.
    pub(crate) fn give_up(&mut self, fid: Fid, owner: Owner, span: Span) -> bool {
        let file = self.files.get_mut(&fid);
        let Some(held) = file.and_then(|file| file.held.get_mut(&owner)) else {
            return false;
        };
        let some = held.parts.overlapping(span).next().is_some();
        let before = held.parts.len();
        held.parts.set(span, None);
        let after = held.parts.len();
        self.count(owner.0, before, after);
        self.tidy(fid);
        some
    }

    fn count(&mut self, session: SessionId, before: usize, after: usize) {
        let count = self.counts.entry(session).or_default();
        *count = *count + after - before;
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    fn tidy(&mut self, fid: Fid) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        file.held.retain(|_, held| !held.parts.is_empty());
        if file.held.is_empty() && file.waiting.is_empty() {
            self.files.remove(&fid);
        }
    }

    /// How many parts of files a session has locked, and how often it waits.
    pub(crate) fn of(&self, session: SessionId) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    /// The same of all sessions, and how many wait.
    pub(crate) fn figures(&self) -> (u64, u64) {
        let all: usize = self.counts.values().sum();
        let waiting = self.places.len();
        ((all - waiting) as u64, waiting as u64)
    }

    /// Does anybody wait?
    pub(crate) fn anybody_waits(&self) -> bool {
        !self.places.is_empty()
    }

    /// The files in which a request waits that is told if it would wait for ever.
    pub(crate) fn detecting(&self) -> BTreeSet<Fid> {
        let places = self.places.values().filter(|place| place.detects);
        places.map(|place| place.fid).collect()
    }

    /// Has only this client locked something of a file, if anybody has, and does nobody wait?
    pub(crate) fn is_alone(&self, fid: Fid, session: SessionId) -> bool {
        self.files.get(&fid).is_none_or(|file| {
            let mut owners = file.held.keys();
            file.waiting.is_empty() && owners.all(|owner| owner.0 == session)
        })
    }

    /// How many parts of a file are locked.
    pub(crate) fn parts(&self, fid: Fid) -> usize {
        let held = self.files.get(&fid).into_iter().flat_map(|file| &file.held);
        held.map(|(_, held)| held.parts.len()).sum()
    }

    /// Is nothing of this file locked, and waits nobody?
    pub(crate) fn is_free(&self, fid: Fid) -> bool {
        !self.files.contains_key(&fid)
    }

    /// Forgets what a client has locked of a file.
    pub(crate) fn free(&mut self, fid: Fid, session: SessionId) {
        let file = self.files.get(&fid).into_iter();
        let owners = file.flat_map(|file| file.held.keys());
        let own: Vec<Owner> = owners.filter(|owner| owner.0 == session).copied().collect();
        for owner in own {
            self.give_up(fid, owner, EVERYTHING);
        }
    }

    /// The requests that wait for locks of a file, in their order, wait no more.
    pub(crate) fn take_waiting(&mut self, fid: Fid) -> Vec<Place> {
        let waiting: Vec<Seq> = self.waiting(fid).collect();
        waiting
            .into_iter()
            .filter_map(|seq| self.leave(seq))
            .collect()
    }

    /// Gives a request its place.
    pub(crate) fn enter(&mut self, place: Place) {
        self.last += 1;
        let (fid, owner) = (place.fid, place.owner());
        self.files.entry(fid).or_default().waiting.insert(self.last);
        self.waits.entry(owner).or_default().insert(self.last);
        self.count(place.session, 0, 1);
        self.places.insert(self.last, place);
    }

    /// The place of a request.
    pub(crate) fn place_of(&self, session: SessionId, request: RequestId) -> Option<Seq> {
        let mut places = self.places.iter();
        let found = places.find(|(_, place)| (place.session, place.request) == (session, request));
        found.map(|(seq, _)| *seq)
    }

    /// The files whose locks this client waits for.
    pub(crate) fn waits_of(&self, session: SessionId) -> BTreeSet<Fid> {
        let own = (session, LockOwner::Whole(0))..=(session, LockOwner::Bytes(u64::MAX));
        let places = self.waits.range(own).flat_map(|(_, seqs)| seqs);
        places.map(|seq| self.places[seq].fid).collect()
    }

    /// A request waits no more.
    pub(crate) fn leave(&mut self, seq: Seq) -> Option<Place> {
        let place = self.places.remove(&seq)?;
        if let Some(file) = self.files.get_mut(&place.fid) {
            file.waiting.remove(&seq);
        }
        let owner = place.owner();
        if let Some(waits) = self.waits.get_mut(&owner) {
            waits.remove(&seq);
            if waits.is_empty() {
                self.waits.remove(&owner);
            }
        }
        self.count(place.session, 1, 0);
        self.tidy(place.fid);
        Some(place)
    }

    /// The first request waiting here that nothing is in the way of any more, of a client that may
    /// be given anything.
    pub(crate) fn next_free(&self, fid: Fid, may_get: impl Fn(SessionId) -> bool) -> Option<Seq> {
        let mut waiting = self
            .waiting(fid)
            .filter(|seq| may_get(self.places[seq].session));
        waiting.find(|seq| {
            let place = &self.places[seq];
            let mut ways = self.in_the_way(fid, place.session, place.lock);
            ways.next().is_none()
        })
    }

    /// The first request waiting here that would wait for ever.
    pub(crate) fn next_deadlocked(&self, fid: Fid) -> Option<Seq> {
        let mut waiting = self.waiting(fid);
        waiting.find(|seq| self.deadlocks(&self.places[seq]))
    }

    fn waiting(&self, fid: Fid) -> impl Iterator<Item = Seq> + '_ {
        let file = self.files.get(&fid).into_iter();
        file.flat_map(|file| file.waiting.iter().copied())
    }

    /// Does an owner wait somewhere?
    pub(crate) fn is_waiting(&self, owner: Owner) -> bool {
        self.waits.contains_key(&owner)
    }

    /// Would this request wait for ever: do those who are in its way wait, over however many
    /// others, for its own owner? An owner that never asks for this is no process but an open file,
    /// which any process that has it may unlock: it is not followed, as on one machine.
    pub(crate) fn deadlocks(&self, place: &Place) -> bool {
        if !place.detects || place.lock.owner.is_whole() {
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut next = vec![place.clone()];
        while let Some(waits) = next.pop() {
            for (owner, _) in self.in_the_way(waits.fid, waits.session, waits.lock) {
                if owner == place.owner() {
                    return true;
                }
                if seen.insert(owner) {
                    let places = self.waits.get(&owner).into_iter().flatten();
                    let places = places.map(|seq| &self.places[seq]);
                    next.extend(places.filter(|place| place.detects).cloned());
                }
            }
        }
        false
    }

    /// A session is over: its locks are free, its places empty. The files that this is about.
    pub(crate) fn drop_session(&mut self, session: SessionId) -> Vec<Fid> {
        if self.of(session) == 0 {
            return vec![];
        }
        let places = self.places.iter();
        let own = places.filter(|(_, place)| place.session == session);
        let own: Vec<Seq> = own.map(|(seq, _)| *seq).collect();
        for seq in own {
            self.leave(seq);
        }
        let fids = self.held_by(session);
        for &fid in &fids {
            self.free(fid, session);
        }
        fids
    }
}
