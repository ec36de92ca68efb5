//! A model of the kernel of one machine: what Linux 6.18 caches of a FUSE mount, when it asks, and
//! what it waits for.
//!
//! It is as exact as the questions asked of it need: names with lifetimes and the epoch of all
//! names; attributes with the rule that an answer begun before a change or a notification is not
//! kept; pages that are locked while they are read, and notifications that wait for such locks; the
//! directory's lock around look-ups and changes; direct writes that drop their own pages before
//! they are sent, and never after; stores through shared mappings, written back later, but not
//! while the size is changed; forgetting under memory pressure. An answer is digested some time
//! after it was written, so that a notification written later may be digested earlier.

mod attrs;
mod change;
mod descriptors;
mod file;
mod labels;
mod listing;
mod mapped;
mod moves;
mod names;
mod notify;
mod ranges;

use crate::disk::Units;
use crate::exec::{Lock, Signal};
use crate::room::{Reply, Room};
use crate::world::World;
use crate::wrong::wrong;
use listing::Rdc;
use logic::client::{Call, Done, Input};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::{Access, Attr, Fid, Kind, Name, Refusal, Time};

pub(crate) use file::Bytes;
pub(crate) use labels::{LABEL, label_of};
pub(crate) use moves::Renamed;
pub(crate) use ranges::Range;

/// Units of a page.
pub(crate) const PAGE_UNITS: u64 = 8;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// The result of a system call.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// The kernel's knowledge of a name.
struct Dentry {
    id: u64,
    target: Option<Fid>,
    /// Its lifetime has not ended.
    valid: bool,
    epoch: u64,
}

/// The kernel's knowledge of an object.
pub(crate) struct Inode {
    pub(crate) fid: Fid,
    pub(crate) kind: Kind,
    lookups: Cell<u64>,
    /// System calls and open files that use it.
    pins: Cell<u32>,
    /// Names that the kernel knows of it.
    names: Cell<u32>,
    attr: RefCell<Attr>,
    valid: Cell<bool>,
    version: Cell<u64>,
    /// The version when something of this machine last changed the attributes.
    touched: Cell<u64>,
    /// When attributes were taken in last, and when they had been asked for.
    taken: Cell<(Time, Time)>,
    /// When the daemon asked for the last notification.
    notified: Cell<Time>,
    /// The same of those that dropped some pages only, behind a read or a write.
    patched: Cell<Time>,
    size: Cell<u64>,
    /// When the changes of this machine began that are under way.
    changing: RefCell<Vec<u64>>,
    /// A change of the size is under way: answers about attributes are not kept.
    unstable: Cell<bool>,
    pages: RefCell<BTreeMap<u64, Page>>,
    write_back: mapped::WriteBack,
    lock: Rc<Lock>,
    iversion: Cell<u64>,
    rdc: RefCell<Rdc>,
}

/// A page of the page cache; locked while it has no content.
struct Page {
    units: Option<[u64; PAGE_UNITS as usize]>,
    waiters: Vec<Signal<()>>,
    /// When it was read.
    filled: Time,
    /// For how much of it nobody is to blame.
    spoilt: Option<Spoilt>,
    /// Something was stored into it, and it was not written back since; it is being written back.
    dirty: bool,
    writing: bool,
}

impl Page {
    /// A page that is being read, or with this content.
    fn new(units: Option<[u64; PAGE_UNITS as usize]>, filled: Time) -> Self {
        Self {
            units,
            waiters: Vec::new(),
            filled,
            spoilt: None,
            dirty: false,
            writing: false,
        }
    }
}

/// From this unit on the kernel has put zeros into a page without a right to, as it does to any
/// FUSE file system: the daemon can do no more than make it drop the page at once.
#[derive(Clone, Copy)]
struct Spoilt {
    from: usize,
    until: Time,
}

/// Keeps an inode in memory.
pub(crate) struct Pin {
    kernel: Rc<Kernel>,
    pub(crate) inode: Rc<Inode>,
}

/// An open file.
pub(crate) struct Handle {
    pub(crate) pin: Pin,
    pub(crate) access: Access,
    pub(crate) append: bool,
    cached: bool,
    /// Tells it apart from all that were ever open on this machine.
    pub(crate) number: u64,
}

/// The kernel of one machine.
pub(crate) struct Kernel {
    pub(crate) world: Rc<World>,
    room: Rc<Room>,
    root: Fid,
    epoch: Cell<u64>,
    attr_version: Cell<u64>,
    evictions: Cell<u64>,
    last_dentry: Cell<u64>,
    last_handle: Cell<u64>,
    descriptors: descriptors::Descriptors,
    dentries: RefCell<BTreeMap<(Fid, Name), Dentry>>,
    inodes: RefCell<BTreeMap<Fid, Rc<Inode>>>,
    /// Look-ups of one name wait for each other.
    looking: RefCell<BTreeMap<(Fid, Name), Rc<Lock>>>,
    /// Renames between directories wait for each other.
    renaming: Rc<Lock>,
    /// Which directory each directory is in, also where no name says so any more.
    parents: RefCell<BTreeMap<Fid, Fid>>,
}

