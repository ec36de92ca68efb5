//! Open files and their bytes: the page cache, direct reads and writes, mappings.

use super::{Handle, Inode, Kernel, PAGE, PAGE_UNITS, Page, Pin, Result, Spoilt, refused};
use crate::disk::{UNIT, Units};
use crate::exec::Signal;
use crate::wrong::wrong;
use logic::client::{Call, Done, How};
use std::rc::Rc;
use wire::{Access, Refusal, Time};

/// The result of a read.
pub(crate) struct Bytes {
    pub(crate) units: Units,
    /// Fewer than asked for: the end of the file was seen. It is not behind this...
    pub(crate) ended: bool,
    /// ...but may be before it: the kernel went by a size that may be outdated.
    pub(crate) doubtful: bool,
    /// Since when that may have been so, if that is before the call.
    pub(crate) since: u64,
}

impl Kernel {
    /// open(2) of a file that was found.
    pub(crate) async fn open(
        self: &Rc<Self>,
        pin: Pin,
        (access, append): (Access, bool),
    ) -> Result<Handle> {
        let number = self.next_handle();
        let call = Call::Open {
            fid: pin.fid(),
            access,
            append,
            handle: number,
        };
        let reply = self.ask(call, Units::new()).await;
        let Done::Opened { cached, .. } = reply.done else {
            return refused(&self.world, &reply);
        };
        if cached && access.write {
            self.world
                .fail(wrong!("an open for writing was answered as cached"));
        }
        self.descriptors.opened(pin.fid(), number);
        if !cached {
            self.drop_pages(&pin.inode, (0, u64::MAX)).await;
        }
        Ok(Handle {
            pin,
            access,
            append,
            cached,
            number,
        })
    }

    /// close(2): the daemon is told later. A program that may have to be told of lost bytes makes
    /// sure before.
    pub(crate) fn close(self: &Rc<Self>, handle: Handle) {
        let call = Call::Release {
            fid: handle.pin.fid(),
            access: handle.access,
            handle: handle.number,
        };
        let kernel = Rc::clone(self);
        self.world.sched.spawn(self.host(), async move {
            if handle.access.write {
                kernel.clean_range(&handle.pin.inode, (0, u64::MAX)).await;
            }
            if kernel.descriptors.is_owed(handle.number) {
                // The judge has heard what it says.
                let _heard = kernel.sync(&handle).await;
            }
            kernel.descriptors.closed(handle.pin.fid(), handle.number);
            kernel.ask(call, Units::new()).await;
            drop(handle);
        });
    }

    /// read(2).
    pub(crate) async fn read(&self, handle: &Handle, offset: u64, len: u64) -> Result<Bytes> {
        if handle.cached {
            return self.read_cached(&handle.pin, offset, len).await;
        }
        let inode = &handle.pin.inode;
        self.clean_range(inode, (offset / PAGE, (offset + len).div_ceil(PAGE)))
            .await;
        let call = Call::Read {
            fid: inode.fid,
            offset,
            len: len as u32,
            pages: false,
        };
        let reply = self.ask(call, Units::new()).await;
        if !matches!(reply.done, Done::Read { .. }) {
            return refused(&self.world, &reply);
        }
        let ended = (reply.units.len() as u64) < len / UNIT;
        Ok(Bytes {
            units: reply.units,
            ended,
            doubtful: false,
            since: u64::MAX,
        })
    }

