//! Generated histories: the store does what a simple model does, and goes on doing it after
//! checkpoints, cleaning and crashes.

use crate::model::{Model, Node};
use crate::world::*;
use ariel_store::{Apply, Keep, MemoryDisk, Options, Store, fsck_memory};
use proptest::prelude::*;
use wire::*;

/// A step, where objects are meant by their number among those known.
#[derive(Clone, Debug)]
pub enum Step {
    Make(usize, u8, u8),
    Link(usize, usize, u8),
    Remove(usize, u8, bool),
    Rename(usize, u8, usize, u8, u8),
    Write(usize, u64, usize, u8),
    Truncate(usize, u64),
    Allocate(usize, u64, u64, u8),
    Copy(usize, u64, usize, u64, u32),
    Find(usize, u64),
    Xattr(usize, u8, u8),
    Reap,
    Read(usize, u64, u32),
    Checkpoint,
    Crash(bool),
}

pub fn step() -> impl Strategy<Value = Step> {
    let o = || 0usize..12;
    let n = || 0u8..5;
    let offset = || prop_oneof![0u64..200, 0u64..30_000, Just(4096), Just(8192)];
    let len = || prop_oneof![0usize..120, 0usize..12_000, Just(4096)];
    prop_oneof![
        6 => (o(), n(), 0u8..3).prop_map(|(d, n, k)| Step::Make(d, n, k)),
        2 => (o(), o(), n()).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        4 => (o(), n(), any::<bool>()).prop_map(|(d, n, r)| Step::Remove(d, n, r)),
        5 => (o(), n(), o(), n(), 0u8..5).prop_map(|(a, b, c, d, k)| Step::Rename(a, b, c, d, k)),
        10 => (o(), offset(), len(), 0u8..4).prop_map(|(f, o, l, m)| Step::Write(f, o, l, m)),
        3 => (o(), offset()).prop_map(|(f, s)| Step::Truncate(f, s)),
        3 => (o(), offset(), offset(), 0u8..4).prop_map(|(f, o, l, k)| Step::Allocate(f, o, l, k)),
        3 => (o(), offset(), o(), offset(), 0u32..9000)
            .prop_map(|(a, b, c, d, l)| Step::Copy(a, b, c, d, l)),
        2 => (o(), offset()).prop_map(|(f, at)| Step::Find(f, at)),
        2 => (o(), n(), 0u8..4).prop_map(|(f, n, m)| Step::Xattr(f, n, m)),
        1 => Just(Step::Reap),
        3 => (o(), offset(), 0u32..9000).prop_map(|(f, o, l)| Step::Read(f, o, l)),
        1 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(Step::Crash),
    ]
}

pub struct Both {
    pub store: Option<Store>,
    pub disk: MemoryDisk,
    pub model: Model,
    pub known: Vec<Fid>,
    pub now: Time,
    pub options: Options,
}

impl Both {
    pub fn new() -> Self {
        Self::with(small())
    }

    pub fn with(options: Options) -> Self {
        let disk = MemoryDisk::new();
        Self {
            store: Some(Store::create_in_memory(&disk, &options).unwrap()),
            options,
            disk,
            model: Model::new(),
            known: vec![root()],
            now: 100,
        }
    }

    pub fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn fid(&self, number: usize) -> Fid {
        self.known[number % self.known.len()]
    }

    pub fn apply(&mut self, op: &Op, data: &[u8]) {
        self.now += 1;
        let apply = Apply {
            op,
            caller: &superuser(),
            now: self.now,
            origin: None,
            data,
            delegated: None,
        };
        let outcome = self.store.as_mut().unwrap().apply(apply);
        let made = match (&outcome, op) {
            (Outcome::Entry(entry), Op::Make { .. }) => Some(entry.fid),
            _ => None,
        };
        let expected = self.model.apply(op, data, self.now, made);
        let got = match outcome {
            Outcome::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        };
        assert_eq!(got, expected, "{op:?}");
        self.known.extend(made);
    }

