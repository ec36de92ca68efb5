//! Recalls of names that wait for the answer to an earlier one, and then leave as one.
//!
//! Guarantees: while a client has left a few recalls of names of a directory unanswered, further
//! names to drop there are gathered, and leave in one recall when it has answered one, or after
//! [`GATHER_NS`]: so a hundred clients that each make a name in a directory that all cache are
//! asked a few times each, and not a hundred times. No request waits for longer than that, since an
//! answer may itself have to wait, for a lock of the client's kernel.

use crate::server::table::{Ask, Holder, Seq};
use crate::server::{Server, Step};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use wire::{Epoch, Fid, Name, Recall, SessionId, Time, ToClient, What};

/// How long names are gathered while an earlier recall is not answered.
const GATHER_NS: Time = 1_000_000;
/// Most names in one recall: as many as fit into a message twice over.
const GATHER_NAMES: usize = 1024;

impl Ask {
    /// It is still gathering names.
    pub(crate) fn gathers(&self) -> bool {
        self.epoch == 0
    }

    /// Takes these up, if it gathers names and has room. They stay in order.
    fn gather(&mut self, names: &[Name]) -> bool {
        let gathers = self.gathers();
        let What::Names(gathered) = &mut self.what else {
            return false;
        };
        if !gathers || gathered.len() + names.len() > GATHER_NAMES {
            return false;
        }
        for name in names {
            if let Err(at) = gathered.binary_search(name) {
                gathered.insert(at, name.clone());
            }
        }
        true
    }
}

/// Is this name among those of a recall? Many are in order, one or two as they were asked for.
pub(crate) fn is_among(name: &Name, names: &[Name]) -> bool {
    match names.len() {
        0..=2 => names.contains(name),
        _ => names.binary_search(name).is_ok(),
    }
}

impl Holder {
    /// How often it has been asked for names, and has not answered.
    fn names_asked(&self) -> usize {
        let names = |ask: &&Ask| matches!(ask.what, What::Names(_)) && !ask.gathers();
        self.asks.iter().filter(names).count()
    }
}

impl Server {
    /// Lets these names wait for what this client has been asked before, if there is such a thing.
    /// Returns the number of the question.
    pub(crate) fn gather(
        &mut self,
        now: Time,
        (session, fid): (SessionId, Fid),
        names: &[Name],
        (since, waiter): (Time, Option<Seq>),
    ) -> Option<Epoch> {
        let holder = self.files.get_mut(&fid)?.holders.get_mut(&session)?;
        for ask in &mut holder.asks {
            if ask.gather(names) {
                ask.since = ask.since.min(since);
                ask.waiters.extend(waiter);
                return Some(ask.id);
            }
        }
        if holder.names_asked() < self.options.names_at_once.max(1) {
            return None;
        }
        let mut gathered = names.to_vec();
        gathered.sort_unstable();
        gathered.dedup();
        self.epoch += 1;
        let id = self.epoch;
        let earned = holder.earned_since(since);
        holder.asks.push(Ask {
            id,
            epoch: 0,
            what: What::Names(gathered),
            since,
            earned,
            sent: now,
            waiters: waiter.into_iter().collect(),
        });
        self.recall_batches.insert((now + GATHER_NS, session, fid));
        Some(id)
    }

    /// A client has answered: the names gathered for it leave, if it is asked for little else.
    pub(crate) fn ask_gathered(&mut self, step: &mut Step<'_>, session: SessionId, fid: Fid) {
        let holder = self.holder(session, fid);
        let most = self.options.names_at_once.max(1);
        if holder.is_some_and(|holder| holder.names_asked() < most) {
            self.send_gathered(step, session, fid);
        }
    }

    /// Names that have been gathered for long enough.
    pub(crate) fn tick_gathered(&mut self, step: &mut Step<'_>) {
        while let Some(&(due, session, fid)) = self.recall_batches.first()
            && due <= step.now
        {
            self.recall_batches.pop_first();
            self.send_gathered(step, session, fid);
        }
    }

    fn send_gathered(&mut self, step: &mut Step<'_>, session: SessionId, fid: Fid) {
        let Some(file) = self.files.get_mut(&fid) else {
            return;
        };
        let Some(holder) = file.holders.get_mut(&session) else {
            return;
        };
        let waiting = &self.waiting;
        // Nobody may want it any more: requests end in other ways, too.
        let wanted = |ask: &Ask| {
            let mut waiters = ask.waiters.iter().filter_map(|seq| waiting.get(seq));
            waiters.any(|waiting| waiting.is_owed(ask.id))
        };
        holder.asks.retain(|ask| !ask.gathers() || wanted(ask));
        let mut recalls: Vec<Recall> = Vec::new();
        for ask in holder.asks.iter_mut().filter(|ask| ask.gathers()) {
            self.epoch += 1;
            (ask.epoch, ask.sent) = (self.epoch, step.now);
            let (epoch, what) = (ask.epoch, ask.what.clone());
            recalls.push(Recall { fid, epoch, what });
        }
        for recall in recalls {
            self.note_asked(step.now, session, fid);
            self.send(step, session, ToClient::Recall(recall));
        }
    }

    /// Somebody is asked for something of this.
    pub(crate) fn note_asked(&mut self, now: Time, session: SessionId, fid: Fid) {
        self.asked.insert((session, fid));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.fids.insert(fid);
        }
        self.recalls += 1;
        self.wake(now);
    }
}

/// The recalls that are being gathered, and when each leaves at the latest.
pub(crate) type RecallBatches = BTreeSet<(Time, SessionId, Fid)>;
