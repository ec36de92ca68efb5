//! Strangers and machines that want to keep others from work: rubbish, records that are cut off or
//! played again, lengths that are lies, handshakes that stop, connections that do nothing, and
//! questions without end. Meanwhile another machine's program works as before, and the server takes
//! no more memory than it says.
//!
//! The attackers share this machine with the server, which those of a network do not: so they have
//! one processor of it, for the time that nobody else wants it (nice 19), and in the times that
//! their attack is compared with they are as busy there, without an attack.

use crate::harness::cell::CellOptions;
use crate::harness::status::{resident_mib, status};
use crate::harness::{Cell, Random, long, real_system, say};
use crate::refused::{Hand, joins};
use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketType};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use wire::{Fid, Op};

/// A program that is woken waits until the other one on its processor has had its slice, 3 ms as a
/// rule: the slowest answers of an idle time are not compared below it.
const LEAST: Duration = Duration::from_millis(4);
/// Other programs on this machine come and go: a bound that does not hold is looked at again.
const ATTEMPTS: usize = 4;
/// Most memory that attackers make a server take beside what it has.
const MORE_MIB: u64 = 192;
/// The idle time and the attack take turns; fewer answers than these have no slowest hundredth.
const TURNS: usize = 2;
const SAMPLES: usize = 100;
/// Connections that do nothing.
const IDLE: usize = 1000;

/// One way to be a nuisance, done once; how many connections that were.
type Attack<'a> = dyn Fn(&mut Random) -> u64 + Sync + 'a;

/// Connects from an address of the loopback network, as one of many machines would.
fn connect(to: SocketAddr, from: u64) -> Option<TcpStream> {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let [high, low] = ((from % 60_000) as u16 + 256).to_be_bytes();
    net::bind(&socket, &SocketAddr::from(([127, 77, high, low], 0))).unwrap();
    // A queue that is full answers late.
    let patience = Some(Duration::from_millis(500));
    for which in [Timeout::Send, Timeout::Recv] {
        net::sockopt::set_socket_timeout(&socket, which, patience).unwrap();
    }
    net::connect(&socket, &to).ok()?;
    Some(TcpStream::from(socket))
}

/// Sends this from one of a few hundred addresses, and hears what comes; it may be cut off.
fn send(to: SocketAddr, random: &mut Random, bytes: &[u8]) -> u64 {
    let Some(mut stream) = connect(to, random.below(300)) else {
        return 0;
    };
    if stream.write_all(bytes).is_ok() {
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0; 4096]);
    }
    1
}

/// All that a machine which comes in says, for others to say it again.
fn recorded(cell: &Cell, credential: &Path) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (addr, server) = (listener.local_addr().unwrap(), cell.addr().to_owned());
    let carried = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut to = TcpStream::connect(server).unwrap();
        let (mut from, mut back) = (to.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut back));
        let (mut said, mut piece) = (Vec::new(), [0; 65_536]);
        while let Ok(len @ 1..) = client.read(&mut piece) {
            said.extend_from_slice(&piece[..len]);
            to.write_all(&piece[..len]).unwrap();
        }
        said
    });
    let mut hand = Hand::at(addr, credential, 77).expect("it comes in");
    hand.floods(&Op::StatFs, 1, &AtomicBool::new(true));
    drop(hand);
    let said = carried.join().unwrap();
    assert!(said.len() > 1000, "{} bytes", said.len());
    said
}

/// The slowest of a hundred answers.
fn p99(mut times: Vec<Duration>) -> Duration {
    assert!(times.len() >= SAMPLES, "{} samples", times.len());
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// Asks, through a mount, what the server alone knows, for so long, and until there are enough
/// answers.
fn ask(dir: &Path, time: Duration) -> Vec<Duration> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time || times.len() < SAMPLES / TURNS {
        let asked = Instant::now();
        rustix::fs::statvfs(dir).unwrap();
        times.push(asked.elapsed());
        // The pace of a program that does other things, too: until `time` is over.
        thread::sleep(Duration::from_millis(1));
    }
    times
}

/// The time of each round, idle and under attack.
fn round_time() -> Duration {
    Duration::from_millis(if long() { 5000 } else { 600 })
}

struct Figures {
    done: u64,
    idle: Duration,
    under: Duration,
    mib: u64,
}

impl Figures {
    /// Were the others as fast as when nothing goes on, or twice as slow at most?
    fn is_harmless(&self) -> bool {
        self.under <= 2 * self.idle.max(LEAST)
    }
}

/// Makes this thread one of the attackers' machine.
fn is_theirs() {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).unwrap();
    // Of a thread, though Linux says process.
    setpriority_process(Some(rustix::thread::gettid()), 19).unwrap();
}

