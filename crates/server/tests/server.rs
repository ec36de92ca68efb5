//! A server as its clients see it: messages in, messages out, over a real connection and a real
//! store.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::large_enum_variant, missing_docs)]

use ariel_server::{Gate, MachineOptions, Server, ServerOptions, StartError};
use net::{Bulk, CloseReason, Dialer, Events, Link, LinkId, Passage, Speaks};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::{
    Fid, Hold, Holding, Make, Name, Op, Outcome, Reply, Request, Right, ToClient, ToServer,
    Welcome, WriteMode,
};

/// Longer than anything takes that does not hang.
const LIMIT: Duration = Duration::from_secs(20);

fn options(data: &Path) -> ServerOptions {
    ServerOptions {
        data: data.to_owned(),
        owner: (0, 0),
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        gate: Gate::InsecureLoopback,
        machine: MachineOptions {
            // Nobody of the last run comes back in these tests.
            grace_ns: 1,
            ..MachineOptions::default()
        },
        on_failure: Box::new(|reason| panic!("the server failed: {reason}")),
    }
}

#[derive(Debug)]
enum Seen {
    Message(ToClient, Vec<u8>),
    Closed(String),
}

struct Seeing(Mutex<Sender<Seen>>);

impl Events for Seeing {
    fn opened(&self, _: &Arc<Link>) {}

    fn frame(&self, _: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message = wire::decode(body).unwrap();
        let _ = self.0.lock().unwrap().send(Seen::Message(message, bulk));
    }

    fn closed(&self, _: LinkId, reason: &CloseReason) {
        let _ = self
            .0
            .lock()
            .unwrap()
            .send(Seen::Closed(reason.to_string()));
    }
}

/// One client, told what to say word by word.
struct Peer {
    dialer: Dialer,
    link: Arc<Link>,
    seen: Receiver<Seen>,
    last: u64,
}

fn request(id: u64, (op, hold): (Op, Hold)) -> Request {
    Request {
        acked: id,
        hold,
        ..Request::new(id, op)
    }
}

fn speaks() -> Speaks {
    Speaks {
        oldest: wire::VERSION,
        newest: wire::VERSION,
        program: "test".into(),
    }
}

impl Peer {
    fn connect(addr: SocketAddr) -> Peer {
        let (send, seen) = mpsc::channel();
        let seeing = Arc::new(Seeing(Mutex::new(send)));
        let how = (Passage::InsecureLoopback, speaks());
        let dialer = Dialer::new(addr.into(), how, seeing).unwrap();
        let link = dialer.wait_connected(LIMIT).unwrap();
        Peer {
            dialer,
            link,
            seen,
            last: 0,
        }
    }

    fn greet(addr: SocketAddr, session: u64) -> (Peer, Welcome) {
        let peer = Peer::connect(addr);
        peer.say(
            &ToServer::Hello {
                version: wire::VERSION,
                session,
                name: b"test".to_vec(),
                volume: Vec::new(),
            },
            Vec::new(),
        );
        match peer.hear() {
            (ToClient::Welcome(welcome), _) => (peer, welcome),
            other => panic!("{other:?}"),
        }
    }

    fn say(&self, message: &ToServer, bulk: Vec<u8>) {
        self.link.send(wire::encode(message), Bulk::from(bulk));
        self.link.flush();
    }

    fn hear(&self) -> (ToClient, Vec<u8>) {
        match self.seen.recv_timeout(LIMIT).unwrap() {
            Seen::Message(message, bulk) => (message, bulk),
            Seen::Closed(reason) => panic!("closed: {reason}"),
        }
    }

    fn hear_end(&self) {
        loop {
            if let Seen::Closed(_) = self.seen.recv_timeout(LIMIT).unwrap() {
                return;
            }
        }
    }

    /// Asks for something and waits for no answer.
    fn send(&mut self, op: Op) {
        self.last += 1;
        let hold = Hold::default();
        let request = request(self.last, (op, hold));
        self.say(&ToServer::Request(request), Vec::new());
    }

    fn ask(&mut self, op: Op, bulk: Vec<u8>) -> (Outcome, Vec<u8>) {
        self.last += 1;
        let hold = match op {
            Op::Write { .. } | Op::Read { .. } => Hold {
                open: true,
                write: true,
                stamp: self.last,
            },
            _ => Hold::default(),
        };
        let request = request(self.last, (op, hold));
        self.say(&ToServer::Request(request), bulk);
        loop {
            match self.hear() {
                (ToClient::Reply { id, reply, .. }, bulk) if id == self.last => {
                    let Reply { outcome, .. } = reply;
                    return (outcome, bulk);
                }
                (other, _) => println!("passed over: {other:?}"),
            }
        }
    }

