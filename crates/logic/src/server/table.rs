//! The server's table of files, holders and sessions.
//!
//! A [`Holder`] is what the server believes of one client and one file; the client never holds more
//! than that. `right` is raised when a grant leaves, and lowered only when the client says so (or
//! is fenced). While a client holds a token, its opens are not known (`known` is false): opens
//! under a token are not told. `asks` are the recalls that it has not answered.
//!
//! `unconfirmed` are changes that have been applied, whose caller may not have seen the answer: its
//! machine may still show the old state, so nobody else may be shown the new one.

use super::api::{Bulk, Conn};
use super::holders::Holders;
use super::locks::requests::Waited;
use super::requests::awaited::Awaited;
use super::requests::plan::Plan;
use super::session::salvage::Salvage;
use super::session::taking::Away;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{
    Attr, Epoch, Fid, Hold, MachineId, Name, Op, Outcome, Reply, Request, RequestId, Right, Rights,
    SessionId, Time, What,
};

/// Orders the requests that wait.
pub(crate) type Seq = u64;

/// A recall that is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The number of the question, and the epoch of the recall; 0: it has not been sent.
    pub(crate) id: Epoch,
    pub(crate) epoch: Epoch,
    pub(crate) what: What,
    /// Since when something has been asked for; earlier answers may have been in vain.
    pub(crate) since: Time,
    /// For so much longer it is waited for, since bytes have come that must come first.
    pub(crate) earned: Time,
    pub(crate) sent: Time,
    /// The requests that wait for the answer; some may be over.
    pub(crate) waiters: BTreeSet<Seq>,
}

/// The state of one client at one file.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) right: Right,
    /// Epoch of the last grant, and of the last one of Exclusive.
    pub(crate) epoch: Epoch,
    pub(crate) exclusive: Epoch,
    /// The opens, when `known`.
    pub(crate) hold: Hold,
    pub(crate) known: bool,
    /// When it was told a name last without a grant, of a directory that it was believed to hold:
    /// by its stamp. Its reports from before do not speak of that name.
    pub(crate) told: u64,
    /// The most that the disk believes it may hold: see `held`.
    pub(crate) noted: Right,
    /// It may keep something that was made of lost changes, and is asked to keep no more than this:
    /// see `take_all_back`.
    pub(crate) doubted: Option<Right>,
    pub(crate) asks: Vec<Ask>,
    /// The last answer that granted it something and had the file's bytes beside it: on which
    /// connection it left, and to which request.
    pub(crate) bytes: Option<(Conn, RequestId)>,
}

impl Default for Holder {
    fn default() -> Self {
        let hold = Hold::default();
        Self {
            right: Right::None,
            epoch: 0,
            exclusive: 0,
            hold,
            known: true,
            told: 0,
            noted: Right::None,
            doubted: None,
            asks: Vec::new(),
            bytes: None,
        }
    }
}

impl Holder {
    /// The time that bytes which came for earlier questions earn for one asked since then.
    pub(crate) fn earned_since(&self, since: Time) -> Time {
        let earned = self.asks.iter().filter(|ask| ask.earned > 0);
        let until = earned.map(|ask| ask.since + ask.earned).max();
        until.map_or(0, |until| until.saturating_sub(since))
    }

    /// May it have the file open, as far as is known?
    pub(crate) fn may_be_open(&self) -> bool {
        if self.known {
            self.hold.open
        } else {
            self.right >= Right::Shared || self.hold.open
        }
    }

    /// Is it known to have the file open for writing?
    pub(crate) fn writes(&self) -> bool {
        self.known && self.hold.write
    }

    /// Takes over a statement of what is open, unless a later one is known.
    pub(crate) fn declare(&mut self, hold: Hold) {
        if hold.stamp >= self.hold.stamp {
            self.hold = hold;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        let nothing = self.right == Right::None && !self.may_be_open();
        nothing && self.asks.is_empty() && self.noted == Right::None
    }
}

/// A change whose caller may not have seen the answer yet.
#[derive(Clone, Debug)]
pub(crate) struct Unconfirmed {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    /// The name that changed; `None`: the object itself.
    pub(crate) name: Option<Name>,
}

/// The state of one file or directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) holders: Holders,
    pub(crate) unconfirmed: Vec<Unconfirmed>,
    /// Requests that wait for something here, if there are any.
    pub(crate) queue: Option<Box<Queue>>,
    /// It has no name any more, and lives until nobody has it open, but at least until then.
    pub(crate) orphan: Option<Time>,
}

