//! Changes that nobody has told the server yet: of files that a client holds Exclusive.
//!
//! A watch is like a reader that looks again and again: while a file that is watched is held
//! Exclusive, the server asks its holder once in `look_ns` for the file's size and times. If the
//! file is open for writing and has changed, the watch is told; if it is not open for writing, the
//! holder is asked to step down to Shared: then its changes come to the server, and nothing more
//! changes unheard. So a change is told a little more than `look_ns` after it was made, and a file
//! that nobody writes to costs nothing.

use crate::server::api::Disk;
use crate::server::requests::conflicts::Need;
use crate::server::{Server, Step};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use wire::{Attr, Deed, Fid, Refusal, Right, SessionId, Time, What};

/// Most files that are looked at in one step: others wait for the next.
const POLLS_PER_STEP_MAX: usize = 256;

/// The files whose holders are asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    due: BTreeSet<(Time, Fid)>,
    /// Held Exclusive since this step.
    fresh: Vec<Fid>,
    files: BTreeMap<Fid, Poll>,
    /// When all that is held Exclusive is to be looked at. All tokens are looked through for that,
    /// so it is put off: however often it is wanted, it is done once in `look_ns`.
    all: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Poll {
    /// When it is asked next; `None`: it has been asked.
    due: Option<Time>,
    /// The size and the time of modification that were said last.
    said: Option<(u64, Time)>,
}

impl Polls {
    fn at(&mut self, fid: Fid, due: Time) {
        let look = self.files.entry(fid).or_default();
        if let Some(old) = look.due.replace(due) {
            self.due.remove(&(old, fid));
        }
        self.due.insert((due, fid));
    }

    fn remove(&mut self, fid: Fid) {
        if let Some(due) = self.files.remove(&fid).and_then(|look| look.due) {
            self.due.remove(&(due, fid));
        }
    }

    /// Will it be asked?
    fn waits(&self, fid: Fid) -> bool {
        self.files.get(&fid).is_some_and(|look| look.due.is_some())
    }

    /// Takes the next one whose time has come.
    fn next(&mut self, now: Time) -> Option<Fid> {
        let (due, fid) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, fid));
        if let Some(look) = self.files.get_mut(&fid) {
            look.due = None;
        }
        Some(fid)
    }

    /// When the next one is due.
    pub(crate) fn due(&self) -> Option<Time> {
        let first = self.due.first().map(|(due, _)| *due);
        first.into_iter().chain(self.all).min()
    }
}

impl Server {
    /// A file is held Exclusive from now on.
    pub(crate) fn look_at(&mut self, fid: Fid) {
        if !self.watches.is_empty() {
            self.polls.fresh.push(fid);
        }
    }

    /// The end of a step.
    pub(crate) fn look_at_fresh(&mut self, now: Time) {
        while let Some(fid) = self.polls.fresh.pop() {
            self.look_later(now, fid);
        }
    }

    /// Also if somebody was asked and has not answered: he was asked before, and may have it no
    /// more.
    fn look_later(&mut self, now: Time, fid: Fid) {
        if !self.watches.is_empty() && !self.polls.waits(fid) {
            self.polls.at(fid, now.saturating_add(self.options.look_ns));
        }
    }

    /// Somebody has a file no more: if nobody has it Exclusive, there is nobody to be asked.
    pub(crate) fn forget_look(&mut self, fid: Fid) {
        let file = self.files.get(&fid);
        if !file.is_some_and(|file| file.holders.values().any(exclusive)) {
            self.polls.remove(fid);
        }
    }

    /// Somebody watches what nobody has watched, perhaps: all that is held Exclusive is looked at.
    pub(crate) fn look_at_all(&mut self, now: Time) {
        let due = now.saturating_add(self.options.look_ns);
        self.polls.all.get_or_insert(due);
    }

