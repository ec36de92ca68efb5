//! The check finds what going through each view by itself finds, whatever is damaged; and it reads
//! as many keys as there are, not as all views together see.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::engine::{Batch, Engine, Pair};
use crate::index::Changes;
use crate::key::Key;
use crate::memory::MemoryDisk;
use crate::options::Options;
use crate::store::{Apply, Store};
use crate::value::{self, Extent, Named, Object, Placed};
use crate::versions::Version;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{
    Caller, Kind, Make, Name, Op, Outcome, Set, VolumeInfo, VolumeOp, VolumeState, WriteMode,
    XattrMode,
};

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % end
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 32 << 10,
        checkpoint_bytes: 1 << 20,
        inline_bytes: 100,
        share_bytes: 1,
        share_from: 1024,
        identity: 5,
        ..Options::default()
    }
}

fn run(store: &mut Store, op: &Op, data: &[u8]) -> Outcome {
    store.apply(Apply {
        op,
        caller: &Caller::default(),
        now: 7,
        origin: None,
        data,
        delegated: None,
    })
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn volumes(store: &mut Store) -> Vec<VolumeInfo> {
    let Outcome::Volumes(all) = run(store, &Op::Volumes, &[]) else {
        panic!("no volumes");
    };
    let present = all
        .into_iter()
        .filter(|of| of.state == VolumeState::Present);
    present.collect()
}

fn resize(fid: Fid, size: u64) -> Op {
    let set = Set {
        size: Some(size),
        ..Set::default()
    };
    Op::SetAttr { fid, set }
}

/// Something happens in a volume, or is refused. `known` are numbers of objects.
fn step(store: &mut Store, (random, known): (&mut Random, &mut Vec<u64>), volume: u32) {
    let fid = |vnode| Fid {
        vnode,
        ..Fid::root(volume)
    };
    let (dir, at) = (fid(random.of(known)), fid(random.of(known)));
    let called = name(&format!("n{}", random.below(6)));
    let make = |make| Op::Make {
        dir,
        name: called.clone(),
        make,
        mode: 0o755,
        open: None,
    };
    let mut data = Vec::new();
    let op = match random.below(16) {
        0..7 => make(random.of(&[
            Make::File,
            Make::File,
            Make::Directory,
            Make::Directory,
            Make::Symlink(b"target".to_vec()),
            Make::MountElsewhere(77),
        ])),
        7 => Op::Link {
            fid: at,
            dir,
            name: called,
        },
        8 => Op::Unlink { dir, name: called },
        9 => Op::Rmdir { dir, name: called },
        10 => Op::Rename {
            from: dir,
            name: called,
            to: at,
            new: name(&format!("n{}", random.below(6))),
            no_replace: false,
            exchange: random.below(4) == 0,
        },
        11 => Op::SetXattr {
            fid: at,
            name: format!("user.{}", random.below(3)).into_bytes(),
            value: b"value".to_vec(),
            mode: XattrMode::Any,
        },
        12 => Op::Reap { fid: at },
        13 => Op::Copy {
            from: dir,
            at: 0,
            to: at,
            offset: 0,
            len: 3_000,
        },
        14 => resize(at, random.below(5_000)),
        _ => {
            let most = random.of(&[60, 4_000]);
            data = vec![random.below(256) as u8; 1 + random.below(most) as usize];
            Op::Write {
                fid: at,
                offset: random.below(3) * 1_500,
                len: data.len() as u32,
                mode: WriteMode::At,
            }
        }
    };
    match run(store, &op, &data) {
        Outcome::Entry(entry) if !known.contains(&entry.fid.vnode) => known.push(entry.fid.vnode),
        _ => {}
    }
}

/// A store with volumes, snapshots and clones of one another, and changes between them.
fn grown(seed: u64) -> Store {
    let mut store = Store::create_in_memory(&MemoryDisk::new(), &options()).unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut known = vec![1];
    for round in 0..14 {
        for _ in 0..25 {
            let all = volumes(&mut store);
            let writable: Vec<u32> = all
                .iter()
                .filter(|of| of.snapshot_of.is_none())
                .map(|of| of.id)
                .collect();
            let volume = random.of(&writable);
            step(&mut store, (&mut random, &mut known), volume);
        }
        let of = random.of(&volumes(&mut store)).name;
        let name = name(&format!("v{round}"));
        let op = match random.below(8) {
            0 | 1 => VolumeOp::Clone { of, name },
            2 => VolumeOp::Delete { of },
            3 if round == 3 => VolumeOp::Create { name, mode: 0o755 },
            _ => VolumeOp::Snapshot { of, name },
        };
        run(&mut store, &Op::Volume(op), &[]);
    }
    store.write_out().unwrap();
    store.checkpoint().unwrap();
    store
}

impl Walk<'_> {
    /// The same check, of each view by itself: what the other one must find.
    fn run_each(&mut self) -> Result<(), Stopped> {
        self.range(key::partition())?;
        let all = self.index().volumes.iter();
        let present = all.filter(|(_, volume)| volume.is_present());
        let views: Vec<u32> = present.map(|(id, _)| id).collect();
        for id in views {
            let found = self.view(id)?;
            self.compare_counts(id, found);
            let volumes = &self.core.index.volumes;
            if volumes.get(id).unwrap().snapshot_of.is_none() {
                self.report.objects += found.0;
                self.report.bytes += found.1;
            }
            let frozen = volumes.is_frozen(id);
            let (from, to) = key::volume(id);
            for (key, value) in self.index().scan_all(&from, &to, usize::MAX >> 2).unwrap() {
                let parts = key::parts(&key).unwrap();
                match parts.kind {
                    key::OBJECT => {
                        let object: Option<Object> = value.and_then(|value| value::decode(&value));
                        if object.is_some() {
                            self.note_number(parts.vnode);
                        }
                    }
                    key::ORPHAN if !frozen && value.is_some() => {
                        let fid = self.fid(parts.number().unwrap());
                        self.report.orphans.push(fid);
                    }
                    _ => {}
                }
            }
        }
        self.all_versions()?;
        self.counts();
        Ok(())
    }
}

