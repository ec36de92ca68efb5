//! A node: what the client knows of one object.
//!
//! `right` is what it holds: never more than the server believes. A grant is taken over only if it
//! is later than every recall seen (`void`); a node that is dropped from the table leaves its mark
//! in the client's `floor`, so that a late grant is void there too. All these numbers are of one
//! session: the next one may be with a server that counts others. `attr` and `names` are right as
//! long as `right` is Shared or more. While `drain` is set, a recall is being answered: answers
//! given meanwhile are still right, since the token is given back last, but the kernel may keep
//! none of them.

use super::api::Listed;
use super::data::file_capabilities::Privileges;
use super::kernel::belief::Belief;
use super::names::dir_cookies::{CookieOrder, Named};
use super::names::xattrs::Xattrs;
use crate::Ticket;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use wire::limits::LAST_BITS;
use wire::{Access, Attr, Epoch, Fid, Hold, Name, RequestId, Right, Time};

/// A range of bytes: from, to.
pub(crate) type Range = (u64, u64);

/// Positions of a listing hold its generation above this bit.
pub(crate) const GENERATION_SHIFT: u32 = 40;
/// The bits of a position in the last one of a listing.
pub(crate) const LAST: u64 = (1 << LAST_BITS) - 1;
const GENERATIONS: u64 = 1 << 22;
/// Of how many listings it is remembered where they end: more at a time end when they find nothing.
const LISTING_ENDS_MAX: usize = 64;

/// The marks of objects that are not in the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forgotten {
    /// Grants below this are void.
    pub(crate) floor: Epoch,
    /// The last request sent before an own change of such an object was answered.
    pub(crate) changed: RequestId,
    /// The same of a recall that was answered.
    pub(crate) recalled: RequestId,
}

/// A recall being answered.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// The latest recall that this answers.
    pub(crate) epoch: Epoch,
    /// The right that may be kept.
    pub(crate) keep: Right,
    /// Until when the kernel is waited for that has answers to take in.
    pub(crate) until: Time,
    /// Nothing was held when it began: only answers on their way are taken back.
    pub(crate) loose: bool,
    /// The file's lock is not waited for any more.
    pub(crate) locked: bool,
    /// Where it stands.
    pub(crate) phase: Phase,
    /// Ranges of reads answered while the kernel was dropping pages: they are dropped once more.
    pub(crate) again: Vec<Range>,
    /// Reads that the dropping of pages waits for: served at once.
    pub(crate) freed: BTreeSet<Ticket>,
}

/// Where a drain stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Answers about attributes are on their way to the kernel: it would throw them away if it were
    /// told to drop attributes now, and read to an outdated end of the file. Until then at the
    /// latest. A notification waits for its turn at the file's lock.
    Settling(Time, Option<u64>),
    /// The kernel is dropping pages; at this time the reads that it may wait for are freed.
    Dropping(u64, Time),
    /// Dirty blocks are being written back.
    Flushing,
}

/// The token of an object, and which of the grants that come count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Token {
    pub(crate) right: Right,
    /// Epoch of the grant held.
    pub(crate) grant: Epoch,
    /// The latest epoch of any grant that came, void ones included.
    pub(crate) seen: Epoch,
    /// Grants before this are void.
    pub(crate) void: Epoch,
    /// The same when it was last said that less than Shared is held: a request that was answered
    /// with such a grant may have been answered before another client's change.
    pub(crate) unshared: Epoch,
}

/// Requests and times by which it is seen whether an answer is older than a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// The last request sent before an own change of it was answered.
    pub(crate) changed: RequestId,
    /// The same of the latest own change of its size.
    pub(crate) resized: RequestId,
    /// The last request sent before an own write to the cache.
    pub(crate) written: RequestId,
    /// The last request sent before a recall of it was answered that left nothing.
    pub(crate) recalled: RequestId,
    /// The latest time of change in the answer to any own change of it.
    pub(crate) answered: Time,
    /// The same of those that set its size or its time of modification.
    pub(crate) set: Time,
    /// The time of change in the latest attributes that came with a grant.
    pub(crate) given: Time,
}

/// The opens of a file on this machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Opens {
    /// Open for reading only; open for writing too.
    pub(crate) reads: u32,
    pub(crate) writes: u32,
    /// Opens that the server has not answered.
    pub(crate) opening: Vec<Access>,
    /// A descriptor may be open that bypasses the page cache: its reads look like reads for pages,
    /// and lock none.
    pub(crate) direct: bool,
}

