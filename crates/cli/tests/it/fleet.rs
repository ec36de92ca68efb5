//! Six machines read a set of files that fits their memories together, and none alone, from a
//! server with little memory and a disk that takes 5 ms for each read. Under each policy of
//! cooperation: the time of a read and the reads of the disk, beside those of the replay of the
//! same accesses, which are recorded meanwhile.

use crate::harness::group::{Group, RoomForFiles};
use crate::harness::machines::Machines;
use crate::harness::process::{Proc, ariel, run_within, text};
use crate::harness::slow_disk::SlowDisk;
use crate::harness::{Random, Scratch, eventually, long};
use crate::machines::can_have_machines;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: [&str; 6] = ["m0", "m1", "m2", "m3", "m4", "m5"];
const LIMIT: Duration = Duration::from_secs(60);
const ARM: Duration = Duration::from_millis(5);
const KIB: usize = 1 << 10;
const FILE: usize = 256 * KIB;

/// The sizes of a run.
struct Size {
    files: usize,
    cache_mib: usize,
    /// Memory of the server for files.
    server_mib: usize,
    /// Files that each machine reads before the times count, and after it.
    warm: usize,
    counted: usize,
}

/// One run under a policy.
struct Ran {
    policy: &'static str,
    mean_ms: f64,
    disk_reads: u64,
    /// Of the replay: blocks read from the disk, and the mean time of a block, with a disk.
    replayed_disk: f64,
    replayed_us: f64,
}

/// The server on its slow disk, and six machines of its cell.
struct Fleet {
    machines: Machines,
    _room: RoomForFiles,
    group: Group,
    disk: SlowDisk,
    scratch: Scratch,
    size: Size,
}

impl Fleet {
    fn new(name: &str, size: Size) -> Option<Self> {
        if !can_have_machines(name) {
            return None;
        }
        let scratch = Scratch::new(name);
        let group = Group::new(name, 1024)?;
        let disk = SlowDisk::new(&scratch, 256);
        let mut machines = Machines::new(&[&["server"], &CLIENTS[..]].concat());
        let data = disk.path().join("a").display().to_string();
        let procs = group.path().join("cgroup.procs");
        let within = format!("echo $$ > {}", procs.display());
        machines.make_cell(("server", &CLIENTS), &data, &within);
        let own = format!("ariel mount server:7070 /mnt --credentials {data}/cell/machine");
        machines.must("server", &own);
        let mount = machines.at("server", "/mnt");
        for n in 0..size.files {
            fs::write(mount.join(format!("f{n}")), content(n)).unwrap();
        }
        machines.must("server", "ariel umount /mnt");
        let room = group.keep_room_for_files((size.server_mib as u64) << 20);
        disk.takes(ARM);
        Some(Self {
            machines,
            _room: room,
            group,
            disk,
            scratch,
            size,
        })
    }

    fn lenders(&mut self) -> u64 {
        let told = self.figures("server", "127.0.0.1:7070");
        told["lenders"].as_u64().unwrap()
    }

    /// All machines mount afresh, under a policy.
    fn mount(&mut self, policy: &str) {
        let set = format!("ariel cooperate 127.0.0.1:7070 {policy}");
        self.machines.must("server", &set);
        let mount = format!(
            "ariel mount server:7070 /mnt --lend always --cache-mib {}",
            self.size.cache_mib
        );
        for client in CLIENTS {
            self.machines.must(client, &mount);
        }
        let lend = if policy == "off" { 0 } else { 6 };
        assert!(eventually(LIMIT, || self.lenders() == lend), "no lenders");
    }

    /// A recorder on each machine, and the trace that it writes.
    fn record(&mut self, policy: &str) -> Vec<(Proc, PathBuf)> {
        let record = |(number, client): (usize, &&str)| {
            let out = self.scratch.join(&format!("{policy}-{number}.trace"));
            let line = format!(
                "exec ariel trace record /mnt --client {number} --key test --out {}",
                out.display()
            );
            let mut command = self.machines.command(client, &line);
            let mut recorder = Proc::spawn(command.stdout(Stdio::piped()), None).unwrap();
            let mut said = BufReader::new(recorder.child().stdout.take().unwrap());
            let mut first = String::new();
            said.read_line(&mut first).unwrap();
            assert!(first.starts_with("recording"), "{first}");
            (recorder, out)
        };
        CLIENTS.iter().enumerate().map(record).collect()
    }

    /// All machines read at once: the mean time of a file of those that count, in ms, and the reads
    /// of the disk meanwhile.
    fn read(&mut self) -> (f64, u64) {
        let roots: Vec<PathBuf> = CLIENTS
            .iter()
            .map(|client| self.machines.at(client, "/mnt"))
            .collect();
        let size = &self.size;
        round(&roots, (size.files, size.warm), 1);
        let before = self.disk.reads();
        let mean_ms = round(&roots, (size.files, size.counted), 2);
        (mean_ms, self.disk.reads() - before)
    }

    fn ran(&mut self, policy: &'static str) -> Ran {
        self.mount(policy);
        let recorders = self.record(policy);
        let (mean_ms, disk_reads) = self.read();
        let mut traces = Vec::new();
        for (mut recorder, trace) in recorders {
            recorder.signal(Signal::INT);
            let ended = recorder.wait(LIMIT).expect("the recorder ends");
            assert!(ended.success(), "{ended}");
            traces.push(trace);
        }
        self.tell(policy);
        for client in CLIENTS {
            self.machines.must(client, "ariel umount /mnt");
        }
        assert_eq!(self.group.killed(), 0);
        let (replayed_disk, replayed_us) = self.replayed(policy, &traces);
        Ran {
            policy,
            mean_ms,
            disk_reads,
            replayed_disk,
            replayed_us,
        }
    }

