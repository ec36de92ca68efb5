//! The inputs and outputs of the client's machine.

use super::lending::{PeerInput, PeerOutput};
use super::notices::{Event, Invalidate, Waiting, Waits};
use super::piece::Piece;
use crate::Ticket;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wire::{
    Access, Attr, Caller, Change, Dump, Fid, Filesystem, Kind, Lock, LockOwner, LockWait, Name, Op,
    Refusal, RequestId, ToClient, ToServer, VolumeInfo, WatchId,
};

/// Numbers a piece of the cache's memory that holds a block's bytes.
pub type Slot = u32;

/// A call of a program, as the front passes it on.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Any operation on names, attributes and links that is said in full by the `Op`: all but
    /// `Open`, `Read`, `Write`, `ReadDir`, `Sync`, `Reap`. Answers: `Entry`/`Absent` for `Lookup`,
    /// `Entry` for `Make` and `Link`, `Attr` for `GetAttr` and `SetAttr`, `Bytes` for `ReadLink`,
    /// `GetXattr`, `ListXattr`, `Filesystem` for `StatFs`, `Written` for `Copy`, `Position` for
    /// `Find`, `Nothing` for the rest. `MakeNameless` is answered as `Make`. A caller that makes
    /// and opens needs a `Release` afterwards.
    Op(Op),
    /// An object that is known without a name, such as a volume's root: `Entry`, as of a look-up.
    /// For how long a name may lead to it is not known.
    Enter {
        /// Which.
        fid: Fid,
    },
    /// `GetAttr` for a call that then goes by the size which the kernel knows: a read, or a seek to
    /// the end, which has the file locked until it is done. `Attr`.
    Seek {
        /// Which file.
        fid: Fid,
    },
    /// Opens a file. `Opened`.
    Open {
        /// Which.
        fid: Fid,
        /// How.
        access: Access,
        /// With O_APPEND.
        append: bool,
        /// Tells this descriptor apart from all others of this machine, earlier ones included.
        handle: u64,
    },
    /// Closes what was opened, with the same access. `Nothing`.
    Release {
        /// Which.
        fid: Fid,
        /// How it was opened.
        access: Access,
        /// Locks that were got through it alone are given up.
        handle: u64,
    },
    /// Reads. `pages`: the kernel may keep the bytes in its page cache. `Read`.
    Read {
        /// Which.
        fid: Fid,
        /// From where.
        offset: u64,
        /// How many bytes, at most 1 MiB.
        len: u32,
        /// May the kernel keep them?
        pages: bool,
    },
    /// Writes the bytes that the room holds under the ticket. `Written`.
    Write {
        /// Which.
        fid: Fid,
        /// Where, unless `how` is `Append`.
        offset: u64,
        /// How many bytes, at most 1 MiB.
        len: u32,
        /// From where they come.
        how: How,
    },
    /// Entries of a directory from `after` on (0 at first, then `position` of the last entry got).
    /// `Listing`.
    List {
        /// Which.
        dir: Fid,
        /// After which position.
        after: u64,
        /// At most how many.
        max: u32,
        /// With attributes, for the kernel to keep.
        plus: bool,
    },
    /// Makes everything written to the file stable. `Nothing`, or the error of an earlier delayed
    /// write: each descriptor that was open then is told once.
    Sync {
        /// Which.
        fid: Fid,
        /// Through which descriptor, if through one.
        handle: Option<u64>,
    },
    /// Writes everything back, gives everything back and says goodbye. `Nothing`.
    Leave,
    /// Locks bytes of a file, or all of it. `Nothing` when it is locked.
    Lock {
        /// Which.
        fid: Fid,
        /// The lock.
        lock: Lock,
        /// What if another one is in the way?
        wait: LockWait,
        /// Through which descriptor: tells apart what is open at one time.
        handle: u64,
    },
    /// Gives up what is locked of these bytes; all of them at the close by a process. `Nothing`.
    Unlock {
        /// Of which file.
        fid: Fid,
        /// The owner of the locks.
        owner: LockOwner,
        /// The first byte.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// Which lock is in the way of this one? `InTheWay`.
    TestLock {
        /// Of which file.
        fid: Fid,
        /// The lock.
        lock: Lock,
    },
}