fn check_each(store: &Store) -> Report {
    let pace: Pace<'_> = &mut |_| true;
    let mut walk = Walk::new(&store.core, &store.log, None, (Limits::default(), pace));
    assert!(walk.run_each().is_ok());
    walk.report
}

/// The object that a line is about; views show it under other paths.
fn object_of(file: &str) -> &str {
    let fid = file.rsplit([' ', '(']).next().unwrap();
    fid.split('.').nth(1).unwrap()
}

/// The findings, whichever view they were made in.
fn findings(report: &Report) -> BTreeSet<String> {
    let told = |damage: &Damage| match damage {
        Damage::Object { file, what } => format!("object {}: {what}", object_of(file)),
        Damage::Entry { entry, what } => {
            let kind = entry.split(' ').nth(2).unwrap();
            format!("kind {kind} of {}: {what}", object_of(entry))
        }
        Damage::Bytes { file, from, to, .. } => format!("bytes {from}-{to} of {}", object_of(file)),
        other => other.to_string(),
    };
    let counted = format!("{} objects, {} bytes", report.objects, report.bytes);
    let orphans = format!("orphans {:?}", report.orphans);
    let damages = report.damages.iter().map(told);
    damages.chain([counted, orphans]).collect()
}

/// Both checks find the same. How many findings are there?
fn compare_checks(store: &Store, what: &str) -> usize {
    let report = store.check();
    let (found, expected) = (findings(&report), findings(&check_each(store)));
    let lost: Vec<_> = expected.difference(&found).collect();
    // Only the survey looks at births.
    let is_more = |line: &&String| !line.ends_with(super::survey::BEYOND);
    let more: Vec<_> = found.difference(&expected).filter(is_more).collect();
    assert!(
        lost.is_empty() && more.is_empty(),
        "{what}: not found {lost:#?}, too much {more:#?}"
    );
    report.damages.len()
}

/// All keys of all volumes.
fn all_keys(store: &Store) -> Vec<(Key, Vec<u8>)> {
    let (_, from) = key::partition();
    let (_, to) = key::all();
    let (found, more) = store.core.index.raw_part(&from, &to, 1 << 20).unwrap();
    assert!(!more);
    found
        .into_iter()
        .map(|(key, value)| (key, value.unwrap()))
        .collect()
}

/// A damage: values that keys get.
type Hit = Vec<(Key, Option<Vec<u8>>)>;

fn changed<T: serde::Serialize + for<'a> serde::Deserialize<'a>>(
    value: &[u8],
    change: impl FnOnce(&mut T),
) -> Option<Vec<u8>> {
    let mut decoded: T = value::decode(value)?;
    change(&mut decoded);
    Some(value::encode(&decoded))
}

