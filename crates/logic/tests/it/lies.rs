//! Clients that do not say the truth. A restarted server is told of rights that exclude each other:
//! the first to come is believed; the other one's lease is not renewed, and it is fenced when it is
//! over. And a client that answers every recall, but never gives what was asked for, is fenced as
//! one that does not answer: others wait no longer for it.

use crate::support::disk::MemoryDisk;
use logic::server::{Conn, Event, Input, Options, Output, Server};
use wire::{
    Access, Fid, Hold, Holding, Make, Name, Op, Recall, Request, Returned, Right, SessionId, Set,
    Time, ToClient, ToServer, VERSION,
};

const SECOND: Time = 1_000_000_000;
const BOOT: u64 = 1 << 40;
const FIRST: SessionId = 1;
const SECOND_ONE: SessionId = 2;

struct Cell {
    server: Server,
    disk: MemoryDisk,
    /// The object that both say they hold.
    held: Fid,
}

impl Cell {
    /// A server that has just been started again and knows both sessions.
    fn new() -> Self {
        Self::knows(vec![FIRST, SECOND_ONE])
    }

    fn knows(known: Vec<SessionId>) -> Self {
        let options = Options::default();
        Self {
            server: Server::new(options, 0, (BOOT, Fid::root(1)), (known, 0)),
            disk: MemoryDisk::new(),
            held: Fid::root(1),
        }
    }