/// Where written bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// From a write(2) that locks no page.
    Direct,
    /// The same, to be put at the end of the file (O_APPEND).
    Append,
    /// From the kernel's page cache, whose pages are locked meanwhile.
    Paged,
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A connection to the server exists; messages sent on an earlier one may be lost.
    Connected {
        /// The version of the protocol that both ends speak.
        version: u32,
    },
    /// It has ended.
    Gone,
    /// A message came, with this many bytes beside it.
    Message {
        /// The message, in a box as those that are sent.
        message: Box<ToClient>,
        /// Number of bytes beside it.
        bulk_len: u32,
    },
    /// A program wants something.
    Call {
        /// Answered once by `Done` with the same number.
        ticket: Ticket,
        /// The user and groups for whom it is made.
        caller: Caller,
        /// The kernel's thread that asks, and does nothing else until it has taken in the answer;
        /// 0: not known.
        thread: u32,
        /// The waiter for the answer.
        waits: Waits,
        /// What.
        call: Call,
    },
    /// A signal came to the caller of a call, and it will handle it. If it waits for a lock, reads
    /// through its descriptor, syncs, or writes what was not sent yet, it is answered soon.
    Interrupt {
        /// Which call.
        ticket: Ticket,
    },
    /// The caller of a call ends: it is answered at once, whatever it waits for.
    Abandon {
        /// Which call.
        ticket: Ticket,
    },
    /// The kernel says that a signal came to the caller of a call, and not which: it is to be
    /// looked at.
    Signalled {
        /// The front's number of the request.
        number: u64,
    },
    /// The kernel keeps no names, so that to drop one takes no lock. For good.
    DropsAtOnce,
    /// The kernel is given a reference to a volume's root, in an answer that is not this machine's.
    Handed {
        /// To which root.
        root: Fid,
    },
    /// The kernel gives back this many of the references that `Entry` answers gave it.
    Forget {
        /// To what.
        fid: Fid,
        /// How many.
        count: u64,
    },
    /// The kernel has dropped what `Invalidate` named.
    Invalidated {
        /// Which `Invalidate`.
        id: u64,
    },
    /// Somebody wants to be told what changes, by `Watched`: first that this has begun.
    Watch {
        /// Chosen by the caller, and never again.
        watch: WatchId,
        /// A directory, or anything else.
        fid: Fid,
        /// All that is below it, at whatever depth.
        recursive: bool,
    },
    /// He wants that no more.
    Unwatch {
        /// Which.
        watch: WatchId,
    },
    /// The cache may use so much memory from now on. It has given up what is more when this was
    /// handled so often that [`super::Client::is_over`] says no, but for what is changed: that is
    /// written back first.
    Memory {
        /// Most slots in use; counts within the limits of the options.
        slots: u32,
        /// Of how many objects the kernel may know without using them.
        objects: usize,
    },
    /// From another client.
    Peer(PeerInput),
    /// The deadline has come.
    Tick,
}

/// How long the kernel may keep an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Not at all.
    None,
    /// Until it is told otherwise.
    Forever,
}

/// An entry of a listing for the front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Name,
    /// The object that it names.
    pub fid: Fid,
    /// Its kind.
    pub kind: Kind,
    /// Where the listing goes on after it.
    pub position: u64,
    /// With `plus`, where the client may say it: attributes and their lifetime; the name's lifetime
    /// is for ever. Each counts as a reference given to the kernel: an entry that the front drops
    /// is given back by `Forget`.
    pub known: Option<(Attr, Lifetime)>,
}

/// The answer to a call.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Refused.
    Refused(Refusal),
    /// An object, and one reference to it given to the kernel.
    Entry {
        /// Its fid.
        fid: Fid,
        /// Its attributes.
        attr: Attr,
        /// How long the name may be kept.
        name_lifetime: Lifetime,
        /// How long the attributes may be kept.
        attr_lifetime: Lifetime,
        /// Of a `Make` with `open`: may the kernel cache through this descriptor?
        cached: bool,
    },
    /// A mount point of a volume of another server. The kernel was given nothing.
    Elsewhere {
        /// The number of the volume.
        volume: u32,
    },
    /// There is no such name.
    Absent {
        /// How long that may be believed.
        lifetime: Lifetime,
    },
    /// Attributes.
    Attr {
        /// The attributes.
        attr: Attr,
        /// How long they may be kept.
        lifetime: Lifetime,
    },
    /// The file is open.
    Opened {
        /// May the kernel cache through this descriptor? If not, it must be direct.
        cached: bool,
        /// All bytes of the file for the kernel's pages, which get them before the answer; or none.
        bytes: Vec<Piece>,
    },
    /// The bytes read, in order; fewer than asked only at the end of the file.
    Read {
        /// The pieces.
        pieces: Vec<Piece>,
    },
    /// A place in a file.
    Position(u64),
    /// This many bytes were written.
    Written {
        /// How many.
        len: u32,
    },
    /// Entries; none at the end.
    Listing {
        /// Where the listing goes on before the first entry; of an answer to `after` 0, which says
        /// nothing about the end.
        start: u64,
        /// The entries.
        entries: Vec<Listed>,
    },
    /// A target, a value or a list of names.
    Bytes(Vec<u8>),
    /// Numbers of the file system.
    Filesystem(Filesystem),
    /// Volumes; after a change of one, that one.
    Volumes(Vec<VolumeInfo>),
    /// A part of what a snapshot has.
    Dump(Box<Dump>),
    /// The lock that is in the way.
    InTheWay(Option<Lock>),
    /// Done.
    Nothing,
}

