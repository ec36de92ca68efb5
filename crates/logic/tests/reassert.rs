//! What a restarted server is told by clients of which one does not say the truth: rights that
//! exclude each other. Who came first is believed; the other one's lease is not renewed, and it is
//! fenced when it is over.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

extern crate ariel_logic as logic;

#[allow(dead_code)]
#[path = "support/disk.rs"]
mod disk;

use disk::MemoryDisk;
use logic::server::{Conn, Event, Input, Options, Output, Server};
use wire::{Fid, Hold, Holding, Right, SessionId, Time, ToClient, ToServer, VERSION};

const SECOND: Time = 1_000_000_000;
const BOOT: u64 = 1 << 40;
const FIRST: SessionId = 1;
const SECOND_ONE: SessionId = 2;

struct Cell {
    server: Server,
    disk: MemoryDisk,
}

impl Cell {
    /// A server that has just been started again and knows both sessions.
    fn new() -> Self {
        let (options, known) = (Options::default(), vec![FIRST, SECOND_ONE]);
        Self {
            server: Server::new(options, 0, BOOT, Fid::root(1), known),
            disk: MemoryDisk::new(),
        }
    }

    fn input(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.server.handle(now, input, &mut self.disk, &mut out);
        out
    }

    fn says(&mut self, now: Time, from: Conn, message: ToServer) -> Vec<Output> {
        let (bulk, bulk_len) = (0, 0);
        self.input(
            now,
            Input::Message {
                from,
                message,
                bulk,
                bulk_len,
            },
        )
    }

    /// It greets, and says that it holds this right on the root.
    fn comes(&mut self, now: Time, session: SessionId, rights: &[Right]) -> Vec<Output> {
        let name = b"host".to_vec();
        let hello = ToServer::Hello {
            version: VERSION,
            session,
            name,
        };
        let mut out = self.says(now, session, hello);
        for (part, &right) in rights.iter().enumerate() {
            out.extend(self.holds(now, session, right, (part as u32, rights.len() as u32)));
        }
        out
    }

    fn holds(
        &mut self,
        now: Time,
        session: SessionId,
        right: Right,
        part: (u32, u32),
    ) -> Vec<Output> {
        let holding = Holding {
            fid: Fid::root(1),
            right,
            hold: Hold::default(),
        };
        let (holdings, unseen) = (vec![holding], vec![]);
        let message = ToServer::Reassert {
            boot: BOOT,
            part,
            holdings,
            unseen,
        };
        self.says(now, session, message)
    }
}

fn is_believed(out: &[Output]) -> bool {
    let told = |output: &Output| {
        let Output::Send { message, .. } = output else {
            return false;
        };
        *message == ToClient::Reasserted { boot: BOOT }
    };
    out.iter().any(told)
}

fn fenced(out: &[Output]) -> Vec<SessionId> {
    let session = |output: &Output| match output {
        Output::Event(Event::Fenced { session }) => Some(*session),
        _ => None,
    };
    out.iter().filter_map(session).collect()
}

fn holder(cell: &Cell) -> Vec<(SessionId, Right)> {
    let tokens = cell.server.tokens();
    tokens
        .iter()
        .map(|token| (token.session, token.right))
        .collect()
}

#[test]
fn who_reasserts_first_is_believed_and_the_other_one_is_fenced_when_its_lease_is_over() {
    for (one, other) in [
        (Right::Exclusive, Right::Shared),
        (Right::Shared, Right::Exclusive),
        (Right::Exclusive, Right::Exclusive),
        (Right::Transient, Right::Exclusive),
    ] {
        let mut cell = Cell::new();
        assert!(is_believed(&cell.comes(SECOND, FIRST, &[one])));
        let out = cell.comes(2 * SECOND, SECOND_ONE, &[other]);
        assert!(!is_believed(&out), "{one:?} {other:?}");
        // Said again, it is no truer; and its lease has not ended, so it is not fenced yet.
        let out = cell.holds(3 * SECOND, SECOND_ONE, other, (0, 1));
        assert!(!is_believed(&out), "{one:?} {other:?}");
        assert_eq!(fenced(&out), []);
        assert!(cell.server.figures().grace);
        let out = cell.input(20 * SECOND, Input::Tick);
        assert_eq!(fenced(&out), [SECOND_ONE], "{one:?} {other:?}");
        assert_eq!(holder(&cell), [(FIRST, one)]);
    }
}

#[test]
fn rights_that_go_together_are_both_believed() {
    for (one, other) in [
        (Right::Shared, Right::Shared),
        (Right::Shared, Right::Transient),
        (Right::Exclusive, Right::None),
    ] {
        let mut cell = Cell::new();
        assert!(is_believed(&cell.comes(SECOND, FIRST, &[one])));
        assert!(is_believed(&cell.comes(SECOND, SECOND_ONE, &[other])));
        assert!(!cell.server.figures().grace, "{one:?} {other:?}");
    }
}

#[test]
fn what_a_refused_client_said_in_other_parts_is_void_once_it_is_fenced() {
    let mut cell = Cell::new();
    let out = cell.comes(SECOND, SECOND_ONE, &[Right::Shared]);
    assert!(is_believed(&out));
    let out = cell.comes(SECOND, FIRST, &[Right::Shared, Right::Exclusive]);
    assert!(!is_believed(&out));
    let out = cell.input(20 * SECOND, Input::Tick);
    assert_eq!(fenced(&out), [FIRST]);
    assert_eq!(holder(&cell), [(SECOND_ONE, Right::Shared)]);
}
