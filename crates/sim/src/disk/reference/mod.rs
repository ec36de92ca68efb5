//! The reference disk: a volume as plain maps, written to be obviously right.
//!
//! It follows the same rules as the store for all that the simulated programs do; they are root, so
//! nothing is refused for lack of permission. It survives a crash of the server whole, as a store
//! does whose process died. It shares no code with the store, whose power failures it judges: what
//! both got wrong in the same lines, nobody would see.

mod attrs;
mod moves;
mod names;
mod ranges;
mod volumes;

use super::{Change, Closed, Share, Trouble, UNIT, Units, Volume};
use std::collections::{BTreeMap, BTreeSet};
use store::Keep;
use volumes::FIRST;
use wire::limits::BLOCK_BYTES;
use wire::{
    Attr, Chosen, DirEntry, Entry, Fid, Kind, MachineId, Name, Op, Origin, Outcome, Refusal,
    RequestId, SessionId, Time, VolumeInfo, WriteMode,
};

#[derive(Clone)]
struct Object {
    attr: Attr,
    /// It has never had a name.
    nameless: bool,
    units: Units,
    entries: BTreeMap<Name, (Fid, u64)>,
    last_position: u64,
    target: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A volume.
#[derive(Clone)]
pub(super) struct Reference {
    objects: BTreeMap<Fid, Object>,
    last_vnode: u64,
    /// The numbers of what is made next, and of its name; 0: those behind the last.
    chosen: Chosen,
    changes: u64,
    newest: Time,
    answers: BTreeMap<Origin, Outcome>,
    sessions: BTreeSet<SessionId>,
    away: BTreeSet<SessionId>,
    snapshots: Vec<VolumeInfo>,
}

type Result<T> = std::result::Result<T, Refusal>;

fn object(kind: Kind, mode: u16, now: Time) -> Object {
    let attr = Attr::new(kind, mode, now);
    let (units, entries, target) = (Vec::new(), BTreeMap::new(), Vec::new());
    Object {
        attr,
        nameless: false,
        units,
        entries,
        last_position: 0,
        target,
        xattrs: BTreeMap::new(),
    }
}

impl Object {
    fn changed(&mut self, now: Time) {
        // As the store does, which has whole blocks of what was written back.
        let blocks = self.units.chunks((u64::from(BLOCK_BYTES) / UNIT) as usize);
        let there = blocks.filter(|block| block.iter().any(|unit| *unit != 0));
        self.attr.used_bytes = there.map(|block| block.len() as u64 * UNIT).sum();
        self.attr.mtime = now;
        self.touched(now);
        self.attr.version += 1;
    }

    /// A change that is told late may be older than one that has been made since.
    fn touched(&mut self, now: Time) {
        self.attr.ctime = self.attr.ctime.max(now);
    }

    fn resize(&mut self, size: u64) {
        self.units.resize((size / UNIT) as usize, 0);
        self.attr.size = size;
    }
}

impl Reference {
    pub(super) fn new() -> Self {
        let root = object(Kind::Directory, 0o755, 0);
        Self {
            objects: BTreeMap::from([(Fid::root(1), root)]),
            last_vnode: 1,
            chosen: Chosen::default(),
            changes: 0,
            newest: 0,
            answers: BTreeMap::new(),
            sessions: BTreeSet::new(),
            away: BTreeSet::new(),
            snapshots: Vec::new(),
        }
    }

