//! Locks: those that Linux holds while a call is at the client, and those that a notification waits
//! for, in one table.
//!
//! Three rules stand on it.
//! - A notification that needs something never stands before the answer to a call that holds it:
//!   either the answer goes first, or the call does not wait for what the notification is a part
//!   of. Else both would wait for ever, and nobody could end the program.
//! - A thread that asks for something with an inode locked shows that nobody else has it locked
//!   alone: so a thread that has had it locked before has digested its reply, and has nothing in
//!   hand.
//! - A thread has in hand the result of its look-up while it has the directory of that locked.
//!
//! The functions named in brackets are those of Linux 6.18.

use crate::Ticket;
use crate::client::Client;
use crate::client::api::{Call, How};
use crate::client::mutant::Mutant;
use crate::client::notices::Invalidate;
use alloc::collections::BTreeMap;
use wire::{Fid, Name, Op};

/// How an inode is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Alone, from before the request is sent until its reply is digested, so as to change it.
    Change,
    /// Alone for as long, so as to find its end (`fuse_lseek`).
    Seek,
    /// With others (`iterate_dir`).
    List,
    /// Perhaps, with others or alone: a name that is known is asked for again without the lock
    /// (`d_revalidate`), one that is not with it (`lookup_slow`, `lookup_one_qstr_excl`).
    Lookup,
    /// Perhaps: a directory's attributes are asked for on the way through it, without the lock, and
    /// before a name in it changes, with it (`may_lookup`, `may_delete`).
    Attributes,
}

/// The inodes of a call: two that it names, and two that its names named.
type Inodes = [Option<(Fid, Mode)>; 4];

/// The locks that the kernel holds until a call is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    inodes: Inodes,
    /// It has one more locked, to change it: a directory that is not known here.
    unknown: bool,
    /// Pages of this file: locked, or under write-back.
    pages: Option<Fid>,
    /// Write-back of this file (`fuse_set_nowrite`): dirty pages do not leave, and a thread that
    /// waits for one to be written waits too.
    write_back: Option<Fid>,
}

impl Held {
    /// Has it this one locked to change it?
    fn changes(&self, fid: Fid) -> bool {
        self.inodes.contains(&Some((fid, Mode::Change)))
    }

    /// The same of one that the call itself names: a name may have named another object.
    fn changes_named(&self, fid: Fid) -> bool {
        self.inodes[..2].contains(&Some((fid, Mode::Change)))
    }

    /// Has it this one certainly locked, so that nobody else changes it?
    pub(crate) fn keeps_from_changing(&self, fid: Fid) -> bool {
        self.changes_named(fid) || self.inodes[..2].contains(&Some((fid, Mode::List)))
    }

    /// May it have this one locked?
    fn may_lock(&self, fid: Fid) -> bool {
        let mut inodes = self.inodes.iter().flatten();
        self.unknown || inodes.any(|(locked, _)| *locked == fid)
    }

    /// Is it about names, without changing any?
    fn looks(&self) -> bool {
        let looks = |(_, mode): &(Fid, Mode)| !matches!(mode, Mode::Change | Mode::Seek);
        self.inodes.iter().flatten().any(looks)
    }

    /// Does the kernel wait for this before it has done what it is told?
    pub(crate) fn hinders(&self, what: &Invalidate) -> bool {
        match what {
            // Attributes alone wait for nothing. Each page is locked, and written if it is dirty
            // (`invalidate_inode_pages2_range`, `fuse_launder_folio`).
            Invalidate::Inode { fid, ranges, .. } => {
                let pages = self.pages == Some(*fid) || self.write_back == Some(*fid);
                pages && !ranges.is_empty()
            }
            Invalidate::Name { dir: fid, .. }
            | Invalidate::Expire { dir: fid, .. }
            | Invalidate::Sizes { fid }
            | Invalidate::Turn { fid } => self.may_lock(*fid),
            // A listing's pages are locked only while the kernel itself works on them.
            Invalidate::Names { .. } | Invalidate::Listing { .. } | Invalidate::Unused { .. } => {
                false
            }
        }
    }
}

/// The objects that the names of a call named, as far as the kernel was told and has them locked
/// too.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    inodes: [Option<Fid>; 2],
    unknown: bool,
}