/// Ends the attackers' threads, also when the test fails: else it would wait for them for ever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets so many threads of the attackers' machine do this, again and again, until the end of what
/// this one does.
fn meanwhile(attackers: u64, turn: u64, attack: &Attack<'_>, own: impl FnOnce()) -> u64 {
    let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..attackers {
            let (ends, done) = (&ends, &done);
            scope.spawn(move || {
                is_theirs();
                let mut random = Random((turn * 64 + seed) * 7919 + 1);
                while !ends.load(Ordering::SeqCst) {
                    done.fetch_add(attack(&mut random), Ordering::SeqCst);
                }
            });
        }
        let _end = End(&ends);
        own();
    });
    done.load(Ordering::SeqCst)
}

/// Work of the attackers' machine that is no attack.
fn computes(random: &mut Random) -> u64 {
    (0..1000).fold(0, |sum, _| sum ^ random.next()) & 1
}

/// Has a program of another machine measured, alone and while this goes on, in turn.
fn turns(
    (cell, dir): (&Cell, &Path),
    attackers: u64,
    (attack, calm): (&Attack<'_>, &dyn Fn()),
) -> Figures {
    let (mut idle, mut under, mut mib, mut done) = (Vec::new(), Vec::new(), 0, 0);
    for turn in 0..TURNS as u64 {
        calm();
        meanwhile(attackers, turn, &computes, || {
            idle.extend(ask(dir, round_time()))
        });
        done += meanwhile(attackers, turn, attack, || {
            under.extend(ask(dir, round_time()));
            mib = mib.max(resident_mib(cell.addr()));
        });
    }
    Figures {
        done,
        idle: p99(idle),
        under: p99(under),
        mib,
    }
}

/// Does the server copy much for it?
fn is_costly(name: &str) -> bool {
    name == "reads of 1 MiB"
}

/// The attack is made, slows nobody down, and takes bounded memory; how often it was made.
fn assert_harmless(
    own: (&Cell, &Path, u64),
    (name, attackers): (&str, u64),
    (attack, calm): (&Attack<'_>, &dyn Fn()),
) -> u64 {
    let (cell, dir, before_mib) = own;
    for attempt in 1..=ATTEMPTS {
        let figures = turns((cell, dir), attackers, (attack, calm));
        let Figures {
            done,
            idle,
            under,
            mib,
        } = figures;
        say(&format!(
            "{name:22} {done:>8}   p99 idle {idle:>9.1?}   under it {under:>9.1?}   {mib} MiB"
        ));
        assert!(done > 0, "{name}: nothing was done");
        let most = before_mib + MORE_MIB;
        assert!(mib <= most, "{name}: {mib} MiB, and {before_mib} before");
        if figures.is_harmless() {
            return done;
        }
        // Copying takes an unoptimised program many times as long.
        if cfg!(debug_assertions) && is_costly(name) {
            say(&format!(
                "NOT JUDGED: the time of {name}, of an unoptimised program"
            ));
            return done;
        }
        assert!(
            attempt < ATTEMPTS,
            "{name}: p99 {under:?}, {idle:?} when idle"
        );
    }
    0
}

/// A machine that has a certificate comes in meanwhile, at once.
fn comes_in(cell: &Cell, credential: &Path, session: u64) {
    let began = Instant::now();
    let hand = Hand::try_new(cell, credential, session);
    let took = began.elapsed();
    assert!(
        hand.is_some() && took < Duration::from_secs(3),
        "came in: {}, after {took:?}",
        hand.is_some()
    );
}

fn start(name: &str) -> Option<Cell> {
    if !real_system(name) {
        return None;
    }
    let options = CellOptions {
        alone: true,
        ..CellOptions::default()
    };
    Cell::start_with(name, options).filter(|cell| !cell.is_insecure())
}

#[test]
fn strangers_who_flood_slow_nobody_down_and_take_bounded_memory() {
    let Some(cell) = start("flood-strangers") else {
        return;
    };
    let (mount, guest) = (cell.mount(), joins(&cell, "guest"));
    let to: SocketAddr = cell.addr().parse().unwrap();
    let said = recorded(&cell, &guest);
    let before = resident_mib(cell.addr());
    let clients = status(cell.addr())["clients"].as_u64().unwrap();
    let own = (&cell, mount.path(), before);
    let huge = [&[0x16, 3, 1, 0xff, 0xff][..], &[1; 70_000]].concat();
    let frame = [b"ARIL".as_slice(), &[0xff; 60]].concat();
    let rubbish = |random: &mut Random| {
        let bytes = random.bytes(20_000);
        send(to, random, &bytes)
    };
    let truncated = |random: &mut Random| {
        let len = random.below(said.len() as u64) as usize;
        send(to, random, &said[..len])
    };
    let replay = |random: &mut Random| send(to, random, &said);
    let lengths = |random: &mut Random| {
        let bytes = if random.below(2) == 0 { &huge } else { &frame };
        send(to, random, bytes)
    };
    for (name, attack) in [
        ("rubbish", &rubbish as &Attack<'_>),
        ("cut records", &truncated),
        ("records played again", &replay),
        ("huge lengths", &lengths),
    ] {
        assert_harmless(own, (name, 4), (attack, &|| {}));
    }
    // Nothing that was played again was taken for a client.
    assert_eq!(status(cell.addr())["clients"].as_u64(), Some(clients));
    comes_in(&cell, &guest, 78);
    let log = cell.server_log().len();
    assert!(log < 200_000, "the server's log has {log} bytes");
}

#[test]
fn connections_that_do_nothing_keep_nobody_out() {
    let Some(cell) = start("flood-idle") else {
        return;
    };
    let (mount, guest) = (cell.mount(), joins(&cell, "guest"));
    let to: SocketAddr = cell.addr().parse().unwrap();
    let said = recorded(&cell, &guest);
    let before = resident_mib(cell.addr());
    // The greeting of TLS, and nothing behind it; or nothing at all.
    let hello = 5 + usize::from(u16::from_be_bytes([said[3], said[4]]));
    let held = std::sync::Mutex::new(std::collections::VecDeque::new());
    let attack = |silent: bool, random: &mut Random| {
        let mut stream = match connect(to, random.below(300)) {
            Some(stream) => stream,
            None => return 0,
        };
        if !silent && stream.write_all(&said[..hello]).is_err() {
            return 0;
        }
        let mut held = held.lock().unwrap();
        held.push_back(stream);
        // There are always so many, new ones in the place of old ones.
        if held.len() > IDLE {
            held.pop_front();
        }
        1
    };
    let own = (&cell, mount.path(), before);
    let calm = || held.lock().unwrap().clear();
    for (name, silent) in [
        ("silent connections", true),
        ("half-open handshakes", false),
    ] {
        assert_harmless(own, (name, 4), (&|random| attack(silent, random), &calm));
        // So many are there while a machine comes in.
        let mut random = Random(26);
        for _ in 0..IDLE {
            attack(silent, &mut random);
        }
        let open = held.lock().unwrap().len();
        assert!(open >= IDLE, "{open} connections are open");
        comes_in(&cell, &guest, 80 + u64::from(silent));
    }
}

#[test]
fn a_machine_that_asks_without_end_slows_no_other_one_down() {
    let Some(cell) = start("flood-questions") else {
        return;
    };
    let (mount, guest) = (cell.mount(), joins(&cell, "guest"));
    std::fs::write(mount.join("f"), vec![7; 1 << 20]).unwrap();
    crate::harness::scratch::set_mode(&mount.join("f"), 0o644);
    crate::harness::scratch::set_mode(mount.path(), 0o755);
    std::fs::File::open(mount.join("f"))
        .unwrap()
        .sync_all()
        .unwrap();
    let vnode = std::os::unix::fs::MetadataExt::ino(&mount.join("f").metadata().unwrap());
    let fid = Fid {
        vnode,
        ..Fid::root(1)
    };
    let read = Op::Read {
        fid,
        offset: 0,
        len: 1 << 20,
    };
    let before = resident_mib(cell.addr());
    let own = (&cell, mount.path(), before);
    for (name, op, open) in [
        ("questions", Op::StatFs, 256),
        ("attributes", Op::GetAttr { fid: Fid::root(1) }, 4096),
        ("reads of 1 MiB", read, 64),
    ] {
        let session = AtomicU64::new(1_000_000 * open);
        let attack = |_: &mut Random| {
            let session = session.fetch_add(1, Ordering::SeqCst);
            let mut hand = Hand::try_new(&cell, &guest, session).unwrap();
            let ends = AtomicBool::new(false);
            thread::scope(|scope| {
                let began = Instant::now();
                let flood = scope.spawn(|| {
                    setpriority_process(Some(rustix::thread::gettid()), 19).unwrap();
                    hand.floods(&op, open, &ends)
                });
                while began.elapsed() < Duration::from_millis(500) && !flood.is_finished() {
                    thread::sleep(Duration::from_millis(10));
                }
                ends.store(true, Ordering::SeqCst);
                flood.join().unwrap()
            })
        };
        assert_harmless(own, (name, 1), (&attack, &|| {}));
    }
}
