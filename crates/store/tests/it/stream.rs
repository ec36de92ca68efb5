//! Snapshots that are sent: after any changes, what another store receives is what was sent, down
//! to each attribute; over checkpoints, cleaning, crashes, and parts that come twice or not at all.

use crate::generated::{Both, Step, step};
use crate::world::*;
use ariel_store::{Keep, MemoryDisk, Options, Store, fsck_memory};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::*;

/// All that can be known of an object from outside, whatever its number. An object of several names
/// has the first of them here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outside {
    first: String,
    attr: Attr,
    bytes: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Outcome)>,
    /// Where data and holes begin.
    places: Vec<u64>,
}

/// Where data and holes of a file begin.
fn places(store: &mut Store, fid: Fid) -> Vec<u64> {
    let mut places = Vec::new();
    let (mut offset, mut hole) = (0, false);
    while let Outcome::Position(at) = run(store, &Op::Find { fid, offset, hole }) {
        places.push(at);
        (offset, hole) = (at, !hole);
    }
    places
}

fn xattrs(store: &mut Store, fid: Fid) -> Vec<(Vec<u8>, Outcome)> {
    let Outcome::Value(list) = run(store, &Op::ListXattr { fid }) else {
        panic!("no list");
    };
    let names = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let get = |name: &[u8]| Op::GetXattr {
        fid,
        name: name.to_vec(),
    };
    let names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    let mut all: Vec<_> = names
        .into_iter()
        .map(|name| (name.clone(), run(store, &get(&name))))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// The objects below the root of a volume. `exact`: with what the store keeps beside.
pub fn outside(store: &mut Store, volume: u32) -> BTreeMap<String, Outside> {
    let picture = picture_of(store, volume);
    let mut firsts: BTreeMap<Fid, String> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (path, seen) in picture {
        if path.starts_with("orphan") {
            continue;
        }
        let first = firsts.entry(seen.fid).or_insert_with(|| path.clone());
        let outside = Outside {
            first: first.clone(),
            attr: Attr {
                // How bytes are kept is each store's own; and versions only grow.
                used_bytes: 0,
                version: 0,
                ..seen.attr.clone()
            },
            bytes: seen.bytes,
            xattrs: xattrs(store, seen.fid),
            places: places(store, seen.fid),
        };
        all.insert(path, outside);
    }
    all
}

pub fn volume_named(store: &mut Store, text: &str) -> Option<VolumeInfo> {
    let Outcome::Volumes(all) = run(store, &Op::Volumes) else {
        panic!("no volumes");
    };
    let there = |info: &VolumeInfo| info.state == VolumeState::Present;
    all.into_iter()
        .find(|info| info.name == name(text) && there(info))
}

pub fn snapshot(store: &mut Store, of: &str, text: &str) {
    let (of, name) = (name(of), name(text));
    let op = Op::Volume(VolumeOp::Snapshot { of, name });
    assert!(matches!(run(store, &op), Outcome::Volume(_)));
}

/// One part of a stream.
pub fn part(
    store: &mut Store,
    of: &str,
    since: Option<&str>,
    after: Option<Blob>,
) -> Result<Dump, Refusal> {
    let op = Op::Dump {
        of: name(of),
        since: since.map(name),
        after,
        plan: false,
    };
    match run(store, &op) {
        Outcome::Dump(dump) => Ok(*dump),
        Outcome::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// All parts of a stream.
pub fn stream(store: &mut Store, of: &str, since: Option<&str>) -> Vec<Dump> {
    let mut parts = Vec::new();
    let mut after = None;
    loop {
        let dump = part(store, of, since, after).unwrap();
        after = dump.next.clone();
        parts.push(dump);
        if after.is_none() {
            return parts;
        }
    }
}

pub fn change(store: &mut Store, op: VolumeOp) -> Result<VolumeInfo, Refusal> {
    match run(store, &Op::Volume(op)) {
        Outcome::Volume(info) => Ok(info),
        Outcome::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

pub fn begin(
    store: &mut Store,
    to: &str,
    head: &StreamHead,
    rollback: bool,
) -> Result<VolumeInfo, Refusal> {
    let op = VolumeOp::Receive {
        name: name(to),
        head: Box::new(head.clone()),
        rollback,
    };
    let mut info = change(store, op)?;
    let volume = info.id;
    while info.provenance.receiving.as_ref().unwrap().undoing {
        info = change(store, VolumeOp::Undo { volume, things: 3 })?;
    }
    Ok(info)
}

pub fn restore(store: &mut Store, volume: u32, number: u64, dump: &Dump) -> Outcome {
    let op = Op::Restore {
        volume,
        number,
        after: dump.next.clone().unwrap_or_default(),
        chunk: dump.chunk.clone(),
    };
    run(store, &op)
}

pub fn publish(store: &mut Store, volume: u32) -> Result<VolumeInfo, Refusal> {
    change(store, VolumeOp::Publish { volume })
}

/// Receives a whole stream.
pub fn receive(
    store: &mut Store,
    to: &str,
    parts: &[Dump],
    rollback: bool,
) -> Result<VolumeInfo, Refusal> {
    let info = begin(store, to, &parts[0].head, rollback)?;
    for (number, dump) in parts.iter().enumerate() {
        assert_eq!(restore(store, info.id, number as u64, dump), Outcome::Done);
    }
    publish(store, info.id)
}

/// So small that segments are cleaned all the time, and other files lie in the index than at the
/// sender.
pub fn target() -> Options {
    Options {
        segment_bytes: 8 << 10,
        checkpoint_bytes: 2 << 10,
        inline_bytes: 300,
        share_from: 2048,
        identity: 0x0dd,
        ..small()
    }
}

/// An event at the receiver between two parts.
#[derive(Clone, Debug)]
enum Between {
    Nothing,
    Crash(bool),
    Checkpoint,
    /// The part comes once more, under the number that it had.
    Again,
    /// The receiver is asked how far it is, and goes on from there.
    Resume,
    Rest,
    Discard,
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        12 => Just(Between::Nothing),
        2 => any::<bool>().prop_map(Between::Crash),
        2 => Just(Between::Checkpoint),
        1 => Just(Between::Again),
        2 => Just(Between::Resume),
        1 => Just(Between::Rest),
        1 => Just(Between::Discard),
    ]
}

/// A round: changes at the sender, what goes wrong on the way, changes at the receiver that are
/// undone, and which snapshots go.
#[derive(Clone, Debug)]
struct Round {
    steps: Vec<Step>,
    on_the_way: Vec<Between>,
    there: Vec<Step>,
    purge: (bool, bool),
}

fn round() -> impl Strategy<Value = Round> {
    let there = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(step(), 1..12),
    ];
    (
        prop::collection::vec(step(), 0..40),
        prop::collection::vec(between(), 1..6),
        there,
        any::<(bool, bool)>(),
    )
        .prop_map(|(steps, on_the_way, there, purge)| Round {
            steps,
            on_the_way,
            there,
            purge,
        })
}

struct Pair {
    from: Both,
    to: Both,
    rounds: usize,
}

impl Pair {
    fn new() -> Self {
        Self {
            from: Both::new(),
            to: Both::with(target()),
            rounds: 0,
        }
    }

    fn rest(both: &mut Both) {
        let mut now = 1 << 40;
        while let Some(next) = both.store().tend(now) {
            now = next;
        }
    }

    /// Deletes a snapshot, and purges it.
    fn purge(both: &mut Both, text: &str) {
        let of = name(text);
        let info = change(both.store(), VolumeOp::Delete { of }).unwrap();
        let op = Op::Volume(VolumeOp::Purge { volume: info.id });
        assert_eq!(run(both.store(), &op), Outcome::Done);
    }

    /// The next snapshot is sent; whatever happens on the way, it comes.
    fn send(&mut self, round: &Round) {
        let (new, old) = (self.rounds, self.rounds.checked_sub(1));
        self.rounds += 1;
        snapshot(self.from.store(), "root", &format!("s{new}"));
        let since = old.map(|old| format!("root@s{old}"));
        let parts = stream(self.from.store(), &format!("root@s{new}"), since.as_deref());
        let changed = self.change_there(&round.there);
        let head = &parts[0].head;
        if changed {
            let refused = begin(self.to.store(), "copy", head, false).map(|_| ());
            assert_eq!(refused, Err(Refusal::NotEmpty));
        }
        let mut events = round.on_the_way.iter();
        let before = volume_named(self.to.store(), "copy");
        let seen = before.map(|info| (info.id, outside(self.to.store(), info.id)));
        let mut info = begin(self.to.store(), "copy", head, changed).unwrap();
        let mut number = 0;
        while let Some(dump) = parts.get(number) {
            // Nobody sees any of it.
            let there = volume_named(self.to.store(), "copy").map(|info| info.id);
            assert_eq!(there, seen.as_ref().map(|(id, _)| *id));
            assert_eq!(self.to.store().attr(Fid::root(info.id)), Ok(None));
            assert_eq!(
                restore(self.to.store(), info.id, number as u64, dump),
                Outcome::Done
            );
            number += 1;
            match events.next().unwrap_or(&Between::Nothing) {
                Between::Nothing => {}
                Between::Crash(whole) => self.to.crash(*whole),
                Between::Checkpoint => self.to.store().checkpoint().unwrap(),
                Between::Again => {
                    let again = restore(self.to.store(), info.id, number as u64 - 1, dump);
                    assert_eq!(again, Outcome::Refused(Refusal::Invalid));
                }
                Between::Resume => {
                    let known = begin(self.to.store(), "copy", head, changed).unwrap();
                    let receiving = known.provenance.receiving.unwrap();
                    assert_eq!((known.id, receiving.chunks), (info.id, number as u64));
                    assert_eq!(receiving.after, dump.next.clone().unwrap_or_default());
                }
                Between::Rest => Self::rest(&mut self.to),
                Between::Discard => {
                    let op = Op::Volume(VolumeOp::Discard { volume: info.id });
                    assert_eq!(run(self.to.store(), &op), Outcome::Done);
                    Self::rest(&mut self.to);
                    info = begin(self.to.store(), "copy", head, changed).unwrap();
                    number = 0;
                }
            }
            if let Some((id, seen)) = &seen {
                assert!(
                    outside(self.to.store(), *id) == *seen,
                    "a half tree is seen"
                );
            }
        }
        publish(self.to.store(), info.id).unwrap();
        self.compare(new);
    }

    /// Changes of somebody at the receiver. Were there any?
    fn change_there(&mut self, steps: &[Step]) -> bool {
        let Some(info) = volume_named(self.to.store(), "copy") else {
            return false;
        };
        let before = outside(self.to.store(), info.id);
        let mut known: Vec<Fid> = picture_of(self.to.store(), info.id)
            .into_values()
            .map(|seen| seen.fid)
            .collect();
        std::mem::swap(&mut self.to.known, &mut known);
        for step in steps {
            if !matches!(
                step,
                Step::Write(..)
                    | Step::Reap
                    | Step::Read(..)
                    | Step::Find(..)
                    | Step::Crash(_)
                    | Step::Checkpoint
            ) {
                let op = self.to.op(step);
                run(self.to.store(), &op);
            } else if let Step::Write(at, offset, len, _) = step {
                let fid = self.to.known[at % self.to.known.len()];
                write(self.to.store(), fid, *offset, &bytes(9, *len));
            }
        }
        std::mem::swap(&mut self.to.known, &mut known);
        let orphans = self.to.store().orphans_of(info.id);
        let changed = outside(self.to.store(), info.id) != before || !orphans.is_empty();
        // A change that is undone by another one is one.
        changed || self.is_changed(&info)
    }

    fn is_changed(&mut self, info: &VolumeInfo) -> bool {
        let head = StreamHead {
            volume: info.provenance.copy_of.unwrap(),
            snapshot: info.provenance.identity,
            name: name("probe"),
            since: volume_named(self.to.store(), &format!("copy@s{}", self.rounds - 2))
                .and_then(|base| base.provenance.copy_of),
            objects: 0,
            bytes: 0,
        };
        match begin(self.to.store(), "copy", &head, false) {
            Err(refusal) => refusal == Refusal::NotEmpty,
            Ok(info) => {
                let op = Op::Volume(VolumeOp::Discard { volume: info.id });
                assert_eq!(run(self.to.store(), &op), Outcome::Done);
                Self::rest(&mut self.to);
                false
            }
        }
    }

    fn compare(&mut self, new: usize) {
        let sent = volume_named(self.from.store(), &format!("root@s{new}")).unwrap();
        let sent = outside(self.from.store(), sent.id);
        for text in ["copy".to_owned(), format!("copy@s{new}")] {
            let got = volume_named(self.to.store(), &text).unwrap();
            let got = outside(self.to.store(), got.id);
            assert_eq!(
                sent.keys().collect::<Vec<_>>(),
                got.keys().collect::<Vec<_>>()
            );
            for (path, seen) in &sent {
                assert!(
                    *seen == got[path],
                    "{path:?} of {text}:\n{seen:?}\n{:?}",
                    got[path]
                );
            }
        }
    }

    fn round(&mut self, round: &Round) {
        for step in &round.steps {
            self.from.step(step);
        }
        self.send(round);
        if let Some(old) = self.rounds.checked_sub(2) {
            if round.purge.0 {
                Self::purge(&mut self.from, &format!("root@s{old}"));
            }
            if round.purge.1 {
                Self::purge(&mut self.to, &format!("copy@s{old}"));
            }
        }
    }

    fn end(mut self) {
        for both in [&mut self.from, &mut self.to] {
            both.crash(true);
            Self::rest(both);
            let report = both.store().check();
            assert!(report.is_clean(), "{report}");
            drop(both.store.take());
            let report = fsck_memory(&both.disk).unwrap();
            assert!(report.is_clean(), "{report}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn what_is_received_is_what_was_sent(rounds in prop::collection::vec(round(), 1..8)) {
        let mut pair = Pair::new();
        for round in &rounds {
            pair.round(round);
        }
        pair.end();
    }
}

/// A store with a file that is too large for one part.
fn filled(options: &Options) -> (MemoryDisk, Store) {
    let disk = MemoryDisk::new();
    let mut store = Store::create_in_memory(&disk, options).unwrap();
    let dir = mkdir(&mut store, root(), "dir");
    for n in 0..40 {
        let fid = make(&mut store, dir, &format!("f{n}"));
        write(&mut store, fid, 0, &bytes(n, 900));
    }
    let large = make(&mut store, root(), "large");
    write(&mut store, large, 10_000, &bytes(77, 30_000));
    snapshot(&mut store, "root", "a");
    (disk, store)
}

#[test]
fn a_power_failure_leaves_a_half_received_volume_unseen_and_able_to_go_on() {
    let (_, mut from) = filled(&small());
    let parts = stream(&mut from, "root@a", None);
    assert!(parts.len() > 10, "{}", parts.len());
    let disk = MemoryDisk::new();
    let mut to = Store::create_in_memory(&disk, &target()).unwrap();
    let info = begin(&mut to, "copy", &parts[0].head, false).unwrap();
    for (number, dump) in parts.iter().enumerate().take(8) {
        assert_eq!(
            restore(&mut to, info.id, number as u64, dump),
            Outcome::Done
        );
        if number == 4 {
            to.write_out().unwrap();
            to.sync_handle().sync().unwrap();
        }
    }
    drop(to);
    disk.crash(Keep::Synced);
    let mut to = Store::open_in_memory(&disk, &target()).unwrap();
    assert_eq!(volume_named(&mut to, "copy"), None);
    let info = begin(&mut to, "copy", &parts[0].head, false).unwrap();
    let receiving = info.provenance.receiving.unwrap();
    assert!((5..9).contains(&receiving.chunks), "{receiving:?}");
    let at = receiving.chunks as usize;
    // The sender goes on where the receiver says.
    let mut after = Some(receiving.after);
    let mut number = at as u64;
    while let Some(from_here) = after {
        let dump = part(&mut from, "root@a", None, Some(from_here)).unwrap();
        assert_eq!(dump.chunk, parts[number as usize].chunk);
        assert_eq!(restore(&mut to, info.id, number, &dump), Outcome::Done);
        number += 1;
        after = dump.next;
    }
    publish(&mut to, info.id).unwrap();
    let sent = volume_named(&mut from, "root@a").unwrap();
    let got = volume_named(&mut to, "copy").unwrap();
    assert_eq!(outside(&mut from, sent.id), outside(&mut to, got.id));
}

#[test]
fn changes_cost_what_changed() {
    let (_, mut store) = filled(&small());
    let all: usize = stream(&mut store, "root@a", None).iter().map(weight).sum();
    snapshot(&mut store, "root", "b");
    let none = stream(&mut store, "root@b", Some("root@a"));
    assert_eq!((none.len(), weight(&none[0])), (1, 0));
    let large = store.lookup(root(), &name("large")).unwrap().unwrap();
    write(&mut store, large, 20_000, &[1; 10]);
    snapshot(&mut store, "root", "c");
    let few: usize = stream(&mut store, "root@c", Some("root@b"))
        .iter()
        .map(weight)
        .sum();
    assert!(few < 200 && all > 60_000, "{few} of {all}");
}

/// Bytes of a part.
pub fn weight(dump: &Dump) -> usize {
    match dump.chunk.pieces.is_empty() {
        true => 0,
        false => encode(&dump.chunk).len(),
    }
}
