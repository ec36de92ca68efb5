//! Links with both ends in the test, and what their events told.
#![allow(unreachable_pub)]

pub mod cell;

use ariel_net::{
    Addresses, CloseReason, Dialer, Entrance, Events, Header, Kind, Link, LinkId, ListenOptions,
    Listener, Passage, Speaks,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// No event takes this long unless it never comes.
pub const SOON: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub enum Event {
    Opened(Arc<Link>),
    Frame(Vec<u8>, Vec<u8>),
    Closed(LinkId, CloseReason),
    Room(LinkId),
}

/// Hands events to the test; answers a body of "echo" on the reading thread.
struct Recorder(Sender<Event>);

impl Events for Recorder {
    fn opened(&self, link: &Arc<Link>) {
        let _ = self.0.send(Event::Opened(Arc::clone(link)));
    }
    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        match body {
            b"echo" => {
                link.send(b"reply".to_vec(), bulk.into());
                link.flush();
            }
            b"violate" => link.close(CloseReason::Refused("as asked".into())),
            b"panic" => panic!("as asked"),
            _ => {
                let _ = self.0.send(Event::Frame(body.to_vec(), bulk));
            }
        }
    }
    fn room(&self, link: &Arc<Link>) {
        let _ = self.0.send(Event::Room(link.id()));
    }
    fn closed(&self, id: LinkId, reason: &CloseReason) {
        let _ = self.0.send(Event::Closed(id, reason.clone()));
    }
}

pub struct Seen(Receiver<Event>);

impl Seen {
    pub fn new() -> (Arc<dyn Events>, Seen) {
        let (sender, receiver) = mpsc::channel();
        (Arc::new(Recorder(sender)), Seen(receiver))
    }
    pub fn next(&self) -> Event {
        self.0.recv_timeout(SOON).unwrap()
    }
    pub fn opened(&self) -> Arc<Link> {
        match self.next() {
            Event::Opened(link) => link,
            other => panic!("{other:?} instead of opened"),
        }
    }
    pub fn frame(&self) -> (Vec<u8>, Vec<u8>) {
        match self.next() {
            Event::Frame(body, bulk) => (body, bulk),
            other => panic!("{other:?} instead of a frame"),
        }
    }
    pub fn closed(&self) -> (LinkId, CloseReason) {
        match self.next() {
            Event::Closed(id, reason) => (id, reason),
            other => panic!("{other:?} instead of closed"),
        }
    }
    pub fn room(&self) -> LinkId {
        match self.next() {
            Event::Room(id) => id,
            other => panic!("{other:?} instead of room"),
        }
    }
    pub fn nothing_more(&self) {
        assert!(matches!(
            self.0.recv_timeout(Duration::ZERO),
            Err(RecvTimeoutError::Timeout)
        ));
    }
}

pub fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// The tests of links are compiled a second time, and run over TLS then.
pub const TLS: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"over_tls");

pub fn speaks() -> Speaks {
    Speaks {
        oldest: 3,
        newest: 4,
        program: "0.4".into(),
    }
}

/// Options of a listener without TLS.
pub fn plain(silence: Duration) -> ListenOptions {
    ListenOptions {
        entrance: Entrance::InsecureLoopback,
        speaks: speaks(),
        silence,
    }
}

pub fn bind(addr: SocketAddr, events: Arc<dyn Events>) -> Listener {
    Listener::bind(&[addr], plain(SOON), events).unwrap()
}

pub fn dial(addr: SocketAddr, events: Arc<dyn Events>) -> Dialer {
    let how = (Passage::InsecureLoopback, speaks());
    Dialer::new(Addresses::from(addr), how, events).unwrap()
}

/// A listener and a raw connection to it that has greeted.
pub fn raw_peer() -> (Listener, Seen, Arc<Link>, TcpStream) {
    let (events, seen) = Seen::new();
    let listener = bind(any_port(), events);
    let mut raw = TcpStream::connect(listener.local_addr()).unwrap();
    raw.write_all(&hello()).unwrap();
    let link = seen.opened();
    let mut theirs = hello();
    raw.read_exact(&mut theirs).unwrap();
    assert_eq!(theirs, hello());
    (listener, seen, link, raw)
}

pub fn hello() -> Vec<u8> {
    hello_of(3, 4, "0.4")
}

pub fn hello_of(oldest: u32, newest: u32, program: &str) -> Vec<u8> {
    let body = [
        &oldest.to_le_bytes(),
        &newest.to_le_bytes(),
        program.as_bytes(),
    ]
    .concat();
    let header = Header::new(Kind::Hello, body.len(), 0).unwrap().encode();
    [&header[..], &body].concat()
}

pub fn message(body: &[u8], bulk: &[u8]) -> Vec<u8> {
    let mut bytes = Header::new(Kind::Message, body.len(), bulk.len())
        .unwrap()
        .encode()
        .to_vec();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(bulk);
    bytes
}

/// A listener, a dialer, and both ends of their link.
pub struct Pair {
    pub listener: Listener,
    pub server: Seen,
    pub server_link: Arc<Link>,
    pub dialer: Dialer,
    pub client: Seen,
    pub client_link: Arc<Link>,
    pub cell: Option<cell::TestCell>,
}

/// A listener of this cell, if there is one, at this address.
pub fn bind_of(
    cell: Option<&cell::TestCell>,
    addr: SocketAddr,
    events: Arc<dyn Events>,
) -> Listener {
    match cell {
        Some(cell) => cell.bind(addr, events),
        None => bind(addr, events),
    }
}

pub fn pair() -> Pair {
    let (server_events, server) = Seen::new();
    let (client_events, client) = Seen::new();
    let cell = TLS.then(cell::TestCell::default);
    let (listener, dialer) = if let Some(cell) = &cell {
        let listener = cell.bind(any_port(), server_events);
        let dialer = cell.dial(&listener, cell.machine("a"), client_events);
        (listener, dialer)
    } else {
        let listener = bind(any_port(), server_events);
        let dialer = dial(listener.local_addr(), client_events);
        (listener, dialer)
    };
    let client_link = dialer.wait_connected(SOON).unwrap();
    assert_eq!(client.opened().id(), client_link.id());
    let server_link = server.opened();
    Pair {
        listener,
        server,
        server_link,
        dialer,
        client,
        client_link,
        cell,
    }
}

pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed) as u8).collect()
}
