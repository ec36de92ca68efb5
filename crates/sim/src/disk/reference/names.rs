//! The rules of names: making, linking, removing and moving them.

use super::{Reference, Result, object};
use wire::{Fid, Kind, Make, Name, Outcome, Refusal, Time};

impl Reference {
    fn enter(&mut self, now: Time, (dir, name): (Fid, &Name), fid: Fid) -> Result<()> {
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
        object.attr.ctime = now;
        self.enter(now, at, fid)?;
        self.entry(fid, at.0)
    }

    /// Takes a name from an object that loses it.
    fn unname(&mut self, now: Time, fid: Fid, dir: Fid) -> Result<()> {
        let object = self.get(fid)?;
        object.attr.ctime = now;
        if object.attr.kind == Kind::Directory {
            object.attr.nlink = 0;
            self.dir(dir)?.attr.nlink -= 1;
        } else {
            object.attr.nlink -= 1;
        }
        Ok(())
    }

    fn may_go(&mut self, fid: Fid, as_dir: bool) -> Result<()> {
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

    pub(super) fn rename(
        &mut self,
        now: Time,
        a: (Fid, &Name),
        b: (Fid, &Name),
    ) -> Result<Outcome> {
        let fid = self.dir(a.0)?.entries.get(a.1).ok_or(Refusal::NotFound)?.0;
        let target = self.dir(b.0)?;
        if target.attr.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        let victim = target.entries.get(b.1).map(|entry| entry.0);
        let is_dir = self.get(fid)?.attr.kind == Kind::Directory;
        let renamed = |this: &mut Self, victim| {
            let attr = this.get(fid)?.attr.clone();
            let from = this.get(a.0)?.attr.clone();
            let to = this.get(b.0)?.attr.clone();
            Ok(Outcome::Renamed {
                fid,
                attr,
                victim,
                from,
                to,
            })
        };
        if victim == Some(fid) {
            return renamed(self, None);
        }
        if let Some(victim) = victim {
            self.may_go(victim, is_dir)?;
            self.unname(now, victim, b.0)?;
        }
        let source = self.dir(a.0)?;
        source.entries.remove(a.1);
        source.changed(now);
        self.enter(now, b, fid)?;
        if is_dir && a.0 != b.0 {
            self.dir(a.0)?.attr.nlink -= 1;
            self.dir(b.0)?.attr.nlink += 1;
        }
        self.get(fid)?.attr.ctime = now;
        let victim = match victim {
            Some(victim) => Some((victim, self.get(victim)?.attr.clone())),
            None => None,
        };
        renamed(self, victim)
    }
}