/// How many questions and own changes are on their way to the server, or back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    /// Claims that are not answered.
    pub(crate) claiming: u32,
    /// Questions for attributes not answered.
    pub(crate) asking: u32,
    /// Own writes that the server applies; the cache is not used meanwhile.
    pub(crate) remote_writes: u32,
    /// Own changes of extended attributes at the server.
    pub(crate) labelling: u32,
    /// Own changes of the size at the server.
    pub(crate) resizing: u32,
    /// Own changes of the size that are answered, with the kernel still dropping pages for them.
    pub(crate) cutting: u32,
    /// Own changes of the time of modification there.
    pub(crate) timing: u32,
}

/// The write-back of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileWriteBack {
    /// A write-back batch is on its way.
    pub(crate) sending: bool,
    /// The request that brings it.
    pub(crate) batch: RequestId,
    /// Everything dirty goes to the server, whatever its age.
    pub(crate) flush: bool,
    /// Somebody else lists it: once it is written back, Shared is enough.
    pub(crate) listed: bool,
    /// Calls that wait until all blocks that were dirty when they came are written back.
    pub(crate) syncing: Vec<(Ticket, Time)>,
}

/// Changes about an object that were made here before the server heard of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untold {
    /// Made here, and never asked for by the server since: nobody else has seen it.
    pub(crate) private: bool,
    /// Own changes about it that are answered, of which the server has not said what became.
    pub(crate) delegated: u32,
    /// The request that tells the server of the last one.
    pub(crate) told_by: RequestId,
    /// The request that makes it, as long as the server has not said that it has.
    pub(crate) unborn: RequestId,
    /// As long as it has not, the requests that tell of it.
    pub(crate) own: Vec<RequestId>,
    /// It has gone before the server has heard of it.
    pub(crate) stillborn: bool,
}

/// The names of a directory, as far as they are known, and its listings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dir {
    /// Of a directory: a name that is not known does not exist.
    pub(crate) whole: bool,
    /// The request that asks for the next names of it; 0: none, or the names that come are not all.
    pub(crate) gathering: RequestId,
    /// So many names were asked for that do not exist, since all were asked for, and how often all
    /// were.
    pub(crate) missed: u32,
    pub(crate) gathers: u32,
    /// Of a directory: names known, present and absent.
    pub(crate) names: BTreeMap<Name, Option<Named>>,
    /// The position behind which this client makes the next name of it, where it knows that.
    pub(crate) last: Option<u64>,
    /// Its names in order, from one part of a listing to the next.
    pub(crate) order: Option<CookieOrder>,
    /// Generation of its listing.
    pub(crate) generation: u64,
    /// Of a directory of a replica: the release of these names.
    pub(crate) release: u32,
    /// Generations of listings begun, oldest first, and the last position that belongs to each,
    /// with its release.
    pub(crate) begun: VecDeque<(u64, u64)>,
    /// Position (with generation) after which nothing follows.
    pub(crate) end: Option<u64>,
    /// Calls of this client that are about names in it.
    pub(crate) busy: u32,
    /// Changes of names in it that are under way with nobody waiting: the kernel keeps nothing.
    pub(crate) doubtful: u32,
}

