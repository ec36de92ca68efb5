//! Files about whose locks this client decides by itself, since nobody else uses them.
//!
//! Guarantees: it decides about a file's locks only from an answer on that delegates them until it
//! gives that back, and only while the server has done with all its requests about them. So the
//! owners' locks that are remembered of a file are all that is locked of it when it begins to
//! decide; it tells that when it ends, and nothing about these locks is asked of the server before
//! that has been heard. Calls that wait for a lock wait here, and go on waiting at the server
//! afterwards.

use crate::Ticket;
use crate::client::mutant::Mutant;
use crate::client::{Client, Step};
use crate::locks::Table;
use crate::ranges::Span;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use wire::{Epoch, Fid, Lock, LockOwner, LockWait, Op, Outcome, RequestId, SessionId, Time};

/// The client's own name in its table of locks.
pub(crate) const OWN: SessionId = 0;
/// Files about whose locks it decides though nothing is locked of them, at most.
const IDLE_FILES_MAX: usize = 1024;

/// The side that decides about the locks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decides {
    Server,
    Client,
    /// The client has given it back, and the server may not have heard that.
    Nobody,
}

/// The state of the delegation of a file's locks.
#[derive(Clone, Debug, Default)]
struct File {
    /// The latest answer that delegates them; 0: none does.
    granted: Epoch,
    /// Answers up to this one delegate nothing any more.
    void: Epoch,
    /// This client decides about them.
    own: bool,
    /// Requests about them that the server has not done with.
    asked: u32,
    /// The request that gives them back.
    giving: Option<RequestId>,
    /// Calls that wait for that, and bytes that were unlocked meanwhile for no call: by the close
    /// of an open file, or since a caller ended.
    parked: Vec<Ticket>,
    unlocked: Vec<(LockOwner, Span)>,
    /// When they were used last, and how many calls were answered here.
    used: Time,
    decided: u32,
}

/// All files of which that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct DelegatedLocks {
    files: BTreeMap<Fid, File>,
    /// The locks of the files about which this client decides, and how many files these are.
    pub(crate) table: Table,
    own: usize,
    /// Calls that were decided here.
    pub(crate) calls: u64,
    /// The latest epoch of any answer about locks.
    pub(crate) latest: Epoch,
    /// When it is looked for what is not used.
    next_look: Time,
    /// Calls that waited here when the server started again.
    again: Vec<Ticket>,
}

impl File {
    fn is_over(&self) -> bool {
        self.asked == 0 && self.giving.is_none() && self.granted == 0
    }
}

impl DelegatedLocks {
    pub(crate) fn decides(&self, fid: Fid) -> Decides {
        match self.files.get(&fid) {
            Some(file) if file.own => Decides::Client,
            Some(file) if file.giving.is_some() => Decides::Nobody,
            _ => Decides::Server,
        }
    }

    /// The number of files about whose locks this client decides.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// How many calls wait here?
    pub(crate) fn waiting(&self) -> u64 {
        self.table.figures().1
    }

    /// A request about locks leaves.
    pub(crate) fn asks(&mut self, fid: Fid) {
        self.files.entry(fid).or_default().asked += 1;
    }

    /// An answer about a lock has come.
    pub(crate) fn note(&mut self, fid: Fid, at: Epoch, delegated: bool) {
        self.latest = self.latest.max(at);
        if let Some(file) = self.files.get_mut(&fid).filter(|_| delegated)
            && at > file.void
        {
            file.granted = file.granted.max(at);
        }
    }

    /// A call waits until the server has heard that the locks are given back.
    pub(crate) fn park(&mut self, fid: Fid, ticket: Ticket) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.parked.push(ticket);
        }
    }

    /// The files of which it is known who decides, or asked.
    pub(crate) fn files(&self) -> impl Iterator<Item = Fid> + '_ {
        self.files.keys().copied()
    }

    /// Bytes are unlocked for no call; until then nothing can be asked for that.
    pub(crate) fn unlock_later(&mut self, fid: Fid, unlocked: (LockOwner, Span)) {
        if let Some(file) = self.files.get_mut(&fid) {
            file.unlocked.push(unlocked);
        }
    }

    /// Does this owner wait to give up something for no call?
    pub(crate) fn unlocks_later(&self, (fid, owner): (Fid, LockOwner)) -> bool {
        let file = self.files.get(&fid);
        file.is_some_and(|file| file.unlocked.iter().any(|(whose, _)| *whose == owner))
    }

    fn tidy(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(File::is_over) {
            self.files.remove(&fid);
        }
    }

    /// When it wants to look for what is not used.
    pub(crate) fn due(&self) -> Option<Time> {
        (self.own > 0).then_some(self.next_look)
    }
}

