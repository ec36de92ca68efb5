//! Machines of adjacent versions of the protocol work together, and neither sends the other what it
//! could not read.

use crate::support::disk::MemoryDisk;
use logic::client::{Call, Client, Done, Input, Options, Output, Waits};
use logic::server::{self, Server};
use wire::{
    Caller, Fid, Op, Refusal, Rights, Time, ToClient, ToServer, VERSION, VERSION_OLDEST, Violation,
    VolumeOp, Welcome,
};

const SECOND: Time = 1_000_000_000;
const SESSION: u64 = 77;
const DROP: VolumeOp = VolumeOp::DropReleases {
    volume: 9,
    below: 3,
};

/// A client without a server: its messages and answers are looked at.
struct Alone {
    client: Client,
    now: Time,
}

impl Alone {
    fn new() -> Self {
        let client = Client::new(Options::default(), SESSION, b"host");
        Self {
            client,
            now: SECOND,
        }
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.now += 1;
        self.client.handle(self.now, input, &mut out);
        out
    }

    /// Comes to a server that speaks this version.
    fn comes(&mut self, version: u32, resumed: bool) -> Vec<Output> {
        let said = sent(&self.input(Input::Connected { version }));
        let greeting =
            matches!(&said[..], [ToServer::Hello { version: said, .. }] if *said == version);
        assert!(greeting, "{said:?}");
        let welcome = Welcome {
            boot: 1 << 40,
            term: 1 << 40,
            root: Fid::root(1),
            resumed,
            lease_ns: 30 * SECOND,
            clock: self.now,
            left: Vec::new(),
            rights: Rights::all(),
        };
        let message = Box::new(ToClient::Welcome(welcome));
        let bulk_len = 0;
        self.input(Input::Message { message, bulk_len })
    }

    fn asks(&mut self, op: Op) -> Vec<Output> {
        self.input(Input::Call {
            ticket: 5,
            caller: Caller::default(),
            thread: 0,
            waits: Waits::default(),
            call: Call::Op(op),
        })
    }
}

fn sent(out: &[Output]) -> Vec<ToServer> {
    let message = |one: &Output| match one {
        Output::Send { message, .. } => Some(message.as_ref().clone()),
        _ => None,
    };
    out.iter().filter_map(message).collect()
}

fn requests(out: &[Output]) -> usize {
    let is_request = |message: &ToServer| matches!(message, ToServer::Request(_));
    sent(out).into_iter().filter(is_request).count()
}

fn is_refused(out: &[Output]) -> bool {
    let answer = |one: &Output| match one {
        Output::Done { done, .. } => Some(done.clone()),
        _ => None,
    };
    out.iter().find_map(answer) == Some(Done::Refused(Refusal::OlderServer))
}

#[test]
fn an_older_server_is_never_sent_what_it_cannot_read() {
    let mut old = Alone::new();
    old.comes(VERSION_OLDEST, false);
    let out = old.asks(Op::Volume(DROP));
    assert!(is_refused(&out) && requests(&out) == 0, "{out:?}");
    assert_eq!(requests(&old.asks(Op::Volumes)), 1, "that one it knows");
}

#[test]
fn a_request_under_way_is_refused_when_an_older_server_takes_the_place() {
    let mut client = Alone::new();
    client.comes(VERSION, false);
    assert_eq!(requests(&client.asks(Op::Volume(DROP))), 1);
    client.input(Input::Gone);
    let out = client.comes(VERSION, true);
    assert_eq!(requests(&out), 1, "the same version gets it again: {out:?}");
    client.input(Input::Gone);
    let out = client.comes(VERSION_OLDEST, true);
    assert!(is_refused(&out) && requests(&out) == 0, "{out:?}");
}

/// How the server takes a greeting of this version.
fn greeted(version: u32, mut disk: MemoryDisk) -> Result<(), Option<Violation>> {
    let root = (1 << 40, Fid::root(1));
    let mut server = Server::new(server::Options::default(), 0, root, (Vec::new(), 0));
    let (conn, machine, rights) = (1, 1, Rights::all());
    let message = ToServer::Hello {
        version,
        session: SESSION,
        name: b"host".to_vec(),
        volume: Vec::new(),
    };
    let mut out = Vec::new();
    for input in [
        server::Input::Came {
            conn,
            machine,
            rights,
        },
        server::Input::Message {
            from: conn,
            message,
            bulk: 0,
            bulk_len: 0,
        },
    ] {
        server.handle(SECOND, input, &mut disk, &mut out);
    }
    let end = out.iter().find_map(|one| match one {
        server::Output::Close { violation, .. } => Some(Err(*violation)),
        server::Output::Send {
            message: ToClient::Welcome(_),
            ..
        } => Some(Ok(())),
        _ => None,
    });
    end.expect("a greeting is answered")
}

#[test]
fn a_server_takes_this_version_and_the_one_before() {
    for version in VERSION_OLDEST..=VERSION {
        assert_eq!(greeted(version, MemoryDisk::new()), Ok(()));
    }
    for version in [0, VERSION_OLDEST - 1, VERSION + 1] {
        let refused = Err(Some(Violation::Version));
        assert_eq!(greeted(version, MemoryDisk::new()), refused, "{version}");
    }
}

#[test]
fn a_client_without_replicas_is_refused_where_one_is() {
    let refused = Err(Some(Violation::NoReplicas));
    for (version, expected) in [(VERSION_OLDEST, refused), (VERSION, Ok(()))] {
        let mut disk = MemoryDisk::new();
        disk.add_replica();
        assert_eq!(greeted(version, disk), expected, "{version}");
    }
}
