//! Names: the cache of present and absent ones, and how a name is looked up.

use super::attrs::Began;
use super::{Dentry, Kernel, Pin, Result, refused};
use logic::client::{Call, Done, Lifetime};
use std::rc::Rc;
use wire::{Fid, Kind, Name, Op, Refusal};

/// How a name is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// From the cache if it has it; the directory is locked for the question only.
    Walk,
    /// The same, by a caller that holds the directory's lock.
    Locked,
    /// By a caller that holds the lock and will make or replace the name: an answer from the cache
    /// is not good enough.
    Fresh,
}

enum Cached {
    Hit(Option<Fid>),
    Doubtful(u64, Fid),
    Miss,
}

impl Kernel {
    /// Looks a name up.
    pub(super) async fn lookup(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        look: Look,
    ) -> Result<Option<Pin>> {
        loop {
            if let Some(found) = self.lookup_cached(dir, name, look).await? {
                return Ok(found);
            }
            let sched = &self.world.sched;
            let _shared = match look {
                Look::Walk => Some(dir.inode.lock.lock(sched, false).await),
                Look::Locked | Look::Fresh => None,
            };
            let lock = self.looking(dir, name);
            let _only = lock.lock(sched, true).await;
            let known = self
                .dentries
                .borrow()
                .contains_key(&(dir.fid(), name.clone()));
            if !known {
                return self.lookup_new(dir, name).await;
            }
        }
    }

    fn looking(&self, dir: &Pin, name: &Name) -> Rc<crate::exec::Lock> {
        let key = (dir.fid(), name.clone());
        Rc::clone(self.looking.borrow_mut().entry(key).or_default())
    }

    /// `None`: the daemon must be asked, since nothing is known.
    async fn lookup_cached(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        look: Look,
    ) -> Result<Option<Option<Pin>>> {
        match self.cached(dir.fid(), name, look) {
            Cached::Hit(None) => Ok(Some(None)),
            Cached::Hit(Some(fid)) => Ok(self.inode(fid).map(|inode| Some(self.pin(&inode)))),
            Cached::Miss => Ok(None),
            Cached::Doubtful(id, fid) => {
                let Some(inode) = self.inode(fid) else {
                    return Ok(None);
                };
                let pin = self.pin(&inode);
                let fits = self.revalidate(dir, name, (id, &pin)).await?;
                Ok(fits.then_some(Some(pin)))
            }
        }
    }

    fn cached(&self, dir: Fid, name: &Name, look: Look) -> Cached {
        let key = (dir, name.clone());
        let (id, target, valid) = match self.dentries.borrow().get(&key) {
            None => return Cached::Miss,
            Some(d) if d.epoch < self.epoch.get() => (d.id, None, false),
            Some(d) => (d.id, d.target, d.valid),
        };
        if valid && look != Look::Fresh {
            return Cached::Hit(target);
        }
        match target {
            Some(fid) => Cached::Doubtful(id, fid),
            None => {
                self.drop_dentry(&key);
                Cached::Miss
            }
        }
    }

    /// Asks whether a name still names the same. The directory is not locked meanwhile.
    async fn revalidate(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        (id, pin): (u64, &Pin),
    ) -> Result<bool> {
        let began = self.began();
        let call = Call::Op(Op::Lookup {
            dir: dir.fid(),
            name: name.clone(),
        });
        let reply = self.ask(call, Vec::new()).await;
        let key = (dir.fid(), name.clone());
        let same = |d: &Dentry| d.id == id;
        match &reply.done {
            Done::Entry {
                fid,
                attr,
                name_lifetime,
                attr_lifetime,
                ..
            } if *fid == pin.fid() => {
                let inode = &pin.inode;
                inode.lookups.set(inode.lookups.get() + 1);
                let forever = *attr_lifetime == Lifetime::Forever;
                self.keep_attr(inode, (attr, forever), began).await;
                if let Some(d) = self.dentries.borrow_mut().get_mut(&key).filter(|d| same(d)) {
                    d.valid = *name_lifetime == Lifetime::Forever;
                }
                return Ok(true);
            }
            Done::Entry { fid, .. } => self.forget(*fid, 1),
            Done::Absent { .. } | Done::Refused(_) => {}
            _ => return refused(&self.world, &reply),
        }
        let known = self.dentries.borrow().get(&key).is_some_and(same);
        if known {
            self.drop_dentry(&key);
        }
        Ok(false)
    }

    async fn lookup_new(self: &Rc<Self>, dir: &Pin, name: &Name) -> Result<Option<Pin>> {
        let (began, epoch) = (self.began(), self.epoch.get());
        let call = Call::Op(Op::Lookup {
            dir: dir.fid(),
            name: name.clone(),
        });
        let reply = self.ask(call, Vec::new()).await;
        match &reply.done {
            Done::Entry {
                fid,
                attr,
                name_lifetime,
                attr_lifetime,
                ..
            } => {
                let pin = self.iget(*fid, (attr, *attr_lifetime), began).await;
                if !self.may_come_to(&pin, dir.fid()) {
                    return Err(Refusal::Stale);
                }
                self.enter(dir.fid(), name, Some(&pin), (*name_lifetime, epoch));
                Ok(Some(pin))
            }
            Done::Absent { lifetime } => {
                if *lifetime == Lifetime::Forever {
                    self.enter(dir.fid(), name, None, (*lifetime, epoch));
                }
                Ok(None)
            }
            _ => refused(&self.world, &reply),
        }
    }

