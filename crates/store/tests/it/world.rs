//! Short ways to ask a store for things, and a picture of all that it holds.

use ariel_store::{Apply, Options, Store};
use std::collections::BTreeMap;
use wire::*;

/// Small numbers, so that segments end, checkpoints happen and the cleaner works.
pub fn small() -> Options {
    Options {
        segment_bytes: 32 << 10,
        checkpoint_bytes: 8 << 10,
        inline_bytes: 100,
        share_bytes: 1,
        share_from: 1024,
        identity: 0x5eed,
        index_cache_bytes: 4 << 20,
        stream_bytes: 2 << 10,
        ..Options::default()
    }
}

pub fn root() -> Fid {
    Fid::root(1)
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn superuser() -> Caller {
    Caller::default()
}

pub fn user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: Some(Vec::new()),
    }
}

pub fn run_as(store: &mut Store, caller: &Caller, op: &Op, data: &[u8]) -> Outcome {
    store.apply(Apply {
        op,
        caller,
        now: 7,
        origin: None,
        data,
        delegated: None,
    })
}

pub fn run(store: &mut Store, op: &Op) -> Outcome {
    run_as(store, &superuser(), op, &[])
}

/// A rename that may replace what is there.
pub fn rename_op(from: Fid, old: &str, to: Fid, new: &str) -> Op {
    Op::Rename {
        from,
        name: name(old),
        to,
        new: name(new),
        no_replace: false,
        exchange: false,
    }
}

pub fn make_op(dir: Fid, text: &str, make: Make, mode: u32) -> Op {
    Op::Make {
        dir,
        name: name(text),
        make,
        mode,
        open: None,
    }
}

pub fn entry(outcome: Outcome) -> Entry {
    match outcome {
        Outcome::Entry(entry) => entry,
        other => panic!("not an entry: {other:?}"),
    }
}

pub fn make(store: &mut Store, dir: Fid, text: &str) -> Fid {
    entry(run(store, &make_op(dir, text, Make::File, 0o644))).fid
}

pub fn mkdir(store: &mut Store, dir: Fid, text: &str) -> Fid {
    entry(run(store, &make_op(dir, text, Make::Directory, 0o755))).fid
}

pub fn write_op(fid: Fid, offset: u64, data: &[u8], mode: WriteMode) -> Op {
    Op::Write {
        fid,
        offset,
        len: data.len() as u32,
        mode,
    }
}

pub fn write(store: &mut Store, fid: Fid, offset: u64, data: &[u8]) -> Outcome {
    let op = write_op(fid, offset, data, WriteMode::At);
    run_as(store, &superuser(), &op, data)
}

pub fn written(outcome: Outcome) -> (u64, Attr) {
    match outcome {
        Outcome::Written { offset, attr } => (offset, attr),
        other => panic!("not written: {other:?}"),
    }
}

pub fn set_size(store: &mut Store, fid: Fid, size: u64) -> Outcome {
    let set = Set {
        size: Some(size),
        ..Set::default()
    };
    run(store, &Op::SetAttr { fid, set })
}

pub fn read_all(store: &mut Store, fid: Fid) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = Vec::new();
    loop {
        match store.read(fid, all.len() as u64, limits::BULK_BYTES, &mut part) {
            Outcome::Read { len: 0, .. } => return all,
            Outcome::Read { .. } => all.extend_from_slice(&part),
            other => panic!("{other:?}"),
        }
    }
}

pub fn list(store: &mut Store, dir: Fid, max: u32) -> Vec<DirEntry> {
    let mut all: Vec<DirEntry> = Vec::new();
    loop {
        let after = all.last().map_or(0, |entry| entry.position);
        match run(store, &Op::ReadDir { dir, after, max }) {
            Outcome::Dir { entries, end, .. } => {
                assert!(end || !entries.is_empty());
                all.extend(entries);
                if end {
                    return all;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Pseudo-random bytes that tell their origin apart.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Everything that can be seen of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub fid: Fid,
    pub attr: Attr,
    pub bytes: Vec<u8>,
}

/// Everything that can be seen below the root, and the objects without a name.
pub fn picture(store: &mut Store) -> BTreeMap<String, Seen> {
    picture_of(store, root().volume)
}

/// The same of all volumes that are there.
pub fn picture_of_all(store: &mut Store) -> BTreeMap<String, Seen> {
    let Outcome::Volumes(volumes) = run(store, &Op::Volumes) else {
        panic!("no volumes");
    };
    let mut all = BTreeMap::new();
    for info in volumes
        .iter()
        .filter(|info| info.state == VolumeState::Present)
    {
        let of = picture_of(store, info.id).into_iter();
        all.extend(of.map(|(path, seen)| (format!("{}:{path}", info.name), seen)));
    }
    all
}

/// The same of one of several volumes.
pub fn picture_of(store: &mut Store, volume: u32) -> BTreeMap<String, Seen> {
    let mut picture = BTreeMap::new();
    let mut open = vec![(String::new(), Fid::root(volume))];
    for fid in store.orphans_of(volume) {
        open.push((format!("orphan {fid}"), fid));
    }
    while let Some((path, fid)) = open.pop() {
        let attr = store.attr(fid).unwrap().unwrap();
        let bytes = match attr.kind {
            Kind::File => read_all(store, fid),
            Kind::Symlink => match run(store, &Op::ReadLink { fid }) {
                Outcome::Target(target) => target,
                other => panic!("{other:?}"),
            },
            _ => Vec::new(),
        };
        if attr.kind == Kind::Directory {
            for entry in list(store, fid, 3) {
                assert_eq!(store.attr(entry.fid).unwrap(), entry.attr);
                open.push((format!("{path}/{}", entry.name), entry.fid));
            }
        }
        picture.insert(path, Seen { fid, attr, bytes });
    }
    picture
}
