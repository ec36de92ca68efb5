//! Sessions that speak the protocol, and answer whatever they are asked at once: a load on the
//! server's machine by as many clients as are wanted, without their kernels and caches. Everything
//! that the server has sent arrives, then everything that was answered, and so on.

use super::disk::MemoryDisk;
use logic::server::{Disk, Input, Options, Output, Server};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use wire::{
    Access, Caller, Fid, Hold, Make, Name, Op, Outcome, Refusal, Request, Returned, Right,
    SessionId, Set, Time, ToClient, ToServer, VERSION, VolumeOp, What,
};

const SECOND: Time = 1_000_000_000;
const MS: Time = 1_000_000;

/// The cost of something for the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub judged: u64,
    pub looked: u64,
    pub recalls: u64,
    /// Real time in the machine and its store.
    pub took_us: u128,
}

/// One client: the numbers that it has used, and what it holds.
#[derive(Default)]
struct Session {
    request: u64,
    stamp: u64,
    held: BTreeMap<Fid, (Right, u64)>,
    open: BTreeSet<Fid>,
    /// It hears nothing.
    silent: bool,
}

pub struct Swarm {
    server: Server,
    disk: MemoryDisk,
    now: Time,
    sessions: BTreeMap<SessionId, Session>,
    /// Messages on their way to the server.
    flying: VecDeque<(SessionId, ToServer)>,
    /// Outcomes, by session and request.
    answers: BTreeMap<(SessionId, u64), Outcome>,
    took: u128,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn root() -> Fid {
    Fid::root(1)
}

impl Swarm {
    /// So many clients that have looked at the root and at a file in it, and cache both.
    pub fn new(clients: u64) -> Self {
        let mut disk = MemoryDisk::new();
        disk.put(0, (root(), &name("common")), vec![1, 2, 3]);
        let server = Server::new(Options::default(), SECOND, (1 << 40, root()), (vec![], 0));
        let mut swarm = Self {
            server,
            disk,
            now: SECOND,
            sessions: BTreeMap::new(),
            flying: VecDeque::new(),
            answers: BTreeMap::new(),
            took: 0,
        };
        for session in 1..=clients {
            swarm.sessions.insert(session, Session::default());
            swarm.greet(session);
            let (dir, name) = (root(), name("common"));
            swarm.ask(session, Op::Lookup { dir, name });
            swarm.ask(session, Op::GetAttr { fid: root() });
        }
        swarm.settle();
        let held = |session: &Session| session.held.get(&root()).map(|held| held.0);
        let all = swarm.sessions.values();
        assert!(all.map(held).all(|held| held == Some(Right::Shared)));
        swarm
    }

    /// So many of them make a file each, in the directory that all cache, at the same moment.
    pub fn creates(&mut self, writers: u64) -> Cost {
        let names = move |session: u64| format!("made by {session}");
        self.make_at_once(writers, names)
    }

    /// So many of them want to make the same file.
    pub fn creates_one_name(&mut self, writers: u64) -> Cost {
        self.make_at_once(writers, |_| "lock".to_owned())
    }

    fn make_at_once(&mut self, writers: u64, called: impl Fn(u64) -> String) -> Cost {
        let from = self.figures();
        for session in 1..=writers {
            let op = Op::Make {
                dir: root(),
                name: name(&called(session)),
                make: Make::File,
                mode: 0o644,
                open: None,
            };
            self.ask(session, op);
        }
        self.settle();
        for session in 1..=writers {
            let last = self.sessions[&session].request;
            let made = &self.answers[&(session, last)];
            let there = Outcome::Refused(Refusal::Exists);
            assert!(
                matches!(made, Outcome::Entry(_)) || *made == there,
                "{session}: {made:?}"
            );
        }
        self.since(from)
    }

    /// One of them changes the file that all cache.
    pub fn chmod(&mut self) -> Cost {
        let from = self.figures();
        let fid = self
            .disk
            .labelled("/common")
            .or(self.disk.labelled("common"));
        let set = Set {
            mode: Some(0o600),
            ..Set::default()
        };
        self.ask(
            1,
            Op::SetAttr {
                fid: fid.unwrap(),
                set,
            },
        );
        self.settle();
        let last = self.sessions[&1].request;
        let done = &self.answers[&(1, last)];
        assert!(matches!(done, Outcome::Attr(_)), "{done:?}");
        self.since(from)
    }

    /// The volume is frozen while one of them has so many files for itself.
    pub fn snapshot(&mut self, files: u64) -> Cost {
        for file in 0..files {
            let op = Op::Make {
                dir: root(),
                name: name(&format!("{file}")),
                make: Make::File,
                mode: 0o644,
                open: Some(Access {
                    read: true,
                    write: true,
                }),
            };
            self.ask(1, op);
            self.settle();
        }
        let alone = |session: &Session| {
            let rights = session.held.values();
            rights
                .filter(|(right, _)| *right == Right::Exclusive)
                .count() as u64
        };
        assert_eq!(alone(&self.sessions[&1]), files);
        let cost = self.makes_snapshot("s");
        assert_eq!(alone(&self.sessions[&1]), 0);
        cost
    }

    /// One of them has a snapshot made.
    pub fn makes_snapshot(&mut self, called: &str) -> Cost {
        let from = self.figures();
        let (of, name) = (name("root"), name(called));
        self.ask(2, Op::Volume(VolumeOp::Snapshot { of, name }));
        self.settle();
        let last = self.sessions[&2].request;
        let made = &self.answers[&(2, last)];
        assert!(matches!(made, Outcome::Volume(_)), "{made:?}");
        self.since(from)
    }

