//! The network is away for a while, or is slow. Programs go on within seconds of its
//! return, whatever its absence was; long messages do not keep short ones waiting, and nothing is
//! sent twice.

use crate::harness::cell::CellOptions;
use crate::harness::status::bytes_moved;
use crate::harness::{Cell, Mount, Network, Pair, has_program, long, real_system};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Programs go on so soon after the network does.
const SOON: Duration = Duration::from_secs(3);
const MIB: usize = 1 << 20;

fn can_shape(test: &str) -> bool {
    real_system(test) && has_program(test, "ip") && has_program(test, "tc")
}

/// Milliseconds since the test began at which something was done last.
struct Pulse {
    began: Instant,
    last_ms: AtomicU64,
    count: AtomicU64,
}

impl Pulse {
    fn new(began: Instant) -> Self {
        Self {
            began,
            last_ms: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn beat(&self) {
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.last_ms.store(now_ms, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// When the next beat comes.
    fn next(&self, limit: Duration) -> Option<Instant> {
        let before = self.count();
        let end = Instant::now() + limit;
        // The program cannot tell, since it waits: this looks from time to time.
        while self.count() == before {
            if Instant::now() > end {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Some(self.began + Duration::from_millis(self.last_ms.load(Ordering::SeqCst)))
    }
}

/// Appends numbered lines, each made stable, until it is told to end. Returns how many.
fn append(path: &Path, pulse: &Pulse, ends: &AtomicBool) -> u64 {
    let mut file = File::create(path).unwrap();
    let mut line = 0;
    while !ends.load(Ordering::SeqCst) {
        writeln!(file, "{line}").unwrap();
        file.sync_all().unwrap();
        line += 1;
        pulse.beat();
    }
    line
}

/// Asks what only the server knows, until it is told to end.
fn ask(dir: &Path, pulse: &Pulse, ends: &AtomicBool) {
    while !ends.load(Ordering::SeqCst) {
        rustix::fs::statvfs(dir).unwrap();
        pulse.beat();
        // As a program that does other things too: the network is not to be full of this.
        thread::sleep(Duration::from_millis(5));
    }
}

/// The network is away for so long: then everybody goes on.
fn cut(pair: &Pair, network: &Network, away: Duration) {
    let began = Instant::now();
    let ends = AtomicBool::new(false);
    let pulses = [Pulse::new(began), Pulse::new(began), Pulse::new(began)];
    let (a, b) = (pair.a.join("a.log"), pair.b.join("b.log"));
    thread::scope(|scope| {
        let first = scope.spawn(|| append(&a, &pulses[0], &ends));
        let second = scope.spawn(|| append(&b, &pulses[1], &ends));
        let third = scope.spawn(|| ask(pair.b.path(), &pulses[2], &ends));
        for pulse in &pulses {
            assert!(pulse.next(SOON * 5).is_some(), "nothing goes on");
        }
        network.cut();
        let gone = Instant::now();
        // The network is away: that is what is waited for.
        thread::sleep(away);
        let before: Vec<u64> = pulses.iter().map(Pulse::count).collect();
        network.mend();
        let back = Instant::now();
        let next: Vec<Option<Instant>> = pulses.iter().map(|p| p.next(away + SOON * 20)).collect();
        ends.store(true, Ordering::SeqCst);
        let lines = [first.join().unwrap(), second.join().unwrap()];
        third.join().unwrap();
        for (number, next) in next.iter().enumerate() {
            let took = next.map(|at| at.saturating_duration_since(back));
            assert!(
                took.is_some_and(|took| took <= SOON),
                "program {number} went on after {took:?}; a cut of {:?}, {before:?} steps\n{}",
                back - gone,
                pair.b.log()
            );
        }
        for (path, lines) in [(&a, lines[0]), (&b, lines[1])] {
            let expected: String = (0..lines).map(|line| format!("{line}\n")).collect();
            assert!(
                fs::read_to_string(path).unwrap() == expected,
                "{}",
                path.display()
            );
        }
    });
}

#[test]
fn programs_go_on_when_the_network_is_back() {
    if !can_shape("network-cut") {
        return;
    }
    // TCP alone tries again at 3.0, 6.2, 12.6, 25.4 and 51 seconds, about.
    let lengths: &[u64] = if long() { &[8, 60, 600] } else { &[8, 30] };
    Network::within(|network| {
        let options = CellOptions {
            limit: Duration::from_secs(240 + lengths.iter().sum::<u64>()),
            ..CellOptions::default()
        };
        let Some(pair) = Pair::start_with("network-cut", options, &[]) else {
            return;
        };
        for length in lengths {
            cut(&pair, network, Duration::from_secs(*length));
        }
    });
}

/// A program asks short questions while another one writes much over a slow network.
#[test]
fn over_a_slow_network_nothing_is_sent_twice_and_what_is_short_goes_first() {
    if !can_shape("network-slow") {
        return;
    }
    let (mbit, mib) = if long() { (1, 6) } else { (4, 8) };
    Network::within(|network| {
        let Some(cell) = Cell::start("network-slow") else {
            return;
        };
        let mount = cell.mount();
        let before = bytes_moved(cell.addr());
        network.slow(mbit);
        let began = Instant::now();
        let (ends, pulse) = (AtomicBool::new(false), Pulse::new(began));
        let mut longest = Duration::ZERO;
        thread::scope(|scope| {
            let other = scope.spawn(|| ask(mount.path(), &pulse, &ends));
            let writer = scope.spawn(|| write_stable(&mount, mib));
            while !writer.is_finished() {
                let asked = Instant::now();
                let next = pulse.next(SOON * 20).expect("questions are answered");
                longest = longest.max(next.saturating_duration_since(asked));
            }
            writer.join().unwrap();
            ends.store(true, Ordering::SeqCst);
            other.join().unwrap();
        });
        let took = began.elapsed();
        network.fast();
        let moved = bytes_moved(cell.addr()) - before;
        let least = Duration::from_secs((mib * 8 / mbit as usize) as u64 / 2);
        assert!(took > least, "{took:?}: the network was not slow");
        assert!(longest <= SOON, "a short question took {longest:?}");
        let most = (mib * MIB + mib * MIB / 16) as u64;
        assert!(moved < most, "{moved} bytes were moved for {mib} MiB");
        assert!(!mount.log().contains("a new connection"), "{}", mount.log());
    });
}

/// Writes so many files of a MiB at once, and makes each stable.
fn write_stable(mount: &Mount, files: usize) {
    thread::scope(|scope| {
        for number in 0..files {
            scope.spawn(move || {
                let mut file = File::create(mount.join(&format!("large-{number}"))).unwrap();
                file.write_all(&vec![b'x'; MIB]).unwrap();
                file.sync_all().unwrap();
            });
        }
    });
}
