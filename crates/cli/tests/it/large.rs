//! A directory with very many entries: 12,000, or a million where long forms are asked for.
//!
//! The test judges: a listing has each name that is there all the time once, in an order that does
//! not change; a position that a program has noted (telldir) goes on behind the entry that it was
//! noted at (seekdir), whatever others have changed since; the memory of the server and of the
//! mounts has a bound. The test prints its measurements: `docs/results.md` has the figures.

use crate::harness::cell::CellOptions;
use crate::harness::status::{resident_mib, status};
use crate::harness::{Pair, Random, eventually, local, long, say};
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, SeekFrom, mknodat, open, seek};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// An entry of a listing: its name, and the position behind it.
type Listed = (String, u64);

fn size() -> usize {
    if long() { 1_000_000 } else { 12_000 }
}

/// Of the mounts: small, or as it is by default.
fn cache_mib() -> u64 {
    if long() { 256 } else { 4 }
}

/// So many objects a mount knows that nobody uses.
const OBJECTS_PER_MIB: u64 = 1700;

fn name(number: usize) -> String {
    format!("entry-{number:07}")
}

/// Tells how fast something went.
fn told<T>(what: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = work();
    let seconds = begin.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    say(&format!(
        "large: {what}: {count} in {seconds:.2} s, {rate:.0}/s"
    ));
    result
}

/// Works on all numbers below, in threads.
fn in_threads(count: usize, threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || (thread..count).step_by(threads).for_each(work));
        }
    });
}

/// A directory that is open for listing.
struct Listing {
    dir: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Listing {
    fn open(dir: &Path) -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            dir: open(dir, flags, Mode::empty()).unwrap(),
            buffer: vec![MaybeUninit::uninit(); 64 << 10],
        }
    }

    /// Goes to a position that was noted.
    fn seek(&self, position: u64) {
        seek(&self.dir, SeekFrom::Start(position)).unwrap();
    }

    /// Reads entries from where it stands until there are at least so many, or to the end.
    fn read(&mut self, least: usize) -> Vec<Listed> {
        let mut found = Vec::new();
        let mut entries = RawDir::new(&self.dir, &mut self.buffer);
        // A piece that the kernel has given is read whole: it goes on behind that.
        while found.len() < least || !entries.is_buffer_empty() {
            let Some(entry) = entries.next() else {
                break;
            };
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            if name != "." && name != ".." {
                found.push((name, entry.next_entry_cookie()));
            }
        }
        found
    }
}

fn names(listed: &[Listed]) -> Vec<&str> {
    listed.iter().map(|(name, _)| name.as_str()).collect()
}

/// The memory of the processes has a bound: the cache, about as much again for objects, and the
/// program itself; at the server its knowledge of the objects of both mounts, and the cache of its
/// index.
fn memory(pair: &Pair, when: &str) {
    if local() {
        return;
    }
    let server = resident_mib(OsStr::new(pair.cell.addr()));
    assert!(
        server < 400 + 3 * cache_mib(),
        "{when}: the server has {server} MiB"
    );
    let mut line = format!("large: {when}: server {server} MiB");
    for mount in [&pair.a, &pair.b] {
        let mut nodes = 0;
        let bounded = eventually(Duration::from_secs(20), || {
            nodes = status(mount.path())["nodes"].as_u64().unwrap();
            nodes <= OBJECTS_PER_MIB * cache_mib() + 10
        });
        assert!(bounded, "{when}: a mount has {nodes} objects");
        let mib = resident_mib(mount.path().as_os_str());
        assert!(mib < 100 + 3 * cache_mib(), "{when}: a mount has {mib} MiB");
        write!(line, ", mount {mib} MiB with {nodes} objects").unwrap();
    }
    say(&line);
}