    pub fn step(&mut self, step: &Step) {
        match *step {
            Step::Write(f, offset, len, kind) => {
                let mode = match kind {
                    0 => WriteMode::At,
                    1 => WriteMode::Append,
                    2 => WriteMode::Lazy,
                    _ => WriteMode::Back {
                        size: offset + 50,
                        mtime: self.now,
                        ctime: self.now,
                    },
                };
                let data = bytes(self.now, len);
                let op = write_op(self.fid(f), offset, &data, mode);
                self.apply(&op, &data);
            }
            Step::Reap => {
                for fid in self.store().orphans() {
                    self.apply(&Op::Reap { fid }, &[]);
                }
            }
            Step::Read(f, offset, len) => self.read(self.fid(f), offset, len),
            Step::Find(f, at) => self.find(self.fid(f), at),
            Step::Checkpoint => self.store().checkpoint().unwrap(),
            Step::Crash(whole) => self.crash(whole),
            _ => {
                let op = self.op(step);
                self.apply(&op, &[]);
            }
        }
    }

    /// The operation of a step that is one, without bytes.
    pub fn op(&self, step: &Step) -> Op {
        let text = |n: u8| name(&format!("n{n}"));
        match *step {
            Step::Make(d, n, kind) => {
                let make = match kind {
                    0 => Make::Directory,
                    1 => Make::Symlink(vec![b't'; 5 + usize::from(n)]),
                    _ => Make::File,
                };
                make_op(self.fid(d), &format!("n{n}"), make, 0o755)
            }
            Step::Link(f, d, n) => Op::Link {
                fid: self.fid(f),
                dir: self.fid(d),
                name: text(n),
            },
            Step::Remove(d, n, rmdir) => {
                let (dir, name) = (self.fid(d), text(n));
                if rmdir {
                    Op::Rmdir { dir, name }
                } else {
                    Op::Unlink { dir, name }
                }
            }
            Step::Rename(a, b, c, d, kind) => Op::Rename {
                from: self.fid(a),
                name: text(b),
                to: self.fid(c),
                new: text(d),
                no_replace: kind == 1,
                exchange: kind == 2,
            },
            Step::Truncate(f, size) => Op::SetAttr {
                fid: self.fid(f),
                set: Set {
                    size: Some(size),
                    ..Set::default()
                },
            },
            Step::Allocate(f, offset, len, kind) => Op::Allocate {
                fid: self.fid(f),
                offset,
                len,
                zero: kind > 1,
                keep_size: kind % 2 == 1,
            },
            Step::Copy(a, at, b, offset, len) => Op::Copy {
                from: self.fid(a),
                at,
                to: self.fid(b),
                offset,
                len,
            },
            Step::Xattr(f, n, kind) => {
                let (fid, name) = (self.fid(f), format!("user.{n}").into_bytes());
                let modes = [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                match kind {
                    0 => Op::RemoveXattr { fid, name },
                    kind => Op::SetXattr {
                        fid,
                        name,
                        value: vec![n; usize::from(n) * 7],
                        mode: modes[usize::from(kind) - 1],
                    },
                }
            }
            _ => unreachable!("not an operation: {step:?}"),
        }
    }

    /// From any place on, what is in no hole begins where only zeros are before it; a hole has
    /// zeros until then.
    pub fn find(&mut self, fid: Fid, at: u64) {
        let mut place = |offset, hole| match run(self.store(), &Op::Find { fid, offset, hole }) {
            Outcome::Position(place) => Some(place),
            Outcome::Refused(_) => None,
            other => panic!("{other:?}"),
        };
        let (data, hole) = (place(at, false), place(at, true));
        let next = hole.and_then(|hole| place(hole, false));
        let node = self.model.nodes.get(&fid);
        let Some(node) = node.filter(|node| node.dir.is_none() && !node.symlink) else {
            return assert_eq!((data, hole), (None, None));
        };
        let size = node.bytes.len() as u64;
        assert_eq!(hole.is_some(), at < size, "every file ends with a hole");
        let zeros = |from: u64, to: Option<u64>| {
            let range = from.min(size)..to.unwrap_or(size);
            let bytes = &node.bytes[range.start as usize..range.end as usize];
            assert!(bytes.iter().all(|byte| *byte == 0), "{range:?} of {fid}");
        };
        zeros(at, data);
        if let Some(hole) = hole {
            assert!(at <= hole && hole <= size);
            zeros(hole, next);
        }
    }

    pub fn read(&mut self, fid: Fid, offset: u64, len: u32) {
        let mut got = Vec::new();
        let outcome = self.store().read(fid, offset, len, &mut got);
        match self.model.nodes.get(&fid) {
            Some(node) if node.dir.is_none() && !node.symlink => {
                let from = node.bytes.len().min(offset as usize);
                let to = node.bytes.len().min(from + len as usize);
                assert_eq!(got, node.bytes[from..to], "bytes {from}..{to} of {fid}");
            }
            _ => assert!(matches!(outcome, Outcome::Refused(_))),
        }
    }

    pub fn crash(&mut self, machine: bool) {
        self.store().write_out().unwrap();
        if machine {
            self.store().sync_handle().sync().unwrap();
        }
        drop(self.store.take());
        let keep = [Keep::Written, Keep::Synced][usize::from(machine)];
        self.disk.crash(keep);
        self.store = Some(Store::open_in_memory(&self.disk, &self.options).unwrap());
    }

    fn compare(&mut self) {
        self.compare_volume(root().volume);
        let report = self.store().check();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.objects, self.model.nodes.len() as u64);
    }

