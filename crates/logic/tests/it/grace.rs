//! The time after a restart: a client that is still saying what it holds is not fenced, and is
//! asked for it; requests that wait for others are bounded, and are not begun in one step.

use crate::support::disk::MemoryDisk;
use logic::server::{Event, Input, Options, Output, Server};
use wire::{
    Fid, HeldLock, Hold, Holding, Lock, LockMode, LockOwner, Make, Name, Op, Recall, Request,
    Returned, Right, SessionId, Time, ToClient, ToServer, VERSION, VolumeOp, WriteMode,
};

const SECOND: Time = 1_000_000_000;
const BOOT: u64 = 1 << 40;
const SLOW: SessionId = 1;
const GONE: SessionId = 2;
const OTHER: SessionId = 3;

struct Cell {
    server: Server,
    disk: MemoryDisk,
}

impl Cell {
    /// A server that was started again, and knows these sessions but not what they hold.
    fn restarted(known: &[SessionId]) -> Self {
        let place = (BOOT, Fid::root(1));
        Self {
            server: Server::new(Options::default(), 0, place, (known.to_vec(), 0)),
            disk: MemoryDisk::new(),
        }
    }

    fn input(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.server.handle(now, input, &mut self.disk, &mut out);
        out
    }

    fn says(&mut self, now: Time, session: SessionId, message: ToServer, len: u32) -> Vec<Output> {
        let bulk = match len {
            0 => 0,
            len => self.disk.hold(vec![7; len as usize]),
        };
        let input = Input::Message {
            from: session,
            message,
            bulk,
            bulk_len: len,
        };
        self.input(now, input)
    }

    fn greets(&mut self, now: Time, session: SessionId) {
        self.greets_at(now, session, b"");
    }

    fn greets_at(&mut self, now: Time, session: SessionId, volume: &[u8]) {
        let hello = ToServer::Hello {
            version: VERSION,
            session,
            name: b"host".to_vec(),
            volume: volume.to_vec(),
        };
        self.says(now, session, hello, 0);
    }

    /// The same server, where the last run has noted that nobody holds anything: a request that is
    /// in the way of nobody is done at once.
    fn restarted_knowing(known: &[SessionId]) -> Self {
        let Self { server, disk } = Self::restarted(known);
        let server = server.knowing(Some(vec![]));
        Self { server, disk }
    }

    /// One of three parts of what the slow one holds.
    fn holds(&mut self, now: Time, part: u32) -> Vec<Output> {
        let holding = Holding {
            fid: Fid::root(1),
            right: Right::Shared,
            hold: Hold::default(),
        };
        let reassert = ToServer::Reassert {
            term: BOOT,
            part: (part, 3),
            again: 0,
            holdings: vec![holding],
            unseen: vec![],
            locks: vec![],
        };
        self.says(now, SLOW, reassert, 0)
    }
}

/// The recall that this client is sent.
fn recalled(out: &[Output], session: SessionId) -> Option<Recall> {
    out.iter().find_map(|output| match output {
        Output::Send {
            to,
            message: ToClient::Recall(recall),
            ..
        } if *to == session => Some(recall.clone()),
        _ => None,
    })
}

fn fenced(out: &[Output]) -> Vec<SessionId> {
    let session = |output: &Output| match output {
        Output::Event(Event::Fenced { session } | Event::Away { session, .. }) => Some(*session),
        _ => None,
    };
    out.iter().filter_map(session).collect()
}

#[test]
fn a_client_whose_parts_still_arrive_is_not_fenced_with_those_that_have_not_come() {
    let mut cell = Cell::restarted(&[SLOW, GONE]);
    cell.greets(10 * SECOND, SLOW);
    cell.holds(15 * SECOND, 0);
    assert_eq!(fenced(&cell.input(20 * SECOND, Input::Tick)), [GONE]);
    cell.holds(34 * SECOND, 1);
    assert_eq!(fenced(&cell.input(36 * SECOND, Input::Tick)), []);
    let out = cell.holds(50 * SECOND, 2);
    let told = |output: &Output| {
        let Output::Send { message, .. } = output else {
            return false;
        };
        matches!(message, ToClient::Reasserted { taken, .. } if taken.is_empty())
    };
    assert!(out.iter().any(told), "{out:?}");
    assert!(!cell.server.in_grace());
}

#[test]
fn a_client_that_says_no_more_than_a_part_is_fenced_in_the_end() {
    let mut cell = Cell::restarted(&[SLOW]);
    cell.greets(SECOND, SLOW);
    cell.holds(19 * SECOND, 0);
    assert_eq!(fenced(&cell.input(21 * SECOND, Input::Tick)), []);
    cell.holds(30 * SECOND, 0);
    assert_eq!(fenced(&cell.input(40 * SECOND, Input::Tick)), [SLOW]);
    assert!(!cell.server.in_grace());
}

