//! A client as its front and its server see it, with a server that says what the test wants.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

use ariel_client::front::{Call, Completion, Done, Front, Invalidate, MachineOptions};
use ariel_client::{Client, ClientError, ClientOptions, Server, close_session};
use net::{
    Bulk, CloseReason, Entrance, Events, Link, LinkId, ListenOptions, Listener, Passage, Speaks,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wire::{
    Attr, Caller, Fid, Kind, Name, Op, Outcome, Refusal, Reply, Request, Rights, ToClient,
    ToServer, Welcome,
};

/// Longer than anything takes that does not hang.
const LIMIT: Duration = Duration::from_secs(20);

type Answer = dyn Fn(&ToServer) -> Vec<(ToClient, Vec<u8>)> + Send + Sync;

/// A server that answers as the test says.
struct Scripted {
    answer: Box<Answer>,
    opened: AtomicU32,
    heard: Mutex<Vec<ToServer>>,
}

impl Events for Scripted {
    fn opened(&self, _: &Arc<Link>) {
        self.opened.fetch_add(1, Ordering::SeqCst);
    }

    fn frame(&self, link: &Arc<Link>, body: &[u8], _: Vec<u8>) {
        let message: ToServer = wire::decode(body).unwrap();
        for (message, bulk) in (self.answer)(&message) {
            link.send(wire::encode(&message), Bulk::from(bulk));
        }
        link.flush();
        self.heard.lock().unwrap().push(message);
    }

    fn closed(&self, _: LinkId, _: &CloseReason) {}
}

fn scripted(answer: Box<Answer>) -> (Listener, Arc<Scripted>) {
    let scripted = Arc::new(Scripted {
        answer,
        opened: AtomicU32::new(0),
        heard: Mutex::new(Vec::new()),
    });
    let addr = "127.0.0.1:0".parse().unwrap();
    let options = ListenOptions {
        entrance: Entrance::InsecureLoopback,
        speaks: Speaks {
            oldest: wire::VERSION,
            newest: wire::VERSION,
            program: "test".into(),
        },
        silence: LIMIT,
    };
    (
        Listener::bind(&[addr], options, scripted.clone()).unwrap(),
        scripted,
    )
}

fn welcome() -> ToClient {
    ToClient::Welcome(Welcome {
        boot: 1 << 40,
        term: 1 << 40,
        root: Fid::root(1),
        resumed: false,
        lease_ns: 20_000_000_000,
        clock: 0,
        left: vec![],
        rights: Rights::all(),
    })
}

fn attr(kind: Kind) -> Attr {
    Attr {
        nlink: 1,
        size: 5,
        used_bytes: 4096,
        ..Attr::new(kind, 0o755, 0)
    }
}

/// Answers greetings, and operations as `outcome` says.
fn serving(
    outcome: impl Fn(&Op) -> Option<(Outcome, Vec<u8>)> + Send + Sync + 'static,
) -> Box<Answer> {
    Box::new(move |message| match message {
        ToServer::Hello { .. } => vec![(welcome(), Vec::new())],
        ToServer::Request(Request { id, op, .. }) => {
            let reply = |(outcome, bulk)| {
                let reply = Reply::from(outcome);
                (
                    ToClient::Reply {
                        id: *id,
                        reply,
                        clock: 0,
                        renews: true,
                        stable: 0,
                    },
                    bulk,
                )
            };
            outcome(op).map(reply).into_iter().collect()
        }
        ToServer::KeepAlive { sent, .. } => {
            let (sent, clock) = (*sent, 0);
            vec![(
                ToClient::Alive {
                    sent,
                    clock,
                    stable: 0,
                },
                Vec::new(),
            )]
        }
        _ => Vec::new(),
    })
}

struct NoFront;

impl Front for NoFront {
    fn look(&self, _: Vec<ariel_client::front::Waiting>) {}

    fn invalidate(&self, _: u64, _: Invalidate) {}

    fn outdated(&self, _: wire::Fid) {}

    fn released(&self) {}

    fn settle(&self) {}
}

fn at(server: SocketAddr) -> Server {
    Server {
        addresses: server.into(),
        passage: Passage::InsecureLoopback,
    }
}

fn start(server: SocketAddr) -> Client {
    let options = ClientOptions {
        finder: None,
        server: at(server),
        machine: MachineOptions {
            slots: 16,
            ..MachineOptions::default()
        },
        memory: None,
        name: "test".to_owned(),
    };
    Client::start(options, Arc::new(NoFront)).unwrap()
}

fn call(client: &Client, call: Call) -> Receiver<Completion> {
    let (send, receive) = mpsc::channel();
    let reply = Box::new(move |completion| drop(send.send(completion)));
    client.call(Caller::default(), call, &[], reply);
    receive
}

fn lookup(name: &str) -> Call {
    let (dir, name) = (Fid::root(1), Name::new(name.as_bytes()).unwrap());
    Call::Op(Op::Lookup { dir, name })
}

#[test]
fn without_a_server_it_is_said_where_and_what_to_do() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = nobody.local_addr().unwrap();
    drop(nobody);
    let client = start(addr);
    let error = client.wait_ready(Duration::from_millis(300)).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains(&addr.to_string()) && told.contains("ariel serve"),
        "{told}"
    );
    client.stop();
}