/// One object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) token: Token,
    pub(crate) attr: Option<Attr>,
    pub(crate) marks: Marks,
    /// How many bytes it occupies at the server, and its size there.
    pub(crate) stored: (u64, u64),
    /// Blocks of it are dirty that may lie in a hole at the server or not: how many bytes it
    /// occupies is not certain until they are written back.
    pub(crate) unsure: bool,
    /// Changed bytes of it are stranded: its attributes are not yet known.
    pub(crate) stranded: bool,
    /// It has no extended attributes but these, as long as `right` is Shared or more.
    pub(crate) bare: bool,
    pub(crate) xattrs: Option<Box<Xattrs>>,
    pub(crate) privileges: Privileges,
    /// Version of the content that the cached blocks are of.
    pub(crate) version: u64,
    /// Raised with each own change of bytes at the server: blocks on their way here may be
    /// outdated.
    pub(crate) edits: u64,
    pub(crate) opens: Opens,
    /// The beliefs that the kernel may have about it.
    pub(crate) kernel: Belief,
    pub(crate) pending: Pending,
    /// Questions for attributes that are asked again once such a read is answered.
    pub(crate) behind: Vec<Ticket>,
    /// The server has said that it is read again: a copy of its bytes is kept to be lent.
    pub(crate) is_reread: bool,
    /// So many blocks of it came with a look-up or a listing, and nobody has read them yet.
    pub(crate) ahead: u32,
    /// It came ahead of its use, and is kept for that though the kernel may not know it.
    pub(crate) foreseen: bool,
    /// A directory in which it has a name, as far as is known.
    pub(crate) parent: Option<Fid>,
    pub(crate) drain: Option<Drain>,
    /// Calls that wait for the drain, or for a block's or a size's turn.
    pub(crate) parked: Vec<Ticket>,
    /// The server wants to know its attributes, once it knows what has changed them.
    pub(crate) tell: Option<Epoch>,
    pub(crate) writeback: FileWriteBack,
    /// The last name is gone.
    pub(crate) unlinked: bool,
    pub(crate) untold: Untold,
    /// It is a directory, as far as is known.
    pub(crate) directory: bool,
    pub(crate) dir: Dir,
}

/// Which fill asked for blocks of a file, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FillStart {
    pub(crate) fill: u64,
    pub(crate) edits: u64,
    unshared: Epoch,
}

impl Node {
    pub(crate) fn fill_start(&self, fill: u64) -> FillStart {
        FillStart {
            fill,
            edits: self.edits,
            unshared: self.token.unshared,
        }
    }

    /// Are blocks that come with this grant, and were asked for then, those of the file as it is?
    /// Not if bytes may have changed since: by an own change, or by another client's, before which
    /// a recall was answered here. (The recall, and the grant that comes after that change, may
    /// overtake the bytes.)
    pub(crate) fn fills(&self, since: FillStart, granted: Option<Epoch>) -> bool {
        let held = since.unshared == self.token.unshared;
        let counts = held || granted.is_some_and(|epoch| epoch >= self.token.unshared);
        since.edits == self.edits && counts && self.token.right >= Right::Shared
    }

    /// Grants of a session that is over say nothing about those of the next one.
    pub(crate) fn begin_epochs_anew(&mut self) {
        (self.token.grant, self.token.seen) = (0, 0);
        (self.token.void, self.token.unshared) = (0, 0);
    }

    pub(crate) fn new(forgotten: &Forgotten) -> Self {
        let mut node = Self::default();
        node.token.void = forgotten.floor;
        node.token.unshared = forgotten.floor;
        node.marks.changed = forgotten.changed;
        node.marks.recalled = forgotten.recalled;
        node.dir.generation = 1;
        node
    }

    /// May the kernel keep what is said of it now?
    pub(crate) fn lasting(&self) -> bool {
        self.token.right >= Right::Shared && self.drain.is_none() && self.dir.doubtful == 0
    }

    /// May the kernel keep its attributes? A program's store into a page changes the times when the
    /// page is written back, and the kernel then throws away the attributes that it knows, but not
    /// those on their way to it.
    pub(crate) fn attr_lasting(&self) -> bool {
        self.lasting() && !self.unsure && !self.is_stored_into()
    }

    /// Its attributes are what the server says.
    pub(crate) fn has_attr(&mut self, attr: Attr) {
        self.stored = (attr.used_bytes, attr.size);
        self.marks.given = attr.ctime;
        self.attr = Some(attr);
    }

    /// Its attributes, as far as they may be said without asking: while the server applies an own
    /// write, others may be shown it already.
    pub(crate) fn held(&self) -> Option<&Attr> {
        let known =
            self.token.right >= Right::Shared && self.pending.remote_writes == 0 && !self.stranded;
        self.attr.as_ref().filter(|_| known)
    }

    /// Its attributes, if nobody else has anything of it.
    pub(crate) fn own(&self) -> Option<&Attr> {
        self.held().filter(|_| self.token.right == Right::Exclusive)
    }

    /// The same, if nobody waits for it either: a client that went on changing it by itself would
    /// never have told all its changes.
    pub(crate) fn sole(&self) -> Option<&Attr> {
        let wanted = self.drain.is_some() || self.tell.is_some();
        self.own().filter(|_| !wanted)
    }