/// The table. `None`: the kernel holds nothing.
fn held(call: &Call, named: impl FnOnce() -> Named) -> Option<Held> {
    let none = Held::default();
    let one = |fid: &Fid, mode: Mode| Held {
        inodes: [Some((*fid, mode)), None, None, None],
        ..none
    };
    let held = match call {
        Call::Op(op) => return held_by_op(op, named),
        // The page's lock (`fuse_read_folio`, `fuse_readahead`). A direct read has none.
        Call::Read {
            fid, pages: true, ..
        } => Held {
            pages: Some(*fid),
            ..none
        },
        // The page is under write-back (`fuse_writepages`); with silent opens it is locked
        // (`fuse_perform_write`).
        Call::Write {
            fid,
            how: How::Paged,
            ..
        } => Held {
            pages: Some(*fid),
            ..none
        },
        // `fuse_direct_write_iter`, `fuse_fsync`. The latter waits for all write-back before it
        // asks.
        Call::Write { fid, .. } | Call::Sync { fid, .. } => one(fid, Mode::Change),
        Call::Seek { fid } => one(fid, Mode::Seek),
        Call::List { dir, .. } => one(dir, Mode::List),
        // The directory above is locked, as of any look-up; which one that is, is not known here.
        Call::Enter { .. } => Held {
            unknown: true,
            ..none
        },
        Call::Read { .. } | Call::Open { .. } | Call::Release { .. } | Call::Leave => return None,
        Call::Lock { .. } | Call::Unlock { .. } | Call::TestLock { .. } => return None,
    };
    Some(held)
}

fn held_by_op(op: &Op, named: impl FnOnce() -> Named) -> Option<Held> {
    let change = |fid: &Fid| Some((*fid, Mode::Change));
    let inodes = match op {
        // `fuse_do_setattr`: from before the request is sent to behind its answer; also for open(2)
        // with O_TRUNC.
        Op::SetAttr { fid, .. } => [change(fid), None],
        // `fuse_file_fallocate` and `__fuse_copy_file_range` write back before they ask, and drop
        // pages behind the answer.
        Op::Allocate { fid, .. } | Op::Copy { to: fid, .. } => [change(fid), None],
        Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. } => [change(fid), None],
        // `fuse_lseek`, for data and holes.
        Op::Find { fid, .. } => [change(fid), None],
        Op::Lookup { dir, .. } => [Some((*dir, Mode::Lookup)), None],
        Op::GetAttr { fid } => [Some((*fid, Mode::Attributes)), None],
        Op::Make { dir, .. }
        | Op::Unlink { dir, .. }
        | Op::Rmdir { dir, .. }
        | Op::Unmount { dir, .. } => [change(dir), None],
        // `vfs_link`: the object that gets a name.
        Op::Link { fid, dir, .. } => [change(dir), change(fid)],
        Op::Rename { from, to, .. } => [change(from), change(to)],
        _ => return None,
    };
    let named = named();
    let [first, second] = named.inodes.map(|fid| fid.map(|fid| (fid, Mode::Change)));
    Some(Held {
        inodes: [inodes[0], inodes[1], first, second],
        unknown: named.unknown,
        pages: None,
        write_back: match op {
            Op::SetAttr { fid, set } => set.size.map(|_| *fid),
            _ => None,
        },
    })
}

/// Does the kernel hold write-back off during this operation?
pub(crate) fn stops_write_back(op: &Op) -> bool {
    held_by_op(op, Named::default).is_some_and(|held| held.write_back.is_some())
}

/// The calls that are not answered and have inodes locked.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockHolders {
    calls: BTreeMap<Ticket, Held>,
}

impl LockHolders {
    pub(crate) fn insert(&mut self, ticket: Ticket, held: Held) {
        if held.unknown || held.inodes.iter().any(Option::is_some) {
            let other = self.calls.insert(ticket, held);
            assert!(other.is_none(), "ticket {ticket} names two calls");
        }
    }

    /// It is answered, or its caller gone.
    pub(crate) fn remove(&mut self, ticket: Ticket) {
        self.calls.remove(&ticket);
    }

    pub(crate) fn contains(&self, ticket: Ticket) -> bool {
        self.calls.contains_key(&ticket)
    }

    /// Does this call have this inode locked to change it?
    pub(crate) fn is_changed_by(&self, fid: Fid, ticket: Ticket) -> bool {
        let held = self.calls.get(&ticket);
        held.is_some_and(|held| held.changes(fid))
    }

    /// The first call that has this inode locked to change it.
    pub(crate) fn changer(&self, fid: Fid) -> Option<Ticket> {
        let mut calls = self.calls.iter();
        let changer = calls.find(|(_, held)| held.changes(fid));
        changer.map(|(ticket, _)| *ticket)
    }

    /// Has a call this inode locked to change it that names it itself?
    pub(crate) fn change_named(&self, fid: Fid) -> bool {
        self.calls.values().any(|held| held.changes_named(fid))
    }

    /// Has a call this inode locked so that nobody else has it locked to change it?
    pub(crate) fn keep_from_changing(&self, fid: Fid) -> bool {
        let mut calls = self.calls.values();
        calls.any(|held| held.keeps_from_changing(fid))
    }