    /// The second client makes files, and is silent when the first one removes their names: it may
    /// have them open. The first one has others open, without names as well. Then the second one
    /// says goodbye: the cost of that, and of what goes with it.
    pub fn leaves_nameless(&mut self, own: u64, others: u64) -> Cost {
        let names = |by: u64, count: u64| (0..count).map(move |n| (by, format!("{by}-{n}")));
        for (by, text) in names(1, others).chain(names(2, own)) {
            self.makes_open(by, &text);
        }
        self.sessions.get_mut(&2).unwrap().silent = true;
        for (_, text) in names(1, others).chain(names(2, own)) {
            let (dir, name) = (root(), name(&text));
            self.ask(1, Op::Unlink { dir, name });
        }
        self.pass(30);
        assert_eq!(self.disk.orphans().len() as u64, own + others);
        self.sessions.get_mut(&2).unwrap().silent = false;
        let from = self.figures();
        self.greet(2);
        self.flying.push_back((2, ToServer::Goodbye));
        self.settle();
        assert_eq!(self.disk.orphans().len() as u64, others);
        self.since(from)
    }

    fn makes_open(&mut self, session: SessionId, text: &str) {
        let (read, write) = (true, true);
        let op = Op::Make {
            dir: root(),
            name: name(text),
            make: Make::File,
            mode: 0o644,
            open: Some(Access { read, write }),
        };
        self.ask(session, op);
        self.settle();
        let state = self.sessions.get_mut(&session).unwrap();
        let Outcome::Entry(entry) = &self.answers[&(session, state.request)] else {
            panic!("{text} is not made");
        };
        state.open.insert(entry.fid);
    }

    /// So many seconds, in which those that are not silent are heard.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += SECOND;
            let sent = self.now;
            let heard = self.sessions.iter().filter(|(_, state)| !state.silent);
            let alive = heard.map(|(session, state)| {
                let acked = state.request;
                (*session, ToServer::KeepAlive { sent, acked })
            });
            self.flying.extend(alive);
            self.input(Input::Tick);
            self.settle();
        }
    }

    fn figures(&self) -> Cost {
        let figures = self.server.figures();
        Cost {
            judged: figures.judged,
            looked: figures.looked,
            recalls: figures.recalls,
            took_us: self.took / 1000,
        }
    }

    fn since(&self, from: Cost) -> Cost {
        let to = self.figures();
        Cost {
            judged: to.judged - from.judged,
            looked: to.looked - from.looked,
            recalls: to.recalls - from.recalls,
            took_us: to.took_us - from.took_us,
        }
    }

    fn greet(&mut self, session: SessionId) {
        let hello = ToServer::Hello {
            version: VERSION,
            session,
            name: b"swarm".to_vec(),
            volume: Vec::new(),
        };
        self.flying.push_back((session, hello));
    }

    fn ask(&mut self, session: SessionId, op: Op) {
        let state = self.sessions.get_mut(&session).unwrap();
        state.request += 1;
        state.stamp += 1;
        let hold = Hold {
            stamp: state.stamp,
            ..Hold::default()
        };
        let request = Request {
            id: state.request,
            acked: state.request,
            op,
            caller: Caller::default(),
            hold,
            keeps: false,
            ahead: 0,
            clock: 0,
            delegated: None,
            after: 0,
            again: None,
            lenders: wire::Lenders::None,
        };
        self.flying.push_back((session, ToServer::Request(request)));
    }

    /// Delivers what is on its way until nothing is, a millisecond for each turn of all.
    fn settle(&mut self) {
        loop {
            let batch = core::mem::take(&mut self.flying);
            let due = self
                .server
                .deadline()
                .is_some_and(|due| due <= self.now + MS);
            if batch.is_empty() && !due {
                return;
            }
            self.now += MS;
            for (from, message) in batch {
                self.input(Input::Message {
                    from,
                    message,
                    bulk: 0,
                    bulk_len: 0,
                });
            }
            if due {
                self.input(Input::Tick);
            }
        }
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        let began = Instant::now();
        self.server
            .handle(self.now, input, &mut self.disk, &mut out);
        self.took += began.elapsed().as_nanos();
        for output in out {
            if let Output::Send { to, message, .. } = output {
                self.hear(to, message);
            } else if let Output::Close { conn, .. } = output {
                let state = self.sessions.get(&conn);
                assert!(state.is_some_and(|state| !state.open.is_empty()), "{conn}");
            }
        }
    }

    /// A client hears the server, and answers at once.
    fn hear(&mut self, session: SessionId, message: ToClient) {
        let state = self.sessions.get_mut(&session).unwrap();
        if state.silent {
            return;
        }
        match message {
            ToClient::Reply { id, reply, .. } => {
                for grant in &reply.grants {
                    state.held.insert(grant.fid, (grant.right, grant.epoch));
                }
                self.answers.insert((session, id), reply.outcome);
            }
            ToClient::Recall(recall) => {
                state.stamp += 1;
                let held = state.held.entry(recall.fid).or_insert((Right::None, 0));
                if let What::Keep(keep) = recall.what {
                    held.0 = held.0.min(keep);
                }
                let open = state.open.contains(&recall.fid);
                let hold = Hold {
                    open,
                    write: open,
                    stamp: state.stamp,
                };
                let returned = Returned {
                    fid: recall.fid,
                    epoch: recall.epoch,
                    right: held.0,
                    upto: held.1.max(recall.epoch),
                    hold,
                    attr: None,
                };
                self.flying
                    .push_back((session, ToServer::Returned(returned)));
            }
            ToClient::Confirm { request } => {
                let confirmed = ToServer::Confirmed { request };
                self.flying.push_back((session, confirmed));
            }
            _ => {}
        }
    }
}