/// Requests that wait for something of one object, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Each, and whether it is about to change the object: it blocks grants that would be in its
    /// way then.
    pub(crate) waiting: BTreeMap<Seq, bool>,
    /// Of a directory, those that look at a name in it.
    pub(crate) named: BTreeMap<Name, BTreeSet<Seq>>,
    /// Those that look at all of the object.
    pub(crate) whole: BTreeSet<Seq>,
    /// Those that nobody owes anything: they are put off; see `turns`.
    pub(crate) idle: BTreeSet<Seq>,
}

impl File {
    /// Is nothing left to remember?
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = self.unconfirmed.is_empty() && self.queue.is_none();
        self.holders.is_empty() && quiet && self.orphan.is_none()
    }

    /// Does anybody wait here?
    pub(crate) fn waits(&self) -> bool {
        self.queue.is_some()
    }

    /// The requests that wait here, in the order of arrival.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Seq> + '_ {
        let queue = self.queue.iter();
        queue.flat_map(|queue| queue.waiting.keys().copied())
    }

    /// Is a waiting request about to change it?
    pub(crate) fn about_to_change(&self) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|queue| queue.waiting.values().any(|disturbs| *disturbs))
    }

    /// Does anybody have it open, as far as is known?
    pub(crate) fn in_use(&self) -> bool {
        self.holders.values().any(Holder::may_be_open)
    }
}

/// A request that waits for returns or confirmations. It is judged from scratch each time; it keeps
/// only answers that leave no trace in the table.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) seq: Seq,
    pub(crate) session: SessionId,
    pub(crate) request: Request,
    pub(crate) bulk: Bulk,
    /// Where it is entered as waiting.
    pub(crate) fids: BTreeSet<Fid>,
    /// The objects that were given up in earlier rounds of gathering: others may have been put off
    /// there.
    pub(crate) gathered: Vec<Fid>,
    /// Only answers to recalls after this epoch tell what was true during the request.
    pub(crate) arrived: Epoch,
    /// The plan, as things were when it was judged last.
    pub(crate) plan: Plan,
    /// The answers that it is owed since then.
    pub(crate) owed: BTreeSet<Awaited>,
    /// Names that a holder has dropped for it, and when; and that it was told of again by a
    /// look-up, and when that was sent: by the stamps of the holder.
    pub(crate) dropped: Marks,
    pub(crate) told: Marks,
    /// The clients that have dropped the attributes of a directory for it. Nobody is granted them
    /// again while it waits.
    pub(crate) stripped: BTreeSet<(SessionId, Fid)>,
    /// Since when a holder is in its way, without end since: answers in vain do not count.
    pub(crate) asked: BTreeMap<(SessionId, Fid), Time>,
    /// Attributes that Exclusive holders have said.
    pub(crate) attrs: BTreeMap<Fid, Attr>,
    /// The clients that have given up all of an object, as they were asked to while this one
    /// waited.
    pub(crate) gave_up: BTreeSet<(SessionId, Fid)>,
    /// Of a delegated change whose maker does not hold any more what it was made under.
    pub(crate) salvage: Option<Salvage>,
    /// It has been put off, until then at most (see `fairness`), or waits until then for room (see
    /// `orphans`).
    pub(crate) patient_until: Option<Time>,
    /// When it was found to have to wait.
    pub(crate) since: Option<Time>,
}

/// Names of directories, each with the latest stamp of a holder. A request is about two at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks(BTreeMap<(SessionId, Fid), Vec<(Name, u64)>>);

impl Marks {
    /// The stamp at which a holder marked this name.
    pub(crate) fn of(&self, at: (SessionId, Fid), name: &Name) -> Option<u64> {
        let mut marks = self.0.get(&at)?.iter();
        marks
            .find(|(marked, _)| marked == name)
            .map(|(_, stamp)| *stamp)
    }

    pub(crate) fn mark(&mut self, at: (SessionId, Fid), name: &Name, stamp: u64) {
        let marks = self.0.entry(at).or_default();
        match marks.iter_mut().find(|(marked, _)| marked == name) {
            Some((_, last)) => *last = stamp,
            None => marks.push((name.clone(), stamp)),
        }
    }
}

impl Waiting {
    /// One that has just come, at this epoch.
    pub(crate) fn new(
        (seq, arrived): (Seq, Epoch),
        session: SessionId,
        (request, bulk): (Request, Bulk),
    ) -> Self {
        Self {
            seq,
            session,
            request,
            bulk,
            fids: BTreeSet::new(),
            gathered: Vec::new(),
            arrived,
            plan: Plan::default(),
            owed: BTreeSet::new(),
            dropped: Marks::default(),
            told: Marks::default(),
            stripped: BTreeSet::new(),
            asked: BTreeMap::new(),
            attrs: BTreeMap::new(),
            gave_up: BTreeSet::new(),
            salvage: None,
            patient_until: None,
            since: None,
        }
    }

    /// Does it wait for the answer to this question?
    pub(crate) fn is_owed(&self, question: Epoch) -> bool {
        self.owed.contains(&Awaited::Answer(question))
    }

