//! Clients lend blocks of their caches to each other: programs read the same bytes as without it,
//! whatever lenders do, and the server has less to send.

use crate::harness::cell::{CellOptions, INSECURE};
use crate::harness::process::{ariel, run, text};
use crate::harness::status::status;
use crate::harness::{Cell, Mount, eventually, real_system};
use net::{Addresses, Bulk, CloseReason, Dialer, Entrance, Events, Link, LinkId, ListenOptions};
use net::{Listener, Passage, Speaks};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wire::{
    Access, Capability, Elsewhere, Fid, Lenders, Name, Op, Outcome, Request, ToClient, ToLender,
    ToReader, ToServer,
};

const MIB: usize = 1 << 20;
/// Longer than anything takes that does not hang.
const LIMIT: Duration = Duration::from_secs(20);

pub fn cell(name: &str, words: &[&str]) -> Option<Cell> {
    let serve_args = words.iter().map(ToString::to_string).collect();
    let options = CellOptions {
        serve_args,
        ..CellOptions::default()
    };
    real_system(name).then(|| Cell::start_with(name, options))?
}

fn greedy(name: &str) -> Option<Cell> {
    cell(name, &["--cooperate", "greedy"])
}

/// Bytes that differ everywhere.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let word = |_| wire::splitmix64(&mut state).to_le_bytes();
    (0..len / 8).flat_map(word).collect()
}

/// Writes a file through a mount of its own, which is gone then: nobody has it cached.
pub fn put(cell: &Cell, name: &str, bytes: &[u8]) {
    let mount = cell.mount();
    fs::write(mount.join(name), bytes).unwrap();
    drop(mount);
}

/// A figure of `cooperation`.
pub fn figure(target: impl AsRef<std::ffi::OsStr>, name: &str) -> u64 {
    let status = status(target);
    let found = &status["cooperation"][name];
    found
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {status:#}"))
}

/// Mounts that lend, as the server knows.
pub fn lending(cell: &Cell, count: usize, args: &[&str]) -> Vec<Mount> {
    let before = figure(cell.addr(), "lenders");
    let mounts: Vec<Mount> = (0..count).map(|_| cell.mount_with(args)).collect();
    let all = before + count as u64;
    let lend = eventually(LIMIT, || figure(cell.addr(), "lenders") == all);
    assert!(lend, "{:#}", status(cell.addr()));
    mounts
}

pub fn server_sent(cell: &Cell) -> u64 {
    status(cell.addr())["bytes"]["sent"].as_u64().unwrap()
}

/// Has the kernel forget the pages of a file, so that the mount is asked for them again.
pub fn forget(path: &Path) {
    fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

/// A mount reads a file twice: the second reading begins the lending, so the mount lends it then.
fn read_twice(mount: &Mount, name: &str, content: &[u8]) {
    let path = mount.join(name);
    for _ in 0..2 {
        assert!(fs::read(&path).unwrap() == content, "wrong bytes in {name}");
        forget(&path);
    }
}

#[test]
fn many_readers_of_a_cold_file_pull_it_from_the_server_about_once() {
    let Some(cell) = greedy("many_readers_of_a_cold_file") else {
        return;
    };
    let content = bytes(1, 24 * MIB);
    put(&cell, "image", &content);
    let mounts = lending(&cell, 8, &[]);
    let before = server_sent(&cell);
    thread::scope(|scope| {
        for mount in &mounts {
            let content = &content;
            scope.spawn(move || {
                assert!(
                    fs::read(mount.join("image")).unwrap() == *content,
                    "wrong bytes"
                );
            });
        }
    });
    let sent = server_sent(&cell) - before;
    let share = sent as f64 / content.len() as f64;
    println!("8 readers, 24 MiB: the server sent {share:.2} times the file");
    assert!(share <= 1.3, "{share} times: {:#}", status(cell.addr()));
}

/// Each mount reads its part of what fits into all caches together and into none alone, twice; then
/// that of another one: bytes that the server sent for the last round.
fn last_round(cell: &Cell) -> u64 {
    const FILES: usize = 18;
    let contents: Vec<Vec<u8>> = (0..FILES).map(|n| bytes(n as u64, MIB)).collect();
    let writer = cell.mount();
    for (n, content) in contents.iter().enumerate() {
        fs::write(writer.join(&format!("f{n}")), content).unwrap();
    }
    drop(writer);
    let mounts: Vec<Mount> = (0..3)
        .map(|_| cell.mount_with(&["--cache-mib", "8"]))
        .collect();
    let check = |mount: &Mount, n: usize| {
        let path = mount.join(&format!("f{n}"));
        assert!(
            fs::read(&path).unwrap() == contents[n],
            "wrong bytes in f{n}"
        );
        forget(&path);
    };
    for n in (0..FILES).chain(0..FILES) {
        check(&mounts[n % 3], n);
    }
    let before = server_sent(cell);
    for n in 0..FILES {
        check(&mounts[(n + 1) % 3], n);
    }
    server_sent(cell) - before
}

#[test]
fn what_fits_all_caches_and_none_alone_is_served_by_neighbours() {
    let Some(with) = greedy("fits_all_caches_with") else {
        return;
    };
    let without = cell("fits_all_caches_without", &["--cooperate", "off"]).unwrap();
    let (with, without) = (last_round(&with), last_round(&without));
    println!("the server sent {with} bytes, without lending {without}");
    assert!(
        with < without / 2,
        "{with} bytes, without lending {without}"
    );
}

#[test]
fn lending_begins_and_ends_while_the_server_runs() {
    let Some(cell) = cell("lending_begins_and_ends", &["--cooperate", "off"]) else {
        return;
    };
    let content = bytes(3, MIB);
    put(&cell, "f", &content);
    let mounts = [cell.mount(), cell.mount()];
    let cooperate = |policy: &str| {
        let output = run(&mut ariel(&["cooperate", cell.addr(), policy]));
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), policy);
    };
    let lenders = |count| {
        let lend = eventually(LIMIT, || figure(cell.addr(), "lenders") == count);
        assert!(lend, "{:#}", status(cell.addr()));
    };
    lenders(0);
    cooperate("greedy");
    lenders(2);
    read_twice(&mounts[0], "f", &content);
    assert!(fs::read(mounts[1].join("f")).unwrap() == content);
    assert_eq!(figure(mounts[1].path(), "borrowed"), 256);
    assert_eq!(figure(mounts[0].path(), "lent"), 256);
    cooperate("off");
    lenders(0);
    let ends = eventually(LIMIT, || {
        let status = status(mounts[1].path());
        status["cooperation"]["lends"] == false
    });
    assert!(ends, "{:#}", status(mounts[1].path()));
    put(&cell, "g", &content);
    for mount in &mounts {
        assert!(fs::read(mount.join("g")).unwrap() == content);
    }
    assert_eq!(figure(mounts[1].path(), "borrowed"), 256);
    let output = run(&mut ariel(&["cooperate", cell.addr(), "central"]));
    assert!(!output.status.success());
}