impl Client {
    /// The server has done with a request about the locks of a file.
    pub(crate) fn lock_done(&mut self, step: &mut Step<'_>, fid: Fid) {
        let early = self.options.mutant == Some(Mutant::DecidesEarly);
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.asked = file.asked.saturating_sub(1);
            let quiet = file.asked == 0 || early;
            if quiet && file.granted > 0 && file.giving.is_none() && !file.own {
                file.own = true;
                self.begin_deciding(step, fid);
            }
        }
        self.lock_delegation.tidy(fid);
    }

    pub(crate) fn note_decided(&mut self, step: &Step<'_>, fid: Fid, calls: u32) {
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.used = step.now;
            file.decided = file.decided.saturating_add(calls);
            self.lock_delegation.calls += u64::from(calls);
        }
    }

    fn begin_deciding(&mut self, step: &mut Step<'_>, fid: Fid) {
        for lock in self.locked_of(fid) {
            self.lock_delegation.table.hold(fid, OWN, lock);
        }
        let files = &mut self.lock_delegation;
        files.own += 1;
        if files.own == 1 {
            files.next_look = step.now + self.options.scan_ns;
        }
        self.note_decided(step, fid, 0);
        if self.lock_delegation.own > IDLE_FILES_MAX {
            self.give_oldest(step);
        }
    }

    /// Before a call that is told if it would wait for ever may come to wait at the server: those
    /// that wait here go there, too.
    pub(crate) fn give_waited_for(&mut self, step: &mut Step<'_>, op: &Op) {
        if let Op::Lock {
            wait: LockWait::UnlessDeadlocked,
            ..
        } = op
        {
            for fid in self.lock_delegation.table.detecting() {
                self.give_locks(step, fid);
            }
        }
    }

    /// Somebody else asks for a lock of the file. An answer that delegates the locks and is on its
    /// way is void when it comes; the server is told so.
    pub(crate) fn on_locks_recalled(&mut self, step: &mut Step<'_>, fid: Fid, epoch: Epoch) {
        let known = self.lock_delegation.files.get(&fid);
        if known.is_some_and(|file| file.granted > epoch) {
            return; // it was answered, and the locks were delegated anew since
        }
        let decides = self.lock_delegation.decides(fid);
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.void = file.void.max(epoch);
            file.granted = 0;
        }
        match decides {
            Decides::Client => self.give_up_to(step, fid, epoch),
            Decides::Nobody => {}
            // An answer may be on its way.
            Decides::Server => {
                self.say_gives(step, fid, (epoch, 0), None);
                self.lock_delegation.tidy(fid);
            }
        }
    }

    fn say_gives(
        &mut self,
        step: &mut Step<'_>,
        fid: Fid,
        (upto, decided): (Epoch, u32),
        held: Option<Vec<Lock>>,
    ) -> RequestId {
        let op = Op::GiveLocks {
            fid,
            upto,
            decided,
            held,
        };
        self.ask_lock(step, op, crate::client::session::asked::Why::Lock)
    }

    pub(crate) fn give_locks(&mut self, step: &mut Step<'_>, fid: Fid) {
        let file = self.lock_delegation.files.get(&fid);
        if let Some(granted) = file.filter(|file| file.own).map(|file| file.granted) {
            self.give_up_to(step, fid, granted);
        }
    }

    /// Decides no more about the locks of a file, and tells the server what is locked.
    fn give_up_to(&mut self, step: &mut Step<'_>, fid: Fid, upto: Epoch) {
        let waited = self.decide_no_more(fid);
        let held = match self.options.mutant {
            Some(Mutant::KeepsLocks) => vec![],
            _ => self.locked_of(fid),
        };
        let file = self.lock_delegation.files.entry(fid).or_default();
        let decided = core::mem::take(&mut file.decided);
        (file.void, file.granted) = (file.void.max(upto), 0);
        file.parked.extend(waited);
        let giving = self.say_gives(step, fid, (upto, decided), Some(held));
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.giving = Some(giving);
        }
    }

    /// The calls that waited here.
    fn decide_no_more(&mut self, fid: Fid) -> Vec<Ticket> {
        let places = self.lock_delegation.table.take_waiting(fid);
        for place in &places {
            self.locks.asked_less((fid, place.lock.owner));
            self.locks.tidy((fid, place.lock.owner));
        }
        self.lock_delegation.table.free(fid, OWN);
        self.lock_delegation.own -= 1;
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.own = false;
        }
        places.into_iter().map(|place| place.request).collect()
    }

    /// The server has heard that the locks of a file are given back.
    pub(crate) fn on_gave_locks(&mut self, step: &mut Step<'_>, fid: Fid, id: RequestId) {
        let file = self.lock_delegation.files.get_mut(&fid);
        let Some(file) = file.filter(|file| file.giving == Some(id)) else {
            return;
        };
        file.giving = None;
        let unlocked = core::mem::take(&mut file.unlocked);
        let parked = core::mem::take(&mut file.parked);
        for (owner, span) in unlocked {
            self.ask_to_unlock(
                step,
                (fid, owner),
                span,
                crate::client::session::asked::Why::Lock,
            );
        }
        for ticket in parked {
            self.start(step, ticket);
        }
        self.lock_delegation.tidy(fid);
    }

    /// Gives back the locks of files that have not been used for a while: a client that needs them
    /// then need not wait for a machine that may be away.
    pub(crate) fn tick_locks(&mut self, step: &mut Step<'_>) {
        if self.lock_delegation.due().is_none_or(|due| step.now < due) {
            return;
        }
        self.lock_delegation.next_look = step.now + self.options.scan_ns;
        let idle_ns = self.options.lock_idle_ns;
        for (fid, used) in self.idle() {
            if step.now >= used + idle_ns {
                self.give_locks(step, fid);
            }
        }
    }

    fn give_oldest(&mut self, step: &mut Step<'_>) {
        let mut idle = self.idle();
        idle.sort_unstable_by_key(|(_, used)| *used);
        for (fid, _) in idle.into_iter().take(IDLE_FILES_MAX / 4) {
            self.give_locks(step, fid);
        }
    }

    /// Files about whose locks is decided here though there are none, and when they were used.
    fn idle(&self) -> Vec<(Fid, Time)> {
        let files = &self.lock_delegation;
        let own = files.files.iter().filter(|(_, file)| file.own);
        let idle = own.filter(|(fid, _)| files.table.is_free(**fid));
        idle.map(|(fid, file)| (*fid, file.used)).collect()
    }

    /// The server has started again: it is told of all locks, and decides. Answers of the last run
    /// delegate nothing.
    pub(crate) fn end_lock_delegations(&mut self, boot: Epoch) {
        let files = self.lock_delegation.files.iter();
        let own: Vec<Fid> = files.filter(|(_, f)| f.own).map(|(fid, _)| *fid).collect();
        for fid in own {
            let waited = self.decide_no_more(fid);
            self.lock_delegation.again.extend(waited);
        }
        for file in self.lock_delegation.files.values_mut() {
            (file.void, file.granted) = (file.void.max(boot), 0);
        }
        self.lock_delegation.files.retain(|_, file| !file.is_over());
    }

    /// Calls that waited here when the server started again.
    pub(crate) fn take_waited_here(&mut self) -> Vec<Ticket> {
        core::mem::take(&mut self.lock_delegation.again)
    }

    /// The server decides about the locks of this file again, and decisions made here are void:
    /// returns the calls that waited.
    pub(crate) fn lose_lock_delegation(&mut self, fid: Fid) -> Vec<Ticket> {
        let term = self.session.term;
        let own = self
            .lock_delegation
            .files
            .get(&fid)
            .is_some_and(|file| file.own);
        let waited = if own {
            self.decide_no_more(fid)
        } else {
            Vec::new()
        };
        if let Some(file) = self.lock_delegation.files.get_mut(&fid) {
            file.void = file.void.max(term);
            // An answer may have overtaken the server's word that locks were lost before it.
            if file.granted <= term {
                file.granted = 0;
            }
        }
        self.lock_delegation.files.retain(|_, file| !file.is_over());
        waited
    }

    /// The session is over: the calls that waited for anything here.
    pub(crate) fn lose_lock_delegations(&mut self) -> Vec<Ticket> {
        let mut lost = core::mem::take(&mut self.lock_delegation);
        self.lock_delegation.calls = lost.calls;
        let mut waited = core::mem::take(&mut lost.again);
        for (fid, file) in &lost.files {
            waited.extend(&file.parked);
            let places = lost.table.take_waiting(*fid);
            waited.extend(places.into_iter().map(|place| place.request));
        }
        waited
    }

    /// An answer says also who decides about the file's locks.
    pub(crate) fn note_who_decides(
        &mut self,
        step: &mut Step<'_>,
        id: RequestId,
        (op, outcome): (&Op, &Outcome),
    ) {
        match (op, outcome) {
            (Op::GiveLocks { fid, .. }, _) => self.on_gave_locks(step, *fid, id),
            (
                Op::Lock { fid, .. } | Op::Unlock { fid, .. },
                Outcome::Locked { at, delegated, .. },
            ) => self.lock_delegation.note(*fid, *at, *delegated),
            _ => {}
        }
    }
}