    fn make(&mut self, name: &str) -> Fid {
        self.make_in(Fid::root(1), name, Make::File)
    }

    fn make_in(&mut self, dir: Fid, name: &str, make: Make) -> Fid {
        let op = Op::Make {
            dir,
            name: Name::new(name.as_bytes()).unwrap(),
            make,
            mode: 0o755,
            open: None,
        };
        match self.ask(op, Vec::new()).0 {
            Outcome::Entry(entry) => entry.fid,
            other => panic!("{other:?}"),
        }
    }

    fn lookup(&mut self, name: &str) -> Outcome {
        let (dir, name) = (Fid::root(1), Name::new(name.as_bytes()).unwrap());
        self.ask(Op::Lookup { dir, name }, Vec::new()).0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.dialer.stop();
    }
}

#[test]
fn what_was_written_is_read_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).unwrap();
    let (mut peer, welcome) = Peer::greet(server.local_addr(), 7);
    assert_eq!(welcome.root, Fid::root(1));
    let fid = peer.make("file");
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let write = Op::Write {
        fid,
        offset: 0,
        len: bytes.len() as u32,
        mode: WriteMode::At,
    };
    let (outcome, _) = peer.ask(write, bytes.clone());
    assert!(
        matches!(outcome, Outcome::Written { offset: 0, .. }),
        "{outcome:?}"
    );
    assert_eq!(peer.ask(Op::Sync { fid }, Vec::new()).0, Outcome::Done);
    let received = server.status().received;
    assert!(
        received.contains(&("Hello", 1)) && received.contains(&("Write", 1)),
        "{received:?}"
    );
    assert_eq!(server.status().held_bytes, 0, "the bytes were let go");
    peer.say(&ToServer::Goodbye, Vec::new());
    peer.hear_end();
    drop(peer);
    server.stop().unwrap();

    let server = Server::start(options(dir.path())).unwrap();
    let (mut peer, again) = Peer::greet(server.local_addr(), 8);
    assert!(
        again.boot > welcome.boot,
        "a restart is told by a higher epoch"
    );
    let len = bytes.len() as u32;
    let (outcome, read) = peer.ask(
        Op::Read {
            fid,
            offset: 0,
            len,
        },
        Vec::new(),
    );
    assert!(matches!(outcome, Outcome::Read { .. }), "{outcome:?}");
    assert!(read == bytes);
}

#[test]
fn rubbish_ends_its_own_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).unwrap();
    let (mut good, _) = Peer::greet(server.local_addr(), 7);
    good.make("file");
    let rubbish: [(&[u8], usize); 4] = [
        (&[0xff; 40], 0),
        (&[], 0),
        // A message that may come, with bytes beside it that may not.
        (&wire::encode(&ToServer::Goodbye), 1),
        (&wire::encode(&ToServer::Goodbye), (1 << 20) + 1),
    ];
    for (body, beside) in rubbish {
        let bad = Peer::connect(server.local_addr());
        bad.link.send(body.to_vec(), Bulk::from(vec![0; beside]));
        bad.link.flush();
        bad.hear_end();
        assert!(matches!(good.lookup("file"), Outcome::Entry(_)));
    }
    // Before its greeting nobody is served.
    let early = Peer::connect(server.local_addr());
    early.say(&ToServer::Goodbye, Vec::new());
    early.hear_end();
    assert!(matches!(good.lookup("none"), Outcome::Absent { .. }));
}

#[test]
fn a_session_is_ended_by_whoever_knows_that_its_client_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(dir.path())).unwrap();
    let (mut dead, _) = Peer::greet(server.local_addr(), 7);
    dead.make("file");
    let (guard, welcome) = Peer::greet(server.local_addr(), 7);
    assert!(welcome.resumed);
    guard.say(&ToServer::Goodbye, Vec::new());
    guard.hear_end();
    dead.hear_end();
    assert_eq!(server.status().figures.sessions, 0);
    assert_eq!(server.tokens(), []);
}

#[test]
fn an_address_of_other_machines_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let refused = Server::start(ServerOptions {
        listen: vec!["0.0.0.0:0".parse().unwrap()],
        ..options(&data)
    });
    assert!(matches!(refused, Err(StartError::NotLoopback(_))));
    assert!(!data.exists());
}