    /// May any call have this inode locked?
    pub(crate) fn may_lock(&self, fid: Fid) -> bool {
        self.calls.values().any(|held| held.may_lock(fid))
    }

    /// Is a name asked for, or a directory listed?
    pub(crate) fn look(&self) -> bool {
        self.calls.values().any(Held::looks)
    }

    /// Does this call ask for names without changing any?
    pub(crate) fn looks(&self, ticket: Ticket) -> bool {
        self.calls.get(&ticket).is_some_and(Held::looks)
    }

    /// May a call have one of these directories locked that waits for the server: since it asks for
    /// a name there, or moves or removes the directory itself, as far as is known here?
    pub(crate) fn may_wait_in(&self, dirs: impl Iterator<Item = Fid> + Clone) -> bool {
        let holds = |held: &Held| {
            let lookup = |dir| held.inodes.contains(&Some((dir, Mode::Lookup)));
            held.unknown || dirs.clone().any(|dir| lookup(dir) || held.changes(dir))
        };
        self.calls.values().any(holds)
    }
}

impl Client {
    /// The locks that the kernel holds during a call that has just come.
    pub(crate) fn held(&self, call: &Call) -> Option<Held> {
        match (self.options.mutant, call) {
            (Some(Mutant::ForgetsALock), Call::Op(Op::Lookup { .. })) => None,
            _ => held(call, || self.named_inodes(call)),
        }
    }

    /// An object that is to lose a name is locked (`vfs_unlink`, `vfs_rmdir`); of those that a
    /// rename moves or replaces (`vfs_rename`) a file is, a directory only if it comes to another
    /// directory or is replaced. The kernel knows them by what it was told.
    fn named_inodes(&self, call: &Call) -> Named {
        let Call::Op(op) = call else {
            return Named::default();
        };
        match op {
            Op::Unlink { dir, name } => Named {
                inodes: [self.handed(*dir, name), None],
                unknown: false,
            },
            Op::Rmdir { dir, name } => {
                let target = self.handed(*dir, name);
                Named {
                    inodes: [target, None],
                    unknown: target.is_none(),
                }
            }
            Op::Rename {
                from,
                name,
                to,
                new,
                exchange,
                ..
            } => self.named_by_rename((*from, name), (*to, new), *exchange),
            _ => Named::default(),
        }
    }

    fn named_by_rename(
        &self,
        (from, name): (Fid, &Name),
        (to, new): (Fid, &Name),
        exchange: bool,
    ) -> Named {
        let crosses = from != to;
        let is_file = |fid: &Fid| self.nodes.get(fid).is_some_and(|node| !node.directory);
        let source = self.handed(from, name);
        let target = self.handed(to, new);
        Named {
            inodes: [
                target.filter(|fid| crosses || !exchange || is_file(fid)),
                source.filter(|fid| crosses || is_file(fid)),
            ],
            unknown: target.is_none() && (crosses || !exchange),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wire::Set;

    const FILE: Fid = Fid {
        volume: 1,
        vnode: 2,
        uniq: 1,
    };
    const OTHER: Fid = Fid { vnode: 3, ..FILE };

    fn drops(ranges: vec::Vec<(u64, u64)>) -> Invalidate {
        Invalidate::Inode {
            fid: FILE,
            ranges,
            young: false,
        }
    }

    #[test]
    fn only_a_change_of_the_size_holds_write_back() {
        let set = |size| {
            let set = Set {
                size,
                ..Set::default()
            };
            held_by_op(&Op::SetAttr { fid: FILE, set }, Named::default).unwrap()
        };
        let pages = drops(vec![(0, u64::MAX)]);
        assert!(set(Some(1)).hinders(&pages));
        assert!(!set(None).hinders(&pages));
        assert!(!set(Some(1)).hinders(&drops(vec![])));
    }

    #[test]
    fn a_read_holds_pages_and_a_direct_one_nothing() {
        let read = |pages| {
            let call = Call::Read {
                fid: FILE,
                offset: 0,
                len: 4096,
                pages,
            };
            held(&call, Named::default)
        };
        let hinders = |held: Held| held.hinders(&drops(vec![(0, 1)]));
        assert!(read(true).is_some_and(hinders));
        assert_eq!(read(false), None);
    }

    #[test]
    fn a_lock_is_of_one_inode() {
        let list = Call::List {
            dir: FILE,
            after: 0,
            max: 1,
            plus: false,
        };
        let held = held(&list, Named::default).unwrap();
        assert!(held.hinders(&Invalidate::Turn { fid: FILE }));
        assert!(!held.hinders(&Invalidate::Turn { fid: OTHER }));
        assert!(held.keeps_from_changing(FILE) && !held.changes(FILE));
    }
}
