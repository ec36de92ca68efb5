//! Attributes: which answers are kept, and what a stat returns.

use super::{Inode, Kernel, PAGE, Pin, Result, refused};
use crate::disk::UNIT;
use logic::client::{Call, Done, Lifetime};
use std::rc::Rc;
use wire::{Attr, Fid, Kind, Op, Set, Time};

/// How long a recall waits for an answer about attributes that is under way.
const PATIENCE_NS: u64 = 5_000_000;

/// When a request began: an answer is kept only if nothing happened since.
#[derive(Clone, Copy)]
pub(super) struct Began {
    version: u64,
    evictions: u64,
    time: Time,
}

impl Began {
    /// For answers that are kept whatever happened: to CREATE, MKDIR, LINK and SETATTR.
    pub(super) const ANYWAY: Self = Self {
        version: 0,
        evictions: 0,
        time: 0,
    };
}

/// A change that is under way until this is dropped.
pub(super) struct Changing {
    inode: Rc<Inode>,
    moment: u64,
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.inode
            .changing
            .borrow_mut()
            .retain(|moment| *moment != self.moment);
    }
}

impl Kernel {
    pub(super) fn began(&self) -> Began {
        Began {
            version: self.attr_version.get(),
            evictions: self.evictions.get(),
            time: self.world.sched.now(),
        }
    }

    /// The inode of an answer, with one more reference; made if it is not known.
    pub(super) async fn iget(
        self: &Rc<Self>,
        fid: Fid,
        (attr, lifetime): (&Attr, Lifetime),
        began: Began,
    ) -> Pin {
        let forever = lifetime == Lifetime::Forever;
        let (pin, new) = match self.inode(fid) {
            Some(inode) => (self.pin(&inode), false),
            None => (self.pin(&self.new_inode(fid, attr.clone())), true),
        };
        let inode = &pin.inode;
        inode.lookups.set(inode.lookups.get() + 1);
        if new {
            let kept = began.version == 0 || began.evictions == self.evictions.get();
            self.bump(inode);
            inode.valid.set(forever && kept);
        } else {
            self.keep_attr(inode, (attr, forever), began).await;
        }
        pin
    }

    /// Keeps the attributes of an answer, unless something happened since it was asked for.
    pub(super) async fn keep_attr(
        &self,
        inode: &Inode,
        (attr, forever): (&Attr, bool),
        began: Began,
    ) -> bool {
        let overtaken = began.version != 0 && inode.version.get() > began.version;
        let lost = overtaken || inode.unstable.get();
        self.note(inode, || {
            let word = if lost { "throws away" } else { "takes" };
            format!(
                "{word} size {} (had {}), forever {forever}",
                attr.size,
                inode.size.get()
            )
        });
        if lost {
            return false;
        }
        self.touch(inode);
        *inode.attr.borrow_mut() = attr.clone();
        inode.valid.set(forever);
        inode.taken.set((self.world.sched.now(), began.time));
        let old = inode.size.replace(attr.size);
        if inode.kind == Kind::File && old != attr.size {
            self.truncate_pages(inode, attr.size).await;
        }
        true
    }

    /// Drops the pages beyond the end; waits for those that are being read.
    pub(super) async fn truncate_pages(&self, inode: &Inode, size: u64) {
        self.take_pages(inode, (size.div_ceil(PAGE), u64::MAX), false)
            .await;
        let partial = size % PAGE;
        if partial != 0 {
            let reading = self.content(inode, size / PAGE).is_none();
            self.unlocked(inode, size / PAGE).await;
            self.settled(inode, size / PAGE).await;
            self.note(inode, || {
                format!("zeros page {} from {partial}", size / PAGE)
            });
            if let Some(page) = inode.pages.borrow_mut().get_mut(&(size / PAGE))
                && let Some(units) = &mut page.units
            {
                let from = (partial / UNIT) as usize;
                units[from..].fill(0);
                if reading {
                    page.spoilt = Some(self.spoilt(from));
                }
            }
        }
    }

    /// A file was cut to the size that the kernel knew, which was not its size any more: no page is
    /// cut (`fuse_do_setattr`), though one may have come with bytes behind that. A mapping shows
    /// them until the daemon has had the page dropped.
    fn keep_tail(&self, inode: &Inode, size: u64) {
        let from = (size % PAGE / UNIT) as usize;
        let mut pages = inode.pages.borrow_mut();
        let Some(page) = pages.get_mut(&(size / PAGE)) else {
            return;
        };
        let tail = page.units.as_ref().map(|units| &units[from..]);
        if tail.is_some_and(|tail| tail.iter().any(|unit| *unit != 0)) {
            page.spoilt = Some(self.spoilt(from));
        }
    }

