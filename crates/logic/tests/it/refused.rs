//! A client with a certificate but no right asks for every kind of operation on what its machine
//! may not get at, whatever number it guesses: all of them are refused, and the same is granted to
//! a machine that may.

use crate::support::disk::MemoryDisk;
use crate::support::operations::{KINDS, every, kind};
use logic::server::{Input, Options, Output, Server, Want, rule};
use wire::{
    Access, Caller, Change, Fid, Hold, Holding, Make, Name, Op, Outcome, Proven, Refusal, Request,
    Right, Rights, SessionId, Set, Time, ToClient, ToServer, VERSION, VolumeOp, WriteMode,
};

pub(crate) const STRANGER: u64 = 1;
pub(crate) const OWNER: u64 = 2;
const SESSION: SessionId = 77;
const BOOT: u64 = 1 << 40;
const SECOND: Time = 1_000_000_000;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A tree in which `dir` (of root, mode as given) holds `f` (of root, mode as given) and `sub`.
pub(crate) struct World {
    pub(crate) server: Server,
    disk: MemoryDisk,
    pub(crate) last: u64,
    pub(crate) dir: Fid,
    pub(crate) file: Fid,
}

impl World {
    pub(crate) fn new(dir_mode: u16, file_mode: u16) -> Self {
        let options = Options::default();
        let root = Fid::root(1);
        let mut world = Self {
            server: Server::new(options, 0, (BOOT, root), (vec![], 0)),
            disk: MemoryDisk::new(),
            last: 0,
            dir: root,
            file: root,
        };
        world.comes(OWNER, Rights::all());
        world.dir = world.make(root, "dir", Make::Directory, 0o755);
        world.file = world.make(world.dir, "f", Make::File, 0o644);
        world.make(world.dir, "sub", Make::Directory, 0o755);
        for (fid, mode) in [(world.file, file_mode), (world.dir, dir_mode)] {
            let set = Set {
                mode: Some(mode),
                ..Set::default()
            };
            world.must(Op::SetAttr { fid, set });
        }
        world.says(OWNER, ToServer::Goodbye);
        world
    }

    /// One that a machine without rights of its own has come to, and an operation on it.
    fn asked((dir_mode, file_mode): (u16, u16), at: usize) -> (Self, Op) {
        let mut world = Self::new(dir_mode, file_mode);
        world.comes(STRANGER, Rights::default());
        let op = every(world.file, world.dir).swap_remove(at);
        (world, op)
    }

    pub(crate) fn make(&mut self, dir: Fid, called: &str, make: Make, mode: u32) -> Fid {
        let name = name(called);
        let open = None;
        let outcome = self.must(Op::Make {
            dir,
            name,
            make,
            mode,
            open,
        });
        let Outcome::Entry(entry) = outcome else {
            panic!("{outcome:?}");
        };
        entry.fid
    }

    /// Root of a machine that may everything does this.
    pub(crate) fn must(&mut self, op: Op) -> Outcome {
        let outcome = self.asks(OWNER, op);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        outcome
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.server.handle(SECOND, input, &mut self.disk, &mut out);
        out
    }

    /// A machine comes, and greets.
    pub(crate) fn comes(&mut self, machine: u64, rights: Rights) -> Vec<Output> {
        let conn = machine;
        self.input(Input::Came {
            conn,
            machine,
            rights,
        });
        let hello = ToServer::Hello {
            version: VERSION,
            session: SESSION + machine,
            name: b"host".to_vec(),
            volume: Vec::new(),
        };
        self.says(machine, hello)
    }

    pub(crate) fn says(&mut self, from: u64, message: ToServer) -> Vec<Output> {
        let bulk_len = match &message {
            ToServer::Request(Request {
                op: Op::Write { len, .. },
                ..
            }) => *len,
            _ => 0,
        };
        self.input(Input::Message {
            from,
            message,
            bulk: 0,
            bulk_len,
        })
    }

    pub(crate) fn asks(&mut self, from: u64, op: Op) -> Outcome {
        self.asks_with(from, op, Hold::default())
    }

    /// It says that root asks, in all groups.
    pub(crate) fn request(&self, op: Op) -> Request {
        let groups = Some(vec![0]);
        let caller = Caller {
            groups,
            ..Caller::default()
        };
        Request {
            caller,
            keeps: true,
            ahead: 1 << 16,
            ..Request::new(self.last, op)
        }
    }

