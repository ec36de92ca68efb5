//! The watches of all clients, and the changes that each has not been told yet.
//!
//! Guarantees: each watch is told every change of what it watches once, in the order in which the
//! changes were applied; or it is told, before the next one, that some were missed. The changes
//! kept for a watch are bounded: those of a client that takes too long are dropped, and it is told
//! so.
//!
//! There is one message under way for each watch, sent again until it was taken; so a slow reader
//! slows down nobody else. After a restart of the server the clients ask again, and have missed
//! what happened meanwhile.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use wire::{Change, Deed, Fid, Refusal, SessionId, Time, ToClient, WatchId};

/// Most bytes of changes of one message, but for a single change.
const BATCH_BYTES: usize = 64 << 10;

/// A watch of a session.
pub(crate) type Key = (SessionId, WatchId);

/// One watch.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) fid: Fid,
    pub(crate) recursive: bool,
    /// The number of the first of `changes`.
    first: u64,
    /// Changes that the client has not taken.
    changes: VecDeque<Change>,
    /// About how many bytes that is.
    bytes: usize,
    /// Changes before the first one are gone, and it has not been told that.
    missed: bool,
    /// Why nothing more comes.
    end: Option<Refusal>,
    /// The changes under way: all below this number; and since when.
    sent: Option<(u64, Time)>,
}

impl Watch {
    /// A watch that has seen the changes below `next`; of 0: that is new.
    fn new(fid: Fid, recursive: bool, next: u64) -> Self {
        Self {
            fid,
            recursive,
            // A client that has been told anything before, by an earlier run of the server or in a
            // session that is over, has missed at least the changes that nobody knows of.
            first: next.saturating_add(1),
            changes: VecDeque::new(),
            bytes: 0,
            missed: next > 0,
            end: None,
            sent: None,
        }
    }

    /// It has all changes below this number.
    fn take(&mut self, next: u64) {
        if next >= self.first {
            self.missed = false;
        }
        let taken = next
            .saturating_sub(self.first)
            .min(self.changes.len() as u64);
        let taken_bytes = self.changes.drain(..taken as usize).map(|c| c.bytes());
        self.bytes -= taken_bytes.sum::<usize>();
        self.first += taken;
        if self.sent.is_some_and(|(upto, _)| next >= upto) {
            self.sent = None;
        }
    }

    /// At most so many changes are kept, and so many bytes of them.
    fn add(&mut self, change: Change, (most, most_bytes): (usize, usize)) {
        // The same once more: there is nothing new in it while the first is not under way. (What is
        // watched itself may be moved again and again, and each of these is a change of a name.)
        let under_way = self.sent.map_or(0, |(upto, _)| upto);
        let last_waits = self.first + self.changes.len() as u64 > under_way;
        let merges = matches!(change.deed, Deed::Written | Deed::Attributes);
        if merges && last_waits && self.changes.back() == Some(&change) {
            return;
        }
        let bytes = change.bytes();
        if self.changes.len() >= most || self.bytes + bytes > most_bytes {
            self.miss();
        }
        self.bytes += bytes;
        self.changes.push_back(change);
    }

    /// It will not be told what it has not been told yet, and something more.
    fn miss(&mut self) {
        self.first += self.changes.len() as u64 + 1;
        self.changes.clear();
        self.bytes = 0;
        self.missed = true;
    }

    fn has_something(&self) -> bool {
        !self.changes.is_empty() || self.missed || self.end.is_some()
    }

    /// The message to send now.
    fn message(&mut self, now: Time, watch: WatchId) -> ToClient {
        let mut bytes = 0;
        let mut changes = Vec::new();
        for change in &self.changes {
            bytes += change.bytes();
            if !changes.is_empty() && bytes > BATCH_BYTES {
                break;
            }
            changes.push(change.clone());
        }
        let end = self.end.filter(|_| changes.len() == self.changes.len());
        if self.has_something() {
            self.sent = Some((self.first + changes.len() as u64, now));
        }
        ToClient::Watched {
            watch,
            first: self.first,
            missed: self.missed,
            changes,
            end,
        }
    }
}

