//! Notifications as the front has them written: each in a thread of its own, some time after it was
//! asked for; and what memory pressure drops.

use super::{Kernel, PAGE};
use crate::coverage::Rare;
use crate::disk::Units;
use logic::client::{Input, Invalidate};
use std::rc::Rc;
use wire::{Fid, Kind, Name};

/// How long an inode whose first answer may be on its way is waited for, and how often it is tried.
const YOUNG_WAIT_NS: u64 = 10_000_000;
const YOUNG_PAUSE_NS: u64 = 200_000;

impl Kernel {
    /// Does what the machine asked for, and tells it.
    pub(crate) fn invalidate(self: &Rc<Self>, id: u64, what: Invalidate) {
        let kernel = Rc::clone(self);
        let (sched, host) = (Rc::clone(&self.world.sched), self.host());
        if let Invalidate::Inode { fid, ranges, .. } = &what
            && let Some(inode) = self.inode(*fid)
        {
            let whole = ranges.iter().any(|range| range.1 == u64::MAX);
            let last = if whole {
                &inode.notified
            } else {
                &inode.patched
            };
            last.set(sched.now());
        }
        self.world.sched.spawn(host, async move {
            let delay = {
                let mut rng = kernel.world.rng.borrow_mut();
                kernel.world.plan.notify_delay(&mut rng)
            };
            sched.sleep(delay).await;
            match what {
                Invalidate::Inode { fid, ranges, young } => {
                    kernel.take_inode(fid, &ranges, young).await;
                }
                Invalidate::Name { dir, name } => {
                    kernel.inval_entry(dir, name).await;
                    kernel.inval_inode(dir, Some((0, u64::MAX))).await;
                }
                Invalidate::Names { dir } => {
                    kernel.raise_epoch();
                    kernel.inval_inode(dir, Some((0, u64::MAX))).await;
                }
                Invalidate::Sizes { fid } => {
                    if let Some(inode) = kernel.inode(fid) {
                        inode.lock.lock(&sched, true).await;
                        kernel.inval_inode(fid, None).await;
                        inode.lock.lock(&sched, true).await;
                    }
                }
                Invalidate::Turn { fid } => {
                    if let Some(inode) = kernel.inode(fid) {
                        let _lock = inode.lock.lock(&sched, true).await;
                    }
                }
                Invalidate::Listing { dir } => {
                    kernel.inval_inode(dir, Some((0, u64::MAX))).await;
                }
                Invalidate::Expire { dir, names } => {
                    for name in names {
                        kernel.expire_entry(dir, name).await;
                    }
                    kernel.inval_inode(dir, Some((0, u64::MAX))).await;
                }
                Invalidate::Unused { fids } => {
                    for fid in fids {
                        kernel.let_go(fid);
                    }
                }
            }
            let world = Rc::clone(&kernel.world);
            kernel
                .room
                .input(&world, Input::Invalidated { id }, Units::new());
        });
    }

    async fn take_inode(&self, fid: Fid, ranges: &[(u64, u64)], young: bool) {
        let sched = &self.world.sched;
        let give_up = sched.now() + YOUNG_WAIT_NS;
        let all = ranges.iter().map(|range| Some(*range));
        let ranges: Vec<_> = if ranges.is_empty() {
            vec![None]
        } else {
            all.collect()
        };
        for range in ranges {
            while !self.inval_inode(fid, range).await {
                if !young {
                    break;
                }
                if sched.now() >= give_up {
                    self.world.meet(Rare::EpochYoung.bit());
                    return self.raise_epoch();
                }
                sched.sleep(YOUNG_PAUSE_NS).await;
            }
        }
    }

    /// Drops the attributes at once, and the answers about them that are on their way.
    pub(crate) fn throw_away(&self, fid: Fid) {
        if let Some(inode) = self.inode(fid) {
            self.bump(&inode);
            inode.valid.set(false);
            self.note(&inode, || "throws attributes away".to_owned());
        }
    }

    /// Drops the attributes and a range of pages; false if the kernel does not know the object.
    async fn inval_inode(&self, fid: Fid, range: Option<(u64, u64)>) -> bool {
        let Some(inode) = self.inode(fid) else {
            return false;
        };
        self.bump(&inode);
        inode.valid.set(false);
        self.note(&inode, || format!("is notified {range:?}"));
        if let Some((from, to)) = range {
            inode.rdc.borrow_mut().drop_page();
            let upto = if to == u64::MAX {
                u64::MAX
            } else {
                to.div_ceil(PAGE)
            };
            self.drop_pages(&inode, (from / PAGE, upto)).await;
        }
        true
    }

    fn raise_epoch(&self) {
        self.epoch.set(self.epoch.get() + 1);
    }

    async fn inval_entry(&self, dir: Fid, name: Name) {
        let Some(inode) = self.inode(dir) else { return };
        let _lock = inode.lock.lock(&self.world.sched, true).await;
        let key = (dir, name);
        if self.dentries.borrow().contains_key(&key) {
            self.dir_changed(&inode);
            self.drop_dentry(&key);
        }
    }

    async fn expire_entry(&self, dir: Fid, name: Name) {
        let Some(inode) = self.inode(dir) else { return };
        let _lock = inode.lock.lock(&self.world.sched, true).await;
        if let Some(dentry) = self.dentries.borrow_mut().get_mut(&(dir, name)) {
            dentry.valid = false;
        }
        self.dir_changed(&inode);
    }

    /// Memory is short: something that nobody uses is dropped.
    pub(crate) fn press(&self) {
        let kind = self.world.rng.borrow_mut().below(3);
        if kind == 0 {
            self.press_page();
        } else {
            self.press_name();
        }
    }

    fn press_page(&self) {
        let inode = {
            let inodes = self.inodes.borrow();
            let index = self.world.rng.borrow_mut().below(inodes.len() as u64);
            inodes.values().nth(index as usize).cloned()
        };
        let Some(inode) = inode else { return };
        let clean = |page: &super::Page| page.units.is_some() && !page.dirty && !page.writing;
        let page = {
            let pages = inode.pages.borrow();
            pages
                .iter()
                .find(|(_, page)| clean(page))
                .map(|(index, _)| *index)
        };
        if let Some(page) = page {
            inode.pages.borrow_mut().remove(&page);
        }
    }

    /// A name goes if the kernel does not use what it names, and nothing below it is known.
    fn press_name(&self) {
        let found = {
            let dentries = self.dentries.borrow();
            if dentries.is_empty() {
                return;
            }
            let index = self.world.rng.borrow_mut().below(dentries.len() as u64);
            let found = dentries.iter().nth(index as usize);
            found.map(|(key, dentry)| (key.clone(), dentry.target))
        };
        let Some((key, target)) = found else { return };
        if target.is_none_or(|fid| self.is_unused(fid)) {
            self.drop_dentry(&key);
        }
    }

    fn is_unused(&self, fid: Fid) -> bool {
        self.inode(fid).is_none_or(|inode| {
            let children = inode.kind == Kind::Directory
                && self.dentries.borrow().keys().any(|key| key.0 == inode.fid);
            inode.pins.get() == 0 && !children
        })
    }

    /// Drops the names of what nobody uses, and so that.
    fn let_go(&self, fid: Fid) {
        if !self.is_unused(fid) {
            return;
        }
        let keys: Vec<(Fid, Name)> = {
            let dentries = self.dentries.borrow();
            let names = dentries
                .iter()
                .filter(|(_, dentry)| dentry.target == Some(fid));
            names.map(|(key, _)| key.clone()).collect()
        };
        for key in keys {
            self.drop_dentry(&key);
        }
    }
}