impl Kernel {
    /// The kernel of a machine at the moment of the mount.
    pub(crate) fn new(world: &Rc<World>, room: &Rc<Room>, root: Fid, attr: Attr) -> Rc<Self> {
        let kernel = Rc::new(Self {
            world: Rc::clone(world),
            room: Rc::clone(room),
            root,
            epoch: Cell::new(1),
            attr_version: Cell::new(1),
            evictions: Cell::new(1),
            last_dentry: Cell::new(0),
            last_handle: Cell::new(0),
            descriptors: descriptors::Descriptors::default(),
            dentries: RefCell::default(),
            inodes: RefCell::default(),
            looking: RefCell::default(),
            renaming: Rc::default(),
            parents: RefCell::default(),
        });
        let inode = kernel.new_inode(root, attr);
        inode.valid.set(false);
        inode.pins.set(1);
        kernel
    }

    fn host(&self) -> u32 {
        self.room.host
    }

    /// Asks the daemon and digests the answer after a while.
    async fn ask(&self, call: Call, units: Units) -> Reply {
        self.ask_with(call, units, true).await
    }

    async fn ask_with(&self, call: Call, units: Units, late: bool) -> Reply {
        let world = &self.world;
        let delay = world.plan.kernel_delay(&mut world.rng.borrow_mut());
        world.sched.sleep(delay).await;
        let answer = self.room.call(world, call, units, late);
        let signal = world.plan.signal(&mut world.rng.borrow_mut());
        if let Some((after, ends)) = signal {
            self.room.signal_later(world, after, ends);
        }
        answer.wait().await
    }

    fn new_inode(&self, fid: Fid, attr: Attr) -> Rc<Inode> {
        let inode = Rc::new(Inode {
            fid,
            kind: attr.kind,
            lookups: Cell::new(0),
            pins: Cell::new(0),
            names: Cell::new(0),
            valid: Cell::new(false),
            version: Cell::new(0),
            touched: Cell::new(0),
            taken: Cell::new((0, 0)),
            notified: Cell::new(0),
            patched: Cell::new(0),
            size: Cell::new(attr.size),
            attr: RefCell::new(attr),
            changing: RefCell::default(),
            unstable: Cell::new(false),
            pages: RefCell::default(),
            write_back: mapped::WriteBack::default(),
            lock: Rc::default(),
            iversion: Cell::new(1),
            rdc: RefCell::default(),
        });
        self.inodes.borrow_mut().insert(fid, Rc::clone(&inode));
        inode
    }

    fn next_handle(&self) -> u64 {
        self.last_handle.set(self.last_handle.get() + 1);
        self.last_handle.get()
    }

    fn inode(&self, fid: Fid) -> Option<Rc<Inode>> {
        self.inodes.borrow().get(&fid).cloned()
    }

    fn pin(self: &Rc<Self>, inode: &Rc<Inode>) -> Pin {
        inode.pins.set(inode.pins.get() + 1);
        Pin {
            kernel: Rc::clone(self),
            inode: Rc::clone(inode),
        }
    }

    /// The root directory.
    pub(crate) fn root(self: &Rc<Self>) -> Pin {
        let inode = self.inode(self.root).expect("the root is never forgotten");
        self.pin(&inode)
    }

    /// Lets go of an object that nothing uses any more.
    fn evict_if_unused(&self, fid: Fid) {
        let Some(inode) = self.inode(fid) else { return };
        let used = inode.pins.get() > 0 || inode.names.get() > 0;
        // A directory stays as long as one that is in it.
        if used || self.parents.borrow().values().any(|above| *above == fid) {
            return;
        }
        self.drop_children(fid);
        self.inodes.borrow_mut().remove(&fid);
        self.evictions.set(self.evictions.get() + 1);
        self.forget(fid, inode.lookups.get());
        let above = self.parents.borrow_mut().remove(&fid);
        if let Some(above) = above {
            self.evict_if_unused(above);
        }
    }

    fn forget(&self, fid: Fid, count: u64) {
        if count == 0 {
            return;
        }
        let world = Rc::clone(&self.world);
        let room = Rc::clone(&self.room);
        let delay = world.plan.kernel_delay(&mut world.rng.borrow_mut());
        self.world.sched.at(world.sched.now() + delay, move || {
            room.input(&world, Input::Forget { fid, count }, Vec::new());
        });
    }

    fn bump(&self, inode: &Inode) {
        self.attr_version.set(self.attr_version.get() + 1);
        inode.version.set(self.attr_version.get());
    }

    /// A line of the trace about what the kernel makes of a file.
    fn note(&self, inode: &Inode, text: impl FnOnce() -> String) {
        let (world, file) = (&self.world, inode.fid.vnode);
        world.trace(|| format!("h{} kernel, file {file}: {}", self.host(), text()));
    }

    /// The same, by something that this machine did itself.
    fn touch(&self, inode: &Inode) {
        self.bump(inode);
        inode.touched.set(inode.version.get());
    }

    /// The directory was changed through this kernel.
    fn dir_changed(&self, dir: &Inode) {
        dir.valid.set(false);
        dir.iversion.set(dir.iversion.get() + 1);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.inode.pins.set(self.inode.pins.get() - 1);
        self.kernel.evict_if_unused(self.inode.fid);
    }
}

impl Pin {
    pub(crate) fn fid(&self) -> Fid {
        self.inode.fid
    }
}

/// The refusal in a reply, or a complaint that the reply made no sense.
fn refused<T>(world: &World, reply: &Reply) -> Result<T> {
    match reply.done {
        Done::Refused(refusal) => {
            if !world.plan.troubles().excuse(refusal) {
                world.fail(wrong!(
                    "a program is told {refusal:?}, and no disk is in trouble"
                ));
            }
            Err(refusal)
        }
        ref other => {
            world.fail(wrong!("the kernel does not expect the answer {other:?}"));
            Err(Refusal::Invalid)
        }
    }
}
