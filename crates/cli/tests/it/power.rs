//! The server's machine loses its power while mounts are at work: nothing is lost of what their
//! programs were answered, all mounts agree, and nobody is told of an error. Long: a hundred times.

use crate::harness::cell::CellOptions;
use crate::harness::{Cell, Mount, Random, has_program, long, say};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MOUNTS: usize = 3;
/// Calls of all programs between one failure and the next.
const CALLS: u64 = 600;
/// A file to which all append.
const SHARED: &str = "all/records";
const RECORD: usize = 16;

/// The changes of one program, as they were answered.
struct Worker {
    number: usize,
    random: Random,
    /// Its files, by their names below the mount.
    files: BTreeMap<String, Vec<u8>>,
    appended: u64,
    made: u64,
}

impl Worker {
    fn new(number: usize) -> Self {
        Self {
            number,
            random: Random(number as u64 + 1),
            files: BTreeMap::new(),
            appended: 0,
            made: 0,
        }
    }

    /// Directories of its own, and one in which all make names.
    fn place(&mut self) -> String {
        self.made += 1;
        let (number, made) = (self.number, self.made);
        match self.random.below(3) {
            0 => format!("all/{number}-{made}"),
            _ => format!("own-{number}/{made}"),
        }
    }

    fn any(&mut self) -> Option<String> {
        let count = self.files.len() as u64;
        let at = self.random.below(count.max(1)) as usize;
        self.files.keys().nth(at).cloned()
    }

    fn call(&mut self, root: &Path) {
        let len = self.random.below(9_000) as usize;
        match (self.random.below(10), self.any()) {
            (0..=2, _) | (_, None) => {
                let (name, bytes) = (self.place(), self.random.bytes(len));
                fs::write(root.join(&name), &bytes).unwrap();
                self.files.insert(name, bytes);
            }
            (3..=4, Some(name)) => {
                let more = self.random.bytes(len);
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(root.join(&name))
                    .unwrap();
                file.write_all(&more).unwrap();
                self.files.get_mut(&name).unwrap().extend(more);
            }
            (5, Some(name)) => {
                let (at, new) = (self.random.below(4_000) as usize, self.random.bytes(700));
                let file = OpenOptions::new()
                    .write(true)
                    .open(root.join(&name))
                    .unwrap();
                file.write_all_at(&new, at as u64).unwrap();
                let held = self.files.get_mut(&name).unwrap();
                held.resize(held.len().max(at + new.len()), 0);
                held[at..at + new.len()].copy_from_slice(&new);
            }
            (6, Some(old)) => {
                let new = self.place();
                fs::rename(root.join(&old), root.join(&new)).unwrap();
                let bytes = self.files.remove(&old).unwrap();
                self.files.insert(new, bytes);
            }
            (7, Some(name)) => {
                fs::remove_file(root.join(&name)).unwrap();
                self.files.remove(&name);
            }
            (8, Some(name)) => {
                assert_eq!(
                    fs::read(root.join(&name)).unwrap(),
                    self.files[&name],
                    "{name}"
                );
            }
            _ => self.append_record(root),
        }
        self.look_at_others(root);
    }

    /// A record behind those of all others.
    fn append_record(&mut self, root: &Path) {
        let mut record = [b'.'; RECORD];
        let text = format!("{} {}", self.number, self.appended);
        record[..text.len()].copy_from_slice(text.as_bytes());
        let mut file = OpenOptions::new()
            .append(true)
            .open(root.join(SHARED))
            .unwrap();
        file.write_all(&record).unwrap();
        self.appended += 1;
    }

    /// Now and then it looks at the changes of another program, whose mount has to report them to
    /// the server then.
    fn look_at_others(&mut self, root: &Path) {
        if self.random.below(20) > 0 {
            return;
        }
        let other = root.join(format!("own-{}", (self.number + 1) % MOUNTS));
        let newest = fs::read_dir(other).unwrap().flatten().last();
        let _ = newest.map(|entry| fs::read(entry.path())); // it may be gone by now
    }
}

fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let dirs = (0..MOUNTS)
        .map(|n| format!("own-{n}"))
        .chain(["all".to_owned()]);
    for dir in dirs {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let name = format!("{dir}/{}", entry.unwrap().file_name().to_str().unwrap());
            found.insert(name.clone(), fs::read(root.join(&name)).unwrap());
        }
    }
    found
}