    /// Has this holder dropped the name for it, and not been told of it since?
    pub(crate) fn has_dropped(&self, at: (SessionId, Fid), name: &Name) -> bool {
        let dropped = self.dropped.of(at, name);
        dropped.is_some_and(|stamp| stamp > self.told.of(at, name).unwrap_or(0))
    }

    /// Does it take this name away from an object that may live on under another one?
    pub(crate) fn moves(&self, dir: Fid, name: &Name) -> bool {
        match &self.request.op {
            Op::Rename {
                from,
                name: old,
                to,
                new,
                ..
            } => (*from == dir && old == name) || (*to == dir && new == name),
            Op::Unlink {
                dir: from,
                name: old,
            } => *from == dir && old == name,
            _ => false,
        }
    }
}

/// When something was asked for the first and for the last time.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) since: Time,
    pub(crate) sent: Time,
    /// By somebody who waits to see all of the object, not only the name that changed.
    pub(crate) whole: bool,
    /// The requests that wait for it; some may be over.
    pub(crate) waiters: BTreeSet<Seq>,
}

/// One client's stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// The machine that has begun it; none: an earlier run of the server knew.
    pub(crate) machine: Option<MachineId>,
    /// Its rights on its last connection.
    pub(crate) rights: Option<Rights>,
    pub(crate) conn: Option<Conn>,
    /// The version of the protocol that it speaks there.
    pub(crate) version: u32,
    /// The root of its tree, and whether nothing changes there; none: it has not said which.
    pub(crate) root: Option<(Fid, bool)>,
    /// When it greeted this run of the server for the first time.
    pub(crate) since: Option<Time>,
    /// When it was last heard of.
    pub(crate) heard: Time,
    /// It leaves a question unanswered for too long: nothing renews its lease; see `silence`.
    pub(crate) stalled: bool,
    /// The highest request that came in such a time: its answer renews nothing either.
    pub(crate) uncounted: RequestId,
    /// Its greeting has not been answered for that reason, as its client would take that for a
    /// renewal: it is older than `VERSION_OF_STALLED`.
    pub(crate) unwelcome: bool,
    /// Has it said anything but greetings? Then it knows that the session is a new one. Until then
    /// it is told so again: a greeting that was late may have opened this one when an earlier
    /// session of this number was over, of which the client has not heard.
    pub(crate) used: bool,
    pub(crate) acked: RequestId,
    /// Replies to changes, kept until they are acknowledged.
    pub(crate) answers: BTreeMap<RequestId, Reply>,
    /// Answers about locks, kept likewise.
    pub(crate) lock_answers: BTreeMap<RequestId, Outcome>,
    /// Ends of waits for locks that it has not heard.
    pub(crate) waited: BTreeMap<RequestId, Waited>,
    /// Requests that are being done.
    pub(crate) running: BTreeSet<RequestId>,
    /// Requests to be put back that are not here yet; see `wound_wait`.
    pub(crate) put_back: BTreeSet<RequestId>,
    /// Changes not confirmed yet, and where they are entered; and when that was asked.
    pub(crate) unconfirmed: BTreeMap<RequestId, Vec<Fid>>,
    pub(crate) confirm_asked: BTreeMap<RequestId, Asked>,
    /// Changes that it left unconfirmed for so long that something was taken from it: the server
    /// waits no such time for the same confirmation once more.
    pub(crate) unanswered: BTreeSet<RequestId>,
    /// Where it is entered as a holder.
    pub(crate) fids: BTreeSet<Fid>,
    /// The latest stamp of what it said to have open.
    pub(crate) stamp: u64,
    /// The name of its client for people.
    pub(crate) name: Vec<u8>,
    /// Something was taken from it, and it has not said since what it holds; see `taking`.
    pub(crate) away: Option<Away>,
    /// In which term it says what it holds.
    pub(crate) term: Epoch,
    /// Has it said in this term all that it holds? And which parts of that.
    pub(crate) reasserted: bool,
    /// Its claims in that term excluded earlier ones of another session.
    pub(crate) refused: bool,
    pub(crate) parts: BTreeSet<u32>,
    /// The answers to these: what it said to hold, and did not.
    pub(crate) taken: BTreeMap<u32, Vec<Fid>>,
    /// Files of which it was told in this term that it has lost its locks.
    pub(crate) unlocked: BTreeSet<Fid>,
    /// When the latest of these came.
    pub(crate) came: Time,
    /// A delegated change was refused: so are all that follow, which may build on it.
    pub(crate) broken: bool,
    /// Requests that have overtaken a delegated change: by that one and their own number.
    pub(crate) overtaken: BTreeMap<(RequestId, RequestId), (Request, Bulk)>,
}