/// An output of the machine; the outputs are carried out in their order. One that moves bytes
/// (`Send`, `Done`, `Fill`, `CopyIn`, `Zero`) refers to slots and messages as they are at that
/// moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A message to the server, with these bytes beside it.
    Send {
        /// The message, in a box: it is much larger than other outputs, and rarer.
        message: Box<ToServer>,
        /// The bytes.
        bulk: Vec<Piece>,
    },
    /// These bytes are kept for a request as they are now: it may have to be sent again, also after
    /// it was answered.
    Keep {
        /// Which request.
        request: RequestId,
        /// The bytes.
        bulk: Vec<Piece>,
    },
    /// The bytes that are kept for a request are not needed any more.
    Forget {
        /// Which request.
        request: RequestId,
    },
    /// The answer to a call.
    Done {
        /// Which call.
        ticket: Ticket,
        /// The answer.
        done: Done,
    },
    /// The answer to a write whose caller waits no longer. The room keeps its bytes: they may have
    /// to be sent again.
    Abandoned {
        /// Which call.
        ticket: Ticket,
        /// The answer.
        done: Done,
    },
    /// The bytes of a write that was abandoned are not needed any more.
    Spent {
        /// Which call.
        ticket: Ticket,
    },
    /// These have been waiting for a while: do they end, or handle a signal? If so,
    /// [`Input::Abandon`] or [`Input::Interrupt`] says it.
    Look {
        /// The waiters.
        callers: Vec<Waiting>,
    },
    /// Before what follows is done: the kernel throws away the attributes of this object, and those
    /// that are on their way to it. It has the object in use for a change that is about to be
    /// answered.
    Outdated {
        /// Which object.
        fid: Fid,
    },
    /// Bytes beside the message that is being handled go to the beginning of a slot; the rest of
    /// the slot becomes zeros.
    Fill {
        /// Which slot.
        slot: Slot,
        /// From which byte beside the message.
        from: u32,
        /// How many bytes, at most a block.
        len: u32,
    },
    /// Bytes of a write go to a slot.
    CopyIn {
        /// The call whose bytes they are.
        ticket: Ticket,
        /// From which of them.
        from: u32,
        /// To which slot.
        slot: Slot,
        /// To which byte of it.
        at: u32,
        /// How many.
        len: u32,
        /// The kernel may have made zeros of some by itself, behind the end that it took the file
        /// to have: where zeros come, the slot keeps what it has.
        but_zeros: bool,
    },
    /// Bytes of a slot become zeros.
    Zero {
        /// Which slot.
        slot: Slot,
        /// From which byte.
        at: u32,
        /// How many.
        len: u32,
    },
    /// The kernel is told to drop something; answered by `Invalidated`.
    Invalidate {
        /// The number of this.
        id: u64,
        /// What.
        what: Invalidate,
    },
    /// News for a watcher. The first of these says that it has begun; those that say nothing else
    /// are not sent.
    Watched {
        /// Which.
        watch: WatchId,
        /// Some changes before these were missed.
        missed: bool,
        /// Changes, in the order of the server.
        changes: Vec<Change>,
        /// Nothing more comes, and why.
        end: Option<Refusal>,
    },
    /// The connection is of no use: end it, when all messages have left, and make another.
    Hangup,
    /// Nothing is heard on the connection: give it up with all that is under way; make another.
    Redial,
    /// To another client.
    Peer(PeerOutput),
    /// To be logged and counted.
    Event(Event),
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::size_of;

    /// Each call of a program moves some of these from place to place: a rare variant that is much
    /// larger than the others belongs into a box.
    #[test]
    fn inputs_and_outputs_are_small() {
        assert!(size_of::<Input>() <= 160, "{}", size_of::<Input>());
        assert!(size_of::<Output>() <= 216, "{}", size_of::<Output>());
    }
}
