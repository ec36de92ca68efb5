//! fallocate(2) and copy_file_range(2): the file that is changed is locked, and its pages are
//! dropped or made zeros behind the answer.

use super::{Handle, Inode, Kernel, PAGE, Result, refused};
use crate::disk::{UNIT, Units};
use logic::client::{Call, Done};
use wire::{Op, Time};

/// A range of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Kernel {
    pub(crate) async fn allocate(
        &self,
        handle: &Handle,
        range: Range,
        how: (bool, bool),
    ) -> Result<()> {
        let inode = &handle.pin.inode;
        self.begin_edit(inode);
        let result = self.allocate_alone(handle, range, how).await;
        self.end_edit(inode);
        result
    }

    async fn allocate_alone(
        &self,
        handle: &Handle,
        Range { offset, len }: Range,
        (zero, keep_size): (bool, bool),
    ) -> Result<()> {
        let inode = &handle.pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        let _change = self.change(inode);
        if zero {
            let range = (offset / PAGE, (offset + len).div_ceil(PAGE));
            self.clean_range(inode, range).await;
        }
        inode.unstable.set(!keep_size);
        let op = Op::Allocate {
            fid: inode.fid,
            offset,
            len,
            zero,
            keep_size,
        };
        let asked = self.world.sched.now();
        let reply = self.ask(Call::Op(op), Units::new()).await;
        if !matches!(reply.done, Done::Nothing) {
            inode.unstable.set(false);
            return refused(&self.world, &reply);
        }
        if !keep_size {
            self.lengthened(inode, offset + len);
        }
        if zero {
            self.zero_pages(inode, (offset, offset + len), asked).await;
        }
        inode.valid.set(false);
        inode.unstable.set(false);
        Ok(())
    }

    /// How many units were copied.
    pub(crate) async fn copy(
        &self,
        from: (&Handle, Range),
        (target, offset): (&Handle, u64),
    ) -> Result<u64> {
        let inode = &target.pin.inode;
        self.begin_edit(inode);
        let result = self.copy_alone(from, (target, offset)).await;
        self.end_edit(inode);
        result
    }

    async fn copy_alone(
        &self,
        (source, Range { offset: at, len }): (&Handle, Range),
        (target, offset): (&Handle, u64),
    ) -> Result<u64> {
        {
            let inode = &source.pin.inode;
            let _alone = inode.lock.lock(&self.world.sched, true).await;
            let range = (at / PAGE, (at + len).div_ceil(PAGE));
            self.clean_range(inode, range).await;
        }
        let inode = &target.pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        let range = (offset / PAGE, (offset + len).div_ceil(PAGE));
        self.clean_range(inode, range).await;
        let _change = self.change(inode);
        inode.unstable.set(offset + len > inode.size.get());
        let op = Op::Copy {
            from: source.pin.fid(),
            at,
            to: inode.fid,
            offset,
            len: len as u32,
        };
        let reply = self.ask(Call::Op(op), Units::new()).await;
        let Done::Written { len } = reply.done else {
            inode.unstable.set(false);
            return refused(&self.world, &reply);
        };
        let end = offset + u64::from(len);
        self.take_pages(inode, (offset / PAGE, end.div_ceil(PAGE)), false)
            .await;
        // Where nothing was copied it says nothing of the end (`fuse_write_update_attr`).
        match len {
            0 => self.touch(inode),
            _ => self.lengthened(inode, end),
        }
        inode.valid.set(false);
        inode.unstable.set(false);
        Ok(u64::from(len) / UNIT)
    }

    /// An own change reaches up to there: the kernel takes the file for at least as long.
    fn lengthened(&self, inode: &Inode, end: u64) {
        self.touch(inode);
        self.note(inode, || {
            format!("own change up to {end} (had {})", inode.size.get())
        });
        inode.size.set(inode.size.get().max(end));
    }

    /// Drops the pages of a range; of those that are in it in part, that part becomes zeros: also
    /// of those read since the daemon was asked, though they have newer bytes.
    async fn zero_pages(&self, inode: &Inode, (from, to): (u64, u64), asked: Time) {
        let (first, last) = (from.div_ceil(PAGE), to / PAGE);
        if first < last {
            self.take_pages(inode, (first, last), false).await;
        }
        for page in [from / PAGE, to / PAGE] {
            let start = page * PAGE;
            let (begin, end) = (from.max(start), to.min(start + PAGE));
            if (page >= first && page < last) || begin >= end {
                continue;
            }
            self.unlocked(inode, page).await;
            self.settled(inode, page).await;
            let first = ((begin - start) / UNIT) as usize;
            let mut pages = inode.pages.borrow_mut();
            let Some(page) = pages.get_mut(&page) else {
                continue;
            };
            if let Some(units) = &mut page.units {
                units[first..((end - start) / UNIT) as usize].fill(0);
                if page.filled >= asked {
                    page.spoilt = Some(self.spoilt(first));
                }
            }
        }
    }
}
