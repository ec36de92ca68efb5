//! What Linux holds of a file or directory while it waits for the answer to a call, and what a
//! notification waits for in the kernel.
//!
//! One rule follows, and the client keeps it: a notification that needs something never stands
//! before the answer to a call that holds it. Either the answer goes first, or the call does not
//! wait for what the notification is a part of. Else both would wait for ever, and nobody could
//! end the program.
//!
//! The functions named in brackets are those of Linux 6.18.

use crate::client::{Call, How, Invalidate};
use wire::Op;

/// What can be held, and waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Write-back of the file (`fuse_set_nowrite`): dirty pages do not leave, and whoever waits for
    /// one to be written waits too.
    pub write_back: bool,
    /// Pages of the file: locked, or under write-back.
    pub pages: bool,
    /// The lock of the file or object itself.
    pub object: bool,
    /// The lock of a directory.
    pub directory: bool,
}

/// Nothing.
const NONE: Locks = Locks {
    write_back: false,
    pages: false,
    object: false,
    directory: false,
};
const PAGES: Locks = Locks {
    pages: true,
    ..NONE
};
const OBJECT: Locks = Locks {
    object: true,
    ..NONE
};
const DIRECTORY: Locks = Locks {
    directory: true,
    ..NONE
};

impl Locks {
    /// Is something in both?
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        (self.write_back && other.write_back)
            || (self.pages && other.pages)
            || (self.object && other.object)
            || (self.directory && other.directory)
    }
}

/// What the kernel holds until this call is answered.
#[must_use]
pub fn held(call: &Call) -> Locks {
    match call {
        Call::Op(op) => held_by_op(op),
        // The page's lock (`fuse_read_folio`, `fuse_readahead`). A direct read has none.
        Call::Read { pages: true, .. } => PAGES,
        // The page is under write-back (`fuse_writepages`); with silent opens it is locked
        // (`fuse_perform_write`).
        Call::Write {
            how: How::Paged, ..
        } => PAGES,
        // `fuse_direct_write_iter`, `fuse_lseek`, `fuse_fsync`. The latter waits for all write-back
        // before it asks.
        Call::Write { .. } | Call::Seek { .. } | Call::Sync { .. } => OBJECT,
        // `fuse_readdir`; and of a look-up, the directory above.
        Call::List { .. } | Call::Enter { .. } => DIRECTORY,
        Call::Read { .. } | Call::Open { .. } | Call::Release { .. } | Call::Leave => NONE,
        Call::Lock { .. } | Call::Unlock { .. } | Call::TestLock { .. } => NONE,
    }
}

/// The same of an operation.
#[must_use]
pub fn held_by_op(op: &Op) -> Locks {
    match op {
        // `fuse_do_setattr`: from before the request is sent to behind its answer; also for open(2)
        // with O_TRUNC.
        Op::SetAttr { set, .. } => Locks {
            write_back: set.size.is_some(),
            ..OBJECT
        },
        // `fuse_file_fallocate` and `__fuse_copy_file_range` write back before they ask, and drop
        // pages behind the answer.
        Op::Allocate { .. } | Op::Copy { .. } => OBJECT,
        Op::SetXattr { .. } | Op::RemoveXattr { .. } => OBJECT,
        Op::Lookup { .. } | Op::Make { .. } | Op::Rmdir { .. } => DIRECTORY,
        // The object that gets or loses a name is locked too.
        Op::Link { .. } | Op::Unlink { .. } | Op::Rename { .. } => Locks {
            object: true,
            ..DIRECTORY
        },
        _ => NONE,
    }
}

/// What the kernel waits for before a notification is done.
#[must_use]
pub fn needed(what: &Invalidate) -> Locks {
    match what {
        // Attributes alone wait for nothing. Each page is locked, and written if it is dirty
        // (`invalidate_inode_pages2_range`, `fuse_launder_folio`).
        Invalidate::Inode { ranges, .. } if ranges.is_empty() => NONE,
        Invalidate::Inode { .. } => Locks {
            write_back: true,
            ..PAGES
        },
        Invalidate::Name { .. } | Invalidate::Expire { .. } => DIRECTORY,
        Invalidate::Sizes { .. } | Invalidate::Turn { .. } => OBJECT,
        // A listing's pages are locked only while the kernel itself works on them.
        Invalidate::Names { .. } | Invalidate::Listing { .. } | Invalidate::Unused { .. } => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use wire::{Fid, Set};

    const FILE: Fid = Fid {
        volume: 1,
        vnode: 2,
        uniq: 1,
    };

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
            held_by_op(&Op::SetAttr { fid: FILE, set })
        };
        let pages = needed(&drops(vec![(0, u64::MAX)]));
        assert!(set(Some(1)).meets(pages));
        assert!(!set(None).meets(pages));
        assert!(!set(Some(1)).meets(needed(&drops(vec![]))));
    }

    #[test]
    fn a_read_holds_pages_and_a_direct_one_nothing() {
        let read = |pages| {
            held(&Call::Read {
                fid: FILE,
                offset: 0,
                len: 4096,
                pages,
            })
        };
        assert!(read(true).meets(needed(&drops(vec![(0, 1)]))));
        assert_eq!(read(false), Locks::default());
    }
}