/// One number of an object is another one.
fn other_object(random: &mut Random, object: &mut Object) {
    match random.below(14) {
        0 => object.attr.nlink = random.below(4) as u32,
        1 => object.attr.nlink += 1,
        2 => object.attr.size += 1,
        3 => object.attr.used_bytes += 1,
        4 => object.parent = 1 + random.below(40),
        5 => object.home += 1,
        6 => object.next_position = random.below(4),
        7 => object.entries += 1,
        8 => object.extents += 1,
        9 => object.inline = object.inline.wrapping_sub(1),
        10 => object.xattrs += 1,
        11 => object.acl ^= true,
        12 => object.uniq += 1,
        _ => object.attr.kind = random.of(&[Kind::File, Kind::Directory, Kind::Fifo]),
    }
}

/// A value that says something else.
fn other_value(random: &mut Random, kind: u8, value: &[u8]) -> Option<Vec<u8>> {
    let more = random.below(3);
    let vnode = 1 + random.below(40);
    match kind {
        key::OBJECT => changed(value, |object| other_object(random, object)),
        key::NAME => changed(value, |named: &mut Named| match more {
            0 => named.position += 1,
            1 => named.fid.vnode = vnode,
            _ => named.kind = Kind::Socket,
        }),
        key::POSITION => changed(value, |placed: &mut Placed| match more {
            0 => placed.name = name("other"),
            1 => placed.fid.vnode = vnode,
            _ => placed.kind = Kind::Socket,
        }),
        key::EXTENT => {
            let mut bytes = value.to_vec();
            bytes[16] ^= 1;
            Some(bytes)
        }
        _ => Some([value, &[7]].concat()),
    }
}

/// Kinds of damage to a key that is there.
const HITS: u64 = 6;

fn hit(random: &mut Random, keys: &[(Key, Vec<u8>)], (at, which): (usize, u64)) -> Hit {
    let (key, lying) = &keys[at];
    let parts = key::parts(key).unwrap();
    let sealed = |key: &Key, value: Option<Vec<u8>>| Some(Version::sealed(key, value));
    let Some(Version::Present(value)) = Version::of(key, lying.clone()) else {
        // In place of absence: none is known, or something that is not one.
        return vec![(key.clone(), (which > 2).then(|| vec![9; which as usize]))];
    };
    match which {
        0 => vec![(key.clone(), None)],
        1 => vec![(key.clone(), Some(vec![9, 9, 9]))],
        2 => vec![(key.clone(), sealed(key, None))],
        3 => {
            let same = |(other, _): &&(Key, Vec<u8>)| key::parts(other).unwrap().kind == parts.kind;
            let same: Vec<_> = keys.iter().filter(same).cloned().collect();
            let (other, value) = random.of(&same);
            match Version::of(&other, value) {
                Some(Version::Present(value)) => vec![(key.clone(), sealed(key, Some(value)))],
                _ => vec![(key.clone(), sealed(key, None))],
            }
        }
        4 => {
            let volume = key::volume_in(&random.of(keys).0);
            let other = key::version(volume, key::thing(key), 1 + random.below(9) as u32);
            let value = sealed(&other, Some(value));
            vec![(key.clone(), None), (other, value)]
        }
        _ => {
            let value = other_value(random, parts.kind, &value);
            vec![(key.clone(), sealed(key, value))]
        }
    }
}

/// A key that should not be there.
fn added(random: &mut Random, keys: &[(Key, Vec<u8>)]) -> Hit {
    let near = random.of(keys).0;
    let (volume, birth) = (key::volume_in(&near), 1 + random.below(9) as u32);
    let fid = |vnode| Fid {
        vnode,
        ..Fid::root(volume)
    };
    let (one, other) = (fid(1 + random.below(40)), fid(1 + random.below(40)));
    let position = 1 + random.below(8);
    let (plain, value) = match random.below(9) {
        0 => {
            let named = Named {
                fid: other,
                kind: Kind::File,
                position,
            };
            (key::name(one, b"added"), value::encode(&named))
        }
        1 => {
            let placed = Placed {
                name: name("added"),
                fid: other,
                kind: Kind::File,
            };
            (key::position(one, position), value::encode(&placed))
        }
        2 => (key::orphan(one), Vec::new()),
        3 => (key::link(one, (other, position)), Vec::new()),
        4 => (key::xattr(one, crate::acl::ACCESS), b"x".to_vec()),
        5 => (key::target(one), b"x".to_vec()),
        6 => (key::inline(one), b"x".to_vec()),
        7 => {
            let extent = Extent::whole(1, 40, 100, vec![0]);
            (key::extent(one, 50 * position + 60), extent.encode())
        }
        _ => {
            // Of no kind.
            let mut key = key::inline(one);
            key[key::HEAD_BYTES - 1] = 9;
            (key, Vec::new())
        }
    };
    let key = key::version(volume, key::thing(&plain), birth);
    let value = Version::sealed(&key, Some(value));
    vec![(key, Some(value))]
}