    /// The same, where both say that they hold a file.
    fn with_file() -> Self {
        let mut cell = Self::new();
        let name = Name::new(b"f").unwrap();
        cell.disk.put(0, (Fid::root(1), &name), vec![]);
        cell.held = cell.disk.labelled("f").unwrap();
        cell
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

    fn asks(&mut self, now: Time, session: SessionId, (id, op): (u64, Op)) -> Vec<Output> {
        self.says(now, session, ToServer::Request(request(id, op)))
    }

    /// It greets, and says that it holds this right.
    fn comes(&mut self, now: Time, session: SessionId, rights: &[Right]) -> Vec<Output> {
        let name = b"host".to_vec();
        let hello = ToServer::Hello {
            version: VERSION,
            session,
            name,
            volume: Vec::new(),
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
            fid: self.held,
            right,
            hold: Hold::default(),
        };
        let (holdings, unseen) = (vec![holding], vec![]);
        let message = ToServer::Reassert {
            term: BOOT,
            part,
            again: 0,
            holdings,
            unseen,
            locks: vec![],
        };
        self.says(now, session, message)
    }
}

fn request(id: u64, op: Op) -> Request {
    Request {
        ..Request::new(id, op)
    }
}

/// The first bytes of a file.
fn write(fid: Fid, len: u32) -> Op {
    Op::Write {
        fid,
        offset: 0,
        len,
        mode: wire::WriteMode::At,
    }
}

fn is_believed(out: &[Output]) -> bool {
    let told = |output: &Output| {
        let Output::Send { message, .. } = output else {
            return false;
        };
        matches!(message, ToClient::Reasserted { taken, .. } if taken.is_empty())
    };
    out.iter().any(told)
}

fn fenced(out: &[Output]) -> Vec<SessionId> {
    let session = |output: &Output| match output {
        Output::Event(Event::Fenced { session } | Event::Away { session, .. }) => Some(*session),
        _ => None,
    };
    out.iter().filter_map(session).collect()
}

fn make_file(dir: Fid, name: &str, open: Option<Access>) -> Op {
    Op::Make {
        dir,
        name: Name::new(name.as_bytes()).unwrap(),
        make: Make::File,
        mode: 0o644,
        open,
    }
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
        let mut cell = Cell::with_file();
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
        // Of a directory: a client does not know what its kernel has in hand.
        (Right::Transient, Right::Exclusive),
        (Right::Exclusive, Right::Transient),
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
    let mut out = cell.comes(SECOND, FIRST, &[Right::Shared, Right::Exclusive]);
    let told = |output: &Output| match output {
        Output::Send { message, .. } => matches!(message, ToClient::Reasserted { part: 1, .. }),
        _ => false,
    };
    out.retain(told);
    assert_eq!(out, [], "the second part cannot be");
    let out = cell.input(20 * SECOND, Input::Tick);
    assert_eq!(fenced(&out), [FIRST]);
    assert_eq!(holder(&cell), [(SECOND_ONE, Right::Shared)]);
}

/// A liar's answer to a recall.
type Lie = fn(Recall) -> ToServer;

fn in_vain(recall: Recall, right: Right) -> ToServer {
    let Recall { fid, epoch, .. } = recall;
    ToServer::Returned(Returned {
        fid,
        epoch,
        right,
        upto: epoch,
        hold: Hold::default(),
        attr: None,
    })
}

/// The liar's answers to messages: it confirms, and lies to recalls.
fn answers(out: Vec<Output>, lie: Lie) -> Vec<ToServer> {
    let answer = |output| match output {
        Output::Send { to, message, .. } if to == FIRST => match message {
            ToClient::Recall(recall) => Some(lie(recall)),
            ToClient::Confirm { request } => Some(ToServer::Confirmed { request }),
            _ => None,
        },
        _ => None,
    };
    out.into_iter().filter_map(answer).collect()
}

/// The liar, which has done something, is in the way of what the other one asks for. How long that
/// one waits, and how often the liar has answered meanwhile.
fn wait_for_the_liar(first: Vec<Op>, then: Op, lie: Lie) -> (Time, u64) {
    let mut cell = Cell::knows(vec![]);
    cell.comes(SECOND, FIRST, &[]);
    cell.comes(SECOND, SECOND_ONE, &[]);
    for (id, op) in (1..).zip(first) {
        cell.asks(SECOND, FIRST, (id, op));
    }
    let mut out = cell.asks(SECOND, SECOND_ONE, (1, then));
    let mut answered = 0;
    for now in (1..200).map(|at| at * SECOND) {
        out.extend(cell.input(now, Input::Tick));
        let (sent, acked) = (now, 0);
        out.extend(cell.says(now, FIRST, ToServer::KeepAlive { sent, acked }));
        // As fast as it can, but time goes on.
        for _ in 0..100 {
            let done = |output: &Output| {
                matches!(output, Output::Send { to, message: ToClient::Reply { .. }, .. }
                    if *to == SECOND_ONE)
            };
            if out.iter().any(done) {
                return (now - SECOND, answered);
            }
            for answer in answers(std::mem::take(&mut out), lie) {
                answered += 1;
                out.extend(cell.says(now, FIRST, answer));
            }
        }
    }
    panic!("the other one waits for ever");
}

#[test]
fn nobody_waits_for_ever_for_a_client_that_answers_recalls_in_vain() {
    let (dir, name) = (Fid::root(1), Name::new(b"f").unwrap());
    let make = |open| make_file(dir, "f", open);
    let write = Some(Access {
        read: true,
        write: true,
    });
    let lookup = || Op::Lookup {
        dir,
        name: Name::new(b"f").unwrap(),
    };
    let set = Set {
        mode: Some(0o700),
        ..Set::default()
    };
    let unlink = Op::Unlink { dir, name };
    // The first that is made.
    let fid = Fid {
        volume: 1,
        vnode: 2,
        uniq: 1,
    };
    let cases: [(Vec<Op>, Op, Lie); 4] = [
        // It gives nothing back.
        (vec![make(None)], Op::SetAttr { fid, set }, |recall| {
            in_vain(recall, Right::Shared)
        }),
        // It has the file to itself, and says nothing of its size.
        (vec![make(write)], lookup(), |recall| {
            in_vain(recall, Right::Exclusive)
        }),
        // It has dropped the name before anything else that it did.
        (vec![make(None), lookup()], unlink.clone(), |recall| {
            in_vain(recall, Right::Shared)
        }),
        // It always gives back up to an epoch before that of its grant.
        (vec![make(write)], unlink, |recall| {
            ToServer::Returned(Returned {
                fid: recall.fid,
                epoch: recall.epoch,
                right: Right::None,
                upto: 0,
                hold: Hold::default(),
                attr: None,
            })
        }),
    ];
    let options = Options::default();
    let most = options.recall_ns + options.lease_ns + 2 * options.resend_ns;
    for (case, (first, then, lie)) in cases.into_iter().enumerate() {
        let (waited, answered) = wait_for_the_liar(first, then, lie);
        assert!(answered > 10, "case {case}: it answered {answered} times");
        assert!(waited <= most, "case {case}: {waited} ns");
    }
}

#[test]
fn a_question_that_serves_an_earlier_request_too_has_waited_as_long_as_that() {
    let mut cell = Cell::knows(vec![FIRST]);
    cell.comes(0, FIRST, &[Right::Exclusive]);
    cell.comes(0, SECOND_ONE, &[]);
    let stat = || Op::GetAttr { fid: Fid::root(1) };
    let out = cell.asks(SECOND, SECOND_ONE, (1, stat()));
    let first = recalls(&out);
    cell.asks(30 * SECOND, SECOND_ONE, (2, stat()));
    cell.says(
        31 * SECOND,
        FIRST,
        in_vain(first[0].clone(), Right::Exclusive),
    );
    assert_eq!(cell.server.oldest_question(), Some(SECOND));
}

#[test]
fn a_turn_that_comes_late_is_not_put_off_by_what_is_asked_meanwhile() {
    let mut cell = Cell::knows(vec![]);
    cell.comes(0, FIRST, &[]);
    cell.comes(0, SECOND_ONE, &[]);
    let dir = Fid::root(1);
    cell.asks(SECOND, FIRST, (1, Op::GetAttr { fid: dir }));
    let make = |n: u64| make_file(dir, &n.to_string(), None);
    // The first one says nothing any more.
    cell.asks(SECOND, SECOND_ONE, (1, make(1)));
    let options = Options::default();
    let most = options.lease_ns + 2 * options.resend_ns;
    for n in 2.. {
        let due = cell.server.deadline().unwrap();
        assert!(due <= most, "nobody is fenced");
        cell.asks(due + 1, SECOND_ONE, (n, make(n)));
        let out = cell.input(due + 2, Input::Tick);
        if fenced(&out) == [FIRST] {
            return;
        }
    }
}

#[test]
fn a_question_is_asked_again_each_time_that_it_is_due() {
    let mut cell = Cell::knows(vec![]);
    cell.comes(0, FIRST, &[]);
    cell.comes(0, SECOND_ONE, &[]);
    let fid = Fid::root(1);
    cell.asks(0, FIRST, (1, Op::GetAttr { fid }));
    let set = Set {
        mode: Some(0o700),
        ..Set::default()
    };
    let make = make_file(fid, "f", None);
    let first = cell.asks(SECOND, SECOND_ONE, (1, Op::SetAttr { fid, set }));
    let second = cell.asks(4 * SECOND, SECOND_ONE, (2, make));
    assert_eq!((recalls(&first).len(), recalls(&second).len()), (1, 1));
    let mut times = Vec::new();
    while times.len() < 4 {
        let now = cell.server.deadline().unwrap();
        let (sent, acked) = (now, 0);
        cell.says(now, FIRST, ToServer::KeepAlive { sent, acked });
        let out = cell.input(now, Input::Tick);
        times.extend(recalls(&out).iter().map(|_| now / SECOND));
    }
    assert_eq!(Options::default().resend_ns, 10 * SECOND);
    assert_eq!(times, [11, 14, 21, 24]);
}

fn recalls(out: &[Output]) -> Vec<Recall> {
    let recall = |output: &Output| match output {
        Output::Send {
            message: ToClient::Recall(recall),
            ..
        } => Some(recall.clone()),
        _ => None,
    };
    out.iter().filter_map(recall).collect()
}

#[test]
fn bytes_beside_what_has_no_use_for_them_are_let_go() {
    let fid = Fid::root(1);
    let write = ToServer::Request(request(1, write(fid, 512)));
    let hold = Hold::default();
    let (greeted, stranger) = (FIRST, 99);
    for (from, message) in [
        (stranger, write),
        (greeted, ToServer::Opens { fid, hold }),
        (greeted, ToServer::Goodbye),
    ] {
        let mut cell = Cell::knows(vec![]);
        cell.comes(SECOND, greeted, &[]);
        let (bulk, bulk_len) = (5, 512);
        let input = Input::Message {
            from,
            message,
            bulk,
            bulk_len,
        };
        let out = cell.input(SECOND, input);
        assert!(out.contains(&Output::Discard { bulk }), "{out:?}");
    }
}

#[test]
fn a_thousand_changes_in_the_wrong_order_are_done_one_after_the_other() {
    let in_order = || {
        let mut cell = Cell::knows(vec![]);
        cell.comes(0, FIRST, &[]);
        for id in (1..=1024_u64).rev() {
            let request = Request {
                after: id - 1,
                ..request(id, make_file(Fid::root(1), &id.to_string(), None))
            };
            let out = cell.says(1, FIRST, ToServer::Request(request));
            let answers = out
                .iter()
                .filter(|output| matches!(output, Output::Send { .. }));
            assert_eq!(answers.count(), if id == 1 { 1024 } else { 0 });
        }
    };
    // As much as nobody would miss.
    let thread = std::thread::Builder::new().stack_size(256 << 10);
    thread.spawn(in_order).unwrap().join().unwrap();
}

#[test]
fn of_bytes_that_have_overtaken_what_never_comes_only_some_are_kept() {
    let mut cell = Cell::knows(vec![]);
    cell.comes(0, FIRST, &[]);
    let (fid, len) = (Fid::root(1), 1 << 20);
    let mut discarded = 0;
    for id in 2..=1000_u64 {
        let write = Request {
            after: 1,
            ..request(id, write(fid, len))
        };
        let input = Input::Message {
            from: FIRST,
            message: ToServer::Request(write),
            bulk: id,
            bulk_len: len,
        };
        let out = cell.input(1, input);
        discarded += usize::from(out.contains(&Output::Discard { bulk: id }));
    }
    assert_eq!(discarded, 999 - 64);
}
