//! A volume of very many files: 12,000, or a million where long forms are asked for. Clones and
//! snapshots of it are made, its changes are sent, and room comes back when snapshots are deleted.
//!
//! The test judges: no clone copies a byte; a stream has what changed and little more; room is used
//! as a model of the versions expects. The long form judges times, too. The test prints its
//! measurements: `docs/results.md` has the figures.

use crate::harness::cell::CellOptions;
use crate::harness::status::status;
use crate::harness::{Cell, Mount, Random, eventually, long, real_system, say};
use crate::streams::piped;
use crate::volumes::done;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES_IN_DIRECTORY: usize = 1000;
/// One of so many files has bytes.
const WITH_BYTES: usize = 10;
/// The volume that the large one is compared with.
const SMALL: usize = 1000;
/// Clones of each, of which the median counts.
const CLONES: usize = 9;
/// The longest that a clone may take.
const CLONE: Duration = Duration::from_millis(20);
/// Files that are changed between two snapshots, and their new length.
const CHANGED: usize = 1000;
const CHANGED_BYTES: usize = 4096;
/// The longest that these may take to be sent and received, and that nothing may take.
const SENT: Duration = Duration::from_secs(2);
const NOTHING_SENT: Duration = Duration::from_millis(200);
/// A model of versions has so many files, each of so many bytes.
const VERSIONED: usize = 40;
/// So long after the last change versions that nobody sees are gone, at the latest.
const SWEPT: Duration = Duration::from_secs(300);

fn size() -> usize {
    if long() { 1_000_000 } else { 12_000 }
}

fn version_bytes() -> usize {
    if long() { 512 << 10 } else { 64 << 10 }
}

/// Snapshots between which the model has changes, and those that are deleted of them.
fn snapshots() -> (usize, usize) {
    if long() { (100, 90) } else { (20, 18) }
}

/// Snapshots of the large volume beside those.
fn many() -> usize {
    if long() { 1000 } else { 30 }
}

fn path(number: usize) -> String {
    let (dir, file) = (number / FILES_IN_DIRECTORY, number % FILES_IN_DIRECTORY);
    format!("d{dir}/f{file}")
}

/// Makes files in a volume, in directories of their own: some have a few bytes.
fn fill(dir: &Path, count: usize) {
    const THREADS: usize = 2;
    let dirs = count.div_ceil(FILES_IN_DIRECTORY);
    let make = |of: usize| {
        let first = of * FILES_IN_DIRECTORY;
        fs::create_dir(dir.join(format!("d{of}"))).unwrap();
        for number in first..count.min(first + FILES_IN_DIRECTORY) {
            let mut file = File::create_new(dir.join(path(number))).unwrap();
            if number % WITH_BYTES == 0 {
                writeln!(file, "{number}").unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let make = &make;
            scope.spawn(move || (thread..dirs).step_by(THREADS).for_each(make));
        }
    });
}