    fn find_all(&mut self, now: Time) {
        if self.polls.all.is_none_or(|due| now < due) {
            return;
        }
        self.polls.all = None;
        let files = self.files.iter();
        let held = files.filter(|(_, file)| file.holders.values().any(exclusive));
        let held = held.map(|(fid, _)| *fid);
        let new = held.filter(|fid| !self.polls.files.contains_key(fid));
        let new: Vec<Fid> = new.collect();
        for fid in new {
            self.polls.at(fid, now);
        }
    }

    /// If nobody watches any more, nothing is looked at.
    pub(crate) fn look_no_more(&mut self) {
        if self.watches.is_empty() {
            self.polls = Polls::default();
        }
    }

    pub(crate) fn tick_looks(&mut self, step: &mut Step<'_>) {
        self.find_all(step.now);
        for _ in 0..POLLS_PER_STEP_MAX {
            let Some(fid) = self.polls.next(step.now) else {
                return;
            };
            let file = self.files.get(&fid);
            let holder = file.and_then(|file| {
                let mut holders = file.holders.iter();
                holders.find(|(_, holder)| exclusive(holder))
            });
            let holder = holder.map(|(session, _)| *session);
            match (holder, self.is_watched(step.disk, fid)) {
                (Some(session), Ok(true)) => self.ask_holder(step, (session, fid), What::Attr),
                // The disk may say another time.
                (Some(_), Err(_)) => self.polls.at(fid, step.now + self.options.look_ns),
                _ => self.polls.remove(fid),
            }
        }
    }

    fn ask_holder(&mut self, step: &mut Step<'_>, (session, fid): (SessionId, Fid), what: What) {
        let need = Need { session, fid, what };
        // A question that the holder was sent since it has the file, and has not answered, is not
        // sent again.
        let granted = self.holder(session, fid).map_or(0, |holder| holder.epoch);
        self.ask(step, need, (granted, step.now), None);
    }

    fn is_watched(&self, disk: &dyn Disk, fid: Fid) -> Result<bool, Refusal> {
        if self.watches.of(fid).next().is_some() {
            return Ok(true);
        }
        match disk.place(fid)? {
            Some((dir, name)) => Ok(!self.above(disk, dir, &name)?.is_empty()),
            // Every watch hears of an object that has a name somewhere.
            None => Ok(disk.attr(fid)?.is_some_and(|attr| attr.nlink > 0)),
        }
    }

    /// A holder has said something of a file.
    pub(crate) fn looked(
        &mut self,
        step: &mut Step<'_>,
        (session, fid): (SessionId, Fid),
        attr: Option<&Attr>,
    ) {
        if !self.polls.files.contains_key(&fid) {
            return;
        }
        let Some(holder) = self.holder(session, fid).filter(|held| exclusive(held)) else {
            return self.polls.remove(fid);
        };
        let (Some(attr), writes) = (attr, holder.hold.write) else {
            // It says nothing of it: it was asked for something else, or before it got the file.
            return self.look_later(step.now, fid);
        };
        if !writes {
            // It does not go on by itself: its next open is told.
            self.polls.remove(fid);
            return self.ask_holder(step, (session, fid), What::Keep(Right::Shared));
        }
        if self.has_changed(step, fid, attr) != Ok(false) {
            let deed = (Deed::Written, attr.nlink);
            // If the disk fails to answer now, the change is told when its bytes come.
            let _ = self.tell_deed(step.disk, (fid, attr.kind), deed);
        }
        self.polls
            .at(fid, step.now.saturating_add(self.options.look_ns));
    }

    /// Is that more than what was known?
    fn has_changed(&mut self, step: &Step<'_>, fid: Fid, attr: &Attr) -> Result<bool, Refusal> {
        let says = (attr.size, attr.mtime);
        let Some(look) = self.polls.files.get_mut(&fid) else {
            return Ok(false);
        };
        if let Some(said) = look.said.replace(says) {
            return Ok(said != says);
        }
        let stored = step.disk.attr(fid)?;
        Ok(stored.is_some_and(|stored| (stored.size, stored.mtime) != says))
    }
}

fn exclusive(holder: &crate::server::table::Holder) -> bool {
    holder.right == Right::Exclusive
}