    /// fstat(2), and stat(2) once the name is found; and since when that may have been so. The
    /// kernel's own attributes are from before the changes of this machine that have not returned.
    pub(crate) async fn getattr(&self, pin: &Pin) -> Result<(Attr, u64)> {
        let inode = &pin.inode;
        if inode.valid.get() {
            let mut attr = inode.attr.borrow().clone();
            attr.size = inode.size.get();
            return Ok((attr, self.since(inode)));
        }
        Ok((self.ask_attr(inode, false).await?.0, u64::MAX))
    }

    /// When the first change of this machine began that has not returned. The kernel's cache may be
    /// older than that, while others are shown the change by the daemon.
    pub(super) fn since(&self, inode: &Inode) -> u64 {
        inode
            .changing
            .borrow()
            .iter()
            .min()
            .copied()
            .unwrap_or(u64::MAX)
    }

    /// A change of this machine begins; what is returned ends it.
    pub(super) fn change(&self, inode: &Rc<Inode>) -> Changing {
        let moment = self.world.sched.moment();
        inode.changing.borrow_mut().push(moment);
        Changing {
            inode: Rc::clone(inode),
            moment,
        }
    }

    /// Asks for attributes; also whether the answer was thrown away in a way that nobody can help:
    /// since this machine itself did something to the file meanwhile, since a notification was on
    /// its way before the daemon heard the question or dropped some pages behind a read, or since
    /// the answer took so long that a recall could not wait for it. Then what the kernel knows may
    /// be older than the question. For a read the front first tells of the size in a way that is
    /// not thrown away: then what is known is at least not too small.
    pub(super) async fn ask_attr(&self, inode: &Inode, for_read: bool) -> Result<(Attr, bool)> {
        let began = self.began();
        let since = self.world.sched.now();
        let fid = inode.fid;
        let call = if for_read {
            Call::Seek { fid }
        } else {
            Call::Op(Op::GetAttr { fid })
        };
        let reply = self.ask(call, Vec::new()).await;
        let Done::Attr { attr, lifetime } = &reply.done else {
            return refused(&self.world, &reply);
        };
        if for_read && attr.size > inode.size.get() {
            self.touch(inode);
            inode.size.set(attr.size);
            inode.valid.set(false);
        }
        let own = inode.touched.get() > began.version || inode.unstable.get();
        let slow = self.world.sched.now() - since > PATIENCE_NS;
        let crossed = inode.notified.get() <= since + 3 * self.world.plan.kernel_ns
            || inode.patched.get() >= since;
        let forever = *lifetime == Lifetime::Forever;
        let kept = self.keep_attr(inode, (attr, forever), began).await;
        Ok((attr.clone(), !kept && (own || slow || crossed)))
    }

    /// truncate(2) and chmod(2). The attributes of the answer are used and asked for again.
    pub(crate) async fn setattr(&self, pin: &Pin, set: Set) -> Result<Attr> {
        let inode = &pin.inode;
        let _alone = inode.lock.lock(&self.world.sched, true).await;
        let _change = self.change(inode);
        let truncates = set.size.is_some();
        if truncates {
            self.hold_write_back(inode).await;
            inode.unstable.set(true);
        }
        let reply = self
            .ask(
                Call::Op(Op::SetAttr {
                    fid: inode.fid,
                    set,
                }),
                Vec::new(),
            )
            .await;
        let Done::Attr { attr, .. } = &reply.done else {
            inode.unstable.set(false);
            if truncates {
                self.release_write_back(inode);
            }
            return refused(&self.world, &reply);
        };
        self.touch(inode);
        self.note(inode, || {
            format!(
                "setattr takes size {} (had {})",
                attr.size,
                inode.size.get()
            )
        });
        *inode.attr.borrow_mut() = attr.clone();
        inode.valid.set(false);
        let old = inode.size.replace(attr.size);
        if truncates {
            self.release_write_back(inode);
        }
        if inode.kind == Kind::File && old != attr.size {
            self.truncate_pages(inode, attr.size).await;
            self.drop_pages(inode, (0, u64::MAX)).await;
        } else if truncates {
            self.keep_tail(inode, attr.size);
        }
        if truncates {
            inode.unstable.set(false);
        }
        Ok(attr.clone())
    }
}
