//! A store for the model check: one directory, one name in it, files of a few bytes. It is small on
//! purpose: its text is part of a state's identity.

use logic::server::{Bulk, By, Disk};
use std::collections::BTreeMap;
use wire::{
    Attr, Entry, Fid, Kind, MachineId, Name, Op, Origin, Outcome, Refusal, RequestId, SessionId,
    Time, WriteMode,
};

/// The root, and the file that is there from the beginning.
pub const ROOT: Fid = Fid::root(1);
pub const FILE: Fid = Fid {
    volume: 1,
    vnode: 2,
    uniq: 1,
};

#[derive(Clone, Debug)]
struct Object {
    attr: Attr,
    bytes: Vec<u8>,
}

/// The store.
#[derive(Clone, Debug)]
pub struct TinyDisk {
    objects: BTreeMap<Fid, Object>,
    /// The object of the one name.
    name: Option<Fid>,
    answers: BTreeMap<Origin, Outcome>,
    /// Bytes beside messages, as long as the machine holds them.
    pub bulks: BTreeMap<Bulk, Vec<u8>>,
    last_vnode: u64,
    last_bulk: u64,
}

fn attr(kind: Kind, size: u64) -> Attr {
    Attr {
        size,
        ..Attr::new(kind, 0o755, 0)
    }
}

impl TinyDisk {
    /// With or without a file of one zero byte under the name.
    pub fn new(file: bool) -> Self {
        let root = Object {
            attr: attr(Kind::Directory, 0),
            bytes: vec![],
        };
        let mut disk = Self {
            objects: BTreeMap::from([(ROOT, root)]),
            name: file.then_some(FILE),
            answers: BTreeMap::new(),
            bulks: BTreeMap::new(),
            last_vnode: FILE.vnode,
            last_bulk: 0,
        };
        if file {
            let bytes = vec![0];
            let attr = attr(Kind::File, 1);
            disk.objects.insert(FILE, Object { attr, bytes });
        }
        disk
    }

    /// Holds bytes under a new number; none: 0.
    pub fn hold(&mut self, bytes: Vec<u8>) -> Bulk {
        if bytes.is_empty() {
            return 0;
        }
        self.last_bulk += 1;
        self.bulks.insert(self.last_bulk, bytes);
        self.last_bulk
    }

    fn get(&self, fid: Fid) -> Result<&Object, Refusal> {
        self.objects.get(&fid).ok_or(Refusal::Stale)
    }

    /// The root's attributes, which change with the name.
    fn name_changed(&mut self) -> Attr {
        let root = self.objects.get_mut(&ROOT).expect("the root stays");
        root.attr.version += 1;
        root.attr.clone()
    }

    fn make(&mut self) -> Result<Outcome, Refusal> {
        if self.name.is_some() {
            return Err(Refusal::Exists);
        }
        self.last_vnode += 1;
        let vnode = self.last_vnode;
        let fid = Fid { vnode, ..FILE };
        let attr = attr(Kind::File, 0);
        let bytes = vec![];
        let object = Object {
            attr: attr.clone(),
            bytes,
        };
        self.objects.insert(fid, object);
        self.name = Some(fid);
        let dir = self.name_changed();
        Ok(Outcome::Entry(Entry { fid, attr, dir }))
    }

    fn unlink(&mut self) -> Result<Outcome, Refusal> {
        let fid = self.name.take().ok_or(Refusal::NotFound)?;
        let object = self.objects.get_mut(&fid).ok_or(Refusal::Stale)?;
        object.attr.nlink = 0;
        let attr = object.attr.clone();
        let dir = self.name_changed();
        Ok(Outcome::Removed { fid, attr, dir })
    }

    fn write(
        &mut self,
        fid: Fid,
        offset: u64,
        mode: WriteMode,
        bulk: Bulk,
    ) -> Result<Outcome, Refusal> {
        let bytes = self.bulks.remove(&bulk).unwrap_or_default();
        let object = self.objects.get_mut(&fid).ok_or(Refusal::Stale)?;
        let append = mode == WriteMode::Append;
        let offset = if append { object.attr.size } else { offset };
        let end = offset as usize + bytes.len();
        if object.bytes.len() < end {
            object.bytes.resize(end, 0);
        }
        object.bytes[offset as usize..end].copy_from_slice(&bytes);
        if let WriteMode::Back { size, .. } = mode {
            let size = object.bytes.len().max(size as usize);
            object.bytes.resize(size, 0);
        }
        object.attr.version += 1;
        object.attr.size = object.bytes.len() as u64;
        let attr = object.attr.clone();
        Ok(Outcome::Written { offset, attr })
    }

