//! Replicas: after any changes at the source, each release is at each replica what the source was;
//! a fid of a file names the same bytes for ever, at all replicas; a release takes back what it
//! changes, and nothing else.

use crate::generated::{Both, Step, step};
use crate::stream::{change, outside, publish, restore, snapshot, stream, target, volume_named};
use crate::volumes::found_in;
use crate::world::*;
use ariel_store::{Keep, MemoryDisk, Mutant, Options, Store, fsck_memory};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::{BTreeMap, BTreeSet};
use wire::*;

const NAME: &str = "root.readonly";

/// The first volume of the store of each replica.
fn first() -> u32 {
    volume_numbers::first_of_further(3, 1).unwrap()
}

fn replica() -> u32 {
    volume_numbers::replica(first())
}

fn number(release: u32) -> u32 {
    volume_numbers::release(replica(), release).unwrap()
}

fn options() -> Options {
    Options {
        volume: first(),
        ..target()
    }
}

/// The sight of a directory: its attributes, and the object of each name.
type Shown = (Attr, BTreeMap<String, Fid>);

/// A server with a replica.
struct Site {
    options: Options,
    disk: MemoryDisk,
    store: Option<Store>,
    /// The bytes of each file that was ever seen, and the last release in which it was.
    files: BTreeMap<Fid, (Attr, Vec<u8>, u32)>,
    /// The names that directories had in each release, with the objects that are files.
    listed: BTreeMap<(u32, Fid), BTreeMap<String, Option<Fid>>>,
    /// The oldest release that is kept.
    oldest: u32,
}