    pub(crate) fn asks_with(&mut self, from: u64, op: Op, hold: Hold) -> Outcome {
        self.last += 1;
        let request = Request {
            hold,
            ..self.request(op)
        };
        let out = self.says(from, ToServer::Request(request));
        let mut replies = out.iter().filter_map(|output| match output {
            Output::Send {
                message: ToClient::Reply { reply, .. },
                bulk,
                ..
            } => Some((reply.clone(), *bulk)),
            _ => None,
        });
        if out
            .iter()
            .any(|output| matches!(output, Output::Sync { .. }))
        {
            return Outcome::Done;
        }
        let (reply, bulk) = replies.next().unwrap_or_else(|| panic!("{out:?}"));
        if matches!(reply.outcome, Outcome::Refused(_)) {
            assert!(reply.grants.is_empty() && bulk == 0, "{reply:?}");
        }
        reply.outcome
    }
}

pub(crate) fn denied() -> Outcome {
    Outcome::Refused(Refusal::Denied)
}

#[test]
fn each_kind_of_operation_is_listed_once() {
    let mut seen = vec![false; KINDS];
    for op in every(Fid::root(1), Fid::root(1)) {
        assert!(!core::mem::replace(&mut seen[kind(&op)], true), "{op:?}");
    }
    assert!(seen.iter().all(|seen| *seen), "{seen:?}");
}

#[test]
fn each_operation_on_what_nobody_of_a_machine_can_come_to_is_refused() {
    // A caller that came to them could do everything: the way alone is closed.
    let mut refused = 0;
    for at in 0..KINDS {
        let (mut world, op) = World::asked((0o700, 0o666), at);
        let file = world.file;
        let mut about = rule(&op).objects.into_iter().flatten();
        // `dir` itself has a name in the root, which anybody may look up.
        let closed = about.any(|(fid, _)| fid == file);
        let outcome = world.asks(STRANGER, op.clone());
        assert_eq!(outcome == denied(), closed, "{op:?}: {outcome:?}");
        refused += usize::from(closed);
    }
    assert_eq!(refused, 20);
}

#[test]
fn bytes_of_what_nobody_of_a_machine_may_open_are_refused_by_each_operation() {
    let mut refused = 0;
    for at in 0..KINDS {
        let (mut world, op) = World::asked((0o755, 0o600), at);
        let opens = |(_, want): (Fid, Want)| want != Want::Reach;
        let opened = rule(&op).objects.into_iter().flatten().any(opens);
        let outcome = world.asks(STRANGER, op.clone());
        // The rest is the store's to say, which compares the caller.
        if !rule(&op).caller {
            assert_eq!(outcome == denied(), opened, "{op:?}: {outcome:?}");
            refused += usize::from(opened);
        }
    }
    assert_eq!(refused, 8);
}

#[test]
fn a_machine_whose_users_may_is_refused_none_of_it() {
    for at in 0..KINDS {
        let (mut world, op) = World::asked((0o755, 0o666), at);
        let outcome = world.asks(STRANGER, op.clone());
        assert_ne!(outcome, denied(), "{op:?}");
    }
}

#[test]
fn the_snapshots_of_a_volume_are_listed_to_machines_whose_root_is_nobody() {
    let mut world = World::new(0o755, 0o644);
    world.comes(STRANGER, Rights::default());
    let dir = Fid::snapshots(1);
    let (after, max, name) = (0, 100, name("none"));
    for op in [
        Op::GetAttr { fid: dir },
        Op::ReadDir { dir, after, max },
        Op::Lookup { dir, name },
    ] {
        let outcome = world.asks(STRANGER, op.clone());
        assert!(
            !matches!(outcome, Outcome::Refused(_)),
            "{op:?}: {outcome:?}"
        );
    }
}

