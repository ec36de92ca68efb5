//! Accepts connections of peers.
//!
//! Guarantees: plain TCP stays on this machine: other addresses are refused, to bind and as peers.
//! Over TLS no event is told of a peer that the [`crate::Door`] has not let in. At most
//! [`CONNECTIONS_MAX`] links live at once, and one of whose peer nothing is heard for too long
//! ends: machines that are gone take nobody's place. Peers that have not shown who they are, are
//! bounded in number and time, each address by itself, and take no link's place; where there are
//! too many, the one that has had the most time goes for the one that comes, so that whoever has a
//! certificate gets in. The log of them is bounded, too. After [`Listener::stop`] no thread of the
//! listener runs and no event comes.

use crate::door::Entrance;
use crate::frame::{Header, Kind};
use crate::greeting::{self, Speaks};
use crate::identity::Identity;
use crate::link::{LINGER_NS, Link};
use crate::queue::QUEUE_BYTES_MAX;
use crate::reason::CloseReason;
use crate::receive::{self, Patience};
use crate::tls::question::{Exchange, QUESTION_BYTES_MAX, await_end};
use crate::tls::shake::{self, Secured, ShakeError};
use crate::told::Told;
use crate::{Events, clock, tls};
use parking_lot::{Condvar, Mutex};
use rustix::net::Shutdown;
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most links of a listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// How long a peer may take to introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after accepting failed, for instance because no descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections whose peers have not shown who they are: in all, and of one address.
const STRANGERS_MAX: usize = 256;
const STRANGERS_OF_ADDRESS_MAX: usize = 64;
/// Connections that the kernel keeps for us; as of the standard library.
const BACKLOG: i32 = 128;
/// The answer to a peer that speaks without TLS.
const PLAIN_PEER: &str = "the server wants TLS, and its client speaks without: leave out \
     --insecure-loopback, and use this version of Ariel on both sides";
/// The answer to a peer that has no certificate.
const NO_CERTIFICATE: &str = "a mount needs a certificate of the cell, and none was shown: on the \
     server's machine `ariel join-token` prints a line, and `ariel join LINE` here gives one";

/// A connection, as far as it has come.
enum End {
    /// Its peer is not known yet.
    Stranger(Arc<TcpStream>, IpAddr),
    /// It had to go for another one, and its thread is about to end.
    Leaving,
    Link(Arc<Link>),
}

struct Connection {
    end: End,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    stopping: bool,
    last: u64,
    connections: BTreeMap<u64, Connection>,
    /// Readers in their last instructions, to be joined.
    finished: Vec<JoinHandle<()>>,
    told: Told,
}

