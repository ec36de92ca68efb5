//! One of the processes that contend.

use super::{WORKERS, seconds};
use crate::harness::Random;
use crate::harness::record::{LEN, Record};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The line of a process that can begin.
pub const READY: &str = "READY TO CONTEND";

pub const TOKENS: u32 = 8;
pub const LOCKS: u32 = 4;
pub const REPLACED: u32 = 4;
pub const FILES: u32 = 4;
pub const RECORDS: u32 = 256; // Four pages a file.

/// Makes the files that are there before the processes begin.
pub fn prepare(root: &Path) {
    fs::create_dir(root.join("names")).unwrap();
    fs::create_dir(root.join("pages")).unwrap();
    for n in 0..TOKENS {
        fs::write(root.join(format!("names/token-{n}")), "0").unwrap();
    }
    for n in 0..LOCKS {
        fs::write(root.join(format!("names/count-{n}")), "0").unwrap();
    }
    for n in 0..REPLACED {
        let first = Record {
            writer: 0,
            counter: 0,
        }
        .encode()
        .repeat(100);
        fs::write(root.join(format!("names/replaced-{n}")), first).unwrap();
    }
    for n in 0..FILES {
        let empty = |r: u32| {
            Record {
                writer: r % WORKERS,
                counter: 0,
            }
            .encode()
        };
        let bytes: Vec<u8> = (0..RECORDS).flat_map(empty).collect();
        fs::write(root.join(format!("pages/file-{n}")), bytes).unwrap();
    }
}

/// The process; returns at once when this is an ordinary run of the tests.
#[test]
fn process() {
    let Some(id) = std::env::var_os("ARIEL_IT_WORKER") else {
        return;
    };
    let id: u32 = id.to_str().unwrap().parse().unwrap();
    let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
    let (mount, control) = (path("ARIEL_IT_MOUNT"), path("ARIEL_IT_CONTROL"));
    let mut worker = Worker::new(id, &mount);
    // A line says that this one is ready; the end of the input says go, or that nobody is there.
    println!("\n{READY}");
    let input = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    assert_eq!(input.unwrap(), 0, "nothing is said but the end");
    let end = Instant::now() + Duration::from_secs(seconds());
    while Instant::now() < end {
        worker.step();
    }
    worker.report(&control);
}

struct Worker {
    id: u32,
    names: PathBuf,
    pages: PathBuf,
    random: Random,
    /// Opened before all others began, and kept.
    early: Vec<File>,
    serial: u32,
    /// The sums that this process has added to each token and each count.
    token_adds: Vec<u64>,
    lock_adds: Vec<u64>,
    /// The newest seen of (file, record).
    seen: BTreeMap<(u32, u32), u32>,
    /// The newest seen of (replaced file, its writer).
    seen_replaced: BTreeMap<(u32, u32), u32>,
    steps: u64,
    /// The longest call of each kind, in microseconds.
    longest: BTreeMap<&'static str, u64>,
}

impl Worker {
    fn new(id: u32, mount: &Path) -> Self {
        let pages = mount.join("pages");
        let open = |n| options(true).open(pages.join(format!("file-{n}"))).unwrap();
        Self {
            id,
            names: mount.join("names"),
            early: (0..FILES).map(open).collect(),
            pages,
            random: Random(u64::from(id) + 1),
            serial: 0,
            token_adds: vec![0; TOKENS as usize],
            lock_adds: vec![0; LOCKS as usize],
            seen: BTreeMap::new(),
            seen_replaced: BTreeMap::new(),
            steps: 0,
            longest: BTreeMap::new(),
        }
    }

    /// Does something and notes how long it took.
    fn timed<T>(&mut self, kind: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = work();
        let us = begin.elapsed().as_micros() as u64;
        let longest = self.longest.entry(kind).or_default();
        *longest = us.max(*longest);
        result
    }

    fn step(&mut self) {
        self.steps += 1;
        match self.random.below(10) {
            0 | 1 => self.take_token(),
            2 | 3 => self.take_lock(),
            4 => self.replace(),
            5 => self.look_at_replaced(),
            6 => self.list(),
            _ => self.write_pages(),
        }
    }

    fn read(&mut self, path: &Path) -> Result<Vec<u8>> {
        let file = self.timed("open", || File::open(path))?;
        self.read_file(&file)
    }