#[test]
fn what_is_said_unasked_of_things_out_of_reach_counts_for_nothing() {
    let mut world = World::new(0o700, 0o600);
    world.comes(STRANGER, Rights::default());
    let (fid, stamp) = (world.file, 9);
    let hold = Hold {
        open: true,
        write: true,
        stamp,
    };
    // It does not count as open, so it opens no way.
    world.says(STRANGER, ToServer::Opens { fid, hold });
    assert_eq!(world.asks(STRANGER, Op::GetAttr { fid }), denied());
    assert!(world.server.tokens().iter().all(|token| token.fid != fid));
    // Nor is it watched.
    let watch = ToServer::Watch {
        watch: 1,
        fid: world.dir,
        recursive: true,
        next: 0,
    };
    let out = world.says(STRANGER, watch);
    let ended = out.iter().any(|output| match output {
        Output::Send {
            message: ToClient::Watched { end, .. },
            ..
        } => *end == Some(Refusal::Denied),
        _ => false,
    });
    assert!(ended, "{out:?}");
}

#[test]
fn a_watch_of_all_tells_nothing_of_what_its_machine_may_not_list() {
    for (mode, told) in [(0o700, 0), (0o711, 0), (0o744, 0), (0o755, 1)] {
        let mut world = World::new(mode, 0o600);
        world.comes(STRANGER, Rights::default());
        world.comes(OWNER, Rights::all());
        let watch = ToServer::Watch {
            watch: 1,
            fid: Fid::root(1),
            recursive: true,
            next: 0,
        };
        world.says(STRANGER, watch);
        world.says(STRANGER, ToServer::Took { watch: 1, next: 1 });
        let dir = world.dir;
        let make = Op::Make {
            dir,
            name: name("hidden"),
            make: Make::File,
            mode: 0,
            open: None,
        };
        world.last += 1;
        let request = world.request(make);
        let out = world.says(OWNER, ToServer::Request(request));
        let changes = out.iter().filter_map(|output| match output {
            Output::Send {
                to: STRANGER,
                message: ToClient::Watched { changes, .. },
                ..
            } => Some(changes.clone()),
            _ => None,
        });
        let changes: Vec<Change> = changes.flatten().collect();
        assert_eq!(changes.len(), told, "{mode:o}: {changes:?}");
    }
}

#[test]
fn who_says_after_a_restart_that_it_holds_what_it_cannot_have_is_refused_all() {
    for (right, hold, mode, believed) in [
        (Right::Exclusive, Hold::default(), 0o600, false),
        (Right::Exclusive, Hold::default(), 0o666, true),
        (Right::Shared, Hold::default(), 0o600, true),
        (Right::None, open(), 0o600, false),
        (Right::None, open(), 0o644, true),
    ] {
        let known = vec![SESSION + STRANGER];
        let mut world = World::new(0o755, mode);
        let (options, root) = (Options::default(), Fid::root(1));
        world.server = Server::new(options, 0, (BOOT, root), (known, 0));
        world.comes(STRANGER, Rights::default());
        let fid = world.file;
        let holdings = vec![Holding { fid, right, hold }];
        let out = world.says(
            STRANGER,
            ToServer::Reassert {
                term: BOOT,
                part: (0, 1),
                again: 0,
                holdings,
                unseen: vec![],
                locks: vec![],
            },
        );
        let taken = out.iter().any(|output| match output {
            Output::Send { message, .. } => {
                matches!(message, ToClient::Reasserted { taken, .. } if taken.is_empty())
            }
            _ => false,
        });
        assert_eq!(taken, believed, "{right:?} {hold:?} {mode:o}: {out:?}");
    }
}

fn open() -> Hold {
    Hold {
        open: true,
        write: false,
        stamp: 1,
    }
}

/// Changes that the kernel of a machine asks for in root's name are made, where the machine may
/// write.
#[test]
fn what_a_write_brings_with_it_is_done_also_where_root_is_nobody() {
    for (mode, done) in [(0o602, true), (0o600, false)] {
        let mut world = World::new(0o755, mode);
        world.disk.judges = true;
        world.comes(STRANGER, Rights::default());
        let fid = world.file;
        let cut = Op::SetAttr {
            fid,
            set: Set {
                size: Some(1),
                ..Set::default()
            },
        };
        let hold = Hold {
            write: true,
            ..open()
        };
        let outcome = world.asks_with(STRANGER, cut.clone(), hold);
        assert_eq!(matches!(outcome, Outcome::Attr(_)), done, "{outcome:?}");
        let capability = b"security.capability".to_vec();
        let ends = Op::RemoveXattr {
            fid,
            name: capability,
        };
        let outcome = world.asks(STRANGER, ends);
        let allowed = !matches!(
            outcome,
            Outcome::Refused(Refusal::NotPermitted | Refusal::Denied)
        );
        assert_eq!(allowed, done, "{outcome:?}");
        // A size is not set in root's name for a client that has nothing open, nor is anything
        // else.
        let closed = world.asks(STRANGER, cut);
        assert_eq!(closed, Outcome::Refused(Refusal::NotPermitted));
        let mut set = Set {
            size: Some(1),
            ..Set::default()
        };
        set.mode = Some(0o4777);
        let outcome = world.asks_with(STRANGER, Op::SetAttr { fid, set }, hold);
        assert_eq!(outcome, Outcome::Refused(Refusal::NotPermitted));
    }
}

