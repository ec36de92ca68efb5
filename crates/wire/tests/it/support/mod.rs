//! One message of each kind, with each kind of operation and outcome in them, and a small generator
//! of bytes.

mod keeping;
mod stream;
mod volumes;

pub use keeping::{
    kept_to_client, kept_to_server, last_to_client, passing_to_client, passing_to_server,
    stalled_to_client,
};
use stream::{stream_chunk, stream_head};
use volumes::{release_ops, room, volume_info, volume_ops};
use wire::*;

/// Bytes from a seed: the same seed gives the same bytes.
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }
}

pub fn fid(vnode: u64) -> Fid {
    Fid {
        volume: 7,
        vnode,
        uniq: 3,
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn attr() -> Attr {
    Attr {
        kind: Kind::File,
        mode: 0o4755,
        uid: 1000,
        gid: 100,
        nlink: 2,
        size: 1 << 33,
        used_bytes: 4096,
        rdev: 0,
        atime: 1,
        mtime: 1_700_000_000_000_000_000,
        ctime: 3,
        btime: 3,
        version: 12,
    }
}

fn hold() -> Hold {
    Hold {
        open: true,
        write: false,
        stamp: 300,
    }
}

fn make(make: Make, open: Option<Access>) -> Op {
    Op::Make {
        dir: fid(1),
        name: name("new"),
        make,
        mode: 0o640,
        open,
    }
}

pub fn ops() -> Vec<Op> {
    let mut ops = name_ops();
    ops.extend(more_ops());
    ops.extend(lock_ops());
    ops.extend(volume_ops());
    ops.extend(range_ops());
    ops.extend(volumes::mount_ops());
    ops
}

/// Operations on names and attributes.
fn name_ops() -> Vec<Op> {
    let access = Access {
        read: true,
        write: true,
    };
    let set = Set {
        mode: Some(0o600),
        uid: Some(1),
        gid: None,
        size: Some(9),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(77)),
        kill_set_id: true,
    };
    vec![
        Op::Lookup {
            dir: fid(1),
            name: name("f"),
        },
        Op::GetAttr { fid: fid(2) },
        Op::SetAttr { fid: fid(2), set },
        Op::ReadLink { fid: fid(2) },
        make(Make::File, Some(access)),
        make(Make::Directory, None),
        make(Make::Symlink(b"../there".to_vec()), None),
        make(
            Make::Node {
                kind: Kind::Block,
                rdev: 0x801,
            },
            None,
        ),
        Op::Link {
            fid: fid(2),
            dir: fid(1),
            name: name("g"),
        },
        Op::Unlink {
            dir: fid(1),
            name: name("g"),
        },
        Op::Rmdir {
            dir: fid(1),
            name: name("d"),
        },
    ]
}

/// Operations on the bytes and the extra attributes of files, and the rest.
fn more_ops() -> Vec<Op> {
    let access = Access {
        read: true,
        write: true,
    };
    let write = |mode| Op::Write {
        fid: fid(9),
        offset: 4096,
        len: 5,
        mode,
    };
    let xattr = || b"user.x".to_vec();
    vec![
        Op::Rename {
            from: fid(1),
            name: name("a"),
            to: fid(3),
            new: name("b"),
            no_replace: true,
            exchange: false,
        },
        Op::Open {
            fid: fid(9),
            access,
        },
        Op::Read {
            fid: fid(9),
            offset: 1 << 40,
            len: 1 << 20,
        },
        write(WriteMode::At),
        write(WriteMode::Append),
        write(WriteMode::Lazy),
        write(WriteMode::Back {
            size: 4101,
            mtime: 5,
            ctime: 6,
        }),
        Op::ReadDir {
            dir: fid(1),
            after: 1 << 39,
            max: 4096,
        },
        Op::Prefetch {
            dir: fid(1),
            after: 1 << 39,
            max: 64,
        },
        Op::Sync { fid: fid(9) },
        Op::StatFs,
        Op::GetXattr {
            fid: fid(9),
            name: xattr(),
        },
        Op::SetXattr {
            fid: fid(9),
            name: xattr(),
            value: vec![0, 255],
            mode: XattrMode::Create,
        },
        Op::ListXattr { fid: fid(9) },
        Op::RemoveXattr {
            fid: fid(9),
            name: xattr(),
        },
        Op::Reap { fid: fid(9) },
    ]
}

fn lock(owner: LockOwner, last: u64) -> Lock {
    Lock {
        owner,
        mode: LockMode::Exclusive,
        first: 0,
        last,
        pid: 4711,
    }
}

/// Operations on ranges of files, and what came with them.
fn range_ops() -> Vec<Op> {
    vec![
        Op::Allocate {
            fid: fid(9),
            offset: 1 << 33,
            len: 1 << 40,
            zero: true,
            keep_size: false,
        },
        Op::Copy {
            from: fid(9),
            at: 5,
            to: fid(10),
            offset: 1 << 33,
            len: limits::COPY_BYTES,
        },
        Op::Find {
            fid: fid(9),
            offset: 70_000,
            hole: true,
        },
        Op::MakeNameless {
            dir: fid(9),
            mode: 0o640 | 0o022 << UMASK_SHIFT,
            open: Access {
                read: true,
                write: true,
            },
        },
        Op::Reserve { count: 4096 },
        Op::Claim { fid: fid(9) },
        Op::Volumes,
        Op::StatVolume { volume: 7 },
        Op::Room {
            volume: 7,
            held: room(0, 4096),
            want: room(1 << 20, u64::MAX),
        },
        Op::Dump {
            of: name("home@monday"),
            since: Some(name("home@sunday")),
            after: Some(Blob(vec![7; limits::STREAM_AFTER_BYTES])),
            plan: true,
        },
        Op::Restore {
            volume: u32::MAX,
            number: 1 << 50,
            after: Blob(vec![1, 2, 3]),
            chunk: stream_chunk(),
        },
    ]
}

/// Operations on locks.
fn lock_ops() -> Vec<Op> {
    let whole = lock(LockOwner::Whole(1 << 50), u64::MAX);
    let bytes = lock(LockOwner::Bytes(7), 99);
    vec![
        Op::Lock {
            fid: fid(9),
            lock: whole,
            wait: LockWait::Always,
        },
        Op::Lock {
            fid: fid(9),
            lock: Lock {
                mode: LockMode::Shared,
                ..bytes
            },
            wait: LockWait::UnlessDeadlocked,
        },
        Op::Unlock {
            fid: fid(9),
            owner: bytes.owner,
            first: 10,
            last: u64::MAX,
        },
        Op::TestLock {
            fid: fid(9),
            lock: bytes,
        },
        Op::StopWaiting { request: 1 << 33 },
        Op::GiveLocks {
            fid: fid(9),
            upto: 1 << 40,
            decided: 300,
            held: Some(vec![whole, bytes]),
        },
        Op::GiveLocks {
            fid: fid(9),
            upto: 3,
            decided: 0,
            held: None,
        },
    ]
}

/// Their outcomes.
fn lock_outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Locked {
            locked: Locked::Done,
            at: 1 << 40,
            delegated: true,
        },
        Outcome::Locked {
            locked: Locked::Waits,
            at: 1,
            delegated: false,
        },
        Outcome::Locked {
            locked: Locked::Conflict,
            at: 2,
            delegated: false,
        },
        Outcome::InTheWay(None),
        Outcome::InTheWay(Some(lock(LockOwner::Bytes(7), 0))),
        Outcome::Refused(Refusal::Locked),
        Outcome::Refused(Refusal::Deadlock),
        Outcome::Refused(Refusal::TooManyLocks),
    ]
}