#[test]
fn a_lender_keeps_to_the_rate_that_its_owner_has_set() {
    let Some(cell) = greedy("a_lender_keeps_to_its_rate") else {
        return;
    };
    let content = bytes(9, 8 * MIB);
    put(&cell, "f", &content);
    let lender = lending(&cell, 1, &["--lend-mbit", "8"]).remove(0);
    let reader = lending(&cell, 1, &[]).remove(0);
    read_twice(&lender, "f", &content);
    let began = Instant::now();
    assert!(fs::read(reader.join("f")).unwrap() == content);
    let took = began.elapsed();
    let lent = figure(lender.path(), "lent") * 4096;
    println!("{lent} bytes were lent in {took:?}");
    // A quarter of a second's worth ahead, and one answer.
    let most = 1e6 * (took.as_secs_f64() + 0.25) + MIB as f64;
    assert!(
        lent > 0 && (lent as f64) <= most,
        "{lent} bytes in {took:?}"
    );
}

/// Reads a file whose only lender is killed, or else stopped: how long it takes.
fn read_beside(name: &str, killed: bool) -> Option<Duration> {
    let cell = greedy(name)?;
    let content = bytes(4, 4 * MIB);
    put(&cell, "f", &content);
    let mut mounts = lending(&cell, 2, &[]);
    let (mut lender, reader) = (mounts.remove(0), mounts.remove(0));
    read_twice(&lender, "f", &content);
    match killed {
        true => lender.daemon().signal(Signal::KILL),
        false => lender.stand(),
    }
    let began = Instant::now();
    assert!(fs::read(reader.join("f")).unwrap() == content);
    let took = began.elapsed();
    assert_eq!(figure(reader.path(), "borrowed"), 0);
    match killed {
        true => lender.kill9(),
        false => {
            let failing = figure(reader.path(), "failing");
            assert!(failing > 0, "the stopped lender was not asked");
            lender.go_on();
        }
    }
    Some(took)
}

#[test]
fn a_lender_that_is_killed_or_stopped_costs_no_error_and_a_bounded_time() {
    let Some(killed) = read_beside("a_lender_killed", true) else {
        return;
    };
    let stopped = read_beside("a_lender_stopped", false).unwrap();
    println!("read in {killed:?} beside a killed lender, in {stopped:?} beside a stopped one");
    assert!(killed.max(stopped) < Duration::from_secs(10));
}

fn speaks() -> Speaks {
    Speaks {
        oldest: wire::VERSION,
        newest: wire::VERSION,
        program: "test".into(),
    }
}

/// A message, where it came, and the bytes beside it.
type Came<M> = (Arc<Link>, M, Vec<u8>);