    /// Is nothing about it on its way to the server or back? An answer would else be older than the
    /// changes made here meanwhile, and newer too.
    pub(crate) fn quiet(&self) -> bool {
        self.pending.asking
            + self.pending.resizing
            + self.pending.remote_writes
            + self.pending.labelling
            + self.dir.busy
            == 0
    }

    /// Of a directory: there may be names that are not known.
    pub(crate) fn not_whole(&mut self) {
        (self.dir.whole, self.dir.gathering) = (false, 0);
        (self.dir.last, self.dir.order) = (None, None);
    }

    /// Of a directory: is there no name in it?
    pub(crate) fn is_empty(&self) -> bool {
        self.dir.whole && self.dir.names.values().all(Option::is_none)
    }

    /// May its blocks be served from the cache?
    pub(crate) fn cached(&self) -> bool {
        self.token.right >= Right::Shared && self.attr.is_some() && self.pending.remote_writes == 0
    }

    /// The opens, as told to the server.
    pub(crate) fn hold(&self, stamp: u64) -> Hold {
        let opening = |write: bool| {
            self.opens
                .opening
                .iter()
                .any(|access| access.write || !write)
        };
        Hold {
            open: self.opens.reads + self.opens.writes > 0 || opening(false),
            write: self.opens.writes > 0 || opening(true),
            stamp,
        }
    }

    pub(crate) fn opened(&mut self, access: Access) {
        self.opens.direct |= access.write;
        if access.write {
            self.opens.writes += 1;
        } else {
            self.opens.reads += 1;
        }
    }

    pub(crate) fn closed(&mut self, access: Access) {
        let count = if access.write {
            &mut self.opens.writes
        } else {
            &mut self.opens.reads
        };
        *count = count.saturating_sub(1);
        self.opens.direct &= self.opens.reads + self.opens.writes > 0;
    }

    /// An open was answered: it does not count as under way any more.
    pub(crate) fn arrived(&mut self, access: Access) {
        if let Some(at) = self.opens.opening.iter().position(|known| *known == access) {
            self.opens.opening.swap_remove(at);
        }
    }

    /// Names may have changed: listings that are under way are not believed.
    pub(crate) fn renew_listing(&mut self) {
        self.dir.generation += 1;
        if self.dir.generation == GENERATIONS {
            self.dir.generation = 1;
        }
        (self.dir.end, self.dir.order) = (None, None);
    }

    /// A listing begins: names added behind this position are not part of it.
    pub(crate) fn begin_listing(&mut self, generation: u64, last: u64) {
        self.dir.begun.retain(|(known, _)| *known != generation);
        if self.dir.begun.len() == LISTING_ENDS_MAX {
            self.dir.begun.pop_front();
        }
        self.dir.begun.push_back((generation, last));
    }

    /// The last position of a listing.
    pub(crate) fn last_of(&self, generation: u64) -> u64 {
        let begun = self
            .dir
            .begun
            .iter()
            .find(|(known, _)| *known == generation);
        begun.map_or(u64::MAX, |(_, last)| *last & LAST)
    }

    /// The release of a replica in which a listing began; 0: the directory is of no replica.
    pub(crate) fn release_of(&self, generation: u64) -> u32 {
        let begun = self
            .dir
            .begun
            .iter()
            .find(|(known, _)| *known == generation);
        begun.map_or(0, |(_, last)| (*last >> LAST_BITS) as u32)
    }

    /// Does nothing hold it in the table?
    pub(crate) fn is_idle(&self) -> bool {
        let foreseen = self.foreseen && self.token.right >= Right::Shared;
        !self.kernel.is_known()
            && !foreseen
            && self.opens.reads + self.opens.writes == 0
            && self.opens.opening.is_empty()
            && self.drain.is_none()
            && self.parked.is_empty()
            && self.behind.is_empty()
            && !self.kernel.is_reading()
            && self.writeback.syncing.is_empty()
            && !self.writeback.sending
            && self.untold.delegated == 0
            && self.pending.remote_writes
                + self.pending.resizing
                + self.pending.cutting
                + self.pending.asking
                + self.dir.busy
                == 0
    }
}

/// An entry without anything that the kernel could keep.
pub(crate) fn bare(entry: wire::DirEntry, position: u64) -> Listed {
    let wire::DirEntry {
        name, fid, kind, ..
    } = entry;
    Listed {
        name,
        fid,
        kind,
        position,
        known: None,
    }
}
