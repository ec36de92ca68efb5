//! Keeps one link to a server up.
//!
//! Guarantees: at most one link lives at once; after its end, or a failure to connect, the next
//! attempt follows after a random pause that grows from 20 ms to 1 s, so that the clients of a
//! restarted server do not come all at once. An attempt that nobody answers ends after
//! [`ATTEMPT`], which counts as a part of the pause: so a network that comes back is found within
//! two seconds, however long it was away. After [`Dialer::stop`] no event comes.

use crate::Events;
use crate::identity::Identity;
use crate::link::Link;
use crate::reason::CloseReason;
use crate::receive::{self, Patience};
use crate::worker::Worker;
use crate::{clock, entropy};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bounds of the pause between attempts.
const PAUSE_MIN_NS: u64 = 20_000_000;
const PAUSE_MAX_NS: u64 = 1_000_000_000;
/// How long it may take to connect, and then to be greeted; [`Dialer::stop`] waits for it. The
/// kernel repeats its first packet after a second.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// For how long nothing need be heard is for the room above to say: it knows when it asks.
const PATIENCE: Patience = Patience {
    hello: ATTEMPT,
    silence: None,
};

/// Why there is no link.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// Every attempt failed so far.
    #[error("no connection to {addr}: {last}; start the server there or correct the address")]
    Unreachable {
        /// Where the server should be.
        addr: SocketAddr,
        /// What the last attempt met.
        last: String,
    },
    /// The dialer was stopped.
    #[error("the connection to {addr} was stopped")]
    Stopped {
        /// Where the server should be.
        addr: SocketAddr,
    },
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// The link from its connection on, so that `stop` can close it.
    link: Option<Arc<Link>>,
    /// The link was told to the events.
    opened: bool,
    /// What the last attempt met.
    last: Option<String>,
}

struct Shared {
    addr: SocketAddr,
    events: Arc<dyn Events>,
    state: Mutex<State>,
    changed: Condvar,
}

