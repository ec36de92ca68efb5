//! The clients that were told how long a file is, without a right to keep that.
//!
//! A client's kernel goes by the last size that it has taken in, and may take an answer in late:
//! after the file was shortened, and while it has a program wait that asks for the new size; then
//! it throws the answer to that away. So before a file's size is set, each client that was told the
//! old one is asked, as if it held a right: its kernel is told to throw away what is still on its
//! way.
//!
//! A told size is a sign of that only, and no right: it keeps nobody from being granted anything.
//! Nor is an answer waited for long: the client that sets the size may hold the file, and not be
//! able to answer a recall itself before it knows how long the file is. It must not be fenced
//! because another is mute.

use crate::server::requests::conflicts::{Need, Only};
use crate::server::table::{File, Waiting};
use crate::server::{Server, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Epoch, Fid, Grant, Kind, Op, Outcome, Right, SessionId, Time, What};

/// The size of one file, as told to one client.
#[derive(Clone, Copy, Debug)]
struct SizeTold {
    /// Of the request.
    stamp: u64,
    at: Time,
}

/// Everybody who was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct SizesTold {
    files: BTreeMap<Fid, BTreeMap<SessionId, SizeTold>>,
    /// In the order of time.
    order: BTreeSet<(Time, Fid, SessionId)>,
}

impl SizesTold {
    /// True if there was something to forget.
    fn forget(&mut self, fid: Fid, session: SessionId, over: impl Fn(SizeTold) -> bool) -> bool {
        let Some(sessions) = self.files.get_mut(&fid) else {
            return false;
        };
        let told = sessions.get(&session).is_some_and(|told| over(*told));
        if told && let Some(told) = sessions.remove(&session) {
            self.order.remove(&(told.at, fid, session));
        }
        if sessions.is_empty() {
            self.files.remove(&fid);
        }
        told
    }

    /// A session is over.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.files.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
        self.order.retain(|told| told.2 != session);
    }

    /// Sizes told before this time count no more.
    fn forget_before(&mut self, time: Time) {
        while let Some(&oldest) = self.order.first()
            && oldest.0 <= time
        {
            self.order.remove(&oldest);
            self.forget(oldest.1, oldest.2, |_| true);
        }
    }
}

impl Server {
    /// An answer leaves: notes whom it tells the size of a file. After a lease it counts no more: a
    /// kernel that has not taken it in by then has not run for so long.
    ///
    /// Returns up to where the client had answered what it was asked about the file, for
    /// `Reply::heard`: else it would ask again, and again after each change of another.
    pub(crate) fn show(
        &mut self,
        now: Time,
        waiting: &Waiting,
        (outcome, grants): (&Outcome, &[Grant]),
    ) -> Epoch {
        let (fid, kind) = match (&waiting.request.op, outcome) {
            (Op::GetAttr { fid }, Outcome::Attr(attr)) => (*fid, attr.kind),
            (Op::Lookup { .. }, Outcome::Entry(entry)) => (entry.fid, entry.attr.kind),
            _ => return 0,
        };
        let granted = |grant: &Grant| grant.fid == fid && grant.right >= Right::Shared;
        if kind != Kind::File || grants.iter().any(granted) {
            return 0;
        }
        if let Some(time) = now.checked_sub(self.options.lease_ns) {
            self.sizes_told.forget_before(time);
        }
        let (session, stamp) = (waiting.session, waiting.request.hold.stamp);
        let shown = &mut self.sizes_told;
        let sessions = shown.files.entry(fid).or_default();
        let told = sessions
            .entry(session)
            .or_insert(SizeTold { stamp, at: now });
        shown.order.remove(&(told.at, fid, session));
        shown.order.insert((now, fid, session));
        (told.stamp, told.at) = (told.stamp.max(stamp), now);
        self.note_grown(session, fid);
        let asked = |file: &File| super::grants::asked(file, session);
        match self.files.get(&fid).is_some_and(asked) {
            true => 0,
            false => self.epoch,
        }
    }

