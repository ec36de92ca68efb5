//! The inputs and outputs of the server's machine.

use super::audit::Administered;
use super::mutant::Mutant;
use crate::Ticket;
use crate::peers::Policy;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wire::{
    Attr, Caller, Chosen, Digest, Epoch, Fid, MachineId, Name, Op, Origin, Outcome, Refusal,
    RequestId, Right, Rights, Room, RoomOfDisk, SessionId, Time, ToClient, ToServer, Violation,
    VolumeInfo, VolumeOp,
};

/// Numbers a connection; chosen by the room, never reused.
pub type Conn = u64;

/// Numbers bytes that travel beside messages and are held by the room; 0: none.
pub type Bulk = u64;

/// The limits and delays of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a silent client keeps its tokens, ns.
    pub lease_ns: Time,
    /// How long a client may be silent, though nobody wants what it holds, ns.
    pub silent_ns: Time,
    /// Most tokens that are kept for clients that are silent: of more, those that have been silent
    /// longest lose theirs, though nobody wants them.
    pub silent_tokens: usize,
    /// How long a restarted server waits for the sessions it knew to say what they hold, ns.
    pub grace_ns: Time,
    /// How long a client that is there may leave a recall or `Confirm` unanswered, ns: its lease is
    /// not renewed any more then.
    pub recall_ns: Time,
    /// Time after which an unanswered recall is repeated, ns.
    pub resend_ns: Time,
    /// How long an object that has lost its last name stays at least, ns: a program elsewhere may
    /// just have looked the name up and be about to open it.
    pub linger_ns: Time,
    /// So many recalls of names of a directory are sent to a client that has answered none of them;
    /// further names to drop there are gathered into one.
    pub names_at_once: usize,
    /// An operation on a volume, or on what a list governs, asks for so many objects in one round,
    /// and for the next ones when these have been given up.
    pub gathered_at_once: usize,
    /// Most parts of files that a client may have locked, and requests for locks that wait.
    pub locks: usize,
    /// So many requests for locks of a file in a row by one client until it decides about them
    /// itself; 0: it never does.
    pub lock_run: u32,
    /// Most watches of a client.
    pub watches: usize,
    /// Most changes that are kept for a watch that has not taken them.
    pub watch_changes: usize,
    /// Most bytes of these, about: each has a path or two.
    pub watch_bytes: usize,
    /// How often it is looked what has become of a file that is watched and held Exclusive, ns.
    pub look_ns: Time,
    /// Of so many blocks at most it is known which clients lend them.
    pub hints: usize,
    /// Of so many files at most it is known whether they are read again, which is what lending
    /// begins with; `None`: it begins with the first read.
    pub reread_files: Option<usize>,
    /// How long a reader may show a lender what it was sent there with, ns.
    pub capability_ns: Time,
    /// How long a lender that has failed a reader is not named, ns; longer each time in a row.
    pub rest_ns: Time,
    /// Clients are given room ahead where it is at least so much: else each change is asked for.
    pub room_least: Room,
    /// Rules to be broken on purpose; for tests of the checkers only.
    pub mutant: Option<Mutant>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease_ns: 20_000_000_000,
            silent_ns: 30 * 24 * 3_600_000_000_000,
            silent_tokens: 1 << 20,
            grace_ns: 20_000_000_000,
            recall_ns: 60_000_000_000,
            resend_ns: 10_000_000_000,
            linger_ns: 2_000_000_000,
            names_at_once: 4,
            gathered_at_once: 4096,
            locks: 65_536,
            lock_run: 4,
            watches: 1024,
            watch_changes: 65_536,
            watch_bytes: 16 << 20,
            look_ns: 1_000_000_000,
            hints: 1 << 20,
            reread_files: Some(1 << 16),
            capability_ns: 10_000_000_000,
            rest_ns: 2_000_000_000,
            room_least: Room {
                bytes: 64 << 10,
                objects: 16,
            },
            mutant: None,
        }
    }
}

