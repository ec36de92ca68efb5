//! Seeks the server of a dialer that has moved.
//!
//! Guarantees: a finder is asked at once when the peer said that it has not what is wanted of it;
//! and else when there was no link for 300 ms, a second after that, and then ever less often, as
//! all clients of a server that is lost ask the others. One question at a time is under way, on a
//! thread of its own, which lives while there is no link: so attempts go on meanwhile, and nobody
//! waits for an answer, the end of the dialer included. An answer that is not used soon is not used
//! at all.

use crate::addresses::Addresses;
use crate::clock;
use crate::link::Link;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::fmt::Debug;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// For so long a link that was lost may come back before anybody is asked.
const LOST_NS: u64 = 300_000_000;
/// While there is no link, the next question comes so much later: twice as much each time.
const AGAIN_MIN_NS: u64 = 1_000_000_000;
const AGAIN_MAX_NS: u64 = 8_000_000_000;
/// For so long an answer counts.
const FRESH_NS: u64 = 5_000_000_000;

/// Why a server is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no link.
    Lost,
    /// The peer said that it has not what is wanted of it.
    Told,
}

/// Finds a server that may be elsewhere than where it was dialed last.
pub trait Finder: Debug + Send + Sync {
    /// Where it is now; `None`: nobody knows, or it is on its way. It may take as long as it takes
    /// to ask others. It may be called, and may return, after the dialer was stopped.
    fn find(&self, missing: Missing) -> Option<Addresses>;

    /// From now on it is dialed there.
    fn moved(&self, from: &Addresses, to: &Addresses);
}

/// How a dialer gets on.
pub(crate) struct State {
    pub(crate) stopping: bool,
    /// Where it dials.
    pub(crate) addr: Addresses,
    /// The link from its connection on, so that `stop` can close it.
    pub(crate) link: Option<Arc<Link>>,
    /// The link was told to the events.
    pub(crate) opened: bool,
    /// The failure of the last attempt.
    pub(crate) last: Option<String>,
    /// That was a refusal, which another attempt soon will not change.
    pub(crate) refused: bool,
    /// The peer has not what is wanted, and nobody has been asked since.
    told: bool,
    /// Since when there has been no link, if there is none.
    pub(crate) lost_ns: Option<u64>,
    /// The finder is not asked before, since there is no link.
    due_ns: u64,
    /// The time between two such questions.
    again_ns: u64,
    /// A thread seeks.
    seeks: bool,
    /// Other addresses than those that were dialed, and when they were found.
    found: Option<(Addresses, u64)>,
}

/// Where a dialer is on its way to: shared by its thread and the one that seeks.
pub(crate) struct Course {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    finder: Option<Arc<dyn Finder>>,
}

impl Course {
    pub(crate) fn new(addr: Addresses, finder: Option<Arc<dyn Finder>>) -> Course {
        let state = State {
            stopping: false,
            addr,
            link: None,
            opened: false,
            last: None,
            refused: false,
            told: false,
            lost_ns: None,
            due_ns: 0,
            again_ns: AGAIN_MIN_NS,
            seeks: false,
            found: None,
        };
        Course {
            state: Mutex::new(state),
            changed: Condvar::new(),
            finder,
        }
    }

    /// The addresses that are dialed now.
    pub(crate) fn addr(&self) -> Addresses {
        self.state.lock().addr.clone()
    }

    /// There is no link, since this attempt ended, or the link before it; `told`: the peer has not
    /// what is wanted.
    pub(crate) fn seek(self: &Arc<Self>, state: &mut State, told: bool) {
        state.lost_ns.get_or_insert_with(clock::now_ns);
        let Some(finder) = &self.finder else { return };
        state.told |= told;
        if state.seeks {
            self.changed.notify_all();
            return;
        }
        let (course, finder) = (Arc::clone(self), Arc::clone(finder));
        let run = move || seek(&course, &*finder);
        match thread::Builder::new().name("net-seek".into()).spawn(run) {
            Ok(_) => state.seeks = true,
            Err(error) => tracing::debug!(%error, "no thread can be started to seek the server"),
        }
    }

    /// There is a link.
    pub(crate) fn arrived(state: &mut State) {
        (state.opened, state.refused) = (true, false);
        (state.lost_ns, state.again_ns) = (None, AGAIN_MIN_NS);
    }

    /// Dials where the server has been found, if it has. The addresses before.
    pub(crate) fn turn(state: &mut State) -> Option<Addresses> {
        let (addr, found_ns) = state.found.take()?;
        let fresh = clock::now_ns() < found_ns + FRESH_NS && addr != state.addr;
        fresh.then(|| std::mem::replace(&mut state.addr, addr))
    }

    /// Tells that another place is dialed than this one was, if it is.
    pub(crate) fn tell_moved(&self, from: &Addresses) {
        let to = self.addr();
        if let Some(finder) = self.finder.as_ref().filter(|_| to != *from) {
            finder.moved(from, &to);
        }
    }

    /// Waits until the finder is to be asked; `None`: it is not needed any more.
    fn await_need<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Option<Missing>) {
        loop {
            if state.stopping {
                return (state, None);
            }
            if std::mem::take(&mut state.told) {
                state.due_ns = clock::now_ns() + AGAIN_MIN_NS;
                return (state, Some(Missing::Told));
            }
            let Some(lost_ns) = state.lost_ns else {
                return (state, None);
            };
            let now_ns = clock::now_ns();
            let left_ns = state.due_ns.max(lost_ns + LOST_NS).saturating_sub(now_ns);
            if left_ns == 0 {
                state.due_ns = now_ns + state.again_ns;
                state.again_ns = (2 * state.again_ns).min(AGAIN_MAX_NS);
                return (state, Some(Missing::Lost));
            }
            self.changed
                .wait_for(&mut state, Duration::from_nanos(left_ns));
        }
    }
}

/// The thread that seeks.
fn seek(course: &Course, finder: &dyn Finder) {
    let mut state = course.state.lock();
    loop {
        let (locked, need) = course.await_need(state);
        state = locked;
        let Some(missing) = need else {
            state.seeks = false;
            return;
        };
        let now_at = state.addr.clone();
        drop(state);
        // Other words for the same place would be no gain.
        let found = finder.find(missing).filter(|found| !found.meet(&now_at));
        state = course.state.lock();
        if let Some(found) = found {
            tracing::debug!(%now_at, %found, ?missing, "the server is elsewhere");
            state.found = Some((found, clock::now_ns()));
            course.changed.notify_all();
        }
    }
}