impl Site {
    fn new(options: &Options) -> Self {
        let disk = MemoryDisk::new();
        Self {
            options: options.clone(),
            store: Some(Store::create_in_memory(&disk, options).unwrap()),
            disk,
            files: BTreeMap::new(),
            listed: BTreeMap::new(),
            oldest: 1,
        }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    /// The machine fails, after its disk has got everything.
    fn crash(&mut self) {
        self.store().write_out().unwrap();
        self.store().sync_handle().sync().unwrap();
        drop(self.store.take());
        self.disk.crash(Keep::Synced);
        self.store = Some(Store::open_in_memory(&self.disk, &self.options).unwrap());
    }

    fn rest(&mut self) {
        let mut now = 1 << 40;
        while let Some(next) = self.store().tend(now) {
            now = next;
        }
    }

    fn begin(&mut self, head: &StreamHead, release: u32) -> Result<VolumeInfo, Refusal> {
        let op = VolumeOp::ReceiveRelease {
            name: name(NAME),
            head: Box::new(head.clone()),
            release,
        };
        change(self.store(), op)
    }

    fn dirs(&mut self) -> BTreeMap<Fid, Shown> {
        let mut dirs = BTreeMap::new();
        let there = self.store().attr(Fid::root(replica())).unwrap();
        let mut open: Vec<Fid> = there.iter().map(|_| Fid::root(replica())).collect();
        while let Some(fid) = open.pop() {
            let attr = self.store().attr(fid).unwrap().unwrap();
            let all = list(self.store(), fid, 3).into_iter();
            let mut names = BTreeMap::new();
            for entry in all {
                if entry.kind == Kind::Directory {
                    open.push(entry.fid);
                }
                let dir = name_of(self.store(), fid, &entry.name);
                assert_eq!(dir, entry.fid, "a look-up says what a listing does");
                names.insert(entry.name.to_string(), entry.fid);
            }
            dirs.insert(fid, (attr, names));
        }
        dirs
    }

    fn names(&mut self, dir: Fid) -> BTreeMap<String, Option<Fid>> {
        let all = list(self.store(), dir, 3).into_iter();
        let file = |entry: &DirEntry| (entry.kind != Kind::Directory).then_some(entry.fid);
        all.map(|entry| (entry.name.to_string(), file(&entry)))
            .collect()
    }

    /// Receives a release, with a failure of the machine, or of the sender, in the middle; and
    /// publishes it.
    fn receive(&mut self, parts: &[Dump], release: u32, (crash, discard): (bool, bool)) {
        let before = self.dirs();
        let head = &parts[0].head;
        let mut info = self.begin(head, release).unwrap();
        if discard {
            restore(self.store(), info.id, 0, &parts[0]);
            let op = Op::Volume(VolumeOp::Discard { volume: info.id });
            assert_eq!(run(self.store(), &op), Outcome::Done);
            // The parts that came may be removed by now, or not.
            info = match self.begin(head, release) {
                Ok(info) => info,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Busy);
                    self.rest();
                    self.begin(head, release).unwrap()
                }
            };
        }
        assert_eq!(info.id, number(release));
        for (at, dump) in parts.iter().enumerate() {
            let done = restore(self.store(), info.id, at as u64, dump);
            assert_eq!(done, Outcome::Done);
            if crash && at == parts.len() / 2 {
                self.crash();
            }
        }
        assert!(self.dirs() == before, "a half release is seen");
        let changed = self.store().changed_by_release(info.id);
        publish(self.store(), info.id).unwrap();
        let Some(changed) = changed else {
            assert!(before.is_empty(), "all of the volume is taken back");
            return;
        };
        let now = self.dirs();
        let differs = before
            .iter()
            .filter(|(dir, shown)| now.get(dir) != Some(shown));
        let differs: BTreeSet<Fid> = differs.map(|(dir, _)| *dir).collect();
        assert_eq!(differs, *changed);
    }

    /// Notes all files, and reads once more those that were seen in earlier releases.
    fn read(&mut self, release: u32) {
        for seen in picture_of(self.store(), replica()).into_values() {
            if seen.attr.kind != Kind::Directory {
                let known = (seen.attr, seen.bytes, release);
                self.files.insert(seen.fid, known);
            }
        }
        let dirs = self.dirs().into_keys().map(|dir| (release, dir));
        let all: Vec<_> = self.listed.keys().copied().chain(dirs).collect();
        for (of, dir) in all {
            let volume = if of == release { replica() } else { number(of) };
            if of >= self.oldest {
                let names = self.names(Fid { volume, ..dir });
                let known = self
                    .listed
                    .entry((of, dir))
                    .or_insert_with(|| names.clone());
                assert_eq!(*known, names, "a listing goes on as it began");
            }
        }
        for (fid, (attr, bytes, last)) in self.files.clone() {
            let Some(now) = self.store().attr(fid).unwrap() else {
                assert!(last < self.oldest, "{fid} of release {last} is gone");
                continue;
            };
            // Bytes may come to lie elsewhere.
            let used_bytes = attr.used_bytes;
            assert_eq!(Attr { used_bytes, ..now }, attr, "{fid}");
            if attr.kind == Kind::File {
                assert!(read_all(self.store(), fid) == bytes, "{fid}");
            }
        }
    }

    fn drop_below(&mut self, below: u32) {
        let op = VolumeOp::DropReleases {
            volume: replica(),
            below,
        };
        assert_eq!(run(self.store(), &Op::Volume(op)), Outcome::Done);
        self.oldest = self.oldest.max(below);
    }

    /// Nobody changes a replica, or what lies beside it.
    fn is_fixed(&mut self) {
        let root = Fid::root(replica());
        let make = make_op(root, "new", Make::File, 0o644);
        let (of, name) = (name(NAME), name("s"));
        let snapshot = Op::Volume(VolumeOp::Snapshot { of, name });
        for op in [make, snapshot] {
            let refused = run(self.store(), &op);
            assert_eq!(refused, Outcome::Refused(Refusal::ReadOnly));
        }
    }

    fn end(mut self) {
        self.crash();
        self.rest();
        let report = self.store().check();
        assert!(report.is_clean(), "{report}");
        drop(self.store.take());
        let report = fsck_memory(&self.disk).unwrap();
        assert!(report.is_clean(), "{report}");
    }
}

fn name_of(store: &mut Store, dir: Fid, name: &Name) -> Fid {
    let name = name.clone();
    entry(run(store, &Op::Lookup { dir, name })).fid
}

#[derive(Clone, Debug)]
struct Round {
    steps: Vec<Step>,
    /// At each of two replicas.
    crash: (bool, bool),
    discard: (bool, bool),
    /// Releases that are kept.
    keep: u32,
    rest: bool,
    /// The second replica begins now.
    seed: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let chance = || prop::bool::weighted(0.2);
    (
        prop::collection::vec(step(), 0..25),
        (chance(), chance()),
        (chance(), chance()),
        1u32..4,
        any::<bool>(),
        prop::bool::weighted(0.4),
    )
        .prop_map(|(steps, crash, discard, keep, rest, seed)| Round {
            steps,
            crash,
            discard,
            keep,
            rest,
            seed,
        })
}