/// A link that comes back.
pub struct Dialer {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Dialer {
    /// Starts connecting to `addr`; `events` is told of each link.
    ///
    /// # Errors
    /// The address is not a loopback one, or no thread can be started.
    pub fn new(addr: SocketAddr, events: Arc<dyn Events>) -> io::Result<Dialer> {
        Identity::check(addr)?;
        let shared = Arc::new(Shared {
            addr,
            events,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let worker = {
            let shared = Arc::clone(&shared);
            Worker::start("net-dial", move || keep_up(&shared))?
        };
        Ok(Dialer { shared, worker })
    }

    /// The link, if it is up.
    #[must_use]
    pub fn link(&self) -> Option<Arc<Link>> {
        let state = self.shared.state.lock();
        state.link.as_ref().filter(|_| state.opened).cloned()
    }

    /// Waits until the link is up and the events have been told.
    ///
    /// # Errors
    /// It is not within `timeout`, with what the last attempt met; attempts go on.
    pub fn wait_connected(&self, timeout: Duration) -> Result<Arc<Link>, DialError> {
        let addr = self.shared.addr;
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock::now_ns().saturating_add(timeout_ns);
        let mut state = self.shared.state.lock();
        loop {
            if state.stopping {
                return Err(DialError::Stopped { addr });
            }
            if let Some(link) = state.link.as_ref().filter(|_| state.opened) {
                return Ok(Arc::clone(link));
            }
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 {
                let last = state.last.clone().unwrap_or_else(|| "no answer yet".into());
                return Err(DialError::Unreachable { addr, last });
            }
            self.shared
                .changed
                .wait_for(&mut state, Duration::from_nanos(left_ns));
        }
    }

    /// Closes the link in order and waits for its end. Called from an event, it does not wait.
    pub fn stop(&self) {
        let link = {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            self.shared.changed.notify_all();
            state.link.clone()
        };
        if let Some(link) = link {
            link.close(CloseReason::Stopped);
        }
        self.worker.join();
    }
}

impl Drop for Dialer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The dialing thread, which is also the reader of its link.
fn keep_up(shared: &Shared) {
    let mut pause = Pause::new(entropy::seed());
    loop {
        let mut began_ns = clock::now_ns();
        let outcome = connect(shared).map_err(|error| error.to_string());
        let last = match outcome {
            Ok(link) => match read(shared, &link, &mut pause) {
                Ok(()) => {
                    began_ns = clock::now_ns();
                    "the connection was lost".into()
                }
                Err(reason) => reason.to_string(),
            },
            Err(error) => error,
        };
        let mut state = shared.state.lock();
        if !state.stopping {
            tracing::debug!(addr = %shared.addr, last, "not connected");
            state.last = Some(last);
            let soonest_ns = clock::now_ns() + PAUSE_MIN_NS;
            let until_ns = soonest_ns.max(began_ns + pause.next_ns());
            // Others are told through the same variable: wait for the time, not for the wake-up.
            while !state.stopping && clock::now_ns() < until_ns {
                let left_ns = until_ns.saturating_sub(clock::now_ns());
                shared
                    .changed
                    .wait_for(&mut state, Duration::from_nanos(left_ns));
            }
        }
        if state.stopping {
            return;
        }
    }
}

fn connect(shared: &Shared) -> io::Result<Arc<Link>> {
    let addr = shared.addr;
    let socket = TcpStream::connect_timeout(&addr, ATTEMPT)?;
    // Where nobody listens at a port that may be given to us as our own, TCP connects to itself.
    if socket.local_addr()? == socket.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    // What waits is bounded by those who made it, and wait for its answers.
    Link::new((socket, addr), &shared.events, usize::MAX)
}

/// Forgets the link when it has ended, also by a panic of an event.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.link = None;
        state.opened = false;
    }
}

/// Reads a fresh link to its end.
fn read(shared: &Shared, link: &Arc<Link>, pause: &mut Pause) -> Result<(), CloseReason> {
    let _leaving = Leaving(shared);
    {
        let mut state = shared.state.lock();
        state.link = Some(Arc::clone(link));
        if state.stopping {
            // `stop` did not see the link.
            link.abort(CloseReason::Stopped);
        }
    }
    receive::run(link, &*shared.events, &PATIENCE, || {
        // Whoever flushes later may run under conditions of his own, which threads inherit.
        link.have_writer();
        pause.reset();
        shared.state.lock().opened = true;
        shared.changed.notify_all();
    })
}

/// The pauses between attempts: drawn from a range that doubles.
struct Pause {
    random: u64,
    ceiling_ns: u64,
}

impl Pause {
    fn new(seed: u64) -> Pause {
        Pause {
            random: seed,
            ceiling_ns: 2 * PAUSE_MIN_NS,
        }
    }

    fn reset(&mut self) {
        self.ceiling_ns = 2 * PAUSE_MIN_NS;
    }

    fn next_ns(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood): good enough to spread clients. Written out, since
        // this crate knows no word of the protocol, `wire::splitmix64` included.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let pause_ns = PAUSE_MIN_NS + mixed % (self.ceiling_ns - PAUSE_MIN_NS + 1);
        self.ceiling_ns = (2 * self.ceiling_ns).min(PAUSE_MAX_NS);
        pause_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds_and_differ_by_seed() {
        let draw = |seed| {
            let mut pause = Pause::new(seed);
            (0..200).map(|_| pause.next_ns()).collect::<Vec<_>>()
        };
        let first = draw(1);
        assert!(
            first
                .iter()
                .all(|ns| (PAUSE_MIN_NS..=PAUSE_MAX_NS).contains(ns))
        );
        assert!(first[0] <= 2 * PAUSE_MIN_NS, "the first attempt comes soon");
        assert!(first.iter().max() > Some(&(PAUSE_MAX_NS / 2)), "they grow");
        assert_ne!(first, draw(2));
        assert_eq!(first, draw(1), "one seed, one sequence");
    }
}