    pub fn compare_volume(&mut self, volume: u32) {
        let model = self.model.clone();
        let mut count = 0;
        for seen in picture_of(self.store(), volume).values() {
            let node = &model.nodes[&seen.fid];
            assert_eq!(seen.attr.nlink, node.nlink, "names of {}", seen.fid);
            assert_eq!(seen.bytes, node.bytes, "bytes of {}", seen.fid);
            if node.dir.is_none() {
                assert_eq!(seen.attr.size, node.bytes.len() as u64);
            }
            if node.dir.is_none() && !node.symlink && node.mtime > 0 {
                assert_eq!(seen.attr.mtime, node.mtime, "time of {}", seen.fid);
            }
            let fid = seen.fid;
            let lists = |dir: &Node| dir.dir.iter().flatten().any(|(_, of)| *of == fid);
            let dirs = model.nodes.iter().filter(|(_, dir)| lists(dir));
            let dirs: Vec<Fid> = dirs.map(|(dir, _)| *dir).collect();
            let mut known = self.store().dirs(fid).unwrap();
            known.sort_unstable();
            // One that has no name any more is known by where it had its last.
            assert!(known == dirs || node.nlink == 0, "directories of {fid}");
            for (name, value) in &node.xattrs {
                let op = Op::GetXattr {
                    fid,
                    name: name.clone(),
                };
                assert_eq!(run(self.store(), &op), Outcome::Value(value.clone()));
            }
            let list: Vec<u8> = node
                .xattrs
                .keys()
                .flat_map(|n| [n, &[0][..]].concat())
                .collect();
            assert_eq!(
                run(self.store(), &Op::ListXattr { fid }),
                Outcome::Value(list)
            );
            count += 1;
        }
        // An object with several names is seen several times.
        assert!(count >= model.nodes.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn a_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..150)) {
        let mut both = Both::new();
        for step in &steps {
            both.step(step);
        }
        both.compare();
        both.crash(true);
        both.compare();
        drop(both.store.take());
        let report = fsck_memory(&both.disk).unwrap();
        prop_assert!(report.is_clean(), "{}", report);
    }
}