/// Passes on what comes over connections.
struct Heard<M> {
    told: Mutex<Sender<Came<M>>>,
    decode: fn(&[u8]) -> M,
}

impl<M: Send> Events for Heard<M> {
    fn opened(&self, _: &Arc<Link>) {}

    fn frame(&self, link: &Arc<Link>, body: &[u8], bulk: Vec<u8>) {
        let message = (self.decode)(body);
        // The test may be over.
        let _ = self
            .told
            .lock()
            .unwrap()
            .send((Arc::clone(link), message, bulk));
    }

    fn closed(&self, _: LinkId, _: &CloseReason) {}
}

type Told<M> = Receiver<Came<M>>;

fn dial<M: Send + 'static>(addr: &str, decode: fn(&[u8]) -> M) -> (Dialer, Arc<Link>, Told<M>) {
    let (send, told) = mpsc::channel();
    let addr: Addresses = addr.parse().unwrap();
    let how = (Passage::InsecureLoopback, speaks());
    let heard = Heard {
        told: Mutex::new(send),
        decode,
    };
    let dialer = Dialer::new(addr, how, Arc::new(heard)).unwrap();
    let link = dialer.wait_connected(LIMIT).unwrap();
    (dialer, link, told)
}

fn say(link: &Arc<Link>, message: Vec<u8>, bulk: Vec<u8>) {
    link.send(message, Bulk::from(bulk));
    link.flush();
}

/// A client that is written by hand: it lends at `addr`, and asks what it likes.
struct Hand {
    _dialer: Dialer,
    link: Arc<Link>,
    told: Told<ToClient>,
    last: u64,
}

impl Hand {
    fn new(cell: &Cell, addr: &str) -> Hand {
        let (dialer, link, told) = dial(cell.addr(), |body| wire::decode(body).unwrap());
        let hello = ToServer::Hello {
            version: wire::VERSION,
            session: 0x1234_5678,
            name: b"by hand".to_vec(),
            volume: Vec::new(),
        };
        say(&link, wire::encode(&hello), Vec::new());
        let mut hand = Hand {
            _dialer: dialer,
            link,
            told,
            last: 0,
        };
        hand.hear(|message| matches!(message, ToClient::Lend { .. }).then_some(()));
        let (addr, key) = (addr.as_bytes().to_vec(), [0; 32]);
        say(
            &hand.link,
            wire::encode(&ToServer::Lends { addr, key }),
            Vec::new(),
        );
        hand
    }

    fn hear<T>(&mut self, what: impl Fn(ToClient) -> Option<T>) -> T {
        loop {
            let (_, message, _) = self.told.recv_timeout(LIMIT).unwrap();
            if let Some(found) = what(message) {
                return found;
            }
        }
    }

    fn ask(&mut self, op: Op, lenders: Lenders) -> Outcome {
        self.last += 1;
        let id = self.last;
        let request = Request {
            acked: id,
            lenders,
            ..Request::new(id, op)
        };
        say(
            &self.link,
            wire::encode(&ToServer::Request(request)),
            Vec::new(),
        );
        self.hear(|message| match message {
            ToClient::Reply { id: of, reply, .. } if of == id => Some(reply.outcome),
            _ => None,
        })
    }

    /// Reads the beginning of a file, as somebody who lends.
    fn read(&mut self, name: &str, len: u32) -> (Fid, Outcome) {
        let name = Name::new(name.as_bytes()).unwrap();
        let dir = Fid::root(1);
        let Outcome::Entry(entry) = self.ask(Op::Lookup { dir, name }, Lenders::None) else {
            panic!("it is there");
        };
        let (fid, offset) = (entry.fid, 0);
        let access = Access {
            read: true,
            write: false,
        };
        self.ask(Op::Open { fid, access }, Lenders::None);
        (fid, self.ask(Op::Read { fid, offset, len }, Lenders::Any))
    }

    /// Is the first reader of a file, and its second: so this client lends it.
    fn read_twice(&mut self, name: &str, len: u32) {
        for _ in 0..2 {
            let (_, outcome) = self.read(name, len);
            assert!(matches!(outcome, Outcome::Read { .. }), "{outcome:?}");
        }
    }
}

