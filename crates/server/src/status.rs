//! The status of a server, as plain data for programs that show it.

use crate::counts::Moved;
use crate::scrub::Checks;
use crate::state::State;
use crate::{Figures, Lease, LendingFigures, Policy};
use logic::server::SessionLine;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::SessionId;

/// How a server is.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Its store.
    pub data: PathBuf,
    /// The machine's figures.
    pub figures: Figures,
    /// How clients lend to each other, and what came of it.
    pub cooperation: (Policy, LendingFigures),
    /// Connections.
    pub connections: u64,
    /// Clients.
    pub clients: Vec<ClientLine>,
    /// Messages received, by kind.
    pub received: Vec<(&'static str, u64)>,
    /// Messages sent, by kind.
    pub sent: Vec<(&'static str, u64)>,
    /// Bytes of all of them.
    pub moved: Moved,
    /// Bytes beside messages whose requests wait.
    pub held_bytes: u64,
    /// The findings of checks of the store.
    pub checks: Checks,
    /// Figures of the store, while it serves.
    pub store: Option<store::Stats>,
    /// Bytes of its log on the disk.
    pub log_bytes: u64,
    /// Why it stopped serving.
    pub failure: Option<String>,
}

/// The work that a store has had since it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLoad {
    /// The number of its first volume.
    pub first_volume: u32,
    /// Bytes on the disk that are in use.
    pub store_bytes: u64,
    /// Messages from clients.
    pub messages: u64,
    /// Bytes from and to clients.
    pub moved_bytes: u64,
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLine {
    /// Its session.
    pub session: SessionId,
    /// Its name; empty of one that has not come since the server was started.
    pub name: String,
    /// Where it calls from, while it has a connection.
    pub peer: Option<SocketAddr>,
    /// For how long this run of the server has known it.
    pub known_for: Option<Duration>,
    /// For how long it has said nothing that renews its lease.
    pub silent_for: Duration,
    /// How its lease is.
    pub lease: Lease,
}

fn client(state: &State, line: &SessionLine, now_ns: u64) -> ClientLine {
    let since = |then_ns: u64| Duration::from_nanos(now_ns.saturating_sub(then_ns));
    let link = line.conn.and_then(|conn| state.links.get(&conn));
    ClientLine {
        session: line.session,
        name: String::from_utf8_lossy(&line.name).into_owned(),
        peer: link.map(|link| link.peer()),
        known_for: line.since.map(since),
        silent_for: since(line.heard),
        lease: line.lease,
    }
}

pub(crate) fn of(state: &mut State, addr: SocketAddr, data: &Path) -> Status {
    let now_ns = net::clock::now_ns();
    let lines = state.machine.sessions(now_ns);
    Status {
        addr,
        data: data.to_owned(),
        figures: state.machine.figures(),
        cooperation: (state.machine.cooperation(), state.machine.lending()),
        connections: state.links.len() as u64,
        clients: lines.iter().map(|it| client(state, it, now_ns)).collect(),
        received: state.received.list(),
        sent: state.sent.list(),
        moved: state.moved,
        held_bytes: state.bulks.held().1,
        checks: state.checks.clone(),
        store: state.store.as_ref().map(store::Store::stats),
        log_bytes: state.store.as_mut().map_or(0, store::Store::log_bytes),
        failure: state.failure.clone(),
    }
}