#[test]
fn a_server_that_opens_no_session_is_named_too() {
    let (listener, _) = scripted(Box::new(|_| Vec::new()));
    let client = start(listener.local_addr());
    let error = client.wait_ready(Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, ClientError::NoSession { .. }), "{error}");
    client.stop();
}

#[test]
fn calls_are_answered_and_counted() {
    let (listener, _) = scripted(serving(|op| match op {
        Op::Lookup { .. } => Some((
            Outcome::Absent {
                dir: attr(Kind::Directory),
            },
            Vec::new(),
        )),
        _ => None,
    }));
    let client = start(listener.local_addr());
    assert_eq!(client.wait_ready(LIMIT).unwrap(), Fid::root(1));
    assert_eq!(client.root(), Fid::root(1));
    let done = call(&client, lookup("none"))
        .recv_timeout(LIMIT)
        .unwrap()
        .done;
    assert!(matches!(done, Done::Absent { .. }), "{done:?}");
    let counters = client.counters();
    assert!(counters.sent.contains(&("Hello", 1)), "{counters:?}");
    assert!(counters.sent.contains(&("Lookup", 1)), "{counters:?}");
    assert!(counters.received.contains(&("Reply", 1)), "{counters:?}");
    assert!(client.figures().connected);
    client.stop();
}

#[test]
fn an_answer_may_make_further_calls_without_end() {
    let (listener, _) = scripted(serving(|_| {
        Some((Outcome::Refused(Refusal::NotFound), Vec::new()))
    }));
    let client = Arc::new(start(listener.local_addr()));
    client.wait_ready(LIMIT).unwrap();
    let (send, receive) = mpsc::channel();
    chain(&client, 10_000, send);
    receive.recv_timeout(LIMIT).unwrap();
    client.stop();
}

/// One call, and in its answer the next.
fn chain(client: &Arc<Client>, left: u32, end: mpsc::Sender<()>) {
    if left == 0 {
        return end.send(()).unwrap();
    }
    let again = Arc::downgrade(client);
    let reply = move |_: Completion| {
        if let Some(client) = again.upgrade() {
            chain(&client, left - 1, end);
        }
    };
    client.call(Caller::default(), lookup("x"), &[], Box::new(reply));
}

#[test]
fn rubbish_from_the_server_ends_the_connection_and_another_is_made() {
    let first = AtomicU32::new(0);
    let (listener, scripted) = scripted(Box::new(move |message| match message {
        ToServer::Hello { .. } if first.fetch_add(1, Ordering::SeqCst) == 0 => {
            // More bytes beside it than the bound allows.
            vec![(welcome(), vec![0; (1 << 20) + 1])]
        }
        ToServer::Hello { .. } => vec![(welcome(), Vec::new())],
        _ => Vec::new(),
    }));
    let client = start(listener.local_addr());
    client.wait_ready(LIMIT).unwrap();
    assert_eq!(scripted.opened.load(Ordering::SeqCst), 2);
    assert_eq!(client.counters().connections, 2);
    client.stop();
}

#[test]
fn what_is_not_answered_before_the_end_is_dropped_and_later_calls_are_refused() {
    let (listener, _) = scripted(serving(|_| None));
    let client = start(listener.local_addr());
    client.wait_ready(LIMIT).unwrap();
    let waiting = call(&client, lookup("x"));
    client.stop();
    assert!(waiting.recv_timeout(LIMIT).is_err(), "its callback is gone");
    let refused = call(&client, lookup("x")).recv_timeout(LIMIT).unwrap();
    assert_eq!(refused.done, Done::Refused(Refusal::SessionLost));
}

#[test]
fn a_killed_client_is_buried_with_its_own_name() {
    let (listener, scripted) = scripted(serving(|_| None));
    let server = listener.local_addr();
    // This server does not end the connection after a goodbye, so it is not known to have heard.
    let unheard = close_session(at(server), 77, Duration::from_millis(300));
    assert!(matches!(unheard, Err(ClientError::NoSession { .. })));
    listener.stop();
    let heard = scripted.heard.lock().unwrap();
    assert!(
        matches!(
            &heard[..],
            [ToServer::Hello { session: 77, .. }, ToServer::Goodbye]
        ),
        "{heard:?}"
    );
}