/// Bytes are written back under an earlier grant, and are taken from its holder alone.
#[test]
fn bytes_are_written_back_by_the_holder_alone() {
    let mut world = World::new(0o755, 0o666);
    world.comes(STRANGER, Rights::default());
    let fid = world.file;
    let back = Op::Write {
        fid,
        offset: 0,
        len: 0,
        mode: WriteMode::Back {
            size: 0,
            mtime: 1,
            ctime: 1,
        },
    };
    let lost = Outcome::Refused(Refusal::SessionLost);
    assert_eq!(world.asks(STRANGER, back.clone()), lost);
    let access = Access {
        read: true,
        write: true,
    };
    let opened = world.asks_with(
        STRANGER,
        Op::Open { fid, access },
        Hold {
            write: true,
            ..open()
        },
    );
    assert!(matches!(opened, Outcome::Opened(_)), "{opened:?}");
    let written = world.asks(STRANGER, back);
    assert!(matches!(written, Outcome::Written { .. }), "{written:?}");
}

/// A user who may list a directory, and not search it, learns names alone.
#[test]
fn names_alone_are_listed_where_nobody_may_search() {
    for (mode, shown) in [(0o744, false), (0o755, true)] {
        let mut world = World::new(mode, 0o644);
        world.comes(STRANGER, Rights::default());
        let (dir, fid) = (world.dir, world.file);
        let (after, max) = (0, 10);
        let Outcome::Dir { entries, .. } = world.asks(STRANGER, Op::ReadDir { dir, after, max })
        else {
            panic!("no listing");
        };
        assert_eq!(entries.len(), 2);
        assert!(entries.iter().all(|entry| entry.attr.is_some() == shown));
        let attr = world.asks(STRANGER, Op::GetAttr { fid });
        assert_eq!(attr != denied(), shown, "{attr:?}");
    }
}

/// The table of docs/security.md says of each operation what the code does.
#[test]
fn the_page_says_the_rule_of_each_operation() {
    let page = include_str!("../../../../docs/security.md");
    let words = |want: Want| match want {
        Want::Reach => "come to",
        Want::Open => "open",
        Want::Read => "read",
        Want::Write => "write",
    };
    let fid = Fid {
        vnode: 5,
        ..Fid::root(1)
    };
    for op in every(fid, Fid::root(1)) {
        let rule = rule(&op);
        let objects = rule.objects.into_iter().flatten();
        let mut wants: Vec<&str> = objects.map(|(_, want)| words(want)).collect();
        wants.dedup();
        let compared = if rule.caller { "yes" } else { "no" };
        let wanted = if wants.is_empty() {
            "nothing".to_owned()
        } else {
            wants.join(", ")
        };
        let row = format!("| {} | {compared} | {wanted} |", op.kind());
        assert!(page.lines().any(|line| line == row), "no row {row:?}");
    }
}