    async fn read_cached(&self, pin: &Pin, offset: u64, len: u64) -> Result<Bytes> {
        let inode = &pin.inode;
        let end = offset + len;
        let since = self.since(inode);
        let mut unstable = inode.unstable.get();
        let mut doubtful = false;
        if end > inode.size.get() && !inode.valid.get() {
            doubtful |= self.ask_attr(inode, true).await?.1;
        }
        let begin = self.world.sched.now();
        let mut units = Units::new();
        let mut sound = None;
        let mut at = offset;
        while at < end {
            if at >= inode.size.get() {
                break;
            }
            let page = at / PAGE;
            let asked = self.world.sched.now();
            self.page(pin, page, (end - 1) / PAGE).await?;
            doubtful |= self.was_told(inode, begin, asked);
            let upto = end.min((page + 1) * PAGE).min(inode.size.get());
            if at >= upto {
                break;
            }
            let Some(content) = self.content(inode, page) else {
                continue;
            };
            let from = (at % PAGE / UNIT) as usize;
            let to = from + ((upto - at) / UNIT) as usize;
            let limit = self.sound(inode, page);
            if limit < to {
                sound.get_or_insert(units.len() + limit.saturating_sub(from));
            }
            units.extend(&content[from..to]);
            at = upto;
        }
        // While a truncate(2) of this machine is under way the kernel keeps no answer about the
        // size (FUSE_I_SIZE_UNSTABLE): the end that it shows then may be outdated. Nor does it keep
        // one that a write of this machine has overtaken: then it may show more than there is. No
        // file system can help that.
        unstable |= inode.unstable.get();
        if let Some(sound) = sound {
            units.truncate(sound);
            unstable = true;
        }
        let ended = (units.len() as u64) < len / UNIT && !unstable;
        Ok(Bytes {
            units,
            ended,
            doubtful,
            since,
        })
    }

    /// Was an answer about attributes taken in since the read began that had been asked for before,
    /// and did it cross the question for a page? Then its size, by which the kernel goes, may be
    /// older than the read, and the daemon could not help that.
    fn was_told(&self, inode: &Inode, begin: Time, asked: Time) -> bool {
        let (taken, since) = inode.taken.get();
        taken >= begin && since < begin && taken <= asked + 6 * self.world.plan.kernel_ns
    }

    pub(super) fn content(&self, inode: &Inode, page: u64) -> Option<[u64; PAGE_UNITS as usize]> {
        inode.pages.borrow().get(&page).and_then(|page| page.units)
    }

    /// From this unit of a page on there are zeros until the daemon, which is behind this by the
    /// time that a notification takes, has had it dropped.
    pub(super) fn spoilt(&self, from: usize) -> Spoilt {
        let until = self.world.sched.now() + self.world.plan.notify_ns;
        Spoilt { from, until }
    }

    /// How many units of a page are what the daemon said.
    fn sound(&self, inode: &Inode, page: u64) -> usize {
        let pages = inode.pages.borrow();
        let spoilt = pages.get(&page).and_then(|page| page.spoilt);
        let spoilt = spoilt.filter(|spoilt| self.world.sched.now() <= spoilt.until);
        spoilt.map_or(PAGE_UNITS as usize, |spoilt| spoilt.from)
    }

    /// A load from a private mapping: one page, or nothing beyond the end of the file.
    pub(crate) async fn load(&self, handle: &Handle, page: u64) -> Result<Option<(Units, u64)>> {
        let inode = &handle.pin.inode;
        let since = self.since(inode);
        loop {
            if page * PAGE >= inode.size.get() {
                return Ok(None);
            }
            self.page(&handle.pin, page, page).await?;
            if page * PAGE >= inode.size.get() {
                return Ok(None);
            }
            if let Some(content) = self.content(inode, page) {
                let sound = self.sound(inode, page);
                return Ok(Some((content[..sound].to_vec(), since)));
            }
        }
    }