/// All watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    all: BTreeMap<Key, Watch>,
    /// The watches of each object itself.
    of: BTreeMap<Fid, BTreeSet<Key>>,
    /// How many are recursive.
    recursive: usize,
    /// Those to which something has come in this step.
    fresh: BTreeSet<Key>,
}

fn keys(session: SessionId) -> RangeInclusive<Key> {
    (session, WatchId::MIN)..=(session, WatchId::MAX)
}

impl Watches {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many a session has.
    pub(crate) fn count(&self, session: SessionId) -> usize {
        self.all.range(keys(session)).count()
    }

    /// Does anybody watch all that is below something?
    pub(crate) fn any_recursive(&self) -> bool {
        self.recursive > 0
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.all.keys().copied().collect()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Watch> {
        self.all.get(&key)
    }

    /// The watches of this object itself.
    pub(crate) fn of(&self, fid: Fid) -> impl Iterator<Item = (Key, &Watch)> {
        let keys = self.of.get(&fid).into_iter().flatten();
        keys.filter_map(|key| Some((*key, self.all.get(key)?)))
    }

    /// Enters a watch, or has it take what it has seen if it is there. True: it is new.
    pub(crate) fn enter(&mut self, key: Key, (fid, recursive): (Fid, bool), next: u64) -> bool {
        if let Some(watch) = self.all.get_mut(&key) {
            watch.take(next);
            return false;
        }
        self.all.insert(key, Watch::new(fid, recursive, next));
        self.of.entry(fid).or_default().insert(key);
        self.recursive += usize::from(recursive);
        true
    }

    pub(crate) fn take(&mut self, key: Key, next: u64) {
        if let Some(watch) = self.all.get_mut(&key) {
            watch.take(next);
        }
    }

    pub(crate) fn remove(&mut self, key: Key) {
        let Some(watch) = self.all.remove(&key) else {
            return;
        };
        self.recursive -= usize::from(watch.recursive);
        if let Some(keys) = self.of.get_mut(&watch.fid) {
            keys.remove(&key);
            if keys.is_empty() {
                self.of.remove(&watch.fid);
            }
        }
    }

    pub(crate) fn remove_session(&mut self, session: SessionId) {
        let own: Vec<Key> = self.all.range(keys(session)).map(|(key, _)| *key).collect();
        own.into_iter().for_each(|key| self.remove(key));
    }

    /// At most so many changes are kept for a watch, and so many bytes of them.
    pub(crate) fn add(&mut self, key: Key, change: Change, most: (usize, usize)) {
        if let Some(watch) = self.all.get_mut(&key).filter(|watch| watch.end.is_none()) {
            watch.add(change, most);
            self.fresh.insert(key);
        }
    }

    pub(crate) fn miss(&mut self, key: Key) {
        if let Some(watch) = self.all.get_mut(&key).filter(|watch| watch.end.is_none()) {
            watch.miss();
            self.fresh.insert(key);
        }
    }

    /// Keeps nothing of what a watch has not taken, and goes on trying.
    pub(crate) fn give_up(&mut self, now: Time, key: Key) {
        let Some(watch) = self.all.get_mut(&key) else {
            return;
        };
        if !watch.changes.is_empty() {
            watch.miss();
        }
        watch.sent = watch.sent.map(|(upto, _)| (upto, now));
    }

    /// Nothing more comes.
    pub(crate) fn end(&mut self, key: Key, why: Refusal) {
        if let Some(watch) = self.all.get_mut(&key) {
            watch.end.get_or_insert(why);
            self.fresh.insert(key);
        }
    }

    /// The next of those to which something has come in this step.
    pub(crate) fn pop_fresh(&mut self) -> Option<Key> {
        self.fresh.pop_first()
    }

    /// The message to send to a watch; `answer`: the client waits for it, if it is empty too.
    pub(crate) fn next(&mut self, now: Time, key: Key, answer: bool) -> Option<ToClient> {
        let watch = self.all.get_mut(&key)?;
        let wanted = answer || (watch.sent.is_none() && watch.has_something());
        wanted.then(|| watch.message(now, key.1))
    }

    /// Those to whom something was sent so long ago that it may be lost.
    pub(crate) fn untaken(&self, sent_until: Time) -> Vec<Key> {
        let late = |watch: &Watch| watch.sent.is_some_and(|(_, at)| at <= sent_until);
        let late = self.all.iter().filter(|(_, watch)| late(watch));
        late.map(|(key, _)| *key).collect()
    }

    /// Sessions that have something to take.
    pub(crate) fn untold(&self) -> impl Iterator<Item = SessionId> {
        let untold = self.all.iter().filter(|(_, watch)| watch.has_something());
        untold.map(|((session, _), _)| *session)
    }

    /// When the oldest message that was not taken was sent.
    pub(crate) fn oldest_sent(&self) -> Option<Time> {
        let sent = self.all.values().filter_map(|watch| watch.sent);
        sent.map(|(_, at)| at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Kind;

    fn change(path_bytes: usize) -> Change {
        Change {
            deed: Deed::Written,
            fid: Fid::root(1),
            kind: Kind::File,
            path: Some(alloc::vec![b'x'; path_bytes]),
        }
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_in_bytes() {
        let each = change(1_000).bytes();
        for (most, most_bytes) in [(4, 1 << 20), (1_000, 4 * each)] {
            let mut watch = Watch::new(Fid::root(1), true, 0);
            watch.take(1);
            let mut taken = 0;
            for n in 0..100 {
                watch.add(change(1_000 + n % 2), (most, most_bytes + 4));
                assert!(watch.changes.len() <= 4, "{} are kept", watch.changes.len());
                let sum: usize = watch.changes.iter().map(Change::bytes).sum();
                assert_eq!(watch.bytes, sum);
                if n == 2 {
                    // Until then all is told, and the changes that were taken make room.
                    assert!(!watch.missed);
                    watch.take(watch.first + 3);
                    taken = watch.first;
                    assert_eq!(watch.bytes, 0);
                }
                assert_eq!(watch.missed, n > 6, "after {n}");
            }
            assert!(watch.first > taken);
        }
    }

    /// Seed 9059278: a file that was watched was moved there and back before that was told.
    #[test]
    fn what_was_written_twice_is_told_once_and_what_was_moved_twice_is_told_twice() {
        let moved = Deed::Moved {
            to: Some(Vec::new()),
        };
        for (deed, told) in [(Deed::Written, 1), (Deed::Attributes, 1), (moved, 2)] {
            let mut watch = Watch::new(Fid::root(1), true, 0);
            for _ in 0..2 {
                let again = Change {
                    deed: deed.clone(),
                    ..change(0)
                };
                watch.add(again, (1_000, 1 << 20));
            }
            assert_eq!(watch.changes.len(), told, "{deed:?}");
        }
    }

    #[test]
    fn a_change_larger_than_all_that_is_kept_is_told() {
        let mut watch = Watch::new(Fid::root(1), true, 0);
        watch.add(change(1), (10, 10));
        watch.add(change(2), (10, 10));
        assert!(watch.missed);
        assert_eq!(watch.changes, [change(2)]);
    }

    #[test]
    fn the_largest_numbers_are_no_trouble() {
        let most = wire::limits::CHANGES / 2;
        let mut watch = Watch::new(Fid::root(1), true, most);
        watch.add(change(1), (1, 1));
        watch.add(change(2), (1, 1));
        watch.take(most);
        let ToClient::Watched { first, .. } = watch.message(0, 1) else {
            panic!("another message");
        };
        assert!((most..wire::limits::CHANGES).contains(&first));
    }
}
