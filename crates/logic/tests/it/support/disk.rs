//! A store in memory for the scenarios: names, attributes and real bytes, applied at once. It keeps
//! outcomes with changes, orphans and sessions as the machine's contract asks, and outlives the
//! server's restarts. Each object is called in traces by the path under which it was made, with a
//! stroke added for each earlier object of that path.
//!
//! The simulator has another one (`sim/src/disk/reference`): that one judges the store, counts
//! units and follows the store's rules to the letter; this one only has to give the machines bytes
//! and attributes that they can work on, and stands below it. They have the contract of
//! `logic::server::Disk` in common.

#[path = "limits.rs"]
mod limits;
#[path = "volumes.rs"]
pub mod volumes;
#[path = "ways.rs"]
mod ways;
#[path = "xattrs.rs"]
mod xattrs;

use logic::server::{Bulk, By, Disk};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use volumes::Volumes;
use wire::{
    Attr, Chosen, Digest, DirEntry, Entry, Fid, Filesystem, Kind, Make, Name, Op, Origin, Outcome,
    Refusal, RequestId, Right, RoomOfDisk, SessionId, Set, SetTime, Time, WriteMode,
};

#[derive(Clone)]
struct Object {
    attr: Attr,
    bytes: Vec<u8>,
    target: Vec<u8>,
    /// The object that each name names, and its position in listings.
    names: BTreeMap<Name, (Fid, u64)>,
    /// The last position given.
    last: u64,
    /// The directory of the name that it lost last.
    lost_in: Option<Fid>,
}

impl Object {
    /// Its attributes with the size that its bytes have; a block of zeros occupies nothing.
    fn measured(&mut self) -> &mut Attr {
        let blocks = self.bytes.chunks(wire::limits::BLOCK_BYTES as usize);
        let full = blocks.filter(|block| block.iter().any(|byte| *byte != 0));
        self.attr.used_bytes = full.map(|block| block.len() as u64).sum();
        self.attr.size = self.bytes.len() as u64;
        &mut self.attr
    }
}

/// The state that a power failure leaves.
#[derive(Clone, Default)]
struct Stable {
    objects: BTreeMap<Fid, Object>,
    xattrs: BTreeMap<Fid, BTreeMap<Vec<u8>, Vec<u8>>>,
    answers: BTreeMap<Origin, Outcome>,
    sessions: BTreeSet<SessionId>,
    logged: u64,
}

/// The store.
pub struct MemoryDisk {
    volumes: Volumes,
    objects: BTreeMap<Fid, Object>,
    /// Extended attributes, of those that have any.
    xattrs: BTreeMap<Fid, BTreeMap<Vec<u8>, Vec<u8>>>,
    answers: BTreeMap<Origin, Outcome>,
    /// Sessions whose clients are away; stable at once.
    pub away: BTreeSet<SessionId>,
    /// Sessions that were not closed.
    pub sessions: BTreeSet<SessionId>,
    /// The most that each may hold.
    pub held: BTreeMap<(SessionId, Fid), Right>,
    /// Bytes beside messages.
    pub bulks: BTreeMap<Bulk, Vec<u8>>,
    /// The names of objects in traces.
    pub labels: BTreeMap<Fid, String>,
    /// It says what a name names so often, and then so often cannot.
    pub blind: Cell<(u32, u32)>,
    /// Nothing more can be written.
    pub full: bool,
    /// How much its first volume may have.
    pub limits: wire::Limits,
    /// Attributes are changed by root alone.
    pub judges: bool,
    last: u64,
    /// How many changes were applied.
    logged: u64,
    /// The part of them that is stable; `None`: each change at once.
    stable: Option<Box<Stable>>,
    /// The numbers of what is made next, and of its name; 0: those behind the last.
    chosen: Chosen,
}

type Result<T> = std::result::Result<T, Refusal>;

impl MemoryDisk {
    pub fn new() -> Self {
        let mut disk = Self {
            volumes: Volumes::default(),
            objects: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            answers: BTreeMap::new(),
            sessions: BTreeSet::new(),
            away: BTreeSet::new(),
            held: BTreeMap::new(),
            bulks: BTreeMap::new(),
            labels: BTreeMap::new(),
            blind: Cell::new((0, 0)),
            full: false,
            limits: wire::Limits::default(),
            judges: false,
            last: 1,
            logged: 0,
            stable: None,
            chosen: Chosen::default(),
        };
        let root = Fid::root(1);
        disk.labels.insert(root, "/".into());
        disk.labels.insert(Fid::room(1), "room".into());
        disk.enter(root, Kind::Directory, 0o755, 0);
        disk.enter(Fid::snapshots(1), Kind::Directory, 0o555, 0);
        disk.labels.insert(Fid::snapshots(1), ".snapshots".into());
        disk
    }