    fn run(&mut self, op: &Op, bulk: Bulk) -> Result<Outcome, Refusal> {
        match op {
            Op::Lookup { .. } => {
                let dir = self.get(ROOT)?.attr.clone();
                let Some(fid) = self.name else {
                    return Ok(Outcome::Absent { dir });
                };
                let attr = self.get(fid)?.attr.clone();
                Ok(Outcome::Entry(Entry { fid, attr, dir }))
            }
            Op::GetAttr { fid } => Ok(Outcome::Attr(self.get(*fid)?.attr.clone())),
            Op::Open { fid, .. } => Ok(Outcome::Opened(self.get(*fid)?.attr.clone())),
            Op::Make { .. } => self.make(),
            Op::Unlink { .. } => self.unlink(),
            Op::Write {
                fid, offset, mode, ..
            } => self.write(*fid, *offset, *mode, bulk),
            Op::Reap { fid } => {
                self.objects.remove(fid);
                Ok(Outcome::Done)
            }
            _ => Err(Refusal::NotSupported),
        }
    }
}

impl Disk for TinyDisk {
    fn wall(&self) -> Time {
        0
    }

    fn apply(&mut self, _now: Time, op: &Op, by: By<'_>, bulk: Bulk) -> Outcome {
        let outcome = self.run(op, bulk).unwrap_or_else(Outcome::Refused);
        if let Some(origin) = by.origin {
            self.answers.insert(origin, outcome.clone());
        }
        outcome
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Bulk) {
        let Ok(object) = self.get(fid) else {
            return (Outcome::Refused(Refusal::Stale), 0);
        };
        let size = object.attr.size;
        let to = offset.saturating_add(u64::from(len)).min(size) as usize;
        let bytes = object.bytes[offset.min(size) as usize..to].to_vec();
        let len = bytes.len() as u32;
        (Outcome::Read { len, size }, self.hold(bytes))
    }

    fn read_whole(&mut self, files: &[(Fid, u32)]) -> (Vec<u32>, Bulk) {
        let mut all = Vec::new();
        let mut lens = Vec::new();
        for (fid, size) in files {
            let whole = self.get(*fid).ok().map(|object| object.bytes.clone());
            let whole = whole.filter(|bytes| bytes.len() == *size as usize);
            lens.push(whole.as_ref().map_or(0, |_| *size));
            all.extend(whole.into_iter().flatten());
        }
        (lens, self.hold(all))
    }

    fn answer(&self, origin: Origin) -> Option<Outcome> {
        self.answers.get(&origin).cloned()
    }

    fn lookup(&self, _dir: Fid, _name: &Name) -> Result<Option<Fid>, Refusal> {
        Ok(self.name)
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal> {
        Ok(self.get(fid).ok().map(|object| object.attr.clone()))
    }

    fn bare(&self, _fid: Fid) -> bool {
        true
    }

    fn place(&self, _fid: Fid) -> Result<Option<(Fid, Name)>, Refusal> {
        Ok(None)
    }

    fn orphans(&self) -> Vec<Fid> {
        let orphan = |(_, object): &(&Fid, &Object)| object.attr.nlink == 0;
        let all = self.objects.iter().filter(orphan);
        all.map(|(fid, _)| *fid).collect()
    }

    fn open_session(&mut self, _session: SessionId, _machine: MachineId) {}

    fn note_time(&mut self, _: Time) {}

    fn newest(&self) -> Time {
        0
    }

    fn note_held(&mut self, _: (SessionId, Fid), _: wire::Right, _: bool) {}

    fn note_away(&mut self, _: SessionId, _: bool) {}

    fn close_session(&mut self, session: SessionId) {
        self.answers.retain(|origin, _| origin.session != session);
    }

    // Nothing is lost here: each change is stable at once.
    fn logged(&self) -> u64 {
        0
    }

    fn stable(&self) -> u64 {
        0
    }

    fn make_firm(&mut self) {}

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        self.answers
            .retain(|origin, _| origin.session != session || origin.request >= below);
    }
}
