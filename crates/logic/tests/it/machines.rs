//! Which machine is at a connection: a session is the one's that began it, and no machine does what
//! it may not, whatever its client says.

use crate::support::disk::MemoryDisk;
use logic::server::{Conn, Event, Input, Options, Output, Server};
use wire::{
    Access, Delegated, Fid, Hold, Make, Name, Op, Outcome, Proven, Refusal, Reply, Request, Right,
    Rights, SessionId, Set, Time, ToClient, ToServer, VERSION, Violation, Welcome, WriteMode,
    XattrMode,
};

const SESSION: SessionId = 77;
const OURS: u64 = 1;
const THEIRS: u64 = 2;
const SECOND: Time = 1_000_000_000;

struct World {
    server: Server,
    disk: MemoryDisk,
}

impl World {
    fn knowing(known: Vec<SessionId>) -> Self {
        let options = Options::default();
        Self {
            server: Server::new(options, 0, (1 << 40, Fid::root(1)), (known, 0)),
            disk: MemoryDisk::new(),
        }
    }

    fn input(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.server.handle(now, input, &mut self.disk, &mut out);
        out
    }

    fn comes(&mut self, conn: Conn, machine: u64, rights: Rights) {
        let came = Input::Came {
            conn,
            machine,
            rights,
        };
        self.input(0, came);
    }

    fn says(&mut self, from: Conn, message: ToServer) -> Vec<Output> {
        let message = Input::Message {
            from,
            message,
            bulk: 0,
            bulk_len: 0,
        };
        self.input(SECOND, message)
    }

    fn greets(&mut self, from: Conn, session: SessionId) -> Vec<Output> {
        self.says(
            from,
            ToServer::Hello {
                version: VERSION,
                session,
                name: b"host".to_vec(),
                volume: Vec::new(),
            },
        )
    }

    fn asks(&mut self, from: Conn, request: Request) -> Outcome {
        let out = self.says(from, ToServer::Request(request));
        let mut replies = out.iter().filter_map(|output| match output {
            Output::Send {
                message: ToClient::Reply { reply, .. },
                ..
            } => Some(reply.clone()),
            _ => None,
        });
        let Reply {
            outcome, grants, ..
        } = replies
            .next()
            .unwrap_or_else(|| panic!("no reply: {out:?}"));
        let exclusive = grants.iter().any(|grant| grant.right == Right::Exclusive);
        assert!(!exclusive || self.may_write(from), "{grants:?}");
        outcome
    }

    fn may_write(&self, conn: Conn) -> bool {
        conn != READER
    }
}

/// A connection of a machine that may only read.
const READER: Conn = 9;

fn request(id: u64, op: Op) -> Request {
    Request {
        keeps: true,
        ..Request::new(id, op)
    }
}

fn is_foreign(out: &[Output], conn: Conn) -> bool {
    let end = Output::Close {
        conn,
        violation: Some(Violation::Foreign),
    };
    out.contains(&end)
}