/// The caller and the circumstances of a change.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    /// The user and groups that asked.
    pub caller: &'a Caller,
    /// With an origin the outcome is kept with the change.
    pub origin: Option<Origin>,
    /// Of a delegated change what the client has chosen: the number of what is made is one of those
    /// that were reserved.
    pub delegated: Option<Chosen>,
    /// It was made before, and a power failure has undone it.
    pub again: bool,
    /// Room in its volume, and on the disk, that others may use without asking: it may not take
    /// any of that. `None`: it has room of its own.
    pub promised: Option<RoomOfDisk>,
}

/// A mount. Groups of the cell may count for less on it than elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct On<'a> {
    /// Its machine.
    pub machine: MachineId,
    /// Its name there.
    pub name: &'a [u8],
}

/// The store as the machine sees it: at once, and never failing but by a refusal.
pub trait Disk {
    /// The wall clock of the server's computer: ns since 1970, right or wrong, and now and then set
    /// anew.
    fn wall(&self) -> Time;
    /// Applies a change at this time of the volume's clock, or answers a question (all but `Read`
    /// and `Sync`). The bytes of a write are those of `bulk`, which the disk may let go when it has
    /// done or refused it; but not when it refuses it for want of room.
    fn apply(&mut self, now: Time, op: &Op, by: By<'_>, bulk: Bulk) -> Outcome;
    /// Reads bytes; they are held under the number returned.
    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> (Outcome, Bulk);
    /// The digests of the blocks that bytes which were read from a file consist of, with zeros
    /// behind the last of them. None: they cannot be vouched for.
    fn digests(&self, _bulk: Bulk) -> Vec<Digest> {
        Vec::new()
    }
    /// Reads these files, each with so many bytes, from their beginnings to their ends. They are
    /// held one behind the other under the number returned; beside it, how many bytes of each: none
    /// of a file that has another length, or cannot be read.
    fn read_whole(&mut self, files: &[(Fid, u32)]) -> (Vec<u32>, Bulk);
    /// The outcome kept with a change of this origin.
    fn answer(&self, origin: Origin) -> Option<Outcome>;
    /// The object that a name names; refused if the disk cannot say.
    fn lookup(&self, dir: Fid, name: &Name) -> Result<Option<Fid>, Refusal>;
    /// The attributes of an object; refused if the disk cannot say.
    fn attr(&self, fid: Fid) -> Result<Option<Attr>, Refusal>;
    /// Is it known that the object has no extended attributes at all?
    fn bare(&self, fid: Fid) -> bool;
    /// May this caller use an object in this way (4: read, 2: write, 1: execute or search), by its
    /// mode and its access list? By the mode alone on a disk that has no lists.
    fn allows(&self, caller: &Caller, fid: Fid, bit: u16) -> Result<bool, Refusal> {
        let Some(attr) = self.attr(fid)? else {
            return Ok(false);
        };
        let groups = caller.groups.as_deref().unwrap_or_default();
        let class = if caller.uid == attr.uid {
            6
        } else if caller.gid == attr.gid || groups.contains(&attr.gid) {
            3
        } else {
            0
        };
        Ok(caller.uid == 0 || (attr.mode >> class) & bit != 0)
    }
    /// Makes of an outcome what clients are shown: where an access list of a directory decides,
    /// the attributes by which the mount's kernel judges as it does. Without such lists there is
    /// nothing to do.
    fn show(&self, _on: On<'_>, _op: &Op, _outcome: &mut Outcome) {}
    /// Does an access list of a directory say who may use this object?
    fn governed(&self, _fid: Fid) -> bool {
        false
    }
    /// May this caller lock a file, where a list says so?
    fn may_lock(&self, _caller: &Caller, _fid: Fid) -> bool {
        true
    }
    /// Gives a caller the groups of the cell that he is in on this mount (none: on most), and no
    /// others.
    fn join_groups(&self, _on: Option<On<'_>>, _caller: &mut Caller) {}
    /// A name of an object: its directory, and how it is called there. Of an object with several
    /// names one of them; `None` if none is known, or it is the root. Refused if the disk cannot
    /// say.
    fn place(&self, fid: Fid) -> Result<Option<(Fid, Name)>, Refusal>;
    /// The directories in which an object has names, each once; of one that has lost its last name,
    /// the one that had it. On a disk where nothing has several names, its place says it.
    fn dirs(&self, fid: Fid) -> Result<Vec<Fid>, Refusal> {
        let place = self.place(fid)?;
        Ok(place.into_iter().map(|(dir, _)| dir).collect())
    }
    /// Objects without a name.
    fn orphans(&self) -> Vec<Fid>;
    /// The volumes, with snapshots and with those whose deletion can be undone. One that has only
    /// its first volume may say nothing.
    fn volumes(&self) -> Vec<VolumeInfo> {
        Vec::new()
    }
    /// The name of a volume; of a snapshot or a replica, that of its volume.
    fn volume_name(&self, volume: u32) -> Option<Name> {
        let all = self.volumes();
        let info = all.iter().find(|info| info.id == volume)?;
        Name::new(wire::origin_name(&info.name)).ok()
    }
    /// The objects of a replica that clients must not keep when the release that is received under
    /// this number is published; `None`: all objects of the volume.
    fn changed_by_release(&self, _half: u32) -> Option<Arc<BTreeSet<Fid>>> {
        None
    }
    /// Room for changes in a volume, and on the disk: of one that has no end, all.
    fn room(&self, _volume: u32) -> RoomOfDisk {
        RoomOfDisk::ALL
    }
    /// Remembers a session over restarts.
    fn open_session(&mut self, session: SessionId, machine: MachineId);
    /// Remembers over restarts that this time has been shown.
    fn note_time(&mut self, shown: Time);
    /// The latest time that it remembers: of a change, or one that it was told of.
    fn newest(&self) -> Time;
    /// Remembers over restarts of the server's process that a client may hold so much of an object
    /// from now on, and no more: `Exclusive` if nobody else may look at it, `None` nothing. `less`:
    /// than before. That counts only when the changes of this step are written: it may follow from
    /// one of them.
    fn note_held(&mut self, at: (SessionId, Fid), most: Right, less: bool);
    /// Remembers over restarts, and over failures of the machine, that a session is away, or is so
    /// no more.
    fn note_away(&mut self, session: SessionId, away: bool);
    /// Forgets a session and its outcomes.
    fn close_session(&mut self, session: SessionId);
    /// The number of the last change's record.
    fn logged(&self) -> u64;
    /// Up to this record everything is stable.
    fn stable(&self) -> u64;
    /// Everything applied so far is stable before any output of this step is carried out. That
    /// takes long: it is for what happens rarely.
    fn make_firm(&mut self);
    /// Forgets the outcomes of a session's requests below this one.
    fn forget_answers(&mut self, session: SessionId, below: RequestId);
}

/// An input of the machine.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A message came.
    Message {
        /// On which connection.
        from: Conn,
        /// The message.
        message: ToServer,
        /// The bytes beside it.
        bulk: Bulk,
        /// How many.
        bulk_len: u32,
    },
    /// A connection was made, by this machine, which has these rights. Without it the connection is
    /// one of a process that need not prove anything.
    Came {
        /// Which.
        conn: Conn,
        /// The machine.
        machine: MachineId,
        /// Its rights.
        rights: Rights,
    },
    /// A machine is not trusted any more: its sessions end at once.
    Expelled {
        /// Which.
        machine: MachineId,
    },
    /// A connection ended.
    Gone {
        /// Which.
        conn: Conn,
    },
    /// From now on clients lend blocks of their caches to each other like this, or not.
    Cooperate {
        /// How.
        policy: Policy,
    },
    /// The cell's groups are others: the disk knows. All that lists govern is asked back, and
    /// `Event::InForce` says that nobody judges by what was.
    Regroup {
        /// The number of this.
        ticket: Ticket,
        /// The mounts on which they count otherwise than before; none: on all.
        on: Option<Vec<(MachineId, Vec<u8>)>>,
    },
    /// The rights of a machine are others: new connections of it come under the new ones. All that
    /// its clients cache is asked back from them, and `Event::InForce` says that nobody judges by
    /// the old ones.
    Regrant {
        /// The number of this.
        ticket: Ticket,
        /// Which.
        machine: MachineId,
        /// The new ones.
        rights: Rights,
    },
    /// The server is to publish by itself what was received under this number, if nothing is in
    /// the way; `Event::Scheduled` says that it is done.
    Publish(u32),
    /// Changes applied before the `Sync` with this ticket are stable, or could not be made so.
    Synced {
        /// Which.
        ticket: Ticket,
        /// Did it succeed?
        ok: bool,
    },
    /// The deadline has come.
    Tick,
}

/// An output of the machine; the outputs are carried out in their order.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A message to a client. It may leave only when everything applied so far is out of the
    /// process's memory.
    Send {
        /// On which connection.
        to: Conn,
        /// The message.
        message: ToClient,
        /// The bytes beside it; the room may let them go afterwards.
        bulk: Bulk,
        /// It arrives behind all that was sent there before, bytes included. (Any other message may
        /// overtake those that have bytes.)
        behind: bool,
    },
    /// Make everything applied so far stable; answered by `Synced`.
    Sync {
        /// The number of this.
        ticket: Ticket,
    },
    /// Bytes that nobody needs any more.
    Discard {
        /// Which.
        bulk: Bulk,
    },
    /// End a connection; `None`: it has been replaced or said goodbye.
    Close {
        /// Which.
        conn: Conn,
        /// How the client broke the protocol.
        violation: Option<Violation>,
    },
    /// To be logged and counted.
    Event(Event),
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session began.
    Opened {
        /// Which.
        session: SessionId,
        /// Its name for people.
        name: Vec<u8>,
    },
    /// A session ended in order.
    Closed {
        /// Which.
        session: SessionId,
    },
    /// A session was ended: its machine is not trusted any more, or was silent for very long.
    Fenced {
        /// Which.
        session: SessionId,
    },
    /// A client was silent for longer than its lease, or did not answer a recall, and others want
    /// something that it holds.
    Away {
        /// The session.
        session: SessionId,
        /// A restarted server has not heard in time what it holds: all of that counts for nothing.
        all: bool,
    },
    /// Such a client has come back.
    Back {
        /// The session.
        session: SessionId,
    },
    /// A token was taken from such a client.
    Taken {
        /// The session.
        session: SessionId,
        /// Of what.
        fid: Fid,
    },
    /// So were its locks of a file.
    Unlocked {
        /// The session.
        session: SessionId,
        /// Of which file.
        fid: Fid,
    },
    /// A change of such a client met changes that others had made meanwhile: its object got another
    /// name.
    Aside {
        /// The session.
        session: SessionId,
        /// In which directory.
        dir: Fid,
        /// Under which name.
        name: Name,
    },
    /// A schedule asked for this, or the server was told to do it by itself, and it was done.
    Scheduled {
        /// What.
        op: VolumeOp,
        /// Why it was not; it is tried again.
        refused: Option<Refusal>,
    },
    /// A user has changed the volumes or an access list, or wanted to.
    Administered(Administered),
    /// Nobody judges any more by what the cell's groups, or the rights of a machine, were.
    InForce {
        /// The number under which that was asked for.
        ticket: Ticket,
        /// False: the server has restarted, and does not know yet who judges by what.
        done: bool,
    },
    /// All known sessions have said what they hold, or their time is over.
    GraceOver,
}

/// A token as listed for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLine {
    /// On what.
    pub fid: Fid,
    /// The client's session.
    pub session: SessionId,
    /// Which.
    pub right: Right,
    /// Epoch of its grant.
    pub epoch: Epoch,
    /// Declared as open, as open for writing.
    pub open: (bool, bool),
}

/// Figures of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Sessions.
    pub sessions: u64,
    /// Objects of which somebody holds something.
    pub files: u64,
    /// Shared tokens.
    pub shared: u64,
    /// Exclusive tokens.
    pub exclusive: u64,
    /// Transient rights.
    pub transient: u64,
    /// Requests that wait for a recall.
    pub waiting: u64,
    /// Recalls sent.
    pub recalls: u64,
    /// Requests compared with what is held, each as often as that was done.
    pub judged: u64,
    /// Holders looked at for them.
    pub looked: u64,
    /// Is the server waiting for sessions known before its restart?
    pub grace: bool,
    /// Requests that wait for one of these.
    pub held: u64,
    /// Parts of files that are locked, as far as the server decides about them.
    pub locks: u64,
    /// Requests that wait for a lock.
    pub lock_waits: u64,
    /// Files about whose locks one client decides.
    pub lock_files: u64,
    /// Watches.
    pub watches: u64,
}
