//! Directories that one client alone changes: they are delegated to it, as new ones are. The same
//! of the locks of files: a lock is a change then, and the file takes the directory's place.
//!
//! Guarantees: a directory that was there before is delegated only to a client that has changed it
//! several times in a row, with nobody else looking at it or changing it in between; and where that
//! does not pay, because somebody else looks before the holder has made as many changes by itself,
//! it takes twice as many in a row the next time, up to [`RUN_MOST`]. So clients that use a
//! directory in turn come to plain operation after a few exchanges, and to delegation again once
//! one is alone. The memory of uses is a hint, and bounded: of too many directories all is
//! forgotten.

use alloc::collections::BTreeMap;
use wire::{Fid, SessionId};

/// Changes in a row that it takes at first, and at most.
const RUN_LEAST: u32 = 2;
const RUN_MOST: u32 = 256;
/// Of most so many directories it is remembered who has changed them.
const REMEMBERED: usize = 4096;

/// The client that has used a directory last.
#[derive(Clone, Copy, Debug)]
struct Run {
    session: SessionId,
    /// So often in a row it has changed names in it, and it takes so many.
    changes: u32,
    needed: u32,
    /// It was delegated; so many changes have been made under that.
    delegated: bool,
    own: u32,
    /// From so many changes in a row on, clients that do not use it are asked to give it up.
    asks: u32,
}

/// The clients that use directories alone.
#[derive(Clone, Debug)]
pub(crate) struct DelegationPolicy {
    runs: BTreeMap<Fid, Run>,
    /// Changes in a row that it takes at least.
    least: u32,
}

impl Default for DelegationPolicy {
    fn default() -> Self {
        Self::new(RUN_LEAST)
    }
}

impl DelegationPolicy {
    /// It takes so many changes in a row at first.
    pub(crate) fn new(least: u32) -> Self {
        let runs = BTreeMap::new();
        Self { runs, least }
    }

    /// A client is shown a directory, or a name in it.
    pub(crate) fn looked(&mut self, dir: Fid, session: SessionId) {
        if let Some(run) = self.runs.get_mut(&dir) {
            run.used_by(session, self.least);
        }
    }

    /// A client has asked for a change of names in it. Does it change it alone?
    pub(crate) fn changed(&mut self, dir: Fid, session: SessionId) -> bool {
        if self.runs.len() >= REMEMBERED && !self.runs.contains_key(&dir) {
            let least = self.least;
            self.runs.retain(|_, run| run.needed > least);
            if self.runs.len() >= REMEMBERED {
                self.runs.clear();
            }
        }
        let run = self.runs.entry(dir).or_insert(Run {
            session,
            changes: 0,
            needed: self.least,
            delegated: false,
            own: 0,
            asks: 0,
        });
        run.used_by(session, self.least);
        run.changes = run.changes.saturating_add(1);
        run.changes >= run.needed
    }

    /// Has this client changed it often enough in a row?
    pub(crate) fn is_due(&self, dir: Fid, session: SessionId) -> bool {
        let run = self.runs.get(&dir);
        run.is_some_and(|run| run.session == session && run.changes >= run.needed)
    }

    /// Others hold something of it, and so it cannot be delegated to the client that changes it
    /// alone. Are they to be asked for it? After twice as many changes each time.
    pub(crate) fn asks(&mut self, dir: Fid) -> bool {
        let Some(run) = self.runs.get_mut(&dir) else {
            return false;
        };
        let due = run.changes >= run.asks;
        if due {
            run.asks = run.changes.saturating_mul(2);
        }
        due
    }

    /// It has been delegated to the client that uses it alone.
    pub(crate) fn delegated(&mut self, dir: Fid) {
        if let Some(run) = self.runs.get_mut(&dir) {
            run.delegated = true;
        }
    }

    /// Its holder has changed it without asking.
    pub(crate) fn changed_there(&mut self, dir: Fid) {
        self.changed_often(dir, 1);
    }

    /// The same, so often.
    pub(crate) fn changed_often(&mut self, dir: Fid, times: u32) {
        if let Some(run) = self.runs.get_mut(&dir) {
            run.own = run.own.saturating_add(times);
        }
    }
}

impl Run {
    fn used_by(&mut self, session: SessionId, least: u32) {
        if self.session == session {
            return;
        }
        if self.delegated {
            self.needed = if self.own < self.needed {
                (self.needed * 2).min(RUN_MOST)
            } else {
                (self.needed / 2).max(least)
            };
        }
        (self.session, self.changes) = (session, 0);
        (self.delegated, self.own, self.asks) = (false, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(vnode: u64) -> Fid {
        Fid {
            volume: 1,
            vnode,
            uniq: 1,
        }
    }

    /// Changes in a row until it is delegated.
    fn until_delegated(alone: &mut DelegationPolicy, session: SessionId) -> u32 {
        let count = 1 + (1..).find(|_| alone.changed(dir(1), session)).unwrap_or(0);
        alone.delegated(dir(1));
        count - 1
    }

    #[test]
    fn who_fights_over_a_directory_comes_to_plain_operation_and_who_is_alone_back() {
        let (mut alone, ours, theirs) = (DelegationPolicy::default(), 7, 9);
        assert_eq!(until_delegated(&mut alone, ours), RUN_LEAST);
        let mut last = RUN_LEAST;
        for round in 0..20 {
            let session = if round % 2 == 0 { theirs } else { ours };
            let needed = until_delegated(&mut alone, session);
            assert_eq!(needed, (2 * last).min(RUN_MOST));
            last = needed;
        }
        for round in 0..20 {
            for _ in 0..RUN_MOST {
                alone.changed_there(dir(1));
            }
            let session = if round % 2 == 0 { theirs } else { ours };
            last = until_delegated(&mut alone, session);
        }
        assert_eq!(last, RUN_LEAST);
    }

    #[test]
    fn a_look_of_another_ends_the_run_and_what_is_remembered_is_bounded() {
        let (mut alone, ours, theirs) = (DelegationPolicy::default(), 7, 9);
        for _ in 0..10 {
            assert!(!alone.changed(dir(1), ours));
            alone.looked(dir(1), theirs);
            alone.looked(dir(1), ours);
        }
        for vnode in 0..3 * REMEMBERED as u64 {
            alone.changed(dir(vnode), ours);
            assert!(alone.runs.len() <= REMEMBERED);
        }
    }
}