/// Outcomes of operations on ranges.
fn range_outcomes() -> Vec<Outcome> {
    vec![
        Outcome::Copied {
            len: limits::COPY_BYTES,
            attr: attr(),
        },
        Outcome::Position(1 << 33),
        Outcome::Volume(volume_info()),
        Outcome::Volumes(vec![volume_info()]),
        Outcome::Dump(Box::new(Dump {
            head: stream_head(),
            chunk: stream_chunk(),
            next: Some(Blob(vec![3; 20])),
        })),
        Outcome::Elsewhere(elsewhere()),
        Outcome::Numbers {
            first: 1 << 40,
            count: 4096,
        },
        Outcome::Refused(Refusal::NothingBehind),
        Outcome::Refused(Refusal::Again),
        Outcome::Refused(Refusal::MountPoint),
    ]
}

pub fn outcomes() -> Vec<Outcome> {
    let entry = DirEntry {
        name: name("e"),
        fid: fid(4),
        kind: Kind::Fifo,
        position: 1 << 39,
        attr: Some(attr()),
        ahead: 4101,
        bare: true,
    };
    vec![
        Outcome::Refused(Refusal::Interrupted),
        Outcome::Absent { dir: attr() },
        Outcome::Entry(Entry {
            fid: fid(4),
            attr: attr(),
            dir: attr(),
        }),
        Outcome::Attr(attr()),
        Outcome::Target(b"/x".to_vec()),
        Outcome::Removed {
            fid: fid(4),
            attr: attr(),
            dir: attr(),
        },
        Outcome::Renamed {
            fid: fid(4),
            attr: attr(),
            victim: Some((fid(5), attr())),
            from: attr(),
            to: attr(),
        },
        Outcome::Opened(attr()),
        Outcome::Read {
            len: 1 << 20,
            size: 1 << 33,
        },
        Outcome::Written {
            offset: 70_000,
            attr: attr(),
        },
        Outcome::Dir {
            entries: vec![entry],
            end: true,
            last: 17,
            dir: attr(),
        },
        Outcome::Filesystem(Filesystem {
            total_bytes: 9,
            free_bytes: 8,
            files: 7,
            free_files: 6,
        }),
        Outcome::Value(b"v".to_vec()),
        Outcome::Done,
    ]
}