    /// The next object made is this one.
    pub(super) fn next_is(&mut self, fid: Fid) {
        self.last_vnode = fid.vnode - 1;
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Option<Fid> {
        let entries = &self.objects.get(&dir)?.entries;
        entries.get(name).map(|entry| entry.0)
    }

    fn get(&mut self, fid: Fid) -> Result<&mut Object> {
        self.objects.get_mut(&fid).ok_or(Refusal::Stale)
    }

    fn dir(&mut self, fid: Fid) -> Result<&mut Object> {
        let dir = self.get(fid)?;
        if dir.attr.kind == Kind::Directory {
            Ok(dir)
        } else {
            Err(Refusal::NotDirectory)
        }
    }

    fn entry(&mut self, fid: Fid, dir: Fid) -> Result<Outcome> {
        let attr = self.get(fid)?.attr.clone();
        let dir = self.get(dir)?.attr.clone();
        Ok(Outcome::Entry(Entry { fid, attr, dir }))
    }

    fn change(&mut self, now: Time, op: &Op, data: &[u64]) -> Result<Outcome> {
        match op {
            Op::Lookup { dir, name } => match self.dir(*dir)?.entries.get(name).copied() {
                Some((fid, _)) => self.entry(fid, *dir),
                None => Ok(Outcome::Absent {
                    dir: self.dir(*dir)?.attr.clone(),
                }),
            },
            Op::GetAttr { fid } | Op::Claim { fid } => {
                Ok(Outcome::Attr(self.get(*fid)?.attr.clone()))
            }
            Op::SetAttr { fid, set } => self.set_attr(now, *fid, set),
            Op::ReadLink { fid } => Ok(Outcome::Target(self.get(*fid)?.target.clone())),
            Op::Make {
                dir,
                name,
                make,
                mode,
                ..
            } => self.make(now, (*dir, name), make, (*mode & 0o7777) as u16),
            Op::MakeNameless { dir, mode, .. } => {
                self.make_nameless(now, *dir, (*mode & 0o7777) as u16)
            }
            Op::Link { fid, dir, name } => self.link(now, *fid, (*dir, name)),
            Op::Unlink { dir, name } => self.remove(now, (*dir, name), false),
            Op::Rmdir { dir, name } => self.remove(now, (*dir, name), true),
            Op::Rename {
                from,
                name,
                to,
                new,
                no_replace,
                exchange,
            } => {
                let (old, new) = ((*from, name), (*to, new));
                match (*no_replace, *exchange) {
                    // No simulated program asks for a whiteout.
                    (true, true) => Err(Refusal::Invalid),
                    (true, _) if self.lookup(new.0, new.1).is_some() => Err(Refusal::Exists),
                    (_, true) => self.exchange(now, old, new),
                    _ => self.rename(now, old, new),
                }
            }
            Op::Open { fid, access } => self.open_file(*fid, access.write),
            Op::Write {
                fid, offset, mode, ..
            } => self.write(now, *fid, (*offset, *mode), data),
            Op::Allocate { .. } | Op::Copy { .. } => self.range(now, op),
            Op::ReadDir { dir, after, max } => self.read_dir(*dir, *after, *max),
            Op::StatFs => Ok(self.statfs()),
            Op::Reserve { count } => {
                let first = self.last_vnode + 1;
                self.last_vnode += u64::from(*count);
                Ok(Outcome::Numbers {
                    first,
                    count: *count,
                })
            }
            Op::Reap { fid } => {
                if self.get(*fid)?.attr.nlink == 0 {
                    self.objects.remove(fid);
                }
                Ok(Outcome::Done)
            }
            Op::Volume(op) => self.volume(now, op),
            Op::Read { .. } | Op::Sync { .. } => Err(Refusal::Invalid),
            _ => self.xattr(now, op),
        }
    }

    fn open_file(&mut self, fid: Fid, write: bool) -> Result<Outcome> {
        let attr = self.get(fid)?.attr.clone();
        if write && attr.kind == Kind::Directory {
            return Err(Refusal::IsDirectory);
        }
        Ok(Outcome::Opened(attr))
    }

    fn write(
        &mut self,
        now: Time,
        fid: Fid,
        (offset, mode): (u64, WriteMode),
        data: &[u64],
    ) -> Result<Outcome> {
        let object = self.get(fid)?;
        if object.attr.kind != Kind::File {
            return Err(Refusal::Invalid);
        }
        let offset = if mode == WriteMode::Append {
            object.attr.size
        } else {
            offset
        };
        let end = offset + data.len() as u64 * UNIT;
        let least = if let WriteMode::Back { size, .. } = mode {
            size
        } else {
            0
        };
        let size = object
            .attr
            .size
            .max(least)
            .max(if data.is_empty() { 0 } else { end });
        object.resize(size);
        let at = (offset / UNIT) as usize;
        if !data.is_empty() {
            object.units[at..at + data.len()].copy_from_slice(data);
        }
        let before = object.attr.ctime;
        object.changed(now);
        if let WriteMode::Back { mtime, ctime, .. } = mode {
            object.attr.mtime = mtime.min(now);
            object.attr.ctime = before.max(ctime.min(now));
        }
        Ok(Outcome::Written {
            offset,
            attr: object.attr.clone(),
        })
    }

    fn read_dir(&mut self, dir: Fid, after: u64, max: u32) -> Result<Outcome> {
        let object = self.dir(dir)?;
        let (attr, last) = (object.attr.clone(), object.last_position);
        let mut names: Vec<(u64, Name, Fid)> = object
            .entries
            .iter()
            .map(|(n, (f, p))| (*p, n.clone(), *f))
            .collect();
        names.retain(|entry| entry.0 > after);
        names.sort();
        let end = names.len() <= max as usize;
        names.truncate(max as usize);
        let mut entries = Vec::new();
        for (position, name, fid) in names {
            let object = self.get(fid)?;
            let (attr, bare) = (object.attr.clone(), object.xattrs.is_empty());
            entries.push(DirEntry {
                ahead: 0,
                bare,
                name,
                fid,
                kind: attr.kind,
                position,
                attr: Some(attr),
            });
        }
        Ok(Outcome::Dir {
            entries,
            end,
            last,
            dir: attr,
        })
    }
}

impl Volume for Reference {
    fn apply(&mut self, change: Change<'_>) -> Outcome {
        let Change {
            now,
            op,
            origin,
            data,
            delegated,
            ..
        } = change;
        self.changes += 1;
        self.chosen = delegated.unwrap_or_default();
        self.newest = self.newest.max(now);
        let outcome = match volumes::is_frozen(op) {
            true => Err(Refusal::ReadOnly),
            false => self.change(now, op, data),
        };
        let outcome = outcome.unwrap_or_else(Outcome::Refused);
        if let (true, Some(origin)) = (op.changes(), origin) {
            self.answers.insert(origin, outcome.clone());
        }
        outcome
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Units) {
        let Some(object) = self.objects.get(&fid) else {
            return (Outcome::Refused(Refusal::Stale), Vec::new());
        };
        if object.attr.kind != Kind::File {
            return (Outcome::Refused(Refusal::Invalid), Vec::new());
        }
        let size = object.attr.size;
        let end = (offset + u64::from(len)).min(size);
        let from = offset.min(end);
        let units = object.units[(from / UNIT) as usize..(end / UNIT) as usize].to_vec();
        (
            Outcome::Read {
                len: (end - from) as u32,
                size,
            },
            units,
        )
    }