/// All files and directories of a replica, as programs tell them apart.
fn told_apart(site: &mut Site) -> BTreeMap<String, (Fid, u64)> {
    let all = picture_of(site.store(), replica()).into_iter();
    all.map(|(path, seen)| (path, (seen.fid, seen.attr.version)))
        .collect()
}

fn release(from: &mut Both, sites: &mut Vec<Site>, (round, release): (&Round, u32)) {
    for step in &round.steps {
        from.step(step);
    }
    let text = format!("release-{release}");
    snapshot(from.store(), "root", &text);
    let since = (release > 1).then(|| format!("root@release-{}", release - 1));
    let sent = format!("root@{text}");
    let parts = stream(from.store(), &sent, since.as_deref());
    let faults = [
        (round.crash.0, round.discard.0),
        (round.crash.1, round.discard.1),
    ];
    for (site, faults) in sites.iter_mut().zip(faults) {
        site.receive(&parts, release, faults);
    }
    if round.seed && sites.len() < 2 {
        let parts = stream(sites[0].store(), &format!("{NAME}@{text}"), None);
        let mut site = Site::new(&sites[0].options);
        site.receive(&parts, release, faults[1]);
        site.oldest = release;
        sites.push(site);
    }
    let whole = volume_named(from.store(), &sent).unwrap();
    let whole = outside(from.store(), whole.id);
    for site in sites.iter_mut() {
        for text in [NAME.to_owned(), format!("{NAME}@{text}")] {
            let got = volume_named(site.store(), &text).unwrap();
            assert!(outside(site.store(), got.id) == whole, "{text}");
        }
        site.read(release);
        site.is_fixed();
        site.drop_below((release + 1).saturating_sub(round.keep).max(1));
        site.read(release);
        if round.rest {
            site.rest();
            site.read(release);
        }
    }
    if let [one, other] = &mut sites[..] {
        assert_eq!(told_apart(one), told_apart(other));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_fid_of_a_replica_names_the_same_for_ever(
        rounds in prop::collection::vec(round(), 1..8)
    ) {
        go_through(&rounds, &options());
    }
}

fn go_through(rounds: &[Round], options: &Options) {
    let (mut from, mut sites) = (Both::new(), vec![Site::new(options)]);
    for (at, round) in rounds.iter().enumerate() {
        release(&mut from, &mut sites, (round, at as u32 + 1));
    }
    sites.into_iter().for_each(Site::end);
}

#[test]
fn each_fault_planted_into_replicas_is_found() {
    let rounds = prop::collection::vec(round(), 4..8);
    for mutant in Mutant::OF_REPLICAS {
        let options = Options {
            mutant: Some(mutant),
            ..options()
        };
        found_in(|runner| {
            let rounds = rounds.new_tree(runner).unwrap().current();
            go_through(&rounds, &options);
        })
        .unwrap_or_else(|| panic!("{mutant:?} is not found"));
    }
}

#[test]
fn a_release_comes_behind_the_one_before_it_and_into_a_store_of_its_own() {
    let mut from = Both::new();
    for text in ["release-1", "release-2", "release-3"] {
        make(from.store(), root(), text);
        snapshot(from.store(), "root", text);
    }
    let head = |from: &mut Both, of: &str, since| stream(from.store(), of, since)[0].head.clone();
    let whole = head(&mut from, "root@release-1", None);
    let third = head(&mut from, "root@release-3", Some("root@release-2"));
    let mut site = Site::new(&options());
    assert_eq!(site.begin(&third, 3).unwrap_err(), Refusal::NotFound);
    assert_eq!(site.begin(&whole, 0).unwrap_err(), Refusal::NoSpace);
    let parts = stream(from.store(), "root@release-1", None);
    site.receive(&parts, 1, (false, false));
    assert_eq!(site.begin(&third, 3).unwrap_err(), Refusal::Stale);
    assert_eq!(site.begin(&third, 2).unwrap_err(), Refusal::Stale);
    assert_eq!(site.begin(&whole, 2).unwrap_err(), Refusal::Exists);
    let second = head(&mut from, "root@release-2", Some("root@release-1"));
    site.begin(&second, 2).unwrap();
    assert_eq!(site.begin(&third, 3).unwrap_err(), Refusal::Locked);
    let op = VolumeOp::ReceiveRelease {
        name: name(NAME),
        head: Box::new(whole),
        release: 1,
    };
    let refused = change(from.store(), op);
    assert_eq!(refused, Err(Refusal::NotSupported), "not a further store");
}