    /// Says the figures of cooperation of all machines, those of the mounts in sum.
    fn tell(&mut self, policy: &str) {
        let server = self.figures("server", "127.0.0.1:7070");
        let mut sum = std::collections::BTreeMap::new();
        for client in CLIENTS {
            for (name, value) in self.figures(client, "/mnt").as_object().unwrap() {
                *sum.entry(name.clone()).or_insert(0) += value.as_u64().unwrap_or(0);
            }
        }
        println!("{policy}: server {server}, mounts {sum:?}");
    }

    fn figures(&mut self, machine: &str, of: &str) -> Value {
        let told = self
            .machines
            .must(machine, &format!("ariel status --json {of}"));
        let mut told: Value = serde_json::from_str(&told).unwrap();
        told["cooperation"].take()
    }

    /// The same accesses in the simulator of the paper.
    fn replayed(&self, policy: &str, traces: &[PathBuf]) -> (f64, f64) {
        let size = &self.size;
        let mut replay = ariel(&["trace", "replay", "--json", "--policy", policy]);
        replay.args(["--client-mib", &size.cache_mib.to_string()]);
        replay.args(["--server-mib", &size.server_mib.to_string()]);
        let warm = 100 * size.warm / (size.warm + size.counted);
        replay.args(["--warm", &warm.to_string()]);
        let output = run_within(replay.args(traces), LIMIT);
        assert!(output.status.success(), "{}", text(&output));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let reads = told[0]["reads"]["server disk"].as_f64();
        let time = told[0]["response_disk_us"].as_f64();
        (reads.expect("reads of the disk"), time.expect("a time"))
    }
}

/// The bytes of a file, which differ from those of each other one.
fn content(n: usize) -> Vec<u8> {
    Random(n as u64 + 1).bytes(FILE)
}

/// Each machine reads so many files, drawn at random: the mean time of one, in ms.
fn round(roots: &[PathBuf], (files, count): (usize, usize), seed: u64) -> f64 {
    let one = |(number, root): (usize, &PathBuf)| {
        let mut random = Random(1000 * seed + number as u64);
        let mut spent = Duration::ZERO;
        let mut bytes = vec![0; FILE];
        for _ in 0..count {
            let n = random.below(files as u64) as usize;
            let began = Instant::now();
            read(&root.join(format!("f{n}")), &mut bytes);
            spent += began.elapsed();
            assert!(bytes == content(n), "wrong bytes in f{n}");
        }
        spent
    };
    let spent: Duration = thread::scope(|scope| {
        let all: Vec<_> = roots
            .iter()
            .enumerate()
            .map(|at| scope.spawn(move || one(at)))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    spent.as_secs_f64() * 1e3 / (roots.len() * count) as f64
}

/// As programs read: piece by piece.
fn read(path: &Path, bytes: &mut [u8]) {
    let mut file = File::open(path).unwrap();
    for piece in bytes.chunks_mut(64 * KIB) {
        file.read_exact(piece).unwrap();
    }
}

fn table(all: &[Ran]) {
    println!(
        "{:<10}{:>14}{:>12}{:>22}{:>20}",
        "policy", "a file, ms", "disk reads", "replayed: disk blocks", "a block, us"
    );
    for ran in all {
        println!(
            "{:<10}{:>14.2}{:>12}{:>22.0}{:>20.0}",
            ran.policy, ran.mean_ms, ran.disk_reads, ran.replayed_disk, ran.replayed_us
        );
    }
}

/// Where the replay says that a policy reads the disk clearly less than another one, it does so.
fn same_order(all: &[Ran]) {
    for one in all {
        for other in all {
            if one.replayed_disk < 0.5 * other.replayed_disk {
                assert!(
                    one.disk_reads < other.disk_reads,
                    "{} and {} are the other way round",
                    one.policy,
                    other.policy
                );
            }
        }
    }
}

#[test]
fn what_fits_the_memories_of_six_machines_is_read_from_there_and_not_from_a_slow_disk() {
    let size = match long() {
        true => Size {
            files: 256,
            cache_mib: 16,
            server_mib: 8,
            warm: 200,
            counted: 200,
        },
        false => Size {
            files: 96,
            cache_mib: 5,
            server_mib: 4,
            warm: 40,
            counted: 20,
        },
    };
    let Some(mut fleet) = Fleet::new("fleet", size) else {
        return;
    };
    let policies: &[&str] = match long() {
        true => &["off", "greedy", "n-chance", "weighted", "fleet"],
        false => &["off", "fleet"],
    };
    let all: Vec<Ran> = policies.iter().map(|policy| fleet.ran(policy)).collect();
    table(&all);
    same_order(&all);
    let of = |policy| all.iter().find(|ran| ran.policy == policy).unwrap();
    let (off, ours) = (of("off"), of("fleet"));
    assert!(ours.mean_ms * 2.0 < off.mean_ms, "not twice as fast");
    assert!(ours.disk_reads * 2 < off.disk_reads, "the disk is spared");
}
