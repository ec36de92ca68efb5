//! Volumes: a store does with snapshots and clones what a model does that copies whole trees; over
//! checkpoints, cleaning, sweeps and crashes.

use crate::generated::{Both, Step, step};
use crate::model::Model;
use crate::world::*;
use ariel_store::{MemoryDisk, Mutant, Options, Store, fsck_memory};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use wire::*;

/// So small that segments are cleaned all the time.
fn options() -> Options {
    Options {
        segment_bytes: 8 << 10,
        checkpoint_bytes: 2 << 10,
        ..small()
    }
}

pub fn volume_op(store: &mut Store, op: VolumeOp) -> Outcome {
    run(store, &Op::Volume(op))
}

fn made(outcome: Outcome) -> VolumeInfo {
    match outcome {
        Outcome::Volume(info) => info,
        other => panic!("no volume: {other:?}"),
    }
}

fn snapshot(store: &mut Store, of: &str, text: &str) -> VolumeInfo {
    let (of, name) = (name(of), name(text));
    made(volume_op(store, VolumeOp::Snapshot { of, name }))
}

fn clone(store: &mut Store, of: &str, text: &str) -> VolumeInfo {
    let (of, name) = (name(of), name(text));
    made(volume_op(store, VolumeOp::Clone { of, name }))
}

fn delete(store: &mut Store, of: &str) -> VolumeInfo {
    made(volume_op(store, VolumeOp::Delete { of: name(of) }))
}

fn purge(store: &mut Store, volume: u32) {
    assert_eq!(volume_op(store, VolumeOp::Purge { volume }), Outcome::Done);
}

pub fn volumes(store: &mut Store) -> Vec<VolumeInfo> {
    match run(store, &Op::Volumes) {
        Outcome::Volumes(volumes) => volumes,
        other => panic!("{other:?}"),
    }
}

/// Until nothing is left to be done.
fn rest(store: &mut Store) {
    let mut now = 1 << 40;
    while let Some(next) = store.tend(now) {
        now = next;
    }
}

/// A step on volumes, which are given by their number among those known.
#[derive(Clone, Debug)]
enum Turn {
    Inside(usize, Step),
    Create,
    Snapshot(usize),
    Clone(usize),
    Delete(usize),
    Undelete(usize),
    Purge(usize),
    Rest,
    Compare(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let v = || 0usize..8;
    prop_oneof![
        60 => (v(), step()).prop_map(|(volume, step)| Turn::Inside(volume, step)),
        1 => Just(Turn::Create),
        4 => v().prop_map(Turn::Snapshot),
        3 => v().prop_map(Turn::Clone),
        3 => v().prop_map(Turn::Delete),
        1 => v().prop_map(Turn::Undelete),
        2 => v().prop_map(Turn::Purge),
        1 => Just(Turn::Rest),
        2 => v().prop_map(Turn::Compare),
    ]
}

/// A volume as the model has it: a tree of its own.
#[derive(Clone)]
struct Tree {
    info: VolumeInfo,
    model: Model,
    known: Vec<Fid>,
    deleted: bool,
}

impl Tree {
    /// A copy of it, in another volume.
    fn copy(&self, info: VolumeInfo) -> Self {
        let volume = info.id;
        let there = |fid: &Fid| Fid { volume, ..*fid };
        let mut model = self.model.clone();
        model.nodes = std::mem::take(&mut model.nodes)
            .into_iter()
            .map(|(fid, mut node)| {
                node.parent = node.parent.as_ref().map(there);
                for fid in node.dir.iter_mut().flat_map(BTreeMap::values_mut) {
                    *fid = there(fid);
                }
                (there(&fid), node)
            })
            .collect();
        Self {
            info,
            model,
            known: self.known.iter().map(there).collect(),
            deleted: false,
        }
    }
}

struct World {
    both: Both,
    trees: Vec<Tree>,
    names: u32,
}

impl World {
    fn new(options: Options) -> Self {
        let mut both = Both::with(options);
        let info = volumes(both.store()).remove(0);
        let tree = Tree {
            info,
            model: both.model.clone(),
            known: both.known.clone(),
            deleted: false,
        };
        Self {
            both,
            trees: vec![tree],
            names: 0,
        }
    }