fn welcomed(out: &[Output]) -> Option<Rights> {
    out.iter().find_map(|output| match output {
        Output::Send {
            message: ToClient::Welcome(Welcome { rights, .. }),
            ..
        } => Some(rights.clone()),
        _ => None,
    })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

#[test]
fn another_machine_cannot_go_on_with_a_session_nor_end_it() {
    let mut world = World::knowing(vec![]);
    world.comes(1, OURS, Rights::default());
    world.comes(2, THEIRS, Rights::all());
    assert_eq!(welcomed(&world.greets(1, SESSION)), Some(Rights::default()));
    let stolen = world.greets(2, SESSION);
    assert!(
        is_foreign(&stolen, 2) && welcomed(&stolen).is_none(),
        "{stolen:?}"
    );
    // Its next message is of a connection that has not greeted.
    let goodbye = world.says(2, ToServer::Goodbye);
    let ended = |out: &[Output]| {
        let mut events = out.iter();
        events.any(|output| matches!(output, Output::Event(Event::Closed { .. })))
    };
    assert!(!ended(&goodbye), "{goodbye:?}");
    // Neither can a process that proves nothing.
    assert!(is_foreign(&world.greets(3, SESSION), 3));
    // The machine itself goes on with it, on another connection, and ends it.
    world.comes(4, OURS, Rights::default());
    assert!(welcomed(&world.greets(4, SESSION)).is_some());
    assert!(ended(&world.says(4, ToServer::Goodbye)));
    // Then its number is anybody's.
    world.comes(5, THEIRS, Rights::all());
    assert!(welcomed(&world.greets(5, SESSION)).is_some());
}

#[test]
fn a_session_of_an_earlier_run_is_its_machines() {
    let mut world = World::knowing(vec![SESSION]);
    world.server = world
        .server
        .of_machines(vec![(SESSION, OURS), (SESSION + 1, OURS)]);
    world.comes(1, OURS, Rights::all());
    world.comes(2, THEIRS, Rights::all());
    assert!(is_foreign(&world.greets(2, SESSION), 2));
    assert!(is_foreign(&world.greets(3, SESSION), 3));
    assert!(!is_foreign(&world.greets(1, SESSION), 1));
}

/// An earlier version of the program has not noted whose it is.
#[test]
fn a_session_of_an_earlier_program_is_the_first_ones_that_comes_for_it() {
    let mut world = World::knowing(vec![SESSION]);
    world.comes(1, OURS, Rights::all());
    world.comes(2, THEIRS, Rights::all());
    assert!(!is_foreign(&world.greets(1, SESSION), 1));
    assert!(is_foreign(&world.greets(2, SESSION), 2));
}

/// One of each operation that changes something, or prepares for it.
fn changes_of_names(fid: Fid) -> Vec<Op> {
    let dir = Fid::root(1);
    vec![
        Op::SetAttr {
            fid,
            set: Set {
                mode: Some(0o777),
                ..Set::default()
            },
        },
        Op::Make {
            dir,
            name: name("n"),
            make: Make::File,
            mode: 0o600,
            open: None,
        },
        Op::Link {
            fid,
            dir,
            name: name("n"),
        },
        Op::Unlink {
            dir,
            name: name("f"),
        },
        Op::Rmdir {
            dir,
            name: name("f"),
        },
        Op::Rename {
            from: dir,
            name: name("f"),
            to: dir,
            new: name("n"),
            no_replace: false,
            exchange: false,
        },
    ]
}

/// The same of a file's bytes and attributes.
fn changes_of_file(fid: Fid) -> Vec<Op> {
    let dir = Fid::root(1);
    let write = Access {
        read: false,
        write: true,
    };
    vec![
        Op::Open { fid, access: write },
        Op::Write {
            fid,
            offset: 0,
            len: 0,
            mode: WriteMode::At,
        },
        Op::SetXattr {
            fid,
            name: b"user.a".to_vec(),
            value: vec![],
            mode: XattrMode::Any,
        },
        Op::RemoveXattr {
            fid,
            name: b"user.a".to_vec(),
        },
        Op::Allocate {
            fid,
            offset: 0,
            len: 1,
            zero: false,
            keep_size: false,
        },
        Op::Copy {
            from: fid,
            at: 0,
            to: fid,
            offset: 0,
            len: 1,
        },
        Op::MakeNameless {
            dir,
            mode: 0o600,
            open: write,
        },
        Op::Claim { fid },
    ]
}

fn changes(fid: Fid) -> Vec<Op> {
    [changes_of_names(fid), changes_of_file(fid)].concat()
}

#[test]
fn a_machine_that_may_only_read_changes_nothing_and_is_granted_nothing_exclusive() {
    let mut world = World::knowing(vec![]);
    world.disk.put(0, (Fid::root(1), &name("f")), vec![1]);
    let fid = world.disk.labelled("f").unwrap();
    let reads = Rights {
        write: false,
        ..Rights::all()
    };
    world.comes(READER, OURS, reads.clone());
    assert_eq!(welcomed(&world.greets(READER, SESSION)), Some(reads));
    let mut id = 0;
    for op in changes(fid) {
        for delegated in [false, true] {
            if delegated && !op.may_be_delegated() {
                continue;
            }
            id += 1;
            let mut request = request(id, op.clone());
            request.delegated = delegated.then(|| Delegated {
                at: 1,
                chosen: Default::default(),
                unseen: false,
                named: [None; 2],
            });
            request.after = if delegated { 0 } else { request.after };
            let outcome = world.asks(READER, request);
            // The server takes write-backs from holders alone, and this machine is none.
            let refusal = match matches!(&op, Op::Write { mode, .. } if is_back(*mode)) {
                true => Refusal::SessionLost,
                false => Refusal::ReadOnly,
            };
            assert_eq!(outcome, Outcome::Refused(refusal), "{op:?}");
        }
    }
    let lookup = Op::Lookup {
        dir: Fid::root(1),
        name: name("f"),
    };
    let read = Access {
        read: true,
        write: false,
    };
    for op in [lookup, Op::Open { fid, access: read }, Op::GetAttr { fid }] {
        id += 1;
        let outcome = world.asks(READER, request(id, op));
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
    // All operations that change something would be refused: a new one has to be named above.
    let all = changes(fid);
    assert!(all.iter().filter(|op| op.changes()).count() >= 12);
}

#[test]
fn a_machine_that_is_expelled_holds_nobody_up() {
    let mut world = World::knowing(vec![]);
    world.disk.put(0, (Fid::root(1), &name("f")), vec![1]);
    let fid = world.disk.labelled("f").unwrap();
    world.comes(1, OURS, Rights::all());
    world.comes(2, THEIRS, Rights::all());
    world.greets(1, SESSION);
    world.greets(2, SESSION + 1);
    let access = Access {
        read: true,
        write: true,
    };
    let open = |id| {
        let mut request = request(id, Op::Open { fid, access });
        request.hold = Hold {
            open: true,
            write: true,
            stamp: 1,
        };
        ToServer::Request(request)
    };
    world.says(1, open(1));
    // The other one has to wait for what the first one holds.
    let waits = world.says(2, open(1));
    let to = |out: &[Output], conn: Conn, is: fn(&ToClient) -> bool| {
        let mut out = out.iter();
        out.any(|output| match output {
            Output::Send { to, message, .. } => *to == conn && is(message),
            _ => false,
        })
    };
    let replies = |message: &ToClient| matches!(message, ToClient::Reply { .. });
    assert!(!to(&waits, 2, replies), "{waits:?}");
    let expelled = world.input(SECOND, Input::Expelled { machine: OURS });
    assert!(
        to(&expelled, 1, |message| *message == ToClient::Lost),
        "{expelled:?}"
    );
    assert!(to(&expelled, 2, replies), "{expelled:?}");
}

const fn is_back(mode: WriteMode) -> bool {
    matches!(mode, WriteMode::Back { .. })
}

/// Files are opened for writing with that.
fn make(dir: Fid, called: &str, make: Make) -> Op {
    let access = Access {
        read: true,
        write: true,
    };
    let open = matches!(make, Make::File).then_some(access);
    Op::Make {
        dir,
        name: name(called),
        make,
        mode: 0o755,
        open,
    }
}

fn told(id: u64, op: Op) -> Request {
    let mut request = request(id, op);
    request.delegated = Some(Delegated {
        at: 1,
        chosen: Default::default(),
        unseen: false,
        named: [None, None],
    });
    request
}

fn made(outcome: &Outcome) -> Fid {
    match outcome {
        Outcome::Entry(entry) => entry.fid,
        other => panic!("{other:?}"),
    }
}

fn recalls(out: &[Output]) -> Vec<(Fid, u64)> {
    let asked = out.iter().filter_map(|output| match output {
        Output::Send {
            message: ToClient::Recall(recall),
            ..
        } => Some((recall.fid, recall.epoch)),
        _ => None,
    });
    asked.collect()
}

fn back(id: u64, fid: Fid) -> Request {
    let (size, mtime, ctime) = (0, 1, 1);
    let mode = WriteMode::Back { size, mtime, ctime };
    let (offset, len) = (0, 0);
    let op = Op::Write {
        fid,
        offset,
        len,
        mode,
    };
    request(id, op)
}

/// Bytes and names that programs were answered, when their machine could write, are neither refused
/// nor left to it: it is asked for all of it back, also for what it tells only then.
#[test]
fn what_was_answered_before_a_machine_may_only_read_is_done_and_asked_back() {
    for root in [false, true] {
        let mut world = World::knowing(vec![]);
        let writes = Rights {
            root,
            ..Rights::default()
        };
        world.comes(1, OURS, writes.clone());
        world.greets(1, SESSION);
        let at = Fid::root(1);
        let dir = made(&world.asks(1, request(1, make(at, "d", Make::Directory))));
        let file = made(&world.asks(1, request(2, make(at, "f", Make::File))));
        let exclusive = |world: &World, fid: Fid| {
            let tokens = world.server.tokens();
            let mut own = tokens.iter().filter(|token| token.fid == fid);
            own.any(|token| token.right == Right::Exclusive)
        };
        assert!(exclusive(&world, dir) && exclusive(&world, file));
        let reads = Rights {
            write: false,
            ..writes
        };
        world.comes(2, OURS, reads);
        let out = world.greets(2, SESSION);
        let asked: Vec<Fid> = recalls(&out).iter().map(|(fid, _)| *fid).collect();
        assert!(asked.contains(&dir) && asked.contains(&file), "{asked:?}");
        // It writes back, and tells what it made; nothing new is taken.
        let written = world.asks(2, back(3, file));
        assert!(matches!(written, Outcome::Written { .. }), "{written:?}");
        let new = world.says(2, ToServer::Request(told(4, make(dir, "late", Make::File))));
        let late = new.iter().find_map(|output| match output {
            Output::Send {
                message: ToClient::Reply { reply, .. },
                ..
            } => Some(made(&reply.outcome)),
            _ => None,
        });
        let late = late.unwrap_or_else(|| panic!("{new:?}"));
        assert_eq!(recalls(&new).first().map(|(fid, _)| *fid), Some(late));
        let refused = world.asks(2, request(5, make(dir, "new", Make::File)));
        assert_eq!(refused, Outcome::Refused(Refusal::ReadOnly));
        // When it has given all that back, that is all.
        for (fid, epoch) in recalls(&out).into_iter().chain(recalls(&new)) {
            let returned = wire::Returned {
                fid,
                epoch,
                right: Right::None,
                upto: epoch,
                hold: Hold::default(),
                attr: None,
            };
            world.says(2, ToServer::Returned(returned));
        }
        let lost = Outcome::Refused(Refusal::SessionLost);
        assert_eq!(world.asks(2, back(6, late)), lost);
        // That is not the end of what it may still do.
        assert_eq!(world.asks(2, told(7, make(dir, "x", Make::File))), refused);
    }
}

/// A user logs out, or is removed, while his machine has yet to tell what it answered him: that is
/// done in his name, and nothing new is.
#[test]
fn a_change_that_a_user_was_answered_before_he_left_is_done() {
    for ended in [true, false] {
        let mut world = World::knowing(vec![]);
        let ann = Proven {
            uid: 1001,
            gid: 7,
            groups: vec![8],
            session: None,
            write: true,
            under: None,
            expired: false,
        };
        let rights = |users, ended| Rights {
            trusted: false,
            users,
            ended,
            ..Rights::default()
        };
        let by_ann = |mut request: Request| {
            request.caller.uid = 1001;
            request
        };
        world.comes(1, OURS, rights(vec![ann.clone()], vec![]));
        world.greets(1, SESSION);
        let makes = by_ann(request(1, make(Fid::root(1), "d", Make::Directory)));
        let dir = made(&world.asks(1, makes));
        // He leaves. The server goes on knowing him for that, or does not.
        let known = if ended { vec![ann] } else { vec![] };
        world.comes(2, OURS, rights(vec![], known));
        world.greets(2, SESSION);
        let late = by_ann(told(2, make(dir, "late", Make::File)));
        let late = world.asks(2, late);
        let denied = Outcome::Refused(Refusal::Denied);
        match ended {
            true => assert!(matches!(late, Outcome::Entry(_)), "{late:?}"),
            false => assert_eq!(late, denied),
        }
        let new = by_ann(request(3, make(dir, "new", Make::File)));
        assert_eq!(world.asks(2, new), denied);
        // A change of somebody else is not his.
        let mut other = told(4, make(dir, "other", Make::File));
        other.caller.uid = 1002;
        assert_eq!(world.asks(2, other), denied);
    }
}

/// Its token was taken since, and others have set attributes; or have only looked.
#[test]
fn a_change_that_is_told_late_undoes_nothing_that_others_did_later() {
    let (owner, other) = (7, 8);
    let mut world = World::knowing(vec![]);
    for (conn, machine, session) in [(1, OURS, SESSION), (2, THEIRS, owner), (3, THEIRS, other)] {
        world.comes(conn, machine, Rights::all());
        world.greets(conn, session);
    }
    let made = world.asks(1, request(1, make(Fid::root(1), "f", Make::File)));
    let Outcome::Entry(wire::Entry { fid, attr, .. }) = made else {
        panic!("{made:?}");
    };
    world.says(1, ToServer::Goodbye);
    let set = |mode: u16| Op::SetAttr {
        fid,
        set: Set {
            mode: Some(mode),
            ..Set::default()
        },
    };
    let at = |id: u64, mode: u16, at: u64| {
        let mut request = told(id, set(mode));
        if let Some(delegated) = &mut request.delegated {
            delegated.at = at;
        }
        request
    };
    let before = attr.ctime.checked_sub(1).expect("time has passed");
    let late = world.asks(2, at(1, 0o666, before));
    assert_eq!(late, Outcome::Refused(Refusal::Exists));
    let seen = world.asks(3, request(1, Op::GetAttr { fid }));
    assert!(
        matches!(&seen, Outcome::Attr(now) if now.mode == attr.mode),
        "{seen:?}"
    );
    world.says(3, ToServer::Goodbye);
    let done = world.asks(2, at(2, 0o666, attr.ctime));
    assert!(
        matches!(&done, Outcome::Attr(now) if now.mode == 0o666),
        "{done:?}"
    );
}

/// Nobody wants what it holds; but there is no room for ever more of that.
#[test]
fn what_is_kept_for_silent_machines_is_bounded() {
    const KEPT: usize = 3;
    let options = Options {
        silent_tokens: KEPT,
        ..Options::default()
    };
    let mut world = World::knowing(vec![]);
    world.server = Server::new(options, 0, (1 << 40, Fid::root(1)), (vec![], 0));
    world.comes(1, OURS, Rights::all());
    world.greets(1, SESSION);
    for id in 1..=6 {
        let file = make(Fid::root(1), &format!("{id}"), Make::File);
        world.asks(1, request(id, file));
    }
    world.input(SECOND, Input::Gone { conn: 1 });
    let held = |world: &World| world.server.tokens().len();
    let before = held(&world);
    assert!(before > KEPT, "{before} tokens");
    let lease = Options::default().lease_ns;
    let mut now = 5 * lease;
    world.input(now, Input::Tick);
    assert_eq!(held(&world), before, "they are looked at after ten leases");
    let mut away = Vec::new();
    while let Some(due) = world.server.deadline().filter(|due| *due < 100 * lease) {
        now = now.max(due);
        for output in world.input(now, Input::Tick) {
            if let Output::Event(Event::Away { session, .. }) = output {
                away.push(session);
            }
        }
    }
    assert_eq!(away, [SESSION]);
    let kept = held(&world);
    assert!((1..=KEPT).contains(&kept), "{kept} tokens");
    world.comes(3, OURS, Rights::all());
    assert!(welcomed(&world.greets(3, SESSION)).is_some(), "it goes on");
}
