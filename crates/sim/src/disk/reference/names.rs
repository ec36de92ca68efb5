//! The rules of names: making, linking and removing them.

use super::{Reference, Result, object};
use wire::{Fid, Kind, Make, Name, Outcome, Refusal, Time};

impl Reference {
    pub(super) fn enter(&mut self, now: Time, (dir, name): (Fid, &Name), fid: Fid) -> Result<()> {
        let chosen = self.chosen.position;
        let dir = self.dir(dir)?;
        let free = dir
            .entries
            .values()
            .all(|(_, position)| *position != chosen);
        let new = match chosen {
            1.. if free => chosen,
            _ => dir.last_position + 1,
        };
        // A name that comes to mean something else keeps its place.
        let place = dir.entries.get(name).map(|(_, position)| *position);
        let position = place.unwrap_or(new);
        dir.last_position = dir.last_position.max(position);
        dir.entries.insert(name.clone(), (fid, position));
        dir.changed(now);
        Ok(())
    }

    fn free(&mut self, (dir, name): (Fid, &Name)) -> Result<()> {
        let dir = self.dir(dir)?;
        if dir.entries.contains_key(name) {
            return Err(Refusal::Exists);
        }
        if dir.attr.nlink == 0 {
            Err(Refusal::NotFound)
        } else {
            Ok(())
        }
    }

    pub(super) fn make(
        &mut self,
        now: Time,
        at: (Fid, &Name),
        make: &Make,
        mode: u16,
    ) -> Result<Outcome> {
        self.free(at)?;
        let kind = match make {
            Make::File => Kind::File,
            Make::Directory => Kind::Directory,
            Make::Symlink(_) => Kind::Symlink,
            Make::Node { kind, .. } => *kind,
            // The worlds have one volume that changes.
            Make::Mount(_) | Make::MountElsewhere(_) => return Err(Refusal::NotFound),
        };
        let mut made = object(kind, mode, now);
        if let Make::Symlink(target) = make {
            made.target.clone_from(target);
        }
        let fid = self.add(made);
        self.enter(now, at, fid)?;
        if kind == Kind::Directory {
            self.dir(at.0)?.attr.nlink += 1;
        }
        self.entry(fid, at.0)
    }

    fn add(&mut self, object: super::Object) -> Fid {
        let reserved = std::mem::take(&mut self.chosen.vnode);
        self.last_vnode += u64::from(reserved == 0);
        let fid = Fid {
            volume: 1,
            vnode: if reserved == 0 {
                self.last_vnode
            } else {
                reserved
            },
            uniq: 1,
        };
        self.objects.insert(fid, object);
        fid
    }

    pub(super) fn make_nameless(&mut self, now: Time, dir: Fid, mode: u16) -> Result<Outcome> {
        if self.dir(dir)?.attr.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        let mut made = object(Kind::File, mode, now);
        made.attr.nlink = 0;
        made.nameless = true;
        let fid = self.add(made);
        self.entry(fid, dir)
    }

    pub(super) fn link(&mut self, now: Time, fid: Fid, at: (Fid, &Name)) -> Result<Outcome> {
        let object = self.get(fid)?;
        let (kind, nlink, nameless) = (object.attr.kind, object.attr.nlink, object.nameless);
        if kind == Kind::Directory {
            return Err(Refusal::NotPermitted);
        }
        if nlink == 0 && !nameless {
            return Err(Refusal::NotFound);
        }
        self.free(at)?;
        let object = self.get(fid)?;
        object.nameless = false;
        object.attr.nlink += 1;
        object.attr.ctime = object.attr.ctime.max(now);
        self.enter(now, at, fid)?;
        self.entry(fid, at.0)
    }

    /// Takes a name from an object that loses it.
    pub(super) fn unname(&mut self, now: Time, fid: Fid, dir: Fid) -> Result<()> {
        let object = self.get(fid)?;
        object.attr.ctime = object.attr.ctime.max(now);
        if object.attr.kind == Kind::Directory {
            object.attr.nlink = 0;
            self.dir(dir)?.attr.nlink -= 1;
        } else {
            object.attr.nlink -= 1;
        }
        Ok(())
    }

    pub(super) fn may_go(&mut self, fid: Fid, as_dir: bool) -> Result<()> {
        let object = self.get(fid)?;
        match (object.attr.kind == Kind::Directory, as_dir) {
            (true, false) => Err(Refusal::IsDirectory),
            (false, true) => Err(Refusal::NotDirectory),
            (true, true) if !object.entries.is_empty() => Err(Refusal::NotEmpty),
            _ => Ok(()),
        }
    }

    pub(super) fn remove(
        &mut self,
        now: Time,
        (dir, name): (Fid, &Name),
        as_dir: bool,
    ) -> Result<Outcome> {
        let fid = self.dir(dir)?.entries.get(name).ok_or(Refusal::NotFound)?.0;
        self.may_go(fid, as_dir)?;
        self.unname(now, fid, dir)?;
        let parent = self.dir(dir)?;
        parent.entries.remove(name);
        parent.changed(now);
        let dir = parent.attr.clone();
        let attr = self.get(fid)?.attr.clone();
        Ok(Outcome::Removed { fid, attr, dir })
    }
}