/// Damages the index, compares the checks, and takes the damage back. How many findings were there?
fn damaged(store: &mut Store, hits: &[Hit], what: &str) -> usize {
    let forget = || Changes {
        forgets: true,
        ..Changes::default()
    };
    let mut before: Hit = Vec::new();
    for (key, value) in hits.iter().flatten() {
        before.push((key.clone(), store.core.index.raw_get(key).unwrap()));
        store.core.index.raw_put(key.clone(), value.clone());
    }
    store.core.index.commit(forget());
    let found = compare_checks(store, &format!("{what}: {hits:?}"));
    for (key, value) in before.into_iter().rev() {
        store.core.index.raw_put(key, value);
    }
    store.core.index.commit(forget());
    found
}

#[test]
fn grown_stores_are_sound_and_have_what_the_test_is_about() {
    let mut kinds = BTreeSet::new();
    let (mut views, mut clones, mut orphans) = (0, 0, 0);
    for seed in 1..6 {
        let mut store = grown(seed);
        assert_eq!(compare_checks(&store, &format!("seed {seed}")), 0);
        let all = volumes(&mut store);
        views += all.len();
        clones += all.iter().filter(|of| of.cloned_from.is_some()).count();
        orphans += store.check().orphans.len();
        let keys = all_keys(&store);
        kinds.extend(keys.iter().map(|(key, _)| key::parts(key).unwrap().kind));
    }
    let expected = (key::OBJECT..=key::LINK).chain([key::BORN]);
    assert_eq!(kinds, expected.collect());
    assert!(
        views > 25 && clones > 4 && orphans > 0,
        "{views} {clones} {orphans}"
    );
}

#[test]
fn each_key_is_missed_and_each_wrong_value_found_as_in_each_view_by_itself() {
    let mut store = grown(1);
    let keys = all_keys(&store);
    let mut random = Random(77);
    let mut found = BTreeMap::new();
    for at in 0..keys.len() {
        for which in 0..HITS {
            let hit = hit(&mut random, &keys, (at, which));
            let findings = damaged(&mut store, &[hit], &format!("key {at}, {which}"));
            let kind = key::parts(&keys[at].0).unwrap().kind;
            *found.entry(kind).or_insert(0) += usize::from(findings > 0);
        }
    }
    // Nothing else says when a thing was born: only a rotten note of that is found.
    let never = found.iter().filter(|(_, found)| **found == 0);
    let never: Vec<u8> = never.map(|(kind, _)| *kind).collect();
    assert_eq!(never, [key::BORN]);
    println!("{} keys, damages found by kind: {found:?}", keys.len());
}

#[test]
fn several_damages_are_found_as_in_each_view_by_itself() {
    let mut findings = 0;
    for seed in 1..9 {
        let mut store = grown(seed);
        let keys = all_keys(&store);
        let mut random = Random(seed << 32 | 5);
        for round in 0..40 {
            let count = 1 + random.below(4);
            let hits: Vec<Hit> = (0..count)
                .map(|_| match random.below(3) {
                    0 => added(&mut random, &keys),
                    _ => {
                        let at = random.below(keys.len() as u64) as usize;
                        let which = random.below(HITS);
                        hit(&mut random, &keys, (at, which))
                    }
                })
                .collect();
            findings += damaged(&mut store, &hits, &format!("seed {seed}, round {round}"));
        }
    }
    assert!(findings > 1_000, "{findings}");
}

/// An engine that counts the keys which it gives, and gives one of them with other bytes.
#[derive(Debug)]
struct Watched {
    engine: Arc<dyn Engine>,
    given: Arc<AtomicU64>,
    rotten: Option<Key>,
}

