//! A conversation of a client and a server of each protocol version, byte by byte, is kept in
//! `protocol_N.txt`: this program serves that client, and understands that server. A file is never
//! edited. For a new version `RECORD=1` writes one beside it, and the older one stays as long as
//! programs that speak it are to be understood.

use crate::harness::cell::{CellOptions, INSECURE};
use crate::harness::{Cell, real_system};
use crate::refused::Hand;
use crate::versions::{SOON, speaks};
use net::Passage;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wire::{Caller, Fid, Make, Name, Op, Outcome, Refusal, ToServer, VERSION, VERSION_OLDEST};

const SESSION: u64 = 77;
const TARGET: &[u8] = b"bytes of a recorded client";
const COLUMNS: usize = 80;

/// The two directions of a conversation.
#[derive(Clone, Default)]
struct Tape {
    client: Vec<u8>,
    server: Vec<u8>,
}

fn file(version: u32) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/versions");
    dir.join(format!("protocol_{version}.txt"))
}

impl Tape {
    fn load(version: u32) -> Self {
        let path = file(version);
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}: RECORD=1", path.display()));
        let of = |who: &str| {
            let lines = text.lines().filter_map(|line| line.strip_prefix(who));
            let digits: Vec<u8> = lines.flat_map(|line| line.trim().bytes()).collect();
            let byte =
                |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            digits.chunks(2).map(byte).collect()
        };
        Self {
            client: of("client "),
            server: of("server "),
        }
    }

    fn save(&self, version: u32) {
        let mut text = format!(
            "# A client and a server of protocol version {version}, all that each of them said to \
             the other one: bytes in\n# hexadecimal. Never edited: `recorded.rs` says what it \
             shows.\n"
        );
        for (who, bytes) in [("client", &self.client), ("server", &self.server)] {
            for line in bytes.chunks(COLUMNS / 2) {
                let digits = line.iter().fold(String::new(), |mut digits, byte| {
                    write!(digits, "{byte:02x}").unwrap();
                    digits
                });
                writeln!(text, "{who} {digits}").unwrap();
            }
        }
        std::fs::write(file(version), text).unwrap();
    }
}

/// Is it the right kind of answer?
type Fits = fn(&Outcome) -> bool;

/// The questions, each with the kind of its answer.
fn questions() -> Vec<(Op, Fits)> {
    let (dir, name) = (Fid::root(1), |text: &str| {
        Name::new(text.as_bytes()).unwrap()
    });
    let make = |called: &str, make: Make| Op::Make {
        dir,
        name: name(called),
        make,
        mode: 0o755,
        open: None,
    };
    let rename = Op::Rename {
        from: dir,
        name: name("link"),
        to: dir,
        new: name("renamed"),
        no_replace: false,
        exchange: false,
    };
    let looks = |called: &str| Op::Lookup {
        dir,
        name: name(called),
    };
    let is_entry = |outcome: &Outcome| matches!(outcome, Outcome::Entry(_));
    vec![
        (make("made", Make::Directory), is_entry),
        (make("link", Make::Symlink(TARGET.to_vec())), is_entry),
        (make("link", Make::Directory), |outcome| {
            *outcome == Outcome::Refused(Refusal::Exists)
        }),
        (rename, |outcome| matches!(outcome, Outcome::Renamed { .. })),
        (looks("renamed"), |outcome| {
            let target = TARGET.len() as u64;
            matches!(outcome, Outcome::Entry(entry) if entry.attr.size == target)
        }),
        (looks("link"), |outcome| {
            matches!(outcome, Outcome::Absent { .. })
        }),
    ]
}

/// Asks them all in this version of the protocol, and takes its leave.
fn converse(addr: std::net::SocketAddr, version: u32) {
    let speaks = speaks(version, version, "recorded");
    let hand = Hand::through(addr, Passage::InsecureLoopback, (SESSION, speaks));
    let mut hand = hand.unwrap();
    for (question, fits) in questions() {
        let answer = hand.asks(question.clone(), &Caller::default());
        assert!(fits(&answer), "{question:?}: {answer:?}");
    }
    hand.say(&ToServer::Goodbye);
}

fn insecure(name: &str) -> Option<Cell> {
    if !real_system(name) {
        return None;
    }
    let options = CellOptions {
        serve_args: vec![INSECURE.to_owned()],
        ..CellOptions::default()
    };
    Cell::start_with(name, options)
}

/// Copies one direction until it ends.
fn carry(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let (mut said, mut piece) = (Vec::new(), [0; 65_536]);
    while let Ok(len @ 1..) = from.read(&mut piece) {
        said.extend_from_slice(&piece[..len]);
        if to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    said
}

fn record(cell: &Cell) -> Tape {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = cell.addr().to_owned();
    let tape = Arc::new(Mutex::new(Tape::default()));
    let kept = Arc::clone(&tape);
    let carried = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let back = thread::spawn(move || carry(server, client));
        let said = carry(from, to);
        *kept.lock().unwrap() = Tape {
            client: said,
            server: back.join().unwrap(),
        };
    });
    converse(addr, VERSION);
    carried.join().unwrap();
    let tape = tape.lock().unwrap().clone();
    assert!(tape.client.len() > 400 && tape.server.len() > 400);
    tape
}

#[test]
fn recorded_clients_of_each_version_are_served() {
    for version in VERSION_OLDEST..=VERSION {
        let Some(cell) = insecure("versions-recorded") else {
            return;
        };
        if std::env::var_os("RECORD").is_some() {
            record(&cell).save(VERSION);
            return;
        }
        is_served(&cell, &Tape::load(version));
    }
}

fn is_served(cell: &Cell, tape: &Tape) {
    let mut stream = TcpStream::connect(cell.addr()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&tape.client).unwrap();
    // It has said goodbye, so the server ends the connection when it has answered.
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered).unwrap();
    let told = cell.server_log();
    assert!(
        answered.len() >= tape.server.len() / 2,
        "{} bytes: {told}",
        answered.len()
    );
    let mount = cell.mount();
    assert!(mount.join("made").is_dir(), "{told}");
    let target = std::fs::read_link(mount.join("renamed")).unwrap();
    assert_eq!(target.as_os_str().as_encoded_bytes(), TARGET);
    assert!(mount.join("link").symlink_metadata().is_err());
}

#[test]
fn recorded_servers_of_each_version_are_understood() {
    if !real_system("versions-recorded-server") || std::env::var_os("RECORD").is_some() {
        return;
    }
    for version in VERSION_OLDEST..=VERSION {
        is_understood(version, Tape::load(version));
    }
}

fn is_understood(version: u32, tape: Tape) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = tape.server;
    let played = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        client.write_all(&server).unwrap();
        let mut said = Vec::new();
        // The client ends the connection.
        let _ = client.read_to_end(&mut said);
        said
    });
    converse(addr, version);
    // It says what the recorded client said, too.
    assert_eq!(played.join().unwrap(), tape.client);
}