#[test]
fn a_store_in_use_and_a_port_in_use_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(options(&dir.path().join("a"))).unwrap();
    let refused = Server::start(options(&dir.path().join("a")));
    assert!(matches!(refused, Err(StartError::Store(_))));
    let refused = Server::start(ServerOptions {
        listen: vec![server.local_addr().into()],
        ..options(&dir.path().join("b"))
    });
    assert!(matches!(refused, Err(StartError::Listen { .. })));
    drop(server);
    // Its store was closed again.
    Server::start(options(&dir.path().join("b"))).unwrap();
}

#[test]
fn each_partition_has_an_identity_that_nobody_can_guess() {
    let identity = || {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(options(dir.path())).unwrap();
        server.stop().unwrap();
        // docs/format.md: in the header of each segment.
        let log = std::fs::read(dir.path().join("log-00000001")).unwrap();
        u64::from_le_bytes(log[24..32].try_into().unwrap())
    };
    let (one, other) = (identity(), identity());
    assert!(one != 0 && other != 0 && one != other);
}

/// Clients that come back, beside one that does not.
const LIVING: u64 = 20;
/// A request that nothing is in the way of is answered sooner after a restart.
const SOON: Duration = Duration::from_secs(1);

/// The server with the time for clients to come back that it has in earnest.
fn patient(data: &Path) -> Server {
    let machine = MachineOptions::default();
    let options = ServerOptions {
        machine,
        ..options(data)
    };
    Server::start(options).unwrap()
}

/// It says that it holds these, as its server was started again.
fn come_back(addr: SocketAddr, session: u64, held: &[Fid]) -> Peer {
    let (mut peer, welcome) = Peer::greet(addr, session);
    assert!(welcome.resumed, "the restarted server knows it");
    // Its numbers go on.
    peer.last = 10;
    let holding = |fid: &Fid| Holding {
        fid: *fid,
        right: Right::Shared,
        hold: Hold::default(),
    };
    let reassert = ToServer::Reassert {
        term: welcome.term,
        part: (0, 1),
        again: 0,
        holdings: held.iter().map(holding).collect(),
        unseen: vec![],
        locks: vec![],
    };
    peer.say(&reassert, Vec::new());
    loop {
        if let (ToClient::Reasserted { .. }, _) = peer.hear() {
            return peer;
        }
    }
}

#[test]
fn one_client_that_is_gone_keeps_nobody_waiting_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = patient(data.path());
    let (mut maker, _) = Peer::greet(server.local_addr(), 1);
    let name = |session: u64| format!("of {session}");
    let mut dirs = Vec::new();
    for session in 0..=LIVING + 1 {
        dirs.push(maker.make_in(Fid::root(1), &name(session), Make::Directory));
    }
    maker.say(&ToServer::Goodbye, Vec::new());
    maker.hear_end();
    // Each looks at the root, and makes a file in a directory of its own.
    for session in 0..=LIVING {
        let (mut peer, _) = Peer::greet(server.local_addr(), 100 + session);
        peer.lookup(&name(session));
        peer.make_in(dirs[session as usize], "before", Make::File);
        peer.lookup(&name(session));
    }
    server.stop().unwrap();

    // The first of them is gone.
    let server = patient(data.path());
    let addr = server.local_addr();
    let started = Instant::now();
    let (mut stranger, _) = Peer::greet(addr, 999);
    // Of a directory that nobody uses, so that nobody asks this client to give it back.
    let found = stranger.lookup(&name(LIVING + 1));
    assert!(matches!(found, Outcome::Entry(_)), "{found:?}");
    let took = started.elapsed();
    assert!(
        took < SOON,
        "the first look-up of a new client took {took:?}"
    );
    for session in 1..=LIVING {
        let own = dirs[session as usize];
        let began = Instant::now();
        let mut peer = come_back(addr, 100 + session, &[Fid::root(1), own]);
        peer.make_in(own, "after", Make::File);
        let found = peer.lookup(&name(session));
        assert!(matches!(found, Outcome::Entry(_)), "{found:?}");
        let took = began.elapsed();
        assert!(
            took < SOON,
            "client {session} came back and was served in {took:?}"
        );
    }
    // Objects that the missing client may hold are not changed before its time is over.
    let figures = server.status().figures;
    assert!(figures.grace && figures.held == 0, "{figures:?}");
    let dir = Fid::root(1);
    let spare = name(LIVING + 1);
    let name = Name::new(b"disputed").unwrap();
    let make = Make::File;
    let (mode, open) = (0o644, None);
    let op = Op::Make {
        dir,
        name,
        make,
        mode,
        open,
    };
    stranger.send(op);
    // Answered behind it, as nothing is in the way of this.
    stranger.lookup(&spare);
    assert_eq!(server.status().figures.held, 1);
}
