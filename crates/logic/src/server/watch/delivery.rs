//! The delivery of changes to watches: requests to watch, and the paths of each change.
//!
//! A change of a name is known by its directory, a change of an object by the name that the store
//! knows of it. From there it goes up to the root, and each watch on the way is told, so a watch of
//! a whole tree costs nothing when it begins and nothing for what does not change.

use super::queues::Key;
use crate::server::api::Disk;
use crate::server::rules::Want;
use crate::server::table::Waiting;
use crate::server::{Mutant, Server, Step};
use alloc::vec::Vec;
use wire::{
    Change, Deed, Fid, Kind, Name, Op, Outcome, Path, Refusal, SessionId, Set, Time, ToClient,
    WatchId, limits::PATH_BYTES,
};

/// An object and its kind, if there is one.
type Object = Option<(Fid, Kind)>;

/// The watches met on the way up from an object, and the path of the object from each of them.
type Above = Vec<(Key, Path)>;

fn change(deed: &Deed, (fid, kind): (Fid, Kind), path: Path) -> Change {
    let deed = deed.clone();
    Change {
        deed,
        fid,
        kind,
        path,
    }
}

/// The watched object itself.
fn itself() -> Path {
    Some(Vec::new())
}

impl Server {
    /// Begins a watch, or keeps it for later: its object may have to be made again first.
    pub(crate) fn watch_when_whole(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        what: (Fid, bool),
        next: u64,
    ) {
        if self.may_lack_changes() {
            return self.grace.put_off_watch(key, what, next);
        }
        self.on_watch(step, key, what, next);
    }

    pub(crate) fn on_watch(
        &mut self,
        step: &mut Step<'_>,
        key: Key,
        (fid, recursive): (Fid, bool),
        next: u64,
    ) {
        let (session, watch) = key;
        if self.watches.get(key).is_none()
            && let Err(refusal) = self.may_watch(step, session, fid)
        {
            let end = Some(refusal);
            let (first, missed, changes) = (next, false, Vec::new());
            let message = ToClient::Watched {
                watch,
                first,
                missed,
                changes,
                end,
            };
            return self.send(step, session, message);
        }
        if self.watches.enter(key, (fid, recursive), next) {
            self.look_at_all(step.now);
        }
        self.tell(step, key, true);
    }

    fn may_watch(&self, step: &Step<'_>, session: SessionId, fid: Fid) -> Result<(), Refusal> {
        if self.watches.count(session) >= self.options.watches {
            return Err(Refusal::TooManyWatches);
        }
        step.disk.attr(fid)?.ok_or(Refusal::Stale)?;
        self.in_reach(step.disk, session, (fid, Want::Read))
    }

    pub(crate) fn on_took(&mut self, step: &mut Step<'_>, key: Key, next: u64) {
        self.watches.take(key, next);
        self.tell(step, key, false);
    }

    pub(crate) fn on_unwatch(&mut self, session: SessionId, watch: WatchId) {
        self.watches.remove((session, watch));
        self.look_no_more();
    }

    /// Sends what there is, unless something is under way; or an answer that is waited for.
    fn tell(&mut self, step: &mut Step<'_>, key: Key, answer: bool) {
        if let Some(message) = self.watches.next(step.now, key, answer) {
            self.wake(step.now);
            self.send(step, key.0, message);
        }
    }

    /// Sends again what may be lost; to a client that was silent for longer than its lease, when it
    /// is heard.
    pub(crate) fn repeat_watched(&mut self, step: &mut Step<'_>) {
        let until = step.now.saturating_sub(self.options.resend_ns);
        for key in self.watches.untaken(until) {
            let session = self.sessions.get(&key.0);
            let gone = session.is_none_or(|s| step.now > s.heard + self.options.lease_ns);
            if gone {
                // It may never come back: nothing is kept for it.
                self.watches.give_up(step.now, key);
            } else {
                self.tell(step, key, true);
            }
        }
    }

    /// Tells whoever watches what a request has changed.
    pub(crate) fn tell_change(
        &mut self,
        step: &mut Step<'_>,
        waiting: &Waiting,
        outcome: &Outcome,
    ) {
        if self.watches.is_empty() {
            return;
        }
        let op = &waiting.request.op;
        if self.tell_names(step, op, outcome).is_err()
            || self.tell_object(step, op, outcome).is_err()
        {
            // The disk cannot say whom it concerns.
            self.tell_missed();
        }
    }

    /// Everybody has missed something.
    fn tell_missed(&mut self) {
        for key in self.watches.keys() {
            self.watches.miss(key);
        }
    }

