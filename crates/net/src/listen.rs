//! Accepts connections of peers.
//!
//! Guarantees: plain TCP stays on this machine: other addresses are refused, to bind and as peers.
//! At most [`CONNECTIONS_MAX`] links live at once, and one of whose peer nothing is heard for too
//! long ends: machines that are gone take nobody's place. After [`Listener::stop`] no thread of the
//! listener runs and no event comes.

use crate::Events;
use crate::id::LinkId;
use crate::identity::Identity;
use crate::link::Link;
use crate::queue::QUEUE_BYTES_MAX;
use crate::reason::CloseReason;
use crate::receive::{self, Patience};
use parking_lot::{Condvar, Mutex};
use rustix::net::Shutdown;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most links of a listener.
pub const CONNECTIONS_MAX: usize = 1024;
/// How long a peer may take to introduce itself.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after accepting failed, for instance because no descriptor was free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

struct Connection {
    link: Arc<Link>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    stopping: bool,
    connections: BTreeMap<LinkId, Connection>,
    /// Readers in their last instructions, to be joined.
    finished: Vec<JoinHandle<()>>,
}

struct Shared {
    socket: TcpListener,
    events: Arc<dyn Events>,
    patience: Patience,
    state: Mutex<State>,
    /// `stopping` was set.
    changed: Condvar,
}

/// A listening socket and its links.
pub struct Listener {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Listens at `addr` (port 0: any free one) and tells `events` of the links. One whose peer
    /// says nothing for `silence` is ended.
    ///
    /// # Errors
    /// The address is not a loopback one, or cannot be bound.
    pub fn bind(
        addr: SocketAddr,
        silence: Duration,
        events: Arc<dyn Events>,
    ) -> io::Result<Listener> {
        Identity::check(addr)?;
        // The standard library sets SO_REUSEADDR: a restarted server binds at once although
        // connections of its predecessor are still in TIME_WAIT.
        let socket = TcpListener::bind(addr)?;
        let local_addr = socket.local_addr()?;
        let shared = Arc::new(Shared {
            socket,
            events,
            patience: Patience {
                hello: HELLO_TIMEOUT,
                silence: Some(silence),
            },
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("net-accept".into())
                .spawn(move || accept(&shared))?
        };
        Ok(Listener {
            shared,
            local_addr,
            accepting: Mutex::new(Some(accepting)),
        })
    }

    /// The address that peers dial.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
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
        // Wakes accept; Linux allows it on a listening socket.
        let _ = rustix::net::shutdown(&self.shared.socket, Shutdown::Both);
        if let Some(accepting) = self.accepting.lock().take() {
            let _ = accepting.join();
        }
        for connection in connections.values() {
            connection.link.close(CloseReason::Stopped);
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

fn accept(shared: &Arc<Shared>) {
    loop {
        let accepted = shared.socket.accept();
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
        tracing::warn!(%error, "a connection was not accepted");
        if error.kind() != io::ErrorKind::PermissionDenied {
            let mut state = shared.state.lock();
            if !state.stopping {
                shared.changed.wait_for(&mut state, ACCEPT_PAUSE);
            }
        }
    }
}

/// Makes a connection a link with its reading thread.
fn admit(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) -> io::Result<()> {
    let link = Link::new((socket, peer), &shared.events, QUEUE_BYTES_MAX)?;
    let finished = std::mem::take(&mut shared.state.lock().finished);
    join_all(finished);
    // Held over the start of the thread, so that its end finds the entry.
    let mut state = shared.state.lock();
    if state.stopping {
        return Ok(());
    }
    if state.connections.len() >= CONNECTIONS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{peer} is one more than {CONNECTIONS_MAX} connections: close some"),
        ));
    }
    let reader = {
        let (shared, link) = (Arc::clone(shared), Arc::clone(&link));
        let name = format!("net-read-{}", link.id().0);
        thread::Builder::new()
            .name(name)
            .spawn(move || read(&shared, &link))?
    };
    state
        .connections
        .insert(link.id(), Connection { link, reader });
    Ok(())
}

/// Removes the entry when the thread is done, also by a panic of an event.
struct Leaving<'a>(&'a Shared, LinkId);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        // After `stop` took the entry, `stop` joins.
        if let Some(connection) = state.connections.remove(&self.1) {
            state.finished.push(connection.reader);
        }
    }
}

fn read(shared: &Arc<Shared>, link: &Arc<Link>) {
    let _leaving = Leaving(shared, link.id());
    if let Err(reason) = receive::run(link, &*shared.events, &shared.patience, || {}) {
        tracing::warn!(peer = %link.peer(), %reason, "a connection did not become a link");
    }
}
