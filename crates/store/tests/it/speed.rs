//! How long things take. Prints numbers (`--nocapture`, `--release`); fails only when something
//! has become slower by an order of magnitude.

use crate::world::*;
use ariel_store::{Options, Store, fsck};
use std::time::Instant;
use wire::*;

fn time(what: &str, rounds: u64, limit_us: f64, mut work: impl FnMut(u64)) {
    let start = Instant::now();
    for i in 0..rounds {
        work(i);
    }
    let mean_us = start.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    println!("{what:34} {mean_us:9.2} us");
    assert!(mean_us < limit_us, "{what}: {mean_us} us");
}

#[test]
fn operations_are_quick() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    let mut store = Store::create(&path, &Options::default()).unwrap();
    let n = if cfg!(debug_assertions) {
        3_000
    } else {
        50_000
    };
    let slow = if cfg!(debug_assertions) { 100.0 } else { 10.0 };
    let text = |i: u64| format!("name-of-a-file-{i}");
    time("make", n, 10.0 * slow, |i| {
        make(&mut store, root(), &text(i));
    });
    time("look up, in memory", n, 2.0 * slow, |i| {
        let op = Op::Lookup {
            dir: root(),
            name: name(&text(i * 7 % n)),
        };
        entry(run(&mut store, &op));
    });
    store.checkpoint().unwrap();
    store.close().unwrap();
    let mut store = Store::open(&path, &Options::default()).unwrap();
    for round in ["look up, from the engine", "look up, warm"] {
        time(round, n, 4.0 * slow, |i| {
            let op = Op::Lookup {
                dir: root(),
                name: name(&text(i % 8_000 % n)),
            };
            entry(run(&mut store, &op));
        });
    }
    let fid = make(&mut store, root(), "large");
    let data = bytes(1, 4_096);
    time("write 4 KiB", n, 10.0 * slow, |i| {
        written(write(&mut store, fid, (i % 512) * 4_096, &data));
    });
    let large = bytes(2, 1 << 20);
    time("write 1 MiB", 30, 2_000.0 * slow, |i| {
        written(write(&mut store, fid, i << 20, &large));
    });
    store.write_out().unwrap();
    let mut into = Vec::new();
    time("read 1 MiB", 200, 500.0 * slow, |i| {
        store.read(fid, (i % 30) << 20, 1 << 20, &mut into);
        assert_eq!(into.len(), 1 << 20);
    });
    time("read 4 KiB", n, 10.0 * slow, |i| {
        store.read(fid, (i % 512) * 4_096, 4_096, &mut into);
    });
    let start = Instant::now();
    store.close().unwrap();
    println!(
        "{:34} {:9.2} us",
        "close",
        start.elapsed().as_secs_f64() * 1e6
    );
    time("make a store in memory", 100, 100.0 * slow, |_| {
        Store::in_memory(&Options::default()).unwrap();
    });
}

/// Files, snapshots, and files that are changed between two of these.
const LAYERS: (u64, u64, u64) = if cfg!(debug_assertions) {
    (2_000, 20, 20)
} else {
    (100_000, 200, 100)
};

/// A closed store of many files, with snapshots between changes.
fn layered(path: &std::path::Path) {
    let (files, snapshots, changes) = LAYERS;
    let mut store = Store::create(path, &Options::default()).unwrap();
    let mut dir = root();
    let mut made = Vec::new();
    for n in 0..files {
        if n % 1_000 == 0 {
            dir = mkdir(&mut store, root(), &format!("d{n}"));
        }
        made.push(make(&mut store, dir, &format!("f{n}")));
    }
    for n in 0..snapshots {
        let snapshot = VolumeOp::Snapshot {
            of: name("root"),
            name: name(&format!("v{n}")),
        };
        let outcome = run(&mut store, &Op::Volume(snapshot));
        assert!(matches!(outcome, Outcome::Volume(_)), "{outcome:?}");
        for change in 0..changes {
            let which = (n * changes + change) * 7_919 % files;
            written(write(&mut store, made[which as usize], 0, b"changed"));
        }
        store.write_out().unwrap();
    }
    store.close().unwrap();
}

#[test]
fn a_check_takes_as_long_as_there_are_files_and_changes() {
    let (files, snapshots, changes) = LAYERS;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p");
    layered(&path);
    let start = Instant::now();
    let report = fsck(&path).unwrap();
    let took = start.elapsed();
    println!("check of {files} files, {snapshots} snapshots, {changes} changes each: {took:?}");
    assert!(report.is_clean(), "{report}");
    let mean_us = took.as_secs_f64() * 1e6 / (files + snapshots * changes) as f64;
    let slow = if cfg!(debug_assertions) { 10.0 } else { 1.0 };
    assert!(
        mean_us < 300.0 * slow,
        "{mean_us} us for each file and change"
    );
}