    /// The end of a step: sends the changes that have come.
    pub(crate) fn tell_fresh(&mut self, step: &mut Step<'_>) {
        while let Some(key) = self.watches.pop_fresh() {
            self.tell(step, key, false);
        }
    }

    fn tell_one(&mut self, key: Key, change: Change) {
        let forgets = self.options.mutant == Some(Mutant::ForgetsWatches);
        if forgets && change.deed == Deed::Removed {
            return;
        }
        let most = (self.options.watch_changes, self.options.watch_bytes);
        self.watches.add(key, change, most);
    }

    fn tell_names(
        &mut self,
        step: &mut Step<'_>,
        op: &Op,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        match (op, outcome) {
            (Op::Make { dir, name, .. } | Op::Link { dir, name, .. }, Outcome::Entry(entry)) => {
                let object = (entry.fid, entry.attr.kind);
                self.tell_name(step.disk, (*dir, name), object, &Deed::Made)?;
            }
            (
                Op::Unlink { dir, name } | Op::Rmdir { dir, name } | Op::Unmount { dir, name },
                Outcome::Removed { fid, attr, .. },
            ) => {
                self.tell_name(step.disk, (*dir, name), (*fid, attr.kind), &Deed::Removed)?;
                self.tell_itself((*fid, attr.kind), &Deed::Removed, attr.nlink == 0);
            }
            (Op::Rename { .. }, Outcome::Renamed { .. }) => self.tell_rename(step, op, outcome)?,
            _ => {}
        }
        Ok(())
    }

    /// A name in a directory.
    fn tell_name(
        &mut self,
        disk: &dyn Disk,
        (dir, name): (Fid, &Name),
        (fid, kind): (Fid, Kind),
        deed: &Deed,
    ) -> Result<(), Refusal> {
        for (key, path) in self.above(disk, dir, name)? {
            self.tell_one(key, change(deed, (fid, kind), path));
        }
        Ok(())
    }

    /// Something is done to what is watched itself; `ends`: it is gone.
    fn tell_itself(&mut self, (fid, kind): (Fid, Kind), deed: &Deed, ends: bool) {
        let keys: Vec<Key> = self.watches.of(fid).map(|(key, _)| key).collect();
        for key in keys {
            self.tell_one(key, change(deed, (fid, kind), itself()));
            if ends {
                self.watches.end(key, Refusal::Stale);
            }
        }
    }

    fn tell_rename(
        &mut self,
        step: &mut Step<'_>,
        op: &Op,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        let (
            Op::Rename {
                from,
                name,
                to,
                new,
                exchange,
                ..
            },
            Outcome::Renamed {
                fid, attr, victim, ..
            },
        ) = (op, outcome)
        else {
            return Ok(());
        };
        let whiteout = op.leaves_whiteout();
        let exchange = &(*exchange && !whiteout);
        if step.disk.lookup(*from, name)? == Some(*fid) {
            // Two names of one object: nothing has happened.
            return Ok(());
        }
        let moved = (*fid, attr.kind);
        let other = victim.as_ref().map(|(fid, attr)| (*fid, attr.kind));
        let old = self.above(step.disk, *from, name)?;
        let mut new = self.above(step.disk, *to, new)?;
        for (key, path) in old {
            let there = new.iter().position(|(there, _)| *there == key);
            let there = there.map(|at| new.remove(at).1);
            let deed = match there {
                Some(with) if *exchange => Deed::Exchanged { with },
                Some(to) => Deed::Moved { to },
                None => {
                    let other = other.filter(|_| *exchange);
                    self.tell_replaced(key, path, (Some(moved), other));
                    continue;
                }
            };
            self.tell_one(key, change(&deed, moved, path));
        }
        for (key, path) in new {
            self.tell_replaced(key, path, (other, Some(moved)));
        }
        let (kind, here) = (attr.kind, Deed::Moved { to: itself() });
        self.tell_itself((*fid, kind), &here, false);
        if let Some((fid, attr)) = victim {
            let deed = if *exchange { here } else { Deed::Removed };
            let gone = !*exchange && attr.nlink == 0;
            self.tell_itself((*fid, attr.kind), &deed, gone);
        }
        if whiteout {
            self.tell_whiteout(step.disk, (*from, name))?;
        }
        // A client may hold what was moved here, and say nothing of its changes.
        for (fid, kind) in [Some(moved), other].into_iter().flatten() {
            match kind {
                Kind::Directory => self.look_at_all(step.now),
                _ => self.look_at(fid),
            }
        }
        Ok(())
    }

