//! Shared mappings: stores, of which nobody is told, and the write-back of pages that have some.
//!
//! Linux writes a dirty page back some time after it was stored into, or when somebody needs it to
//! be clean: fsync(2), a direct read or write of it, its dropping, the last unmapping. While a
//! change of the size is under way no write-back leaves (`fuse_set_nowrite`), and that change waits
//! for those that have left before.

use super::{Handle, Inode, Kernel, PAGE, PAGE_UNITS, Result};
use crate::coverage::Rare;
use crate::disk::{UNIT, Units};
use crate::exec::Signal;
use logic::client::{Call, Done, How};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::Refusal;

/// Where the write-back of a file stands.
#[derive(Default)]
pub(super) struct WriteBack {
    /// It is held off.
    held: Cell<bool>,
    /// Writes that have left and are not answered.
    under_way: Cell<u32>,
    waiters: RefCell<Vec<Signal<()>>>,
    /// Calls under way that make bytes zeros, or copy some. Behind them the kernel drops whole
    /// pages (`truncate_inode_pages_range`), with what was stored into the rest of them: here
    /// programs do not do both at once.
    edits: Cell<u32>,
}

impl WriteBack {
    fn wake(&self) {
        for waiter in self.waiters.take() {
            waiter.set(());
        }
    }
}

impl Kernel {
    /// Waits until something about the file's write-back has changed.
    async fn write_back_moves(&self, inode: &Inode) {
        let signal = Signal::new(&self.world.sched);
        inode.write_back.waiters.borrow_mut().push(signal.clone());
        signal.wait().await;
    }

    /// From now on no write-back leaves, and none is under way.
    pub(super) async fn hold_write_back(&self, inode: &Inode) {
        inode.write_back.held.set(true);
        while inode.write_back.under_way.get() > 0 {
            self.write_back_moves(inode).await;
        }
    }

    pub(super) fn release_write_back(&self, inode: &Inode) {
        inode.write_back.held.set(false);
        inode.write_back.wake();
    }

    /// A call begins behind which pages are dropped whole.
    pub(super) fn begin_edit(&self, inode: &Inode) {
        inode.write_back.edits.set(inode.write_back.edits.get() + 1);
    }

    pub(super) fn end_edit(&self, inode: &Inode) {
        inode.write_back.edits.set(inode.write_back.edits.get() - 1);
        inode.write_back.wake();
    }

    /// Is the page dirty, or under write-back?
    pub(super) fn is_unwritten(&self, inode: &Inode, index: u64) -> bool {
        let pages = inode.pages.borrow();
        pages
            .get(&index)
            .is_some_and(|page| page.dirty || page.writing)
    }

    /// Waits until a page is not under write-back.
    pub(super) async fn settled(&self, inode: &Inode, index: u64) {
        let writing = || {
            let pages = inode.pages.borrow();
            pages.get(&index).is_some_and(|page| page.writing)
        };
        while writing() {
            self.write_back_moves(inode).await;
        }
    }

    /// Writes a page back if it is dirty, and waits until it is not under write-back.
    pub(super) async fn clean(&self, inode: &Inode, index: u64) {
        self.settled(inode, index).await;
        {
            let mut pages = inode.pages.borrow_mut();
            match pages.get_mut(&index) {
                Some(page) if page.dirty => (page.dirty, page.writing) = (false, true),
                _ => return,
            }
        }
        if inode.write_back.held.get() {
            self.world.meet(Rare::HeldWriteBack.bit());
        }
        while inode.write_back.held.get() {
            self.write_back_moves(inode).await;
        }
        self.write_page(inode, index).await;
        if let Some(page) = inode.pages.borrow_mut().get_mut(&index) {
            page.writing = false;
        }
        inode.write_back.wake();
    }

    async fn write_page(&self, inode: &Inode, index: u64) {
        let offset = index * PAGE;
        let len = inode.size.get().saturating_sub(offset).min(PAGE);
        let Some(content) = self.content(inode, index).filter(|_| len > 0) else {
            return; // it lies behind the end by now
        };
        let units: Units = content[..(len / UNIT) as usize].to_vec();
        let call = Call::Write {
            fid: inode.fid,
            offset,
            len: len as u32,
            how: How::Paged,
        };
        self.note(inode, || format!("writes page {index} back: {units:?}"));
        let under_way = &inode.write_back.under_way;
        under_way.set(under_way.get() + 1);
        let reply = self.ask(call, units).await;
        under_way.set(under_way.get() - 1);
        inode.write_back.wake();
        // The times may have changed (`fuse_writepage_end`).
        inode.valid.set(false);
        match reply.done {
            Done::Written { .. } => self.world.meet(Rare::StoreWritten.bit()),
            // It is lost with the session, and the daemon has said so. The kernel tells each
            // descriptor by itself (`mapping_set_error`, `file_check_and_advance_wb_err`).
            Done::Refused(Refusal::SessionLost) => self.descriptors.told_by_kernel(inode.fid),
            _ => drop(super::refused::<()>(&self.world, &reply)),
        }
    }

    /// Writes back the pages from the first to before the last.
    pub(super) async fn clean_range(&self, inode: &Inode, (first, upto): (u64, u64)) {
        let unwritten: Vec<u64> = {
            let pages = inode.pages.borrow();
            let range = pages.range(first..upto.max(first));
            let unwritten = range.filter(|(_, page)| page.dirty || page.writing);
            unwritten.map(|(index, _)| *index).collect()
        };
        for index in unwritten {
            self.clean(inode, index).await;
        }
    }

    /// A store through a shared mapping; false: not done, since the page lies behind the end of the
    /// file, or what would be stored into does.
    pub(crate) async fn store_into(
        self: &Rc<Self>,
        handle: &Handle,
        unit: u64,
        value: u64,
    ) -> Result<bool> {
        let inode = &handle.pin.inode;
        let (index, at) = (unit / PAGE_UNITS, (unit % PAGE_UNITS) as usize);
        loop {
            if unit * UNIT >= inode.size.get() {
                return Ok(false);
            }
            self.page(&handle.pin, index, index).await?;
            self.settled(inode, index).await;
            if inode.write_back.edits.get() > 0 {
                self.write_back_moves(inode).await;
                continue;
            }
            if unit * UNIT >= inode.size.get() {
                return Ok(false);
            }
            let mut pages = inode.pages.borrow_mut();
            let Some(page) = pages.get_mut(&index) else {
                continue;
            };
            let Some(units) = page.units.as_mut() else {
                continue;
            };
            if page.spoilt.is_some_and(|spoilt| spoilt.from <= at) {
                return Ok(false);
            }
            units[at] = value;
            let clean = !std::mem::replace(&mut page.dirty, true);
            drop(pages);
            self.note(inode, || format!("{value} is stored into unit {unit}"));
            if clean {
                self.write_later(handle, index);
            }
            return Ok(true);
        }
    }

    /// A page that became dirty is written back by and by.
    fn write_later(self: &Rc<Self>, handle: &Handle, index: u64) {
        let (kernel, inode) = (Rc::clone(self), Rc::clone(&handle.pin.inode));
        let delay = self.world.rng.borrow_mut().below(self.world.plan.press_ns);
        self.world.sched.spawn(self.host(), async move {
            kernel.world.sched.sleep(delay).await;
            kernel.clean(&inode, index).await;
        });
    }
}