impl State {
    /// May one more stranger try to become a link? The number of the one that goes for him.
    fn takes(&self, from: IpAddr) -> Result<Option<u64>, String> {
        let (mut links, mut leaving, mut all) = (0, 0, 0);
        // Of each address how many there are, and the one that came first.
        let mut addresses: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, connection) in &self.connections {
            match &connection.end {
                End::Link(_) => links += 1,
                End::Leaving => leaving += 1,
                End::Stranger(_, from) => {
                    all += 1;
                    addresses.entry(*from).or_insert((0, *number)).0 += 1;
                }
            }
        }
        if links >= CONNECTIONS_MAX {
            return Err(format!(
                "there are {CONNECTIONS_MAX} connections: close some"
            ));
        }
        let own = addresses.get(&from).copied().unwrap_or_default();
        let goes = match (all, own.0) {
            (_, STRANGERS_OF_ADDRESS_MAX..) => Some(own.1),
            (STRANGERS_MAX.., _) => {
                let most = addresses.values().max_by_key(|(count, _)| *count);
                most.map(|(_, first)| *first)
            }
            _ => None,
        };
        if goes.is_some() && leaving >= STRANGERS_MAX {
            return Err(format!(
                "{all} connections have not shown who they are, and {leaving} more are ending"
            ));
        }
        Ok(goes)
    }

    /// A stranger goes, for another one.
    fn show_out(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number)
            && let End::Stranger(socket, _) = std::mem::replace(&mut connection.end, End::Leaving)
        {
            // An error means that it is gone already.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

struct Shared {
    sockets: Vec<TcpListener>,
    entrance: Entrance,
    speaks: Speaks,
    events: Arc<dyn Events>,
    patience: Patience,
    state: Mutex<State>,
    /// `stopping` was set.
    changed: Condvar,
}

impl Shared {
    /// Has a refusal logged, unless there were many.
    fn tell(&self, log: impl FnOnce(u64)) {
        let told = self.state.lock().told.takes(clock::now_ns());
        if let Some(hushed) = told {
            log(hushed);
        }
    }
}

/// Listening sockets and their links.
pub struct Listener {
    shared: Arc<Shared>,
    local_addrs: Vec<SocketAddr>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

/// How a listener is to be.
pub struct ListenOptions {
    /// The peers that may come in.
    pub entrance: Entrance,
    /// Which versions of the protocol are spoken.
    pub speaks: Speaks,
    /// A link whose peer says nothing for so long is ended.
    pub silence: Duration,
}

impl Listener {
    /// Listens at each of these addresses (port 0: any free one) and tells `events` of the links.
    ///
    /// # Errors
    /// An address cannot be bound, or is not a loopback one where nothing else is allowed.
    pub fn bind(
        addrs: &[SocketAddr],
        options: ListenOptions,
        events: Arc<dyn Events>,
    ) -> io::Result<Listener> {
        let mut sockets = Vec::new();
        for &addr in addrs {
            if matches!(options.entrance, Entrance::InsecureLoopback) {
                Identity::check(addr)?;
            }
            sockets.push(listen_at(addr)?);
        }
        let local_addrs: io::Result<Vec<_>> = sockets.iter().map(TcpListener::local_addr).collect();
        let shared = Arc::new(Shared {
            sockets,
            entrance: options.entrance,
            speaks: options.speaks,
            events,
            patience: Patience {
                hello: HELLO_TIMEOUT,
                silence: Some(options.silence),
            },
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let listener = Listener {
            local_addrs: local_addrs?,
            accepting: Mutex::new(Vec::new()),
            shared,
        };
        for at in 0..addrs.len() {
            let shared = Arc::clone(&listener.shared);
            let run = move || accept(&shared, at);
            let thread = thread::Builder::new().name("net-accept".into());
            listener.accepting.lock().push(thread.spawn(run)?);
        }
        Ok(listener)
    }

    /// The addresses that peers dial, in the order in which they were given.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// The first of them.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addrs[0]
    }

    /// Ends the links of a machine; its next attempt is judged by the door again.
    pub fn shut_out(&self, machine: u64, why: &str) {
        let of_machine: Vec<Arc<Link>> = {
            let state = self.shared.state.lock();
            let links = state.connections.values().filter_map(|one| match &one.end {
                End::Link(link) => Some(link),
                End::Stranger(..) | End::Leaving => None,
            });
            let is_its = |link: &&Arc<Link>| match link.identity() {
                Identity::Machine { id, .. } => *id == machine,
                _ => false,
            };
            links.filter(is_its).cloned().collect()
        };
        of_machine.iter().for_each(|link| link.refuse(why));
    }

    /// Stops accepting, closes all links in order, and waits for their ends. Called from an event,
    /// it does not wait for the link of that event.
    pub fn stop(&self) {
        let connections = {
            let mut state = self.shared.state.lock();
            state.stopping = true;
            self.shared.changed.notify_all();
            std::mem::take(&mut state.connections)
        };
        for socket in &self.shared.sockets {
            // Wakes accept; Linux allows it on a listening socket.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        join_all(std::mem::take(&mut *self.accepting.lock()));
        for connection in connections.values() {
            match &connection.end {
                End::Link(link) => link.close(CloseReason::Stopped),
                // An error means that it is gone already.
                End::Stranger(socket, _) => drop(socket.shutdown(std::net::Shutdown::Both)),
                End::Leaving => {}
            }
        }
        join_all(
            connections
                .into_values()
                .map(|connection| connection.reader),
        );
        let finished = std::mem::take(&mut self.shared.state.lock().finished);
        join_all(finished);
    }
}

/// A listening socket. The standard library sets SO_REUSEADDR: a restarted server binds at once
/// although connections of its predecessor are still in TIME_WAIT. One for IPv6 takes IPv6 alone,
/// so that another may listen at the same port for IPv4.
fn listen_at(addr: SocketAddr) -> io::Result<TcpListener> {
    if addr.is_ipv4() {
        return TcpListener::bind(addr);
    }
    let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Waits for readers, but not for the calling thread. A panic was reported by its own thread.
fn join_all(readers: impl IntoIterator<Item = JoinHandle<()>>) {
    let me = thread::current().id();
    for reader in readers {
        if reader.thread().id() != me {
            let _ = reader.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept(shared: &Arc<Shared>, at: usize) {
    loop {
        let accepted = shared.sockets[at].accept();
        if shared.state.lock().stopping {
            return;
        }
        let error = match accepted {
            Ok((socket, peer)) => match admit(shared, socket, peer) {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => error,
        };
        shared.tell(|hushed| tracing::warn!(%error, hushed, "a connection was not accepted"));
        if error.kind() != io::ErrorKind::PermissionDenied {
            let mut state = shared.state.lock();
            if !state.stopping {
                shared.changed.wait_for(&mut state, ACCEPT_PAUSE);
            }
        }
    }
}

/// Gives a connection its thread.
fn admit(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let finished = std::mem::take(&mut shared.state.lock().finished);
    join_all(finished);
    // Held over the start of the thread, so that its end finds the entry.
    let mut state = shared.state.lock();
    if state.stopping {
        return Ok(());
    }
    let from = peer.ip().to_canonical();
    match state.takes(from) {
        Ok(None) => {}
        Ok(Some(goes)) => state.show_out(goes),
        Err(why) => {
            let what = format!("{peer} is not let in: {why}");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
    }
    state.last += 1;
    let (number, socket) = (state.last, Arc::new(socket));
    let reader = {
        let (shared, socket) = (Arc::clone(shared), Arc::clone(&socket));
        let run = move || serve(&shared, number, (&socket, peer));
        thread::Builder::new()
            .name(format!("net-read-{number}"))
            .spawn(run)?
    };
    let end = End::Stranger(socket, from);
    state.connections.insert(number, Connection { end, reader });
    Ok(())
}

/// Removes the entry when the thread is done, also by a panic of an event.
struct Leaving<'a>(&'a Shared, u64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        // After `stop` took the entry, `stop` joins.
        if let Some(connection) = state.connections.remove(&self.1) {
            state.finished.push(connection.reader);
        }
    }
}

/// The life of a connection.
fn serve(shared: &Arc<Shared>, number: u64, (socket, peer): (&Arc<TcpStream>, SocketAddr)) {
    let _leaving = Leaving(shared, number);
    let outcome = match come_in(shared, socket, peer) {
        Ok(Some(guest)) => become_link(shared, number, (socket, peer), guest),
        Ok(None) => Ok(()),
        Err(reason) => Err(reason),
    };
    if let Err(reason) = outcome {
        shared.tell(|hushed| {
            tracing::warn!(%peer, %reason, hushed, "a connection did not become a link");
        });
    }
}

/// Somebody who may have a link, or is to be told why not.
struct Guest {
    identity: Result<Identity, String>,
    secured: Option<Secured>,
}

/// Finds out who is there; none: it had a question, which was answered.
fn come_in(
    shared: &Shared,
    socket: &TcpStream,
    peer: SocketAddr,
) -> Result<Option<Guest>, CloseReason> {
    let Entrance::Tls(door) = &shared.entrance else {
        let identity = Identity::check(peer).map_err(|refused| refused.to_string());
        let secured = None;
        return Ok(Some(Guest { identity, secured }));
    };
    let failed = |error: io::Error| CloseReason::Io(Arc::new(error));
    socket.set_nodelay(true).map_err(failed)?;
    let deadline_ns = clock::now_ns() + HELLO_TIMEOUT.as_nanos() as u64;
    let secured = match shake::as_server(socket, door.tls().0, deadline_ns) {
        Ok(secured) => secured,
        Err(ShakeError::Plain) => {
            tell_plain(socket);
            return Err(CloseReason::Insecure(PLAIN_PEER.into()));
        }
        Err(error) => return Err(CloseReason::Insecure(error.to_string())),
    };
    if tls::is_question(&secured.protocol) {
        let key = secured.peer;
        let mut exchange = Exchange::new(socket, secured, deadline_ns);
        let question = exchange.hear(QUESTION_BYTES_MAX).map_err(failed)?;
        let answer = door.answer(key, &question);
        // The door may have waited for others: the time to take the answer begins now.
        let deadline_ns = clock::now_ns() + HELLO_TIMEOUT.as_nanos() as u64;
        exchange.extend(deadline_ns);
        exchange.say(&answer).map_err(failed)?;
        await_end(socket, deadline_ns);
        return Ok(None);
    }
    let identity = match secured.peer {
        Some(key) => door.admit(key),
        None => Err(NO_CERTIFICATE.into()),
    };
    let secured = Some(secured);
    Ok(Some(Guest { identity, secured }))
}

/// Tells a peer that speaks without TLS, in its own words.
fn tell_plain(mut socket: &TcpStream) {
    let body = greeting::refusal(PLAIN_PEER);
    if let Ok(header) = Header::new(Kind::Refused, body.len(), 0) {
        // It is refused whether it hears of it or not.
        let _ = socket.write_all(&[&header.encode(), &body[..]].concat());
        await_end(socket, clock::now_ns() + LINGER_NS);
    }
}

/// Makes the connection a link and reads it to its end.
fn become_link(
    shared: &Arc<Shared>,
    number: u64,
    (socket, peer): (&Arc<TcpStream>, SocketAddr),
    guest: Guest,
) -> Result<(), CloseReason> {
    let failed = |error: io::Error| CloseReason::Io(Arc::new(error));
    let (sealer, opener) = match guest.secured {
        Some(Secured { sealer, opener, .. }) => (Some(sealer), Some(opener)),
        None => (None, None),
    };
    let (identity, refused) = match guest.identity {
        Ok(identity) => (identity, None),
        Err(why) => (Identity::Loopback, Some(why)),
    };
    let own = socket.try_clone().map_err(failed)?;
    let link = Link::new(
        (own, peer),
        (identity, sealer),
        &shared.events,
        QUEUE_BYTES_MAX,
    );
    let link = link.map_err(failed)?;
    if let Some(why) = refused {
        link.refuse(&why);
        link.wait_drained();
        await_end(socket, clock::now_ns() + LINGER_NS);
        link.end(CloseReason::Refused(why.clone()));
        return Err(CloseReason::Refused(why));
    }
    {
        let mut state = shared.state.lock();
        match state.connections.get_mut(&number) {
            Some(Connection {
                end: end @ End::Stranger(..),
                ..
            }) => *end = End::Link(Arc::clone(&link)),
            // It has just been shown out, or `stop` did not see the link.
            _ => link.abort(CloseReason::Stopped),
        }
    }
    let how = (&shared.speaks, &shared.patience);
    receive::run((&link, opener), &*shared.events, how, || {}).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A stranger of this address comes; true if he is let in.
    fn add(state: &mut State, stream: &Arc<TcpStream>, from: [u8; 4]) -> bool {
        let from = from.into();
        match state.takes(from) {
            Ok(Some(goes)) => state.show_out(goes),
            Ok(None) => {}
            Err(_) => return false,
        }
        state.last += 1;
        let end = End::Stranger(Arc::clone(stream), from);
        let reader = thread::spawn(|| {});
        state
            .connections
            .insert(state.last, Connection { end, reader });
        true
    }

    fn count(state: &State, is: impl Fn(&End) -> bool) -> usize {
        state
            .connections
            .values()
            .filter(|one| is(&one.end))
            .count()
    }

    #[test]
    fn strangers_are_bounded_in_all_and_for_each_address_and_the_last_one_is_let_in() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Arc::new(TcpStream::connect(socket.local_addr().unwrap()).unwrap());
        let stranger = |end: &End| matches!(end, End::Stranger(..));
        let leaving = |end: &End| matches!(end, End::Leaving);
        let mut state = State::default();
        for _ in 0..STRANGERS_OF_ADDRESS_MAX + 20 {
            assert!(add(&mut state, &stream, [10, 0, 0, 1]));
        }
        assert_eq!(count(&state, stranger), STRANGERS_OF_ADDRESS_MAX);
        assert_eq!(count(&state, leaving), 20);
        // Those that came first have gone.
        assert!((1..=20).all(|number| leaving(&state.connections[&number].end)));
        assert!(
            add(&mut state, &stream, [10, 0, 0, 2]),
            "others still come in"
        );
        for number in 0..=99 {
            assert!(add(&mut state, &stream, [10, 1, 0, number]));
            assert!(add(&mut state, &stream, [10, 1, 0, number]));
        }
        assert_eq!(count(&state, stranger), STRANGERS_MAX);
        // Where one address has most of them, its own go first.
        let of = |end: &End, own: [u8; 4]| {
            let own = IpAddr::from(own);
            matches!(end, End::Stranger(_, from) if *from == own)
        };
        assert!(count(&state, |end| of(end, [10, 0, 0, 1])) < STRANGERS_OF_ADDRESS_MAX);
        assert_eq!(count(&state, |end| of(end, [10, 0, 0, 2])), 1);
        // Threads of those that go are bounded: nobody comes in until some have ended.
        while count(&state, leaving) < STRANGERS_MAX {
            assert!(add(&mut state, &stream, [10, 0, 0, 1]));
        }
        assert!(!add(&mut state, &stream, [10, 0, 0, 1]));
        state.connections.retain(|_, one| !leaving(&one.end));
        assert!(add(&mut state, &stream, [10, 0, 0, 1]));
    }
}