    /// Returns when the page has content, or had a moment ago; reads it, and absent ones that
    /// follow up to `last`, if it is absent.
    pub(super) async fn page(&self, pin: &Pin, page: u64, last: u64) -> Result<()> {
        let inode = &pin.inode;
        self.unlocked(inode, page).await;
        if inode.pages.borrow().contains_key(&page) {
            return Ok(());
        }
        let beyond = inode.size.get().div_ceil(PAGE).max(page + 1);
        let mut count = 0;
        while page + count <= last && page + count < beyond {
            if inode.pages.borrow().contains_key(&(page + count)) {
                break;
            }
            let locked = Page::new(None, 0);
            inode.pages.borrow_mut().insert(page + count, locked);
            count += 1;
        }
        let (fid, offset, len) = (pin.fid(), page * PAGE, (count * PAGE) as u32);
        let version = self.attr_version.get();
        // Read-ahead is digested when the answer is written, a plain read by its waiting caller.
        let late = self.world.rng.borrow_mut().chance(500);
        let call = Call::Read {
            fid,
            offset,
            len,
            pages: true,
        };
        let reply = self.ask_with(call, Units::new(), late).await;
        let read = matches!(reply.done, Done::Read { .. });
        let short = reply.units.len() as u64 * UNIT;
        let end = offset + short;
        let ignored = read && short < u64::from(len) && !self.saw_end(inode, end, version);
        for index in 0..count {
            let from = (index * PAGE_UNITS) as usize;
            let mut content = [0; PAGE_UNITS as usize];
            for (unit, &value) in content.iter_mut().zip(reply.units.iter().skip(from)) {
                *unit = value;
            }
            self.unlock(inode, page + index, read.then_some(content));
            let start = (page + index) * PAGE;
            if ignored && end < start + PAGE {
                let from = (end.max(start) - start) / UNIT;
                if let Some(page) = inode.pages.borrow_mut().get_mut(&(page + index)) {
                    page.spoilt = Some(self.spoilt(from as usize));
                }
            }
        }
        if read {
            Ok(())
        } else {
            refused(&self.world, &reply)
        }
    }

    /// The daemon gives bytes from the file's beginning (`fuse_notify_store`): whole pages, and the
    /// last one too if the file ends there. A longer file than the kernel knew has grown to that.
    pub(crate) fn store(&self, fid: wire::Fid, units: &Units) {
        let Some(inode) = self.inode(fid) else { return };
        let end = units.len() as u64 * UNIT;
        if end > inode.size.get() {
            self.bump(&inode);
            inode.size.set(end);
            inode.valid.set(false);
        }
        self.note(&inode, || format!("is given {end} bytes: {units:?}"));
        for (index, part) in (0..).zip(units.chunks(PAGE_UNITS as usize)) {
            let known = inode
                .pages
                .borrow()
                .get(&index)
                .map(|page| page.units.is_some());
            if known == Some(false) {
                let text = "the daemon waits for a page that is being read, maybe for itself";
                return self.world.fail(wrong!("{text}"));
            }
            let whole = part.len() as u64 == PAGE_UNITS || end == inode.size.get();
            if !whole && known.is_none() {
                continue;
            }
            let mut content = self.content(&inode, index).unwrap_or_default();
            content[..part.len()].copy_from_slice(part);
            let page = Page::new(Some(content), self.world.sched.now());
            inode.pages.borrow_mut().insert(index, page);
        }
    }

    /// A short read: the file ends earlier than the kernel thought, if nothing happened since. If
    /// something did, that is ignored: false.
    fn saw_end(&self, inode: &Inode, size: u64, version: u64) -> bool {
        let fresh = version >= inode.version.get() && !inode.unstable.get();
        self.note(inode, || {
            format!(
                "short read ends at {size} (had {}), fresh {fresh}",
                inode.size.get()
            )
        });
        if fresh && size < inode.size.get() {
            self.touch(inode);
            inode.size.set(size);
        }
        size >= inode.size.get()
    }

    fn unlock(&self, inode: &Inode, index: u64, content: Option<[u64; PAGE_UNITS as usize]>) {
        let waiters = {
            let mut pages = inode.pages.borrow_mut();
            let Some(page) = pages.get_mut(&index) else {
                return;
            };
            let waiters = std::mem::take(&mut page.waiters);
            self.note(inode, || format!("fills page {index} with {content:?}"));
            page.units = content;
            page.filled = self.world.sched.now();
            if content.is_none() {
                pages.remove(&index);
            }
            waiters
        };
        for waiter in waiters {
            waiter.set(());
        }
    }

