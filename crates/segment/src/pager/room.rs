//! One segment's memory, as the pager has it, and the thread that reads its faults.
//!
//! Guarantees: the memory is there as long as a job works on it, also when the segment is gone.

use super::Shared;
use crate::error::{Error, Result};
use crate::memory;
use crate::store::Backing;
use crate::talk::{self, order};
use crate::uffd::{Fault, PAGE, Uffd};
use logic::pages::{Input, PageNo, Run, SegmentId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Faults in a row of one thread, after which a program counts as one of a single thread.
const ALONE: u32 = 8;

/// Where a program has the segment, and how it is reached.
struct Attached {
    uffd: Uffd,
    address: usize,
    orders: Arc<OwnedFd>,
}

pub(super) struct Room {
    pub(super) id: SegmentId,
    pub(super) pages: u32,
    /// The process that made it, for people.
    pub(super) process: u32,
    pub(super) file: OwnedFd,
    attached: OnceLock<Attached>,
    stop: OwnedFd,
}

fn at(page: PageNo) -> usize {
    page as usize * PAGE
}

impl Room {
    pub(super) fn new(id: SegmentId, pages: u32, process: u32) -> Result<Self> {
        let file = memory::file(at(pages))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::Kernel)?;
        Ok(Self {
            id,
            pages,
            process,
            file,
            attached: OnceLock::new(),
            stop,
        })
    }

    /// A program has mapped the segment.
    pub(super) fn attach(&self, uffd: Uffd, address: usize, orders: Arc<OwnedFd>) -> bool {
        let attached = Attached {
            uffd,
            address,
            orders,
        };
        self.attached.set(attached).is_ok()
    }

    /// The program's copy of the descriptor of its faults is to be kept by it.
    pub(super) fn keep(&self) {
        if let Some(attached) = self.attached.get() {
            let words = [order::KEEP, u64::from(self.id), 0, 0, 0, 0, 0, 0];
            // A program that is gone keeps nothing.
            let _ = talk::send(&attached.orders, &words, &[attached.uffd.as_fd()], true);
        }
    }

    /// The segment is gone: its thread ends.
    pub(super) fn stop(&self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        self.order(order::RELEASE, u64::from(self.id), 0);
    }

    /// The program has to end.
    pub(super) fn end_program(&self) {
        if let Some(attached) = self.attached.get() {
            let words = [order::END, 0, 0, 0, 0, 0, 0, 0];
            // A program that does not take orders, since it is stopped, must not stop the pager:
            // it ends as at the pager's end, when it goes on.
            if talk::send(&attached.orders, &words, &[], false).is_err() {
                let _ = rustix::net::shutdown(&*attached.orders, Shutdown::Both);
            }
        }
    }

    fn order(&self, order: u64, first: u64, second: u64) {
        if let Some(attached) = self.attached.get() {
            let words = [order, first, second, 0, 0, 0, 0, 0];
            // One that is lost costs an optimisation: the page is taken for unused, or a
            // descriptor is kept longer.
            let _ = talk::send(&attached.orders, &words, &[], false);
        }
    }

    pub(super) fn unmap(&self, run: Run) {
        if let Some(attached) = self.attached.get() {
            let address = attached.address + at(run.page);
            self.order(order::UNMAP, address as u64, at(run.count) as u64);
        }
    }

    pub(super) fn zero(&self, run: Run) -> Result<()> {
        memory::allocate(&self.file, at(run.page), at(run.count))
    }

    /// Zeros that are mapped at once, to be written.
    pub(super) fn zero_mapped(&self, run: Run) -> Result<()> {
        match self.attached.get() {
            Some(attached) => {
                let address = attached.address + at(run.page);
                attached.uffd.zero(address, at(run.count))
            }
            None => self.zero(run),
        }
    }

    pub(super) fn copy_from(&self, from: &Self, run: Run) -> Result<()> {
        memory::copy(&from.file, &self.file, at(run.page), at(run.count))
    }

    pub(super) fn map(&self, run: Run, writable: bool) -> Result<()> {
        let Some(attached) = self.attached.get() else {
            return Ok(());
        };
        let address = attached.address + at(run.page);
        attached.uffd.map(address, at(run.count), writable)
    }

    pub(super) fn protect(&self, run: Run, protected: bool) -> Result<()> {
        let Some(attached) = self.attached.get() else {
            return Ok(());
        };
        let address = attached.address + at(run.page);
        attached.uffd.protect(address, at(run.count), protected)
    }

    pub(super) fn drop_frames(&self, run: Run) -> Result<()> {
        memory::punch(&self.file, at(run.page), at(run.count))
    }

    /// Makes frames and fills them; no program maps them yet.
    pub(super) fn read(&self, run: Run, file: &dyn Backing) -> Result<()> {
        let mut offset = at(run.page);
        file.read(offset as u64, at(run.count), &mut |parts| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            memory::write(&self.file, parts, offset)?;
            offset += len;
            Ok(())
        })
    }

    /// Writes frames, which the program may have begun to change again: then they are dirty, and
    /// what was written is not used.
    pub(super) fn write(&self, run: Run, file: &dyn Backing) -> Result<()> {
        let offset = at(run.page);
        let mut buffer = vec![0; at(run.count)];
        memory::read(&self.file, &mut buffer, offset)?;
        file.write(&buffer, offset as u64)
    }

    /// Reads faults and has them served, until the segment or its program is gone.
    pub(super) fn serve(&self, shared: &Shared) {
        let attached = self
            .attached
            .get()
            .expect("it is attached before it is served");
        let mut faults = Vec::new();
        let (mut last, mut alone) = (0, ALONE);
        loop {
            let waited = poll(
                &mut [
                    PollFd::new(&attached.uffd, PollFlags::IN),
                    PollFd::new(&self.stop, PollFlags::IN),
                ],
                None,
            );
            if self.is_stopped() {
                return;
            }
            if waited.is_ok() && attached.uffd.read(&mut faults).is_err() {
                // Its memory is gone, and with it everything that could wait.
                return;
            }
            for fault in faults.drain(..) {
                alone = if fault.thread == last { alone + 1 } else { 0 };
                last = fault.thread;
                self.serve_one(shared, attached, fault, alone >= ALONE);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
        let none = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut stop, Some(&none)) == Ok(1)
    }

    fn serve_one(&self, shared: &Shared, attached: &Attached, fault: Fault, inline: bool) {
        let offset = fault.address.wrapping_sub(attached.address as u64);
        let page = offset / PAGE as u64;
        if page >= u64::from(self.pages) {
            return;
        }
        let input = Input::Fault {
            segment: self.id,
            page: page as PageNo,
            write: fault.write,
        };
        if let Some(work) = shared.tell(input, inline) {
            shared.finish(work);
        }
    }
}
