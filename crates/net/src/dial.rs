//! Keeps one link to a server up, wherever the server is.
//!
//! Guarantees: at most one link lives at once; after its end, or a failure to connect, the next
//! attempt follows after a random pause that grows from 20 ms to 1 s, so that the clients of a
//! restarted server do not come all at once. An attempt that nobody answers ends after
//! [`ATTEMPT`], which counts as a part of the pause: so a network that comes back is found within
//! two seconds, however long it was away. Where a finder says that the server is elsewhere, it is
//! dialed there, at once; but no more than once a second, so that nobody is sent in circles without
//! a pause. After [`Dialer::stop`] no event comes.

use crate::Events;
use crate::addresses::Addresses;
use crate::door::Passage;
use crate::frame::FrameError;
use crate::greeting::Speaks;
use crate::identity::Identity;
use crate::link::Link;
use crate::pause::{PAUSE_MAX_NS, PAUSE_MIN_NS, Pause};
use crate::reason::CloseReason;
use crate::receive::{self, Patience};
use crate::seek::{Course, Finder, State};
use crate::tls::question::{ANSWER_BYTES_MAX, Exchange};
use crate::tls::record::Opener;
use crate::tls::shake::{self, Secured, ShakeError};
use crate::tls::{self, ClientTls};
use crate::worker::Worker;
use crate::{clock, entropy};
use rustls::ClientConfig;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The pause after a refusal, which people have to see to.
const PAUSE_REFUSED_NS: u64 = 5_000_000_000;
/// How long it may take to connect, and then to be greeted; [`Dialer::stop`] waits for it. The
/// kernel repeats its first packet after a second.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// How long a handshake may take, and a question with its answer, for which a server may wait until
/// other servers and all mounts judge by a change.
const HANDSHAKE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
/// Messages about ends that do not fit.
const PLAIN_SERVER: &str = "the server speaks without TLS: mount it with --insecure-loopback, or \
     start it without that option";
const OTHER_CELL: &str = "the server does not take this machine's certificate, which is of another \
     cell: join the server's cell with `ariel join LINE`";
const EXPIRED: &str = "this machine's certificate has expired: `ariel join-token` on the server's \
     machine prints a line, and `ariel join LINE` here gives a new one";
/// For how long nothing need be heard is for the room above to say: it knows when it asks.
const PATIENCE: Patience = Patience {
    hello: ATTEMPT,
    silence: None,
};

/// Why there is no link.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// Every attempt failed so far.
    #[error("no connection to {addr}: {last}")]
    Unreachable {
        /// Where the server should be.
        addr: Addresses,
        /// The failure of the last attempt.
        last: String,
    },
    /// The dialer was stopped.
    #[error("the connection to {addr} was stopped")]
    Stopped {
        /// Where the server should be.
        addr: Addresses,
    },
}

struct Shared {
    course: Arc<Course>,
    passage: Passage,
    speaks: Speaks,
    events: Arc<dyn Events>,
}

/// A link that comes back.
pub struct Dialer {
    shared: Arc<Shared>,
    worker: Worker,
}