    /// A client is told what a name names. Its kernel may have it in hand from now on: looked up by
    /// a rename that has not looked up its other name yet. If the object were moved to that other
    /// name in between, the kernel would find one object under both and believe that there is
    /// nothing to do. So a client that is told a name is asked to drop it before the object moves,
    /// whether or not it holds the directory's token, and again if it was asked before.
    pub(crate) fn told(&mut self, waiting: &Waiting, outcome: &Outcome, grants: &mut Vec<Grant>) {
        let session = waiting.session;
        let (Op::Lookup { dir, name }, Outcome::Entry(_)) = (&waiting.request.op, outcome) else {
            return;
        };
        let stamp = waiting.request.hold.stamp;
        let file = self.files.get_mut(dir);
        let holder = file.and_then(|file| file.holders.get_mut(&session));
        match holder.filter(|holder| holder.right > Right::None) {
            // A grant of what it holds already would vouch for the name.
            Some(holder) => holder.told = holder.told.max(stamp),
            None => self.grant_pages(session, *dir, grants),
        }
        let queue = self.files.get(dir).and_then(|file| file.queue.as_ref());
        let waits = queue.and_then(|queue| queue.named.get(name)).cloned();
        for seq in waits.into_iter().flatten() {
            let other = self.waiting.get_mut(&seq);
            if let Some(other) = other.filter(|other| other.moves(*dir, name)) {
                let last = other.told.of((session, *dir), name).unwrap_or(0);
                other.told.mark((session, *dir), name, last.max(stamp));
                self.note_grown(session, *dir);
            }
        }
    }

    /// Was this client told the size of the file without a right to keep it?
    pub(crate) fn is_shown(&self, session: SessionId, fid: Fid) -> bool {
        let told = self.sizes_told.files.get(&fid);
        told.is_some_and(|told| told.contains_key(&session))
    }

    /// Before this one's size is set, others who were told it drop that. Not before they have
    /// confirmed what they have changed here themselves, which is waited for anyway: as long as the
    /// call that did it goes on, it asks for the attributes again whenever they are taken back.
    pub(crate) fn need_shown(
        &self,
        waiting: &Waiting,
        fid: Fid,
        (only, needs): (Only, &mut Vec<Need>),
    ) {
        let told = self.sizes_told.files.get(&fid).into_iter().flatten();
        let others = told.filter(|(session, _)| **session != waiting.session);
        for (&session, _) in others {
            if only.is_some_and(|only| only != (session, fid)) {
                continue;
            }
            if self.changed_by(session, fid) {
                continue;
            }
            let held = self.holder(session, fid);
            if held.is_none_or(|holder| holder.right == Right::None) {
                let what = What::Keep(Right::None);
                needs.push(Need { session, fid, what });
            }
        }
    }

    /// A client that was asked long ago and does not answer is waited for no more. If it is silent
    /// altogether, its programs cannot be told the new size either.
    pub(crate) fn tick_shown(&mut self, step: &mut Step<'_>) {
        let patience = self.options.lease_ns / 4;
        let asked = self.waiting.values().flat_map(|waiting| &waiting.asked);
        let late = asked.filter(|(_, since)| step.now >= **since + patience);
        let late: BTreeSet<(SessionId, Fid)> = late.map(|(of, _)| *of).collect();
        for (session, fid) in late {
            if self.sizes_told.forget(fid, session, |_| true) {
                let waiters = self.waiters(session, fid);
                self.look_again(step, (session, fid), waiters);
            }
        }
    }

    /// A client has nothing of this file any more, and asks again for what it had asked before.
    pub(crate) fn unshow(&mut self, session: SessionId, fid: Fid, stamp: u64) {
        self.sizes_told
            .forget(fid, session, |told| told.stamp < stamp);
    }

    /// Its questions about the file that wait here count as asked now, since an answer will say so:
    /// an earlier report of a holder may be from before a change for which this was waited for.
    pub(crate) fn look_anew(&mut self, session: SessionId, fid: Fid) {
        let waits = self.files.get(&fid).into_iter();
        let mut outdated = Vec::new();
        for seq in waits.flat_map(File::waiting) {
            let waiting = self.waiting.get_mut(&seq);
            let looks = |waiting: &&mut Waiting| {
                let op = &waiting.request.op;
                waiting.session == session && matches!(op, Op::GetAttr { .. } | Op::Lookup { .. })
            };
            if let Some(waiting) = waiting.filter(looks) {
                waiting.arrived = self.epoch;
                waiting.attrs.remove(&fid);
                outdated.push(seq);
            }
        }
        for seq in outdated {
            self.note_outdated(seq);
        }
    }
}