    fn answer(&self, origin: Origin) -> Option<Outcome> {
        self.answers.get(&origin).cloned()
    }

    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>> {
        Ok(Reference::lookup(self, dir, name))
    }

    fn attr(&self, fid: Fid) -> Result<Option<Attr>> {
        Ok(self.objects.get(&fid).map(|object| object.attr.clone()))
    }

    fn bare(&self, fid: Fid) -> bool {
        let object = self.objects.get(&fid);
        object.is_some_and(|object| object.xattrs.is_empty())
    }

    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>> {
        let mut names = self.objects.iter().flat_map(|(dir, object)| {
            let entries = object.entries.iter();
            entries.map(|(name, (named, _))| (*dir, name, *named))
        });
        let found = names.find(|(_, _, named)| *named == fid);
        Ok(found.map(|(dir, name, _)| (dir, name.clone())))
    }

    fn orphans(&self) -> Vec<Fid> {
        let nameless = |(f, o): &(&Fid, &Object)| o.attr.nlink == 0 && f.volume == FIRST;
        let all = self.objects.iter().filter(nameless);
        all.map(|(fid, _)| *fid).collect()
    }

    fn volumes(&self) -> Vec<VolumeInfo> {
        self.all_volumes()
    }

    fn open_session(&mut self, session: SessionId, _: MachineId) {
        self.sessions.insert(session);
    }