impl Dialer {
    /// Starts connecting to the server at `addr`; `events` is told of each link.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(
        addr: Addresses,
        how: (Passage, Speaks),
        events: Arc<dyn Events>,
    ) -> io::Result<Dialer> {
        Dialer::with_finder(addr, how, events, None)
    }

    /// The same; the finder says where the server is while it is not there.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn with_finder(
        addr: Addresses,
        (passage, speaks): (Passage, Speaks),
        events: Arc<dyn Events>,
        finder: Option<Arc<dyn Finder>>,
    ) -> io::Result<Dialer> {
        let shared = Arc::new(Shared {
            course: Arc::new(Course::new(addr, finder)),
            passage,
            speaks,
            events,
        });
        let worker = {
            let shared = Arc::clone(&shared);
            Worker::start("net-dial", move || keep_up(&shared))?
        };
        Ok(Dialer { shared, worker })
    }

    /// Where it dials, or has dialed.
    #[must_use]
    pub fn addr(&self) -> Addresses {
        self.shared.course.addr()
    }

    /// The link, if it is up.
    #[must_use]
    pub fn link(&self) -> Option<Arc<Link>> {
        let state = self.shared.course.state.lock();
        state.link.as_ref().filter(|_| state.opened).cloned()
    }

    /// Waits until the link is up and the events have been told.
    ///
    /// # Errors
    /// It is not within `timeout`, or one side has refused the other: with what the last attempt
    /// met; attempts go on.
    pub fn wait_connected(&self, timeout: Duration) -> Result<Arc<Link>, DialError> {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = clock::now_ns().saturating_add(timeout_ns);
        let mut state = self.shared.course.state.lock();
        loop {
            let addr = || state.addr.clone();
            if state.stopping {
                return Err(DialError::Stopped { addr: addr() });
            }
            if let Some(link) = state.link.as_ref().filter(|_| state.opened) {
                return Ok(Arc::clone(link));
            }
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 || state.refused {
                let last = state.last.clone().unwrap_or_else(|| "no answer yet".into());
                return Err(DialError::Unreachable { addr: addr(), last });
            }
            self.shared
                .course
                .changed
                .wait_for(&mut state, Duration::from_nanos(left_ns));
        }
    }

    /// The failure of the last attempt, while there is no link.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let state = self.shared.course.state.lock();
        state.last.clone().filter(|_| !state.opened)
    }

    /// Since when there has been no link, and the failure of the last attempt; `None`: there is
    /// one, or none has failed yet.
    #[must_use]
    pub fn lost(&self) -> Option<(u64, String)> {
        let state = self.shared.course.state.lock();
        let lost_ns = state.lost_ns.filter(|_| !state.opened)?;
        Some((lost_ns, state.last.clone().unwrap_or_default()))
    }

    /// Closes the link in order and waits for its end. Called from an event, it does not wait.
    pub fn stop(&self) {
        let link = {
            let mut state = self.shared.course.state.lock();
            state.stopping = true;
            self.shared.course.changed.notify_all();
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
    let (mut pause, mut turned_ns) = (Pause::new(entropy::seed()), 0);
    loop {
        let ended = attempt(shared, &mut pause);
        let from = shared.course.addr();
        let goes_on = rest(shared, (&mut pause, &mut turned_ns), ended);
        if !goes_on {
            return;
        }
        shared.course.tell_moved(&from);
    }
}

/// The end of an attempt, or of the link that it led to.
struct Ended {
    why: String,
    /// One side has refused the other, which people have to see to.
    refused: bool,
    /// The peer has not what is wanted of it.
    elsewhere: bool,
    /// The pause counts from then on.
    from_ns: u64,
}

/// Connects, and reads the link to its end.
fn attempt(shared: &Shared, pause: &mut Pause) -> Ended {
    let mut ended = Ended {
        why: "the connection was lost".into(),
        refused: false,
        elsewhere: false,
        from_ns: clock::now_ns(),
    };
    let reached = match connect(shared) {
        Ok(reached) => reached,
        Err(Unreached { why, is_refusal }) => {
            (ended.why, ended.refused) = (why, is_refusal);
            return ended;
        }
    };
    match read(shared, reached) {
        Ok(reason) => {
            let now_ns = clock::now_ns();
            // The room above of the peer has looked at what was wanted.
            ended.elsewhere = matches!(reason, CloseReason::Elsewhere | CloseReason::ByPeer(_));
            if ended.elsewhere {
                ended.why = reason.to_string();
            }
            if !ended.elsewhere || now_ns > ended.from_ns + PAUSE_MAX_NS {
                pause.reset();
            }
            ended.from_ns = now_ns;
        }
        Err(CloseReason::Frame(FrameError::Io(error)) | CloseReason::Io(error)) => {
            let told = told(&error);
            ended.refused = told.is_some();
            ended.why = told.unwrap_or_else(|| error.to_string());
        }
        Err(reason) => {
            ended.elsewhere = matches!(reason, CloseReason::Elsewhere);
            ended.refused = matches!(reason, CloseReason::ByPeer(_) | CloseReason::Versions(_));
            ended.why = reason.to_string();
        }
    }
    ended
}

/// Waits until the next attempt is due: when its pause is over, or at once where the server has
/// been found elsewhere, unless that was so a moment ago. False: the dialer is stopped.
fn rest(shared: &Shared, (pause, turned_ns): (&mut Pause, &mut u64), ended: Ended) -> bool {
    let course = &shared.course;
    let mut state = course.state.lock();
    if state.stopping {
        return false;
    }
    tell(&state, (&ended.why, ended.refused));
    (state.last, state.refused) = (Some(ended.why), ended.refused);
    course.changed.notify_all();
    course.seek(&mut state, ended.elsewhere);
    let least_ns = if ended.refused {
        PAUSE_REFUSED_NS
    } else {
        PAUSE_MIN_NS
    };
    let soonest_ns = clock::now_ns() + least_ns;
    let mut until_ns = soonest_ns.max(ended.from_ns + pause.next_ns());
    // Others are told through the same variable: wait for the time, not for the wake-up.
    while !state.stopping {
        let now_ns = clock::now_ns();
        if Course::turn(&mut state).is_some() && now_ns >= *turned_ns + PAUSE_MAX_NS {
            (*turned_ns, until_ns) = (now_ns, now_ns);
            pause.reset();
        }
        if now_ns >= until_ns {
            break;
        }
        course
            .changed
            .wait_for(&mut state, Duration::from_nanos(until_ns - now_ns));
    }
    !state.stopping
}

/// Tells people of a refusal, once: only they can cure it. Everything else passes.
fn tell(state: &State, (last, refused): (&str, bool)) {
    let addr = &state.addr;
    match state.last.as_deref() == Some(last) || !refused {
        true => tracing::debug!(%addr, last, "not connected"),
        false => tracing::warn!(%addr, last, "not connected"),
    }
}

/// A link whose ends know each other, and the opener that reads it.
type Reached = (Arc<Link>, Option<Opener>);

/// Why there is no link.
#[derive(Default)]
struct Unreached {
    why: String,
    /// One side does not trust the other.
    is_refusal: bool,
}

impl From<String> for Unreached {
    fn from(why: String) -> Unreached {
        let is_refusal = false;
        Unreached { why, is_refusal }
    }
}

fn refusal(why: String) -> Unreached {
    let is_refusal = true;
    Unreached { why, is_refusal }
}

fn connect(shared: &Shared) -> Result<Reached, Unreached> {
    let addrs = shared.course.addr().resolve();
    let addrs = addrs.map_err(|error| error.to_string())?;
    let mut failed = Unreached::default();
    for addr in addrs {
        match connect_to(shared, addr) {
            Ok(reached) => return Ok(reached),
            Err(error) if failed.why.is_empty() => failed = error,
            Err(Unreached { why, is_refusal }) => {
                failed.why = format!("{}; {addr}: {why}", failed.why);
                failed.is_refusal &= is_refusal;
            }
        }
        if shared.course.state.lock().stopping {
            break;
        }
    }
    Err(failed)
}

fn connect_to(shared: &Shared, addr: SocketAddr) -> Result<Reached, Unreached> {
    let failed = |error: io::Error| error.to_string();
    if matches!(shared.passage, Passage::InsecureLoopback) {
        Identity::check(addr).map_err(|refused| refusal(refused.to_string()))?;
    }
    let socket = TcpStream::connect_timeout(&addr, ATTEMPT).map_err(unreached)?;
    // Where nobody listens at a port that may be given to us as our own, TCP connects to itself.
    if socket.local_addr().map_err(failed)? == socket.peer_addr().map_err(failed)? {
        return Err(unreached(io::ErrorKind::ConnectionRefused.into()).into());
    }
    let (identity, sealer, opener) = match &shared.passage {
        Passage::InsecureLoopback => (Identity::Loopback, None, None),
        Passage::Tls(credentials) => {
            let config = credentials.tls().map_err(refusal)?.for_frames();
            let secured = secure(&socket, config)?;
            (Identity::Server, Some(secured.sealer), Some(secured.opener))
        }
        Passage::ToMachine(credentials, key) => {
            let tls = credentials.tls().map_err(refusal)?;
            let config = tls.for_machine(*key).map_err(|e| refusal(e.to_string()))?;
            let secured = secure(&socket, config)?;
            let (sealer, opener) = (Some(secured.sealer), Some(secured.opener));
            (Identity::Peer { key: *key }, sealer, opener)
        }
    };
    // The messages that wait are bounded by their senders, who wait for the answers.
    let link = Link::new(
        (socket, addr),
        (identity, sealer),
        &shared.events,
        usize::MAX,
    );
    Ok((link.map_err(failed)?, opener))
}

fn unreached(error: io::Error) -> String {
    format!(
        "{error}: start the server there (`ariel serve --data DIR --listen ADDR`) or correct the \
         address"
    )
}

/// The handshake with a server.
fn secure(socket: &TcpStream, config: Arc<ClientConfig>) -> Result<Secured, Unreached> {
    // An error only makes it slower.
    let _ = socket.set_nodelay(true);
    let deadline_ns = clock::now_ns() + HANDSHAKE.as_nanos() as u64;
    shake::as_client(socket, config, tls::server_name(), deadline_ns).map_err(|error| match error {
        ShakeError::Plain => refusal(PLAIN_SERVER.to_owned()),
        ShakeError::Tls(error) => refusal(refused(&error)),
        error => error.to_string().into(),
    })
}

/// Why the two do not trust each other, with what cures it.
fn refused(error: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    use rustls::CertificateError as Wrong;
    match error {
        rustls::Error::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "the server's certificate has expired: set the clocks of both machines, or restart the \
             server, which renews it"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(wrong) => format!(
            "the server is not of this machine's cell ({wrong}): correct the address, or join its \
             cell with `ariel join LINE`"
        ),
        rustls::Error::AlertReceived(
            Alert::UnknownCA | Alert::BadCertificate | Alert::DecryptError,
        ) => OTHER_CELL.to_owned(),
        rustls::Error::AlertReceived(Alert::CertificateExpired) => EXPIRED.to_owned(),
        error => error.to_string(),
    }
}

/// Asks the server at `addr` one question of the cell's protocol.
///
/// # Errors
/// It cannot be reached, or is not of the cell, in words that name the cure.
pub fn ask(addr: &Addresses, tls: &ClientTls, question: &[u8]) -> Result<Vec<u8>, String> {
    let mut failed = String::new();
    for one in addr.resolve().map_err(|error| error.to_string())? {
        match ask_at(one, tls, question) {
            Ok(answer) => return Ok(answer),
            Err(error) => failed = format!("{one}: {error}"),
        }
    }
    Err(failed)
}

fn ask_at(addr: SocketAddr, tls: &ClientTls, question: &[u8]) -> Result<Vec<u8>, String> {
    let socket = TcpStream::connect_timeout(&addr, ATTEMPT).map_err(unreached)?;
    let secured = secure(&socket, tls.for_question()).map_err(|error| error.why)?;
    if !tls::is_question(&secured.protocol) {
        return Err("the server does not answer questions: update it".to_owned());
    }
    let deadline_ns = clock::now_ns() + ANSWER.as_nanos() as u64;
    let mut exchange = Exchange::new(&socket, secured, deadline_ns);
    let answer = exchange
        .say(question)
        .and_then(|()| exchange.hear(ANSWER_BYTES_MAX));
    answer.map_err(|error| told(&error).unwrap_or_else(|| error.to_string()))
}

/// The server's reason against this machine's certificate, from its last record.
fn told(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(refused(inner))
}

/// Forgets the link when it has ended, also by a panic of an event.
struct Leaving<'a>(&'a Shared);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.course.state.lock();
        state.link = None;
        state.opened = false;
    }
}

/// Reads a fresh link to its end. An error: it never opened.
fn read(shared: &Shared, (link, opener): Reached) -> Result<CloseReason, CloseReason> {
    let link = &link;
    let _leaving = Leaving(shared);
    {
        let mut state = shared.course.state.lock();
        state.link = Some(Arc::clone(link));
        if state.stopping {
            // `stop` did not see the link.
            link.abort(CloseReason::Stopped);
        }
    }
    let how = (&shared.speaks, &PATIENCE);
    receive::run((link, opener), &*shared.events, how, || {
        // A thread that flushes later may run under conditions of its own, which threads inherit.
        link.have_writer();
        Course::arrived(&mut shared.course.state.lock());
        shared.course.changed.notify_all();
    })
}