/// A request for every operation.
fn requests(acked: RequestId, hold: Hold) -> Vec<ToServer> {
    let caller = Caller {
        uid: 1000,
        gid: 100,
        groups: Some(vec![4, 27]),
    };
    let request = |(at, op): (usize, Op)| {
        let makes = matches!(op, Op::Make { .. });
        let delegated = op.may_be_delegated().then_some(Delegated {
            at: 1 << 60,
            chosen: Chosen {
                vnode: u64::from(makes),
                position: if makes { 5 } else { 0 },
            },
            unseen: true,
            named: [Some((fid(9), 1 << 33)), None],
        });
        ToServer::Request(Request {
            id: at as u64 + 200,
            acked,
            op,
            caller: caller.clone(),
            hold,
            keeps: true,
            ahead: 4096,
            clock: 1 << 59,
            delegated,
            after: at as u64,
            again: None,
            lenders: Lenders::None,
        })
    };
    ops().into_iter().enumerate().map(request).collect()
}

/// Every kind of message of a client, every operation among them.
pub fn to_server() -> Vec<ToServer> {
    let mut all = first_to_server();
    all.extend(added_to_server());
    all.extend(kept_to_server());
    all.extend(passing_to_server());
    all
}

pub fn to_client() -> Vec<ToClient> {
    let mut all = first_to_client();
    all.extend(kept_to_client());
    all.extend(last_to_client());
    all.extend(passing_to_client());
    all.extend(stalled_to_client());
    all
}

/// Those that version 21 of the protocol has added.
pub fn added_to_server() -> Vec<ToServer> {
    let request = |(id, op)| ToServer::Request(Request::new(id, op));
    (1..).zip(release_ops()).map(request).collect()
}