/// A mode that its holder has changed and not told yet counts: it is asked for first.
#[test]
fn a_right_that_was_given_and_not_told_yet_is_found_out() {
    let mut world = World::new(0o755, 0o600);
    world.comes(OWNER, Rights::all());
    world.comes(STRANGER, Rights::default());
    let (fid, last) = (world.file, world.last);
    let access = Access {
        read: true,
        write: true,
    };
    world.must(Op::Open { fid, access });
    let held = world.server.tokens();
    assert!(
        held.iter()
            .any(|token| token.fid == fid && token.right == Right::Exclusive)
    );
    world.last = last + 100;
    let read = Op::Read {
        fid,
        offset: 0,
        len: 0,
    };
    let out = world.says(STRANGER, ToServer::Request(world.request(read)));
    // The owner is asked, and says what it has changed before it answers.
    let asked = out.iter().find_map(|output| match output {
        Output::Send {
            to: OWNER,
            message: ToClient::Recall(recall),
            ..
        } => Some(recall.clone()),
        _ => None,
    });
    let recall = asked.unwrap_or_else(|| panic!("nobody is asked: {out:?}"));
    world.last = last + 50;
    let set = Set {
        mode: Some(0o644),
        ..Set::default()
    };
    world.must(Op::SetAttr { fid, set });
    let returned = wire::Returned {
        fid,
        epoch: recall.epoch,
        right: Right::None,
        upto: recall.epoch,
        hold: Hold::default(),
        attr: None,
    };
    let mut out = world.says(OWNER, ToServer::Returned(returned));
    let request = world.last;
    out.extend(world.says(OWNER, ToServer::Confirmed { request }));
    let outcome = out.iter().find_map(|output| match output {
        Output::Send {
            to: STRANGER,
            message: ToClient::Reply { reply, .. },
            ..
        } => Some(reply.outcome.clone()),
        _ => None,
    });
    assert!(matches!(outcome, Some(Outcome::Read { .. })), "{out:?}");
}

fn proven(uid: u32) -> Proven {
    Proven {
        uid,
        gid: uid,
        groups: vec![],
        session: None,
        write: true,
        under: None,
        expired: false,
    }
}

/// A machine whose users prove themselves comes, with this one of them.
fn with_user(world: &mut World, user: Proven) {
    let rights = Rights {
        trusted: false,
        root: true,
        users: vec![user],
        ..Rights::default()
    };
    world.comes(STRANGER, rights);
}

#[test]
fn nobody_is_anybody_where_users_prove_themselves() {
    for at in 0..KINDS {
        // The machine says that root asks. Nobody may read what all may, and changes nothing.
        let mut world = World::new(0o777, 0o666);
        with_user(&mut world, proven(1001));
        let op = every(world.file, world.dir).swap_remove(at);
        if op.changes() && rule(&op).caller {
            assert_eq!(world.asks(STRANGER, op.clone()), denied(), "{op:?}");
        }
    }
}

#[test]
fn a_proof_counts_until_it_expires_and_within_its_limits() {
    let reads = |world: &mut World, user: u32, fid: Fid| {
        world.last += 1;
        let mut request = world.request(Op::Open {
            fid,
            access: Access {
                read: true,
                write: false,
            },
        });
        request.caller.uid = user;
        let out = world.says(STRANGER, ToServer::Request(request));
        let mut replies = out.iter().filter_map(|output| match output {
            Output::Send {
                message: ToClient::Reply { reply, .. },
                ..
            } => Some(reply.outcome.clone()),
            _ => None,
        });
        replies.next().unwrap_or_else(|| panic!("{out:?}"))
    };
    let under = |path: &str| Some(vec![name(path)]);
    for (user, expected) in [
        (proven(1001), None),
        (
            Proven {
                under: under("dir"),
                ..proven(1001)
            },
            None,
        ),
        (
            Proven {
                under: under("other"),
                ..proven(1001)
            },
            Some(Refusal::Denied),
        ),
        (
            Proven {
                under: under("none"),
                ..proven(1001)
            },
            Some(Refusal::Denied),
        ),
        (
            Proven {
                expired: true,
                ..proven(1001)
            },
            Some(Refusal::Expired),
        ),
    ] {
        let mut world = World::new(0o755, 0o644);
        world.comes(OWNER, Rights::all());
        world.make(Fid::root(1), "other", Make::Directory, 0o755);
        world.says(OWNER, ToServer::Goodbye);
        with_user(&mut world, user.clone());
        let fid = world.file;
        let outcome = reads(&mut world, 1001, fid);
        let refusal = match outcome {
            Outcome::Refused(refusal) => Some(refusal),
            _ => None,
        };
        assert_eq!(refusal, expected, "{user:?}: {outcome:?}");
    }
}