    fn enter(&mut self, fid: Fid, kind: Kind, mode: u16, now: Time) {
        let attr = Attr::new(kind, mode, now);
        let object = Object {
            attr,
            bytes: vec![],
            target: vec![],
            names: BTreeMap::new(),
            last: 0,
            lost_in: None,
        };
        self.objects.insert(fid, object);
    }

    /// From now on changes are stable only when they are synced.
    pub fn be_lazy(&mut self) {
        self.stable = Some(Box::default());
        self.sync();
    }

    /// Makes stable all that was applied.
    pub fn sync(&mut self) {
        if self.stable.is_none() {
            return;
        }
        let stable = Stable {
            objects: self.objects.clone(),
            xattrs: self.xattrs.clone(),
            answers: self.answers.clone(),
            sessions: self.sessions.clone(),
            logged: self.logged,
        };
        self.stable = Some(Box::new(stable));
    }

    /// All that is not stable is lost, and nothing is known of what clients hold. Which record is
    /// the last one that is left?
    pub fn lose_power(&mut self) -> u64 {
        let stable = self.stable.as_deref().cloned();
        let stable = stable.expect("the power fails only after `lazy`");
        self.objects = stable.objects;
        self.xattrs = stable.xattrs;
        self.answers = stable.answers;
        self.sessions = stable.sessions;
        self.logged = stable.logged;
        self.bulks.clear();
        self.held.clear();
        self.logged
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Holds bytes under a new number.
    pub fn hold(&mut self, bytes: Vec<u8>) -> Bulk {
        let bulk = self.number();
        self.bulks.insert(bulk, bytes);
        bulk
    }

    /// A file that is there from the beginning.
    pub fn put(&mut self, now: Time, place: (Fid, &Name), bytes: Vec<u8>) {
        let entry = self
            .make(now, place, &Make::File, 0o644)
            .expect("the name is free");
        let bulk = self.hold(bytes);
        self.write(now, (entry.fid, 0), WriteMode::At, bulk)
            .expect("it was just made");
    }

    /// The object that traces call so.
    pub fn labelled(&self, label: &str) -> Option<Fid> {
        let found = self.labels.iter().find(|(_, known)| *known == label);
        found.map(|(fid, _)| *fid)
    }

    fn get(&self, fid: Fid) -> Result<&Object> {
        self.objects.get(&fid).ok_or(Refusal::Stale)
    }

    fn change(&mut self, fid: Fid) -> Result<&mut Object> {
        match self.volumes.is_frozen(fid.volume) || fid.is_snapshots() {
            true => Err(Refusal::ReadOnly),
            false => self.objects.get_mut(&fid).ok_or(Refusal::Stale),
        }
    }

    fn dir(&self, fid: Fid) -> Result<&Object> {
        let object = self.get(fid)?;
        if object.attr.kind == Kind::Directory {
            Ok(object)
        } else {
            Err(Refusal::NotDirectory)
        }
    }

    fn open_file(&self, fid: Fid, write: bool) -> Result<Outcome> {
        let attr = self.get(fid)?.attr.clone();
        if write && attr.kind == Kind::Directory {
            return Err(Refusal::IsDirectory);
        }
        Ok(Outcome::Opened(attr))
    }

    fn child(&self, dir: Fid, name: &Name) -> Result<Fid> {
        self.dir(dir)?
            .names
            .get(name)
            .map(|found| found.0)
            .ok_or(Refusal::NotFound)
    }

    fn put_name(&mut self, now: Time, dir: Fid, name: &Name, child: Fid) -> Result<Attr> {
        let (next, chosen) = (self.number(), self.chosen.position);
        let object = self.change(dir)?;
        let next = match chosen {
            0 => next.max(object.last + 1),
            chosen => chosen,
        };
        // A name that comes to mean something else keeps its place.
        let place = object.names.get(name).map(|(_, position)| *position);
        object
            .names
            .insert(name.clone(), (child, place.unwrap_or(next)));
        object.last = object.last.max(place.unwrap_or(next));
        Ok(touched(&mut object.attr, now))
    }

    fn take_name(&mut self, now: Time, dir: Fid, name: &Name) -> Result<Attr> {
        let object = self.change(dir)?;
        object.names.remove(name);
        Ok(touched(&mut object.attr, now))
    }

    fn label(&mut self, fid: Fid, dir: Fid, name: &Name) {
        if self.labels.contains_key(&fid) {
            return; // so called since a client has made it
        }
        let mut label = match self.labels.get(&dir).map(String::as_str) {
            Some("/") | None => name.to_string(),
            Some(parent) => format!("{parent}/{name}"),
        };
        while self.labels.values().any(|known| *known == label) {
            label.push('\'');
        }
        self.labels.insert(fid, label);
    }

    fn make(
        &mut self,
        now: Time,
        (dir, name): (Fid, &Name),
        make: &Make,
        mode: u16,
    ) -> Result<Entry> {
        self.dir(dir)?;
        if self.child(dir, name).is_ok() {
            return Err(Refusal::Exists);
        }
        let (kind, rdev) = self.kind_of(make)?;
        let fid = Fid {
            volume: dir.volume,
            vnode: match core::mem::take(&mut self.chosen.vnode) {
                0 => self.number(),
                reserved => reserved,
            },
            uniq: 1,
        };
        self.enter(fid, kind, mode, now);
        self.change(fid)?.attr.rdev = rdev;
        if let Make::Symlink(target) = make {
            self.change(fid)?.target.clone_from(target);
        }
        self.label(fid, dir, name);
        if kind.looks_like_directory() {
            self.change(dir)?.attr.nlink += 1;
        }
        let dir = self.put_name(now, dir, name, fid)?;
        Ok(Entry {
            fid,
            attr: self.get(fid)?.attr.clone(),
            dir,
        })
    }

    fn remove(&mut self, now: Time, dir: Fid, name: &Name) -> Result<Outcome> {
        let fid = self.child(dir, name)?;
        if !self.get(fid)?.names.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        let dir_attr = self.take_name(now, dir, name)?;
        Ok(Outcome::Removed {
            fid,
            attr: self.lose_link(now, fid, dir)?,
            dir: dir_attr,
        })
    }

    fn rename(&mut self, now: Time, op: &Op) -> Result<Outcome> {
        let Op::Rename {
            from,
            name,
            to,
            new,
            no_replace,
            ..
        } = op
        else {
            return Err(Refusal::Invalid);
        };
        let (from, to) = ((*from, name), (*to, new));
        let fid = self.child(from.0, from.1)?;
        if *no_replace && self.child(to.0, to.1).is_ok() {
            return Err(Refusal::Exists);
        }
        let mut above = Some(to.0).filter(|to| *to != from.0);
        while let Some(dir) = above {
            if dir == fid {
                return Err(Refusal::Invalid); // it would come to be in itself
            }
            let mut all = self.objects.iter();
            let holds = |object: &Object| object.names.values().any(|named| named.0 == dir);
            above = all.find(|(_, object)| holds(object)).map(|(fid, _)| *fid);
        }
        let victim = self.child(to.0, to.1).ok().filter(|victim| *victim != fid);
        self.take_name(now, from.0, from.1)?;
        let to_attr = self.put_name(now, to.0, to.1, fid)?;
        let from_attr = self.get(from.0)?.attr.clone();
        let victim = match victim {
            Some(victim) => Some((victim, self.lose_link(now, victim, to.0)?)),
            None => None,
        };
        let attr = self.get(fid)?.attr.clone();
        Ok(Outcome::Renamed {
            fid,
            attr,
            victim,
            from: from_attr,
            to: to_attr,
        })
    }

    fn set(&mut self, now: Time, fid: Fid, set: &Set) -> Result<Outcome> {
        let object = self.change(fid)?;
        if let Some(size) = set.size {
            object.bytes.resize(size as usize, 0);
            touched(object.measured(), now);
        }
        if let Some(mode) = set.mode {
            object.attr.mode = mode;
        }
        match set.mtime {
            Some(SetTime::Now) => object.attr.mtime = now,
            Some(SetTime::To(time)) => object.attr.mtime = time,
            None => {}
        }
        object.attr.ctime = object.attr.ctime.max(now);
        Ok(Outcome::Attr(object.attr.clone()))
    }

    fn write(
        &mut self,
        now: Time,
        (fid, offset): (Fid, u64),
        mode: WriteMode,
        bulk: Bulk,
    ) -> Result<Outcome> {
        if self.full {
            return Err(Refusal::NoSpace);
        }
        let bytes = self.bulks.remove(&bulk).unwrap_or_default();
        let object = self.change(fid)?;
        let offset = if mode == WriteMode::Append {
            object.attr.size
        } else {
            offset
        };
        let end = offset as usize + bytes.len();
        if object.bytes.len() < end {
            object.bytes.resize(end, 0);
        }
        object.bytes[offset as usize..end].copy_from_slice(&bytes);
        touched(&mut object.attr, now);
        if let WriteMode::Back { size, mtime, .. } = mode {
            let size = object.bytes.len().max(size as usize);
            object.bytes.resize(size, 0);
            object.attr.mtime = mtime;
        }
        object.measured();
        Ok(Outcome::Written {
            offset,
            attr: object.attr.clone(),
        })
    }

    fn allocate(&mut self, now: Time, fid: Fid, op: &Op) -> Result<Outcome> {
        let Op::Allocate {
            offset,
            len,
            zero,
            keep_size,
            ..
        } = *op
        else {
            return Err(Refusal::Invalid);
        };
        let object = self.change(fid)?;
        let end = (offset + len) as usize;
        if zero {
            let there = object.bytes.len();
            object.bytes[there.min(offset as usize)..there.min(end)].fill(0);
        }
        if !keep_size && end > object.bytes.len() {
            object.bytes.resize(end, 0);
        }
        let attr = touched(object.measured(), now);
        Ok(Outcome::Written { offset, attr })
    }

    fn copy(
        &mut self,
        now: Time,
        (from, at): (Fid, u64),
        to: (Fid, u64),
        len: u32,
    ) -> Result<Outcome> {
        let source = &self.get(from)?.bytes;
        let end = source.len().min((at + u64::from(len)) as usize);
        let bytes = source[end.min(at as usize)..end].to_vec();
        let len = bytes.len() as u32;
        let bulk = self.hold(bytes);
        match self.write(now, to, WriteMode::At, bulk)? {
            Outcome::Written { attr, .. } => Ok(Outcome::Copied { len, attr }),
            other => Ok(other),
        }
    }

    /// Here only zeros are holes.
    fn find(&self, fid: Fid, offset: u64, hole: bool) -> Result<Outcome> {
        let bytes = &self.get(fid)?.bytes;
        let mut places = (0..).zip(bytes).filter(|(at, _)| *at >= offset);
        let found = places.find(|(_, byte)| (**byte == 0) == hole);
        match found {
            Some((at, _)) => Ok(Outcome::Position(at)),
            None if hole && offset < bytes.len() as u64 => {
                Ok(Outcome::Position(bytes.len() as u64))
            }
            None => Err(Refusal::NothingBehind),
        }
    }

    fn list(&self, dir: Fid, after: u64, max: u32) -> Result<Outcome> {
        let object = self.dir(dir)?;
        let mut entries: Vec<DirEntry> = object
            .names
            .iter()
            .filter(|(_, (_, position))| *position > after)
            .map(|(name, &(fid, position))| {
                let attr = self.objects.get(&fid).map(|child| child.attr.clone());
                let kind = attr.as_ref().map_or(Kind::File, |attr| attr.kind);
                DirEntry {
                    name: name.clone(),
                    fid,
                    kind,
                    position,
                    attr,
                    ahead: 0,
                    bare: !self.xattrs.contains_key(&fid),
                }
            })
            .collect();
        entries.sort_by_key(|entry| entry.position);
        let end = entries.len() <= max as usize;
        entries.truncate(max as usize);
        Ok(Outcome::Dir {
            entries,
            end,
            last: self.last(dir, object.last),
            dir: object.attr.clone(),
        })
    }

    fn run_rest(&mut self, now: Time, op: &Op) -> Result<Outcome> {
        match op {
            Op::MakeNameless { dir, mode, .. } => {
                let (volume, vnode, uniq) = (1, self.number(), 1);
                let fid = Fid {
                    volume,
                    vnode,
                    uniq,
                };
                self.enter(fid, Kind::File, *mode as u16, now);
                self.change(fid)?.attr.nlink = 0;
                let name = Name::new(b"nameless").expect("a name");
                self.label(fid, *dir, &name);
                let (attr, dir) = (self.get(fid)?.attr.clone(), self.dir(*dir)?.attr.clone());
                Ok(Outcome::Entry(Entry { fid, attr, dir }))
            }
            Op::Reserve { count } => {
                let first = self.last + 1;
                self.last += u64::from(*count);
                let count = *count;
                Ok(Outcome::Numbers { first, count })
            }
            Op::Allocate { fid, .. } => self.allocate(now, *fid, op),
            Op::Copy {
                from,
                at,
                to,
                offset,
                len,
            } => self.copy(now, (*from, *at), (*to, *offset), *len),
            Op::Find { fid, offset, hole } => self.find(*fid, *offset, *hole),
            Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => self.xattr(now, op),
            Op::Volume(op) => self.change_volume(now, op),
            _ => Err(Refusal::NotSupported),
        }
    }

    fn run(&mut self, now: Time, op: &Op, bulk: Bulk) -> Result<Outcome> {
        match op {
            Op::Lookup { dir, name } => {
                let parent = self.dir(*dir)?.attr.clone();
                match self.child(*dir, name) {
                    Ok(fid) => {
                        let attr = self.get(fid)?.attr.clone();
                        Ok(Outcome::Entry(Entry {
                            fid,
                            attr,
                            dir: parent,
                        }))
                    }
                    Err(_) => Ok(Outcome::Absent { dir: parent }),
                }
            }
            Op::GetAttr { fid } | Op::Claim { fid } => {
                Ok(Outcome::Attr(self.get(*fid)?.attr.clone()))
            }
            Op::SetAttr { fid, set } => self.set(now, *fid, set),
            Op::ReadLink { fid } => Ok(Outcome::Target(self.get(*fid)?.target.clone())),
            Op::Make {
                dir,
                name,
                make,
                mode,
                ..
            } => self
                .make(now, (*dir, name), make, *mode as u16)
                .map(Outcome::Entry),
            Op::Link { fid, dir, name } => {
                if self.child(*dir, name).is_ok() {
                    return Err(Refusal::Exists);
                }
                let attr = &mut self.change(*fid)?.attr;
                attr.nlink += 1;
                attr.ctime = attr.ctime.max(now);
                let dir = self.put_name(now, *dir, name, *fid)?;
                Ok(Outcome::Entry(Entry {
                    fid: *fid,
                    attr: self.get(*fid)?.attr.clone(),
                    dir,
                }))
            }
            Op::Unlink { dir, name } | Op::Rmdir { dir, name } => match self.child(*dir, name) {
                Ok(fid) if self.get(fid)?.attr.kind == Kind::Mount => Err(Refusal::MountPoint),
                _ => self.remove(now, *dir, name),
            },
            Op::Unmount { dir, name } => self.remove(now, *dir, name),
            Op::Rename { .. } => self.rename(now, op),
            Op::Open { fid, access } => self.open_file(*fid, access.write),
            Op::Write {
                fid, offset, mode, ..
            } => self.write(now, (*fid, *offset), *mode, bulk),
            Op::ReadDir { dir, after, max } => self.list(*dir, *after, *max),
            Op::Reap { fid } => {
                self.objects.remove(fid);
                Ok(Outcome::Done)
            }
            Op::StatFs => Ok(Outcome::Filesystem(Filesystem {
                total_bytes: 1 << 30,
                free_bytes: 1 << 29,
                files: self.objects.len() as u64,
                free_files: 1 << 20,
            })),
            _ => self.run_rest(now, op),
        }
    }
}

fn touched(attr: &mut Attr, now: Time) -> Attr {
    attr.version += 1;
    (attr.mtime, attr.ctime) = (now, attr.ctime.max(now));
    attr.clone()
}

fn of_attributes(op: &Op) -> bool {
    matches!(
        op,
        Op::SetAttr { .. } | Op::SetXattr { .. } | Op::RemoveXattr { .. }
    )
}

impl Disk for MemoryDisk {
    fn wall(&self) -> Time {
        0
    }