/// Those of version 20.
pub fn first_to_server() -> Vec<ToServer> {
    let (fid, hold) = (fid(9), hold());
    let (sent, acked) = (99, 150);
    let mut all: Vec<ToServer> = requests(acked, hold);
    let delegated = all.iter().filter_map(|message| match message {
        ToServer::Request(request) => request.delegated.is_some().then(|| request.clone()),
        _ => None,
    });
    let delegated = delegated.collect();
    let holding = Holding {
        fid,
        right: Right::Transient,
        hold,
    };
    let unseen = Unseen {
        request: 149,
        names: vec![(fid, name("old")), (fid, name("new"))],
        fids: vec![fid],
    };
    all.extend([
        ToServer::Hello {
            version: 20,
            session: u64::MAX,
            name: b"host:/mnt".to_vec(),
            volume: b"home@monday".to_vec(),
        },
        ToServer::Returned(Returned {
            fid,
            epoch: 1 << 40,
            right: Right::Exclusive,
            upto: 1 << 41,
            hold,
            attr: Some(attr()),
        }),
        ToServer::Release {
            fid,
            epoch: u64::MAX,
            right: Right::None,
            hold,
        },
        ToServer::Opens { fid, hold },
        ToServer::Confirmed { request: 12 },
        ToServer::Reassert {
            term: 1 << 40,
            part: (1, 3),
            again: 300,
            holdings: vec![holding],
            unseen: vec![unseen],
            locks: vec![HeldLock {
                fid,
                lock: lock(LockOwner::Bytes(7), 99),
            }],
        },
        ToServer::KeepAlive { sent, acked },
        ToServer::Goodbye,
        ToServer::Requests(delegated),
        asked_again(),
        ToServer::Lends {
            addr: b"192.0.2.1:7071".to_vec(),
            key: [7; 32],
        },
    ]);
    let reads = [Lenders::Any, Lenders::Lacking(3), Lenders::Failing(1 << 20)];
    all.extend(reads.map(read_from));
    all.extend(watching());
    all
}

/// A read that another client may bring, or might have.
fn read_from(lenders: Lenders) -> ToServer {
    ToServer::Request(Request {
        id: 141,
        acked: 139,
        op: Op::Read {
            fid: fid(9),
            offset: 4096,
            len: 8192,
        },
        caller: Caller::default(),
        hold: hold(),
        keeps: false,
        ahead: 0,
        clock: 0,
        delegated: None,
        after: 0,
        again: None,
        lenders,
    })
}

/// Blocks that a reader may have.
pub fn capability() -> Capability {
    Capability {
        fid: fid(9),
        version: 1 << 33,
        first: 1 << 20,
        count: 2,
        until: 1 << 60,
        reader: [8; 32],
        seal: [9; 32],
    }
}

/// Bytes that another client has.
pub fn elsewhere() -> Elsewhere {
    Elsewhere {
        len: 8000,
        size: 1 << 33,
        lender: 300,
        addr: b"192.0.2.1:7071".to_vec(),
        key: [7; 32],
        digests: vec![Some(Digest([6; 16])), None],
        capability: capability(),
    }
}

/// A change that is asked for again.
fn asked_again() -> ToServer {
    ToServer::Request(Request {
        id: 140,
        acked: 139,
        op: ops().into_iter().find(Op::changes).expect("a change"),
        caller: Caller::default(),
        hold: hold(),
        keeps: false,
        ahead: 0,
        clock: 1 << 59,
        delegated: None,
        after: 0,
        again: Some(Box::new(Again {
            place: Place {
                boot: 3 << 40,
                record: 1 << 33,
            },
            index: 299,
            at: 1 << 60,
            chosen: Chosen {
                vnode: 77,
                position: 5,
            },
            named: [Some(fid(9)), None],
        })),
        lenders: Lenders::None,
    })
}

/// Messages of a client about its waits and watches.
fn watching() -> [ToServer; 5] {
    [
        ToServer::PutBack { request: 13 },
        ToServer::Heard { request: 12 },
        ToServer::Watch {
            watch: 300,
            fid: fid(9),
            recursive: true,
            next: 1 << 40,
        },
        ToServer::Took {
            watch: 300,
            next: 1 << 41,
        },
        ToServer::Unwatch { watch: 300 },
    ]
}

