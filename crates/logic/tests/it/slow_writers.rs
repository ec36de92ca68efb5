//! A client that is asked for a file and has much to write back over a slow network is waited for
//! while its bytes come, and no longer than they pay for.

use crate::support::disk::MemoryDisk;
use logic::server::{Event, Input, Options, Output, Server};
use wire::{
    Access, Epoch, Fid, Hold, Make, Name, Op, Request, Returned, Right, SessionId, Time, ToClient,
    ToServer, VERSION, VERSION_OF_STALLED, WriteMode,
};

const SECOND: Time = 1_000_000_000;
const BOOT: u64 = 1 << 40;
const WRITER: SessionId = 1;
const READER: SessionId = 2;
/// The first that is made.
const FILE: Fid = Fid {
    volume: 1,
    vnode: 2,
    uniq: 1,
};

struct Cell {
    server: Server,
    disk: MemoryDisk,
    now: Time,
    /// The last question to the writer.
    asked: Epoch,
}

impl Cell {
    /// The writer has made a file and has it for itself; the reader asks for it.
    fn with_reader() -> Self {
        let place = (BOOT, Fid::root(1));
        let mut cell = Self {
            server: Server::new(Options::default(), 0, place, (vec![], 0)),
            disk: MemoryDisk::new(),
            now: SECOND,
            asked: 0,
        };
        for session in [WRITER, READER] {
            cell.says(session, greeting(session, VERSION));
        }
        let access = Access {
            read: true,
            write: true,
        };
        let make = Op::Make {
            dir: Fid::root(1),
            name: Name::new(b"f").expect("it is a name"),
            make: Make::File,
            mode: 0o644,
            open: Some(access),
        };
        cell.says(WRITER, ToServer::Request(Request::new(1, make)));
        let open = Op::Open { fid: FILE, access };
        cell.says(READER, ToServer::Request(Request::new(1, open)));
        cell
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.server
            .handle(self.now, input, &mut self.disk, &mut out);
        for output in &out {
            if let Output::Send { message, .. } = output
                && let ToClient::Recall(recall) = message
            {
                self.asked = recall.epoch;
            }
        }
        out
    }

    fn says(&mut self, session: SessionId, message: ToServer) -> Vec<Output> {
        let bulk_len = match &message {
            ToServer::Request(Request {
                op: Op::Write { len, .. },
                ..
            }) => *len,
            _ => 0,
        };
        let bulk = match bulk_len {
            0 => 0,
            len => self.disk.hold(vec![7; len as usize]),
        };
        let from = session;
        self.input(Input::Message {
            from,
            message,
            bulk,
            bulk_len,
        })
    }

    /// The writer says that it keeps no more of the file than this. (The reader, which wants it for
    /// writing, asks once more if that is too much.)
    fn answers(&mut self, right: Right) -> Vec<Output> {
        let epoch = self.asked;
        let returned = Returned {
            fid: FILE,
            epoch,
            right,
            upto: epoch,
            hold: Hold::default(),
            attr: None,
        };
        self.says(WRITER, ToServer::Returned(returned))
    }

    /// The writer goes on for so long, with so many bytes each four seconds. When the server takes
    /// the file from it.
    fn taken_at(&mut self, bytes: u32, seconds: u64) -> Option<Time> {
        let began = self.now / SECOND;
        for second in began + 1..began + seconds {
            self.now = second * SECOND;
            let mut out = self.input(Input::Tick);
            let (sent, acked) = (self.now, 0);
            out.extend(self.says(WRITER, ToServer::KeepAlive { sent, acked }));
            if bytes > 0 && second % 4 == 0 {
                let back = write_back(second, bytes);
                out.extend(self.says(WRITER, ToServer::Request(back)));
            }
            let taken = |output: &Output| matches!(output, Output::Event(Event::Taken { .. }));
            if out.iter().any(taken) {
                return Some(self.now);
            }
            let answered = |output: &Output| {
                matches!(output, Output::Send { to, message: ToClient::Reply { .. }, .. }
                    if *to == READER)
            };
            assert!(!out.iter().any(answered), "the reader passes the writer");
        }
        None
    }
}

fn greeting(session: SessionId, version: u32) -> ToServer {
    ToServer::Hello {
        version,
        session,
        name: b"host".to_vec(),
        volume: Vec::new(),
    }
}