impl Watched {
    fn watch(store: &mut Store, rotten: Option<Key>) -> Arc<AtomicU64> {
        let given = Arc::new(AtomicU64::new(0));
        let watched = Self {
            engine: store.core.index.engine().clone(),
            given: given.clone(),
            rotten,
        };
        store.core.index.exchange_engine(Arc::new(watched));
        given
    }

    fn give(&self, (key, mut sealed): Pair) -> Pair {
        self.given.fetch_add(1, Ordering::Relaxed);
        if self.rotten.as_ref() == Some(&key) {
            sealed[0] ^= 1;
        }
        (key, sealed)
    }
}

impl Engine for Watched {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let sealed = self.engine.get(key)?;
        Ok(sealed.map(|sealed| self.give((key.to_vec(), sealed)).1))
    }

    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        let all = self.engine.scan(from, to, limit)?;
        Ok(all.into_iter().map(|pair| self.give(pair)).collect())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.engine.commit(batch)
    }

    fn sound(&self) -> Result<(), StoreError> {
        self.engine.sound()
    }

    fn view(&self) -> Result<Arc<dyn Engine>, StoreError> {
        self.engine.view()
    }
}

#[test]
fn rotten_values_are_found_as_in_each_view_by_itself() {
    let mut store = grown(3);
    let keys = all_keys(&store);
    let engine = store.core.index.engine().clone();
    for (key, _) in &keys {
        Watched::watch(&mut store, Some(key.clone()));
        let none: Hit = Vec::new();
        let found = damaged(&mut store, &[none], &format!("{key:?}"));
        assert!(found > 0, "{key:?}");
        store.core.index.exchange_engine(engine.clone());
    }
}

const FILES: u64 = 2_000;
const CHANGES: u64 = 20;

/// A volume with files in directories, and snapshots with changes between them.
fn layered(snapshots: u64, changes: u64) -> Store {
    let mut store = Store::create_in_memory(&MemoryDisk::new(), &Options::default()).unwrap();
    let root = store.root();
    let mut made = Vec::new();
    let mut dir = root;
    for n in 0..FILES {
        let make = |dir, make| Op::Make {
            dir,
            name: name(&format!("n{n}")),
            make,
            mode: 0o755,
            open: None,
        };
        if n % 100 == 0 {
            let Outcome::Entry(entry) = run(&mut store, &make(root, Make::Directory), &[]) else {
                panic!("not made");
            };
            dir = entry.fid;
        }
        let Outcome::Entry(entry) = run(&mut store, &make(dir, Make::File), &[]) else {
            panic!("not made");
        };
        made.push(entry.fid);
    }
    let mut random = Random(9);
    for n in 0..snapshots {
        let (of, name) = (name("root"), name(&format!("v{n}")));
        let op = Op::Volume(VolumeOp::Snapshot { of, name });
        assert!(matches!(run(&mut store, &op, &[]), Outcome::Volume(_)));
        for _ in 0..changes {
            let op = Op::Write {
                fid: random.of(&made),
                offset: 0,
                len: 3,
                mode: WriteMode::At,
            };
            assert!(matches!(
                run(&mut store, &op, b"new"),
                Outcome::Written { .. }
            ));
        }
    }
    store.checkpoint().unwrap();
    store
}

#[test]
fn a_check_reads_as_many_keys_as_there_are_whatever_number_of_snapshots_sees_them() {
    let read = |snapshots: u64, changes: u64| {
        let mut store = layered(snapshots, changes);
        let keys = all_keys(&store).len() as u64;
        let given = Watched::watch(&mut store, None);
        assert!(store.check().is_clean());
        let read = given.swap(0, Ordering::Relaxed);
        assert!(check_each(&store).is_clean());
        (read, keys, given.load(Ordering::Relaxed))
    };
    let (bare, ..) = read(1, 0);
    let (same, ..) = read(100, 0);
    let (layered, keys, each) = read(100, CHANGES);
    println!("keys read: 1 snapshot {bare}, 100 {same}, 100 with changes {layered} of {keys}");
    println!("of each view by itself {each}");
    // A few numbers of the partition are read besides, and the records of the snapshots.
    assert!(bare < 5 * FILES && same < bare + 300, "{bare} {same}");
    assert!(layered < keys + 500, "{layered} of {keys}");
    // Each change has a version of the object and of its bytes, and a note of either's birth.
    assert!(layered < same + 100 * CHANGES * 5, "{layered} {same}");
    assert!(each > 20 * layered, "{each} {layered}");
}