    fn note_time(&mut self, shown: Time) {
        self.newest = self.newest.max(shown);
    }

    fn note_away(&mut self, session: SessionId, away: bool) {
        self.away.remove(&session);
        self.away.extend(away.then_some(session));
    }

    fn away(&self) -> Vec<SessionId> {
        self.away.iter().copied().collect()
    }

    fn close_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.away.remove(&session);
        self.forget_answers(session, RequestId::MAX);
    }

    fn forget_answers(&mut self, session: SessionId, below: RequestId) {
        let stays = |origin: &Origin| origin.session != session || origin.request >= below;
        self.answers.retain(|origin, _| stays(origin));
    }

    fn sessions(&self) -> Vec<SessionId> {
        self.sessions.iter().copied().collect()
    }

    fn newest(&self) -> Time {
        self.newest
    }

    fn names(&self, dir: Fid) -> Vec<(Name, Fid)> {
        let entries = self.objects.get(&dir).map(|object| &object.entries);
        let entries = entries.into_iter().flatten();
        entries
            .map(|(name, (fid, _))| (name.clone(), *fid))
            .collect()
    }

    fn files(&self) -> Vec<(Fid, Attr)> {
        let named = self
            .objects
            .iter()
            .filter(|(fid, object)| object.attr.nlink > 0 && fid.volume == FIRST);
        named
            .map(|(fid, object)| (*fid, object.attr.clone()))
            .collect()
    }

    fn write_out(&mut self) -> std::result::Result<(), String> {
        Ok(())
    }

    fn sync(&mut self) -> std::result::Result<(), String> {
        Ok(())
    }

    fn die(&mut self) {}

    fn open(&mut self) -> std::result::Result<Option<u64>, Closed> {
        Ok(None)
    }

    fn carry(&self, before: Option<Box<dyn Volume>>, share: Share) -> Box<dyn Volume> {
        match (before, share) {
            (Some(before), Share::Part) => before,
            _ => Box::new(self.clone()),
        }
    }

    fn trouble(&mut self, _: Option<Trouble>) {}

    fn failed_calls(&self) -> u64 {
        0
    }

    fn power(&mut self, _: Keep) -> std::result::Result<u64, String> {
        Ok(self.changes)
    }

    fn position(&self) -> u64 {
        self.changes
    }

    fn rot(&mut self, _: u32) -> bool {
        false
    }

    fn is_rotten(&self) -> bool {
        false
    }

    fn mend(&mut self) {}

    /// Names and counts of names agree.
    fn check(&mut self) -> std::result::Result<(), String> {
        let mut names: BTreeMap<Fid, u32> = BTreeMap::new();
        for (dir, object) in &self.objects {
            for (name, (fid, _)) in &object.entries {
                if !self.objects.contains_key(fid) {
                    return Err(format!("{dir}/{name} names {fid}, which is gone"));
                }
                *names.entry(*fid).or_default() += 1;
            }
        }
        for (fid, object) in self
            .objects
            .iter()
            .filter(|(_, o)| o.attr.kind != Kind::Directory)
        {
            let found = names.get(fid).copied().unwrap_or(0);
            if found != object.attr.nlink {
                return Err(format!(
                    "{fid} has {found} names and counts {}",
                    object.attr.nlink
                ));
            }
        }
        Ok(())
    }
}