/// A volume with so many files, all of which the server has when this returns.
fn filled(cell: &Cell, volume: &str, count: usize) -> Mount {
    done(cell, "create", &[volume]);
    let more = ["--write-delay", "1", "--cache-mib", "512"];
    let mount = cell.mount_with(&[&["--volume", volume][..], &more].concat());
    let ((), made) = timed(|| fill(mount.path(), count));
    let (_, flushed) = timed(|| done(cell, "snapshot", &[volume, "filled"]));
    say(&format!(
        "million: {count} files made, {:.0}/s, and a snapshot with what was not written back yet: \
         {flushed:?}",
        count as f64 / made.as_secs_f64()
    ));
    mount
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// The median and the longest.
fn middle(times: &[Duration]) -> (Duration, Duration) {
    let mut times = times.to_vec();
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn store(cell: &Cell, what: &str) -> u64 {
    let store = &status(cell.addr())["store"];
    store[what].as_u64().unwrap()
}

/// How long the commands take that make these.
fn make_all(
    cell: &Cell,
    command: &str,
    of: &str,
    names: impl Iterator<Item = String>,
) -> Vec<Duration> {
    let make = |name: String| timed(|| done(cell, command, &[of, &name])).1;
    names.map(make).collect()
}

fn clones_cost_nothing(cell: &Cell) {
    let before = store(cell, "appended_bytes");
    let mut medians = BTreeMap::new();
    for of in ["small", "large"] {
        let names = (0..CLONES).map(|n| format!("{of}-{n}"));
        let times = make_all(cell, "clone", of, names);
        let (median, longest) = middle(&times);
        say(&format!(
            "million: clone of the {of} volume: {median:?}, at most {longest:?}"
        ));
        medians.insert(of, median);
    }
    let bytes = store(cell, "appended_bytes") - before;
    let each = bytes / (2 * CLONES as u64);
    say(&format!("million: {each} bytes of the log for a clone"));
    assert!(each < 4096, "a clone copies something: {each} bytes");
    if long() {
        let (small, large) = (medians["small"], medians["large"]);
        assert!(large <= CLONE, "{large:?}");
        assert!(large < 2 * small, "{small:?} and {large:?}");
    }
}

/// The whole volume goes to another cell, then nothing, then what changed.
fn changes_are_sent(from: &Cell, large: &Mount) {
    let options = CellOptions {
        second: true,
        limit: Duration::from_secs(3600),
        ..CellOptions::default()
    };
    let Some(to) = Cell::start_with("million-to", options) else {
        return;
    };
    let sent_before = |cell: &Cell| status(cell.addr())["bytes"]["received"].as_u64().unwrap();
    done(from, "snapshot", &["large", "a"]);
    let ((), all) = timed(|| piped(from, &["large@a"], &to, "copy"));
    done(from, "snapshot", &["large", "b"]);
    let ((), none) = timed(|| piped(from, &["large@b", "--since", "a"], &to, "copy"));
    let mut random = Random(1);
    let changed: BTreeMap<usize, u8> = (0..)
        .map(|_| (random.below(size() as u64) as usize, random.next() as u8))
        .take(CHANGED)
        .collect();
    for (number, byte) in &changed {
        fs::write(large.join(&path(*number)), [*byte; CHANGED_BYTES]).unwrap();
    }
    done(from, "snapshot", &["large", "c"]);
    let before = sent_before(&to);
    let words = ["large@c", "--since", "b", "--compress", "none"];
    let ((), some) = timed(|| piped(from, &words, &to, "copy"));
    let bytes = sent_before(&to) - before;
    let changed_bytes = (changed.len() * CHANGED_BYTES) as u64;
    say(&format!(
        "million: send | receive of all {} files {all:?}, of none {none:?}, of {} changed ones \
         {some:?}, {:.3} times their bytes",
        size(),
        changed.len(),
        bytes as f64 / changed_bytes as f64
    ));
    assert!(bytes <= changed_bytes * 6 / 5, "{bytes} bytes");
    if long() {
        assert!(some <= SENT && none <= NOTHING_SENT, "{some:?} {none:?}");
    }
    let copy = to.mount_with(&["--volume", "copy"]);
    for (number, byte) in &changed {
        let there = fs::read(copy.join(&path(*number))).unwrap();
        assert!(there == [*byte; CHANGED_BYTES], "{number}");
    }
    drop(copy);
}

/// The versions of files, and the moments at which snapshots were made.
struct Versions {
    /// Of each file: the snapshots that were there when it was written.
    written: Vec<Vec<usize>>,
    random: Random,
}

impl Versions {
    /// Writes some files anew; so many snapshots are there.
    fn write(&mut self, dir: &Path, snapshots: usize) {
        for file in 0..VERSIONED {
            if snapshots > 0 && self.random.below(5) > 0 {
                continue;
            }
            let bytes = self.random.bytes(version_bytes());
            let mut written = File::create(dir.join(format!("v{file}"))).unwrap();
            written.write_all(&bytes).unwrap();
            written.sync_all().unwrap();
            self.written[file].push(snapshots);
        }
    }

    /// The versions that are seen by the volume, or by one of these snapshots.
    fn seen(&self, kept: &[usize]) -> usize {
        let of_file = |moments: &Vec<usize>| {
            let next = moments[1..].iter().copied().chain([usize::MAX]);
            let spans = moments.iter().zip(next);
            let seen = |(from, to): &(&usize, usize)| {
                *to == usize::MAX || kept.iter().any(|at| (**from..*to).contains(at))
            };
            spans.filter(seen).count()
        };
        self.written.iter().map(of_file).sum()
    }
}

/// Snapshots are made between changes, and most are deleted: the room that is in use is that of the
/// versions which somebody sees.
fn room_comes_back(cell: &Cell, large: &Mount) {
    let (count, gone) = snapshots();
    let mut versions = Versions {
        written: vec![Vec::new(); VERSIONED],
        random: Random(2),
    };
    let bare = store(cell, "live_bytes");
    versions.write(large.path(), 0);
    let each = (store(cell, "live_bytes") - bare) as f64 / VERSIONED as f64;
    for n in 0..count {
        done(cell, "snapshot", &["large", &format!("v{n}")]);
        versions.write(large.path(), n + 1);
    }
    let all: Vec<usize> = (0..count).collect();
    // In bytes of the log, as the first versions took them.
    let in_use = |seen: usize| (seen as f64 * each) as u64;
    let used = |cell: &Cell| store(cell, "live_bytes") - bare;
    let is_near = |used: u64, expected: u64| used.abs_diff(expected) * 100 <= expected;
    let (full, expected) = (used(cell), in_use(versions.seen(&all)));
    assert!(is_near(full, expected), "{full} bytes, {expected} expected");
    let disk_full = store(cell, "log_bytes");
    let mut kept = all;
    for _ in 0..gone {
        let one = kept.swap_remove(versions.random.below(kept.len() as u64) as usize);
        let name = format!("large@v{one}");
        done(cell, "delete", &[&name]);
        done(cell, "purge", &[&name]);
    }
    let (expected, begin) = (in_use(versions.seen(&kept)), Instant::now());
    let mut left = 0;
    let back = eventually(SWEPT, || {
        left = used(cell);
        is_near(left, expected)
    });
    say(&format!(
        "million: {count} snapshots with {} versions of {} bytes: {full} bytes in use; {gone} \
         deleted: {left} bytes, {expected} expected, after {:?}",
        versions.written.iter().map(Vec::len).sum::<usize>(),
        version_bytes(),
        begin.elapsed()
    ));
    assert!(back, "{left} bytes are in use, {expected} are expected");
    if long() {
        the_log_shrinks(cell, (disk_full, full - left));
    }
    kept.sort_unstable();
    versions_are_seen(large, &versions, &kept);
}

/// The files of the log follow the bytes in use, but for segments that are not worth cleaning: half
/// of the room is free on the disk, too.
fn the_log_shrinks(cell: &Cell, (before, given_back): (u64, u64)) {
    let begin = Instant::now();
    let mut gone = 0;
    let shrinks = eventually(SWEPT, || {
        gone = before.saturating_sub(store(cell, "log_bytes"));
        gone >= given_back / 2
    });
    say(&format!(
        "million: {gone} bytes of the log have gone from the disk, {:?} later",
        begin.elapsed()
    ));
    assert!(shrinks, "{gone} of {given_back} bytes have gone");
}

/// Each file of a snapshot that is kept is the one that was there at its moment: none is larger or
/// smaller than its bytes, and files that were not written in between are the same.
fn versions_are_seen(large: &Mount, versions: &Versions, kept: &[usize]) {
    let read = |at: usize, file: usize| {
        let path = format!(".snapshots/v{at}/v{file}");
        let bytes = fs::read(large.join(&path)).unwrap();
        assert_eq!(bytes.len(), version_bytes(), "{path}");
        bytes
    };
    for pair in kept.windows(2) {
        let (one, other) = (pair[0], pair[1]);
        for (file, moments) in versions.written.iter().enumerate() {
            let written = moments.iter().any(|at| (one + 1..=other).contains(at));
            assert_eq!(read(one, file) != read(other, file), written, "v{file}");
        }
    }
}

/// Very many snapshots: the last ones cost what the first ones did, and each is there.
fn many_snapshots(cell: &Cell, large: &Mount) {
    let counted = large.join("counted");
    let mut times = Vec::new();
    for n in 0..many() {
        fs::write(&counted, n.to_string()).unwrap();
        let ((), time) = timed(|| drop(done(cell, "snapshot", &["large", &format!("m{n}")])));
        times.push(time);
    }
    let tenth = times.len() / 10;
    let (first, _) = middle(&times[..tenth]);
    let (last, longest) = middle(&times[times.len() - tenth..]);
    say(&format!(
        "million: {} snapshots: {first:?} each of the first, {last:?} of the last, at most \
         {longest:?} of these",
        times.len()
    ));
    for n in 0..many() {
        let there = large.join(&format!(".snapshots/m{n}/counted"));
        assert_eq!(fs::read_to_string(there).unwrap(), n.to_string());
    }
    if long() {
        assert!(last <= 2 * first, "{first:?} and {last:?}");
    }
}

#[test]
fn a_volume_of_very_many_files() {
    if !real_system("million") {
        return;
    }
    let options = CellOptions {
        alone: long(),
        limit: Duration::from_secs(if long() { 3600 } else { 480 }),
        ..CellOptions::default()
    };
    let Some(cell) = Cell::start_with("million", options) else {
        return;
    };
    drop(filled(&cell, "small", SMALL));
    let large = filled(&cell, "large", size());
    clones_cost_nothing(&cell);
    changes_are_sent(&cell, &large);
    room_comes_back(&cell, &large);
    many_snapshots(&cell, &large);
    drop(large);
}