    /// Enters a name into the cache.
    pub(super) fn enter(
        &self,
        dir: Fid,
        name: &Name,
        target: Option<&Pin>,
        (lifetime, epoch): (Lifetime, u64),
    ) {
        let key = (dir, name.clone());
        if let Some(pin) = target {
            if pin.inode.kind == Kind::Directory {
                self.drop_aliases(pin.fid(), &key);
                self.is_now_in(pin.fid(), dir);
            }
            pin.inode.names.set(pin.inode.names.get() + 1);
        }
        self.drop_dentry(&key);
        let id = self.last_dentry.get() + 1;
        self.last_dentry.set(id);
        let target = target.map(Pin::fid);
        let dentry = Dentry {
            id,
            target,
            valid: lifetime == Lifetime::Forever,
            epoch,
        };
        self.dentries.borrow_mut().insert(key, dentry);
    }

    /// A directory has one name only: the knowledge of the names in it moves with it.
    fn drop_aliases(&self, fid: Fid, but: &(Fid, Name)) {
        let keys: Vec<(Fid, Name)> = {
            let dentries = self.dentries.borrow();
            let alias = |(key, d): &(&(Fid, Name), &Dentry)| d.target == Some(fid) && *key != but;
            dentries
                .iter()
                .filter(alias)
                .map(|(key, _)| key.clone())
                .collect()
        };
        for key in keys {
            self.dentries.borrow_mut().remove(&key);
            if let Some(inode) = self.inode(fid) {
                inode.names.set(inode.names.get() - 1);
            }
        }
    }

    pub(super) fn drop_children(&self, dir: Fid) {
        let keys: Vec<(Fid, Name)> = {
            let dentries = self.dentries.borrow();
            dentries
                .keys()
                .filter(|key| key.0 == dir)
                .cloned()
                .collect()
        };
        for key in keys {
            self.drop_dentry(&key);
        }
    }

    /// Drops a name, and what only that name kept.
    pub(super) fn drop_dentry(&self, key: &(Fid, Name)) {
        let gone = self.dentries.borrow_mut().remove(key);
        let Some(fid) = gone.and_then(|dentry| dentry.target) else {
            return;
        };
        if let Some(inode) = self.inode(fid) {
            inode.names.set(inode.names.get() - 1);
            if inode.kind == Kind::Directory {
                self.drop_children(fid);
            }
        }
        self.evict_if_unused(fid);
    }

    /// The dentry moves with its lifetime and epoch.
    pub(super) fn move_dentry(&self, from: &(Fid, Name), to: &(Fid, Name)) {
        self.drop_dentry(to);
        let moved = self.dentries.borrow_mut().remove(from);
        if let Some(dentry) = moved {
            self.put_dentry(to, dentry);
        }
    }

    fn put_dentry(&self, key: &(Fid, Name), dentry: Dentry) {
        let inode = dentry.target.and_then(|fid| self.inode(fid));
        if let Some(inode) = inode.filter(|inode| inode.kind == Kind::Directory) {
            self.is_now_in(inode.fid, key.0);
        }
        self.dentries.borrow_mut().insert(key.clone(), dentry);
    }

    /// So do both of them.
    pub(super) fn swap_dentries(&self, one: &(Fid, Name), other: &(Fid, Name)) {
        let [first, second] = [one, other].map(|key| self.dentries.borrow_mut().remove(key));
        if let Some(dentry) = first {
            self.put_dentry(other, dentry);
        }
        if let Some(dentry) = second {
            self.put_dentry(one, dentry);
        }
    }

    /// Finds what a name names, as stat(2) and open(2) do.
    pub(crate) async fn find(self: &Rc<Self>, dir: &Pin, name: &Name) -> Result<Option<Pin>> {
        self.lookup(dir, name, Look::Walk).await
    }

    /// Finds the directory that a path's last name is in.
    pub(crate) async fn parent(
        self: &Rc<Self>,
        path: &crate::program::Path,
    ) -> Result<Option<Pin>> {
        let mut at = self.root();
        for dir in &path.dirs {
            let found = self.lookup(&at, dir, Look::Walk).await?;
            match found.filter(|pin| pin.inode.kind == Kind::Directory) {
                Some(pin) => at = pin,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// An answer that made an object: it is kept whatever happened meanwhile.
    pub(super) async fn made(
        self: &Rc<Self>,
        dir: &Pin,
        name: &Name,
        reply: &crate::room::Reply,
        epoch: u64,
    ) -> Result<Pin> {
        let Done::Entry {
            fid,
            attr,
            name_lifetime,
            attr_lifetime,
            ..
        } = &reply.done
        else {
            return refused(&self.world, reply);
        };
        let pin = self.iget(*fid, (attr, *attr_lifetime), Began::ANYWAY).await;
        self.enter(dir.fid(), name, Some(&pin), (*name_lifetime, epoch));
        self.dir_changed(&dir.inode);
        Ok(pin)
    }
}