#[test]
fn bytes_of_a_lender_that_lies_are_never_shown() {
    let Some(cell) = cell("a_lender_lies", &["--cooperate", "greedy", INSECURE]) else {
        return;
    };
    let content = bytes(5, MIB);
    let (send, asked) = mpsc::channel();
    let options = ListenOptions {
        entrance: Entrance::InsecureLoopback,
        speaks: speaks(),
        silence: LIMIT,
    };
    let events = Arc::new(Heard {
        told: Mutex::new(send),
        decode: |body| wire::decode::<ToLender>(body).unwrap(),
    });
    let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], options, events).unwrap();
    // Before it comes: it answers no question about what it caches.
    for round in 0..3 {
        put(&cell, &format!("f{round}"), &content);
    }
    // Nothing is noted of a client that lends alone.
    let _other = lending(&cell, 1, &[]);
    let mut liar = Hand::new(&cell, &listener.local_addr().to_string());
    // Other bytes; the bytes of an old version; too few bytes, and a word that is none.
    let old = bytes(6, MIB);
    let mut changed = content.clone();
    changed[MIB / 2] ^= 1;
    for (round, lie) in [changed, old, vec![0; 7]].into_iter().enumerate() {
        let name = format!("f{round}");
        liar.read_twice(&name, MIB as u32);
        // It rests after the failures of the round before.
        let reader = eventually(LIMIT, || {
            let mount = cell.mount();
            let read = thread::scope(|scope| {
                let reading = scope.spawn(|| fs::read(mount.join(&name)).unwrap());
                let told = asked.recv_timeout(Duration::from_secs(2));
                let met = told.is_ok();
                if let Ok((link, ToLender::Borrow { ask, .. }, _)) = told {
                    let have = (0..256).collect();
                    say(
                        &link,
                        wire::encode(&ToReader::Lent { ask, have }),
                        lie.clone(),
                    );
                }
                (met, reading.join().unwrap())
            });
            assert!(read.1 == content, "wrong bytes are shown");
            if read.0 {
                assert!(figure(mount.path(), "failing") >= 1);
                assert!(figure(mount.path(), "borrowed") < 256);
            }
            read.0
        });
        assert!(reader, "nobody was sent to the liar");
    }
}

/// The number of blocks that a lender gives for this capability.
fn lent(link: &Arc<Link>, told: &Told<ToReader>, capability: &Capability) -> usize {
    let capability = capability.clone();
    say(
        link,
        wire::encode(&ToLender::Borrow { ask: 9, capability }),
        Vec::new(),
    );
    loop {
        match told.recv_timeout(LIMIT).unwrap() {
            (_, ToReader::Lent { have, .. }, bulk) => {
                assert_eq!(bulk.len(), have.len() * 4096);
                return have.len();
            }
            (_, ToReader::Soon { .. }, _) => {}
        }
    }
}

#[test]
fn nobody_is_sent_to_an_address_that_is_not_the_lenders() {
    let Some(cell) = cell("not_the_lenders", &["--cooperate", "greedy", INSECURE]) else {
        return;
    };
    let content = bytes(8, MIB);
    put(&cell, "f", &content);
    let mounts = lending(&cell, 2, &[]);
    let mut hand = Hand::new(&cell, "127.0.0.2:9");
    hand.read_twice("f", MIB as u32);
    assert!(fs::read(mounts[0].join("f")).unwrap() == content);
    assert_eq!(figure(cell.addr(), "forwarded"), 0);
}

#[test]
fn nothing_is_lent_without_the_servers_word() {
    let Some(cell) = cell(
        "without_the_servers_word",
        &["--cooperate", "greedy", INSECURE],
    ) else {
        return;
    };
    let content = bytes(7, MIB);
    put(&cell, "f", &content);
    put(&cell, "secret", &content);
    let mounts = lending(&cell, 2, &[]);
    read_twice(&mounts[0], "f", &content);
    for mount in &mounts {
        read_twice(mount, "secret", &content);
    }
    let mut hand = Hand::new(&cell, "127.0.0.1:9");
    let (_, outcome) = hand.read("f", 8192);
    let Outcome::Elsewhere(Elsewhere {
        addr, capability, ..
    }) = outcome
    else {
        panic!("the server sends it elsewhere: {outcome:?}");
    };
    let addr = String::from_utf8(addr).unwrap();
    let (_dialer, link, told) = dial(&addr, |body| wire::decode(body).unwrap());
    assert_eq!(lent(&link, &told, &capability), 2);
    let (secret, outcome) = hand.read("secret", 8192);
    let Outcome::Elsewhere(other) = outcome else {
        panic!("the server sends it elsewhere: {outcome:?}");
    };
    // More blocks, another file, a longer time, the word for another lender, no seal at all.
    type Change = fn(&mut Capability);
    let changes: [Change; 4] = [
        |word| word.count = 200,
        |word| word.until += 1_000_000_000,
        |word| word.reader = [1; 32],
        |word| word.seal = [0; 32],
    ];
    for change in changes {
        let mut word = capability.clone();
        change(&mut word);
        assert_eq!(lent(&link, &told, &word), 0, "{word:?}");
    }
    let mut word = capability.clone();
    word.fid = secret;
    assert_eq!(lent(&link, &told, &word), 0);
    assert_ne!(other.addr, addr.as_bytes(), "the latest reader lends it");
    assert_eq!(lent(&link, &told, &other.capability), 0);
}