    /// Works on a tree with what knows how to compare one.
    fn with<T>(&mut self, at: usize, work: impl FnOnce(&mut Both) -> T) -> T {
        let tree = &mut self.trees[at];
        std::mem::swap(&mut self.both.model, &mut tree.model);
        std::mem::swap(&mut self.both.known, &mut tree.known);
        let result = work(&mut self.both);
        let tree = &mut self.trees[at];
        std::mem::swap(&mut self.both.model, &mut tree.model);
        std::mem::swap(&mut self.both.known, &mut tree.known);
        result
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    fn change(&mut self, op: VolumeOp) -> Result<VolumeInfo, Refusal> {
        self.both.now += 1;
        match volume_op(self.both.store(), op) {
            Outcome::Volume(info) => Ok(info),
            Outcome::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    fn inside(&mut self, at: usize, step: &Step) {
        match step {
            Step::Checkpoint => return self.both.store().checkpoint().unwrap(),
            Step::Crash(machine) => return self.both.crash(*machine),
            Step::Reap => return self.reap(at),
            _ => {}
        }
        if self.trees[at].deleted {
            return self.is_gone(at);
        }
        if self.trees[at].info.snapshot_of.is_some() {
            return self.frozen(at, step);
        }
        self.with(at, |both| both.step(step));
    }

    fn reap(&mut self, at: usize) {
        let volume = self.trees[at].info.id;
        for fid in self.both.store().orphans_of(volume) {
            if self.trees[at].info.snapshot_of.is_none() {
                self.with(at, |both| both.apply(&Op::Reap { fid }, &[]));
            }
        }
    }

    /// Nothing of a deleted volume is seen.
    fn is_gone(&mut self, at: usize) {
        let root = Fid::root(self.trees[at].info.id);
        assert_eq!(self.both.store().attr(root), Ok(None));
    }

    /// A snapshot is read, and never changed.
    fn frozen(&mut self, at: usize, step: &Step) {
        match step {
            Step::Read(..) | Step::Find(..) => self.with(at, |both| both.step(step)),
            Step::Write(..) => {
                let fid = self.trees[at].known[0];
                let op = make_op(fid, "new", Make::File, 0o644);
                let refused = run(self.both.store(), &op);
                let absent = matches!(refused, Outcome::Refused(Refusal::ReadOnly));
                assert!(absent, "{refused:?}");
            }
            _ => {
                let op = self.with(at, |both| both.op(step));
                // An operation that changes nothing may be answered.
                run(self.both.store(), &op);
            }
        }
    }

    fn turn(&mut self, turn: &Turn) {
        let place = |at: usize| at % self.trees.len();
        match *turn {
            Turn::Inside(at, ref step) => self.inside(place(at), step),
            Turn::Create => {
                let text = self.name();
                let (name, mode) = (name(&text), 0o755);
                let info = self.change(VolumeOp::Create { name, mode }).unwrap();
                let mut tree = self.trees[0].copy(info);
                tree.known.truncate(1);
                let root = tree.known[0];
                tree.model = Tree {
                    model: Model::new(),
                    ..self.trees[0].clone()
                }
                .copy(tree.info.clone())
                .model;
                assert!(tree.model.nodes.contains_key(&root));
                self.trees.push(tree);
            }
            Turn::Snapshot(at) | Turn::Clone(at) => self.branch(place(at), turn),
            Turn::Delete(at) => self.delete(place(at)),
            Turn::Undelete(at) => self.undelete(place(at)),
            Turn::Purge(at) => self.purge(place(at)),
            Turn::Rest => rest(self.both.store()),
            Turn::Compare(at) => self.compare(place(at)),
        }
    }

    fn branch(&mut self, at: usize, turn: &Turn) {
        let (text, tree) = (self.name(), &self.trees[at]);
        let (of, new) = (tree.info.name.clone(), name(&text));
        let frozen = tree.info.snapshot_of.is_some();
        let deleted = tree.deleted;
        let clones = matches!(turn, Turn::Clone(_));
        let op = match clones {
            true => VolumeOp::Clone { of, name: new },
            false => VolumeOp::Snapshot { of, name: new },
        };
        let result = self.change(op);
        if deleted {
            return assert_eq!(result, Err(Refusal::NotFound));
        }
        if frozen && !clones {
            return assert_eq!(result, Err(Refusal::ReadOnly));
        }
        let info = result.unwrap();
        let tree = self.trees[at].copy(info);
        self.trees.push(tree);
    }

    /// The tree, and those of its snapshots.
    fn family(&self, at: usize) -> Vec<usize> {
        let id = self.trees[at].info.id;
        let of = |at: &usize| {
            let info = &self.trees[*at].info;
            info.id == id || info.snapshot_of == Some(id)
        };
        (0..self.trees.len()).filter(of).collect()
    }

    fn delete(&mut self, at: usize) {
        let of = self.trees[at].info.name.clone();
        let result = self.change(VolumeOp::Delete { of });
        if at == 0 {
            return assert_eq!(result, Err(Refusal::NotPermitted));
        }
        if self.trees[at].deleted {
            return assert_eq!(result, Err(Refusal::NotFound));
        }
        result.unwrap();
        for at in self.family(at) {
            self.trees[at].deleted = true;
        }
    }

    fn undelete(&mut self, at: usize) {
        let tree = &self.trees[at];
        let of = tree.info.name.clone();
        let result = self.change(VolumeOp::Undelete { of });
        let whole = self.trees[at].info.snapshot_of;
        let within = self.trees.iter().find(|tree| Some(tree.info.id) == whole);
        let stays = whole.is_some() && within.is_none_or(|tree| tree.deleted);
        if !self.trees[at].deleted || stays {
            return assert_eq!(result, Err(Refusal::NotFound));
        }
        result.unwrap();
        let back: BTreeSet<u32> = volumes(self.both.store())
            .into_iter()
            .filter(|info| info.state == VolumeState::Present)
            .map(|info| info.id)
            .collect();
        self.trees[at].deleted = false;
        // Those that were deleted by themselves before stay so.
        for at in self.family(at) {
            self.trees[at].deleted = !back.contains(&self.trees[at].info.id);
        }
        assert!(!self.trees[at].deleted);
    }

    fn purge(&mut self, at: usize) {
        let volume = self.trees[at].info.id;
        let result = volume_op(self.both.store(), VolumeOp::Purge { volume });
        if !self.trees[at].deleted {
            return assert_eq!(result, Outcome::Refused(Refusal::Invalid));
        }
        assert_eq!(result, Outcome::Done);
        let family: BTreeSet<u32> = self
            .family(at)
            .iter()
            .map(|at| self.trees[*at].info.id)
            .collect();
        self.trees.retain(|tree| !family.contains(&tree.info.id));
    }

    fn compare(&mut self, at: usize) {
        if self.trees[at].deleted {
            return self.is_gone(at);
        }
        let volume = self.trees[at].info.id;
        self.with(at, |both| both.compare_volume(volume));
    }

    fn compare_all(&mut self) {
        for at in 0..self.trees.len() {
            self.compare(at);
        }
        let told: BTreeMap<u32, VolumeInfo> = volumes(self.both.store())
            .into_iter()
            .map(|info| (info.id, info))
            .collect();
        assert_eq!(told.len(), self.trees.len());
        for tree in &self.trees {
            let info = &told[&tree.info.id];
            assert_eq!(info.name, tree.info.name);
            assert_eq!(info.objects, tree.model.nodes.len() as u64, "{}", info.name);
            assert_eq!(info.state == VolumeState::Present, !tree.deleted);
        }
        let report = self.both.store().check();
        assert!(report.is_clean(), "{report}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn volumes_are_what_copies_of_trees_are(turns in prop::collection::vec(turn(), 1..250)) {
        go_through(&turns, options());
    }
}

fn go_through(turns: &[Turn], options: Options) {
    let mut world = World::new(options);
    for turn in turns {
        world.turn(turn);
    }
    world.compare_all();
    world.both.crash(true);
    world.compare_all();
    rest(world.both.store());
    world.compare_all();
    drop(world.both.store.take());
    let report = fsck_memory(&world.both.disk).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// The number of the first of many histories in which a fault shows; `None`: it shows in none.
pub fn found_in(history: impl Fn(&mut TestRunner)) -> Option<usize> {
    const HISTORIES: usize = 400;
    // The hook is the process's.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap();
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut runner = TestRunner::deterministic();
    let found = (0..HISTORIES).find(|_| {
        let tried = AssertUnwindSafe(|| history(&mut runner));
        std::panic::catch_unwind(tried).is_err()
    });
    std::panic::set_hook(quiet);
    found
}

#[test]
fn each_fault_planted_into_versions_is_found() {
    let turns = prop::collection::vec(turn(), 100..250);
    for mutant in Mutant::OF_VERSIONS {
        let options = Options {
            mutant: Some(mutant),
            ..options()
        };
        let found = found_in(|runner| {
            let turns = turns.new_tree(runner).unwrap().current();
            go_through(&turns, options.clone());
        });
        println!("{mutant:?}: found by history {found:?}");
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let mut store = Store::in_memory(&options()).unwrap();
    let file = make(&mut store, root(), "file");
    write(&mut store, file, 0, b"before");
    let taken = snapshot(&mut store, "root", "monday");
    assert_eq!(taken.name, name("root@monday"));
    write(&mut store, file, 0, b"behind");
    let old = Fid {
        volume: taken.id,
        ..file
    };
    assert_eq!(read_all(&mut store, old), b"before");
    assert_eq!(read_all(&mut store, file), b"behind");
    let op = write_op(old, 0, b"change", WriteMode::At);
    let refused = run_as(&mut store, &superuser(), &op, b"change");
    assert_eq!(refused, Outcome::Refused(Refusal::ReadOnly));
    let twice = volume_op(
        &mut store,
        VolumeOp::Snapshot {
            of: name("root"),
            name: name("monday"),
        },
    );
    assert_eq!(twice, Outcome::Refused(Refusal::Exists));
}

#[test]
fn a_clone_and_its_origin_go_their_own_ways() {
    let mut store = Store::in_memory(&options()).unwrap();
    let file = make(&mut store, root(), "file");
    let data = bytes(1, 20_000);
    write(&mut store, file, 0, &data);
    let before = store.stats().appended_bytes;
    let copy = clone(&mut store, "root", "copy");
    assert!(
        store.stats().appended_bytes - before < 200,
        "nothing is copied"
    );
    let theirs = Fid {
        volume: copy.id,
        ..file
    };
    write(&mut store, theirs, 5_000, b"theirs");
    write(&mut store, file, 10_000, b"ours");
    let mut expected = (data.clone(), data);
    expected.0[10_000..10_004].copy_from_slice(b"ours");
    expected.1[5_000..5_006].copy_from_slice(b"theirs");
    assert_eq!(read_all(&mut store, file), expected.0);
    assert_eq!(read_all(&mut store, theirs), expected.1);
    // The clone outlives what it was cloned from.
    let other = clone(&mut store, "copy", "other");
    delete(&mut store, "copy");
    purge(&mut store, copy.id);
    rest(&mut store);
    let last = Fid {
        volume: other.id,
        ..file
    };
    assert_eq!(read_all(&mut store, last), expected.1);
    assert_eq!(store.attr(theirs), Ok(None));
    assert!(store.check().is_clean());
}

#[test]
fn room_comes_back_when_the_last_one_who_sees_bytes_is_purged() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &options()).unwrap();
    let file = make(&mut store, root(), "file");
    let large = 300_000;
    write(&mut store, file, 0, &bytes(1, large));
    let alone = store.stats().live_bytes;
    for n in 0..10 {
        snapshot(&mut store, "root", &format!("s{n}"));
        write(&mut store, file, 0, &bytes(n, large));
    }
    rest(&mut store);
    let full = store.stats().live_bytes;
    assert!(full >= 11 * large as u64, "{full}");
    for n in (0..10).filter(|n| *n != 4) {
        let info = delete(&mut store, &format!("root@s{n}"));
        purge(&mut store, info.id);
    }
    rest(&mut store);
    assert_eq!(store.stats().live_bytes, 2 * alone);
    let kept = volumes(&mut store).pop().unwrap();
    assert_eq!(kept.name, name("root@s4"));
    let old = Fid {
        volume: kept.id,
        ..file
    };
    assert_eq!(read_all(&mut store, old), bytes(3, large));
    assert_eq!(read_all(&mut store, file), bytes(9, large));
    purge_last(&mut store, "root@s4");
    assert_eq!(store.stats().live_bytes, alone);
    let used: u64 = disk.files().iter().map(|(_, len)| len).sum();
    assert!(used < 3 * large as u64, "{used} bytes of files");
    assert!(store.check().is_clean());
}

fn purge_last(store: &mut Store, of: &str) {
    let info = delete(store, of);
    purge(store, info.id);
    rest(store);
}

#[test]
fn names_and_rights_of_volumes() {
    let mut store = Store::in_memory(&options()).unwrap();
    let create = |text: &str| VolumeOp::Create {
        name: name(text),
        mode: 0o700,
    };
    let as_user = run_as(&mut store, &user(5), &Op::Volume(create("home")), &[]);
    assert_eq!(as_user, Outcome::Refused(Refusal::NotPermitted));
    for bad in ["a@b", ".hidden", "a b", "-x"] {
        let refused = volume_op(&mut store, create(bad));
        assert_eq!(refused, Outcome::Refused(Refusal::Invalid), "{bad}");
    }
    let home = made(volume_op(&mut store, create("home")));
    assert_eq!((home.objects, home.bytes), (1, 0));
    assert_eq!(store.attr(home.root()).unwrap().unwrap().mode, 0o700);
    let again = volume_op(&mut store, create("home"));
    assert_eq!(again, Outcome::Refused(Refusal::Exists));
    snapshot(&mut store, "home", "one");
    let rename = |of: &str, to: &str| VolumeOp::Rename {
        of: name(of),
        name: name(to),
    };
    made(volume_op(&mut store, rename("home", "house")));
    made(volume_op(&mut store, rename("house@one", "house@two")));
    let refused = [
        (rename("house@two", "home@two"), Refusal::CrossVolume),
        (rename("house", "root"), Refusal::Exists),
        (rename("root", "other"), Refusal::NotPermitted),
        (rename("house", "house@x"), Refusal::Invalid),
        (rename("home", "x"), Refusal::NotFound),
    ];
    for (op, refusal) in refused {
        assert_eq!(
            volume_op(&mut store, op.clone()),
            Outcome::Refused(refusal),
            "{op:?}"
        );
    }
    // Its name is free while it is deleted; it comes back only if it still is.
    delete(&mut store, "house");
    assert_eq!(store.attr(home.root()), Ok(None));
    let other = made(volume_op(&mut store, create("house")));
    let back = || VolumeOp::Undelete { of: name("house") };
    let taken = volume_op(&mut store, back());
    assert_eq!(taken, Outcome::Refused(Refusal::Exists));
    made(volume_op(&mut store, rename("house", "hut")));
    assert_eq!(made(volume_op(&mut store, back())).id, home.id);
    assert!(store.attr(home.root()).unwrap().is_some());
    let all: Vec<String> = volumes(&mut store)
        .iter()
        .map(|info| info.name.to_string())
        .collect();
    assert_eq!(all, ["root", "house", "house@two", "hut"]);
    assert_ne!(other.id, home.id);
}

#[test]
fn nothing_goes_from_one_volume_into_another_but_copies_of_bytes() {
    let mut store = Store::in_memory(&options()).unwrap();
    let file = make(&mut store, root(), "file");
    let data = bytes(7, 9_000);
    write(&mut store, file, 0, &data);
    let taken = snapshot(&mut store, "root", "s");
    write(&mut store, file, 0, &bytes(8, 9_000));
    let old = Fid {
        volume: taken.id,
        ..file
    };
    let link = Op::Link {
        fid: old,
        dir: root(),
        name: name("again"),
    };
    assert_eq!(
        run(&mut store, &link),
        Outcome::Refused(Refusal::CrossVolume)
    );
    let before = store.stats().appended_bytes;
    let copy = Op::Copy {
        from: old,
        at: 0,
        to: file,
        offset: 0,
        len: 9_000,
    };
    let copied = run(&mut store, &copy);
    assert!(matches!(copied, Outcome::Copied { len: 9_000, .. }));
    let more = store.stats().appended_bytes - before;
    assert!(more < 3_000, "{more} bytes for a copy that shares");
    assert_eq!(read_all(&mut store, file), data);
    assert!(store.check().is_clean());
}

/// So many entries of the directory of snapshots behind a position; and are these the last?
fn listed(store: &mut Store, after: u64, max: u32) -> (Vec<(String, Fid)>, bool) {
    let dir = Fid::snapshots(1);
    match run(store, &Op::ReadDir { dir, after, max }) {
        Outcome::Dir { entries, end, .. } => {
            let named = |entry: DirEntry| (entry.name.to_string(), entry.fid);
            (entries.into_iter().map(named).collect(), end)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_directory_of_snapshots_is_what_the_volumes_are() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &options()).unwrap();
    let dir = Fid::snapshots(1);
    assert_eq!(listed(&mut store, 0, 9), (vec![], true));
    let one = snapshot(&mut store, "root", "one");
    let two = snapshot(&mut store, "root", "two");
    let named = |text: &str, info: &VolumeInfo| vec![(text.to_owned(), info.root())];
    let both = [named("one", &one), named("two", &two)].concat();
    assert_eq!(listed(&mut store, 0, 9), (both, true));
    assert_eq!(listed(&mut store, 0, 1), (named("one", &one), false));
    let behind = u64::from(one.id);
    assert_eq!(listed(&mut store, behind, 1), (named("two", &two), true));
    let look = |store: &Store, text: &str| store.lookup(dir, &name(text)).unwrap();
    assert_eq!(look(&store, "two"), Some(two.root()));
    let before = store.attr(dir).unwrap().unwrap();
    assert_eq!((before.nlink, before.mode), (4, 0o555));
    let deleted = delete(&mut store, "root@one");
    assert_eq!(look(&store, "one"), None);
    let after = store.attr(dir).unwrap().unwrap();
    assert!(after.nlink == 3 && after.mtime >= before.mtime);
    let (of, new) = (name("root@two"), name("root@three"));
    made(volume_op(&mut store, VolumeOp::Rename { of, name: new }));
    let left = (named("three", &two), true);
    assert_eq!(listed(&mut store, 0, 9), left);
    purge(&mut store, deleted.id);
    rest(&mut store);
    drop(store);
    let mut store = Store::open_in_memory(&disk, &options()).unwrap();
    assert_eq!(listed(&mut store, 0, 9), left);
    drop(store);
    assert!(fsck_memory(&disk).unwrap().is_clean());
}

#[test]
fn nobody_changes_a_directory_of_snapshots_and_a_snapshot_has_none() {
    let mut store = Store::in_memory(&options()).unwrap();
    let dir = Fid::snapshots(1);
    let one = snapshot(&mut store, "root", "one");
    let make = Op::Make {
        dir,
        name: name("x"),
        make: Make::Directory,
        mode: 0o755,
        open: None,
    };
    let set = Op::SetAttr {
        fid: dir,
        set: Set {
            mode: Some(0o777),
            ..Set::default()
        },
    };
    let remove = Op::Rmdir {
        dir,
        name: name("one"),
    };
    for op in [make, set, remove] {
        let refused = Outcome::Refused(Refusal::ReadOnly);
        assert_eq!(run(&mut store, &op), refused, "{op:?}");
    }
    assert_eq!(store.attr(Fid::snapshots(one.id)), Ok(None));
    assert_eq!(store.attr(Fid::snapshots(9)), Ok(None));
}

#[test]
fn a_schedule_is_kept_with_its_volume() {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, &options()).unwrap();
    let rules = vec![ScheduleRule {
        every_s: 3600,
        keep: 24,
    }];
    let set = |store: &mut Store, of: &str, rules: &[ScheduleRule]| {
        let (of, rules) = (name(of), rules.to_vec());
        volume_op(store, VolumeOp::Schedule { of, rules })
    };
    assert_eq!(made(set(&mut store, "root", &rules)).schedule, rules);
    let frozen = snapshot(&mut store, "root", "s");
    assert_eq!(frozen.schedule, []);
    let refused = Outcome::Refused(Refusal::ReadOnly);
    assert_eq!(set(&mut store, "root@s", &rules), refused);
    assert_eq!(clone(&mut store, "root", "c").schedule, []);
    store.close().unwrap();
    let mut store = Store::open_in_memory(&disk, &options()).unwrap();
    assert_eq!(volumes(&mut store)[0].schedule, rules);
    assert_eq!(made(set(&mut store, "root", &[])).schedule, []);
    store.close().unwrap();
    let mut store = Store::open_in_memory(&disk, &options()).unwrap();
    assert!(
        volumes(&mut store)
            .iter()
            .all(|info| info.schedule.is_empty())
    );
    drop(store);
    assert!(fsck_memory(&disk).unwrap().is_clean());
}