fn write_back(id: u64, len: u32) -> Request {
    let mode = WriteMode::Back {
        size: u64::from(len),
        mtime: 1,
        ctime: 1,
    };
    Request::new(
        id,
        Op::Write {
            fid: FILE,
            offset: 0,
            len,
            mode,
        },
    )
}

#[test]
fn a_writer_whose_bytes_come_is_waited_for() {
    // Just as many as are asked for.
    assert_eq!(Cell::with_reader().taken_at(1 << 20, 600), None);
}

#[test]
fn a_writer_whose_bytes_trickle_is_waited_for_as_long_as_one_that_is_silent() {
    let options = Options::default();
    let most = options.recall_ns + options.lease_ns + 2 * options.resend_ns + 2 * SECOND;
    let taken = Cell::with_reader().taken_at(4096, 200);
    let taken = taken.expect("the file is not taken from it");
    assert!(taken <= most, "{taken} ns");
}

/// Time that was paid for with bytes is not counted against the next question.
#[test]
fn a_writer_that_was_slow_is_waited_for_as_long_as_any_when_it_is_asked_again() {
    let options = Options::default();
    let mut cell = Cell::with_reader();
    assert_eq!(cell.taken_at(1 << 20, 600), None);
    let answered = cell.now;
    cell.answers(Right::Shared);
    let taken = cell.taken_at(0, 200).expect("it answers no more");
    let waited = taken - answered;
    let least = options.recall_ns;
    let most = options.recall_ns + options.lease_ns + 2 * options.resend_ns + 2 * SECOND;
    assert!((least..=most).contains(&waited), "{waited} ns");
}

/// Bytes that come faster earn no time for later.
#[test]
fn a_writer_whose_bytes_came_fast_and_end_is_waited_for_no_longer() {
    let options = Options::default();
    let mut cell = Cell::with_reader();
    for id in 100..200 {
        cell.says(WRITER, ToServer::Request(write_back(id, 1 << 20)));
    }
    let ended = cell.now;
    let taken = cell.taken_at(0, 200).expect("nothing more comes");
    let waited = taken - ended;
    let most = options.recall_ns + options.lease_ns + 2 * options.resend_ns + 2 * SECOND;
    assert!(waited <= most, "{waited} ns");
}

/// World 132436061: an answer to a read granted the writer the file once more meanwhile, and it
/// was asked for it once more.
#[test]
fn a_writer_that_is_asked_once_more_keeps_the_time_that_its_bytes_have_earned() {
    let mut cell = Cell::with_reader();
    assert_eq!(cell.taken_at(1 << 20, 600), None);
    let (fid, offset, len) = (FILE, 0, 4096);
    let read = Op::Read { fid, offset, len };
    let read = Request {
        keeps: true,
        ..Request::new(700, read)
    };
    cell.says(WRITER, ToServer::Request(read));
    let asked = cell.asked;
    let hold = Hold {
        stamp: 1,
        ..Hold::default()
    };
    cell.says(WRITER, ToServer::Opens { fid, hold });
    assert!(cell.asked > asked, "the writer is asked nothing new");
    assert_eq!(cell.taken_at(1 << 20, 600), None);
}

/// The leases of all welcomes among these.
fn leases(out: &[Output]) -> Vec<Time> {
    let lease = |output: &Output| {
        let Output::Send { message, .. } = output else {
            return None;
        };
        match message {
            ToClient::Welcome(welcome) => Some(welcome.lease_ns),
            _ => None,
        }
    };
    out.iter().filter_map(lease).collect()
}

/// An older client would take its welcome for a renewal.
#[test]
fn a_stalled_writer_is_welcome_before_it_answers_if_it_knows_that_this_renews_nothing() {
    let lease_ns = Options::default().lease_ns;
    for (version, first, later) in [
        (VERSION_OF_STALLED - 1, vec![], vec![lease_ns]),
        (VERSION_OF_STALLED, vec![0], vec![]),
    ] {
        let mut cell = Cell::with_reader();
        let seconds = Options::default().recall_ns / SECOND + 8;
        assert_eq!(cell.taken_at(0, seconds), None);
        let welcomes = cell.says(WRITER, greeting(WRITER, version));
        assert_eq!(leases(&welcomes), first, "version {version}");
        let answered = cell.answers(Right::None);
        assert_eq!(leases(&answered), later, "version {version}");
    }
}