#[test]
fn a_directory_of_very_many_entries() {
    let options = CellOptions {
        alone: long(),
        limit: Duration::from_secs(if long() { 3600 } else { 480 }),
        ..CellOptions::default()
    };
    let Some(pair) = Pair::start_with("large", options, &["--cache-mib", &cache_mib().to_string()])
    else {
        return;
    };
    let (count, a, b) = (size(), pair.a.join("d"), pair.b.join("d"));
    memory(&pair, "at the beginning");
    fs::create_dir(&a).unwrap();
    let make = |number: usize| {
        let path = a.join(name(number));
        mknodat(
            CWD,
            path,
            FileType::RegularFile,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
    };
    told("create", count, || in_threads(count, 2, make));
    memory(&pair, "when all are made");
    let all: BTreeSet<String> = (0..count).map(name).collect();
    let mut listing = Listing::open(&b);
    let listed = told("list, first time", count, || listing.read(usize::MAX));
    assert_eq!(listed.len(), count);
    assert!(
        names(&listed)
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
            == all
    );
    let again = told("list again", count, || Listing::open(&b).read(usize::MAX));
    assert!(again == listed, "a second listing is another one");
    told("list where they were made", count, || {
        assert_eq!(Listing::open(&a).read(usize::MAX).len(), count)
    });
    memory(&pair, "when all are listed");
    let look =
        |dir: &Path, number: usize| assert!(fs::symlink_metadata(dir.join(name(number))).is_ok());
    let mut random = Random(1);
    let some: Vec<usize> = (0..count / 10)
        .map(|_| random.below(count as u64) as usize)
        .collect();
    told("look up some", some.len(), || {
        some.iter().for_each(|n| look(&b, *n))
    });
    told("look up all", count, || {
        in_threads(count, 2, |n| look(&b, n))
    });
    memory(&pair, "when all are looked up");
    positions_are_kept(&pair, &listed);
    let left = Listing::open(&a).read(usize::MAX);
    told("remove", left.len(), || {
        in_threads(left.len(), 2, |n| {
            fs::remove_file(a.join(&left[n].0)).unwrap()
        })
    });
    assert_eq!(fs::read_dir(&b).unwrap().count(), 0);
    memory(&pair, "when all are removed");
    fs::remove_dir(&b).unwrap();
    assert!(!a.exists());
}

/// Positions that one mount has noted are good while another one changes the directory.
fn positions_are_kept(pair: &Pair, listed: &[Listed]) {
    let (a, b) = (pair.a.join("d"), pair.b.join("d"));
    let mut random = Random(2);
    let mut listing = Listing::open(&b);
    let third = listing.read(listed.len() / 3);
    let mut gone = BTreeSet::new();
    for round in 0..2_000 {
        let name = &listed[random.below(listed.len() as u64) as usize].0;
        if round % 2 == 0 {
            File::create_new(a.join(format!("new-{round}"))).unwrap();
        } else if gone.insert(name.clone()) {
            let there = a.join(name);
            let done = if round % 4 == 1 {
                fs::remove_file(&there)
            } else {
                fs::rename(&there, a.join(format!("moved-{round}")))
            };
            done.unwrap();
        }
    }
    let stays = |name: &str| name.starts_with("entry-") && !gone.contains(name);
    let order: Vec<&str> = names(listed)
        .into_iter()
        .filter(|name| stays(name))
        .collect();
    let place: BTreeMap<&str, usize> = order
        .iter()
        .enumerate()
        .map(|(at, name)| (*name, at))
        .collect();
    let is_rest = |found: &[Listed], before: usize| {
        let kept: Vec<&str> = names(found)
            .into_iter()
            .filter(|name| stays(name))
            .collect();
        let first = names(&listed[before..])
            .into_iter()
            .find(|name| stays(name));
        let at = first.map_or(order.len(), |name| place[name]);
        let end = (at + kept.len()).min(order.len());
        assert!(
            kept == order[at..end],
            "behind entry {before}: {:?} for {:?}",
            kept.first(),
            order.get(at)
        );
        end == order.len()
    };
    // The listing that was under way goes on to the end.
    let rest = listing.read(usize::MAX);
    assert!(
        is_rest(&rest, third.len()),
        "the listing ends before the last entry"
    );
    // So does one that goes back, and any that was never read from there.
    listing.seek(third.last().unwrap().1);
    assert!(is_rest(&listing.read(usize::MAX), third.len()));
    for _ in 0..50 {
        let at = random.below(listed.len() as u64) as usize;
        let mut fresh = Listing::open(if at.is_multiple_of(2) { &b } else { &a });
        fresh.seek(listed[at].1);
        let found = fresh.read(100);
        assert!(found.len() >= 100 || is_rest(&found, at + 1));
        is_rest(&found, at + 1);
    }
}