    fn read_file(&mut self, file: &File) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 64 * 1024];
        let n = self.timed("read", || file.read_at(&mut bytes, 0))?;
        bytes.truncate(n);
        Ok(bytes)
    }

    /// Adds one to the number in a file that nobody else may touch at this moment.
    fn add_one(&mut self, path: &Path) {
        let bytes = self.read(path).unwrap();
        let number: u64 = String::from_utf8(bytes).unwrap().trim().parse().unwrap();
        let file = self.timed("open", || options(true).open(path)).unwrap();
        let text = format!("{}", number + 1);
        self.timed("write", || file.write_all_at(text.as_bytes(), 0))
            .unwrap();
    }

    fn take_token(&mut self) {
        let n = self.random.below(u64::from(TOKENS)) as u32;
        let common = self.names.join(format!("token-{n}"));
        let mine = self.names.join(format!("token-{n}-of-{}", self.id));
        match self.timed("rename", || fs::rename(&common, &mine)) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            Err(e) => panic!("taking token {n}: {e}"),
        }
        let there = self.timed("stat", || fs::metadata(&common));
        assert!(there.is_err(), "token {n} is taken and still lies there");
        self.add_one(&mine);
        self.timed("rename", || fs::rename(&mine, &common)).unwrap();
        self.token_adds[n as usize] += 1;
    }

    fn take_lock(&mut self) {
        let n = self.random.below(u64::from(LOCKS)) as u32;
        let lock = self.names.join(format!("lock-{n}"));
        let create = || File::options().write(true).create_new(true).open(&lock);
        let file = match self.timed("create", create) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return,
            Err(e) => panic!("making lock {n}: {e}"),
        };
        let owner = self.id.to_string();
        self.timed("write", || file.write_all_at(owner.as_bytes(), 0))
            .unwrap();
        self.add_one(&self.names.join(format!("count-{n}")));
        assert_eq!(
            self.read(&lock).unwrap(),
            owner.as_bytes(),
            "lock {n} is somebody else's"
        );
        self.timed("unlink", || fs::remove_file(&lock)).unwrap();
        self.lock_adds[n as usize] += 1;
    }

    fn replace(&mut self) {
        self.serial += 1;
        let record = Record {
            writer: self.id,
            counter: self.serial,
        };
        let new = self.names.join(format!("new-{}", self.id));
        let name = format!("replaced-{}", self.random.below(u64::from(REPLACED)));
        let bytes = record.encode().repeat(100);
        let file = self.timed("create", || File::create_new(&new)).unwrap();
        self.timed("write", || file.write_all_at(&bytes, 0))
            .unwrap();
        drop(file);
        let target = self.names.join(name);
        self.timed("rename", || fs::rename(&new, &target)).unwrap();
    }

    fn look_at_replaced(&mut self) {
        let n = self.random.below(u64::from(REPLACED)) as u32;
        let bytes = self.read(&self.names.join(format!("replaced-{n}")));
        let bytes = bytes.unwrap_or_else(|e| panic!("replaced-{n} is always there, but: {e}"));
        let record = bytes
            .get(..LEN)
            .and_then(Record::decode)
            .expect("a whole first record");
        assert!(
            bytes == record.encode().repeat(100),
            "replaced-{n} is not one whole file"
        );
        let seen = self.seen_replaced.entry((n, record.writer)).or_default();
        assert!(
            *seen <= record.counter,
            "replaced-{n} went back to an older file"
        );
        *seen = record.counter;
    }

    fn list(&mut self) {
        let names = self.names.clone();
        let read = || {
            fs::read_dir(&names)?
                .map(|entry| Ok(entry?.file_name()))
                .collect()
        };
        let list: Vec<_> = self.timed("listing", read).unwrap();
        let count = |name: String| list.iter().filter(|n| n.to_str() == Some(&name)).count();
        for n in 0..LOCKS {
            assert_eq!(
                count(format!("count-{n}")),
                1,
                "count-{n} is never touched: {list:?}"
            );
        }
    }

    /// Writes some own records through one handle, reads them back through another, and looks at
    /// everybody's.
    fn write_pages(&mut self) {
        let n = self.random.below(u64::from(FILES)) as u32;
        let path = self.pages.join(format!("file-{n}"));
        let late = self.timed("open", || options(true).open(&path)).unwrap();
        let early = self.early[n as usize].try_clone().unwrap();
        let (writer, reader) = if self.random.below(2) == 0 {
            (&late, &early)
        } else {
            (&early, &late)
        };
        self.serial += 1;
        let record = Record {
            writer: self.id,
            counter: self.serial,
        };
        let mut written = Vec::new();
        for _ in 0..3 {
            let r = self.random.below(u64::from(RECORDS / WORKERS)) as u32 * WORKERS + self.id;
            let (bytes, at) = (record.encode(), u64::from(r) * LEN as u64);
            assert_eq!(
                self.timed("write", || writer.write_at(&bytes, at)).unwrap(),
                LEN
            );
            self.seen.insert((n, r), self.serial);
            written.push(r);
        }
        let bytes = self.read_file(reader).unwrap();
        assert_eq!(
            bytes.len(),
            RECORDS as usize * LEN,
            "file {n} has another size"
        );
        for (r, chunk) in (0..).zip(bytes.chunks(LEN)) {
            self.look_at_record(n, r, chunk);
        }
    }

    fn look_at_record(&mut self, n: u32, r: u32, bytes: &[u8]) {
        let record = Record::decode(bytes);
        let record = record.unwrap_or_else(|| panic!("file {n}, record {r} is torn: {bytes:?}"));
        assert_eq!(
            record.writer,
            r % WORKERS,
            "file {n}, record {r} is of a wrong writer"
        );
        let seen = self.seen.entry((n, r)).or_default();
        assert!(
            *seen <= record.counter,
            "file {n}, record {r}: {} after {seen}",
            record.counter
        );
        if record.writer == self.id {
            assert_eq!(record.counter, *seen, "file {n}, own record {r}");
        }
        *seen = record.counter;
    }

    fn report(&self, control: &Path) {
        let own = |((n, r), counter): (&(u32, u32), &u32)| {
            (r % WORKERS == self.id).then(|| json!([n, r, counter]))
        };
        let report = json!({
            "steps": self.steps,
            "tokens": self.token_adds,
            "locks": self.lock_adds,
            "records": self.seen.iter().filter_map(own).collect::<Vec<_>>(),
            "longest_us": self.longest,
        });
        fs::write(
            control.join(format!("report-{}", self.id)),
            report.to_string(),
        )
        .unwrap();
    }
}

fn options(write: bool) -> fs::OpenOptions {
    File::options().read(true).write(write).clone()
}