fn welcome() -> ToClient {
    ToClient::Welcome(Welcome {
        boot: 1 << 40,
        term: 5 << 40,
        root: Fid::root(7),
        resumed: true,
        lease_ns: 20_000_000_000,
        clock: 1 << 60,
        left: vec![Place {
            boot: 3 << 40,
            record: 1 << 31,
        }],
        rights: bounded(),
    })
}

/// Every kind of message of a server, every outcome among them.
fn bounded() -> Rights {
    Rights {
        trusted: false,
        uids: vec![(1000, 1999)],
        users: vec![Proven {
            uid: 1001,
            gid: 100,
            groups: vec![7, 8],
            session: Some(1 << 40),
            write: false,
            under: Some(vec![Name::new(b"job").unwrap()]),
            expired: true,
        }],
        ..Rights::default()
    }
}

/// Messages of a server about lending.
fn lending() -> [ToClient; 2] {
    [
        ToClient::Lend {
            lender: 300,
            secret: [9; 32],
        },
        ToClient::Keep,
    ]
}

/// A reply with each outcome.
fn replies() -> Vec<ToClient> {
    let (fid, epoch) = (fid(9), 1 << 40);
    let grants = vec![Grant {
        fid,
        right: Right::Shared,
        epoch,
        bare: true,
    }];
    let reply = |(at, outcome): (usize, Outcome)| {
        let reply = Reply {
            outcome,
            grants: grants.clone(),
            heard: 1 << 50,
            logged: (at % 3 == 0).then_some(Logged {
                record: 1 << 33,
                at: 1 << 60,
            }),
            aside: (at % 5 == 0).then(|| (fid, name("aside"))),
        };
        ToClient::Reply {
            id: at as u64 + 200,
            reply,
            clock: 1 << 60,
            renews: at % 2 == 0,
            stable: 1 << 32,
        }
    };
    let all = outcomes().into_iter().chain(lock_outcomes());
    let all = all.chain(range_outcomes());
    all.enumerate().map(reply).collect()
}

/// Those of version 20.
pub fn first_to_client() -> Vec<ToClient> {
    let (fid, epoch) = (fid(9), 1 << 40);
    let mut all = replies();
    let recall = |what| ToClient::Recall(Recall { fid, epoch, what });
    all.extend([
        welcome(),
        recall(What::Keep(Right::Shared)),
        recall(What::Names(vec![name("a"), name("b")])),
        recall(What::Attr),
        recall(What::Listed),
        recall(What::Unused),
        recall(What::Locks),
        ToClient::Confirm { request: 12 },
        ToClient::Alive {
            sent: 99,
            clock: 1 << 60,
            stable: 1 << 32,
        },
        ToClient::Noted { fid, stamp: 300 },
        ToClient::Reasserted {
            term: 1 << 40,
            part: 3,
            taken: vec![fid],
            unlocked: vec![fid],
        },
        ToClient::Lost,
        ToClient::Waited {
            request: 12,
            outcome: Outcome::Refused(Refusal::Interrupted),
        },
        ToClient::Watched {
            watch: 300,
            first: 1 << 40,
            missed: true,
            changes: changes(),
            end: None,
        },
        ToClient::Watched {
            watch: 301,
            first: 1,
            missed: false,
            changes: Vec::new(),
            end: Some(Refusal::TooManyWatches),
        },
    ]);
    all.extend(lending());
    all
}

/// Every deed that is told to watchers.
fn changes() -> Vec<Change> {
    let to = Some(b"sub/new".to_vec());
    let deeds = [
        Deed::Made,
        Deed::Removed,
        Deed::Moved { to: to.clone() },
        Deed::Exchanged { with: to },
        Deed::Written,
        Deed::Attributes,
    ];
    let change = |(at, deed): (usize, Deed)| Change {
        deed,
        fid: fid(at as u64),
        kind: Kind::Directory,
        path: (at > 0).then(|| b"a/b".to_vec()),
    };
    deeds.into_iter().enumerate().map(change).collect()
}