/// The same holding in two parts: the answer to what was asked between them is waited for.
#[test]
fn what_a_client_was_asked_for_between_two_of_its_parts_stays_asked() {
    let mut cell = Cell::restarted_knowing(&[SLOW, OTHER]);
    cell.greets(SECOND, SLOW);
    cell.holds(SECOND, 0);
    cell.greets(SECOND, OTHER);
    let nothing = ToServer::Reassert {
        term: BOOT,
        part: (0, 1),
        again: 0,
        holdings: vec![],
        unseen: vec![],
        locks: vec![],
    };
    cell.says(SECOND, OTHER, nothing, 0);
    let make = Op::Make {
        dir: Fid::root(1),
        name: Name::new(b"f").unwrap(),
        make: Make::Directory,
        mode: 0o755,
        open: None,
    };
    let out = cell.says(SECOND, OTHER, request(1, make), 0);
    let recall = recalled(&out, SLOW).expect("who has the name in its caches is asked");
    cell.holds(SECOND, 1);
    let returned = ToServer::Returned(Returned {
        fid: recall.fid,
        epoch: recall.epoch,
        right: Right::Shared,
        upto: recall.epoch,
        hold: Hold {
            stamp: 1,
            ..Hold::default()
        },
        attr: None,
    });
    let out = cell.says(2 * SECOND, SLOW, returned, 0);
    let done = |output: &Output| {
        let Output::Send { to, message, .. } = output else {
            return false;
        };
        *to == OTHER && matches!(message, ToClient::Reply { id: 1, .. })
    };
    assert!(out.iter().any(done), "{out:?}");
}

fn write(id: u64) -> ToServer {
    let op = Op::Write {
        fid: Fid::root(1),
        offset: 0,
        len: 16,
        mode: WriteMode::At,
    };
    request(id, op)
}

fn request(id: u64, op: Op) -> ToServer {
    ToServer::Request(Request {
        acked: 1,
        ..Request::new(id, op)
    })
}

/// A request that finds no room is let go, and sent again when the connection has been ended.
#[test]
fn what_waits_for_others_is_bounded_and_begun_in_pieces() {
    let mut cell = Cell::restarted(&[GONE]);
    cell.greets(SECOND, OTHER);
    for id in 1..=300 {
        cell.says(2 * SECOND, OTHER, write(id), 16);
    }
    let held = cell.server.figures().held;
    assert!((200..300).contains(&held), "{held} requests wait");
    let mut out = cell.input(20 * SECOND, Input::Tick);
    assert_eq!(fenced(&out), [GONE]);
    let closed = |output: &Output| matches!(output, Output::Close { conn: OTHER, .. });
    assert!(out.iter().any(closed), "what had no room is said again");
    while cell.server.deadline().is_some_and(|due| due <= 20 * SECOND) {
        out.extend(cell.input(20 * SECOND, Input::Tick));
    }
    assert_eq!(cell.server.figures().held, 0);
}

/// Its claims are sent again, since the connection broke; meanwhile it has given up a lock.
#[test]
fn what_a_client_gave_up_between_two_repetitions_is_not_said_to_be_lost() {
    let mut cell = Cell::restarted(&[SLOW]);
    cell.greets(SECOND, SLOW);
    let lock = |owner: u64, first: u64| Lock {
        owner: LockOwner::Bytes(owner),
        mode: LockMode::Exclusive,
        first,
        last: first,
        pid: 1,
    };
    let (fid, given_up, kept) = (Fid::root(1), lock(1, 1), lock(2, 2));
    let held = |lock| HeldLock { fid, lock };
    let reassert = ToServer::Reassert {
        term: BOOT,
        part: (0, 1),
        again: 0,
        holdings: vec![],
        unseen: vec![],
        locks: vec![held(given_up), held(kept)],
    };
    let unlocked = |out: &[Output]| {
        out.iter().find_map(|output| match output {
            Output::Send {
                message: ToClient::Reasserted { unlocked, .. },
                ..
            } => Some(unlocked.clone()),
            _ => None,
        })
    };
    let out = cell.says(SECOND, SLOW, reassert.clone(), 0);
    assert_eq!(unlocked(&out), Some(vec![]));
    let unlock = Op::Unlock {
        fid,
        owner: given_up.owner,
        first: 0,
        last: u64::MAX,
    };
    cell.says(SECOND, SLOW, request(1, unlock), 0);
    let out = cell.says(SECOND, SLOW, reassert, 0);
    assert_eq!(unlocked(&out), Some(vec![]));
    assert_eq!(cell.server.figures().locks, 1, "the other one is held");
}

/// The machine of a server with a replica has lost its power, and nobody knows what the clients of
/// the last run hold.
#[test]
fn readers_of_a_replica_do_not_wait_for_clients_of_the_last_run() {
    let mut cell = Cell::restarted(&[GONE]);
    let replica = Fid::root(cell.disk.add_replica());
    cell.greets_at(SECOND, OTHER, b"home.readonly");
    cell.greets(SECOND, SLOW);
    let dir = replica;
    let answered = |out: &[Output]| {
        out.iter().any(|output| {
            let Output::Send { message, .. } = output else {
                return false;
            };
            matches!(message, ToClient::Reply { .. })
        })
    };
    let mut asks = |session, id, op| answered(&cell.says(2 * SECOND, session, request(id, op), 0));
    let listed = Op::ReadDir {
        dir,
        after: 0,
        max: 10,
    };
    assert!(asks(OTHER, 1, Op::GetAttr { fid: replica }));
    assert!(asks(OTHER, 2, listed));
    assert!(asks(OTHER, 3, Op::StatFs));
    // A volume that may have changed, a change, and a session that is not the replica's.
    let name = || Name::new(b"n").expect("a name");
    let make = Op::Make {
        dir,
        name: name(),
        make: Make::File,
        mode: 0o644,
        open: None,
    };
    assert!(!asks(OTHER, 4, Op::GetAttr { fid: Fid::root(1) }));
    assert!(!asks(OTHER, 5, make));
    assert!(!asks(SLOW, 1, Op::GetAttr { fid: Fid::root(1) }));
    assert!(!asks(SLOW, 2, Op::StatFs));
    let volume = VolumeOp::Publish { volume: 77 };
    assert!(!asks(SLOW, 3, Op::Volume(volume)));
    assert_eq!(cell.server.figures().held, 5);
}