/// All that the programs were answered is there, and nothing else; each record once, in order.
fn judge(root: &Path, workers: &[Worker], round: usize) {
    let mut found = tree(root);
    let records = found.remove(SHARED).unwrap();
    for worker in workers {
        for (name, bytes) in &worker.files {
            let there = found.remove(name);
            assert!(
                there.as_ref() == Some(bytes),
                "round {round}: {name} has {:?} bytes, and {} were written",
                there.map(|bytes| bytes.len()),
                bytes.len()
            );
        }
        let own = format!("{} ", worker.number);
        let text = String::from_utf8(records.clone()).unwrap();
        let lines = text.as_bytes().chunks(RECORD);
        let lines = lines.map(|line| std::str::from_utf8(line).unwrap().trim_end_matches('.'));
        let of_own: Vec<&str> = lines.filter(|line| line.starts_with(&own)).collect();
        let expected: Vec<String> = (0..worker.appended).map(|n| format!("{own}{n}")).collect();
        assert_eq!(of_own, expected, "round {round}: records");
    }
    let names: Vec<&String> = found.keys().collect();
    assert!(names.is_empty(), "round {round}: {names:?} should be gone");
}

/// All programs work until so many calls were made, on the way to which the power fails. Returns
/// how long the longest call took.
fn work(cell: &mut Cell, roots: &[PathBuf], workers: &mut [Worker]) -> Duration {
    let (calls, start) = (AtomicU64::new(0), Barrier::new(MOUNTS + 1));
    let fails_at = CALLS / 3 + Random(workers[0].made).below(CALLS / 3);
    std::thread::scope(|scope| {
        let programs = workers.iter_mut().zip(roots).map(|(worker, root)| {
            let (calls, start) = (&calls, &start);
            scope.spawn(move || {
                let mut longest = Duration::ZERO;
                start.wait();
                while calls.fetch_add(1, Ordering::Relaxed) < CALLS {
                    let begun = Instant::now();
                    worker.call(root);
                    longest = longest.max(begun.elapsed());
                }
                longest
            })
        });
        let programs: Vec<_> = programs.collect();
        start.wait();
        // Nothing tells how far they are but the count: it is looked at until it is so far.
        while calls.load(Ordering::Relaxed) < fails_at {
            std::thread::yield_now();
        }
        cell.lose_power();
        cell.start_server();
        let longest = programs.into_iter().map(|program| program.join());
        longest.map(Result::unwrap).max().unwrap_or_default()
    })
}

#[test]
fn what_was_answered_survives_a_power_failure_of_the_server() {
    let name = "power";
    if !has_program(name, "python3") || !has_program(name, "mkfs.ext4") {
        return;
    }
    let (rounds, limit) = if long() { (50, 3600) } else { (4, 240) };
    let options = CellOptions {
        image_mib: Some(256),
        limit: Duration::from_secs(limit),
        ..CellOptions::default()
    };
    if !crate::harness::real_system(name) {
        return;
    }
    let Some(mut cell) = Cell::start_with(name, options) else {
        return;
    };
    let args = ["--write-delay", "1", "--name-delay", "1"];
    let mounts: Vec<Mount> = (0..MOUNTS).map(|_| cell.mount_with(&args)).collect();
    let roots: Vec<PathBuf> = mounts.iter().map(|mount| mount.path().to_owned()).collect();
    for dir in (0..MOUNTS)
        .map(|n| format!("own-{n}"))
        .chain(["all".to_owned()])
    {
        fs::create_dir(roots[0].join(dir)).unwrap();
    }
    File::create(roots[0].join(SHARED)).unwrap();
    let mut workers: Vec<Worker> = (0..MOUNTS).map(Worker::new).collect();
    let (begun, mut pauses) = (Instant::now(), Vec::new());
    for round in 0..rounds {
        pauses.push(work(&mut cell, &roots, &mut workers));
        for root in &roots {
            judge(root, &workers, round);
        }
        // Records that are reported synced are there, also if the power is lost at once.
        let records = File::open(roots[round % MOUNTS].join(SHARED)).unwrap();
        records.sync_all().unwrap();
        cell.lose_power();
        cell.start_server();
        for root in &roots {
            judge(root, &workers, round);
        }
    }
    let files: usize = workers.iter().map(|worker| worker.files.len()).sum();
    let records: u64 = workers.iter().map(|worker| worker.appended).sum();
    pauses.sort();
    say(&format!(
        "{name}: {} power failures in {:?}, {} calls, {files} files and {records} records: 0 lost; \
         the longest call of a round took {:?} (median), {:?} (most)",
        2 * rounds,
        begun.elapsed(),
        rounds as u64 * CALLS,
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1]
    ));
}