    /// A rename has left a whiteout in the place of what it has moved.
    fn tell_whiteout(&mut self, disk: &dyn Disk, (dir, name): (Fid, &Name)) -> Result<(), Refusal> {
        let Some(fid) = disk.lookup(dir, name)? else {
            return Ok(());
        };
        for (key, path) in self.above(disk, dir, name)? {
            self.tell_one(key, change(&Deed::Made, (fid, Kind::Character), path));
        }
        Ok(())
    }

    /// The name names another object now, or none; the watch does not see where the old object has
    /// gone, nor where the new one was.
    fn tell_replaced(&mut self, key: Key, path: Path, (was, is): (Object, Object)) {
        if let Some(was) = was {
            self.tell_one(key, change(&Deed::Removed, was, path.clone()));
        }
        if let Some(is) = is {
            self.tell_one(key, change(&Deed::Made, is, path));
        }
    }

    fn tell_object(
        &mut self,
        step: &mut Step<'_>,
        op: &Op,
        outcome: &Outcome,
    ) -> Result<(), Refusal> {
        let (fid, deeds) = match op {
            Op::SetAttr { fid, set } => (*fid, deeds_of(set)),
            Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } => (*fid, [None, attributes()]),
            Op::Write { fid, .. } | Op::Allocate { fid, .. } | Op::Copy { to: fid, .. } => {
                (*fid, [Some(Deed::Written), None])
            }
            _ => return Ok(()),
        };
        let attr = match outcome {
            Outcome::Attr(attr) | Outcome::Written { attr, .. } | Outcome::Copied { attr, .. } => {
                attr
            }
            _ => return Ok(()),
        };
        for deed in deeds.into_iter().flatten() {
            self.tell_deed(step.disk, (fid, attr.kind), (deed, attr.nlink))?;
        }
        Ok(())
    }

    /// Something is done to an object, whatever its name.
    pub(crate) fn tell_deed(
        &mut self,
        disk: &dyn Disk,
        (fid, kind): (Fid, Kind),
        (deed, nlink): (Deed, u32),
    ) -> Result<(), Refusal> {
        self.tell_itself((fid, kind), &deed, false);
        match disk.place(fid)? {
            Some((dir, name)) => self.tell_name(disk, (dir, &name), (fid, kind), &deed)?,
            // It has a name somewhere: it may be anybody's.
            None if nlink > 0 && kind != Kind::Directory => {
                for key in self.watches.keys() {
                    let itself = self.watches.get(key).is_some_and(|watch| watch.fid == fid);
                    if !itself && self.in_reach(disk, key.0, (fid, Want::Reach)).is_ok() {
                        self.tell_one(key, change(&deed, (fid, kind), None));
                    }
                }
            }
            None => {}
        }
        Ok(())
    }

    /// The watches of this directory, and the recursive ones above it; and the path of this name
    /// from each.
    pub(crate) fn above(&self, disk: &dyn Disk, dir: Fid, name: &Name) -> Result<Above, Refusal> {
        let mut found = Above::new();
        let (mut names, mut at) = (Vec::from([name.clone()]), dir);
        let mut way = Vec::new();
        loop {
            way.push(at);
            for (key, watch) in self.watches.of(at) {
                let told = watch.recursive || at == dir;
                if told && self.may_be_told(disk, key.0, &way) {
                    found.push((key, join(&names)));
                }
            }
            if !self.watches.any_recursive() || at == self.root {
                return Ok(found);
            }
            match disk.place(at)? {
                Some((parent, name)) => {
                    names.push(name);
                    at = parent;
                }
                None => return Ok(found),
            }
        }
    }

    /// Sessions that have not been told all that they watch.
    pub fn untold(&self) -> impl Iterator<Item = SessionId> {
        self.watches.untold()
    }

    /// When the oldest message was sent that its client has not taken.
    pub(crate) fn oldest_watched(&self) -> Option<Time> {
        self.watches.oldest_sent()
    }
}

fn attributes() -> Option<Deed> {
    Some(Deed::Attributes)
}

fn deeds_of(set: &Set) -> [Option<Deed>; 2] {
    let others = Set {
        size: None,
        ..set.clone()
    };
    let sizes = set.size.map(|_| Deed::Written);
    let also = sizes.is_none() || others != Set::default();
    [sizes, attributes().filter(|_| also)]
}

/// A path, from the names on the way up.
fn join(names: &[Name]) -> Path {
    let len: usize = names.iter().map(|name| name.as_bytes().len() + 1).sum();
    if len > PATH_BYTES {
        return None;
    }
    let mut path = Vec::with_capacity(len);
    for name in names.iter().rev() {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
    }
    Some(path)
}