    /// Waits until the page is not being read.
    pub(super) async fn unlocked(&self, inode: &Inode, index: u64) {
        loop {
            let signal = {
                let mut pages = inode.pages.borrow_mut();
                match pages.get_mut(&index) {
                    Some(page) if page.units.is_none() => {
                        let signal = Signal::new(&self.world.sched);
                        page.waiters.push(signal.clone());
                        signal
                    }
                    _ => return,
                }
            };
            signal.wait().await;
        }
    }

    /// Drops pages from the first to before the last, in order; waits for each that is being read,
    /// and writes back what was stored into it.
    pub(super) async fn drop_pages(&self, inode: &Inode, range: (u64, u64)) {
        self.take_pages(inode, range, true).await;
    }

    /// The same; stores into them are written back, or go with them.
    pub(super) async fn take_pages(
        &self,
        inode: &Inode,
        (first, upto): (u64, u64),
        write_back: bool,
    ) {
        let mut at = first;
        while at < upto {
            let next = inode
                .pages
                .borrow()
                .range(at..upto)
                .next()
                .map(|(index, _)| *index);
            let Some(index) = next else { return };
            self.unlocked(inode, index).await;
            self.settled(inode, index).await;
            let known = inode.pages.borrow().contains_key(&index);
            if known && self.content(inode, index).is_none() {
                // It has been dropped meanwhile, and is being read again.
                at = index;
                continue;
            }
            if write_back && self.is_unwritten(inode, index) {
                self.clean(inode, index).await;
                at = index;
                continue;
            }
            self.note(inode, || format!("drops page {index}"));
            inode.pages.borrow_mut().remove(&index);
            at = index + 1;
        }
    }

    /// write(2), always direct: how many units were written.
    pub(crate) async fn write(&self, handle: &Handle, offset: u64, units: Units) -> Result<u64> {
        let inode = &handle.pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        let _change = self.change(inode);
        let len = units.len() as u64 * UNIT;
        let (how, offset) = if handle.append {
            (How::Append, inode.size.get())
        } else {
            (How::Direct, offset)
        };
        let range = (offset / PAGE, (offset + len).div_ceil(PAGE));
        self.drop_pages(inode, range).await;
        let call = Call::Write {
            fid: inode.fid,
            offset,
            len: len as u32,
            how,
        };
        let reply = self.ask(call, units).await;
        // In every case (`fuse_write_update_attr`).
        self.touch(inode);
        inode.valid.set(false);
        let Done::Written { len } = reply.done else {
            return refused(&self.world, &reply);
        };
        let end = offset + u64::from(len);
        self.note(inode, || {
            format!("own write up to {end} (had {})", inode.size.get())
        });
        inode.size.set(inode.size.get().max(end));
        Ok(u64::from(len) / UNIT)
    }

    /// fsync(2).
    pub(crate) async fn sync(&self, handle: &Handle) -> Result<()> {
        let inode = &handle.pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        self.clean_range(inode, (0, u64::MAX)).await;
        let (fid, number) = (inode.fid, handle.number);
        let owed = self.descriptors.is_owed(number);
        let call = Call::Sync {
            fid,
            handle: Some(number),
        };
        let reply = self.ask(call, Units::new()).await;
        self.fsync_answered((fid, number), owed, &reply.done);
        match reply.done {
            Done::Nothing => Ok(()),
            Done::Refused(Refusal::Quota | Refusal::NoSpace) if self.world.plan.keeps_room() => {
                self.world
                    .fail(wrong!("fsync finds no room for what was written"));
                Err(Refusal::Quota)
            }
            _ => refused(&self.world, &reply),
        }
    }
}

impl Handle {
    pub(crate) fn may(&self, access: Access) -> bool {
        (self.access.read || !access.read) && (self.access.write || !access.write)
    }
}