    fn apply(&mut self, now: Time, op: &Op, by: By<'_>, bulk: Bulk) -> Outcome {
        self.chosen = by.delegated.unwrap_or_default();
        let outcome = match self.judges && by.caller.uid != 0 && of_attributes(op) {
            true => Outcome::Refused(Refusal::NotPermitted),
            false if !self.fits(op, by.promised) => Outcome::Refused(Refusal::Quota),
            false => self.run(now, op, bulk).unwrap_or_else(Outcome::Refused),
        };
        self.logged += u64::from(op.changes());
        if let Some(origin) = by.origin.filter(|_| !limits::lacks_room(&outcome)) {
            self.answers.insert(origin, outcome.clone());
        }
        outcome
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Bulk) {
        let Ok(object) = self.get(fid) else {
            return (Outcome::Refused(Refusal::Stale), 0);
        };
        let size = object.attr.size;
        let from = offset.min(size) as usize;
        let to = offset.saturating_add(u64::from(len)).min(size) as usize;
        let bytes = object.bytes[from..to].to_vec();
        let len = bytes.len() as u32;
        (Outcome::Read { len, size }, self.hold(bytes))
    }

    fn digests(&self, bulk: Bulk) -> Vec<Digest> {
        let bytes = self.bulks.get(&bulk);
        bytes.map_or_else(Vec::new, |bytes| bytes.chunks(4096).map(digest).collect())
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

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>> {
        let (sees, left) = self.blind.get();
        if sees == 0 && left > 0 {
            self.blind.set((0, left - 1));
            return Err(Refusal::Disk);
        }
        self.blind.set((sees.saturating_sub(1), left));
        Ok(self.child(dir, name).ok())
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>> {
        Ok(self.get(fid).ok().map(|object| object.attr.clone()))
    }

    fn bare(&self, fid: Fid) -> bool {
        !self.xattrs.contains_key(&fid)
    }

    fn governed(&self, fid: Fid) -> bool {
        let of = wire::ACCESS_LIST;
        let listed = |fid| self.xattrs.get(&fid).is_some_and(|it| it.contains_key(of));
        listed(fid) || matches!(self.place(fid), Ok(Some((dir, _))) if listed(dir))
    }

    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>> {
        let mut names = self.objects.iter().flat_map(|(dir, object)| {
            let names = object.names.iter();
            names.map(|(name, (named, _))| (*dir, name, *named))
        });
        let found = names.find(|(_, _, named)| *named == fid);
        Ok(found.map(|(dir, name, _)| (dir, name.clone())))
    }

    fn dirs(&self, fid: Fid) -> Result<Vec<Fid>> {
        Ok(self.ways_to(fid))
    }

    fn orphans(&self) -> Vec<Fid> {
        let orphan = |(_, object): &(&Fid, &Object)| object.attr.nlink == 0;
        let orphans = self.objects.iter().filter(orphan);
        orphans.map(|(fid, _)| *fid).collect()
    }

    fn changed_by_release(&self, half: u32) -> Option<std::sync::Arc<BTreeSet<Fid>>> {
        self.volumes.changed(half)
    }
    fn volumes(&self) -> Vec<wire::VolumeInfo> {
        self.volumes.all()
    }

    fn room(&self, _volume: u32) -> RoomOfDisk {
        RoomOfDisk {
            volume: self.limits.left(self.used()),
            ..RoomOfDisk::ALL
        }
    }

    fn open_session(&mut self, session: SessionId, _: u64) {
        self.sessions.insert(session);
    }

    fn note_time(&mut self, _: Time) {}

    fn newest(&self) -> Time {
        0
    }

    fn note_held(&mut self, at: (SessionId, Fid), most: Right, _: bool) {
        match most {
            Right::None => drop(self.held.remove(&at)),
            most => drop(self.held.insert(at, most)),
        }
    }

    fn note_away(&mut self, session: SessionId, away: bool) {
        self.away.remove(&session);
        self.away.extend(away.then_some(session));
    }

    fn close_session(&mut self, session: SessionId) {
        self.held.retain(|(of, _), _| *of != session);
        self.sessions.remove(&session);
        self.answers.retain(|origin, _| origin.session != session);
    }

    fn logged(&self) -> u64 {
        self.logged
    }

    fn stable(&self) -> u64 {
        self.stable
            .as_ref()
            .map_or(self.logged, |stable| stable.logged)
    }

    fn make_firm(&mut self) {
        self.sync();
    }

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        self.answers
            .retain(|origin, _| origin.session != session || origin.request >= below);
    }
}

/// The digest of a block with zeros behind these bytes; it is to tell blocks apart, no more.
pub fn digest(bytes: &[u8]) -> Digest {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for at in 0..4096 {
        let byte = bytes.get(at).copied().unwrap_or_default();
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    Digest(hash.to_le_bytes())
}