/// The path of a proof is looked for when something is asked: it may come, and be another
/// directory, while the session goes on.
#[test]
fn what_a_proof_is_limited_to_is_found_when_it_comes_and_left_when_it_goes() {
    let mut world = World::new(0o755, 0o644);
    let under = Some(vec![name("late"), name("deep")]);
    let user = Proven {
        under,
        write: false,
        ..proven(1001)
    };
    with_user(&mut world, user);
    let root = Fid::root(1);
    let asked = |world: &mut World, op: Op| {
        world.last += 1;
        let mut request = world.request(op);
        request.caller.uid = 1001;
        let out = world.says(STRANGER, ToServer::Request(request));
        let reply = out.iter().find_map(|output| match output {
            Output::Send {
                message: ToClient::Reply { reply, .. },
                ..
            } => Some(reply.outcome.clone()),
            _ => None,
        });
        reply.unwrap_or_else(|| panic!("{out:?}"))
    };
    let looked = |world: &mut World, dir: Fid, called: &str| {
        let name = name(called);
        asked(world, Op::Lookup { dir, name })
    };
    assert_eq!(looked(&mut world, root, "dir"), denied());
    let alone = |world: &mut World, does: &dyn Fn(&mut World)| {
        world.comes(OWNER, Rights::all());
        does(world);
        world.says(OWNER, ToServer::Goodbye);
    };
    alone(&mut world, &|world| {
        let late = world.make(root, "late", Make::Directory, 0o755);
        let deep = world.make(late, "deep", Make::Directory, 0o755);
        world.make(deep, "f", Make::File, 0o644);
        world.make(late, "beside", Make::File, 0o644);
    });
    let found = |outcome: Outcome| match outcome {
        Outcome::Entry(entry) => entry.fid,
        other => panic!("{other:?}"),
    };
    let late = found(looked(&mut world, root, "late"));
    let deep = found(looked(&mut world, late, "deep"));
    let file = found(looked(&mut world, deep, "f"));
    assert_eq!(looked(&mut world, late, "beside"), denied());
    let access = Access {
        read: true,
        write: false,
    };
    let (offset, len) = (0, 10);
    for op in [
        Op::Open { fid: file, access },
        Op::Read {
            fid: file,
            offset,
            len,
        },
    ] {
        let outcome = asked(&mut world, op);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
    assert!(matches!(
        world.asks(STRANGER, Op::GetAttr { fid: file }),
        Outcome::Attr(_)
    ));
}

/// A session is asked for objects that its users may not have any more, as soon as it has come
/// again.
#[test]
fn what_is_cached_is_asked_back_when_a_proof_has_expired() {
    for (mode, asked) in [(0o600, true), (0o644, false)] {
        let mut world = World::new(0o755, 0o600);
        world.comes(OWNER, Rights::all());
        let (fid, uid) = (world.file, Some(1001));
        let set = Set {
            uid,
            mode: Some(mode),
            ..Set::default()
        };
        world.must(Op::SetAttr { fid, set });
        world.says(OWNER, ToServer::Goodbye);
        with_user(&mut world, proven(1001));
        assert!(matches!(
            world.asks(STRANGER, Op::GetAttr { fid }),
            Outcome::Attr(_)
        ));
        let rights = Rights {
            trusted: false,
            users: vec![Proven {
                expired: true,
                ..proven(1001)
            }],
            ..Rights::default()
        };
        let out = world.comes(STRANGER, rights);
        let recalled = out.iter().any(|output| match output {
            Output::Send {
                message: ToClient::Recall(recall),
                ..
            } => recall.fid == fid,
            _ => false,
        });
        assert_eq!(recalled, asked, "{mode:o}: {out:?}");
    }
}

#[test]
fn what_is_behind_a_mount_point_is_open_or_closed_by_its_own_modes() {
    for (mode, refused) in [(0o755, false), (0o700, true)] {
        let mut world = World::new(mode, 0o644);
        world.comes(OWNER, Rights::all());
        let (of, new) = (name("root"), name("home"));
        world.must(Op::Volume(VolumeOp::Clone { of, name: new }));
        world.comes(STRANGER, Rights::default());
        let fid = Fid {
            volume: 2,
            ..world.file
        };
        let outcome = world.asks(STRANGER, Op::GetAttr { fid });
        assert_eq!(outcome == denied(), refused, "{mode:o}: {outcome:?}");
    }
}
