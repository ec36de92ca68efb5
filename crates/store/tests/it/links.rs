//! The directories in which a file has names are known, whichever of its names come, go and move;
//! in snapshots, clones and copies of a volume, and after a crash.

use crate::stream::{receive, snapshot, stream, target};
use crate::world::*;
use ariel_store::{Keep, MemoryDisk, Store, fsck_memory};
use std::collections::{BTreeMap, BTreeSet};
use wire::*;

/// Numbers that depend on nothing but the seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Compares what is known of each file with the listings of all directories, in all volumes.
fn compare(store: &mut Store) -> usize {
    let mut linked = 0;
    let volumes = store.volumes();
    for volume in volumes
        .iter()
        .filter(|volume| volume.state == VolumeState::Present)
    {
        let all = picture_of(store, volume.id);
        let mut dirs: BTreeMap<Fid, BTreeSet<Fid>> = BTreeMap::new();
        let named = |path: &str| path.starts_with('/');
        for (path, seen) in all.iter().filter(|(path, _)| named(path)) {
            let dir = match path.rsplit_once('/') {
                Some((dir, _)) if !dir.is_empty() => all[dir].fid,
                _ => Fid::root(volume.id),
            };
            dirs.entry(seen.fid).or_default().insert(dir);
        }
        for (fid, expected) in dirs {
            let known = store.dirs(fid).unwrap();
            assert_eq!(known.len(), expected.len(), "{fid}: {known:?} {expected:?}");
            assert_eq!(BTreeSet::from_iter(known), expected, "{fid}");
            linked += usize::from(expected.len() > 1);
            assert!(store.place(fid).unwrap().is_some(), "{fid}");
        }
    }
    linked
}

fn random_op(draw: &mut Draw, store: &Store, dirs: &[Fid]) -> Op {
    let mut spot = || {
        let dir = dirs[draw.below(dirs.len() as u64) as usize];
        (dir, name(["a", "b", "c", "d"][draw.below(4) as usize]))
    };
    let ((dir, called), (to, new)) = (spot(), spot());
    match (draw.below(8), store.lookup(dir, &called).unwrap()) {
        (0 | 1, Some(fid)) => Op::Link {
            fid,
            dir: to,
            name: new,
        },
        (2..=4, Some(_)) => Op::Unlink { dir, name: called },
        (5.., Some(_)) => Op::Rename {
            from: dir,
            name: called,
            to,
            new,
            no_replace: false,
            exchange: draw.below(2) == 0,
        },
        (_, None) => Op::Make {
            dir,
            name: called,
            make: Make::File,
            mode: 0o644,
            open: None,
        },
    }
}

#[test]
fn the_directories_of_a_file_are_those_that_list_it() {
    for seed in 0..6 {
        let (disk, mut draw) = (MemoryDisk::new(), Draw(seed));
        let mut store = Store::create_in_memory(&disk, &small()).unwrap();
        let other = MemoryDisk::new();
        let mut copy = Store::create_in_memory(&other, &target()).unwrap();
        let mut dirs = vec![root()];
        dirs.extend(["x", "y", "z"].map(|text| mkdir(&mut store, root(), text)));
        let (mut linked, mut last) = (0, None);
        for step in 0..400u32 {
            let op = random_op(&mut draw, &store, &dirs);
            run(&mut store, &op);
            if step % 20 == 0 {
                linked += compare(&mut store);
            }
            if step % 100 == 99 {
                // A copy gets the changes since the last snapshot, where there is one.
                let at = format!("s{step}");
                snapshot(&mut store, "root", &at);
                let since: Option<String> = last.replace(format!("root@{at}"));
                let parts = stream(&mut store, &format!("root@{at}"), since.as_deref());
                receive(&mut copy, "copy", &parts, true).unwrap();
                linked += compare(&mut copy);
                spoil(&mut copy);
            }
        }
        assert!(
            linked > 20,
            "seed {seed}: {linked} files with names in several directories"
        );
        for (mut store, disk) in [(store, disk), (copy, other)] {
            store.write_out().unwrap();
            drop(store);
            disk.crash(Keep::Written);
            let mut store = Store::open_in_memory(&disk, &small()).unwrap();
            compare(&mut store);
            drop(store);
            let report = fsck_memory(&disk).unwrap();
            assert!(report.is_clean(), "seed {seed}: {report}");
        }
    }
}

/// Changes names in the copy, which the next stream undoes.
fn spoil(store: &mut Store) {
    let copy = crate::stream::volume_named(store, "copy").unwrap().root();
    let entries = list(store, copy, 9);
    for (number, entry) in entries.iter().enumerate() {
        let new = name(&format!("spoilt-{number}"));
        let (fid, dir) = (entry.fid, copy);
        run(
            store,
            &Op::Link {
                fid,
                dir,
                name: new,
            },
        );
        let called = entry.name.clone();
        run(store, &Op::Unlink { dir, name: called });
    }
    compare(store);
}

#[test]
fn a_file_without_a_name_was_last_in_one_directory() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &small()).unwrap();
    let (x, y) = (
        mkdir(&mut store, root(), "x"),
        mkdir(&mut store, root(), "y"),
    );
    let fid = make(&mut store, x, "f");
    let (dir, other) = (y, name("g"));
    run(
        &mut store,
        &Op::Link {
            fid,
            dir,
            name: other.clone(),
        },
    );
    run(
        &mut store,
        &Op::Unlink {
            dir: x,
            name: name("f"),
        },
    );
    assert_eq!(store.dirs(fid), Ok(vec![y]));
    run(&mut store, &Op::Unlink { dir, name: other });
    assert_eq!(store.attr(fid).unwrap().unwrap().nlink, 0);
    assert_eq!((store.dirs(fid), store.place(fid)), (Ok(vec![y]), Ok(None)));
    run(&mut store, &Op::Reap { fid });
    assert_eq!(store.dirs(fid), Ok(vec![]));
}
