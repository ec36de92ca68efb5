//! Eight machines read one cold file at once, each over its own link: the server sends it about
//! once, and the last machine has it sooner than one server could have sent it to all: in the long
//! form in half of that time, at most.

use crate::harness::machines::Machines;
use crate::harness::{Random, eventually, has_program, long};
use crate::machines::can_have_machines;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: [&str; 8] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"];
const LIMIT: Duration = Duration::from_secs(60);
const MBIT: u32 = 200;
const PIECE: usize = 1 << 20;

/// The bytes of a MiB of the file: its number, and what is the same in all.
struct Content(Vec<u8>);

impl Content {
    fn new() -> Self {
        Self(Random(7).bytes(PIECE))
    }

    fn piece(&mut self, number: u64) -> &[u8] {
        self.0[..8].copy_from_slice(&number.to_le_bytes());
        &self.0
    }
}

fn write(path: PathBuf, mib: u64) {
    let (mut file, mut content) = (File::create(path).unwrap(), Content::new());
    for number in 0..mib {
        file.write_all(content.piece(number)).unwrap();
    }
}

/// Reads it from its beginning to its end; the kernel forgets what was read, since eight machines
/// are one here.
fn read(path: PathBuf, mib: u64) {
    let (mut file, mut content) = (File::open(path).unwrap(), Content::new());
    let mut piece = vec![0; PIECE];
    for number in 0..mib {
        file.read_exact(&mut piece).unwrap();
        assert!(
            piece == content.piece(number),
            "wrong bytes in MiB {number}"
        );
        let len = NonZeroU64::new(PIECE as u64);
        fadvise(&file, number * PIECE as u64, len, Advice::DontNeed).unwrap();
    }
    assert_eq!(file.read(&mut piece).unwrap(), 0);
}

fn server_status(machines: &mut Machines) -> Value {
    let told = machines.must("server", "ariel status --json 127.0.0.1:7070");
    serde_json::from_str(&told).unwrap()
}

/// Under a policy: how often the server sent the bytes of the file, and how long it took.
fn all_read(machines: &mut Machines, policy: &str, mib: u64) -> (f64, Duration) {
    machines.must(
        "server",
        &format!("ariel cooperate 127.0.0.1:7070 {policy}"),
    );
    for client in CLIENTS {
        machines.must(
            client,
            "ariel mount server:7070 /mnt --lend always --cache-mib 1200",
        );
    }
    let lend = if policy == "off" { 0 } else { CLIENTS.len() };
    let all = eventually(LIMIT, || {
        server_status(machines)["cooperation"]["lenders"] == lend
    });
    assert!(all, "{:#}", server_status(machines));
    let sent = |machines: &mut Machines| server_status(machines)["bytes"]["sent"].as_f64().unwrap();
    let before = sent(machines);
    let paths = CLIENTS.map(|client| machines.at(client, "/mnt/image"));
    let began = Instant::now();
    thread::scope(|scope| {
        for path in paths {
            scope.spawn(move || read(path, mib));
        }
    });
    let took = began.elapsed();
    let share = (sent(machines) - before) / (mib * PIECE as u64) as f64;
    println!("{policy}: the server sent {share:.2} times the file, {took:.1?}");
    for client in CLIENTS {
        machines.must(client, "ariel umount /mnt");
    }
    (share, took)
}

#[test]
fn eight_machines_that_read_a_cold_file_over_slow_links_pull_it_from_the_server_about_once() {
    let test = "cold_file";
    if !can_have_machines(test) || !has_program(test, "tc") {
        return;
    }
    let mib = if long() { 1024 } else { 48 };
    let mut machines = Machines::new(&[&["server"], &CLIENTS[..]].concat());
    machines.make_cell(("server", &CLIENTS), "/srv/a", "true");
    machines.must(
        "server",
        "ariel mount server:7070 /mnt --credentials /srv/a/cell/machine",
    );
    write(machines.at("server", "/mnt/image"), mib);
    machines.must("server", "ariel umount /mnt");
    machines.slow(MBIT);
    let (without, alone) = all_read(&mut machines, "off", mib);
    let (with, together) = all_read(&mut machines, "fleet", mib);
    assert!(without > 7.9, "each reads it from the server: {without}");
    assert!(with <= 1.3, "the server sent {with} times the file");
    // Beside other tests the processors are the limit, not the links.
    let times = if long() { 2 } else { 1 };
    assert!(together * times <= alone, "{together:?} beside {alone:?}");
}
